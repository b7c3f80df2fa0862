//! Kafka tiered storage (KIP-405).

pub mod error;
pub mod model;
pub mod ops;

pub use error::{ErrorKind, RemoteStorageError, WormError};
pub use model::{
    CustomMetadata, IndexType, LOG_FILE_SUFFIX, LeaderEpoch, LogSegmentData,
    RemoteLogSegmentDetails, RemoteLogSegmentId, RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState, RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState, TopicIdPartition,
};
pub use ops::{CopySegment, DeleteSegment, FetchIndex, FetchSegment, OpService, StorageOp};
