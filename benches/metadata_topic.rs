//! What the metadata topic costs: replay, restart, and the way of one event.
//!
//! - `replay/1M`: a manager that replays a million events, decoding included, beside the same
//!   events, decoded before, applied to caches directly (bar: at most 2 times).
//! - `restart/100k`: a manager that starts from a snapshot of 100,000 segments, beside the full
//!   replay of their 200,000 events (bar: at most 0.2).
//! - `publish`: from the call of a change to its return, through the in-process log (bar: at most
//!   25 µs in the median).

use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use krabka_remote_storage::metadata::RemoteLogMetadataCache;
use krabka_remote_storage::topic::{
    InProcessMetadataEventLog, MetadataEvent, MetadataEventLog, TopicBasedRemoteLogMetadataManager,
    TopicManagerConfig,
};
use krabka_remote_storage::{
    LeaderEpoch, RemoteLogMetadataStore, RemoteLogSegmentDetails, RemoteLogSegmentId,
    RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState,
    TopicIdPartition,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use uuid::Uuid;

/// User partitions whose events stand in the one metadata partition.
const TOPIC_PARTITIONS: i32 = 20;
const SPAN: i64 = 1_000;

fn tp(partition: i32) -> TopicIdPartition {
    TopicIdPartition::new(Uuid::from_u128(0xca), "a-topic-of-usual-length", partition)
}

/// Segment `number`: the partitions take turns, as they do on a broker.
fn started(number: u32) -> RemoteLogSegmentMetadata {
    let turn = i64::from(number) / i64::from(TOPIC_PARTITIONS);
    let partition = i32::try_from(number).expect("a small number") % TOPIC_PARTITIONS;
    let spread = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let id = RemoteLogSegmentId::new(tp(partition), Uuid::from_u128(spread));
    let start = turn * SPAN;
    let epochs = BTreeMap::from([(LeaderEpoch(3), start)]);
    let state = RemoteLogSegmentState::CopySegmentStarted;
    let details = RemoteLogSegmentDetails::new(1 << 30, state, epochs);
    RemoteLogSegmentMetadata::new(id, start, start + SPAN - 1, 1, 1, 1, details)
        .expect("a valid segment")
}

fn finished(segment: &RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadataUpdate {
    let id = segment.remote_log_segment_id().clone();
    let state = RemoteLogSegmentState::CopySegmentFinished;
    RemoteLogSegmentMetadataUpdate::new(id, 2, None, state, 1)
}

fn events(segments: u32) -> Vec<MetadataEvent> {
    let mut events = Vec::new();
    for number in 0..segments {
        let segment = started(number);
        let finish = finished(&segment);
        events.push(MetadataEvent::AddSegment(segment));
        events.push(MetadataEvent::UpdateSegment(finish));
    }
    events
}

fn filled(runtime: &Runtime, events: &[MetadataEvent]) -> Arc<InProcessMetadataEventLog> {
    let log = InProcessMetadataEventLog::new(1);
    runtime.block_on(async {
        for event in events {
            log.publish(0, event.encode()).await.expect("an open log");
        }
    });
    log
}

fn manager(
    runtime: &Runtime,
    log: &Arc<InProcessMetadataEventLog>,
    dir: &TempDir,
) -> Arc<TopicBasedRemoteLogMetadataManager> {
    let config = TopicManagerConfig::new(dir.path(), Duration::from_hours(1));
    let log: Arc<dyn MetadataEventLog> = Arc::clone(log) as _;
    TopicBasedRemoteLogMetadataManager::start_with(log, runtime.handle(), config)
        .expect("a valid configuration")
}

/// From the start of a manager until it is ready.
fn time_to_ready(
    runtime: &Runtime,
    log: &Arc<InProcessMetadataEventLog>,
    dir: &TempDir,
) -> (Duration, Arc<TopicBasedRemoteLogMetadataManager>) {
    let begin = Instant::now();
    let manager = manager(runtime, log, dir);
    runtime.block_on(async {
        manager
            .reconcile_assignment(&[0])
            .await
            .expect("a partition of the log");
        manager.wait_until_ready().await.expect("a running manager");
    });
    (begin.elapsed(), manager)
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

fn replay(c: &mut Criterion) {
    let runtime = runtime();
    let events = events(500_000);
    let log = filled(&runtime, &events);
    let mut group = c.benchmark_group("replay");
    group.sample_size(10);
    group.bench_function("1M/direct", |b| {
        b.iter_custom(|iterations| {
            let mut spent = Duration::ZERO;
            for _ in 0..iterations {
                let begin = Instant::now();
                let mut caches = HashMap::new();
                for (offset, event) in (0..).zip(&events) {
                    let tp = event.topic_id_partition();
                    if !caches.contains_key(tp) {
                        caches.insert(tp.clone(), RemoteLogMetadataCache::new(tp.clone()));
                    }
                    let cache = caches.get_mut(tp).expect("there now");
                    cache.replay(offset, event).expect("a valid history");
                }
                spent += begin.elapsed();
                black_box(caches);
            }
            spent
        });
    });
    group.bench_function("1M/manager", |b| {
        b.iter_custom(|iterations| {
            let mut spent = Duration::ZERO;
            for _ in 0..iterations {
                let dir = TempDir::new().expect("a directory");
                let (took, manager) = time_to_ready(&runtime, &log, &dir);
                spent += took;
                drop(manager);
            }
            spent
        });
    });
    group.finish();
}

fn restart(c: &mut Criterion) {
    let runtime = runtime();
    let log = filled(&runtime, &events(100_000));
    let dir = TempDir::new().expect("a directory");
    let (_, first) = time_to_ready(&runtime, &log, &dir);
    runtime
        .block_on(first.shutdown_and_flush())
        .expect("a snapshot");
    let mut group = c.benchmark_group("restart");
    group.sample_size(10);
    group.bench_function("100k/full_replay", |b| {
        b.iter_custom(|iterations| {
            let mut spent = Duration::ZERO;
            for _ in 0..iterations {
                let empty = TempDir::new().expect("a directory");
                spent += time_to_ready(&runtime, &log, &empty).0;
            }
            spent
        });
    });
    group.bench_function("100k/snapshot", |b| {
        b.iter_custom(|iterations| {
            let mut spent = Duration::ZERO;
            for _ in 0..iterations {
                spent += time_to_ready(&runtime, &log, &dir).0;
            }
            spent
        });
    });
    group.finish();
}

fn publish(c: &mut Criterion) {
    let runtime = runtime();
    let log = InProcessMetadataEventLog::new(1);
    let dir = TempDir::new().expect("a directory");
    let (_, manager) = time_to_ready(&runtime, &log, &dir);
    let mut number = 0;
    let mut group = c.benchmark_group("publish");
    group.bench_function("to_applied", |b| {
        b.iter_custom(|iterations| {
            let segments: Vec<_> = (0..iterations)
                .map(|_| {
                    number += 1;
                    started(number)
                })
                .collect();
            let manager = Arc::clone(&manager);
            let calls = async move {
                let begin = Instant::now();
                for segment in segments {
                    manager.add_segment(segment).await.expect("a new segment");
                }
                begin.elapsed()
            };
            // On a worker, where a broker's code runs.
            runtime.block_on(runtime.spawn(calls)).expect("no panic")
        });
    });
    group.finish();
}

criterion_group!(benches, replay, restart, publish);
criterion_main!(benches);
