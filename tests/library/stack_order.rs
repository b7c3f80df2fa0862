//! The order of layers, seen from outside: each option of the builder on and off.

use std::sync::Arc;
use std::time::Duration;

use krabka_remote_storage::backends::{ObjectStoreClient, RequestLimits, StoreHandles};
use krabka_remote_storage::layers::SealRules;
use krabka_remote_storage::segment::MultipartCreate;
use krabka_remote_storage::{
    ChainStamp, CopySegment, DeleteSegment, EpochId, ErrorKind, FetchIndex, FetchSegment,
    IndexCacheOutcome, IndexType, RemoteStorage, RemoteStorageBuilder, RemoteStorageError,
    WormArchiver, WormChainRecord, WormError,
};
use krabka_remote_storage::{IndexCacheConfig, OpenIndex};
use tokio::time::Instant;

use crate::support::with;
use krabka_remote_storage::testing::segments::{files, metadata};
use krabka_remote_storage::testing::store::{Fate, Outcome, TestStore};

fn builder(store: &Arc<TestStore>) -> RemoteStorageBuilder {
    let handles = StoreHandles::with_multipart(Arc::clone(store));
    RemoteStorage::builder(Arc::new(ObjectStoreClient::new(handles)))
}

fn fetch() -> FetchSegment {
    FetchSegment::new(metadata(0x1e, 0, 10), 0, None)
}

fn index() -> FetchIndex {
    FetchIndex::new(metadata(0x1e, 0, 10), IndexType::Offset)
}

fn index_of(index: IndexType) -> FetchIndex {
    FetchIndex::new(metadata(0x1e, 0, 10), index)
}

fn delete() -> DeleteSegment {
    DeleteSegment::new(metadata(0x1e, 0, 10))
}

async fn copy(storage: &RemoteStorage) -> Result<(), RemoteStorageError> {
    let dir = tempfile::tempdir().unwrap();
    let copy = CopySegment::new(metadata(0x1e, 0, 10), files(dir.path(), b"0123456789"));
    storage.copy(copy).await.map(drop)
}

#[tokio::test]
async fn each_combination_of_refusals_refuses_just_that_before_any_request() {
    for (write_only, refuse_deletes) in [(false, false), (true, false), (false, true), (true, true)]
    {
        let store = TestStore::new();
        let mut builder = builder(&store);
        if write_only {
            builder = builder.write_only();
        }
        if refuse_deletes {
            builder = builder.refuse_deletes();
        }
        let storage = builder.build().unwrap();
        copy(&storage).await.unwrap();
        store.forget_requests();

        let fetched = storage.fetch(fetch()).await;
        let indexed = storage.fetch_index(index()).await;
        if write_only {
            for error in [fetched.unwrap_err(), indexed.unwrap_err()] {
                assert!(matches!(
                    error,
                    RemoteStorageError::Worm(WormError::ReadRefused)
                ));
            }
            // Refused before the range is even looked at.
            let inverted = FetchSegment::new(metadata(0x1e, 0, 10), 5, Some(4));
            let error = storage.fetch(inverted).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Refused);
            assert_eq!(store.requests(), []);
        } else {
            assert_eq!(fetched.unwrap(), "0123456789");
            assert_eq!(indexed.unwrap(), "offset index");
        }
        store.forget_requests();

        let deleted = storage.delete(delete()).await;
        if refuse_deletes {
            let error = deleted.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Refused);
            assert!(
                error.to_string().contains("AAAAAAAAAAAAAAAAAAAAHg.log"),
                "{error}"
            );
            assert_eq!(store.requests(), []);
            assert_eq!(store.objects().await.len(), 6);
        } else {
            deleted.unwrap();
            assert_eq!(store.objects().await, []);
        }
    }
}

/// Manifests take 20 seconds to be written.
fn slow_manifests(store: &TestStore) {
    store.script(|request, _| Fate {
        delay: if request.key.ends_with(".manifest") {
            Duration::from_secs(20)
        } else {
            Duration::ZERO
        },
        ..Fate::default()
    });
}

/// A request to copy a segment to the first place of a new epoch.
fn sealed(dir: &tempfile::TempDir) -> CopySegment {
    let stamp = ChainStamp::genesis(EpochId::random());
    let segment = metadata(0x1e, 0, 10).as_ref().clone();
    let segment =
        segment.with_custom_metadata(WormChainRecord::request(stamp).to_custom_metadata());
    CopySegment::new(segment, files(dir.path(), b"0123456789"))
}

const RULES: SealRules = SealRules::new(1024, false);

/// A tier that seals: every combination with a refusal of reads and an index cache.
#[tokio::test(start_paused = true)]
async fn the_seal_is_below_the_deadline_and_above_the_copier_and_brings_the_refusal_of_deletes() {
    for (write_only, cached) in [(false, false), (true, false), (false, true), (true, true)] {
        let store = TestStore::new();
        let limits = with(RequestLimits::default(), |it| {
            it.copy_deadline = Duration::from_secs(10);
        });
        let mut builder = builder(&store).limits(limits).seal_on_unchecked_store(
            WormArchiver::new(None),
            RULES,
            MultipartCreate::Conditional,
        );
        if write_only {
            builder = builder.write_only();
        }
        let cache = IndexCacheConfig::memory().open().unwrap();
        if cached {
            builder = builder.index_cache(cache.clone());
        }
        let storage = builder.build().unwrap();

        // What the seal asks for is missing: refused before the copier looks at the files.
        let error = copy(&storage).await.unwrap_err();
        assert!(matches!(
            error,
            RemoteStorageError::Worm(WormError::MissingChainStamp)
        ));
        assert_eq!(store.requests(), []);

        let dir = tempfile::tempdir().unwrap();
        let sealed = sealed(&dir);
        // The deadline is above the seal: it cuts the wait for the manifest, and not the commit.
        slow_manifests(&store);
        let began = Instant::now();
        let error = storage.copy(sealed.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
        assert_eq!(began.elapsed(), Duration::from_secs(10));
        tokio::time::sleep(Duration::from_secs(11)).await;
        let receipt = storage.copy(sealed).await.unwrap();
        assert!(receipt.custom_metadata.is_some());
        assert_eq!(store.objects().await.len(), 7);

        // All reads are refused, cached ones too, or none.
        store.script(|_, _| Fate::default());
        store.forget_requests();
        let fetched = storage.fetch(fetch()).await;
        let indexed = storage.fetch_index(index_of(IndexType::LeaderEpoch)).await;
        let opened = storage.open_index(open(IndexType::Transaction)).await;
        if write_only {
            for error in [
                fetched.unwrap_err(),
                indexed.unwrap_err(),
                opened.map(drop).unwrap_err(),
            ] {
                assert_eq!(error.kind(), ErrorKind::Refused);
            }
            assert_eq!(store.requests(), []);
        } else {
            fetched.unwrap();
            indexed.unwrap();
        }
        let error = storage.delete(delete()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert_eq!(store.objects().await.len(), 7);
        assert_eq!(store.count("delete"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn close_waits_for_a_commit_whose_caller_is_gone() {
    let store = TestStore::new();
    slow_manifests(&store);
    let storage = builder(&store)
        .seal_on_unchecked_store(WormArchiver::new(None), RULES, MultipartCreate::Conditional)
        .build()
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let sealed = sealed(&dir);
    let gone = tokio::time::timeout(Duration::from_secs(5), storage.copy(sealed)).await;
    assert!(gone.is_err());
    let began = Instant::now();
    let report = storage.close(Duration::from_mins(1)).await;
    assert_eq!(began.elapsed(), Duration::from_secs(15));
    assert!(report.cut_off.is_empty() && !report.aborts_unfinished);
    assert_eq!(store.objects().await.len(), 7);
}

#[tokio::test(start_paused = true)]
async fn with_no_retries_one_attempt_is_all_and_with_n_it_is_n_plus_one() {
    for retries in [0, 1, 4] {
        let store = TestStore::new();
        store.script(|_, _| Fate {
            outcome: Outcome::Failed(503),
            ..Fate::default()
        });
        let limits = with(RequestLimits::default(), |it| it.max_retries = retries);
        let error = builder(&store)
            .limits(limits)
            .build()
            .unwrap()
            .fetch(fetch())
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert_eq!(error.status(), Some(503));
        assert_eq!(store.count("get"), retries + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_timeout_is_inside_the_retry_and_bounds_each_attempt() {
    let store = TestStore::new();
    store.script(|_, before| Fate {
        delay: match before {
            0 | 1 => Duration::from_hours(1),
            _ => Duration::ZERO,
        },
        ..Fate::default()
    });
    let storage = builder(&store).build().unwrap();
    let began = Instant::now();
    let error = storage.fetch(fetch()).await.unwrap_err();
    // Two attempts of 30 s each, and pauses of at most 100 and 200 ms: then it is not found.
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(store.count("get"), 3);
    let took = began.elapsed();
    assert!(
        took >= Duration::from_mins(1) && took < Duration::from_millis(60_400),
        "{took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn permits_are_inside_the_retry_so_that_a_backoff_holds_none() {
    let store = TestStore::new();
    store.script(|request, _| Fate {
        outcome: match request.kind {
            "get" if request.key.ends_with(".log") => Outcome::Failed(503),
            _ => Outcome::Served,
        },
        ..Fate::default()
    });
    let limits = with(RequestLimits::default(), |it| it.max_reads = 1);
    let storage = builder(&store).limits(limits).build().unwrap();
    copy(&storage).await.unwrap();
    let failing = tokio::spawn({
        let storage = storage.clone();
        async move { storage.fetch(fetch()).await }
    });
    let began = Instant::now();
    while store.count("get") < 5 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // The one permit is free while the other request waits out its backoff.
    let asked = Instant::now();
    storage.fetch_index(index()).await.unwrap();
    assert!(
        asked.elapsed() < Duration::from_millis(5),
        "{:?}",
        asked.elapsed()
    );
    assert!(began.elapsed() > Duration::ZERO);
    assert_eq!(failing.await.unwrap().unwrap_err().status(), Some(503));
}

#[tokio::test(start_paused = true)]
async fn reads_and_writes_have_permits_of_their_own() {
    let store = TestStore::new();
    store.throttle(Duration::from_secs(1), 1e9);
    let limits = with(RequestLimits::default(), |it| {
        it.max_reads = 2;
        it.max_writes = 3;
    });
    let storage = builder(&store).limits(limits).build().unwrap();
    let copies = (0..4).map(|_| copy(&storage));
    let fetches = (0..8).map(|_| storage.fetch(fetch()));
    let (copied, _) = futures::future::join(
        futures::future::join_all(copies),
        futures::future::join_all(fetches),
    )
    .await;
    assert!(copied.iter().all(Result::is_ok), "{copied:?}");
    assert_eq!(store.most_in_flight(), 5);
}

#[tokio::test(start_paused = true)]
async fn the_copy_deadline_is_above_the_wait_for_a_permit() {
    let store = TestStore::new();
    store.script(|_, _| Fate {
        delay: Duration::from_secs(20),
        ..Fate::default()
    });
    let limits = with(RequestLimits::default(), |it| {
        it.max_writes = 1;
        it.copy_deadline = Duration::from_secs(50);
    });
    let storage = builder(&store).limits(limits).build().unwrap();
    let began = Instant::now();
    let error = copy(&storage).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(!error.is_retryable());
    assert_eq!(began.elapsed(), Duration::from_secs(50));
}

#[tokio::test(start_paused = true)]
async fn close_refuses_new_calls_waits_for_those_in_flight_and_names_what_it_cut_off() {
    let store = TestStore::new();
    store.script(|request, _| Fate {
        delay: match request.kind {
            "get" => Duration::from_secs(5),
            _ => Duration::from_secs(25),
        },
        ..Fate::default()
    });
    let storage = builder(&store).build().unwrap();
    let short = tokio::spawn({
        let storage = storage.clone();
        async move { storage.fetch(fetch()).await }
    });
    let long = tokio::spawn({
        let storage = storage.clone();
        async move { copy(&storage).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;

    let began = Instant::now();
    let report = storage.clone().close(Duration::from_secs(10)).await;
    assert_eq!(began.elapsed(), Duration::from_secs(10));
    assert_eq!(report.cut_off.len(), 1, "{report:?}");
    let cut = &report.cut_off[0];
    assert_eq!(cut.operation.as_str(), "copy_segment");
    assert_eq!(cut.segment.as_ref().unwrap().start_offset(), 0);
    assert!(!report.aborts_unfinished);

    assert_eq!(
        short.await.unwrap().unwrap_err().kind(),
        ErrorKind::NotFound,
        "it had its time"
    );
    assert_eq!(long.await.unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
    for error in [
        storage.fetch(fetch()).await.unwrap_err(),
        storage.fetch_index(index()).await.unwrap_err(),
        storage.delete(delete()).await.unwrap_err(),
        copy(&storage).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Closed);
        assert!(error.to_string().contains("has been closed"), "{error}");
    }
    assert_eq!(
        storage.close(Duration::ZERO).await,
        krabka_remote_storage::stack::CloseReport::default()
    );
}

#[tokio::test]
async fn a_handle_that_nobody_uses_closes_at_once() {
    let store = TestStore::new();
    let storage = builder(&store).build().unwrap();
    copy(&storage).await.unwrap();
    let report = storage.close(Duration::from_hours(1)).await;
    assert!(report.cut_off.is_empty());
}

/// A segment whose index a cache takes: whole entries, none below the segment's start.
async fn copy_with_index(storage: &RemoteStorage, id: u128) {
    let dir = tempfile::tempdir().unwrap();
    let data = files(dir.path(), b"0123456789");
    std::fs::write(dir.path().join("0.index"), INDEX).unwrap();
    let copy = CopySegment::new(metadata(id, 0, 10), data);
    storage.copy(copy).await.unwrap();
}

/// (5, 100) and (9, 200).
const INDEX: [u8; 16] = [0, 0, 0, 5, 0, 0, 0, 100, 0, 0, 0, 9, 0, 0, 0, 200];

#[tokio::test]
async fn the_index_cache_is_above_the_fetcher_and_below_a_refusal() {
    for write_only in [false, true] {
        let store = TestStore::new();
        let cache = IndexCacheConfig::memory().open().unwrap();
        let mut builder = builder(&store).index_cache(cache.clone());
        if write_only {
            builder = builder.write_only();
        }
        let storage = builder.build().unwrap();
        copy_with_index(&storage, 0x1e).await;
        store.forget_requests();
        for _ in 0..3 {
            let fetched = storage.fetch_index(index()).await;
            let opened = storage.open_index(open(IndexType::Offset)).await;
            if write_only {
                assert_eq!(fetched.unwrap_err().kind(), ErrorKind::Refused);
                assert_eq!(opened.unwrap_err().kind(), ErrorKind::Refused);
            } else {
                assert_eq!(fetched.unwrap(), INDEX.as_slice());
                assert_eq!(opened.unwrap().lookup(7).await.unwrap().position, 100);
            }
        }
        assert_eq!(store.requests().len(), usize::from(!write_only));
        let stats = cache.stats();
        let expected = if write_only { (0, 0) } else { (5, 1) };
        assert_eq!((stats.hits, stats.misses), expected);
    }
}

fn open(index: IndexType) -> OpenIndex {
    OpenIndex::new(metadata(0x1e, 0, 10), index)
}

#[tokio::test]
async fn without_an_index_cache_each_call_is_a_request() {
    let store = TestStore::new();
    let storage = builder(&store).build().unwrap();
    copy_with_index(&storage, 0x1e).await;
    store.forget_requests();
    for _ in 0..2 {
        assert_eq!(
            storage.fetch_index(index()).await.unwrap(),
            INDEX.as_slice()
        );
        let opened = storage.open_index(open(IndexType::Offset)).await.unwrap();
        assert_eq!(opened.outcome(), IndexCacheOutcome::Disabled);
        assert_eq!(opened.lookup(9).await.unwrap().position, 200);
    }
    assert_eq!(store.count("get"), 4);
}

#[tokio::test]
async fn a_deleted_segment_is_gone_from_the_index_cache_too() {
    let store = TestStore::new();
    let cache = IndexCacheConfig::memory().open().unwrap();
    let storage = builder(&store).index_cache(cache.clone()).build().unwrap();
    copy_with_index(&storage, 0x1e).await;
    storage.fetch_index(index()).await.unwrap();
    assert_eq!(cache.stats().entries, 1);
    storage.delete(delete()).await.unwrap();
    assert_eq!(cache.stats().entries, 0);
    let error = storage.fetch_index(index()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(cache.stats().entries, 0);
}
