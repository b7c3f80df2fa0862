//! Where it is known which segments exist.

use crate::error::RemoteStorageError;
use crate::model::{
    LeaderEpoch, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata, TopicIdPartition,
};

/// Stores the metadata of remote segments and finds segments by leader epoch and offset (Kafka's
/// `RemoteLogMetadataManager`, KIP-405).
///
/// Every method blocks until it is done, and a query that starts after a change returned sees that
/// change. A query about a partition that the manager does not know is no error: it finds nothing.
/// Offsets are log offsets, inclusive at both ends.
///
/// # Errors
///
/// Every query answers [`NotReady`](RemoteStorageError::NotReady) while the manager has not caught
/// up with the partition's events. That is no statement about any segment: ask again later.
pub trait RemoteLogMetadataManager: Send + Sync {
    /// Records that the copy of a segment has begun.
    ///
    /// Repeating the call with equal metadata is harmless as long as the copy has not ended.
    ///
    /// # Errors
    ///
    /// [`InvalidAdd`](RemoteStorageError::InvalidAdd) when the state is not `CopySegmentStarted`,
    /// or when the id is taken.
    fn add_remote_log_segment_metadata(
        &self,
        metadata: RemoteLogSegmentMetadata,
    ) -> Result<(), RemoteStorageError>;

    /// Changes the state of a segment.
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
    fn update_remote_log_segment_metadata(
        &self,
        update: RemoteLogSegmentMetadataUpdate,
    ) -> Result<(), RemoteStorageError>;

    /// The readable segment that holds `offset` in the lineage of `leader_epoch`.
    ///
    /// `None` when there is none: also when the offset belongs to another epoch of the segment, or
    /// to a segment whose copy has not finished or whose deletion has begun.
    fn remote_log_segment_metadata(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
        offset: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError>;

    /// The highest offset that was ever readable in this epoch: where copying goes on.
    ///
    /// It is bounded by the epoch, not by the segment, and it never decreases, also when segments
    /// are deleted.
    fn highest_offset_for_epoch(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
    ) -> Result<Option<i64>, RemoteStorageError>;

    /// Every segment of the partition that is not fully deleted, ordered by start offset and id.
    fn list_remote_log_segments(
        &self,
        topic_id_partition: &TopicIdPartition,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, RemoteStorageError>;

    /// Every segment with offsets of this epoch that is not fully deleted, in whatever state,
    /// ordered by start offset and id.
    fn list_remote_log_segments_by_epoch(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, RemoteStorageError>;

    /// Records how far the deletion of a whole partition has come.
    ///
    /// Segments stay readable until `DeletePartitionFinished`, which drops them all.
    ///
    /// # Errors
    ///
    /// [`InvalidPartitionDeleteTransition`](RemoteStorageError::InvalidPartitionDeleteTransition)
    /// when the state may not follow.
    fn put_remote_partition_delete_metadata(
        &self,
        metadata: RemotePartitionDeleteMetadata,
    ) -> Result<(), RemoteStorageError>;

    /// The log bytes of the segments that
    /// [`list_remote_log_segments_by_epoch`](Self::list_remote_log_segments_by_epoch) lists.
    ///
    /// Segments in every state count, and a segment that spans two epochs counts in both.
    fn remote_log_size(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
    ) -> Result<i64, RemoteStorageError> {
        let segments = self.list_remote_log_segments_by_epoch(topic_id_partition, leader_epoch)?;
        Ok(segments
            .iter()
            .map(|segment| i64::from(segment.segment_size_in_bytes()))
            .sum())
    }

    /// The first readable segment at or after `offset` that may hold aborted transactions.
    ///
    /// It looks from segment to adjoining segment inside this epoch; going on with the next epoch
    /// is the caller's part. `None` when a gap or the end of the epoch comes first.
    fn next_segment_with_txn_index(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
        offset: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
        let mut offset = offset;
        loop {
            let segment =
                match self.remote_log_segment_metadata(topic_id_partition, leader_epoch, offset)? {
                    Some(segment) if segment.txn_index_empty() => segment,
                    found => return Ok(found),
                };
            match segment.end_offset().checked_add(1) {
                // An answer that does not lie at `offset` must not make this loop for ever.
                Some(next) if next > offset => offset = next,
                _ => return Ok(None),
            }
        }
    }

    /// Whether queries about this partition are answered, and not met with
    /// [`NotReady`](RemoteStorageError::NotReady).
    fn is_ready(&self, topic_id_partition: &TopicIdPartition) -> bool {
        let _ = topic_id_partition;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::RemoteLogSegmentState;
    use crate::testing::segments::{SegmentSpec, orders};

    /// A manager that has only what the trait requires. It looks up by offset alone.
    struct Minimal(Vec<RemoteLogSegmentMetadata>);

    impl RemoteLogMetadataManager for Minimal {
        fn add_remote_log_segment_metadata(
            &self,
            metadata: RemoteLogSegmentMetadata,
        ) -> Result<(), RemoteStorageError> {
            Err(RemoteStorageError::InvalidAdd {
                id: metadata.remote_log_segment_id().clone(),
                reason: "this manager is read-only".to_owned(),
            })
        }

        fn update_remote_log_segment_metadata(
            &self,
            update: RemoteLogSegmentMetadataUpdate,
        ) -> Result<(), RemoteStorageError> {
            Err(RemoteStorageError::SegmentNotFound(
                update.remote_log_segment_id,
            ))
        }

        fn remote_log_segment_metadata(
            &self,
            _: &TopicIdPartition,
            _: LeaderEpoch,
            offset: i64,
        ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
            let floor = self.0.iter().rfind(|s| s.start_offset() <= offset);
            Ok(floor.cloned())
        }

        fn highest_offset_for_epoch(
            &self,
            _: &TopicIdPartition,
            _: LeaderEpoch,
        ) -> Result<Option<i64>, RemoteStorageError> {
            Ok(None)
        }

        fn list_remote_log_segments(
            &self,
            _: &TopicIdPartition,
        ) -> Result<Vec<RemoteLogSegmentMetadata>, RemoteStorageError> {
            Ok(self.0.clone())
        }

        fn list_remote_log_segments_by_epoch(
            &self,
            _: &TopicIdPartition,
            _: LeaderEpoch,
        ) -> Result<Vec<RemoteLogSegmentMetadata>, RemoteStorageError> {
            Ok(self.0.clone())
        }

        fn put_remote_partition_delete_metadata(
            &self,
            _: RemotePartitionDeleteMetadata,
        ) -> Result<(), RemoteStorageError> {
            Ok(())
        }
    }

    fn tp() -> TopicIdPartition {
        orders(1, 0)
    }

    fn segment(start: i64, end: i64, txn_index_empty: bool) -> RemoteLogSegmentMetadata {
        let spec = SegmentSpec::new(0, start..=end).size(i32::MAX).broker(0);
        let spec = spec.state(RemoteLogSegmentState::CopySegmentFinished);
        spec.make().with_txn_index_empty(txn_index_empty)
    }

    fn next_start(manager: &dyn RemoteLogMetadataManager, offset: i64) -> Option<i64> {
        manager
            .next_segment_with_txn_index(&tp(), LeaderEpoch(0), offset)
            .unwrap()
            .map(|segment| segment.start_offset())
    }

    #[test]
    fn an_implementor_of_the_required_methods_alone_answers_the_others() {
        let manager: &dyn RemoteLogMetadataManager = &Minimal(vec![
            segment(0, 9, true),
            segment(10, 19, true),
            segment(20, 29, false),
        ]);
        assert!(manager.is_ready(&tp()));
        assert_eq!(
            manager.remote_log_size(&tp(), LeaderEpoch(0)).unwrap(),
            3 * i64::from(i32::MAX)
        );
        assert_eq!(next_start(manager, 0), Some(20));
        assert_eq!(next_start(manager, 20), Some(20));
    }

    #[test]
    fn the_search_for_a_transaction_index_ends_when_answers_make_no_progress() {
        // The floor of every later offset is the same segment again.
        let stuck = Minimal(vec![segment(0, 9, true)]);
        assert_eq!(next_start(&stuck, 0), None);
        // Nothing comes after the last offset that there is.
        let last = Minimal(vec![segment(0, i64::MAX, true)]);
        assert_eq!(next_start(&last, 0), None);
    }
}
