//! The published scenarios, in every mode.

use super::*;

use IndexCacheOutcome::{Disabled, Hit, Miss};

#[tokio::test]
async fn the_same_index_twice_is_a_miss_and_a_hit() {
    for case in Case::each(LARGE) {
        let source = Source::of(32);
        assert_eq!(case.outcome(1, IndexType::Offset, &source).await, Miss);
        assert_eq!(case.outcome(1, IndexType::Offset, &source).await, Hit);
        assert_eq!(case.stats(), [1, 1, 0, 1, 32], "{}", case.mode);
        assert_eq!(source.asked(), 1);
    }
}

#[tokio::test]
async fn two_kinds_of_one_segment_are_two_entries() {
    for case in Case::each(LARGE) {
        let source = Source::of(16);
        assert_eq!(case.outcome(1, IndexType::Offset, &source).await, Miss);
        assert_eq!(case.outcome(1, IndexType::Timestamp, &source).await, Miss);
        assert_eq!(case.stats(), [0, 2, 0, 2, 32], "{}", case.mode);
    }
}

#[tokio::test]
async fn the_index_that_was_used_least_recently_goes() {
    for case in Case::each(80) {
        let source = Source::of(40);
        let index = IndexType::Offset;
        assert_eq!(case.outcome(0xa, index, &source).await, Miss);
        assert_eq!(case.outcome(0xb, index, &source).await, Miss);
        assert_eq!(case.outcome(0xa, index, &source).await, Hit);
        assert_eq!(case.outcome(0xc, index, &source).await, Miss);
        assert_eq!(case.stats(), [1, 3, 1, 2, 80], "{}", case.mode);

        assert_eq!(case.outcome(0xa, index, &source).await, Hit);
        assert_eq!(case.outcome(0xc, index, &source).await, Hit);
        assert_eq!(case.outcome(0xb, index, &source).await, Miss);
        assert_eq!(case.stats(), [3, 4, 2, 2, 80], "{}", case.mode);
    }
}

#[tokio::test]
async fn of_many_that_were_used_since_the_last_load_the_one_used_first_goes_first() {
    let source = Source::of(40);
    for case in Case::each(120) {
        for id in [1, 2, 3] {
            case.get(id, IndexType::Offset, &source).await.unwrap();
        }
        for id in [3, 2, 3, 1, 2, 1] {
            assert_eq!(case.outcome(id, IndexType::Offset, &source).await, Hit);
        }
        // From the one used first to the one used last: 3, 2, 1.
        for (new, left) in [(4, [2, 1]), (5, [1, 4]), (6, [4, 5])] {
            case.get(new, IndexType::Offset, &source).await.unwrap();
            let held = |id| {
                let key = content::Key::new(Uuid::from_u128(id), IndexType::Offset).unwrap();
                case.cache.inner().shared.holds(key)
            };
            let found: Vec<u128> = (1..=6).filter(|id| held(*id)).collect();
            let mut expected = [&left[..], &[new]].concat();
            expected.sort_unstable();
            assert_eq!(found, expected, "{}", case.mode);
        }
    }
}

#[tokio::test]
async fn an_index_larger_than_the_budget_is_answered_and_evicts_nothing() {
    for case in Case::each(16) {
        let source = Source::of(64);
        assert_eq!(case.outcome(1, IndexType::Offset, &source).await, Miss);
        assert_eq!(case.outcome(1, IndexType::Offset, &source).await, Miss);
        assert_eq!(case.stats(), [0, 2, 0, 0, 0], "{}", case.mode);
    }
    for case in Case::each(100) {
        let small = Source::of(40);
        let large = Source::of(101);
        assert_eq!(case.outcome(1, IndexType::Offset, &small).await, Miss);
        assert_eq!(case.outcome(2, IndexType::Offset, &large).await, Miss);
        assert_eq!(case.outcome(1, IndexType::Offset, &small).await, Hit);
        assert_eq!(case.stats(), [1, 2, 0, 1, 40], "{}", case.mode);
    }
}

#[tokio::test]
async fn a_removed_segment_leaves_nothing_and_is_no_eviction() {
    for case in Case::each(LARGE) {
        let source = Source::of(24);
        for index in CACHED {
            assert_eq!(case.outcome(1, index, &source).await, Miss);
        }
        case.outcome(2, IndexType::Offset, &source).await;
        assert_eq!(case.stats(), [0, 4, 0, 4, 96], "{}", case.mode);

        case.cache.remove_segment(Uuid::from_u128(1)).await;
        assert_eq!(case.stats(), [0, 4, 0, 1, 24], "{}", case.mode);
        case.cache.remove_segment(Uuid::from_u128(2)).await;
        assert_eq!(case.stats(), [0, 4, 0, 0, 0], "{}", case.mode);
        assert_eq!(case.cached_files(), NO_FILES, "{}", case.mode);
        case.cache.remove_segment(Uuid::from_u128(3)).await;

        assert_eq!(case.outcome(1, IndexType::Offset, &source).await, Miss);
    }
}

#[tokio::test]
async fn a_disabled_cache_fetches_each_time_and_counts_nothing() {
    let cache = RemoteIndexCache::disabled();
    assert!(!cache.is_enabled());
    let source = Source::of(32);
    for _ in 0..3 {
        let (metadata, fetch) = (segment(1), source.fetch());
        let answer = cache.get_or_fetch(&metadata, IndexType::Offset, fetch);
        assert_eq!(answer.await.unwrap().1, Disabled);
    }
    cache.remove_segment(Uuid::from_u128(1)).await;
    cache.resize(1).await;
    assert_eq!(source.asked(), 3);
    assert_eq!(cache.stats(), IndexCacheStats::default());
}

#[tokio::test]
async fn a_failed_load_is_an_error_and_the_next_one_a_miss() {
    for case in Case::each(LARGE) {
        let bytes = Bytes::from_static(b"an index");
        let source = Source::answering(move |before| match before {
            0 => Err(boom()),
            _ => Ok(bytes.clone()),
        });
        let error = case.get(1, IndexType::Offset, &source).await.unwrap_err();
        assert_eq!(error.to_string(), "boom");
        assert_eq!(case.stats(), [0, 1, 0, 0, 0], "{}", case.mode);
        let (answer, outcome) = case.get(1, IndexType::Offset, &source).await.unwrap();
        assert_eq!((answer.as_ref(), outcome), (b"an index".as_ref(), Miss));
        assert_eq!(case.stats(), [0, 2, 0, 1, 8], "{}", case.mode);
    }
}

#[tokio::test]
async fn a_stray_file_is_gone_after_the_directory_was_opened() {
    let dir = tempfile::tempdir().unwrap();
    let cached = dir.path().join(REMOTE_INDEX_CACHE_DIR);
    fs::create_dir_all(cached.join("a/b")).unwrap();
    for name in ["stray", "45_ABEiM0RVZneImaq7zN3u_w.index", "x.tmp", "a/b/c"] {
        fs::write(cached.join(name), b"stray").unwrap();
    }
    fs::write(dir.path().join("kept"), b"not in the directory").unwrap();
    let cache = RemoteIndexCache::new(dir.path(), LARGE).unwrap();
    assert!(cache.is_enabled());
    assert_eq!(cached_files(&dir), NO_FILES);
    assert!(dir.path().join("kept").exists());
}

#[tokio::test]
async fn the_kinds_that_kafka_does_not_cache_pass_through() {
    for case in Case::each(LARGE) {
        let source = Source::of(32);
        for index in [IndexType::ProducerSnapshot, IndexType::LeaderEpoch] {
            for _ in 0..2 {
                assert_eq!(case.outcome(1, index, &source).await, Disabled);
            }
        }
        assert_eq!(source.asked(), 4);
        assert_eq!(case.stats(), [0; 5]);
    }
}

#[tokio::test]
async fn a_hit_in_memory_is_the_caches_own_bytes_and_not_a_part_of_a_larger_buffer() {
    let case = &Case::each(LARGE)[2];
    let buffer = Bytes::from(vec![7; 1000]);
    let source = Source::new(buffer.slice(100..140));
    case.outcome(1, IndexType::Offset, &source).await;
    let (first, _) = case.get(1, IndexType::Offset, &source).await.unwrap();
    let (second, _) = case.get(1, IndexType::Offset, &source).await.unwrap();
    assert_eq!(first.as_ptr(), second.as_ptr());
    assert!(!buffer.as_ptr_range().contains(&first.as_ptr()));
}

#[test]
fn the_default_size_is_kafkas() {
    assert_eq!(DEFAULT_INDEX_CACHE_TOTAL_SIZE_BYTES, 1_073_741_824);
    assert_eq!(REMOTE_INDEX_CACHE_DIR, "remote-log-index-cache");
}
