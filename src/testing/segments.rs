//! Segments to copy: made up on the spot, of any size.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use krabka_remote_storage::{
    LeaderEpoch, LogSegmentData, RemoteLogSegmentDetails, RemoteLogSegmentId,
    RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition,
};
use uuid::Uuid;

/// Metadata of segment `id` of partition `orders-0`, which begins at `start_offset`.
pub fn metadata(id: u128, start_offset: i64, size: u64) -> Arc<RemoteLogSegmentMetadata> {
    let partition = TopicIdPartition::new(Uuid::from_u128(1), "orders", 0);
    let epochs = BTreeMap::from([(LeaderEpoch(0), start_offset)]);
    let details = RemoteLogSegmentDetails::new(
        i32::try_from(size).unwrap(),
        RemoteLogSegmentState::CopySegmentStarted,
        epochs,
    );
    let id = RemoteLogSegmentId::new(partition, Uuid::from_u128(id));
    Arc::new(
        RemoteLogSegmentMetadata::new(id, start_offset, start_offset + 9, -1, 1, 0, details)
            .unwrap(),
    )
}

/// Bytes that differ from place to place, so that a misplaced range shows.
pub fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length)
        .map(|at| ((at / 251 + at) % 256) as u8 ^ seed)
        .collect()
}

/// Writes the local files of a segment whose log is `log`.
pub fn files(dir: &Path, log: &[u8]) -> Arc<LogSegmentData> {
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    Arc::new(LogSegmentData {
        log_segment: write("0.log", log),
        offset_index: write("0.index", b"offset index"),
        time_index: write("0.timeindex", b"time index"),
        transaction_index: Some(write("0.txnindex", b"transaction index")),
        producer_snapshot_index: Some(write("1.snapshot", b"snapshot")),
        leader_epoch_index: Bytes::from_static(b"0\n1\n0 0\n"),
    })
}
