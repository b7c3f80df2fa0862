//! The data model of tiered storage: identities, segment metadata, states, and what a copy wrote.
//!
//! Names and meanings are those of Apache Kafka's `org.apache.kafka.server.log.remote.storage`
//! package (KIP-405). Everything here is plain data: nothing does I/O, and nothing panics on a
//! value that another broker wrote.

mod ids;
mod op_kind;
mod partition_delete;
mod progress;
mod receipt;
mod segment;
mod segment_data;
mod state;

pub(crate) use ids::{KAFKA_UUID_LEN, kafka_text, push_kafka_text};
pub use ids::{
    LeaderEpoch, RemoteLogSegmentId, TopicIdPartition, decode_kafka_uuid, kafka_uuid,
    random_kafka_uuid,
};
pub use op_kind::OpKind;
pub use partition_delete::{RemotePartitionDeleteMetadata, RemotePartitionDeleteState};
pub use progress::{CopyPhase, CopyProgress, CopySnapshot};
pub use receipt::{CopiedObject, CopyReceipt};
pub(crate) use segment::segment_problem;
pub use segment::{
    CustomMetadata, RemoteLogSegmentDetails, RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
};
pub use segment_data::{IndexType, LOG_FILE_SUFFIX, LogSegmentData};
pub use state::RemoteLogSegmentState;
