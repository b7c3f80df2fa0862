//! The layer: what it asks the service below, and what it makes of the answers.

use metrics_util::debugging::DebuggingRecorder;
use tokio_test::{assert_pending, assert_ready_ok, task};
use tower::ServiceBuilder;
use tower::service_fn;
use tower_test::assert_request_eq;
use tower_test::mock::{self, Mock};
use uuid::Uuid;

use super::*;
use crate::error::ErrorKind;
use crate::index_cache::tests::*;
use crate::layers::samples::{Recorded, Value, delete, typed};
use crate::layers::{MetricsLayer, TraceLayer};

/// A service over this source, and how to ask it.
fn service(
    cache: &RemoteIndexCache,
    source: &Source,
) -> impl OpService<FetchIndex> + OpService<OpenIndex> {
    let source = source.clone();
    ServiceBuilder::new()
        .layer(TraceLayer::default())
        .layer(MetricsLayer::new())
        .layer(IndexCacheLayer::new(cache.clone()))
        .service(service_fn(move |_: FetchIndex| source.fetch()()))
}

fn fetch_index(index: IndexType) -> FetchIndex {
    FetchIndex::new(segment(1), index)
}

const GOOD: [u8; 16] = [0, 0, 0, 10, 0, 0, 1, 0, 0, 0, 0, 20, 0, 0, 2, 0];

#[tokio::test]
async fn it_is_ready_whatever_the_service_below_and_asks_it_when_there_is_something_to_ask() {
    let cache = IndexCacheConfig::memory().open().unwrap();
    let layer = IndexCacheLayer::new(cache);
    let (mut service, mut handle) =
        mock::spawn_with(|mock: Mock<FetchIndex, Bytes>| layer.layer(typed(mock)));
    handle.allow(0);
    let op = fetch_index(IndexType::Offset);
    assert_ready_ok!(service.poll_ready::<FetchIndex>());
    let mut call = task::spawn(service.call(op.clone()));
    assert_pending!(call.poll());
    settled().await;
    handle.allow(1);
    assert_request_eq!(handle, op.clone()).send_response(Bytes::from_static(&GOOD));
    assert_eq!(call.await.unwrap(), GOOD.as_slice());

    handle.allow(0);
    let mut call = task::spawn(service.call(op));
    assert_eq!(assert_ready_ok!(call.poll()), GOOD.as_slice());
}

#[tokio::test]
async fn a_corrupt_index_is_fetched_once_more() {
    for case in Case::each(LARGE) {
        let source = Source::answering(|before| match before {
            0 => Ok(Bytes::from_static(&GOOD[..13])),
            _ => Ok(Bytes::from_static(&GOOD)),
        });
        for _ in 0..2 {
            let service = service(&case.cache, &source);
            let answer = service.oneshot(fetch_index(IndexType::Offset)).await;
            assert_eq!(answer.unwrap(), GOOD.as_slice());
        }
        assert_eq!(source.asked(), 2);
        assert_eq!(case.stats(), [1, 1, 0, 1, 16], "{}", case.mode);
    }
}

#[tokio::test]
async fn an_index_that_stays_corrupt_is_an_error_and_not_kept() {
    let below_the_start = [0xff; 8];
    let falling = {
        let mut falling = [0; 24];
        falling[7] = 2;
        falling
    };
    let before_the_segment = {
        let mut entry = [0; 34];
        entry[25] = 44;
        entry
    };
    for (index, bytes, reason) in [
        (
            IndexType::Offset,
            &GOOD[..13],
            "13 bytes are no whole number of entries",
        ),
        (
            IndexType::Offset,
            &below_the_start[..],
            "the last offset is below the start of the segment",
        ),
        (
            IndexType::Timestamp,
            &falling[..],
            "the last timestamp is below the first",
        ),
        (
            IndexType::Transaction,
            &before_the_segment[..],
            "last offset 44 is below the segment's start 45",
        ),
        (
            IndexType::Transaction,
            &[0; 24],
            "24 bytes are no whole number of entries",
        ),
    ] {
        for case in Case::each(LARGE) {
            let source = Source::new(bytes.to_vec());
            for asked in [2, 4] {
                let service = service(&case.cache, &source);
                let error = service.oneshot(fetch_index(index)).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corrupt);
                let key = format!(
                    "orders-0-AAAAAAAAAAAAAAAAAAAABw/00000000000000000045-\
                     AAAAAAAAAAAAAAAAAAAAAQ{}",
                    index.suffix()
                );
                assert_eq!(
                    error.to_string(),
                    format!("wrong bytes from the store for `{key}`: {reason}")
                );
                assert_eq!(source.asked(), asked, "{}", case.mode);
            }
            assert_eq!(case.stats()[2..], [0, 0, 0], "{}", case.mode);
            assert_eq!(case.cached_files(), NO_FILES, "{}", case.mode);
        }
    }
}

#[tokio::test]
async fn the_kinds_that_are_not_cached_are_not_checked_either() {
    for case in Case::each(LARGE) {
        let source = Source::new(&b"0\n1\n0 0\n"[..]);
        for index in [IndexType::LeaderEpoch, IndexType::ProducerSnapshot] {
            let service = service(&case.cache, &source);
            let answer = service.oneshot(fetch_index(index)).await.unwrap();
            assert_eq!(answer, "0\n1\n0 0\n");
        }
        assert_eq!(source.asked(), 2);
    }
}

#[tokio::test]
async fn a_missing_transaction_index_is_not_found_to_those_who_fetch_it_and_asked_for_once() {
    for case in Case::each(LARGE) {
        let source = Source::answering(|_| Err(not_found()));
        let service = service(&case.cache, &source);
        for _ in 0..2 {
            let op = fetch_index(IndexType::Transaction);
            let error = service.clone().oneshot(op).await.unwrap_err();
            assert!(
                matches!(&error, RemoteStorageError::SegmentNotFound(id)
                    if id.id == Uuid::from_u128(1)),
                "{error:?}"
            );
        }
        let open = OpenIndex::new(segment(1), IndexType::Transaction);
        let opened = service.oneshot(open).await.unwrap();
        assert!(opened.is_empty());
        assert_eq!(opened.outcome(), IndexCacheOutcome::Hit);
        assert_eq!(source.asked(), 1, "{}", case.mode);
    }
}

#[tokio::test]
async fn a_delete_makes_the_cache_forget_the_segment_and_goes_on() {
    for case in Case::each(LARGE) {
        let id = delete().metadata.remote_log_segment_id().id;
        let source = Source::of(40);
        case.outcome(id.as_u128(), IndexType::Offset, &source).await;
        case.outcome(1, IndexType::Offset, &source).await;
        let deleter = service_fn(|_: DeleteSegment| async { Err::<(), _>(boom()) });
        let service = IndexCacheLayer::new(case.cache.clone()).layer(deleter);
        let error = service.oneshot(delete()).await.unwrap_err();
        assert_eq!(error.to_string(), "boom");
        assert_eq!(case.stats()[2..], [0, 1, 40], "{}", case.mode);
    }
}

#[tokio::test]
async fn what_it_does_is_in_the_metrics() {
    let recorder = DebuggingRecorder::new();
    let _local = ::metrics::set_default_local_recorder(&recorder);
    let case = Case::files(40);
    let source = Source::new(GOOD.to_vec());
    let service = service(&case.cache, &source);
    let fetch = |id| FetchIndex::new(segment(id), IndexType::Offset);
    for id in [1, 1, 2] {
        service.clone().oneshot(fetch(id)).await.unwrap();
    }
    fs::remove_file(&case.cached_files()[0]).unwrap();
    service.clone().oneshot(fetch(2)).await.unwrap();
    let opened: IndexHandle = {
        let open = OpenIndex::new(segment(2), IndexType::Offset);
        service.oneshot(open).await.unwrap()
    };
    drop(opened);

    let seen = Recorded::take(&recorder);
    let index = "index=offset";
    for (name, labels, value) in [
        ("index_cache_hits_total", index, Value::Counter(2)),
        ("index_cache_misses_total", index, Value::Counter(3)),
        ("index_cache_evictions_total", index, Value::Counter(1)),
        ("index_cache_disk_errors_total", "", Value::Counter(1)),
        ("index_cache_entries", "", Value::Gauge(1.0)),
        ("index_cache_bytes", "", Value::Gauge(16.0)),
        // Four times whole; to open what was there moved nothing.
        (
            "bytes_total",
            "operation=fetch_index,direction=read",
            Value::Counter(64),
        ),
    ] {
        assert_eq!(seen.value(name, labels), Some(value), "{name}");
    }
}
