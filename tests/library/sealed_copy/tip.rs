//! Chains that are continued without a metadata store.

use std::sync::Arc;

use krabka_remote_storage::archive::recover_chain_stamp;
use krabka_remote_storage::segment::MultipartCreate;
use krabka_remote_storage::{ChainStamp, RemoteStorageError, TrustedManifestKeys, WormArchiver};
use object_store::ObjectStore;
use tempfile::TempDir;

use super::leader::{RULES, archive, builder, copy_to, epoch, genesis, record, trusted, verify};
use krabka_remote_storage::testing::store::TestStore;

const DIRECTORY: &str = "orders-0-AAAAAAAAAAAAAAAAAAAAAQ";

async fn tip(
    store: &Arc<TestStore>,
    trusted: &TrustedManifestKeys,
) -> Result<ChainStamp, RemoteStorageError> {
    let reads: Arc<dyn ObjectStore> = store.inner.clone();
    recover_chain_stamp(&reads, DIRECTORY, trusted, epoch(9)).await
}

/// Seals so many segments, each at the place that the manifests before it say.
async fn seal(store: &Arc<TestStore>, ids: std::ops::Range<u128>) -> Vec<ChainStamp> {
    let storage = archive(store);
    let dir = TempDir::new().unwrap();
    let mut places = Vec::new();
    for id in ids {
        let place = tip(store, &trusted()).await.unwrap();
        let start_offset = 10 * i64::try_from(id).unwrap();
        let copy = copy_to(&dir, id, start_offset, place);
        let receipt = storage.copy(copy).await.unwrap();
        let next = record(receipt.custom_metadata.as_ref()).next_stamp();
        assert_eq!(tip(store, &trusted()).await.ok(), next);
        places.push(place);
    }
    places
}

#[tokio::test]
async fn each_process_goes_on_in_the_epoch_of_the_one_before() {
    let store = TestStore::new();
    let places = [seal(&store, 1..3).await, seal(&store, 3..5).await].concat();
    assert_eq!(places[0], ChainStamp::genesis(epoch(9)));
    let report = verify(&store).await;
    assert!(report.ok() && !report.has_epoch_restarts());
    assert_eq!(report.manifests(), 4);
}

#[tokio::test]
async fn what_failed_copies_have_left_is_passed_over() {
    let store = TestStore::new();
    store.overwrite(
        &format!("{DIRECTORY}/00000000000000000000-AAAAAAAAAAAAAAAAAAAAAQ.log"),
        b"a copy without a manifest".to_vec(),
    );
    assert_eq!(
        tip(&store, &trusted()).await.unwrap(),
        ChainStamp::genesis(epoch(9))
    );
    seal(&store, 2..4).await;
}

#[tokio::test]
async fn of_several_runs_the_one_with_the_highest_offsets_is_continued() {
    let store = TestStore::new();
    let dir = TempDir::new().unwrap();
    let storage = archive(&store);
    storage.copy(copy_to(&dir, 1, 0, genesis())).await.unwrap();
    let other = ChainStamp::genesis(epoch(2));
    let copy = copy_to(&dir, 2, 0, other);
    let receipt = storage.copy(copy).await.unwrap();
    let second = record(receipt.custom_metadata.as_ref())
        .next_stamp()
        .unwrap();
    let receipt = storage.copy(copy_to(&dir, 3, 10, second)).await.unwrap();
    assert_eq!(
        tip(&store, &trusted()).await.ok(),
        record(receipt.custom_metadata.as_ref()).next_stamp()
    );
}

#[tokio::test]
async fn an_archive_that_does_not_verify_has_no_tip() {
    let store = TestStore::new();
    seal(&store, 1..4).await;
    let objects = store.objects().await;
    let of = |suffix: &str| {
        let mut keys = objects.iter().filter(|(key, _)| key.ends_with(suffix));
        keys.nth(1).unwrap().0.clone()
    };
    for (key, bytes) in [(of(".manifest"), b"{}".to_vec()), (of(".log"), Vec::new())] {
        let store = TestStore::new();
        seal(&store, 1..4).await;
        store.overwrite(&key, bytes);
        let error = tip(&store, &trusted()).await.unwrap_err();
        assert!(
            matches!(&error, RemoteStorageError::PreconditionFailed { key, reason, .. }
                if key.ends_with(".manifest") && reason.contains("does not verify")),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn manifests_that_no_trusted_key_has_signed_are_not_continued() {
    let store = TestStore::new();
    let unsigned = builder(&store)
        .seal_on_unchecked_store(WormArchiver::new(None), RULES, MultipartCreate::Conditional)
        .build()
        .unwrap();
    let dir = TempDir::new().unwrap();
    let receipt = unsigned.copy(copy_to(&dir, 1, 0, genesis())).await.unwrap();
    let error = tip(&store, &trusted()).await.unwrap_err();
    assert!(error.to_string().contains("not signed"), "{error}");
    // Whoever trusts no key takes the archive for an unsigned one.
    let next = record(receipt.custom_metadata.as_ref()).next_stamp();
    let none = TrustedManifestKeys::default();
    assert_eq!(tip(&store, &none).await.ok(), next);
}
