//! The public names that the crate has promised so far: a lost one does not compile.
//!
//! A name joins the block when it is delivered and never leaves it.

#[allow(unused_imports)]
use krabka_remote_storage::{
    AbortedTxnIndexEntry, ArchiveVerifyReport, AuthenticatedArchive, BytePosition, ChainHead,
    ChainStamp, CopySegment, CustomMetadata, DEFAULT_INDEX_CACHE_TOTAL_SIZE_BYTES, DeleteSegment,
    EpochId, EpochSpan, ErrorKind, FetchIndex, FetchSegment, HexBytes, IndexCacheOutcome,
    IndexCacheStats, IndexType, InmemoryRemoteLogMetadataManager, LOG_FILE_SUFFIX, LeaderEpoch,
    LocalTieredStorage, LogOffset, LogSegmentData, MANIFEST_BODY_DOMAIN, MANIFEST_DOMAIN,
    MANIFEST_FORMAT_VERSION, MANIFEST_SUFFIX, MAX_MANIFEST_BYTES, ManifestBody, ManifestSeq,
    ManifestSignature, ObjectEntry, ObjectProtectionReport, OffsetGap, OffsetIndexEntry, OpService,
    PartitionDirName, PartitionDump, PartitionVerifyReport, REMOTE_INDEX_CACHE_DIR, RelativeOffset,
    RemoteIndexCache, RemoteLogMetadataManager, RemoteLogMetadataStore, RemoteLogReader,
    RemoteLogSegmentDetails, RemoteLogSegmentId, RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState, RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState, RemoteStorage, RemoteStorageBuilder, RemoteStorageError,
    RemoteStorageManager, RlmmCacheDump, S3RemoteStorage, SealedManifest, SegmentFileName,
    SegmentIdentity, SegmentManifest, Sha256Digest, StorageOp, TimeIndexEntry, TimestampMs,
    TopicIdPartition, TrustedManifestKeys, VerifyBreak, VerifyDepth, VerifyRequest,
    WORM_CHAIN_RECORD_VERSION, WormArchiver, WormChainRecord, WormConfig, WormError,
    authenticate_archive, backends, canonical_manifest_bytes, corrupt_log, decode_kafka_uuid, dump,
    end_position_for, first_batch_at_or_after, first_record_at_or_after_timestamp, index,
    kafka_uuid, manifest_head, manifest_signing_bytes, next_chain_stamp, parse_offset_index,
    parse_partition_dir_name, parse_segment_file_name, parse_time_index, parse_txn_index,
    partition_dir_name, position_for_relative_offset, relative_offset_floor_for_timestamp,
    segment_file_name, sync_shim, txn_overlaps, verify_archive, verify_manifest_signature,
};

/// The metadata topic's names.
#[allow(unused_imports)]
use krabka_remote_storage::topic::{
    AssignmentHandle, CodecError, InProcessMetadataEventLog, KeyedEvent, METADATA_TOPIC,
    MetadataEvent, MetadataEventLog, MetadataEventRecord, MetadataEventStream, MetadataLogError,
    MetadataPartitionReadiness, NotReadyRlmm, PartitionStart, RangeVisitor, SNAPSHOT_FILE_NAME,
    SNAPSHOT_FORMAT_VERSION, Snapshot, SnapshotError, SwappableRlmm,
    TopicBasedRemoteLogMetadataManager, metadata_partition_for, metadata_partitions_for,
};

#[cfg(feature = "kafka")]
#[allow(unused_imports)]
use krabka_remote_storage::topic::{
    DEFAULT_METADATA_EVENT_QUEUE_CAPACITY, DEFAULT_METADATA_FETCH_MAX_BYTES,
    DEFAULT_METADATA_FETCH_MAX_WAIT, DEFAULT_METADATA_FETCH_RETRY_BACKOFF,
    DEFAULT_METADATA_TOPIC_CREATE_TIMEOUT, DEFAULT_MIN_ISR, DEFAULT_NUM_PARTITIONS,
    DEFAULT_REPLICATION, KafkaMetadataEventLog, KafkaMetadataLogConfig, MetadataEventQueueCapacity,
};

#[test]
fn the_promised_constants_have_their_values() {
    assert_eq!(LOG_FILE_SUFFIX, ".log");
    assert_eq!(DEFAULT_INDEX_CACHE_TOTAL_SIZE_BYTES, 1_073_741_824);
    assert_eq!(REMOTE_INDEX_CACHE_DIR, "remote-log-index-cache");
    assert_eq!(METADATA_TOPIC, "__remote_log_metadata");
    assert_eq!(
        (SNAPSHOT_FILE_NAME, SNAPSHOT_FORMAT_VERSION),
        ("snapshot", 1)
    );
}

/// The names of `diskless`.
mod diskless {
    #[allow(unused_imports)]
    use krabka_remote_storage::diskless::{
        CAPTURE_HEAD_NAME, CAPTURE_STATE_KEY, CAPTURE_STATE_SUFFIX, DEFAULT_FLUSH_INTERVAL,
        DEFAULT_WAL_OBJECT_BYTES, DisklessError, DisklessPartitionCapture, DisklessWalCapture,
        REPLAY_FENCE_KEY, RetentionRules, WAL_INDEX_TOPIC, WAL_OBJECT_DIR, WAL_OBJECT_SUFFIX,
        WalCaptureProjection, WalDeleteFloorKey, WalDeleteFloorRecord, WalFlushRecord,
        WalIndexEntry, WalIndexKey, WalObjectBuilder, WalObjectEntry, WalObjectError, WalObjectKey,
        WalPartition, WalRange, WalRead, WalRunSummary, may_delete_object, parse_wal_object,
        parse_wal_object_key, trim_target, wal_index_key_version, wal_index_partition,
        wal_object_key, whole_batches,
    };

    #[test]
    fn the_promised_constants_have_their_values() {
        assert_eq!(WAL_INDEX_TOPIC, "__diskless_wal_index");
        assert_eq!(DEFAULT_WAL_OBJECT_BYTES, 8_388_608);
        assert_eq!(DEFAULT_FLUSH_INTERVAL.as_millis(), 250);
        assert_eq!(
            (WAL_OBJECT_DIR, WAL_OBJECT_SUFFIX),
            ("diskless-wal", ".ckwl")
        );
    }
}
