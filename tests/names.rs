//! The public names that the crate has promised so far: a lost one does not compile.
//!
//! A name joins the block when it is delivered and never leaves it.

#[allow(unused_imports)]
use krabka_remote_storage::{
    AbortedTxnIndexEntry, BytePosition, CopySegment, CustomMetadata, DeleteSegment, ErrorKind,
    FetchIndex, FetchSegment, IndexType, InmemoryRemoteLogMetadataManager, LOG_FILE_SUFFIX,
    LeaderEpoch, LocalTieredStorage, LogOffset, LogSegmentData, OffsetIndexEntry, OpService,
    PartitionDirName, PartitionDump, RelativeOffset, RemoteLogMetadataManager,
    RemoteLogMetadataStore, RemoteLogSegmentDetails, RemoteLogSegmentId, RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState, RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState, RemoteStorageError, RemoteStorageManager, RlmmCacheDump,
    S3RemoteStorage, SegmentFileName, StorageOp, TimeIndexEntry, TimestampMs, TopicIdPartition,
    WormError, backends, corrupt_log, decode_kafka_uuid, dump, end_position_for,
    first_batch_at_or_after, first_record_at_or_after_timestamp, index, kafka_uuid,
    parse_offset_index, parse_partition_dir_name, parse_segment_file_name, parse_time_index,
    parse_txn_index, partition_dir_name, position_for_relative_offset,
    relative_offset_floor_for_timestamp, segment_file_name, sync_shim, txn_overlaps,
};

#[test]
fn the_promised_constants_have_their_values() {
    assert_eq!(LOG_FILE_SUFFIX, ".log");
}
