//! Kafka tiered storage (KIP-405): closed log segments go to an object store, and come back fast
//! and provably unchanged.
//!
//! [`RemoteStorage`] is the tier: `copy`, `fetch`, `fetch_index` and `delete`, each a tower stack
//! with retries, timeouts, permits, metrics and spans over an `object_store` client or a local
//! directory. A [`RemoteLogMetadataStore`] knows which segments there are. [`RemoteLogReader`] puts
//! the two together: from (partition, leader epoch, offset) to whole record batches. Synchronous
//! callers find Kafka's own interfaces in [`sync_shim`].
//!
//! Names, file layout and semantics are those of Apache Kafka 4.x; the pages of the items say
//! where this crate differs, and why.
//!
//! Everything but the stores over HTTP and the programs compiles without default features:
//! `aws`, `gcp` and `azure` add a store each, `cli` the programs, `kafka` the metadata topic on
//! Kafka brokers, and `testing` samples and a scripted store for tests. What the layers measure is a table in [`layers::metrics`].

pub use {bytes, object_store, uuid};

pub mod archive;
pub mod backends;
pub mod diskless;
pub mod error;
pub mod index;
pub mod index_cache;
pub mod layers;
pub mod layout;
pub mod metadata;
pub mod model;
pub mod ops;
pub mod reader;
pub mod rebuild;
pub mod segment;
pub mod spi;
pub mod stack;
pub mod sync_shim;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use archive::{
    ArchiveVerifyReport, AuthenticatedArchive, ChainHead, ChainStamp, EpochId, EpochSpan, HexBytes,
    MANIFEST_BODY_DOMAIN, MANIFEST_DOMAIN, MANIFEST_FORMAT_VERSION, MANIFEST_SUFFIX,
    MAX_MANIFEST_BYTES, ManifestBody, ManifestSeq, ManifestSignature, ObjectEntry,
    ObjectProtectionReport, OffsetGap, PartitionVerifyReport, SealedManifest, SegmentIdentity,
    SegmentManifest, Sha256Digest, TrustedManifestKeys, VerifyBreak, VerifyDepth, VerifyRequest,
    WORM_CHAIN_RECORD_VERSION, WormArchiver, WormChainRecord, WormConfig, authenticate_archive,
    canonical_manifest_bytes, manifest_head, manifest_signing_bytes, next_chain_stamp,
    verify_archive, verify_manifest_signature,
};
#[cfg(feature = "azure")]
pub use backends::AzureConfig;
#[cfg(feature = "gcp")]
pub use backends::GcsConfig;
#[cfg(feature = "aws")]
pub use backends::S3Config;
pub use backends::{
    Backend, DEFAULT_MULTIPART_CHUNK_SIZE, DEFAULT_MULTIPART_THRESHOLD, ObjectStoreClient,
    ObjectStoreConfig, RequestLimits, StoreClient, StoreHandles,
};
pub use error::{ErrorKind, RemoteStorageError, WormError};
pub use index::{
    AbortedTxnIndexEntry, BytePosition, LogOffset, OffsetIndexEntry, RecordBatch, RelativeOffset,
    TimeIndexEntry, TimestampMs, corrupt_log, end_position_for, first_batch_at_or_after,
    first_record_at_or_after_timestamp, parse_offset_index, parse_time_index, parse_txn_index,
    position_for_relative_offset, relative_offset_floor_for_timestamp, txn_overlaps,
};
pub use index_cache::{
    DEFAULT_INDEX_CACHE_TOTAL_SIZE_BYTES, IndexCacheConfig, IndexCacheOutcome, IndexCacheStats,
    IndexHandle, RemoteIndexCache,
};
pub use layout::{
    PartitionDirName, REMOTE_INDEX_CACHE_DIR, SegmentFileName, parse_partition_dir_name,
    parse_segment_file_name, partition_dir_name, segment_file_name,
};
pub use metadata::dump::{self, PartitionDump, RlmmCacheDump};
pub use metadata::topic;
pub use metadata::{InmemoryRemoteLogMetadataManager, RemoteLogMetadataStore};
pub use model::{
    CustomMetadata, IndexType, LOG_FILE_SUFFIX, LeaderEpoch, LogSegmentData,
    RemoteLogSegmentDetails, RemoteLogSegmentId, RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState, RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState, TopicIdPartition, decode_kafka_uuid, kafka_uuid,
};
pub use ops::{
    CopySegment, DeleteSegment, FetchIndex, FetchSegment, OpService, OpenIndex, StorageOp,
};
pub use reader::RemoteLogReader;
pub use spi::{RemoteLogMetadataManager, RemoteStorageManager};
pub use stack::{RemoteStorage, RemoteStorageBuilder};
pub use sync_shim::{LocalTieredStorage, S3RemoteStorage};

/// The examples of the README are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
