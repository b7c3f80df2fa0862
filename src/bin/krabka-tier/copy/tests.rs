//! Copies of Kafka's directories, held against the tier that the same Kafka wrote.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use krabka_remote_storage::backends::ObjectStoreConfig;
use krabka_remote_storage::layout::{parse_partition_dir_name, parse_segment_file_name};
use krabka_remote_storage::model::{RemoteLogSegmentId, TopicIdPartition, kafka_uuid};
use uuid::Uuid;

use super::*;
use crate::log_dir::test_data;

/// Every file below a tier's root: directory and name, and its bytes.
fn files(root: &Path) -> BTreeMap<(String, String), Vec<u8>> {
    let mut files = BTreeMap::new();
    for dir in fs::read_dir(root).unwrap() {
        let dir = dir.unwrap();
        for file in fs::read_dir(dir.path()).unwrap() {
            let file = file.unwrap();
            let name = |name: std::ffi::OsString| name.into_string().unwrap();
            let bytes = fs::read(file.path()).unwrap();
            files.insert((name(dir.file_name()), name(file.file_name())), bytes);
        }
    }
    files
}

/// The ids that Kafka gave its segments, by topic id, partition and first offset.
fn kafkas_ids(tier: &BTreeMap<(String, String), Vec<u8>>) -> BTreeMap<(Uuid, i32, i64), Uuid> {
    tier.keys()
        .map(|(dir, file)| {
            let dir = parse_partition_dir_name(dir).unwrap();
            let file = parse_segment_file_name(file).unwrap();
            (
                (dir.topic_id, dir.partition, file.base_offset),
                file.segment_id,
            )
        })
        .collect()
}

fn local_tier(root: &Path) -> Tier {
    let config = ObjectStoreConfig::Local {
        root: root.to_owned(),
    };
    Tier::on(config.open().unwrap()).unwrap()
}

#[tokio::test]
async fn copied_with_kafkas_ids_the_tier_is_kafkas_file_by_file() {
    let expected = files(&test_data("tier/kafka-tiered-storage"));
    let ids = kafkas_ids(&expected);
    let root = tempfile::tempdir().unwrap();
    let tier = local_tier(root.path());
    for partitions in ["partitions", "killed"] {
        let plan = Plan::make(
            &tier,
            vec![test_data(partitions)],
            false,
            Strictness::default(),
        )
        .await
        .unwrap();
        assert!(plan.problems.is_empty() && plan.passed_over.is_empty());
        for planned in plan.copies {
            let tp: &TopicIdPartition = &planned.partition;
            let id = ids[&(tp.topic_id, tp.partition, planned.segment.base_offset)];
            let id = RemoteLogSegmentId::new(tp.clone(), id);
            tier.storage
                .copy(request(&planned, id, None).unwrap())
                .await
                .unwrap();
        }
    }

    let copied = files(root.path());
    // Of `retired` only events are left; the other partitions are all there.
    assert_eq!(
        copied.keys().collect::<Vec<_>>(),
        expected.keys().collect::<Vec<_>>()
    );
    let mut compared = 0;
    for (name, bytes) in &copied {
        let (dir, file) = name;
        if dir.starts_with("trimmed-") && file.ends_with(".leader_epoch_checkpoint") {
            // The start of its log moved after it was tiered.
            assert_eq!(bytes, b"0\n1\n0 453\n");
            assert_eq!(expected[name], b"0\n1\n0 0\n");
            continue;
        }
        assert!(*bytes == expected[name], "{dir}/{file}");
        compared += 1;
    }
    assert_eq!(compared, 240);
}

#[tokio::test]
async fn each_copy_has_an_id_of_its_own_and_what_kafka_would_publish() {
    let root = tempfile::tempdir().unwrap();
    let tier = local_tier(root.path());
    let plan = Plan::make(
        &tier,
        vec![test_data("partitions/payments-1")],
        false,
        Strictness::default(),
    )
    .await
    .unwrap();
    let planned = &plan.copies[1];
    let make = || {
        let id = RemoteLogSegmentId::generate_new(planned.partition.clone());
        request(planned, id, None).unwrap().metadata
    };
    let (one, other) = (make(), make());
    assert_ne!(
        kafka_uuid(one.remote_log_segment_id().id),
        kafka_uuid(other.remote_log_segment_id().id)
    );
    assert_eq!((one.start_offset(), one.end_offset()), (3, 175));
    assert!(!one.txn_index_empty());
    assert!(one.event_timestamp_ms() > 0);
}
