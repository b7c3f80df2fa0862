//! Dumps: what an export says, and what an import makes of rows in any order.

use krabka_remote_storage::dump::{EpochDump, PartitionDump, RlmmCacheDump};
use krabka_remote_storage::{
    InmemoryRemoteLogMetadataManager, RemoteLogMetadataManager, RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
};

use super::*;

fn dump_of(segments: Vec<RemoteLogSegmentMetadata>) -> RlmmCacheDump {
    RlmmCacheDump {
        partitions: vec![PartitionDump::new(tp(1, 0), segments, None)],
    }
}

fn imported(dump: RlmmCacheDump) -> InmemoryRemoteLogMetadataManager {
    let manager = InmemoryRemoteLogMetadataManager::new();
    manager.import(dump);
    manager
}

/// Every order of three rows.
fn orders<T: Clone>(rows: &[T; 3]) -> Vec<Vec<T>> {
    let orders = [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ];
    let order = |order: [usize; 3]| order.iter().map(|at| rows[*at].clone()).collect();
    orders.into_iter().map(order).collect()
}

#[test]
fn an_export_is_sorted_and_says_what_each_epoch_answers() {
    let manager = InmemoryRemoteLogMetadataManager::new();
    for (topic, partition) in [(2, 0), (1, 1), (1, 0)] {
        let tp = tp(topic, partition);
        store_segment(&manager, &tp, 3, (10, 19));
        store_segment(&manager, &tp, 1, (0, 9));
        // Supersedes 1.
        store_segment(&manager, &tp, 2, (0, 30));
    }
    let dump = manager.export();
    let order: Vec<_> = dump
        .partitions
        .iter()
        .map(|p| {
            (
                p.topic_id_partition.topic_id.as_u128(),
                p.topic_id_partition.partition,
            )
        })
        .collect();
    assert_eq!(order, [(1, 0), (1, 1), (2, 0)]);
    for partition in &dump.partitions {
        assert_eq!(
            partition.segments.iter().map(id_of).collect::<Vec<_>>(),
            [1, 2, 3]
        );
        assert_eq!(partition.delete_state, None);
        let expected = EpochDump {
            leader_epoch: EPOCH,
            readable: vec![(0, Uuid::from_u128(2))],
            highest_offset: Some(30),
        };
        assert_eq!(partition.epochs, [expected]);
    }
    assert_eq!(imported(dump.clone()).export(), dump);
}

#[test]
fn an_import_replaces_the_listed_partitions_and_leaves_the_others() {
    let manager = InmemoryRemoteLogMetadataManager::new();
    store_segment(&manager, &tp(1, 0), 1, (0, 9));
    store_segment(&manager, &tp(1, 1), 2, (0, 9));
    let finished = segment_in(&tp(1, 0), 7, (50, 59), CopySegmentFinished);
    let dump = dump_of(vec![finished]);
    manager.import(dump.clone());
    let once = manager.export();
    manager.import(dump);
    assert_eq!(manager.export(), once, "twice is once");

    assert_eq!(found(&manager, &tp(1, 0), 5), None, "replaced, not merged");
    assert_eq!(found(&manager, &tp(1, 0), 55), Some(7));
    assert_eq!(found(&manager, &tp(1, 1), 5), Some(2));
}

#[test]
fn of_several_rows_of_a_segment_the_most_advanced_counts_in_whatever_order() {
    let tp = tp(1, 0);
    let row = |state| segment_in(&tp, 1, (0, 9), state);
    let rows = [
        CopySegmentStarted,
        CopySegmentFinished,
        DeleteSegmentStarted,
    ]
    .map(row);
    for rows in orders(&rows) {
        let manager = imported(dump_of(rows));
        let listed = manager.list_remote_log_segments(&tp).unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].state(), DeleteSegmentStarted);
        assert_eq!(found(&manager, &tp, 5), None);
    }
    let rows = [
        CopySegmentFinished,
        DeleteSegmentFinished,
        CopySegmentStarted,
    ]
    .map(row);
    for rows in orders(&rows) {
        let manager = imported(dump_of(rows));
        assert!(manager.list_remote_log_segments(&tp).unwrap().is_empty());
        assert_eq!(found(&manager, &tp, 5), None);
    }
}

#[test]
fn without_epochs_finished_rows_count_in_the_order_of_time_offset_and_id() {
    let tp = tp(1, 0);
    let row = |id, offsets, at| {
        let started = segment_in(&tp, id, offsets, CopySegmentStarted);
        let mut finish = update(&tp, id, CopySegmentFinished);
        finish.event_timestamp_ms = at;
        started.with_update(&finish).unwrap()
    };
    // 2 finished last and reaches as far, so it supersedes 1 and 3.
    let rows = [
        row(1, (10, 100), 5),
        row(2, (5, 100), 9),
        row(3, (20, 90), 7),
    ];
    for rows in orders(&rows) {
        let manager = imported(dump_of(rows));
        assert_eq!(found(&manager, &tp, 50), Some(2));
        assert_eq!(
            manager.highest_offset_for_epoch(&tp, EPOCH).unwrap(),
            Some(100)
        );
        let listed = manager
            .list_remote_log_segments_by_epoch(&tp, EPOCH)
            .unwrap();
        assert_eq!(listed.iter().map(id_of).collect::<Vec<_>>(), [2, 1, 3]);
    }
    // At one time the lower start comes first, so the later start displaces nothing of it.
    for rows in orders(&[row(9, (0, 50), 5), row(2, (20, 30), 5), row(3, (20, 30), 5)]) {
        let manager = imported(dump_of(rows));
        assert_eq!(found(&manager, &tp, 10), Some(9));
        assert_eq!(
            found(&manager, &tp, 25),
            Some(3),
            "the higher id finished last"
        );
    }
}

#[test]
fn entries_that_do_not_fit_a_finished_segment_are_left_out() {
    let tp = tp(1, 0);
    let readable = |start, id| (start, Uuid::from_u128(id));
    let mut dump = dump_of(vec![
        segment_in(&tp, 1, (0, 9), CopySegmentFinished),
        segment_in(&tp, 2, (10, 19), DeleteSegmentStarted),
        segment_in(&tp, 3, (20, 29), CopySegmentFinished),
        segment_in(&super::tp(9, 9), 4, (30, 39), CopySegmentFinished),
    ]);
    dump.partitions[0].epochs = vec![
        EpochDump {
            leader_epoch: EPOCH,
            readable: vec![
                readable(0, 1),
                readable(10, 2), // being deleted
                readable(25, 3), // not where its epoch begins
                readable(30, 4), // another partition's
                readable(40, 5), // unknown
                readable(0, 1),  // again
            ],
            highest_offset: Some(77),
        },
        EpochDump {
            leader_epoch: LeaderEpoch(3), // no segment has it
            readable: vec![readable(0, 1)],
            highest_offset: None,
        },
    ];
    let manager = imported(dump);
    for (offset, expected) in [(5, Some(1)), (15, None), (27, None), (35, None), (45, None)] {
        assert_eq!(found(&manager, &tp, offset), expected, "{offset}");
    }
    assert_eq!(
        manager.highest_offset_for_epoch(&tp, EPOCH).unwrap(),
        Some(77)
    );
    for listed in [
        manager.list_remote_log_segments(&tp),
        manager.list_remote_log_segments_by_epoch(&tp, EPOCH),
    ] {
        let listed: Vec<_> = listed.unwrap().iter().map(id_of).collect();
        assert_eq!(listed, [1, 2, 3]);
    }
    let segment = manager
        .remote_log_segment_metadata(&tp, LeaderEpoch(3), 5)
        .unwrap();
    assert_eq!(segment, None);
}

#[test]
fn the_state_of_a_partitions_deletion_is_taken_as_it_is() {
    let tp = tp(1, 0);
    for state in RemotePartitionDeleteState::ALL {
        let segments = vec![segment_in(&tp, 1, (0, 9), CopySegmentFinished)];
        let manager = imported(RlmmCacheDump {
            partitions: vec![PartitionDump::new(tp.clone(), segments, Some(state))],
        });
        assert_eq!(manager.export().partitions[0].delete_state, Some(state));
        let repeat = RemotePartitionDeleteMetadata::new(tp.clone(), state, 1, 1);
        manager
            .put_remote_partition_delete_metadata(repeat)
            .unwrap();
        let deleted = state == RemotePartitionDeleteState::DeletePartitionFinished;
        assert_eq!(found(&manager, &tp, 5).is_none(), deleted, "{state}");
    }
}

#[test]
fn rows_that_differ_only_in_what_they_say_of_a_segment_count_alike_in_whatever_order() {
    let tp = tp(1, 0);
    let row = |end, at| {
        let started = segment_in(&tp, 1, (0, end), CopySegmentStarted);
        let mut finish = update(&tp, 1, CopySegmentFinished);
        finish.event_timestamp_ms = at;
        started.with_update(&finish).unwrap()
    };
    for rows in orders(&[row(9, 5), row(7, 6), row(8, 6)]) {
        let manager = imported(dump_of(rows));
        let listed = manager.list_remote_log_segments(&tp).unwrap();
        assert_eq!(listed, [row(8, 6)], "the latest, and of those the longest");
    }
}

#[test]
fn what_is_readable_was_readable_whatever_highest_offset_a_dump_says() {
    let tp = tp(1, 0);
    for said in [None, Some(3), Some(9), Some(77)] {
        let mut dump = dump_of(vec![segment_in(&tp, 1, (0, 9), CopySegmentFinished)]);
        dump.partitions[0].epochs = vec![EpochDump {
            leader_epoch: EPOCH,
            readable: vec![(0, Uuid::from_u128(1))],
            highest_offset: said,
        }];
        let manager = imported(dump);
        assert_eq!(found(&manager, &tp, 5), Some(1));
        let highest = manager.highest_offset_for_epoch(&tp, EPOCH).unwrap();
        assert_eq!(highest, said.max(Some(9)));
        let again = imported(manager.export());
        assert_eq!(again.export(), manager.export());
        assert_eq!(found(&again, &tp, 5), Some(1));
    }
}

#[test]
fn a_copy_that_came_to_nothing_leaves_no_trace_in_an_export() {
    let tp = tp(1, 0);
    let manager = InmemoryRemoteLogMetadataManager::new();
    manager
        .add_remote_log_segment_metadata(started(&tp, 1, 0, 9))
        .unwrap();
    for state in [DeleteSegmentStarted, DeleteSegmentFinished] {
        manager
            .update_remote_log_segment_metadata(update(&tp, 1, state))
            .unwrap();
    }
    assert_eq!(manager.export(), dump_of(Vec::new()));
}
