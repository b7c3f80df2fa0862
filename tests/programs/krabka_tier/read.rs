use std::fs;

use krabka_remote_storage::index::Batches;
use serde_json::Value;

use crate::support::program::{
    PARTITIONS, Run, Scratch, consumed, kafkas_tier, local_logs, run, special_offset, test_data,
};

fn read(url: &str, topic: &str, partition: i32, offset: i64, more: &[&str]) -> Run {
    let (partition, offset) = (partition.to_string(), offset.to_string());
    let mut arguments = vec!["read", url, "--topic", topic, "--partition", &partition];
    arguments.extend(["--offset", &offset]);
    arguments.extend(more);
    run(&arguments)
}

/// Offsets to read from: both ends, borders of segments, and places between.
fn offsets(first: i64, last: i64) -> Vec<i64> {
    let mut offsets: Vec<i64> = (0..=8)
        .map(|step| first + (last - first) * step / 8)
        .collect();
    offsets.extend([first + 1, last - 1]);
    offsets
}

#[test]
fn json_equals_kafkas_consumer_for_every_partition_from_many_offsets() {
    for (topic, partition) in PARTITIONS {
        let first = special_offset(topic, partition, "earliest");
        let last = special_offset(topic, partition, "latest_tiered");
        for offset in offsets(first, last) {
            let text = read(&kafkas_tier(), topic, partition, offset, &[])
                .ok()
                .text();
            let expected = consumed(topic, partition, offset, last);
            assert!(!expected.is_empty());
            assert!(text == expected, "{topic}-{partition} from {offset}");
        }
    }
}

#[test]
fn what_this_program_copied_is_read_as_kafkas_consumer_reads_it() {
    let scratch = Scratch::new();
    scratch.copy(&test_data("partitions")).ok();
    for (topic, partition) in PARTITIONS {
        let first = special_offset(topic, partition, "earliest");
        let last = special_offset(topic, partition, "latest_tiered");
        let text = read(&scratch.url(), topic, partition, first, &[])
            .ok()
            .text();
        assert!(
            text == consumed(topic, partition, first, last),
            "{topic}-{partition}"
        );
    }
}

/// The batches of a local partition up to the last tiered offset, each with its last offset.
fn local_batches(topic: &str, partition: i32, last: i64) -> Vec<(i64, Vec<u8>)> {
    let mut batches = Vec::new();
    for log in local_logs(topic, partition) {
        for batch in Batches::new(&log) {
            let batch = batch.unwrap();
            batches.push((batch.last_offset().unwrap(), batch.bytes().to_vec()));
        }
    }
    batches.retain(|(offset, _)| *offset <= last);
    batches
}

#[test]
fn raw_is_whole_batches_within_the_budget_and_the_first_one_always() {
    for (topic, partition) in PARTITIONS {
        let first = special_offset(topic, partition, "earliest");
        let last = special_offset(topic, partition, "latest_tiered");
        let batches = local_batches(topic, partition, last);
        for offset in offsets(first, last).into_iter().step_by(2) {
            for budget in [None, Some(0), Some(1), Some(5_000), Some(60_000)] {
                let mut expected = Vec::new();
                let mut left = budget.unwrap_or(usize::MAX);
                for (_, bytes) in batches.iter().filter(|(end, _)| *end >= offset) {
                    if bytes.len() > left && !expected.is_empty() {
                        break;
                    }
                    left = left.saturating_sub(bytes.len());
                    expected.extend_from_slice(bytes);
                }
                let budget = budget.map(|bytes| bytes.to_string());
                let mut more = vec!["--format", "raw"];
                if let Some(budget) = &budget {
                    more.extend(["--max-bytes", budget]);
                }
                let read = read(&kafkas_tier(), topic, partition, offset, &more).ok();
                assert!(
                    read.stdout == expected,
                    "{topic}-{partition} from {offset}: {budget:?}"
                );
            }
        }
    }
}

#[test]
fn values_are_added_as_text_or_in_hexadecimal() {
    let url = kafkas_tier();
    let plain = read(&url, "orders", 1, 4, &["--max-bytes", "1"])
        .ok()
        .json();
    let hex = read(
        &url,
        "orders",
        1,
        4,
        &["--max-bytes", "1", "--values", "hex"],
    )
    .ok()
    .json();
    let text = read(
        &url,
        "orders",
        1,
        4,
        &["--max-bytes", "1", "--values", "text"],
    )
    .ok()
    .json();
    assert!(plain.iter().all(|record| record.get("value").is_none()));
    let (mut nulls, mut empties) = (0, 0);
    for ((plain, hex), text) in plain.iter().zip(&hex).zip(&text) {
        let Some(value) = hex["value"].as_str() else {
            assert_eq!(
                (&hex["value"], &text["value"]),
                (&Value::Null, &Value::Null)
            );
            assert_eq!(plain["value_len"], -1);
            nulls += 1;
            continue;
        };
        assert_eq!(plain["value_len"].as_u64().unwrap() * 2, value.len() as u64);
        let bytes: Vec<u8> = (0..value.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&value[at..at + 2], 16).unwrap())
            .collect();
        assert_eq!(text["value"], String::from_utf8_lossy(&bytes).as_ref());
        empties += usize::from(bytes.is_empty());
    }
    assert!(
        nulls > 0 && empties > 0,
        "the batch has null and empty values"
    );
}

#[test]
fn offsets_outside_the_tier_are_errors_and_the_next_one_is_not() {
    let url = kafkas_tier();
    read(&url, "trimmed", 0, 431, &[]).fails(1, &["431", "before the first", "432"]);
    assert_eq!(read(&url, "orders", 0, 1735, &[]).ok().text(), "");
    read(&url, "orders", 0, 1736, &[]).fails(1, &["1736", "after the last", "1734"]);
    read(&url, "orders", 9, 0, &[]).fails(1, &["\"orders\" partition 9", "is not in"]);
}

#[test]
fn a_log_that_begins_behind_its_segment_is_no_whole_one() {
    let scratch = Scratch::with_tier_of(&["orders-2"]);
    let later = fs::read(scratch.tier_file(75, ".log")).unwrap();
    fs::write(scratch.tier_file(60, ".log"), later).unwrap();
    let run = read(&scratch.url(), "orders", 2, 50, &[]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(
        run.stderr,
        "note: offsets 60 to 74 are in no segment of the tier\n"
    );
    let expected = consumed("orders", 2, 50, 59) + &consumed("orders", 2, 75, 284);
    assert!(run.text() == expected);
}

#[test]
fn records_that_were_deleted_are_told_and_not_read() {
    // The log's start was moved up to 453 before this program copied it; its first segment begins
    // at 432.
    let scratch = Scratch::with_tier_of(&["trimmed-0"]);
    let expected = consumed("trimmed", 0, 453, 971);
    for offset in [432, 440, 452] {
        for more in [&[][..], &["--read-committed"]] {
            let run = read(&scratch.url(), "trimmed", 0, offset, more);
            assert_eq!(run.code, Some(0), "{}", run.stderr);
            assert_eq!(
                run.stderr,
                format!(
                    "note: offsets {offset} to 452 were deleted: the log begins at offset 453\n"
                )
            );
            assert!(run.text() == expected, "from {offset}");
        }
    }
    assert!(read(&scratch.url(), "trimmed", 0, 453, &[]).ok().text() == expected);
    read(&scratch.url(), "trimmed", 0, 431, &[]).fails(1, &["before the first", "432"]);
    // In Kafka's own tier they are still there: it was written before.
    let text = read(&kafkas_tier(), "trimmed", 0, 432, &[]).ok().text();
    assert!(text.starts_with("{\"offset\":432,"));
}

#[test]
fn a_timestamp_of_deleted_records_leads_to_where_the_log_begins() {
    let scratch = Scratch::with_tier_of(&["trimmed-0"]);
    let url = scratch.url();
    let from = ["read", &url, "--topic", "trimmed", "--partition", "0"];
    let text = run(&[&from[..], &["--from-timestamp", "1760000000440"]].concat());
    assert!(text.ok().text() == consumed("trimmed", 0, 453, 971));
}

#[test]
fn a_missing_segment_is_told_and_passed_over() {
    let scratch = Scratch::with_tier_of(&["orders-0"]);
    fs::remove_file(scratch.tier_file(270, ".log")).unwrap();
    let run = read(&scratch.url(), "orders", 0, 200, &[]);
    assert_eq!(run.code, Some(0));
    assert_eq!(
        run.stderr,
        "note: offsets 270 to 563 are in no segment of the tier\n"
    );
    let expected = consumed("orders", 0, 200, 269) + &consumed("orders", 0, 564, 1734);
    assert!(run.text() == expected);
}

#[test]
fn overlapping_segments_are_read_once_whatever_their_borders() {
    let scratch = Scratch::with_tier_of(&["orders-0"]);
    // Another leader rolled its log at other offsets: one segment where there are two.
    let dir = scratch.partition("orders-0");
    let name = |offset: i64, suffix: &str| dir.join(format!("{offset:020}{suffix}"));
    let mut joined = fs::read(name(564, ".log")).unwrap();
    joined.extend(fs::read(name(900, ".log")).unwrap());
    fs::write(name(564, ".log"), joined).unwrap();
    for suffix in [".log", ".index", ".timeindex", ".snapshot"] {
        fs::remove_file(name(900, suffix)).unwrap();
    }
    let events = scratch.copy(&dir).ok().json();
    assert_eq!(
        events
            .iter()
            .filter(|event| event["type"] == "copied")
            .count(),
        1
    );
    for offset in [0, 563, 564, 899, 900, 901, 1151, 1152] {
        let text = read(&scratch.url(), "orders", 0, offset, &[]).ok().text();
        assert!(text == consumed("orders", 0, offset, 1734), "from {offset}");
    }
    let ls = run(&["ls", &scratch.url(), "--json"]).ok().json();
    let superseded: Vec<_> = ls[0]["segments"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|segment| segment["superseded"] == true)
        .map(|segment| segment["first_offset"].as_i64().unwrap())
        .collect();
    assert_eq!(superseded, [564, 900]);
}

#[test]
fn two_topics_of_one_name_are_told_apart_by_id() {
    let scratch = Scratch::with_tier_of(&["orders-0"]);
    // The topic was deleted and made anew.
    let dir = scratch.partition_as("trimmed-0", "orders-0");
    fs::write(
        dir.join("partition.metadata"),
        "version: 0\ntopic_id: -AAAAAAAAAAAAAAAAAAAAA",
    )
    .unwrap();
    scratch.copy(&dir).ok();
    let url = scratch.url();
    let ids = ["XImkNkm7QGGLGHdMSQnTXg", "-AAAAAAAAAAAAAAAAAAAAA"];
    read(&url, "orders", 0, 900, &[]).fails(1, &["2 times", ids[0], ids[1], "--topic-id"]);
    run(&["rm", &url, "--topic", "orders", "--yes"]).fails(1, &["2 times", ids[0], ids[1]]);
    let text = read(&url, "orders", 0, 900, &["--topic-id", ids[0]])
        .ok()
        .text();
    assert!(text == consumed("orders", 0, 900, 1734));
    let text = read(&url, "orders", 0, 900, &["--topic-id", ids[1]])
        .ok()
        .text();
    assert!(text == consumed("trimmed", 0, 900, 971));
    let ls = run(&["ls", &url, "--topic-id", ids[1], "--json"])
        .ok()
        .json();
    assert_eq!(ls.len(), 1);
    assert_eq!(ls[0]["topic_id"], ids[1]);
}

#[test]
fn damaged_records_are_an_error_after_what_was_read() {
    let scratch = Scratch::with_tier_of(&["orders-0"]);
    let log = scratch.tier_file(564, ".log");
    let mut bytes = fs::read(&log).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&log, bytes).unwrap();
    let run = read(&scratch.url(), "orders", 0, 200, &[]).fails(1, &["corrupt"]);
    let text = run.text();
    assert!(consumed("orders", 0, 200, 899).starts_with(&text));
    assert!(text.lines().count() > 300);
}
