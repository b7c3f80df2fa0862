//! Memory of copies and fetches, in the optimised build, by a counting allocator.
//!
//! One test: the counters are those of the whole process.
#![cfg(not(debug_assertions))]

mod support;

use std::sync::Arc;
use std::time::Duration;

use krabka_remote_storage::backends::{
    LocalClient, ObjectStoreClient, RequestLimits, StoreHandles,
};
use krabka_remote_storage::layout::{KeyPrefix, segment_key};
use krabka_remote_storage::{CopySegment, FetchSegment, LOG_FILE_SUFFIX, RemoteStorage};
use krabka_test_allocator::{Counting, Heap};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::runtime::Builder;

use support::segments::{files, metadata};
use support::sink::SinkStore;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MIB: usize = 1 << 20;

#[test]
fn memory_is_bounded() {
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
    let limits = RequestLimits {
        multipart_chunk_size: 8 * MIB,
        max_parts_in_flight: 4,
        ..RequestLimits::default()
    };
    let client =
        ObjectStoreClient::new(StoreHandles::with_multipart(Arc::new(SinkStore { delay })));
    let storage = RemoteStorage::builder(Arc::new(client))
        .limits(limits)
        .build();

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
    let storage = RemoteStorage::builder(Arc::new(ObjectStoreClient::new(handles))).build();
    let fetch = || {
        FetchSegment::new(
            Arc::clone(&metadata),
            512 * MIB as u32,
            Some(512 * MIB as u32 + 65_535),
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
    let storage = RemoteStorage::builder(Arc::new(LocalClient::new(dir.path()))).build();
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
