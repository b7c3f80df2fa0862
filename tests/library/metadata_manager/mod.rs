//! The metadata managers: in memory, dumped and imported, not ready yet, and swapped in use.

mod blocking;
mod concurrency;
mod dump;
mod in_memory;
mod stand_ins;

use krabka_remote_storage::testing::segments::{SegmentSpec, orders as tp};
use krabka_remote_storage::{
    LeaderEpoch, RemoteLogMetadataManager, RemoteLogSegmentId, RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState, TopicIdPartition,
};
use uuid::Uuid;

use RemoteLogSegmentState::{
    CopySegmentFinished, CopySegmentStarted, DeleteSegmentFinished, DeleteSegmentStarted,
};

const EPOCH: LeaderEpoch = LeaderEpoch(0);

fn segment_id(tp: &TopicIdPartition, id: u128) -> RemoteLogSegmentId {
    RemoteLogSegmentId::new(tp.clone(), Uuid::from_u128(id))
}

fn segment_in(
    tp: &TopicIdPartition,
    id: u128,
    offsets: (i64, i64),
    state: RemoteLogSegmentState,
) -> RemoteLogSegmentMetadata {
    let spec = SegmentSpec::new(id, offsets.0..=offsets.1).of(tp);
    spec.size(1024).at(1, 1).state(state).make()
}

fn started(tp: &TopicIdPartition, id: u128, start: i64, end: i64) -> RemoteLogSegmentMetadata {
    segment_in(tp, id, (start, end), CopySegmentStarted)
}

fn update(
    tp: &TopicIdPartition,
    id: u128,
    state: RemoteLogSegmentState,
) -> RemoteLogSegmentMetadataUpdate {
    RemoteLogSegmentMetadataUpdate::new(segment_id(tp, id), 2, None, state, 1)
}

/// Adds and finishes a segment `start..=end` of epoch 0.
fn store_segment(
    manager: &dyn RemoteLogMetadataManager,
    tp: &TopicIdPartition,
    id: u128,
    (start, end): (i64, i64),
) {
    manager
        .add_remote_log_segment_metadata(started(tp, id, start, end))
        .unwrap();
    manager
        .update_remote_log_segment_metadata(update(tp, id, CopySegmentFinished))
        .unwrap();
}

fn found(
    manager: &dyn RemoteLogMetadataManager,
    tp: &TopicIdPartition,
    offset: i64,
) -> Option<u128> {
    let segment = manager
        .remote_log_segment_metadata(tp, EPOCH, offset)
        .unwrap();
    segment.map(|segment| id_of(&segment))
}

fn id_of(segment: &RemoteLogSegmentMetadata) -> u128 {
    segment.remote_log_segment_id().id.as_u128()
}
