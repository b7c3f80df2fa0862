//! A partition's metadata: made anew from what the tier holds, or that of its cluster.

use std::sync::Arc;

use krabka_remote_storage::metadata::InmemoryRemoteLogMetadataManager;
use krabka_remote_storage::model::{
    RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, kafka_uuid,
};
use krabka_remote_storage::rebuild::{
    DamagedSegment, ListedSegment, RebuiltPartition, TierRebuilder,
};
use krabka_remote_storage::{
    PartitionDump, RemoteLogMetadataManager as _, RemoteStorage, RemoteStorageError, RlmmCacheDump,
};

use crate::failure::Failure;

/// What answers for a partition.
#[derive(Clone, Debug)]
pub(crate) struct Rebuilt {
    pub(crate) metadata: Arc<InmemoryRemoteLogMetadataManager>,
    /// What the metadata lists, by start offset.
    pub(crate) segments: Vec<RemoteLogSegmentMetadata>,
    /// Complete segments that are of no use.
    pub(crate) skipped: Vec<DamagedSegment>,
    /// Segments whose leader epochs are not those of their checkpoint, and why.
    pub(crate) mended: Vec<DamagedSegment>,
    /// Whether all this is what the metadata of a cluster says.
    pub(crate) is_of_cluster: bool,
}

impl Rebuilt {
    /// Makes the metadata of these segments of one partition.
    pub(crate) async fn of(
        storage: &RemoteStorage,
        partition: &TopicIdPartition,
        segments: Vec<ListedSegment>,
    ) -> Result<Self, RemoteStorageError> {
        let rebuilt = rebuilder(storage)
            .rebuild_segments(partition, segments)
            .await?;
        Self::new(partition, rebuilt, false)
    }

    /// Takes from the metadata of a cluster what it says of these segments.
    pub(crate) fn of_cluster(
        known: &PartitionDump,
        segments: Vec<ListedSegment>,
    ) -> Result<Self, RemoteStorageError> {
        let rebuilt = RebuiltPartition::named_by(known, segments);
        Self::new(&known.topic_id_partition, rebuilt, true)
    }

    fn new(
        partition: &TopicIdPartition,
        rebuilt: RebuiltPartition,
        is_of_cluster: bool,
    ) -> Result<Self, RemoteStorageError> {
        let metadata = Arc::new(InmemoryRemoteLogMetadataManager::new());
        metadata.import(RlmmCacheDump {
            partitions: vec![rebuilt.dump],
        });
        Ok(Self {
            segments: metadata.list_remote_log_segments(partition)?,
            metadata,
            skipped: rebuilt.skipped,
            mended: rebuilt.mended,
            is_of_cluster,
        })
    }

    /// What is wrong with a segment.
    pub(crate) fn damage(&self, id: &RemoteLogSegmentId) -> Option<&RemoteStorageError> {
        let damaged = self.skipped.iter().chain(&self.mended);
        damaged
            .filter(|damaged| damaged.segment.id == *id)
            .map(|damaged| &damaged.reason)
            .next()
    }

    /// Whether a segment answers for any offset in any of its leader epochs.
    pub(crate) fn answers(
        &self,
        segment: &RemoteLogSegmentMetadata,
    ) -> Result<bool, RemoteStorageError> {
        let partition = segment.topic_id_partition();
        for (&epoch, &start) in segment.segment_leader_epochs() {
            let found = self
                .metadata
                .remote_log_segment_metadata(partition, epoch, start)?;
            let found = found.as_ref();
            if found.is_some_and(|found| {
                found.remote_log_segment_id() == segment.remote_log_segment_id()
            }) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Makes metadata anew by reading through this storage.
pub(crate) fn rebuilder(storage: &RemoteStorage) -> TierRebuilder<RemoteStorage> {
    TierRebuilder::new(storage.clone())
}

/// A segment and what is wrong with it, as an error.
pub(crate) fn damaged(
    id: &RemoteLogSegmentId,
    start_offset: i64,
    reason: RemoteStorageError,
) -> Failure {
    let tp = &id.topic_id_partition;
    let what = format!(
        "{}-{}: segment {} at offset {start_offset} is damaged",
        tp.topic,
        tp.partition,
        kafka_uuid(id.id),
    );
    Failure::during(what, reason)
}
