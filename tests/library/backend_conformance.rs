//! One contract for every store: the four operations, and the requests below them.
//!
//! Memory and a local directory always; the servers when `tests/run.sh` has started them.
#![cfg(all(feature = "aws", feature = "gcp", feature = "azure"))]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use krabka_remote_storage::layout::{partition_dir_key, segment_key};
use krabka_remote_storage::ops::{
    AbortUpload, CompleteUpload, Create, Head, List, ListUploads, PutPart, StartUpload,
    StoreTarget, WriteMode,
};
use krabka_remote_storage::{
    CopySegment, DeleteSegment, ErrorKind, FetchIndex, FetchSegment, IndexType, LOG_FILE_SUFFIX,
    RemoteLogSegmentMetadata, RemoteStorage, RemoteStorageError,
};
use object_store::PutPayload;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::support::servers;
use crate::support::with;
use krabka_remote_storage::testing::segments::{files, metadata, pattern};

/// One store, opened with parts of 5 MiB, the smallest that S3 takes.
struct Fixture {
    storage: RemoteStorage,
    dir: tempfile::TempDir,
}

const PART: usize = 5 << 20;

fn open(name: &str) -> Option<Fixture> {
    let dir = tempfile::tempdir().unwrap();
    let config = servers::store(name, dir.path())?;
    let backend = config.open().unwrap();
    let mut limits = backend.limits.clone();
    limits.multipart_threshold = PART as u64;
    limits.multipart_chunk_size = PART;
    limits.max_retries = 2;
    let storage = RemoteStorage::builder(backend)
        .limits(limits)
        .build()
        .unwrap();
    Some(Fixture { storage, dir })
}

impl Fixture {
    async fn copy(&self, log: &[u8]) -> Arc<RemoteLogSegmentMetadata> {
        let metadata = metadata(Uuid::new_v4().as_u128(), 11, log.len() as u64);
        let copy = CopySegment::new(Arc::clone(&metadata), files(self.dir.path(), log));
        self.storage.copy(copy).await.unwrap();
        metadata
    }

    async fn fetch(
        &self,
        metadata: &Arc<RemoteLogSegmentMetadata>,
        start: u32,
        end: Option<u32>,
    ) -> Result<Bytes, RemoteStorageError> {
        let fetch = FetchSegment::new(Arc::clone(metadata), start, end);
        self.storage.fetch(fetch).await
    }

    fn target(&self, metadata: &RemoteLogSegmentMetadata, suffix: &str) -> StoreTarget {
        StoreTarget::object(segment_key(self.storage.prefix(), metadata, suffix).unwrap())
    }
}

async fn ranges_follow_the_contract(fixture: Fixture) {
    let metadata = fixture.copy(b"0123456789").await;
    for (start, end, expected) in [
        (2, Some(5), "2345"),
        (7, None, "789"),
        (8, Some(99), "89"),
        (3, Some(3), "3"),
        (0, None, "0123456789"),
        (0, Some(u32::MAX), "0123456789"),
        (10, None, ""),
        (10, Some(12), ""),
    ] {
        let bytes = fixture.fetch(&metadata, start, end).await.unwrap();
        assert_eq!(bytes, expected, "{start}..={end:?}");
    }
    for (start, end) in [(11, None), (11, Some(12)), (u32::MAX, None), (5, Some(4))] {
        let error = fixture.fetch(&metadata, start, end).await.unwrap_err();
        assert!(
            matches!(error, RemoteStorageError::InvalidArgument(_)),
            "{start}: {error:?}"
        );
    }
}

async fn an_empty_log_is_empty(fixture: Fixture) {
    let metadata = fixture.copy(b"").await;
    for end in [None, Some(0), Some(9)] {
        assert_eq!(fixture.fetch(&metadata, 0, end).await.unwrap(), "");
    }
    let error = fixture.fetch(&metadata, 1, None).await.unwrap_err();
    assert!(
        matches!(error, RemoteStorageError::InvalidArgument(_)),
        "{error:?}"
    );
}

async fn a_log_in_parts_comes_back_byte_for_byte(fixture: Fixture) {
    let log = pattern(2 * PART + 4_321, 5);
    let metadata = fixture.copy(&log).await;
    let whole = fixture.fetch(&metadata, 0, None).await.unwrap();
    assert!(whole == log, "{} bytes came back", whole.len());
    // Across the border of two parts.
    let (start, end) = (PART - 3, PART + 4);
    let (first, last) = (u32::try_from(start).unwrap(), u32::try_from(end).unwrap());
    let bytes = fixture.fetch(&metadata, first, Some(last)).await.unwrap();
    assert_eq!(bytes, log[start..=end]);
}

async fn every_index_comes_back_and_a_missing_one_is_not_found(fixture: Fixture) {
    let metadata = fixture.copy(b"0123456789").await;
    for (index, expected) in [
        (IndexType::Offset, "offset index"),
        (IndexType::Timestamp, "time index"),
        (IndexType::ProducerSnapshot, "snapshot"),
        (IndexType::LeaderEpoch, "0\n1\n0 0\n"),
        (IndexType::Transaction, "transaction index"),
    ] {
        let fetch = FetchIndex::new(Arc::clone(&metadata), index);
        assert_eq!(fixture.storage.fetch_index(fetch).await.unwrap(), expected);
    }
    let other = metadata_of_nothing();
    let error = fixture
        .storage
        .fetch_index(FetchIndex::new(Arc::clone(&other), IndexType::Offset))
        .await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::NotFound);
    for start in [0, 3] {
        let error = fixture.fetch(&other, start, None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}");
    }
}

fn metadata_of_nothing() -> Arc<RemoteLogSegmentMetadata> {
    metadata(Uuid::new_v4().as_u128(), 0, 1)
}

async fn a_delete_is_complete_idempotent_and_touches_no_other_segment(fixture: Fixture) {
    let gone = fixture.copy(b"goes").await;
    let stays = fixture.copy(b"stays").await;
    for _ in 0..2 {
        fixture
            .storage
            .delete(DeleteSegment::new(Arc::clone(&gone)))
            .await
            .unwrap();
    }
    fixture
        .storage
        .delete(DeleteSegment::new(metadata_of_nothing()))
        .await
        .unwrap();
    let error = fixture.fetch(&gone, 0, None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(fixture.fetch(&stays, 0, None).await.unwrap(), "stays");
    let directory = partition_dir_key(fixture.storage.prefix(), &stays).unwrap();
    let target = StoreTarget::object(directory);
    let listing = fixture.storage.send(List::new(target)).await.unwrap();
    assert_eq!(listing.objects.len(), 6, "{:?}", listing.objects);
}

async fn a_repeated_copy_overwrites(fixture: Fixture) {
    let metadata = fixture.copy(b"first").await;
    let again = CopySegment::new(Arc::clone(&metadata), files(fixture.dir.path(), b"second"));
    fixture.storage.copy(again).await.unwrap();
    assert_eq!(fixture.fetch(&metadata, 0, None).await.unwrap(), "second");
}

async fn a_create_happens_once(fixture: Fixture) {
    let metadata = metadata_of_nothing();
    let target = fixture.target(&metadata, LOG_FILE_SUFFIX);
    let create = |bytes: &'static [u8]| {
        Create::new(
            target.clone(),
            PutPayload::from_static(bytes),
            Sha256::digest(bytes).into(),
        )
    };
    let store = &fixture.storage;
    let first = store.send(create(b"ours")).await.unwrap();
    assert!(first.create_precondition);
    let again = store.send(create(b"ours")).await.unwrap();
    assert_eq!(again.e_tag, first.e_tag, "the object was not written again");
    for foreign in [&b"else"[..], b"another length"] {
        let error = store.send(create(foreign)).await.unwrap_err();
        assert!(
            matches!(error, RemoteStorageError::ObjectExists { .. }),
            "{error:?}"
        );
    }
    assert_eq!(fixture.fetch(&metadata, 0, None).await.unwrap(), "ours");
}

async fn of_many_rival_creates_one_wins(fixture: Fixture) {
    let target = fixture.target(&metadata_of_nothing(), LOG_FILE_SUFFIX);
    let rivals = (0..6_u8).map(|rival| {
        let create = Create::new(
            target.clone(),
            vec![rival; 1_000].into(),
            Sha256::digest(vec![rival; 1_000]).into(),
        );
        fixture.storage.send(create)
    });
    let results = futures::future::join_all(rivals).await;
    assert_eq!(
        results.iter().filter(|result| result.is_ok()).count(),
        1,
        "{results:?}"
    );
    for error in results.into_iter().filter_map(Result::err) {
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
    }
}

/// Where the store has no such condition, nothing is sent.
async fn an_upload_is_completed_as_a_create_once_or_refused(fixture: Fixture) {
    let metadata = metadata_of_nothing();
    let target = fixture.target(&metadata, LOG_FILE_SUFFIX);
    let store = &fixture.storage;
    let log = [pattern(PART, 3), pattern(77, 4)];
    let uploaded = async |parts: [Vec<u8>; 2]| {
        let mode = WriteMode::Create {
            size_bytes: (PART + 77) as u64,
            sha256: Sha256::digest(parts.concat()).into(),
        };
        let start = StartUpload::new(target.clone());
        let upload = store.send(start).await.unwrap();
        let mut tags = Vec::new();
        let mut offset = 0;
        for (number, part) in (1..).zip(parts) {
            let length = part.len() as u64;
            let part = PutPart::new(
                target.clone(),
                Arc::clone(&upload),
                number,
                offset,
                part.into(),
            );
            offset += length;
            tags.push(store.send(part).await.unwrap());
        }
        CompleteUpload::new(target.clone(), upload, tags.into(), mode)
    };
    let first = uploaded(log.clone()).await;
    match store.send(first.clone()).await {
        Ok(written) => assert!(written.create_precondition),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Rejected, "{error:?}");
            let none = store.send(Head::new(target)).await.unwrap();
            assert_eq!(none, None);
            return;
        }
    }
    // As after a lost answer: the same request again.
    store.send(first).await.unwrap();
    let foreign = uploaded([pattern(PART, 5), pattern(77, 6)]).await;
    let error = store.send(foreign.clone()).await.unwrap_err();
    assert!(
        matches!(error, RemoteStorageError::ObjectExists { .. }),
        "{error:?}"
    );
    let abort = AbortUpload::new(target.clone(), foreign.upload);
    store.send(abort).await.unwrap();
    let whole = fixture.fetch(&metadata, 0, None).await.unwrap();
    assert!(whole == log.concat(), "{} bytes came back", whole.len());
}

async fn an_abandoned_upload_shows_nothing_and_can_be_given_up(fixture: Fixture) {
    let metadata = metadata_of_nothing();
    let target = fixture.target(&metadata, LOG_FILE_SUFFIX);
    let store = &fixture.storage;
    let upload = store.send(StartUpload::new(target.clone())).await.unwrap();
    let part = PutPart::new(
        target.clone(),
        Arc::clone(&upload),
        1,
        0,
        vec![7; PART].into(),
    );
    store.send(part).await.unwrap();
    let head = Head::new(target.clone());
    assert_eq!(
        store.send(head).await.unwrap(),
        None,
        "nothing is visible yet"
    );

    let all = ListUploads::new(StoreTarget::object(
        fixture.storage.prefix().as_path().clone(),
    ));
    if let Some(open) = store.send(all.clone()).await.unwrap() {
        let keys: Vec<_> = open.iter().map(|upload| &upload.key).collect();
        assert_eq!(keys, [target.key()]);
        assert_eq!(open[0].upload, upload);
    }
    for _ in 0..2 {
        let abort = AbortUpload::new(target.clone(), Arc::clone(&upload));
        store.send(abort).await.unwrap();
    }
    if let Some(open) = store.send(all).await.unwrap() {
        assert_eq!(open, []);
    }
}

async fn a_listing_of_what_is_not_there_is_empty(fixture: Fixture) {
    let directory = partition_dir_key(fixture.storage.prefix(), &metadata_of_nothing()).unwrap();
    let target = StoreTarget::object(directory);
    let listing = fixture.storage.send(List::new(target)).await.unwrap();
    assert_eq!(listing, krabka_remote_storage::ops::Listing::default());
}

macro_rules! conformance {
    ($($module:ident = $store:ident: [$($test:ident),* $(,)?])*) => {$(
        mod $module {
            $(
                #[tokio::test]
                async fn $test() {
                    let Some(fixture) = super::open(stringify!($store)) else {
                        return;
                    };
                    let limit = std::time::Duration::from_mins(2);
                    tokio::time::timeout(limit, super::$test(fixture)).await.expect("hangs");
                }
            )*
        }
    )*};
    (all $($store:ident)*) => {
        conformance! {$(
            $store = $store: [
                ranges_follow_the_contract,
                an_empty_log_is_empty,
                a_log_in_parts_comes_back_byte_for_byte,
                every_index_comes_back_and_a_missing_one_is_not_found,
                a_delete_is_complete_idempotent_and_touches_no_other_segment,
                a_repeated_copy_overwrites,
                a_create_happens_once,
                of_many_rival_creates_one_wins,
                an_abandoned_upload_shows_nothing_and_can_be_given_up,
                a_listing_of_what_is_not_there_is_empty,
            ]
        )*}
    };
}

conformance! { all memory local seaweedfs seaweedfs_versioned rgw azurite gcs }

// RGW 16.2 ignores the condition, which an archive finds out when it starts.
conformance! {
    memory_uploads = memory: [an_upload_is_completed_as_a_create_once_or_refused]
    local_uploads = local: [an_upload_is_completed_as_a_create_once_or_refused]
    seaweedfs_uploads = seaweedfs: [an_upload_is_completed_as_a_create_once_or_refused]
    seaweedfs_versioned_uploads = seaweedfs_versioned: [an_upload_is_completed_as_a_create_once_or_refused]
    azurite_uploads = azurite: [an_upload_is_completed_as_a_create_once_or_refused]
    gcs_uploads = gcs: [an_upload_is_completed_as_a_create_once_or_refused]
}

#[tokio::test]
async fn a_tier_that_cannot_be_reached_is_unavailable_and_names_the_object() {
    let config = with(krabka_remote_storage::S3Config::default(), |it| {
        // Nothing listens on the discard port of this machine.
        it.bucket = "nowhere".to_owned();
        it.region = "us-east-1".to_owned();
        it.endpoint = Some("http://127.0.0.1:9".to_owned());
        it.access_key_id = Some("key".to_owned());
        it.secret_access_key = Some("secret".to_owned());
        it.allow_http = true;
        it.max_retries = 1;
        it.connect_timeout = Duration::from_secs(1);
    });
    let storage =
        RemoteStorage::open(&krabka_remote_storage::ObjectStoreConfig::S3(config)).unwrap();
    let metadata = metadata_of_nothing();
    let key = segment_key(storage.prefix(), &metadata, LOG_FILE_SUFFIX).unwrap();
    let error = storage
        .fetch(FetchSegment::new(metadata, 0, None))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains(key.as_ref()), "{error}");
}
