//! What the diskless formats cost beside the work that they cannot do without.
//!
//! - `build`: a WAL object of 8 MiB in 1,000 runs beside copying its bytes (bar: at most 1.2 times).
//! - `parse`: its runs, read from the footer, and with every batch checked, beside CRC-32C over its
//!   bytes (at most 1.1 times).
//! - `lookup`: the range of an offset among a million beside a bare `BTreeMap` of the same ranges (at
//!   most 2 times), in one partition and in a thousand.
//! - `authenticate`: a sealed capture of 100,000 ranges beside SHA-256 over its bytes and one strict
//!   verification (at most 1.3 times).

mod sampled;

use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use ed25519_dalek::{Signer as _, SigningKey};
use krabka_remote_storage::archive::{FileSigner, ManifestSigner as _, generate_key};
use krabka_remote_storage::diskless::{
    DisklessWalCapture, WalCaptureProjection, WalFlushRecord, WalIndexEntry, WalObjectBuilder,
    WalObjectEntry, WalRange, parse_wal_object,
};
use krabka_remote_storage::{
    ChainHead, ObjectEntry, Sha256Digest, TrustedManifestKeys, WormArchiver, manifest_head,
    manifest_signing_bytes,
};
use sampled::compare;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

const TOPIC_ID: Uuid = Uuid::from_u128(0x11);
const OBJECT_BYTES: usize = 8 << 20;
const RUNS: usize = 1_000;
/// Offsets of a run.
const RECORDS: i64 = 10;

/// A batch of magic 2 with a right checksum; what stands for its records is not looked at.
fn batch(base_offset: i64, size: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..size)
        .map(|at| u8::try_from(at % 251).expect("a byte"))
        .collect();
    bytes[..8].copy_from_slice(&base_offset.to_be_bytes());
    let length = i32::try_from(size - 12).expect("a small batch");
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    bytes[16] = 2;
    let last = i32::try_from(RECORDS - 1).expect("a few");
    bytes[23..27].copy_from_slice(&last.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes
}

/// The runs of an object: first offset and bytes.
fn runs() -> Vec<(i64, Vec<u8>)> {
    let size = OBJECT_BYTES / RUNS;
    (0..RUNS)
        .map(|run| {
            let first = i64::try_from(run).expect("a few") * RECORDS;
            (first, batch(first, size))
        })
        .collect()
}

fn built(runs: &[(i64, Vec<u8>)]) -> bytes::Bytes {
    let mut builder = WalObjectBuilder::with_capacity(OBJECT_BYTES, RUNS);
    for (first, run) in runs {
        let last = first + RECORDS - 1;
        builder
            .append_run(TOPIC_ID, 0, *first, last, run)
            .expect("a run");
    }
    builder.finish()
}

fn build(c: &mut Criterion) {
    let runs = runs();
    let bytes = built(&runs);
    compare(
        c.benchmark_group("build, 8 MiB in 1000 runs"),
        ("copy", &mut |calls| {
            for _ in 0..calls {
                black_box(black_box(&bytes).to_vec());
            }
        }),
        ("build", &mut |calls| {
            for _ in 0..calls {
                black_box(built(black_box(&runs)));
            }
        }),
        1.2,
    );
}

fn parse(c: &mut Criterion) {
    let object = built(&runs());
    let mut crc = |calls| {
        for _ in 0..calls {
            black_box(crc32c::crc32c(black_box(&object)));
        }
    };
    compare(
        c.benchmark_group("parse, 8 MiB in 1000 runs"),
        ("CRC-32C", &mut crc),
        ("parse", &mut |calls| {
            for _ in 0..calls {
                black_box(parse_wal_object(black_box(&object))).expect("an object");
            }
        }),
        1.1,
    );
    let check = |object: &[u8], run: &WalObjectEntry| {
        let bytes = run.run_of(object).expect("a run");
        run.check_run(bytes).expect("right batches");
    };
    compare(
        c.benchmark_group("parse and check the batches"),
        ("CRC-32C", &mut crc),
        ("parse and check", &mut |calls| {
            for _ in 0..calls {
                let runs = parse_wal_object(black_box(&object)).expect("an object");
                for run in &runs {
                    check(&object, run);
                }
            }
        }),
        1.1,
    );
}

/// Offsets without an order, below `end`.
fn scattered(end: i64, count: usize) -> Vec<i64> {
    (0..count as u64)
        .map(|call| {
            let place = call.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
            i64::try_from(place).expect("31 bits") % end
        })
        .collect()
}

fn range(partition: i32, number: i64) -> WalIndexEntry {
    WalIndexEntry {
        topic_id: TOPIC_ID,
        partition,
        first_offset: number * RECORDS,
        last_offset: number * RECORDS + RECORDS - 1,
        byte_start: 6,
        byte_len: 8_000,
        max_timestamp_ms: 1_700_000_000_000,
    }
}

fn lookup(c: &mut Criterion) {
    const LOOKUPS: usize = 10_000;
    for partitions in [1, 1_000] {
        let each = 1_000_000 / i64::from(partitions);
        let mut projection = WalCaptureProjection::new();
        let mut bare = BTreeMap::new();
        for number in 0..each {
            for partition in 0..partitions {
                let object_key = format!("diskless-wal/1/{number}.ckwl");
                let entry = range(partition, number);
                let (key, value) = WalFlushRecord::keyed_entry(&object_key, entry);
                projection.apply(Some(&key), Some(&value)).expect("a range");
                // What a bare map of one partition would hold.
                let object_key: Arc<str> = object_key.into();
                let at = i64::from(partition) * each * RECORDS + entry.first_offset;
                bare.insert(at, WalRange { object_key, entry });
            }
        }
        let offsets = scattered(1_000_000 * RECORDS, LOOKUPS);
        compare(
            c.benchmark_group(format!(
                "10000 lookups, 1M ranges in {partitions} partitions"
            )),
            ("BTreeMap", &mut |calls| {
                for _ in 0..calls {
                    for offset in &offsets {
                        let (_, found) = bare.range(..=*offset).next_back().expect("a range");
                        black_box(found);
                    }
                }
            }),
            ("projection", &mut |calls| {
                for _ in 0..calls {
                    for offset in &offsets {
                        let partition = i32::try_from(offset / (each * RECORDS)).expect("a few");
                        let offset = offset % (each * RECORDS);
                        let found = projection.lookup(TOPIC_ID, partition, offset);
                        black_box(found.expect("a range"));
                    }
                }
            }),
            2.0,
        );
    }
}

/// A sealed capture of 100,000 ranges in 100 partitions, a thousand of them in each object.
fn sealed(archiver: &WormArchiver) -> (DisklessWalCapture, ChainHead) {
    let mut projection = WalCaptureProjection::new();
    let mut claims = Vec::new();
    for number in 0..100_i64 {
        let id = Uuid::from_u128(0x4000_8000_0000_0000_0000 + u128::from(number.unsigned_abs()));
        let object_key = format!("tier/diskless-wal/1/{id}.ckwl");
        for partition in 0..100_i32 {
            for part in 0..10_u64 {
                let entry = WalIndexEntry {
                    // Not one behind the other, or they would become one range.
                    byte_start: 6 + (u64::from(partition.unsigned_abs()) * 10 + part) * 8_400,
                    ..range(partition, number * 10 + i64::try_from(part).expect("a few"))
                };
                let (key, value) = WalFlushRecord::keyed_entry(&object_key, entry);
                projection.apply(Some(&key), Some(&value)).expect("a range");
            }
        }
        claims.push(ObjectEntry {
            suffix: ".ckwl".to_owned(),
            sha256: Sha256Digest::of(&object_key),
            key: object_key,
            size_bytes: 8 << 20,
            e_tag: Some("\"d41d8cd98f00b204e9800998ecf8427e\"".to_owned()),
            version_id: Some("3HL4kqtJlcpXroDTDmjVBH40Nrjfkd".to_owned()),
            create_precondition: true,
        });
    }
    let topics = HashMap::from([(TOPIC_ID, ("orders".to_owned(), 100))]);
    let capture = projection
        .capture(&topics, vec![0; 50], 1_700_000_000_000)
        .expect("a capture");
    let ranges: usize = capture
        .partitions()
        .iter()
        .map(|partition| partition.ranges.len())
        .sum();
    assert_eq!(ranges, 100_000);
    tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime")
        .block_on(capture.seal(claims, archiver))
        .expect("a seal")
}

fn authenticate(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("key.pem");
    generate_key(&path).expect("a key");
    let signer = FileSigner::load("capture-key", &path).expect("a key");
    let trusted = TrustedManifestKeys::single("capture-key", *signer.public_key());
    let (sealed, head) = sealed(&WormArchiver::new(Some(Arc::new(signer))));
    let bytes = sealed.to_vec().expect("a document");
    let body = &sealed.authentication().expect("a seal").body;
    let chain = body.chain;
    let message = manifest_signing_bytes(
        "capture-key",
        chain.epoch_id,
        chain.seq,
        manifest_head(body),
    );
    let secret = SigningKey::from_bytes(&[1; 32]);
    let (public, signature) = (secret.verifying_key(), secret.sign(&message));
    println!("the sealed document has {} bytes", bytes.len());
    let mut group = c.benchmark_group("a capture of 100000 ranges");
    group.sample_size(20);
    compare(
        group,
        ("SHA-256 and one verification", &mut |calls| {
            for _ in 0..calls {
                black_box(Sha256::digest(black_box(&bytes)));
                public
                    .verify_strict(black_box(&message), &signature)
                    .expect("a valid signature");
            }
        }),
        ("authenticate", &mut |calls| {
            for _ in 0..calls {
                let claims = sealed.authenticate(black_box(&trusted), head);
                assert_eq!(claims.expect("an authentic capture").len(), 100);
            }
        }),
        1.3,
    );
    // For the record; no bar.
    let mut group = c.benchmark_group("decode a capture of 100000 ranges");
    group.sample_size(10);
    group.bench_function("from_slice", |b| {
        b.iter(|| DisklessWalCapture::from_slice(black_box(&bytes)).expect("a capture"));
    });
    group.finish();
}

criterion_group!(benches, build, parse, lookup, authenticate);
criterion_main!(benches);
