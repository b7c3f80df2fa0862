//! What the tests of the cache share: segments, sources of indexes, caches of each mode.

mod budget;
mod disk;
mod flights;
mod kafka;
mod scenarios;
mod search;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) use std::sync::Arc;

pub(crate) use bytes::Bytes;
use futures::future::BoxFuture;
use tempfile::TempDir;
use tokio::sync::Semaphore;
use uuid::Uuid;

pub(crate) use std::fs;

pub(crate) use super::content::CACHED;
pub(crate) use super::*;
pub(crate) use crate::error::RemoteStorageError;
use crate::layout::REMOTE_INDEX_CACHE_DIR;
pub(crate) use crate::model::{IndexType, RemoteLogSegmentMetadata};
use crate::model::{
    LeaderEpoch, RemoteLogSegmentDetails, RemoteLogSegmentId, RemoteLogSegmentState,
    TopicIdPartition,
};

pub(crate) const LARGE: u64 = 1 << 20;
pub(crate) const NO_FILES: [&Path; 0] = [];

/// A segment of 1 MiB that begins at offset 45.
pub(crate) fn segment(id: u128) -> Arc<RemoteLogSegmentMetadata> {
    sized_segment(id, 1 << 20)
}

pub(crate) fn sized_segment(id: u128, log_bytes: i32) -> Arc<RemoteLogSegmentMetadata> {
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
pub(crate) struct Case {
    pub(crate) mode: &'static str,
    pub(crate) cache: RemoteIndexCache,
    pub(crate) dir: TempDir,
}

impl Case {
    pub(crate) fn files(max_bytes: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self {
            mode: "files",
            cache: RemoteIndexCache::new(dir.path(), max_bytes).unwrap(),
            dir,
        }
    }

    /// One of each mode.
    pub(crate) fn each(max_bytes: u64) -> [Self; 3] {
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
    pub(crate) fn cached_files(&self) -> Vec<PathBuf> {
        cached_files(&self.dir)
    }

    pub(crate) fn stats(&self) -> [u64; 5] {
        let IndexCacheStats {
            hits,
            misses,
            evictions,
            entries,
            bytes,
        } = self.cache.stats();
        [hits, misses, evictions, entries, bytes]
    }

    pub(crate) async fn get(
        &self,
        id: u128,
        index: IndexType,
        source: &Source,
    ) -> Result<(Bytes, IndexCacheOutcome), RemoteStorageError> {
        let fetch = source.fetch();
        self.cache.get_or_fetch(&segment(id), index, fetch).await
    }

    pub(crate) async fn outcome(
        &self,
        id: u128,
        index: IndexType,
        source: &Source,
    ) -> IndexCacheOutcome {
        let (bytes, outcome) = self.get(id, index, source).await.unwrap();
        assert_eq!(bytes, (source.answer)(0).unwrap(), "{}", self.mode);
        outcome
    }
}

pub(crate) fn cached_files(dir: &TempDir) -> Vec<PathBuf> {
    match fs::read_dir(dir.path().join(REMOTE_INDEX_CACHE_DIR)) {
        Ok(entries) => entries.map(|entry| entry.unwrap().path()).collect(),
        Err(_) => Vec::new(),
    }
}

/// Where indexes come from. It counts how often it is asked, and can be made to wait.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) answer: Arc<dyn Fn(usize) -> Result<Bytes, RemoteStorageError> + Send + Sync>,
    pub(crate) asked: Arc<AtomicUsize>,
    pub(crate) answered: Arc<AtomicUsize>,
    pub(crate) gate: Arc<Semaphore>,
}

impl Source {
    /// Always answers these bytes.
    pub(crate) fn new(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self::answering(move |_| Ok(bytes.clone()))
    }

    /// An index of this size.
    pub(crate) fn of(size: usize) -> Self {
        Self::new((0..=250).cycle().take(size).collect::<Vec<u8>>())
    }

    /// Answers by how often it was asked before.
    pub(crate) fn answering(
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
    pub(crate) fn held(mut self) -> Self {
        self.gate = Arc::new(Semaphore::new(0));
        self
    }

    /// Lets so many answers go.
    pub(crate) fn release(&self, answers: usize) {
        self.gate.add_permits(answers);
    }

    pub(crate) fn fetch(
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

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Waits until it has been asked so often.
    pub(crate) async fn until_asked(&self, times: usize) {
        while self.asked() < times {
            tokio::task::yield_now().await;
        }
        settled().await;
    }
}

/// Lets every task go on as far as it can.
pub(crate) async fn settled() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

pub(crate) fn boom() -> RemoteStorageError {
    RemoteStorageError::InvalidArgument("boom".to_owned())
}

pub(crate) fn not_found() -> RemoteStorageError {
    RemoteStorageError::SegmentNotFound(segment(1).remote_log_segment_id().clone())
}
