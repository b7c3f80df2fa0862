//! Metadata in a topic: Kafka's `__remote_log_metadata`, and the manager that replays it.
//!
//! Every change of a segment's metadata is an event in a log with a fixed number of metadata
//! partitions. [`MetadataEvent`] is one event and its bytes, which are those of Apache Kafka;
//! [`metadata_partition_for`] says which metadata partition holds the events of a user's partition;
//! [`MetadataEventLog`] is the log itself, in this process or on real brokers.
//! [`TopicBasedRemoteLogMetadataManager`] replays the assigned metadata partitions into caches and
//! answers from them; [`Snapshot`] is what it keeps on the local disk, so that a restart need not
//! replay everything.
//!
//! # Metrics
//!
//! | Name | Kind | Labels | Unit | Meaning |
//! |---|---|---|---|---|
//! | `krabka_remote_storage_metadata_lag_offsets` | gauge | `partition` | count | Offsets that an assigned metadata partition has to replay until it is ready |
//! | `krabka_remote_storage_metadata_events_applied_total` | counter | | count | Events of the log that were applied |
//! | `krabka_remote_storage_metadata_records_skipped_total` | counter | `reason` | count | Records of the log that changed nothing |
//! | `krabka_remote_storage_metadata_publishes_total` | counter | `outcome` | count | Events that callers asked to publish |
//! | `krabka_remote_storage_metadata_replay_restarts_total` | counter | `reason` | count | Replays that began at the log's start though some of it was known |
//! | `krabka_remote_storage_metadata_snapshots_total` | counter | `outcome` | count | Snapshots that were loaded or written |
//!
//! | Metric | Label | Values |
//! |---|---|---|
//! | records skipped | `reason` | `tombstone` (a null value), `malformed` (no event), `misplaced` (of a partition whose events belong to another metadata partition), `refused` (by the state machine) |
//! | publishes | `outcome` | `applied`, `repeated` (known already, nothing was written), `refused`, `not_ready`, `not_sent`, `unknown` |
//! | replay restarts | `reason` | `trimmed` (the log begins behind the position), `shorter` (it ends before it), `unreadable` |
//! | snapshots | `outcome` | `loaded`, `rejected` (put aside), `written`, `failed` |

mod actor;
mod codec_error;
mod event;
mod in_process;
#[cfg(feature = "kafka")]
mod kafka;
mod log;
mod log_error;
mod manager;
mod partition;
mod partitioning;
mod poison;
mod readiness;
mod replay;
mod snapshot;
mod snapshot_store;
mod survey;
mod telemetry;
mod wire;

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
pub use manager::{TopicBasedRemoteLogMetadataManager, TopicManagerConfig};
pub use partition::EventOutcome;
pub use partitioning::{
    metadata_partition_for, metadata_partitions_for, try_metadata_partition_for,
};
pub use poison::PoisonReason;
pub use readiness::MetadataPartitionReadiness;
pub use snapshot::{
    SNAPSHOT_FILE_NAME, SNAPSHOT_FORMAT_VERSION, Snapshot, SnapshotCaches, SnapshotEncoder,
    SnapshotError,
};
pub use survey::{
    MetadataPartitionSurvey, PartitionSurvey, SegmentStatistics, SegmentsInState, SurveyObserver,
    TopicSurvey,
};
pub(crate) use telemetry::describe_metrics;

pub use super::not_ready::NotReadyRlmm;
pub use super::swappable::SwappableRlmm;
