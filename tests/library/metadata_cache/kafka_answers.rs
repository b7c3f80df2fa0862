//! The metadata topic of a real Kafka, replayed, against the answers of Kafka's own store.

use std::collections::{BTreeMap, BTreeSet};

use krabka_remote_storage::kafka_uuid;
use krabka_remote_storage::metadata::RemoteLogMetadataCache;
use serde_json::Value;

use crate::support::metadata_topic::{Caches, answers, epoch, int, replay, rows, text};

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
    let answers = answers();
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
