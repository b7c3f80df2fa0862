//! From an offset to a range of log bytes, by the segment's offset index.

use std::sync::Arc;

use super::RemoteLogReader;
use crate::error::RemoteStorageError;
use crate::index::OffsetIndex;
use crate::model::{IndexType, RemoteLogSegmentMetadata};
use crate::ops::FetchIndex;

/// A broker adds an entry to the index every 4096 bytes of log by default, so behind the last
/// entry there are hardly more than these before the batch that is looked for.
const INDEX_INTERVAL_BYTES: u64 = 4096;

/// Where to begin to read, and how far the wanted batch may begin from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StartPosition {
    /// Where a batch begins that lies at or before the wanted one, in bytes.
    pub(super) position: u64,
    /// How many bytes of batches before the wanted one are to be expected.
    pub(super) skipped: u64,
}

impl RemoteLogReader {
    /// Looks an offset up. The start of a segment needs no index.
    pub(super) async fn start_position(
        &self,
        segment: &Arc<RemoteLogSegmentMetadata>,
        offset: i64,
    ) -> Result<StartPosition, RemoteStorageError> {
        if offset <= segment.start_offset() {
            return Ok(StartPosition {
                position: 0,
                skipped: 0,
            });
        }
        let fetch = FetchIndex::new(Arc::clone(segment), IndexType::Offset);
        let bytes = self.shared.storage.fetch_index(fetch).await?;
        Ok(look_up(segment.start_offset(), &bytes, offset))
    }
}

fn look_up(base_offset: i64, bytes: &[u8], offset: i64) -> StartPosition {
    let index = OffsetIndex::new(base_offset, bytes);
    let floor = index.lookup(offset);
    let position = u64::from(floor.position);
    if floor.offset == offset {
        // The entry names the last offset of the batch that begins there: it is the wanted one.
        return StartPosition {
            position,
            skipped: 0,
        };
    }
    // The wanted batch begins at or before the next entry's.
    let skipped = index.ceiling(offset).map_or(INDEX_INTERVAL_BYTES, |entry| {
        u64::from(entry.position).saturating_sub(position)
    });
    StartPosition { position, skipped }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_reaches_from_the_entry_before_to_the_batch_that_the_entry_after_names() {
        // Batches of 100 offsets and 500 bytes: last offset 99 at 0, 199 at 500, 299 at 1000.
        let mut bytes = Vec::new();
        for (last, position) in [(99_u32, 0_u32), (199, 500), (299, 1000)] {
            bytes.extend(last.to_be_bytes());
            bytes.extend(position.to_be_bytes());
        }
        let at = |offset: i64| {
            let start = look_up(7_000, &bytes, 7_000 + offset);
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
        let empty = look_up(7_000, &[], 7_005);
        assert_eq!((empty.position, empty.skipped), (0, INDEX_INTERVAL_BYTES));
    }
}
