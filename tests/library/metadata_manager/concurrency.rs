//! Readers beside a writer: each answer is one that was true at some moment of the call.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use krabka_remote_storage::dump::RlmmCacheDump;
use krabka_remote_storage::{InmemoryRemoteLogMetadataManager, RemoteLogMetadataManager};

use super::*;

/// Events that the writer applies.
const EVENTS: u64 = 100_000;
const EVENTS_PER_COPY: u64 = 4;

/// The same offsets are copied again and again, each copy is deleted after the next has finished:
/// whatever the moment, offset 50 is readable.
#[test]
fn readers_never_see_an_intermediate_answer() {
    let manager = InmemoryRemoteLogMetadataManager::new();
    let tp = tp(1, 0);
    store_segment(&manager, &tp, 0, (0, 99));
    // The id of the newest copy whose finish has returned.
    let finished = AtomicU64::new(0);
    let done = AtomicBool::new(false);

    thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut answers = 0_u64;
                    while !done.load(Ordering::Acquire) {
                        read_once(&manager, &tp, &finished);
                        answers += 1;
                    }
                    answers
                })
            })
            .collect();
        for copy in 1..=EVENTS / EVENTS_PER_COPY {
            let (new, old) = (u128::from(copy), u128::from(copy - 1));
            store_segment(&manager, &tp, new, (0, 99));
            finished.store(copy, Ordering::Release);
            for state in [DeleteSegmentStarted, DeleteSegmentFinished] {
                let event = update(&tp, old, state);
                manager.update_remote_log_segment_metadata(event).unwrap();
            }
        }
        done.store(true, Ordering::Release);
        for reader in readers {
            assert!(reader.join().unwrap() > 0, "every reader had its turn");
        }
    });
}

fn read_once(
    manager: &InmemoryRemoteLogMetadataManager,
    tp: &TopicIdPartition,
    finished: &AtomicU64,
) {
    let before = u128::from(finished.load(Ordering::Acquire));
    let segment = manager.remote_log_segment_metadata(tp, EPOCH, 50).unwrap();
    let segment = segment.expect("offset 50 is readable all the time");
    assert_eq!(segment.state(), CopySegmentFinished);
    assert!(
        id_of(&segment) >= before,
        "what had finished before is seen"
    );
    assert_eq!(
        manager.highest_offset_for_epoch(tp, EPOCH).unwrap(),
        Some(99)
    );

    let listed = manager.list_remote_log_segments(tp).unwrap();
    let mut states: Vec<_> = listed.iter().map(|s| (id_of(s), s.state())).collect();
    states.sort_unstable();
    let states: Vec<_> = states.into_iter().map(|(_, state)| state).collect();
    let possible: [&[RemoteLogSegmentState]; 4] = [
        &[CopySegmentFinished],
        &[CopySegmentFinished, CopySegmentStarted],
        &[CopySegmentFinished, CopySegmentFinished],
        &[DeleteSegmentStarted, CopySegmentFinished],
    ];
    assert!(possible.contains(&&*states), "{states:?}");
}

/// So many that whoever looks at one after the other is overtaken.
fn many_partitions() -> Vec<TopicIdPartition> {
    (0..16).map(|partition| tp(1, partition)).collect()
}

/// Exports that a reader makes before its writer may end.
const EXPORTS: u64 = 1_000;

/// Each event goes to the partitions in turn: none is ever ahead of one before it.
#[test]
fn an_export_shows_all_partitions_at_one_moment() {
    let manager = InmemoryRemoteLogMetadataManager::new();
    let partitions = many_partitions();
    for tp in &partitions {
        store_segment(&manager, tp, 0, (0, 0));
    }
    let exports = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _done = Done(&exports);
            for _ in 0..EXPORTS {
                let RlmmCacheDump { partitions } = manager.export();
                let highest: Vec<_> = partitions
                    .iter()
                    .map(|partition| partition.epochs[0].highest_offset.unwrap())
                    .collect();
                assert!(highest.is_sorted_by(|a, b| a >= b), "{highest:?}");
                assert!(highest[0] - highest[highest.len() - 1] <= 1, "{highest:?}");
                exports.fetch_add(1, Ordering::AcqRel);
            }
        });
        let mut round = 0;
        while exports.load(Ordering::Acquire) < EXPORTS {
            round += 1;
            for tp in &partitions {
                let id = u128::try_from(round).unwrap();
                store_segment(&manager, tp, id, (round, round));
                for state in [DeleteSegmentStarted, DeleteSegmentFinished] {
                    let event = update(tp, id - 1, state);
                    manager.update_remote_log_segment_metadata(event).unwrap();
                }
            }
        }
    });
}

/// Ends a writer's loop, also when its reader panics.
struct Done<'a>(&'a AtomicU64);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(EXPORTS, Ordering::Release);
    }
}

/// A writer beside imports of other partitions loses nothing, and of two imports of the same
/// partitions one is there whole.
#[test]
fn an_import_takes_effect_at_one_moment() {
    let manager = InmemoryRemoteLogMetadataManager::new();
    let partitions = many_partitions();
    let other = tp(2, 0);
    let dump = |id| {
        let source = InmemoryRemoteLogMetadataManager::new();
        for tp in &partitions {
            store_segment(&source, tp, id, (0, 9));
        }
        source.export()
    };
    let dumps = [dump(1), dump(2)];
    manager.import(dumps[0].clone());
    let exports = AtomicU64::new(0);
    thread::scope(|scope| {
        for dump in &dumps {
            scope.spawn(|| {
                while exports.load(Ordering::Acquire) < EXPORTS {
                    manager.import(dump.clone());
                }
            });
        }
        scope.spawn(|| {
            let _done = Done(&exports);
            for _ in 0..EXPORTS {
                let dump = manager.export();
                let imported = dump.partitions[..partitions.len()].iter();
                let ids: Vec<_> = imported.map(|p| id_of(&p.segments[0])).collect();
                assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
                exports.fetch_add(1, Ordering::AcqRel);
            }
        });
        for offset in 0..100 {
            let id = u128::try_from(offset).unwrap();
            store_segment(&manager, &other, id, (offset, offset));
        }
    });
    assert_eq!(manager.list_remote_log_segments(&other).unwrap().len(), 100);
}
