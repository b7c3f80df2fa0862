//! The start of archives on stores that cannot refuse deletion, and what a verifier sees of it.

use std::sync::Arc;

use krabka_remote_storage::archive::{WORM_PROBE_BODY, WORM_PROBE_NAME};
use krabka_remote_storage::backends::Backend;
use krabka_remote_storage::{
    ChainStamp, CopySegment, DeleteSegment, EpochId, ErrorKind, ObjectStoreConfig, RemoteStorage,
    RemoteStorageError, VerifyDepth, VerifyRequest, WormChainRecord, WormConfig, verify_archive,
};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _};
use tempfile::TempDir;
use uuid::Uuid;

use super::{signed, trusted};
use crate::support::with;
use krabka_remote_storage::testing::segments::{files, metadata, pattern};
use krabka_remote_storage::testing::store::{Fate, Outcome, TestStore};

const PART: usize = 1 << 20;

fn unprotected() -> WormConfig {
    with(WormConfig::default(), |it| it.allow_unprotected = true)
}

fn copy_op(dir: &TempDir, log: &[u8]) -> CopySegment {
    let stamp = ChainStamp::genesis(EpochId(Uuid::from_u128(3)));
    let metadata = metadata(0x1e, 0, log.len() as u64)
        .as_ref()
        .clone()
        .with_custom_metadata(WormChainRecord::request(stamp).to_custom_metadata());
    CopySegment::new(metadata, files(dir.path(), log))
}

fn opaque(store: &Arc<TestStore>, prefix: Option<&str>) -> Backend {
    Backend::from_object_store(Arc::clone(store) as Arc<dyn ObjectStore>, prefix).unwrap()
}

#[tokio::test]
async fn an_archive_in_a_directory_or_in_memory_seals_refuses_and_verifies() {
    let dir = TempDir::new().unwrap();
    let root = dir.path().join("tier");
    for config in [
        ObjectStoreConfig::Local { root },
        ObjectStoreConfig::InMemory,
    ] {
        let mut backend = config.open().unwrap();
        backend.limits.multipart_threshold = PART as u64;
        backend.limits.multipart_chunk_size = PART;
        let store = backend.object_store.clone().unwrap();
        for _ in 0..2 {
            RemoteStorage::start_archive(backend.clone(), &unprotected())
                .await
                .unwrap();
        }
        let config = with(signed(dir.path()), |it| it.allow_unprotected = true);
        let archive = RemoteStorage::start_archive(backend, &config)
            .await
            .unwrap()
            .build()
            .unwrap();
        let probe = store.get(&Path::from(WORM_PROBE_NAME)).await.unwrap();
        assert_eq!(probe.bytes().await.unwrap(), WORM_PROBE_BODY);

        let copy = copy_op(&dir, &pattern(2 * PART + 7, 3));
        let delete = DeleteSegment::new(Arc::clone(&copy.metadata));
        let receipt = archive.copy(copy).await.unwrap();
        assert!(
            receipt
                .objects
                .iter()
                .all(|object| object.create_precondition),
            "in parts, too: {receipt:?}"
        );
        let error = archive.delete(delete).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);

        let request = with(VerifyRequest::default(), |it| it.depth = VerifyDepth::Deep);
        let report = verify_archive(&store, &request, &trusted()).await.unwrap();
        assert!(report.ok(), "{report:#?}");
        assert_eq!(report.manifests(), 1);
        assert_eq!(report.global_orphan_objects, [""; 0], "the probe is known");
    }
}

#[tokio::test]
async fn through_a_client_of_unknown_make_every_object_is_one_create() {
    let store = TestStore::new();
    let mut backend = opaque(&store, Some("tier"));
    backend.limits.multipart_threshold = 1;
    backend.limits.multipart_chunk_size = 1;
    let archive = RemoteStorage::start_archive(backend, &unprotected())
        .await
        .unwrap()
        .build()
        .unwrap();
    let dir = TempDir::new().unwrap();
    let receipt = archive.copy(copy_op(&dir, &pattern(100, 3))).await.unwrap();
    assert!(
        receipt
            .objects
            .iter()
            .all(|object| object.create_precondition)
    );
    for kind in ["put", "start", "part", "complete", "delete"] {
        assert_eq!(store.count(kind), 0, "{kind}");
    }
    // The probe twice, six objects, the manifest.
    assert_eq!(store.count("create"), 9);
}

#[tokio::test]
async fn a_lost_answer_during_the_trial_is_no_fault_of_the_store() {
    let store = TestStore::new();
    store.script(|request, before| Fate {
        outcome: if request.kind == "create" && before < 2 {
            Outcome::AnswerLost
        } else {
            Outcome::Served
        },
        ..Fate::default()
    });
    RemoteStorage::start_archive(opaque(&store, None), &unprotected())
        .await
        .unwrap();
    assert_eq!(store.objects().await.len(), 1);
}

#[tokio::test]
async fn a_store_that_fails_starts_nothing() {
    let store = TestStore::new();
    store.script(|request, _| Fate {
        outcome: if request.kind == "create" {
            Outcome::Failed(403)
        } else {
            Outcome::Served
        },
        ..Fate::default()
    });
    let error = RemoteStorage::start_archive(opaque(&store, None), &unprotected())
        .await
        .unwrap_err();
    assert_eq!(error.status(), Some(403), "{error:?}");
    let error = RemoteStorage::start_archive(opaque(&store, None), &WormConfig::default())
        .await
        .unwrap_err();
    assert!(
        matches!(&error, RemoteStorageError::InvalidArgument(text) if text.contains("TestStore")),
        "{error:?}"
    );
}
