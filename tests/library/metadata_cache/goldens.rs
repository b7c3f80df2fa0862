//! The worked examples G1–G16 of Kafka's cache rules, and each again after a dump.

use krabka_remote_storage::metadata::{Effect, RemoteLogMetadataCache};
use krabka_remote_storage::{
    LeaderEpoch, RemotePartitionDeleteMetadata, RemotePartitionDeleteState, RemoteStorageError,
};

use super::*;
use RemoteLogSegmentState::{
    CopySegmentFinished, CopySegmentStarted, DeleteSegmentFinished, DeleteSegmentStarted,
};

/// Runs the checks on the cache and on what a dump of it is imported as.
fn also_after_a_dump(cache: &RemoteLogMetadataCache, check: impl Fn(&RemoteLogMetadataCache)) {
    check(cache);
    let dump = cache.export();
    let imported = RemoteLogMetadataCache::import(dump.clone());
    check(&imported);
    assert_eq!(imported.export(), dump, "a second dump is equal");
}

fn g1_added() -> RemoteLogMetadataCache {
    let mut cache = RemoteLogMetadataCache::new(tp());
    for segment in [
        started(0, 0, 100, &[(0, 0), (1, 20), (2, 80)]),
        started(1, 101, 200, &[(2, 101)]),
        started(2, 201, 300, &[(2, 201), (3, 240)]),
        started(3, 250, 400, &[(3, 250), (4, 370)]),
    ] {
        cache.add_segment(&segment).unwrap();
    }
    cache
}

#[test]
fn g1_each_offset_is_found_in_its_own_epoch_only() {
    let mut cache = g1_added();
    for epoch in 0..=2 {
        assert_eq!(highest(&cache, epoch), None, "nothing has finished");
    }
    for id in 0..=3 {
        finish(&mut cache, id);
    }
    also_after_a_dump(&cache, |cache| {
        for (epoch, offset, expected) in [
            (0, 0, Some(0)),
            (0, 19, Some(0)),
            (1, 20, Some(0)),
            (1, 40, Some(0)),
            (1, 79, Some(0)),
            (2, 80, Some(0)),
            (2, 240, None),
            (3, 250, Some(3)),
            (3, 300, Some(3)),
            (3, 369, Some(3)),
            (4, 369, None),
            (0, 20, None),
            (1, 80, None),
            (1, 110, None),
            (2, 110, Some(1)),
            (2, 200, Some(1)),
            (3, 239, None),
            (3, 370, None),
            (4, 401, None),
            (1, 19, None),
            (2, 79, None),
            (2, 239, Some(2)),
            (3, 240, Some(2)),
            (3, 249, Some(2)),
            (4, 370, Some(3)),
            (4, 375, Some(3)),
            (4, 400, Some(3)),
            (5, 301, None),
        ] {
            assert_eq!(found(cache, epoch, offset), expected, "({epoch}, {offset})");
        }
        let highest: Vec<_> = (0..=5).map(|epoch| highest(cache, epoch)).collect();
        let expected = [Some(19), Some(79), Some(239), Some(369), Some(400), None];
        assert_eq!(highest, expected);
    });

    for state in [DeleteSegmentStarted, DeleteSegmentFinished] {
        cache.update_segment(&update(0, state)).unwrap();
        also_after_a_dump(&cache, |cache| {
            assert_eq!(found(cache, 0, 10), None);
            assert_eq!(found(cache, 2, 90), None);
            let highest: Vec<_> = (0..=4).map(|epoch| highest(cache, epoch)).collect();
            let unchanged = [Some(19), Some(79), Some(239), Some(369), Some(400)];
            assert_eq!(highest, unchanged);
        });
    }
}

/// What an epoch 0 looks like after its segments have finished in some order.
struct Overlap {
    readable: &'static [(i64, u128)],
    highest: i64,
    lookups: &'static [(i64, Option<u128>)],
    listed: &'static [u128],
}

fn check_overlap(cache: &RemoteLogMetadataCache, expected: &Overlap) {
    also_after_a_dump(cache, |cache| {
        assert_eq!(readable(cache, 0), expected.readable);
        assert_eq!(highest(cache, 0), Some(expected.highest));
        for &(offset, id) in expected.lookups {
            assert_eq!(found(cache, 0, offset), id, "offset {offset}");
        }
        assert_eq!(listed_by_epoch(cache, 0), expected.listed);
        assert_eq!(listed(cache), expected.listed);
    });
}

#[test]
fn g2_a_segment_that_reaches_further_supersedes_all_that_begin_after_it() {
    let cache = finished_in_epoch_0(&[(1, 10, 100), (2, 5, 150), (3, 148, 155), (4, 4, 200)]);
    check_overlap(
        &cache,
        &Overlap {
            readable: &[(4, 4)],
            highest: 200,
            lookups: &[
                (3, None),
                (4, Some(4)),
                (11, Some(4)),
                (150, Some(4)),
                (200, Some(4)),
                (201, None),
            ],
            listed: &[4, 2, 1, 3],
        },
    );
}

#[test]
fn g3_deleting_the_winner_does_not_bring_the_superseded_back() {
    let mut cache = finished_in_epoch_0(&[(1, 10, 100), (2, 5, 150)]);
    check_overlap(
        &cache,
        &Overlap {
            readable: &[(5, 2)],
            highest: 150,
            lookups: &[
                (4, None),
                (5, Some(2)),
                (11, Some(2)),
                (150, Some(2)),
                (151, None),
            ],
            listed: &[2, 1],
        },
    );
    cache
        .update_segment(&update(2, DeleteSegmentStarted))
        .unwrap();
    check_overlap(
        &cache,
        &Overlap {
            readable: &[],
            highest: 150,
            lookups: &[(5, None), (11, None), (150, None)],
            listed: &[2, 1],
        },
    );
}

#[test]
fn g4_of_two_equal_segments_the_one_that_finished_last_answers() {
    check_overlap(
        &finished_in_epoch_0(&[(1, 10, 100), (2, 10, 100)]),
        &Overlap {
            readable: &[(10, 2)],
            highest: 100,
            lookups: &[(9, None), (10, Some(2)), (11, Some(2)), (101, None)],
            listed: &[1, 2],
        },
    );
    check_overlap(
        &finished_in_epoch_0(&[(2, 10, 100), (1, 10, 100)]),
        &Overlap {
            readable: &[(10, 1)],
            highest: 100,
            lookups: &[(11, Some(1))],
            listed: &[1, 2],
        },
    );
}

#[test]
fn g5_a_shorter_segment_of_the_same_start_displaces_and_the_displaced_stays_listed() {
    check_overlap(
        &finished_in_epoch_0(&[(1, 10, 200), (2, 10, 100)]),
        &Overlap {
            readable: &[(10, 2)],
            highest: 200,
            lookups: &[(100, Some(2)), (101, None), (200, None)],
            listed: &[1, 2],
        },
    );
}

#[test]
fn g6_only_the_floor_entry_is_tried() {
    check_overlap(
        &finished_in_epoch_0(&[(1, 0, 200), (2, 50, 100)]),
        &Overlap {
            readable: &[(0, 1), (50, 2)],
            highest: 200,
            lookups: &[
                (49, Some(1)),
                (50, Some(2)),
                (100, Some(2)),
                (101, None),
                (200, None),
            ],
            listed: &[1, 2],
        },
    );
}

#[test]
fn g7_a_segment_that_begins_earlier_and_reaches_further_supersedes() {
    check_overlap(
        &finished_in_epoch_0(&[(10, 10, 90), (11, 5, 100), (12, 101, 200)]),
        &Overlap {
            readable: &[(5, 11), (101, 12)],
            highest: 200,
            lookups: &[
                (9, Some(11)),
                (10, Some(11)),
                (90, Some(11)),
                (95, Some(11)),
                (101, Some(12)),
            ],
            listed: &[11, 10, 12],
        },
    );
}

#[test]
fn g8_a_repeated_finish_does_not_bring_a_superseded_segment_back() {
    let mut cache = finished_in_epoch_0(&[(1, 10, 100), (2, 5, 150)]);
    finish(&mut cache, 1);
    check_overlap(
        &cache,
        &Overlap {
            readable: &[(5, 2)],
            highest: 150,
            lookups: &[(101, Some(2))],
            listed: &[2, 1],
        },
    );
}

#[test]
fn g9_a_repeated_finish_of_a_readable_segment_changes_nothing() {
    let mut cache = finished_in_epoch_0(&[(1, 0, 100), (2, 101, 200)]);
    finish(&mut cache, 2);
    finish(&mut cache, 1);
    check_overlap(
        &cache,
        &Overlap {
            readable: &[(0, 1), (101, 2)],
            highest: 200,
            lookups: &[(0, Some(1)), (100, Some(1)), (101, Some(2)), (200, Some(2))],
            listed: &[1, 2],
        },
    );
}

#[test]
fn g10_a_copy_under_way_is_listed_and_not_readable() {
    let mut cache = RemoteLogMetadataCache::new(tp());
    cache.add_segment(&started(1, 0, 50, &[(0, 0)])).unwrap();
    also_after_a_dump(&cache, |cache| {
        assert_eq!(found(cache, 0, 0), None);
        assert_eq!(listed(cache), [1]);
        assert_eq!(listed_by_epoch(cache, 0), [1]);
    });
}

#[test]
fn g11_a_copy_that_failed_is_listed_until_its_deletion_has_finished() {
    let mut cache = RemoteLogMetadataCache::new(tp());
    cache
        .add_segment(&started(1, 201, 300, &[(0, 201)]))
        .unwrap();
    cache
        .update_segment(&update(1, DeleteSegmentStarted))
        .unwrap();
    also_after_a_dump(&cache, |cache| {
        assert_eq!(found(cache, 0, 201), None);
        assert_eq!(listed(cache), [1]);
        assert_eq!(listed_by_epoch(cache, 0), [1]);
        assert_eq!(cache.list_segments()[0].state(), DeleteSegmentStarted);
    });
    cache
        .update_segment(&update(1, DeleteSegmentFinished))
        .unwrap();
    also_after_a_dump(&cache, |cache| {
        assert!(listed(cache).is_empty());
        assert!(listed_by_epoch(cache, 0).is_empty());
    });
}

#[test]
fn g12_lists_are_in_the_order_of_start_offsets() {
    let mut cache = RemoteLogMetadataCache::new(tp());
    // Ids against the order of offsets, and added out of order.
    let (a, b, c) = (30, 20, 10);
    cache
        .add_segment(&started(c, 201, 400, &[(0, 201), (1, 301)]))
        .unwrap();
    cache.add_segment(&started(a, 0, 100, &[(0, 0)])).unwrap();
    cache
        .add_segment(&started(b, 101, 200, &[(0, 101)]))
        .unwrap();
    for id in [b, c, a] {
        finish(&mut cache, id);
    }
    also_after_a_dump(&cache, |cache| {
        assert_eq!(listed_by_epoch(cache, 0), [a, b, c]);
        assert_eq!(listed_by_epoch(cache, 1), [c]);
        assert_eq!(listed(cache), [a, b, c]);
    });
}

#[test]
fn g13_events_that_may_not_follow_are_dropped() {
    let mut cache = RemoteLogMetadataCache::new(tp());
    cache.add_segment(&started(1, 10, 100, &[(5, 10)])).unwrap();
    for (event, takes_effect, state) in [
        (DeleteSegmentFinished, false, CopySegmentStarted),
        (CopySegmentFinished, true, CopySegmentFinished),
        (DeleteSegmentFinished, false, CopySegmentFinished),
        (CopySegmentStarted, false, CopySegmentFinished),
        (DeleteSegmentStarted, true, DeleteSegmentStarted),
        (CopySegmentFinished, false, DeleteSegmentStarted),
        (CopySegmentStarted, false, DeleteSegmentStarted),
    ] {
        let result = cache.update_segment(&update(1, event));
        if takes_effect {
            result.unwrap();
        } else {
            assert!(
                matches!(&result, Err(RemoteStorageError::InvalidSegmentTransition { id, to, .. })
                    if *id == segment_id(1) && *to == event),
                "{event}: {result:?}"
            );
        }
        assert_eq!(listed_by_epoch(&cache, 5), [1]);
        assert_eq!(cache.list_segments()[0].state(), state, "after {event}");
    }
    cache
        .update_segment(&update(1, DeleteSegmentFinished))
        .unwrap();
    assert!(listed_by_epoch(&cache, 5).is_empty());
}

#[test]
fn g14_the_log_size_counts_every_state_once_in_each_epoch() {
    // Six times this is more than an i32 holds.
    const S: i32 = 700_000_000;
    let sized = |id, size, epochs: &[(i32, i64)]| {
        let spec = SegmentSpec::new(id, 0..=100).of(&tp()).size(size);
        spec.epochs(epochs).at(-1, 1).make()
    };
    let log_size = |cache: &RemoteLogMetadataCache, epoch| cache.log_size(LeaderEpoch(epoch));
    let s = i64::from(S);

    let mut cache = RemoteLogMetadataCache::new(tp());
    for (id, size) in [(1, S), (2, 2 * S), (3, 3 * S)] {
        cache.add_segment(&sized(id, size, &[(0, 0)])).unwrap();
    }
    also_after_a_dump(&cache, |cache| {
        assert_eq!(log_size(cache, 0), 6 * s);
        assert_eq!(log_size(cache, 9001), 0);
    });

    let mut cache = RemoteLogMetadataCache::new(tp());
    for (id, size, epoch) in [(1, S, 0), (2, 2 * S, 1), (3, 3 * S, 2)] {
        cache.add_segment(&sized(id, size, &[(epoch, 0)])).unwrap();
    }
    cache.add_segment(&sized(4, S, &[(1, 0), (2, 50)])).unwrap();
    finish(&mut cache, 2);
    also_after_a_dump(&cache, |cache| {
        let per_epoch = [0, 1, 2].map(|epoch| log_size(cache, epoch));
        assert_eq!(
            per_epoch,
            [s, 3 * s, 4 * s],
            "the last one spans two epochs"
        );
    });
}

fn partition_delete(state: RemotePartitionDeleteState) -> RemotePartitionDeleteMetadata {
    RemotePartitionDeleteMetadata::new(tp(), state, 99, 1)
}

#[test]
fn g15_segments_stay_readable_until_the_partition_is_deleted() {
    use RemotePartitionDeleteState::{
        DeletePartitionFinished, DeletePartitionMarked, DeletePartitionStarted,
    };
    let mut cache = RemoteLogMetadataCache::new(tp());
    let epochs = [(0, 0), (1, 20), (2, 50), (3, 80)];
    cache.add_segment(&started(1, 0, 100, &epochs)).unwrap();
    finish(&mut cache, 1);

    let early = cache.put_partition_delete(&partition_delete(DeletePartitionFinished));
    assert!(matches!(
        early,
        Err(RemoteStorageError::InvalidPartitionDeleteTransition {
            from: None,
            to: DeletePartitionFinished,
            ..
        })
    ));
    for state in [
        DeletePartitionMarked,
        DeletePartitionMarked,
        DeletePartitionStarted,
    ] {
        cache
            .put_partition_delete(&partition_delete(state))
            .unwrap();
        also_after_a_dump(&cache, |cache| {
            assert_eq!(found(cache, 1, 30), Some(1));
            assert_eq!(cache.delete_state(), Some(state));
        });
    }
    for _ in 0..2 {
        cache
            .put_partition_delete(&partition_delete(DeletePartitionFinished))
            .unwrap();
        also_after_a_dump(&cache, |cache| {
            assert_eq!(found(cache, 1, 30), None);
            assert_eq!(highest(cache, 1), None);
            assert!(listed(cache).is_empty());
            assert_eq!(cache.delete_state(), Some(DeletePartitionFinished));
        });
    }

    // Late events find nothing to change.
    let late = started(2, 101, 200, &[(3, 101)]);
    for result in [cache.add_segment(&late), cache.replay_add_segment(&late)] {
        assert!(matches!(result, Err(RemoteStorageError::InvalidAdd { .. })));
    }
    let result = cache.update_segment(&update(1, DeleteSegmentStarted));
    assert!(matches!(result, Err(RemoteStorageError::SegmentNotFound(id)) if id == segment_id(1)));
    cache
        .update_segment(&update(1, DeleteSegmentFinished))
        .unwrap();
    cache
        .replay_partition_delete(&partition_delete(DeletePartitionMarked))
        .unwrap();
    assert!(listed(&cache).is_empty());
    assert_eq!(cache.delete_state(), Some(DeletePartitionFinished));
}

#[test]
fn a_replayed_partition_deletion_may_miss_its_first_steps() {
    use RemotePartitionDeleteState::{DeletePartitionFinished, DeletePartitionStarted};
    let mut cache = finished_in_epoch_0(&[(1, 0, 9)]);
    cache
        .replay_partition_delete(&partition_delete(DeletePartitionStarted))
        .unwrap();
    assert_eq!(found(&cache, 0, 5), Some(1));
    cache
        .replay_partition_delete(&partition_delete(DeletePartitionFinished))
        .unwrap();
    assert_eq!(found(&cache, 0, 5), None);
    assert!(listed(&cache).is_empty());
}

#[test]
fn g16_the_search_for_aborted_transactions_passes_over_segments_without() {
    let next = |cache: &RemoteLogMetadataCache, offset| {
        let segment = cache.find_segment_with_txn_index(LeaderEpoch(0), offset);
        segment.map(|segment| segment.id().as_u128())
    };
    let with = |segments: &[(u128, i64, i64, bool)]| {
        let mut cache = RemoteLogMetadataCache::new(tp());
        for &(id, start, end, empty) in segments {
            let segment = started(id, start, end, &[(0, start)]).with_txn_index_empty(empty);
            cache.add_segment(&segment).unwrap();
            finish(&mut cache, id);
        }
        cache
    };
    let cache = with(&[(1, 0, 9, true), (2, 10, 19, true), (3, 20, 29, false)]);
    also_after_a_dump(&cache, |cache| {
        assert_eq!(next(cache, 0), Some(3));
        assert_eq!(next(cache, 20), Some(3));
        assert_eq!(next(cache, 30), None);
    });
    let cache = with(&[(1, 0, 9, true), (2, 10, 19, true)]);
    assert_eq!(next(&cache, 0), None);
    // A gap ends the search; what lies behind it is not known to follow.
    let cache = with(&[(1, 0, 9, true), (3, 20, 29, false)]);
    assert_eq!(next(&cache, 0), None);
    let cache = with(&[(1, 0, i64::MAX, true)]);
    assert_eq!(next(&cache, 0), None);
}

#[test]
fn an_add_may_be_repeated_exactly_while_its_copy_is_under_way() {
    let segment = started(1, 0, 9, &[(0, 0)]).with_custom_metadata(custom(&[1]));
    let mut cache = RemoteLogMetadataCache::new(tp());
    cache.add_segment(&segment).unwrap();
    cache.add_segment(&segment).unwrap();
    assert_eq!(cache.list_segments()[0].to_metadata(), segment);

    for other in [
        started(1, 0, 10, &[(0, 0)]),
        segment.clone().with_custom_metadata(custom(&[2])),
        segment.clone().with_txn_index_empty(true),
        segment
            .with_update(&update(1, CopySegmentFinished))
            .unwrap(),
    ] {
        let result = cache.add_segment(&other);
        assert!(
            matches!(&result, Err(RemoteStorageError::InvalidAdd { id, .. }) if *id == segment_id(1)),
            "{result:?}"
        );
    }
    assert_eq!(cache.list_segments()[0].to_metadata(), segment);
    finish(&mut cache, 1);
    let result = cache.add_segment(&segment);
    assert!(matches!(result, Err(RemoteStorageError::InvalidAdd { .. })));
    assert_eq!(found(&cache, 0, 5), Some(1));
}

#[test]
fn a_replayed_add_with_other_epochs_leaves_nothing_under_the_old_ones() {
    let mut cache = RemoteLogMetadataCache::new(tp());
    cache
        .replay_add_segment(&started(1, 0, 9, &[(0, 0), (1, 5)]))
        .unwrap();
    cache
        .replay_add_segment(&started(1, 0, 19, &[(2, 0)]))
        .unwrap();
    assert!(listed_by_epoch(&cache, 0).is_empty());
    assert!(listed_by_epoch(&cache, 1).is_empty());
    assert_eq!(cache.log_size(LeaderEpoch(1)), 0);
    assert_eq!(listed_by_epoch(&cache, 2), [1]);
    finish(&mut cache, 1);
    let result = cache.replay_add_segment(&started(1, 0, 9, &[(0, 0)]));
    assert!(matches!(result, Err(RemoteStorageError::InvalidAdd { .. })));
    assert_eq!(found(&cache, 2, 19), Some(1));
}

#[test]
fn an_update_may_be_repeated_exactly_and_only_exactly() {
    let mut cache = RemoteLogMetadataCache::new(tp());
    cache.add_segment(&started(1, 0, 9, &[(0, 0)])).unwrap();
    let mut first = update(1, CopySegmentFinished);
    first.custom_metadata = Some(custom(&[9]));
    cache.update_segment(&first).unwrap();
    cache.update_segment(&first).unwrap();
    cache
        .update_segment(&update(1, CopySegmentFinished))
        .unwrap();

    let mut later = first.clone();
    later.event_timestamp_ms += 1;
    let mut elsewhere = first.clone();
    elsewhere.broker_id = 2;
    let mut other = first.clone();
    other.custom_metadata = Some(custom(&[8]));
    for inexact in [later, elsewhere, other] {
        let result = cache.update_segment(&inexact);
        assert!(
            matches!(
                result,
                Err(RemoteStorageError::InvalidSegmentTransition {
                    from: CopySegmentFinished,
                    to: CopySegmentFinished,
                    ..
                })
            ),
            "{inexact:?}: {result:?}"
        );
    }
    // Custom metadata survives an update without any.
    cache
        .update_segment(&update(1, DeleteSegmentStarted))
        .unwrap();
    let stored = cache.list_segments()[0].to_metadata();
    assert_eq!(stored.custom_metadata(), Some(&custom(&[9])));
}

#[test]
fn a_deletion_that_another_broker_begins_once_more_is_that_brokers() {
    let mut cache = finished_in_epoch_0(&[(1, 10, 100)]);
    let first = update(1, DeleteSegmentStarted);
    cache.update_segment(&first).unwrap();
    let mut again = first.clone();
    again.broker_id = 2;
    again.event_timestamp_ms += 1;
    for cause in [&again, &first] {
        assert_eq!(cache.check_update_segment(cause).unwrap(), Effect::Change);
        cache.update_segment(cause).unwrap();
        let stored = cache.list_segments()[0].to_metadata();
        assert_eq!(stored.state(), DeleteSegmentStarted);
        assert_eq!(stored.broker_id(), cause.broker_id);
        assert_eq!(stored.event_timestamp_ms(), cause.event_timestamp_ms);
        assert_eq!(found(&cache, 0, 50), None);
        assert_eq!(listed_by_epoch(&cache, 0), [1]);
        assert_eq!(
            cache.log_size(LeaderEpoch(0)),
            i64::from(stored.segment_size_in_bytes())
        );
    }
    assert_eq!(
        cache.check_update_segment(&first).unwrap(),
        Effect::Repetition
    );
    cache
        .update_segment(&update(1, DeleteSegmentFinished))
        .unwrap();
    assert!(cache.list_segments().is_empty());
}

#[test]
fn unknown_segments_and_other_partitions_are_named() {
    let mut cache = RemoteLogMetadataCache::new(tp());
    for state in RemoteLogSegmentState::ALL {
        let result = cache.update_segment(&update(1, state));
        if state == DeleteSegmentFinished {
            result.unwrap();
        } else {
            assert!(
                matches!(result, Err(RemoteStorageError::SegmentNotFound(id)) if id == segment_id(1))
            );
        }
    }
    let mut here = RemoteLogMetadataCache::new(TopicIdPartition::new(Uuid::from_u128(2), "b", 0));
    let result = here.add_segment(&started(1, 0, 9, &[(0, 0)]));
    assert!(matches!(result, Err(RemoteStorageError::InvalidAdd { .. })));
    let result = here.put_partition_delete(&partition_delete(
        RemotePartitionDeleteState::DeletePartitionMarked,
    ));
    assert!(matches!(
        result,
        Err(RemoteStorageError::InvalidArgument(_))
    ));
}

#[test]
fn a_deletion_that_began_leaves_the_place_of_a_newer_segment_alone() {
    // Both begin at 10; 2 has taken the place of 1.
    let mut cache = finished_in_epoch_0(&[(1, 10, 100), (2, 10, 120)]);
    cache
        .update_segment(&update(1, DeleteSegmentStarted))
        .unwrap();
    assert_eq!(found(&cache, 0, 50), Some(2));
    cache
        .update_segment(&update(1, DeleteSegmentFinished))
        .unwrap();
    assert_eq!(found(&cache, 0, 120), Some(2));
}

#[test]
fn offsets_at_the_edges_of_i64_find_no_segment_and_do_not_overflow() {
    let mut cache = RemoteLogMetadataCache::new(tp());
    // Epoch 0 would end before the first offset that there is.
    cache
        .add_segment(&started(
            1,
            0,
            i64::MAX,
            &[(0, 0), (1, i64::MIN), (2, i64::MAX)],
        ))
        .unwrap();
    finish(&mut cache, 1);
    also_after_a_dump(&cache, |cache| {
        assert_eq!(highest(cache, 0), None);
        for offset in [i64::MIN, -1, 0, 1, i64::MAX] {
            assert_eq!(found(cache, 0, offset), None, "{offset}");
        }
        assert_eq!(found(cache, 1, 0), Some(1));
        assert_eq!(found(cache, 1, -1), None, "below the segment's start");
        assert_eq!(found(cache, 1, i64::MAX - 1), Some(1));
        assert_eq!(found(cache, 1, i64::MAX), None);
        assert_eq!(found(cache, 2, i64::MAX), Some(1));
        assert_eq!(highest(cache, 2), Some(i64::MAX));
        for epoch in 0..3 {
            assert_eq!(listed_by_epoch(cache, epoch), [1]);
        }
    });
}

#[test]
fn an_epoch_that_ends_past_its_segment_is_readable_as_far_as_the_segment_goes() {
    let mut cache = RemoteLogMetadataCache::new(tp());
    cache
        .add_segment(&started(1, 0, 100, &[(0, 0), (1, 500)]))
        .unwrap();
    finish(&mut cache, 1);
    assert_eq!(found(&cache, 0, 100), Some(1));
    assert_eq!(found(&cache, 0, 101), None);
    assert_eq!(found(&cache, 1, 500), None);
}
