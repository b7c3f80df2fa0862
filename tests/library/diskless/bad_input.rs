//! Every bad key and value of the format's table, with its answer.

use krabka_remote_storage::diskless::{
    CAPTURE_STATE_KEY, DisklessError, REPLAY_FENCE_KEY, WalCaptureProjection, WalDeleteFloorRecord,
    WalFlushRecord, WalIndexEntry, WalIndexKey,
};
use proptest::prelude::*;

use super::samples::{FLOOR_KEY, FLOOR_VALUE, FLUSH_VALUE, RANGE_KEY, TOPIC_ID, entry, unhex};

fn flush_error(bytes: &[u8]) -> String {
    WalFlushRecord::from_bytes(bytes).unwrap_err().to_string()
}

fn floor_error(bytes: &[u8]) -> String {
    WalDeleteFloorRecord::from_bytes(bytes)
        .unwrap_err()
        .to_string()
}

#[test]
fn a_value_without_a_version_is_truncated() {
    for len in 0..2 {
        let bytes = vec![0; len];
        let says = format!("{len} bytes hold no version");
        for error in [flush_error(&bytes), floor_error(&bytes)] {
            assert!(
                error.starts_with("truncated diskless WAL ") && error.contains(&says),
                "{error}"
            );
        }
    }
}

#[test]
fn a_value_of_another_version_is_unsupported() {
    let flush = unhex(FLUSH_VALUE);
    let floor = unhex(FLOOR_VALUE);
    let with_version =
        |version: i16, value: &[u8]| [&version.to_be_bytes()[..], &value[2..]].concat();
    for (error, found, supported) in [
        (flush_error(&with_version(3, &flush)), "3", 2),
        (flush_error(&with_version(1, &flush)), "1", 2),
        (flush_error(&with_version(-2, &flush)), "-2", 2),
        // Values from before krabka 1.0 have no version before their body.
        (flush_error(&flush[2..]), "1280", 2),
        (floor_error(&with_version(1, &floor)), "1", 0),
        (floor_error(&with_version(-1, &floor)), "-1", 0),
        (floor_error(&floor[2..]), "4096", 0),
    ] {
        let says = format!("version {found}: this build reads version {supported}");
        assert!(
            error.starts_with("unsupported diskless WAL ") && error.contains(&says),
            "{error}"
        );
    }
}

#[test]
fn a_record_of_another_version_is_not_written() {
    for format_version in [0, 1, 3, u16::MAX] {
        let record = WalFlushRecord {
            object_key: "wal/a".to_owned(),
            format_version,
            entries: vec![entry()],
        };
        let error = record.to_bytes().unwrap_err().to_string();
        assert!(
            error.contains(&format!("version {format_version}: ")),
            "{error}"
        );
    }
}

#[test]
fn bytes_behind_a_body_and_bodies_cut_short_are_refused() {
    for (golden, read) in [
        (FLUSH_VALUE, flush_error as fn(&[u8]) -> String),
        (FLOOR_VALUE, floor_error),
    ] {
        let golden = unhex(golden);
        let longer = [&golden[..], &[0]].concat();
        assert!(
            read(&longer).contains("1 bytes stand behind the body"),
            "{}",
            read(&longer)
        );
        for len in 2..golden.len() {
            let error = read(&golden[..len]);
            assert!(error.starts_with("malformed"), "{len} bytes: {error}");
        }
    }
}

#[test]
fn counts_that_the_bytes_cannot_hold_are_refused() {
    let golden = unhex(FLUSH_VALUE);
    for (at, what) in [(2, "string"), (15, "list")] {
        for count in [u64::MAX, 1 << 62, 1 << 32, 1000] {
            let mut value = golden.clone();
            value[at..at + 8].copy_from_slice(&count.to_le_bytes());
            let error = flush_error(&value);
            assert!(
                error.contains(&format!("a count of {count} ")),
                "{what}: {error}"
            );
        }
    }
    // Room for two entries less one byte.
    let mut value = [&golden[..], &golden[golden.len() - 63..]].concat();
    value[15] = 2;
    assert!(flush_error(&value).contains("a count of 2 "));
    for (value, at) in [(FLUSH_VALUE, 23), (FLOOR_VALUE, 2)] {
        let mut value = unhex(value);
        value[at] = 17;
        let error = if at == 23 {
            flush_error(&value)
        } else {
            floor_error(&value)
        };
        assert!(error.contains("a UUID has 16 bytes"), "{error}");
    }
    let mut value = golden;
    value[10] = 0xff;
    assert!(flush_error(&value).contains("not UTF-8"));
}

/// What applying one record to an empty projection answers.
fn applied(key: &[u8], value: Option<&[u8]>) -> Result<(), DisklessError> {
    let mut projection = WalCaptureProjection::new();
    let result = projection.apply(Some(key), value);
    if result.is_err() {
        assert_eq!(projection, WalCaptureProjection::new());
    }
    result
}

#[test]
fn keys_that_are_not_known_are_refused_and_say_their_version() {
    let (range, floor) = (unhex(RANGE_KEY), unhex(FLOOR_KEY));
    // From before krabka 1.0: 28 bytes that begin with the topic's id, and 21 bytes tagged f0.
    let old_range = [&[0, 0x11], &range[4..]].concat();
    assert_eq!(old_range.len(), 28);
    let old_floor = [&[0xf0], &floor[2..]].concat();
    assert_eq!(old_floor.len(), 21);
    for (key, version) in [
        (&old_range[..], 17),
        (&old_floor, -4096),
        (&[0, 2], 2),
        (REPLAY_FENCE_KEY, 0x5f5f),
    ] {
        let expected = DisklessError::UnknownKeyVersion(version);
        for value in [None, Some(&unhex(FLUSH_VALUE)[..])] {
            assert_eq!(applied(key, value), Err(expected.clone()));
        }
        let text = format!("unknown diskless WAL index key version {version}");
        assert_eq!(expected.to_string(), text);
    }

    let negative = |partition, first_offset| {
        WalIndexKey {
            topic_id: TOPIC_ID,
            partition,
            first_offset,
        }
        .to_bytes()
        .to_vec()
    };
    for key in [
        range[..29].to_vec(),
        [&range[..], &[0]].concat(),
        floor[..21].to_vec(),
        [&floor[..], &[0]].concat(),
        vec![0, 0],
        vec![0, 1],
        vec![0],
        Vec::new(),
        negative(-1, 0),
        negative(0, -1),
    ] {
        for value in [None, Some(&unhex(FLUSH_VALUE)[..])] {
            assert_eq!(
                applied(&key, value),
                Err(DisklessError::InvalidKey),
                "{key:?}"
            );
        }
    }
    assert_eq!(
        DisklessError::InvalidKey.to_string(),
        "invalid diskless WAL index key"
    );
}

#[test]
fn a_record_without_a_key_is_refused() {
    let mut projection = WalCaptureProjection::new();
    for value in [None, Some(&unhex(FLUSH_VALUE)[..])] {
        assert_eq!(
            projection.apply(None, value),
            Err(DisklessError::MissingKey)
        );
    }
}

#[test]
fn a_key_and_a_value_that_disagree_are_refused() {
    let flush = |entries| {
        WalFlushRecord {
            object_key: "wal/a".to_owned(),
            format_version: 2,
            entries,
        }
        .to_bytes()
        .unwrap()
    };
    let other = WalIndexEntry {
        first_offset: 11,
        ..entry()
    };
    let elsewhere = WalIndexEntry {
        partition: 4,
        ..entry()
    };
    for entries in [
        vec![other],
        vec![elsewhere],
        vec![],
        vec![entry(), other],
        vec![entry(), entry()],
    ] {
        let error = applied(&unhex(RANGE_KEY), Some(&flush(entries))).unwrap_err();
        assert!(error.to_string().contains("key/value mismatch"), "{error}");
    }
    let record = WalDeleteFloorRecord {
        topic_id: TOPIC_ID,
        partition: 4,
        floor: 42,
    };
    let error = applied(&unhex(FLOOR_KEY), Some(&record.to_bytes())).unwrap_err();
    assert!(error.to_string().contains("key/value mismatch"), "{error}");
    // A value of the other kind, and none at all.
    for (key, value) in [(RANGE_KEY, FLOOR_VALUE), (FLOOR_KEY, FLUSH_VALUE)] {
        assert!(matches!(
            applied(&unhex(key), Some(&unhex(value))),
            Err(DisklessError::UnsupportedVersion { .. })
        ));
        assert!(matches!(
            applied(&unhex(key), Some(&[])),
            Err(DisklessError::Truncated { len: 0, .. })
        ));
    }
}

#[test]
fn ranges_and_floors_that_cannot_be_are_refused() {
    let key = |entry: &WalIndexEntry| WalIndexKey::from(entry).to_bytes();
    for (reason, change) in [
        (
            "last offset is below its first",
            (|entry| entry.last_offset = 9) as fn(&mut WalIndexEntry),
        ),
        ("no offset can follow", |entry| entry.last_offset = i64::MAX),
        ("it has no bytes", |entry| entry.byte_len = 0),
        ("inside the object's header", |entry| entry.byte_start = 5),
        ("ends beyond any object", |entry| {
            entry.byte_start = u64::MAX - 63;
        }),
    ] {
        let mut entry = entry();
        change(&mut entry);
        let (_, value) = WalFlushRecord::keyed_entry("wal/a", entry);
        let error = applied(&key(&entry), Some(&value)).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("invalid diskless WAL index range")
                && error.to_string().contains(reason),
            "{error}"
        );
    }
    // A negative first offset or partition is a key that cannot be; by themselves they are, too.
    for (reason, entry) in [
        (
            "first offset is negative",
            WalIndexEntry {
                first_offset: -1,
                ..entry()
            },
        ),
        (
            "partition is negative",
            WalIndexEntry {
                partition: -1,
                ..entry()
            },
        ),
    ] {
        assert!(entry.check().unwrap_err().to_string().contains(reason));
    }
    for object_key in ["", CAPTURE_STATE_KEY] {
        let (key, value) = WalFlushRecord::keyed_entry(object_key, entry());
        let error = applied(&key, Some(&value)).unwrap_err();
        assert!(error.to_string().contains("empty or reserved"), "{error}");
    }
    let record = WalDeleteFloorRecord {
        topic_id: TOPIC_ID,
        partition: 3,
        floor: -1,
    };
    let error = applied(&unhex(FLOOR_KEY), Some(&record.to_bytes())).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("invalid diskless WAL delete floor"),
        "{error}"
    );
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(key: Vec<u8>, value: Option<Vec<u8>>, cut: prop::sample::Index) {
        let _ = WalFlushRecord::from_bytes(&key);
        let _ = WalDeleteFloorRecord::from_bytes(&key);
        let _ = WalCaptureProjection::new().apply(Some(&key), value.as_deref());
        // And behind what is right.
        for (golden, good) in [(FLUSH_VALUE, RANGE_KEY), (FLOOR_VALUE, FLOOR_KEY)] {
            let golden = unhex(golden);
            let damaged = [&golden[..cut.index(golden.len())], &key].concat();
            if let Ok(record) = WalFlushRecord::from_bytes(&damaged) {
                prop_assert_eq!(record.to_bytes().unwrap(), damaged.clone());
            }
            if let Ok(record) = WalDeleteFloorRecord::from_bytes(&damaged) {
                prop_assert_eq!(record.to_bytes(), damaged.clone());
            }
            let _ = WalCaptureProjection::new().apply(Some(&unhex(good)), Some(&damaged));
        }
    }
}
