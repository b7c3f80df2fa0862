//! One event of the metadata log, and its bytes.
//!
//! The bytes are the value of a record of Apache Kafka's `__remote_log_metadata`, as its
//! `RemoteLogMetadataSerde` writes and reads them: a frame version, an api key, an api version, and
//! a message of Kafka's flexible format. Every event that is written here is read by a JVM broker
//! and the other way round.
//!
//! A JVM broker's metadata thread ends at the first record that it cannot take.
//! [`MetadataEvent::check_publishable`] is what stands between this crate and such a record.

mod records;

use bytes::Bytes;

pub(super) use self::records::AddFields;
use self::records::{
    add_of, delete_len, into_update, put_delete, put_update, read_delete, read_update, update_len,
};
use super::codec_error::CodecError;
use super::wire::{EpochEntries, MAX_STRING, PartitionFields, Reader, put_topic_id_partition};
use crate::error::RemoteStorageError;
use crate::metadata::slots::SlotUpdate;
use crate::model::{
    LeaderEpoch, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState,
    RemotePartitionDeleteMetadata, TopicIdPartition,
};

const FRAME_VERSION: u8 = 1;
const API_VERSION: u8 = 0;
const ADD_SEGMENT: u8 = 0;
const UPDATE_SEGMENT: u8 = 1;
const PARTITION_DELETE: u8 = 2;
/// Frame version, api key, api version.
const HEADER: usize = 3;

/// A change of the metadata of a partition's remote segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataEvent {
    /// A segment's copy begins.
    AddSegment(RemoteLogSegmentMetadata),
    /// A segment's state changes.
    UpdateSegment(RemoteLogSegmentMetadataUpdate),
    /// The deletion of the whole partition goes on.
    PartitionDelete(RemotePartitionDeleteMetadata),
}

impl MetadataEvent {
    /// The user's partition that the event is about.
    pub fn topic_id_partition(&self) -> &TopicIdPartition {
        match self {
            Self::AddSegment(metadata) => metadata.topic_id_partition(),
            Self::UpdateSegment(update) => &update.remote_log_segment_id.topic_id_partition,
            Self::PartitionDelete(delete) => &delete.topic_id_partition,
        }
    }

    /// The event as the value of a record, byte for byte as Apache Kafka writes it.
    ///
    /// Some events can be written and are not to be published: see
    /// [`check_publishable`](Self::check_publishable).
    pub fn encode(&self) -> Bytes {
        let mut value = Vec::with_capacity(self.encoded_len());
        match self {
            Self::AddSegment(metadata) => {
                add_of(metadata).encode(metadata.topic_id_partition(), &mut value);
            }
            Self::UpdateSegment(update) => {
                put_header(&mut value, UPDATE_SEGMENT);
                put_update(&mut value, update);
            }
            Self::PartitionDelete(delete) => {
                put_header(&mut value, PARTITION_DELETE);
                put_delete(&mut value, delete);
            }
        }
        Bytes::from(value)
    }

    fn encoded_len(&self) -> usize {
        match self {
            Self::AddSegment(metadata) => {
                add_of(metadata).encoded_len(metadata.topic_id_partition())
            }
            Self::UpdateSegment(update) => HEADER + update_len(update),
            Self::PartitionDelete(delete) => HEADER + delete_len(delete),
        }
    }

    /// Reads the value of a record.
    ///
    /// Longer forms of a varint and unknown tagged fields are accepted, as in Kafka. Nothing may
    /// follow the event. An add is decoded in whatever state it is; a cache takes only one of a
    /// copy that has begun.
    ///
    /// # Errors
    ///
    /// [`Protocol`](CodecError::Protocol) for bytes that are not this format, are cut off, or are of
    /// a kind or version that is not read here; [`LengthOverflow`](CodecError::LengthOverflow) for a
    /// length that no field can have; [`UnknownState`](CodecError::UnknownState); and
    /// [`Domain`](CodecError::Domain) for a segment that cannot be.
    pub fn decode(value: &[u8]) -> Result<Self, CodecError> {
        Ok(match EventFields::read(value)? {
            EventFields::Add(partition, add) => {
                Self::AddSegment(add.into_metadata(partition.to_owned())?)
            }
            EventFields::Update(partition, update) => {
                Self::UpdateSegment(into_update(update, partition.to_owned()))
            }
            EventFields::Delete(_, delete) => Self::PartitionDelete(delete),
        })
    }

    /// Whether every broker takes this event, those of Apache Kafka included.
    ///
    /// The metadata thread of a JVM broker stops for good at a record that it cannot take, for
    /// every partition whose events share the metadata partition. The types of this crate rule most
    /// of these out, and this check the rest. It knows the event alone: whether the move is allowed
    /// is for the cache to say, and a refused move stops nobody.
    ///
    /// # Errors
    ///
    /// [`InvalidAdd`](RemoteStorageError::InvalidAdd) for an add in another state than
    /// `CopySegmentStarted`. [`InvalidArgument`](RemoteStorageError::InvalidArgument) for an update
    /// to that state, for a topic name that is empty or longer than 32,767 bytes, and for an event
    /// of more than 2^31 − 1 bytes.
    pub fn check_publishable(&self) -> Result<(), RemoteStorageError> {
        const STARTED: RemoteLogSegmentState = RemoteLogSegmentState::CopySegmentStarted;
        match self {
            Self::AddSegment(metadata) if metadata.state() != STARTED => {
                return Err(RemoteStorageError::InvalidAdd {
                    id: metadata.remote_log_segment_id().clone(),
                    reason: format!("a segment enters as {STARTED}, not as {}", metadata.state()),
                });
            }
            Self::UpdateSegment(update) if update.state == STARTED => {
                return Err(RemoteStorageError::InvalidArgument(format!(
                    "no update leads to {STARTED}: segment {} needs an add",
                    update.remote_log_segment_id
                )));
            }
            _ => {}
        }
        let name = self.topic_id_partition().topic.len();
        if name == 0 || name > MAX_STRING {
            return Err(RemoteStorageError::InvalidArgument(format!(
                "a topic name of {name} bytes cannot be published: it has 1 to {MAX_STRING}"
            )));
        }
        let length = self.encoded_len();
        if i32::try_from(length).is_err() {
            return Err(RemoteStorageError::InvalidArgument(format!(
                "an event of {length} bytes cannot be published: its custom metadata is too long"
            )));
        }
        Ok(())
    }
}

/// An event as its bytes tell it. What there is much of is not made a value yet.
#[derive(Clone, Debug)]
pub(super) enum EventFields<'a> {
    Add(PartitionFields<'a>, AddFields<'a, EpochEntries<'a>>),
    Update(PartitionFields<'a>, SlotUpdate<'a>),
    Delete(PartitionFields<'a>, RemotePartitionDeleteMetadata),
}

impl<'a> EventFields<'a> {
    /// What every add of this partition begins with, as it is written here.
    pub(super) fn prefix(tp: &TopicIdPartition) -> Vec<u8> {
        let mut prefix = Vec::new();
        put_header(&mut prefix, ADD_SEGMENT);
        put_topic_id_partition(&mut prefix, tp);
        prefix
    }

    pub(super) fn read(value: &'a [u8]) -> Result<Self, CodecError> {
        if value.is_empty() {
            return Err(CodecError::Protocol("the value is empty".to_owned()));
        }
        let mut from = Reader::new(value);
        let frame = from.uvarint("the frame version")?;
        if frame != u32::from(FRAME_VERSION) {
            return Err(CodecError::Protocol(format!(
                "frame version {frame} is not read here, only {FRAME_VERSION}"
            )));
        }
        let key = from.uvarint("the api key")?;
        let version = from.uvarint("the api version")?;
        let kind = u8::try_from(key).unwrap_or(u8::MAX);
        if matches!(kind, ADD_SEGMENT | UPDATE_SEGMENT | PARTITION_DELETE)
            && version != u32::from(API_VERSION)
        {
            return Err(CodecError::Protocol(format!(
                "api version {version} of api key {key} is not read here, only {API_VERSION}"
            )));
        }
        match kind {
            ADD_SEGMENT => {
                let (partition, add) = AddFields::read(from)?;
                Ok(Self::Add(partition, add))
            }
            UPDATE_SEGMENT => {
                let (partition, update) = read_update(from)?;
                Ok(Self::Update(partition, update))
            }
            PARTITION_DELETE => {
                let (partition, delete) = read_delete(from)?;
                Ok(Self::Delete(partition, delete))
            }
            _ => Err(CodecError::Protocol(format!(
                "api key {key} is no event of the metadata topic"
            ))),
        }
    }
}

impl<Epochs> AddFields<'_, Epochs>
where
    Epochs: ExactSizeIterator<Item = (LeaderEpoch, i64)>,
{
    /// Appends the add as an event of this partition.
    pub(super) fn encode(self, tp: &TopicIdPartition, value: &mut Vec<u8>) {
        put_header(value, ADD_SEGMENT);
        self.put(value, tp);
    }

    pub(super) fn encoded_len(&self, tp: &TopicIdPartition) -> usize {
        HEADER + self.len(tp)
    }
}

fn put_header(value: &mut Vec<u8>, key: u8) {
    value.extend_from_slice(&[FRAME_VERSION, key, API_VERSION]);
}
