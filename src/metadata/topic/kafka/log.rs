//! The log itself.

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use parking_lot::{Mutex, RwLock};
use rdkafka::Offset;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::super::log::{
    AssignmentHandle, KeyedEvent, MetadataEventLog, MetadataEventStream, MetadataStreamItem,
    PartitionStart, RangeVisitor,
};
use super::super::log_error::MetadataLogError;
use super::client::OffThread;
use super::config::KafkaMetadataLogConfig;
use super::marks::{TopicClient, TopicState};
use super::publisher::Publisher;
use super::report::TopicReport;
use super::subscription::{Subscription, stall_limit};
use super::{provisioning, watchdog};
use crate::error::ErrorSource;

/// How long [`shutdown`](KafkaMetadataEventLog::shutdown) waits for everything together.
const SHUTDOWN: Duration = Duration::from_secs(10);

/// A [`MetadataEventLog`] in a topic of a Kafka cluster.
///
/// Brokers of Apache Kafka can write to and read from the same topic. Each subscription has a
/// consumer of its own, which is assigned its partitions and joins no group; nothing is committed.
/// Connections that break, leaders that move and brokers that restart are waited out, and no record
/// is skipped or delivered twice because of them.
///
/// Calls that block in the client run in threads for blocking work. The log has to be made and used
/// within a Tokio runtime. Dropping it ends all subscriptions; [`shutdown`](Self::shutdown) also
/// waits for events that are on their way.
///
/// # When the topic changes
///
/// The topic's id is learned from the client's own reports, and is checked before records are
/// handed out: positions of a topic that was deleted and made again end with
/// [`OutOfRange`](MetadataStreamItem::OutOfRange), whatever offsets the new one has. When partitions
/// were added, marks are [`Rejected`](MetadataLogError::Rejected) until the log is opened again,
/// because events of a user's partition are elsewhere then; what is being read goes on.
pub struct KafkaMetadataEventLog {
    core: Arc<Core>,
    publisher: Option<Publisher>,
    report: TopicReport,
}

/// What is known of the topic.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) partition_count: i32,
    topic_id: RwLock<Option<Uuid>>,
}

impl Known {
    /// The id of the topic that marks were asked of last: what positions belong to.
    pub(super) fn topic_id(&self) -> Option<Uuid> {
        *self.topic_id.read()
    }
}

/// What the log and its watchdog share.
pub(super) struct Core {
    config: Arc<KafkaMetadataLogConfig>,
    known: Arc<Known>,
    topics: Arc<OffThread<TopicClient>>,
    subscriptions: Mutex<Vec<Weak<Subscription>>>,
    stop: CancellationToken,
}

impl KafkaMetadataEventLog {
    /// Finds the topic, or creates it, and opens it for reading and writing.
    ///
    /// What an existing topic has otherwise than the configuration asks for is logged, and is in
    /// [`topic_report`](Self::topic_report); nothing of it is changed.
    ///
    /// # Errors
    ///
    /// [`Rejected`](MetadataLogError::Rejected) for a configuration that does not hold, missing
    /// rights, credentials or certificates that are not accepted, and a topic that is missing and
    /// must not be created. [`Unavailable`](MetadataLogError::Unavailable) when brokers cannot be
    /// reached in time.
    ///
    /// # Cancellation
    ///
    /// Dropping the future may leave a topic that was just created.
    pub async fn start(config: KafkaMetadataLogConfig) -> Result<Arc<Self>, MetadataLogError> {
        let config = checked(config)?;
        let topics = topic_client(&config).await?;
        let report = provisioning::provision(&config, &topics).await?;
        let publisher = Publisher::start(&config).await?;
        Ok(Self::open(config, topics, Some(publisher), report))
    }

    /// Opens the topic for reading only. It needs the rights Describe and Read, creates nothing, and
    /// [`publish`](MetadataEventLog::publish) is refused.
    ///
    /// # Errors
    ///
    /// Those of [`start`](Self::start).
    pub async fn open_read_only(
        config: KafkaMetadataLogConfig,
    ) -> Result<Arc<Self>, MetadataLogError> {
        let config = checked(config)?;
        let topics = topic_client(&config).await?;
        let report = provisioning::find(&config, &topics).await?;
        Ok(Self::open(config, topics, None, report))
    }

    fn open(
        config: Arc<KafkaMetadataLogConfig>,
        topics: Arc<OffThread<TopicClient>>,
        publisher: Option<Publisher>,
        report: TopicReport,
    ) -> Arc<Self> {
        let known = Known {
            partition_count: report.partitions,
            topic_id: RwLock::new(report.topic_id),
        };
        let core = Arc::new(Core {
            known: Arc::new(known),
            topics,
            subscriptions: Mutex::default(),
            stop: CancellationToken::new(),
            config,
        });
        let stop = core.stop.clone();
        let watching = watchdog::watch(Arc::downgrade(&core), core.config.stall_check_interval);
        tokio::spawn(async move { stop.run_until_cancelled(watching).await });
        Arc::new(Self {
            core,
            publisher,
            report,
        })
    }

    /// What was found out about the topic when the log was opened.
    pub fn topic_report(&self) -> &TopicReport {
        &self.report
    }

    /// Ends all subscriptions, takes no more events, and waits up to ten seconds for those on their
    /// way. Later calls are refused with [`Closed`](MetadataLogError::Closed).
    ///
    /// # Cancellation
    ///
    /// Dropping the future leaves the log closed; what was on its way is not waited for.
    pub async fn shutdown(&self) {
        self.core.stop.cancel();
        if let Some(publisher) = &self.publisher {
            let closed = tokio::time::timeout(SHUTDOWN, publisher.close()).await;
            if closed.is_err() {
                tracing::warn!("the producer of the metadata log does not end");
            }
        }
    }

    async fn append(
        &self,
        partition: i32,
        key: Option<Bytes>,
        value: Option<Bytes>,
    ) -> Result<i64, MetadataLogError> {
        self.core.check_partition(partition)?;
        self.core.check_open()?;
        let publisher = self
            .publisher
            .as_ref()
            .ok_or_else(|| MetadataLogError::Publish {
                reason: "the log was opened for reading only".to_owned(),
                source: None,
            })?;
        publisher
            .publish(partition, key.as_ref(), value.as_ref())
            .await
    }

    async fn subscribe_as(
        &self,
        suffix: &'static str,
        starts: Vec<PartitionStart>,
    ) -> Result<(MetadataEventStream, Arc<dyn AssignmentHandle>), MetadataLogError> {
        let core = &self.core;
        core.check_open()?;
        let (stream, handle) =
            Subscription::start(&core.config, &core.known, suffix, starts, &core.stop).await?;
        let mut subscriptions = core.subscriptions.lock();
        subscriptions.retain(|known| known.strong_count() > 0);
        subscriptions.push(Arc::downgrade(handle.subscription()));
        Ok((stream, handle))
    }
}

impl Drop for KafkaMetadataEventLog {
    fn drop(&mut self) {
        self.core.stop.cancel();
    }
}

impl std::fmt::Debug for KafkaMetadataEventLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaMetadataEventLog")
            .field("config", &self.core.config)
            .field("report", &self.report)
            .finish_non_exhaustive()
    }
}

impl Core {
    fn check_open(&self) -> Result<(), MetadataLogError> {
        if self.stop.is_cancelled() {
            return Err(MetadataLogError::Closed);
        }
        Ok(())
    }

    fn check_partition(&self, partition: i32) -> Result<(), MetadataLogError> {
        let count = self.known.partition_count;
        if (0..count).contains(&partition) {
            return Ok(());
        }
        Err(MetadataLogError::PartitionOutOfRange { partition, count })
    }

    pub(super) fn subscriptions(&self) -> Vec<Arc<Subscription>> {
        let subscriptions = self.subscriptions.lock();
        subscriptions.iter().filter_map(Weak::upgrade).collect()
    }

    /// The topic as it is now, and the first or the last offset of each partition, as far as it has
    /// those that it had.
    pub(super) async fn ask(
        &self,
        which: Offset,
    ) -> Result<(TopicState, Vec<i64>), MetadataLogError> {
        self.check_open()?;
        let topics = Arc::clone(&self.topics);
        let name = self.config.topic.clone();
        let count = self.known.partition_count;
        blocking(move || {
            let topic = topics.find()?.topic;
            let topic = topic.ok_or_else(|| MetadataLogError::Rejected {
                reason: format!("topic {name} does not exist any more"),
                source: None,
            })?;
            Ok((topic, topics.marks(which, count.min(topic.partitions))?))
        })
        .await
    }

    /// Refuses a topic whose number of partitions has changed.
    pub(super) fn check_count(&self, topic: TopicState) -> Result<(), MetadataLogError> {
        let count = self.known.partition_count;
        if topic.partitions == count {
            return Ok(());
        }
        Err(MetadataLogError::Rejected {
            reason: format!(
                "topic {} had {count} partitions when the log was opened, and has {} now: events \
                 are in other partitions than before; open the log again",
                self.config.topic, topic.partitions
            ),
            source: None,
        })
    }

    /// The first or the last offset of every partition. Positions are of this topic from now on.
    async fn marks(&self, which: Offset) -> Result<Vec<i64>, MetadataLogError> {
        let (topic, marks) = self.ask(which).await?;
        self.check_count(topic)?;
        let before = std::mem::replace(&mut *self.known.topic_id.write(), topic.id);
        if before.is_some() && before != topic.id {
            tracing::error!(
                topic = self.config.topic,
                ?before,
                now = ?topic.id,
                "the metadata topic was deleted and made again"
            );
        }
        Ok(marks)
    }
}

#[async_trait]
impl MetadataEventLog for KafkaMetadataEventLog {
    fn partition_count(&self) -> i32 {
        self.core.known.partition_count
    }

    /// The id of the topic that marks were asked of last.
    fn topic_id(&self) -> Option<Uuid> {
        self.core.known.topic_id()
    }

    async fn publish(&self, partition: i32, payload: Bytes) -> Result<i64, MetadataLogError> {
        self.append(partition, None, Some(payload)).await
    }

    async fn publish_keyed(
        &self,
        partition: i32,
        record: KeyedEvent,
    ) -> Result<i64, MetadataLogError> {
        self.append(partition, Some(record.key), record.event).await
    }

    async fn subscribe(
        &self,
        starts: Vec<PartitionStart>,
    ) -> Result<(MetadataEventStream, Arc<dyn AssignmentHandle>), MetadataLogError> {
        self.subscribe_as("consumer", starts).await
    }

    async fn low_water_marks(&self) -> Result<Vec<i64>, MetadataLogError> {
        self.core.marks(Offset::Beginning).await
    }

    async fn high_water_marks(&self) -> Result<Vec<i64>, MetadataLogError> {
        self.core.marks(Offset::End).await
    }

    async fn visit_range(
        &self,
        partition: i32,
        start: i64,
        end: i64,
        visitor: &mut RangeVisitor<'_>,
    ) -> Result<(), MetadataLogError> {
        self.core.check_partition(partition)?;
        let start = start.max(0);
        if start >= end {
            return Ok(());
        }
        let (_, ends) = self.core.ask(Offset::End).await?;
        let found = usize::try_from(partition).ok();
        let found = found.and_then(|index| ends.get(index));
        let found = found.ok_or_else(|| MetadataLogError::Rejected {
            reason: format!("the topic has no partition {partition} any more"),
            source: None,
        })?;
        let end = end.min(*found);
        if start >= end {
            return Ok(());
        }
        let starts = vec![PartitionStart {
            partition,
            start_offset: start,
        }];
        let (mut items, _handle) = self.subscribe_as("reader", starts).await?;
        let limit = stall_limit(&self.core.config) + self.core.config.request_timeout;
        let mut next = start;
        while next < end {
            let item = tokio::time::timeout(limit, items.next()).await;
            let item = item.map_err(|_| MetadataLogError::Unavailable {
                reason: format!(
                    "nothing of metadata partition {partition} came from offset {next} on within \
                     {limit:?}"
                ),
                source: None,
            })?;
            match item.ok_or(MetadataLogError::Closed)? {
                MetadataStreamItem::Page(page) => {
                    next = page.next_offset;
                    let records = page.records.into_iter();
                    records
                        .take_while(|record| record.offset < end)
                        .try_for_each(&mut *visitor)?;
                }
                MetadataStreamItem::OutOfRange { position, .. } => {
                    return Err(MetadataLogError::OffsetOutOfRange {
                        partition,
                        offset: position,
                    });
                }
            }
        }
        Ok(())
    }
}

fn checked(
    config: KafkaMetadataLogConfig,
) -> Result<Arc<KafkaMetadataLogConfig>, MetadataLogError> {
    match config.validate() {
        Ok(()) => Ok(Arc::new(config)),
        Err(fault) => Err(MetadataLogError::Rejected {
            reason: format!("the configuration of the metadata log does not hold: {fault}"),
            source: None,
        }),
    }
}

async fn topic_client(
    config: &Arc<KafkaMetadataLogConfig>,
) -> Result<Arc<OffThread<TopicClient>>, MetadataLogError> {
    let config = Arc::clone(config);
    let runtime = Handle::current();
    blocking(move || {
        if let Some(security) = &config.security {
            security.check_files()?;
        }
        let client = TopicClient::new(&config)?;
        Ok(Arc::new(OffThread::new(client, &runtime)))
    })
    .await
}

/// Runs a call that blocks where that is allowed.
pub(super) async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, MetadataLogError> + Send + 'static,
) -> Result<T, MetadataLogError> {
    match tokio::task::spawn_blocking(call).await {
        Ok(answer) => answer,
        Err(error) => Err(MetadataLogError::Unavailable {
            reason: "a call of the Kafka client has ended early".to_owned(),
            source: Some(ErrorSource::new(error)),
        }),
    }
}
