//! Memory of copies and fetches, in the optimised build, by a counting allocator.

use std::sync::Arc;
use std::time::Duration;

use krabka_remote_storage::backends::{
    LocalClient, ObjectStoreClient, RequestLimits, StoreHandles,
};
use krabka_remote_storage::layout::{KeyPrefix, segment_key};
use krabka_remote_storage::{
    CopySegment, FetchSegment, IndexType, LOG_FILE_SUFFIX, LeaderEpoch, RemoteLogReader,
    RemoteStorage,
};
use krabka_remote_storage::{IndexCacheConfig, OpenIndex};
use krabka_test_allocator::Heap;
use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use tokio::runtime::Builder;

use crate::support::alone::alone;
use crate::support::sink::SinkStore;
use crate::support::tier::{MadeSegment, MadeTier};
use crate::support::with;
use krabka_remote_storage::testing::batches::SegmentFiles;
use krabka_remote_storage::testing::segments::{files, metadata};

const MIB: usize = 1 << 20;

#[test]
fn memory_is_bounded() {
    alone(|| {
        // Two workers, as a small broker has, and a blocking pool that does not grow while we count.
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        for delay in [Duration::ZERO, Duration::from_millis(2)] {
            runtime.block_on(copy_of_1_gib(delay));
        }
        runtime.block_on(fetch_from_memory());
        runtime.block_on(fetch_from_a_local_file());
        runtime.block_on(warm_reads_over_memory());
    });
}

/// Peak heap of a 1 GiB copy: at most (parts in flight + 3) × part size.
async fn copy_of_1_gib(delay: Duration) {
    let dir = tempfile::tempdir().unwrap();
    let data = files(dir.path(), b"");
    let log = std::fs::File::options()
        .write(true)
        .open(&data.log_segment)
        .unwrap();
    log.set_len(1 << 30).unwrap();
    let limits = with(RequestLimits::default(), |it| {
        it.multipart_chunk_size = 8 * MIB;
        it.max_parts_in_flight = 4;
    });
    let client =
        ObjectStoreClient::new(StoreHandles::with_multipart(Arc::new(SinkStore { delay })));
    let storage = RemoteStorage::builder(Arc::new(client))
        .limits(limits)
        .build()
        .unwrap();

    let heap = Heap::start();
    storage
        .copy(CopySegment::new(metadata(1, 0, 1 << 30), data))
        .await
        .unwrap();
    let heap = heap.heap();
    println!("copy of 1 GiB in parts of 8 MiB × 4, {delay:?} a part: {heap:?}");
    assert!(heap.peak <= (4 + 3) * 8 * MIB, "{heap:?}");
    assert!(heap.peak <= 64 * MIB, "{heap:?}");
}

/// A fetch over memory: the body is not copied, and the two floors allocate little.
async fn fetch_from_memory() {
    let metadata = metadata(1, 0, 1 << 30);
    let store = Arc::new(InMemory::new());
    let key = segment_key(&KeyPrefix::default(), &metadata, LOG_FILE_SUFFIX).unwrap();
    store.put(&key, vec![7; 1 << 30].into()).await.unwrap();
    let handles = StoreHandles::with_multipart(Arc::clone(&store));
    let storage = RemoteStorage::builder(Arc::new(ObjectStoreClient::new(handles)))
        .build()
        .unwrap();
    let fetch = || {
        FetchSegment::new(
            Arc::clone(&metadata),
            u32::try_from(512 * MIB).unwrap(),
            Some(u32::try_from(512 * MIB).unwrap() + 65_535),
        )
    };
    let raw = || async {
        let start = 512 * MIB as u64;
        store.get_range(&key, start..start + 65_536).await.unwrap()
    };
    // The first calls set up what later ones reuse.
    for _ in 0..3 {
        assert_eq!(storage.fetch(fetch()).await.unwrap().len(), 65_536);
        assert_eq!(raw().await.len(), 65_536);
    }

    let heap = Heap::start();
    let bytes = storage.fetch(fetch()).await.unwrap();
    let ours = heap.heap();
    let heap = Heap::start();
    let raw_bytes = raw().await;
    let raw = heap.heap();
    assert_eq!(bytes.as_ptr(), raw_bytes.as_ptr(), "the store's own buffer");
    println!("64 KiB from memory: {ours:?}, raw get_range {raw:?}");
    assert_eq!(ours.live, 0, "{ours:?}");
    assert!(ours.peak <= raw.peak + 2_048, "{ours:?} against {raw:?}");
    assert!(
        ours.count <= raw.count + 24,
        "{} against {}",
        ours.count,
        raw.count
    );
    assert!(ours.largest <= 1_024, "{ours:?}");
}

/// A fetch from a file takes the body's bytes and little more.
async fn fetch_from_a_local_file() {
    let dir = tempfile::tempdir().unwrap();
    let metadata = metadata(1, 0, 1 << 30);
    let key: Path = segment_key(&KeyPrefix::default(), &metadata, LOG_FILE_SUFFIX).unwrap();
    let path = dir.path().join(key.as_ref());
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::File::create(path)
        .unwrap()
        .set_len(1 << 30)
        .unwrap();
    let storage = RemoteStorage::builder(Arc::new(LocalClient::new(dir.path())))
        .build()
        .unwrap();
    let fetch = || FetchSegment::new(Arc::clone(&metadata), 4_096, Some(4_096 + 65_535));
    for _ in 0..3 {
        storage.fetch(fetch()).await.unwrap();
    }
    let heap = Heap::start();
    let bytes = storage.fetch(fetch()).await.unwrap();
    let heap = heap.heap();
    println!("64 KiB of 1 GiB from a local file: {heap:?}");
    assert_eq!(bytes.len(), 65_536);
    assert!(heap.peak <= 65_536 + 16_384, "{heap:?}");
}

/// Warm reads through the whole stack and the reader, with the index cache in memory. Every single
/// one of some thousand counts, so what is done now and then counts, too.
async fn warm_reads_over_memory() {
    const BATCH: usize = 16 * 1024;
    const BATCHES: usize = 4096;
    let tier = MadeTier::new();
    let files = SegmentFiles::uniform(0, BATCHES * BATCH, BATCH, 10);
    let segment = MadeSegment::new(1, &files);
    tier.add(&segment).await;
    let store = Arc::clone(&tier.store.inner);
    let key = segment.key(LOG_FILE_SUFFIX);
    let cache = IndexCacheConfig::memory().open().unwrap();
    let handles = StoreHandles::with_multipart(Arc::clone(&store));
    let storage = RemoteStorage::builder(Arc::new(ObjectStoreClient::new(handles)))
        .index_cache(cache.clone())
        .build()
        .unwrap();
    let reader = RemoteLogReader::new(storage, Arc::clone(&tier.metadata) as _);
    let partition = segment.partition_id();
    let offset = |call: u64| {
        // No read goes on where another has ended.
        let place = call.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        i64::try_from(place).unwrap() % files.last_offset
    };
    let read = |call| {
        let offset = offset(call);
        let read = reader.read(&partition, LeaderEpoch(0), offset, 65_536);
        async move { read.await.unwrap().unwrap().bytes.len() }
    };
    let raw = || async {
        let start = 4096;
        store.get_range(&key, start..start + 65_536).await.unwrap()
    };
    // Until what is remembered of earlier reads has its full size.
    for call in 0..10_000 {
        assert!(read(call).await > 0);
    }
    raw().await;
    let heap = Heap::start();
    let bytes = raw().await;
    let raw = heap.heap();
    drop(bytes);

    let mut counts = Vec::new();
    let mut largest = 0;
    for call in 10_000..14_000 {
        let heap = Heap::start();
        read(call).await;
        let heap = heap.heap();
        counts.push(heap.count);
        largest = largest.max(heap.largest);
    }
    counts.sort_unstable();
    let (median, most) = (counts[counts.len() / 2], counts[counts.len() - 1]);
    println!(
        "64 KiB through the reader over memory: {median} allocations, at most {most}, none over \
         {largest} bytes; raw get_range {raw:?}"
    );
    assert_eq!(cache.stats().misses, 1);
    assert!(most <= raw.count + 40, "{most} against {}", raw.count);
    assert!(largest <= 1_024, "{largest} bytes");

    // Through the storage handle, the index included.
    let metadata = Arc::new(segment.metadata());
    let tier = RemoteStorage::builder(Arc::new(ObjectStoreClient::new(
        StoreHandles::with_multipart(Arc::clone(&store)),
    )))
    .index_cache(cache)
    .build()
    .unwrap();
    let mut most = 0;
    for call in 0..1_000 {
        let heap = Heap::start();
        let index = OpenIndex::new(Arc::clone(&metadata), IndexType::Offset);
        let range = tier.open_index(index).await.unwrap();
        let range = range.lookup_range(offset(call)).await.unwrap();
        let start = range.floor.position;
        let fetch = FetchSegment::new(Arc::clone(&metadata), start, Some(start + 65_535));
        tier.fetch(fetch).await.unwrap();
        // The first calls of a new handle set up what later ones reuse.
        if call >= 10 {
            most = most.max(heap.heap().count);
        }
    }
    println!("64 KiB and its place by index through the handle: at most {most} allocations");
    assert!(most <= raw.count + 40, "{most} against {}", raw.count);
}
