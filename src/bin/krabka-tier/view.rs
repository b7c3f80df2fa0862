//! Segments of a partition, and the history of the log that they are read by.

use krabka_remote_storage::model::{LeaderEpoch, RemoteLogSegmentMetadata, TopicIdPartition};
use krabka_remote_storage::reader::FetchedBatches;
use krabka_remote_storage::{RemoteLogMetadataManager as _, RemoteLogReader, RemoteStorageError};

use crate::failure::Failure;
use crate::inventory::Inventory;
use crate::lineage::Lineage;
use crate::rebuilt::Rebuilt;
use crate::tier::{Tier, TierSegment};

/// The segments that are read, and the history that they are read by.
pub(crate) struct View {
    pub(crate) rebuilt: Rebuilt,
    pub(crate) reader: RemoteLogReader,
    pub(crate) lineage: Lineage,
}

/// What there is from an offset on.
pub(crate) enum Found {
    Batches(Read),
    /// Nothing before this offset.
    NotBefore(i64),
    End,
}

/// Batches that were read in the lineage of an epoch.
pub(crate) struct Read {
    pub(crate) epoch: LeaderEpoch,
    pub(crate) batches: FetchedBatches,
}

impl View {
    pub(crate) async fn of(
        tier: &Tier,
        inventory: &Inventory,
        partition: &TopicIdPartition,
        segments: &[TierSegment],
    ) -> Result<Self, Failure> {
        let listed = segments.iter().map(|segment| segment.listed.clone());
        let rebuilt = inventory.rebuilt(tier, partition, listed.collect()).await?;
        let reader = RemoteLogReader::new(tier.storage.clone(), rebuilt.metadata.clone());
        let lineage = Lineage::of(&tier.storage, &rebuilt.segments).await?;
        Ok(Self {
            rebuilt,
            reader,
            lineage,
        })
    }

    /// Reads from an offset on.
    pub(crate) async fn find(
        &self,
        offset: i64,
        max_bytes: usize,
    ) -> Result<Found, RemoteStorageError> {
        let Some(partition) = self.partition() else {
            return Ok(Found::End);
        };
        if let Some(epoch) = self.lineage.epoch_of(offset) {
            let read = self
                .reader
                .read(partition, epoch, offset, max_bytes)
                .await?;
            match read {
                Some(batches) if !batches.bytes.is_empty() => {
                    return Ok(Found::Batches(Read { epoch, batches }));
                }
                // The end of an epoch, compacted away.
                Some(batches) if batches.next_offset > offset => {
                    return Ok(Found::NotBefore(batches.next_offset));
                }
                _ => {}
            }
        }
        Ok(self
            .next_start(offset)?
            .map_or(Found::End, Found::NotBefore))
    }

    /// The first offset after this one that a segment answers for.
    pub(crate) fn next_start(&self, offset: i64) -> Result<Option<i64>, RemoteStorageError> {
        let segments = self.rebuilt.segments.iter();
        let starts = segments.flat_map(|segment| segment.segment_leader_epochs().values());
        let mut starts: Vec<i64> = starts.copied().filter(|start| *start > offset).collect();
        starts.sort_unstable();
        for start in starts {
            if self.segment_at(start)?.is_some() {
                return Ok(Some(start));
            }
        }
        Ok(None)
    }

    /// The segment that answers for an offset.
    pub(crate) fn segment_at(
        &self,
        offset: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
        let (Some(partition), Some(epoch)) = (self.partition(), self.lineage.epoch_of(offset))
        else {
            return Ok(None);
        };
        self.rebuilt
            .metadata
            .remote_log_segment_metadata(partition, epoch, offset)
    }

    /// The partition, if it has a segment at all.
    fn partition(&self) -> Option<&TopicIdPartition> {
        let first = self.rebuilt.segments.first();
        first.map(RemoteLogSegmentMetadata::topic_id_partition)
    }
}
