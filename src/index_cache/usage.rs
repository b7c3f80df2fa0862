//! What a cache holds, and what became of the calls.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::content::Content;
use super::metrics;
use crate::model::IndexType;
use crate::ops::Sharded;

/// What an index cache holds, and what it has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexCacheStats {
    /// Calls that were answered without a load of their own: from the cache, or by the load of
    /// another call.
    pub hits: u64,
    /// Loads that were begun, also those that failed.
    pub misses: u64,
    /// Entries that made room for others, or that nobody had used for the time to idle. Removals
    /// are no evictions.
    pub evictions: u64,
    /// Indexes held now.
    pub entries: u64,
    /// Their size in bytes.
    pub bytes: u64,
}

/// The counters of one cache.
#[derive(Debug)]
pub(super) struct Usage {
    hits: Sharded<AtomicU64>,
    misses: AtomicU64,
    evictions: AtomicU64,
    held: Mutex<Held>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) max_weight: u64,
    pub(super) entries: u64,
    pub(super) bytes: u64,
    pub(super) weight: u64,
    /// How much of the weight belongs to loads that have not yet made room for what they brought.
    pub(super) unsettled: u64,
}

impl Usage {
    pub(super) fn new(max_weight: u64) -> Self {
        Self {
            hits: Sharded::default(),
            misses: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            held: Mutex::new(Held {
                max_weight,
                entries: 0,
                bytes: 0,
                weight: 0,
                unsettled: 0,
            }),
        }
    }

    pub(super) fn hit(&self, index: IndexType) {
        self.hits.own().fetch_add(1, Ordering::Relaxed);
        metrics::hits(index).increment(1);
    }

    pub(super) fn miss(&self, index: IndexType) {
        self.misses.fetch_add(1, Ordering::Relaxed);
        metrics::misses(index).increment(1);
    }

    pub(super) fn eviction(&self, index: IndexType) {
        self.evictions.fetch_add(1, Ordering::Relaxed);
        metrics::evictions(index).increment(1);
    }

    pub(super) fn stats(&self) -> IndexCacheStats {
        let held = self.held();
        IndexCacheStats {
            hits: self.hits.iter().map(|of| of.load(Ordering::Relaxed)).sum(),
            misses: self.misses.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
            entries: held.entries,
            bytes: held.bytes,
        }
    }

    pub(super) fn held(&self) -> Held {
        *self.held.lock()
    }

    pub(super) fn set_max_weight(&self, max_weight: u64) {
        self.held.lock().max_weight = max_weight;
    }

    /// Counts a content that enters the cache, and leaves it unsettled.
    pub(super) fn admit(&self, content: &Content) {
        let weight = weight(content);
        self.change(|held| {
            held.entries += 1;
            held.bytes += content.len() as u64;
            held.weight += weight;
            held.unsettled += weight;
        });
    }

    /// Counts a content that has left the cache.
    pub(super) fn release(&self, content: &Content) {
        let weight = weight(content);
        self.change(|held| {
            held.entries -= 1;
            held.bytes -= content.len() as u64;
            held.weight -= weight;
        });
    }

    /// Settles a load of this weight if the cache keeps to its budget without it.
    pub(super) fn try_settle(&self, weight: u32) -> bool {
        let mut held = self.held.lock();
        let left = held.unsettled - u64::from(weight);
        let fits = held.weight <= held.max_weight.saturating_add(left);
        if fits {
            held.unsettled = left;
        }
        fits
    }

    /// Settles a load whose content is not in the cache.
    pub(super) fn settle(&self, weight: u32) {
        self.held.lock().unsettled -= u64::from(weight);
    }

    fn change(&self, change: impl FnOnce(&mut Held)) {
        let mut held = self.held.lock();
        change(&mut held);
        // With the lock held, so that an old value never overwrites a newer one.
        #[allow(clippy::cast_precision_loss)] // Exact up to 2^53 bytes.
        {
            metrics::entries().set(held.entries as f64);
            metrics::bytes().set(held.bytes as f64);
        }
    }
}

fn weight(content: &Content) -> u64 {
    content.weight().unwrap_or(u32::MAX).into()
}
