//! Where sequential reads ended, and what was read ahead of them.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::Mutex;
use uuid::Uuid;

use super::range::LogRange;
use crate::model::TopicIdPartition;

/// A cursor is forgotten when so many reads have ended after it. So their number is bounded, and
/// what nobody comes back for does not stay.
const MAX_AGE: u64 = 4096;

/// Where a read ended.
#[derive(Clone, Debug)]
pub(super) struct Cursor {
    /// The id of the segment.
    pub(super) segment: Uuid,
    /// Whether that read itself went on where another had ended.
    pub(super) is_sequential: bool,
    /// Log bytes from the end of the read on that have been fetched already, or none.
    pub(super) rest: LogRange,
}

/// The latest cursors, within a bound of bytes.
#[derive(Debug)]
pub(super) struct Cursors {
    max_bytes: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Boxed, so that a tree of them is not of large blocks.
    by_place: BTreeMap<Place, Box<Cursor>>,
    by_age: BTreeMap<u64, Place>,
    /// Those that hold bytes, by age, and how many bytes.
    holders: BTreeMap<u64, Place>,
    bytes: usize,
    /// How many are of sequential reads, with bytes or without.
    sequential: usize,
    next_number: u64,
}

/// The offset at which the next read is sequential. Several reads may have ended there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    topic_id: Uuid,
    partition: i32,
    next_offset: i64,
    number: u64,
}

impl Cursors {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            kept: Mutex::default(),
        }
    }

    /// Takes the cursor of a read that ended where this one begins.
    pub(super) fn take(&self, partition: &TopicIdPartition, offset: i64) -> Option<Cursor> {
        let at = |number| Place::new(partition, offset, number);
        let mut kept = self.kept.lock();
        let (&place, _) = kept.by_place.range(at(0)..=at(u64::MAX)).next_back()?;
        kept.remove(place).map(|cursor| *cursor)
    }

    /// Keeps a cursor, and lets go what is beyond the bounds, the oldest first.
    pub(super) fn keep(&self, partition: &TopicIdPartition, next_offset: i64, cursor: Cursor) {
        let mut kept = self.kept.lock();
        let number = kept.next_number;
        kept.next_number += 1;
        kept.insert(Place::new(partition, next_offset, number), Box::new(cursor));
        while kept.bytes > self.max_bytes && kept.release_oldest() {}
        while let Some((&oldest, &place)) = kept.by_age.first_key_value()
            && number - oldest >= MAX_AGE
        {
            kept.remove(place);
        }
    }

    /// How much one more sequential read may read ahead, so that none takes another's away before
    /// it is used.
    pub(super) fn fair_share(&self) -> usize {
        self.max_bytes / (self.kept.lock().sequential + 1)
    }
}

impl Kept {
    fn insert(&mut self, place: Place, cursor: Box<Cursor>) {
        if !cursor.rest.bytes.is_empty() {
            self.bytes += cursor.rest.answered;
            self.holders.insert(place.number, place);
        }
        self.sequential += usize::from(cursor.is_sequential);
        self.by_age.insert(place.number, place);
        self.by_place.insert(place, cursor);
    }

    fn remove(&mut self, place: Place) -> Option<Box<Cursor>> {
        self.by_age.remove(&place.number);
        let cursor = self.by_place.remove(&place)?;
        if self.holders.remove(&place.number).is_some() {
            self.bytes -= cursor.rest.answered;
        }
        self.sequential -= usize::from(cursor.is_sequential);
        Some(cursor)
    }

    /// Lets the bytes go that have been held the longest: the place is still known.
    fn release_oldest(&mut self) -> bool {
        let Some((_, place)) = self.holders.pop_first() else {
            return false;
        };
        if let Some(cursor) = self.by_place.get_mut(&place) {
            // The rest keeps the whole answer alive that it is a part of.
            self.bytes -= cursor.rest.answered;
            cursor.rest.bytes = Bytes::new();
            cursor.rest.at_end = false;
        }
        true
    }
}

impl Place {
    fn new(partition: &TopicIdPartition, next_offset: i64, number: u64) -> Self {
        Self {
            topic_id: partition.topic_id,
            partition: partition.partition,
            next_offset,
            number,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(index: i32) -> TopicIdPartition {
        TopicIdPartition::new(Uuid::from_u128(1), "t", index)
    }

    fn cursor(segment: u128, answered: usize) -> Cursor {
        Cursor {
            segment: Uuid::from_u128(segment),
            is_sequential: answered > 0,
            rest: LogRange {
                position: 0,
                bytes: Bytes::from_static(if answered > 0 { b"x" } else { b"" }),
                window: answered,
                answered,
                at_end: false,
            },
        }
    }

    /// The offset of each cursor, and whether it holds bytes; the oldest first.
    fn kept(cursors: &Cursors) -> Vec<(i64, bool)> {
        let kept = cursors.kept.lock();
        assert_eq!(kept.by_age.len(), kept.by_place.len());
        let held = kept.holders.values().map(|place| &kept.by_place[place]);
        assert_eq!(
            kept.bytes,
            held.map(|cursor| cursor.rest.answered).sum::<usize>()
        );
        let sequential = kept.by_place.values().filter(|cursor| cursor.is_sequential);
        assert_eq!(kept.sequential, sequential.count());
        let all = kept.by_age.iter().map(|(number, place)| {
            let holds = !kept.by_place[place].rest.bytes.is_empty();
            assert_eq!(holds, kept.holders.contains_key(number));
            (place.next_offset, holds)
        });
        all.collect()
    }

    #[test]
    fn a_cursor_is_taken_once_by_the_read_that_goes_on_there() {
        let cursors = Cursors::new(1 << 20);
        cursors.keep(&partition(0), 7, cursor(1, 10));
        assert!(cursors.take(&partition(1), 7).is_none());
        assert!(cursors.take(&partition(0), 8).is_none());
        assert!(cursors.take(&partition(0), 6).is_none());
        let other_topic = TopicIdPartition::new(Uuid::from_u128(2), "t", 0);
        assert!(cursors.take(&other_topic, 7).is_none());
        assert!(cursors.take(&partition(0), 7).is_some());
        assert!(cursors.take(&partition(0), 7).is_none());
        assert_eq!(kept(&cursors), []);
    }

    #[test]
    fn readers_that_go_side_by_side_have_a_cursor_each() {
        let cursors = Cursors::new(1 << 20);
        cursors.keep(&partition(0), 7, cursor(1, 10));
        cursors.keep(&partition(0), 7, cursor(2, 10));
        let segments = [(); 3].map(|()| {
            let cursor = cursors.take(&partition(0), 7);
            cursor.map(|cursor| cursor.segment.as_u128())
        });
        assert_eq!(segments, [Some(2), Some(1), None]);
    }

    #[test]
    fn what_is_kept_stays_within_the_bound_and_the_oldest_goes_first() {
        let cursors = Cursors::new(5_000);
        for offset in 0..7 {
            cursors.keep(&partition(0), offset, cursor(1, 1_000));
        }
        let held = |first| (0..7).map(move |offset| (offset, offset >= first));
        assert_eq!(kept(&cursors), held(2).collect::<Vec<_>>());
        cursors.keep(&partition(0), 7, cursor(1, 2_500));
        assert_eq!(
            kept(&cursors),
            held(5).chain([(7, true)]).collect::<Vec<_>>()
        );
    }

    #[test]
    fn of_more_than_the_bound_only_the_place_is_kept() {
        let cursors = Cursors::new(5_000);
        cursors.keep(&partition(0), 7, cursor(1, 5_001));
        assert_eq!(kept(&cursors), [(7, false)]);
        let taken = cursors.take(&partition(0), 7).unwrap();
        assert!(taken.rest.bytes.is_empty());
        assert_eq!(kept(&cursors), []);
    }

    #[test]
    fn cursors_without_bytes_are_bounded_in_number() {
        let cursors = Cursors::new(5_000);
        for offset in 0..10_000 {
            cursors.keep(&partition(0), offset, cursor(1, 0));
        }
        let kept = kept(&cursors);
        assert_eq!(kept.len() as u64, MAX_AGE);
        assert_eq!(kept.last(), Some(&(9_999, false)));
    }

    #[test]
    fn what_nobody_comes_back_for_is_forgotten_while_others_read() {
        let cursors = Cursors::new(5_000);
        cursors.keep(&partition(0), 0, cursor(1, 4_000));
        assert_eq!(cursors.fair_share(), 2_500);
        for offset in 0..5_000 {
            cursors.keep(&partition(1), offset, cursor(1, 10));
            cursors.take(&partition(1), offset);
        }
        assert_eq!(kept(&cursors), []);
        assert_eq!(cursors.fair_share(), 5_000);
    }
}
