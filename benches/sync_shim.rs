//! What the blocking face adds to a fetch of 64 KiB, called from a plain thread.
//!
//! Over memory beside awaiting the same call and copying its bytes into a vector (bar: at most 1.2
//! times), over local files beside awaiting it (bar: at most 1.1 times).

mod sampled;

use std::hint::black_box;
use std::sync::Arc;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use krabka_remote_storage::{
    FetchSegment, LocalTieredStorage, RemoteStorage, RemoteStorageManager, S3RemoteStorage,
};
use object_store::memory::InMemory;

use sampled::tier::{WANTED, segment, starts};

fn compare(
    group: BenchmarkGroup<'_, WallTime>,
    manager: &impl RemoteStorageManager,
    storage: &RemoteStorage,
    into_vec: bool,
    bar: f64,
) {
    let dir = tempfile::tempdir().expect("a directory");
    let metadata = segment(manager, dir.path());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut awaited = |calls| {
        runtime.block_on(async {
            for start in starts(calls) {
                let end = Some(start + WANTED - 1);
                let fetch = FetchSegment::new(Arc::clone(&metadata), start, end);
                let bytes = storage.fetch(fetch).await.expect("bytes");
                if into_vec {
                    black_box(bytes.to_vec());
                }
            }
        });
    };
    let mut blocking = |calls| {
        for start in starts(calls) {
            let end = Some(start + WANTED - 1);
            let bytes = manager.fetch_log_segment(&metadata, start, end);
            black_box(bytes.expect("bytes"));
        }
    };
    let (awaited, blocking) = (
        ("awaited", &mut awaited as _),
        ("blocking", &mut blocking as _),
    );
    sampled::compare(group, awaited, blocking, bar);
}

fn sync_shim(c: &mut Criterion) {
    let memory = S3RemoteStorage::with_store(Arc::new(InMemory::new()), None).expect("a tier");
    let group = c.benchmark_group("sync_shim/64KiB/memory");
    compare(group, &memory, memory.storage(), true, 1.2);

    let dir = tempfile::tempdir().expect("a directory");
    let local = LocalTieredStorage::new(dir.path());
    let group = c.benchmark_group("sync_shim/64KiB/local");
    compare(group, &local, local.storage(), false, 1.1);
}

criterion_group!(benches, sync_shim);
criterion_main!(benches);
