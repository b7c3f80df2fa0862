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
mod compression;
mod control;
mod corrupt;
mod cursor;
mod header;
mod record;

pub use batch::{Batch, BatchPrefix, Batches};
pub use compression::{CompressionType, DEFAULT_MAX_DECOMPRESSED_BYTES};
pub use control::{ControlRecordType, EndTransactionMarker};
pub use corrupt::corrupt_log;
pub use header::{BatchHeader, TimestampType};
pub use record::{Header, Headers, Record, RecordBatch, Records, RecordsIter};

/// An offset in a partition's log.
pub type LogOffset = i64;

/// Milliseconds since 1970-01-01 UTC; −1 when unknown.
pub type TimestampMs = i64;
