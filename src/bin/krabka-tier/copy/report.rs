//! What a copy tells, for people and for machines.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use indicatif::HumanBytes;
use krabka_remote_storage::model::{CopyReceipt, RemoteLogSegmentId, TopicIdPartition, kafka_uuid};
use serde::Serialize;

use super::plan::Planned;
use super::sealed;
use crate::log_dir::ClosedLog;
use crate::output::count;

/// One thing that happened. As JSON, `type` says which.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Event {
    Copied {
        #[serde(flatten)]
        segment: Segment,
        segment_id: String,
        /// Bytes of the `.log`.
        log_size_bytes: i32,
        /// Bytes of all objects.
        size_bytes: u64,
        objects: usize,
        max_timestamp_ms: i64,
        /// Each leader epoch and its first offset in the segment.
        leader_epochs: BTreeMap<i32, i64>,
        txn_index_empty: bool,
        /// The segment's place in its partition's chain, in an archive.
        #[serde(skip_serializing_if = "Option::is_none")]
        sealed: Option<SealedAt>,
    },
    Skipped {
        #[serde(flatten)]
        segment: Segment,
        /// More than one only for people.
        #[serde(skip)]
        segments: usize,
        reason: &'static str,
    },
    Failed {
        #[serde(flatten)]
        segment: Segment,
        error: String,
    },
    /// What keeps a segment or a whole partition from being copied.
    Problem {
        error: String,
    },
    PassedOver {
        path: String,
        reason: &'static str,
    },
    Summary(Summary),
}

/// Which offsets of which partition an event is about.
#[derive(Debug, Serialize)]
pub(super) struct Segment {
    topic: String,
    topic_id: String,
    partition: i32,
    first_offset: i64,
    /// Inclusive.
    last_offset: i64,
}

/// A place in a chain, and what stands there.
#[derive(Debug, Serialize)]
pub(super) struct SealedAt {
    epoch_id: String,
    seq: u64,
    head: Option<String>,
}

/// How many of what.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Summary {
    pub(crate) segments_copied: usize,
    pub(crate) objects_copied: usize,
    pub(crate) bytes_copied: u64,
    pub(crate) segments_skipped: usize,
    pub(crate) segments_failed: usize,
}

impl Summary {
    pub(super) fn add(&mut self, receipt: &CopyReceipt) {
        self.segments_copied += 1;
        self.objects_copied += receipt.objects.len();
        self.bytes_copied += receipt.size_bytes();
    }
}

impl Segment {
    fn new(partition: &TopicIdPartition, first_offset: i64, last_offset: i64) -> Self {
        Self {
            topic: partition.topic.clone(),
            topic_id: kafka_uuid(partition.topic_id),
            partition: partition.partition,
            first_offset,
            last_offset,
        }
    }

    fn of(planned: &Planned) -> Self {
        let segment = &planned.segment;
        Self::new(&planned.partition, segment.base_offset, segment.end_offset)
    }
}

impl Event {
    pub(super) fn copied(
        planned: &Planned,
        id: &RemoteLogSegmentId,
        receipt: &CopyReceipt,
    ) -> Self {
        let segment = &planned.segment;
        let epochs = segment.leader_epochs.iter();
        Self::Copied {
            segment: Segment::of(planned),
            segment_id: kafka_uuid(id.id),
            log_size_bytes: segment.size_bytes,
            size_bytes: receipt.size_bytes(),
            objects: receipt.objects.len(),
            max_timestamp_ms: segment.max_timestamp_ms,
            leader_epochs: epochs.map(|(epoch, first)| (epoch.0, *first)).collect(),
            txn_index_empty: segment.txn_index_empty,
            sealed: sealed::record(receipt).map(|record| SealedAt {
                epoch_id: record.epoch_id.to_string(),
                seq: record.seq.0,
                head: record.head.map(|head| head.to_string()),
            }),
        }
    }

    /// Segments of one partition, in order; at least one.
    pub(super) fn skipped(
        partition: &TopicIdPartition,
        logs: &[ClosedLog],
        reason: &'static str,
    ) -> Self {
        let first = logs.first().map_or(0, |log| log.base_offset);
        let last = logs.last().map_or(0, |log| log.next_base_offset - 1);
        Self::Skipped {
            segment: Segment::new(partition, first, last),
            segments: logs.len(),
            reason,
        }
    }

    pub(super) fn failed(planned: &Planned, error: String) -> Self {
        Self::Failed {
            segment: Segment::of(planned),
            error,
        }
    }

    pub(super) fn problem(error: String) -> Self {
        Self::Problem { error }
    }

    pub(super) fn passed_over(path: &Path, reason: &'static str) -> Self {
        Self::PassedOver {
            path: path.display().to_string(),
            reason,
        }
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}-{} offsets {} to {}",
            self.topic, self.partition, self.first_offset, self.last_offset
        )
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Copied {
                segment,
                segment_id,
                size_bytes,
                objects,
                sealed,
                ..
            } => {
                write!(
                    f,
                    "copied   {segment}: {} in {objects} objects, segment {segment_id}",
                    HumanBytes(*size_bytes)
                )?;
                match sealed {
                    Some(sealed) => write!(f, ", sealed at {}", sealed.seq),
                    None => Ok(()),
                }
            }
            Self::Skipped {
                segment,
                segments,
                reason,
            } => write!(
                f,
                "skipped  {segment}: {}, {reason}",
                count(*segments, "segment", "segments")
            ),
            Self::Failed { segment, error } => write!(f, "failed   {segment}: {error}"),
            Self::Problem { error } => f.write_str(error),
            Self::PassedOver { path, reason } => write!(f, "left out {path}: {reason}"),
            Self::Summary(summary) => write!(
                f,
                "{} copied ({} in {}), {} skipped, {} failed; active segments stay local",
                count(summary.segments_copied, "segment", "segments"),
                HumanBytes(summary.bytes_copied),
                count(summary.objects_copied, "object", "objects"),
                summary.segments_skipped,
                summary.segments_failed
            ),
        }
    }
}
