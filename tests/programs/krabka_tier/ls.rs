use std::fs;

use serde_json::{Value, json};

use crate::support::program::{Run, Scratch, run, test_data};

fn ls(scratch: &Scratch, more: &[&str]) -> Run {
    let url = scratch.url();
    let mut arguments = vec!["ls", &url];
    arguments.extend(more);
    run(&arguments)
}

#[test]
fn kafkas_own_tier_is_listed_with_kafkas_offsets() {
    let url = format!(
        "file://{}",
        test_data("tier/kafka-tiered-storage").display()
    );
    let partitions = run(&["ls", &url, "--json"]).ok().json();
    let names: Vec<_> = partitions
        .iter()
        .map(|p| format!("{}-{}", p["topic"].as_str().unwrap(), p["partition"]))
        .collect();
    assert_eq!(
        names,
        [
            "clicks.log-append_time-0",
            "orders-0",
            "orders-1",
            "orders-2",
            "payments-0",
            "payments-1",
            "trimmed-0"
        ]
    );
    for partition in &partitions {
        let name = format!(
            "{}-{}",
            partition["topic"].as_str().unwrap(),
            partition["partition"]
        );
        let expected = fs::read(test_data("expected").join(format!("{name}.json"))).unwrap();
        let expected: Value = serde_json::from_slice(&expected).unwrap();
        assert_eq!(
            partition["last_offset"],
            expected["offsets"]["latest_tiered"]["offset"]
        );
        assert_eq!(partition["gaps"], json!([]));
        assert_eq!(partition["incomplete_segments"], 0);
    }

    // Every finished segment that has objects, as Kafka's events tell of it.
    let events = fs::read_to_string(test_data("metadata-topic/events.ndjson")).unwrap();
    let mut compared = 0;
    for line in events.lines() {
        let event = serde_json::from_str::<Value>(line).unwrap()["event"].take();
        let id = &event["id"]["segment_id"];
        let segments = partitions
            .iter()
            .flat_map(|p| p["segments"].as_array().unwrap());
        let Some(segment) = segments
            .clone()
            .find(|segment| segment["segment_id"] == *id)
        else {
            continue;
        };
        if event["type"] == "RemoteLogSegmentMetadata" {
            assert_eq!(segment["first_offset"], event["start_offset"]);
            assert_eq!(segment["last_offset"], event["end_offset"]);
            assert_eq!(segment["log_size_bytes"], event["segment_size_in_bytes"]);
            let epochs = event["segment_leader_epochs"].as_object().unwrap();
            let highest = epochs
                .keys()
                .map(|epoch| epoch.parse::<i64>().unwrap())
                .max();
            assert_eq!(segment["leader_epoch"].as_i64(), highest);
            assert_eq!(segment["superseded"], false);
            compared += 1;
        }
    }
    assert_eq!(compared, 48);
}

#[test]
fn people_see_offsets_sizes_and_objects() {
    let scratch = Scratch::with_tier_of(&["orders-0", "payments-1"]);
    let text = ls(&scratch, &[]).ok().text();
    for says in [
        "orders-0  6 segments, 142.79 KiB in 30 objects, offsets 0 to 1734  (topic id XImkNkm7QGGLGHdMSQnTXg)",
        "payments-1  3 segments",
        "FIRST OFFSET     LAST OFFSET  EPOCH        SIZE  OBJECTS  SEGMENT",
    ] {
        assert!(text.contains(says), "{says:?} in {text}");
    }
    let text = ls(&scratch, &["--topic", "payments", "--partition", "1"])
        .ok()
        .text();
    assert!(!text.contains("orders"), "{text}");
    let text = ls(&scratch, &["--topic", "none"]).ok().text();
    assert!(text.contains("no segments in file://"), "{text}");
}

#[test]
fn gaps_and_incomplete_segments_are_told() {
    let scratch = Scratch::with_tier_of(&["orders-0"]);
    for suffix in [
        ".log",
        ".index",
        ".timeindex",
        ".snapshot",
        ".leader_epoch_checkpoint",
    ] {
        fs::remove_file(scratch.tier_file(270, suffix)).unwrap();
    }
    let log = scratch.tier_file(1152, ".log");
    fs::remove_file(&log).unwrap();
    let partition = &ls(&scratch, &["--json"]).ok().json()[0];
    assert_eq!(
        partition["gaps"],
        json!([
            {"first_offset": 270, "last_offset": 563},
            {"first_offset": 1152, "last_offset": 1421},
        ])
    );
    assert_eq!(partition["incomplete_segments"], 1);
    let text = ls(&scratch, &[]).ok().text();
    assert!(
        text.contains("gap: offsets 270 to 563 are in no segment"),
        "{text}"
    );
    assert!(text.contains("1 segment is not complete"), "{text}");

    let left = ls(&scratch, &["--incomplete", "--json"]).ok().json();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0]["type"], "incomplete_segment");
    assert_eq!(left[0]["first_offset"], 1152);
    assert_eq!(left[0]["objects"].as_array().unwrap().len(), 4);
    let name = log.file_name().unwrap().to_str().unwrap();
    let id = left[0]["segment_id"].as_str().unwrap();
    assert!(name.contains(id));
    let text = ls(&scratch, &["--incomplete"]).ok().text();
    assert!(text.contains("orders-0 from offset 1152"), "{text}");
    assert!(text.contains("krabka-tier rm"), "{text}");
}

#[test]
fn a_segment_that_others_cover_is_superseded() {
    let scratch = Scratch::with_tier_of(&["orders-0"]);
    let before = ls(&scratch, &["--json"]).ok().json();
    // A later copy of the same segment, under an id of its own.
    let log = scratch.tier_file(270, ".log");
    let bytes = fs::read(&log).unwrap();
    fs::remove_file(&log).unwrap();
    scratch.copy(&test_data("partitions/orders-0")).ok();
    fs::write(&log, bytes).unwrap();
    // The first copy's log is the younger one now, by more than the clock of a file system ticks.
    let later = std::time::SystemTime::now() + std::time::Duration::from_mins(1);
    let file = fs::File::options().write(true).open(&log).unwrap();
    file.set_modified(later).unwrap();
    let partition = &ls(&scratch, &["--json"]).ok().json()[0];
    assert_eq!(partition["gaps"], json!([]));
    let of_270: Vec<_> = partition["segments"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|segment| segment["first_offset"] == 270)
        .collect();
    assert_eq!(of_270.len(), 2);
    let first_id = &before[0]["segments"][1]["segment_id"];
    for segment in of_270 {
        assert_eq!(segment["superseded"], segment["segment_id"] != *first_id);
    }
}

#[test]
fn a_damaged_segment_does_not_hide_the_others() {
    let scratch = Scratch::with_tier_of(&["orders-0"]);
    let log = scratch.tier_file(1422, ".log");
    let bytes = fs::read(&log).unwrap();
    fs::write(&log, &bytes[..bytes.len() - 1]).unwrap();
    let run = ls(&scratch, &["--json"]).fails(1, &["at offset 1422 is damaged", "1 segment"]);
    let segments = run.json()[0]["segments"].as_array().unwrap().clone();
    assert_eq!(segments.len(), 6);
    assert_eq!(segments[5]["last_offset"], Value::Null);
    assert!(segments[5]["damage"].is_string());
    assert_eq!(segments[4]["last_offset"], 1421);
}

#[test]
fn a_segment_whose_log_cannot_be_its_own_is_damaged() {
    for damage in ["of lower offsets", "of more bytes than a segment can have"] {
        let scratch = Scratch::with_tier_of(&["orders-0"]);
        let log = scratch.tier_file(270, ".log");
        let mut first_offset = 270;
        if damage == "of lower offsets" {
            first_offset = 5270;
            for suffix in [".log", ".index", ".leader_epoch_checkpoint"] {
                let file = scratch.tier_file(270, suffix);
                let name = file
                    .to_str()
                    .unwrap()
                    .replace("/00000000000000000270-", "/00000000000000005270-");
                fs::rename(&file, name).unwrap();
            }
        } else {
            let file = fs::File::options().write(true).open(&log).unwrap();
            file.set_len(1 << 31).unwrap();
        }
        let says = format!("at offset {first_offset} is damaged");
        let run = ls(&scratch, &["--json"]).fails(1, &[&says, "1 segment is damaged"]);
        let partition = &run.json()[0];
        assert_eq!(partition["last_offset"], 1734, "{damage}");
        assert_eq!(
            partition["gaps"],
            json!([{"first_offset": 270, "last_offset": 563}]),
            "{damage}"
        );
        let segments = partition["segments"].as_array().unwrap();
        assert_eq!(segments.len(), 6, "{damage}");
        for segment in segments {
            let is_damaged = segment["first_offset"] == first_offset;
            assert_eq!(segment["damage"].is_string(), is_damaged, "{damage}");
            assert_eq!(segment["last_offset"].is_null(), is_damaged, "{damage}");
        }
    }
}
