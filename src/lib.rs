//! Kafka tiered storage (KIP-405).

pub mod backends;
pub mod error;
pub mod index;
pub mod layout;
pub mod metadata;
pub mod model;
pub mod ops;
pub mod spi;

pub use error::{ErrorKind, RemoteStorageError, WormError};
pub use index::{LogOffset, RecordBatch, TimestampMs, corrupt_log};
pub use layout::{
    PartitionDirName, SegmentFileName, decode_kafka_uuid, kafka_uuid, parse_partition_dir_name,
    parse_segment_file_name, partition_dir_name, segment_file_name,
};
pub use metadata::dump::{self, PartitionDump, RlmmCacheDump};
pub use model::{
    CustomMetadata, IndexType, LOG_FILE_SUFFIX, LeaderEpoch, LogSegmentData,
    RemoteLogSegmentDetails, RemoteLogSegmentId, RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState, RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState, TopicIdPartition,
};
pub use ops::{CopySegment, DeleteSegment, FetchIndex, FetchSegment, OpService, StorageOp};
pub use spi::{RemoteLogMetadataManager, RemoteStorageManager};
