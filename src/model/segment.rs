//! The metadata of one remote segment, and the events that change it.

use std::collections::BTreeMap;
use std::fmt;

use super::{LeaderEpoch, RemoteLogSegmentId, RemoteLogSegmentState};
use crate::error::RemoteStorageError;

/// Bytes that a copy hands to the metadata store, which gives them back on every later call.
///
/// Their meaning is the storage manager's own. `Debug` shows their number only. Apache Kafka's
/// broker takes at most `remote.log.metadata.custom.metadata.max.bytes` (128 by default).
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct CustomMetadata(pub Vec<u8>);

impl fmt::Debug for CustomMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CustomMetadata({} bytes)", self.0.len())
    }
}

/// The part of a segment's metadata that [`RemoteLogSegmentMetadata::new`] takes together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteLogSegmentDetails {
    /// Length of the `.log` in bytes.
    pub segment_size_in_bytes: i32,
    /// The segment's state.
    pub state: RemoteLogSegmentState,
    /// For each leader epoch of the segment, the first offset of that epoch inside it.
    pub segment_leader_epochs: BTreeMap<LeaderEpoch, i64>,
}

impl RemoteLogSegmentDetails {
    /// Bundles the three values; [`RemoteLogSegmentMetadata::new`] checks them.
    pub fn new(
        segment_size_in_bytes: i32,
        state: RemoteLogSegmentState,
        segment_leader_epochs: BTreeMap<LeaderEpoch, i64>,
    ) -> Self {
        Self {
            segment_size_in_bytes,
            state,
            segment_leader_epochs,
        }
    }
}

/// What is known of one remote segment (Kafka's `RemoteLogSegmentMetadata`).
///
/// Offsets are inclusive at both ends. Every value satisfies the checks of
/// [`RemoteLogSegmentMetadata::new`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteLogSegmentMetadata {
    remote_log_segment_id: RemoteLogSegmentId,
    start_offset: i64,
    end_offset: i64,
    max_timestamp_ms: i64,
    broker_id: i32,
    event_timestamp_ms: i64,
    segment_size_in_bytes: i32,
    custom_metadata: Option<CustomMetadata>,
    state: RemoteLogSegmentState,
    segment_leader_epochs: BTreeMap<LeaderEpoch, i64>,
    txn_index_empty: bool,
}

impl RemoteLogSegmentMetadata {
    /// Describes a segment that holds the offsets `start_offset..=end_offset`.
    ///
    /// `end_offset` may exceed the last stored record: a leader sets it to the offset before the
    /// next segment. `max_timestamp_ms` is the highest record timestamp, −1 when there is none.
    /// The value starts without custom metadata and with `txn_index_empty == false`.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument) when `start_offset` or the size is
    /// negative, when the end lies before the start, or when no leader epoch is given. Epoch
    /// offsets outside the segment are accepted, as Kafka does; such an epoch is never readable.
    pub fn new(
        remote_log_segment_id: RemoteLogSegmentId,
        start_offset: i64,
        end_offset: i64,
        max_timestamp_ms: i64,
        broker_id: i32,
        event_timestamp_ms: i64,
        details: RemoteLogSegmentDetails,
    ) -> Result<Self, RemoteStorageError> {
        let metadata = Self {
            remote_log_segment_id,
            start_offset,
            end_offset,
            max_timestamp_ms,
            broker_id,
            event_timestamp_ms,
            segment_size_in_bytes: details.segment_size_in_bytes,
            custom_metadata: None,
            state: details.state,
            segment_leader_epochs: details.segment_leader_epochs,
            txn_index_empty: false,
        };
        metadata.check()?;
        Ok(metadata)
    }

    fn check(&self) -> Result<(), RemoteStorageError> {
        let problem = if self.start_offset < 0 {
            // A negative base offset would render a file name that no parser accepts.
            format!("start offset {} is negative", self.start_offset)
        } else if self.end_offset < self.start_offset {
            format!(
                "end offset {} is below start offset {}",
                self.end_offset, self.start_offset
            )
        } else if self.segment_size_in_bytes < 0 {
            format!("size of {} bytes is negative", self.segment_size_in_bytes)
        } else if self.segment_leader_epochs.is_empty() {
            "no leader epoch is given".to_owned()
        } else {
            return Ok(());
        };
        Err(RemoteStorageError::InvalidArgument(format!(
            "segment {}: {problem}",
            self.remote_log_segment_id
        )))
    }

    /// The same segment with this custom metadata.
    #[must_use]
    pub fn with_custom_metadata(mut self, custom_metadata: CustomMetadata) -> Self {
        self.custom_metadata = Some(custom_metadata);
        self
    }

    /// The same segment, marked as having (`false`) or not having (`true`) aborted transactions
    /// in its transaction index.
    #[must_use]
    pub fn with_txn_index_empty(mut self, txn_index_empty: bool) -> Self {
        self.txn_index_empty = txn_index_empty;
        self
    }

    /// The segment after `update`, which replaces state, event timestamp and broker id.
    ///
    /// Custom metadata is replaced only when the update carries some, so that a receipt survives
    /// the events of a deletion. Apache Kafka clears it in that case; its own brokers always
    /// repeat the stored value, so the two rules agree on what they write.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument) when the update names another
    /// segment, [`InvalidSegmentTransition`](RemoteStorageError::InvalidSegmentTransition) when
    /// the state may not follow.
    pub fn with_update(
        &self,
        update: &RemoteLogSegmentMetadataUpdate,
    ) -> Result<Self, RemoteStorageError> {
        if update.remote_log_segment_id != self.remote_log_segment_id {
            return Err(RemoteStorageError::InvalidArgument(format!(
                "an update of segment {} cannot change segment {}",
                update.remote_log_segment_id, self.remote_log_segment_id
            )));
        }
        if !self.state.is_valid_transition(update.state) {
            return Err(RemoteStorageError::InvalidSegmentTransition {
                id: self.remote_log_segment_id.clone(),
                from: self.state,
                to: update.state,
            });
        }
        let mut updated = self.clone();
        updated.state = update.state;
        updated.event_timestamp_ms = update.event_timestamp_ms;
        updated.broker_id = update.broker_id;
        if let Some(custom_metadata) = &update.custom_metadata {
            updated.custom_metadata = Some(custom_metadata.clone());
        }
        Ok(updated)
    }

    /// The segment's id, unique to the copy attempt.
    pub fn remote_log_segment_id(&self) -> &RemoteLogSegmentId {
        &self.remote_log_segment_id
    }

    /// The partition that the segment belongs to.
    pub fn topic_id_partition(&self) -> &super::TopicIdPartition {
        &self.remote_log_segment_id.topic_id_partition
    }

    /// First offset, inclusive.
    pub fn start_offset(&self) -> i64 {
        self.start_offset
    }

    /// Last offset, inclusive; it may exceed the last stored record.
    pub fn end_offset(&self) -> i64 {
        self.end_offset
    }

    /// Highest record timestamp in milliseconds since 1970-01-01 UTC; −1 when unknown.
    pub fn max_timestamp_ms(&self) -> i64 {
        self.max_timestamp_ms
    }

    /// The broker that made the latest event.
    pub fn broker_id(&self) -> i32 {
        self.broker_id
    }

    /// When the latest event was made, in milliseconds since 1970-01-01 UTC.
    pub fn event_timestamp_ms(&self) -> i64 {
        self.event_timestamp_ms
    }

    /// Length of the `.log` in bytes, as the copying broker stated it.
    pub fn segment_size_in_bytes(&self) -> i32 {
        self.segment_size_in_bytes
    }

    /// What the copy returned for safe-keeping.
    pub fn custom_metadata(&self) -> Option<&CustomMetadata> {
        self.custom_metadata.as_ref()
    }

    /// The segment's state.
    pub fn state(&self) -> RemoteLogSegmentState {
        self.state
    }

    /// For each leader epoch of the segment, the first offset of that epoch inside it.
    pub fn segment_leader_epochs(&self) -> &BTreeMap<LeaderEpoch, i64> {
        &self.segment_leader_epochs
    }

    /// Whether the segment is known to have no aborted transactions (Kafka's `isTxnIdxEmpty`).
    pub fn txn_index_empty(&self) -> bool {
        self.txn_index_empty
    }
}

/// An event that changes a segment's metadata (Kafka's `RemoteLogSegmentMetadataUpdate`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteLogSegmentMetadataUpdate {
    /// The segment that changes.
    pub remote_log_segment_id: RemoteLogSegmentId,
    /// When the event was made, in milliseconds since 1970-01-01 UTC.
    pub event_timestamp_ms: i64,
    /// New custom metadata; `None` keeps what is stored.
    pub custom_metadata: Option<CustomMetadata>,
    /// The new state.
    pub state: RemoteLogSegmentState,
    /// The broker that made the event.
    pub broker_id: i32,
}

impl RemoteLogSegmentMetadataUpdate {
    /// Makes the event that the segment is now in `state`.
    pub fn new(
        remote_log_segment_id: RemoteLogSegmentId,
        event_timestamp_ms: i64,
        custom_metadata: Option<CustomMetadata>,
        state: RemoteLogSegmentState,
        broker_id: i32,
    ) -> Self {
        Self {
            remote_log_segment_id,
            event_timestamp_ms,
            custom_metadata,
            state,
            broker_id,
        }
    }
}
