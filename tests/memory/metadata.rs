//! What a million segments of one partition weigh, and what asking for one of them allocates.

use std::collections::BTreeMap;

use krabka_remote_storage::metadata::RemoteLogMetadataCache;
use krabka_remote_storage::{
    CustomMetadata, LeaderEpoch, RemoteLogSegmentDetails, RemoteLogSegmentId,
    RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState,
    TopicIdPartition,
};
use krabka_test_allocator::{Heap, Start};
use uuid::Uuid;

use crate::support::alone::alone;

const SEGMENTS: u32 = 1_000_000;
const SPAN: i64 = 1_000;
const EPOCHS: u32 = 4;

fn tp() -> TopicIdPartition {
    TopicIdPartition::new(
        Uuid::from_u128(0xca),
        "a-topic-with-a-name-of-usual-length",
        7,
    )
}

fn id(number: u32) -> RemoteLogSegmentId {
    RemoteLogSegmentId::new(tp(), Uuid::from_u128(u128::from(number) << 64 | 0xfe))
}

fn leader_epoch(epoch: u32) -> LeaderEpoch {
    LeaderEpoch(i32::try_from(epoch).unwrap())
}

/// Four epochs one after the other; one segment in a hundred also has offsets of a second one.
fn epochs(number: u32) -> BTreeMap<LeaderEpoch, i64> {
    let start = i64::from(number) * SPAN;
    let epoch = number / (SEGMENTS / EPOCHS);
    if number % 100 == 99 {
        let first = epoch.min(EPOCHS - 2);
        BTreeMap::from([
            (leader_epoch(first), start),
            (leader_epoch(first + 1), start + SPAN / 2),
        ])
    } else {
        BTreeMap::from([(leader_epoch(epoch), start)])
    }
}

fn started(number: u32) -> RemoteLogSegmentMetadata {
    let start = i64::from(number) * SPAN;
    let state = RemoteLogSegmentState::CopySegmentStarted;
    let details = RemoteLogSegmentDetails::new(1 << 30, state, epochs(number));
    RemoteLogSegmentMetadata::new(id(number), start, start + SPAN - 1, 1, 1, 1, details).unwrap()
}

fn update(number: u32, state: RemoteLogSegmentState) -> RemoteLogSegmentMetadataUpdate {
    RemoteLogSegmentMetadataUpdate::new(id(number), 2, None, state, 1)
}

fn live_bytes(start: Start) -> f64 {
    start.heap().live as f64
}

#[test]
fn a_million_finished_segments_are_compact_and_looked_up_without_allocating() {
    alone(|| {
        let start = Heap::start();
        let mut cache = RemoteLogMetadataCache::new(tp());
        for number in 0..SEGMENTS {
            cache.add_segment(&started(number)).unwrap();
            let finished = update(number, RemoteLogSegmentState::CopySegmentFinished);
            cache.update_segment(&finished).unwrap();
        }
        let each = live_bytes(start) / f64::from(SEGMENTS);
        println!("{each:.1} bytes of heap for each of {SEGMENTS} finished segments");
        assert!(
            each <= 200.0,
            "{each:.1} bytes of heap for each finished segment"
        );

        finding_a_segment_allocates_nothing(&cache);
        an_owned_answer_takes_three_allocations_at_most(&mut cache);
        deleted_segments_give_their_memory_back(&mut cache, start);
    });
}

fn finding_a_segment_allocates_nothing(cache: &RemoteLogMetadataCache) {
    let start = Heap::start();
    for number in (0..SEGMENTS)
        .step_by(997)
        .filter(|number| number % 100 != 99)
    {
        let epoch = leader_epoch(number / (SEGMENTS / EPOCHS));
        let offset = i64::from(number) * SPAN + 7;
        let segment = cache.find_segment(epoch, offset).unwrap();
        assert_eq!(segment.start_offset(), i64::from(number) * SPAN);
        assert!(cache.find_segment_with_txn_index(epoch, offset).is_some());
        assert!(cache.highest_offset(epoch) >= Some(offset));
        assert!(cache.log_size(epoch) > 0);
    }
    assert_eq!(start.heap().count, 0);
}

fn an_owned_answer_takes_three_allocations_at_most(cache: &mut RemoteLogMetadataCache) {
    // The topic's name, the epochs, custom metadata.
    let mut finished = update(99, RemoteLogSegmentState::DeleteSegmentStarted);
    finished.custom_metadata = Some(CustomMetadata(vec![7; 128]));
    cache.update_segment(&finished).unwrap();
    let listed = cache.list_segments();
    let rich = listed
        .iter()
        .find(|segment| segment.id() == id(99).id)
        .unwrap();
    for segment in [rich, &listed[0]] {
        let start = Heap::start();
        let owned = segment.to_metadata();
        let allocations = start.heap().count;
        assert!(allocations <= 3, "{allocations} allocations for {owned:?}");
    }
}

/// Retention deletes from the front: what is left weighs what it weighed before.
fn deleted_segments_give_their_memory_back(cache: &mut RemoteLogMetadataCache, start: Start) {
    let left = SEGMENTS / 10;
    for number in 0..SEGMENTS - left {
        if number != 99 {
            let begin = update(number, RemoteLogSegmentState::DeleteSegmentStarted);
            cache.update_segment(&begin).unwrap();
        }
        let end = update(number, RemoteLogSegmentState::DeleteSegmentFinished);
        cache.update_segment(&end).unwrap();
    }
    let each = live_bytes(start) / f64::from(left);
    println!("{each:.1} bytes of heap for each of the {left} segments left");
    assert!(
        each <= 300.0,
        "{each:.1} bytes of heap for each segment left"
    );
}
