//! Starts on buckets of S3, good and bad.

use std::path::Path as FilePath;

use bytes::Bytes;
use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::archive::{ChainStamp, EpochId, WormChainRecord};
use crate::backends::ObjectStoreConfig;
use crate::backends::http::recorder::everything_of;
use crate::backends::s3::fake::{Completions, Conduct, FakeS3};
use crate::error::{ErrorKind, WormError};
use crate::model::{CopyReceipt, LogSegmentData};
use crate::ops::{CopySegment, FetchSegment};
use crate::testing::segments::SegmentSpec;

const PROBE: &str = "tier/.krabka-worm-probe";
const CHECKSUM: &str = "x-amz-checksum-sha256";
const PART: usize = 5 << 20;

fn no_key_there() -> WormConfig {
    WormConfig {
        signing_key_path: Some("/nowhere/key.pem".into()),
        signing_key_id: Some("key-1".to_owned()),
        ..WormConfig::default()
    }
}

/// The text of a refusal.
fn refusal(result: Result<RemoteStorageBuilder, RemoteStorageError>) -> String {
    match result {
        Err(RemoteStorageError::InvalidArgument(text)) => text,
        other => panic!("{other:?}"),
    }
}

async fn start(server: &FakeS3) -> Result<RemoteStorageBuilder, RemoteStorageError> {
    RemoteStorage::start_archive(server.open(), &WormConfig::default()).await
}

/// Segment 1 of a partition, to be sealed at the start of a run.
fn copy_op(dir: &FilePath, log: &[u8]) -> CopySegment {
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let files = LogSegmentData {
        log_segment: write("0.log", log),
        offset_index: write("0.index", b"offsets"),
        time_index: write("0.timeindex", b"times"),
        transaction_index: None,
        producer_snapshot_index: Some(write("1.snapshot", b"snapshot")),
        leader_epoch_index: Bytes::from_static(b"0\n1\n0 0\n"),
    };
    let stamp = ChainStamp::genesis(EpochId(Uuid::from_u128(3)));
    let stamp = WormChainRecord::request(stamp).to_custom_metadata();
    let spec = SegmentSpec::new(2, 0..=9).size(i32::try_from(log.len()).unwrap());
    CopySegment::new(spec.make().with_custom_metadata(stamp), files)
}

/// Copies a segment whose log has two parts.
async fn copy_large(backend: Backend) -> Result<CopyReceipt, RemoteStorageError> {
    let mut backend = backend;
    backend.limits.multipart_threshold = PART as u64;
    backend.limits.multipart_chunk_size = PART;
    let archive = RemoteStorage::start_archive(backend, &WormConfig::default())
        .await?
        .build()
        .unwrap();
    let dir = TempDir::new().unwrap();
    archive.copy(copy_op(dir.path(), &vec![7; PART + 1])).await
}

#[tokio::test]
async fn what_can_be_seen_without_the_store_is_refused_before_it_is_asked() {
    let server = FakeS3::start(Conduct::default()).await;
    let unconditional = || {
        let mut config = server.config();
        config.conditional_put = false;
        ObjectStoreConfig::S3(config).open().unwrap()
    };
    let opaque = || {
        let store = server.open().object_store.unwrap();
        Backend::from_object_store(store, None).unwrap()
    };
    let dir = TempDir::new().unwrap();
    let local = || {
        let root = dir.path().join("tier");
        ObjectStoreConfig::Local { root }.open().unwrap()
    };
    let memory = || ObjectStoreConfig::InMemory.open().unwrap();
    // Also where the key cannot be loaded, and the limit is too small: those come later.
    let small = WormConfig {
        custom_metadata_limit: 1,
        ..no_key_there()
    };
    for config in [WormConfig::default(), no_key_there(), small.clone()] {
        let text = refusal(RemoteStorage::start_archive(unconditional(), &config).await);
        assert!(text.contains("`conditional_put = true`"), "{text}");
        assert!(text.contains("`bucket`"), "{text}");
        for backend in [opaque(), local(), memory()] {
            let text = refusal(RemoteStorage::start_archive(backend, &config).await);
            assert!(text.contains("an object-store configuration"), "{text}");
            assert!(text.contains("`allow_unprotected`"), "{text}");
        }
        // A store that can protect has to.
        let allowed = WormConfig {
            allow_unprotected: true,
            ..config
        };
        let text = refusal(RemoteStorage::start_archive(unconditional(), &allowed).await);
        assert!(text.contains("`conditional_put = true`"), "{text}");
    }
    let small = RemoteStorage::start_archive(server.open(), &small).await;
    assert!(refusal(small).contains("custom_metadata_limit"));
    let error = RemoteStorage::start_archive(server.open(), &no_key_there())
        .await
        .unwrap_err();
    assert!(
        matches!(&error, RemoteStorageError::Worm(WormError::SigningKey(text)) if text.contains("/nowhere/key.pem")),
        "{error:?}"
    );
    assert!(server.seen().is_empty(), "{:?}", server.seen());
    assert!(!dir.path().join("tier").join(".krabka-worm-probe").exists());
}

#[cfg(feature = "azure")]
#[tokio::test]
async fn azure_is_not_supported_yet_whatever_is_allowed() {
    let config = crate::backends::AzureConfig {
        container: "container".to_owned(),
        use_emulator: true,
        ..crate::backends::AzureConfig::default()
    };
    let backend = ObjectStoreConfig::Azure(config).open().unwrap();
    for allow_unprotected in [false, true] {
        let config = WormConfig {
            allow_unprotected,
            ..no_key_there()
        };
        let text = refusal(RemoteStorage::start_archive(backend.clone(), &config).await);
        assert!(
            text.contains("Azure Blob Storage is not supported yet"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_policy_that_is_not_good_enough_and_one_that_cannot_be_read_are_two_errors() {
    let governance = "<ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention>\
                      <Mode>GOVERNANCE</Mode><Days>0</Days></DefaultRetention></Rule>";
    for (versioning, object_lock, expected) in [
        (
            "",
            None,
            "bucket `bucket` does not protect an archive: its versioning is not enabled; it has no \
             Object Lock configuration",
        ),
        (
            "<Status>Enabled</Status>",
            Some(governance),
            "bucket `bucket` does not protect an archive: its default retention has the mode \
             `GOVERNANCE`, not `COMPLIANCE`; the period of its default retention is `0`, not a \
             number above zero",
        ),
    ] {
        let server = FakeS3::start(Conduct {
            versioning,
            object_lock,
            ..Conduct::default()
        })
        .await;
        assert_eq!(refusal(start(&server).await), expected);
        assert!(server.seen().iter().all(|seen| seen.method == "GET"));
        assert!(server.objects().is_empty());
    }

    let server = FakeS3::start(Conduct {
        versioning: "<Unclosed>",
        ..Conduct::default()
    })
    .await;
    let error = start(&server).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error:?}");
    assert!(error.to_string().contains("bucket?versioning"), "{error}");

    let backend = server.open();
    drop(server);
    let error = RemoteStorage::start_archive(backend, &WormConfig::default())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(!everything_of(&error).contains("MARKED"));
}

#[tokio::test]
async fn a_client_in_the_place_of_the_stores_own_proves_no_retention() {
    let server = FakeS3::start(Conduct::default()).await;
    let mut backend = server.open();
    backend.client = ObjectStoreConfig::InMemory.open().unwrap().client;
    let started = RemoteStorage::start_archive(backend, &WormConfig::default()).await;
    let text = refusal(started);
    assert!(text.contains("nothing is known of its retention"), "{text}");
}

#[tokio::test]
async fn a_store_that_ignores_the_condition_is_refused_for_what_it_did() {
    let server = FakeS3::start(Conduct {
        honours_create: false,
        ..Conduct::default()
    })
    .await;
    let text = refusal(start(&server).await);
    assert!(
        text.starts_with("s3://bucket/tier cannot hold an archive"),
        "{text}"
    );
    assert!(text.contains("ignores the condition of a create"), "{text}");
    assert_eq!(server.objects().into_keys().collect::<Vec<_>>(), [PROBE]);
}

#[tokio::test]
async fn a_start_leaves_one_probe_and_the_next_one_finds_it() {
    let server = FakeS3::start(Conduct::default()).await;
    for _ in 0..3 {
        start(&server).await.unwrap();
    }
    assert_eq!(server.writes(), 1);
    assert_eq!(server.open_uploads(), 0);
    let objects = server.objects();
    assert_eq!(objects.len(), 1);
    assert_eq!(objects[PROBE], b"krabka-worm-probe v1\n");
}

#[tokio::test]
async fn large_objects_are_completed_on_condition_where_the_store_honours_it() {
    let server = FakeS3::start(Conduct::default()).await;
    let receipt = copy_large(server.open()).await.unwrap();
    assert_eq!(receipt.objects.len(), 5);
    for object in &receipt.objects {
        assert!(object.create_precondition, "{object:?}");
        assert_eq!(object.version_id.as_deref(), Some("version"), "{object:?}");
    }
    let seen = server.seen();
    let completions: Vec<_> = seen
        .iter()
        .filter(|seen| seen.method == "POST" && seen.query().starts_with("uploadId="))
        .collect();
    assert_eq!(completions.len(), 2, "the trial's and the log's");
    for completion in completions {
        assert_eq!(completion.header("if-none-match"), Some("*"));
    }
    assert_eq!(
        server.writes(),
        7,
        "probe, five objects, manifest: each once"
    );
}

#[tokio::test]
async fn large_objects_are_reserved_and_read_back_where_it_does_not() {
    for completions in [Completions::Ignored, Completions::Refused(400)] {
        let server = FakeS3::start(Conduct {
            completions,
            ..Conduct::default()
        })
        .await;
        let receipt = copy_large(server.open()).await.unwrap();
        let log = &receipt.objects[0];
        assert!(!log.create_precondition, "{log:?}");
        assert!(
            receipt.objects[1..]
                .iter()
                .all(|object| object.create_precondition)
        );
        let objects = server.objects();
        assert_eq!(objects[&log.key].len(), PART + 1);
        let reserved = server.seen().into_iter().any(|seen| {
            let conditional = seen.header("if-none-match") == Some("*");
            seen.uri.path().ends_with(".log") && conditional && seen.body.is_empty()
        });
        assert!(reserved);
    }
}

#[tokio::test]
async fn each_put_and_each_part_of_an_archive_has_a_checksum_whatever_was_configured() {
    for (checksum_sha256, completions) in [
        (true, Completions::Honoured),
        (false, Completions::Honoured),
        (false, Completions::Ignored),
    ] {
        let server = FakeS3::start(Conduct {
            completions,
            ..Conduct::default()
        })
        .await;
        let mut config = server.config();
        config.checksum_sha256 = checksum_sha256;
        let backend = ObjectStoreConfig::S3(config).open().unwrap();
        copy_large(backend).await.unwrap();
        let seen = server.seen();
        let puts: Vec<_> = seen.iter().filter(|seen| seen.method == "PUT").collect();
        // The probe twice and its part, four objects, two parts of the log, the manifest.
        let reserved = usize::from(completions == Completions::Ignored);
        assert_eq!(puts.len(), 10 + reserved);
        for put in puts {
            assert!(
                put.header(CHECKSUM).is_some(),
                "{} {:?}",
                put.uri,
                put.headers
            );
        }
    }
}

#[tokio::test]
async fn a_write_only_archive_is_refused_reads_from_the_start() {
    let server = FakeS3::start(Conduct::default()).await;
    let config = WormConfig {
        write_only: true,
        ..WormConfig::default()
    };
    let archive = RemoteStorage::start_archive(server.open(), &config)
        .await
        .unwrap()
        .build()
        .unwrap();
    let dir = TempDir::new().unwrap();
    let copy = copy_op(dir.path(), b"0123456789");
    let fetch = FetchSegment::new(std::sync::Arc::clone(&copy.metadata), 0, None);
    archive.copy(copy).await.unwrap();
    let error = archive.fetch(fetch).await.unwrap_err();
    assert!(
        matches!(error, RemoteStorageError::Worm(WormError::ReadRefused)),
        "{error:?}"
    );
}
