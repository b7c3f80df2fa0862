//! Commands that ask a cluster for its metadata, against a mock cluster that librdkafka starts in
//! this process, and against Apache Kafka where one is there.

mod access;
mod tiers;
mod topic;

use std::env;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use krabka_remote_storage::topic::{
    KafkaMetadataEventLog, KafkaMetadataLogConfig, MetadataEvent, MetadataEventLog as _,
};
use krabka_remote_storage::{
    RemoteLogSegmentId, RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState,
};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions};
use rdkafka::client::DefaultClientContext;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use serde_json::Value;
use tokio::runtime::Runtime;
use uuid::Uuid;

use crate::support::metadata_topic::records;
use crate::support::program::{Run, Scratch, run, test_data};

const PARTITIONS: i32 = 5;

/// A cluster with a metadata topic of the test's own.
struct Cluster {
    bootstrap: String,
    topic: String,
    log: Arc<KafkaMetadataEventLog>,
    runtime: Runtime,
    _mock: Option<MockCluster<'static, DefaultProducerContext>>,
}

impl Cluster {
    fn mock() -> Self {
        let mock = MockCluster::new(1).unwrap();
        let topic = "__remote_log_metadata";
        mock.create_topic(topic, PARTITIONS, 1).unwrap();
        Self::on(mock.bootstrap_servers(), topic.to_owned(), Some(mock))
    }

    /// A topic of Apache Kafka, where a broker is meant to be there.
    fn kafka() -> Option<Self> {
        let bootstrap = variable("BOOTSTRAP_SERVERS")?;
        let topic = format!("metadata-{}", Uuid::new_v4());
        Some(Self::on(bootstrap, topic, None))
    }

    /// An empty topic of each kind of cluster that is there.
    fn all() -> Vec<Self> {
        let mut clusters = vec![Self::mock()];
        clusters.extend(Self::kafka());
        clusters
    }

    fn on(
        bootstrap: String,
        topic: String,
        mock: Option<MockCluster<'static, DefaultProducerContext>>,
    ) -> Self {
        let runtime = Runtime::new().unwrap();
        let mut config = KafkaMetadataLogConfig::new(bootstrap.clone());
        config.topic.clone_from(&topic);
        config.num_partitions = PARTITIONS;
        config.replication = 1;
        config.min_isr = None;
        let log = runtime
            .block_on(KafkaMetadataEventLog::start(config))
            .unwrap();
        Self {
            bootstrap,
            topic,
            log,
            runtime,
            _mock: mock,
        }
    }

    /// The events that a real Kafka wrote.
    fn with_kafkas_events(self) -> Self {
        for record in records() {
            let offset = self.publish(record.metadata_partition, record.value);
            assert_eq!(offset, record.offset);
        }
        self
    }

    fn publish(&self, partition: i32, value: impl Into<Bytes>) -> i64 {
        let published = self.log.publish(partition, value.into());
        self.runtime.block_on(published).unwrap()
    }

    fn admin(&self) -> (AdminClient<DefaultClientContext>, AdminOptions) {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", &self.bootstrap);
        let options = AdminOptions::new().operation_timeout(Some(Duration::from_secs(30)));
        (client.create().unwrap(), options)
    }

    fn delete(&self) {
        let (admin, options) = self.admin();
        self.runtime.block_on(async {
            let deleted = admin.delete_topics(&[&self.topic], &options).await;
            deleted.unwrap().pop().unwrap().unwrap();
        });
    }

    fn add_a_partition(&self) {
        let (admin, options) = self.admin();
        let count = usize::try_from(PARTITIONS).unwrap() + 1;
        self.runtime.block_on(async {
            let more = [NewPartitions::new(&self.topic, count)];
            let made = admin.create_partitions(&more, &options).await;
            made.unwrap().pop().unwrap().unwrap();
        });
    }

    /// Deletes the topic, and makes it again with one record.
    fn make_again(&self) {
        self.delete();
        let made = Self::on(self.bootstrap.clone(), self.topic.clone(), None);
        made.publish(0, "after");
    }

    /// The arguments, with those that name the cluster.
    fn arguments<'a>(&'a self, arguments: &[&'a str]) -> Vec<&'a str> {
        let mut all = arguments.to_vec();
        all.extend([
            "--bootstrap",
            &self.bootstrap,
            "--metadata-topic",
            &self.topic,
        ]);
        all
    }

    fn run(&self, arguments: &[&str]) -> Run {
        run(&self.arguments(arguments))
    }
}

/// What the tests are told of Apache Kafka; `None` where no broker is meant to be there.
fn variable(name: &str) -> Option<String> {
    let name = format!("KRABKA_TEST_KAFKA_{name}");
    let value = env::var(&name).ok();
    assert!(
        value.is_some() || env::var_os("KRABKA_TEST_SERVERS").is_none(),
        "the servers are meant to be there, but {name} is not set"
    );
    if value.is_none() {
        eprintln!("without Apache Kafka: {name} is not set");
    }
    value
}

/// The lines of the test data, without what the log does not tell.
fn expected_records() -> Vec<Value> {
    let events = fs::read_to_string(test_data("metadata-topic/events.ndjson")).unwrap();
    let lines = events.lines().map(|line| {
        let mut record: Value = serde_json::from_str(line).unwrap();
        record.as_object_mut().unwrap().remove("timestamp_ms");
        record
    });
    lines.collect()
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The segment of the test data that begins here, and the metadata partition with its events.
fn segment_from(topic: &str, partition: i32, start_offset: i64) -> (i32, RemoteLogSegmentId) {
    let found = records().into_iter().find_map(|record| {
        let tp = record.event.topic_id_partition();
        let is_of_partition = tp.topic == topic && tp.partition == partition;
        match &record.event {
            MetadataEvent::AddSegment(add)
                if is_of_partition && add.start_offset() == start_offset =>
            {
                Some((
                    record.metadata_partition,
                    add.remote_log_segment_id().clone(),
                ))
            }
            _ => None,
        }
    });
    found.unwrap()
}

/// The event that a segment's deletion has begun, of an early time.
fn begins_deletion(id: RemoteLogSegmentId) -> Bytes {
    let state = RemoteLogSegmentState::DeleteSegmentStarted;
    let update = RemoteLogSegmentMetadataUpdate::new(id, 5, None, state, 1);
    MetadataEvent::UpdateSegment(update).encode()
}

/// A tier that Kafka wrote, to be changed.
fn kafkas_tier() -> Scratch {
    let scratch = Scratch::new();
    copy_dir(
        &test_data("tier/kafka-tiered-storage"),
        &scratch.path("tier"),
    );
    scratch
}
