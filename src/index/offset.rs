//! The offset index: where in the log to start reading for an offset.
//!
//! An entry names the **last** offset of a batch and the position at which that batch begins, one
//! entry for every `index.interval.bytes` (4096) or more of log. So the first entry of a real file
//! is not `(0, 0)`, and the index of a segment of one batch is empty.
//!
//! A broker preallocates the file of its active segment and cuts it when the segment is rolled or
//! the log is closed, so a broker that was killed leaves zeros after the last entry. Kafka's sanity
//! check accepts these, and a plain binary search then answers 0 for every offset. Here they are
//! passed over.

use std::convert::Infallible;

use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::corrupt::corrupt_file;
use super::search::{absolute, ordered_prefix, partition_point, relative, whole_entries};
use super::{BytePosition, LogOffset, RelativeOffset};
use crate::error::RemoteStorageError;

const FILE: &str = "remote offset index";

/// One entry of an offset index, as it lies in the file: 8 bytes, big-endian.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct OffsetIndexEntry {
    /// The last offset of a batch, less the segment's start offset.
    pub relative_offset: U32,
    /// Where in the log that batch begins, in bytes.
    pub position: U32,
}

/// Where in a log to start reading, and for what (Kafka's `OffsetPosition`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetPosition {
    /// The last offset of the batch at `position`; the segment's start offset when the index has
    /// no such entry.
    pub offset: LogOffset,
    /// Where the batch begins, in bytes from the start of the log.
    pub position: BytePosition,
}

/// Between which batches of a log the one that holds an offset lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetRange {
    /// Where to start reading: the last entry at or below the offset, else the start of the
    /// segment.
    pub floor: OffsetPosition,
    /// The first entry above the offset: the batch begins there or before. `None` when there is no
    /// such entry.
    pub next: Option<OffsetPosition>,
}

/// Reads an offset index: the first entry, and those after it as long as offset and position both
/// increase. A partial last entry is dropped, and so are the zeros of a preallocated file.
///
/// This looks at every entry. To look up an offset, [`OffsetIndex`] is faster by far.
///
/// # Errors
///
/// None: bytes that make no sense are an index of fewer entries.
pub fn parse_offset_index(bytes: &[u8]) -> Result<&[OffsetIndexEntry], RemoteStorageError> {
    Ok(ordered_prefix(
        whole_entries(bytes),
        |before: &OffsetIndexEntry, after| {
            before.relative_offset < after.relative_offset && before.position < after.position
        },
    ))
}

/// Where to start reading for an offset: the position of the last entry at or below it, or 0.
///
/// `entries` increase, but zero entries at their end do no harm.
pub fn position_for_relative_offset(
    entries: &[OffsetIndexEntry],
    relative_offset: RelativeOffset,
) -> BytePosition {
    let Ok(floor) = search_offset_index(entries.len(), relative_offset, in_memory(entries));
    floor.map_or(0, |entry| entry.position.get())
}

/// Looks up an offset in an index of `count` entries that are read one at a time, from a file for
/// example: some 20 of them whatever the count. Answers the last entry at or below
/// `relative_offset`.
///
/// # Errors
///
/// The first error of `entry`.
pub fn search_offset_index<E>(
    count: usize,
    relative_offset: RelativeOffset,
    mut entry: impl FnMut(usize) -> Result<OffsetIndexEntry, E>,
) -> Result<Option<OffsetIndexEntry>, E> {
    let above = first_above(count, relative_offset, &mut entry)?;
    above.checked_sub(1).map(entry).transpose()
}

/// The index of the first entry above an offset, or `count`.
fn first_above<E>(
    count: usize,
    relative_offset: RelativeOffset,
    mut entry: impl FnMut(usize) -> Result<OffsetIndexEntry, E>,
) -> Result<usize, E> {
    partition_point(count, |index| {
        entry(index)
            .map(|entry| is_written(index, entry) && entry.relative_offset.get() <= relative_offset)
    })
}

/// [`OffsetIndex::lookup`] in an index of `count` entries that are read one at a time, from a file
/// for example: some 20 of them whatever the count.
///
/// # Errors
///
/// The first error of `entry`.
pub fn lookup_offset<E>(
    base_offset: LogOffset,
    count: usize,
    offset: LogOffset,
    entry: impl FnMut(usize) -> Result<OffsetIndexEntry, E>,
) -> Result<OffsetPosition, E> {
    let floor = match relative(base_offset, offset) {
        Some(relative_offset) => search_offset_index(count, relative_offset, entry)?,
        None => None,
    };
    Ok(floor_of(base_offset, floor))
}

/// [`OffsetIndex::lookup_range`] in an index of `count` entries that are read one at a time, from a
/// file for example: some 20 of them whatever the count.
///
/// # Errors
///
/// The first error of `entry`.
pub fn lookup_offset_range<E>(
    base_offset: LogOffset,
    count: usize,
    offset: LogOffset,
    mut entry: impl FnMut(usize) -> Result<OffsetIndexEntry, E>,
) -> Result<OffsetRange, E> {
    let above = match relative(base_offset, offset) {
        Some(relative_offset) => first_above(count, relative_offset, &mut entry)?,
        None => 0,
    };
    let floor = above.checked_sub(1).map(&mut entry).transpose()?;
    let next = (above < count).then(|| entry(above)).transpose()?;
    Ok(OffsetRange {
        floor: floor_of(base_offset, floor),
        next: next
            .filter(|&next| is_written(above, next))
            .map(|next| position_of(base_offset, next)),
    })
}

/// [`OffsetIndex::fetch_upper_bound_offset`] in an index of `count` entries that are read one at a
/// time. `fetched` is the position and the size of what was fetched, in bytes.
///
/// # Errors
///
/// The first error of `entry`.
pub fn lookup_upper_bound_offset<E>(
    base_offset: LogOffset,
    count: usize,
    fetched: (BytePosition, usize),
    mut entry: impl FnMut(usize) -> Result<OffsetIndexEntry, E>,
) -> Result<Option<LogOffset>, E> {
    let (position, size) = fetched;
    let end = u64::from(position).saturating_add(size.try_into().unwrap_or(u64::MAX));
    let before = partition_point(count, |index| {
        entry(index).map(|entry| is_written(index, entry) && u64::from(entry.position.get()) < end)
    })?;
    if before == count {
        return Ok(None);
    }
    let bound = entry(before)?;
    Ok(is_written(before, bound).then(|| absolute(base_offset, bound.relative_offset.get())))
}

/// An offset index to search without parsing it first.
///
/// A search reads some 20 entries, whatever the size, and allocates nothing. It trusts that the
/// entries increase; zeros of a preallocated file do no harm.
#[derive(Clone, Copy, Debug)]
pub struct OffsetIndex<'a> {
    base_offset: LogOffset,
    bytes: &'a [u8],
}

impl<'a> OffsetIndex<'a> {
    /// The index with these bytes, of the segment that starts at `base_offset`. A partial last
    /// entry is passed over.
    pub fn new(base_offset: LogOffset, bytes: &'a [u8]) -> Self {
        Self { base_offset, bytes }
    }

    /// Where to start reading for `offset`: the last entry at or below it, else the start of the
    /// segment (Kafka's `lookup`).
    pub fn lookup(&self, offset: LogOffset) -> OffsetPosition {
        let entries = self.entries();
        let Ok(position) =
            lookup_offset(self.base_offset, entries.len(), offset, in_memory(entries));
        position
    }

    /// Between which batches the one that holds `offset` lies: [`lookup`](Self::lookup), and the
    /// entry after it.
    pub fn lookup_range(&self, offset: LogOffset) -> OffsetRange {
        let entries = self.entries();
        let Ok(range) =
            lookup_offset_range(self.base_offset, entries.len(), offset, in_memory(entries));
        range
    }

    /// An offset that no batch within the `fetch_size` bytes from `position` on goes beyond: that
    /// of the first entry at or after their end. `None` when there is none, and the segment's end
    /// offset + 1 is the bound (Kafka's `fetchUpperBoundOffset`).
    pub fn fetch_upper_bound_offset(
        &self,
        position: BytePosition,
        fetch_size: usize,
    ) -> Option<LogOffset> {
        let entries = self.entries();
        let Ok(bound) = lookup_upper_bound_offset(
            self.base_offset,
            entries.len(),
            (position, fetch_size),
            in_memory(entries),
        );
        bound
    }

    /// Kafka's check of a file before it is used.
    ///
    /// # Errors
    ///
    /// The index is corrupt: its length is not a multiple of 8, or its last entry is below the
    /// start of the segment. The zeros of a preallocated file pass.
    pub fn sanity_check(&self) -> Result<(), RemoteStorageError> {
        let length = self.bytes.len();
        if !length.is_multiple_of(size_of::<OffsetIndexEntry>()) {
            return Err(corrupt_file(
                FILE,
                format_args!("{length} bytes are no whole number of entries"),
            ));
        }
        match self.entries().last() {
            // Kafka reads the number as signed.
            Some(last) if last.relative_offset.get().cast_signed() < 0 => Err(corrupt_file(
                FILE,
                "the last offset is below the start of the segment",
            )),
            _ => Ok(()),
        }
    }

    fn entries(&self) -> &'a [OffsetIndexEntry] {
        whole_entries(self.bytes)
    }
}

/// What an entry means.
fn position_of(base_offset: LogOffset, entry: OffsetIndexEntry) -> OffsetPosition {
    OffsetPosition {
        offset: absolute(base_offset, entry.relative_offset.get()),
        position: entry.position.get(),
    }
}

/// What an entry that was found means, or none: the start of the segment.
fn floor_of(base_offset: LogOffset, entry: Option<OffsetIndexEntry>) -> OffsetPosition {
    entry.map_or(
        OffsetPosition {
            offset: base_offset,
            position: 0,
        },
        |entry| position_of(base_offset, entry),
    )
}

/// Whether this is an entry, and not a zero of a preallocated file. Only the first entry can be
/// `(0, …)`, as offsets increase.
fn is_written(index: usize, entry: OffsetIndexEntry) -> bool {
    index == 0 || entry.relative_offset.get() != 0
}

fn in_memory(
    entries: &[OffsetIndexEntry],
) -> impl FnMut(usize) -> Result<OffsetIndexEntry, Infallible> {
    |index| Ok(entries[index])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOLDEN: [u8; 24] = [
        0, 0, 0, 0, 0, 0, 0, 0, //
        0, 0, 0, 10, 0, 0, 1, 0, //
        0, 0, 0, 20, 0, 0, 2, 0,
    ];

    fn entry((relative_offset, position): (u32, u32)) -> OffsetIndexEntry {
        OffsetIndexEntry {
            relative_offset: relative_offset.into(),
            position: position.into(),
        }
    }

    fn entries(pairs: &[(u32, u32)]) -> Vec<OffsetIndexEntry> {
        pairs.iter().copied().map(entry).collect()
    }

    #[test]
    fn the_golden_bytes_are_three_entries_in_place() {
        let parsed = parse_offset_index(&GOLDEN).expect("index");
        assert_eq!(parsed, entries(&[(0, 0), (10, 256), (20, 512)]));
        assert_eq!(parsed.as_ptr().cast(), GOLDEN.as_ptr(), "nothing is copied");
        assert_eq!(parsed.as_bytes(), GOLDEN);
        assert_eq!(align_of::<OffsetIndexEntry>(), 1);
    }

    #[test]
    fn a_range_is_from_the_entry_at_or_below_an_offset_to_the_one_above() {
        let position = |offset, position| OffsetPosition { offset, position };
        let zeros = [&GOLDEN[..], &[0; 40]].concat();
        for bytes in [&GOLDEN[..], &zeros] {
            let index = OffsetIndex::new(100, bytes);
            for (offset, floor, next) in [
                (i64::MIN, position(100, 0), Some(position(100, 0))),
                (100, position(100, 0), Some(position(110, 256))),
                (109, position(100, 0), Some(position(110, 256))),
                (110, position(110, 256), Some(position(120, 512))),
                (119, position(110, 256), Some(position(120, 512))),
                (120, position(120, 512), None),
                (i64::MAX, position(120, 512), None),
            ] {
                let range = index.lookup_range(offset);
                assert_eq!(range, OffsetRange { floor, next }, "{offset}");
                assert_eq!(range.floor, index.lookup(offset));
            }
        }
        let empty = OffsetIndex::new(100, &[]).lookup_range(105);
        assert_eq!((empty.floor, empty.next), (position(100, 0), None));
    }

    #[test]
    fn a_partial_entry_and_a_tail_of_zeros_are_dropped() {
        let count = |bytes: &[u8]| parse_offset_index(bytes).expect("index").len();
        assert_eq!(count(&[GOLDEN.as_slice(), &[0xff; 3]].concat()), 3);
        assert_eq!(count(&[GOLDEN.as_slice(), &[0; 40]].concat()), 3);
        assert_eq!(count(&GOLDEN[..7]), 0);
        assert_eq!(count(&[]), 0);
        assert_eq!(count(&[0; 80]), 1, "only zeros: one harmless entry");
        let falling = entries(&[(5, 100), (10, 200), (11, 200), (12, 300)]);
        assert_eq!(count(falling.as_bytes()), 2);
    }

    #[test]
    fn positions_are_those_of_the_last_entry_at_or_below() {
        let four = entries(&[(0, 0), (10, 256), (20, 512), (30, 1024)]);
        let zero_tail = [four.clone(), entries(&[(0, 0); 5])].concat();
        for entries in [&four, &zero_tail] {
            for (target, position) in [(10, 256), (15, 256), (0, 0), (100, 1024)] {
                assert_eq!(position_for_relative_offset(entries, target), position);
            }
        }
        let late = entries(&[(5, 100), (10, 200)]);
        assert_eq!(position_for_relative_offset(&late, 3), 0);
        assert_eq!(position_for_relative_offset(&late, 5), 100);
        assert_eq!(position_for_relative_offset(&[], 7), 0);
    }

    #[test]
    fn a_zero_tail_does_not_lead_a_search_astray() {
        let bytes = [GOLDEN.as_slice(), &[0; 40]].concat();
        let index = OffsetIndex::new(1000, &bytes);
        for (target, position) in [(5, 0), (10, 256), (15, 256), (20, 512), (25, 512)] {
            assert_eq!(index.lookup(1000 + target).position, position, "{target}");
        }
    }

    #[test]
    fn a_lookup_outside_the_index_answers_the_nearest_start() {
        let bytes = entries(&[(5, 100), (10, 200)]);
        let index = OffsetIndex::new(50, bytes.as_bytes());
        let start = OffsetPosition {
            offset: 50,
            position: 0,
        };
        assert_eq!(index.lookup(i64::MIN), start);
        assert_eq!(index.lookup(54), start);
        let last = OffsetPosition {
            offset: 60,
            position: 200,
        };
        assert_eq!(index.lookup(60), last);
        assert_eq!(index.lookup(i64::MAX), last);
        assert_eq!(OffsetIndex::new(50, &[]).lookup(60), start);
    }

    #[test]
    fn the_upper_bound_is_the_first_entry_at_or_after_the_end_of_the_fetch() {
        let mut bytes = entries(&[(5, 100), (10, 200), (20, 400)]);
        for tail in [0, 4] {
            bytes.extend(entries(&[(0, 0)].repeat(tail)));
            let index = OffsetIndex::new(1000, bytes.as_bytes());
            assert_eq!(index.fetch_upper_bound_offset(0, 0), Some(1005));
            assert_eq!(index.fetch_upper_bound_offset(0, 100), Some(1005));
            assert_eq!(index.fetch_upper_bound_offset(0, 101), Some(1010));
            assert_eq!(index.fetch_upper_bound_offset(200, 200), Some(1020));
            assert_eq!(index.fetch_upper_bound_offset(200, 201), None);
            assert_eq!(index.fetch_upper_bound_offset(u32::MAX, usize::MAX), None);
        }
    }

    #[test]
    fn an_error_of_a_read_ends_the_search() {
        let found = search_offset_index(10, 3, Err::<OffsetIndexEntry, _>);
        assert_eq!(found, Err(5));
        assert_eq!(search_offset_index(0, 3, Err), Ok(None));
    }

    #[test]
    fn the_sanity_check_is_kafkas() {
        let check = |bytes: &[u8]| OffsetIndex::new(0, bytes).sanity_check();
        assert!(check(&[]).is_ok());
        assert!(check(&GOLDEN).is_ok());
        assert!(check(&[GOLDEN.as_slice(), &[0; 40]].concat()).is_ok());
        let error = check(&GOLDEN[..23]).expect_err("partial entry");
        assert_eq!(error.to_string(), "corrupt remote offset index bytes");
        assert!(check(entries(&[(1, 1), (1 << 31, 2)]).as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_searched_without_harm(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            target: u32,
            base: i64,
            offset: i64,
            size: usize,
        ) {
            let parsed = parse_offset_index(&bytes).expect("index");
            prop_assert!(parsed.len() <= bytes.len() / 8);
            position_for_relative_offset(parsed, target);
            let index = OffsetIndex::new(base, &bytes);
            index.lookup(offset);
            index.fetch_upper_bound_offset(target, size);
            let _ = index.sanity_check();
        }

        #[test]
        fn searching_bytes_equals_parsing_and_searching(
            steps in proptest::collection::vec((1_u32..50, 1_u32..5000), 0..60),
            tail in 0_usize..100,
            target in 0_u32..3000,
            end in 0_usize..250_000,
        ) {
            let mut sum = (0, 0);
            let mut index: Vec<_> = steps
                .iter()
                .map(|step| {
                    sum = (sum.0 + step.0, sum.1 + step.1);
                    entry(sum)
                })
                .collect();
            let real = index.clone();
            index.extend(entries(&[(0, 0)].repeat(tail)));
            let bytes = index.as_bytes();

            let parsed = parse_offset_index(bytes).expect("index");
            let floor = real.iter().rev().find(|e| e.relative_offset.get() <= target);
            let expected = floor.map_or(0, |e| e.position.get());
            prop_assert_eq!(position_for_relative_offset(parsed, target), expected);
            let search = OffsetIndex::new(7, bytes);
            prop_assert_eq!(search.lookup(7 + i64::from(target)).position, expected);
            let bound = real.iter().find(|e| e.position.get() as usize >= end);
            let bound = bound.map(|e| 7 + i64::from(e.relative_offset.get()));
            // An index of nothing but zeros still has its one entry.
            if !real.is_empty() || tail == 0 {
                prop_assert_eq!(search.fetch_upper_bound_offset(0, end), bound);
            }
        }
    }
}
