//! The handle of a cache, and its calls.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use super::config::{IndexCacheConfig, Storage};
use super::content::{Content, Fetch, IndexCacheOutcome, Key};
use super::directory::CacheDirectory;
use super::handle::{FromFile, IndexHandle, Source};
use super::inner::Inner;
use super::usage::IndexCacheStats;
use super::wanted::{Wanted, found_or_missing};
use crate::error::RemoteStorageError;
use crate::model::{IndexType, RemoteLogSegmentMetadata};

/// A cache of the offset, time and transaction indexes of remote segments (Kafka's
/// `RemoteIndexCache`). A clone is one reference.
///
/// Usually it is a layer of a remote storage, see `IndexCacheLayer`, and
/// this handle is for [`remove_segment`](Self::remove_segment), [`resize`](Self::resize) and
/// [`stats`](Self::stats).
///
/// It keeps the bytes that it is given and does not look into them. Producer snapshots and leader
/// epoch checkpoints pass through, as in Kafka. Calls need a Tokio runtime.
#[derive(Clone)]
pub struct RemoteIndexCache {
    /// `None` when it is disabled.
    inner: Option<Arc<Inner>>,
}

impl IndexCacheConfig {
    /// Opens the cache.
    ///
    /// In file mode this takes the directory for this cache alone, until the last handle is
    /// dropped, and removes everything in it that is not a file of its own to keep. This blocks.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument) when the directory is in use, by
    /// another process or another cache of this one. [`Io`](RemoteStorageError::Io) when it cannot
    /// be created, locked or emptied.
    pub fn open(&self) -> Result<RemoteIndexCache, RemoteStorageError> {
        let (directory, found) = match &self.storage {
            Storage::Memory => (None, Vec::new()),
            Storage::Files { log_dir, keep } => {
                let (directory, found) = CacheDirectory::open(log_dir, *keep)?;
                (Some(directory), found)
            }
        };
        let inner = Inner::new(
            directory,
            self.max_bytes,
            self.max_loading_bytes,
            self.time_to_idle,
        );
        inner.adopt(found);
        Ok(RemoteIndexCache {
            inner: Some(Arc::new(inner)),
        })
    }
}

impl RemoteIndexCache {
    /// A cache in files below `log_dir`, of at most `max_bytes`; see [`IndexCacheConfig::files`]
    /// for its other limits.
    ///
    /// The directory [`remote-log-index-cache`](crate::layout::REMOTE_INDEX_CACHE_DIR) in it is
    /// emptied: nothing survives a restart.
    ///
    /// # Errors
    ///
    /// As for [`IndexCacheConfig::open`].
    pub fn new(log_dir: &Path, max_bytes: u64) -> Result<Self, RemoteStorageError> {
        IndexCacheConfig::files(log_dir).max_bytes(max_bytes).open()
    }

    /// A cache that keeps nothing: each call loads, and nothing is counted.
    pub fn disabled() -> Self {
        Self { inner: None }
    }

    /// Whether it may keep anything.
    pub fn is_enabled(&self) -> bool {
        self.inner.is_some()
    }

    /// Answers an index whole: from the cache, or by `fetch`, whose answer is then kept.
    ///
    /// However many calls ask for one index at once, one of them fetches. A transaction index that
    /// is not found is an empty one, and kept as such. In memory mode a hit shares the cache's
    /// bytes; in file mode it reads the file.
    ///
    /// `fetch` is called a second time only when the file that it filled cannot be read back.
    ///
    /// # Errors
    ///
    /// That of `fetch`, for every call that waits for it; it is not kept. Trouble with the disk is
    /// no error: what cannot be stored or read back is fetched.
    ///
    /// # Cancellation
    ///
    /// A load runs in a task of its own. When the call that began it is dropped, it goes on, and
    /// answers those that wait for it.
    pub async fn get_or_fetch<F, Fut>(
        &self,
        metadata: &RemoteLogSegmentMetadata,
        index: IndexType,
        fetch: F,
    ) -> Result<(Bytes, IndexCacheOutcome), RemoteStorageError>
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Bytes, RemoteStorageError>> + Send + 'static,
    {
        let (bytes, outcome) = self.whole(metadata, index, fetch).await?;
        Ok((bytes.unwrap_or_default(), outcome))
    }

    /// Forgets every index of a segment, also those that are being loaded: what these loads bring
    /// is answered and not kept. To be called when the segment's deletion begins.
    pub async fn remove_segment(&self, segment_id: Uuid) {
        if let Some(inner) = &self.inner {
            inner.remove_segment(segment_id).await;
        }
    }

    /// Changes the budget to `max_bytes`, and keeps as much as it allows, the indexes that were
    /// used last (Kafka's `resizeCacheSize`).
    ///
    /// An index that is asked for or loaded meanwhile may be loaded twice.
    pub async fn resize(&self, max_bytes: u64) {
        if let Some(inner) = &self.inner {
            inner.resize(max_bytes).await;
        }
    }

    /// What it holds and what it has done; all zero when it is disabled.
    pub fn stats(&self) -> IndexCacheStats {
        self.inner
            .as_ref()
            .map(|inner| inner.usage().stats())
            .unwrap_or_default()
    }

    /// The whole index; `None` when the segment has none.
    pub(crate) async fn whole<F, Fut>(
        &self,
        metadata: &RemoteLogSegmentMetadata,
        index: IndexType,
        fetch: F,
    ) -> Result<(Option<Bytes>, IndexCacheOutcome), RemoteStorageError>
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Bytes, RemoteStorageError>> + Send + 'static,
    {
        let Some((inner, wanted)) = self.wanted(metadata, index) else {
            let bytes = found_or_missing(index, fetch().await)?;
            return Ok((bytes, IndexCacheOutcome::Disabled));
        };
        let found = match inner.peek(wanted.key) {
            Some(Content::File(file)) => Some(file),
            Some(content) => {
                inner.usage().hit(index);
                return Ok((content.in_memory(), IndexCacheOutcome::Hit));
            }
            None => None,
        };
        // Boxed, so that a hit in memory does not pay for the room that the rest takes.
        Box::pin(inner.read_or_load(wanted, found, erased(fetch))).await
    }

    /// The index, if the cache has it in memory.
    pub(crate) fn open_in_memory(
        &self,
        metadata: &RemoteLogSegmentMetadata,
        index: IndexType,
    ) -> Option<IndexHandle> {
        let inner = self.inner.as_ref()?;
        let bytes = match inner.peek(Key::new(metadata.remote_log_segment_id().id, index)?)? {
            Content::Memory(bytes) => bytes,
            Content::Missing => Bytes::new(),
            Content::File(_) => return None,
        };
        inner.usage().hit(index);
        let source = Source::Memory(bytes);
        Some(IndexHandle::new(
            metadata,
            index,
            source,
            IndexCacheOutcome::Hit,
        ))
    }

    /// The index as it lies in the cache, to be searched. One that is missing is empty.
    pub(crate) async fn open<F, Fut>(
        &self,
        metadata: &RemoteLogSegmentMetadata,
        index: IndexType,
        fetch: F,
    ) -> Result<IndexHandle, RemoteStorageError>
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Bytes, RemoteStorageError>> + Send + 'static,
    {
        let (source, outcome) = match self.wanted(metadata, index) {
            None => {
                let bytes = found_or_missing(index, fetch().await)?;
                let source = Source::Memory(bytes.unwrap_or_default());
                (source, IndexCacheOutcome::Disabled)
            }
            Some((inner, wanted)) => {
                let found = inner.peek(wanted.key);
                let (content, outcome, fetch) = if let Some(content) = found {
                    (content, IndexCacheOutcome::Hit, Err(fetch))
                } else {
                    let fetch = erased(fetch);
                    let load = Box::pin(inner.load(wanted, Arc::clone(&fetch)));
                    let (content, outcome) = load.await?;
                    (content, outcome, Ok(fetch))
                };
                if outcome == IndexCacheOutcome::Hit {
                    inner.usage().hit(index);
                }
                let source = match content {
                    Content::File(file) => Source::File(Arc::new(FromFile {
                        file,
                        cache: Arc::clone(inner),
                        wanted,
                        fetch: fetch.unwrap_or_else(erased),
                    })),
                    content => Source::Memory(content.in_memory().unwrap_or_default()),
                };
                (source, outcome)
            }
        };
        Ok(IndexHandle::new(metadata, index, source, outcome))
    }

    /// What to look for; `None` when the cache is not to be asked.
    fn wanted(
        &self,
        metadata: &RemoteLogSegmentMetadata,
        index: IndexType,
    ) -> Option<(&Arc<Inner>, Wanted)> {
        let inner = self.inner.as_ref()?;
        Some((inner, Wanted::new(metadata, index)?))
    }

    #[cfg(test)]
    pub(super) fn inner(&self) -> &Arc<Inner> {
        self.inner.as_ref().expect("an enabled cache")
    }
}

impl fmt::Debug for RemoteIndexCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteIndexCache")
            .field("enabled", &self.is_enabled())
            .field("stats", &self.stats())
            .finish()
    }
}

fn erased<F, Fut>(fetch: F) -> Fetch
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Bytes, RemoteStorageError>> + Send + 'static,
{
    Arc::new(move || Box::pin(fetch()))
}
