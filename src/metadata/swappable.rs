//! A metadata store that can be replaced while it is in use.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use async_trait::async_trait;

use super::store::RemoteLogMetadataStore;
use crate::error::RemoteStorageError;
use crate::model::{
    LeaderEpoch, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata, TopicIdPartition,
};

/// Passes each call to the store that is current when the call begins.
///
/// A call in flight finishes on the store that it began with, whatever is swapped meanwhile. A
/// store that was replaced is not shut down: [`swap`](Self::swap) returns it for that. No call
/// waits for a swap, and no swap for a call.
pub struct SwappableRlmm {
    // Twice shared, because a thin pointer is what can be swapped.
    current: ArcSwap<Arc<dyn RemoteLogMetadataStore>>,
}

impl SwappableRlmm {
    /// Begins with this store.
    pub fn new(store: Arc<dyn RemoteLogMetadataStore>) -> Self {
        Self {
            current: ArcSwap::from_pointee(store),
        }
    }

    /// Makes `store` the current one, and returns the one that it replaced.
    pub fn swap(&self, store: Arc<dyn RemoteLogMetadataStore>) -> Arc<dyn RemoteLogMetadataStore> {
        Arc::clone(&self.current.swap(Arc::new(store)))
    }

    fn current(&self) -> Arc<dyn RemoteLogMetadataStore> {
        Arc::clone(&self.current.load())
    }
}

impl fmt::Debug for SwappableRlmm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SwappableRlmm").finish_non_exhaustive()
    }
}

#[async_trait]
impl RemoteLogMetadataStore for SwappableRlmm {
    async fn add_segment(
        &self,
        metadata: RemoteLogSegmentMetadata,
    ) -> Result<(), RemoteStorageError> {
        self.current().add_segment(metadata).await
    }

    async fn update_segment(
        &self,
        update: RemoteLogSegmentMetadataUpdate,
    ) -> Result<(), RemoteStorageError> {
        self.current().update_segment(update).await
    }

    async fn put_partition_delete(
        &self,
        metadata: RemotePartitionDeleteMetadata,
    ) -> Result<(), RemoteStorageError> {
        self.current().put_partition_delete(metadata).await
    }

    async fn find_segment(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
        offset: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
        self.current()
            .find_segment(topic_id_partition, leader_epoch, offset)
            .await
    }

    async fn find_segment_with_txn_index(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
        offset: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
        self.current()
            .find_segment_with_txn_index(topic_id_partition, leader_epoch, offset)
            .await
    }

    async fn highest_offset(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
    ) -> Result<Option<i64>, RemoteStorageError> {
        self.current()
            .highest_offset(topic_id_partition, leader_epoch)
            .await
    }

    async fn newest_segment(
        &self,
        topic_id_partition: &TopicIdPartition,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
        self.current().newest_segment(topic_id_partition).await
    }

    async fn list_segments(
        &self,
        topic_id_partition: &TopicIdPartition,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, RemoteStorageError> {
        self.current().list_segments(topic_id_partition).await
    }

    async fn list_segments_by_epoch(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, RemoteStorageError> {
        self.current()
            .list_segments_by_epoch(topic_id_partition, leader_epoch)
            .await
    }

    async fn log_size(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
    ) -> Result<i64, RemoteStorageError> {
        self.current()
            .log_size(topic_id_partition, leader_epoch)
            .await
    }

    async fn check_ready(
        &self,
        topic_id_partition: &TopicIdPartition,
    ) -> Result<(), RemoteStorageError> {
        self.current().check_ready(topic_id_partition).await
    }
}
