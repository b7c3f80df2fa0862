//! Searches in an index that was opened: in memory, in a file, and in a file that fails.

use zerocopy::IntoBytes as _;

use super::*;
use crate::error::ErrorKind;
use crate::index::{
    AbortedTxnIndexEntry, OffsetIndex, OffsetIndexEntry, TimeIndex, TimeIndexEntry,
    collect_aborted_txns,
};

const ENTRIES: u32 = 5000;

/// An entry for every ten offsets and every 4 KiB, and zeros as a broker leaves them that was
/// killed.
fn offset_index() -> Bytes {
    let written = (1..=ENTRIES).map(|entry| (entry * 10, entry * 4096));
    let entries: Vec<_> = written
        .chain([(0, 0); 700])
        .map(|(relative_offset, position)| OffsetIndexEntry {
            relative_offset: relative_offset.into(),
            position: position.into(),
        })
        .collect();
    entries.as_bytes().to_vec().into()
}

fn time_index() -> Bytes {
    let entries: Vec<_> = (1..=ENTRIES)
        .map(|entry| TimeIndexEntry {
            timestamp: (i64::from(entry) * 1000).into(),
            relative_offset: (entry * 10).into(),
        })
        .collect();
    entries.as_bytes().to_vec().into()
}

async fn open(case: &Case, index: IndexType, source: &Source) -> IndexHandle {
    let segment = segment(1);
    let opened = case.cache.open(&segment, index, source.fetch());
    opened.await.unwrap()
}

/// Loads it, so that what is opened next lies where the cache keeps it.
async fn open_cached(case: &Case, index: IndexType, source: &Source) -> IndexHandle {
    assert_eq!(
        open(case, index, source).await.outcome(),
        IndexCacheOutcome::Miss
    );
    let opened = open(case, index, source).await;
    assert_eq!(opened.outcome(), IndexCacheOutcome::Hit);
    opened
}

#[tokio::test]
async fn a_search_answers_the_same_wherever_the_index_is() {
    let bytes = offset_index();
    let expected = OffsetIndex::new(45, &bytes);
    for case in Case::each(LARGE) {
        let source = Source::new(bytes.clone());
        let index = open_cached(&case, IndexType::Offset, &source).await;
        assert_eq!(index.len(), bytes.len());
        assert_eq!(index.index(), IndexType::Offset);
        assert!(!index.is_empty());
        for offset in (0..60_000).step_by(997).chain([i64::MIN, 55, i64::MAX]) {
            let found = index.lookup(offset).await.unwrap();
            assert_eq!(found, expected.lookup(offset), "{} {offset}", case.mode);
            let range = index.lookup_range(offset).await.unwrap();
            assert_eq!(range, expected.lookup_range(offset), "{}", case.mode);
        }
        for position in (0..ENTRIES * 5000).step_by(499_979) {
            for size in [0, 1, 65_536, usize::MAX] {
                let found = index
                    .fetch_upper_bound_offset(position, size)
                    .await
                    .unwrap();
                let expected = expected.fetch_upper_bound_offset(position, size);
                assert_eq!(found, expected, "{} {position} {size}", case.mode);
            }
        }
        assert_eq!(index.bytes().await.unwrap(), bytes);
        assert_eq!(case.stats()[..2], [1, 1], "{}", case.mode);
        assert_eq!(source.asked(), 1);
    }
}

#[tokio::test]
async fn a_search_for_a_timestamp_answers_the_same_wherever_the_index_is() {
    let bytes = time_index();
    let expected = TimeIndex::new(45, &bytes);
    for case in Case::each(LARGE) {
        let source = Source::new(bytes.clone());
        let index = open_cached(&case, IndexType::Timestamp, &source).await;
        for timestamp in (-1..5_010_000).step_by(9973) {
            let found = index.scan_start(timestamp).await.unwrap();
            assert_eq!(found, expected.scan_start(timestamp), "{}", case.mode);
        }
    }
}

#[tokio::test]
async fn a_search_for_aborted_transactions_answers_the_same_wherever_the_index_is() {
    let entries: Vec<_> = (0..2000_i64)
        .map(|number| AbortedTxnIndexEntry {
            version: 0.into(),
            producer_id: (number % 7).into(),
            start_offset: (45 + number * 10).into(),
            last_offset: (45 + number * 10 + 25).into(),
            last_stable_offset: (45 + number * 10 + 10).into(),
        })
        .collect();
    for case in Case::each(LARGE) {
        let source = Source::new(entries.as_bytes().to_vec());
        let index = open_cached(&case, IndexType::Transaction, &source).await;
        for (from, to) in [
            (0, 45),
            (45, 46),
            (5_000, 5_100),
            (20_000, 30_000),
            (90_000, 90_001),
        ] {
            let found = index.collect_aborted_txns(from, to).await.unwrap();
            assert_eq!(
                found,
                collect_aborted_txns(&entries, from, to),
                "{}",
                case.mode
            );
        }
    }
}

#[tokio::test]
async fn a_search_in_an_index_of_another_kind_is_refused() {
    for case in Case::each(LARGE) {
        let source = Source::new(time_index());
        let index = open_cached(&case, IndexType::Timestamp, &source).await;
        let error = index.lookup(50).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!(
            error.to_string(),
            "this search is one in `*.index` and not in `*.timeindex`: open that index"
        );
        index.fetch_upper_bound_offset(0, 1).await.unwrap_err();
        index.lookup_range(50).await.unwrap_err();
        index.collect_aborted_txns(50, 60).await.unwrap_err();
        let source = Source::new(offset_index());
        let index = open_cached(&case, IndexType::Offset, &source).await;
        index.scan_start(50).await.unwrap_err();
    }
}

#[tokio::test]
async fn a_missing_transaction_index_is_opened_as_an_empty_one() {
    let disabled = Case {
        mode: "disabled",
        cache: RemoteIndexCache::disabled(),
        dir: tempfile::tempdir().unwrap(),
    };
    for case in Case::each(LARGE).into_iter().chain([disabled]) {
        let source = Source::answering(|_| Err(not_found()));
        for _ in 0..2 {
            let index = open(&case, IndexType::Transaction, &source).await;
            assert!(index.is_empty());
            assert_eq!(index.bytes().await.unwrap(), "");
        }
        let asked = if case.mode == "disabled" { 2 } else { 1 };
        assert_eq!(source.asked(), asked, "{}", case.mode);
    }
}

#[tokio::test]
async fn a_file_that_fails_during_a_search_is_fetched_again_and_replaced() {
    let bytes = offset_index();
    let expected = OffsetIndex::new(45, &bytes);
    let case = Case::files(LARGE);
    let source = Source::new(bytes.clone());
    let index = open_cached(&case, IndexType::Offset, &source).await;
    // A changed byte in the middle, which the search passes.
    let path = &case.cached_files()[0];
    let mut damaged = bytes.to_vec();
    damaged[20_000] ^= 1;
    fs::write(path, damaged).unwrap();
    for offset in [25_045, 25_045, 46] {
        let found = index.lookup(offset).await.unwrap();
        assert_eq!(found, expected.lookup(offset));
    }
    assert_eq!(source.asked(), 2, "the new file serves the second time");
    assert_eq!(case.stats()[3..], [1, bytes.len() as u64]);
    drop(index);
    assert_eq!(case.cached_files().len(), 1);

    // And one that is gone, read whole.
    let index = open(&case, IndexType::Offset, &source).await;
    fs::remove_file(&case.cached_files()[0]).unwrap();
    assert_eq!(index.bytes().await.unwrap(), bytes);
    assert_eq!(source.asked(), 3);
}

#[tokio::test]
async fn a_file_that_fails_when_the_store_fails_too_is_the_stores_error() {
    let bytes = offset_index();
    let case = Case::files(LARGE);
    let source = Source::answering(move |before| match before {
        0 => Ok(bytes.clone()),
        _ => Err(boom()),
    });
    let index = open_cached(&case, IndexType::Offset, &source).await;
    fs::remove_file(&case.cached_files()[0]).unwrap();
    assert_eq!(index.lookup(50).await.unwrap_err().to_string(), "boom");
}
