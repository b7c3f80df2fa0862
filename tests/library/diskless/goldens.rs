//! The published bytes of every format, both ways.

use krabka_remote_storage::Sha256Digest;
use krabka_remote_storage::diskless::{
    CAPTURE_HEAD_NAME, CAPTURE_STATE_KEY, DisklessWalCapture, REPLAY_FENCE_KEY, WAL_INDEX_TOPIC,
    WalCaptureProjection, WalDeleteFloorKey, WalDeleteFloorRecord, WalFlushRecord, WalIndexKey,
    WalObjectBuilder, parse_wal_object, wal_index_key_version, wal_index_partition,
};

use super::samples::{
    CAPTURE, EMPTY_OBJECT, FLOOR_KEY, FLOOR_VALUE, FLUSH_VALUE, OBJECT, RANGE_KEY, TOPIC_ID, entry,
    hex, orders, publish, raise_floor, unhex,
};

#[test]
fn keys_have_their_published_bytes() {
    let key = WalIndexKey {
        topic_id: TOPIC_ID,
        partition: 3,
        first_offset: 10,
    };
    assert_eq!(hex(&key.to_bytes()), RANGE_KEY);
    assert_eq!(WalIndexKey::from_bytes(&unhex(RANGE_KEY)), Some(key));
    assert_eq!(WalIndexKey::from(&entry()), key);
    let floor = WalDeleteFloorKey {
        topic_id: TOPIC_ID,
        partition: 3,
    };
    assert_eq!(hex(&floor.to_bytes()), FLOOR_KEY);
    assert_eq!(
        WalDeleteFloorKey::from_bytes(&unhex(FLOOR_KEY)),
        Some(floor)
    );
    // Neither is read as the other, and the fence as none.
    assert_eq!(WalIndexKey::from_bytes(&unhex(FLOOR_KEY)), None);
    assert_eq!(WalDeleteFloorKey::from_bytes(&unhex(RANGE_KEY)), None);
    assert_eq!(WalIndexKey::from_bytes(REPLAY_FENCE_KEY), None);
    assert_eq!(WalDeleteFloorKey::from_bytes(REPLAY_FENCE_KEY), None);
}

#[test]
fn a_key_begins_with_its_version() {
    assert_eq!(wal_index_key_version(&unhex(RANGE_KEY)), Some(0));
    assert_eq!(wal_index_key_version(&unhex(FLOOR_KEY)), Some(1));
    assert_eq!(wal_index_key_version(&[0xf0, 0]), Some(-4096));
    assert_eq!(wal_index_key_version(&[0]), None);
    assert_eq!(wal_index_key_version(&[]), None);
}

#[test]
fn values_have_their_published_bytes() {
    let flush = WalFlushRecord {
        object_key: "wal/a".to_owned(),
        format_version: WalFlushRecord::FORMAT_VERSION,
        entries: vec![entry()],
    };
    assert_eq!(hex(&flush.to_bytes().unwrap()), FLUSH_VALUE);
    assert_eq!(WalFlushRecord::from_bytes(&unhex(FLUSH_VALUE)), Ok(flush));
    let (key, value) = WalFlushRecord::keyed_entry("wal/a", entry());
    assert_eq!(
        (hex(&key).as_str(), hex(&value).as_str()),
        (RANGE_KEY, FLUSH_VALUE)
    );

    let floor = WalDeleteFloorRecord {
        topic_id: TOPIC_ID,
        partition: 3,
        floor: 42,
    };
    assert_eq!(hex(&floor.to_bytes()), FLOOR_VALUE);
    assert_eq!(
        WalDeleteFloorRecord::from_bytes(&unhex(FLOOR_VALUE)),
        Ok(floor)
    );
    assert_eq!(hex(&floor.key().to_bytes()), FLOOR_KEY);
}

#[test]
fn an_object_has_its_published_bytes() {
    let mut builder = WalObjectBuilder::new();
    assert!(builder.is_empty());
    let first = builder.append_run(TOPIC_ID, 3, 10, 11, b"abcd").unwrap();
    assert_eq!((first.byte_start, first.byte_len), (6, 4));
    assert_eq!(builder.body_len(), 4);
    let object = builder
        .clone()
        .finish_with_run(TOPIC_ID, 4, 0, 0, b"xyz")
        .unwrap();
    assert_eq!((hex(&object).as_str(), object.len()), (OBJECT, 117));
    let second = builder.append_run(TOPIC_ID, 4, 0, 0, b"xyz").unwrap();
    assert!(!builder.is_empty());
    assert_eq!(hex(&builder.finish()), OBJECT);

    let runs = parse_wal_object(&object).unwrap();
    assert_eq!(runs, [first, second]);
    assert_eq!(runs[0].run_of(&object), Some(&b"abcd"[..]));
    assert_eq!(runs[1].run_of(&object), Some(&b"xyz"[..]));

    let empty = WalObjectBuilder::new().finish();
    assert_eq!((hex(&empty).as_str(), empty.len()), (EMPTY_OBJECT, 14));
    assert_eq!(parse_wal_object(&empty), Ok(Vec::new()));
    let roomy = WalObjectBuilder::with_capacity(100, 3);
    assert_eq!(roomy.body_len(), 0);
    assert_eq!(roomy.finish(), empty);
}

#[test]
fn a_capture_has_its_published_bytes() {
    let mut projection = WalCaptureProjection::new();
    publish(&mut projection, "wal/a", entry());
    raise_floor(&mut projection, 3, 10);
    let capture = projection
        .capture(&orders(0), vec![5], 1_700_000_000_000)
        .unwrap();
    let bytes = capture.to_vec().unwrap();
    assert_eq!(
        (std::str::from_utf8(&bytes), bytes.len()),
        (Ok(CAPTURE), 414)
    );
    assert_eq!(
        Sha256Digest::of(capture.state()).to_string(),
        "11a46c321376f069d12c0f3e03d6d233e6f6ea0b17563108b84eb212ad96bfff"
    );
    assert_eq!(DisklessWalCapture::from_slice(&bytes), Ok(capture));
}

#[test]
fn the_promised_names_are_as_published() {
    assert_eq!(WAL_INDEX_TOPIC, "__diskless_wal_index");
    assert_eq!(REPLAY_FENCE_KEY, b"__krabka_diskless_replay_fence");
    assert_eq!(CAPTURE_HEAD_NAME, "diskless-capture");
    assert_eq!(CAPTURE_STATE_KEY, "__krabka_diskless_capture_state");
    assert_eq!(WalFlushRecord::FORMAT_VERSION, 2);
    assert_eq!(WalDeleteFloorRecord::VERSION, 0);
    assert_eq!(DisklessWalCapture::FORMAT_VERSION, 1);
    assert_eq!(WalIndexKey::VERSION, 0);
    assert_eq!(WalDeleteFloorKey::VERSION, 1);
}

#[test]
fn older_builds_chose_the_index_partition_by_javas_hash() {
    let partitions = 50.try_into().unwrap();
    assert_eq!(wal_index_partition("object-a", partitions), 41);
    assert_eq!(wal_index_partition("", partitions), 0);
}
