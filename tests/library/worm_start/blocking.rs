//! Archives with Kafka's blocking interface.

use std::sync::Arc;

use krabka_remote_storage::{
    ChainStamp, EpochId, ErrorKind, RemoteLogSegmentMetadata, RemoteStorageError,
    RemoteStorageManager as _, S3RemoteStorage, WormChainRecord, WormConfig, WormError,
};
use tempfile::TempDir;
use uuid::Uuid;

use crate::support::with;
use krabka_remote_storage::testing::segments::{files, metadata, pattern};
use krabka_remote_storage::testing::store::TestStore;

fn unprotected() -> WormConfig {
    with(WormConfig::default(), |it| it.allow_unprotected = true)
}

fn tier(store: &Arc<TestStore>) -> S3RemoteStorage {
    S3RemoteStorage::with_store(store.clone(), Some("tier".to_owned())).unwrap()
}

fn stamped() -> RemoteLogSegmentMetadata {
    let stamp = ChainStamp::genesis(EpochId(Uuid::from_u128(3)));
    metadata(0x1e, 0, 100)
        .as_ref()
        .clone()
        .with_custom_metadata(WormChainRecord::request(stamp).to_custom_metadata())
}

fn works_as_an_archive(archive: &S3RemoteStorage, store: &TestStore) {
    let dir = TempDir::new().unwrap();
    let metadata = stamped();
    let copied = archive.copy_log_segment_data(&metadata, &files(dir.path(), &pattern(100, 3)));
    let receipt = WormChainRecord::from_custom_metadata(&copied.unwrap().unwrap()).unwrap();
    assert!(receipt.head.is_some());
    let log = archive.fetch_log_segment(&metadata, 0, None).unwrap();
    assert_eq!(log, pattern(100, 3));
    let error = archive.delete_log_segment_data(&metadata).unwrap_err();
    assert!(
        matches!(
            &error,
            RemoteStorageError::Worm(WormError::DeleteRefused { .. })
        ),
        "{error:?}"
    );
    assert_eq!(store.count("delete"), 0);
    assert_eq!(store.count("part"), 0, "nothing is known of its uploads");
}

#[test]
fn a_blocking_archive_needs_no_runtime_and_stays_one_whatever_is_tuned() {
    for tuned_first in [true, false] {
        let store = TestStore::new();
        let archive = if tuned_first {
            tier(&store)
                .with_multipart_tuning(1, 1)
                .with_worm(&unprotected())
        } else {
            tier(&store)
                .with_worm(&unprotected())
                .map(|archive| archive.with_multipart_tuning(1, 1))
        };
        let archive = archive.unwrap();
        let shown = r#"S3RemoteStorage { prefix: "tier", archive: true, .. }"#;
        assert_eq!(format!("{archive:?}"), shown);
        works_as_an_archive(&archive, &store);
    }
}

#[test]
fn a_blocking_archive_starts_inside_of_runtimes_too() {
    for runtime in [
        tokio::runtime::Builder::new_current_thread().build(),
        tokio::runtime::Builder::new_multi_thread().build(),
    ] {
        let store = TestStore::new();
        runtime.unwrap().block_on(async {
            let archive = tier(&store).with_worm(&unprotected()).unwrap();
            works_as_an_archive(&archive, &store);
        });
    }
}

#[test]
fn a_write_only_archive_and_one_that_may_not_start_refuse() {
    let store = TestStore::new();
    let error = tier(&store).with_worm(&WormConfig::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
    assert_eq!(store.requests(), []);
    let config = with(unprotected(), |it| it.write_only = true);
    let archive = tier(&store).with_worm(&config).unwrap();
    let error = archive.fetch_log_segment(&stamped(), 0, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
}
