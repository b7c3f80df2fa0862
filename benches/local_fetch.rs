//! What 64 KiB from a local tier cost, through the whole stack, beside `object_store`'s
//! `get_range` of the same file (bar: at most 0.8 times).
//!
//! Both read what is in the page cache, so this measures system calls, copies and thread hops.

mod sampled;

use criterion::{Criterion, criterion_group, criterion_main};
use krabka_remote_storage::layout::{KeyPrefix, segment_key};
use krabka_remote_storage::{FetchSegment, LOG_FILE_SUFFIX, LocalTieredStorage};
use object_store::ObjectStoreExt;
use object_store::local::LocalFileSystem;

use sampled::tier::{WANTED, segment, starts};

fn local_fetch(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a directory");
    let storage = LocalTieredStorage::new(dir.path().join("tier"));
    let metadata = segment(&storage, dir.path());
    let key = segment_key(&KeyPrefix::default(), &metadata, LOG_FILE_SUFFIX).expect("a key");
    let object_store = LocalFileSystem::new_with_prefix(storage.root()).expect("a tier");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");

    let mut get_range = |calls| {
        runtime.block_on(async {
            for start in starts(calls) {
                let range = u64::from(start)..u64::from(start + WANTED);
                object_store.get_range(&key, range).await.expect("bytes");
            }
        });
    };
    let mut fetch = |calls| {
        runtime.block_on(async {
            for start in starts(calls) {
                let end = Some(start + WANTED - 1);
                let fetch = FetchSegment::new(metadata.clone(), start, end);
                storage.storage().fetch(fetch).await.expect("bytes");
            }
        });
    };
    sampled::compare(
        c.benchmark_group("local/64KiB"),
        ("object_store get_range", &mut get_range),
        ("fetch", &mut fetch),
        0.8,
    );
}

criterion_group!(benches, local_fetch);
criterion_main!(benches);
