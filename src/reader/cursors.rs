//! Where sequential reads ended, and what was read ahead of them.

use std::collections::{BTreeSet, HashMap, VecDeque};

use bytes::Bytes;
use parking_lot::Mutex;
use uuid::Uuid;

use super::range::LogRange;
use crate::model::TopicIdPartition;

/// A cursor is forgotten when so many reads have ended after it. So their number is bounded, and
/// what nobody comes back for does not stay.
const MAX_AGE: usize = 4096;

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
    /// By age. A cursor that was taken leaves its place empty, until that is the oldest.
    by_age: VecDeque<Option<Held>>,
    /// The number of the oldest in `by_age`; the others follow.
    oldest: u64,
    /// The latest cursor of each place.
    latest: HashMap<Place, u64>,
    /// Those that hold bytes, and how many bytes.
    holders: BTreeSet<u64>,
    bytes: usize,
    /// How many are of sequential reads, with bytes or without.
    sequential: usize,
}

#[derive(Debug)]
struct Held {
    place: Place,
    /// Several reads may have ended there: the one before.
    before: Option<u64>,
    cursor: Cursor,
}

/// The offset at which the next read is sequential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    topic_id: Uuid,
    partition: i32,
    next_offset: i64,
}

impl Cursors {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            kept: Mutex::default(),
        }
    }

    /// Takes the cursor of a read that ended where this one begins, the latest first.
    pub(super) fn take(&self, partition: &TopicIdPartition, offset: i64) -> Option<Cursor> {
        self.kept.lock().take(Place::new(partition, offset))
    }

    /// Keeps a cursor, and lets go what is beyond the bounds, the oldest first.
    pub(super) fn keep(&self, partition: &TopicIdPartition, next_offset: i64, cursor: Cursor) {
        let mut kept = self.kept.lock();
        kept.insert(Place::new(partition, next_offset), cursor);
        while kept.bytes > self.max_bytes && kept.release_oldest() {}
        let forgotten = (kept.by_age.len() > MAX_AGE).then(|| kept.forget_oldest());
        // What it holds is dropped when the lock is free again.
        drop(kept);
        drop(forgotten);
    }

    /// How much one more sequential read may read ahead, so that none takes another's away before
    /// it is used.
    pub(super) fn fair_share(&self) -> usize {
        self.max_bytes / (self.kept.lock().sequential + 1)
    }
}

impl Kept {
    fn insert(&mut self, place: Place, cursor: Cursor) {
        let number = self.oldest + self.by_age.len() as u64;
        if !cursor.rest.bytes.is_empty() {
            self.bytes += cursor.rest.answered;
            self.holders.insert(number);
        }
        self.sequential += usize::from(cursor.is_sequential);
        let before = self.latest.insert(place, number);
        self.by_age.push_back(Some(Held {
            place,
            before,
            cursor,
        }));
    }

    fn take(&mut self, place: Place) -> Option<Cursor> {
        let number = *self.latest.get(&place)?;
        let held = self.at(number)?.take()?;
        match held.before.filter(|&before| before >= self.oldest) {
            Some(before) => self.latest.insert(place, before),
            None => self.latest.remove(&place),
        };
        self.has_gone(number, &held.cursor);
        Some(held.cursor)
    }

    fn forget_oldest(&mut self) -> Option<Held> {
        let number = self.oldest;
        self.oldest += 1;
        let held = self.by_age.pop_front()??;
        if self.latest.get(&held.place) == Some(&number) {
            self.latest.remove(&held.place);
        }
        self.has_gone(number, &held.cursor);
        Some(held)
    }

    fn has_gone(&mut self, number: u64, cursor: &Cursor) {
        if self.holders.remove(&number) {
            self.bytes -= cursor.rest.answered;
        }
        self.sequential -= usize::from(cursor.is_sequential);
    }

    /// Lets the bytes go that have been held the longest: the place is still known.
    fn release_oldest(&mut self) -> bool {
        let Some(number) = self.holders.pop_first() else {
            return false;
        };
        if let Some(Some(held)) = self.at(number) {
            // The rest keeps the whole answer alive that it is a part of.
            let answered = held.cursor.rest.answered;
            held.cursor.rest.bytes = Bytes::new();
            held.cursor.rest.at_end = false;
            self.bytes -= answered;
        }
        true
    }

    fn at(&mut self, number: u64) -> Option<&mut Option<Held>> {
        let place = number.checked_sub(self.oldest)?;
        self.by_age.get_mut(usize::try_from(place).ok()?)
    }
}

impl Place {
    fn new(partition: &TopicIdPartition, next_offset: i64) -> Self {
        Self {
            topic_id: partition.topic_id,
            partition: partition.partition,
            next_offset,
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
        assert!(kept.by_age.len() <= MAX_AGE);
        let all: Vec<_> = (kept.oldest..)
            .zip(&kept.by_age)
            .filter_map(|(number, held)| Some((number, held.as_ref()?)))
            .collect();
        let holders = all
            .iter()
            .filter(|(number, _)| kept.holders.contains(number));
        assert_eq!(holders.clone().count(), kept.holders.len());
        let answered = holders.map(|(_, held)| held.cursor.rest.answered);
        assert_eq!(kept.bytes, answered.sum::<usize>());
        let sequential = all.iter().filter(|(_, held)| held.cursor.is_sequential);
        assert_eq!(kept.sequential, sequential.count());
        let places: std::collections::HashSet<_> = all.iter().map(|(_, held)| held.place).collect();
        assert_eq!(
            kept.latest
                .keys()
                .copied()
                .collect::<std::collections::HashSet<_>>(),
            places
        );
        let all = all.into_iter().map(|(number, held)| {
            let holds = !held.cursor.rest.bytes.is_empty();
            assert_eq!(holds, kept.holders.contains(&number));
            (held.place.next_offset, holds)
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
    fn of_readers_side_by_side_those_that_nobody_goes_on_from_are_forgotten() {
        let cursors = Cursors::new(1 << 20);
        cursors.keep(&partition(0), 7, cursor(1, 10));
        for _ in 1..MAX_AGE {
            cursors.keep(&partition(1), 0, cursor(9, 0));
        }
        cursors.keep(&partition(0), 7, cursor(2, 10));
        cursors.keep(&partition(1), 1, cursor(9, 0));
        // The first one has gone, the second one has not.
        let segments = [(); 2].map(|()| {
            let cursor = cursors.take(&partition(0), 7);
            cursor.map(|cursor| cursor.segment.as_u128())
        });
        assert_eq!(segments, [Some(2), None]);
        kept(&cursors);
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
        assert_eq!(kept.len(), MAX_AGE);
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
