//! Whole batches from an offset on.

use std::sync::Arc;

use bytes::Bytes;

use super::RemoteLogReader;
use super::cursors::Cursor;
use crate::error::RemoteStorageError;
use crate::index::{BatchPrefix, Batches, corrupt_log};
use crate::model::{LeaderEpoch, RemoteLogSegmentMetadata, TopicIdPartition};
use crate::ops::FetchSegment;

/// Whole record batches of one segment, as the broker stored them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FetchedBatches {
    /// The batches, end to end. Never cut; the first holds the asked offset, or is the first one
    /// after it. Empty only when the tier has no batch at or after the offset in this lineage.
    pub bytes: Bytes,
    /// The segment that they are of.
    pub segment: Arc<RemoteLogSegmentMetadata>,
    /// Where the first batch begins in the segment's log, in bytes.
    pub position: u64,
    /// The offset after the last batch: where the next read goes on.
    pub next_offset: i64,
}

/// A part of a log, fetched.
struct Range {
    position: u64,
    bytes: Bytes,
    /// How many bytes were asked for.
    window: usize,
    /// Whether the log ends with these bytes.
    to_the_end: bool,
}

/// What a range has from the wanted offset on.
enum Found {
    /// Whole batches, at these bytes of the range.
    Batches {
        start: usize,
        end: usize,
        next_offset: i64,
    },
    /// The wanted batch begins at this byte and is cut off; so many bytes are needed to hold it.
    Cut { start: usize, needed: usize },
    /// No batch of the range reaches the offset; the range has whole batches up to this byte.
    Nothing { end: usize },
}

impl RemoteLogReader {
    /// Reads whole batches from `offset` on, of at most `max_bytes` bytes together.
    ///
    /// The first batch is always whole, however large it is, so that a reader never stalls. Bytes
    /// count from that batch. When compaction has removed the end of a segment the read goes on in
    /// the next one; one answer is of one segment. `None` when the tier has no readable segment
    /// for this offset in this epoch: the offset is out of the tier's range.
    ///
    /// A cold read of a random offset takes two fetches, the offset index and a range, and a third
    /// only when the first wanted batch does not fit into `max_bytes`.
    ///
    /// # Errors
    ///
    /// Those of the metadata store and of the fetches;
    /// [`Corrupt`](crate::ErrorKind::Corrupt) when the log has bytes that are no batch.
    pub async fn read(
        &self,
        partition: &TopicIdPartition,
        epoch: LeaderEpoch,
        offset: i64,
        max_bytes: usize,
    ) -> Result<Option<FetchedBatches>, RemoteStorageError> {
        if let Some(cursor) = self.shared.cursors.take(partition, offset)
            && let Some(read) = self.read_on(cursor, max_bytes).await?
        {
            return Ok(Some(read));
        }
        let metadata = &self.shared.metadata;
        let Some(segment) = metadata.find_segment(partition, epoch, offset).await? else {
            return Ok(None);
        };
        let segment = Arc::new(segment);
        let start = self.start_position(&segment, offset).await?;
        let window = usize::try_from(start.skipped)
            .unwrap_or(usize::MAX)
            .saturating_add(max_bytes);
        let range = self.fetch_range(&segment, start.position, window).await?;
        self.read_range(segment, range, offset, max_bytes)
            .await
            .map(Some)
    }

    /// Goes on where an earlier read ended. `None` when its segment is no longer there.
    async fn read_on(
        &self,
        cursor: Cursor,
        max_bytes: usize,
    ) -> Result<Option<FetchedBatches>, RemoteStorageError> {
        let Cursor {
            segment,
            next_offset,
            position,
            buffer,
            window,
        } = cursor;
        if next_offset > segment.end_offset() {
            let Some((_, next)) = self.segment_after(&segment).await? else {
                return Ok(None);
            };
            let next = Arc::new(next);
            let start = self.start_position(&next, next_offset).await?;
            let window = self.wider(window, max_bytes);
            let range = self.fetch_range(&next, start.position, window).await?;
            let read = self.read_range(next, range, next_offset, max_bytes).await?;
            return Ok(Some(read));
        }
        // What is left is handed out unless it is so little that a fetch is due anyway.
        if let Found::Batches { end, .. } = look_for(&buffer, next_offset, max_bytes)?
            && end >= max_bytes / 2
        {
            let range = Range {
                position,
                bytes: buffer,
                window,
                to_the_end: false,
            };
            let read = self
                .read_range(segment, range, next_offset, max_bytes)
                .await?;
            return Ok(Some(read));
        }
        let window = self.wider(window, max_bytes);
        let range = match self.fetch_range(&segment, position, window).await {
            Ok(range) => range,
            // Retention may have removed it since: the metadata store knows what is there now.
            Err(RemoteStorageError::SegmentNotFound(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let read = self
            .read_range(segment, range, next_offset, max_bytes)
            .await?;
        Ok(Some(read))
    }

    /// The window after one of `window` bytes, for a read that is sequential.
    fn wider(&self, window: usize, max_bytes: usize) -> usize {
        let doubled = window.saturating_mul(2).min(self.shared.max_read_ahead);
        doubled.max(max_bytes)
    }

    async fn fetch_range(
        &self,
        segment: &Arc<RemoteLogSegmentMetadata>,
        position: u64,
        window: usize,
    ) -> Result<Range, RemoteStorageError> {
        let window = window.max(BatchPrefix::SIZE);
        let end = position.saturating_add(window as u64) - 1;
        // Positions of a segment are below 2 GiB; a damaged index may say more.
        let start = u32::try_from(position)
            .map_err(|_| corrupt_log(format_args!("position {position} is beyond any segment")))?;
        let end = u32::try_from(end).unwrap_or(u32::MAX);
        let fetch = FetchSegment::new(Arc::clone(segment), start, Some(end));
        let bytes = self.shared.storage.fetch(fetch).await?;
        Ok(Range {
            position,
            to_the_end: bytes.len() < window,
            bytes,
            window,
        })
    }

    /// Hands out what a range has from `offset` on, fetching more until it has something.
    async fn read_range(
        &self,
        segment: Arc<RemoteLogSegmentMetadata>,
        range: Range,
        offset: i64,
        max_bytes: usize,
    ) -> Result<FetchedBatches, RemoteStorageError> {
        let (mut segment, mut range) = (segment, range);
        loop {
            match look_for(&range.bytes, offset, max_bytes)? {
                Found::Batches {
                    start,
                    end,
                    next_offset,
                } => {
                    let buffer = range.bytes.slice(end..);
                    // At the end of the log the rest of the segment's offsets has no batch.
                    let next_offset = if range.to_the_end && buffer.is_empty() {
                        next_offset.max(segment.end_offset().saturating_add(1))
                    } else {
                        next_offset
                    };
                    self.shared.cursors.keep(Cursor {
                        segment: Arc::clone(&segment),
                        next_offset,
                        position: range.position + end as u64,
                        buffer,
                        window: range.window,
                    });
                    return Ok(FetchedBatches {
                        bytes: range.bytes.slice(start..end),
                        position: range.position + start as u64,
                        next_offset,
                        segment,
                    });
                }
                Found::Cut { start, needed } => {
                    let position = range.position + start as u64;
                    let length = range.bytes.len() - start;
                    if range.to_the_end {
                        return Err(corrupt_log(format_args!(
                            "the log of segment {} ends within a batch: {length} bytes are left at \
                             position {position}, {needed} belong to the batch",
                            segment.remote_log_segment_id()
                        )));
                    }
                    range = self
                        .fetch_range(&segment, position, needed.max(max_bytes))
                        .await?;
                }
                Found::Nothing { end } if !range.to_the_end => {
                    let position = range.position + end as u64;
                    range = self.fetch_range(&segment, position, range.window).await?;
                }
                // Compaction has removed the segment's end (KAFKA-15388).
                Found::Nothing { .. } => match self.segment_after(&segment).await? {
                    Some((_, next)) => {
                        segment = Arc::new(next);
                        range = self.fetch_range(&segment, 0, max_bytes).await?;
                    }
                    None => {
                        return Ok(FetchedBatches {
                            bytes: Bytes::new(),
                            position: range.position + range.bytes.len() as u64,
                            next_offset: segment.end_offset().saturating_add(1),
                            segment,
                        });
                    }
                },
            }
        }
    }
}

/// Looks for whole batches from `offset` on, of at most `max_bytes` bytes but for the first.
fn look_for(bytes: &Bytes, offset: i64, max_bytes: usize) -> Result<Found, RemoteStorageError> {
    let mut batches = Batches::new(bytes);
    let mut found: Option<(usize, usize, i64)> = None;
    loop {
        let position = batches.position();
        let Some(batch) = batches.next() else {
            break;
        };
        let batch = batch?;
        let last_offset = batch.last_offset()?;
        if last_offset < offset {
            continue;
        }
        let (start, _, _) = *found.get_or_insert((position, position, offset));
        let end = position + batch.size();
        if end - start > max_bytes && position > start {
            break;
        }
        found = Some((start, end, last_offset.saturating_add(1)));
        if end - start >= max_bytes {
            break;
        }
    }
    if let Some((start, end, next_offset)) = found {
        return Ok(Found::Batches {
            start,
            end,
            next_offset,
        });
    }
    let start = batches.position();
    let rest = batches.remainder();
    if rest.is_empty() {
        return Ok(Found::Nothing { end: start });
    }
    Ok(match BatchPrefix::read(rest)? {
        // The rest may lie before the offset; to know, all of the first bytes are needed.
        Some(prefix) if prefix.last_offset.is_some_and(|last| last < offset) => Found::Cut {
            start,
            needed: prefix.size + BatchPrefix::SIZE,
        },
        Some(prefix) => Found::Cut {
            start,
            needed: prefix.size,
        },
        None => Found::Cut {
            start,
            needed: BatchPrefix::SIZE,
        },
    })
}
