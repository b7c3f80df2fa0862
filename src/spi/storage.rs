//! Where segments are kept.

use crate::error::RemoteStorageError;
use crate::model::{CustomMetadata, IndexType, LogSegmentData, RemoteLogSegmentMetadata};

/// Copies closed segments to a remote tier, reads and deletes them there (Kafka's
/// `RemoteStorageManager`, KIP-405).
///
/// Every method blocks until it is done. For one segment id the caller orders copies and deletions
/// by the states of its metadata; calls about different ids never interfere. A read that races
/// a deletion ends with [`SegmentNotFound`](RemoteStorageError::SegmentNotFound).
pub trait RemoteStorageManager: Send + Sync {
    /// Copies a closed segment and its indexes, and returns what is to be stored with its
    /// metadata.
    ///
    /// When this returns `Ok`, every object of the segment is durable. Repeating the call with the
    /// same id overwrites and succeeds.
    ///
    /// # Errors
    ///
    /// [`Io`](RemoteStorageError::Io) when a file of `segment_data` cannot be read, otherwise the
    /// store's failure. Nothing is promised then about what was written: the caller deletes the
    /// segment and copies it again under a new id.
    fn copy_log_segment_data(
        &self,
        metadata: &RemoteLogSegmentMetadata,
        segment_data: &LogSegmentData,
    ) -> Result<Option<CustomMetadata>, RemoteStorageError>;

    /// Reads the bytes `start_position..=end_position` of the segment's `.log`.
    ///
    /// Both ends are byte positions and inclusive; without an end, and with an end beyond the
    /// last byte, the answer ends with the log. A start at the log's length gives no bytes.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument) when the end lies before the
    /// start, or the start beyond the log's length;
    /// [`SegmentNotFound`](RemoteStorageError::SegmentNotFound) when the tier has no such log.
    fn fetch_log_segment(
        &self,
        metadata: &RemoteLogSegmentMetadata,
        start_position: u32,
        end_position: Option<u32>,
    ) -> Result<Vec<u8>, RemoteStorageError>;

    /// Reads one index of the segment whole.
    ///
    /// # Errors
    ///
    /// [`SegmentNotFound`](RemoteStorageError::SegmentNotFound) when the segment or this index is
    /// not in the tier. For [`IndexType::Transaction`] that is a normal answer: the segment has no
    /// aborted transactions.
    fn fetch_index(
        &self,
        metadata: &RemoteLogSegmentMetadata,
        index_type: IndexType,
    ) -> Result<Vec<u8>, RemoteStorageError>;

    /// Deletes every object of the segment.
    ///
    /// Repeating the call is harmless, and objects that are not there are no error.
    ///
    /// # Errors
    ///
    /// The first failure, after every object was tried. A write-once archive always refuses.
    fn delete_log_segment_data(
        &self,
        metadata: &RemoteLogSegmentMetadata,
    ) -> Result<(), RemoteStorageError>;
}
