//! What the library takes of memory, by an allocator that counts.
//!
//! The counters are those of the whole process, so each test has a process of its own.
//!
//! Some measure the optimised build alone: `cargo test --release --test memory`.

mod diskless;
#[cfg(not(debug_assertions))]
mod diskless_mutated;
mod index;
mod metadata;
#[cfg(not(debug_assertions))]
mod segments;
#[path = "../support/mod.rs"]
mod support;
mod topic;
#[cfg(not(debug_assertions))]
mod topic_manager;
mod verification;

use krabka_test_allocator::{Counting, Heap};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `work` allocates, without what only its first run does.
fn least(work: impl Fn()) -> Heap {
    let runs = (0..5).map(|_| {
        let start = Heap::start();
        work();
        start.heap()
    });
    runs.min_by_key(|heap| (heap.count, heap.peak)).unwrap()
}

/// Not of memory: its simulation takes more steps in the optimised build.
#[cfg(not(debug_assertions))]
#[path = "../library/topic_manager/mod.rs"]
mod topic_manager_behaviour;
