//! The metadata topic of a real Kafka, replayed, against the answers of Kafka's own store.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use krabka_remote_storage::metadata::RemoteLogMetadataCache;
use krabka_remote_storage::{
    LeaderEpoch, RemoteLogSegmentDetails, RemoteLogSegmentId, RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState, TopicIdPartition, decode_kafka_uuid,
    kafka_uuid,
};
use serde_json::Value;

type Caches = BTreeMap<String, RemoteLogMetadataCache>;

fn read(name: &str) -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/metadata-topic");
    fs::read_to_string(dir.join(name)).unwrap()
}

fn int(value: &Value) -> i64 {
    value.as_i64().unwrap()
}

fn int32(value: &Value) -> i32 {
    int(value).try_into().unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn segment_id(event: &Value) -> RemoteLogSegmentId {
    let id = &event["id"];
    RemoteLogSegmentId::new(
        TopicIdPartition::new(
            decode_kafka_uuid(text(&id["topic_id"])).unwrap(),
            text(&id["topic"]),
            int32(&id["partition"]),
        ),
        decode_kafka_uuid(text(&id["segment_id"])).unwrap(),
    )
}

fn state(event: &Value) -> RemoteLogSegmentState {
    let name = text(&event["state"]);
    let mut states = RemoteLogSegmentState::ALL.into_iter();
    states.find(|state| state.to_string() == name).unwrap()
}

fn segment(event: &Value) -> RemoteLogSegmentMetadata {
    let epochs = event["segment_leader_epochs"].as_object().unwrap();
    let epochs = epochs
        .iter()
        .map(|(epoch, start)| (LeaderEpoch(epoch.parse().unwrap()), int(start)))
        .collect();
    RemoteLogSegmentMetadata::new(
        segment_id(event),
        int(&event["start_offset"]),
        int(&event["end_offset"]),
        int(&event["max_timestamp_ms"]),
        int32(&event["broker_id"]),
        int(&event["event_timestamp_ms"]),
        RemoteLogSegmentDetails::new(int32(&event["segment_size_in_bytes"]), state(event), epochs),
    )
    .unwrap()
    .with_txn_index_empty(event["txn_idx_empty"].as_bool().unwrap())
}

fn replay() -> Caches {
    let mut caches = Caches::new();
    for line in read("events.ndjson").lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let event = &record["event"];
        let tp = segment_id(event).topic_id_partition;
        let key = format!("{}:{}:{}", kafka_uuid(tp.topic_id), tp.topic, tp.partition);
        let cache = caches
            .entry(key)
            .or_insert_with(|| RemoteLogMetadataCache::new(tp));
        match text(&event["type"]) {
            "RemoteLogSegmentMetadata" => cache.replay_add_segment(&segment(event)).unwrap(),
            "RemoteLogSegmentMetadataUpdate" => cache
                .update_segment(&RemoteLogSegmentMetadataUpdate::new(
                    segment_id(event),
                    int(&event["event_timestamp_ms"]),
                    None,
                    state(event),
                    int32(&event["broker_id"]),
                ))
                .unwrap(),
            other => panic!("unexpected event {other}"),
        }
    }
    caches
}

#[test]
fn a_real_metadata_topic_gives_every_answer_of_kafkas_own_store() {
    let caches = replay();
    check(&caches);
    let imported = caches
        .into_iter()
        .map(|(key, cache)| (key, RemoteLogMetadataCache::import(cache.export())))
        .collect();
    check(&imported);
}

fn check(caches: &Caches) {
    let answers: BTreeMap<String, Value> =
        serde_json::from_str(&read("cache-answers.json")).unwrap();
    let keys: BTreeSet<_> = answers.keys().collect();
    assert_eq!(caches.keys().collect::<BTreeSet<_>>(), keys);
    let mut lookups = 0;
    for (key, answers) in &answers {
        let cache = &caches[key];
        for row in rows(&answers["lookups"]) {
            let (epoch, offset) = (epoch(row), int(&row["offset"]));
            let found = cache.find_segment(epoch, offset).map(|view| view.id());
            assert_eq!(
                found.map(kafka_uuid).as_deref(),
                row["segment_id"].as_str(),
                "{key} {row}"
            );
            if let Some(next) = row.get("next_with_txn_index") {
                let found = cache.find_segment_with_txn_index(epoch, offset);
                let found = found.map(|view| kafka_uuid(view.id()));
                assert_eq!(found.as_deref(), next.as_str(), "{key} {row}");
            }
            lookups += 1;
        }
        for row in rows(&answers["highest_offset_for_epoch"]) {
            assert_eq!(
                cache.highest_offset(epoch(row)),
                row["offset"].as_i64(),
                "{key} {row}"
            );
        }
        for row in rows(&answers["list_by_epoch"]) {
            check_list_by_epoch(cache, row);
        }
        let all: BTreeSet<_> = cache
            .list_segments()
            .iter()
            .map(|view| (kafka_uuid(view.id()), view.state().to_string()))
            .collect();
        let expected: BTreeSet<_> = rows(&answers["list_all"])
            .map(|row| {
                (
                    text(&row["segment_id"]).to_owned(),
                    text(&row["state"]).to_owned(),
                )
            })
            .collect();
        assert_eq!(all, expected, "{key}");
    }
    assert!(
        lookups > 400,
        "the file has fewer answers than expected: {lookups}"
    );
}

/// The same segments with ascending starts; Kafka defines no order among equal ones.
fn check_list_by_epoch(cache: &RemoteLogMetadataCache, row: &Value) {
    let listed = cache.list_segments_by_epoch(epoch(row));
    assert!(listed.is_sorted_by_key(|view| (view.start_offset(), view.id())));
    let starts: BTreeMap<_, _> = listed
        .iter()
        .map(|view| (kafka_uuid(view.id()), view.start_offset()))
        .collect();
    let expected: Vec<_> = rows(&row["segment_ids"]).map(text).collect();
    assert_eq!(
        starts.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        expected.iter().copied().collect::<BTreeSet<_>>(),
        "{row}"
    );
    assert!(expected.is_sorted_by_key(|id| starts[*id]), "{row}");
    assert_eq!(listed.len(), expected.len(), "{row}");
}

fn rows(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().unwrap().iter()
}

fn epoch(row: &Value) -> LeaderEpoch {
    LeaderEpoch(int32(&row["epoch"]))
}
