//! The cache of indexes: its files, its memory, and what is found in it.
//!
//! Offset, time and transaction indexes are kept, whole, in files or in memory, up to a budget in
//! bytes; those that were used least recently go first. However many calls ask for one index at
//! once, one of them loads it; a failed load answers them all and is not kept. The two other kinds
//! pass through.
//!
//! Trouble with the disk never fails a call: what cannot be written is not kept, and what cannot be
//! read back, or has changed since it was written, is fetched again.
//!
//! A load runs in a task of its own. A dropped call gives up its wait; the load goes on for those
//! that still wait, or for the next.
//!
//! Sources: Apache Kafka's `RemoteIndexCache`, and its issues KAFKA-14522, KAFKA-15084 (no lock
//! around loads), KAFKA-14912, KAFKA-15536 (a budget in bytes), KAFKA-14993 (no transaction index),
//! KAFKA-15169, KAFKA-15511, KAFKA-15401, KAFKA-15609 (corrupt files), KAFKA-15400, KAFKA-15481,
//! KAFKA-17184 (removal against readers and loads), KAFKA-19970 (idle files).

mod cache;
mod config;
mod content;
mod directory;
mod entries;
mod file;
mod handle;
mod inner;
mod load;
mod metrics;
#[cfg(test)]
pub(crate) mod tests;
mod usage;
mod wanted;

pub use cache::RemoteIndexCache;
pub use config::{DEFAULT_INDEX_CACHE_TOTAL_SIZE_BYTES, IndexCacheConfig};
pub use content::IndexCacheOutcome;
pub use handle::IndexHandle;
pub(crate) use metrics::describe_metrics;
pub use usage::IndexCacheStats;
