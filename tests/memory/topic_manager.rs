//! What a topic-backed manager holds in memory: while it replays, and after it had everything.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use krabka_remote_storage::metadata::RemoteLogMetadataCache;
use krabka_remote_storage::testing::segments::SegmentSpec;
use krabka_remote_storage::topic::{
    InProcessMetadataEventLog, MetadataEvent, MetadataEventLog, TopicBasedRemoteLogMetadataManager,
    metadata_partition_for,
};
use krabka_remote_storage::{
    ErrorKind, RemoteLogMetadataStore, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState, RemoteStorageError, TopicIdPartition,
};
use krabka_test_allocator::Heap;
use tempfile::TempDir;
use tokio::runtime::{Handle, Runtime};
use uuid::Uuid;

use crate::support::alone::alone;

const MIB: usize = 1024 * 1024;

fn tp(partition: i32) -> TopicIdPartition {
    TopicIdPartition::new(Uuid::from_u128(0xca), "a-topic-of-usual-length", partition)
}

fn started(partition: i32, number: u32) -> RemoteLogSegmentMetadata {
    let spread = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let start = i64::from(number) * 1000;
    let spec = SegmentSpec::new(spread, start..=start + 999).of(&tp(partition));
    spec.epochs(&[(3, start)]).size(1 << 30).at(1, 1).make()
}

fn finished(segment: &RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadataUpdate {
    let id = segment.remote_log_segment_id().clone();
    let state = RemoteLogSegmentState::CopySegmentFinished;
    RemoteLogSegmentMetadataUpdate::new(id, 2, None, state, 1)
}

fn start(
    log: &Arc<InProcessMetadataEventLog>,
    dir: &TempDir,
) -> Arc<TopicBasedRemoteLogMetadataManager> {
    let log: Arc<dyn MetadataEventLog> = Arc::clone(log) as _;
    let interval = Duration::from_hours(1);
    TopicBasedRemoteLogMetadataManager::start(log, Handle::current(), dir.path(), interval).unwrap()
}

/// A million events, the partitions in turns.
fn events() -> impl Iterator<Item = MetadataEvent> {
    (0..500_000).flat_map(|number| {
        let segment = started(i32::try_from(number % 20).unwrap(), number);
        let finish = finished(&segment);
        [
            MetadataEvent::AddSegment(segment),
            MetadataEvent::UpdateSegment(finish),
        ]
    })
}

fn caches_of_a_million_events() -> usize {
    let heap = Heap::start();
    let mut caches = HashMap::new();
    for (offset, event) in (0..).zip(events()) {
        let tp = event.topic_id_partition().clone();
        let cache = caches
            .entry(tp.clone())
            .or_insert_with(|| RemoteLogMetadataCache::new(tp));
        cache.replay(offset, &event).unwrap();
    }
    usize::try_from(heap.heap().live).unwrap()
}

async fn peak_of_a_replay() -> usize {
    let log = InProcessMetadataEventLog::new(1);
    for event in events() {
        log.publish(0, event.encode()).await.unwrap();
    }
    // The first clone of a record's bytes adds to what the log holds, not the manager.
    drop(log.read_range(0, 0, i64::MAX).await.unwrap());
    let dir = TempDir::new().unwrap();
    let heap = Heap::start();
    let manager = start(&log, &dir);
    manager.reconcile_assignment(&[0]).await.unwrap();
    manager.wait_until_ready().await.unwrap();
    heap.heap().peak
}

const METADATA_PARTITIONS: i32 = 1000;
const WRITERS: u32 = 32;
const ROUNDS: usize = 60;

/// What every writer's calls answered: each call answers once, and the log is asked what is true.
#[derive(Default)]
struct Answers {
    applied: AtomicUsize,
    not_ready: AtomicUsize,
    unknown: AtomicUsize,
}

async fn write_on(
    manager: Arc<TopicBasedRemoteLogMetadataManager>,
    writer: u32,
    is_over: Arc<AtomicBool>,
    answers: Arc<Answers>,
) -> Vec<(RemoteLogSegmentMetadata, Option<bool>)> {
    let mut told = Vec::new();
    let mut number = writer;
    while !is_over.load(Ordering::SeqCst) {
        let segment = started(i32::try_from(number % 5000).unwrap(), number);
        number += WRITERS;
        let (counter, outcome) = match manager.add_segment(segment.clone()).await {
            Ok(()) => (&answers.applied, Some(true)),
            Err(error) if error.kind() == ErrorKind::NotReady => (&answers.not_ready, Some(false)),
            Err(error @ RemoteStorageError::EventOutcomeUnknown { .. }) => {
                let RemoteStorageError::EventOutcomeUnknown { offset, .. } = error else {
                    unreachable!("matched above")
                };
                assert!(offset.is_some(), "this log always acknowledges");
                (&answers.unknown, None)
            }
            Err(error) => panic!("{error:?}"),
        };
        counter.fetch_add(1, Ordering::SeqCst);
        told.push((segment, outcome));
        tokio::task::yield_now().await;
    }
    told
}

async fn partitions_come_and_go_while_tasks_publish() {
    let log = InProcessMetadataEventLog::new(METADATA_PARTITIONS);
    let dir = TempDir::new().unwrap();
    let manager = start(&log, &dir);
    manager.committed_offset(0).await;
    let all: Vec<_> = (0..METADATA_PARTITIONS).collect();

    let is_over = Arc::new(AtomicBool::new(false));
    let answers = Arc::new(Answers::default());
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (manager, is_over) = (Arc::clone(&manager), Arc::clone(&is_over));
            tokio::spawn(write_on(manager, writer, is_over, Arc::clone(&answers)))
        })
        .collect();
    for round in 0..ROUNDS {
        let some: Vec<_> = all
            .iter()
            .copied()
            .filter(|one| (one + i32::try_from(round).unwrap()) % 3 > 0)
            .collect();
        manager.reconcile_assignment(&some).await.unwrap();
        if round % 4 == 3 {
            manager.reconcile_assignment(&[]).await.unwrap();
        }
        manager.reconcile_assignment(&all).await.unwrap();
        manager.wait_until_ready().await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    is_over.store(true, Ordering::SeqCst);
    let mut told = Vec::new();
    for writer in writers {
        told.extend(writer.await.unwrap());
    }
    let count = |counter: &AtomicUsize| counter.load(Ordering::SeqCst);
    let total = count(&answers.applied) + count(&answers.not_ready) + count(&answers.unknown);
    assert_eq!(total, told.len(), "each call answers once");
    assert!(
        count(&answers.applied) > 1000,
        "{} applied",
        count(&answers.applied)
    );

    let mut published: HashMap<Uuid, usize> = HashMap::new();
    let high = log.high_water_marks().await.unwrap();
    for (partition, &high) in (0..).zip(&high) {
        for record in log.read_range(partition, 0, high).await.unwrap() {
            let MetadataEvent::AddSegment(segment) =
                MetadataEvent::decode(&record.payload).unwrap()
            else {
                panic!("only adds are published");
            };
            let tp = segment.topic_id_partition();
            assert_eq!(metadata_partition_for(tp, METADATA_PARTITIONS), partition);
            *published
                .entry(segment.remote_log_segment_id().id)
                .or_default() += 1;
        }
    }
    for (segment, outcome) in &told {
        let times = published
            .get(&segment.remote_log_segment_id().id)
            .copied()
            .unwrap_or(0);
        match outcome {
            Some(true) | None => assert_eq!(times, 1, "{segment:?} was acknowledged"),
            Some(false) => assert_eq!(times, 0, "{segment:?} was not sent"),
        }
    }
    drop((told, published));

    // Everything was assigned and taken away before, with its caches full: once more, counted.
    manager.reconcile_assignment(&[]).await.unwrap();
    let heap = Heap::start();
    manager.reconcile_assignment(&all).await.unwrap();
    manager.wait_until_ready().await.unwrap();
    let full = heap.heap().live;
    manager.reconcile_assignment(&[]).await.unwrap();
    let rest = heap.heap().live;
    assert!(
        full > isize::try_from(MIB).unwrap(),
        "the caches hold something: {full} bytes"
    );
    assert!(rest < 64 * 1024, "{rest} of {full} bytes are left");
    println!("caches of {METADATA_PARTITIONS} partitions: {full} bytes; after them {rest}");
}

#[test]
fn a_replay_holds_little_more_than_its_caches_and_what_is_taken_away_holds_nothing() {
    alone(|| {
        let runtime = Runtime::new().unwrap();
        let caches = caches_of_a_million_events();
        let replay = runtime.block_on(peak_of_a_replay());
        println!(
            "a million events: caches {} MiB, peak of the replay {} MiB",
            caches / MIB,
            replay / MIB
        );
        assert!(
            replay <= caches + 16 * MIB,
            "{replay} bytes beside {caches}"
        );
        runtime.block_on(partitions_come_and_go_while_tasks_publish());
    });
}
