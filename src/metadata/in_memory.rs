//! A metadata store that lives and dies with its process.

use std::collections::HashMap;

use async_trait::async_trait;
use parking_lot::RwLock;
use uuid::Uuid;

use super::cache::{RemoteLogMetadataCache, SegmentView};
use super::dump::RlmmCacheDump;
use super::store::RemoteLogMetadataStore;
use crate::error::RemoteStorageError;
use crate::model::{
    LeaderEpoch, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata, TopicIdPartition,
};
use crate::spi::RemoteLogMetadataManager;

/// Keeps the metadata of every partition in memory.
///
/// It is ready from the start and forgets everything at the end of the process, unless a dump is
/// [exported](Self::export) and [imported](Self::import) again. Calls are linearizable: each takes
/// effect at one moment between its begin and its end, an export included.
///
/// Its methods never wait for anything but another call's work in memory: a partition has a lock
/// of its own, which is never held over an await. Lookups cost a short search; lists hold off
/// writers of their partition while they copy what they list.
#[derive(Debug, Default)]
pub struct InmemoryRemoteLogMetadataManager {
    /// Every call but an import, and the first event of a partition, holds the outer lock shared.
    partitions: RwLock<HashMap<TopicIdPartition, RwLock<RemoteLogMetadataCache>>>,
}

impl InmemoryRemoteLogMetadataManager {
    /// A manager that knows no partition.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes down everything that the manager knows at one moment.
    ///
    /// Managers of equal contents give equal dumps.
    pub fn export(&self) -> RlmmCacheDump {
        let partitions = self.partitions.read();
        // All at once: while the first is written down, none of the others may change.
        let mut caches: Vec<_> = partitions.values().map(RwLock::read).collect();
        caches.sort_by_key(|cache| sort_key(cache));
        RlmmCacheDump {
            partitions: caches.iter().map(|cache| cache.export()).collect(),
        }
    }

    /// Replaces each partition that the dump lists by what it says, at one moment.
    ///
    /// Other partitions stay as they are. Importing a dump twice is the same as importing it once.
    /// What is not checked and how odd rows are taken: see [`RemoteLogMetadataCache::import`].
    pub fn import(&self, dump: RlmmCacheDump) {
        let caches: Vec<_> = dump
            .partitions
            .into_iter()
            .map(RemoteLogMetadataCache::import)
            .collect();
        let mut partitions = self.partitions.write();
        for cache in caches {
            partitions.insert(cache.topic_id_partition().clone(), RwLock::new(cache));
        }
    }

    /// Asks the partition's cache; the default when the partition is unknown.
    fn query<T: Default>(
        &self,
        tp: &TopicIdPartition,
        ask: impl FnOnce(&RemoteLogMetadataCache) -> T,
    ) -> T {
        let partitions = self.partitions.read();
        let answer = partitions.get(tp).map(|cache| ask(&cache.read()));
        answer.unwrap_or_default()
    }

    /// Changes the partition's cache, which is new when the partition is unknown. A partition
    /// whose first event is refused stays unknown.
    fn change(
        &self,
        tp: &TopicIdPartition,
        change: impl Fn(&mut RemoteLogMetadataCache) -> Result<(), RemoteStorageError>,
    ) -> Result<(), RemoteStorageError> {
        if let Some(cache) = self.partitions.read().get(tp) {
            return change(&mut cache.write());
        }
        let mut partitions = self.partitions.write();
        // Another first event may have come between the two locks.
        if let Some(cache) = partitions.get_mut(tp) {
            return change(cache.get_mut());
        }
        let mut cache = RemoteLogMetadataCache::new(tp.clone());
        change(&mut cache)?;
        partitions.insert(tp.clone(), RwLock::new(cache));
        Ok(())
    }
}

fn owned(segments: &[SegmentView<'_>]) -> Vec<RemoteLogSegmentMetadata> {
    segments.iter().map(SegmentView::to_metadata).collect()
}

/// Never blocks for longer than another call works in memory, so it needs no runtime, and may be
/// called from asynchronous code too.
impl RemoteLogMetadataManager for InmemoryRemoteLogMetadataManager {
    fn add_remote_log_segment_metadata(
        &self,
        metadata: RemoteLogSegmentMetadata,
    ) -> Result<(), RemoteStorageError> {
        self.change(metadata.topic_id_partition(), |cache| {
            cache.add_segment(&metadata)
        })
    }

    fn update_remote_log_segment_metadata(
        &self,
        update: RemoteLogSegmentMetadataUpdate,
    ) -> Result<(), RemoteStorageError> {
        let tp = &update.remote_log_segment_id.topic_id_partition;
        match self.partitions.read().get(tp) {
            Some(cache) => cache.write().update_segment(&update),
            // No update brings a segment into being, so the partition stays unknown.
            None => RemoteLogMetadataCache::new(tp.clone()).update_segment(&update),
        }
    }

    fn remote_log_segment_metadata(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
        offset: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
        Ok(self.query(topic_id_partition, |cache| {
            let found = cache.find_segment(leader_epoch, offset);
            found.map(|segment| segment.to_metadata())
        }))
    }

    fn highest_offset_for_epoch(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
    ) -> Result<Option<i64>, RemoteStorageError> {
        Ok(self.query(topic_id_partition, |cache| {
            cache.highest_offset(leader_epoch)
        }))
    }

    fn list_remote_log_segments(
        &self,
        topic_id_partition: &TopicIdPartition,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, RemoteStorageError> {
        Ok(self.query(topic_id_partition, |cache| owned(&cache.list_segments())))
    }

    fn list_remote_log_segments_by_epoch(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, RemoteStorageError> {
        Ok(self.query(topic_id_partition, |cache| {
            owned(&cache.list_segments_by_epoch(leader_epoch))
        }))
    }

    fn put_remote_partition_delete_metadata(
        &self,
        metadata: RemotePartitionDeleteMetadata,
    ) -> Result<(), RemoteStorageError> {
        self.change(&metadata.topic_id_partition, |cache| {
            cache.put_partition_delete(&metadata)
        })
    }

    fn remote_log_size(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
    ) -> Result<i64, RemoteStorageError> {
        Ok(self.query(topic_id_partition, |cache| cache.log_size(leader_epoch)))
    }

    fn next_segment_with_txn_index(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
        offset: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
        Ok(self.query(topic_id_partition, |cache| {
            let found = cache.find_segment_with_txn_index(leader_epoch, offset);
            found.map(|segment| segment.to_metadata())
        }))
    }

    fn is_ready(&self, _: &TopicIdPartition) -> bool {
        true
    }
}

#[async_trait]
impl RemoteLogMetadataStore for InmemoryRemoteLogMetadataManager {
    async fn add_segment(
        &self,
        metadata: RemoteLogSegmentMetadata,
    ) -> Result<(), RemoteStorageError> {
        self.add_remote_log_segment_metadata(metadata)
    }

    async fn update_segment(
        &self,
        update: RemoteLogSegmentMetadataUpdate,
    ) -> Result<(), RemoteStorageError> {
        self.update_remote_log_segment_metadata(update)
    }

    async fn put_partition_delete(
        &self,
        metadata: RemotePartitionDeleteMetadata,
    ) -> Result<(), RemoteStorageError> {
        self.put_remote_partition_delete_metadata(metadata)
    }

    async fn find_segment(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
        offset: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
        self.remote_log_segment_metadata(topic_id_partition, leader_epoch, offset)
    }

    async fn find_segment_with_txn_index(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
        offset: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
        self.next_segment_with_txn_index(topic_id_partition, leader_epoch, offset)
    }

    async fn highest_offset(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
    ) -> Result<Option<i64>, RemoteStorageError> {
        self.highest_offset_for_epoch(topic_id_partition, leader_epoch)
    }

    async fn newest_segment(
        &self,
        topic_id_partition: &TopicIdPartition,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
        Ok(self.query(topic_id_partition, |cache| {
            cache.newest_segment().map(|segment| segment.to_metadata())
        }))
    }

    async fn list_segments(
        &self,
        topic_id_partition: &TopicIdPartition,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, RemoteStorageError> {
        self.list_remote_log_segments(topic_id_partition)
    }

    async fn list_segments_by_epoch(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, RemoteStorageError> {
        self.list_remote_log_segments_by_epoch(topic_id_partition, leader_epoch)
    }

    async fn log_size(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
    ) -> Result<i64, RemoteStorageError> {
        self.remote_log_size(topic_id_partition, leader_epoch)
    }

    async fn check_ready(&self, _: &TopicIdPartition) -> Result<(), RemoteStorageError> {
        Ok(())
    }
}

fn sort_key(cache: &RemoteLogMetadataCache) -> (Uuid, i32) {
    let tp = cache.topic_id_partition();
    (tp.topic_id, tp.partition)
}
