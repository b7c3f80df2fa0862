use std::sync::Arc;
use criterion::{Criterion, criterion_group, criterion_main};
use object_store::{ObjectStoreExt, path::Path, local::LocalFileSystem};
use krabka_remote_storage::backends::{LocalClient, StoreClient};
use krabka_remote_storage::ops::{Get, ByteRange, StoreTarget};

fn bench(c: &mut Criterion) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("x.log"), vec![7u8; 8<<20]).unwrap();
    let rt = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let theirs = Arc::new(LocalFileSystem::new_with_prefix(dir.path()).unwrap());
    let ours = Arc::new(LocalClient::new(dir.path()));
    let key = Path::from("x.log");
    let mut g = c.benchmark_group("local");
    g.bench_function("object_store", |b| b.to_async(&rt).iter(|| { let s = theirs.clone(); let key = key.clone(); async move { s.get_range(&key, 65536*3..65536*4).await.unwrap() } }));
    g.bench_function("object_store get_ranges", |b| b.to_async(&rt).iter(|| { let s = theirs.clone(); let key = key.clone(); async move { s.get_ranges(&key, &[65536*3..65536*4]).await.unwrap() } }));
    g.bench_function("ours", |b| b.to_async(&rt).iter(|| { let s = ours.clone(); let key = key.clone(); async move { s.get(Get{target: StoreTarget::object(key), range: ByteRange::Bounded(65536*3..65536*4)}).await.unwrap() } }));
}
criterion_group!(benches, bench);
criterion_main!(benches);
