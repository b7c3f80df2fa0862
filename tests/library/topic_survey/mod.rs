//! The whole metadata topic replayed to its end, and what it tells of a tier.

mod comparison;
mod named;
mod survey;

use std::time::{Duration, UNIX_EPOCH};

use krabka_remote_storage::metadata::RemoteLogMetadataCache;
use krabka_remote_storage::ops::Listing;
use krabka_remote_storage::testing::segments::{self, SegmentSpec};
use krabka_remote_storage::{
    LeaderEpoch, RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState, TopicIdPartition, kafka_uuid,
};
use object_store::ObjectMeta;
use object_store::path::Path;
use uuid::Uuid;

/// What each finished segment has.
const SUFFIXES: [&str; 5] = [
    ".log",
    ".index",
    ".timeindex",
    ".snapshot",
    ".leader_epoch_checkpoint",
];

const LOG_BYTES: u64 = 1024;

fn orders() -> TopicIdPartition {
    segments::orders(0xca, 7)
}

fn segment_id(id: u128) -> RemoteLogSegmentId {
    RemoteLogSegmentId::new(orders(), Uuid::from_u128(id))
}

/// Ten offsets in epoch 0, whose copy began at this time.
fn started(id: u128, start: i64, event_timestamp_ms: i64) -> RemoteLogSegmentMetadata {
    let spec = SegmentSpec::new(id, start..=start + 9).of(&orders());
    let spec = spec.size(i32::try_from(LOG_BYTES).unwrap());
    spec.at(1_000, event_timestamp_ms).make()
}

fn update(id: u128, time: i64, state: RemoteLogSegmentState) -> RemoteLogSegmentMetadataUpdate {
    RemoteLogSegmentMetadataUpdate::new(segment_id(id), time, None, state, 1)
}

/// A cache with segments in these states: id, start offset, state, time of the latest event.
fn cache(segments: &[(u128, i64, RemoteLogSegmentState, i64)]) -> RemoteLogMetadataCache {
    use RemoteLogSegmentState::{CopySegmentFinished, CopySegmentStarted, DeleteSegmentStarted};

    let mut cache = RemoteLogMetadataCache::new(orders());
    for &(id, start, state, time) in segments {
        cache.add_segment(&started(id, start, time)).unwrap();
        let steps: &[_] = match state {
            CopySegmentStarted => &[],
            CopySegmentFinished => &[CopySegmentFinished],
            _ => &[CopySegmentFinished, DeleteSegmentStarted],
        };
        for &step in steps {
            cache.update_segment(&update(id, time, step)).unwrap();
        }
    }
    cache
}

fn object(id: u128, start: i64, suffix: &str, size: u64) -> ObjectMeta {
    let id = kafka_uuid(Uuid::from_u128(id));
    named(&format!("{start:020}-{id}{suffix}"), size)
}

fn named(name: &str, size: u64) -> ObjectMeta {
    ObjectMeta {
        location: Path::from(format!("orders-7-AAAAAAAAAAAAAAAAAAAAyg/{name}")),
        last_modified: (UNIX_EPOCH + Duration::from_secs(1_700_000_000)).into(),
        size,
        e_tag: None,
        version: None,
    }
}

/// All objects of these segments: id, start offset.
fn whole(segments: &[(u128, i64)]) -> Listing {
    let objects = segments.iter().flat_map(|&(id, start)| {
        let of_segment = SUFFIXES.iter();
        of_segment.map(move |suffix| object(id, start, suffix, LOG_BYTES))
    });
    Listing::new(objects.collect(), Vec::new())
}
