//! The ranges of one partition, and what they answer.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::entry::WalRange;
use crate::index::LogOffset;

/// One partition of a projection: its ranges by first offset, and its delete floor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WalPartition {
    ranges: BTreeMap<LogOffset, WalRange>,
    floor: Option<LogOffset>,
}

/// One ranged GET that answers a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalRead {
    /// The object's whole key.
    pub object_key: Arc<str>,
    /// The bytes to ask for, from the object's first byte; the end is exclusive.
    pub bytes: Range<u64>,
    /// The first offset in them: below the one that was asked for when that is inside a range.
    pub first_offset: LogOffset,
    /// The last offset in them.
    pub last_offset: LogOffset,
}

impl WalPartition {
    /// The lowest offset that is not deleted; 0 where nothing was.
    pub fn delete_floor(&self) -> LogOffset {
        self.floor.unwrap_or(0)
    }

    /// The ranges in the order of their first offsets.
    pub fn ranges(&self) -> impl DoubleEndedIterator<Item = &WalRange> {
        self.ranges.values()
    }

    /// The range that a read at this offset begins with: the one that covers it, or the first one
    /// after a hole. `None` below the delete floor and behind the last range.
    pub fn lookup(&self, offset: LogOffset) -> Option<&WalRange> {
        if offset < self.delete_floor() {
            return None;
        }
        let (_, at_or_before) = self.ranges.range(..=offset).next_back().unzip();
        at_or_before
            .filter(|range| offset <= range.entry.last_offset)
            .or_else(|| self.ranges.range(offset..).next().map(|(_, range)| range))
    }

    /// What to ask the store for, so as to read from this offset on.
    ///
    /// It is the range that [`lookup`](Self::lookup) answers, whole, and those behind it that go on
    /// in the same object without a hole in offsets or bytes, as long as all together have at most
    /// `max_bytes`. [`whole_batches`](super::whole_batches) cuts the answer.
    pub fn read(&self, offset: LogOffset, max_bytes: u64) -> Option<WalRead> {
        let first = self.lookup(offset)?;
        let mut last = first;
        let start = first.entry.byte_start;
        for (_, next) in self.ranges.range(first.entry.first_offset..).skip(1) {
            if !last.is_continued_by(next) || next.entry.byte_end() - start > max_bytes {
                break;
            }
            last = next;
        }
        Some(WalRead {
            object_key: Arc::clone(&first.object_key),
            bytes: start..last.entry.byte_end(),
            first_offset: first.entry.first_offset,
            last_offset: last.entry.last_offset,
        })
    }

    /// The flushed frontier: the offset behind the last range. `None` without ranges.
    pub fn frontier(&self) -> Option<LogOffset> {
        let (_, last) = self.ranges.last_key_value()?;
        Some(last.entry.last_offset.saturating_add(1))
    }

    /// The lowest offset that can be read: the first range's first, or the delete floor where that
    /// is higher. Without ranges it is the floor.
    pub fn earliest_offset(&self) -> LogOffset {
        let first = self.ranges.first_key_value();
        first
            .map_or(0, |(first, _)| *first)
            .max(self.delete_floor())
    }

    pub(super) fn insert(&mut self, range: WalRange) -> Option<WalRange> {
        self.ranges.insert(range.entry.first_offset, range)
    }

    pub(super) fn remove(&mut self, first_offset: LogOffset) -> Option<WalRange> {
        self.ranges.remove(&first_offset)
    }

    pub(super) fn raise_floor(&mut self, floor: LogOffset) {
        self.floor = self.floor.max(Some(floor));
    }

    pub(super) fn remove_floor(&mut self) {
        self.floor = None;
    }

    /// Whether nothing is known of it.
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.floor.is_none()
    }
}
