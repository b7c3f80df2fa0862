//! One copy at a time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use krabka_remote_storage::archive::{ManifestPublicKey, ManifestSigner};
use krabka_remote_storage::backends::RequestLimits;
use krabka_remote_storage::layers::SealRules;
use krabka_remote_storage::model::CopyPhase;
use krabka_remote_storage::ops::{Delete, Put, StoreTarget};
use krabka_remote_storage::segment::MultipartCreate;
use krabka_remote_storage::{
    ChainHead, ChainStamp, CopySegment, CustomMetadata, DeleteSegment, ErrorKind, ManifestSeq,
    RemoteStorageError, WormArchiver, WormError,
};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use object_store::path::Path;
use tempfile::TempDir;
use tokio::time::Instant;

use super::leader::{
    KEY_ID, RULES, archive, archiver, builder, copy_to, epoch, genesis, record, trusted, verify,
};
use crate::support::with;
use krabka_remote_storage::testing::segments::{files, metadata};
use krabka_remote_storage::testing::store::{Fate, Outcome, TestStore};

fn dir() -> TempDir {
    TempDir::new().unwrap()
}

/// Fails each create of a manifest like this, and serves the rest.
fn manifests(store: &TestStore, outcome: Outcome, delay: Duration) {
    store.script(move |request, _| {
        if request.kind == "create" && request.key.ends_with(".manifest") {
            Fate { delay, outcome }
        } else {
            Fate::default()
        }
    });
}

#[tokio::test]
async fn a_sealed_copy_is_one_create_per_object_and_the_manifest_last() {
    let store = TestStore::new();
    let storage = archive(&store);
    let dir = dir();
    let copy = copy_to(&dir, 0x1e, 0, genesis());
    let receipt = storage.copy(copy.clone()).await.unwrap();

    let requests = store.requests();
    assert_eq!(requests.len(), 7, "nothing is read back: {requests:?}");
    assert!(requests.iter().all(|request| request.kind == "create"));
    let last = &requests[6].key;
    assert!(last.ends_with(".manifest"), "{last}");
    assert_eq!(copy.progress.snapshot().phase, CopyPhase::Done);
    assert_eq!(receipt.objects.len(), 6);
    assert!(
        receipt
            .objects
            .iter()
            .all(|object| object.create_precondition)
    );

    let record = record(receipt.custom_metadata.as_ref());
    assert_eq!(record.stamp(), genesis());
    let report = verify(&store).await;
    assert!(report.ok() && report.fully_attested(), "{report:#?}");
    assert_eq!(report.partitions[0].head, record.head);
}

#[tokio::test]
async fn copies_in_order_make_one_run() {
    let store = TestStore::new();
    let storage = archive(&store);
    let dir = dir();
    let mut stamp = genesis();
    for number in 0..4 {
        let copy = copy_to(
            &dir,
            0x1e + number,
            10 * i64::try_from(number).unwrap(),
            stamp,
        );
        let receipt = storage.copy(copy).await.unwrap();
        stamp = record(receipt.custom_metadata.as_ref())
            .next_stamp()
            .unwrap();
    }
    let report = verify(&store).await;
    assert!(report.ok() && !report.has_epoch_restarts());
    assert_eq!(report.manifests(), 4);
}

#[derive(Debug)]
struct Broken(ManifestPublicKey);

#[async_trait]
impl ManifestSigner for Broken {
    fn key_id(&self) -> &str {
        KEY_ID
    }

    fn public_key(&self) -> &ManifestPublicKey {
        &self.0
    }

    async fn sign(&self, _: &[u8]) -> Result<[u8; 64], WormError> {
        Err(WormError::SigningKey("the key service is away".to_owned()))
    }
}

fn with_metadata(dir: &TempDir, custom_metadata: Option<&[u8]>) -> CopySegment {
    let mut segment = metadata(0x1e, 0, 10).as_ref().clone();
    if let Some(bytes) = custom_metadata {
        segment = segment.with_custom_metadata(CustomMetadata(bytes.to_vec()));
    }
    CopySegment::new(segment, files(dir.path(), b"0123456789"))
}

#[tokio::test]
async fn what_cannot_be_sealed_is_refused_before_the_first_object() {
    let store = TestStore::new();
    let storage = archive(&store);
    let dir = dir();
    let worm = |error: RemoteStorageError| match error {
        RemoteStorageError::Worm(error) => error,
        other => panic!("{other:?}"),
    };
    let error = storage.copy(with_metadata(&dir, None)).await.unwrap_err();
    assert_eq!(worm(error), WormError::MissingChainStamp);
    let error = storage
        .copy(with_metadata(&dir, Some(b"{")))
        .await
        .unwrap_err();
    assert!(matches!(worm(error), WormError::MalformedChainRecord(_)));
    let newer = with_metadata(&dir, Some(br#"{"version":1}"#));
    let error = storage.copy(newer).await.unwrap_err();
    assert!(matches!(
        worm(error),
        WormError::UnsupportedChainRecordVersion { found: Some(_), .. }
    ));

    let public = *trusted().get(KEY_ID).unwrap();
    let broken = WormArchiver::new(Some(Arc::new(Broken(public))));
    let keyless = builder(&store)
        .seal_on_unchecked_store(broken, RULES, MultipartCreate::Conditional)
        .build()
        .unwrap();
    let error = keyless
        .copy(copy_to(&dir, 0x1e, 0, genesis()))
        .await
        .unwrap_err();
    assert!(matches!(worm(error), WormError::SigningKey(text) if text.contains("away")));

    let rules = with(RULES, |it| it.custom_metadata_limit = 128);
    let narrow = builder(&store)
        .seal_on_unchecked_store(archiver(1), rules, MultipartCreate::Conditional)
        .build()
        .unwrap();
    let error = narrow
        .copy(copy_to(&dir, 0x1e, 0, genesis()))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("128"), "{error}");

    assert_eq!(store.requests(), []);
}

#[tokio::test]
async fn a_store_that_must_name_versions_and_names_none_gets_no_manifest() {
    let store = TestStore::new();
    let rules = with(RULES, |it| it.require_version_ids = true);
    let storage = builder(&store)
        .seal_on_unchecked_store(archiver(1), rules, MultipartCreate::Conditional)
        .build()
        .unwrap();
    let dir = dir();
    let error = storage
        .copy(copy_to(&dir, 0x1e, 0, genesis()))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, RemoteStorageError::Worm(WormError::MissingVersionId { key, .. }) if key.ends_with(".log")),
        "{error:?}"
    );
    assert_eq!(store.count("head"), 1, "it was asked for");
    assert_eq!(store.objects().await.len(), 6, "and nothing was removed");
}

#[tokio::test]
async fn a_receipt_names_the_version_of_its_manifest_where_that_fits() {
    for (custom_metadata_limit, version) in [(1024, Some("version-1")), (252, None)] {
        let store = TestStore::new();
        store.count_versions();
        let rules = SealRules::new(custom_metadata_limit, true);
        let storage = builder(&store)
            .seal_on_unchecked_store(archiver(1), rules, MultipartCreate::Conditional)
            .build()
            .unwrap();
        let dir = dir();
        let receipt = storage
            .copy(copy_to(&dir, 0x1e, 0, genesis()))
            .await
            .unwrap();
        assert_eq!(store.requests().len(), 7, "each write named its version");
        let custom_metadata = receipt.custom_metadata.as_ref().unwrap();
        assert!(custom_metadata.0.len() <= custom_metadata_limit);
        let record = record(Some(custom_metadata));
        assert_eq!(record.manifest_version_id.as_deref(), version);
        assert!(verify(&store).await.ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_copy_removes_nothing_and_its_place_stays_free() {
    let store = TestStore::new();
    store.script(|request, _| {
        if request.key.ends_with(".timeindex") {
            Fate {
                delay: Duration::from_secs(1),
                outcome: Outcome::Failed(403),
            }
        } else {
            Fate::default()
        }
    });
    let storage = archive(&store);
    let dir = dir();
    let copy = copy_to(&dir, 0x1e, 0, genesis());
    let error = storage.copy(copy.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected);
    assert_eq!(store.count("delete"), 0);
    assert_eq!(store.objects().await.len(), 4, "all but it and the log");

    store.script(|_, _| Fate::default());
    storage
        .copy(copy_to(&dir, 0x1f, 0, genesis()))
        .await
        .unwrap();
    let report = verify(&store).await;
    assert_eq!(report.manifests(), 1);
    assert_eq!(report.first_break(), None);
}

#[tokio::test(start_paused = true)]
async fn a_commit_ends_though_its_caller_is_gone_and_the_next_try_finds_it() {
    let store = TestStore::new();
    manifests(&store, Outcome::Served, Duration::from_secs(5));
    let storage = archive(&store);
    let dir = dir();
    let copy = copy_to(&dir, 0x1e, 0, genesis());
    {
        let running = storage.copy(copy.clone());
        let at_commit = async {
            while copy.progress.snapshot().phase != CopyPhase::Sealing {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        };
        tokio::select! {
            result = running => panic!("{result:?}"),
            () = at_commit => {}
        }
    }
    assert_eq!(verify(&store).await.manifests(), 0);
    let sent = store.requests().len();
    let receipt = storage.copy(copy.clone()).await.unwrap();
    assert_eq!(store.requests().len(), sent, "it only waited");
    assert_eq!(copy.progress.snapshot().phase, CopyPhase::Done);
    let report = verify(&store).await;
    assert!(report.ok() && report.manifests() == 1);
    let record = record(receipt.custom_metadata.as_ref());
    assert_eq!(record.head, report.partitions[0].head);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_during_the_commit_leaves_the_outcome_open_and_the_commit_running() {
    let store = TestStore::new();
    manifests(&store, Outcome::Served, Duration::from_secs(20));
    let limits = with(RequestLimits::default(), |it| {
        it.copy_deadline = Duration::from_secs(10);
    });
    let storage = builder(&store)
        .limits(limits)
        .seal_on_unchecked_store(archiver(1), RULES, MultipartCreate::Conditional)
        .build()
        .unwrap();
    let dir = dir();
    let copy = copy_to(&dir, 0x1e, 0, genesis());
    let began = Instant::now();
    let error = storage.copy(copy.clone()).await.unwrap_err();
    assert_eq!(began.elapsed(), Duration::from_secs(10));
    assert!(
        matches!(&error, RemoteStorageError::OutcomeUnknown { key, .. } if key.ends_with(".manifest")),
        "{error:?}"
    );
    // Another segment may not have its place meanwhile.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let other = storage.copy(copy_to(&dir, 0x1f, 0, genesis())).await;
    assert_eq!(other.unwrap_err().kind(), ErrorKind::Conflict);
    storage.copy(copy).await.unwrap();
    assert_eq!(verify(&store).await.manifests(), 1);
    assert_eq!(store.count("create"), 7);
}

#[tokio::test(start_paused = true)]
async fn a_manifest_whose_outcome_is_unknown_is_sent_again_and_never_another() {
    let store = TestStore::new();
    for lost in [Outcome::AnswerLost, Outcome::Failed(503)] {
        let dir = dir();
        let storage = archive(&store);
        let topic_epoch = if lost == Outcome::AnswerLost { 1 } else { 2 };
        let stamp = ChainStamp::genesis(epoch(topic_epoch));
        let id = 0x100 * topic_epoch;
        // The store answers no create of a manifest, nor any question about it.
        store.script(move |request, _| Fate {
            outcome: match request.kind {
                "create" if request.key.ends_with(".manifest") => lost,
                "head" | "get" => Outcome::Failed(503),
                _ => Outcome::Served,
            },
            ..Fate::default()
        });
        let copy = copy_to(&dir, id, 0, stamp);
        let error = storage.copy(copy.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error:?}");
        assert_eq!(
            storage.copy(copy.clone()).await.unwrap_err().kind(),
            ErrorKind::OutcomeUnknown
        );
        store.script(|_, _| Fate::default());
        let other = storage.copy(copy_to(&dir, id + 1, 0, stamp)).await;
        assert!(
            matches!(other, Err(RemoteStorageError::PreconditionFailed { ref reason, .. }) if reason.contains("position 0")),
            "{other:?}"
        );
        let receipt = storage.copy(copy).await.unwrap();
        let next = record(receipt.custom_metadata.as_ref())
            .next_stamp()
            .unwrap();
        storage.copy(copy_to(&dir, id + 2, 10, next)).await.unwrap();
    }
    let report = verify(&store).await;
    assert!(report.ok(), "{report:#?}");
    assert_eq!(report.manifests(), 4);
    assert_eq!(report.partitions[0].epochs.len(), 2);
}

#[tokio::test]
async fn a_place_must_continue_the_head_that_this_process_wrote() {
    let store = TestStore::new();
    let storage = archive(&store);
    let dir = dir();
    storage.copy(copy_to(&dir, 1, 0, genesis())).await.unwrap();
    store.forget_requests();
    let astray = ChainStamp {
        seq: ManifestSeq(1),
        prev_head: ChainHead([7; 32]),
        ..genesis()
    };
    let error = storage
        .copy(copy_to(&dir, 2, 10, astray))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(store.requests(), []);
    // Another epoch, and a place that others have come to meanwhile, are none of its business.
    for stamp in [
        ChainStamp::genesis(epoch(2)),
        ChainStamp {
            seq: ManifestSeq(5),
            ..astray
        },
    ] {
        let storage = archive(&TestStore::new());
        storage.copy(copy_to(&dir, 1, 0, genesis())).await.unwrap();
        storage.copy(copy_to(&dir, 2, 10, stamp)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn copies_of_one_partition_follow_each_other() {
    let store = TestStore::new();
    store.throttle(Duration::from_secs(1), 1e9);
    let storage = archive(&store);
    let dir = dir();
    let (first, second) = tokio::join!(
        storage.copy(copy_to(&dir, 1, 0, genesis())),
        storage.copy(copy_to(&dir, 2, 0, genesis())),
    );
    first.unwrap();
    assert_eq!(second.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(store.count("create"), 7, "the second sent nothing");
}

#[tokio::test]
async fn an_archive_has_no_way_to_replace_or_remove() {
    let store = TestStore::new();
    let storage = archive(&store);
    let dir = dir();
    let copy = copy_to(&dir, 1, 0, genesis());
    storage.copy(copy.clone()).await.unwrap();
    store.forget_requests();
    let error = storage
        .delete(DeleteSegment::new(copy.metadata))
        .await
        .unwrap_err();
    assert!(matches!(
        error,
        RemoteStorageError::Worm(WormError::DeleteRefused { .. })
    ));
    let target = StoreTarget::object(Path::from("orders"));
    let delete = Delete::new(target.clone());
    let error = storage.send(delete).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    let payload = object_store::PutPayload::from_static(b"x");
    let error = storage.send(Put::new(target, payload)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(store.requests(), []);
}

#[test]
fn seals_and_failures_are_counted() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let store = TestStore::new();
            let storage = archive(&store);
            let dir = dir();
            let copy = copy_to(&dir, 1, 0, genesis());
            storage.copy(copy.clone()).await.unwrap();
            // Answered from memory: no seal.
            storage.copy(copy).await.unwrap();
            storage.copy(with_metadata(&dir, None)).await.unwrap_err();
            manifests(&store, Outcome::Failed(503), Duration::ZERO);
            let other = copy_to(&dir, 2, 0, ChainStamp::genesis(epoch(2)));
            storage.copy(other).await.unwrap_err();
        });
    });
    let values: Vec<_> = snapshotter
        .snapshot()
        .into_vec()
        .into_iter()
        .map(|(key, _, _, value)| (key.key().name().to_owned(), value))
        .filter(|(name, _)| name.starts_with("worm_"))
        .collect();
    assert!(
        values.contains(&(
            "worm_manifests_sealed_total".to_owned(),
            DebugValue::Counter(1)
        )),
        "{values:?}"
    );
    assert!(
        values.contains(&(
            "worm_manifest_seal_failures_total".to_owned(),
            DebugValue::Counter(2)
        )),
        "{values:?}"
    );
}
