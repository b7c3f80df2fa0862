//! One partition of a tier, for people and for machines.

use std::fmt;

use indicatif::HumanBytes;
use krabka_remote_storage::model::{TopicIdPartition, kafka_uuid};
use krabka_remote_storage::rebuild::ListedSegment;
use serde::Serialize;

use super::End;
use crate::ends::{Ended, answering, gaps};
use crate::failure::chain;
use crate::output::count;
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
    /// Of the last batch.
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
    /// Reports on complete segments and their ends, in the same order.
    pub(super) fn new(
        partition: &TopicIdPartition,
        complete: &[&TierSegment],
        ends: &[End],
        incomplete_segments: usize,
    ) -> Self {
        let ended: Vec<Ended<'_>> = complete
            .iter()
            .zip(ends)
            .filter_map(|(segment, end)| {
                let end = *end.as_ref().ok()?.as_ref()?;
                Some(Ended { segment, end })
            })
            .collect();
        let answering = answering(&ended);
        let answers = |segment: &TierSegment| {
            answering
                .get(&segment.base_offset())
                .is_some_and(|answer| answer.segment.listed.id == segment.listed.id)
        };
        let segments = complete.iter().zip(ends).map(|(segment, end)| {
            let listed = &segment.listed;
            let known = end.as_ref().ok().and_then(Option::as_ref);
            SegmentReport {
                segment_id: segment.id_text(),
                first_offset: segment.base_offset(),
                last_offset: known.map(|end| end.last_offset),
                leader_epoch: known.map(|end| end.leader_epoch),
                last_modified_ms: listed.log().map(|log| log.last_modified_ms),
                log_size_bytes: segment.log_size().unwrap_or_default(),
                size_bytes: listed.size(),
                objects: objects(listed),
                superseded: known.is_some() && !answers(segment),
                damage: end.as_ref().err().map(|error| chain(error)),
            }
        });
        let bounds = ended.iter().map(|segment| segment.offsets().into_inner());
        Self {
            topic: partition.topic.clone(),
            topic_id: kafka_uuid(partition.topic_id),
            partition: partition.partition,
            first_offset: bounds.clone().map(|(first, _)| first).min(),
            last_offset: bounds.map(|(_, last)| last).max(),
            size_bytes: complete.iter().map(|segment| segment.listed.size()).sum(),
            segments: segments.collect(),
            gaps: gaps(&ended)
                .into_iter()
                .map(|gap| Gap {
                    first_offset: *gap.start(),
                    last_offset: *gap.end(),
                })
                .collect(),
            incomplete_segments,
        }
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
            count(objects.sum(), "object", "objects"),
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
