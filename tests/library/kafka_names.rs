//! The names that a real Kafka broker gave: its own log directories, and its local tier.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use krabka_remote_storage::layout::{
    self, LEADER_EPOCH_CHECKPOINT_FILE, LogDirState, PARTITION_METADATA_FILE, SEGMENT_FILE_SUFFIXES,
};
use krabka_remote_storage::testing::segments::SegmentSpec;
use krabka_remote_storage::{TopicIdPartition, kafka_uuid};

fn data(dir: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(dir)
}

fn names(dir: &Path) -> BTreeSet<String> {
    fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn each_name_in_kafkas_tier_is_rendered_as_kafka_did() {
    let tier = data("tier/kafka-tiered-storage");
    let dirs = names(&tier);
    assert!(!dirs.is_empty());
    for dir in dirs {
        let partition = layout::parse_partition_dir_name(&dir).expect(&dir);
        let mut suffixes: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
        for file in names(&tier.join(&dir)) {
            let name = layout::parse_segment_file_name(&file).expect(&file);
            assert!(SEGMENT_FILE_SUFFIXES.contains(&name.suffix), "{file}");
            let (topic, offset) = (&*partition.topic, name.base_offset);
            let tp = TopicIdPartition::new(partition.topic_id, topic, partition.partition);
            let spec = SegmentSpec::new(name.segment_id.as_u128(), offset..=offset);
            let metadata = spec.of(&tp).make();
            assert_eq!(layout::partition_dir_name(&metadata), dir);
            assert_eq!(layout::segment_file_name(&metadata, name.suffix), file);
            let segment = (name.base_offset, name.segment_id);
            suffixes
                .entry(segment)
                .or_default()
                .insert(name.suffix.to_owned());
        }
        assert!(!suffixes.is_empty(), "{dir}");
        for (segment, suffixes) in suffixes {
            // Kafka writes the transaction index where there is one.
            for suffix in &SEGMENT_FILE_SUFFIXES[..5] {
                assert!(suffixes.contains(*suffix), "{dir} {segment:?} {suffix}");
            }
        }
    }
}

#[test]
fn each_name_in_a_brokers_partition_directories_is_known() {
    for root in ["partitions", "killed", "metadata-topic"] {
        let root = data(root);
        let dirs: Vec<_> = names(&root)
            .into_iter()
            .filter(|name| root.join(name).is_dir())
            .collect();
        assert!(!dirs.is_empty());
        for dir in dirs {
            let partition = layout::parse_log_dir_name(&dir).expect(&dir);
            assert_eq!(partition.state, LogDirState::Current);
            assert_eq!(format!("{}-{}", partition.topic, partition.partition), dir);
            let mut logs = 0;
            for file in names(&root.join(&dir)) {
                if let Some(name) = layout::parse_log_file_name(&file) {
                    assert_eq!(
                        layout::log_file_name(name.offset, name.suffix).unwrap(),
                        file
                    );
                    assert!(SEGMENT_FILE_SUFFIXES.contains(&name.suffix), "{file}");
                    logs += usize::from(name.suffix == ".log");
                } else {
                    assert!(
                        [LEADER_EPOCH_CHECKPOINT_FILE, PARTITION_METADATA_FILE].contains(&&*file),
                        "{file}"
                    );
                }
            }
            assert!(logs > 0, "{dir}");
        }
    }
}

#[test]
fn a_topic_id_in_a_tier_is_written_as_in_the_brokers_own_directory() {
    for dir in names(&data("tier/kafka-tiered-storage")) {
        let partition = layout::parse_partition_dir_name(&dir).expect(&dir);
        let log_dir = format!("{}-{}", partition.topic, partition.partition);
        let stated = data("partitions")
            .join(log_dir)
            .join(PARTITION_METADATA_FILE);
        let stated = fs::read_to_string(stated).unwrap();
        let topic_id = format!("topic_id: {}", kafka_uuid(partition.topic_id));
        assert!(stated.lines().any(|line| line == topic_id), "{stated}");
    }
}
