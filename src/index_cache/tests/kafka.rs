//! What went wrong in Kafka's `RemoteIndexCache` over time, one test each.

use std::time::Duration;

use super::*;

use IndexCacheOutcome::{Hit, Miss};

/// KAFKA-14522, KAFKA-15084: one lock around all loads.
#[tokio::test]
async fn a_slow_load_holds_up_neither_other_loads_nor_hits() {
    for case in Case::each(LARGE) {
        let quick = Source::of(40);
        case.outcome(1, IndexType::Offset, &quick).await;
        let slow = Source::of(40).held();
        let (cache, fetch) = (case.cache.clone(), slow.fetch());
        let waiting = tokio::spawn(async move {
            cache
                .get_or_fetch(&segment(2), IndexType::Offset, fetch)
                .await
        });
        slow.until_asked(1).await;
        assert_eq!(case.outcome(1, IndexType::Offset, &quick).await, Hit);
        assert_eq!(case.outcome(3, IndexType::Offset, &quick).await, Miss);
        assert_eq!(case.outcome(2, IndexType::Timestamp, &quick).await, Miss);
        case.cache.remove_segment(Uuid::from_u128(1)).await;
        assert!(!waiting.is_finished());
        slow.release(1);
        waiting.await.unwrap().unwrap();
    }
}

/// KAFKA-14912: the limit was one of entries.
#[tokio::test]
async fn the_budget_is_one_of_bytes() {
    for case in Case::each(1000) {
        for id in 0..25 {
            case.outcome(id, IndexType::Offset, &Source::of(40)).await;
        }
        assert_eq!(case.stats()[3..], [25, 1000], "{}", case.mode);
        case.outcome(100, IndexType::Offset, &Source::of(900)).await;
        assert_eq!(case.stats()[2..], [23, 3, 980], "{}", case.mode);
    }
}

/// KAFKA-15536: the budget was fixed; to change it must not clear the cache.
#[tokio::test]
async fn the_budget_can_be_changed_and_what_was_used_last_stays() {
    for case in Case::each(400) {
        let source = Source::of(40);
        for id in 0..10 {
            case.outcome(id, IndexType::Offset, &source).await;
        }
        // Now 3 and 5 are the ones used last.
        for id in [5, 3] {
            assert_eq!(case.outcome(id, IndexType::Offset, &source).await, Hit);
        }
        case.cache.resize(120).await;
        assert_eq!(case.stats(), [2, 10, 7, 3, 120], "{}", case.mode);
        for id in [9, 5, 3] {
            assert_eq!(case.outcome(id, IndexType::Offset, &source).await, Hit);
        }
        case.cache.resize(LARGE).await;
        assert_eq!(case.stats()[3..], [3, 120], "{}", case.mode);
        for id in 10..20 {
            case.outcome(id, IndexType::Offset, &source).await;
        }
        assert_eq!(case.stats()[3..], [13, 520], "{}", case.mode);
        assert_eq!(case.outcome(9, IndexType::Offset, &source).await, Hit);
        case.cache.resize(0).await;
        assert_eq!(case.stats()[3..], [0, 0], "{}", case.mode);
        assert_eq!(case.cached_files(), NO_FILES, "{}", case.mode);
    }
}

/// KAFKA-15536, with a load under way.
#[tokio::test]
async fn a_load_under_way_ends_up_in_the_resized_cache() {
    for case in Case::each(400) {
        let source = Source::of(40).held();
        let (cache, fetch) = (case.cache.clone(), source.fetch());
        let loading = tokio::spawn(async move {
            cache
                .get_or_fetch(&segment(1), IndexType::Offset, fetch)
                .await
        });
        source.until_asked(1).await;
        case.cache.resize(200).await;
        source.release(1);
        loading.await.unwrap().unwrap();
        assert_eq!(case.outcome(1, IndexType::Offset, &source).await, Hit);
        assert_eq!(case.stats(), [1, 1, 0, 1, 40], "{}", case.mode);
        case.cache.remove_segment(Uuid::from_u128(1)).await;
        assert_eq!(case.stats()[3..], [0, 0], "{}", case.mode);
        assert_eq!(case.cached_files(), NO_FILES, "{}", case.mode);
    }
}

/// KAFKA-14993: a segment without aborted transactions could not be read.
#[tokio::test]
async fn a_missing_transaction_index_is_an_empty_one_and_asked_for_once() {
    for case in Case::each(LARGE) {
        let source = Source::answering(|_| Err(not_found()));
        for outcome in [Miss, Hit] {
            let answer = case.get(1, IndexType::Transaction, &source).await;
            assert_eq!(answer.unwrap(), (Bytes::new(), outcome), "{}", case.mode);
        }
        assert_eq!(source.asked(), 1);
        assert_eq!(case.stats(), [1, 1, 0, 1, 0], "{}", case.mode);
        for index in [IndexType::Offset, IndexType::Timestamp] {
            let error = case.get(1, index, &source).await.unwrap_err();
            assert!(matches!(error, RemoteStorageError::SegmentNotFound(_)));
        }
        let source = Source::answering(|_| Err(boom()));
        case.get(2, IndexType::Transaction, &source)
            .await
            .unwrap_err();
    }
}

/// KAFKA-14993, and entries of weight 0 that never make room.
#[tokio::test]
async fn empty_indexes_count_too_and_are_evicted() {
    for case in Case::each(320) {
        let source = Source::of(0);
        for id in 0..100 {
            case.outcome(id, IndexType::Transaction, &source).await;
        }
        assert_eq!(case.stats(), [0, 100, 90, 10, 0], "{}", case.mode);
        assert_eq!(case.cached_files(), NO_FILES, "{}", case.mode);
    }
}

/// KAFKA-15169, KAFKA-15511: a damaged file made every further read fail.
#[tokio::test]
async fn a_damaged_file_is_fetched_again_once() {
    type Damage = fn(&std::path::Path);
    let damages: [Damage; 4] = [
        |path| fs::remove_file(path).unwrap(),
        |path| fs::write(path, b"short").unwrap(),
        |path| fs::write(path, [0; 40]).unwrap(),
        |path| {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        },
    ];
    for damage in damages {
        let case = Case::files(LARGE);
        let source = Source::of(40);
        case.outcome(1, IndexType::Offset, &source).await;
        damage(&case.cached_files()[0]);
        assert_eq!(case.outcome(1, IndexType::Offset, &source).await, Miss);
        assert_eq!(case.outcome(1, IndexType::Offset, &source).await, Hit);
        assert_eq!(source.asked(), 2);
        assert_eq!(case.stats(), [1, 2, 0, 1, 40]);
    }
}

/// KAFKA-15400, KAFKA-15481: what removed an old file could meet a new one of the same name.
#[tokio::test]
async fn the_last_holder_of_an_old_file_does_not_remove_a_new_one() {
    let case = Case::files(LARGE);
    let source = Source::of(40);
    let (cache, segment) = (&case.cache, segment(1));
    let open = || cache.open(&segment, IndexType::Offset, source.fetch());
    case.outcome(1, IndexType::Offset, &source).await;
    let old = open().await.unwrap();
    for _ in 0..3 {
        cache.remove_segment(Uuid::from_u128(1)).await;
        case.outcome(1, IndexType::Offset, &source).await;
        assert_eq!(case.cached_files().len(), 2, "the old one and the new one");
    }
    drop(old);
    assert_eq!(case.cached_files().len(), 1);
    assert_eq!(case.outcome(1, IndexType::Offset, &source).await, Hit);
}

/// KAFKA-17184, KAFKA-19971: a reader got an entry that was about to be cleaned up.
#[tokio::test]
async fn a_reader_keeps_what_it_holds_through_eviction_and_removal() {
    let case = Case::files(80);
    let source = Source::of(40);
    let (cache, segment) = (&case.cache, segment(1));
    case.outcome(1, IndexType::Offset, &source).await;
    let held = cache.open(&segment, IndexType::Offset, source.fetch());
    let held = held.await.unwrap();
    for id in 2..6 {
        case.outcome(id, IndexType::Offset, &source).await;
    }
    cache.remove_segment(Uuid::from_u128(1)).await;
    assert_eq!(case.stats()[3..], [2, 80]);
    assert_eq!(case.cached_files().len(), 3);
    assert_eq!(held.bytes().await.unwrap(), (source.answer)(0).unwrap());
    assert_eq!(source.asked(), 5, "nothing is fetched again");
    drop(held);
    assert_eq!(case.cached_files().len(), 2);
}

/// KAFKA-19970: idle files stayed for ever.
#[tokio::test(start_paused = true)]
async fn an_index_that_nobody_asks_for_leaves() {
    for case in Case::each(LARGE) {
        let source = Source::of(40);
        for id in [1, 2] {
            case.outcome(id, IndexType::Offset, &source).await;
        }
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_mins(8)).await;
            assert_eq!(case.outcome(1, IndexType::Offset, &source).await, Hit);
        }
        assert_eq!(case.stats(), [3, 2, 1, 1, 40], "{}", case.mode);
        tokio::time::sleep(Duration::from_mins(20)).await;
        assert_eq!(case.stats(), [3, 2, 2, 0, 0], "{}", case.mode);
        assert_eq!(case.cached_files(), NO_FILES, "{}", case.mode);
    }
}

/// KAFKA-19970: and the time is a choice.
#[tokio::test(start_paused = true)]
async fn without_a_time_to_idle_an_index_stays() {
    let cache = IndexCacheConfig::memory()
        .time_to_idle(None)
        .open()
        .unwrap();
    let (metadata, fetch) = (segment(1), Source::of(40).fetch());
    let load = cache.get_or_fetch(&metadata, IndexType::Offset, fetch);
    load.await.unwrap();
    tokio::time::sleep(Duration::from_hours(1000)).await;
    assert_eq!(cache.stats().entries, 1);
}
