//! Segments of a partition, and the history of the log that they are read by.

use std::collections::HashSet;

use krabka_remote_storage::index::{Batch, DEFAULT_MAX_DECOMPRESSED_BYTES};
use krabka_remote_storage::model::{LeaderEpoch, RemoteLogSegmentMetadata, TopicIdPartition};
use krabka_remote_storage::reader::{CommittedRead, FetchedBatches};
use krabka_remote_storage::{RemoteLogMetadataManager as _, RemoteLogReader, RemoteStorageError};

use crate::failure::Failure;
use crate::lineage::Lineage;
use crate::rebuilt::Rebuilt;
use crate::tier::{Tier, TierSegment};

/// Whether the data of aborted transactions is read, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isolation {
    Uncommitted,
    Committed,
}

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
    answer: Answer,
}

enum Answer {
    Uncommitted(FetchedBatches),
    Committed(CommittedRead),
}

/// Which batches of a read are not left out: all, or those that begin at these positions.
pub(crate) struct Visible(Option<HashSet<usize>>);

impl View {
    pub(crate) async fn of(
        tier: &Tier,
        partition: &TopicIdPartition,
        segments: &[TierSegment],
    ) -> Result<Self, Failure> {
        let listed = segments.iter().map(|segment| segment.listed.clone());
        let rebuilt = Rebuilt::of(&tier.storage, partition, listed.collect()).await?;
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
        isolation: Isolation,
    ) -> Result<Found, RemoteStorageError> {
        let Some(partition) = self.partition() else {
            return Ok(Found::End);
        };
        if let Some(epoch) = self.lineage.epoch_of(offset) {
            let reader = &self.reader;
            let answer = match isolation {
                Isolation::Uncommitted => reader
                    .read(partition, epoch, offset, max_bytes)
                    .await?
                    .map(Answer::Uncommitted),
                Isolation::Committed => reader
                    .read_committed(partition, epoch, offset, max_bytes, None)
                    .await?
                    .map(Answer::Committed),
            };
            let read = answer.map(|answer| Read { epoch, answer });
            match read {
                Some(read) if !read.batches().bytes.is_empty() => return Ok(Found::Batches(read)),
                // The end of an epoch, compacted away.
                Some(read) if read.batches().next_offset > offset => {
                    return Ok(Found::NotBefore(read.batches().next_offset));
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

impl Read {
    pub(crate) fn batches(&self) -> &FetchedBatches {
        match &self.answer {
            Answer::Uncommitted(batches) => batches,
            Answer::Committed(read) => &read.batches,
        }
    }

    /// From where on nothing tells which records are committed.
    pub(crate) fn undecided_from(&self) -> Option<i64> {
        match &self.answer {
            Answer::Uncommitted(_) => None,
            Answer::Committed(read) => read.undecided_from,
        }
    }

    pub(crate) fn visible(&self) -> Result<Visible, RemoteStorageError> {
        let Answer::Committed(read) = &self.answer else {
            return Ok(Visible(None));
        };
        let visible = read.visible_batches(DEFAULT_MAX_DECOMPRESSED_BYTES)?;
        Ok(Visible(Some(visible.iter().map(Batch::position).collect())))
    }
}

impl Visible {
    pub(crate) fn holds(&self, batch: &Batch<'_>) -> bool {
        let positions = self.0.as_ref();
        positions.is_none_or(|positions| positions.contains(&batch.position()))
    }
}
