//! Objects above the multipart threshold: how each store is made to write them once.

use std::sync::Arc;
use std::time::Duration;

use krabka_remote_storage::backends::RequestLimits;
use krabka_remote_storage::segment::MultipartCreate;
use krabka_remote_storage::{
    CopySegment, ObjectStoreConfig, RemoteStorage, RemoteStorageError, VerifyDepth, VerifyRequest,
    WormChainRecord, verify_archive,
};
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use tempfile::TempDir;

use super::leader::{RULES, archiver, builder, copy_to, genesis, record, trusted, verify};
use crate::support::with;
use krabka_remote_storage::testing::segments::{files, metadata, pattern};
use krabka_remote_storage::testing::store::{Fate, Outcome, TestStore};

const LOG: &str = "orders-0-AAAAAAAAAAAAAAAAAAAAAQ/00000000000000000000-AAAAAAAAAAAAAAAAAAAAHg.log";

/// The log of [`copy_to`] goes up in ten parts, and all else at once.
fn limits() -> RequestLimits {
    with(RequestLimits::default(), |it| {
        it.multipart_threshold = 40;
        it.multipart_chunk_size = 4;
    })
}

fn storage(store: &Arc<TestStore>, large: MultipartCreate) -> RemoteStorage {
    builder(store)
        .limits(limits())
        .seal_on_unchecked_store(archiver(1), RULES, large)
        .build()
        .unwrap()
}

fn of_log(store: &TestStore, kind: &str) -> usize {
    let requests = store.requests();
    requests
        .iter()
        .filter(|request| request.kind == kind && request.key == LOG)
        .count()
}

const READ_BACK: [MultipartCreate; 2] = [MultipartCreate::Reserved, MultipartCreate::ReadBack];

#[tokio::test]
async fn where_the_store_guarantees_too_little_each_byte_is_read_back_once() {
    for large in READ_BACK {
        let store = TestStore::new();
        store.count_versions();
        let dir = TempDir::new().unwrap();
        let copy = copy_to(&dir, 0x1e, 0, genesis());
        let receipt = storage(&store, large).copy(copy).await.unwrap();

        let reserved = usize::from(large == MultipartCreate::Reserved);
        assert_eq!(of_log(&store, "create"), reserved);
        assert_eq!(of_log(&store, "part"), 10);
        assert_eq!(of_log(&store, "complete"), 1);
        assert_eq!(of_log(&store, "head"), 2);
        let requests = store.requests();
        let read: Vec<_> = requests.iter().filter(|r| r.kind == "get").collect();
        assert_eq!(read.len(), 1);
        assert_eq!((read[0].key.as_str(), read[0].bytes), (LOG, 40));
        assert_eq!(store.count("put") + store.count("delete"), 0);
        let last = requests.last().unwrap();
        assert!(last.key.ends_with(".manifest"));

        let (log, others) = receipt.objects.split_first().unwrap();
        assert!(!log.create_precondition, "{large:?} only finds out");
        let version = if reserved == 1 {
            "version-2"
        } else {
            "version-1"
        };
        assert_eq!(log.version_id.as_deref(), Some(version));
        assert!(others.iter().all(|object| object.create_precondition));
        let report = verify(&store).await;
        assert!(report.ok(), "{report:#?}");
        let partition = &report.partitions[0];
        assert_eq!(partition.create_precondition_objects.count, 5);
        assert_eq!(partition.bucket_retention_objects.count, 1);
    }
}

#[tokio::test]
async fn a_large_object_is_read_back_in_ranges_of_bounded_size() {
    const LENGTH: usize = 20 << 20;
    let store = TestStore::new();
    let limits = with(RequestLimits::default(), |it| {
        it.multipart_threshold = 1 << 20;
        it.multipart_chunk_size = 1 << 20;
    });
    let storage = builder(&store)
        .limits(limits)
        .seal_on_unchecked_store(archiver(1), RULES, MultipartCreate::ReadBack)
        .build()
        .unwrap();
    let dir = TempDir::new().unwrap();
    let metadata = metadata(0x1e, 0, LENGTH as u64).as_ref().clone();
    let metadata =
        metadata.with_custom_metadata(WormChainRecord::request(genesis()).to_custom_metadata());
    let copy = CopySegment::new(metadata, files(dir.path(), &pattern(LENGTH, 3)));
    storage.copy(copy).await.unwrap();
    let requests = store.requests();
    let read: Vec<_> = requests
        .iter()
        .filter(|request| request.kind == "get")
        .map(|request| request.bytes)
        .collect();
    assert_eq!(read.iter().sum::<u64>(), LENGTH as u64);
    assert!(read.iter().all(|bytes| *bytes <= 8 << 20), "{read:?}");
    assert!(verify(&store).await.ok());
}

/// What somebody else does to the log while it is copied.
#[derive(Clone, Copy, Debug)]
enum Rival {
    /// Other bytes of the same length, before it is looked at.
    BeforeTheHead,
    /// Other bytes of the same length, before it is read.
    BeforeTheGet,
    /// The same bytes, after it was read.
    AfterTheGet,
    /// A longer object.
    Longer,
}

#[tokio::test]
async fn whoever_writes_in_between_is_found_out_and_nothing_is_sealed() {
    for large in READ_BACK {
        for rival in [
            Rival::BeforeTheHead,
            Rival::BeforeTheGet,
            Rival::AfterTheGet,
            Rival::Longer,
        ] {
            for versions in [true, false] {
                let store = TestStore::new();
                if versions {
                    store.count_versions();
                }
                let own = pattern(40, 0x1e);
                let rival_store = Arc::clone(&store);
                store.script(move |request, before| {
                    let write = |bytes: Vec<u8>| rival_store.overwrite(LOG, bytes);
                    match (request.kind, before, rival) {
                        ("head", 0, Rival::BeforeTheHead) | ("get", 0, Rival::BeforeTheGet) => {
                            write(pattern(40, 9));
                        }
                        ("head", 1, Rival::AfterTheGet) => write(own.clone()),
                        ("head", 0, Rival::Longer) => write(pattern(41, 0x1e)),
                        _ => {}
                    }
                    Fate::default()
                });
                let dir = TempDir::new().unwrap();
                let copy = copy_to(&dir, 0x1e, 0, genesis());
                let error = storage(&store, large).copy(copy).await.unwrap_err();
                assert!(
                    matches!(&error, RemoteStorageError::PreconditionFailed { key, .. } if key == LOG),
                    "{large:?}, {rival:?}: {error:?}"
                );
                assert_eq!(store.count("delete") + store.count("abort"), 0);
                assert_eq!(verify(&store).await.manifests(), 0);
            }
        }
    }
}

#[tokio::test]
async fn a_reserved_key_that_is_taken_stops_the_copy_before_its_parts() {
    let store = TestStore::new();
    store.overwrite(LOG, b"somebody else's".to_vec());
    let dir = TempDir::new().unwrap();
    let copy = copy_to(&dir, 0x1e, 0, genesis());
    let error = storage(&store, MultipartCreate::Reserved)
        .copy(copy)
        .await
        .unwrap_err();
    assert!(matches!(&error, RemoteStorageError::ObjectExists { key, .. } if key == LOG));
    assert_eq!(store.count("start"), 0);
    let objects = store.objects().await;
    assert!(objects.contains(&(LOG.to_owned(), 15)), "it is untouched");
}

#[tokio::test(start_paused = true)]
async fn a_completion_whose_answer_was_lost_is_read_back_like_any_other() {
    for large in READ_BACK {
        let store = TestStore::new();
        store.count_versions();
        store.script(|request, before| Fate {
            outcome: if request.kind == "complete" && before == 0 {
                Outcome::AnswerLost
            } else {
                Outcome::Served
            },
            ..Fate::default()
        });
        let dir = TempDir::new().unwrap();
        let copy = copy_to(&dir, 0x1e, 0, genesis());
        storage(&store, large).copy(copy).await.unwrap();
        assert_eq!(store.count("get"), 1);
        assert!(verify(&store).await.ok());
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_fails_is_given_up_and_its_reservation_stays() {
    let store = TestStore::new();
    store.script(|request, _| Fate {
        outcome: match request.part {
            Some(3) => Outcome::Failed(403),
            _ => Outcome::Served,
        },
        ..Fate::default()
    });
    let dir = TempDir::new().unwrap();
    let copy = copy_to(&dir, 0x1e, 0, genesis());
    let storage = storage(&store, MultipartCreate::Reserved);
    storage.copy(copy).await.unwrap_err();
    assert!(store.open_uploads().is_empty());
    assert_eq!((store.count("abort"), store.count("delete")), (1, 0));
    let objects = store.objects().await;
    assert!(objects.contains(&(LOG.to_owned(), 0)));
    // The next attempt has another id, and the same place.
    store.script(|_, _| Fate::default());
    tokio::time::sleep(Duration::from_secs(1)).await;
    storage
        .copy(copy_to(&dir, 0x1f, 0, genesis()))
        .await
        .unwrap();
    let report = verify(&store).await;
    assert_eq!((report.first_break(), report.manifests()), (None, 1));
}

#[tokio::test]
async fn local_tiers_and_memory_create_in_parts_and_read_nothing_back() {
    let root = TempDir::new().unwrap();
    let local = ObjectStoreConfig::Local {
        root: root.path().to_owned(),
    };
    for config in [local, ObjectStoreConfig::InMemory] {
        let backend = config.open().unwrap();
        let memory = backend.object_store.clone();
        let storage = RemoteStorage::builder(backend)
            .limits(limits())
            .seal_on_unchecked_store(archiver(1), RULES, MultipartCreate::Conditional)
            .build()
            .unwrap();
        let dir = TempDir::new().unwrap();
        let receipt = storage
            .copy(copy_to(&dir, 0x1e, 0, genesis()))
            .await
            .unwrap();
        assert!(
            receipt
                .objects
                .iter()
                .all(|object| object.create_precondition)
        );
        let store: Arc<dyn ObjectStore> = match config {
            ObjectStoreConfig::InMemory => memory.unwrap(),
            _ => Arc::new(LocalFileSystem::new_with_prefix(root.path()).unwrap()),
        };
        let request = with(VerifyRequest::default(), |it| it.depth = VerifyDepth::Deep);
        let report = verify_archive(&store, &request, &trusted()).await.unwrap();
        assert!(report.ok() && report.manifests() == 1, "{report:#?}");
        assert_eq!(
            report.partitions[0].head,
            record(receipt.custom_metadata.as_ref()).head
        );
        // The key is taken for good.
        let other = CopySegment::new(
            copy_to(&dir, 0x1e, 0, genesis()).metadata,
            files(dir.path(), &pattern(40, 77)),
        );
        let fresh = RemoteStorage::builder(config.open().unwrap())
            .limits(limits())
            .seal_on_unchecked_store(archiver(1), RULES, MultipartCreate::Conditional)
            .build()
            .unwrap();
        if matches!(config, ObjectStoreConfig::Local { .. }) {
            let error = fresh.copy(other).await.unwrap_err();
            assert!(matches!(error, RemoteStorageError::ObjectExists { .. }));
            let report = verify_archive(&store, &request, &trusted()).await.unwrap();
            assert!(report.ok());
        }
    }
}
