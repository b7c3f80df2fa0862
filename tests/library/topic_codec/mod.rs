//! The bytes of metadata events: against the values of Kafka's own classes, against what a real
//! broker wrote, and against bytes that nobody should write.

mod decoding;
mod fixtures;
mod goldens;
mod poison;
mod properties;

use std::collections::BTreeMap;

use krabka_remote_storage::testing::segments::{self, SegmentSpec};
use krabka_remote_storage::topic::MetadataEvent;
use krabka_remote_storage::{
    CustomMetadata, LeaderEpoch, RemoteLogSegmentDetails, RemoteLogSegmentId,
    RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState,
    RemotePartitionDeleteMetadata, RemotePartitionDeleteState, TopicIdPartition,
};
use uuid::Uuid;

use crate::support::metadata_topic::bytes;

/// What every add of the golden values begins with: all before the segment's size.
const ADD: &str = concat!(
    "010000076f7264657273000000000000000000000000000000ca0000000700",
    "000000000000000000000000000000fe00000000000000000000000000000000630000002a",
    "0000000000000064000000000000007b03000000000000000000000000000000000100000000",
    "0000003200",
);
/// The update that finishes a copy, of the golden values.
const UPDATE: &str = concat!(
    "010100076f7264657273000000000000000000000000000000ca0000000700",
    "000000000000000000000000000000fe000000002a00000000000001c8000100",
);

fn orders() -> TopicIdPartition {
    segments::orders(0xca, 7)
}

/// A segment of the golden values: what they differ in has a default.
struct Segment {
    tp: TopicIdPartition,
    end_offset: i64,
    max_timestamp_ms: i64,
    size: i32,
    state: RemoteLogSegmentState,
    epochs: Vec<(i32, i64)>,
}

impl Default for Segment {
    fn default() -> Self {
        Self {
            tp: orders(),
            end_offset: 99,
            max_timestamp_ms: 100,
            size: 4096,
            state: RemoteLogSegmentState::CopySegmentStarted,
            epochs: vec![(0, 0), (1, 50)],
        }
    }
}

impl Segment {
    fn build(self) -> RemoteLogSegmentMetadata {
        let spec = SegmentSpec::new(0xfe, 0..=self.end_offset).of(&self.tp);
        let spec = spec.at(self.max_timestamp_ms, 123).broker(42);
        let spec = spec.size(self.size).state(self.state);
        spec.epochs(&self.epochs).make()
    }

    fn add(self) -> MetadataEvent {
        MetadataEvent::AddSegment(self.build())
    }
}

fn custom(bytes: &[u8]) -> CustomMetadata {
    CustomMetadata(bytes.to_vec())
}

fn update(
    state: RemoteLogSegmentState,
    broker_id: i32,
    event_timestamp_ms: i64,
    custom: Option<CustomMetadata>,
) -> MetadataEvent {
    MetadataEvent::UpdateSegment(RemoteLogSegmentMetadataUpdate::new(
        RemoteLogSegmentId::new(orders(), Uuid::from_u128(0xfe)),
        event_timestamp_ms,
        custom,
        state,
        broker_id,
    ))
}

/// The event of [`UPDATE`].
fn finish() -> MetadataEvent {
    update(RemoteLogSegmentState::CopySegmentFinished, 42, 456, None)
}

fn delete(state: RemotePartitionDeleteState, event_timestamp_ms: i64) -> MetadataEvent {
    let event = RemotePartitionDeleteMetadata::new(orders(), state, event_timestamp_ms, 42);
    MetadataEvent::PartitionDelete(event)
}

/// Equality of events ignores the topic's name; this does not.
fn assert_same(actual: &MetadataEvent, expected: &MetadataEvent) {
    assert_eq!(actual, expected);
    assert_eq!(
        actual.topic_id_partition().topic,
        expected.topic_id_partition().topic
    );
}
