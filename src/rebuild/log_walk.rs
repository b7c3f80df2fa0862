//! What only a log itself tells: where it ends, and the leader epochs of its batches.

use std::sync::Arc;

use bytes::Bytes;
use tower::ServiceExt as _;
use zerocopy::FromBytes as _;

use super::listing::ListedSegment;
use crate::error::{ErrorKind, RemoteStorageError};
use crate::index::{
    BatchHeader, BatchPrefix, Batches, EpochEntry, LeaderEpochCheckpoint, corrupt_log,
};
use crate::model::{LeaderEpoch, RemoteLogSegmentMetadata};
use crate::ops::{FetchSegment, OpService};

/// The most that is fetched at once. What follows the last entry of an index is two batches and
/// `index.interval.bytes` at most, far less than this unless batches are huge.
const STEP_BYTES: u64 = 16 << 20;

/// The last batch of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogEnd {
    /// Its last offset.
    pub last_offset: i64,
    /// The epoch of the leader that appended it; `None` when the batch has none.
    pub leader_epoch: Option<LeaderEpoch>,
}

/// What the header of a batch tells.
struct BatchFacts {
    /// The first offset, or in old message sets the last one.
    offset: i64,
    last_offset: i64,
    leader_epoch: Option<LeaderEpoch>,
}

impl BatchFacts {
    /// `None` when there are too few bytes to tell.
    fn read(bytes: &[u8]) -> Result<Option<(Self, u64)>, RemoteStorageError> {
        let Some(prefix) = BatchPrefix::read(bytes)? else {
            return Ok(None);
        };
        let Some(last_offset) = prefix.last_offset else {
            return Ok(None);
        };
        let leader_epoch = match BatchHeader::ref_from_prefix(bytes) {
            Ok((header, _)) if prefix.magic == 2 => {
                let epoch = header.partition_leader_epoch();
                (epoch >= 0).then_some(LeaderEpoch(epoch))
            }
            Err(_) if prefix.magic == 2 => return Ok(None),
            _ => None,
        };
        let facts = Self {
            offset: prefix.offset,
            last_offset,
            leader_epoch,
        };
        Ok(Some((facts, prefix.size as u64)))
    }
}

/// Walks the log of one segment, from batch to batch.
pub(super) struct LogWalk<F> {
    fetch_segment: F,
    metadata: Arc<RemoteLogSegmentMetadata>,
    /// The log's length in bytes.
    size: u64,
}

impl<F: OpService<FetchSegment>> LogWalk<F> {
    pub(super) fn new(
        fetch_segment: F,
        segment: &ListedSegment,
        metadata: Arc<RemoteLogSegmentMetadata>,
    ) -> Self {
        Self {
            fetch_segment,
            metadata,
            size: segment.log().map_or(0, |log| log.size),
        }
    }

    /// The last batch, looked for from `position` on, where a batch begins; `None` of a log without
    /// a batch.
    ///
    /// A position that turns out to be wrong costs a walk from the log's start.
    pub(super) async fn end(&self, position: u64) -> Result<Option<LogEnd>, RemoteStorageError> {
        let end = self.end_from(position).await;
        match end {
            Ok(None) if position > 0 => self.end_from(0).await,
            Err(error) if position > 0 && error.kind() == ErrorKind::Corrupt => {
                self.end_from(0).await
            }
            end => end,
        }
    }

    async fn end_from(&self, position: u64) -> Result<Option<LogEnd>, RemoteStorageError> {
        let mut end = None;
        self.walk(position, |batch| {
            end = Some(LogEnd {
                last_offset: batch.last_offset,
                leader_epoch: batch.leader_epoch,
            });
        })
        .await?;
        Ok(end)
    }

    /// The leader epochs as the log's batches tell them, the first one from the segment's start on
    /// (Kafka's recovery makes its checkpoint anew like this); `None` when a batch has no epoch.
    pub(super) async fn checkpoint(
        &self,
    ) -> Result<Option<LeaderEpochCheckpoint>, RemoteStorageError> {
        let mut entries: Vec<EpochEntry> = Vec::new();
        let mut all_have_epochs = true;
        let start_offset = self.metadata.start_offset();
        self.walk(0, |batch| match (batch.leader_epoch, entries.last()) {
            (None, _) => all_have_epochs = false,
            (Some(epoch), Some(last)) if last.epoch >= epoch => {}
            (Some(epoch), last) => {
                let start_offset = if last.is_none() {
                    start_offset
                } else {
                    batch.offset
                };
                entries.push(EpochEntry {
                    epoch,
                    start_offset,
                });
            }
        })
        .await?;
        let told = all_have_epochs && !entries.is_empty();
        Ok(told.then_some(LeaderEpochCheckpoint { entries }))
    }

    /// Shows each batch from `position` on, where one begins, to `visit`.
    async fn walk(
        &self,
        position: u64,
        mut visit: impl FnMut(&BatchFacts),
    ) -> Result<(), RemoteStorageError> {
        let mut position = position;
        while position < self.size {
            let bytes = self.fetch(position).await?;
            let mut batches = Batches::new(&bytes);
            for batch in batches.by_ref() {
                let batch = batch?;
                // Its magic is unknown when it tells no last offset, and then this is the error.
                batch.last_offset()?;
                if let Some((facts, _)) = BatchFacts::read(batch.bytes())? {
                    visit(&facts);
                }
            }
            let walked = position + batches.position() as u64;
            if walked == self.size {
                break;
            }
            // A batch is cut off. Its first bytes are enough, where they are all there.
            let cut = batches.remainder();
            if let Some(prefix) = BatchPrefix::read(cut)?
                && walked + prefix.size as u64 > self.size
            {
                return Err(corrupt_log(format_args!(
                    "the batch at position {walked} goes beyond the end of the log of {}",
                    self.metadata.remote_log_segment_id()
                )));
            }
            position = match BatchFacts::read(cut)? {
                Some((facts, size)) => {
                    visit(&facts);
                    walked + size
                }
                None if walked > position => walked,
                None => {
                    return Err(corrupt_log(format_args!(
                        "{} bytes at position {walked} of the log of {} are no batch",
                        self.size - walked,
                        self.metadata.remote_log_segment_id()
                    )));
                }
            };
        }
        Ok(())
    }

    async fn fetch(&self, position: u64) -> Result<Bytes, RemoteStorageError> {
        let end = (position + STEP_BYTES).min(self.size) - 1;
        let in_log = |position: u64| {
            u32::try_from(position).map_err(|_| {
                corrupt_log(format_args!("position {position} lies beyond any segment"))
            })
        };
        let request = FetchSegment::new(
            Arc::clone(&self.metadata),
            in_log(position)?,
            Some(in_log(end)?),
        );
        self.fetch_segment.clone().oneshot(request).await
    }
}
