//! What the decoders of the metadata topic allocate: what an event has, and never what a length
//! only declares.

use std::collections::BTreeMap;
use std::hint::black_box;

use krabka_remote_storage::topic::MetadataEvent;
use krabka_remote_storage::{
    LeaderEpoch, RemoteLogSegmentDetails, RemoteLogSegmentId, RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState, TopicIdPartition,
};
use krabka_test_allocator::{Counting, Heap};
use uuid::Uuid;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const KIB: usize = 1024;

/// One test, because the counters are those of the whole process.
#[test]
fn decoders_allocate_what_is_there_and_not_what_is_declared() {
    an_event_takes_few_allocations();
    lengths_and_counts_of_an_event_are_not_allocated();
}

fn segment_id() -> RemoteLogSegmentId {
    let tp = TopicIdPartition::new(Uuid::from_u128(0xca), "orders", 7);
    RemoteLogSegmentId::new(tp, Uuid::from_u128(0xfe))
}

fn add() -> MetadataEvent {
    let started = RemoteLogSegmentState::CopySegmentStarted;
    let epochs = BTreeMap::from([(LeaderEpoch(0), 0)]);
    let details = RemoteLogSegmentDetails::new(4096, started, epochs);
    let segment = RemoteLogSegmentMetadata::new(segment_id(), 0, 99, 1, 2, 3, details);
    MetadataEvent::AddSegment(segment.expect("a valid segment"))
}

fn update() -> MetadataEvent {
    let finished = RemoteLogSegmentState::CopySegmentFinished;
    let update = RemoteLogSegmentMetadataUpdate::new(segment_id(), 1, None, finished, 2);
    MetadataEvent::UpdateSegment(update)
}

fn an_event_takes_few_allocations() {
    // The topic's name, and the map of epochs.
    for (event, allocations) in [(add(), 2), (update(), 1)] {
        let encode = || drop(black_box(event.encode()));
        assert_eq!(least(encode).count, 1);
        let value = event.encode();
        let decode = || drop(black_box(MetadataEvent::decode(&value).expect("an event")));
        assert_eq!(least(decode).count, allocations);
    }
}

fn lengths_and_counts_of_an_event_are_not_allocated() {
    let huge = [0xff, 0xff, 0xff, 0xff, 0x07];
    let (add, update) = (add().encode(), update().encode());
    // The name's length, the number of epochs, the custom metadata's length, tags.
    for (value, at) in [
        (&add, 3),
        (&add, 84),
        (&add, add.len() - 3),
        (&add, add.len() - 1),
        (&update, 3),
        (&update, 30),
        (&update, update.len() - 3),
        (&update, update.len() - 1),
    ] {
        let value = [&value[..at], &huge, &value[at + 1..]].concat();
        let heap = least(|| assert!(MetadataEvent::decode(&value).is_err()));
        // The name, the epochs that are there, and the error's text.
        assert!(heap.peak < KIB, "byte {at}: {heap:?}");
    }
}

/// What `work` allocates: the least of a few runs, as the test's harness may allocate at the same
/// time.
fn least(work: impl Fn()) -> Heap {
    (0..5)
        .map(|_| {
            let start = Heap::start();
            work();
            start.heap()
        })
        .min_by_key(|heap| heap.peak)
        .expect("runs")
}
