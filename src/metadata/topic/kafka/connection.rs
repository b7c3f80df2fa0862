//! One consumer and the queues of its partitions.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::{Mutex, MutexGuard, RwLock};
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::{Message, Offset, TopicPartitionList};
use tokio::sync::Notify;
use uuid::Uuid;

use super::super::log::MetadataEventRecord;
use super::client::{self, ClientEvents};
use super::config::KafkaMetadataLogConfig;

/// A page ends with the record that reaches one of these.
const PAGE_RECORDS: usize = 1024;
const PAGE_BYTES: usize = 256 * 1024;

/// What librdkafka's threads tell a subscription. They hold locks of their own meanwhile, so this
/// knows neither a consumer nor anything that could end one.
#[derive(Debug, Default)]
pub(super) struct Signals {
    fresh: Mutex<Fresh>,
    /// Something is fresh, or the subscription has ended.
    pub(super) reader: Notify,
    /// The consumer has something to report, or the assignment has changed.
    pub(super) driver: Notify,
}

/// Partitions to look at, each once.
#[derive(Debug, Default)]
struct Fresh {
    order: VecDeque<i32>,
    is_in: Vec<bool>,
}

impl Signals {
    pub(super) fn has_more(&self, partition: i32) {
        let Ok(index) = usize::try_from(partition) else {
            return;
        };
        let mut fresh = self.fresh.lock();
        if fresh.is_in.len() <= index {
            fresh.is_in.resize(index + 1, false);
        }
        if !std::mem::replace(&mut fresh.is_in[index], true) {
            fresh.order.push_back(partition);
            drop(fresh);
            self.reader.notify_one();
        }
    }

    pub(super) fn next(&self) -> Option<i32> {
        let mut fresh = self.fresh.lock();
        let partition = fresh.order.pop_front()?;
        fresh.is_in[index(partition)] = false;
        Some(partition)
    }

    pub(super) fn is_fresh(&self, partition: i32) -> bool {
        let fresh = self.fresh.lock();
        fresh.is_in.get(index(partition)).copied().unwrap_or(false)
    }
}

fn index(partition: i32) -> usize {
    usize::try_from(partition).expect("only those that are not negative come in")
}

/// A consumer, assigned partition by partition, without a group.
pub(super) struct Connection {
    // Before the consumer, which they belong to.
    queues: RwLock<HashMap<i32, PartitionQueue<ClientEvents>>>,
    consumer: Arc<BaseConsumer<ClientEvents>>,
    topic: String,
    signals: Arc<Signals>,
    /// Held while records are taken, and while partitions come and go.
    records: Mutex<()>,
    /// Held while anything is polled that may report. What a report says of a partition's end is one
    /// value for the whole consumer, so it has to be taken before another queue is polled.
    reports: Mutex<()>,
    /// Records came to the consumer's own queue, and are lost to it.
    has_lost_records: AtomicBool,
}

/// What was read of one partition.
#[derive(Debug, Default)]
pub(super) struct ReadPage {
    pub(super) records: Vec<MetadataEventRecord>,
    /// Everything below was read, or does not exist.
    pub(super) next: i64,
    /// There may be more at once.
    pub(super) is_full: bool,
    /// The brokers do not have the offset that comes next.
    pub(super) is_out_of_range: bool,
    /// The consumer can go on no longer.
    pub(super) is_broken: bool,
}

impl Connection {
    /// Makes a consumer, which blocks for a moment.
    pub(super) fn open(
        config: &KafkaMetadataLogConfig,
        suffix: &str,
        signals: &Arc<Signals>,
    ) -> KafkaResult<Self> {
        let mut settings = client::settings(config, suffix);
        let wait = config.fetch_max_wait;
        let request = config.request_timeout.max(wait + Duration::from_secs(5));
        let capacity = config.event_queue_capacity.capacity().min(10_000_000);
        let bytes = config.fetch_max_bytes.min(1_000_000_000);
        settings
            // Nothing is committed and nobody joins; without a name nothing can be assigned.
            .set("group.id", &config.client_id)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "error")
            .set("isolation.level", "read_uncommitted")
            .set("enable.partition.eof", "true")
            .set("check.crcs", "true")
            .set("socket.timeout.ms", client::millis(request, 10, 300_000))
            .set("fetch.wait.max.ms", client::millis(wait, 1, 290_000))
            .set(
                "fetch.error.backoff.ms",
                client::millis(config.fetch_retry_backoff, 1, 300_000),
            )
            .set("fetch.message.max.bytes", bytes.to_string())
            .set("queued.min.messages", capacity.to_string())
            .set(
                "queued.max.messages.kbytes",
                (bytes / 1024).clamp(1, 2_097_151).to_string(),
            )
            // Its default, one second, is for queues that are never empty.
            .set("fetch.queue.backoff.ms", "1");
        client::report_topic_id(&mut settings);
        let events = ClientEvents::new(&config.topic);
        let mut consumer: BaseConsumer<_> = settings.create_with_context(events)?;
        let told = Arc::clone(signals);
        consumer.set_nonempty_callback(move || told.driver.notify_one());
        Ok(Self {
            queues: RwLock::default(),
            consumer: Arc::new(consumer),
            topic: config.topic.clone(),
            signals: Arc::clone(signals),
            records: Mutex::default(),
            reports: Mutex::default(),
            has_lost_records: AtomicBool::new(false),
        })
    }

    /// Fetches the first ones no longer, and the second ones from these offsets on. Blocks for a
    /// moment. Nothing that was fetched before is left for those that are fetched again.
    pub(super) fn change(&self, gone: &[i32], new: &[(i32, i64)]) -> KafkaResult<()> {
        let _records = self.records.lock();
        self.unassign(gone)?;
        self.assign(new)
    }

    /// Begins to fetch these partitions from these offsets. Blocks for a moment.
    pub(super) fn assign(&self, partitions: &[(i32, i64)]) -> KafkaResult<()> {
        if partitions.is_empty() {
            return Ok(());
        }
        let mut list = TopicPartitionList::with_capacity(partitions.len());
        for &(partition, offset) in partitions {
            list.add_partition_offset(&self.topic, partition, Offset::Offset(offset))?;
            self.split_queue(partition)?;
        }
        self.consumer.incremental_assign(&list)
    }

    /// Has a partition's records come in a queue of its own. That queue stays as long as the
    /// consumer, because the end of one would silence its successor.
    fn split_queue(&self, partition: i32) -> KafkaResult<()> {
        if let Some(queue) = self.queues.read().get(&partition) {
            // Reports of an earlier assignment. Its records are left out by the consumer.
            while queue.poll(Duration::ZERO).is_some() {}
            return Ok(());
        }
        let queue = self.consumer.split_partition_queue(&self.topic, partition);
        let mut queue = queue.ok_or(KafkaError::Global(RDKafkaErrorCode::UnknownPartition))?;
        let told = Arc::clone(&self.signals);
        queue.set_nonempty_callback(move || told.has_more(partition));
        self.queues.write().insert(partition, queue);
        Ok(())
    }

    fn unassign(&self, partitions: &[i32]) -> KafkaResult<()> {
        if partitions.is_empty() {
            return Ok(());
        }
        let mut list = TopicPartitionList::with_capacity(partitions.len());
        for &partition in partitions {
            list.add_partition(&self.topic, partition);
        }
        self.consumer.incremental_unassign(&list)
    }

    /// Takes what the consumer reports, which has to happen all the time. Answers whether the
    /// consumer can go on.
    ///
    /// It cannot when something of a partition comes here and not in the partition's own queue:
    /// nobody would get it. [`read`](Self::read) hands out nothing more then.
    pub(super) fn serve(&self) -> bool {
        // Until all is taken in, and not only away from the queue: see `topic_id`.
        let _reports = self.reports.lock();
        let events = self.consumer.client().context();
        let mut goes_on = !self.has_lost_records.load(Ordering::Relaxed);
        loop {
            let before = events.reports();
            match self.consumer.poll(Duration::ZERO) {
                Some(Err(KafkaError::MessageConsumptionFatal(_))) => goes_on = false,
                Some(Ok(_) | Err(KafkaError::PartitionEOF(_))) => {
                    self.has_lost_records.store(true, Ordering::Relaxed);
                    goes_on = false;
                }
                None if events.reports() == before => return goes_on,
                Some(Err(_)) | None => {}
            }
        }
    }

    /// The id of the topic that the consumer reads. To be asked after [`serve`](Self::serve): the
    /// report of a new id comes before the first record of the new topic.
    pub(super) fn topic_id(&self) -> Option<Uuid> {
        self.consumer.client().context().topic_id()
    }

    /// Permission to read, unless partitions come and go now.
    pub(super) fn try_reading(&self) -> Option<MutexGuard<'_, ()>> {
        self.records.try_lock()
    }

    /// What is there of a partition, without waiting, from `position` on.
    pub(super) fn read(&self, partition: i32, position: i64) -> ReadPage {
        let mut page = PageBuilder::new(partition, position);
        let mut end = ReadPage::default();
        let _reports = self.reports.lock();
        if self.has_lost_records.load(Ordering::Relaxed) {
            end.is_broken = true;
            return page.finish(end);
        }
        let queues = self.queues.read();
        let Some(queue) = queues.get(&partition) else {
            return page.finish(end);
        };
        while !page.is_full() {
            match queue.poll(Duration::ZERO) {
                None => return page.finish(end),
                Some(Ok(message)) => page.push(&message),
                Some(Err(KafkaError::PartitionEOF(_))) => {
                    let events = self.consumer.client().context();
                    if let Some(offset) = events.end_of_partition() {
                        page.next = page.next.max(offset);
                    }
                }
                Some(Err(KafkaError::MessageConsumptionFatal(_))) => {
                    end.is_broken = true;
                    return page.finish(end);
                }
                Some(Err(KafkaError::MessageConsumption(
                    RDKafkaErrorCode::AutoOffsetReset
                    | RDKafkaErrorCode::OffsetOutOfRange
                    | RDKafkaErrorCode::LogTruncation,
                ))) => {
                    end.is_out_of_range = true;
                    return page.finish(end);
                }
                // Trouble that the consumer gets over by itself; it was logged.
                Some(Err(_)) => {}
            }
        }
        end.is_full = true;
        page.finish(end)
    }
}

/// Collects the records of a page in one piece of memory.
struct PageBuilder {
    partition: i32,
    next: i64,
    bytes: BytesMut,
    records: Vec<Found>,
}

struct Found {
    offset: i64,
    key: Option<Range<usize>>,
    value: Option<Range<usize>>,
}

impl PageBuilder {
    fn new(partition: i32, position: i64) -> Self {
        Self {
            partition,
            next: position,
            bytes: BytesMut::new(),
            records: Vec::new(),
        }
    }

    fn is_full(&self) -> bool {
        self.records.len() >= PAGE_RECORDS || self.bytes.len() >= PAGE_BYTES
    }

    fn push(&mut self, message: &impl Message) {
        let offset = message.offset();
        // Of a consumer that has begun before this position.
        if offset < self.next {
            return;
        }
        let found = Found {
            offset,
            key: message.key().map(|key| self.append(key)),
            value: message.payload().map(|value| self.append(value)),
        };
        self.records.push(found);
        self.next = offset + 1;
    }

    fn append(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    fn finish(self, mut page: ReadPage) -> ReadPage {
        let bytes: Bytes = self.bytes.freeze();
        let partition = self.partition;
        let records = self.records.into_iter().map(|found| MetadataEventRecord {
            partition,
            offset: found.offset,
            tombstone: found.value.is_none(),
            payload: found.value.map(|at| bytes.slice(at)).unwrap_or_default(),
            key: found.key.map(|at| bytes.slice(at)),
        });
        page.records = records.collect();
        page.next = self.next;
        page
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use rdkafka::ClientConfig;
    use rdkafka::mocking::MockCluster;
    use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer as _};

    use super::*;

    #[test]
    fn a_consumer_that_gets_records_past_their_queue_hands_out_nothing_more() {
        let cluster: MockCluster<'_, DefaultProducerContext> =
            MockCluster::new(1).expect("a cluster");
        let mut config = KafkaMetadataLogConfig::new(cluster.bootstrap_servers());
        config.fetch_max_wait = Duration::from_millis(20);
        cluster.create_topic(&config.topic, 2, 1).expect("a topic");
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", &config.bootstrap)
            .create()
            .expect("a producer");
        for partition in 0..2 {
            let record = BaseRecord::<(), str>::to(&config.topic);
            let record = record.partition(partition).payload("event");
            producer.send(record).expect("a place in the queue");
        }
        producer.flush(Duration::from_mins(1)).expect("written");

        let connection = Connection::open(&config, "test", &Arc::default()).expect("a consumer");
        connection.assign(&[(0, 0)]).expect("an assignment");
        let limit = Instant::now() + Duration::from_mins(1);
        let mut page = ReadPage::default();
        while page.records.is_empty() {
            assert!(Instant::now() < limit && connection.serve());
            page = connection.read(0, 0);
        }
        assert_eq!(
            (page.records.len(), page.next, page.is_broken),
            (1, 1, false)
        );

        // Without a queue of its own.
        let mut list = TopicPartitionList::new();
        let added = list.add_partition_offset(&config.topic, 1, Offset::Offset(0));
        added.expect("an offset");
        let assigned = connection.consumer.incremental_assign(&list);
        assigned.expect("an assignment");
        while connection.serve() {
            assert!(Instant::now() < limit);
            std::thread::sleep(Duration::from_millis(1));
        }
        let page = connection.read(0, 1);
        assert_eq!(
            (page.records.len(), page.next, page.is_broken),
            (0, 1, true)
        );
        assert!(!connection.serve(), "once is enough");
    }
}
