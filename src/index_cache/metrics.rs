//! What the cache counts, through the `metrics` facade; the table is in
//! [`layers::metrics`](crate::layers::metrics).

use metrics::{Counter, Gauge, Unit, counter, gauge};

use crate::model::IndexType;

const HITS_TOTAL: &str = "krabka_remote_storage_index_cache_hits_total";
const MISSES_TOTAL: &str = "krabka_remote_storage_index_cache_misses_total";
const EVICTIONS_TOTAL: &str = "krabka_remote_storage_index_cache_evictions_total";
const DISK_ERRORS_TOTAL: &str = "krabka_remote_storage_index_cache_disk_errors_total";
const ENTRIES: &str = "krabka_remote_storage_index_cache_entries";
const BYTES: &str = "krabka_remote_storage_index_cache_bytes";

/// Tells the recorder the unit and the meaning of each metric of the cache.
pub(crate) fn describe_metrics() {
    metrics::describe_counter!(
        HITS_TOTAL,
        Unit::Count,
        "Indexes that were asked for and needed no load of their own."
    );
    metrics::describe_counter!(
        MISSES_TOTAL,
        Unit::Count,
        "Loads of indexes that were begun."
    );
    metrics::describe_counter!(
        EVICTIONS_TOTAL,
        Unit::Count,
        "Cached indexes that made room for others, or that nobody asked for any more."
    );
    metrics::describe_counter!(
        DISK_ERRORS_TOTAL,
        Unit::Count,
        "Indexes that could not be written to the cache's directory, or not be read back."
    );
    metrics::describe_gauge!(ENTRIES, Unit::Count, "Indexes in the cache.");
    metrics::describe_gauge!(BYTES, Unit::Bytes, "Size of the indexes in the cache.");
}

/// A counter of one kind of index. With literals `counter!` makes its key once.
macro_rules! counter_by_index {
    ($name:ident, $index:expr) => {
        match $index {
            IndexType::Offset => counter!($name, "index" => "offset"),
            IndexType::Timestamp => counter!($name, "index" => "timestamp"),
            IndexType::ProducerSnapshot => counter!($name, "index" => "producer_snapshot"),
            IndexType::LeaderEpoch => counter!($name, "index" => "leader_epoch"),
            IndexType::Transaction => counter!($name, "index" => "transaction"),
        }
    };
}

pub(super) fn hits(index: IndexType) -> Counter {
    counter_by_index!(HITS_TOTAL, index)
}

pub(super) fn misses(index: IndexType) -> Counter {
    counter_by_index!(MISSES_TOTAL, index)
}

pub(super) fn evictions(index: IndexType) -> Counter {
    counter_by_index!(EVICTIONS_TOTAL, index)
}

pub(super) fn disk_errors() -> Counter {
    counter!(DISK_ERRORS_TOTAL)
}

pub(super) fn entries() -> Gauge {
    gauge!(ENTRIES)
}

pub(super) fn bytes() -> Gauge {
    gauge!(BYTES)
}
