//! The log of metadata events: what the manager needs of it, and what a log promises.

use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::Stream;
use uuid::Uuid;

use super::log_error::MetadataLogError;

/// The topic that holds the metadata of remote segments, as Apache Kafka names it.
pub const METADATA_TOPIC: &str = "__remote_log_metadata";

/// One record of a metadata partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataEventRecord {
    /// The metadata partition.
    pub partition: i32,
    /// The record's offset. Offsets grow strictly, and may leave gaps.
    pub offset: i64,
    /// The record's value; empty for a tombstone.
    pub payload: Bytes,
    /// The record's key; records of `__remote_log_metadata` have none.
    pub key: Option<Bytes>,
    /// Whether the record's value is null.
    pub tombstone: bool,
}

/// A keyed record to be published; see [`MetadataEventLog::publish_keyed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyedEvent {
    /// The record's key.
    pub key: Bytes,
    /// The record's value; `None` is a tombstone.
    pub event: Option<Bytes>,
}

/// Where reading of a metadata partition begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionStart {
    /// The metadata partition.
    pub partition: i32,
    /// The first offset to read, inclusive. A negative one means 0.
    pub start_offset: i64,
}

/// What was read of one metadata partition, in the order of offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataEventPage {
    /// The metadata partition.
    pub partition: i32,
    /// Which assignment of the partition this was read for: the answer of
    /// [`AssignmentHandle::add`].
    pub generation: u64,
    /// The records, which begin at or after the end of the page before. Possibly none.
    pub records: Vec<MetadataEventRecord>,
    /// Where the next page begins: every record below this offset was delivered, or does not
    /// exist. It moves on over markers and over offsets that compaction removed.
    pub next_offset: i64,
}

/// What a subscription delivers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetadataStreamItem {
    /// Records, or progress without records.
    Page(MetadataEventPage),
    /// The position is outside of the log: it was trimmed beyond it, or made again. Nothing more
    /// is delivered for this assignment; the subscriber decides where to go on.
    OutOfRange {
        /// The metadata partition.
        partition: i32,
        /// Which assignment of the partition.
        generation: u64,
        /// The offset that could not be read.
        position: i64,
    },
}

/// What a subscription delivers, over time.
///
/// Per assignment of a partition: the backlog from its start offset, then new records as they
/// come, each record once. There is no order across partitions. Trouble with a connection is the
/// log's own business and does not end the stream: its end means that the log was closed.
pub type MetadataEventStream = Pin<Box<dyn Stream<Item = MetadataStreamItem> + Send + 'static>>;

/// Called with each record of a range; an error ends the visit.
pub type RangeVisitor<'a> =
    dyn FnMut(MetadataEventRecord) -> Result<(), MetadataLogError> + Send + 'a;

/// Changes which partitions a subscription reads.
///
/// No method waits: what was asked for happens soon after. Dropping stream and handle ends the
/// subscription.
pub trait AssignmentHandle: Send + Sync {
    /// Reads this partition from the given offset on, and answers with the number of this
    /// assignment; every assignment of a subscription has another.
    ///
    /// A partition that is assigned already goes on as before, and keeps its number. One outside
    /// of the log is ignored.
    fn add(&self, start: PartitionStart) -> u64;

    /// Reads this partition no longer; does nothing if it is not assigned. Pages that were read
    /// before may still come: their number tells.
    fn remove(&self, partition: i32);

    /// The assigned partitions, ascending.
    fn assigned(&self) -> Vec<i32>;
}

/// A log of metadata events: a fixed number of partitions, each an ordered sequence of records.
///
/// Cloned handles (`Arc`) of one log behave as several brokers at one topic.
///
/// # Cancellation
///
/// Dropping the future of a publish leaves open whether the event is appended. Dropping any other
/// future has no effect.
#[async_trait]
pub trait MetadataEventLog: Send + Sync {
    /// How many metadata partitions there are: constant for the life of the log, above 0.
    fn partition_count(&self) -> i32;

    /// The topic's id, where the log knows it: a topic that was deleted and made again has another.
    fn topic_id(&self) -> Option<Uuid> {
        None
    }

    /// Appends an event, and answers with its offset.
    ///
    /// # Errors
    ///
    /// [`PartitionOutOfRange`](MetadataLogError::PartitionOutOfRange) before any request is made.
    /// After [`OutcomeUnknown`](MetadataLogError::OutcomeUnknown) the event may be in the log, now
    /// or later; after every other error it is not.
    async fn publish(&self, partition: i32, payload: Bytes) -> Result<i64, MetadataLogError>;

    /// Appends a record with a key, and answers with its offset.
    ///
    /// # Errors
    ///
    /// Those of [`publish`](Self::publish).
    async fn publish_keyed(
        &self,
        partition: i32,
        record: KeyedEvent,
    ) -> Result<i64, MetadataLogError>;

    /// Reads partitions from the given offsets on. Partitions outside of the log are ignored.
    ///
    /// # Errors
    ///
    /// [`Closed`](MetadataLogError::Closed), and what keeps the log from reading at all.
    async fn subscribe(
        &self,
        starts: Vec<PartitionStart>,
    ) -> Result<(MetadataEventStream, Arc<dyn AssignmentHandle>), MetadataLogError>;

    /// The first offset that each partition still has, by partition; equal to the high mark where
    /// it has none.
    async fn low_water_marks(&self) -> Result<Vec<i64>, MetadataLogError>;

    /// The offset after the last record of each partition, by partition; 0 for one that was never
    /// written.
    async fn high_water_marks(&self) -> Result<Vec<i64>, MetadataLogError>;

    /// Calls `visitor` with every record of `start..end` of a partition, in order. Holds one page
    /// in memory, and sets no deadline.
    ///
    /// # Errors
    ///
    /// The visitor's own error ends the visit and is returned.
    /// [`OffsetOutOfRange`](MetadataLogError::OffsetOutOfRange) when `start` is not in the log any
    /// more.
    async fn visit_range(
        &self,
        partition: i32,
        start: i64,
        end: i64,
        visitor: &mut RangeVisitor<'_>,
    ) -> Result<(), MetadataLogError>;

    /// Every record of `start..end` of a partition, in order, all in memory.
    ///
    /// # Errors
    ///
    /// Those of [`visit_range`](Self::visit_range).
    async fn read_range(
        &self,
        partition: i32,
        start: i64,
        end: i64,
    ) -> Result<Vec<MetadataEventRecord>, MetadataLogError> {
        let mut records = Vec::new();
        self.visit_range(partition, start, end, &mut |record| {
            records.push(record);
            Ok(())
        })
        .await?;
        Ok(records)
    }
}
