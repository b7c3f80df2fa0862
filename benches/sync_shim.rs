//! What the blocking face adds to a fetch of 64 KiB, called from a plain thread.
//!
//! Over memory beside awaiting the same call and copying its bytes into a vector (bar: at most 1.2
//! times), over local files beside awaiting it (bar: at most 1.1 times).

mod sampled;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use krabka_remote_storage::{
    FetchSegment, LocalTieredStorage, RemoteStorage, RemoteStorageManager, S3RemoteStorage,
};
use object_store::memory::InMemory;

use sampled::tier::{WANTED, segment, starts};

/// The times of the awaited and of the blocking call.
fn both(
    c: &mut Criterion,
    tier: &str,
    manager: &impl RemoteStorageManager,
    storage: &RemoteStorage,
    into_vec: bool,
) -> (Duration, Duration) {
    let dir = tempfile::tempdir().expect("a directory");
    let metadata = segment(manager, dir.path());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut group = c.benchmark_group(format!("sync_shim/64KiB/{tier}"));
    let awaited = sampled::sampled(&mut group, "awaited", |calls| {
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
    });
    let blocking = sampled::sampled(&mut group, "blocking", |calls| {
        for start in starts(calls) {
            let end = Some(start + WANTED - 1);
            let bytes = manager.fetch_log_segment(&metadata, start, end);
            black_box(bytes.expect("bytes"));
        }
    });
    group.finish();
    (awaited, blocking)
}

fn sync_shim(c: &mut Criterion) {
    let memory = S3RemoteStorage::with_store(Arc::new(InMemory::new()), None).expect("a tier");
    let (awaited, blocking) = both(c, "memory", &memory, memory.storage(), true);
    sampled::ratio("blocking call over memory", blocking, awaited, 1.2);

    let dir = tempfile::tempdir().expect("a directory");
    let local = LocalTieredStorage::new(dir.path());
    let (awaited, blocking) = both(c, "local", &local, local.storage(), false);
    sampled::ratio("blocking call over local files", blocking, awaited, 1.1);
}

criterion_group!(benches, sync_shim);
criterion_main!(benches);
