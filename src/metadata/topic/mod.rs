//! Metadata in a topic: Kafka's `__remote_log_metadata`, and the manager that replays it.
//!
//! Every change of a segment's metadata is an event in a log with a fixed number of metadata
//! partitions. [`MetadataEvent`] is one event and its bytes, which are those of Apache Kafka;
//! [`metadata_partition_for`] says which metadata partition holds the events of a user's partition;
//! [`MetadataEventLog`] is the log itself, in this process or on real brokers.
//! `TopicBasedRemoteLogMetadataManager` replays the assigned metadata partitions into caches and
//! answers from them; `Snapshot` is what it keeps on the local disk, so that a restart need not
//! replay everything.

mod codec_error;
mod event;
mod in_process;
#[cfg(feature = "kafka")]
mod kafka;
mod log;
mod log_error;
mod partitioning;
mod poison;
mod replay;
mod survey;

pub use codec_error::CodecError;
pub use event::MetadataEvent;
pub use in_process::InProcessMetadataEventLog;
#[cfg(feature = "kafka")]
pub use kafka::{
    ClientIdentity, ClientSecurity, DEFAULT_METADATA_EVENT_QUEUE_CAPACITY,
    DEFAULT_METADATA_FETCH_MAX_BYTES, DEFAULT_METADATA_FETCH_MAX_WAIT,
    DEFAULT_METADATA_FETCH_RETRY_BACKOFF, DEFAULT_METADATA_TOPIC_CREATE_TIMEOUT, DEFAULT_MIN_ISR,
    DEFAULT_NUM_PARTITIONS, DEFAULT_REPLICATION, KafkaMetadataEventLog, KafkaMetadataLogConfig,
    MetadataEventQueueCapacity, Pem, SaslCredentials, SaslMechanism, SecurityProtocol,
    TopicFinding, TopicReport,
};
pub use log::{
    AssignmentHandle, KeyedEvent, METADATA_TOPIC, MetadataEventLog, MetadataEventPage,
    MetadataEventRecord, MetadataEventStream, MetadataStreamItem, PartitionStart, RangeVisitor,
};
pub use log_error::MetadataLogError;
pub use partitioning::{
    metadata_partition_for, metadata_partitions_for, try_metadata_partition_for,
};
pub use poison::PoisonReason;
pub use survey::{
    MetadataPartitionSurvey, PartitionSurvey, SegmentStatistics, SegmentsInState, SurveyObserver,
    TopicSurvey,
};
