//! What the write-once archive costs beside the cryptography that it cannot do without.
//!
//! - `copy`: a sealed copy into a local tier beside SHA-256 of the same bytes (bar: at most 1.45
//!   times), of a short log and of a long one. The tier is below `TMPDIR`, and what is there is
//!   measured with it: with `TMPDIR=/dev/shm` the work alone, else the disk and its `fsync`, too.
//! - `seal`: a manifest of six objects, sealed, beside one bare Ed25519 signature and its strict
//!   verification (bar: at most 1.3 times).
//! - `chain`: shallow verification, per manifest, beside one bare strict verification (at most 1.5
//!   times).
//! - `deep`: deep verification of large objects beside SHA-256 of the same bytes (at most 1.2
//!   times), in memory and in local files.
//! - `grow`: shallow verification of 100,000 manifests beside 10,000 (at most 11 times).

mod sampled;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use ed25519_dalek::{Signature, Signer as _, SigningKey};
use krabka_remote_storage::archive::{ManifestPublicKey, ManifestSigner};
use krabka_remote_storage::layers::SealRules;
use krabka_remote_storage::layout::{KeyPrefix, segment_key};
use krabka_remote_storage::segment::MultipartCreate;
use krabka_remote_storage::{
    ChainStamp, CopySegment, EpochId, LeaderEpoch, LogSegmentData, MANIFEST_SUFFIX, ObjectEntry,
    ObjectStoreConfig, RemoteLogSegmentDetails, RemoteLogSegmentId, RemoteLogSegmentMetadata,
    RemoteLogSegmentState, RemoteStorage, Sha256Digest, TopicIdPartition, TrustedManifestKeys,
    VerifyDepth, VerifyRequest, WormArchiver, WormChainRecord, WormError, manifest_head,
    manifest_signing_bytes, verify_archive,
};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _};
use sampled::compare;
use sha2::{Digest as _, Sha256};
use tokio::runtime::Runtime;
use uuid::Uuid;

const KEY_ID: &str = "worm-key-1";

#[derive(Debug)]
struct Key {
    secret: SigningKey,
    public: ManifestPublicKey,
}

impl Key {
    fn new() -> Self {
        let secret = SigningKey::from_bytes(&[1; 32]);
        let public = ManifestPublicKey::from_bytes(secret.verifying_key().as_bytes());
        Self {
            public: public.expect("a valid key"),
            secret,
        }
    }
}

#[async_trait]
impl ManifestSigner for Key {
    fn key_id(&self) -> &'static str {
        KEY_ID
    }

    fn public_key(&self) -> &ManifestPublicKey {
        &self.public
    }

    async fn sign(&self, message: &[u8]) -> Result<[u8; 64], WormError> {
        Ok(self.secret.sign(message).to_bytes())
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime")
}

fn metadata(number: u64, stamp: ChainStamp) -> RemoteLogSegmentMetadata {
    let tp = TopicIdPartition::new(Uuid::from_u128(0x11), "orders", 3);
    let start_offset = i64::try_from(number * 100).expect("an offset");
    let details = RemoteLogSegmentDetails::new(
        1 << 30,
        RemoteLogSegmentState::CopySegmentStarted,
        BTreeMap::from([(LeaderEpoch(0), start_offset)]),
    );
    let id = RemoteLogSegmentId::new(tp, Uuid::from_u128(0x5000 + u128::from(number)));
    let end_offset = start_offset + 99;
    RemoteLogSegmentMetadata::new(id, start_offset, end_offset, 1, 7, 1, details)
        .expect("a valid segment")
        .with_custom_metadata(WormChainRecord::request(stamp).to_custom_metadata())
}

const SUFFIXES: [&str; 6] = [
    ".log",
    ".index",
    ".timeindex",
    ".snapshot",
    ".leader_epoch_checkpoint",
    ".txnindex",
];

fn key(metadata: &RemoteLogSegmentMetadata, suffix: &str) -> Path {
    let prefix = KeyPrefix::new("archive").expect("a prefix");
    segment_key(&prefix, metadata, suffix).expect("a key")
}

/// Where a local tier has an object.
fn file(metadata: &RemoteLogSegmentMetadata, suffix: &str) -> String {
    let key = segment_key(&KeyPrefix::default(), metadata, suffix);
    key.expect("a key").to_string()
}

fn entry(key: &Path, suffix: &str, body: &[u8]) -> ObjectEntry {
    ObjectEntry {
        suffix: suffix.to_owned(),
        key: key.to_string(),
        size_bytes: body.len() as u64,
        sha256: Sha256Digest::of(body),
        e_tag: Some("\"d41d8cd98f00b204e9800998ecf8427e\"".to_owned()),
        version_id: Some("3HL4kqtJlcpXroDTDmjVBH40Nrjfkd".to_owned()),
        create_precondition: true,
    }
}

fn genesis() -> ChainStamp {
    ChainStamp::genesis(EpochId(Uuid::from_u128(0x99)))
}

/// Seals segments whose logs have this length, all other objects eight bytes.
async fn fill(store: &dyn ObjectStore, segments: u64, log_len: usize) {
    let archiver = WormArchiver::new(Some(Arc::new(Key::new())));
    let mut stamp = genesis();
    for number in 0..segments {
        let metadata = metadata(number, stamp);
        let mut objects = Vec::new();
        for suffix in SUFFIXES {
            let len = if suffix == ".log" { log_len } else { 8 };
            let body = vec![u8::try_from(number % 251).expect("a byte"); len];
            let key = key(&metadata, suffix);
            objects.push(entry(&key, suffix, &body));
            store.put(&key, body.into()).await.expect("a put");
        }
        let sealed = archiver.seal(&metadata, objects).await.expect("a seal");
        let manifest = key(&metadata, MANIFEST_SUFFIX);
        store
            .put(&manifest, sealed.bytes.into())
            .await
            .expect("a put");
        stamp = sealed.receipt.next_stamp().expect("a next place");
    }
}

fn verify(runtime: &Runtime, store: &Arc<dyn ObjectStore>, depth: VerifyDepth, manifests: u64) {
    let mut request = VerifyRequest::default();
    request.depth = depth;
    let trusted = TrustedManifestKeys::single(KEY_ID, Key::new().public);
    let report = runtime
        .block_on(verify_archive(store, &request, &trusted))
        .expect("a report");
    assert!(report.ok() && report.manifests() == manifests);
}

/// The local files of a segment with this log.
fn local_files(dir: &std::path::Path, log: &[u8]) -> Arc<LogSegmentData> {
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.join(name);
        std::fs::write(&path, bytes).expect("a file");
        path
    };
    Arc::new(LogSegmentData {
        log_segment: write("0.log", log),
        offset_index: write("0.index", &[0; 8]),
        time_index: write("0.timeindex", &[0; 12]),
        transaction_index: None,
        producer_snapshot_index: Some(write("0.snapshot", &[0; 8])),
        leader_epoch_index: Bytes::from_static(b"0\n1\n0 0\n"),
    })
}

fn copy(c: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    // Kafka's segments have up to 1 GiB by default.
    let sizes = [
        ("copy, 64 MiB", 64 << 20),
        ("copy, 192 MiB", 192 << 20),
        ("copy, 1 GiB", 1 << 30),
    ];
    for (name, log_len) in sizes {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().join("tier");
        let log: Vec<u8> = (0..log_len)
            .map(|at: usize| u8::try_from(at % 251).expect("a byte"))
            .collect();
        let files = local_files(dir.path(), &log);
        let backend = ObjectStoreConfig::Local { root: root.clone() }.open();
        let config = SealRules::new(1024, false);
        let archiver = WormArchiver::new(Some(Arc::new(Key::new())));
        let storage = RemoteStorage::builder(backend.expect("a local tier"))
            .seal_on_unchecked_store(archiver, config, MultipartCreate::Conditional)
            .build()
            .unwrap();
        let (mut number, mut stamp) = (0, genesis());
        let mut group = c.benchmark_group(name);
        group.sample_size(10);
        compare(
            group,
            ("SHA-256 alone", &mut |calls| {
                for _ in 0..calls {
                    black_box(Sha256::digest(black_box(&log)));
                }
            }),
            ("sealed copy", &mut |calls| {
                for _ in 0..calls {
                    let metadata = metadata(number, stamp);
                    number += 1;
                    let stored = root.join(file(&metadata, ".log"));
                    let copy = CopySegment::new(metadata, Arc::clone(&files));
                    let receipt = runtime.block_on(storage.copy(copy)).expect("a copy");
                    let record = receipt.custom_metadata.expect("a receipt");
                    let record = WormChainRecord::from_custom_metadata(&record);
                    stamp = record.expect("a record").next_stamp().expect("a place");
                    // The disk would fill up.
                    std::thread::spawn(move || std::fs::remove_file(stored));
                }
            }),
            1.45,
        );
    }
}

fn seal(c: &mut Criterion) {
    let runtime = runtime();
    let archiver = WormArchiver::new(Some(Arc::new(Key::new())));
    let metadata = metadata(7, genesis());
    let objects: Vec<_> = SUFFIXES
        .iter()
        .map(|suffix| entry(&key(&metadata, suffix), suffix, b"body"))
        .collect();
    let body = runtime
        .block_on(archiver.seal(&metadata, objects.clone()))
        .expect("a seal")
        .manifest
        .body;
    let message = manifest_signing_bytes(
        KEY_ID,
        body.chain.epoch_id,
        body.chain.seq,
        manifest_head(&body),
    );
    let secret = SigningKey::from_bytes(&[1; 32]);
    let public = secret.verifying_key();
    compare(
        c.benchmark_group("seal"),
        ("sign and verify", &mut |calls| {
            for _ in 0..calls {
                let signature = secret.sign(black_box(&message));
                public
                    .verify_strict(&message, &signature)
                    .expect("a valid signature");
            }
        }),
        ("manifest", &mut |calls| {
            for _ in 0..calls {
                let sealed = runtime.block_on(archiver.seal(&metadata, objects.clone()));
                black_box(sealed).expect("a seal");
            }
        }),
        1.3,
    );
}

fn chain(c: &mut Criterion) {
    const MANIFESTS: u64 = 1_000;
    let runtime = runtime();
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    runtime.block_on(fill(store.as_ref(), MANIFESTS, 8));
    let secret = SigningKey::from_bytes(&[1; 32]);
    let public = secret.verifying_key();
    // As many as there are manifests: a processor that sees one signature again and again learns
    // its branches by heart.
    let signed: Vec<(Vec<u8>, Signature)> = (0..MANIFESTS)
        .map(|number| {
            let mut message = vec![7; 98];
            message[90..].copy_from_slice(&number.to_be_bytes());
            let signature = secret.sign(&message);
            (message, signature)
        })
        .collect();
    let mut group = c.benchmark_group("chain");
    group.sample_size(10);
    compare(
        group,
        ("1000 bare verifications", &mut |calls| {
            for _ in 0..calls {
                for (message, signature) in &signed {
                    public
                        .verify_strict(black_box(message), signature)
                        .expect("a valid signature");
                }
            }
        }),
        ("1000 manifests", &mut |calls| {
            for _ in 0..calls {
                verify(&runtime, &store, VerifyDepth::Shallow, MANIFESTS);
            }
        }),
        1.5,
    );
}

fn deep(c: &mut Criterion) {
    const SEGMENTS: u64 = 4;
    const LOG: usize = 32 << 20;
    let runtime = runtime();
    let dir = tempfile::tempdir().expect("a directory");
    let local = LocalFileSystem::new_with_prefix(dir.path()).expect("a directory");
    let stores: [(&str, Arc<dyn ObjectStore>); 2] = [
        ("deep, in memory", Arc::new(InMemory::new())),
        ("deep, in local files", Arc::new(local)),
    ];
    let body = vec![7; LOG];
    for (name, store) in stores {
        runtime.block_on(fill(store.as_ref(), SEGMENTS, LOG));
        let mut group = c.benchmark_group(name);
        group.sample_size(10);
        compare(
            group,
            ("SHA-256 alone", &mut |calls| {
                for _ in 0..calls * SEGMENTS {
                    black_box(Sha256::digest(black_box(&body)));
                }
            }),
            ("verify", &mut |calls| {
                for _ in 0..calls {
                    verify(&runtime, &store, VerifyDepth::Deep, SEGMENTS);
                }
            }),
            1.2,
        );
    }
}

fn grow(c: &mut Criterion) {
    let runtime = runtime();
    let filled = |segments| -> Arc<dyn ObjectStore> {
        let store = InMemory::new();
        runtime.block_on(fill(&store, segments, 8));
        Arc::new(store)
    };
    let (small, large) = (filled(10_000), filled(100_000));
    let mut group = c.benchmark_group("grow");
    group.sample_size(10);
    compare(
        group,
        ("10000 manifests", &mut |calls| {
            for _ in 0..calls {
                verify(&runtime, &small, VerifyDepth::Shallow, 10_000);
            }
        }),
        ("100000 manifests", &mut |calls| {
            for _ in 0..calls {
                verify(&runtime, &large, VerifyDepth::Shallow, 100_000);
            }
        }),
        11.0,
    );
}

criterion_group!(benches, copy, seal, chain, deep, grow);
criterion_main!(benches);
