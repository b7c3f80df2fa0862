//! The metadata store as Kafka's blocking interface, and a blocking manager as a metadata store.

use std::fmt;
use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

use super::bridge::Bridge;
use crate::error::RemoteStorageError;
use crate::metadata::RemoteLogMetadataStore;
use crate::model::{
    LeaderEpoch, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata, TopicIdPartition,
};
use crate::spi::RemoteLogMetadataManager;

/// A [`RemoteLogMetadataStore`] as a blocking [`RemoteLogMetadataManager`].
///
/// It may be called from any thread, a worker of a runtime included, and dropped anywhere. Each
/// call waits on the thread that makes it where that thread may wait, and on a helper thread
/// otherwise. (`InmemoryRemoteLogMetadataManager` and `NotReadyRlmm` never wait; they are blocking
/// managers themselves and need no such face.)
///
/// # Errors
///
/// Those of the store; besides, [`InvalidArgument`](RemoteStorageError::InvalidArgument) after
/// [`close`](Self::close), or where waiting could never end, and
/// [`Io`](RemoteStorageError::Io) when no thread can be started or the store panicked.
pub struct BlockingMetadataManager {
    store: Arc<dyn RemoteLogMetadataStore>,
    bridge: Bridge,
}

impl BlockingMetadataManager {
    /// A face that runs calls on a runtime of its own, which the first call starts.
    pub fn new(store: Arc<dyn RemoteLogMetadataStore>) -> Self {
        Self {
            store,
            bridge: Bridge::with_own_runtime(),
        }
    }

    /// A face that runs calls on this runtime, which must live as long as calls are made.
    pub fn with_handle(store: Arc<dyn RemoteLogMetadataStore>, handle: Handle) -> Self {
        Self {
            store,
            bridge: Bridge::on(handle),
        }
    }

    /// Stops the own runtime, if there is one, without waiting for what still runs on it.
    pub fn close(&self) {
        self.bridge.close();
    }
}

impl fmt::Debug for BlockingMetadataManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingMetadataManager")
            .field("bridge", &self.bridge)
            .finish_non_exhaustive()
    }
}

impl RemoteLogMetadataManager for BlockingMetadataManager {
    fn add_remote_log_segment_metadata(
        &self,
        metadata: RemoteLogSegmentMetadata,
    ) -> Result<(), RemoteStorageError> {
        self.bridge.wait(self.store.add_segment(metadata))
    }

    fn update_remote_log_segment_metadata(
        &self,
        update: RemoteLogSegmentMetadataUpdate,
    ) -> Result<(), RemoteStorageError> {
        self.bridge.wait(self.store.update_segment(update))
    }

    fn remote_log_segment_metadata(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
        offset: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
        self.bridge.wait(
            self.store
                .find_segment(topic_id_partition, leader_epoch, offset),
        )
    }

    fn highest_offset_for_epoch(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
    ) -> Result<Option<i64>, RemoteStorageError> {
        self.bridge
            .wait(self.store.highest_offset(topic_id_partition, leader_epoch))
    }

    fn list_remote_log_segments(
        &self,
        topic_id_partition: &TopicIdPartition,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, RemoteStorageError> {
        self.bridge
            .wait(self.store.list_segments(topic_id_partition))
    }

    fn list_remote_log_segments_by_epoch(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, RemoteStorageError> {
        self.bridge.wait(
            self.store
                .list_segments_by_epoch(topic_id_partition, leader_epoch),
        )
    }

    fn put_remote_partition_delete_metadata(
        &self,
        metadata: RemotePartitionDeleteMetadata,
    ) -> Result<(), RemoteStorageError> {
        self.bridge.wait(self.store.put_partition_delete(metadata))
    }

    fn remote_log_size(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
    ) -> Result<i64, RemoteStorageError> {
        self.bridge
            .wait(self.store.log_size(topic_id_partition, leader_epoch))
    }

    fn next_segment_with_txn_index(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
        offset: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
        self.bridge.wait(self.store.find_segment_with_txn_index(
            topic_id_partition,
            leader_epoch,
            offset,
        ))
    }

    /// Also `false` when the question itself failed.
    fn is_ready(&self, topic_id_partition: &TopicIdPartition) -> bool {
        let ready = self.store.check_ready(topic_id_partition);
        self.bridge.wait(ready).is_ok()
    }
}

/// A blocking [`RemoteLogMetadataManager`], a plugin written against Kafka's interface for
/// example, as a [`RemoteLogMetadataStore`].
///
/// Each call runs on a thread that may block (`spawn_blocking`), so it needs a tokio runtime.
///
/// # Errors
///
/// Those of the plugin, and [`Io`](RemoteStorageError::Io) when it panicked. It can be called
/// again then.
///
/// # Cancellation
///
/// A call that is dropped before a thread took it is never made. One that is under way goes on to
/// its end: nothing can stop a blocking plugin.
#[derive(Clone)]
pub struct PluginMetadataStore {
    plugin: Arc<dyn RemoteLogMetadataManager>,
}

impl PluginMetadataStore {
    /// A store over this plugin.
    pub fn new(plugin: Arc<dyn RemoteLogMetadataManager>) -> Self {
        Self { plugin }
    }

    async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn RemoteLogMetadataManager) -> Result<T, RemoteStorageError>
        + Send
        + 'static,
    ) -> Result<T, RemoteStorageError> {
        let plugin = Arc::clone(&self.plugin);
        let made = tokio::task::spawn_blocking(move || call(plugin.as_ref()));
        match AbortOnDropHandle::new(made).await {
            Ok(answer) => answer,
            // The plugin panicked, or the runtime shuts down.
            Err(error) => Err(io::Error::other(error).into()),
        }
    }
}

impl fmt::Debug for PluginMetadataStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginMetadataStore")
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl RemoteLogMetadataStore for PluginMetadataStore {
    async fn add_segment(
        &self,
        metadata: RemoteLogSegmentMetadata,
    ) -> Result<(), RemoteStorageError> {
        self.call(move |plugin| plugin.add_remote_log_segment_metadata(metadata))
            .await
    }

    async fn update_segment(
        &self,
        update: RemoteLogSegmentMetadataUpdate,
    ) -> Result<(), RemoteStorageError> {
        self.call(move |plugin| plugin.update_remote_log_segment_metadata(update))
            .await
    }

    async fn find_segment(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
        offset: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
        let tp = topic_id_partition.clone();
        self.call(move |plugin| plugin.remote_log_segment_metadata(&tp, leader_epoch, offset))
            .await
    }

    async fn highest_offset(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
    ) -> Result<Option<i64>, RemoteStorageError> {
        let tp = topic_id_partition.clone();
        self.call(move |plugin| plugin.highest_offset_for_epoch(&tp, leader_epoch))
            .await
    }

    async fn list_segments(
        &self,
        topic_id_partition: &TopicIdPartition,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, RemoteStorageError> {
        let tp = topic_id_partition.clone();
        self.call(move |plugin| plugin.list_remote_log_segments(&tp))
            .await
    }

    async fn list_segments_by_epoch(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, RemoteStorageError> {
        let tp = topic_id_partition.clone();
        self.call(move |plugin| plugin.list_remote_log_segments_by_epoch(&tp, leader_epoch))
            .await
    }

    async fn put_partition_delete(
        &self,
        metadata: RemotePartitionDeleteMetadata,
    ) -> Result<(), RemoteStorageError> {
        self.call(move |plugin| plugin.put_remote_partition_delete_metadata(metadata))
            .await
    }

    async fn log_size(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
    ) -> Result<i64, RemoteStorageError> {
        let tp = topic_id_partition.clone();
        self.call(move |plugin| plugin.remote_log_size(&tp, leader_epoch))
            .await
    }

    async fn find_segment_with_txn_index(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
        offset: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
        let tp = topic_id_partition.clone();
        self.call(move |plugin| plugin.next_segment_with_txn_index(&tp, leader_epoch, offset))
            .await
    }

    async fn check_ready(
        &self,
        topic_id_partition: &TopicIdPartition,
    ) -> Result<(), RemoteStorageError> {
        let tp = topic_id_partition.clone();
        self.call(move |plugin| {
            if plugin.is_ready(&tp) {
                return Ok(());
            }
            // The plugin does not tell the partition of its metadata topic.
            Err(RemoteStorageError::NotReady {
                partition: tp.partition,
            })
        })
        .await
    }
}
