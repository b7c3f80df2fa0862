//! `read` as a consumer would: committed records only, and from a timestamp on; and what it costs.

use std::collections::BTreeMap;
use std::fs;

use krabka_remote_storage::index::Batches;
use serde_json::Value;

use crate::support::program::{
    PARTITIONS, Run, Scratch, consumed, expected, kafkas_tier, local_logs, run, special_offset,
};

pub(crate) fn read(url: &str, topic: &str, partition: i32, from: &[&str]) -> Run {
    let partition = partition.to_string();
    let mut arguments = vec!["read", url, "--topic", topic, "--partition", &partition];
    arguments.extend(from);
    run(&arguments)
}

/// Where the oldest transaction began that is open behind `last`, as the log itself tells.
pub(crate) fn first_open(topic: &str, partition: i32, last: i64) -> Option<i64> {
    let mut open = BTreeMap::new();
    for log in local_logs(topic, partition) {
        for batch in Batches::new(&log) {
            let header = batch.unwrap().header().unwrap();
            if header.base_offset() > last || !header.is_transactional() {
                continue;
            }
            if header.is_control() {
                open.remove(&header.producer_id());
            } else {
                open.entry(header.producer_id())
                    .or_insert(header.base_offset());
            }
        }
    }
    open.into_values().min()
}

/// What Kafka's consumer returns that reads committed, up to this offset.
pub(crate) fn committed(topic: &str, partition: i32, from: i64, last: i64) -> String {
    let ranges = expected(topic, partition)["read_committed_ranges"].take();
    let mut text = String::new();
    for range in ranges.as_array().unwrap() {
        let (first, end) = (range[0].as_i64().unwrap(), range[1].as_i64().unwrap());
        text += &consumed(topic, partition, first.max(from), end.min(last));
    }
    text
}

#[test]
fn committed_records_are_those_of_kafkas_consumer_up_to_the_first_undecided_transaction() {
    let mut undecided = 0;
    for (topic, partition) in PARTITIONS {
        let first = special_offset(topic, partition, "earliest");
        let last = special_offset(topic, partition, "latest_tiered");
        let open = first_open(topic, partition, last);
        undecided += usize::from(open.is_some());
        let end = open.map_or(last, |open| open - 1);
        for step in 0..8 {
            let from = first + (end - first) * step / 7;
            let offset = from.to_string();
            let more = ["--offset", &offset, "--read-committed"];
            let run = read(&kafkas_tier(), topic, partition, &more);
            assert_eq!(run.code, Some(0), "{run:?}");
            let what = format!("{topic}-{partition} from {from}");
            assert!(
                run.text() == committed(topic, partition, from, end),
                "{what}"
            );
            let note = open.map_or(String::new(), |open| {
                format!(
                    "note: the transaction that began at offset {open} is open at the end of the \
                     tier: records from there on are left out\n"
                )
            });
            assert_eq!(run.stderr, note, "{what}");
        }
    }
    assert!(undecided > 0, "no partition has an open transaction");
}

#[test]
fn raw_committed_batches_have_no_markers_and_no_aborted_data() {
    for partition in [0, 1] {
        let more = ["--offset", "0", "--read-committed", "--format", "raw"];
        let run = read(&kafkas_tier(), "payments", partition, &more);
        assert_eq!(run.code, Some(0), "{run:?}");
        let mut offsets = Vec::new();
        for batch in Batches::new(&run.stdout) {
            let records = batch.unwrap().records(1 << 20).unwrap();
            assert!(!records.header().is_control());
            offsets.extend(records.iter().map(|record| record.offset));
        }
        let last = special_offset("payments", partition, "latest_tiered");
        let end = first_open("payments", partition, last).map_or(last, |open| open - 1);
        let expected: Vec<i64> = committed("payments", partition, 0, end)
            .lines()
            .map(|line| {
                serde_json::from_str::<Value>(line).unwrap()["offset"]
                    .as_i64()
                    .unwrap()
            })
            .collect();
        assert!(!expected.is_empty());
        assert_eq!(offsets, expected);
    }
}

#[test]
fn a_timestamp_leads_to_the_offset_that_kafkas_consumer_gets() {
    let mut found = 0;
    for (topic, partition) in PARTITIONS {
        let earliest = special_offset(topic, partition, "earliest");
        let last = special_offset(topic, partition, "latest_tiered");
        let rows = expected(topic, partition)["offsets_for_times"].take();
        for row in rows.as_array().unwrap().iter().step_by(3) {
            // A tier does not tell that the log's start was moved up within a segment.
            if topic == "trimmed" && row["offset"] == earliest {
                continue;
            }
            let ask = row["ask_ms"].to_string();
            let more = ["--from-timestamp", &ask, "--max-bytes", "1"];
            let run = read(&kafkas_tier(), topic, partition, &more);
            assert_eq!(run.code, Some(0), "{run:?}");
            let offset = row["offset"].as_i64();
            if let Some(offset) = offset.filter(|offset| (0..=last).contains(offset)) {
                let expected = consumed(topic, partition, offset, last);
                assert!(
                    expected.starts_with(&run.text()),
                    "{topic}-{partition} at {ask}"
                );
                // The first batch may be one of control records.
                found += usize::from(run.text().starts_with(&format!("{{\"offset\":{offset},")));
                assert_eq!(run.stderr, "");
            } else {
                assert_eq!(run.text(), "");
                let note = "note: no record in the tier has this timestamp or a later one\n";
                assert_eq!(run.stderr, note);
            }
        }
    }
    assert!(found > 60, "{found}");
}

#[test]
fn a_timestamp_is_found_without_time_indexes_too() {
    let scratch = Scratch::with_tier_of(&["orders-1"]);
    fs::remove_file(scratch.tier_file(0, ".timeindex")).unwrap();
    let last = special_offset("orders", 1, "latest_tiered");
    let rows = expected("orders", 1)["offsets_for_times"].take();
    for row in rows.as_array().unwrap().iter().step_by(7) {
        let ask = row["ask_ms"].to_string();
        let more = ["--from-timestamp", &ask, "--max-bytes", "1"];
        let run = read(&scratch.url(), "orders", 1, &more);
        assert_eq!(run.code, Some(0), "{run:?}");
        let says = "note: the timestamp is looked for from batch to batch: ";
        assert!(run.stderr.starts_with(says), "{}", run.stderr);
        let offset = row["offset"].as_i64();
        match offset.filter(|offset| (0..=last).contains(offset)) {
            Some(offset) => {
                let start = format!("{{\"offset\":{offset},");
                assert!(run.text().starts_with(&start), "{ask}: {}", run.text());
            }
            None => assert_eq!(run.text(), "", "{ask}"),
        }
    }
    // What is damaged may have the record.
    let log = scratch.tier_file(0, ".log");
    fs::write(&log, "no batch").unwrap();
    let ask = rows[rows.as_array().unwrap().len() / 2]["ask_ms"].to_string();
    read(&scratch.url(), "orders", 1, &["--from-timestamp", &ask]).fails(1, &["is damaged"]);
}

#[test]
fn an_offset_and_a_timestamp_exclude_each_other_and_one_is_needed() {
    let url = kafkas_tier();
    let both = ["--offset", "0", "--from-timestamp", "0"];
    read(&url, "orders", 0, &both).fails(2, &["cannot be used with"]);
    read(&url, "orders", 0, &[]).fails(2, &["--offset", "--from-timestamp"]);
    read(&url, "orders", 0, &["--from-timestamp", "-1"]).fails(2, &["--help"]);
}

/// The numbers of `--stats`, by kind: requests and bytes.
fn stats(run: &Run) -> BTreeMap<String, (u64, u64)> {
    run.stderr
        .lines()
        .filter_map(|line| line.strip_prefix("stats: "))
        .map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            let [kind @ .., requests, "requests", bytes, "bytes"] = &words[..] else {
                panic!("{line}")
            };
            let numbers = (requests.parse().unwrap(), bytes.parse().unwrap());
            (kind.join(" "), numbers)
        })
        .collect()
}

#[test]
fn stats_are_the_requests_and_the_bytes_of_the_read() {
    let url = kafkas_tier();
    // Six segments. The partition's directory is found by a listing, and its objects by another.
    let more = ["--offset", "600", "--max-bytes", "2000", "--stats"];
    let one_batch = read(&url, "orders", 0, &more);
    assert_eq!(one_batch.code, Some(0));
    let counted = stats(&one_batch);
    assert_eq!(counted["listings"], (2, 0));
    // One for each segment, and one that tells the whole history.
    assert_eq!(counted["leader-epoch checkpoints"].0, 7);
    // To find the end of the tier, and the offset.
    assert_eq!(counted["offset indexes"].0, 2);
    // The end of the tier, the batch, and the one that did not fit.
    assert_eq!(counted["logs"].0, 3, "{counted:?}");
    let total = counted.iter().filter(|(kind, _)| *kind != "total");
    let total = total.fold((0, 0), |sum, (_, count)| (sum.0 + count.0, sum.1 + count.1));
    assert_eq!(counted["total"], total);

    // Everything: the logs' bytes once, and the end of the last one twice.
    let all = read(
        &url,
        "orders",
        0,
        &["--offset", "0", "--stats", "--format", "raw"],
    );
    assert_eq!(all.code, Some(0));
    let (requests, bytes) = stats(&all)["logs"];
    let log = all.stdout.len() as u64;
    assert!((7..=8).contains(&requests), "{requests}");
    assert!((log..log + 4_096).contains(&bytes), "{bytes} of {log}");
    assert!(!stats(&all).contains_key("transaction indexes"));

    // Also of a read that fails.
    let fails = read(&url, "orders", 0, &["--offset", "5000", "--stats"]);
    assert_eq!(
        stats(&fails.fails(1, &["after the last"]))["listings"],
        (2, 0)
    );
}

#[test]
fn committed_records_cost_their_log_once_and_one_snapshot() {
    let more = ["--offset", "0", "--stats", "--format", "raw"];
    let plain = stats(&read(&kafkas_tier(), "payments", 0, &more));
    let more = ["--offset", "0", "--read-committed", "--stats"];
    let counted = stats(&read(&kafkas_tier(), "payments", 0, &more));
    assert_eq!(counted["logs"], plain["logs"]);
    assert_eq!(counted["producer snapshots"].0, 1);
    assert!(!counted.contains_key("transaction indexes"), "{counted:?}");
}
