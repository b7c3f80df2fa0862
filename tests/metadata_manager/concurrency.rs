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

/// Each event goes to partition 0 first and then to partition 1, so partition 1 is never ahead.
#[test]
fn an_export_shows_all_partitions_at_one_moment() {
    let manager = InmemoryRemoteLogMetadataManager::new();
    let partitions = [tp(1, 0), tp(1, 1)];
    for tp in &partitions {
        store_segment(&manager, tp, 0, (0, 0));
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                let RlmmCacheDump { partitions } = manager.export();
                let lengths: Vec<_> = partitions.iter().map(|p| p.segments.len()).collect();
                let ahead = lengths[0].checked_sub(lengths[1]);
                assert!(matches!(ahead, Some(0 | 1)), "{lengths:?}");
            }
        });
        for id in 1..500_u32 {
            for tp in &partitions {
                let segment = started(tp, u128::from(id), i64::from(id), i64::from(id));
                manager.add_remote_log_segment_metadata(segment).unwrap();
            }
        }
        done.store(true, Ordering::Release);
        reader.join().unwrap();
    });
}

/// A writer beside imports of another partition loses nothing, and an import is never half there.
#[test]
fn an_import_takes_effect_at_one_moment() {
    let manager = InmemoryRemoteLogMetadataManager::new();
    let (a, b, other) = (tp(1, 0), tp(1, 1), tp(2, 0));
    let dump = |id| {
        let source = InmemoryRemoteLogMetadataManager::new();
        for tp in [&a, &b] {
            store_segment(&source, tp, id, (0, 9));
        }
        source.export()
    };
    let dumps = [dump(1), dump(2)];
    manager.import(dumps[0].clone());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                let dump = manager.export();
                let ids: Vec<_> = [&a, &b]
                    .iter()
                    .map(|tp| {
                        let mut found = dump.partitions.iter();
                        let found = found.find(|p| p.topic_id_partition == **tp).unwrap();
                        id_of(&found.segments[0])
                    })
                    .collect();
                assert_eq!(ids[0], ids[1]);
            }
        });
        for round in 0..2_000_usize {
            manager.import(dumps[round % 2].clone());
            let (id, offset) = (round as u128, i64::try_from(round).unwrap());
            store_segment(&manager, &other, id, (offset, offset));
        }
        done.store(true, Ordering::Release);
        reader.join().unwrap();
    });
    assert_eq!(
        manager.list_remote_log_segments(&other).unwrap().len(),
        2_000
    );
}
