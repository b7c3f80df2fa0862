//! One partition of a tier, for people and for machines.

use std::collections::{HashMap, HashSet};
use std::fmt;

use indicatif::HumanBytes;
use krabka_remote_storage::RemoteStorageError;
use krabka_remote_storage::model::{TopicIdPartition, kafka_uuid};
use krabka_remote_storage::rebuild::ListedSegment;
use serde::Serialize;

use super::State;
use crate::ends::{Ended, answering, gaps};
use crate::failure::chain;
use crate::output::count;
use crate::rebuilt::Rebuilt;
use crate::tier::TierSegment;

/// A partition and its complete segments.
#[derive(Debug, Serialize)]
pub(super) struct PartitionReport {
    topic: String,
    topic_id: String,
    partition: i32,
    /// The lowest and the highest offset, both inclusive; null without a readable segment.
    first_offset: Option<i64>,
    last_offset: Option<i64>,
    /// Bytes of all objects of complete segments.
    size_bytes: u64,
    segments: Vec<SegmentReport>,
    gaps: Vec<Gap>,
    incomplete_segments: usize,
}

#[derive(Debug, Serialize)]
struct SegmentReport {
    segment_id: String,
    first_offset: i64,
    /// Inclusive; null when the log has no batch or is damaged.
    last_offset: Option<i64>,
    /// Of the last batch; null when unknown.
    leader_epoch: Option<i32>,
    /// When the `.log` was written, in milliseconds since 1970-01-01 UTC.
    last_modified_ms: Option<i64>,
    log_size_bytes: u64,
    size_bytes: u64,
    objects: Vec<ObjectReport>,
    /// Whether others that count more hold all of its offsets.
    superseded: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<String>,
}

/// One object of a segment.
#[derive(Debug, Serialize)]
pub(super) struct ObjectReport {
    key: String,
    suffix: String,
    size_bytes: u64,
}

/// Offsets that are in no segment, both inclusive.
#[derive(Debug, Serialize)]
struct Gap {
    first_offset: i64,
    last_offset: i64,
}

impl PartitionReport {
    /// Reports on complete segments.
    pub(super) fn new(
        partition: &TopicIdPartition,
        states: &[State<'_>],
        rebuilt: &Rebuilt,
        incomplete_segments: usize,
    ) -> Result<Self, RemoteStorageError> {
        let known: HashMap<_, _> = rebuilt
            .segments
            .iter()
            .map(|segment| (segment.remote_log_segment_id().id, segment))
            .collect();
        let ended: Vec<Ended<'_>> = states
            .iter()
            .filter_map(|state| {
                let segment = state.segment;
                let rebuilt = known.get(&segment.listed.id.id);
                let last_offset = match state.end {
                    Some(end) => end.last_offset,
                    // Where the next one begins it ends, however damaged it is.
                    None if state.damage.is_some() => rebuilt?.end_offset(),
                    None => return None,
                };
                let leader_epoch = match rebuilt {
                    Some(rebuilt) => {
                        let newest = rebuilt.segment_leader_epochs().last_key_value();
                        newest.map(|(epoch, _)| *epoch)
                    }
                    None => state.end.and_then(|end| end.leader_epoch),
                };
                Some(Ended {
                    segment,
                    last_offset,
                    leader_epoch,
                })
            })
            .collect();
        // What no reader is sent to, and what a later copy holds whole.
        let answering: HashSet<_> = answering(&ended)
            .into_values()
            .map(|ended| ended.segment.listed.id.id)
            .collect();
        let is_superseded = |segment: &TierSegment| {
            let id = segment.listed.id.id;
            match known.get(&id) {
                Some(known) => Ok::<_, RemoteStorageError>(
                    !answering.contains(&id) || !rebuilt.answers(known)?,
                ),
                None => Ok(false),
            }
        };
        let segments = states.iter().map(|state| {
            let listed = &state.segment.listed;
            Ok::<_, RemoteStorageError>(SegmentReport {
                segment_id: state.segment.id_text(),
                first_offset: state.segment.base_offset(),
                last_offset: state.end.map(|end| end.last_offset),
                leader_epoch: state
                    .end
                    .and_then(|end| end.leader_epoch)
                    .map(|epoch| epoch.0),
                last_modified_ms: listed.log().map(|log| log.last_modified_ms),
                log_size_bytes: state.segment.log_size().unwrap_or_default(),
                size_bytes: listed.size(),
                objects: objects(listed),
                superseded: state.end.is_some() && is_superseded(state.segment)?,
                damage: state.damage.as_ref().map(|error| chain(error)),
            })
        });
        let bounds = ended.iter().map(|segment| segment.offsets().into_inner());
        Ok(Self {
            topic: partition.topic.clone(),
            topic_id: kafka_uuid(partition.topic_id),
            partition: partition.partition,
            first_offset: bounds.clone().map(|(first, _)| first).min(),
            last_offset: bounds.map(|(_, last)| last).max(),
            size_bytes: states.iter().map(|state| state.segment.listed.size()).sum(),
            segments: segments.collect::<Result<_, _>>()?,
            gaps: gaps(&ended)
                .into_iter()
                .map(|gap| Gap {
                    first_offset: *gap.start(),
                    last_offset: *gap.end(),
                })
                .collect(),
            incomplete_segments,
        })
    }
}

pub(super) fn objects(segment: &ListedSegment) -> Vec<ObjectReport> {
    segment
        .objects
        .iter()
        .map(|object| ObjectReport {
            key: object.key.to_string(),
            suffix: object.suffix.clone(),
            size_bytes: object.size,
        })
        .collect()
}

impl fmt::Display for PartitionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let objects = self.segments.iter().map(|segment| segment.objects.len());
        write!(
            f,
            "{}-{}  {}, {} in {}",
            self.topic,
            self.partition,
            count(self.segments.len(), "segment", "segments"),
            HumanBytes(self.size_bytes),
            count(objects.sum::<usize>(), "object", "objects"),
        )?;
        if let (Some(first), Some(last)) = (self.first_offset, self.last_offset) {
            write!(f, ", offsets {first} to {last}")?;
        }
        writeln!(f, "  (topic id {})", self.topic_id)?;
        if !self.segments.is_empty() {
            writeln!(
                f,
                "  {:>15} {:>15} {:>6} {:>11} {:>8}  SEGMENT",
                "FIRST OFFSET", "LAST OFFSET", "EPOCH", "SIZE", "OBJECTS"
            )?;
        }
        for segment in &self.segments {
            writeln!(f, "  {segment}")?;
        }
        for gap in &self.gaps {
            writeln!(
                f,
                "  gap: offsets {} to {} are in no segment",
                gap.first_offset, gap.last_offset
            )?;
        }
        if self.incomplete_segments > 0 {
            writeln!(
                f,
                "  and {} not complete: `krabka-tier ls --incomplete` lists them",
                count(self.incomplete_segments, "segment is", "segments are")
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for SegmentReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = |number: Option<i64>| number.map_or("?".to_owned(), |known| known.to_string());
        write!(
            f,
            "{:>15} {:>15} {:>6} {:>11} {:>8}  {}",
            self.first_offset,
            known(self.last_offset),
            known(self.leader_epoch.map(i64::from)),
            HumanBytes(self.size_bytes).to_string(),
            self.objects.len(),
            self.segment_id
        )?;
        if self.superseded {
            f.write_str("  superseded")?;
        }
        if self.damage.is_some() {
            f.write_str("  damaged")?;
        }
        Ok(())
    }
}
