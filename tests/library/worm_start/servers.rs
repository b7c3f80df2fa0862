//! Archives on real servers, and on the stand-ins for those that cannot be had.
//!
//! The partitions are those that Apache Kafka wrote.

use std::fs;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use axum::http::{Method, StatusCode};
use bytes::Bytes;
use krabka_remote_storage::backends::{Backend, HttpStoreConnector};
use krabka_remote_storage::model::CopyReceipt;
use krabka_remote_storage::ops::{Head, StoreTarget};
use krabka_remote_storage::{
    ChainStamp, CopySegment, DeleteSegment, EpochId, ErrorKind, FetchSegment, LogSegmentData,
    ObjectStoreConfig, RemoteStorage, RemoteStorageError, S3Config, TopicIdPartition, VerifyDepth,
    VerifyRequest, WormChainRecord, verify_archive,
};
use object_store::ClientOptions;
use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::client::{HttpConnector as _, HttpRequest, HttpRequestBody};
use object_store::path::Path;
use tempfile::TempDir;
use uuid::Uuid;

use super::{signed, trusted};
use crate::support::metadata_topic::data;
use crate::support::servers;
use crate::support::with;
use krabka_remote_storage::testing::segments::{SegmentSpec, pattern};

/// The smallest part that S3 takes.
const PART: usize = 5 << 20;

/// An archive, and what it was opened with.
struct Archive {
    storage: RemoteStorage,
    backend: Backend,
    dir: TempDir,
}

impl Archive {
    async fn start(config: ObjectStoreConfig) -> Result<Self, RemoteStorageError> {
        let dir = TempDir::new().unwrap();
        let mut backend = config.open().unwrap();
        backend.limits.multipart_threshold = PART as u64;
        backend.limits.multipart_chunk_size = PART;
        backend.limits.max_retries = 2;
        let storage = RemoteStorage::start_archive(backend.clone(), &signed(dir.path()))
            .await?
            .build()
            .unwrap();
        Ok(Self {
            storage,
            backend,
            dir,
        })
    }

    /// Copies segments of one partition, each to the place after the one before.
    async fn copy(&self, segments: Vec<CopySegment>) -> Vec<CopyReceipt> {
        let mut receipts: Vec<CopyReceipt> = Vec::new();
        for segment in segments {
            let stamp = receipts.last().map_or_else(genesis, next);
            let receipt = self.storage.copy(at(&segment, stamp)).await.unwrap();
            let bytes = fs::read(&segment.data.log_segment).unwrap();
            let fetch = FetchSegment::new(Arc::clone(&segment.metadata), 0, None);
            assert!(self.storage.fetch(fetch).await.unwrap() == bytes);
            let delete = DeleteSegment::new(Arc::clone(&segment.metadata));
            let error = self.storage.delete(delete).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
            receipts.push(receipt);
        }
        receipts
    }

    /// Verifies all of it, down to the bytes.
    async fn verify(&self, partitions: usize, manifests: u64) {
        let store = self.backend.object_store.clone().unwrap();
        let request = with(VerifyRequest::default(), |it| {
            it.prefix = Some(self.storage.prefix().as_path().to_string());
            it.depth = VerifyDepth::Deep;
        });
        let report = verify_archive(&store, &request, &trusted()).await.unwrap();
        assert!(report.ok() && report.fully_attested(), "{report:#?}");
        assert_eq!(report.partitions.len(), partitions);
        assert_eq!(report.manifests() as u64, manifests);
        assert_eq!(report.global_orphan_objects, [""; 0]);
    }
}

fn genesis() -> ChainStamp {
    ChainStamp::genesis(EpochId(Uuid::new_v4()))
}

fn next(receipt: &CopyReceipt) -> ChainStamp {
    let record = receipt.custom_metadata.as_ref().unwrap();
    let record = WormChainRecord::from_custom_metadata(record).unwrap();
    record.next_stamp().unwrap()
}

fn at(segment: &CopySegment, stamp: ChainStamp) -> CopySegment {
    let record = WormChainRecord::request(stamp).to_custom_metadata();
    let metadata = segment
        .metadata
        .as_ref()
        .clone()
        .with_custom_metadata(record);
    CopySegment::new(metadata, Arc::clone(&segment.data))
}

/// The closed segments of a partition that Kafka wrote.
fn closed_segments(name: &str, partition: &TopicIdPartition) -> Vec<CopySegment> {
    let dir = data().join("partitions").join(name);
    let mut bases: Vec<i64> = fs::read_dir(&dir)
        .unwrap()
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name.strip_suffix(".log")?.parse().ok()
        })
        .collect();
    bases.sort_unstable();
    let checkpoint = fs::read_to_string(dir.join("leader-epoch-checkpoint")).unwrap();
    let starts: Vec<(i32, i64)> = checkpoint
        .lines()
        .skip(2)
        .map(|line| {
            let (epoch, start) = line.split_once(' ').unwrap();
            (epoch.parse().unwrap(), start.parse().unwrap())
        })
        .collect();
    let file = |offset: i64, suffix: &str| dir.join(format!("{offset:020}{suffix}"));
    let there = |path: PathBuf| path.exists().then_some(path);
    bases
        .windows(2)
        .map(|pair| {
            let (base, end) = (pair[0], pair[1] - 1);
            let known = starts.iter().filter(|(_, start)| *start <= end);
            let lines: Vec<String> = known
                .clone()
                .map(|(epoch, start)| format!("{epoch} {start}\n"))
                .collect();
            let mut epochs = Vec::new();
            for &(epoch, start) in known {
                if start <= base {
                    epochs.clear();
                }
                epochs.push((epoch, start.max(base)));
            }
            let log = file(base, ".log");
            let size = fs::metadata(&log).unwrap().len();
            let transactions = there(file(base, ".txnindex"));
            let spec = SegmentSpec::new(Uuid::new_v4().as_u128(), base..=end);
            let spec = spec.of(partition).size(i32::try_from(size).unwrap());
            let metadata = spec.epochs(&epochs).make();
            let metadata = metadata.with_txn_index_empty(transactions.is_none());
            let files = LogSegmentData {
                log_segment: log,
                offset_index: file(base, ".index"),
                time_index: file(base, ".timeindex"),
                transaction_index: transactions,
                producer_snapshot_index: there(file(pair[1], ".snapshot")),
                leader_epoch_index: format!("0\n{}\n{}", lines.len(), lines.concat()).into(),
            };
            CopySegment::new(metadata, files)
        })
        .collect()
}

/// A segment whose log is uploaded in three parts.
fn large_segment(dir: &FilePath) -> CopySegment {
    let log = pattern(2 * PART + 77, 3);
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let partition = TopicIdPartition::new(Uuid::from_u128(9), "large", 0);
    let spec = SegmentSpec::new(Uuid::new_v4().as_u128(), 0..=9).of(&partition);
    let metadata = spec.size(i32::try_from(log.len()).unwrap()).make();
    let files = LogSegmentData {
        log_segment: write("0.log", &log),
        offset_index: write("0.index", b"offset index"),
        time_index: write("0.timeindex", b"time index"),
        transaction_index: None,
        producer_snapshot_index: None,
        leader_epoch_index: Bytes::from_static(b"0\n1\n0 0\n"),
    };
    CopySegment::new(metadata, files)
}

/// Copies partitions of Kafka's and a large segment, and verifies them. The answer is every receipt.
async fn fill(archive: &Archive) -> Vec<CopyReceipt> {
    let mut receipts = Vec::new();
    for (number, name) in ["orders-0", "payments-0"].into_iter().enumerate() {
        let (topic, _) = name.split_once('-').unwrap();
        let id = Uuid::from_u128(number as u128 + 1);
        let partition = TopicIdPartition::new(id, topic, 0);
        let segments = closed_segments(name, &partition);
        assert!(segments.len() > 5, "{name}");
        receipts.extend(archive.copy(segments).await);
    }
    let large = large_segment(archive.dir.path());
    receipts.extend(archive.copy(vec![large]).await);
    archive.verify(3, receipts.len() as u64).await;
    receipts
}

/// Deletes one version of an object past all of this crate's refusals.
async fn delete_version(config: &S3Config, key: &str, version: &str) -> StatusCode {
    let client = HttpStoreConnector::new()
        .connect(&ClientOptions::new().with_allow_http(true))
        .unwrap();
    let credential = AwsCredential {
        key_id: config.access_key_id.clone().unwrap(),
        secret_key: config.secret_access_key.clone().unwrap(),
        token: None,
    };
    let endpoint = config.endpoint.as_deref().unwrap();
    let mut request = HttpRequest::new(HttpRequestBody::empty());
    *request.method_mut() = Method::DELETE;
    let bucket = &config.bucket;
    let url = format!("{endpoint}/{bucket}/{key}?versionId={version}");
    *request.uri_mut() = url.parse().unwrap();
    AwsAuthorizer::new(&credential, "s3", &config.region)
        .try_authorize(&mut request, None)
        .unwrap();
    client.execute(request).await.unwrap().status()
}

fn locked_seaweedfs() -> Option<S3Config> {
    servers::s3("SEAWEEDFS", "krabka-locked")
}

async fn refusal(config: ObjectStoreConfig) -> String {
    match Archive::start(config).await {
        Err(RemoteStorageError::InvalidArgument(text)) => text,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it started"),
    }
}

#[tokio::test]
async fn on_seaweedfs_partitions_of_kafkas_are_sealed_and_cannot_be_removed() {
    let Some(config) = locked_seaweedfs() else {
        return;
    };
    let archive = Archive::start(ObjectStoreConfig::S3(config.clone()))
        .await
        .unwrap();
    let receipts = fill(&archive).await;
    for object in receipts.iter().flat_map(|receipt| &receipt.objects) {
        assert!(object.create_precondition, "{object:?}");
        assert!(object.version_id.is_some(), "{object:?}");
    }
    // The first of Kafka's, and the large one.
    for receipt in [&receipts[0], receipts.last().unwrap()] {
        for object in &receipt.objects {
            let version = object.version_id.as_deref().unwrap();
            let status = delete_version(&config, &object.key, version).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{object:?}");
        }
    }
    archive.verify(3, receipts.len() as u64).await;
}

#[tokio::test]
async fn on_seaweedfs_a_key_is_written_once_in_one_request_and_in_parts() {
    let Some(config) = locked_seaweedfs() else {
        return;
    };
    let config = ObjectStoreConfig::S3(config);
    let archive = Archive::start(config.clone()).await.unwrap();
    let large = large_segment(archive.dir.path());
    let receipt = archive.copy(vec![large.clone()]).await.remove(0);

    // Another process, the same segment with another log.
    let rival = Archive::start(config).await.unwrap();
    let mut files = large.data.as_ref().clone();
    files.log_segment = rival.dir.path().join("other.log");
    fs::write(&files.log_segment, pattern(2 * PART + 77, 5)).unwrap();
    let other = CopySegment::new(Arc::clone(&large.metadata), files);
    let error = rival.storage.copy(at(&other, genesis())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");

    let log = &receipt.objects[0];
    let head = Head::new(StoreTarget::object(Path::parse(&log.key).unwrap()));
    let found = archive.storage.send(head).await.unwrap().unwrap();
    assert_eq!(found.version, log.version_id, "nothing was written over it");
    archive.verify(1, 1).await;
}

#[tokio::test]
async fn buckets_that_protect_too_little_are_refused_with_what_they_lack() {
    for (bucket, expected) in [
        (
            "krabka-plain",
            "its versioning is not enabled; it has no Object Lock configuration",
        ),
        ("krabka-versioned", "it has no Object Lock configuration"),
        (
            "krabka-governance",
            "its default retention has the mode `GOVERNANCE`, not `COMPLIANCE`",
        ),
        (
            "krabka-lock-only",
            "its Object Lock has no default retention",
        ),
    ] {
        for server in ["SEAWEEDFS", "RGW"] {
            let Some(config) = servers::s3(server, bucket) else {
                return;
            };
            let text = refusal(ObjectStoreConfig::S3(config)).await;
            let whole = format!("bucket `{bucket}` does not protect an archive: {expected}");
            assert_eq!(text, whole, "{server}");
        }
    }
}

#[tokio::test]
async fn a_bucket_that_is_not_there_is_no_bucket_that_protects_too_little() {
    for server in ["SEAWEEDFS", "RGW"] {
        let Some(config) = servers::s3(server, "krabka-nowhere") else {
            return;
        };
        let Err(error) = Archive::start(ObjectStoreConfig::S3(config)).await else {
            panic!("it started");
        };
        assert_eq!(error.status(), Some(404), "{error:?}");
        assert_eq!(error.kind(), ErrorKind::Rejected, "{error:?}");
    }
}

#[tokio::test]
async fn rgw_is_refused_because_it_writes_over_objects() {
    let Some(config) = servers::s3("RGW", "krabka-locked") else {
        return;
    };
    let text = refusal(ObjectStoreConfig::S3(config)).await;
    assert!(text.starts_with("s3://krabka-locked/"), "{text}");
    assert!(text.contains("ignores the condition of a create"), "{text}");
}

fn gcs(bucket: &str) -> Option<ObjectStoreConfig> {
    Some(ObjectStoreConfig::Gcs(with(servers::gcs()?, |it| {
        it.bucket = bucket.to_owned();
    })))
}

#[tokio::test]
async fn on_google_partitions_are_sealed_and_uploads_in_parts_are_read_back() {
    let Some(config) = gcs("krabka-locked") else {
        return;
    };
    let archive = Archive::start(config).await.unwrap();
    let receipts = fill(&archive).await;
    let (large, others) = receipts.split_last().unwrap();
    for object in others.iter().flat_map(|receipt| &receipt.objects) {
        assert!(object.create_precondition, "{object:?}");
    }
    assert!(!large.objects[0].create_precondition, "no condition for it");
}

#[tokio::test]
async fn buckets_of_google_without_a_locked_policy_are_refused() {
    for (bucket, expected) in [
        ("krabka-plain", "it has no retention policy"),
        ("krabka-versioned", "it has no retention policy"),
        ("krabka-retained", "its retention policy is not locked"),
    ] {
        let Some(config) = gcs(bucket) else {
            return;
        };
        let text = refusal(config).await;
        let whole = format!("bucket `{bucket}` does not protect an archive: {expected}");
        assert_eq!(text, whole);
    }
}

#[tokio::test]
async fn azurite_is_refused_because_azure_is_not_supported_yet() {
    let Some(config) = servers::azurite() else {
        return;
    };
    let text = refusal(ObjectStoreConfig::Azure(config)).await;
    assert!(
        text.contains("Azure Blob Storage is not supported yet"),
        "{text}"
    );
}
