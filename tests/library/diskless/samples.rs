//! The values that the golden bytes stand for.

use std::collections::HashMap;

use krabka_remote_storage::HexBytes;
use krabka_remote_storage::diskless::{
    WalCaptureProjection, WalDeleteFloorRecord, WalFlushRecord, WalIndexEntry,
};
use uuid::Uuid;

pub(crate) const TOPIC_ID: Uuid = Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);

pub(crate) const RANGE_KEY: &str = "000000112233445566778899aabbccddeeff00000003000000000000000a";
pub(crate) const FLOOR_KEY: &str = "000100112233445566778899aabbccddeeff00000003";
pub(crate) const FLOOR_VALUE: &str =
    "0000100000000000000000112233445566778899aabbccddeeff030000002a00000000000000";
pub(crate) const FLUSH_VALUE: &str = concat!(
    "0002050000000000000077616c2f610100000000000000100000000000000000112233445566778899aabbccddeeff",
    "030000000a000000000000000c000000000000000600000000000000400000000068e5cf8b010000"
);
pub(crate) const OBJECT: &str = concat!(
    "434b574c01006162636478797a00112233445566778899aabbccddeeff030000000a000000000000000b00000000",
    "00000006000000000000000400000000112233445566778899aabbccddeeff040000000000000000000000000000",
    "00000000000a000000000000000300000060000000434b574c"
);
pub(crate) const EMPTY_OBJECT: &str = "434b574c010000000000434b574c";
pub(crate) const CAPTURE: &str = concat!(
    r#"{"format_version":1,"captured_at_ms":1700000000000,"source_cutoffs":[5],"partitions":["#,
    r#"{"topic":"orders","topic_id":"00112233-4455-6677-8899-aabbccddeeff","partition":3,"#,
    r#""delete_floor":10,"recovery_cutoff":13,"ranges":[{"object_key":"wal/a","entry":"#,
    r#"{"topic_id":"00112233-4455-6677-8899-aabbccddeeff","partition":3,"first_offset":10,"#,
    r#""last_offset":12,"byte_start":6,"byte_len":64,"max_timestamp_ms":1700000000000}}]}]}"#
);

pub(crate) fn unhex(digits: &str) -> Vec<u8> {
    digits.parse::<HexBytes>().unwrap().0
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    HexBytes(bytes.to_vec()).to_string()
}

/// The range of the golden values.
pub(crate) fn entry() -> WalIndexEntry {
    WalIndexEntry {
        topic_id: TOPIC_ID,
        partition: 3,
        first_offset: 10,
        last_offset: 12,
        byte_start: 6,
        byte_len: 64,
        max_timestamp_ms: 1_700_000_000_000,
    }
}

/// A range of partition 0: offsets, both inclusive, and bytes of an object, the end exclusive.
pub(crate) fn range(first: i64, last: i64, start: u64, end: u64) -> WalIndexEntry {
    WalIndexEntry {
        partition: 0,
        first_offset: first,
        last_offset: last,
        byte_start: start,
        byte_len: u32::try_from(end - start).unwrap(),
        ..entry()
    }
}

pub(crate) fn publish(projection: &mut WalCaptureProjection, key: &str, entry: WalIndexEntry) {
    let (key, value) = WalFlushRecord::keyed_entry(key, entry);
    projection.apply(Some(&key), Some(&value)).unwrap();
}

pub(crate) fn raise_floor(projection: &mut WalCaptureProjection, partition: i32, floor: i64) {
    let record = WalDeleteFloorRecord {
        topic_id: TOPIC_ID,
        partition,
        floor,
    };
    let (key, value) = (record.key().to_bytes(), record.to_bytes());
    projection.apply(Some(&key), Some(&value)).unwrap();
}

/// The topic `orders` with so many partitions.
pub(crate) fn orders(partitions: i32) -> HashMap<Uuid, (String, i32)> {
    HashMap::from([(TOPIC_ID, ("orders".to_owned(), partitions))])
}
