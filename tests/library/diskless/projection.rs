//! Replaying the index topic.

use krabka_remote_storage::diskless::{
    WalCaptureProjection, WalDeleteFloorKey, WalDeleteFloorRecord, WalIndexEntry, WalIndexKey,
};
use uuid::Uuid;

use super::samples::{TOPIC_ID, publish, raise_floor, range};

fn tombstone(projection: &mut WalCaptureProjection, entry: &WalIndexEntry) {
    let key = WalIndexKey::from(entry).to_bytes();
    projection.apply(Some(&key), None).unwrap();
}

#[test]
fn the_last_write_of_a_range_key_counts() {
    let mut projection = WalCaptureProjection::new();
    publish(&mut projection, "a", range(0, 4, 6, 10));
    publish(&mut projection, "b", range(0, 9, 6, 20));
    let found = projection.lookup(TOPIC_ID, 0, 7).unwrap();
    assert_eq!(&*found.object_key, "b");
    assert_eq!(
        (projection.references("a"), projection.references("b")),
        (0, 1)
    );
    publish(&mut projection, "a", range(0, 4, 6, 10));
    assert_eq!(projection.lookup(TOPIC_ID, 0, 7), None);
    assert_eq!(projection.objects().collect::<Vec<_>>(), ["a"]);
    // The other way round of what is published, the record of a range.
    let found = projection.lookup(TOPIC_ID, 0, 4).unwrap().clone();
    let mut again = WalCaptureProjection::new();
    let (key, value) = found.to_record();
    again.apply(Some(&key), Some(&value)).unwrap();
    assert_eq!(again, projection);
    again.apply(Some(&found.key().to_bytes()), None).unwrap();
    assert_eq!(again, WalCaptureProjection::new());
}

#[test]
fn a_floor_rises_and_falls_only_by_its_tombstone() {
    let mut projection = WalCaptureProjection::new();
    let floor = |projection: &WalCaptureProjection| {
        projection
            .partition(TOPIC_ID, 3)
            .map(krabka_remote_storage::diskless::WalPartition::delete_floor)
    };
    assert_eq!(floor(&projection), None);
    raise_floor(&mut projection, 3, 42);
    raise_floor(&mut projection, 3, 7);
    assert_eq!(floor(&projection), Some(42));
    let key = WalDeleteFloorKey {
        topic_id: TOPIC_ID,
        partition: 3,
    }
    .to_bytes();
    projection.apply(Some(&key), None).unwrap();
    assert_eq!(floor(&projection), None);
    projection.apply(Some(&key), None).unwrap();
    raise_floor(&mut projection, 3, 7);
    assert_eq!(floor(&projection), Some(7));
    raise_floor(&mut projection, 3, 0);
    assert_eq!(floor(&projection), Some(7));
}

#[test]
fn objects_are_counted_by_the_ranges_that_name_them() {
    let mut projection = WalCaptureProjection::new();
    let ranges = [
        range(0, 4, 6, 10),
        range(5, 9, 10, 20),
        range(10, 14, 30, 40),
    ];
    for entry in ranges {
        publish(&mut projection, "a", entry);
    }
    // A second time the same is no second reference.
    publish(&mut projection, "a", ranges[0]);
    assert_eq!(projection.references("a"), 3);
    for (left, entry) in [
        (2, &ranges[0]),
        (1, &ranges[1]),
        (1, &ranges[1]),
        (0, &ranges[2]),
    ] {
        tombstone(&mut projection, entry);
        assert_eq!(projection.references("a"), left);
    }
    assert_eq!(projection, WalCaptureProjection::new());
    assert_eq!(projection.partitions().count(), 0);
}

#[test]
fn between_keys_the_order_of_records_does_not_matter() {
    let entries = [
        range(0, 4, 6, 10),
        range(5, 9, 10, 20),
        range(10, 14, 20, 30),
    ];
    let mut forward = WalCaptureProjection::new();
    let mut backward = WalCaptureProjection::new();
    raise_floor(&mut forward, 0, 3);
    for entry in entries {
        publish(&mut forward, "a", entry);
    }
    for entry in entries.into_iter().rev() {
        publish(&mut backward, "a", entry);
    }
    raise_floor(&mut backward, 0, 3);
    assert_eq!(forward, backward);
}

#[test]
fn a_refused_record_changes_nothing() {
    let mut projection = WalCaptureProjection::new();
    publish(&mut projection, "a", range(0, 4, 6, 10));
    raise_floor(&mut projection, 0, 2);
    let before = projection.clone();
    let key = WalIndexKey::from(&range(0, 4, 6, 10)).to_bytes();
    let floor = WalDeleteFloorRecord {
        topic_id: TOPIC_ID,
        partition: 0,
        floor: -5,
    };
    assert!(projection.apply(Some(&key), Some(b"\0\x02x")).is_err());
    assert!(
        projection
            .apply(Some(&floor.key().to_bytes()), Some(&floor.to_bytes()))
            .is_err()
    );
    assert_eq!(projection, before);
}

#[test]
fn partitions_of_one_topic_and_topics_are_kept_apart() {
    let mut projection = WalCaptureProjection::new();
    let other = Uuid::from_u128(7);
    for (topic_id, partition, object) in [(TOPIC_ID, 0, "a"), (TOPIC_ID, 1, "b"), (other, 0, "c")] {
        let entry = WalIndexEntry {
            topic_id,
            partition,
            ..range(0, 4, 6, 10)
        };
        publish(&mut projection, object, entry);
    }
    for (topic_id, partition, object) in [(TOPIC_ID, 0, "a"), (TOPIC_ID, 1, "b"), (other, 0, "c")] {
        let found = projection.lookup(topic_id, partition, 2).unwrap();
        assert_eq!(&*found.object_key, object);
    }
    assert_eq!(projection.lookup(other, 1, 2), None);
    assert_eq!(projection.partitions().count(), 3);
}
