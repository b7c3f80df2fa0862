//! The manager that keeps metadata in a topic, over logs that work, fail and hang.

mod assignment;
mod interrupted;
mod metrics;
mod restart;
mod scripted_log;
mod simulation;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use krabka_remote_storage::testing::segments::{SegmentSpec, orders};
use krabka_remote_storage::topic::{
    MetadataEvent, MetadataEventLog, TopicBasedRemoteLogMetadataManager, TopicManagerConfig,
    metadata_partition_for,
};
use krabka_remote_storage::{
    LeaderEpoch, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState,
    TopicIdPartition,
};
use tempfile::TempDir;
use tokio::runtime::Handle;
use uuid::Uuid;

use RemoteLogSegmentState::{CopySegmentFinished, CopySegmentStarted};

pub(crate) const EPOCH: LeaderEpoch = LeaderEpoch(0);
pub(crate) const PARTITIONS: i32 = 4;

/// A partition whose events are in this metadata partition.
pub(crate) fn tp_in(metadata_partition: i32) -> TopicIdPartition {
    (0..1000)
        .map(|partition| orders(0xca, partition))
        .find(|tp| metadata_partition_for(tp, PARTITIONS) == metadata_partition)
        .unwrap()
}

pub(crate) fn segment(tp: &TopicIdPartition, id: u128, start: i64) -> RemoteLogSegmentMetadata {
    let spec = SegmentSpec::new(id, start..=start + 9).of(tp);
    spec.size(1024).at(1, 1).make()
}

pub(crate) fn update(
    segment: &RemoteLogSegmentMetadata,
    state: RemoteLogSegmentState,
) -> RemoteLogSegmentMetadataUpdate {
    let id = segment.remote_log_segment_id().clone();
    RemoteLogSegmentMetadataUpdate::new(id, 2, None, state, 1)
}

pub(crate) fn finished(segment: &RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadataUpdate {
    update(segment, CopySegmentFinished)
}

pub(crate) fn config(dir: &TempDir) -> TopicManagerConfig {
    TopicManagerConfig::new(dir.path(), Duration::from_mins(1))
}

pub(crate) fn start(
    log: &Arc<impl MetadataEventLog + 'static>,
    dir: &TempDir,
) -> Arc<TopicBasedRemoteLogMetadataManager> {
    let log: Arc<dyn MetadataEventLog> = Arc::clone(log) as _;
    TopicBasedRemoteLogMetadataManager::start_with(log, &Handle::current(), config(dir)).unwrap()
}

/// A manager that has everything assigned, and is ready.
pub(crate) async fn ready(
    log: &Arc<impl MetadataEventLog + 'static>,
    dir: &TempDir,
) -> Arc<TopicBasedRemoteLogMetadataManager> {
    let manager = start(log, dir);
    let all: Vec<_> = (0..log.partition_count()).collect();
    manager.reconcile_assignment(&all).await.unwrap();
    manager.wait_until_ready().await.unwrap();
    manager
}

pub(crate) async fn publish(log: &dyn MetadataEventLog, event: &MetadataEvent) -> i64 {
    let tp = event.topic_id_partition();
    let partition = metadata_partition_for(tp, log.partition_count());
    log.publish(partition, event.encode()).await.unwrap()
}
