//! The metadata topic that a real Kafka wrote, and what its own store answered.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use krabka_remote_storage::metadata::RemoteLogMetadataCache;
use krabka_remote_storage::metadata::topic::MetadataEvent;
use krabka_remote_storage::{
    CustomMetadata, LeaderEpoch, RemoteLogSegmentDetails, RemoteLogSegmentId,
    RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState,
    RemotePartitionDeleteMetadata, RemotePartitionDeleteState, TopicIdPartition, decode_kafka_uuid,
    kafka_uuid,
};
use serde_json::Value;

/// Caches by `TOPICID:TOPIC:PARTITION`.
pub type Caches = BTreeMap<String, RemoteLogMetadataCache>;

/// The directory of what Kafka wrote.
pub fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn read(name: &str) -> String {
    fs::read_to_string(data().join("metadata-topic").join(name)).unwrap()
}

/// What Kafka's own store answered, by the same keys as [`replay`].
pub fn answers() -> BTreeMap<String, Value> {
    serde_json::from_str(&read("cache-answers.json")).unwrap()
}

pub fn rows(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().unwrap().iter()
}

pub fn epoch(row: &Value) -> LeaderEpoch {
    LeaderEpoch(int32(&row["epoch"]))
}

pub fn int(value: &Value) -> i64 {
    value.as_i64().unwrap()
}

pub fn int32(value: &Value) -> i32 {
    int(value).try_into().unwrap()
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// The partition that is named here.
pub fn topic_id_partition(of: &Value) -> TopicIdPartition {
    TopicIdPartition::new(
        decode_kafka_uuid(text(&of["topic_id"])).unwrap(),
        text(&of["topic"]),
        int32(&of["partition"]),
    )
}

fn segment_id(event: &Value) -> RemoteLogSegmentId {
    let id = &event["id"];
    let segment_id = decode_kafka_uuid(text(&id["segment_id"])).unwrap();
    RemoteLogSegmentId::new(topic_id_partition(id), segment_id)
}

fn state(event: &Value) -> RemoteLogSegmentState {
    let name = text(&event["state"]);
    let mut states = RemoteLogSegmentState::ALL.into_iter();
    states.find(|state| state.to_string() == name).unwrap()
}

/// The segment that this JSON stands for.
pub fn segment(event: &Value) -> RemoteLogSegmentMetadata {
    let epochs = event["segment_leader_epochs"].as_object().unwrap();
    let epochs = epochs
        .iter()
        .map(|(epoch, start)| (LeaderEpoch(epoch.parse().unwrap()), int(start)))
        .collect();
    let segment = RemoteLogSegmentMetadata::new(
        segment_id(event),
        int(&event["start_offset"]),
        int(&event["end_offset"]),
        int(&event["max_timestamp_ms"]),
        int32(&event["broker_id"]),
        int(&event["event_timestamp_ms"]),
        RemoteLogSegmentDetails::new(int32(&event["segment_size_in_bytes"]), state(event), epochs),
    )
    .unwrap()
    .with_txn_index_empty(event["txn_idx_empty"].as_bool().unwrap());
    match event.get("custom_metadata") {
        Some(custom) => segment.with_custom_metadata(CustomMetadata(bytes(text(custom)))),
        None => segment,
    }
}

fn update(event: &Value) -> RemoteLogSegmentMetadataUpdate {
    let custom = event.get("custom_metadata");
    RemoteLogSegmentMetadataUpdate::new(
        segment_id(event),
        int(&event["event_timestamp_ms"]),
        custom.map(|custom| CustomMetadata(bytes(text(custom)))),
        state(event),
        int32(&event["broker_id"]),
    )
}

fn partition_delete(event: &Value) -> RemotePartitionDeleteMetadata {
    let name = text(&event["state"]);
    let mut states = RemotePartitionDeleteState::ALL.into_iter();
    RemotePartitionDeleteMetadata::new(
        topic_id_partition(event),
        states.find(|state| state.to_string() == name).unwrap(),
        int(&event["event_timestamp_ms"]),
        int32(&event["broker_id"]),
    )
}

/// The event that this JSON stands for.
pub fn event(event: &Value) -> MetadataEvent {
    match text(&event["type"]) {
        "RemoteLogSegmentMetadata" => MetadataEvent::AddSegment(segment(event)),
        "RemoteLogSegmentMetadataUpdate" => MetadataEvent::UpdateSegment(update(event)),
        "RemotePartitionDeleteMetadata" => MetadataEvent::PartitionDelete(partition_delete(event)),
        other => panic!("unexpected event {other}"),
    }
}

/// A record of the topic.
pub struct Record {
    pub metadata_partition: i32,
    pub offset: i64,
    /// As the broker wrote it.
    pub value: Vec<u8>,
    /// As Kafka's own classes read the value.
    pub event: MetadataEvent,
}

/// Every record of the topic, in the order of its partitions and offsets.
pub fn records() -> Vec<Record> {
    let events = read("events.ndjson");
    let records = events.lines().map(|line| {
        let record: Value = serde_json::from_str(line).unwrap();
        let json = &record["event"];
        assert_eq!(record["key_null"], true);
        Record {
            metadata_partition: int32(&record["metadata_partition"]),
            offset: int(&record["offset"]),
            value: bytes(text(&record["value"])),
            event: event(json),
        }
    });
    records.collect()
}

/// The bytes that this hexadecimal text stands for.
pub fn bytes(hex: &str) -> Vec<u8> {
    assert_eq!(hex.len() % 2, 0, "{hex}");
    let pairs = (0..hex.len()).step_by(2);
    pairs
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

/// Every event of the topic, decoded and applied in the order of its partitions.
pub fn replay() -> Caches {
    let mut caches = Caches::new();
    for record in records() {
        let event = MetadataEvent::decode(&record.value).unwrap();
        assert_eq!(event, record.event);
        let tp = event.topic_id_partition();
        assert_eq!(tp.topic, record.event.topic_id_partition().topic);
        let key = format!("{}:{}:{}", kafka_uuid(tp.topic_id), tp.topic, tp.partition);
        let cache = caches
            .entry(key)
            .or_insert_with(|| RemoteLogMetadataCache::new(tp.clone()));
        match &event {
            MetadataEvent::AddSegment(metadata) => cache.replay_add_segment(metadata).unwrap(),
            MetadataEvent::UpdateSegment(update) => cache.update_segment(update).unwrap(),
            MetadataEvent::PartitionDelete(event) => cache.replay_partition_delete(event).unwrap(),
        }
    }
    caches
}
