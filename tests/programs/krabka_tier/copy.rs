use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::program::{Scratch, command, run, test_data};

fn of_type<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events
        .iter()
        .filter(|event| event["type"] == kind)
        .collect()
}

#[test]
fn a_log_directory_is_copied_whole_and_the_second_time_skipped() {
    let scratch = Scratch::new();
    let events = scratch.copy(&test_data("partitions")).ok().json();
    let copied = of_type(&events, "copied");
    assert_eq!(copied.len(), 48);
    assert_eq!(
        events.last().unwrap(),
        &json!({"type": "summary", "segments_copied": 48, "objects_copied": 245,
            "bytes_copied": 933_997, "segments_skipped": 0, "segments_failed": 0})
    );
    let files = scratch.tier_files();
    assert_eq!(files.len(), 245);

    let events = scratch.copy(&test_data("partitions")).ok().json();
    let skipped = of_type(&events, "skipped");
    assert_eq!(skipped.len(), 48);
    assert!(
        skipped
            .iter()
            .all(|event| event["reason"] == "complete in the tier")
    );
    assert_eq!(events.last().unwrap()["segments_copied"], 0);
    assert!(scratch.tier_files() == files, "nothing was written");
}

#[test]
fn a_copied_segment_is_told_with_its_metadata() {
    let scratch = Scratch::new();
    let events = scratch
        .copy(&test_data("partitions/payments-1"))
        .ok()
        .json();
    let mut copied = of_type(&events, "copied");
    copied.sort_by_key(|event| event["first_offset"].as_i64());
    let mut event = copied[1].clone();
    let id = event["segment_id"].take();
    let id = id.as_str().unwrap();
    assert!(scratch.tier_file(3, ".log").to_str().unwrap().contains(id));
    assert_eq!(
        event,
        json!({
            "type": "copied", "topic": "payments", "topic_id": "oPIFIHvMRt-qNZxPW9bsiA",
            "partition": 1, "first_offset": 3, "last_offset": 175, "segment_id": null,
            "log_size_bytes": 24328, "size_bytes": 25819, "objects": 6,
            "max_timestamp_ms": event["max_timestamp_ms"],
            "leader_epochs": {"0": 3, "1": 60, "2": 120}, "txn_index_empty": false,
        })
    );
}

#[test]
fn people_are_told_each_copy_and_what_was_left_out() {
    let scratch = Scratch::new();
    let dir = scratch.partition("orders-0");
    let log_dir = dir.parent().unwrap();
    fs::create_dir(log_dir.join("orders-1.0123456789abcdef-delete")).unwrap();
    scratch.partition_as("orders-1", "__consumer_offsets-3");
    let copy = |more: &[&str]| {
        let mut arguments = vec!["copy", log_dir.to_str().unwrap(), "--to"];
        let url = scratch.url();
        arguments.push(&url);
        arguments.extend(more);
        run(&arguments).ok().text()
    };
    let text = copy(&["--parallel", "1"]);
    for says in [
        "__consumer_offsets-3: an internal topic",
        "orders-1.0123456789abcdef-delete: what the broker is deleting",
        "copied   orders-0 offsets 0 to 269: ",
        "copied   orders-0 offsets 1422 to 1734: ",
        "6 segments copied (",
        "active segments stay local",
    ] {
        assert!(text.contains(says), "{says:?} in {text}");
    }
    let text = copy(&["--include-internal"]);
    assert!(
        text.contains("copied   __consumer_offsets-3 offsets"),
        "{text}"
    );
    assert!(
        text.contains("skipped  orders-0 offsets 0 to 1734: 6 segments"),
        "{text}"
    );
}

#[test]
fn an_incomplete_segment_is_copied_anew_and_one_of_another_size_too() {
    let scratch = Scratch::with_tier_of(&["orders-0"]);
    let first = |suffix| scratch.tier_file(270, suffix);
    fs::remove_file(first(".log")).unwrap();
    let longer = scratch.tier_file(900, ".log");
    let mut bytes = fs::read(&longer).unwrap();
    bytes.push(0);
    fs::write(&longer, bytes).unwrap();

    let events = scratch.copy(&test_data("partitions/orders-0")).ok().json();
    let starts: BTreeSet<_> = of_type(&events, "copied")
        .iter()
        .map(|event| event["first_offset"].as_i64().unwrap())
        .collect();
    assert_eq!(starts, BTreeSet::from([270, 900]));
    // What was left there is another segment's, and stays.
    assert_eq!(scratch.tier_files().len(), 30 - 1 + 10);
    let events = scratch.copy(&test_data("partitions/orders-0")).ok().json();
    assert_eq!(of_type(&events, "copied").len(), 0);
}

#[test]
fn several_paths_are_copied_and_a_partition_named_twice_only_once() {
    let scratch = Scratch::new();
    let path = |name: &str| {
        test_data("partitions")
            .join(name)
            .to_str()
            .unwrap()
            .to_owned()
    };
    let (orders, payments) = (path("orders-0"), path("payments-0"));
    let dotted = format!("{orders}/../orders-0");
    let url = scratch.url();
    let events = run(&["copy", &orders, &payments, &dotted, "--to", &url, "--json"])
        .ok()
        .json();
    assert_eq!(of_type(&events, "copied").len(), 14);

    let killed = test_data("killed/orders-0");
    run(&["copy", &orders, killed.to_str().unwrap(), "--to", &url])
        .fails(1, &["are the same partition", "nothing was copied"]);
}

#[test]
fn of_a_damaged_partition_nothing_is_copied_unless_told_to_go_on_and_others_whole() {
    let scratch = Scratch::new();
    scratch.partition("orders-0");
    let damaged = scratch.partition("payments-1");
    fs::remove_file(damaged.join("00000000000000000003.timeindex")).unwrap();
    let too_long = format!("{}-0", "t".repeat(240));
    scratch.partition_as("trimmed-0", &too_long);
    let log_dir = damaged.parent().unwrap().to_str().unwrap();
    let copy = |more: &[&str]| {
        let url = scratch.url();
        let mut arguments = vec!["copy", log_dir, "--to", &url, "--json"];
        arguments.extend(more);
        let run = run(&arguments);
        run.fails(
            1,
            &[
                "00000000000000000003.timeindex is missing",
                "too long",
                "2 problems",
            ],
        )
        .json()
    };
    let events = copy(&[]);
    assert_eq!(of_type(&events, "problem").len(), 2);
    let copied = of_type(&events, "copied");
    assert_eq!(copied.len(), 6);
    assert!(copied.iter().all(|event| event["topic"] == "orders"));
    assert_eq!(events.last().unwrap()["segments_failed"], 2);
    assert_eq!(scratch.tier_files().len(), 30);

    let events = copy(&["--keep-going"]);
    let copied = of_type(&events, "copied");
    assert_eq!(copied.len(), 2);
    assert!(copied.iter().all(|event| event["topic"] == "payments"));
}

#[test]
fn a_copy_goes_on_when_nobody_reads_its_output() {
    let scratch = Scratch::new();
    let dir = test_data("partitions/orders-2");
    let mut child = command(&["copy", dir.to_str().unwrap(), "--to", &scratch.url()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(scratch.tier_files().len(), 17 * 5);
}

#[test]
fn a_segment_that_ends_early_needs_leave_to_be_copied_and_its_index_must_fit() {
    let scratch = Scratch::new();
    let dir = scratch.partition("orders-2");
    // Two batches; the first ends here.
    let log = dir.join("00000000000000000015.log");
    let bytes = fs::read(&log).unwrap();
    let first = 12 + u32::from_be_bytes(bytes[8..12].try_into().unwrap());
    fs::write(&log, &bytes[..first as usize]).unwrap();
    let copy = |more: &[&str]| {
        let url = scratch.url();
        let mut arguments = vec!["copy", dir.to_str().unwrap(), "--to", &url];
        arguments.extend(more);
        run(&arguments)
    };
    copy(&[]).fails(1, &["00000000000000000015.log", "--allow-gaps"]);
    // Compaction makes the indexes anew: these are older than the log.
    copy(&["--allow-gaps"]).fails(1, &["00000000000000000015.log", "has been cut"]);
    assert_eq!(scratch.tier_files().len(), 0);

    fs::write(dir.join("00000000000000000015.index"), "").unwrap();
    copy(&["--allow-gaps"]).ok();
    let ls = run(&["ls", &scratch.url(), "--json"]).ok().json();
    assert_eq!(
        ls[0]["gaps"],
        json!([{"first_offset": 30, "last_offset": 44}])
    );
}
