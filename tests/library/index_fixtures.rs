//! The decoders against the files and the answers of a real Apache Kafka (`tests/data`).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use krabka_remote_storage::index::{
    Batches, ControlRecordType, DEFAULT_MAX_DECOMPRESSED_BYTES, EndTransactionMarker,
    LeaderEpochCheckpoint, OffsetIndex, ProducerSnapshot, TimeIndex, parse_offset_index,
    parse_time_index, parse_txn_index, sanity_check_txn_index,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

#[test]
fn every_record_equals_what_kafkas_consumer_returned() {
    let mut compared = 0;
    for dir in directories(&data("partitions")) {
        let partition = file_name(&dir);
        let expected = ndjson(&data("expected").join(format!("{partition}.records.ndjson")));
        let first_offset = expected[0]["offset"].as_i64().expect("offset");
        let decoded: Vec<Value> = files(&dir, ".log")
            .iter()
            .flat_map(|log| consumed_records(&fs::read(log).expect("log")))
            // DeleteRecords moves the start of a log into a segment.
            .filter(|record| record["offset"].as_i64() >= Some(first_offset))
            .collect();
        assert_eq!(decoded.len(), expected.len(), "{partition}");
        for (decoded, expected) in decoded.iter().zip(&expected) {
            assert_eq!(decoded, expected, "{partition}");
            compared += 1;
        }
    }
    assert_eq!(compared, 6069);
}

#[test]
fn every_index_answers_what_kafkas_own_classes_answer() {
    let segments = expected_segments();
    assert_eq!(segments.len(), 55);
    for expected in &segments {
        let segment = Segment::open("partitions", expected);
        let name = &segment.name;
        assert_eq!(segment.batches(), expected["batches"], "{name}");

        let parsed = parse_offset_index(&segment.offset_index).expect("offset index");
        assert_eq!(
            json!(parsed.len()),
            expected["offset_index_entries"],
            "{name}"
        );
        segment.compare_offset_lookups(expected);
        let index = OffsetIndex::new(segment.base_offset, &segment.offset_index);
        index.sanity_check().expect("offset index");

        let parsed = parse_time_index(&segment.time_index).expect("time index");
        assert_eq!(
            json!(parsed.len()),
            expected["time_index_entries"],
            "{name}"
        );
        let index = TimeIndex::new(segment.base_offset, &segment.time_index);
        for lookup in list(&expected["time_lookups"]) {
            let found = index.lookup(number(&lookup[0]));
            assert_eq!(
                json!([lookup[0], found.timestamp, found.offset]),
                *lookup,
                "{name}"
            );
        }
        index.sanity_check().expect("time index");

        let aborted = parse_txn_index(&segment.txn_index).expect("transaction index");
        let listed: Value = aborted
            .iter()
            .map(|txn| {
                json!([
                    txn.producer_id.get(),
                    txn.start_offset.get(),
                    txn.last_offset.get(),
                    txn.last_stable_offset.get(),
                ])
            })
            .collect();
        assert_eq!(listed, expected["aborted"], "{name}");
        sanity_check_txn_index(aborted, segment.base_offset).expect("transaction index");
    }
}

#[test]
fn the_indexes_of_a_killed_broker_answer_the_same() {
    let mut zero_tails = 0;
    let mut compared = 0;
    for expected in &expected_segments() {
        let dir = expected["dir"].as_str().expect("dir");
        if !data("killed").join(dir).is_dir() {
            continue;
        }
        let segment = Segment::open("killed", expected);
        assert_eq!(segment.batches(), expected["batches"], "{}", segment.name);
        segment.compare_offset_lookups(expected);

        let parsed = parse_offset_index(&segment.offset_index).expect("offset index");
        assert_eq!(
            json!(parsed.len()),
            expected["offset_index_entries"],
            "{}",
            segment.name
        );
        zero_tails += usize::from(size_of_val(parsed) < segment.offset_index.len());
        segment.check_time_scans();
        compared += 1;
    }
    assert_eq!(compared, 16);
    assert_eq!(
        zero_tails, 2,
        "the active segment of each partition is preallocated"
    );
}

#[test]
fn no_scan_by_time_starts_after_the_first_record_of_that_time() {
    for expected in &expected_segments() {
        Segment::open("partitions", expected).check_time_scans();
    }
}

#[test]
fn the_upper_bound_of_a_fetch_is_never_below_what_the_fetch_returns() {
    for expected in &expected_segments() {
        let segment = Segment::open("partitions", expected);
        let index = OffsetIndex::new(segment.base_offset, &segment.offset_index);
        let batches = list(&expected["batches"]);
        for (from, first) in batches.iter().enumerate() {
            for last in &batches[from..] {
                let start = number(&first[0]);
                let size = number(&last[0]) + number(&last[1]) - start;
                let bound = index.fetch_upper_bound_offset(
                    start.try_into().expect("position"),
                    size.try_into().expect("size"),
                );
                // The first entry of a later batch, if the index has one.
                let later = batches.iter().find(|batch| {
                    let indexed = index.lookup(number(&batch[3]));
                    number(&batch[0]) >= start + size && indexed.offset == number(&batch[3])
                });
                assert_eq!(
                    bound,
                    later.map(|batch| number(&batch[3])),
                    "{}",
                    segment.name
                );
            }
        }
    }
}

#[test]
fn every_marker_belongs_to_a_transaction_and_every_abort_is_in_an_index() {
    for dir in directories(&data("partitions")) {
        let mut aborts = Vec::new();
        let mut indexed = Vec::new();
        for log in files(&dir, ".log") {
            let bytes = fs::read(&log).expect("log");
            for batch in Batches::new(&bytes) {
                let batch = batch.expect("batch");
                let header = batch.header().expect("header");
                if !header.is_control() {
                    continue;
                }
                let records = batch.records(0).expect("markers are not compressed");
                for record in &records {
                    assert!(
                        EndTransactionMarker::of(&record)
                            .expect("marker")
                            .coordinator_epoch
                            >= 0
                    );
                    match ControlRecordType::of(&record).expect("type") {
                        ControlRecordType::Abort => {
                            aborts.push((header.producer_id(), record.offset));
                        }
                        ControlRecordType::Commit => {}
                        other => panic!("{other:?} in a partition"),
                    }
                }
            }
            let index = fs::read(log.with_extension("txnindex")).unwrap_or_default();
            for entry in parse_txn_index(&index).expect("transaction index") {
                indexed.push((entry.producer_id.get(), entry.last_offset.get()));
            }
        }
        assert_eq!(aborts, indexed, "{}", dir.display());
    }
}

#[test]
fn producer_snapshots_name_the_transactions_that_are_open() {
    let mut snapshots = 0;
    for root in ["partitions", "killed"] {
        for dir in directories(&data(root)) {
            for path in files(&dir, ".snapshot") {
                let bytes = fs::read(&path).expect("snapshot");
                let snapshot = ProducerSnapshot::parse(&bytes).expect("snapshot");
                let end = segment_number(&path);
                let mut named: Vec<_> = snapshot
                    .open_transactions()
                    .map(|entry| {
                        (
                            entry.producer_id.get(),
                            entry.current_txn_first_offset.get(),
                        )
                    })
                    .collect();
                named.sort_unstable();
                assert_eq!(named, open_transactions(&dir, end), "{}", path.display());
                assert_eq!(
                    snapshot.first_undecided_offset(),
                    named.iter().map(|&(_, first)| first).min()
                );
                snapshots += 1;
            }
        }
    }
    assert_eq!(snapshots, 70);
}

#[test]
fn a_partitions_checkpoint_cut_at_a_segments_end_is_the_one_in_the_tier() {
    let mut compared = 0;
    for tier in directories(&data("tier/kafka-tiered-storage")) {
        let name = file_name(&tier);
        // The topic id has 22 characters, and a dash before it.
        let partition = &name[..name.len() - 23];
        // DeleteRecords moved its local start after the segments were tiered.
        if partition == "trimmed-0" {
            continue;
        }
        let dir = data("partitions").join(partition);
        let local = fs::read(dir.join("leader-epoch-checkpoint")).expect("checkpoint");
        let local = LeaderEpochCheckpoint::parse(&local).expect("checkpoint");
        assert_eq!(local.lineage().expect("lineage").len(), local.entries.len());
        let starts: Vec<_> = files(&dir, ".log")
            .iter()
            .map(|log| segment_number(log))
            .collect();
        for path in files(&tier, ".leader_epoch_checkpoint") {
            let start: i64 = file_name(&path)[..20].parse().expect("start offset");
            let next = starts
                .iter()
                .find(|&&other| other > start)
                .expect("next segment");
            let tiered = fs::read_to_string(&path).expect("checkpoint");
            assert_eq!(
                local.up_to(next - 1).to_string(),
                tiered,
                "{}",
                path.display()
            );
            compared += 1;
        }
    }
    assert_eq!(compared, 43);
}

#[test]
fn the_epochs_of_a_segment_are_those_that_kafka_gave_its_metadata() {
    let mut compared = 0;
    for event in ndjson(&data("metadata-topic/events.ndjson")) {
        let event = &event["event"];
        let epochs = &event["segment_leader_epochs"];
        let (Some(topic), Some(partition)) = (
            event["id"]["topic"].as_str(),
            event["id"]["partition"].as_i64(),
        ) else {
            continue;
        };
        let dir = data("partitions").join(format!("{topic}-{partition}"));
        // The checkpoint of `trimmed` no longer reaches back to its tiered segments.
        if epochs.is_null() || topic == "trimmed" || !dir.is_dir() {
            continue;
        }
        let checkpoint = fs::read(dir.join("leader-epoch-checkpoint")).expect("checkpoint");
        let found = LeaderEpochCheckpoint::parse(&checkpoint)
            .expect("checkpoint")
            .segment_leader_epochs(number(&event["start_offset"]), number(&event["end_offset"]))
            .expect("epochs");
        assert_eq!(json!(found), *epochs, "{event}");
        compared += 1;
    }
    assert_eq!(compared, 44);
}

/// The files of one segment.
struct Segment {
    name: String,
    base_offset: i64,
    log: Vec<u8>,
    offset_index: Vec<u8>,
    time_index: Vec<u8>,
    txn_index: Vec<u8>,
}

impl Segment {
    fn open(root: &str, expected: &Value) -> Self {
        let base_offset = number(&expected["base_offset"]);
        let dir = expected["dir"].as_str().expect("dir");
        let name = format!("{root}/{dir}/{base_offset:020}");
        let read = |suffix: &str| fs::read(data(&format!("{name}.{suffix}")));
        Self {
            base_offset,
            log: read("log").expect("log"),
            offset_index: read("index").expect("offset index"),
            time_index: read("timeindex").expect("time index"),
            // Absent and empty mean the same.
            txn_index: read("txnindex").unwrap_or_default(),
            name,
        }
    }

    /// The batches of the log, in the shape of the expected file.
    fn batches(&self) -> Value {
        Batches::new(&self.log)
            .map(|batch| {
                let batch = batch.expect("batch");
                batch.check_crc().expect("checksum");
                let header = batch.header().expect("header");
                let transactional = if header.is_transactional() { "t" } else { "" };
                let control = if header.is_control() { "c" } else { "" };
                json!([
                    batch.position(),
                    batch.size(),
                    header.base_offset(),
                    header.last_offset().expect("last offset"),
                    header.partition_leader_epoch(),
                    header.max_timestamp(),
                    header.compression_type().expect("codec").as_str(),
                    header.producer_id(),
                    header.base_sequence(),
                    format!("{transactional}{control}"),
                ])
            })
            .collect()
    }

    fn compare_offset_lookups(&self, expected: &Value) {
        let index = OffsetIndex::new(self.base_offset, &self.offset_index);
        for lookup in list(&expected["offset_lookups"]) {
            let found = index.lookup(number(&lookup[0]));
            assert_eq!(
                json!([lookup[0], found.offset, found.position]),
                *lookup,
                "{}",
                self.name
            );
        }
    }

    /// For each timestamp that a batch reaches: where the scan starts is at or before the first
    /// batch that reaches it.
    fn check_time_scans(&self) {
        let offsets = OffsetIndex::new(self.base_offset, &self.offset_index);
        let times = TimeIndex::new(self.base_offset, &self.time_index);
        let batches = self.batches();
        for asked in list(&batches).iter().map(|batch| number(&batch[5])) {
            let first = list(&batches)
                .iter()
                .find(|batch| number(&batch[5]) >= asked)
                .expect("the batch itself");
            let start = offsets.lookup(times.scan_start(asked).offset).position;
            assert!(
                i64::from(start) <= number(&first[0]),
                "{} {asked}",
                self.name
            );
        }
    }
}

/// The transactions that are open before offset `end`, from the log itself.
fn open_transactions(dir: &Path, end: i64) -> Vec<(i64, i64)> {
    let mut open = BTreeMap::new();
    for log in files(dir, ".log") {
        let bytes = fs::read(&log).expect("log");
        for batch in Batches::new(&bytes) {
            let header = batch.expect("batch").header().expect("header");
            if header.base_offset() >= end {
                break;
            }
            if header.is_control() {
                open.remove(&header.producer_id());
            } else if header.is_transactional() {
                open.entry(header.producer_id())
                    .or_insert(header.base_offset());
            }
        }
    }
    open.into_iter().collect()
}

fn expected_segments() -> Vec<Value> {
    ndjson(&data("expected/segments.ndjson"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("list")
}

fn number(value: &Value) -> i64 {
    value.as_i64().expect("number")
}

/// The offset that a segment file is named after.
fn segment_number(path: &Path) -> i64 {
    let stem = path.file_stem().expect("name").to_str().expect("UTF-8");
    stem.parse().expect("offset")
}

/// The records of a log that a consumer would be given, in the shape of the expected file.
fn consumed_records(log: &[u8]) -> Vec<Value> {
    let mut consumed = Vec::new();
    let mut batches = Batches::new(log);
    for batch in batches.by_ref() {
        let batch = batch.expect("batch");
        let header = batch.header().expect("magic 2");
        if header.is_control() {
            continue;
        }
        let records = batch
            .records(DEFAULT_MAX_DECOMPRESSED_BYTES)
            .expect("records");
        for record in &records {
            let mut line = json!({
                "offset": record.offset,
                "leader_epoch": header.partition_leader_epoch(),
                "timestamp_ms": record.timestamp,
                "timestamp_type": header.timestamp_type().as_str(),
                "key": record.key.map(hex),
                "value_len": record.value.map_or(-1, |value| i64::try_from(value.len()).expect("length")),
                "value_sha256": record.value.map(|value| hex(&Sha256::digest(value))),
            });
            if record.headers().len() > 0 {
                line["headers"] = record
                    .headers()
                    .map(|header| json!([header.key_text(), header.value.map(hex)]))
                    .collect();
            }
            consumed.push(line);
        }
    }
    assert_eq!(batches.remainder(), b"", "the log ends with a whole batch");
    consumed
}

fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(path)
}

fn directories(parent: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(parent)
        .expect("directory")
        .map(|entry| entry.expect("entry").path())
        .collect();
    paths.sort();
    paths
}

fn files(dir: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut paths = directories(dir);
    paths.retain(|path| file_name(path).ends_with(suffix));
    paths
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .expect("name")
        .to_str()
        .expect("UTF-8")
        .to_owned()
}

fn ndjson(path: &Path) -> Vec<Value> {
    fs::read_to_string(path)
        .expect("expected file")
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;

    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
