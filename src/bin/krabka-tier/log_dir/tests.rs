//! Against what a real Kafka wrote, and against what was damaged since.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use krabka_remote_storage::RemoteStorageError;
use krabka_remote_storage::index::LeaderEpochCheckpoint;
use krabka_remote_storage::model::{RemoteLogSegmentId, kafka_uuid};
use serde_json::Value;
use tempfile::TempDir;

use super::{ClosedLog, ClosedSegment, Gaps, PartitionDir, walk};

pub(crate) fn test_data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(path)
}

fn partitions(path: &str) -> Vec<PartitionDir> {
    let found = walk(&test_data(path), false).unwrap();
    assert!(found.problems.is_empty() && found.passed_over.is_empty());
    found.partitions
}

fn closed_segments(
    dir: &PartitionDir,
    gaps: Gaps,
) -> Result<Vec<ClosedSegment>, RemoteStorageError> {
    let checkpoint = dir.leader_epochs()?;
    let open = |log| ClosedSegment::open(dir, log, &checkpoint, gaps).transpose();
    dir.closed_logs()?.into_iter().filter_map(open).collect()
}

/// The finished segments of `events.ndjson`, by topic, partition and first offset.
fn finished_segments() -> BTreeMap<(String, i64, i64), Value> {
    let text = fs::read_to_string(test_data("metadata-topic/events.ndjson")).unwrap();
    let mut segments = BTreeMap::new();
    let mut finished = BTreeMap::new();
    for line in text.lines() {
        let event = serde_json::from_str::<Value>(line).unwrap()["event"].take();
        let id = &event["id"];
        match (
            event["type"].as_str().unwrap(),
            event["state"].as_str().unwrap(),
        ) {
            ("RemoteLogSegmentMetadata", _) => {
                segments.insert(id["segment_id"].to_string(), event);
            }
            (_, "COPY_SEGMENT_FINISHED") => {
                let segment = segments[&id["segment_id"].to_string()].clone();
                let topic = id["topic"].as_str().unwrap().to_owned();
                let partition = id["partition"].as_i64().unwrap();
                let start = segment["start_offset"].as_i64().unwrap();
                finished.insert((topic, partition, start), segment);
            }
            _ => {}
        }
    }
    finished
}

#[test]
fn the_metadata_of_every_closed_segment_is_what_kafka_published() {
    let expected = finished_segments();
    let mut compared = 0;
    for dir in partitions("partitions")
        .into_iter()
        .chain(partitions("killed"))
    {
        let tp = dir.topic_id_partition.clone();
        for segment in closed_segments(&dir, Gaps::Refused).unwrap() {
            let key = (tp.topic.clone(), tp.partition.into(), segment.base_offset);
            let event = &expected[&key];
            let id = RemoteLogSegmentId::generate_new(tp.clone());
            let metadata = segment.metadata(id, 0).unwrap();
            assert_eq!(kafka_uuid(tp.topic_id), event["id"]["topic_id"]);
            assert_eq!(metadata.end_offset(), event["end_offset"], "{key:?}");
            assert_eq!(
                metadata.max_timestamp_ms(),
                event["max_timestamp_ms"],
                "{key:?}"
            );
            assert_eq!(
                metadata.segment_size_in_bytes(),
                event["segment_size_in_bytes"]
            );
            assert_eq!(
                metadata.txn_index_empty(),
                event["txn_idx_empty"],
                "{key:?}"
            );
            let epochs: serde_json::Map<_, _> = metadata
                .segment_leader_epochs()
                .iter()
                .map(|(epoch, first)| (epoch.0.to_string(), Value::from(*first)))
                .collect();
            // The start of `trimmed` moved into its first segment after that was tiered.
            if tp.topic == "trimmed" && segment.base_offset < 453 {
                assert_eq!(epochs["0"], 453);
            } else {
                assert_eq!(
                    Value::Object(epochs),
                    event["segment_leader_epochs"],
                    "{key:?}"
                );
            }
            compared += 1;
        }
    }
    assert_eq!(compared, 62);
}

#[test]
fn the_active_segment_is_never_handed_out() {
    for dir in partitions("partitions") {
        let logs = dir.closed_logs().unwrap();
        let mut bases: Vec<i64> = fs::read_dir(&dir.path)
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
            .filter_map(|name| name.strip_suffix(".log")?.parse().ok())
            .collect();
        bases.sort_unstable();
        let active = bases.pop().unwrap();
        assert_eq!(
            logs.iter().map(|log| log.base_offset).collect::<Vec<_>>(),
            bases
        );
        assert_eq!(logs.last().unwrap().next_base_offset, active);
    }
}

/// A copy of a partition of the test data in a directory of its own.
fn scratch(partition: &str) -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join(partition);
    fs::create_dir(&dir).unwrap();
    for entry in fs::read_dir(test_data("partitions").join(partition)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), dir.join(entry.file_name())).unwrap();
    }
    (root, dir)
}

fn error_text(result: Result<impl std::fmt::Debug, RemoteStorageError>) -> String {
    crate::failure::chain(&result.unwrap_err())
}

fn open_all(dir: &Path) -> Result<Vec<ClosedSegment>, RemoteStorageError> {
    let found = walk(dir, false)?;
    closed_segments(&found.partitions[0], Gaps::Refused)
}

#[test]
#[expect(clippy::too_many_lines, reason = "one row for each way to be damaged")]
fn damaged_directories_are_refused_by_the_name_of_the_file() {
    type Damage = fn(&Path);
    const LOG: &str = "00000000000000000270.log";
    fn cut(dir: &Path, name: &str, length: u64) {
        let file = fs::File::options()
            .write(true)
            .open(dir.join(name))
            .unwrap();
        file.set_len(length).unwrap();
    }
    fn remove(dir: &Path, name: &str) {
        fs::remove_file(dir.join(name)).unwrap();
    }
    let rows: [(&str, &str, Damage); 20] = [
        ("partition.metadata", "has no `partition.metadata`", |dir| {
            remove(dir, "partition.metadata");
        }),
        ("partition.metadata", "version \"7\"", |dir| {
            fs::write(dir.join("partition.metadata"), "version: 7\ntopic_id: x\n").unwrap();
        }),
        ("leader-epoch-checkpoint", "cannot read", |dir| {
            remove(dir, "leader-epoch-checkpoint");
        }),
        (
            "leader-epoch-checkpoint",
            "corrupt leader epoch checkpoint",
            |dir| {
                fs::write(dir.join("leader-epoch-checkpoint"), "0\n9\n0 0\n").unwrap();
            },
        ),
        ("00000000000000000270.log", "epochs of", |dir| {
            fs::write(dir.join("leader-epoch-checkpoint"), "0\n0\n").unwrap();
            remove(dir, "00000000000000000000.log");
        }),
        ("00000000000000000270.index", "is missing", |dir| {
            remove(dir, "00000000000000000270.index");
        }),
        ("00000000000000000270.timeindex", "is missing", |dir| {
            remove(dir, "00000000000000000270.timeindex");
        }),
        // The state after the segment that begins with 270.
        ("00000000000000000564.snapshot", "is missing", |dir| {
            remove(dir, "00000000000000000564.snapshot");
        }),
        (
            "00000000000000000270.index",
            "corrupt remote offset index",
            |dir| {
                cut(dir, "00000000000000000270.index", 9);
            },
        ),
        ("00000000000000000270.index", "up to offset", |dir| {
            fs::copy(
                dir.join("00000000000000000564.index"),
                dir.join("00000000000000000270.index"),
            )
            .unwrap();
        }),
        ("00000000000000000270.timeindex", "up to offset", |dir| {
            fs::copy(
                dir.join("00000000000000000564.timeindex"),
                dir.join("00000000000000000270.timeindex"),
            )
            .unwrap();
        }),
        (
            "00000000000000000564.snapshot",
            "corrupt producer snapshot",
            |dir| cut(dir, "00000000000000000564.snapshot", 0),
        ),
        (
            "00000000000000000564.snapshot",
            "corrupt producer snapshot",
            |dir| {
                let path = dir.join("00000000000000000564.snapshot");
                let mut bytes = fs::read(&path).unwrap();
                *bytes.last_mut().unwrap() ^= 1;
                fs::write(&path, bytes).unwrap();
            },
        ),
        // A link to a disk that is not mounted is no log that the broker deleted.
        (LOG, "cannot find", |dir| {
            remove(dir, LOG);
            std::os::unix::fs::symlink("/nowhere/at/all.log", dir.join(LOG)).unwrap();
        }),
        ("00000000000000000000.log", "cannot find", |dir| {
            remove(dir, "00000000000000000000.log");
            let link = dir.join("00000000000000000000.log");
            std::os::unix::fs::symlink("/nowhere/at/all.log", link).unwrap();
        }),
        (LOG, "bytes begins", |dir| cut(dir, LOG, 24_000)),
        (LOG, "within a batch", |dir| cut(dir, LOG, 5)),
        (LOG, "before offset 270", |dir| cut(dir, LOG, 0)),
        (LOG, "has size", |dir| {
            fs::write(dir.join(LOG), vec![0; 1000]).unwrap();
        }),
        (LOG, "where 270 to 563 are left", |dir| {
            fs::copy(dir.join("00000000000000000564.log"), dir.join(LOG)).unwrap();
        }),
    ];
    for (file, says, damage) in rows {
        let (_root, dir) = scratch("orders-0");
        damage(&dir);
        let text = error_text(open_all(&dir));
        assert!(text.contains(says), "{says:?}: {text}");
        let named = dir.join(file);
        let named = named.to_str().unwrap();
        assert!(
            text.contains(named)
                || text.contains(dir.to_str().unwrap()) && file.starts_with("partition"),
            "{named}: {text}"
        );
    }
}

#[test]
fn a_log_that_was_cut_between_two_batches_is_refused_unless_gaps_are_allowed() {
    let (_root, dir) = scratch("orders-0");
    let log = dir.join("00000000000000000270.log");
    let bytes = fs::read(&log).unwrap();
    let last = krabka_remote_storage::index::Batches::new(&bytes)
        .last()
        .unwrap()
        .unwrap();
    fs::write(&log, &bytes[..last.position()]).unwrap();
    let dir = walk(&dir, false).unwrap().partitions.remove(0);
    let text = error_text(closed_segments(&dir, Gaps::Refused));
    assert!(text.contains("--allow-gaps"), "{text}");
    // Compaction makes the indexes anew, so one that goes beyond its log tells of a cut.
    let text = error_text(closed_segments(&dir, Gaps::Allowed));
    assert!(
        text.contains("00000000000000000270.log") && text.contains("has been cut"),
        "{text}"
    );
    let index = dir.path.join("00000000000000000270.index");
    let bytes = fs::read(&index).unwrap();
    fs::write(&index, &bytes[..bytes.len() - 8]).unwrap();
    assert_eq!(closed_segments(&dir, Gaps::Allowed).unwrap().len(), 6);
}

#[test]
fn segments_below_the_start_of_the_log_are_left_to_the_broker() {
    let (_root, path) = scratch("orders-0");
    fs::write(path.join("leader-epoch-checkpoint"), "0\n2\n1 564\n2 900\n").unwrap();
    let dir = walk(&path, false).unwrap().partitions.remove(0);
    let first: Vec<_> = closed_segments(&dir, Gaps::Refused)
        .unwrap()
        .iter()
        .map(|segment| segment.base_offset)
        .collect();
    assert_eq!(first, [564, 900, 1152, 1422]);
}

#[test]
fn an_empty_transaction_index_counts_as_none() {
    let (_root, path) = scratch("orders-0");
    fs::write(path.join("00000000000000000270.txnindex"), "").unwrap();
    let dir = walk(&path, false).unwrap().partitions.remove(0);
    let log = ClosedLog {
        base_offset: 270,
        next_base_offset: 564,
        size_bytes: 24_426,
    };
    let checkpoint: LeaderEpochCheckpoint = dir.leader_epochs().unwrap();
    let segment = ClosedSegment::open(&dir, log, &checkpoint, Gaps::Refused)
        .unwrap()
        .unwrap();
    assert!(segment.txn_index_empty);
    assert!(segment.data.transaction_index.is_some());
}

#[test]
fn a_log_directory_is_walked_and_what_is_no_partition_in_use_is_passed_over() {
    let (root, orders) = scratch("orders-0");
    let root = root.path();
    let like_orders = |name: &str| {
        let dir = root.join(name);
        fs::create_dir(&dir).unwrap();
        fs::copy(
            orders.join("partition.metadata"),
            dir.join("partition.metadata"),
        )
        .unwrap();
    };
    like_orders("payments-3");
    like_orders("__consumer_offsets-7");
    like_orders("orders-1.0123456789abcdef-delete");
    like_orders("orders-2.0123456789abcdef-future");
    like_orders("orders-3.0123456789abcdef-stray");
    fs::create_dir(root.join("remote-log-index-cache")).unwrap();
    fs::create_dir(root.join("nothing-5")).unwrap();
    fs::write(root.join("meta.properties"), "version=1\n").unwrap();
    fs::write(root.join("clicks-4"), "a file").unwrap();

    let names = |internal| {
        let found = walk(root, internal).unwrap();
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let partitions: Vec<_> = found.partitions.iter().map(|dir| name(&dir.path)).collect();
        let passed_over: Vec<_> = found
            .passed_over
            .iter()
            .map(|(path, _)| name(path))
            .collect();
        (partitions, passed_over, found.problems.len())
    };
    let (partitions, passed_over, problems) = names(false);
    assert_eq!(partitions, ["orders-0", "payments-3"]);
    assert_eq!(
        passed_over,
        [
            "__consumer_offsets-7",
            "orders-1.0123456789abcdef-delete",
            "orders-2.0123456789abcdef-future",
            "orders-3.0123456789abcdef-stray",
        ]
    );
    assert_eq!(problems, 1, "nothing-5 has no partition.metadata");
    assert_eq!(
        names(true).0,
        ["__consumer_offsets-7", "orders-0", "payments-3"]
    );

    let deleted = root.join("orders-1.0123456789abcdef-delete");
    assert!(error_text(walk(&deleted, false)).contains("deleting"));
    // Named itself, an internal topic is meant.
    let internal = walk(&root.join("__consumer_offsets-7"), false).unwrap();
    assert_eq!(internal.partitions.len(), 1);
}

#[test]
fn a_log_directory_may_be_named_like_a_partition() {
    let (root, _) = scratch("orders-0");
    let log_dir = root.path().join("kafka-logs-1");
    fs::create_dir(&log_dir).unwrap();
    fs::rename(root.path().join("orders-0"), log_dir.join("orders-0")).unwrap();
    let found = walk(&log_dir, false).unwrap();
    assert_eq!(found.partitions[0].topic_id_partition.topic, "orders");
}

#[test]
fn directories_without_a_partition_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let empty = root.path().join("orders-0");
    fs::create_dir(&empty).unwrap();
    let text = error_text(
        walk(root.path(), false)
            .map(|found| found.problems)
            .and_then(|mut problems| Err::<(), _>(problems.remove(0))),
    );
    assert!(text.contains("has no `partition.metadata`"), "{text}");
    assert!(error_text(walk(&empty, false)).contains("has no `partition.metadata`"));
    assert!(error_text(walk(&root.path().join("gone"), false)).contains("gone"));
    fs::remove_dir(&empty).unwrap();
    assert!(error_text(walk(root.path(), false)).contains("holds none"));

    let (_root, dir) = scratch("orders-0");
    for entry in fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "log") {
            fs::remove_file(path).unwrap();
        }
    }
    assert!(error_text(open_all(&dir)).contains("holds no log segment"));
}
