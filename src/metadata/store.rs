//! The asynchronous metadata store: the one trait that this crate's own code asks.

use async_trait::async_trait;

use crate::error::RemoteStorageError;
use crate::model::{
    LeaderEpoch, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState,
    RemotePartitionDeleteMetadata, TopicIdPartition,
};

/// Stores the metadata of remote segments and finds segments by leader epoch and offset.
///
/// This is `RemoteLogMetadataManager` (KIP-405) for asynchronous code. The names differ from the
/// synchronous trait's, so that a manager can have both without one hiding the other.
///
/// A query that starts after a change returned sees that change, and no query sees half of one.
/// A query about a partition that the store does not know is no error: it finds nothing. Offsets
/// are log offsets, inclusive at both ends.
///
/// # Errors
///
/// Every query answers [`NotReady`](RemoteStorageError::NotReady) while the store has not caught
/// up with the partition's events. That is no statement about any segment: ask again later.
///
/// # Cancellation
///
/// Dropping the future of a query has no effect. Dropping the future of a change leaves open
/// whether the change happens; it never happens in part.
#[async_trait]
pub trait RemoteLogMetadataStore: Send + Sync {
    /// Records that the copy of a segment has begun (Kafka's `addRemoteLogSegmentMetadata`).
    ///
    /// Repeating the call with equal metadata is harmless as long as the copy has not ended.
    ///
    /// # Errors
    ///
    /// [`InvalidAdd`](RemoteStorageError::InvalidAdd) when the state is not `CopySegmentStarted`,
    /// when the id is taken, or when the partition has been deleted.
    async fn add_segment(
        &self,
        metadata: RemoteLogSegmentMetadata,
    ) -> Result<(), RemoteStorageError>;

    /// Changes the state of a segment (Kafka's `updateRemoteLogSegmentMetadata`).
    ///
    /// Repeating the latest update exactly (same state, timestamp and broker; custom metadata
    /// equal or left out) is harmless, and so is `DeleteSegmentFinished` for an unknown segment.
    /// `DeleteSegmentStarted` may come again from another broker or at another time, which are the
    /// segment's then.
    ///
    /// # Errors
    ///
    /// [`SegmentNotFound`](RemoteStorageError::SegmentNotFound) when the segment is unknown,
    /// [`InvalidSegmentTransition`](RemoteStorageError::InvalidSegmentTransition) when the state
    /// may not follow.
    async fn update_segment(
        &self,
        update: RemoteLogSegmentMetadataUpdate,
    ) -> Result<(), RemoteStorageError>;

    /// Records how far the deletion of a whole partition has come (Kafka's
    /// `putRemotePartitionDeleteMetadata`).
    ///
    /// Segments stay readable until `DeletePartitionFinished`, which drops them all.
    ///
    /// # Errors
    ///
    /// [`InvalidPartitionDeleteTransition`](RemoteStorageError::InvalidPartitionDeleteTransition)
    /// when the state may not follow.
    async fn put_partition_delete(
        &self,
        metadata: RemotePartitionDeleteMetadata,
    ) -> Result<(), RemoteStorageError>;

    /// The readable segment that holds `offset` in the lineage of `leader_epoch` (Kafka's
    /// `remoteLogSegmentMetadata`).
    ///
    /// `None` when there is none: also when the offset belongs to another epoch of the segment, or
    /// to a segment whose copy has not finished or whose deletion has begun.
    async fn find_segment(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
        offset: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError>;

    /// The first readable segment at or after `offset` that may hold aborted transactions (Kafka's
    /// `nextSegmentWithTxnIndex`).
    ///
    /// It looks from segment to adjoining segment inside this epoch; going on with the next epoch
    /// is the caller's part. `None` when a gap or the end of the epoch comes first.
    async fn find_segment_with_txn_index(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
        offset: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError>;

    /// The highest offset that was ever readable in this epoch: where copying goes on (Kafka's
    /// `highestOffsetForEpoch`).
    ///
    /// It is bounded by the epoch, not by the segment, and it never decreases, also when segments
    /// are deleted.
    async fn highest_offset(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
    ) -> Result<Option<i64>, RemoteStorageError>;

    /// The readable segment that holds the highest offset of the newest leader epoch with any:
    /// where the tier ends. Kafka has no such question.
    ///
    /// It is asked with every read-committed read of a tier alone. Unless a store has an answer of
    /// its own, all segments are listed for it.
    async fn newest_segment(
        &self,
        topic_id_partition: &TopicIdPartition,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
        let segments = self.list_segments(topic_id_partition).await?;
        let finished = segments
            .into_iter()
            .filter(|segment| segment.state() == RemoteLogSegmentState::CopySegmentFinished);
        Ok(finished.max_by_key(|segment| {
            let epoch = segment.segment_leader_epochs().last_key_value();
            (epoch.map(|(epoch, _)| *epoch), segment.end_offset())
        }))
    }

    /// Every segment of the partition that is not fully deleted, ordered by start offset and id
    /// (Kafka's `listRemoteLogSegments`).
    async fn list_segments(
        &self,
        topic_id_partition: &TopicIdPartition,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, RemoteStorageError>;

    /// Every segment with offsets of this epoch that is not fully deleted, in whatever state,
    /// ordered by start offset and id (Kafka's `listRemoteLogSegments` with an epoch).
    async fn list_segments_by_epoch(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, RemoteStorageError>;

    /// The log bytes of the segments that
    /// [`list_segments_by_epoch`](Self::list_segments_by_epoch) lists (Kafka's `remoteLogSize`).
    ///
    /// Segments in every state count, and a segment that spans two epochs counts in both.
    async fn log_size(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
    ) -> Result<i64, RemoteStorageError>;

    /// Succeeds when queries about this partition are answered (Kafka's `isReady`).
    ///
    /// # Errors
    ///
    /// The error that such a query would meet now, [`NotReady`](RemoteStorageError::NotReady)
    /// above all.
    async fn check_ready(
        &self,
        topic_id_partition: &TopicIdPartition,
    ) -> Result<(), RemoteStorageError>;
}
