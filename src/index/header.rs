//! The fixed part of a record batch of magic 2.

use std::fmt;

use zerocopy::big_endian::{I16, I32, I64, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::batch::last_offset;
use super::compression::CompressionType;
use super::corrupt::corrupt_log;
use super::{LogOffset, TimestampMs};
use crate::error::RemoteStorageError;

/// The 61 bytes before a batch's records, read in place (Kafka's `DefaultRecordBatch`).
///
/// The values are those of the bytes; nothing is checked but the magic. `base_offset` and
/// `partition_leader_epoch` lie outside the checksum: a broker rewrites them.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BatchHeader {
    base_offset: I64,
    batch_length: I32,
    partition_leader_epoch: I32,
    magic: i8,
    crc: U32,
    attributes: I16,
    last_offset_delta: I32,
    base_timestamp: I64,
    max_timestamp: I64,
    producer_id: I64,
    producer_epoch: I16,
    base_sequence: I32,
    records_count: I32,
}

/// What a batch's timestamps tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimestampType {
    /// When the producer made the record.
    CreateTime,
    /// When the broker appended the batch: one time for all of its records.
    LogAppendTime,
}

impl TimestampType {
    /// Kafka's name: `CreateTime` or `LogAppendTime`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CreateTime => "CreateTime",
            Self::LogAppendTime => "LogAppendTime",
        }
    }
}

impl fmt::Display for TimestampType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl BatchHeader {
    /// Bytes of a header: where the records begin.
    pub const SIZE: usize = size_of::<Self>();

    /// The offset of the batch's first record, or where that record was before compaction.
    pub fn base_offset(&self) -> LogOffset {
        self.base_offset.get()
    }

    /// The offset of the batch's last record, even if compaction has removed that record.
    ///
    /// # Errors
    ///
    /// The log is corrupt: no offset is that large.
    pub fn last_offset(&self) -> Result<LogOffset, RemoteStorageError> {
        last_offset(self.base_offset(), self.last_offset_delta())
    }

    /// [`last_offset`](Self::last_offset) less [`base_offset`](Self::base_offset).
    pub fn last_offset_delta(&self) -> i32 {
        self.last_offset_delta.get()
    }

    /// The epoch of the leader that appended the batch; −1 when unknown.
    pub fn partition_leader_epoch(&self) -> i32 {
        self.partition_leader_epoch.get()
    }

    /// The declared CRC-32C of everything from the attributes on.
    pub fn crc(&self) -> u32 {
        self.crc.get()
    }

    /// The attributes as they stand. Kafka uses the low eight bits.
    pub fn attributes(&self) -> i16 {
        self.attributes.get()
    }

    /// How the records are compressed.
    ///
    /// # Errors
    ///
    /// The log is corrupt: no codec has this number.
    pub fn compression_type(&self) -> Result<CompressionType, RemoteStorageError> {
        CompressionType::of_attributes(self.attributes()).ok_or_else(|| {
            corrupt_log(format_args!(
                "batch at offset {} has unknown compression type {}",
                self.base_offset,
                self.attributes() & 0b111
            ))
        })
    }

    /// What the timestamps tell.
    pub fn timestamp_type(&self) -> TimestampType {
        if self.has(1 << 3) {
            TimestampType::LogAppendTime
        } else {
            TimestampType::CreateTime
        }
    }

    /// Whether the batch is part of a transaction. End-transaction markers are, too.
    pub fn is_transactional(&self) -> bool {
        self.has(1 << 4)
    }

    /// Whether the batch holds control records, which applications never see.
    pub fn is_control(&self) -> bool {
        self.has(1 << 5)
    }

    /// The time from which compaction may drop the batch's tombstones or its marker, where
    /// compaction has set one. Record timestamps are deltas to it all the same.
    pub fn delete_horizon_ms(&self) -> Option<TimestampMs> {
        self.has(1 << 6).then(|| self.base_timestamp.get())
    }

    /// What the records' timestamps are deltas to; −1 in an empty batch.
    pub fn base_timestamp(&self) -> TimestampMs {
        self.base_timestamp.get()
    }

    /// The largest timestamp of the batch's records, also of those that compaction removed.
    /// −1 means unknown, not "older than everything".
    pub fn max_timestamp(&self) -> TimestampMs {
        self.max_timestamp.get()
    }

    /// The id of the idempotent or transactional producer; −1 when there is none.
    pub fn producer_id(&self) -> i64 {
        self.producer_id.get()
    }

    /// The epoch of that producer; −1 when there is none.
    pub fn producer_epoch(&self) -> i16 {
        self.producer_epoch.get()
    }

    /// The sequence number of the first record; −1 when there is none.
    pub fn base_sequence(&self) -> i32 {
        self.base_sequence.get()
    }

    /// How many records follow. Never compressed; 0 in a batch that compaction has emptied.
    pub fn records_count(&self) -> i32 {
        self.records_count.get()
    }

    fn has(&self, bit: i16) -> bool {
        self.attributes.get() & bit != 0
    }
}

impl fmt::Debug for BatchHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchHeader")
            .field("base_offset", &self.base_offset.get())
            .field("batch_length", &self.batch_length.get())
            .field("partition_leader_epoch", &self.partition_leader_epoch.get())
            .field("magic", &self.magic)
            .field("crc", &format_args!("{:08x}", self.crc.get()))
            .field("attributes", &format_args!("{:#x}", self.attributes.get()))
            .field("last_offset_delta", &self.last_offset_delta.get())
            .field("base_timestamp", &self.base_timestamp.get())
            .field("max_timestamp", &self.max_timestamp.get())
            .field("producer_id", &self.producer_id.get())
            .field("producer_epoch", &self.producer_epoch.get())
            .field("base_sequence", &self.base_sequence.get())
            .field("records_count", &self.records_count.get())
            .finish()
    }
}
