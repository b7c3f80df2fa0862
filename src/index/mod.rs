//! Kafka's log and index formats, read byte for byte.
//!
//! Everything here works on bytes that the caller already has: nothing does I/O. Parsers and
//! searches borrow their input. No input makes them panic, loop without end, or allocate from a
//! size that the input only declares; bytes that no Kafka wrote are an
//! [`Io`](crate::RemoteStorageError::Io) error of kind `InvalidData`, which is
//! [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt).
//!
//! Sources: Apache Kafka's `DefaultRecordBatch`, `DefaultRecord`, `LegacyRecord`,
//! `RemoteLogInputStream`, `OffsetIndex`, `TimeIndex`, `TransactionIndex`, `CheckpointFile`,
//! `ProducerStateManager`; KIP-98 (record batches, transactions), KIP-101 (leader epochs), KIP-405
//! (what of these lies in a tier).

mod batch;
mod checkpoint;
mod compression;
mod control;
mod corrupt;
mod cursor;
#[cfg(test)]
mod golden;
mod header;
mod offset;
mod producer_snapshot;
mod record;
mod scan;
mod search;
mod time;
mod txn;

pub use batch::{Batch, BatchPrefix, Batches};
pub use checkpoint::{EpochEntry, LeaderEpochCheckpoint};
pub use compression::{CompressionType, DEFAULT_MAX_DECOMPRESSED_BYTES};
pub use control::{ControlRecordType, EndTransactionMarker};
pub use corrupt::corrupt_log;
pub use header::{BatchHeader, TimestampType};
pub use offset::{
    OffsetIndex, OffsetIndexEntry, OffsetPosition, OffsetRange, lookup_offset, lookup_offset_range,
    lookup_upper_bound_offset, parse_offset_index, position_for_relative_offset,
    search_offset_index,
};
pub use producer_snapshot::{ProducerSnapshot, ProducerSnapshotEntry};
pub use record::{Header, Headers, Record, RecordBatch, Records, RecordsIter};
pub use scan::{
    end_position_for, first_batch_at_or_after, first_record_at_or_after_timestamp,
    first_record_at_or_after_timestamp_within,
};
pub use time::{
    TimeIndex, TimeIndexEntry, TimestampOffset, lookup_scan_start, parse_time_index,
    relative_offset_floor_for_timestamp, search_time_index,
};
pub use txn::{
    AbortedTxnIndexEntry, TxnIndex, TxnIndexSearchResult, collect_aborted_txns, parse_txn_index,
    sanity_check_txn_index, search_txn_index, txn_overlaps,
};

/// An offset in a partition's log.
pub type LogOffset = i64;

/// Milliseconds since 1970-01-01 UTC; −1 when unknown.
pub type TimestampMs = i64;

/// An offset less the start offset of its segment, as indexes store it. Kafka reads it as signed, so in
/// a file that Kafka can use it is at most `i32::MAX`.
pub type RelativeOffset = u32;

/// A position in a segment's log, in bytes from its start. Segments are below 2 GiB.
pub type BytePosition = u32;
