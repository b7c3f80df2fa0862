//! Loads: one at a time for an index, whatever becomes of those who wait.

use std::time::Duration;

use futures::future::join_all;
use futures::poll;
use tokio::task::JoinHandle;

use super::*;

type Answer = Result<(Bytes, IndexCacheOutcome), RemoteStorageError>;

/// A reader in a task of its own.
fn reader(case: &Case, id: u128, source: &Source) -> JoinHandle<Answer> {
    let (cache, fetch) = (case.cache.clone(), source.fetch());
    tokio::spawn(async move {
        cache
            .get_or_fetch(&segment(id), IndexType::Offset, fetch)
            .await
    })
}

#[tokio::test]
async fn readers_of_one_cold_index_share_one_load() {
    for case in Case::each(LARGE) {
        let source = Source::of(4000).held();
        let readers: Vec<_> = (0..64).map(|_| reader(&case, 1, &source)).collect();
        source.until_asked(1).await;
        source.release(64);
        let answers = join_all(readers).await;
        let mut misses = 0;
        for answer in answers {
            let (bytes, outcome) = answer.unwrap().unwrap();
            assert_eq!(bytes.len(), 4000);
            misses += usize::from(outcome == IndexCacheOutcome::Miss);
        }
        assert_eq!((source.asked(), misses), (1, 1), "{}", case.mode);
        assert_eq!(case.stats(), [63, 1, 0, 1, 4000], "{}", case.mode);
    }
}

#[tokio::test]
async fn a_failed_load_wakes_all_and_is_not_kept() {
    for case in Case::each(LARGE) {
        let source = Source::answering(|_| Err(boom())).held();
        let readers: Vec<_> = (0..64).map(|_| reader(&case, 1, &source)).collect();
        source.until_asked(1).await;
        source.release(64);
        for answer in join_all(readers).await {
            assert_eq!(answer.unwrap().unwrap_err().to_string(), "boom");
        }
        assert_eq!(source.asked(), 1, "{}", case.mode);
        assert_eq!(case.stats(), [0, 1, 0, 0, 0], "{}", case.mode);
        assert_eq!(case.cache.inner().loads_under_way(), 0);

        let good = Source::of(8);
        case.outcome(1, IndexType::Offset, &good).await;
        assert_eq!(good.asked(), 1);
    }
}

#[tokio::test]
async fn what_is_too_large_to_keep_is_still_loaded_once_for_all_who_wait() {
    for case in Case::each(100) {
        let source = Source::of(4000).held();
        let readers: Vec<_> = (0..8).map(|_| reader(&case, 1, &source)).collect();
        source.until_asked(1).await;
        source.release(8);
        for answer in join_all(readers).await {
            assert_eq!(answer.unwrap().unwrap().0.len(), 4000);
        }
        assert_eq!(source.asked(), 1, "{}", case.mode);
        assert_eq!(case.stats(), [7, 1, 0, 0, 0], "{}", case.mode);
    }
}

#[tokio::test]
async fn a_cancelled_reader_neither_blocks_the_others_nor_begins_the_load_anew() {
    for case in Case::each(LARGE) {
        let source = Source::of(40).held();
        let first = reader(&case, 1, &source);
        source.until_asked(1).await;
        let second = reader(&case, 1, &source);
        settled().await;
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        settled().await;
        source.release(1);
        let (bytes, outcome) = second.await.unwrap().unwrap();
        assert_eq!((bytes.len(), outcome), (40, IndexCacheOutcome::Hit));
        assert_eq!(source.asked(), 1, "{}", case.mode);
    }
}

#[tokio::test]
async fn a_reader_that_is_no_longer_polled_does_not_hold_the_others_up() {
    for case in Case::each(LARGE) {
        let source = Source::of(40).held();
        let stuck = case.get(1, IndexType::Offset, &source);
        tokio::pin!(stuck);
        assert!(poll!(&mut stuck).is_pending());
        let other = reader(&case, 1, &source);
        source.until_asked(1).await;
        source.release(1);
        assert_eq!(other.await.unwrap().unwrap().0.len(), 40);
        assert_eq!(stuck.await.unwrap().1, IndexCacheOutcome::Miss);
        assert_eq!(source.asked(), 1, "{}", case.mode);
    }
}

#[tokio::test]
async fn when_all_readers_are_gone_the_load_still_serves_the_next() {
    for case in Case::each(LARGE) {
        let source = Source::of(40).held();
        for _ in 0..3 {
            let gone = reader(&case, 1, &source);
            source.until_asked(1).await;
            gone.abort();
            let _ = gone.await;
        }
        source.release(1);
        while case.stats()[3] == 0 {
            tokio::task::yield_now().await;
        }
        let outcome = case.outcome(1, IndexType::Offset, &source).await;
        assert_eq!(outcome, IndexCacheOutcome::Hit);
        assert_eq!(source.asked(), 1, "{}", case.mode);
    }
}

#[tokio::test]
async fn a_load_that_panics_harms_its_own_reader_alone() {
    for case in Case::each(LARGE) {
        let source = Source::answering(|before| match before {
            0 => panic!("the first load panics"),
            _ => Ok(Bytes::from_static(b"an index")),
        })
        .held();
        let first = reader(&case, 1, &source);
        source.until_asked(1).await;
        let second = reader(&case, 1, &source);
        settled().await;
        source.release(2);
        assert!(first.await.unwrap_err().is_panic());
        assert_eq!(second.await.unwrap().unwrap().0, "an index");
        assert_eq!(case.cache.inner().loads_under_way(), 0);
        assert_eq!(case.stats(), [0, 2, 0, 1, 8], "{}", case.mode);
    }
}

#[tokio::test]
async fn removal_wins_over_a_load_under_way() {
    for case in Case::each(LARGE) {
        let source = Source::of(40).held();
        let readers: Vec<_> = (0..2).map(|_| reader(&case, 1, &source)).collect();
        let other = reader(&case, 2, &source);
        source.until_asked(2).await;
        case.cache.remove_segment(Uuid::from_u128(1)).await;
        source.release(2);
        for answer in join_all(readers).await {
            assert_eq!(
                answer.unwrap().unwrap().0.len(),
                40,
                "they get their answer"
            );
        }
        other.await.unwrap().unwrap();
        assert_eq!(case.stats()[3..], [1, 40], "{}", case.mode);
        let files = usize::from(case.mode != "memory");
        assert_eq!(case.cached_files().len(), files, "{}", case.mode);

        source.release(1);
        let outcome = case.outcome(1, IndexType::Offset, &source).await;
        assert_eq!(outcome, IndexCacheOutcome::Miss, "{}", case.mode);
    }
}

#[tokio::test]
async fn loads_together_stay_within_their_bytes() {
    let config = || IndexCacheConfig::memory().max_loading_bytes(100 << 10);
    // Segments of 16 MiB: 32 KiB of offset index, 48 KiB with the margin.
    let cache = config().open().unwrap();
    let source = Source::of(40).held();
    let readers: Vec<_> = (0..5)
        .map(|id| {
            let (cache, fetch) = (cache.clone(), source.fetch());
            tokio::spawn(async move {
                let metadata = sized_segment(id, 16 << 20);
                cache
                    .get_or_fetch(&metadata, IndexType::Offset, fetch)
                    .await
            })
        })
        .collect();
    source.until_asked(2).await;
    assert_eq!(source.asked(), 2, "a third would be one too many");
    source.release(1);
    source.until_asked(3).await;
    assert_eq!(source.asked(), 3);
    source.release(4);
    for answer in join_all(readers).await {
        answer.unwrap().unwrap();
    }
    assert_eq!(cache.stats().entries, 5);
}

#[tokio::test]
async fn an_index_that_is_larger_than_expected_delays_further_loads_until_it_is_stored() {
    let cache = IndexCacheConfig::memory()
        .max_loading_bytes(64 << 10)
        .open()
        .unwrap();
    let small = Source::of(40).held();
    let large = Source::of(1 << 20);
    // It is expected to have 18 KiB, and answers at once.
    let metadata = segment(1);
    let answer = cache.get_or_fetch(&metadata, IndexType::Offset, large.fetch());
    assert_eq!(answer.await.unwrap().0.len(), 1 << 20);
    // One that is larger than the limit goes alone and not never.
    let huge = sized_segment(2, i32::MAX);
    let fetch = Source::of(40).fetch();
    let answer = cache.get_or_fetch(&huge, IndexType::Offset, fetch).await;
    assert_eq!(answer.unwrap().1, IndexCacheOutcome::Miss);
    // And all of it was given back.
    let readers: Vec<_> = (3..6)
        .map(|id| {
            let (cache, fetch) = (cache.clone(), small.fetch());
            tokio::spawn(async move {
                cache
                    .get_or_fetch(&segment(id), IndexType::Offset, fetch)
                    .await
            })
        })
        .collect();
    small.until_asked(3).await;
    small.release(3);
    for answer in join_all(readers).await {
        answer.unwrap().unwrap();
    }
}

#[test]
fn a_load_that_dies_with_its_runtime_is_begun_anew_by_another() {
    for case in Case::each(LARGE) {
        let source = Source::of(40).held();
        let dying = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        dying.block_on(async {
            drop(reader(&case, 1, &source));
            source.until_asked(1).await;
        });
        dying.shutdown_timeout(Duration::from_secs(10));
        let living = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        source.release(1);
        let outcome = living.block_on(case.outcome(1, IndexType::Offset, &source));
        assert_eq!(outcome, IndexCacheOutcome::Miss, "{}", case.mode);
        assert_eq!(case.cache.inner().loads_under_way(), 0);
        assert_eq!(case.cache.inner().usage().held().unsettled, 0);
    }
}
