//! The metadata log in a topic of a Kafka cluster, over librdkafka.

mod client;
mod config;
mod connection;
mod faults;
mod log;
mod marks;
mod properties;
mod provisioning;
mod publisher;
mod report;
mod security;
mod subscription;
mod watchdog;

pub use config::{
    DEFAULT_METADATA_EVENT_QUEUE_CAPACITY, DEFAULT_METADATA_FETCH_MAX_BYTES,
    DEFAULT_METADATA_FETCH_MAX_WAIT, DEFAULT_METADATA_FETCH_RETRY_BACKOFF,
    DEFAULT_METADATA_TOPIC_CREATE_TIMEOUT, DEFAULT_MIN_ISR, DEFAULT_NUM_PARTITIONS,
    DEFAULT_REPLICATION, KafkaMetadataLogConfig, MetadataEventQueueCapacity,
};
pub use log::KafkaMetadataEventLog;
pub use report::{TopicFinding, TopicReport};
pub use security::{
    ClientIdentity, ClientSecurity, Pem, SaslCredentials, SaslMechanism, SecurityProtocol,
};
