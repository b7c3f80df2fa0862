//! Whole batches from an offset on.

use std::sync::Arc;

use bytes::Bytes;

use super::RemoteLogReader;
use super::cursors::Cursor;
use super::range::{LogRange, log_size};
use crate::error::RemoteStorageError;
use crate::index::{BatchPrefix, Batches, corrupt_log};
use crate::model::{LeaderEpoch, RemoteLogSegmentMetadata, TopicIdPartition};

/// How far a read goes at once to pass over batches before the wanted one.
const MAX_PASSING_BYTES: usize = 1024 * 1024;

/// Whole record batches of one segment, as the broker stored them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FetchedBatches {
    /// The batches, end to end. Never cut; the first holds the asked offset, or is the first one
    /// after it. Empty only when the tier has no batch at or after the offset in this lineage.
    ///
    /// They are a part of the answer of one fetch and keep all of it alive, what was read ahead
    /// included: whoever stores them for long copies them.
    pub bytes: Bytes,
    /// The segment that they are of.
    pub segment: Arc<RemoteLogSegmentMetadata>,
    /// Where the first batch begins in the segment's log, in bytes.
    pub position: u64,
    /// The offset after the last batch: where the next read goes on.
    pub next_offset: i64,
}

/// What a range has from the wanted offset on.
enum Found {
    /// Whole batches, at these bytes of the range.
    Batches {
        start: usize,
        end: usize,
        next_offset: i64,
    },
    /// No whole batch. The wanted one begins at this byte of the range or later, and the range may
    /// end before; to tell more takes this many bytes from there on, or any number when it is 0.
    Beyond { start: usize, needed: usize },
}

impl RemoteLogReader {
    /// Reads whole batches from `offset` on, of at most `max_bytes` bytes together.
    ///
    /// The first batch is always whole, however large it is, so that a reader never stalls. Bytes
    /// count from that batch. When compaction has removed the end of a segment the read goes on in
    /// the next one; one answer is of one segment. `None` when the metadata store has no readable
    /// segment for this offset in this epoch: the offset is out of the tier's range.
    ///
    /// As in Kafka, batches behind the end of `epoch` are handed out when the segment has them: a
    /// caller whose history differs from the segment's there cuts them off.
    ///
    /// A cold read of a random offset takes two fetches, the offset index and a range, and a third
    /// only when the first wanted batch does not fit into `max_bytes`. A read that goes on where an
    /// earlier one ended needs no index, and no fetch while there is something that was read ahead.
    ///
    /// # Errors
    ///
    /// Those of the metadata store and of the fetches.
    /// [`SegmentNotFound`](RemoteStorageError::SegmentNotFound) when the metadata store still has a
    /// segment whose objects are gone. [`Corrupt`](crate::ErrorKind::Corrupt) when the log has bytes
    /// that are no batch, or ends too early, or the offset index does not fit it.
    pub async fn read(
        &self,
        partition: &TopicIdPartition,
        epoch: LeaderEpoch,
        offset: i64,
        max_bytes: usize,
    ) -> Result<Option<FetchedBatches>, RemoteStorageError> {
        let metadata = &self.shared.metadata;
        let Some(segment) = metadata.find_segment(partition, epoch, offset).await? else {
            return Ok(None);
        };
        let id = segment.remote_log_segment_id().id;
        let error = match self.read_in(segment, offset, max_bytes).await {
            Err(error @ RemoteStorageError::SegmentNotFound(_)) => error,
            result => return result.map(Some),
        };
        // Retention may have removed it meanwhile: the metadata store knows what is there now.
        match metadata.find_segment(partition, epoch, offset).await? {
            None => Ok(None),
            Some(now) if now.remote_log_segment_id().id == id => Err(error),
            // Boxed, as it is rare: its future would make every read's larger.
            Some(now) => Box::pin(self.read_in(now, offset, max_bytes))
                .await
                .map(Some),
        }
    }

    /// Reads from the segment that holds the offset.
    async fn read_in(
        &self,
        segment: RemoteLogSegmentMetadata,
        offset: i64,
        max_bytes: usize,
    ) -> Result<FetchedBatches, RemoteStorageError> {
        let cursors = &self.shared.cursors;
        let segment = Arc::new(segment);
        let before = cursors.take(segment.topic_id_partition(), offset);
        let is_sequential = before.is_some();
        let range = match before {
            Some(Cursor {
                segment: of, rest, ..
            }) if of == segment.remote_log_segment_id().id => {
                if is_worth_its_memory(&rest, max_bytes) {
                    rest
                } else {
                    let window = self.wider(rest.window, max_bytes);
                    self.fetch_range(&segment, rest.position, window).await?
                }
            }
            before => {
                let start = self.start_position(&segment, offset).await?;
                // What ended in the segment before goes on in this one.
                let ahead = before.map_or(0, |before| self.wider(before.rest.window, max_bytes));
                let window = start.skipped.saturating_add(max_bytes).max(ahead);
                let range = self.fetch_range(&segment, start.position, window).await?;
                start.check(&segment, &range)?;
                range
            }
        };
        let (batches, rest) = self.hand_out(segment, range, offset, max_bytes).await?;
        if let Some(mut rest) = rest {
            if !is_worth_its_memory(&rest, max_bytes) {
                rest.bytes = Bytes::new();
            }
            let cursor = Cursor {
                segment: batches.segment.remote_log_segment_id().id,
                is_sequential,
                rest,
            };
            let partition = batches.segment.topic_id_partition();
            cursors.keep(partition, batches.next_offset, cursor);
        }
        Ok(batches)
    }

    /// The window after one of `window` bytes, for a read that is sequential.
    fn wider(&self, window: usize, max_bytes: usize) -> usize {
        window
            .saturating_mul(2)
            .min(self.shared.max_read_ahead)
            .min(self.shared.cursors.fair_share())
            .max(max_bytes)
    }

    /// Hands out what a range has from `offset` on, fetching more until it has something, and what
    /// is left of it. Nothing is left where the tier ends.
    async fn hand_out(
        &self,
        mut segment: Arc<RemoteLogSegmentMetadata>,
        mut range: LogRange,
        offset: i64,
        max_bytes: usize,
    ) -> Result<(FetchedBatches, Option<LogRange>), RemoteStorageError> {
        // Each turn goes on at a later position or, at a log's end, in a later segment, but for one
        // that fetches a batch again of which the range had only the start.
        loop {
            let (start, needed) = match look_for(&range.bytes, offset, max_bytes)? {
                Found::Batches {
                    start,
                    end,
                    next_offset,
                } => {
                    let (batches, rest) = part(segment, &range, start..end, next_offset);
                    return Ok((batches, Some(rest)));
                }
                Found::Beyond { start, needed } => (start, needed),
            };
            let position = range.position + start as u64;
            let is_cut = if range.at_end {
                position != range.end()
            } else {
                log_size(&segment).is_some_and(|size| position + needed as u64 > size)
            };
            if is_cut {
                return Err(corrupt_log(format_args!(
                    "the log of segment {} ends within a batch that reaches to position {}",
                    segment.remote_log_segment_id(),
                    position + needed as u64
                )));
            }
            if !range.at_end {
                let window = if needed > 0 {
                    needed
                } else {
                    range.window.saturating_mul(2).min(MAX_PASSING_BYTES)
                };
                range = self
                    .fetch_range(&segment, position, window.max(max_bytes))
                    .await?;
                continue;
            }
            // Compaction has removed the segment's end (KAFKA-15388).
            let Some(next) = self.segment_after(&segment).await? else {
                let nothing = FetchedBatches {
                    bytes: Bytes::new(),
                    position,
                    next_offset: segment.end_offset().saturating_add(1),
                    segment,
                };
                return Ok((nothing, None));
            };
            segment = Arc::new(next);
            range = self.fetch_range(&segment, 0, max_bytes).await?;
        }
    }
}

/// Parts what is handed out from what is left.
fn part(
    segment: Arc<RemoteLogSegmentMetadata>,
    range: &LogRange,
    wanted: std::ops::Range<usize>,
    next_offset: i64,
) -> (FetchedBatches, LogRange) {
    let rest = LogRange {
        position: range.position + wanted.end as u64,
        bytes: range.bytes.slice(wanted.end..),
        ..*range
    };
    // At the end of the log the rest of the segment's offsets has no batch.
    let next_offset = if rest.at_end && rest.bytes.is_empty() {
        next_offset.max(segment.end_offset().saturating_add(1))
    } else {
        next_offset
    };
    let batches = FetchedBatches {
        position: range.position + wanted.start as u64,
        bytes: range.bytes.slice(wanted),
        next_offset,
        segment,
    };
    (batches, rest)
}

/// Whether a read of this size is answered from what is left. If it is little or no whole batch, and
/// not the end of the log, a fetch is due anyway.
fn is_worth_its_memory(rest: &LogRange, max_bytes: usize) -> bool {
    let has_batch = || {
        let first = BatchPrefix::read(&rest.bytes);
        first.is_ok_and(|first| first.is_some_and(|first| first.size <= rest.bytes.len()))
    };
    rest.at_end || (rest.bytes.len() >= max_bytes / 2 && has_batch())
}

/// Looks for whole batches from `offset` on, of at most `max_bytes` bytes but for the first.
fn look_for(bytes: &Bytes, offset: i64, max_bytes: usize) -> Result<Found, RemoteStorageError> {
    let mut batches = Batches::new(bytes);
    let mut found: Option<(usize, usize, i64)> = None;
    for batch in batches.by_ref() {
        let batch = batch?;
        let last_offset = batch.last_offset()?;
        if last_offset < offset {
            continue;
        }
        let end = batch.position() + batch.size();
        let start = match found {
            Some((start, ..)) if end - start > max_bytes => break,
            Some((start, ..)) => start,
            None => batch.position(),
        };
        found = Some((start, end, last_offset.saturating_add(1)));
    }
    if let Some((start, end, next_offset)) = found {
        return Ok(Found::Batches {
            start,
            end,
            next_offset,
        });
    }
    let start = batches.position();
    let cut = batches.remainder();
    Ok(match BatchPrefix::read(cut)? {
        None if cut.is_empty() => Found::Beyond { start, needed: 0 },
        // It is passed over without the rest of it.
        Some(prefix) if prefix.last_offset.is_some_and(|last| last < offset) => Found::Beyond {
            start: start + prefix.size,
            needed: 0,
        },
        Some(prefix) if cut.len() >= BatchPrefix::SIZE => Found::Beyond {
            start,
            needed: prefix.size,
        },
        _ => Found::Beyond {
            start,
            needed: BatchPrefix::SIZE,
        },
    })
}
