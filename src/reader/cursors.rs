//! Where sequential reads ended, and what was read ahead of them.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::model::{RemoteLogSegmentMetadata, TopicIdPartition};

/// Bytes beside the buffer that a cursor is counted with, so that empty ones are bounded, too.
const CURSOR_BYTES: usize = 1024;

/// Where a read ended.
#[derive(Clone, Debug)]
pub(super) struct Cursor {
    pub(super) segment: Arc<RemoteLogSegmentMetadata>,
    /// The offset that the next read asks for if it is sequential.
    pub(super) next_offset: i64,
    /// Where in the log the batch with that offset begins, in bytes.
    pub(super) position: u64,
    /// Log bytes from that position on that have been fetched already.
    pub(super) buffer: Bytes,
    /// How many bytes the fetch asked for that filled the buffer.
    pub(super) window: usize,
}

/// The latest cursors, within a bound of bytes.
#[derive(Debug)]
pub(super) struct Cursors {
    max_bytes: usize,
    /// The latest at the end. Short: a reader has as many as it has sequential consumers.
    latest: Mutex<VecDeque<Cursor>>,
}

impl Cursors {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            latest: Mutex::default(),
        }
    }

    /// Takes the cursor of a read that ended where this one begins.
    pub(super) fn take(&self, partition: &TopicIdPartition, offset: i64) -> Option<Cursor> {
        let mut latest = self.latest.lock();
        let index = latest.iter().rposition(|cursor| {
            cursor.next_offset == offset && cursor.segment.topic_id_partition() == partition
        })?;
        latest.remove(index)
    }

    /// Keeps a cursor, and forgets the oldest beyond the bound.
    pub(super) fn keep(&self, cursor: Cursor) {
        let mut latest = self.latest.lock();
        latest.push_back(cursor);
        let mut bytes: usize = latest.iter().map(held).sum();
        while bytes > self.max_bytes {
            let Some(oldest) = latest.pop_front() else {
                break;
            };
            bytes -= held(&oldest);
        }
    }
}

/// A buffer keeps the whole answer alive that it is the rest of.
fn held(cursor: &Cursor) -> usize {
    let buffered = if cursor.buffer.is_empty() {
        0
    } else {
        cursor.window
    };
    buffered + CURSOR_BYTES
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use uuid::Uuid;

    use super::*;
    use crate::model::{
        LeaderEpoch, RemoteLogSegmentDetails, RemoteLogSegmentId, RemoteLogSegmentState,
    };

    fn cursor(partition: i32, next_offset: i64, window: usize) -> Cursor {
        let partition = TopicIdPartition::new(Uuid::from_u128(1), "t", partition);
        let details = RemoteLogSegmentDetails::new(
            0,
            RemoteLogSegmentState::CopySegmentFinished,
            BTreeMap::from([(LeaderEpoch(0), 0)]),
        );
        let id = RemoteLogSegmentId::new(partition, Uuid::from_u128(2));
        let segment = RemoteLogSegmentMetadata::new(id, 0, 9, -1, 0, 0, details).unwrap();
        Cursor {
            segment: Arc::new(segment),
            next_offset,
            position: 0,
            buffer: Bytes::from_static(b"x"),
            window,
        }
    }

    #[test]
    fn a_cursor_is_taken_once_by_the_read_that_goes_on_there() {
        let cursors = Cursors::new(1 << 20);
        cursors.keep(cursor(0, 7, 10));
        let partition = |index| TopicIdPartition::new(Uuid::from_u128(1), "t", index);
        assert!(cursors.take(&partition(1), 7).is_none());
        assert!(cursors.take(&partition(0), 8).is_none());
        assert!(cursors.take(&partition(0), 7).is_some());
        assert!(cursors.take(&partition(0), 7).is_none());
    }

    #[test]
    fn what_is_kept_stays_within_the_bound_and_the_oldest_goes_first() {
        let cursors = Cursors::new(10 * CURSOR_BYTES);
        for offset in 0..100 {
            cursors.keep(cursor(0, offset, CURSOR_BYTES));
        }
        let latest = cursors.latest.lock();
        let offsets: Vec<_> = latest.iter().map(|cursor| cursor.next_offset).collect();
        assert_eq!(offsets, [95, 96, 97, 98, 99]);
    }

    #[test]
    fn a_cursor_larger_than_the_bound_is_not_kept() {
        let cursors = Cursors::new(CURSOR_BYTES);
        cursors.keep(cursor(0, 7, 10 * CURSOR_BYTES));
        assert!(cursors.latest.lock().is_empty());
    }
}
