//! "These bytes under this key, once": every way in which a create can answer "exists".

use std::sync::Arc;
use std::time::Duration;

use krabka_remote_storage::backends::{ObjectStoreClient, RequestLimits, StoreHandles};
use krabka_remote_storage::ops::{Create, StoreTarget, Written};
use krabka_remote_storage::{ErrorKind, RemoteStorage, RemoteStorageError};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use sha2::{Digest as _, Sha256};

use crate::support::with;
use krabka_remote_storage::testing::store::{Fate, Outcome, TestStore};

const KEY: &str = "tier/object";
const BYTES: &[u8] = b"these very bytes";

fn storage(store: &Arc<TestStore>) -> RemoteStorage {
    let handles = StoreHandles::opaque(Arc::clone(store) as Arc<dyn ObjectStore>);
    // One attempt a request, so that each answer is seen as it is.
    let limits = with(RequestLimits::default(), |it| it.max_retries = 0);
    RemoteStorage::builder(Arc::new(ObjectStoreClient::new(handles)))
        .limits(limits)
        .build()
        .unwrap()
}

async fn create(
    store: &Arc<TestStore>,
    bytes: &'static [u8],
) -> Result<Written, RemoteStorageError> {
    let create = Create::new(
        StoreTarget::object(Path::from(KEY)),
        PutPayload::from_static(bytes),
        Sha256::digest(bytes).into(),
    );
    storage(store).send(create).await
}

fn only(
    kind: &'static str,
    outcome: Outcome,
    times: usize,
) -> impl Fn(&krabka_remote_storage::testing::store::Request, usize) -> Fate {
    move |request, before| Fate {
        outcome: if request.kind == kind && before < times {
            outcome
        } else {
            Outcome::Served
        },
        ..Fate::default()
    }
}

async fn content(store: &TestStore) -> Vec<u8> {
    let object = store.inner.get(&Path::from(KEY)).await.unwrap();
    object.bytes().await.unwrap().to_vec()
}

#[tokio::test]
async fn a_new_object_takes_one_request() {
    let store = TestStore::new();
    let written = create(&store, BYTES).await.unwrap();
    assert!(written.create_precondition);
    assert!(written.e_tag.is_some());
    assert_eq!(store.requests().len(), 1);
    assert_eq!(content(&store).await, BYTES);
}

#[tokio::test]
async fn an_own_success_whose_answer_was_lost_is_a_success() {
    let store = TestStore::new();
    store.script(only("create", Outcome::AnswerLost, 1));
    let lost = create(&store, BYTES).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::Unavailable);
    assert!(lost.is_retryable());

    let found = create(&store, BYTES).await.unwrap();
    assert!(found.create_precondition);
    assert!(found.e_tag.is_some(), "the tag comes from HEAD");
    assert_eq!(store.count("head"), 1);
    assert_eq!(store.count("get"), 1);
}

#[tokio::test]
async fn foreign_bytes_are_an_error_and_stay_untouched() {
    let same_length: &[u8] = b"those very bytes";
    for (foreign, gets) in [(&b"other length"[..], 0), (same_length, 1), (b"", 0)] {
        let store = TestStore::new();
        store
            .inner
            .put(&Path::from(KEY), foreign.to_vec().into())
            .await
            .unwrap();
        let error = create(&store, BYTES).await.unwrap_err();
        assert!(
            matches!(&error, RemoteStorageError::ObjectExists { key, .. } if key == KEY),
            "{error:?}"
        );
        assert_eq!(error.to_string(), format!("object already exists: {KEY}"));
        assert!(!error.is_retryable());
        assert_eq!(store.count("get"), gets, "another length needs no download");
        assert_eq!(content(&store).await, foreign);
    }
}

#[tokio::test]
async fn an_empty_object_is_created_once_too() {
    let store = TestStore::new();
    create(&store, b"").await.unwrap();
    create(&store, b"").await.unwrap();
    let error = create(&store, BYTES).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_without_an_object_is_repeated_three_times_and_no_more() {
    for (conflicts, succeeds) in [(1, true), (3, true), (4, false)] {
        let store = TestStore::new();
        store.script(only("create", Outcome::Failed(409), conflicts));
        let result = create(&store, BYTES).await;
        assert_eq!(result.is_ok(), succeeds, "{conflicts} conflicts");
        assert_eq!(
            store.count("create"),
            conflicts.min(4) + usize::from(succeeds)
        );
        if let Err(error) = result {
            assert!(error.is_retryable(), "{error:?}");
            assert_eq!(error.status(), Some(409));
        }
    }
}

#[tokio::test]
async fn a_conflict_with_a_rival_that_won_is_resolved_by_what_stands_there() {
    let store = TestStore::new();
    store.script(only("create", Outcome::Failed(409), 1));
    store
        .inner
        .put(&Path::from(KEY), b"a rival's".to_vec().into())
        .await
        .unwrap();
    let error = create(&store, BYTES).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(content(&store).await, b"a rival's");
}

#[tokio::test]
async fn what_may_not_be_read_back_leaves_the_outcome_unknown() {
    for (refused, status) in [("head", 403), ("get", 403)] {
        let store = TestStore::new();
        store
            .inner
            .put(&Path::from(KEY), BYTES.to_vec().into())
            .await
            .unwrap();
        store.script(only(refused, Outcome::Failed(status), 1));
        let error = create(&store, BYTES).await.unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::OutcomeUnknown,
            "{refused}: {error:?}"
        );
        assert!(error.to_string().contains(KEY), "{error}");
    }
}

#[tokio::test]
async fn a_read_back_that_fails_for_a_passing_reason_makes_the_create_repeatable() {
    for (failing, status) in [("head", 503), ("get", 503), ("head", 0), ("get", 0)] {
        let store = TestStore::new();
        store
            .inner
            .put(&Path::from(KEY), BYTES.to_vec().into())
            .await
            .unwrap();
        store.script(only(failing, Outcome::Failed(status), 1));
        let error = create(&store, BYTES).await.unwrap_err();
        assert!(error.is_retryable(), "{failing} {status}: {error:?}");
        create(&store, BYTES).await.unwrap();
    }
}

#[tokio::test]
async fn of_many_rivals_one_wins_and_all_others_learn_it() {
    let store = TestStore::new();
    let rivals: [&[u8]; 4] = [b"rival 1", b"rival 2", b"rival 3", b"rival 4"];
    let tasks: Vec<_> = rivals
        .into_iter()
        .map(|bytes| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { create(&store, bytes).await })
        })
        .collect();
    let mut winners = 0;
    for task in tasks {
        match tokio::time::timeout(Duration::from_mins(1), task)
            .await
            .unwrap()
            .unwrap()
        {
            Ok(_) => winners += 1,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict),
        }
    }
    assert_eq!(winners, 1);
}
