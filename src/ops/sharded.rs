//! State that threads share without waiting for each other's memory.

use std::array;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many parts there are. Threads beyond it share.
const SHARDS: usize = 16;

/// State in parts, one for each thread. Further threads share, so a part is still for several.
#[derive(Debug)]
pub(crate) struct Sharded<T> {
    shards: [Shard<T>; SHARDS],
}

/// Apart from its neighbours by what processors fetch at once (two lines of 64 bytes): a write
/// takes all of that away from other threads.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard<T>(T);

impl<T: Default> Default for Sharded<T> {
    fn default() -> Self {
        Self {
            shards: array::from_fn(|_| Shard::default()),
        }
    }
}

impl<T> Sharded<T> {
    /// The calling thread's part, always the same.
    pub(crate) fn own(&self) -> &T {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static SHARD: usize = THREADS.fetch_add(1, Ordering::Relaxed) % SHARDS;
        }
        &self.shards[SHARD.with(|shard| *shard)].0
    }

    /// Every part.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.shards.iter().map(|shard| &shard.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_part_and_all_parts_are_found() {
        let sharded = Sharded::<AtomicUsize>::default();
        std::thread::scope(|scope| {
            for _ in 0..3 * SHARDS {
                scope.spawn(|| {
                    sharded.own().fetch_add(1, Ordering::Relaxed);
                    sharded.own().fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        let counts: Vec<_> = sharded
            .iter()
            .map(|of| of.load(Ordering::Relaxed))
            .collect();
        assert_eq!(counts.len(), SHARDS);
        assert_eq!(counts.iter().sum::<usize>(), 6 * SHARDS);
        assert!(counts.iter().all(|count| count % 2 == 0), "{counts:?}");
    }
}
