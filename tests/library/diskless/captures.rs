//! Captures: how a projection is frozen, and which documents are refused.

use std::collections::HashMap;

use krabka_remote_storage::Sha256Digest;
use krabka_remote_storage::diskless::{
    CAPTURE_STATE_KEY, DisklessError, DisklessWalCapture, WalCaptureProjection, WalIndexEntry,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

use super::samples::{CAPTURE, TOPIC_ID, entry, orders, publish, raise_floor, range};

fn error_of(document: &Value) -> String {
    let bytes = serde_json::to_vec(document).unwrap();
    DisklessWalCapture::from_slice(&bytes)
        .unwrap_err()
        .to_string()
}

/// The golden document with a change.
fn changed(change: impl FnOnce(&mut Value)) -> Value {
    let mut document = serde_json::from_str(CAPTURE).unwrap();
    change(&mut document);
    document
}

fn with_text(from: &str, to: &str) -> Result<DisklessWalCapture, DisklessError> {
    assert!(CAPTURE.contains(from), "{from}");
    DisklessWalCapture::from_slice(CAPTURE.replacen(from, to, 1).as_bytes())
}

#[test]
fn the_version_is_looked_at_before_anything_else() {
    let without = changed(|document| {
        document.as_object_mut().unwrap().remove("format_version");
        document["partitions"] = json!("of another format");
    });
    assert!(error_of(&without).contains("has no format_version"));
    for (version, found) in [
        (json!(2), "2"),
        (json!(0), "0"),
        (json!(70000), "70000"),
        (json!("1"), "\"1\""),
        (json!(1.5), "1.5"),
        (json!(null), "no format_version"),
    ] {
        for shape in [json!([]), json!("of another format")] {
            let other = changed(|document| {
                document["format_version"] = version.clone();
                document["partitions"] = shape.clone();
                document["more"] = json!(1);
            });
            let error = error_of(&other);
            let says = if version.is_null() {
                "has no format_version".to_owned()
            } else {
                format!(
                    "unsupported diskless WAL capture version {found}: this build reads version 1"
                )
            };
            assert!(error.contains(&says), "{error}");
        }
    }
    let error = error_of(&changed(|document| document["format_version"] = json!(2)));
    assert!(error.contains("unsupported"), "{error}");
}

#[test]
fn what_is_not_exactly_a_captures_json_is_malformed() {
    for bytes in ["", "x", "[]", "7", "null", "{", "\u{feff}{}"] {
        let error = DisklessWalCapture::from_slice(bytes.as_bytes()).unwrap_err();
        assert!(matches!(error, DisklessError::Malformed { .. }), "{error}");
    }
    for (from, to) in [
        // Members: unknown, missing, twice; at each level.
        (
            r#""source_cutoffs":[5]"#,
            r#""source_cutoffs":[5],"more":1"#,
        ),
        (
            r#""partition":3,"delete"#,
            r#""partition":3,"more":1,"delete"#,
        ),
        (r#""byte_start":6"#, r#""byte_start":6,"more":1"#),
        (r#""source_cutoffs":[5],"#, ""),
        (r#""delete_floor":10,"#, ""),
        (r#""byte_len":64,"#, ""),
        (
            r#""delete_floor":10"#,
            r#""delete_floor":10,"delete_floor":10"#,
        ),
        (
            r#""format_version":1"#,
            r#""format_version":1,"format_version":1"#,
        ),
        // Types.
        (r#""source_cutoffs":[5]"#, r#""source_cutoffs":5"#),
        (r#""source_cutoffs":[5]"#, r#""source_cutoffs":[5.0]"#),
        (r#""source_cutoffs":[5]"#, r#""source_cutoffs":[-0]"#),
        (r#""byte_len":64"#, r#""byte_len":4294967296"#),
        (r#""byte_len":64"#, r#""byte_len":-1"#),
        (r#""byte_start":6"#, r#""byte_start":"6""#),
        (
            r#""first_offset":10"#,
            r#""first_offset":9223372036854775808"#,
        ),
        (r#""object_key":"wal/a""#, r#""object_key":null"#),
        (
            "00112233-4455-6677-8899-aabbccddeeff",
            "00112233445566778899aabbccddeeff",
        ),
        // What stands behind it.
        ("]}]}", "]}]}x"),
        ("]}]}", "]}]}{}"),
        ("]}]}", r#"]}],"authentication":{}}"#),
        (
            "]}]}",
            r#"]}],"authentication":{"body":1,"signature":null}}"#,
        ),
        ("]}]}", r#"]}],"rlmm_snapshot_sha256":"ab"}"#),
    ] {
        let error = with_text(from, to).unwrap_err();
        assert!(
            matches!(error, DisklessError::Malformed { .. }),
            "{to}: {error}"
        );
    }
    // An error does not repeat what it found at length, and only what can be printed.
    let long = format!("\u{1b}{}", "x".repeat(100_000));
    let error = error_of(&changed(|document| document[long.as_str()] = json!(1)));
    assert!(error.len() < 400 && !error.contains('\u{1b}'), "{error}");
}

#[test]
fn a_document_in_another_spelling_is_read_as_what_it_says() {
    let capture = DisklessWalCapture::from_slice(CAPTURE.as_bytes()).unwrap();
    let value: Value = serde_json::from_str(CAPTURE).unwrap();
    let pretty = serde_json::to_string_pretty(&value).unwrap() + "\n";
    for other in [
        pretty,
        CAPTURE.replace("orders", r"\u006frders"),
        CAPTURE.replace("aabbccddeeff", "AABBCCDDEEFF"),
        CAPTURE.replace(
            "]}]}",
            r#"]}],"rlmm_snapshot_sha256":null,"authentication":null}"#,
        ),
    ] {
        let read = DisklessWalCapture::from_slice(other.as_bytes());
        assert_eq!(read.as_ref(), Ok(&capture));
        assert_eq!(read.unwrap().to_vec().unwrap(), CAPTURE.as_bytes());
    }
}

#[test]
#[allow(clippy::too_many_lines)] // It is a table.
fn what_a_document_says_is_checked() {
    let partition =
        |change: fn(&mut Value)| changed(|document| change(&mut document["partitions"][0]));
    let range = |change: fn(&mut Value)| {
        changed(|document| change(&mut document["partitions"][0]["ranges"][0]))
    };
    let topic = |name: String| changed(|document| document["partitions"][0]["topic"] = json!(name));
    for (says, document) in [
        (
            "source cutoff -1 is negative",
            changed(|document| document["source_cutoffs"] = json!([3, -1])),
        ),
        (
            "time -1 is negative",
            changed(|document| document["captured_at_ms"] = json!(-1)),
        ),
        ("no name that Kafka allows", topic(String::new())),
        ("no name that Kafka allows", topic(".".to_owned())),
        ("no name that Kafka allows", topic("..".to_owned())),
        ("no name that Kafka allows", topic("a b".to_owned())),
        ("no name that Kafka allows", topic("ä".to_owned())),
        ("no name that Kafka allows", topic("x".repeat(250))),
        (
            "index is negative",
            partition(|partition| {
                partition["partition"] = json!(-1);
                partition["ranges"] = json!([]);
            }),
        ),
        (
            "floor -1 is negative",
            partition(|partition| partition["delete_floor"] = json!(-1)),
        ),
        (
            "end at 13, and its recovery cutoff is 12",
            partition(|partition| partition["recovery_cutoff"] = json!(12)),
        ),
        (
            "end at 13, and its recovery cutoff is 14",
            partition(|partition| partition["recovery_cutoff"] = json!(14)),
        ),
        (
            "end at 20, and its recovery cutoff is 13",
            partition(|partition| partition["delete_floor"] = json!(20)),
        ),
        (
            "end at 10, and its recovery cutoff is 13",
            partition(|partition| partition["ranges"] = json!([])),
        ),
        (
            "a gap at 9",
            partition(|partition| partition["delete_floor"] = json!(9)),
        ),
        (
            "stands twice",
            changed(|document| {
                let again = document["partitions"][0].clone();
                document["partitions"].as_array_mut().unwrap().push(again);
            }),
        ),
        (
            "another partition's",
            range(|range| range["entry"]["partition"] = json!(4)),
        ),
        (
            "another partition's",
            range(|range| range["entry"]["topic_id"] = json!(Uuid::nil())),
        ),
        (
            "no bytes",
            range(|range| range["entry"]["byte_len"] = json!(0)),
        ),
        (
            "inside the object's header",
            range(|range| range["entry"]["byte_start"] = json!(5)),
        ),
        (
            "last offset is below its first",
            range(|range| range["entry"]["last_offset"] = json!(9)),
        ),
        (
            "no offset can follow",
            range(|range| range["entry"]["last_offset"] = json!(i64::MAX)),
        ),
        (
            "first offset is negative",
            range(|range| range["entry"]["first_offset"] = json!(-1)),
        ),
        (
            "empty or reserved",
            range(|range| range["object_key"] = json!("")),
        ),
        (
            "empty or reserved",
            range(|range| range["object_key"] = json!(CAPTURE_STATE_KEY)),
        ),
    ] {
        let error = error_of(&document);
        assert!(
            error.starts_with("invalid diskless WAL capture: ") && error.contains(says),
            "{says}: {error}"
        );
    }
    assert!(
        DisklessWalCapture::from_slice(&serde_json::to_vec(&topic("x".repeat(249))).unwrap())
            .is_ok()
    );
}

/// A document with ranges of one partition, each (first, last), and a floor.
fn with_ranges(floor: i64, cutoff: i64, offsets: &[(i64, i64)]) -> Value {
    changed(|document| {
        let partition = &mut document["partitions"][0];
        let template = partition["ranges"][0].clone();
        let ranges = offsets.iter().map(|(first, last)| {
            let mut range = template.clone();
            range["entry"]["first_offset"] = json!(first);
            range["entry"]["last_offset"] = json!(last);
            range
        });
        partition["ranges"] = ranges.collect();
        partition["delete_floor"] = json!(floor);
        partition["recovery_cutoff"] = json!(cutoff);
    })
}

#[test]
fn ranges_are_in_order_and_leave_no_gap_above_the_floor() {
    for (says, document) in [
        (
            "overlaps the range before it",
            with_ranges(0, 10, &[(0, 5), (5, 9)]),
        ),
        (
            "overlaps the range before it",
            with_ranges(0, 10, &[(0, 5), (0, 9)]),
        ),
        ("out of order", with_ranges(9, 10, &[(5, 9), (0, 4)])),
        ("a gap at 5", with_ranges(0, 10, &[(0, 4), (6, 9)])),
        ("a gap at 0", with_ranges(0, 10, &[(1, 9)])),
        ("a gap at 5", with_ranges(2, 10, &[(0, 4), (6, 9)])),
        ("a gap at 6", with_ranges(6, 10, &[(0, 4), (7, 9)])),
    ] {
        let error = error_of(&document);
        assert!(error.contains(says), "{says}: {error}");
    }
    for document in [
        with_ranges(0, 0, &[]),
        with_ranges(7, 7, &[]),
        with_ranges(0, 10, &[(0, 4), (5, 9)]),
        // Below the floor there may be gaps.
        with_ranges(6, 10, &[(0, 1), (3, 4), (6, 9)]),
        with_ranges(6, 10, &[(0, 1), (4, 9)]),
        with_ranges(50, 50, &[(0, 1), (4, 9)]),
    ] {
        let bytes = serde_json::to_vec(&document).unwrap();
        DisklessWalCapture::from_slice(&bytes).unwrap();
    }
}

#[test]
fn neighbours_of_one_object_become_one_range() {
    let mut projection = WalCaptureProjection::new();
    let mut at = |object: &str, entry: WalIndexEntry, timestamp| {
        let entry = WalIndexEntry {
            max_timestamp_ms: timestamp,
            ..entry
        };
        publish(&mut projection, object, entry);
    };
    at("a", range(0, 4, 6, 106), 7);
    at("a", range(5, 9, 106, 206), 9);
    at("a", range(10, 14, 206, 306), 8);
    // A hole in the bytes, and another object.
    at("a", range(15, 19, 310, 400), 1);
    at("b", range(20, 24, 400, 500), 1);
    let capture = projection.capture(&orders(1), vec![], 1).unwrap();
    let ranges: Vec<_> = capture.partitions()[0]
        .ranges
        .iter()
        .map(|range| {
            let entry = &range.entry;
            let bytes = (entry.byte_start, entry.byte_end());
            (
                &*range.object_key,
                entry.first_offset,
                entry.last_offset,
                bytes,
                entry.max_timestamp_ms,
            )
        })
        .collect();
    assert_eq!(
        ranges,
        [
            ("a", 0, 14, (6, 306), 9),
            ("a", 15, 19, (310, 400), 1),
            ("b", 20, 24, (400, 500), 1)
        ]
    );
    assert_eq!(capture.objects().collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn a_run_of_4_gib_a_gap_or_an_overlap_makes_no_capture() {
    let capture_of = |entries: &[WalIndexEntry]| {
        let mut projection = WalCaptureProjection::new();
        for entry in entries {
            publish(&mut projection, "a", *entry);
        }
        projection.capture(&orders(1), vec![], 1)
    };
    let half = 1_u64 << 31;
    let long = [
        range(0, 4, 6, 6 + half),
        range(5, 9, 6 + half, 6 + 2 * half),
    ];
    for (says, entries) in [
        ("4 GiB or more", &long),
        ("overlaps", &[range(0, 5, 6, 10), range(5, 9, 10, 20)]),
        ("a gap at 5", &[range(0, 4, 6, 10), range(6, 9, 10, 20)]),
    ] {
        let error = capture_of(entries).unwrap_err().to_string();
        assert!(error.contains(says), "{says}: {error}");
    }
    // One byte less is a range.
    let almost = [long[0], range(5, 9, 6 + half, 5 + 2 * half)];
    let capture = capture_of(&almost).unwrap();
    assert_eq!(capture.partitions()[0].ranges[0].entry.byte_len, u32::MAX);
}

#[test]
fn declared_partitions_appear_and_unknown_topics_do_not() {
    let (ids, unknown) = ([1, 2, 3].map(Uuid::from_u128), Uuid::from_u128(9));
    let mut projection = WalCaptureProjection::new();
    for (topic_id, partition) in [(ids[1], 0), (unknown, 0), (ids[0], 5)] {
        let entry = WalIndexEntry {
            topic_id,
            partition,
            ..range(0, 4, 6, 10)
        };
        publish(&mut projection, "a", entry);
    }
    // Two topics of one name: one of them was deleted and made again.
    let topics = HashMap::from([
        (ids[0], ("b".to_owned(), 2)),
        (ids[1], ("a".to_owned(), 1)),
        (ids[2], ("a".to_owned(), 2)),
    ]);
    let capture = projection.capture(&topics, vec![0, 7], 5).unwrap();
    let partitions: Vec<_> = capture
        .partitions()
        .iter()
        .map(|partition| {
            let topic = partition.topic.as_str();
            (
                topic,
                partition.topic_id,
                partition.partition,
                partition.recovery_cutoff,
            )
        })
        .collect();
    assert_eq!(
        partitions,
        [
            ("a", ids[1], 0, 5),
            ("a", ids[2], 0, 0),
            ("a", ids[2], 1, 0),
            ("b", ids[0], 0, 0),
            ("b", ids[0], 1, 0),
            // Beyond the declared number, and not lost.
            ("b", ids[0], 5, 5),
        ]
    );
    assert_eq!(
        (capture.captured_at_ms(), capture.source_cutoffs()),
        (5, &[0, 7][..])
    );
    for (says, topics) in [
        (
            "-1 partitions",
            HashMap::from([(ids[0], ("a".to_owned(), -1))]),
        ),
        (
            "no name that Kafka allows",
            HashMap::from([(ids[0], ("a/b".to_owned(), 1))]),
        ),
    ] {
        let error = projection
            .capture(&topics, vec![], 5)
            .unwrap_err()
            .to_string();
        assert!(error.contains(says), "{error}");
    }
    assert!(projection.capture(&topics, vec![-1], 5).is_err());
    assert!(projection.capture(&topics, vec![], -1).is_err());
}

#[test]
fn the_cutoff_is_behind_the_last_range_or_at_the_floor() {
    for (floor, cutoff) in [(0, 13), (12, 13), (13, 13), (40, 40)] {
        let mut projection = WalCaptureProjection::new();
        publish(&mut projection, "a", range(0, 12, 6, 10));
        raise_floor(&mut projection, 0, floor);
        let capture = projection.capture(&orders(1), vec![], 1).unwrap();
        let partition = &capture.partitions()[0];
        assert_eq!(
            (partition.delete_floor, partition.recovery_cutoff),
            (floor, cutoff)
        );
    }
}

#[test]
fn digests_of_what_was_captured_beside_it_come_last_and_only_where_they_are() {
    let capture = DisklessWalCapture::from_slice(CAPTURE.as_bytes()).unwrap();
    let digest = |text: &str| Some(Sha256Digest::of(text));
    let all = capture
        .clone()
        .with_snapshots(digest("m"), digest("r"), digest("g"))
        .unwrap();
    let text = String::from_utf8(all.to_vec().unwrap()).unwrap();
    let hex = |text: &str| Sha256Digest::of(text).to_string();
    let tail = format!(
        r#"]}}],"metadata_snapshot_sha256":"{}","rlmm_snapshot_sha256":"{}","group_offsets_sha256":"{}"}}"#,
        hex("m"),
        hex("r"),
        hex("g")
    );
    assert!(text.ends_with(&tail), "{text}");
    assert_eq!(
        DisklessWalCapture::from_slice(text.as_bytes()).as_ref(),
        Ok(&all)
    );
    assert_eq!(
        (
            all.metadata_snapshot_sha256(),
            all.rlmm_snapshot_sha256(),
            all.group_offsets_sha256()
        ),
        (digest("m"), digest("r"), digest("g"))
    );
    let one = all.with_snapshots(None, digest("r"), None).unwrap();
    assert!(
        one.to_vec()
            .unwrap()
            .ends_with(format!(r#"]}}],"rlmm_snapshot_sha256":"{}"}}"#, hex("r")).as_bytes())
    );
    assert_eq!(one.with_snapshots(None, None, None), Ok(capture));
}

#[test]
fn a_captures_records_lead_to_the_same_capture() {
    let mut projection = WalCaptureProjection::new();
    publish(&mut projection, "a", entry());
    raise_floor(&mut projection, 3, 10);
    raise_floor(&mut projection, 4, 7);
    raise_floor(&mut projection, 5, 0);
    let capture = projection.capture(&orders(7), vec![], 1).unwrap();
    let mut again = WalCaptureProjection::new();
    for (key, value) in capture.index_records() {
        again.apply(Some(&key), Some(&value)).unwrap();
    }
    assert_eq!(again.capture(&orders(7), vec![], 1), Ok(capture));
    assert_eq!(again.lookup(TOPIC_ID, 3, 11).unwrap().entry, entry());
}

proptest! {
    #[test]
    fn damaged_documents_are_read_or_refused(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3), 1..4),
    ) {
        let mut bytes = CAPTURE.as_bytes().to_vec();
        for (at, byte, how) in edits {
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => bytes.truncate(at.max(1)),
            }
        }
        if let Ok(capture) = DisklessWalCapture::from_slice(&bytes) {
            let again = DisklessWalCapture::from_slice(&capture.to_vec().unwrap());
            prop_assert_eq!(again, Ok(capture));
        }
    }
}
