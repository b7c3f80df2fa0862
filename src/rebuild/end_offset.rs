//! The last offset of a log that nothing else tells: read from the log's end.

use std::sync::Arc;

use bytes::Bytes;
use tower::ServiceExt as _;

use super::listing::ListedSegment;
use crate::error::{ErrorKind, RemoteStorageError};
use crate::index::{BatchPrefix, Batches, OffsetIndex, corrupt_log};
use crate::model::{IndexType, RemoteLogSegmentMetadata};
use crate::ops::{FetchIndex, FetchSegment, OpService};

/// The most that is fetched at once. What follows the last entry of an index is two batches and
/// `index.interval.bytes` at most, far less than this unless batches are huge.
const STEP_BYTES: u64 = 16 << 20;

/// The last offset of the segment's log: from the last entry of its offset index, and the batches
/// from there to the end of the log.
///
/// Two fetches, unless batches of more than [`STEP_BYTES`] make it more. An index that is missing
/// or does not fit the log costs a walk from the log's start. A log without a batch ends where it
/// starts.
pub(super) async fn last_offset(
    fetch_segment: impl OpService<FetchSegment>,
    fetch_index: impl OpService<FetchIndex>,
    segment: &ListedSegment,
    metadata: &Arc<RemoteLogSegmentMetadata>,
) -> Result<i64, RemoteStorageError> {
    let start_offset = segment.start_offset;
    let size = segment.log().map_or(0, |log| log.size);
    if size == 0 {
        return Ok(start_offset);
    }
    let request = FetchIndex::new(Arc::clone(metadata), IndexType::Offset);
    let position = match fetch_index.oneshot(request).await {
        Ok(index) => {
            OffsetIndex::new(start_offset, &index)
                .lookup(i64::MAX)
                .position
        }
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    let mut walk = Walk {
        fetch_segment,
        metadata,
        size,
    };
    match walk.last_offset_from(position.into()).await {
        Err(error) if error.kind() == ErrorKind::Corrupt && position > 0 => {
            walk.last_offset_from(0).await
        }
        result => result,
    }
}

struct Walk<'a, F> {
    fetch_segment: F,
    metadata: &'a Arc<RemoteLogSegmentMetadata>,
    /// The log's length in bytes.
    size: u64,
}

impl<F: OpService<FetchSegment>> Walk<'_, F> {
    /// The last offset of the last batch; `position` is where a batch begins.
    async fn last_offset_from(&mut self, position: u64) -> Result<i64, RemoteStorageError> {
        let mut position = position;
        let mut last = None;
        while position < self.size {
            let bytes = self.fetch(position).await?;
            let mut batches = Batches::new(&bytes);
            for batch in batches.by_ref() {
                last = Some(batch?.last_offset()?);
            }
            let walked = position + batches.position() as u64;
            if walked == self.size {
                break;
            }
            // A batch is cut off. Its first bytes are enough, where they are all there.
            position = match BatchPrefix::read(batches.remainder())? {
                Some(prefix) if walked + prefix.size as u64 > self.size => {
                    return Err(corrupt_log(format_args!(
                        "the batch at position {walked} goes beyond the end of the log of {}",
                        self.metadata.remote_log_segment_id()
                    )));
                }
                Some(prefix) if prefix.last_offset.is_some() => {
                    last = prefix.last_offset;
                    walked + prefix.size as u64
                }
                _ if walked > position => walked,
                _ => {
                    return Err(corrupt_log(format_args!(
                        "{} bytes at position {walked} of the log of {} are no batch",
                        self.size - walked,
                        self.metadata.remote_log_segment_id()
                    )));
                }
            };
        }
        last.ok_or_else(|| {
            corrupt_log(format_args!(
                "no batch begins at position {position} of the log of {}",
                self.metadata.remote_log_segment_id()
            ))
        })
    }

    async fn fetch(&mut self, position: u64) -> Result<Bytes, RemoteStorageError> {
        let end = (position + STEP_BYTES).min(self.size) - 1;
        let in_log = |position: u64| {
            u32::try_from(position).map_err(|_| {
                corrupt_log(format_args!("position {position} lies beyond any segment"))
            })
        };
        let request = FetchSegment::new(
            Arc::clone(self.metadata),
            in_log(position)?,
            Some(in_log(end)?),
        );
        self.fetch_segment.clone().oneshot(request).await
    }
}
