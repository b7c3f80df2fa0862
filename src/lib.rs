//! Kafka tiered storage (KIP-405).

pub mod error;
pub mod model;

pub use error::{ErrorKind, RemoteStorageError, WormError};
pub use model::{
    CustomMetadata, IndexType, LOG_FILE_SUFFIX, LeaderEpoch, LogSegmentData,
    RemoteLogSegmentDetails, RemoteLogSegmentId, RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState, RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState, TopicIdPartition,
};
