//! The decoders against the files and the answers of a real Apache Kafka (`tests/data`).

use std::fs;
use std::path::{Path, PathBuf};

use krabka_remote_storage::index::{Batches, DEFAULT_MAX_DECOMPRESSED_BYTES};
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
