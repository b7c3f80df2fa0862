//! A metadata manager for the time before the real one is there.

use async_trait::async_trait;

use super::store::RemoteLogMetadataStore;
use crate::error::RemoteStorageError;
use crate::model::{
    LeaderEpoch, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata, TopicIdPartition,
};
use crate::spi::RemoteLogMetadataManager;

/// Answers every call with [`NotReady`](RemoteStorageError::NotReady), which is retryable.
///
/// It stands in while the real manager starts (see `SwappableRlmm`), so that a copy fails before
/// it has written any object, and no query is answered with "nothing is tiered". No partition of
/// the metadata topic is known yet: the error carries the partition of the user's topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotReadyRlmm;

impl NotReadyRlmm {
    /// Makes the stand-in.
    pub fn new() -> Self {
        Self
    }
}

fn not_ready<T>(tp: &TopicIdPartition) -> Result<T, RemoteStorageError> {
    Err(RemoteStorageError::NotReady {
        partition: tp.partition,
    })
}

#[async_trait]
impl RemoteLogMetadataStore for NotReadyRlmm {
    async fn add_segment(
        &self,
        metadata: RemoteLogSegmentMetadata,
    ) -> Result<(), RemoteStorageError> {
        not_ready(metadata.topic_id_partition())
    }

    async fn update_segment(
        &self,
        update: RemoteLogSegmentMetadataUpdate,
    ) -> Result<(), RemoteStorageError> {
        not_ready(&update.remote_log_segment_id.topic_id_partition)
    }

    async fn put_partition_delete(
        &self,
        metadata: RemotePartitionDeleteMetadata,
    ) -> Result<(), RemoteStorageError> {
        not_ready(&metadata.topic_id_partition)
    }

    async fn find_segment(
        &self,
        topic_id_partition: &TopicIdPartition,
        _: LeaderEpoch,
        _: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
        not_ready(topic_id_partition)
    }

    async fn find_segment_with_txn_index(
        &self,
        topic_id_partition: &TopicIdPartition,
        _: LeaderEpoch,
        _: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
        not_ready(topic_id_partition)
    }

    async fn highest_offset(
        &self,
        topic_id_partition: &TopicIdPartition,
        _: LeaderEpoch,
    ) -> Result<Option<i64>, RemoteStorageError> {
        not_ready(topic_id_partition)
    }

    async fn list_segments(
        &self,
        topic_id_partition: &TopicIdPartition,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, RemoteStorageError> {
        not_ready(topic_id_partition)
    }

    async fn list_segments_by_epoch(
        &self,
        topic_id_partition: &TopicIdPartition,
        _: LeaderEpoch,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, RemoteStorageError> {
        not_ready(topic_id_partition)
    }

    async fn log_size(
        &self,
        topic_id_partition: &TopicIdPartition,
        _: LeaderEpoch,
    ) -> Result<i64, RemoteStorageError> {
        not_ready(topic_id_partition)
    }

    async fn check_ready(
        &self,
        topic_id_partition: &TopicIdPartition,
    ) -> Result<(), RemoteStorageError> {
        not_ready(topic_id_partition)
    }
}

impl RemoteLogMetadataManager for NotReadyRlmm {
    fn add_remote_log_segment_metadata(
        &self,
        metadata: RemoteLogSegmentMetadata,
    ) -> Result<(), RemoteStorageError> {
        not_ready(metadata.topic_id_partition())
    }

    fn update_remote_log_segment_metadata(
        &self,
        update: RemoteLogSegmentMetadataUpdate,
    ) -> Result<(), RemoteStorageError> {
        not_ready(&update.remote_log_segment_id.topic_id_partition)
    }

    fn put_remote_partition_delete_metadata(
        &self,
        metadata: RemotePartitionDeleteMetadata,
    ) -> Result<(), RemoteStorageError> {
        not_ready(&metadata.topic_id_partition)
    }

    fn remote_log_segment_metadata(
        &self,
        topic_id_partition: &TopicIdPartition,
        _: LeaderEpoch,
        _: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
        not_ready(topic_id_partition)
    }

    fn next_segment_with_txn_index(
        &self,
        topic_id_partition: &TopicIdPartition,
        _: LeaderEpoch,
        _: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
        not_ready(topic_id_partition)
    }

    fn highest_offset_for_epoch(
        &self,
        topic_id_partition: &TopicIdPartition,
        _: LeaderEpoch,
    ) -> Result<Option<i64>, RemoteStorageError> {
        not_ready(topic_id_partition)
    }

    fn list_remote_log_segments(
        &self,
        topic_id_partition: &TopicIdPartition,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, RemoteStorageError> {
        not_ready(topic_id_partition)
    }

    fn list_remote_log_segments_by_epoch(
        &self,
        topic_id_partition: &TopicIdPartition,
        _: LeaderEpoch,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, RemoteStorageError> {
        not_ready(topic_id_partition)
    }

    fn remote_log_size(
        &self,
        topic_id_partition: &TopicIdPartition,
        _: LeaderEpoch,
    ) -> Result<i64, RemoteStorageError> {
        not_ready(topic_id_partition)
    }

    fn is_ready(&self, _: &TopicIdPartition) -> bool {
        false
    }
}
