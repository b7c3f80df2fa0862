//! The building blocks of Kafka's flexible message versions, read and written.
//!
//! Numbers are big-endian. A length or a count is an unsigned varint of the value plus one, and 0
//! is null. Every struct ends with its tagged fields.

use bytes::BufMut as _;
use uuid::Uuid;

use super::codec_error::CodecError;
use crate::model::{CustomMetadata, LeaderEpoch, RemoteLogSegmentId, TopicIdPartition};

/// The longest text that Kafka writes or reads, in bytes.
pub(super) const MAX_STRING: usize = 32_767;

/// Epoch, offset, tagged fields: the least that an element takes.
const EPOCH_ENTRY: usize = 4 + 8 + 1;

/// Reads a value from its start to its end. It trusts no length: what a length or a count claims
/// must be there before anything is allocated for it.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    length: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(value: &'a [u8]) -> Self {
        Self {
            rest: value,
            length: value.len(),
        }
    }

    fn position(&self) -> usize {
        self.length - self.rest.len()
    }

    /// Refuses what is left.
    pub(super) fn end(&self) -> Result<(), CodecError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(CodecError::Protocol(format!(
            "the event ends at byte {}, and {} more follow",
            self.position(),
            self.rest.len()
        )))
    }

    /// An unsigned varint of at most 5 bytes. Longer forms of a small number are accepted, and bits
    /// that do not fit are lost, as in Kafka.
    pub(super) fn uvarint(&mut self, field: &'static str) -> Result<u32, CodecError> {
        // Nearly all of them are one byte.
        if let [first @ 0..0x80, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(u32::from(*first));
        }
        self.long_uvarint(field)
    }

    fn long_uvarint(&mut self, field: &'static str) -> Result<u32, CodecError> {
        let mut value = 0;
        for shift in (0..=28).step_by(7) {
            let [byte] = self.array(field)?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(CodecError::Protocol(format!(
            "{field} before byte {} is a varint of more than 5 bytes",
            self.position()
        )))
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], CodecError> {
        let Some((bytes, rest)) = self.rest.split_first_chunk() else {
            return Err(self.truncated(field));
        };
        self.rest = rest;
        Ok(*bytes)
    }

    fn slice(&mut self, length: usize, field: &'static str) -> Result<&'a [u8], CodecError> {
        let Some((bytes, rest)) = self.rest.split_at_checked(length) else {
            return Err(self.truncated(field));
        };
        self.rest = rest;
        Ok(bytes)
    }

    #[cold]
    fn truncated(&self, field: &'static str) -> CodecError {
        CodecError::Protocol(format!(
            "the value ends at byte {}, in {field}, which goes on at byte {}",
            self.length,
            self.position()
        ))
    }

    pub(super) fn u8(&mut self, field: &'static str) -> Result<u8, CodecError> {
        self.array(field).map(u8::from_be_bytes)
    }

    pub(super) fn i32(&mut self, field: &'static str) -> Result<i32, CodecError> {
        self.array(field).map(i32::from_be_bytes)
    }

    pub(super) fn i64(&mut self, field: &'static str) -> Result<i64, CodecError> {
        self.array(field).map(i64::from_be_bytes)
    }

    pub(super) fn uuid(&mut self, field: &'static str) -> Result<Uuid, CodecError> {
        self.array(field).map(Uuid::from_bytes)
    }

    /// A length or a count; `None` is null.
    fn length(&mut self, field: &'static str) -> Result<Option<usize>, CodecError> {
        let Some(length) = self.uvarint(field)?.checked_sub(1) else {
            return Ok(None);
        };
        // Kafka holds lengths in an `int`.
        if i32::try_from(length).is_err() {
            return Err(CodecError::LengthOverflow(length.into()));
        }
        Ok(Some(length as usize))
    }

    fn text(&mut self, field: &'static str) -> Result<&'a str, CodecError> {
        let length = self.length(field)?.ok_or_else(|| self.null(field))?;
        if length > MAX_STRING {
            return Err(CodecError::LengthOverflow(length as u64));
        }
        let bytes = self.slice(length, field)?;
        str::from_utf8(bytes).map_err(|error| {
            let at = self.position() - length + error.valid_up_to();
            CodecError::Protocol(format!("{field} is not UTF-8 at byte {at}"))
        })
    }

    #[cold]
    fn null(&self, field: &'static str) -> CodecError {
        CodecError::Protocol(format!("{field} before byte {} is null", self.position()))
    }

    pub(super) fn custom_metadata(&mut self) -> Result<Option<CustomMetadata>, CodecError> {
        const FIELD: &str = "the custom metadata";
        let Some(length) = self.length(FIELD)? else {
            return Ok(None);
        };
        let bytes = self.slice(length, FIELD)?;
        Ok(Some(CustomMetadata(bytes.to_vec())))
    }

    pub(super) fn topic_id_partition(&mut self) -> Result<TopicIdPartition, CodecError> {
        let topic = self.text("the topic's name")?;
        let topic_id = self.uuid("the topic id")?;
        let partition = self.i32("the partition")?;
        self.skip_tags()?;
        Ok(TopicIdPartition::new(topic_id, topic, partition))
    }

    pub(super) fn segment_id(&mut self) -> Result<RemoteLogSegmentId, CodecError> {
        let topic_id_partition = self.topic_id_partition()?;
        let id = self.uuid("the segment id")?;
        self.skip_tags()?;
        Ok(RemoteLogSegmentId::new(topic_id_partition, id))
    }

    /// A count of elements of at least `least` bytes each, as a plain unsigned varint.
    pub(super) fn count(&mut self, field: &'static str, least: usize) -> Result<usize, CodecError> {
        let count = self.uvarint(field)? as usize;
        if count > self.rest.len() / least {
            return Err(CodecError::LengthOverflow(count as u64));
        }
        Ok(count)
    }

    /// Passes each leader epoch and its start offset to `visit`.
    pub(super) fn leader_epochs(
        &mut self,
        mut visit: impl FnMut(LeaderEpoch, i64),
    ) -> Result<(), CodecError> {
        const FIELD: &str = "the array of leader epochs";
        let count = self.length(FIELD)?.ok_or_else(|| self.null(FIELD))?;
        if count > self.rest.len() / EPOCH_ENTRY {
            return Err(CodecError::Protocol(format!(
                "{count} leader epochs do not fit into the {} bytes from byte {} on",
                self.rest.len(),
                self.position()
            )));
        }
        for _ in 0..count {
            let epoch = self.i32("a leader epoch")?;
            let offset = self.i64("the start offset of a leader epoch")?;
            self.skip_tags()?;
            visit(LeaderEpoch(epoch), offset);
        }
        Ok(())
    }

    /// Passes over tagged fields, none of which is known in the struct that ends here.
    pub(super) fn skip_tags(&mut self) -> Result<(), CodecError> {
        self.tags(|_, _| Ok(()))
    }

    /// Passes tag and bytes of each tagged field to `visit`.
    pub(super) fn tags(
        &mut self,
        mut visit: impl FnMut(u32, &'a [u8]) -> Result<(), CodecError>,
    ) -> Result<(), CodecError> {
        const FIELD: &str = "a tagged field";
        let count = self.uvarint("the number of tagged fields")?;
        for _ in 0..count {
            let tag = self.uvarint(FIELD)?;
            let size = self.uvarint(FIELD)?;
            let size =
                usize::try_from(size).map_err(|_| CodecError::LengthOverflow(u64::from(size)))?;
            visit(tag, self.slice(size, FIELD)?)?;
        }
        Ok(())
    }
}

/// No tagged fields.
pub(super) const NO_TAGS: u8 = 0;

pub(super) fn uvarint_len(value: usize) -> usize {
    let bits = usize::BITS - value.leading_zeros();
    bits.div_ceil(7).max(1) as usize
}

pub(super) fn put_uvarint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(low_byte(value) | 0x80);
        value >>= 7;
    }
    out.push(low_byte(value));
}

fn low_byte(value: usize) -> u8 {
    value.to_le_bytes()[0]
}

/// The bytes of a text or a byte string: its length and what it has.
pub(super) fn counted_len(length: usize) -> usize {
    uvarint_len(length + 1) + length
}

pub(super) fn put_custom_metadata(out: &mut Vec<u8>, custom: Option<&CustomMetadata>) {
    match custom {
        None => out.push(0),
        Some(CustomMetadata(bytes)) => {
            put_uvarint(out, bytes.len() + 1);
            out.extend_from_slice(bytes);
        }
    }
}

pub(super) fn custom_metadata_len(custom: Option<&CustomMetadata>) -> usize {
    custom.map_or(1, |custom| counted_len(custom.0.len()))
}

pub(super) fn put_topic_id_partition(out: &mut Vec<u8>, tp: &TopicIdPartition) {
    put_uvarint(out, tp.topic.len() + 1);
    out.extend_from_slice(tp.topic.as_bytes());
    out.extend_from_slice(tp.topic_id.as_bytes());
    out.put_i32(tp.partition);
    out.push(NO_TAGS);
}

pub(super) fn topic_id_partition_len(tp: &TopicIdPartition) -> usize {
    counted_len(tp.topic.len()) + 16 + 4 + 1
}

pub(super) fn put_segment_id(out: &mut Vec<u8>, id: &RemoteLogSegmentId) {
    put_topic_id_partition(out, &id.topic_id_partition);
    out.extend_from_slice(id.id.as_bytes());
    out.push(NO_TAGS);
}

pub(super) fn segment_id_len(id: &RemoteLogSegmentId) -> usize {
    topic_id_partition_len(&id.topic_id_partition) + 16 + 1
}

pub(super) fn put_leader_epochs<'a>(
    out: &mut Vec<u8>,
    epochs: impl ExactSizeIterator<Item = (&'a LeaderEpoch, &'a i64)>,
) {
    put_uvarint(out, epochs.len() + 1);
    for (epoch, offset) in epochs {
        out.put_i32(epoch.0);
        out.put_i64(*offset);
        out.push(NO_TAGS);
    }
}

pub(super) fn leader_epochs_len(count: usize) -> usize {
    uvarint_len(count + 1) + count * EPOCH_ENTRY
}
