//! A broker that says what a test wants: one topic with one partition, on a port of 127.0.0.1.
//!
//! It answers what finding, creating and reading a topic takes. What it was asked is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::CreatableTopicResult;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult,
};
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, BrokerId, CreateTopicsResponse, DescribeConfigsResponse,
    FetchRequest, FetchResponse, FindCoordinatorResponse, ListOffsetsRequest, ListOffsetsResponse,
    MetadataRequest, MetadataResponse, RequestKind, ResponseHeader, ResponseKind, TopicName,
};
use kafka_protocol::protocol::{Encodable as _, StrBytes, decode_request_header_from_buffer};
use kafka_protocol::records::{
    Compression, NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Record,
    RecordBatchEncoder, RecordEncodeOptions, TimestampType,
};
use krabka_remote_storage::metadata::topic::KafkaMetadataLogConfig;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use uuid::Uuid;

/// Kafka's error codes.
pub const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
pub const OFFSET_OUT_OF_RANGE: i16 = 1;
pub const TOPIC_AUTHORIZATION_FAILED: i16 = 29;
pub const TOPIC_ALREADY_EXISTS: i16 = 36;
pub const INVALID_REPLICATION_FACTOR: i16 = 38;

/// What is answered, and at which versions: the highest that have the topic by its name.
const APIS: [(ApiKey, i16, i16); 8] = [
    (ApiKey::ApiVersions, 0, 3),
    (ApiKey::Metadata, 1, 12),
    (ApiKey::Fetch, 4, 11),
    (ApiKey::ListOffsets, 1, 6),
    (ApiKey::CreateTopics, 2, 4),
    (ApiKey::DescribeConfigs, 1, 1),
    (ApiKey::FindCoordinator, 0, 2),
    // A client that may not write batches does not read them either.
    (ApiKey::Produce, 3, 8),
];

/// Records as one batch, which may reach further than its last record: compaction leaves such.
#[derive(Clone, Debug)]
pub struct Batch {
    pub records: Vec<(i64, Bytes)>,
    pub last_offset: i64,
}

impl Batch {
    fn encode(&self) -> Bytes {
        let (first, _) = self.records.first().expect("a batch has a record");
        let records: Vec<_> = self.records.iter().map(record).collect();
        let options = RecordEncodeOptions {
            version: 2,
            compression: Compression::None,
        };
        let mut bytes = BytesMut::new();
        RecordBatchEncoder::encode(&mut bytes, &records, &options).unwrap();
        let length = u32::from_be_bytes(bytes[8..12].try_into().unwrap());
        assert_eq!(
            bytes.len(),
            12 + usize::try_from(length).unwrap(),
            "one batch"
        );
        // The offset of the last one, relative, and the checksum of all from the attributes on.
        let delta = i32::try_from(self.last_offset - first).unwrap();
        bytes[23..27].copy_from_slice(&delta.to_be_bytes());
        let checksum = crc32c::crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&checksum.to_be_bytes());
        bytes.freeze()
    }
}

fn record((offset, value): &(i64, Bytes)) -> Record {
    Record {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: NO_PARTITION_LEADER_EPOCH,
        producer_id: NO_PRODUCER_ID,
        producer_epoch: NO_PRODUCER_EPOCH,
        timestamp_type: TimestampType::Creation,
        offset: *offset,
        // Records whose sequence does not follow their offsets would become several batches.
        sequence: i32::try_from(*offset).unwrap(),
        timestamp: 0,
        key: None,
        value: Some(value.clone()),
        headers: kafka_protocol::indexmap::IndexMap::default(),
    }
}

/// What the broker says, and what it was asked.
#[derive(Debug, Default)]
pub struct Script {
    /// The topic's partitions; `None` when it does not exist.
    pub partitions: Option<i32>,
    /// The topic's settings.
    pub settings: BTreeMap<&'static str, &'static str>,
    /// In place of the topic's metadata.
    pub metadata_error: i16,
    /// In place of the topic's settings.
    pub settings_error: i16,
    /// In place of creating the topic.
    pub create_error: i16,
    /// Another client creates the topic just before, with this many partitions.
    pub created_by_another: Option<i32>,
    /// What is never answered.
    pub silent: BTreeSet<i16>,

    /// The records of partition 0.
    pub batches: Vec<Batch>,
    pub low: i64,
    pub high: i64,
    /// The first consumer sees no more than what it has read, as if its replica stood still.
    pub first_consumer_is_stuck: bool,

    /// What was to be created.
    pub created: Vec<CreatableTopic>,
    /// Records that were handed out.
    pub fetched: usize,
    /// Connections that have fetched.
    pub consumers: Vec<usize>,
}

pub struct FakeBroker {
    pub script: Arc<Mutex<Script>>,
    pub config: KafkaMetadataLogConfig,
    /// A fetch was answered.
    pub has_answered: Arc<Notify>,
}

impl FakeBroker {
    pub async fn new(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut config = KafkaMetadataLogConfig::new(format!("127.0.0.1:{port}"));
        config.num_partitions = 1;
        config.replication = 1;
        config.min_isr = None;
        let script = Arc::new(Mutex::new(script));
        let has_answered = Arc::new(Notify::new());
        let broker = Connections {
            script: Arc::clone(&script),
            has_answered: Arc::clone(&has_answered),
            port,
            topic: config.topic.clone(),
            topic_id: Uuid::new_v4(),
        };
        tokio::spawn(broker.accept(listener));
        Self {
            script,
            config,
            has_answered,
        }
    }
}

#[derive(Clone)]
struct Connections {
    script: Arc<Mutex<Script>>,
    has_answered: Arc<Notify>,
    port: u16,
    topic: String,
    topic_id: Uuid,
}

impl Connections {
    async fn accept(self, listener: TcpListener) {
        for number in 0.. {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(self.clone().serve(stream, number));
        }
    }

    async fn serve(self, mut stream: TcpStream, connection: usize) {
        // Ends when the client is gone.
        while let Ok(length) = stream.read_u32().await {
            let mut request = vec![0; usize::try_from(length).unwrap()];
            if stream.read_exact(&mut request).await.is_err() {
                return;
            }
            let mut request = Bytes::from(request);
            let header = decode_request_header_from_buffer(&mut request).unwrap();
            let key = ApiKey::try_from(header.request_api_key).unwrap();
            let version = header.request_api_version;
            if self.script.lock().silent.contains(&(key as i16)) {
                continue;
            }
            let request = RequestKind::decode(key, &mut request, version).unwrap();
            let answer = self.answer(request, version, connection).await;
            let mut bytes = BytesMut::new();
            let answered = ResponseHeader::default().with_correlation_id(header.correlation_id);
            answered
                .encode(&mut bytes, key.response_header_version(version))
                .unwrap();
            answer.encode(&mut bytes, version).unwrap();
            let length = u32::try_from(bytes.len()).unwrap();
            if stream.write_u32(length).await.is_err() || stream.write_all(&bytes).await.is_err() {
                return;
            }
        }
    }

    async fn answer(&self, request: RequestKind, version: i16, connection: usize) -> ResponseKind {
        match request {
            RequestKind::ApiVersions(_) => ResponseKind::ApiVersions(api_versions()),
            RequestKind::Metadata(request) => ResponseKind::Metadata(self.metadata(&request)),
            RequestKind::FindCoordinator(_) => {
                let refused = FindCoordinatorResponse::default()
                    .with_error_code(TOPIC_AUTHORIZATION_FAILED + 1)
                    .with_node_id(BrokerId(-1));
                ResponseKind::FindCoordinator(refused)
            }
            RequestKind::CreateTopics(request) => {
                let topic = request.topics.into_iter().next().unwrap();
                ResponseKind::CreateTopics(self.create(topic))
            }
            RequestKind::DescribeConfigs(_) => ResponseKind::DescribeConfigs(self.settings()),
            RequestKind::ListOffsets(request) => ResponseKind::ListOffsets(self.offsets(&request)),
            RequestKind::Fetch(request) => {
                let answer = self.fetch(&request, connection);
                if answer.responses.iter().all(is_empty) {
                    let wait = u64::try_from(request.max_wait_ms).unwrap();
                    tokio::time::sleep(std::time::Duration::from_millis(wait.min(20))).await;
                }
                self.has_answered.notify_one();
                ResponseKind::Fetch(answer)
            }
            other => panic!("nobody should ask for {other:?} at version {version}"),
        }
    }

    fn name(&self) -> TopicName {
        TopicName(StrBytes::from_string(self.topic.clone()))
    }

    fn metadata(&self, _: &MetadataRequest) -> MetadataResponse {
        let script = self.script.lock();
        let mut topic = MetadataResponseTopic::default().with_name(Some(self.name()));
        match script.partitions {
            _ if script.metadata_error != 0 => topic.error_code = script.metadata_error,
            None => topic.error_code = UNKNOWN_TOPIC_OR_PARTITION,
            Some(count) => {
                topic.topic_id = self.topic_id;
                topic.partitions = (0..count).map(partition).collect();
            }
        }
        let broker = MetadataResponseBroker::default()
            .with_node_id(BrokerId(1))
            .with_host(StrBytes::from_static_str("127.0.0.1"))
            .with_port(self.port.into());
        MetadataResponse::default()
            .with_brokers(vec![broker])
            .with_controller_id(BrokerId(1))
            .with_topics(vec![topic])
    }

    fn create(&self, topic: CreatableTopic) -> CreateTopicsResponse {
        let mut script = self.script.lock();
        let mut error = script.create_error;
        if script.created_by_another.is_some() {
            script.partitions = script.created_by_another;
            error = TOPIC_ALREADY_EXISTS;
        }
        if error == 0 {
            script.partitions = Some(topic.num_partitions);
        }
        let result = CreatableTopicResult::default()
            .with_name(topic.name.clone())
            .with_error_code(error);
        script.created.push(topic);
        CreateTopicsResponse::default().with_topics(vec![result])
    }

    fn settings(&self) -> DescribeConfigsResponse {
        let script = self.script.lock();
        let settings = script.settings.iter().map(|(name, value)| {
            DescribeConfigsResourceResult::default()
                .with_name(StrBytes::from_static_str(name))
                .with_value(Some(StrBytes::from_static_str(value)))
                .with_config_source(1)
        });
        let result = DescribeConfigsResult::default()
            .with_error_code(script.settings_error)
            .with_resource_type(2)
            .with_resource_name(StrBytes::from_string(self.topic.clone()))
            .with_configs(settings.collect());
        DescribeConfigsResponse::default().with_results(vec![result])
    }

    fn offsets(&self, request: &ListOffsetsRequest) -> ListOffsetsResponse {
        let script = self.script.lock();
        let asked = request.topics.iter().flat_map(|topic| &topic.partitions);
        let partitions = asked.map(|asked| {
            let offset = match asked.timestamp {
                -2 => script.low,
                _ => script.high,
            };
            ListOffsetsPartitionResponse::default()
                .with_partition_index(asked.partition_index)
                .with_timestamp(-1)
                .with_offset(offset)
        });
        let topic = ListOffsetsTopicResponse::default()
            .with_name(self.name())
            .with_partitions(partitions.collect());
        ListOffsetsResponse::default().with_topics(vec![topic])
    }

    fn fetch(&self, request: &FetchRequest, connection: usize) -> FetchResponse {
        let mut script = self.script.lock();
        let asked = request.topics.iter().flat_map(|topic| &topic.partitions);
        let Some(asked) = asked.into_iter().next() else {
            return FetchResponse::default();
        };
        if !script.consumers.contains(&connection) {
            script.consumers.push(connection);
        }
        let offset = asked.fetch_offset;
        let mut answer = PartitionData::default()
            .with_partition_index(asked.partition)
            .with_high_watermark(script.high)
            .with_last_stable_offset(script.high)
            .with_log_start_offset(script.low);
        let mut records = BytesMut::new();
        if !(script.low..=script.high).contains(&offset) {
            answer.error_code = OFFSET_OUT_OF_RANGE;
        } else if script.first_consumer_is_stuck && script.consumers[0] == connection {
            answer.high_watermark = offset;
            answer.last_stable_offset = offset;
        } else {
            let most = usize::try_from(asked.partition_max_bytes).unwrap();
            let mut fetched = 0;
            for batch in &script.batches {
                if batch.last_offset >= offset && (records.is_empty() || records.len() < most) {
                    records.extend_from_slice(&batch.encode());
                    fetched += batch.records.len();
                }
            }
            script.fetched += fetched;
        }
        answer.records = Some(records.freeze());
        let topic = FetchableTopicResponse::default()
            .with_topic(self.name())
            .with_partitions(vec![answer]);
        FetchResponse::default().with_responses(vec![topic])
    }
}

fn is_empty(topic: &FetchableTopicResponse) -> bool {
    let mut partitions = topic.partitions.iter();
    partitions.all(|one| one.error_code == 0 && !has_records(one))
}

fn has_records(partition: &PartitionData) -> bool {
    partition
        .records
        .as_ref()
        .is_some_and(|records| !records.is_empty())
}

fn api_versions() -> ApiVersionsResponse {
    let apis = APIS.into_iter().map(|(key, min, max)| {
        ApiVersion::default()
            .with_api_key(key as i16)
            .with_min_version(min)
            .with_max_version(max)
    });
    ApiVersionsResponse::default().with_api_keys(apis.collect())
}

fn partition(index: i32) -> MetadataResponsePartition {
    MetadataResponsePartition::default()
        .with_partition_index(index)
        .with_leader_id(BrokerId(1))
        .with_leader_epoch(0)
        .with_replica_nodes(vec![BrokerId(1)])
        .with_isr_nodes(vec![BrokerId(1)])
}
