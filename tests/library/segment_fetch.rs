//! A fetch of a range: one GET of exactly the asked bytes, and the same rules on every store.

use std::sync::Arc;

use bytes::Bytes;
use krabka_remote_storage::backends::{ObjectStoreClient, RequestLimits, StoreHandles};
use krabka_remote_storage::layout::{KeyPrefix, segment_key};
use krabka_remote_storage::{
    ErrorKind, FetchIndex, FetchSegment, IndexType, LOG_FILE_SUFFIX, RemoteStorage,
    RemoteStorageError,
};
use object_store::ObjectStoreExt;
use tower::ServiceExt;

use crate::support::with;
use krabka_remote_storage::testing::segments::metadata;
use krabka_remote_storage::testing::store::{Fate, Outcome, TestStore};

fn storage(store: &Arc<TestStore>) -> RemoteStorage {
    let handles = StoreHandles::with_multipart(Arc::clone(store));
    // One attempt a request, so that each answer is seen as it is.
    let limits = with(RequestLimits::default(), |it| it.max_retries = 0);
    RemoteStorage::builder(Arc::new(ObjectStoreClient::new(handles)))
        .limits(limits)
        .build()
        .unwrap()
}

async fn put(store: &TestStore, suffix: &str, bytes: &'static [u8]) {
    // The size in the metadata is wrong on purpose: the object's own length counts.
    let key = segment_key(&KeyPrefix::default(), &metadata(0x0a, 0, 8), suffix).unwrap();
    store
        .inner
        .put(&key, Bytes::from_static(bytes).into())
        .await
        .unwrap();
}

async fn fetch(
    store: &Arc<TestStore>,
    start: u32,
    end: Option<u32>,
) -> Result<Bytes, RemoteStorageError> {
    let fetch = FetchSegment::new(metadata(0x0a, 0, 8), start, end);
    storage(store).oneshot(fetch).await
}

#[tokio::test]
async fn the_range_rules_are_those_of_the_contract() {
    let store = TestStore::new();
    put(&store, LOG_FILE_SUFFIX, b"0123456789").await;
    let rows: [(u32, Option<u32>, &str); 11] = [
        (2, Some(5), "2345"),
        (7, None, "789"),
        (8, Some(99), "89"),
        (3, Some(3), "3"),
        (0, None, "0123456789"),
        (0, Some(9), "0123456789"),
        (0, Some(u32::MAX), "0123456789"),
        (9, Some(u32::MAX), "9"),
        (10, None, ""),
        (10, Some(10), ""),
        (10, Some(u32::MAX), ""),
    ];
    for (start, end, expected) in rows {
        let bytes = fetch(&store, start, end).await.unwrap();
        assert_eq!(bytes, expected, "{start}..={end:?}");
    }
    for (start, end) in [
        (11, None),
        (11, Some(20)),
        (u32::MAX, None),
        (u32::MAX, Some(u32::MAX)),
    ] {
        let error = fetch(&store, start, end).await.unwrap_err();
        assert!(
            matches!(&error, RemoteStorageError::InvalidArgument(_)),
            "{start}: {error:?}"
        );
        assert!(error.to_string().contains("10 bytes"), "{error}");
    }
}

#[tokio::test]
async fn an_inverted_range_is_refused_before_any_request() {
    let store = TestStore::new();
    let error = fetch(&store, 5, Some(4)).await.unwrap_err();
    assert!(matches!(error, RemoteStorageError::InvalidArgument(_)));
    assert_eq!(store.requests(), []);
}

#[tokio::test]
async fn an_empty_object_answers_no_bytes_from_its_start_and_an_error_beyond() {
    let store = TestStore::new();
    put(&store, LOG_FILE_SUFFIX, b"").await;
    for end in [None, Some(0), Some(u32::MAX)] {
        assert_eq!(fetch(&store, 0, end).await.unwrap(), "");
    }
    let error = fetch(&store, 1, None).await.unwrap_err();
    assert!(matches!(error, RemoteStorageError::InvalidArgument(_)));
}

#[tokio::test]
async fn a_fetch_is_one_get_of_exactly_the_asked_bytes() {
    let store = TestStore::new();
    put(&store, LOG_FILE_SUFFIX, b"0123456789").await;
    for (start, end, length) in [
        (2, Some(5), 4),
        (0, None, 10),
        (7, None, 3),
        (8, Some(99), 2),
    ] {
        store.forget_requests();
        fetch(&store, start, end).await.unwrap();
        let requests = store.requests();
        assert_eq!(requests.len(), 1, "0 HEAD: {requests:?}");
        assert_eq!((requests[0].kind, requests[0].bytes), ("get", length));
    }
}

#[tokio::test]
async fn one_head_explains_a_range_error_and_no_more() {
    let store = TestStore::new();
    put(&store, LOG_FILE_SUFFIX, b"0123456789").await;
    for start in [10, 11] {
        store.forget_requests();
        let _ = fetch(&store, start, None).await;
        let kinds: Vec<_> = store
            .requests()
            .iter()
            .map(|request| request.kind)
            .collect();
        assert_eq!(kinds, ["get", "head"]);
    }
}

#[tokio::test]
async fn a_missing_segment_or_index_is_not_found() {
    let store = TestStore::new();
    let id = metadata(0x0a, 0, 8).remote_log_segment_id().clone();
    for (start, end) in [(0, None), (5, None), (0, Some(3))] {
        let error = fetch(&store, start, end).await.unwrap_err();
        assert!(
            matches!(&error, RemoteStorageError::SegmentNotFound(found) if *found == id),
            "{error:?}"
        );
    }
    put(&store, LOG_FILE_SUFFIX, b"0123456789").await;
    for index in IndexType::ALL {
        let fetch = FetchIndex::new(metadata(0x0a, 0, 8), index);
        let error = storage(&store).oneshot(fetch).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{index:?}");
    }
}

#[tokio::test]
async fn an_index_is_fetched_whole_by_its_own_suffix() {
    let store = TestStore::new();
    for index in IndexType::ALL {
        put(&store, index.suffix(), index.suffix().as_bytes()).await;
    }
    for index in IndexType::ALL {
        store.forget_requests();
        let fetch = FetchIndex::new(metadata(0x0a, 0, 8), index);
        let bytes = storage(&store).oneshot(fetch).await.unwrap();
        assert_eq!(bytes, index.suffix());
        assert_eq!(store.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_segment_that_vanishes_between_the_range_error_and_its_explanation_is_not_found() {
    let store = TestStore::new();
    store.script(|request, _| Fate {
        outcome: match request.kind {
            "get" => Outcome::Failed(416),
            _ => Outcome::Served,
        },
        ..Fate::default()
    });
    let error = fetch(&store, 3, None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn the_body_from_memory_is_handed_on_without_a_copy() {
    let store = TestStore::new();
    put(&store, LOG_FILE_SUFFIX, b"0123456789").await;
    let first = fetch(&store, 2, Some(5)).await.unwrap();
    let second = fetch(&store, 2, Some(5)).await.unwrap();
    assert_eq!(first.as_ptr(), second.as_ptr());
}
