//! What may go: ranges, objects, and the local log.

use std::time::Duration;

use krabka_remote_storage::diskless::{
    RetentionRules, WalCaptureProjection, WalIndexEntry, WalIndexKey, may_delete_object,
    trim_target,
};

use super::samples::{TOPIC_ID, publish, raise_floor, range};

/// Four ranges of 100 bytes and 10 offsets, with these highest timestamps.
fn projection(timestamps: [i64; 4]) -> WalCaptureProjection {
    let mut projection = WalCaptureProjection::new();
    for (number, timestamp) in (0..).zip(timestamps) {
        let start = 6 + 100 * number;
        let first = i64::try_from(number).unwrap() * 10;
        let entry = WalIndexEntry {
            max_timestamp_ms: timestamp,
            ..range(first, first + 9, start, start + 100)
        };
        publish(&mut projection, "a", entry);
    }
    projection
}

/// How many of the ranges expire at time 1000.
fn expired(projection: &WalCaptureProjection, rules: RetentionRules) -> usize {
    let partition = projection.partition(TOPIC_ID, 0).unwrap();
    let expired: Vec<_> = partition.expired(rules, 1000).collect();
    let front: Vec<_> = partition.ranges().take(expired.len()).collect();
    assert_eq!(expired, front);
    expired.len()
}

fn by_size(max_bytes: u64) -> RetentionRules {
    RetentionRules {
        max_bytes: Some(max_bytes),
        ..RetentionRules::default()
    }
}

fn by_time(max_age: u64) -> RetentionRules {
    RetentionRules {
        max_age: Some(Duration::from_millis(max_age)),
        ..RetentionRules::default()
    }
}

#[test]
fn by_size_a_range_goes_while_the_debt_is_not_smaller_than_it() {
    let projection = projection([0; 4]);
    for (max_bytes, count) in [
        (u64::MAX, 0),
        (400, 0),
        (301, 0),
        (300, 1),
        (201, 1),
        (200, 2),
        (100, 3),
        (0, 3),
    ] {
        assert_eq!(
            expired(&projection, by_size(max_bytes)),
            count,
            "{max_bytes}"
        );
    }
}

#[test]
fn by_time_the_front_goes_as_far_as_it_is_old() {
    let old_front = projection([100, 900, 100, 1000]);
    assert_eq!(expired(&old_front, by_time(899)), 1);
    assert_eq!(expired(&old_front, by_time(900)), 0);
    assert_eq!(expired(&old_front, by_time(99)), 3);
    assert_eq!(expired(&old_front, by_time(u64::MAX)), 0);
    assert_eq!(
        expired(&projection([1; 4]), by_time(0)),
        3,
        "never the newest"
    );
    // Unknown is not old.
    assert_eq!(expired(&projection([-1, 0, 0, 0]), by_time(10)), 0);
}

#[test]
fn what_lies_wholly_below_the_floor_goes_and_never_the_newest() {
    for (floor, count) in [(0, 0), (9, 0), (10, 1), (29, 2), (30, 3), (1000, 3)] {
        let mut projection = projection([0; 4]);
        raise_floor(&mut projection, 0, floor);
        assert_eq!(
            expired(&projection, RetentionRules::default()),
            count,
            "{floor}"
        );
    }
}

#[test]
fn of_several_rules_the_one_that_expires_most_counts() {
    let mut projection = projection([100, 100, 900, 900]);
    let both = |max_bytes, max_age| RetentionRules {
        max_bytes: Some(max_bytes),
        max_age: Some(Duration::from_millis(max_age)),
    };
    assert_eq!(expired(&projection, both(300, 500)), 2);
    assert_eq!(expired(&projection, both(100, 500)), 3);
    assert_eq!(expired(&projection, both(400, 1000)), 0);
    raise_floor(&mut projection, 0, 10);
    assert_eq!(expired(&projection, both(400, 1000)), 1);
}

#[test]
fn a_partition_without_ranges_expires_nothing() {
    let mut projection = WalCaptureProjection::new();
    raise_floor(&mut projection, 0, 10);
    assert_eq!(expired(&projection, by_size(0)), 0);
}

#[test]
fn an_object_goes_when_no_range_names_it_and_its_grace_has_passed() {
    let mut projection = projection([0; 4]);
    let grace = Duration::from_millis(100);
    let may_go = |projection: &WalCaptureProjection, key, now| {
        may_delete_object(projection, key, 1000, now, grace)
    };
    assert!(!may_go(&projection, "a", i64::MAX));
    assert!(may_go(&projection, "orphan", 1100));
    assert!(!may_go(&projection, "orphan", 1099));
    for first_offset in [0, 10, 20, 30] {
        assert!(!may_go(&projection, "a", 2000));
        let key = WalIndexKey {
            topic_id: TOPIC_ID,
            partition: 0,
            first_offset,
        };
        projection.apply(Some(&key.to_bytes()), None).unwrap();
    }
    assert!(may_go(&projection, "a", 2000));
    // A clock that runs backwards deletes nothing.
    assert!(!may_go(&projection, "a", 0));
}

#[test]
fn the_local_log_is_trimmed_to_the_frontier_or_a_lag_below_the_high_watermark() {
    for (frontier, high_watermark, lag, target) in [
        (100, 1000, 50, 100),
        (100, 120, 50, 70),
        (100, 120, 0, 100),
        (100, 30, 50, 0),
        (0, 30, 0, 0),
        (100, 120, -5, 100),
        (i64::MAX, i64::MAX, i64::MAX, 0),
    ] {
        assert_eq!(trim_target(frontier, high_watermark, lag), target);
    }
}
