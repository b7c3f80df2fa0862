//! From an offset to a range of log bytes, by the segment's offset index.

use std::sync::Arc;

use super::RemoteLogReader;
use super::range::LogRange;
use crate::error::RemoteStorageError;
use crate::index::{BatchPrefix, OffsetRange, corrupt_log};
use crate::model::{IndexType, RemoteLogSegmentMetadata};
use crate::ops::OpenIndex;

/// A broker adds an entry to the index every 4096 bytes of log by default, so behind the last
/// entry there are hardly more than these before the batch that is looked for.
const INDEX_INTERVAL_BYTES: usize = 4096;

/// Where the next entry is further than this, what is between them is not fetched in advance: the
/// entries of older brokers, or of large batches, lie far apart, and those of a damaged index too.
const MAX_SKIPPED_BYTES: usize = 1024 * 1024;

/// Where to begin to read, and how far the wanted batch may begin from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StartPosition {
    /// Where a batch begins that lies at or before the wanted one, in bytes.
    pub(super) position: u64,
    /// How many bytes of batches before the wanted one are to be expected.
    pub(super) skipped: usize,
    /// The last offset of the batch at `position`, as the index says; `None` at the log's start.
    floor: Option<i64>,
}

/// The start of a log needs no index.
const LOG_START: StartPosition = StartPosition {
    position: 0,
    skipped: 0,
    floor: None,
};

impl RemoteLogReader {
    /// Looks an offset up.
    pub(super) async fn start_position(
        &self,
        segment: &Arc<RemoteLogSegmentMetadata>,
        offset: i64,
    ) -> Result<StartPosition, RemoteStorageError> {
        if offset <= segment.start_offset() {
            return Ok(LOG_START);
        }
        let open = OpenIndex::new(Arc::clone(segment), IndexType::Offset);
        let index = self.shared.storage.open_index(open).await?;
        let range = index.lookup_range(offset).await?;
        Ok(StartPosition::for_offset(offset, range))
    }
}

impl StartPosition {
    /// Where to begin for an offset, of which the index tells this.
    fn for_offset(offset: i64, OffsetRange { floor, next }: OffsetRange) -> Self {
        let position = u64::from(floor.position);
        let skipped = if floor.offset == offset {
            // The entry names the last offset of the batch that begins there: it is the wanted one.
            0
        } else {
            // The wanted batch begins at or before the next entry's.
            next.map_or(INDEX_INTERVAL_BYTES, |next| {
                usize::try_from(next.position.saturating_sub(floor.position)).unwrap_or(usize::MAX)
            })
        };
        Self {
            position,
            skipped: skipped.min(MAX_SKIPPED_BYTES),
            floor: (position > 0).then_some(floor.offset),
        }
    }

    /// Compares what the index says with the range that was fetched on its word. An index that
    /// leads too far would hide records.
    pub(super) fn check(
        &self,
        segment: &RemoteLogSegmentMetadata,
        range: &LogRange,
    ) -> Result<(), RemoteStorageError> {
        let Some(floor) = self.floor else {
            return Ok(());
        };
        // Brokers before 4.0 named the last offset of several batches that were appended at once.
        match BatchPrefix::read(&range.bytes) {
            Ok(Some(batch)) if batch.last_offset.is_some_and(|last| last <= floor) => Ok(()),
            _ => Err(corrupt_log(format_args!(
                "no batch up to offset {floor} begins at position {}, as the offset index of \
                 segment {} says",
                self.position,
                segment.remote_log_segment_id()
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::OffsetIndex;

    #[test]
    fn the_range_reaches_from_the_entry_before_to_the_batch_that_the_entry_after_names() {
        // Batches of 100 offsets and 500 bytes: last offset 99 at 0, 199 at 500, 299 at 1000.
        let mut bytes = Vec::new();
        for (last, position) in [(99_u32, 0_u32), (199, 500), (299, 1000)] {
            bytes.extend(last.to_be_bytes());
            bytes.extend(position.to_be_bytes());
        }
        let look_up = |bytes: &[u8], offset| {
            let range = OffsetIndex::new(7_000, bytes).lookup_range(offset);
            StartPosition::for_offset(offset, range)
        };
        let at = |offset: i64| {
            let start = look_up(&bytes, 7_000 + offset);
            (start.position, start.skipped)
        };
        assert_eq!(at(0), (0, 0), "before the first entry");
        assert_eq!(at(99), (0, 0), "the last offset of a batch");
        assert_eq!(at(100), (0, 500));
        assert_eq!(at(199), (500, 0));
        assert_eq!(at(250), (500, 500));
        assert_eq!(
            at(300),
            (1000, INDEX_INTERVAL_BYTES),
            "behind the last entry"
        );
        let empty = look_up(&[], 7_005);
        assert_eq!((empty.position, empty.skipped), (0, INDEX_INTERVAL_BYTES));
    }
}
