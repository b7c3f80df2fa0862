//! What the tests of the cache share: segments, sources of indexes, caches of each mode.

mod budget;
mod disk;
mod flights;
mod kafka;
mod layer;
mod scenarios;
mod search;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use tempfile::TempDir;
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::*;
use crate::layout::REMOTE_INDEX_CACHE_DIR;
use crate::model::{
    LeaderEpoch, RemoteLogSegmentDetails, RemoteLogSegmentId, RemoteLogSegmentState,
    TopicIdPartition,
};

const LARGE: u64 = 1 << 20;
const NO_FILES: [&Path; 0] = [];

/// A segment of 1 MiB that begins at offset 45.
fn segment(id: u128) -> Arc<RemoteLogSegmentMetadata> {
    sized_segment(id, 1 << 20)
}

fn sized_segment(id: u128, log_bytes: i32) -> Arc<RemoteLogSegmentMetadata> {
    let partition = TopicIdPartition::new(Uuid::from_u128(7), "orders", 0);
    let details = RemoteLogSegmentDetails::new(
        log_bytes,
        RemoteLogSegmentState::CopySegmentFinished,
        BTreeMap::from([(LeaderEpoch(0), 45)]),
    );
    let id = RemoteLogSegmentId::new(partition, Uuid::from_u128(id));
    Arc::new(RemoteLogSegmentMetadata::new(id, 45, 99, -1, 1, 0, details).unwrap())
}

/// A cache, and the directory that it may use.
struct Case {
    mode: &'static str,
    cache: RemoteIndexCache,
    dir: TempDir,
}

impl Case {
    fn files(max_bytes: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self {
            mode: "files",
            cache: RemoteIndexCache::new(dir.path(), max_bytes).unwrap(),
            dir,
        }
    }

    /// One of each mode.
    fn each(max_bytes: u64) -> [Self; 3] {
        let with = |mode, config: fn(&TempDir) -> IndexCacheConfig| {
            let dir = tempfile::tempdir().unwrap();
            let cache = config(&dir).max_bytes(max_bytes).open().unwrap();
            Self { mode, cache, dir }
        };
        [
            Self::files(max_bytes),
            with("kept files", |dir| {
                IndexCacheConfig::files(dir.path()).keep_files()
            }),
            with("memory", |_| IndexCacheConfig::memory()),
        ]
    }

    /// The files in the cache's directory.
    fn cached_files(&self) -> Vec<PathBuf> {
        cached_files(&self.dir)
    }

    fn stats(&self) -> [u64; 5] {
        let IndexCacheStats {
            hits,
            misses,
            evictions,
            entries,
            bytes,
        } = self.cache.stats();
        [hits, misses, evictions, entries, bytes]
    }

    async fn get(
        &self,
        id: u128,
        index: IndexType,
        source: &Source,
    ) -> Result<(Bytes, IndexCacheOutcome), RemoteStorageError> {
        let fetch = source.fetch();
        self.cache.get_or_fetch(&segment(id), index, fetch).await
    }

    async fn outcome(&self, id: u128, index: IndexType, source: &Source) -> IndexCacheOutcome {
        let (bytes, outcome) = self.get(id, index, source).await.unwrap();
        assert_eq!(bytes, (source.answer)(0).unwrap(), "{}", self.mode);
        outcome
    }
}

fn cached_files(dir: &TempDir) -> Vec<PathBuf> {
    match fs::read_dir(dir.path().join(REMOTE_INDEX_CACHE_DIR)) {
        Ok(entries) => entries.map(|entry| entry.unwrap().path()).collect(),
        Err(_) => Vec::new(),
    }
}

/// Where indexes come from. It counts how often it is asked, and can be made to wait.
#[derive(Clone)]
struct Source {
    answer: Arc<dyn Fn(usize) -> Result<Bytes, RemoteStorageError> + Send + Sync>,
    asked: Arc<AtomicUsize>,
    answered: Arc<AtomicUsize>,
    gate: Arc<Semaphore>,
}

impl Source {
    /// Always answers these bytes.
    fn new(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self::answering(move |_| Ok(bytes.clone()))
    }

    /// An index of this size.
    fn of(size: usize) -> Self {
        Self::new((0..=250).cycle().take(size).collect::<Vec<u8>>())
    }

    /// Answers by how often it was asked before.
    fn answering(
        answer: impl Fn(usize) -> Result<Bytes, RemoteStorageError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            answer: Arc::new(answer),
            asked: Arc::default(),
            answered: Arc::default(),
            gate: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
        }
    }

    /// Does not answer before [`release`](Self::release).
    fn held(mut self) -> Self {
        self.gate = Arc::new(Semaphore::new(0));
        self
    }

    /// Lets so many answers go.
    fn release(&self, answers: usize) {
        self.gate.add_permits(answers);
    }

    fn fetch(
        &self,
    ) -> impl Fn() -> BoxFuture<'static, Result<Bytes, RemoteStorageError>> + Send + Sync + 'static
    {
        let source = self.clone();
        move || {
            let source = source.clone();
            Box::pin(async move {
                let before = source.asked.fetch_add(1, Ordering::SeqCst);
                source.gate.acquire().await.unwrap().forget();
                source.answered.fetch_add(1, Ordering::SeqCst);
                (source.answer)(before)
            })
        }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Waits until it has been asked so often.
    async fn until_asked(&self, times: usize) {
        while self.asked() < times {
            tokio::task::yield_now().await;
        }
        settled().await;
    }
}

/// Lets every task go on as far as it can.
async fn settled() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

fn boom() -> RemoteStorageError {
    RemoteStorageError::InvalidArgument("boom".to_owned())
}

fn not_found() -> RemoteStorageError {
    RemoteStorageError::SegmentNotFound(segment(1).remote_log_segment_id().clone())
}
