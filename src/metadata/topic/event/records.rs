//! The three records of the metadata topic: the order of their fields, in bytes.
//!
//! They are those of Kafka's schemas `RemoteLogSegmentMetadataRecord`,
//! `RemoteLogSegmentMetadataUpdateRecord` and `RemotePartitionDeleteMetadataRecord`, version 0.

use std::collections::BTreeMap;

use bytes::BufMut as _;

use super::super::codec_error::CodecError;
use super::super::wire::{
    NO_TAGS, Reader, custom_metadata_len, leader_epochs_len, put_custom_metadata,
    put_leader_epochs, put_segment_id, put_topic_id_partition, segment_id_len,
    topic_id_partition_len,
};
use crate::model::{
    RemoteLogSegmentDetails, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState, RemotePartitionDeleteMetadata, RemotePartitionDeleteState,
};

const TXN_INDEX_EMPTY: u32 = 0;
/// One field, its tag, its size, true.
const TXN_INDEX_IS_EMPTY: [u8; 4] = [1, 0, 1, 1];

pub(super) fn read_add(mut from: Reader<'_>) -> Result<RemoteLogSegmentMetadata, CodecError> {
    let id = from.segment_id()?;
    let start_offset = from.i64("the start offset")?;
    let end_offset = from.i64("the end offset")?;
    let broker_id = from.i32("the broker id")?;
    let max_timestamp_ms = from.i64("the highest timestamp")?;
    let event_timestamp_ms = from.i64("the event's timestamp")?;
    let mut epochs = BTreeMap::new();
    from.leader_epochs(|epoch, offset| {
        epochs.insert(epoch, offset);
    })?;
    let size = from.i32("the segment's size")?;
    let custom_metadata = from.custom_metadata()?;
    let state = from.u8("the state")?;
    let mut txn_index_empty = false;
    from.tags(|tag, bytes| {
        if tag == TXN_INDEX_EMPTY {
            let [byte] = bytes else {
                let length = bytes.len();
                let reason = format!("a TxnIndexEmpty of {length} bytes, where 1 is expected");
                return Err(CodecError::Protocol(reason));
            };
            txn_index_empty = *byte != 0;
        }
        Ok(())
    })?;
    from.end()?;
    let metadata = RemoteLogSegmentMetadata::new(
        id,
        start_offset,
        end_offset,
        max_timestamp_ms,
        broker_id,
        event_timestamp_ms,
        RemoteLogSegmentDetails::new(size, segment_state(state)?, epochs),
    )
    .map_err(|error| CodecError::Domain(error.to_string()))?
    .with_txn_index_empty(txn_index_empty);
    Ok(match custom_metadata {
        Some(custom) => metadata.with_custom_metadata(custom),
        None => metadata,
    })
}

pub(super) fn put_add(out: &mut Vec<u8>, metadata: &RemoteLogSegmentMetadata) {
    put_segment_id(out, metadata.remote_log_segment_id());
    out.put_i64(metadata.start_offset());
    out.put_i64(metadata.end_offset());
    out.put_i32(metadata.broker_id());
    out.put_i64(metadata.max_timestamp_ms());
    out.put_i64(metadata.event_timestamp_ms());
    put_leader_epochs(out, metadata.segment_leader_epochs().iter());
    out.put_i32(metadata.segment_size_in_bytes());
    put_custom_metadata(out, metadata.custom_metadata());
    out.put_i8(metadata.state().wire_id());
    if metadata.txn_index_empty() {
        out.extend_from_slice(&TXN_INDEX_IS_EMPTY);
    } else {
        out.push(NO_TAGS);
    }
}

pub(super) fn add_len(metadata: &RemoteLogSegmentMetadata) -> usize {
    let tags = if metadata.txn_index_empty() {
        TXN_INDEX_IS_EMPTY.len()
    } else {
        1
    };
    segment_id_len(metadata.remote_log_segment_id())
        // Two offsets, broker id, two timestamps.
        + (8 + 8 + 4 + 8 + 8)
        + leader_epochs_len(metadata.segment_leader_epochs().len())
        + 4
        + custom_metadata_len(metadata.custom_metadata())
        + 1
        + tags
}

pub(super) fn read_update(
    mut from: Reader<'_>,
) -> Result<RemoteLogSegmentMetadataUpdate, CodecError> {
    let id = from.segment_id()?;
    let broker_id = from.i32("the broker id")?;
    let event_timestamp_ms = from.i64("the event's timestamp")?;
    let custom_metadata = from.custom_metadata()?;
    let state = from.u8("the state")?;
    from.skip_tags()?;
    from.end()?;
    Ok(RemoteLogSegmentMetadataUpdate::new(
        id,
        event_timestamp_ms,
        custom_metadata,
        segment_state(state)?,
        broker_id,
    ))
}

pub(super) fn put_update(out: &mut Vec<u8>, update: &RemoteLogSegmentMetadataUpdate) {
    put_segment_id(out, &update.remote_log_segment_id);
    out.put_i32(update.broker_id);
    out.put_i64(update.event_timestamp_ms);
    put_custom_metadata(out, update.custom_metadata.as_ref());
    out.put_i8(update.state.wire_id());
    out.push(NO_TAGS);
}

pub(super) fn update_len(update: &RemoteLogSegmentMetadataUpdate) -> usize {
    segment_id_len(&update.remote_log_segment_id)
        + (4 + 8)
        + custom_metadata_len(update.custom_metadata.as_ref())
        + (1 + 1)
}

pub(super) fn read_delete(
    mut from: Reader<'_>,
) -> Result<RemotePartitionDeleteMetadata, CodecError> {
    let tp = from.topic_id_partition()?;
    let broker_id = from.i32("the broker id")?;
    let event_timestamp_ms = from.i64("the event's timestamp")?;
    let state = from.u8("the state")?;
    from.skip_tags()?;
    from.end()?;
    let known = RemotePartitionDeleteState::from_wire_id(state.cast_signed());
    let state = known.ok_or(CodecError::UnknownState(
        state,
        "RemotePartitionDeleteState",
    ))?;
    Ok(RemotePartitionDeleteMetadata::new(
        tp,
        state,
        event_timestamp_ms,
        broker_id,
    ))
}

pub(super) fn put_delete(out: &mut Vec<u8>, delete: &RemotePartitionDeleteMetadata) {
    put_topic_id_partition(out, &delete.topic_id_partition);
    out.put_i32(delete.broker_id);
    out.put_i64(delete.event_timestamp_ms);
    out.put_i8(delete.state.wire_id());
    out.push(NO_TAGS);
}

pub(super) fn delete_len(delete: &RemotePartitionDeleteMetadata) -> usize {
    topic_id_partition_len(&delete.topic_id_partition) + (4 + 8) + (1 + 1)
}

fn segment_state(byte: u8) -> Result<RemoteLogSegmentState, CodecError> {
    RemoteLogSegmentState::from_wire_id(byte.cast_signed())
        .ok_or(CodecError::UnknownState(byte, "RemoteLogSegmentState"))
}
