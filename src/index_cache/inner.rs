//! The cache itself: what is in it, and what goes.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use uuid::Uuid;

use super::content::{CACHED, Content, Fetch, IndexCacheOutcome, Key, Slot, blocking};
use super::directory::{CacheDirectory, FoundFile};
use super::entries::{Entries, Shared, new_entries};
use super::file::IndexFile;
use super::metrics;
use super::usage::Usage;
use super::wanted::{Wanted, fetched};
use crate::error::RemoteStorageError;
use crate::model::IndexType;

/// How many times in the time to idle the cache looks for idle entries.
const SWEEPS_PER_IDLE_TIME: u32 = 4;

pub(super) struct Inner {
    pub(super) entries: ArcSwap<Entries>,
    pub(super) shared: Arc<Shared>,
    /// `None` in memory mode.
    pub(super) directory: Option<Arc<CacheDirectory>>,
    /// The slots of the loads under way, by segment.
    pub(super) loading: Mutex<HashMap<Uuid, Vec<Arc<Slot>>>>,
    /// Bytes that further loads may bring at once.
    pub(super) loadable_bytes: Arc<Semaphore>,
    pub(super) max_loading_bytes: u32,
    time_to_idle: Option<Duration>,
    is_sweeping: AtomicBool,
    pub(super) is_disk_failing: AtomicBool,
    /// Held while entries are on their way from one of moka's caches to another.
    pub(super) moving: tokio::sync::Mutex<()>,
    began: Instant,
}

impl Inner {
    pub(super) fn new(
        directory: Option<CacheDirectory>,
        max_bytes: u64,
        max_loading_bytes: u64,
        time_to_idle: Option<Duration>,
    ) -> Self {
        let keeps_files = directory.as_ref().is_some_and(CacheDirectory::keeps_files);
        let shared = Arc::new(Shared::new(max_bytes, keeps_files));
        let max_loading_bytes = u32::try_from(max_loading_bytes).unwrap_or(u32::MAX).max(1);
        Self {
            entries: ArcSwap::from_pointee(new_entries(max_bytes, &shared)),
            shared,
            directory: directory.map(Arc::new),
            loading: Mutex::default(),
            loadable_bytes: Arc::new(Semaphore::new(max_loading_bytes as usize)),
            max_loading_bytes,
            time_to_idle,
            is_sweeping: AtomicBool::new(false),
            is_disk_failing: AtomicBool::new(false),
            moving: tokio::sync::Mutex::default(),
            began: Instant::now(),
        }
    }

    pub(super) fn usage(&self) -> &Usage {
        self.shared.usage()
    }

    /// Takes over files of an earlier process, given from the oldest to the newest. Those that
    /// are one too many for the budget are removed.
    pub(super) fn adopt(&self, found: Vec<FoundFile>) {
        let entries = self.entries.load_full();
        let mut seen = HashSet::new();
        let mut left = self.usage().held().max_weight;
        let newest_that_fit: Vec<_> = found
            .into_iter()
            .rev()
            .filter_map(|FoundFile { key, file, .. }| {
                let content = Content::File(Arc::new(file));
                let weight = content.weight()?;
                seen.insert(key).then_some(())?;
                left = left.checked_sub(u64::from(weight))?;
                Some((key, content, weight))
            })
            .collect();
        for (key, content, weight) in newest_that_fit.into_iter().rev() {
            let slot = Arc::new(Slot::new(key));
            self.shared.enter(&slot, content);
            // Nobody else has the cache yet, so there is nothing to wait for.
            if entries
                .insert(key, Arc::clone(&slot))
                .now_or_never()
                .is_none()
            {
                self.shared.vacate(&slot);
            }
            self.usage().settle(weight);
        }
    }

    /// The index, if it is in the cache.
    pub(super) fn peek(&self, key: Key) -> Option<Content> {
        self.shared.find(key, self.now())
    }

    /// The whole index, from the file in which it was found or anew.
    pub(super) async fn read_or_load(
        self: &Arc<Self>,
        wanted: Wanted,
        found: Option<Arc<IndexFile>>,
        fetch: Fetch,
    ) -> Result<(Option<Bytes>, IndexCacheOutcome), RemoteStorageError> {
        let index = wanted.key.index;
        if let Some(file) = found
            && let Ok(bytes) = self.read(wanted.key, &file).await
        {
            self.usage().hit(index);
            return Ok((Some(bytes), IndexCacheOutcome::Hit));
        }
        let (content, outcome) = self.load(wanted, Arc::clone(&fetch)).await?;
        let bytes = match content {
            Content::File(file) => {
                let Ok(bytes) = self.read(wanted.key, &file).await else {
                    let content = self.load_past_the_cache(index, &fetch).await?;
                    return Ok((content.in_memory(), IndexCacheOutcome::Miss));
                };
                Some(bytes)
            }
            content => content.in_memory(),
        };
        if outcome == IndexCacheOutcome::Hit {
            self.usage().hit(index);
        }
        Ok((bytes, outcome))
    }

    /// Reads a file whole; one that cannot be read leaves the cache.
    pub(super) async fn read(&self, key: Key, file: &Arc<IndexFile>) -> io::Result<Bytes> {
        let readable = Arc::clone(file);
        let bytes = blocking(move || readable.read()).await;
        if let Err(error) = &bytes {
            self.discard(key, file, error).await;
        }
        bytes
    }

    /// Drops a file that cannot be read, unless another has taken its place.
    pub(super) async fn discard(&self, key: Key, file: &Arc<IndexFile>, error: &io::Error) {
        metrics::disk_errors().increment(1);
        tracing::warn!(
            file = %file.path().display(),
            %error,
            "a cached index cannot be read and will be fetched again",
        );
        let entries = self.entries.load_full();
        if let Some(slot) = entries.get(&key).await
            && slot.content().is_some_and(|content| content.is_file(file))
        {
            self.shared.vacate(&slot);
            entries.invalidate(&key).await;
        }
        self.shared.empty_trash().await;
    }

    /// Fetches what could neither be found nor kept.
    pub(super) async fn load_past_the_cache(
        &self,
        index: IndexType,
        fetch: &Fetch,
    ) -> Result<Content, RemoteStorageError> {
        self.usage().miss(index);
        fetched(index, fetch).await
    }

    pub(super) async fn remove_segment(&self, segment: Uuid) {
        let _nothing_moves = self.moving.lock().await;
        let loading = self.loading.lock().get(&segment).cloned();
        for slot in loading.into_iter().flatten() {
            self.shared.vacate(&slot);
        }
        let entries = self.entries.load_full();
        for index in CACHED {
            entries.invalidate(&Key { segment, index }).await;
        }
        entries.run_pending_tasks().await;
        self.shared.empty_trash().await;
    }

    pub(super) async fn resize(&self, max_bytes: u64) {
        let _one_at_a_time = self.moving.lock().await;
        self.usage().set_max_weight(max_bytes);
        let new = Arc::new(new_entries(max_bytes, &self.shared));
        let old = self.entries.swap(Arc::clone(&new));
        let mut moving: Vec<_> = old.iter().collect();
        // In the order of their last use, so that what goes is what was not used for longest.
        moving.sort_by_key(|(_, slot)| slot.last_used());
        for (key, slot) in moving {
            self.shared.move_to(&new, *key, &slot).await;
        }
        self.shared.empty_trash().await;
    }

    pub(super) fn start_sweeping(self: &Arc<Self>) {
        let Some(idle) = self.time_to_idle else {
            return;
        };
        if self.is_sweeping.swap(true, Ordering::AcqRel) {
            return;
        }
        let pause = (idle / SWEEPS_PER_IDLE_TIME).max(Duration::from_millis(1));
        let sweeper = Sweeper(Arc::downgrade(self));
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(pause).await;
                let Some(cache) = sweeper.0.upgrade() else {
                    return;
                };
                cache.sweep(idle).await;
            }
        });
    }

    /// Evicts what nobody has asked for since `idle`.
    async fn sweep(&self, idle: Duration) {
        let idle = u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX);
        let Some(since) = self.now().checked_sub(idle) else {
            return;
        };
        let entries = self.entries.load_full();
        let idle: Vec<_> = entries
            .iter()
            .filter(|(_, slot)| slot.last_used() <= since)
            .collect();
        for (key, slot) in idle {
            if self.shared.vacate(&slot) {
                self.usage().eviction(key.index);
            }
            entries.invalidate(&*key).await;
        }
        entries.run_pending_tasks().await;
        self.shared.empty_trash().await;
    }

    /// Nanoseconds since the cache was made.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    #[cfg(test)]
    pub(super) fn loads_under_way(&self) -> usize {
        self.loading.lock().values().map(Vec::len).sum()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Now, and not whenever moka frees its memory. Files that are kept stay.
        for (_, slot) in self.entries.load_full().iter() {
            if let Some(content) = slot.vacate() {
                self.usage().release(&content);
            }
        }
    }
}

/// The task that looks for idle entries, until the cache or the runtime goes.
struct Sweeper(Weak<Inner>);

impl Drop for Sweeper {
    fn drop(&mut self) {
        if let Some(cache) = self.0.upgrade() {
            cache.is_sweeping.store(false, Ordering::Release);
        }
    }
}
