//! A sealed archive in memory, and hands to change it with.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::support::with;
use async_trait::async_trait;
use bytes::Bytes;
use ed25519_dalek::{Signer as _, SigningKey};
use krabka_remote_storage::archive::{
    ArchiveVerifyReport, GradeRules, ManifestPublicKey, ManifestSigner, PartitionVerifyReport,
    Verdict, VerifyBreakKind, VerifyDepth, VerifyRequest, verify_archive,
};
use krabka_remote_storage::layout::{KeyPrefix, segment_key};
use krabka_remote_storage::testing::segments::SegmentSpec;
use krabka_remote_storage::{
    ChainStamp, EpochId, MANIFEST_SUFFIX, ManifestBody, ManifestSignature, ObjectEntry,
    RemoteLogSegmentMetadata, SegmentManifest, Sha256Digest, TopicIdPartition, TrustedManifestKeys,
    WormArchiver, WormChainRecord, WormError, manifest_head, manifest_signing_bytes,
};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _};
use uuid::Uuid;

pub(crate) const PREFIX: &str = "archive";
pub(crate) const KEY_ID: &str = "worm-key-1";

/// A key in memory, as a key service would stand behind the trait.
pub(crate) struct Key {
    id: &'static str,
    secret: SigningKey,
    public: ManifestPublicKey,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id)
    }
}

impl Key {
    pub(crate) fn new(id: &'static str, seed: u8) -> Self {
        let secret = SigningKey::from_bytes(&[seed; 32]);
        let public = ManifestPublicKey::from_bytes(secret.verifying_key().as_bytes()).unwrap();
        Self { id, secret, public }
    }

    /// The key that the archives of these tests are sealed with.
    pub(crate) fn usual() -> Self {
        Self::new(KEY_ID, 1)
    }

    pub(crate) fn public(&self) -> ManifestPublicKey {
        self.public
    }

    /// Signs a body anew, whatever it says.
    pub(crate) fn sign(&self, body: ManifestBody) -> SegmentManifest {
        let chain = body.chain;
        let head = manifest_head(&body);
        let message = manifest_signing_bytes(self.id, chain.epoch_id, chain.seq, head);
        SegmentManifest {
            signature: Some(ManifestSignature {
                key_id: self.id.to_owned(),
                public_key: (&self.public).into(),
                signature: krabka_remote_storage::HexBytes(
                    self.secret.sign(&message).to_bytes().to_vec(),
                ),
            }),
            body,
        }
    }
}

#[async_trait]
impl ManifestSigner for Key {
    fn key_id(&self) -> &str {
        self.id
    }

    fn public_key(&self) -> &ManifestPublicKey {
        &self.public
    }

    async fn sign(&self, message: &[u8]) -> Result<[u8; 64], WormError> {
        Ok(self.secret.sign(message).to_bytes())
    }
}

pub(crate) fn trusted() -> TrustedManifestKeys {
    TrustedManifestKeys::single(KEY_ID, Key::usual().public())
}

pub(crate) fn epoch(number: u128) -> EpochId {
    EpochId(Uuid::from_u128(0xe000 + number))
}

/// One sealed segment.
#[derive(Clone, Debug)]
pub(crate) struct Sealed {
    pub(crate) metadata: RemoteLogSegmentMetadata,
    pub(crate) manifest: SegmentManifest,
    pub(crate) manifest_key: String,
    pub(crate) receipt: WormChainRecord,
}

impl Sealed {
    /// The key of the object with this suffix.
    pub(crate) fn key(&self, suffix: &str) -> String {
        self.manifest_key.replace(MANIFEST_SUFFIX, suffix)
    }

    pub(crate) fn directory(&self) -> &str {
        self.manifest_key.rsplit_once('/').unwrap().0
    }
}

/// A store with what was sealed into it.
pub(crate) struct Archive {
    pub(crate) memory: InMemory,
    pub(crate) segments: Vec<Sealed>,
}

/// The metadata of the segment with 100 offsets from this one.
pub(crate) fn metadata(
    topic: &str,
    partition: i32,
    start_offset: i64,
    id: u128,
    stamp: ChainStamp,
) -> RemoteLogSegmentMetadata {
    let topic_id = Uuid::from_u128(u128::from(topic.as_bytes()[0]));
    let tp = TopicIdPartition::new(topic_id, topic, partition);
    let spec = SegmentSpec::new(id, start_offset..=start_offset + 99).of(&tp);
    let spec = spec.at(1_713_000_000_000, 1_713_000_001_000).broker(7);
    let stamp = WormChainRecord::request(stamp).to_custom_metadata();
    spec.size(100).make().with_custom_metadata(stamp)
}

/// The objects that a copy of the segment writes, with their bytes.
pub(crate) fn bodies(metadata: &RemoteLogSegmentMetadata) -> Vec<(&'static str, Bytes)> {
    let start = metadata.start_offset();
    let id = metadata.remote_log_segment_id().id;
    let mut suffixes = vec![".log", ".index", ".timeindex", ".leader_epoch_checkpoint"];
    if start % 200 == 0 {
        suffixes.insert(3, ".snapshot");
        suffixes.push(".txnindex");
    }
    suffixes
        .into_iter()
        .map(|suffix| (suffix, Bytes::from(format!("{suffix} of {id} at {start}"))))
        .collect()
}

pub(crate) fn key_of(metadata: &RemoteLogSegmentMetadata, suffix: &str) -> String {
    let prefix = KeyPrefix::new(PREFIX).unwrap();
    segment_key(&prefix, metadata, suffix).unwrap().to_string()
}

pub(crate) fn entry(key: String, suffix: &str, body: &Bytes) -> ObjectEntry {
    ObjectEntry {
        suffix: suffix.to_owned(),
        key,
        size_bytes: body.len() as u64,
        sha256: Sha256Digest::of(body),
        e_tag: Some("\"tag\"".to_owned()),
        version_id: None,
        create_precondition: suffix != ".log",
    }
}

impl Archive {
    pub(crate) fn empty() -> Self {
        Self {
            memory: InMemory::new(),
            segments: Vec::new(),
        }
    }

    /// Three partitions: one run of three; one run of two and then one of two; one of one.
    pub(crate) async fn sealed() -> Self {
        let mut archive = Self::empty();
        archive.seal_run("orders", 0, epoch(1), 0, 3).await;
        archive.seal_run("orders", 1, epoch(2), 0, 2).await;
        archive.seal_run("orders", 1, epoch(3), 200, 2).await;
        archive.seal_run("payments", 0, epoch(4), 500, 1).await;
        archive
    }

    /// One partition with one run.
    pub(crate) async fn one_run(count: usize) -> Self {
        let mut archive = Self::empty();
        archive.seal_run("orders", 0, epoch(1), 0, count).await;
        archive
    }

    pub(crate) async fn seal_run(
        &mut self,
        topic: &str,
        partition: i32,
        epoch_id: EpochId,
        start_offset: i64,
        count: usize,
    ) {
        let mut stamp = ChainStamp::genesis(epoch_id);
        for at in 0..count {
            let start_offset = start_offset + 100 * i64::try_from(at).unwrap();
            let sealed = self
                .seal(topic, partition, start_offset, stamp, Key::usual())
                .await;
            stamp = sealed.receipt.next_stamp().unwrap();
        }
    }

    /// Copies and seals one segment.
    pub(crate) async fn seal(
        &mut self,
        topic: &str,
        partition: i32,
        start_offset: i64,
        stamp: ChainStamp,
        key: Key,
    ) -> Sealed {
        let id = 0x5000 + self.segments.len() as u128;
        let metadata = metadata(topic, partition, start_offset, id, stamp);
        self.seal_metadata(metadata, key).await
    }

    pub(crate) async fn seal_metadata(
        &mut self,
        metadata: RemoteLogSegmentMetadata,
        key: Key,
    ) -> Sealed {
        let objects = self.upload(&metadata).await;
        let archiver = WormArchiver::new(Some(Arc::new(key)));
        let sealed = archiver.seal(&metadata, objects).await.unwrap();
        let manifest_key = key_of(&metadata, MANIFEST_SUFFIX);
        self.put(&manifest_key, sealed.bytes).await;
        let sealed = Sealed {
            metadata,
            manifest: sealed.manifest,
            manifest_key,
            receipt: sealed.receipt,
        };
        self.segments.push(sealed.clone());
        sealed
    }

    /// Writes the segment's objects without its manifest.
    pub(crate) async fn upload(&self, metadata: &RemoteLogSegmentMetadata) -> Vec<ObjectEntry> {
        let mut objects = Vec::new();
        for (suffix, body) in bodies(metadata) {
            let key = key_of(metadata, suffix);
            objects.push(entry(key.clone(), suffix, &body));
            self.put(&key, body).await;
        }
        objects
    }

    /// The same objects in a store of their own.
    pub(crate) fn fork(&self) -> Self {
        Self {
            memory: self.memory.fork(),
            segments: self.segments.clone(),
        }
    }

    pub(crate) fn store(&self) -> Arc<dyn ObjectStore> {
        Arc::new(self.memory.clone())
    }

    pub(crate) async fn put(&self, key: &str, bytes: impl Into<Bytes>) {
        let path = Path::parse(key).unwrap();
        self.memory.put(&path, bytes.into().into()).await.unwrap();
    }

    pub(crate) async fn get(&self, key: &str) -> Bytes {
        let path = Path::parse(key).unwrap();
        let result = self.memory.get(&path).await.unwrap();
        result.bytes().await.unwrap()
    }

    pub(crate) async fn delete(&self, key: &str) {
        self.memory
            .delete(&Path::parse(key).unwrap())
            .await
            .unwrap();
    }

    pub(crate) async fn rename(&self, from: &str, to: &str) {
        let bytes = self.get(from).await;
        self.delete(from).await;
        self.put(to, bytes).await;
    }

    /// Every key that begins like this.
    pub(crate) async fn keys(&self, front: &str) -> Vec<String> {
        use futures::TryStreamExt as _;
        let listed: Vec<_> = self.memory.list(None).try_collect().await.unwrap();
        let keys = listed.into_iter().map(|object| object.location.to_string());
        keys.filter(|key| key.starts_with(front)).collect()
    }

    pub(crate) async fn put_manifest(&self, key: &str, manifest: &SegmentManifest) {
        self.put(key, manifest.encode().unwrap()).await;
    }

    /// Changes what a manifest says and signs it again with the usual key.
    pub(crate) async fn resign(&self, at: usize, change: impl FnOnce(&mut ManifestBody)) {
        let sealed = &self.segments[at];
        let mut body = sealed.manifest.body.clone();
        change(&mut body);
        self.put_manifest(&sealed.manifest_key, &Key::usual().sign(body))
            .await;
    }

    /// Removes a manifest and its objects.
    pub(crate) async fn remove_segment(&self, at: usize) {
        let stem = self.segments[at].key("");
        for key in self.keys(&stem).await {
            self.delete(&key).await;
        }
    }

    pub(crate) async fn verify(&self, request: &VerifyRequest) -> ArchiveVerifyReport {
        verify_archive(&self.store(), request, &trusted())
            .await
            .unwrap()
    }

    pub(crate) async fn shallow(&self) -> ArchiveVerifyReport {
        self.verify(&shallow()).await
    }

    pub(crate) async fn deep(&self) -> ArchiveVerifyReport {
        self.verify(&deep()).await
    }
}

pub(crate) fn shallow() -> VerifyRequest {
    with(VerifyRequest::default(), |it| {
        it.prefix = Some(PREFIX.to_owned());
    })
}

pub(crate) fn deep() -> VerifyRequest {
    with(shallow(), |it| it.depth = VerifyDepth::Deep)
}

/// The report of the partition that a segment belongs to.
pub(crate) fn partition<'a>(
    report: &'a ArchiveVerifyReport,
    sealed: &Sealed,
) -> &'a PartitionVerifyReport {
    let mut partitions = report.partitions.iter();
    partitions
        .find(|partition| partition.partition_dir == sealed.directory())
        .unwrap()
}

/// Asserts that this partition alone is broken, like this, at this key.
#[track_caller]
pub(crate) fn assert_break(
    report: &ArchiveVerifyReport,
    directory: &str,
    kind: VerifyBreakKind,
    manifest_key: &str,
) {
    assert!(!report.ok());
    let broken: BTreeSet<&str> = report
        .partitions
        .iter()
        .filter(|partition| partition.first_break.is_some())
        .map(|partition| partition.partition_dir.as_str())
        .collect();
    let first_break = report.first_break();
    assert_eq!(
        (
            broken,
            first_break.map(|b| (b.kind, b.manifest_key.as_str()))
        ),
        ([directory].into(), Some((kind, manifest_key))),
        "{first_break:?}"
    );
    assert!(
        report
            .partitions
            .iter()
            .all(|p| p.ok == p.first_break.is_none())
    );
    let verdict = match kind {
        VerifyBreakKind::Missing => Verdict::Missing,
        VerifyBreakKind::Tip => Verdict::HeadMismatch,
        _ => Verdict::Tamper,
    };
    assert_verdict(report, verdict);
}

/// Asserts what a report comes to, and with it the exit code of the auditor's program.
#[track_caller]
pub(crate) fn assert_verdict(report: &ArchiveVerifyReport, verdict: Verdict) {
    let grade = GradeRules::default().grade(report, Ok(&[]));
    assert_eq!(grade.verdict, verdict, "{:#?}", grade.findings);
    // Every break has its line, in whatever partition it is.
    let breaks = report
        .partitions
        .iter()
        .filter_map(|p| p.first_break.as_ref());
    for found in breaks {
        let line = found.to_string();
        assert!(
            grade
                .findings
                .iter()
                .any(|f| f.fails && f.text.ends_with(&line)),
            "{line}"
        );
    }
}
