//! Loads: one at a time for an index, within bounds, and to the place where the cache keeps it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use tracing::Instrument as _;

use super::content::{Content, Fetch, IndexCacheOutcome, Key, Slot, blocking};
use super::entries::{Entries, is_entry};
use super::inner::Inner;
use super::metrics;
use super::wanted::{Wanted, fetched};
use crate::error::RemoteStorageError;

/// How often a load asks for room before it gives up its own place.
const ATTEMPTS_TO_SETTLE: usize = 100;

/// Why a load left nothing in the cache.
enum NotKept {
    Failed(RemoteStorageError),
    /// It goes to those that wait for it, and no further.
    Loaded(Content),
}

impl Inner {
    /// Loads an index, or waits for the load that is under way. A loaded content is in memory.
    ///
    /// The load runs in a task, so that it makes progress whatever becomes of this call.
    pub(super) async fn load(
        self: &Arc<Self>,
        wanted: Wanted,
        fetch: Fetch,
    ) -> Result<(Content, IndexCacheOutcome), RemoteStorageError> {
        self.start_sweeping();
        let load = Arc::clone(self).load_here(wanted, fetch);
        match tokio::spawn(load.in_current_span()).await {
            Ok(loaded) => loaded,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The runtime shuts down.
            Err(error) => Err(io::Error::other(error).into()),
        }
    }

    async fn load_here(
        self: Arc<Self>,
        wanted: Wanted,
        fetch: Fetch,
    ) -> Result<(Content, IndexCacheOutcome), RemoteStorageError> {
        let entries = self.entries.load_full();
        let mut own = None;
        let kept = entries
            .try_get_with(wanted.key, self.bring(wanted, &fetch, &mut own))
            .await;
        let outcome = match own {
            Some(_) => IndexCacheOutcome::Miss,
            None => IndexCacheOutcome::Hit,
        };
        match (kept, own) {
            (Ok(_), Some(load)) => {
                let content = load.loaded.clone();
                self.settle(&entries, wanted.key, load).await;
                Ok((content, outcome))
            }
            (Ok(slot), None) => {
                let Some(content) = slot.content() else {
                    // It was removed at this very moment.
                    if is_entry(&entries, wanted.key, &slot).await {
                        entries.invalidate(&wanted.key).await;
                    }
                    let content = self.load_past_the_cache(wanted.key.index, &fetch).await?;
                    return Ok((content, IndexCacheOutcome::Miss));
                };
                Ok((content, outcome))
            }
            (Err(error), _) => match &*error {
                NotKept::Failed(error) => Err(error.clone()),
                NotKept::Loaded(content) => Ok((content.clone(), outcome)),
            },
        }
    }

    /// The one load among those that ask for an index at once.
    async fn bring(
        self: &Arc<Self>,
        wanted: Wanted,
        fetch: &Fetch,
        own: &mut Option<Load>,
    ) -> Result<Arc<Slot>, NotKept> {
        self.usage().miss(wanted.key.index);
        let load = own.insert(Load::begin(self, wanted.key));
        load.room = self.room(wanted.expected_bytes).await;
        let content = fetched(wanted.key.index, fetch)
            .await
            .map_err(NotKept::Failed)?;
        self.adjust_room(&mut load.room, content.len());
        let stored = match content.weight() {
            Some(weight) if u64::from(weight) <= self.usage().held().max_weight => self
                .store(wanted, &content)
                .await
                .map(|stored| (stored, weight)),
            // It would push everything else out and not fit even then.
            _ => None,
        };
        let Some((stored, weight)) = stored else {
            return Err(NotKept::Loaded(content));
        };
        load.slot.touch(self.now());
        if !self.shared.enter(&load.slot, stored) {
            return Err(NotKept::Loaded(content));
        }
        load.unsettled = Some(weight);
        load.loaded = content;
        self.shared.tell_of_use(&self.entries.load_full()).await;
        Ok(Arc::clone(&load.slot))
    }

    /// Waits until a load of this size is within the bounds.
    async fn room(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes)
            .unwrap_or(u32::MAX)
            .min(self.max_loading_bytes);
        let loadable = Arc::clone(&self.loadable_bytes);
        loadable.acquire_many_owned(bytes).await.ok()
    }

    /// Gives back what a load does not take, or takes what is free of what it has too much: its
    /// bytes are here already, and waiting would not make them fewer.
    fn adjust_room(&self, room: &mut Option<OwnedSemaphorePermit>, bytes: usize) {
        let Some(room) = room else { return };
        let spare = room.num_permits().saturating_sub(bytes);
        drop(room.split(spare));
        let excess = bytes
            .saturating_sub(room.num_permits())
            .min(self.loadable_bytes.available_permits());
        let excess = u32::try_from(excess).unwrap_or(u32::MAX);
        if let Ok(more) = Arc::clone(&self.loadable_bytes).try_acquire_many_owned(excess) {
            room.merge(more);
        }
    }

    /// Puts a loaded index where the cache keeps it; `None` when that fails.
    async fn store(&self, wanted: Wanted, content: &Content) -> Option<Content> {
        match (content, &self.directory) {
            (Content::Memory(bytes), Some(directory)) if !bytes.is_empty() => {
                let (directory, bytes) = (Arc::clone(directory), bytes.clone());
                let written =
                    blocking(move || directory.write(wanted.key, wanted.start_offset, &bytes));
                let written = written.await;
                self.note_disk(written.as_ref().err());
                written.ok().map(|file| Content::File(Arc::new(file)))
            }
            // A copy: the bytes may be a small part of a large buffer.
            (Content::Memory(bytes), _) => Some(Content::Memory(Bytes::copy_from_slice(bytes))),
            (content, _) => Some(content.clone()),
        }
    }

    /// Counts failures to write, and logs when they begin and when they end.
    fn note_disk(&self, error: Option<&io::Error>) {
        if error.is_some() {
            metrics::disk_errors().increment(1);
        }
        let was_failing = self
            .is_disk_failing
            .swap(error.is_some(), Ordering::Relaxed);
        let directory = self
            .directory
            .as_ref()
            .map(|directory| directory.path().display());
        match error {
            Some(error) if !was_failing => tracing::warn!(
                directory = directory.map(tracing::field::display),
                %error,
                "an index cannot be cached; reads go on without",
            ),
            None if was_failing => tracing::info!(
                directory = directory.map(tracing::field::display),
                "indexes can be cached again",
            ),
            _ => {}
        }
    }

    /// Makes room for what a load brought, and gets it to its place.
    async fn settle(&self, entries: &Arc<Entries>, key: Key, mut load: Load) {
        for _ in 0..ATTEMPTS_TO_SETTLE {
            entries.run_pending_tasks().await;
            if load.try_settle() {
                break;
            }
            tokio::task::yield_now().await;
        }
        if load.unsettled.is_some() {
            entries.invalidate(&key).await;
        }
        let slot = Arc::clone(&load.slot);
        // From here on a removal finds it among the entries.
        drop(load);
        if !Arc::ptr_eq(&self.entries.load_full(), entries) {
            let _one_at_a_time = self.moving.lock().await;
            let resized = self.entries.load_full();
            self.shared.move_to(&resized, key, &slot).await;
        }
        if slot.is_vacated() && is_entry(entries, key, &slot).await {
            entries.invalidate(&key).await;
        }
        self.shared.empty_trash().await;
    }
}

/// A load under way.
struct Load {
    cache: Arc<Inner>,
    slot: Arc<Slot>,
    room: Option<OwnedSemaphorePermit>,
    /// What it brought, once that is in the slot too.
    loaded: Content,
    /// The weight in the cache that it has not yet made room for.
    unsettled: Option<u32>,
}

impl Load {
    fn begin(cache: &Arc<Inner>, key: Key) -> Self {
        let slot = Arc::new(Slot::new(key));
        let mut loading = cache.loading.lock();
        loading
            .entry(key.segment)
            .or_default()
            .push(Arc::clone(&slot));
        drop(loading);
        Self {
            cache: Arc::clone(cache),
            slot,
            room: None,
            loaded: Content::Missing,
            unsettled: None,
        }
    }

    fn try_settle(&mut self) -> bool {
        let usage = self.cache.usage();
        self.unsettled
            .take_if(|weight| usage.try_settle(*weight))
            .is_some()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if let Some(weight) = self.unsettled {
            // Where the runtime shuts down, it did not get among moka's entries.
            self.cache.shared.vacate(&self.slot);
            self.cache.usage().settle(weight);
        }
        let segment = self.slot.key().segment;
        let mut loading = self.cache.loading.lock();
        if let Some(slots) = loading.get_mut(&segment) {
            slots.retain(|slot| !Arc::ptr_eq(slot, &self.slot));
            if slots.is_empty() {
                loading.remove(&segment);
            }
        }
    }
}
