//! The entries of a cache, as moka keeps them.
//!
//! moka decides: it lets one load of an index run at a time, keeps the order of use, and chooses
//! what has to go. It is not asked for more than that, for two reasons. Its budget is met only
//! when its pending work is done, so a load does that work before it ends. And its bookkeeping
//! keeps values alive after they have left, so a value is a [`Slot`], from which the content is
//! taken at that moment.

use std::sync::Arc;

use moka::future::Cache;
use moka::notification::RemovalCause;
use moka::policy::EvictionPolicy;
use parking_lot::Mutex;

use super::content::{Content, Key, Slot, blocking};
use super::file::IndexFile;
use super::usage::Usage;

pub(super) type Entries = Cache<Key, Arc<Slot>>;

/// What entries need to leave the cache by.
pub(super) struct Shared {
    usage: Usage,
    /// Files that have left. Removing them takes a thread that may block.
    trash: Mutex<Vec<Arc<IndexFile>>>,
    keeps_files: bool,
}

impl Shared {
    pub(super) fn new(max_weight: u64, keeps_files: bool) -> Self {
        Self {
            usage: Usage::new(max_weight),
            trash: Mutex::default(),
            keeps_files,
        }
    }

    pub(super) fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Counts what is about to enter the cache.
    pub(super) fn admit(&self, content: &Content) {
        self.usage.admit(content);
        if let Content::File(file) = content {
            file.set_kept(self.keeps_files);
        }
    }

    /// Takes what the slot holds out of the cache. `false` when somebody else has done so.
    pub(super) fn vacate(&self, slot: &Slot) -> bool {
        let Some(content) = slot.vacate() else {
            return false;
        };
        self.usage.release(&content);
        self.throw_away(content);
        true
    }

    fn throw_away(&self, content: Content) {
        if let Content::File(file) = content {
            file.set_kept(false);
            self.trash.lock().push(file);
        }
    }

    /// Drops the files that have left the cache, which removes those that nobody reads any more.
    pub(super) async fn empty_trash(&self) {
        let trash = std::mem::take(&mut *self.trash.lock());
        if !trash.is_empty() {
            let _ = blocking(move || {
                drop(trash);
                Ok(())
            })
            .await;
        }
    }

    /// Moves what the slot holds into another cache, in a slot of its own, unless the other cache
    /// has such an entry or does not keep it.
    pub(super) async fn move_to(&self, entries: &Entries, key: Key, slot: &Slot) {
        let last_used = slot.last_used();
        let Some(content) = slot.vacate() else { return };
        let weight = content.weight().map_or(u64::MAX, u64::from);
        if weight > self.usage.held().max_weight {
            self.usage.release(&content);
            self.usage.eviction(key.index);
            return self.throw_away(content);
        }
        let moved = Arc::new(Slot::new());
        moved.touch(last_used);
        moved.fill(content, |_| {});
        let entry = entries.entry(key).or_insert(Arc::clone(&moved)).await;
        if !Arc::ptr_eq(entry.value(), &moved) {
            self.vacate(&moved);
        }
        entries.run_pending_tasks().await;
    }
}

pub(super) fn new_entries(max_weight: u64, shared: &Arc<Shared>) -> Entries {
    let shared = Arc::clone(shared);
    Cache::builder()
        .max_capacity(max_weight)
        .weigher(|_, slot: &Arc<Slot>| slot.weight())
        // Not the default, which may refuse a new entry in favour of an old one.
        .eviction_policy(EvictionPolicy::lru())
        .eviction_listener(move |key: Arc<Key>, slot: Arc<Slot>, cause| {
            if shared.vacate(&slot) && cause == RemovalCause::Size {
                shared.usage.eviction(key.index);
            }
        })
        .build()
}

pub(super) async fn is_entry(entries: &Entries, key: Key, slot: &Arc<Slot>) -> bool {
    let current = entries.get(&key).await;
    current.is_some_and(|current| Arc::ptr_eq(&current, slot))
}
