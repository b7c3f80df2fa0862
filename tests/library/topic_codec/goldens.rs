//! Values that Kafka's own classes wrote, both ways.

use krabka_remote_storage::RemoteLogSegmentState::{
    CopySegmentFinished, DeleteSegmentFinished, DeleteSegmentStarted,
};
use krabka_remote_storage::RemotePartitionDeleteState::{
    DeletePartitionFinished, DeletePartitionMarked, DeletePartitionStarted,
};

use super::*;

/// The event has these bytes, and the bytes are this event.
#[track_caller]
fn assert_bytes(event: &MetadataEvent, hex: &str, length: usize) {
    let value = bytes(hex);
    assert_eq!(value.len(), length);
    assert_eq!(event.encode(), value);
    assert_same(&MetadataEvent::decode(&value).unwrap(), event);
}

#[test]
fn adds_have_kafkas_bytes() {
    let add = |end: &str| format!("{ADD}{end}");
    let segment = || Segment::default().build();
    let event = MetadataEvent::AddSegment;
    assert_bytes(&event(segment()), &add("00001000000000"), 118);
    assert_bytes(
        &event(segment().with_custom_metadata(custom(&[1, 2, 3, 4]))),
        &add("0000100005010203040000"),
        122,
    );
    assert_bytes(
        &event(segment().with_txn_index_empty(true)),
        &add("00001000000001000101"),
        121,
    );
    // Present and empty is not absent.
    assert_bytes(
        &event(segment().with_custom_metadata(custom(&[]))),
        &add("00001000010000"),
        118,
    );
    let finished = Segment {
        state: CopySegmentFinished,
        ..Segment::default()
    };
    assert_bytes(&finished.add(), &add("00001000000100"), 118);
}

#[test]
fn an_add_without_any_timestamp_has_kafkas_bytes() {
    let event = Segment {
        max_timestamp_ms: -1,
        ..Segment::default()
    };
    let hex = concat!(
        "010000076f7264657273000000000000000000000000000000ca0000000700",
        "000000000000000000000000000000fe00000000000000000000000000000000630000002a",
        "ffffffffffffffff000000000000007b03000000000000000000000000000000000100000000",
        "000000320000001000000000",
    );
    assert_bytes(&event.add(), hex, 118);
}

#[test]
fn names_are_utf_8_and_epochs_reach_the_highest() {
    let event = Segment {
        tp: TopicIdPartition::new(Uuid::from_u128(0xca), "té", 0),
        end_offset: 0,
        size: 1,
        epochs: vec![(i32::MAX, 0)],
        ..Segment::default()
    };
    let hex = concat!(
        "0100000474c3a9000000000000000000000000000000ca0000000000",
        "000000000000000000000000000000fe00000000000000000000000000000000000000002a",
        "0000000000000064000000000000007b027fffffff00000000000000000000000001000000",
    );
    assert_bytes(&event.add(), hex, 102);
}

#[test]
fn updates_have_kafkas_bytes() {
    let head = &UPDATE[..96];
    assert_bytes(&finish(), UPDATE, 63);
    assert_bytes(
        &update(CopySegmentFinished, 42, 456, Some(custom(&[9, 8, 7]))),
        &format!("{head}0000002a00000000000001c8040908070100"),
        66,
    );
    assert_bytes(
        &update(DeleteSegmentStarted, 43, 457, None),
        &format!("{head}0000002b00000000000001c9000200"),
        63,
    );
    assert_bytes(
        &update(DeleteSegmentFinished, 43, 458, None),
        &format!("{head}0000002b00000000000001ca000300"),
        63,
    );
}

#[test]
fn partition_deletes_have_kafkas_bytes() {
    let head = "010200076f7264657273000000000000000000000000000000ca00000007000000002a";
    for (state, timestamp, end) in [
        (DeletePartitionMarked, 789, "00000000000003150000"),
        (DeletePartitionStarted, 790, "00000000000003160100"),
        (DeletePartitionFinished, 791, "00000000000003170200"),
    ] {
        assert_bytes(&delete(state, timestamp), &format!("{head}{end}"), 45);
    }
}

#[test]
fn a_long_topic_name_has_a_length_of_two_bytes() {
    let event = Segment {
        tp: TopicIdPartition::new(Uuid::from_u128(0xca), "a".repeat(200), 0),
        end_offset: 0,
        size: 1,
        epochs: vec![(0, 0)],
        ..Segment::default()
    }
    .add();
    let value = event.encode();
    assert_eq!(value[..8], bytes("010000c901616161"));
    assert_eq!(value.len(), 300);
    assert_same(&MetadataEvent::decode(&value).unwrap(), &event);
}

#[test]
fn many_epochs_have_a_count_of_two_bytes() {
    let event = Segment {
        end_offset: 999,
        epochs: (0..130)
            .map(|epoch| (3 * epoch, i64::from(epoch)))
            .collect(),
        ..Segment::default()
    }
    .add();
    let value = event.encode();
    assert_eq!(value[84..86], bytes("8301"));
    assert_eq!(value.len(), 1783);
    let mut crc = flate2::Crc::new();
    crc.update(&value);
    assert_eq!(crc.sum(), 0x9d06_fa79);
    assert_same(&MetadataEvent::decode(&value).unwrap(), &event);
}
