//! What a decoder is to accept and to refuse, and what it says then.

use krabka_remote_storage::topic::CodecError;

use super::*;

fn decode(hex: &str) -> Result<MetadataEvent, CodecError> {
    MetadataEvent::decode(&bytes(hex))
}

#[track_caller]
fn assert_protocol(result: Result<MetadataEvent, CodecError>, text: &str) {
    match result {
        Err(CodecError::Protocol(reason)) => assert_eq!(reason, text),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn assert_domain(hex: &str, text: &str) {
    match decode(hex) {
        Err(CodecError::Domain(reason)) => assert_eq!(
            reason,
            format!("segment AAAAAAAAAAAAAAAAAAAA_g of orders-7: {text}")
        ),
        other => panic!("{other:?}"),
    }
}

/// [`UPDATE`] with this byte in place of the one at `at`.
fn update_with(at: usize, byte: u8) -> Result<MetadataEvent, CodecError> {
    let mut value = bytes(UPDATE);
    value[at] = byte;
    MetadataEvent::decode(&value)
}

#[test]
fn an_empty_value_is_refused() {
    assert_protocol(decode(""), "the value is empty");
}

#[test]
fn another_frame_version_is_refused_with_its_number() {
    for version in [0, 2, 127] {
        let text = format!("frame version {version} is not read here, only 1");
        assert_protocol(update_with(0, version), &text);
    }
    let text = "frame version 32768 is not read here, only 1";
    assert_protocol(decode("8080020000"), text);
}

#[test]
fn another_api_key_is_refused_with_its_number() {
    let snapshot = concat!(
        "010300000000000000000000000000000000fe0000000000000000000000000000006300",
        "00002a0000000000000064000000000000007b0300000000000000000000000000000000",
        "010000000000000032000000100005010203040101000101",
    );
    assert_eq!(bytes(snapshot).len(), 96);
    assert_protocol(
        decode(snapshot),
        "api key 3 is no event of the metadata topic",
    );
    for key in [4, 9, 127] {
        let text = format!("api key {key} is no event of the metadata topic");
        assert_protocol(update_with(1, key), &text);
    }
    // Neither is one whose low byte is a known key.
    let text = "api key 256 is no event of the metadata topic";
    assert_protocol(decode(&format!("018002{}", &UPDATE[4..])), text);
}

#[test]
fn another_api_version_is_refused_with_key_and_version() {
    let delete = delete(RemotePartitionDeleteState::DeletePartitionMarked, 1);
    for event in [Segment::default().add(), finish(), delete] {
        for version in [1, 2, 127] {
            let mut value = event.encode().to_vec();
            value[2] = version;
            let key = value[1];
            assert_protocol(
                MetadataEvent::decode(&value),
                &format!("api version {version} of api key {key} is not read here, only 0"),
            );
        }
    }
}

#[test]
fn unknown_tags_are_passed_over_in_every_struct() {
    let tags = "010502aabb";
    let update = &UPDATE[..UPDATE.len() - 2];
    assert_same(&decode(&format!("{update}{tags}")).unwrap(), &finish());
    // After the partition, after the segment id, after an epoch, at the end.
    let mut add = format!("{ADD}0000100000{}{tags}", "00");
    for position in [110, 97, 47, 30] {
        let at = 2 * position;
        assert_eq!(&add[at..at + 2], "00");
        add.replace_range(at..at + 2, tags);
        assert_same(&decode(&add).unwrap(), &Segment::default().add());
    }
    // Tag numbers and sizes may have several bytes.
    let tags = format!("01ffffffff0f8201{}", "ab".repeat(130));
    assert_same(&decode(&format!("{update}{tags}")).unwrap(), &finish());
}

#[test]
fn tags_may_be_unordered_and_repeated_and_the_last_one_counts() {
    let add = format!("{ADD}000010000000");
    for (tags, txn_index_empty) in [
        ("0305010000010105010a", true),
        ("02000101000100", false),
        ("02000100000101", true),
        // Every byte but 0 is true.
        ("01000102", true),
        ("010001ff", true),
        ("01000100", false),
        ("00", false),
    ] {
        let event = decode(&format!("{add}{tags}")).unwrap();
        let expected = Segment::default().build();
        let expected = expected.with_txn_index_empty(txn_index_empty);
        assert_same(&event, &MetadataEvent::AddSegment(expected));
    }
}

#[test]
fn a_tag_of_a_wrong_size_is_refused() {
    let add = format!("{ADD}000010000000");
    for (tags, length) in [("010000", 0), ("0100020101", 2)] {
        let text = format!("a TxnIndexEmpty of {length} bytes, where 1 is expected");
        assert_protocol(decode(&format!("{add}{tags}")), &text);
    }
    let update = &UPDATE[..UPDATE.len() - 2];
    assert_protocol(
        decode(&format!("{update}010503aabb")),
        "the value ends at byte 67, in a tagged field, which goes on at byte 65",
    );
}

#[test]
fn trailing_bytes_are_refused() {
    for (more, count) in [("00", 1), ("0102", 2)] {
        let text = format!("{count} bytes follow after its end at byte 63");
        assert_protocol(decode(&format!("{UPDATE}{more}")), &text);
    }
}

#[test]
fn a_truncated_value_is_refused_with_its_position() {
    let text =
        "the value ends at byte 62, in the number of tagged fields, which goes on at byte 62";
    assert_protocol(decode(&UPDATE[..UPDATE.len() - 2]), text);
    let rich = Segment::default().build();
    let rich = rich
        .with_custom_metadata(custom(&[1; 200]))
        .with_txn_index_empty(true);
    let delete = delete(RemotePartitionDeleteState::DeletePartitionMarked, 1);
    for event in [MetadataEvent::AddSegment(rich), finish(), delete] {
        let value = event.encode();
        for length in 1..value.len() {
            match MetadataEvent::decode(&value[..length]) {
                Err(CodecError::Protocol(reason)) => {
                    let at = format!("the value ends at byte {length}, in ");
                    // An array is refused as a whole.
                    let array = "leader epochs do not fit into the";
                    assert!(
                        reason.starts_with(&at) || reason.contains(array),
                        "{reason}"
                    );
                }
                other => panic!("{length}: {other:?}"),
            }
        }
    }
}

#[test]
fn lengths_beyond_what_is_there_are_refused() {
    // The topic's name.
    let text = "the value ends at byte 63, in the topic's name, which goes on at byte 4";
    assert_protocol(update_with(3, 0x7f), text);
    // The custom metadata: one of 2 GiB.
    let update = &UPDATE[..UPDATE.len() - 6];
    assert_protocol(
        decode(&format!("{update}ffffffff070100")),
        "the value ends at byte 67, in the custom metadata, which goes on at byte 65",
    );
    // The epochs.
    let add = bytes(&format!("{ADD}00001000000000"));
    let epochs = 84;
    assert_eq!(add[epochs], 3);
    for (count, printed) in [("05", 4), ("ffffffff07", 2_147_483_646)] {
        let value = [&add[..epochs], &bytes(count), &add[epochs + 1..]].concat();
        let position = epochs + count.len() / 2;
        assert_protocol(
            MetadataEvent::decode(&value),
            &format!(
                "{printed} leader epochs do not fit into the 33 bytes from byte {position} on"
            ),
        );
    }
}

#[test]
fn lengths_that_no_field_can_have_are_refused() {
    let name = |length: &str, bytes: usize| {
        format!("010100{length}{}{}", "61".repeat(bytes), &UPDATE[20..])
    };
    let longest = decode(&name("808002", 32_767)).unwrap();
    assert_eq!(longest.topic_id_partition().topic, "a".repeat(32_767));
    assert_eq!(
        decode(&name("818002", 32_768)),
        Err(CodecError::LengthOverflow(32_768))
    );
    // Above what Kafka's `int` holds, for a name, the custom metadata and the epochs.
    for hex in [
        format!("010100ffffffff0f{}", &UPDATE[20..]),
        format!("{}ffffffff0f0100", &UPDATE[..UPDATE.len() - 6]),
        format!("{}ffffffff0f{}", &ADD[..168], &ADD[170..]),
    ] {
        assert_eq!(decode(&hex), Err(CodecError::LengthOverflow(0xffff_fffe)));
    }
}

#[test]
fn null_where_a_value_must_be_is_refused() {
    let text = "the topic's name before byte 4 is null";
    assert_protocol(update_with(3, 0), text);
    let add = format!("{}00{}00001000000000", &ADD[..168], &ADD[170..]);
    assert_protocol(
        decode(&add),
        "the array of leader epochs before byte 85 is null",
    );
}

#[test]
fn a_name_that_is_not_utf_8_is_refused() {
    assert_protocol(
        update_with(6, 0xff),
        "the topic's name is not UTF-8 at byte 6",
    );
}

#[test]
fn a_longer_form_of_a_number_is_accepted_up_to_five_bytes() {
    for frame in ["8100", "818000", "81808000", "8180808000"] {
        let value = format!("{frame}{}", &UPDATE[2..]);
        assert_same(&decode(&value).unwrap(), &finish());
    }
    assert_protocol(
        decode(&format!("818080808000{}", &UPDATE[2..])),
        "the frame version before byte 5 is a varint of more than 5 bytes",
    );
    // Bits that do not fit are lost, as in Kafka.
    let value = format!("8180808070{}", &UPDATE[2..]);
    assert_same(&decode(&value).unwrap(), &finish());
}

#[test]
fn unknown_states_are_refused_with_their_byte() {
    for byte in [4, 9, 0x7f, 0x80, 0xff] {
        let unknown = CodecError::UnknownState(byte, "RemoteLogSegmentState");
        assert_eq!(update_with(61, byte), Err(unknown.clone()));
        let add = format!("{ADD}0000100000{byte:02x}00");
        assert_eq!(decode(&add), Err(unknown));
    }
    for byte in [3, 9, 0xff] {
        let mut value = delete(RemotePartitionDeleteState::DeletePartitionMarked, 1)
            .encode()
            .to_vec();
        value[43] = byte;
        let unknown = CodecError::UnknownState(byte, "RemotePartitionDeleteState");
        assert_eq!(MetadataEvent::decode(&value), Err(unknown));
    }
    let text = CodecError::UnknownState(9, "RemoteLogSegmentState").to_string();
    assert_eq!(text, "9 is no wire id of a RemoteLogSegmentState");
}

#[test]
fn an_add_without_leader_epochs_is_refused() {
    let hex = concat!(
        "010000076f7264657273000000000000000000000000000000ca0000000700",
        "000000000000000000000000000000fe00000000000000000000000000000000630000002a",
        "0000000000000064000000000000007b0100001000000000",
    );
    assert_domain(hex, "no leader epoch is given");
}

#[test]
fn the_last_of_two_starts_of_an_epoch_counts() {
    let add = ADD.replace("000000010000000000000032", "000000000000000000000032");
    assert_ne!(add, ADD);
    let expected = Segment {
        epochs: vec![(0, 50)],
        ..Segment::default()
    };
    let event = decode(&format!("{add}00001000000000")).unwrap();
    assert_same(&event, &expected.add());
}

#[test]
fn epochs_may_come_in_any_order() {
    let [first, second] = ["00000000000000000000000000", "00000001000000000000003200"];
    let end = ADD.find(&format!("03{first}{second}")).unwrap();
    let add = format!("{}03{second}{first}00001000000000", &ADD[..end]);
    assert_same(&decode(&add).unwrap(), &Segment::default().add());
}

#[test]
fn offsets_that_cannot_be_are_refused() {
    let offsets = "00000000000000000000000000000063";
    let at = ADD.find(offsets).unwrap();
    for (start, end, text) in [
        (-1_i64, 99_i64, "start offset -1 is negative"),
        (
            i64::MIN,
            99,
            "start offset -9223372036854775808 is negative",
        ),
        (100, 99, "end offset 99 is below start offset 100"),
        (0, -1, "end offset -1 is below start offset 0"),
    ] {
        let (head, tail) = (&ADD[..at], &ADD[at + offsets.len()..]);
        let hex = format!("{head}{start:016x}{end:016x}{tail}00001000000000");
        assert_domain(&hex, text);
    }
}

#[test]
fn a_negative_size_is_refused() {
    let hex = format!("{ADD}ffffffff000000");
    assert_domain(&hex, "size of -1 bytes is negative");
}

#[test]
fn an_add_is_decoded_in_every_state() {
    for state in RemoteLogSegmentState::ALL {
        let event = Segment {
            state,
            ..Segment::default()
        }
        .add();
        assert_same(&MetadataEvent::decode(&event.encode()).unwrap(), &event);
    }
}
