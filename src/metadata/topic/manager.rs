//! The manager that keeps metadata in a topic.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::RwLock;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::actor::{Actor, Command, Reply};
use super::event::MetadataEvent;
use super::log::MetadataEventLog;
use super::partition::{Acknowledged, EventOutcome, Gate, MetadataPartition, Publish};
use super::partitioning::try_metadata_partition_for;
use super::readiness::MetadataPartitionReadiness;
use super::telemetry::{self, LagGauge, PublishOutcome};
use crate::error::{ErrorKind, ErrorSource, RemoteStorageError};
use crate::metadata::{RemoteLogMetadataCache, RemoteLogMetadataStore, SegmentView};
use crate::model::{
    LeaderEpoch, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata, TopicIdPartition,
};

/// How a [`TopicBasedRemoteLogMetadataManager`] works.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TopicManagerConfig {
    /// The directory of the snapshot file; it is made when the first snapshot is written.
    pub snapshot_dir: PathBuf,
    /// How often a snapshot is written, when something has changed. Above 0.
    pub snapshot_interval: Duration,
    /// How long a change waits at most, from its begin until its event was applied here. Above 0;
    /// 120 s unless set, as `remote.log.metadata.consume.wait.ms` of Apache Kafka.
    pub write_timeout: Duration,
    /// How long the log may take to answer what its marks are, before it is asked again. Above 0;
    /// 30 s unless set.
    pub log_timeout: Duration,
    /// How long [`shutdown_and_flush`](TopicBasedRemoteLogMetadataManager::shutdown_and_flush)
    /// waits at most. Above 0; 30 s unless set.
    pub shutdown_timeout: Duration,
}

impl TopicManagerConfig {
    /// The defaults, with snapshots in this directory, this often.
    pub fn new(snapshot_dir: impl Into<PathBuf>, snapshot_interval: Duration) -> Self {
        Self {
            snapshot_dir: snapshot_dir.into(),
            snapshot_interval,
            write_timeout: Duration::from_mins(2),
            log_timeout: Duration::from_secs(30),
            shutdown_timeout: Duration::from_secs(30),
        }
    }

    fn check(&self) -> Result<(), RemoteStorageError> {
        for (name, value) in [
            ("snapshot_interval", self.snapshot_interval),
            ("write_timeout", self.write_timeout),
            ("log_timeout", self.log_timeout),
            ("shutdown_timeout", self.shutdown_timeout),
        ] {
            if value.is_zero() {
                return Err(RemoteStorageError::InvalidArgument(format!(
                    "{name} is 0: give a time above 0"
                )));
            }
        }
        Ok(())
    }
}

/// What the manager, its task and its snapshots have in common.
pub(super) struct Shared {
    pub(super) log: Arc<dyn MetadataEventLog>,
    pub(super) config: TopicManagerConfig,
    pub(super) partitions: Vec<Arc<MetadataPartition>>,
    pub(super) lag: Vec<LagGauge>,
    /// The offsets of the snapshot that is on the disk, by partition; −1 for none.
    pub(super) committed: RwLock<Vec<i64>>,
    /// Whether it was looked for a snapshot.
    pub(super) loaded: watch::Sender<bool>,
    /// Told whenever a gate opens, or the assignment changes.
    pub(super) ready: Notify,
    pub(super) stop: CancellationToken,
}

impl Shared {
    /// The partition of this number, which is in range.
    pub(super) fn partition(&self, number: i32) -> &Arc<MetadataPartition> {
        let index = usize::try_from(number).expect("a metadata partition in range");
        &self.partitions[index]
    }

    fn partition_of(&self, tp: &TopicIdPartition) -> (i32, &Arc<MetadataPartition>) {
        let count = self.log.partition_count();
        let number = try_metadata_partition_for(tp, count).expect("checked at the start");
        (number, self.partition(number))
    }
}

/// Keeps the metadata of remote segments in a topic, as Apache Kafka's
/// `TopicBasedRemoteLogMetadataManager` does, and answers from what it has replayed.
///
/// A change is an event that is published to the metadata partition of the segment's partition.
/// The call returns when this manager has read its own event back and applied it, with what the
/// state machine said to it there: the order of events in the log decides, also between brokers.
///
/// The broker says with [`reconcile_assignment`](Self::reconcile_assignment) which metadata
/// partitions are read here: those of all partitions that it leads or follows (see
/// [`metadata_partitions_for`](super::metadata_partitions_for)). A partition that was just assigned
/// answers [`NotReady`](RemoteStorageError::NotReady) until its replay has come to the mark that the
/// log had then; the answers are never those of half a replay. About a partition that is not
/// assigned nothing is known: queries find nothing, changes and
/// [`check_ready`](RemoteLogMetadataStore::check_ready) answer `NotReady`. What was known of it is
/// dropped when it is taken away.
///
/// What has been applied is written to a [`Snapshot`](super::Snapshot) at times, so that a restart
/// reads only what came after it. A snapshot that does not fit the log (another topic, another
/// number of partitions, an offset that the log does not have) is put aside, and the log is
/// replayed.
///
/// Records that are no events (see the metric `metadata_records_skipped_total`) are passed over and
/// never stop the replay. This manager never publishes an event that Apache Kafka's would not read.
///
/// # Errors
///
/// A change that fails is one of three things:
/// - [`EventNotSent`](RemoteStorageError::EventNotSent),
///   [`NotReady`](RemoteStorageError::NotReady) and
///   [`InvalidArgument`](RemoteStorageError::InvalidArgument): no event was written;
/// - [`EventOutcomeUnknown`](RemoteStorageError::EventOutcomeUnknown): the event may be in the log,
///   now or later. [`outcome_of`](Self::outcome_of) tells what it became; repeating the call does
///   no harm as long as the segment was not deleted since;
/// - [`InvalidAdd`](RemoteStorageError::InvalidAdd),
///   [`SegmentNotFound`](RemoteStorageError::SegmentNotFound),
///   [`InvalidSegmentTransition`](RemoteStorageError::InvalidSegmentTransition) and
///   [`InvalidPartitionDeleteTransition`](RemoteStorageError::InvalidPartitionDeleteTransition):
///   the state machine refused it, and nothing has changed.
///
/// # Cancellation
///
/// Dropping the future of a change leaves its outcome unknown. Dropping the manager ends its task;
/// what it had applied since the last snapshot is read again at the next start.
pub struct TopicBasedRemoteLogMetadataManager {
    shared: Arc<Shared>,
    commands: mpsc::UnboundedSender<Command>,
}

impl fmt::Debug for TopicBasedRemoteLogMetadataManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopicBasedRemoteLogMetadataManager")
            .field("assigned", &self.assigned_metadata_partitions())
            .field("is_closed", &self.shared.stop.is_cancelled())
            .finish_non_exhaustive()
    }
}

impl Drop for TopicBasedRemoteLogMetadataManager {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl TopicBasedRemoteLogMetadataManager {
    /// Starts a manager over this log, whose task runs on `runtime`.
    ///
    /// Nothing is assigned yet. The snapshot, if there is one, is read by the task; a bad one is
    /// put aside and costs a replay, never the start. Returns at once.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument) when `snapshot_interval` is 0 or
    /// the log has no partitions.
    #[allow(clippy::needless_pass_by_value)] // callers pass `Handle::current()`
    pub fn start(
        log: Arc<dyn MetadataEventLog>,
        runtime: Handle,
        snapshot_dir: impl Into<PathBuf>,
        snapshot_interval: Duration,
    ) -> Result<Arc<Self>, RemoteStorageError> {
        let config = TopicManagerConfig::new(snapshot_dir, snapshot_interval);
        Self::start_with(log, &runtime, config)
    }

    /// Starts a manager with all that can be set.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument) when a time is 0 or the log has no
    /// partitions.
    pub fn start_with(
        log: Arc<dyn MetadataEventLog>,
        runtime: &Handle,
        config: TopicManagerConfig,
    ) -> Result<Arc<Self>, RemoteStorageError> {
        config.check()?;
        let count = log.partition_count();
        if count <= 0 {
            return Err(RemoteStorageError::InvalidArgument(format!(
                "a metadata log with {count} partitions cannot hold events"
            )));
        }
        let (commands, received) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            log,
            config,
            partitions: (0..count)
                .map(|number| Arc::new(MetadataPartition::new(number, count)))
                .collect(),
            lag: (0..count).map(LagGauge::new).collect(),
            committed: RwLock::new((0..count).map(|_| -1).collect()),
            loaded: watch::Sender::new(false),
            ready: Notify::new(),
            stop: CancellationToken::new(),
        });
        runtime.spawn(Actor::new(Arc::clone(&shared), received).run());
        Ok(Arc::new(Self { shared, commands }))
    }

    /// Makes exactly these metadata partitions the assigned ones.
    ///
    /// Returns when the log was asked for the marks of the new ones and their replay has begun;
    /// [`wait_until_ready`](Self::wait_until_ready) waits for its end. Partitions that are assigned
    /// already are not disturbed. The order of concurrent calls is that in which they are received.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument) when the log has no such partition
    /// (then nothing changes) or the manager was shut down;
    /// [`NotReady`](RemoteStorageError::NotReady) when the log could not be asked: the partitions
    /// are assigned, and the log is asked again until it answers.
    ///
    /// # Cancellation
    ///
    /// The assignment changes although the future is dropped.
    pub async fn reconcile_assignment(&self, desired: &[i32]) -> Result<(), RemoteStorageError> {
        let count = self.shared.log.partition_count();
        if let Some(wrong) = desired.iter().find(|wanted| !(0..count).contains(*wanted)) {
            return Err(RemoteStorageError::InvalidArgument(format!(
                "metadata partition {wrong} is outside of 0..{count}: nothing was assigned"
            )));
        }
        let desired: BTreeSet<_> = desired.iter().copied().collect();
        self.command("reconcile_assignment", |reply| {
            Command::Reconcile(desired, reply)
        })
        .await
    }

    /// Waits until every assigned partition is ready. Waits for ever if that never comes, so set a
    /// deadline.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument) when the manager is shut down.
    pub async fn wait_until_ready(&self) -> Result<(), RemoteStorageError> {
        loop {
            let changed = self.shared.ready.notified();
            self.check_open("wait_until_ready")?;
            let partitions = self.shared.partitions.iter();
            if partitions
                .map(|partition| partition.gate())
                .all(|gate| gate != Gate::NotReady)
            {
                return Ok(());
            }
            changed.await;
        }
    }

    /// The assigned metadata partitions, ascending.
    pub fn assigned_metadata_partitions(&self) -> Vec<i32> {
        let readiness = self.metadata_partition_readiness();
        readiness.into_iter().map(|one| one.partition).collect()
    }

    /// How far the replay of each assigned metadata partition has come, ascending by partition.
    pub fn metadata_partition_readiness(&self) -> Vec<MetadataPartitionReadiness> {
        let partitions = self.shared.partitions.iter();
        partitions
            .filter_map(|partition| partition.readiness())
            .collect()
    }

    /// The offset that the snapshot on the disk has of this metadata partition; −1 when there is
    /// none. A restart reads the log from the offset after it. Waits until the manager has looked
    /// for a snapshot.
    pub async fn committed_offset(&self, partition: i32) -> i64 {
        let mut loaded = self.shared.loaded.subscribe();
        tokio::select! {
            _ = loaded.wait_for(|loaded| *loaded) => {}
            () = self.shared.stop.cancelled() => {}
        }
        let committed = self.shared.committed.read();
        let index = usize::try_from(partition).ok();
        index
            .and_then(|index| committed.get(index).copied())
            .unwrap_or(-1)
    }

    /// What became of an event whose publish ended with
    /// [`EventOutcomeUnknown`](RemoteStorageError::EventOutcomeUnknown), or whose future was
    /// dropped. `None` when the manager knows of no such event (any more): it remembers the latest
    /// 256 of each metadata partition, and forgets them when it is dropped.
    pub fn outcome_of(&self, event: &MetadataEvent) -> Option<EventOutcome> {
        let (_, partition) = self.shared.partition_of(event.topic_id_partition());
        partition.outcome_of(&event.encode())
    }

    /// Writes a snapshot of what has been applied.
    ///
    /// # Errors
    ///
    /// [`Io`](RemoteStorageError::Io) when it cannot be written; the one before stays then.
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument) when the manager is shut down.
    pub async fn flush(&self) -> Result<(), RemoteStorageError> {
        self.command("flush", Command::Flush).await
    }

    /// Ends the manager's task soon, without a snapshot. Calls that wait, and all later ones, fail.
    pub fn shutdown(&self) {
        self.shared.stop.cancel();
    }

    /// Writes a last snapshot and ends the manager's task. Calls that wait, and all later ones,
    /// fail.
    ///
    /// # Errors
    ///
    /// [`Io`](RemoteStorageError::Io) when the snapshot cannot be written, or not within
    /// [`shutdown_timeout`](TopicManagerConfig::shutdown_timeout). The task ends all the same.
    pub async fn shutdown_and_flush(&self) -> Result<(), RemoteStorageError> {
        if self.shared.stop.is_cancelled() {
            return Ok(());
        }
        let limit = self.shared.config.shutdown_timeout;
        let flushed = self.command("shutdown_and_flush", Command::FlushAndStop);
        let flushed = tokio::time::timeout(limit, flushed).await;
        self.shutdown();
        flushed.unwrap_or_else(|_| {
            let late = format!("the last snapshot was not written within {limit:?}");
            Err(std::io::Error::new(std::io::ErrorKind::TimedOut, late).into())
        })
    }

    async fn command(
        &self,
        call: &str,
        command: impl FnOnce(Reply) -> Command,
    ) -> Result<(), RemoteStorageError> {
        self.check_open(call)?;
        let (reply, answer) = oneshot::channel();
        // A command that cannot be sent is dropped here, and its end of the answer with it.
        drop(self.commands.send(command(reply)));
        answer.await.unwrap_or_else(|_| Err(closed(call)))
    }

    fn check_open(&self, call: &str) -> Result<(), RemoteStorageError> {
        if self.shared.stop.is_cancelled() {
            return Err(closed(call));
        }
        Ok(())
    }

    fn query<T: Default>(
        &self,
        tp: &TopicIdPartition,
        ask: impl FnOnce(&RemoteLogMetadataCache) -> T,
    ) -> Result<T, RemoteStorageError> {
        self.check_open("a query")?;
        self.shared.partition_of(tp).1.query(tp, ask)
    }

    /// Publishes an event, and waits until it was applied here.
    async fn write(&self, event: MetadataEvent) -> Result<(), RemoteStorageError> {
        let written = self.publish_and_wait(&event).await;
        telemetry::published(match &written {
            Ok(outcome) => *outcome,
            Err(error) => match error.kind() {
                ErrorKind::NotReady => PublishOutcome::NotReady,
                ErrorKind::OutcomeUnknown => PublishOutcome::Unknown,
                ErrorKind::Invalid | ErrorKind::NotFound => PublishOutcome::Refused,
                _ => PublishOutcome::NotSent,
            },
        });
        written.map(|_| ())
    }

    async fn publish_and_wait(
        &self,
        event: &MetadataEvent,
    ) -> Result<PublishOutcome, RemoteStorageError> {
        event.check_publishable()?;
        self.check_open("a change")?;
        let deadline = Instant::now() + self.shared.config.write_timeout;
        let (number, partition) = self.shared.partition_of(event.topic_id_partition());
        let payload = event.encode();
        let Some(publish) = partition.begin_write(event, &payload)? else {
            return Ok(PublishOutcome::Repeated);
        };
        let published = tokio::select! {
            published = self.shared.log.publish(number, payload) => published,
            () = tokio::time::sleep_until(deadline) => return Err(self.left_open(number, None)),
            () = self.shared.stop.cancelled() => return Err(self.left_open(number, None)),
        };
        match published {
            Ok(offset) => self.applied(number, publish, offset, deadline).await,
            Err(error) => {
                let error = error.into_storage(number);
                if error.kind() != ErrorKind::OutcomeUnknown {
                    publish.settle();
                }
                Err(error)
            }
        }
    }

    /// Waits until the event at `offset` was applied.
    async fn applied(
        &self,
        number: i32,
        publish: Publish,
        offset: i64,
        deadline: Instant,
    ) -> Result<PublishOutcome, RemoteStorageError> {
        let answer = match publish.acknowledged(offset) {
            Acknowledged::Done(answer) => answer,
            Acknowledged::Waiting(answer) => tokio::select! {
                biased;
                answer = answer => answer.unwrap_or_else(|_| Err(self.left_open(number, Some(offset)))),
                () = tokio::time::sleep_until(deadline) => Err(self.left_open(number, Some(offset))),
                () = self.shared.stop.cancelled() => Err(self.left_open(number, Some(offset))),
            },
        };
        let is_open = matches!(&answer, Err(error) if error.kind() == ErrorKind::OutcomeUnknown);
        if !is_open {
            publish.settle();
        }
        answer.map(|()| PublishOutcome::Applied)
    }

    fn left_open(&self, partition: i32, offset: Option<i64>) -> RemoteStorageError {
        let reason = if self.shared.stop.is_cancelled() {
            "the manager was shut down".to_owned()
        } else {
            let limit = self.shared.config.write_timeout;
            format!("the event was not applied within {limit:?}")
        };
        RemoteStorageError::EventOutcomeUnknown {
            partition,
            offset,
            source: Some(ErrorSource::new(std::io::Error::other(reason))),
        }
    }
}

fn closed(call: &str) -> RemoteStorageError {
    RemoteStorageError::InvalidArgument(format!(
        "{call} was made on a metadata manager that has been shut down"
    ))
}

fn owned(segments: &[SegmentView<'_>]) -> Vec<RemoteLogSegmentMetadata> {
    segments.iter().map(SegmentView::to_metadata).collect()
}

#[async_trait]
impl RemoteLogMetadataStore for TopicBasedRemoteLogMetadataManager {
    async fn add_segment(
        &self,
        metadata: RemoteLogSegmentMetadata,
    ) -> Result<(), RemoteStorageError> {
        self.write(MetadataEvent::AddSegment(metadata)).await
    }

    async fn update_segment(
        &self,
        update: RemoteLogSegmentMetadataUpdate,
    ) -> Result<(), RemoteStorageError> {
        self.write(MetadataEvent::UpdateSegment(update)).await
    }

    async fn put_partition_delete(
        &self,
        metadata: RemotePartitionDeleteMetadata,
    ) -> Result<(), RemoteStorageError> {
        self.write(MetadataEvent::PartitionDelete(metadata)).await
    }

    async fn find_segment(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
        offset: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
        self.query(topic_id_partition, |cache| {
            let found = cache.find_segment(leader_epoch, offset);
            found.map(|segment| segment.to_metadata())
        })
    }

    async fn find_segment_with_txn_index(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
        offset: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
        self.query(topic_id_partition, |cache| {
            let found = cache.find_segment_with_txn_index(leader_epoch, offset);
            found.map(|segment| segment.to_metadata())
        })
    }

    async fn highest_offset(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
    ) -> Result<Option<i64>, RemoteStorageError> {
        self.query(topic_id_partition, |cache| {
            cache.highest_offset(leader_epoch)
        })
    }

    async fn newest_segment(
        &self,
        topic_id_partition: &TopicIdPartition,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
        self.query(topic_id_partition, |cache| {
            cache.newest_segment().map(|segment| segment.to_metadata())
        })
    }

    async fn list_segments(
        &self,
        topic_id_partition: &TopicIdPartition,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, RemoteStorageError> {
        self.query(topic_id_partition, |cache| owned(&cache.list_segments()))
    }

    async fn list_segments_by_epoch(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, RemoteStorageError> {
        self.query(topic_id_partition, |cache| {
            owned(&cache.list_segments_by_epoch(leader_epoch))
        })
    }

    async fn log_size(
        &self,
        topic_id_partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
    ) -> Result<i64, RemoteStorageError> {
        self.query(topic_id_partition, |cache| cache.log_size(leader_epoch))
    }

    async fn check_ready(
        &self,
        topic_id_partition: &TopicIdPartition,
    ) -> Result<(), RemoteStorageError> {
        self.check_open("a query")?;
        self.shared.partition_of(topic_id_partition).1.check_ready()
    }
}
