//! The way of a write to diskless topics, and back.
//!
//! Batches of several partitions go into one WAL object in a store, its ranges into the index, a read
//! by (partition, offset) is one ranged GET, and what the index says is captured, sealed and proved.
//!
//! ```sh
//! cargo run --example diskless            # in memory
//! cargo run --example diskless -- DIR     # in a directory, where `krabka-tier diskless inspect` finds it
//! ```

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use krabka_remote_storage::archive::{FileSigner, ManifestSigner as _, generate_key};
use krabka_remote_storage::diskless::{
    CAPTURE_HEAD_NAME, DEFAULT_WAL_OBJECT_BYTES, DisklessWalCapture, WAL_OBJECT_SUFFIX,
    WalCaptureProjection, WalDeleteFloorRecord, WalFlushRecord, WalObjectBuilder, parse_wal_object,
    trim_target, wal_object_key, whole_batches,
};
use krabka_remote_storage::index::Batches;
use krabka_remote_storage::ops::{ByteRange, Create, Get, StoreTarget};
use krabka_remote_storage::{
    ObjectEntry, ObjectStoreConfig, RemoteStorage, Sha256Digest, TrustedManifestKeys, WormArchiver,
};
use uuid::Uuid;

const BROKER: i32 = 1;
const NOW_MS: i64 = 1_760_000_000_000;

#[tokio::main]
#[allow(clippy::too_many_lines)] // One way, step by step.
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args_os().nth(1).map(PathBuf::from);
    let config = match &dir {
        Some(dir) => {
            std::fs::create_dir_all(dir)?;
            ObjectStoreConfig::Local { root: dir.clone() }
        }
        None => ObjectStoreConfig::InMemory,
    };
    let storage = RemoteStorage::open(&config)?;
    let store = &storage;

    // What the leaders of three partitions have acknowledged: offsets are final. What came before
    // offset 100 of orders-0 and offset 7 of orders-1 was deleted.
    let (orders, payments) = (Uuid::new_v4(), Uuid::new_v4());
    let floors = [(orders, 0, 100), (orders, 1, 7)];
    let acknowledged = [
        (orders, 0, vec![batch(100, 3), batch(103, 2)]),
        (orders, 1, vec![batch(7, 1)]),
        (payments, 0, vec![batch(0, 4)]),
    ];

    // 1. One object, a run for each partition. A broker does this every 8 MiB or 250 ms.
    let mut builder = WalObjectBuilder::with_capacity(DEFAULT_WAL_OBJECT_BYTES, 1_000);
    for (topic_id, partition, batches) in &acknowledged {
        let run = batches.concat();
        let first = batches.first().map_or(0, |batch| base_offset(batch));
        let last = last_offset(&run)?;
        builder.append_run(*topic_id, *partition, first, last, &run)?;
    }
    let object = builder.finish();

    // 2. PUT: created once, under a key that nothing else has.
    let key = wal_object_key(storage.prefix(), BROKER, Uuid::new_v4())?;
    let target = StoreTarget::object(key.clone());
    let sha256 = Sha256Digest::of(&object);
    let create = Create::new(target.clone(), object.clone().into(), sha256.0);
    let written = store.send(create).await?;
    println!("put {key}: {} bytes", object.len());

    // 3. Publish its ranges, a record each, in the compacted index topic.
    let mut topic: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for run in parse_wal_object(&object)? {
        let batches = run.run_of(&object).unwrap_or_default();
        let entry = run.to_index_entry(run.check_run(batches)?.max_timestamp_ms);
        let (index_key, value) = WalFlushRecord::keyed_entry(key.as_ref(), entry);
        topic.insert(index_key.to_vec(), value);
    }
    for (topic_id, partition, floor) in floors {
        let record = WalDeleteFloorRecord {
            topic_id,
            partition,
            floor,
        };
        topic.insert(record.key().to_bytes().to_vec(), record.to_bytes());
    }

    // 4. Every broker replays the topic. Once its own projection shows a range, the log behind it
    //    may be trimmed.
    let mut projection = WalCaptureProjection::new();
    for (index_key, value) in &topic {
        projection.apply(Some(index_key), Some(value))?;
    }
    let partition = projection.partition(orders, 0).ok_or("no partition")?;
    let frontier = partition.frontier().unwrap_or(0);
    println!(
        "orders-0 holds offsets {} to {}; its local log may be trimmed below {}",
        partition.earliest_offset(),
        frontier - 1,
        trim_target(frontier, 105, 2)
    );

    // 5. A read by (partition, offset): one ranged GET, and whole batches of what it answers.
    let read = partition.read(104, 1 << 20).ok_or("no such offset")?;
    let get = Get::new(
        StoreTarget::object(object_store::path::Path::parse(&read.object_key)?),
        ByteRange::Bounded(read.bytes.clone()),
    );
    let answer: Bytes = store.send(get).await?.bytes;
    let batches = whole_batches(&answer, 104, 1 << 20)?;
    for batch in Batches::new(batches) {
        let header = batch?.header()?;
        println!(
            "bytes {:?} of the object answer offset 104 with a batch of offsets {} to {}",
            read.bytes,
            header.base_offset(),
            header.last_offset()?
        );
    }
    assert_eq!(batches, batch(103, 2));

    // 6. Freeze what the index says, and seal it with a key of the archive.
    let topics = HashMap::from([
        (orders, ("orders".to_owned(), 2)),
        (payments, ("payments".to_owned(), 1)),
    ]);
    let capture = projection.capture(&topics, vec![3], NOW_MS)?;
    let claims = vec![ObjectEntry {
        suffix: WAL_OBJECT_SUFFIX.to_owned(),
        key: key.to_string(),
        size_bytes: object.len() as u64,
        sha256,
        e_tag: written.e_tag,
        version_id: written.version_id,
        create_precondition: written.create_precondition,
    }];
    let keys = tempfile::tempdir()?;
    let generated = generate_key(&keys.path().join("key.pem"))?;
    let signer = FileSigner::load("example-key", &generated.path)?;
    let trusted = TrustedManifestKeys::single("example-key", *signer.public_key());
    let archiver = WormArchiver::new(Some(Arc::new(signer)));
    let (sealed, head) = capture.seal(claims, &archiver).await?;
    let document = sealed.to_vec()?;
    println!(
        "sealed {} bytes; keep this elsewhere: {CAPTURE_HEAD_NAME}={head}",
        document.len()
    );

    // 7. Whoever restores proves it first: with the public key and the head, and nothing else.
    let received = DisklessWalCapture::from_slice(&document)?;
    for (object_key, claim) in received.authenticate(&trusted, head)? {
        println!("{object_key} has to have SHA-256 {}", claim.sha256);
    }

    if let Some(dir) = dir {
        std::fs::write(dir.join("capture.json"), &document)?;
        std::fs::write(dir.join("capture.pub"), generated.public_key.to_string())?;
        let dir = dir.display();
        println!("\nkrabka-tier diskless inspect {dir}/{key}");
        println!(
            "krabka-tier diskless inspect {dir}/capture.json --public-key {dir}/capture.pub --expect-head {head}"
        );
    }
    Ok(())
}

/// A batch of magic 2 with so many empty records, as a producer would send it.
fn batch(base_offset: i64, records: i32) -> Vec<u8> {
    let record = |delta: i32| {
        let delta = u8::try_from(delta * 2).unwrap_or_default();
        // Length, attributes, timestamp and offset deltas, null key, empty value, no headers.
        [12, 0, 0, delta, 1, 0, 0]
    };
    let mut checked = Vec::new();
    checked.extend_from_slice(&0_i16.to_be_bytes());
    checked.extend_from_slice(&(records - 1).to_be_bytes());
    checked.extend_from_slice(&NOW_MS.to_be_bytes());
    checked.extend_from_slice(&NOW_MS.to_be_bytes());
    // No producer id, epoch and sequence.
    checked.extend_from_slice(&[0xff; 14]);
    checked.extend_from_slice(&records.to_be_bytes());
    checked.extend((0..records).flat_map(record));
    let length = i32::try_from(checked.len() + 9).unwrap_or_default();
    [
        &base_offset.to_be_bytes()[..],
        &length.to_be_bytes(),
        &[0, 0, 0, 0, 2],
        &crc32c::crc32c(&checked).to_be_bytes(),
        &checked,
    ]
    .concat()
}

fn base_offset(batch: &[u8]) -> i64 {
    batch
        .first_chunk()
        .map_or(0, |bytes| i64::from_be_bytes(*bytes))
}

fn last_offset(run: &[u8]) -> Result<i64, Box<dyn Error>> {
    let last = Batches::new(run).last().ok_or("a run without a batch")??;
    Ok(last.last_offset()?)
}
