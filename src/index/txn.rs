//! The transaction index: which transactions were aborted.
//!
//! An entry lies in the segment that holds the transaction's abort **marker**; its records may
//! begin in an earlier one. Entries stand in the order of their markers. A segment without aborted
//! transactions has no such file, or an empty one: both mean the same.

use std::convert::Infallible;

use zerocopy::big_endian::{I16, I64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::LogOffset;
use super::corrupt::corrupt_file;
use super::search::{ordered_prefix, partition_point, whole_entries};
use crate::error::RemoteStorageError;

const FILE: &str = "remote transaction index";

/// One aborted transaction, as it lies in the file: 34 bytes, big-endian (Kafka's `AbortedTxn`).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct AbortedTxnIndexEntry {
    /// The format: 0.
    pub version: I16,
    /// Whose transaction it was.
    pub producer_id: I64,
    /// The offset of its first record.
    pub start_offset: I64,
    /// The offset of the marker that aborted it.
    pub last_offset: I64,
    /// The last stable offset after that: the first offset of the oldest transaction still open,
    /// else `last_offset` + 1.
    pub last_stable_offset: I64,
}

/// Reads a transaction index.
///
/// # Errors
///
/// The index is corrupt: its length is not a multiple of 34 (so an early 24-byte layout is
/// refused, too), or an entry has a version other than 0 or starts after its last offset.
pub fn parse_txn_index(bytes: &[u8]) -> Result<&[AbortedTxnIndexEntry], RemoteStorageError> {
    let entries: &[AbortedTxnIndexEntry] = whole_entries(bytes);
    if size_of_val(entries) != bytes.len() {
        return Err(corrupt_file(
            FILE,
            format_args!("{} bytes are no whole number of entries", bytes.len()),
        ));
    }
    for (index, entry) in entries.iter().enumerate() {
        if entry.version.get() != 0 {
            return Err(corrupt_file(
                FILE,
                format_args!("entry {index} has version {}", entry.version),
            ));
        }
        if entry.start_offset.get() > entry.last_offset.get() {
            return Err(corrupt_file(
                FILE,
                format_args!(
                    "entry {index} starts at offset {}, after its last offset {}",
                    entry.start_offset, entry.last_offset
                ),
            ));
        }
    }
    Ok(entries)
}

/// Kafka's check of an index before it is used.
///
/// # Errors
///
/// The index is corrupt: a transaction ends before the segment begins.
pub fn sanity_check_txn_index(
    entries: &[AbortedTxnIndexEntry],
    base_offset: LogOffset,
) -> Result<(), RemoteStorageError> {
    let stray = entries
        .iter()
        .find(|entry| entry.last_offset.get() < base_offset);
    stray.map_or(Ok(()), |entry| {
        Err(corrupt_file(
            FILE,
            format_args!(
                "last offset {} is below the segment's start {base_offset}",
                entry.last_offset
            ),
        ))
    })
}

/// Whether the transaction has a record or its marker among the offsets `from..=to`, both
/// **inclusive**. Never, when the entry or the question is the wrong way round.
pub fn txn_overlaps(entry: &AbortedTxnIndexEntry, from: LogOffset, to: LogOffset) -> bool {
    let (start, last) = (entry.start_offset.get(), entry.last_offset.get());
    start <= last && from <= to && start <= to && last >= from
}

/// The aborted transactions that a fetch must know of, as far as one segment tells (Kafka's
/// `TxnIndexSearchResult`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TxnIndexSearchResult {
    /// The transactions, in the order of the file.
    pub aborted: Vec<AbortedTxnIndexEntry>,
    /// Whether that is all. If not, later segments may have more.
    pub is_complete: bool,
}

/// Collects the aborted transactions that concern a fetch of the offsets from `fetch_offset` up to
/// and **without** `upper_bound_offset` (Kafka's `collectAbortedTxns`).
///
/// The search is complete at the first entry whose last stable offset is at or above the bound:
/// every transaction that began below the bound was decided by then.
///
/// This looks at every entry up to there; [`TxnIndex`] begins where the fetch does.
pub fn collect_aborted_txns(
    entries: &[AbortedTxnIndexEntry],
    fetch_offset: LogOffset,
    upper_bound_offset: LogOffset,
) -> TxnIndexSearchResult {
    let bounds = (fetch_offset, upper_bound_offset);
    let Ok(found) = collect(0..entries.len(), bounds, in_memory(entries));
    found
}

/// [`TxnIndex::collect_aborted_txns`] in an index of `count` entries that are read one at a time,
/// from a file for example: a few to find the first one that concerns the fetch, and those from
/// there on until the search is complete.
///
/// # Errors
///
/// The first error of `entry`.
pub fn search_txn_index<E>(
    count: usize,
    fetch_offset: LogOffset,
    upper_bound_offset: LogOffset,
    mut entry: impl FnMut(usize) -> Result<AbortedTxnIndexEntry, E>,
) -> Result<TxnIndexSearchResult, E> {
    let first = partition_point(count, |index| {
        entry(index).map(|entry| entry.last_offset.get() < fetch_offset)
    })?;
    collect(first..count, (fetch_offset, upper_bound_offset), entry)
}

/// A transaction index to search without parsing it first.
///
/// A search trusts that the entries stand in the order of their markers, as Kafka writes them;
/// [`sanity_check`](Self::sanity_check) compares that.
#[derive(Clone, Copy, Debug)]
pub struct TxnIndex<'a> {
    base_offset: LogOffset,
    bytes: &'a [u8],
}

impl<'a> TxnIndex<'a> {
    /// The index with these bytes, of the segment that starts at `base_offset`.
    pub fn new(base_offset: LogOffset, bytes: &'a [u8]) -> Self {
        Self { base_offset, bytes }
    }

    /// As [`collect_aborted_txns`], without looking at the entries before the first one that
    /// concerns the fetch.
    pub fn collect_aborted_txns(
        &self,
        fetch_offset: LogOffset,
        upper_bound_offset: LogOffset,
    ) -> TxnIndexSearchResult {
        let entries: &'a [AbortedTxnIndexEntry] = whole_entries(self.bytes);
        let Ok(found) = search_txn_index(
            entries.len(),
            fetch_offset,
            upper_bound_offset,
            in_memory(entries),
        );
        found
    }

    /// Checks a file before it is used: what [`parse_txn_index`] and [`sanity_check_txn_index`]
    /// do, and the order of the entries.
    ///
    /// # Errors
    ///
    /// The index is corrupt. Kafka itself does not compare the order; it refuses to write another.
    pub fn sanity_check(&self) -> Result<(), RemoteStorageError> {
        let entries = parse_txn_index(self.bytes)?;
        sanity_check_txn_index(entries, self.base_offset)?;
        let rises = |before: &AbortedTxnIndexEntry, after: &AbortedTxnIndexEntry| {
            before.last_offset.get() < after.last_offset.get()
        };
        let ordered = ordered_prefix(entries, rises).len();
        entries.get(ordered).map_or(Ok(()), |entry| {
            Err(corrupt_file(
                FILE,
                format_args!(
                    "last offset {} of entry {ordered} is not above the one before",
                    entry.last_offset
                ),
            ))
        })
    }
}

fn collect<E>(
    indexes: std::ops::Range<usize>,
    (fetch_offset, upper_bound_offset): (LogOffset, LogOffset),
    mut entry: impl FnMut(usize) -> Result<AbortedTxnIndexEntry, E>,
) -> Result<TxnIndexSearchResult, E> {
    let mut found = TxnIndexSearchResult::default();
    for index in indexes {
        let entry = entry(index)?;
        let ended_before = entry.last_offset.get() < fetch_offset;
        if !ended_before && entry.start_offset.get() < upper_bound_offset {
            found.aborted.push(entry);
        }
        if entry.last_stable_offset.get() >= upper_bound_offset {
            found.is_complete = true;
            break;
        }
    }
    Ok(found)
}

fn in_memory(
    entries: &[AbortedTxnIndexEntry],
) -> impl FnMut(usize) -> Result<AbortedTxnIndexEntry, Infallible> {
    |index| Ok(entries[index])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::golden::unhex;
    use super::*;

    fn entry(producer_id: i64, start: i64, last: i64, last_stable: i64) -> AbortedTxnIndexEntry {
        AbortedTxnIndexEntry {
            version: 0.into(),
            producer_id: producer_id.into(),
            start_offset: start.into(),
            last_offset: last.into(),
            last_stable_offset: last_stable.into(),
        }
    }

    /// The index X of the golden bytes.
    const X: &str = concat!(
        "000000000000000003e8000000000000000000000000000000040000000000000005",
        "000000000000000007d0000000000000000a000000000000000e0000000000000008",
        "00000000000000000bb80000000000000008000000000000001e000000000000001f",
    );

    fn x() -> Vec<u8> {
        unhex(X)
    }

    #[test]
    fn the_golden_bytes_are_three_entries_in_place() {
        let x = x();
        let entries = parse_txn_index(&x).expect("index");
        let expected = [
            entry(1000, 0, 4, 5),
            entry(2000, 10, 14, 8),
            entry(3000, 8, 30, 31),
        ];
        assert_eq!(entries, expected);
        assert_eq!(expected.as_bytes(), x);
        assert_eq!(entries.as_ptr().cast(), x.as_ptr(), "nothing is copied");
        assert_eq!(align_of::<AbortedTxnIndexEntry>(), 1);
        assert_eq!(parse_txn_index(&[]).expect("empty index"), []);
    }

    #[test]
    fn what_is_no_transaction_index_is_refused() {
        for length in [33, 35, 24, 48] {
            let error = parse_txn_index(&x()[..length]).expect_err("length");
            assert_eq!(error.to_string(), "corrupt remote transaction index bytes");
        }
        let mut version_one = x();
        version_one[1] = 1;
        assert!(parse_txn_index(&version_one).is_err());
        assert!(parse_txn_index(entry(1000, 5, 4, 5).as_bytes()).is_err());
        assert!(parse_txn_index(entry(1000, 4, 4, 5).as_bytes()).is_ok());
        assert!(parse_txn_index(&[0; 34]).is_ok(), "producer 0, offset 0");
    }

    #[test]
    fn a_transaction_that_ends_before_the_segment_fails_the_sanity_check() {
        let x = x();
        let entries = parse_txn_index(&x).expect("index");
        assert!(sanity_check_txn_index(entries, 4).is_ok());
        assert!(sanity_check_txn_index(entries, 5).is_err());
    }

    #[test]
    fn overlaps_are_inclusive_at_both_ends() {
        let ten_to_fourteen = entry(1, 10, 14, 15);
        for (from, to, overlaps) in [
            (0, 9, false),
            (0, 10, true),
            (11, 13, true),
            (14, 100, true),
            (15, 100, false),
            (0, 100, true),
            (14, 10, false),
        ] {
            assert_eq!(
                txn_overlaps(&ten_to_fourteen, from, to),
                overlaps,
                "{from}..={to}"
            );
        }
        assert!(!txn_overlaps(&entry(1, 14, 10, 15), 0, 100));
    }

    #[test]
    fn a_collection_ends_where_everything_below_the_bound_is_decided() {
        let x = x();
        let entries = parse_txn_index(&x).expect("index");
        for (fetch_offset, bound, producers, is_complete) in [
            (0, 5, &[1000][..], true),
            (0, 6, &[1000], true),
            (5, 10, &[3000], true),
            (11, 12, &[2000, 3000], true),
            (31, 40, &[], false),
            (0, 40, &[1000, 2000, 3000], false),
        ] {
            let found = collect_aborted_txns(entries, fetch_offset, bound);
            let ids: Vec<_> = found
                .aborted
                .iter()
                .map(|entry| entry.producer_id.get())
                .collect();
            assert_eq!(ids, producers, "[{fetch_offset}, {bound})");
            assert_eq!(found.is_complete, is_complete, "[{fetch_offset}, {bound})");
            let searched = TxnIndex::new(0, &x).collect_aborted_txns(fetch_offset, bound);
            assert_eq!(searched, found);
        }
    }

    #[test]
    fn entries_out_of_order_are_refused_before_they_are_searched() {
        let x = x();
        assert!(TxnIndex::new(4, &x).sanity_check().is_ok());
        assert!(TxnIndex::new(5, &x).sanity_check().is_err());
        assert!(TxnIndex::new(4, &x[..33]).sanity_check().is_err());
        assert!(TxnIndex::new(4, &[]).sanity_check().is_ok());
        for entries in [
            [entry(1, 0, 4, 5), entry(2, 1, 4, 5)],
            [entry(1, 6, 9, 10), entry(2, 1, 4, 5)],
        ] {
            let error = TxnIndex::new(0, entries.as_bytes()).sanity_check();
            let error = error.expect_err("out of order");
            let cause = std::error::Error::source(&error).expect("a cause");
            assert_eq!(
                cause.to_string(),
                "last offset 4 of entry 1 is not above the one before"
            );
        }
    }

    proptest! {
        /// Entries as Kafka writes them: in the order of their markers, with a last stable offset
        /// that does not fall and is never behind the next offset.
        #[test]
        fn a_search_finds_what_looking_at_every_entry_finds(
            steps in proptest::collection::vec((1..20_i64, 1..40_i64, 0..40_i64), 0..40),
            from in 0..500_i64,
            length in 0..100_i64,
        ) {
            let (mut last, mut stable) = (0, 0);
            let entries: Vec<_> = steps
                .iter()
                .zip(0..)
                .map(|(&(step, long, open), id)| {
                    last += step;
                    stable = (last + 1 - open).max(stable);
                    entry(id, last - long, last, stable)
                })
                .collect();
            let index = TxnIndex::new(0, entries.as_bytes());
            let expected = collect_aborted_txns(&entries, from, from + length);
            prop_assert_eq!(index.collect_aborted_txns(from, from + length), expected);
        }

        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            whole in proptest::collection::vec(any::<[i64; 4]>(), 0..6),
            from: i64,
            to: i64,
        ) {
            let _ = parse_txn_index(&bytes);
            let whole: Vec<_> = whole.iter().map(|&[a, b, c, d]| entry(a, b, c, d)).collect();
            if let Ok(entries) = parse_txn_index(whole.as_bytes()) {
                prop_assert_eq!(entries, &whole[..]);
                let found = collect_aborted_txns(entries, from, to);
                prop_assert!(found.aborted.len() <= whole.len());
                let _ = sanity_check_txn_index(entries, from);
            }
        }
    }
}
