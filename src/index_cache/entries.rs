//! The entries of a cache, as moka keeps them.
//!
//! moka decides: it lets one load of an index run at a time, keeps the order of use, and chooses
//! what has to go. It is not asked for more than that, for three reasons. Its budget is met only
//! when its pending work is done, so a load does that work before it ends. Its bookkeeping keeps
//! values alive after they have left, so a value is a [`Slot`], from which the content is taken at
//! that moment. And it does pending work in every 64th read, too, with some KiB of memory; so a
//! hit is answered from a table beside it, and a load tells moka what was used since the last one.

use std::collections::HashMap;
use std::sync::Arc;

use moka::future::Cache;
use moka::notification::RemovalCause;
use moka::policy::EvictionPolicy;
use parking_lot::{Mutex, RwLock};

use super::content::{Content, Key, Slot, blocking};
use super::file::IndexFile;
use super::usage::Usage;

pub(super) type Entries = Cache<Key, Arc<Slot>>;

/// What entries need to leave the cache by.
pub(super) struct Shared {
    usage: Usage,
    /// The slots that hold something.
    by_key: RwLock<HashMap<Key, Arc<Slot>>>,
    /// Those that were used and moka has not been told.
    used: Mutex<Vec<Arc<Slot>>>,
    /// Files that have left. Removing them takes a thread that may block.
    trash: Mutex<Vec<Arc<IndexFile>>>,
    keeps_files: bool,
}

impl Shared {
    pub(super) fn new(max_weight: u64, keeps_files: bool) -> Self {
        Self {
            usage: Usage::new(max_weight),
            by_key: RwLock::default(),
            used: Mutex::default(),
            trash: Mutex::default(),
            keeps_files,
        }
    }

    pub(super) fn usage(&self) -> &Usage {
        &self.usage
    }

    /// What the cache has under a key, which is used now.
    pub(super) fn find(&self, key: Key, now: u64) -> Option<Content> {
        let by_key = self.by_key.read();
        let slot = by_key.get(&key)?;
        let content = slot.content()?;
        slot.touch(now);
        if !slot.note(true) {
            self.used.lock().push(Arc::clone(slot));
        }
        Some(content)
    }

    /// Whether there is something under a key, without using it.
    #[cfg(test)]
    pub(super) fn holds(&self, key: Key) -> bool {
        self.by_key.read().contains_key(&key)
    }

    /// Tells moka what was used, in that order, before it has to choose what goes.
    pub(super) async fn tell_of_use(&self, entries: &Entries) {
        let mut used = std::mem::take(&mut *self.used.lock());
        used.sort_by_key(|slot| slot.last_used());
        for slot in used {
            slot.note(false);
            entries.get(&slot.key()).await;
        }
    }

    /// Puts a loaded content into its slot, and the slot where it is found. `false` when the slot
    /// was vacated meanwhile.
    pub(super) fn enter(&self, slot: &Arc<Slot>, content: Content) -> bool {
        let is_filled = slot.fill(content, |content| {
            self.usage.admit(content);
            if let Content::File(file) = content {
                file.set_kept(self.keeps_files);
            }
        });
        if is_filled {
            self.publish(slot);
        }
        is_filled
    }

    fn publish(&self, slot: &Arc<Slot>) {
        self.by_key.write().insert(slot.key(), Arc::clone(slot));
        if slot.is_vacated() {
            self.forget(slot);
        }
    }

    fn forget(&self, slot: &Slot) {
        let mut by_key = self.by_key.write();
        let is_it = |held: &Arc<Slot>| std::ptr::eq(Arc::as_ptr(held), slot);
        if by_key.get(&slot.key()).is_some_and(is_it) {
            by_key.remove(&slot.key());
        }
    }

    /// Takes what the slot holds out of the cache. `false` when somebody else has done so.
    pub(super) fn vacate(&self, slot: &Slot) -> bool {
        let Some(content) = slot.vacate() else {
            return false;
        };
        self.forget(slot);
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
        self.forget(slot);
        let weight = content.weight().map_or(u64::MAX, u64::from);
        if weight > self.usage.held().max_weight {
            self.usage.release(&content);
            self.usage.eviction(key.index);
            return self.throw_away(content);
        }
        let moved = Arc::new(Slot::new(key));
        moved.touch(last_used);
        moved.fill(content, |_| {});
        let entry = entries.entry(key).or_insert(Arc::clone(&moved)).await;
        if Arc::ptr_eq(entry.value(), &moved) {
            self.publish(&moved);
        } else {
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
