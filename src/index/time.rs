//! The time index: from where on to look for a timestamp.
//!
//! An entry says: the largest timestamp so far is this one, and the batch that reached it first
//! ends with this offset. Timestamps increase strictly, offsets do not fall. The last entry is
//! written when the segment is rolled or the log is closed, so the file of an active segment, or of
//! a broker that was killed, may lack it and end with zeros instead. The searches pass over these.

use std::convert::Infallible;

use zerocopy::big_endian::{I64, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::corrupt::corrupt_file;
use super::search::{absolute, ordered_prefix, partition_point, whole_entries};
use super::{LogOffset, RelativeOffset, TimestampMs};
use crate::error::RemoteStorageError;

const FILE: &str = "remote time index";

/// One entry of a time index, as it lies in the file: 12 bytes, big-endian.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct TimeIndexEntry {
    /// The largest timestamp up to the offset, in milliseconds since 1970-01-01 UTC.
    pub timestamp: I64,
    /// The last offset of the batch that reached it first, less the segment's start offset.
    pub relative_offset: U32,
}

/// A timestamp, and the offset at which the log has reached it (Kafka's `TimestampOffset`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampOffset {
    /// The largest timestamp up to `offset`; −1 when the index has no such entry.
    pub timestamp: TimestampMs,
    /// The last offset of the batch that reached it first; the segment's start offset when the
    /// index has no such entry.
    pub offset: LogOffset,
}

/// Reads a time index: the first entry, and those after it as long as neither timestamp nor offset
/// falls and not both stay. A partial last entry is dropped, and so are the zeros of a preallocated
/// file.
///
/// # Errors
///
/// None: bytes that make no sense are an index of fewer entries.
pub fn parse_time_index(bytes: &[u8]) -> Result<&[TimeIndexEntry], RemoteStorageError> {
    Ok(ordered_prefix(
        whole_entries(bytes),
        |before: &TimeIndexEntry, after| {
            before.timestamp.get() <= after.timestamp.get()
                && before.relative_offset <= after.relative_offset
                && before != after
        },
    ))
}

/// From which relative offset on to look for the first record at or after `timestamp`: that of
/// the last entry **below** it, or 0.
///
/// The answer chooses where to start and nothing else: it is the last offset of a batch, and the
/// batch may hold the record. Kafka's own lookup takes an entry of the very timestamp too, which
/// is right only as long as timestamps strictly increase.
pub fn relative_offset_floor_for_timestamp(
    entries: &[TimeIndexEntry],
    timestamp: TimestampMs,
) -> RelativeOffset {
    let mut floor: Option<&TimeIndexEntry> = None;
    for entry in entries {
        let rises = floor.is_none_or(|before| before.relative_offset < entry.relative_offset);
        if entry.timestamp.get() >= timestamp || !rises {
            break;
        }
        floor = Some(entry);
    }
    floor.map_or(0, |entry| entry.relative_offset.get())
}

/// Looks for a timestamp in an index of `count` entries that are read one at a time, from a file
/// for example: some 20 of them whatever the count. Answers the last entry **below** `timestamp`.
///
/// # Errors
///
/// The first error of `entry`.
pub fn search_time_index<E>(
    count: usize,
    timestamp: TimestampMs,
    entry: impl FnMut(usize) -> Result<TimeIndexEntry, E>,
) -> Result<Option<TimeIndexEntry>, E> {
    last_where(count, entry, |reached| reached < timestamp)
}

/// [`TimeIndex::scan_start`] in an index of `count` entries that are read one at a time, from a
/// file for example: some 20 of them whatever the count.
///
/// # Errors
///
/// The first error of `entry`.
pub fn lookup_scan_start<E>(
    base_offset: LogOffset,
    count: usize,
    timestamp: TimestampMs,
    entry: impl FnMut(usize) -> Result<TimeIndexEntry, E>,
) -> Result<TimestampOffset, E> {
    search_time_index(count, timestamp, entry).map(|found| reached_at(base_offset, found))
}

/// A time index to search without parsing it first.
///
/// A search reads some 20 entries, whatever the size, and allocates nothing. It trusts that the
/// entries increase; zeros of a preallocated file do no harm.
#[derive(Clone, Copy, Debug)]
pub struct TimeIndex<'a> {
    base_offset: LogOffset,
    bytes: &'a [u8],
}

impl<'a> TimeIndex<'a> {
    /// The index with these bytes, of the segment that starts at `base_offset`. A partial last
    /// entry is passed over.
    pub fn new(base_offset: LogOffset, bytes: &'a [u8]) -> Self {
        Self { base_offset, bytes }
    }

    /// The last entry at or below `timestamp` (Kafka's `lookup`), else −1 and the start of the
    /// segment. To find a record, [`scan_start`](Self::scan_start) is the safer place.
    pub fn lookup(&self, timestamp: TimestampMs) -> TimestampOffset {
        self.last_where(|reached| reached <= timestamp)
    }

    /// From which entry on to look for the first record at or after `timestamp`: the last one
    /// below it, else −1 and the start of the segment.
    ///
    /// It chooses where to start and nothing else: the batch that ends with its offset may hold
    /// the record.
    pub fn scan_start(&self, timestamp: TimestampMs) -> TimestampOffset {
        self.last_where(|reached| reached < timestamp)
    }

    /// Kafka's check of a file before it is used.
    ///
    /// # Errors
    ///
    /// The index is corrupt: its length is not a multiple of 12, its last timestamp is below its
    /// first (so the zeros of a preallocated file do not pass), or its last entry is below the
    /// start of the segment.
    pub fn sanity_check(&self) -> Result<(), RemoteStorageError> {
        let length = self.bytes.len();
        if !length.is_multiple_of(size_of::<TimeIndexEntry>()) {
            return Err(corrupt_file(
                FILE,
                format_args!("{length} bytes are no whole number of entries"),
            ));
        }
        let entries = self.entries();
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
            return Ok(());
        };
        if last.timestamp.get() < first.timestamp.get() {
            return Err(corrupt_file(FILE, "the last timestamp is below the first"));
        }
        // Kafka reads the number as signed.
        if last.relative_offset.get().cast_signed() < 0 {
            return Err(corrupt_file(
                FILE,
                "the last offset is below the start of the segment",
            ));
        }
        Ok(())
    }

    fn last_where(&self, holds: impl Fn(TimestampMs) -> bool) -> TimestampOffset {
        let entries = self.entries();
        let Ok(found) = last_where(
            entries.len(),
            |index| Ok::<_, Infallible>(entries[index]),
            holds,
        );
        reached_at(self.base_offset, found)
    }

    fn entries(&self) -> &'a [TimeIndexEntry] {
        whole_entries(self.bytes)
    }
}

fn reached_at(base_offset: LogOffset, entry: Option<TimeIndexEntry>) -> TimestampOffset {
    entry.map_or(
        TimestampOffset {
            timestamp: -1,
            offset: base_offset,
        },
        |entry| TimestampOffset {
            timestamp: entry.timestamp.get(),
            offset: absolute(base_offset, entry.relative_offset.get()),
        },
    )
}

/// The last of the leading entries whose timestamps satisfy `holds`.
fn last_where<E>(
    count: usize,
    mut entry: impl FnMut(usize) -> Result<TimeIndexEntry, E>,
    holds: impl Fn(TimestampMs) -> bool,
) -> Result<Option<TimeIndexEntry>, E> {
    let after = partition_point(count, |index| {
        entry(index).map(|entry| is_written(index, entry) && holds(entry.timestamp.get()))
    })?;
    after.checked_sub(1).map(entry).transpose()
}

/// Whether this is an entry, and not a zero of a preallocated file. Only the first entry can be
/// `(0, 0)`, as timestamps increase.
fn is_written(index: usize, entry: TimeIndexEntry) -> bool {
    index == 0 || entry.timestamp.get() != 0 || entry.relative_offset.get() != 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry((timestamp, relative_offset): (i64, u32)) -> TimeIndexEntry {
        TimeIndexEntry {
            timestamp: timestamp.into(),
            relative_offset: relative_offset.into(),
        }
    }

    fn entries(pairs: &[(i64, u32)]) -> Vec<TimeIndexEntry> {
        pairs.iter().copied().map(entry).collect()
    }

    #[test]
    fn the_golden_bytes_are_three_entries_in_place() {
        let golden = golden();
        let parsed = parse_time_index(&golden).expect("index");
        assert_eq!(parsed, entries(&[(1000, 0), (2000, 10), (3000, 20)]));
        assert_eq!(parsed.as_ptr().cast(), golden.as_ptr(), "nothing is copied");
        assert_eq!(parsed.as_bytes(), golden);
        assert_eq!(align_of::<TimeIndexEntry>(), 1);
    }

    fn golden() -> [u8; 36] {
        let mut golden = [0; 36];
        golden[..12].copy_from_slice(&[0, 0, 0, 0, 0, 0, 3, 0xe8, 0, 0, 0, 0]);
        golden[12..24].copy_from_slice(&[0, 0, 0, 0, 0, 0, 7, 0xd0, 0, 0, 0, 10]);
        golden[24..].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0x0b, 0xb8, 0, 0, 0, 20]);
        golden
    }

    #[test]
    fn a_partial_entry_and_a_tail_of_zeros_are_dropped() {
        let count = |bytes: &[u8]| parse_time_index(bytes).expect("index").len();
        assert_eq!(count(&golden()[..11]), 0);
        assert_eq!(count(&[golden().as_slice(), &[0xff; 5]].concat()), 3);
        assert_eq!(count(&[golden().as_slice(), &[0; 60]].concat()), 3);
        assert_eq!(count(&[0; 60]), 1, "only zeros: one harmless entry");
        // The same timestamp or the same offset again is an entry, both again are not.
        let repeating = entries(&[(5, 1), (5, 2), (6, 2), (6, 2), (7, 3)]);
        assert_eq!(count(repeating.as_bytes()), 3);
        assert_eq!(count(entries(&[(5, 9), (6, 8)]).as_bytes()), 1);
    }

    #[test]
    fn a_scan_starts_at_the_last_entry_below_the_timestamp() {
        let four = entries(&[(1000, 0), (2000, 10), (2000, 20), (3000, 30)]);
        let start = |index: &[TimeIndexEntry], timestamp| {
            relative_offset_floor_for_timestamp(index, timestamp)
        };
        for (timestamp, offset) in [
            (500, 0),
            (1000, 0),
            (1500, 0),
            (2000, 0),
            (2500, 20),
            (4000, 30),
        ] {
            assert_eq!(start(&four, timestamp), offset, "{timestamp}");
        }
        let zero_tail = entries(&[(1000, 0), (2000, 10), (0, 0), (0, 0)]);
        assert_eq!(start(&zero_tail, 3000), 10);
        let hole = entries(&[(1000, 0), (2000, 10), (0, 0), (9000, 20)]);
        assert_eq!(start(&hole, i64::MAX), 10);
        for timestamp in [i64::MIN, 0, i64::MAX] {
            assert_eq!(start(&[], timestamp), 0);
        }
    }

    #[test]
    fn kafkas_lookup_takes_an_entry_of_the_very_timestamp_and_a_scan_does_not() {
        let bytes = [golden().as_slice(), &[0; 60]].concat();
        let index = TimeIndex::new(100, &bytes);
        let found = |timestamp, offset| TimestampOffset { timestamp, offset };
        assert_eq!(index.lookup(999), found(-1, 100));
        assert_eq!(index.lookup(1000), found(1000, 100));
        assert_eq!(index.lookup(2000), found(2000, 110));
        assert_eq!(index.scan_start(1000), found(-1, 100));
        assert_eq!(index.scan_start(2000), found(1000, 100));
        for greatest in [index.lookup(i64::MAX), index.scan_start(i64::MAX)] {
            assert_eq!(greatest, found(3000, 120));
        }
        let read =
            |index: usize| Ok::<_, Infallible>(parse_time_index(&bytes).expect("index")[index]);
        assert_eq!(
            search_time_index(3, 3000, read),
            Ok(Some(entry((2000, 10))))
        );
        assert_eq!(search_time_index(3, 1000, read), Ok(None));
    }

    #[test]
    fn the_sanity_check_is_kafkas() {
        let check = |bytes: &[u8]| TimeIndex::new(0, bytes).sanity_check();
        assert!(check(&[]).is_ok());
        assert!(check(&golden()).is_ok());
        let zero_tail = [golden().as_slice(), &[0; 60]].concat();
        let error = check(&zero_tail).expect_err("zero tail");
        assert_eq!(error.to_string(), "corrupt remote time index bytes");
        assert!(check(&golden()[..35]).is_err());
        assert!(check(entries(&[(1, 1), (2, 1 << 31)]).as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_searched_without_harm(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            base: i64,
            timestamp: i64,
        ) {
            let parsed = parse_time_index(&bytes).expect("index");
            prop_assert!(parsed.len() <= bytes.len() / 12);
            relative_offset_floor_for_timestamp(parsed, timestamp);
            let index = TimeIndex::new(base, &bytes);
            index.lookup(timestamp);
            index.scan_start(timestamp);
            let _ = index.sanity_check();
        }

        #[test]
        fn searching_bytes_equals_parsing_and_searching(
            steps in proptest::collection::vec((1_i64..50, 1_u32..50), 0..60),
            tail in 0_usize..100,
            timestamp in 0_i64..3000,
        ) {
            let mut sum = (0, 0);
            let mut index: Vec<_> = steps
                .iter()
                .map(|step| {
                    sum = (sum.0 + step.0, sum.1 + step.1);
                    entry(sum)
                })
                .collect();
            index.extend(entries(&[(0, 0)].repeat(tail)));
            let bytes = index.as_bytes();
            let parsed = parse_time_index(bytes).expect("index");
            let floor = relative_offset_floor_for_timestamp(parsed, timestamp);
            prop_assert_eq!(
                TimeIndex::new(9, bytes).scan_start(timestamp).offset,
                9 + i64::from(floor)
            );
        }
    }
}
