//! What a metadata cache knows, as plain values: for snapshots, tests and hand-over.
//!
//! A dump keeps every answer. Which of several finished segments answers for an offset depends on
//! the order in which they finished, and the highest offset of an epoch outlives its segments, so
//! a dump carries both. A dump without them (written by hand, or made anew from a listing) is
//! imported as if its finished segments had finished in the order of event timestamp, start offset
//! and id; for a history with overlapping segments that is an approximation.

use uuid::Uuid;

use super::assembly::Assembly;
use super::cache::{RemoteLogMetadataCache, SegmentView};
use super::slots::Slot;
use crate::model::{
    LeaderEpoch, RemoteLogSegmentMetadata, RemotePartitionDeleteState, TopicIdPartition,
};

/// The contents of a metadata manager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RlmmCacheDump {
    /// One entry for each partition; an export sorts them by topic id and partition.
    pub partitions: Vec<PartitionDump>,
}

/// The contents of one partition's cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionDump {
    /// The partition.
    pub topic_id_partition: TopicIdPartition,
    /// Its segments in whatever state; an export sorts them by start offset and id.
    pub segments: Vec<RemoteLogSegmentMetadata>,
    /// How far the deletion of the partition has come; `None` when it has not begun.
    pub delete_state: Option<RemotePartitionDeleteState>,
    /// What each leader epoch answers, ascending. Empty: the dump does not carry it, and an
    /// import works it out from the segments.
    pub epochs: Vec<EpochDump>,
    /// The offset of the last event that was replayed into the cache from an event log; `None`
    /// when there was none. A replay passes over the events up to it.
    pub applied_offset: Option<i64>,
}

/// What one leader epoch of a partition answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochDump {
    /// The epoch.
    pub leader_epoch: LeaderEpoch,
    /// The first offset from which a segment answers in this epoch, and that segment's id;
    /// ascending.
    pub readable: Vec<(i64, Uuid)>,
    /// The highest offset that was ever readable in this epoch.
    pub highest_offset: Option<i64>,
}

impl PartitionDump {
    /// A dump that lists these segments and leaves it to the import which of them answer.
    pub fn new(
        topic_id_partition: TopicIdPartition,
        segments: Vec<RemoteLogSegmentMetadata>,
        delete_state: Option<RemotePartitionDeleteState>,
    ) -> Self {
        Self {
            topic_id_partition,
            segments,
            delete_state,
            epochs: Vec::new(),
            applied_offset: None,
        }
    }
}

impl RemoteLogMetadataCache {
    /// Writes down everything that this cache knows.
    ///
    /// Equal caches give equal dumps, and [`import`](Self::import) gives a cache with equal
    /// answers.
    pub fn export(&self) -> PartitionDump {
        let segments = self.list_segments();
        PartitionDump {
            topic_id_partition: self.topic_id_partition().clone(),
            segments: segments.iter().map(SegmentView::to_metadata).collect(),
            delete_state: self.delete_state,
            epochs: self.export_epochs(),
            applied_offset: self.applied_offset,
        }
    }

    pub(super) fn export_epochs(&self) -> Vec<EpochDump> {
        let epochs = self.epochs.iter().map(|(&leader_epoch, state)| EpochDump {
            leader_epoch,
            readable: state
                .readable
                .iter()
                .map(|(&start, &slot)| (start, self.slots[slot].id))
                .collect(),
            highest_offset: state.highest,
        });
        // An epoch that answers nothing yet is worked out from the segments.
        epochs
            .filter(|epoch| epoch.highest_offset.is_some())
            .collect()
    }

    /// Makes a cache from a dump.
    ///
    /// Rows are taken as they are, without checks of their history. When an id occurs more than
    /// once, the row with the most advanced state counts, and a `DeleteSegmentFinished` row
    /// removes it; the order of rows has no influence. Rows of other partitions, and readable
    /// entries that do not fit a finished segment of the dump, are left out.
    pub fn import(dump: PartitionDump) -> Self {
        let mut assembly = Assembly::new(dump.topic_id_partition, dump.segments.len());
        for row in &dump.segments {
            if row.topic_id_partition() == assembly.topic_id_partition() {
                assembly.row(Slot::new(row));
            }
        }
        assembly.finish(dump.delete_state, &dump.epochs, dump.applied_offset)
    }
}
