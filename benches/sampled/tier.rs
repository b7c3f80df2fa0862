//! A segment to fetch from.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use krabka_remote_storage::{
    LeaderEpoch, LogSegmentData, RemoteLogSegmentDetails, RemoteLogSegmentId,
    RemoteLogSegmentMetadata, RemoteLogSegmentState, RemoteStorageManager, TopicIdPartition,
};
use uuid::Uuid;

const LOG_BYTES: u32 = 16 * 1024 * 1024;

/// What one call fetches.
pub const WANTED: u32 = 64 * 1024;

/// Copies a segment to the tier; its local files are in `dir`.
pub fn segment(tier: &impl RemoteStorageManager, dir: &Path) -> Arc<RemoteLogSegmentMetadata> {
    let partition = TopicIdPartition::new(Uuid::from_u128(1), "orders", 0);
    let metadata = RemoteLogSegmentMetadata::new(
        RemoteLogSegmentId::new(partition, Uuid::from_u128(2)),
        0,
        999,
        -1,
        1,
        1,
        RemoteLogSegmentDetails::new(
            i32::try_from(LOG_BYTES).expect("a segment's size"),
            RemoteLogSegmentState::CopySegmentStarted,
            BTreeMap::from([(LeaderEpoch(0), 0)]),
        ),
    )
    .expect("a valid segment");
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.join(name);
        fs::write(&path, bytes).expect("a local file");
        path
    };
    let data = LogSegmentData {
        log_segment: file("log", &vec![7; LOG_BYTES as usize]),
        offset_index: file("index", b""),
        time_index: file("timeindex", b""),
        transaction_index: None,
        producer_snapshot_index: None,
        leader_epoch_index: "0\n1\n0 0\n".into(),
    };
    tier.copy_log_segment_data(&metadata, &data)
        .expect("a copy");
    Arc::new(metadata)
}

/// Where each of so many calls begins to read.
pub fn starts(calls: u64) -> impl Iterator<Item = u32> {
    (0..calls).map(|call| {
        let start = call * u64::from(WANTED) % u64::from(LOG_BYTES);
        u32::try_from(start).expect("a position in a segment")
    })
}
