//! How a broker brings its metadata manager up: fail closed first, then swap the real one in.
//!
//! ```sh
//! cargo run --example broker_boot
//! ```
//!
//! A broker opens its listeners before it has replayed the metadata topic. Until then nobody may
//! read "nothing is tiered" from an empty cache, and no copy may write objects that nothing names.
//! So every part of the broker holds a [`SwappableRlmm`]: it begins with [`NotReadyRlmm`], which
//! answers each call with an error that is worth repeating, and gets the real manager later.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use krabka_remote_storage::topic::{
    InProcessMetadataEventLog, NotReadyRlmm, SwappableRlmm, TopicBasedRemoteLogMetadataManager,
    metadata_partitions_for,
};
use krabka_remote_storage::{
    CopySegment, ErrorKind, LeaderEpoch, LogSegmentData, ObjectStoreConfig, RemoteLogMetadataStore,
    RemoteLogReader, RemoteLogSegmentDetails, RemoteLogSegmentId, RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState, RemoteStorage, RemoteStorageError,
    TopicIdPartition,
};
use tokio::runtime::Handle;
use uuid::Uuid;

const BROKER: i32 = 1;
const EPOCH: LeaderEpoch = LeaderEpoch(0);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let partition = TopicIdPartition::new(Uuid::new_v4(), "orders", 0);
    let storage = RemoteStorage::open(&ObjectStoreConfig::InMemory)?;

    // 1. Fail closed. The reader and the copy task get the handle that will be swapped.
    let metadata = Arc::new(SwappableRlmm::new(Arc::new(NotReadyRlmm::new())));
    let reader = RemoteLogReader::new(storage.clone(), Arc::clone(&metadata) as _);
    let early = copy_segment(&storage, &*metadata, &partition, dir.path()).await;
    let early = early.expect_err("nothing is copied before the manager is there");
    assert_eq!(early.kind(), ErrorKind::NotReady);
    println!("before the swap: {early}");

    // 2. Bring the manager up. A broker beside others has a KafkaMetadataEventLog here.
    let log = InProcessMetadataEventLog::new(50);
    let manager = TopicBasedRemoteLogMetadataManager::start(
        log,
        Handle::current(),
        dir.path().join("remote-log-metadata"),
        Duration::from_mins(1),
    )?;
    // The metadata partitions of everything that this broker leads or follows.
    let assigned = metadata_partitions_for([&partition], 50);
    manager.reconcile_assignment(&assigned).await?;
    tokio::time::timeout(Duration::from_secs(30), manager.wait_until_ready()).await??;

    // 3. Swap. Calls that begin from here on are answered.
    metadata.swap(Arc::clone(&manager) as _);
    println!("ready: {:?}", manager.metadata_partition_readiness());

    // 4. Copy a closed segment: add, objects, finish.
    copy_segment(&storage, &*metadata, &partition, dir.path()).await?;

    // 5. Read it back through the metadata.
    let batches = reader.read(&partition, EPOCH, 0, 1024).await?;
    let batches = batches.ok_or("the segment was finished, so it is found")?;
    println!(
        "read {} bytes of {}; the next offset is {}",
        batches.bytes.len(),
        batches.segment.remote_log_segment_id(),
        batches.next_offset
    );
    assert_eq!(batches.next_offset, 1);

    // 6. Down again: the last snapshot makes the next start short.
    manager.shutdown_and_flush().await?;
    println!(
        "the next start replays from offset {}",
        manager.committed_offset(assigned[0]).await + 1
    );
    let report = storage.close(Duration::from_secs(10)).await;
    assert!(report.cut_off.is_empty());
    Ok(())
}

/// Copies one closed segment as KIP-405 says: no object before the add is in the log, and nobody
/// reads one before the finish is.
async fn copy_segment(
    storage: &RemoteStorage,
    metadata: &dyn RemoteLogMetadataStore,
    partition: &TopicIdPartition,
    dir: &Path,
) -> Result<(), RemoteStorageError> {
    let log = batch(0, b"the first order");
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.join(name);
        std::fs::write(&path, bytes).map(|()| path)
    };
    let files = LogSegmentData {
        log_segment: file("00000000000000000000.log", &log)?,
        offset_index: file("00000000000000000000.index", b"")?,
        time_index: file("00000000000000000000.timeindex", b"")?,
        transaction_index: None,
        producer_snapshot_index: None,
        leader_epoch_index: "0\n1\n0 0\n".into(),
    };
    let segment = RemoteLogSegmentMetadata::new(
        RemoteLogSegmentId::generate_new(partition.clone()),
        0,
        0,
        TIMESTAMP_MS,
        BROKER,
        TIMESTAMP_MS,
        RemoteLogSegmentDetails::new(
            i32::try_from(log.len()).expect("a short log"),
            RemoteLogSegmentState::CopySegmentStarted,
            BTreeMap::from([(EPOCH, 0)]),
        ),
    )?
    .with_txn_index_empty(true);

    metadata.add_segment(segment.clone()).await?;
    storage
        .copy(CopySegment::new(segment.clone(), files))
        .await?;
    metadata
        .update_segment(RemoteLogSegmentMetadataUpdate::new(
            segment.remote_log_segment_id().clone(),
            TIMESTAMP_MS,
            None,
            RemoteLogSegmentState::CopySegmentFinished,
            BROKER,
        ))
        .await
}

const TIMESTAMP_MS: i64 = 1_700_000_000_000;

/// A record batch (magic 2) of one record with this value and no key.
fn batch(base_offset: i64, value: &[u8]) -> Vec<u8> {
    let varint = |number: usize| u8::try_from(number << 1).expect("a short value");
    // Attributes, timestamp delta, offset delta, no key, the value, no headers.
    let mut record = vec![0, 0, 0, 1, varint(value.len())];
    record.extend_from_slice(value);
    record.push(0);

    // From the attributes on: what the checksum covers.
    let mut body = Vec::new();
    body.extend_from_slice(&0_i16.to_be_bytes());
    body.extend_from_slice(&0_i32.to_be_bytes()); // last offset delta
    body.extend_from_slice(&TIMESTAMP_MS.to_be_bytes()); // base timestamp
    body.extend_from_slice(&TIMESTAMP_MS.to_be_bytes()); // max timestamp
    body.extend_from_slice(&(-1_i64).to_be_bytes()); // producer id
    body.extend_from_slice(&(-1_i16).to_be_bytes()); // producer epoch
    body.extend_from_slice(&(-1_i32).to_be_bytes()); // base sequence
    body.extend_from_slice(&1_i32.to_be_bytes()); // records
    body.push(varint(record.len()));
    body.extend_from_slice(&record);

    let length = i32::try_from(4 + 1 + 4 + body.len()).expect("a short batch");
    let mut batch = Vec::new();
    batch.extend_from_slice(&base_offset.to_be_bytes());
    batch.extend_from_slice(&length.to_be_bytes());
    batch.extend_from_slice(&EPOCH.0.to_be_bytes()); // partition leader epoch
    batch.push(2); // magic
    batch.extend_from_slice(&crc32c::crc32c(&body).to_be_bytes());
    batch.extend_from_slice(&body);
    batch
}
