//! What the decoders of the metadata topic allocate: what an event has, and never what a length
//! only declares.

use std::hint::black_box;

use krabka_remote_storage::testing::segments::{SegmentSpec, orders};
use krabka_remote_storage::topic::{
    MetadataEvent, SNAPSHOT_FORMAT_VERSION, Snapshot, SnapshotCaches,
};
use krabka_remote_storage::{
    RemoteLogSegmentId, RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState,
};
use uuid::Uuid;

use crate::least;
use crate::support::alone::alone;

const KIB: usize = 1024;

#[test]
fn decoders_allocate_what_is_there_and_not_what_is_declared() {
    alone(|| {
        an_event_takes_few_allocations();
        lengths_and_counts_of_an_event_are_not_allocated();
        lengths_and_counts_of_a_snapshot_are_not_allocated();
        a_snapshot_allocates_in_proportion_to_its_bytes();
    });
}

fn segment_id() -> RemoteLogSegmentId {
    RemoteLogSegmentId::new(orders(0xca, 7), Uuid::from_u128(0xfe))
}

fn add() -> MetadataEvent {
    let spec = SegmentSpec::new(0xfe, 0..=99).of(&orders(0xca, 7));
    MetadataEvent::AddSegment(spec.size(4096).at(1, 3).broker(2).make())
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

/// A file with a right version and checksum.
fn sealed(content: &[u8]) -> Vec<u8> {
    let mut bytes = SNAPSHOT_FORMAT_VERSION.to_be_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_be_bytes());
    bytes
}

fn refused(bytes: &[u8]) {
    assert!(Snapshot::decode(bytes).is_err());
    assert!(SnapshotCaches::decode(bytes).is_err());
}

fn lengths_and_counts_of_a_snapshot_are_not_allocated() {
    const TOPIC_ID: [u8; 16] = [0; 16];
    const NO_OFFSETS: [u8; 4] = [0; 4];
    const MOST: [u8; 5] = [0xff, 0xff, 0xff, 0xff, 0x0f];
    let offsets = [&TOPIC_ID[..], &i32::MAX.to_be_bytes(), &[0]].concat();
    let entries = [&TOPIC_ID[..], &NO_OFFSETS, &MOST].concat();
    let entry = [&TOPIC_ID[..], &NO_OFFSETS, &[1], &MOST].concat();
    // The answers of a partition: no applied offset, and so many epochs.
    let partition = [&[0][..], &add().encode()[3..31]].concat();
    let answers = [&partition[..], &[0], &MOST].concat();
    let length = u8::try_from(answers.len()).expect("a short entry");
    let answers = [&TOPIC_ID[..], &NO_OFFSETS, &[1, length], &answers].concat();
    for (what, content) in [
        ("committed offsets", offsets),
        ("entries", entries),
        ("bytes of an entry", entry),
        ("answers", answers),
    ] {
        let bytes = sealed(&content);
        let heap = least(|| refused(&bytes));
        // The error's text.
        assert!(heap.peak < KIB, "{what}: {heap:?}");
    }
}

/// Many entries of partitions of their own: the worst that bytes can ask for.
fn a_snapshot_allocates_in_proportion_to_its_bytes() {
    let bytes_of = |partitions: u16| {
        let mut content = vec![0; 16 + 4];
        // A varint of two bytes.
        let [low, high] = [(partitions & 0x7f) | 0x80, partitions >> 7];
        content.extend([low, high].map(|byte| u8::try_from(byte).expect("7 bits, and a flag")));
        for partition in 0..partitions {
            let mut entry = add().encode().to_vec();
            entry[28..30].copy_from_slice(&partition.to_be_bytes());
            content.push(u8::try_from(entry.len()).expect("a short entry"));
            content.extend_from_slice(&entry);
        }
        sealed(&content)
    };
    for partitions in [128, 1_024, 8_192] {
        let bytes = bytes_of(partitions);
        let heap = least(|| drop(Snapshot::decode(&bytes).expect("a snapshot")));
        assert!(heap.peak < 16 * bytes.len() + KIB, "{heap:?}");
        let heap = least(|| {
            let decoded = SnapshotCaches::decode(&bytes).expect("a snapshot");
            assert_eq!(decoded.caches.len(), usize::from(partitions));
        });
        // A cache keeps its segments in blocks of 64, so one segment alone takes the most.
        assert!(heap.peak < 150 * bytes.len(), "{heap:?}");
    }
}
