//! What the steps of a fetch cost. Each group answers one question; a ratio is printed beside the
//! most that it may be.
//!
//! - `index/2MiB`: how much is saved by searching an offset index in place, instead of parsing it
//!   before each search? 2 MiB is the index of a 1 GiB segment with an entry for every 4 KiB.
//! - `index_cache/2MiB`: what does a search in a cached index cost, in memory and in a file, beside
//!   reading that file whole?
//! - `memory/64KiB`: what do the layers and the reader add to `object_store`'s `get_range`, when
//!   that answers at once? The reader's part includes the lookup in the metadata store, the search
//!   in the index and the walk over the batches.
//! - `tasks`: do tasks on two workers hinder each other? The log is larger than the processor's
//!   caches, as a real one (1 GiB by default) is: in a small one it would be the caches' answer.
//! - `local/reader`: cold and warm reads of a local tier, which lies in the page cache.
//! - `simulated`: cold, warm and sequential reads of a store with 30 ms a request and 90 MB/s. Time
//!   is Tokio's own, paused and moved on: it shows what the requests cost, and no computing.

mod sampled;
#[path = "../tests/support/mod.rs"]
mod support;

use std::fs;
use std::hint::black_box;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use krabka_remote_storage::backends::{LocalClient, ObjectStoreClient, StoreClient, StoreHandles};
use krabka_remote_storage::index::{
    Batches, OffsetIndex, parse_offset_index, parse_time_index, position_for_relative_offset,
};
use krabka_remote_storage::layout::REMOTE_INDEX_CACHE_DIR;
use krabka_remote_storage::{
    FetchSegment, IndexType, LOG_FILE_SUFFIX, LeaderEpoch, RemoteLogReader,
    RemoteLogSegmentMetadata, RemoteStorage, TopicIdPartition,
};
use krabka_remote_storage::{IndexCacheConfig, OpenIndex, RemoteIndexCache};
use object_store::ObjectStoreExt as _;
use tokio::runtime::{Builder, Runtime};

use krabka_remote_storage::testing::batches::{SegmentFiles, UniformLog};
use support::tier::{MadeSegment, MadeTier, partition};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
const LOG: usize = 16 * MIB;
/// More than the processor's caches hold, as of a real segment (1 GiB by default).
const LARGE_LOG: usize = 128 * MIB;
const WANTED: usize = 64 * KIB;
const BATCH: usize = 16 * KIB;
const RECORDS: i32 = 10;
const ENTRIES: u32 = 2 * 1024 * 1024 / 8;

/// An offset index of 2 MiB.
fn offset_index() -> Vec<u8> {
    (1..=ENTRIES)
        .flat_map(|entry| [(entry * 10).to_be_bytes(), (entry * 4096).to_be_bytes()])
        .flatten()
        .collect()
}

/// Numbers below `bound`, another each time, so that neither branches nor places are learnt.
fn scattered(bound: i64) -> impl FnMut() -> i64 {
    let mut step = 0_u64;
    move || {
        step += 1;
        let mixed = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1;
        i64::try_from(mixed).expect("63 bits") % bound
    }
}

fn single_threaded() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime")
}

fn index(c: &mut Criterion) {
    let bytes = offset_index();
    let mut target = scattered(i64::from(ENTRIES) * 10);
    let mut parse = |calls| {
        for _ in 0..calls {
            let entries = parse_offset_index(black_box(&bytes)).expect("an index");
            let target = u32::try_from(target()).expect("a relative offset");
            black_box(position_for_relative_offset(entries, target));
        }
    };
    let mut target = scattered(i64::from(ENTRIES) * 10);
    let mut search = |calls| {
        for _ in 0..calls {
            black_box(OffsetIndex::new(0, black_box(&bytes)).lookup(target()));
        }
    };
    sampled::compare(
        c.benchmark_group("index/2MiB"),
        ("parse then search", &mut parse),
        ("search", &mut search),
        0.01,
    );

    let log = SegmentFiles::uniform(0, MIB, BATCH, RECORDS).log;
    let times: Vec<u8> = (1..=ENTRIES)
        .flat_map(|entry| [0, entry, entry * 10])
        .flat_map(u32::to_be_bytes)
        .collect();
    let mut group = c.benchmark_group("decode");
    group.bench_function("time index of 3 MiB", |b| {
        b.iter(|| parse_time_index(black_box(&times)).expect("an index").len());
    });
    group.bench_function("headers of 64 batches", |b| {
        b.iter(|| {
            let batches = Batches::new(black_box(&log));
            let ends = batches.map(|batch| batch.expect("a batch").last_offset());
            ends.map(|end| end.expect("an offset")).max()
        });
    });
    group.finish();
}

/// A segment in memory, and a handle of its tier with all layers on.
struct InMemory {
    tier: MadeTier,
    segment: MadeSegment,
    last_offset: i64,
}

impl InMemory {
    /// 16 MiB of batches of 16 KiB.
    fn new() -> Self {
        Self::of(LOG)
    }

    /// So many bytes of batches of 16 KiB.
    fn of(log: usize) -> Self {
        let tier = MadeTier::new();
        let files = SegmentFiles::uniform(0, log, BATCH, RECORDS);
        let segment = MadeSegment::new(1, &files);
        single_threaded().block_on(tier.add(&segment));
        Self {
            tier,
            segment,
            last_offset: files.last_offset,
        }
    }

    fn client(&self) -> Arc<dyn StoreClient> {
        let store = Arc::clone(&self.tier.store.inner);
        Arc::new(ObjectStoreClient::new(StoreHandles::with_multipart(store)))
    }

    fn cached(&self) -> RemoteStorage {
        cached(self.client(), &IndexCacheConfig::memory())
    }

    fn reader(&self, storage: RemoteStorage) -> RemoteLogReader {
        RemoteLogReader::new(storage, Arc::clone(&self.tier.metadata) as _)
    }
}

fn cached(client: Arc<dyn StoreClient>, cache: &IndexCacheConfig) -> RemoteStorage {
    let cache = cache.open().expect("a cache");
    RemoteStorage::builder(client)
        .index_cache(cache)
        .build()
        .unwrap()
}

async fn read(reader: &RemoteLogReader, offset: i64) -> usize {
    let orders = orders();
    let read = reader.read(orders, LeaderEpoch(0), offset, WANTED);
    let read = read.await.expect("an answer");
    read.expect("an offset in the tier").bytes.len()
}

/// The partition, which a reader's caller has at hand.
fn orders() -> &'static TopicIdPartition {
    static ORDERS: LazyLock<TopicIdPartition> = LazyLock::new(|| partition(0));
    &ORDERS
}

fn index_cache(c: &mut Criterion) {
    let made = InMemory::new();
    let mut large = MadeSegment::new(2, &SegmentFiles::new(0));
    large.offset_index = Some(offset_index().into());
    large.end_offset = i64::from(ENTRIES) * 10;
    let metadata = Arc::new(large.metadata());
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(made.tier.put(&large));
    let dir = tempfile::tempdir().expect("a directory");
    let in_memory = made.cached();
    let in_files = cached(made.client(), &IndexCacheConfig::files(dir.path()));
    let mut offset = scattered(large.end_offset);
    runtime.block_on(async {
        look_up(&in_memory, &metadata, 5).await;
        look_up(&in_files, &metadata, 5).await;
    });
    let file = fs::read_dir(dir.path().join(REMOTE_INDEX_CACHE_DIR))
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .find(|path| fs::metadata(path).is_ok_and(|file| file.len() == u64::from(ENTRIES) * 8))
        .expect("the cached index");

    let mut read_whole = |calls| {
        runtime.block_on(async {
            for _ in 0..calls {
                let file = file.clone();
                let whole = tokio::task::spawn_blocking(move || fs::read(file));
                black_box(whole.await.expect("a thread").expect("bytes"));
            }
        });
    };
    let mut other = scattered(large.end_offset);
    let mut search = |calls| {
        runtime.block_on(async {
            for _ in 0..calls {
                look_up(&in_files, &metadata, other()).await;
            }
        });
    };
    sampled::compare(
        c.benchmark_group("index_cache/2MiB"),
        ("read the file whole", &mut read_whole),
        ("hit in a file", &mut search),
        0.3,
    );
    let mut group = c.benchmark_group("index_cache/2MiB");
    group.bench_function("hit in memory", |b| {
        b.iter_custom(|calls| {
            let began = std::time::Instant::now();
            runtime.block_on(async {
                for _ in 0..calls {
                    look_up(&in_memory, &metadata, offset()).await;
                }
            });
            began.elapsed()
        });
    });
    group.finish();
}

async fn look_up(storage: &RemoteStorage, metadata: &Arc<RemoteLogSegmentMetadata>, offset: i64) {
    let open = OpenIndex::new(Arc::clone(metadata), IndexType::Offset);
    let index = storage.open_index(open).await.expect("an index");
    black_box(index.lookup_range(offset).await.expect("a position"));
}

fn memory(c: &mut Criterion) {
    let made = InMemory::new();
    let metadata = Arc::new(made.segment.metadata());
    let store = Arc::clone(&made.tier.store.inner);
    let key = made.segment.key(LOG_FILE_SUFFIX);
    let storage = made.cached();
    let reader = made.reader(storage.clone());
    let uncached = made.reader(RemoteStorage::builder(made.client()).build().unwrap());
    let runtime = single_threaded();
    let starts = || scattered(i64::try_from(LOG - WANTED).expect("an offset"));

    let mut start = starts();
    let mut get_range = |calls| {
        runtime.block_on(async {
            for _ in 0..calls {
                let start = u64::try_from(start()).expect("a position");
                let range = store.get_range(&key, start..start + WANTED as u64);
                black_box(range.await.expect("bytes"));
            }
        });
    };
    let mut start = starts();
    let mut fetch = |calls| {
        runtime.block_on(async {
            for _ in 0..calls {
                let start = u32::try_from(start()).expect("a position");
                let end = start + u32::try_from(WANTED).expect("64 KiB") - 1;
                let fetch = FetchSegment::new(Arc::clone(&metadata), start, Some(end));
                black_box(storage.fetch(fetch).await.expect("bytes"));
            }
        });
    };
    sampled::compare(
        c.benchmark_group("memory/64KiB"),
        ("object_store get_range", &mut get_range),
        ("fetch through the handle", &mut fetch),
        4.0,
    );
    let mut offset = scattered(made.last_offset);
    let mut warm = |calls| {
        runtime.block_on(async {
            for _ in 0..calls {
                black_box(read(&reader, offset()).await);
            }
        });
    };
    sampled::compare(
        c.benchmark_group("memory/64KiB"),
        ("object_store get_range", &mut get_range),
        ("warm read through the reader", &mut warm),
        8.0,
    );
    let mut offset = scattered(made.last_offset);
    let mut group = c.benchmark_group("memory/64KiB");
    group.bench_function("cold read through the reader", |b| {
        b.iter(|| runtime.block_on(read(&uncached, offset())));
    });
    group.finish();
}

fn tasks(c: &mut Criterion) {
    /// What one call of the bench reads.
    const READS: u64 = 256;
    const TASKS: u64 = 8;
    let made = InMemory::of(LARGE_LOG);
    let reader = made.reader(made.cached());
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let last_offset = made.last_offset;
    // Each task reads places of its own.
    let run = |tasks: u64, calls: u64| {
        runtime.block_on(async {
            let tasks: Vec<_> = (0..tasks)
                .map(|task| {
                    let reader = reader.clone();
                    let reads = calls * READS / tasks;
                    let shift = i64::try_from(task).expect("a few") * 5_003;
                    tokio::spawn(async move {
                        let mut offset = scattered(last_offset);
                        for _ in 0..reads {
                            let offset = (offset() + shift) % last_offset;
                            black_box(read(&reader, offset).await);
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("a task");
            }
        });
    };
    let mut one = |calls| run(1, calls);
    let mut eight = |calls| run(TASKS, calls);
    sampled::compare(
        c.benchmark_group("tasks/256 warm reads"),
        ("1 task", &mut one),
        ("8 tasks on 2 workers", &mut eight),
        0.7,
    );
}

fn local(c: &mut Criterion) {
    let made = InMemory::new();
    let dir = tempfile::tempdir().expect("a directory");
    let objects = [
        (LOG_FILE_SUFFIX, &made.segment.log),
        (IndexType::Offset.suffix(), &made.segment.offset_index),
    ];
    for (suffix, bytes) in objects {
        let path = dir
            .path()
            .join("tier")
            .join(made.segment.key(suffix).as_ref());
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, bytes.as_ref().expect("bytes")).expect("a file");
    }
    let client = || Arc::new(LocalClient::new(dir.path().join("tier")));
    let runtime = Runtime::new().expect("a runtime");
    let files = IndexCacheConfig::files(dir.path());
    let mut group = c.benchmark_group("local/reader");
    for (name, storage) in [
        ("cold", RemoteStorage::builder(client()).build().unwrap()),
        ("warm, cache in files", cached(client(), &files)),
        (
            "warm, cache in memory",
            cached(client(), &IndexCacheConfig::memory()),
        ),
    ] {
        let reader = made.reader(storage);
        let mut offset = scattered(made.last_offset);
        group.bench_function(name, |b| {
            b.iter(|| runtime.block_on(read(&reader, offset())));
        });
    }
    group.finish();
}

fn simulated(_: &mut Criterion) {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let tier = MadeTier::new();
        let log = UniformLog::new(0, 1024 * MIB / BATCH, BATCH, RECORDS);
        tier.add_uniform(1, log.clone(), 0).await;
        tier.store.throttle(Duration::from_millis(30), 90e6);
        let cache: RemoteIndexCache = IndexCacheConfig::memory().open().expect("a cache");
        println!("simulated: 30 ms a request and 90 MB/s, 1 GiB segment, paused time");
        for name in ["cold 64 KiB", "warm 64 KiB"] {
            let reader = tier.cached_reader(&cache);
            report(&tier, name, async {
                read(&reader, log.end_offset() / 3).await;
            })
            .await;
        }
        for (name, read_ahead) in [
            ("16 MiB in steps of 1 MiB, warm", 8 * MIB),
            ("the same without read-ahead", 0),
        ] {
            let reader = tier.cached_reader_with_read_ahead(&cache, read_ahead);
            report(&tier, name, async {
                let (mut offset, mut left) = (4_444, 16 * MIB);
                while left > 0 {
                    let read = reader.read(orders(), LeaderEpoch(0), offset, MIB);
                    let read = read.await.expect("an answer").expect("batches");
                    offset = read.next_offset;
                    left = left.saturating_sub(read.bytes.len());
                }
            })
            .await;
        }
    });
}

async fn report(tier: &MadeTier, name: &str, work: impl Future<Output = ()>) {
    tier.store.forget_requests();
    let began = tokio::time::Instant::now();
    work.await;
    println!(
        "  {name}: {:.1?}, {} GETs, {} KiB",
        began.elapsed(),
        tier.gets().len(),
        tier.bytes_down() / 1024
    );
}

criterion_group!(benches, index, index_cache, memory, tasks, local, simulated);
criterion_main!(benches);
