//! The three records of the metadata topic: the order of their fields, in bytes.
//!
//! They are those of Kafka's schemas `RemoteLogSegmentMetadataRecord`,
//! `RemoteLogSegmentMetadataUpdateRecord` and `RemotePartitionDeleteMetadataRecord`, version 0.

use std::collections::BTreeMap;
use std::iter;

use bytes::BufMut as _;
use uuid::Uuid;
use zerocopy::big_endian::{I32, I64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::super::codec_error::CodecError;
use super::super::wire::{
    EpochEntries, NO_TAGS, PartitionFields, Reader, leader_epochs_len, nullable_bytes_len,
    put_leader_epochs, put_nullable_bytes, put_segment_id, put_topic_id_partition, segment_id_len,
};
use crate::metadata::slots::{SegmentEpochs, Slot, SlotUpdate};
use crate::model::{
    CustomMetadata, LeaderEpoch, RemoteLogSegmentDetails, RemoteLogSegmentId,
    RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState,
    RemotePartitionDeleteMetadata, RemotePartitionDeleteState, TopicIdPartition, segment_problem,
};

const CUSTOM_METADATA: &str = "the custom metadata";
const TXN_INDEX_EMPTY: u32 = 0;
/// One field, its tag, its size, true.
const TXN_INDEX_IS_EMPTY: [u8; 4] = [1, 0, 1, 1];

/// What an add says of its segment, without the partition and borrowed from wherever it is.
#[derive(Clone, Debug)]
pub(in crate::metadata::topic) struct AddFields<'a, Epochs> {
    pub(in crate::metadata::topic) id: Uuid,
    pub(in crate::metadata::topic) start_offset: i64,
    pub(in crate::metadata::topic) end_offset: i64,
    pub(in crate::metadata::topic) broker_id: i32,
    pub(in crate::metadata::topic) max_timestamp_ms: i64,
    pub(in crate::metadata::topic) event_timestamp_ms: i64,
    /// Leader epochs and their start offsets. What is written ascends; what is read may be in any
    /// order, and the last of two entries of one epoch counts.
    pub(in crate::metadata::topic) epochs: Epochs,
    pub(in crate::metadata::topic) segment_size_in_bytes: i32,
    pub(in crate::metadata::topic) custom_metadata: Option<&'a [u8]>,
    pub(in crate::metadata::topic) state: RemoteLogSegmentState,
    pub(in crate::metadata::topic) txn_index_empty: bool,
}

impl<'a> AddFields<'a, EpochEntries<'a>> {
    pub(super) fn read(mut from: Reader<'a>) -> Result<(PartitionFields<'a>, Self), CodecError> {
        let (partition, id) = from.segment_id()?;
        let start_offset = from.i64("the start offset")?;
        let end_offset = from.i64("the end offset")?;
        let broker_id = from.i32("the broker id")?;
        let max_timestamp_ms = from.i64("the highest timestamp")?;
        let event_timestamp_ms = from.i64("the event's timestamp")?;
        let epochs = from.leader_epochs()?;
        let segment_size_in_bytes = from.i32("the segment's size")?;
        let custom_metadata = from.nullable_bytes(CUSTOM_METADATA)?;
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
        let add = Self {
            id,
            start_offset,
            end_offset,
            broker_id,
            max_timestamp_ms,
            event_timestamp_ms,
            epochs,
            segment_size_in_bytes,
            custom_metadata,
            state: segment_state(state)?,
            txn_index_empty,
        };
        Ok((partition, add))
    }
}

/// All of an add after its partition but the tagged fields, when it has one leader epoch and no
/// custom metadata, as most have.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct UsualAdd {
    id: [u8; 16],
    id_tags: u8,
    start_offset: I64,
    end_offset: I64,
    broker_id: I32,
    max_timestamp_ms: I64,
    event_timestamp_ms: I64,
    epochs_plus_one: u8,
    epoch: I32,
    epoch_start: I64,
    epoch_tags: u8,
    segment_size_in_bytes: I32,
    custom_metadata: u8,
    state: u8,
}

impl AddFields<'_, iter::Once<(LeaderEpoch, i64)>> {
    /// Reads what follows the partition, if it has the usual form: the same as
    /// [`read`](AddFields::read) finds, in one step. `None` says nothing of the add.
    ///
    /// Without it a restart from a snapshot takes 0.30 of a full replay instead of less than 0.2
    /// (`cargo bench --bench metadata_topic -- restart`).
    #[inline]
    pub(in crate::metadata::topic) fn read_usual(rest: &[u8]) -> Option<Self> {
        let (add, tags) = UsualAdd::ref_from_prefix(rest).ok()?;
        let txn_index_empty = tags == TXN_INDEX_IS_EMPTY;
        let is_usual = add.id_tags == NO_TAGS
            && add.epochs_plus_one == 2
            && add.epoch_tags == NO_TAGS
            && add.custom_metadata == 0
            && (txn_index_empty || tags == [NO_TAGS]);
        if !is_usual {
            return None;
        }
        Some(Self {
            id: Uuid::from_bytes(add.id),
            start_offset: add.start_offset.get(),
            end_offset: add.end_offset.get(),
            broker_id: add.broker_id.get(),
            max_timestamp_ms: add.max_timestamp_ms.get(),
            event_timestamp_ms: add.event_timestamp_ms.get(),
            epochs: iter::once((LeaderEpoch(add.epoch.get()), add.epoch_start.get())),
            segment_size_in_bytes: add.segment_size_in_bytes.get(),
            custom_metadata: None,
            state: RemoteLogSegmentState::from_wire_id(add.state.cast_signed())?,
            txn_index_empty,
        })
    }
}

impl<Epochs> AddFields<'_, Epochs>
where
    Epochs: ExactSizeIterator<Item = (LeaderEpoch, i64)>,
{
    /// The segment as a value of its own.
    pub(in crate::metadata::topic) fn into_metadata(
        self,
        tp: TopicIdPartition,
    ) -> Result<RemoteLogSegmentMetadata, CodecError> {
        let mut epochs = BTreeMap::new();
        for (epoch, start) in self.epochs {
            epochs.insert(epoch, start);
        }
        let metadata = RemoteLogSegmentMetadata::new(
            RemoteLogSegmentId::new(tp, self.id),
            self.start_offset,
            self.end_offset,
            self.max_timestamp_ms,
            self.broker_id,
            self.event_timestamp_ms,
            RemoteLogSegmentDetails::new(self.segment_size_in_bytes, self.state, epochs),
        )
        .map_err(|error| CodecError::Domain(error.to_string()))?
        .with_txn_index_empty(self.txn_index_empty);
        Ok(match self.custom_metadata {
            Some(custom) => metadata.with_custom_metadata(CustomMetadata(custom.to_vec())),
            None => metadata,
        })
    }

    /// The segment as a cache keeps it.
    #[inline]
    pub(in crate::metadata::topic) fn into_slot(
        self,
        partition: PartitionFields<'_>,
    ) -> Result<Slot, CodecError> {
        let (start, end) = (self.start_offset, self.end_offset);
        let size = self.segment_size_in_bytes;
        if let Some(problem) = segment_problem(start, end, size, self.epochs.len()) {
            let id = RemoteLogSegmentId::new(partition.to_owned(), self.id);
            return Err(CodecError::Domain(format!("segment {id}: {problem}")));
        }
        let epochs = if self.epochs.len() == 1 {
            SegmentEpochs::new(start, self.epochs)
        } else {
            // In order, and each once.
            let epochs: BTreeMap<_, _> = self.epochs.collect();
            SegmentEpochs::new(start, epochs.into_iter())
        };
        Ok(Slot {
            start_offset: start,
            end_offset: end,
            epochs,
            id: self.id,
            max_timestamp_ms: self.max_timestamp_ms,
            event_timestamp_ms: self.event_timestamp_ms,
            custom_metadata: self.custom_metadata.map(Into::into),
            broker_id: self.broker_id,
            segment_size_in_bytes: size,
            state: self.state,
            txn_index_empty: self.txn_index_empty,
        })
    }

    pub(super) fn put(self, out: &mut Vec<u8>, tp: &TopicIdPartition) {
        put_segment_id(out, tp, self.id);
        out.put_i64(self.start_offset);
        out.put_i64(self.end_offset);
        out.put_i32(self.broker_id);
        out.put_i64(self.max_timestamp_ms);
        out.put_i64(self.event_timestamp_ms);
        put_leader_epochs(out, self.epochs);
        out.put_i32(self.segment_size_in_bytes);
        put_nullable_bytes(out, self.custom_metadata);
        out.put_i8(self.state.wire_id());
        if self.txn_index_empty {
            out.extend_from_slice(&TXN_INDEX_IS_EMPTY);
        } else {
            out.push(NO_TAGS);
        }
    }

    pub(super) fn len(&self, tp: &TopicIdPartition) -> usize {
        let tags = if self.txn_index_empty {
            TXN_INDEX_IS_EMPTY.len()
        } else {
            1
        };
        segment_id_len(tp)
            // Two offsets, broker id, two timestamps.
            + (8 + 8 + 4 + 8 + 8)
            + leader_epochs_len(self.epochs.len())
            + 4
            + nullable_bytes_len(self.custom_metadata)
            + 1
            + tags
    }
}

/// What an add of this segment says.
pub(super) fn add_of(
    metadata: &RemoteLogSegmentMetadata,
) -> AddFields<'_, impl ExactSizeIterator<Item = (LeaderEpoch, i64)> + '_> {
    let epochs = metadata.segment_leader_epochs().iter();
    AddFields {
        id: metadata.remote_log_segment_id().id,
        start_offset: metadata.start_offset(),
        end_offset: metadata.end_offset(),
        broker_id: metadata.broker_id(),
        max_timestamp_ms: metadata.max_timestamp_ms(),
        event_timestamp_ms: metadata.event_timestamp_ms(),
        epochs: epochs.map(|(&epoch, &start)| (epoch, start)),
        segment_size_in_bytes: metadata.segment_size_in_bytes(),
        custom_metadata: metadata.custom_metadata().map(|custom| &*custom.0),
        state: metadata.state(),
        txn_index_empty: metadata.txn_index_empty(),
    }
}

pub(super) fn read_update(
    mut from: Reader<'_>,
) -> Result<(PartitionFields<'_>, SlotUpdate<'_>), CodecError> {
    let (partition, id) = from.segment_id()?;
    let broker_id = from.i32("the broker id")?;
    let event_timestamp_ms = from.i64("the event's timestamp")?;
    let custom_metadata = from.nullable_bytes(CUSTOM_METADATA)?;
    let state = from.u8("the state")?;
    from.skip_tags()?;
    from.end()?;
    let update = SlotUpdate {
        id,
        event_timestamp_ms,
        custom_metadata,
        broker_id,
        state: segment_state(state)?,
    };
    Ok((partition, update))
}

/// The update as a value of its own.
pub(super) fn into_update(
    update: SlotUpdate<'_>,
    tp: TopicIdPartition,
) -> RemoteLogSegmentMetadataUpdate {
    RemoteLogSegmentMetadataUpdate::new(
        RemoteLogSegmentId::new(tp, update.id),
        update.event_timestamp_ms,
        update
            .custom_metadata
            .map(|custom| CustomMetadata(custom.to_vec())),
        update.state,
        update.broker_id,
    )
}

pub(super) fn put_update(out: &mut Vec<u8>, update: &RemoteLogSegmentMetadataUpdate) {
    let id = &update.remote_log_segment_id;
    put_segment_id(out, &id.topic_id_partition, id.id);
    out.put_i32(update.broker_id);
    out.put_i64(update.event_timestamp_ms);
    put_nullable_bytes(out, custom_metadata(update));
    out.put_i8(update.state.wire_id());
    out.push(NO_TAGS);
}

pub(super) fn update_len(update: &RemoteLogSegmentMetadataUpdate) -> usize {
    segment_id_len(&update.remote_log_segment_id.topic_id_partition)
        + (4 + 8)
        + nullable_bytes_len(custom_metadata(update))
        + (1 + 1)
}

fn custom_metadata(update: &RemoteLogSegmentMetadataUpdate) -> Option<&[u8]> {
    update.custom_metadata.as_ref().map(|custom| &*custom.0)
}

pub(super) fn read_delete(
    mut from: Reader<'_>,
) -> Result<(PartitionFields<'_>, RemotePartitionDeleteMetadata), CodecError> {
    let partition = from.topic_id_partition()?;
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
    let delete = RemotePartitionDeleteMetadata::new(
        partition.to_owned(),
        state,
        event_timestamp_ms,
        broker_id,
    );
    Ok((partition, delete))
}

pub(super) fn put_delete(out: &mut Vec<u8>, delete: &RemotePartitionDeleteMetadata) {
    put_topic_id_partition(out, &delete.topic_id_partition);
    out.put_i32(delete.broker_id);
    out.put_i64(delete.event_timestamp_ms);
    out.put_i8(delete.state.wire_id());
    out.push(NO_TAGS);
}

pub(super) fn delete_len(delete: &RemotePartitionDeleteMetadata) -> usize {
    PartitionFields::from(&delete.topic_id_partition).len() + (4 + 8) + (1 + 1)
}

fn segment_state(byte: u8) -> Result<RemoteLogSegmentState, CodecError> {
    RemoteLogSegmentState::from_wire_id(byte.cast_signed())
        .ok_or(CodecError::UnknownState(byte, "RemoteLogSegmentState"))
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use proptest::prelude::*;

    use super::super::{EventFields, MetadataEvent};
    use super::*;
    use crate::testing::segments::{SegmentSpec, orders};

    /// All that an add says.
    fn said<E: Iterator<Item = (LeaderEpoch, i64)>>(add: AddFields<'_, E>) -> impl Debug {
        (
            (add.id, add.start_offset, add.end_offset, add.broker_id),
            (add.max_timestamp_ms, add.event_timestamp_ms),
            add.epochs.collect::<Vec<_>>(),
            add.segment_size_in_bytes,
            add.custom_metadata.map(<[u8]>::to_vec),
            (add.state, add.txn_index_empty),
        )
    }

    fn partition() -> TopicIdPartition {
        orders(0xca, 7)
    }

    fn add(epochs: &[(i32, i64)], custom: Option<Vec<u8>>, txn_index_empty: bool) -> MetadataEvent {
        let spec = SegmentSpec::new(0xfe, 10..=99).of(&partition()).size(4096);
        let segment = spec.epochs(epochs).at(1, 3).broker(2).make();
        let segment = segment.with_txn_index_empty(txn_index_empty);
        MetadataEvent::AddSegment(match custom {
            Some(custom) => segment.with_custom_metadata(CustomMetadata(custom)),
            None => segment,
        })
    }

    #[test]
    fn the_usual_add_is_read_in_one_step_and_another_is_left_to_the_reader() {
        let prefix = EventFields::prefix(&partition());
        let is_usual = |event: MetadataEvent| {
            let value = event.encode();
            AddFields::read_usual(value.strip_prefix(&*prefix).expect("its partition")).is_some()
        };
        assert!(is_usual(add(&[(3, 10)], None, false)));
        assert!(is_usual(add(&[(3, 10)], None, true)));
        assert!(!is_usual(add(&[(3, 10), (4, 20)], None, false)));
        assert!(!is_usual(add(&[(3, 10)], Some(vec![]), false)));
    }

    proptest! {
        #[test]
        fn what_is_read_in_one_step_is_what_the_reader_finds(
            epochs in prop::collection::btree_map(0..9_i32, 10..99_i64, 1..3),
            custom in prop::option::weighted(0.2, prop::collection::vec(any::<u8>(), 0..3)),
            txn_index_empty: bool,
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
            cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
        ) {
            let epochs: Vec<_> = epochs.into_iter().collect();
            let mut value = add(&epochs, custom, txn_index_empty).encode().to_vec();
            let prefix = EventFields::prefix(&partition());
            let rest = value.len() - prefix.len();
            for (at, byte) in changes {
                value[prefix.len() + at.index(rest)] = byte;
            }
            if let Some(cut) = cut {
                value.truncate(prefix.len() + cut.index(rest));
            }
            let usual = AddFields::read_usual(&value[prefix.len()..]);
            match (EventFields::read(&value), usual) {
                (Ok(EventFields::Add(_, add)), Some(usual)) => {
                    prop_assert_eq!(format!("{:?}", said(usual)), format!("{:?}", said(add)));
                }
                (other, Some(usual)) => prop_assert!(false, "{usual:?}, but {other:?}"),
                (_, None) => {}
            }
        }
    }
}
