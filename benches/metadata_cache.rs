//! What the metadata cache costs at a million segments, against plain maps, and as it grows.
//!
//! - `find/1M`: a lookup beside the floor search in a bare `BTreeMap<i64, u32>` with as many
//!   entries (bar: at most 4 times), and the highest offset of an epoch (at most 2 lookups).
//! - `fill/1M`: a million adds and finishes beside a map of owned records that clones what it
//!   finds (bar: at most half).
//! - `grow`: one call of the in-memory manager, owned answer included, at a thousand to a million
//!   segments (bar: at most 4 times from end to end). Lookups come as consumers make them, each of
//!   many reading on from segment to segment. Beside them stand lookups without any locality,
//!   which show the machine's memory more than the cache: a bare map of the same size, asked the
//!   same way, stands next to them.

use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use krabka_remote_storage::metadata::RemoteLogMetadataCache;
use krabka_remote_storage::{
    InmemoryRemoteLogMetadataManager, LeaderEpoch, RemoteLogMetadataManager,
    RemoteLogSegmentDetails, RemoteLogSegmentId, RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState, TopicIdPartition,
};
use uuid::Uuid;

const MILLION: u32 = 1_000_000;
/// Offsets in a segment.
const SPAN: i64 = 1_000;
const EPOCHS: u32 = 4;

fn tp() -> TopicIdPartition {
    TopicIdPartition::new(Uuid::from_u128(0xca), "orders", 7)
}

/// Ids without order, as random ones are.
fn id(number: u32) -> RemoteLogSegmentId {
    let spread = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    RemoteLogSegmentId::new(tp(), Uuid::from_u128(spread))
}

/// The epoch that segment `number` of a million lies in; what follows them is in the last one.
fn epoch(number: u32) -> LeaderEpoch {
    let epoch = (number / (MILLION / EPOCHS)).min(EPOCHS - 1);
    LeaderEpoch(epoch.try_into().expect("a few epochs"))
}

fn started(number: u32) -> RemoteLogSegmentMetadata {
    let start = i64::from(number) * SPAN;
    let epochs = BTreeMap::from([(epoch(number), start)]);
    let details =
        RemoteLogSegmentDetails::new(1 << 30, RemoteLogSegmentState::CopySegmentStarted, epochs);
    RemoteLogSegmentMetadata::new(id(number), start, start + SPAN - 1, 1, 1, 1, details)
        .expect("a valid segment")
}

fn update(number: u32, state: RemoteLogSegmentState) -> RemoteLogSegmentMetadataUpdate {
    RemoteLogSegmentMetadataUpdate::new(id(number), 2, None, state, 1)
}

fn finished(number: u32) -> RemoteLogSegmentMetadataUpdate {
    update(number, RemoteLogSegmentState::CopySegmentFinished)
}

fn filled(segments: u32) -> RemoteLogMetadataCache {
    let mut cache = RemoteLogMetadataCache::new(tp());
    for number in 0..segments {
        cache.add_segment(&started(number)).expect("a new segment");
        cache
            .update_segment(&finished(number))
            .expect("a started segment");
    }
    cache
}

/// Numbers below `bound` in an order without locality.
struct Scattered {
    state: u64,
    bound: u32,
}

impl Scattered {
    fn below(bound: u32) -> Self {
        Self { state: 1, bound }
    }
}

impl Iterator for Scattered {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let high = (self.state >> 32) * u64::from(self.bound);
        u32::try_from(high >> 32).ok()
    }
}

fn find(c: &mut Criterion) {
    let mut group = c.benchmark_group("find/1M");
    let floor: BTreeMap<i64, u32> = (0..MILLION).map(|n| (i64::from(n) * SPAN, n)).collect();
    let cache = filled(MILLION);
    let mut numbers = Scattered::below(MILLION);
    let mut next = move || numbers.next().expect("an endless sequence");

    group.bench_function("bare BTreeMap floor", |b| {
        b.iter(|| {
            let offset = i64::from(next()) * SPAN + SPAN / 2;
            floor
                .range(..=black_box(offset))
                .next_back()
                .map(|(_, n)| *n)
        });
    });
    group.bench_function("find_segment", |b| {
        b.iter(|| {
            let number = next();
            let offset = i64::from(number) * SPAN + SPAN / 2;
            let found = cache.find_segment(epoch(number), black_box(offset));
            found.expect("a finished segment").end_offset()
        });
    });
    group.bench_function("highest_offset", |b| {
        b.iter(|| cache.highest_offset(black_box(epoch(next()))));
    });
    group.bench_function("find_segment, owned", |b| {
        b.iter(|| {
            let number = next();
            let offset = i64::from(number) * SPAN + SPAN / 2;
            cache
                .find_segment(epoch(number), offset)
                .map(|segment| segment.to_metadata())
        });
    });
    group.finish();
}

/// The plain way to keep segments: owned records by id, and an owned answer for every lookup.
#[derive(Default)]
struct OwnedRecords {
    segments: HashMap<RemoteLogSegmentId, RemoteLogSegmentMetadata>,
    readable: BTreeMap<LeaderEpoch, BTreeMap<i64, RemoteLogSegmentId>>,
}

impl OwnedRecords {
    fn find(&self, id: &RemoteLogSegmentId) -> Option<RemoteLogSegmentMetadata> {
        self.segments.get(id).cloned()
    }

    fn add(&mut self, metadata: RemoteLogSegmentMetadata) {
        let id = metadata.remote_log_segment_id().clone();
        if self.find(&id).is_none() {
            self.segments.insert(id, metadata);
        }
    }

    fn update(&mut self, update: &RemoteLogSegmentMetadataUpdate) {
        let id = &update.remote_log_segment_id;
        let Some(known) = self.find(id) else { return };
        let updated = known.with_update(update).expect("a legal update");
        for (&epoch, &start) in updated.segment_leader_epochs() {
            let readable = self.readable.entry(epoch).or_default();
            readable.insert(start, id.clone());
        }
        self.segments.insert(id.clone(), updated);
    }
}

fn fill(c: &mut Criterion) {
    let adds: Vec<_> = (0..MILLION).map(started).collect();
    let finishes: Vec<_> = (0..MILLION).map(finished).collect();
    let mut group = c.benchmark_group("fill/1M");
    group.sample_size(10);
    group.bench_function("owned records", |b| {
        b.iter_batched(
            || adds.clone(),
            |adds| {
                let mut records = OwnedRecords::default();
                for (add, finish) in adds.into_iter().zip(&finishes) {
                    records.add(add);
                    records.update(finish);
                }
                records
            },
            BatchSize::PerIteration,
        );
    });
    group.bench_function("cache", |b| {
        b.iter_batched(
            || adds.clone(),
            |adds| {
                let mut cache = RemoteLogMetadataCache::new(tp());
                for (add, finish) in adds.into_iter().zip(&finishes) {
                    cache.add_segment(&add).expect("a new segment");
                    cache.update_segment(finish).expect("a started segment");
                }
                cache
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

/// A manager that keeps its number of segments: new ones come, the oldest go.
struct Rolling {
    manager: InmemoryRemoteLogMetadataManager,
    tp: TopicIdPartition,
    oldest: u32,
    next: u32,
}

/// What rounds of [`Rolling`] spent in each kind of call.
#[derive(Default)]
struct Spent {
    add: Duration,
    finish: Duration,
    delete: Duration,
}

type Pick = fn(&Spent) -> Duration;

/// Calls of each kind in a round.
const ROUND: u32 = 256;

/// Consumers that read at the same time.
const CONSUMERS: u32 = 64;

impl Rolling {
    fn new(segments: u32) -> Self {
        let manager = InmemoryRemoteLogMetadataManager::new();
        for number in 0..segments {
            add(&manager, started(number));
            change(&manager, finished(number));
        }
        Self {
            manager,
            tp: tp(),
            oldest: 0,
            next: segments,
        }
    }

    fn round(&mut self, spent: &mut Spent) {
        let manager = &self.manager;
        let new = self.next..self.next + ROUND;
        let old = self.oldest..self.oldest + ROUND;
        let adds: Vec<_> = new.clone().map(started).collect();
        let finishes: Vec<_> = new.clone().map(finished).collect();
        let deletions: Vec<_> = old
            .clone()
            .map(|number| {
                let begin = update(number, RemoteLogSegmentState::DeleteSegmentStarted);
                let end = update(number, RemoteLogSegmentState::DeleteSegmentFinished);
                (begin, end)
            })
            .collect();

        let begin = Instant::now();
        for metadata in adds {
            add(manager, metadata);
        }
        spent.add += begin.elapsed();

        let begin = Instant::now();
        for event in finishes {
            change(manager, event);
        }
        spent.finish += begin.elapsed();

        let begin = Instant::now();
        for (begin_delete, end_delete) in deletions {
            change(manager, begin_delete);
            change(manager, end_delete);
        }
        spent.delete += begin.elapsed();

        self.next = new.end;
        self.oldest = old.end;
    }

    fn look_up(&self, number: u32) -> RemoteLogSegmentMetadata {
        let offset = i64::from(number) * SPAN;
        let found = self
            .manager
            .remote_log_segment_metadata(&self.tp, epoch(number), offset);
        found.expect("an answer").expect("a finished segment")
    }
}

fn add(manager: &InmemoryRemoteLogMetadataManager, metadata: RemoteLogSegmentMetadata) {
    let added = manager.add_remote_log_segment_metadata(metadata);
    added.expect("a new segment");
}

fn change(manager: &InmemoryRemoteLogMetadataManager, event: RemoteLogSegmentMetadataUpdate) {
    let changed = manager.update_remote_log_segment_metadata(event);
    changed.expect("a legal update");
}

fn grow(c: &mut Criterion) {
    let mut group = c.benchmark_group("grow");
    let changes: [(&str, Pick); 3] = [
        ("add", |spent| spent.add),
        ("finish", |spent| spent.finish),
        ("delete from the front", |spent| spent.delete),
    ];
    for segments in [1_000, 10_000, 100_000, MILLION] {
        let mut rolling = Rolling::new(segments);
        group.bench_function(BenchmarkId::new("lookup", segments), |b| {
            let mut consumers: Vec<_> = Scattered::below(segments)
                .take(CONSUMERS as usize)
                .collect();
            let mut turn = 0;
            b.iter(|| {
                turn = (turn + 1) % consumers.len();
                let place = &mut consumers[turn];
                *place = (*place + 1) % segments;
                rolling.look_up(*place)
            });
        });
        group.bench_function(BenchmarkId::new("scattered lookup", segments), |b| {
            let mut numbers = Scattered::below(segments);
            b.iter(|| numbers.next().map(|number| rolling.look_up(number)));
        });
        let bare: BTreeMap<i64, u32> = (0..segments).map(|n| (i64::from(n) * SPAN, n)).collect();
        group.bench_function(BenchmarkId::new("scattered bare BTreeMap", segments), |b| {
            let mut numbers = Scattered::below(segments).map(|n| i64::from(n) * SPAN);
            b.iter(|| bare.range(..=black_box(numbers.next()?)).next_back());
        });
        for (name, pick) in changes {
            group.bench_function(BenchmarkId::new(name, segments), |b| {
                b.iter_custom(|calls| {
                    let rounds = calls.div_ceil(u64::from(ROUND));
                    let mut spent = Spent::default();
                    for _ in 0..rounds {
                        rolling.round(&mut spent);
                    }
                    #[allow(clippy::cast_precision_loss)] // counts of calls, far below 2^52
                    let part = calls as f64 / (rounds * u64::from(ROUND)) as f64;
                    pick(&spent).mul_f64(part)
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, find, fill, grow);
criterion_main!(benches);
