//! Bounded parts of a segment's log.

use std::sync::Arc;

use bytes::Bytes;

use super::RemoteLogReader;
use crate::error::RemoteStorageError;
use crate::index::{BatchPrefix, corrupt_log};
use crate::model::RemoteLogSegmentMetadata;
use crate::ops::FetchSegment;

/// A part of a log that begins with a batch.
#[derive(Clone, Debug)]
pub(super) struct LogRange {
    /// Where it begins in the log, in bytes.
    pub(super) position: u64,
    pub(super) bytes: Bytes,
    /// How many bytes were wanted, before the log's end cut that.
    pub(super) window: usize,
    /// How many bytes the answer had that `bytes` is a part of, and keeps alive.
    pub(super) answered: usize,
    /// Whether the log ends with these bytes.
    pub(super) at_end: bool,
}

impl LogRange {
    /// Where it ends in the log, in bytes; exclusive.
    pub(super) fn end(&self) -> u64 {
        self.position + self.bytes.len() as u64
    }
}

impl RemoteLogReader {
    /// Fetches a part of a log: at most `window` bytes from `position` on, and enough to tell what
    /// batch begins there. At the log's end there is nothing to fetch.
    ///
    /// A log that is shorter than its metadata says is damaged: to take its end for the segment's
    /// would pass over records without a word.
    pub(super) async fn fetch_range(
        &self,
        segment: &Arc<RemoteLogSegmentMetadata>,
        position: u64,
        window: usize,
    ) -> Result<LogRange, RemoteStorageError> {
        let size = log_size(segment);
        let wanted = (window.max(BatchPrefix::SIZE) as u64)
            .min(size.map_or(u64::MAX, |size| size.saturating_sub(position)));
        if wanted == 0 {
            return Ok(LogRange {
                position,
                bytes: Bytes::new(),
                window,
                answered: 0,
                at_end: true,
            });
        }
        // Positions in a log are below 2 GiB; a damaged index or batch may say more.
        let start = u32::try_from(position).map_err(|_| {
            corrupt_log(format_args!(
                "position {position} of segment {} is beyond any segment",
                segment.remote_log_segment_id()
            ))
        })?;
        let end = u32::try_from(position.saturating_add(wanted) - 1).unwrap_or(u32::MAX);
        let fetch = FetchSegment::new(Arc::clone(segment), start, Some(end));
        let bytes = match self.shared.storage.fetch(fetch).await {
            // The range is not inverted, so it begins beyond the log's end.
            Err(RemoteStorageError::InvalidArgument(_)) => {
                return Err(corrupt_log(format_args!(
                    "position {position} is beyond the end of the log of segment {}",
                    segment.remote_log_segment_id()
                )));
            }
            answer => answer?,
        };
        let is_short = (bytes.len() as u64) < u64::from(end - start) + 1;
        let range = LogRange {
            position,
            window,
            answered: bytes.len(),
            bytes,
            at_end: is_short,
        };
        if position == 0 {
            check_start(segment, &range.bytes)?;
        }
        match size {
            Some(size) if is_short => Err(corrupt_log(format_args!(
                "the log of segment {} ends after {} bytes of {size}",
                segment.remote_log_segment_id(),
                range.end()
            ))),
            Some(size) => Ok(LogRange {
                at_end: range.end() == size,
                ..range
            }),
            None => Ok(range),
        }
    }
}

/// Fails when a log that begins like this is not the segment's. To pass over its batches as if they
/// lay before what is wanted, or behind it, would hide that the segment's own are gone.
fn check_start(segment: &RemoteLogSegmentMetadata, log: &[u8]) -> Result<(), RemoteStorageError> {
    let (start, end) = (segment.start_offset(), segment.end_offset());
    match BatchPrefix::read(log)? {
        // In older formats the offset is that of the last record.
        Some(first) if first.magic == 2 && !(start..=end).contains(&first.offset) => {
            Err(corrupt_log(format_args!(
                "the log of segment {}, which has the offsets {start} to {end}, begins with offset \
                 {}: it is not the segment's",
                segment.remote_log_segment_id(),
                first.offset
            )))
        }
        _ => Ok(()),
    }
}

/// The log's length in bytes. No finished segment is empty: 0 stands for a length that nobody
/// noted.
pub(super) fn log_size(segment: &RemoteLogSegmentMetadata) -> Option<u64> {
    u64::try_from(segment.segment_size_in_bytes())
        .ok()
        .filter(|&size| size > 0)
}
