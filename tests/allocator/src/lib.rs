//! An allocator that counts: what is live, the peak, how many allocations, of how much, and the largest.
//!
//! A crate of its own, because an allocator needs `unsafe`, which the library forbids. Counters are
//! global: a test that reads them runs alone in its process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The system's allocator with counters. Install it with `#[global_allocator]`.
#[derive(Debug)]
pub struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static COUNT: AtomicUsize = AtomicUsize::new(0);
static TOTAL: AtomicUsize = AtomicUsize::new(0);
static LARGEST: AtomicUsize = AtomicUsize::new(0);

fn grown(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Relaxed) + bytes;
    PEAK.fetch_max(live, Relaxed);
    COUNT.fetch_add(1, Relaxed);
    TOTAL.fetch_add(bytes, Relaxed);
    LARGEST.fetch_max(bytes, Relaxed);
}

// SAFETY: every call is the system allocator's own; the counters touch no memory of its.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // As if both were there for a moment, which they may be.
        grown(new_size);
        LIVE.fetch_sub(layout.size(), Relaxed);
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

/// What happened since [`Heap::start`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heap {
    /// Bytes that are live now and were not before.
    pub live: isize,
    /// The most bytes that were live at once, beyond those that were live before.
    pub peak: usize,
    /// How many allocations and reallocations were made.
    pub count: usize,
    /// All that they asked for, in bytes.
    pub total: usize,
    /// The largest of them, in bytes.
    pub largest: usize,
}

/// Counts from here on.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    live: usize,
    count: usize,
    total: usize,
}

impl Heap {
    /// Bytes that are live in the process.
    #[must_use]
    pub fn live() -> usize {
        LIVE.load(Relaxed)
    }

    /// Begins to count.
    #[must_use]
    pub fn start() -> Start {
        let live = LIVE.load(Relaxed);
        PEAK.store(live, Relaxed);
        LARGEST.store(0, Relaxed);
        Start {
            live,
            count: COUNT.load(Relaxed),
            total: TOTAL.load(Relaxed),
        }
    }
}

impl Start {
    /// What happened since.
    #[must_use]
    pub fn heap(self) -> Heap {
        Heap {
            live: LIVE.load(Relaxed).cast_signed() - self.live.cast_signed(),
            peak: PEAK.load(Relaxed).saturating_sub(self.live),
            count: COUNT.load(Relaxed) - self.count,
            total: TOTAL.load(Relaxed) - self.total,
            largest: LARGEST.load(Relaxed),
        }
    }
}
