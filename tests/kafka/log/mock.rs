//! A log on librdkafka's mock cluster, and what tests do with it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use krabka_remote_storage::metadata::topic::{
    AssignmentHandle, KafkaMetadataEventLog, KafkaMetadataLogConfig, MetadataEventLog as _,
    MetadataEventPage, MetadataEventStream, MetadataStreamItem, PartitionStart,
};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;

/// Longer than anything here takes.
pub const LIMIT: Duration = Duration::from_mins(1);

pub struct Mock {
    pub cluster: MockCluster<'static, DefaultProducerContext>,
    pub config: KafkaMetadataLogConfig,
}

impl Mock {
    pub fn new(brokers: i32, partitions: i32) -> Self {
        let cluster = MockCluster::new(brokers).unwrap();
        let mut config = KafkaMetadataLogConfig::new(cluster.bootstrap_servers());
        config.num_partitions = partitions;
        config.fetch_max_wait = Duration::from_millis(20);
        config.fetch_retry_backoff = Duration::from_millis(20);
        cluster
            .create_topic(&config.topic, partitions, brokers)
            .unwrap();
        Self { cluster, config }
    }

    pub async fn log(&self) -> Arc<KafkaMetadataEventLog> {
        within(KafkaMetadataEventLog::start(self.config.clone()))
            .await
            .unwrap()
    }
}

/// The answer, which has to come in time.
pub async fn within<T>(answer: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, answer)
        .await
        .expect("an answer in time")
}

pub fn start(partition: i32, start_offset: i64) -> PartitionStart {
    PartitionStart {
        partition,
        start_offset,
    }
}

pub fn event(number: usize) -> Bytes {
    Bytes::from(format!("event {number}"))
}

pub async fn publish(log: &KafkaMetadataEventLog, partition: i32, numbers: std::ops::Range<usize>) {
    for number in numbers {
        within(log.publish(partition, event(number))).await.unwrap();
    }
}

/// A subscription, read item by item.
pub struct Reader {
    pub items: MetadataEventStream,
    pub handle: Arc<dyn AssignmentHandle>,
}

impl Reader {
    pub async fn new(log: &KafkaMetadataEventLog, starts: Vec<PartitionStart>) -> Self {
        let (items, handle) = within(log.subscribe(starts)).await.unwrap();
        Self { items, handle }
    }

    pub async fn item(&mut self) -> MetadataStreamItem {
        within(self.items.next()).await.expect("the stream goes on")
    }

    pub async fn page(&mut self) -> MetadataEventPage {
        match self.item().await {
            MetadataStreamItem::Page(page) => page,
            other => panic!("a page, not {other:?}"),
        }
    }

    /// Reads on until this partition's position is `end`, and answers with what came of it.
    pub async fn read_to(&mut self, partition: i32, end: i64) -> Vec<(i64, Bytes)> {
        let mut read = Vec::new();
        loop {
            let page = self.page().await;
            if page.partition != partition {
                continue;
            }
            let records = page.records.into_iter();
            read.extend(records.map(|record| (record.offset, record.payload)));
            assert!(page.next_offset <= end, "{} > {end}", page.next_offset);
            if page.next_offset == end {
                return read;
            }
        }
    }
}

pub fn events(numbers: std::ops::Range<usize>) -> Vec<(i64, Bytes)> {
    numbers
        .map(|number| (i64::try_from(number).unwrap(), event(number)))
        .collect()
}
