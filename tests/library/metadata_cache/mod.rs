//! One partition's metadata cache against worked examples, against Kafka's own answers, and
//! against a slow model of the rules.

mod goldens;
mod kafka_answers;
mod model;
mod properties;
mod replayed;

use krabka_remote_storage::metadata::{RemoteLogMetadataCache, SegmentView};
use krabka_remote_storage::testing::segments::{SegmentSpec, orders};
use krabka_remote_storage::{
    CustomMetadata, LeaderEpoch, RemoteLogSegmentDetails, RemoteLogSegmentId,
    RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState,
    TopicIdPartition,
};
use uuid::Uuid;

fn tp() -> TopicIdPartition {
    orders(0xca, 7)
}

fn segment_id(id: u128) -> RemoteLogSegmentId {
    RemoteLogSegmentId::new(tp(), Uuid::from_u128(id))
}

/// A segment `start..=end` whose copy has begun.
fn started(id: u128, start: i64, end: i64, epochs: &[(i32, i64)]) -> RemoteLogSegmentMetadata {
    let spec = SegmentSpec::new(id, start..=end).of(&tp()).size(1024);
    spec.epochs(epochs).at(1_000, 10).make()
}

fn update(id: u128, state: RemoteLogSegmentState) -> RemoteLogSegmentMetadataUpdate {
    RemoteLogSegmentMetadataUpdate::new(segment_id(id), 20, None, state, 1)
}

fn custom(bytes: &[u8]) -> CustomMetadata {
    CustomMetadata(bytes.to_vec())
}

/// Adds and finishes each `(id, start, end)` in epoch 0, in this order.
fn finished_in_epoch_0(segments: &[(u128, i64, i64)]) -> RemoteLogMetadataCache {
    let mut cache = RemoteLogMetadataCache::new(tp());
    for &(id, start, end) in segments {
        cache
            .add_segment(&started(id, start, end, &[(0, start)]))
            .unwrap();
        finish(&mut cache, id);
    }
    cache
}

fn finish(cache: &mut RemoteLogMetadataCache, id: u128) {
    let event = update(id, RemoteLogSegmentState::CopySegmentFinished);
    cache.update_segment(&event).unwrap();
}

fn found(cache: &RemoteLogMetadataCache, epoch: i32, offset: i64) -> Option<u128> {
    let segment = cache.find_segment(LeaderEpoch(epoch), offset);
    segment.map(|segment| segment.id().as_u128())
}

fn highest(cache: &RemoteLogMetadataCache, epoch: i32) -> Option<i64> {
    cache.highest_offset(LeaderEpoch(epoch))
}

fn listed(cache: &RemoteLogMetadataCache) -> Vec<u128> {
    ids(&cache.list_segments())
}

fn listed_by_epoch(cache: &RemoteLogMetadataCache, epoch: i32) -> Vec<u128> {
    ids(&cache.list_segments_by_epoch(LeaderEpoch(epoch)))
}

fn ids(segments: &[SegmentView<'_>]) -> Vec<u128> {
    segments.iter().map(|view| view.id().as_u128()).collect()
}

/// Start offset and id of the segments that answer in this epoch.
fn readable(cache: &RemoteLogMetadataCache, epoch: i32) -> Vec<(i64, u128)> {
    let epochs = cache.export().epochs;
    let epoch = epochs
        .iter()
        .find(|dump| dump.leader_epoch == LeaderEpoch(epoch));
    let readable = epoch.map(|dump| dump.readable.iter());
    readable
        .into_iter()
        .flatten()
        .map(|&(start, id)| (start, id.as_u128()))
        .collect()
}
