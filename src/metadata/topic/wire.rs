//! The building blocks of Kafka's flexible message versions, read and written.
//!
//! Numbers are big-endian. A length or a count is an unsigned varint of the value plus one, and 0
//! is null. Every struct ends with its tagged fields.

use bytes::BufMut as _;
use uuid::Uuid;

use super::codec_error::CodecError;
use crate::model::{LeaderEpoch, TopicIdPartition};

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
    #[inline]
    pub(super) fn end(&self) -> Result<(), CodecError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(self.too_long())
    }

    #[cold]
    fn too_long(&self) -> CodecError {
        CodecError::Protocol(format!(
            "{} bytes follow after its end at byte {}",
            self.rest.len(),
            self.position()
        ))
    }

    /// An unsigned varint of at most 5 bytes. Longer forms of a small number are accepted, and bits
    /// that do not fit are lost, as in Kafka.
    #[inline]
    pub(super) fn uvarint(&mut self, field: &'static str) -> Result<u32, CodecError> {
        // Nearly all of them are one byte.
        if let [first @ 0..0x80, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(u32::from(*first));
        }
        self.long_uvarint(field)
    }

    #[cold]
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

    #[inline]
    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], CodecError> {
        let Some((bytes, rest)) = self.rest.split_first_chunk() else {
            return Err(self.truncated(field));
        };
        self.rest = rest;
        Ok(*bytes)
    }

    #[inline]
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

    #[inline]
    pub(super) fn u8(&mut self, field: &'static str) -> Result<u8, CodecError> {
        self.array(field).map(u8::from_be_bytes)
    }

    #[inline]
    pub(super) fn i32(&mut self, field: &'static str) -> Result<i32, CodecError> {
        self.array(field).map(i32::from_be_bytes)
    }

    #[inline]
    pub(super) fn i64(&mut self, field: &'static str) -> Result<i64, CodecError> {
        self.array(field).map(i64::from_be_bytes)
    }

    #[inline]
    pub(super) fn uuid(&mut self, field: &'static str) -> Result<Uuid, CodecError> {
        self.array(field).map(Uuid::from_bytes)
    }

    /// A length or a count; `None` is null.
    #[inline]
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

    /// How many elements follow, of at least `least` bytes each.
    pub(super) fn count(&mut self, field: &'static str, least: usize) -> Result<usize, CodecError> {
        let count = self.uvarint(field)?;
        if count as usize > self.rest.len() / least {
            return Err(CodecError::LengthOverflow(count.into()));
        }
        Ok(count as usize)
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

    /// A byte string; `None` is null.
    #[inline]
    pub(super) fn nullable_bytes(
        &mut self,
        field: &'static str,
    ) -> Result<Option<&'a [u8]>, CodecError> {
        match self.length(field)? {
            Some(length) => self.slice(length, field).map(Some),
            None => Ok(None),
        }
    }

    pub(super) fn topic_id_partition(&mut self) -> Result<PartitionFields<'a>, CodecError> {
        let topic = self.text("the topic's name")?;
        let topic_id = self.uuid("the topic id")?;
        let partition = self.i32("the partition")?;
        self.skip_tags()?;
        Ok(PartitionFields {
            topic,
            topic_id,
            partition,
        })
    }

    /// A segment id: the partition, and the id of the copy attempt.
    pub(super) fn segment_id(&mut self) -> Result<(PartitionFields<'a>, Uuid), CodecError> {
        let partition = self.topic_id_partition()?;
        let id = self.uuid("the segment id")?;
        self.skip_tags()?;
        Ok((partition, id))
    }

    pub(super) fn leader_epochs(&mut self) -> Result<EpochEntries<'a>, CodecError> {
        const FIELD: &str = "the array of leader epochs";
        let count = self.length(FIELD)?.ok_or_else(|| self.null(FIELD))?;
        if count > self.rest.len() / EPOCH_ENTRY {
            return Err(CodecError::Protocol(format!(
                "{count} leader epochs do not fit into the {} bytes from byte {} on",
                self.rest.len(),
                self.position()
            )));
        }
        let entries = EpochEntries {
            left: count,
            from: self.clone(),
        };
        for _ in 0..count {
            self.leader_epoch()?;
        }
        Ok(entries)
    }

    #[inline]
    fn leader_epoch(&mut self) -> Result<(LeaderEpoch, i64), CodecError> {
        let epoch = self.i32("a leader epoch")?;
        let offset = self.i64("the start offset of a leader epoch")?;
        self.skip_tags()?;
        Ok((LeaderEpoch(epoch), offset))
    }

    /// Passes over tagged fields, none of which is known in the struct that ends here.
    #[inline]
    pub(super) fn skip_tags(&mut self) -> Result<(), CodecError> {
        // Nearly always there are none.
        if let [NO_TAGS, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(());
        }
        self.tags(|_, _| Ok(()))
    }

    /// Passes tag and bytes of each tagged field to `visit`.
    #[inline]
    pub(super) fn tags(
        &mut self,
        mut visit: impl FnMut(u32, &'a [u8]) -> Result<(), CodecError>,
    ) -> Result<(), CodecError> {
        const FIELD: &str = "a tagged field";
        let count = self.uvarint("the number of tagged fields")?;
        for _ in 0..count {
            let tag = self.uvarint(FIELD)?;
            let size = self.uvarint(FIELD)?;
            visit(tag, self.slice(size as usize, FIELD)?)?;
        }
        Ok(())
    }
}

/// The partition that an event is about, as its bytes name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartitionFields<'a> {
    topic: &'a str,
    topic_id: Uuid,
    partition: i32,
}

impl PartitionFields<'_> {
    pub(super) fn to_owned(self) -> TopicIdPartition {
        TopicIdPartition::new(self.topic_id, self.topic, self.partition)
    }

    /// Writes it over another one, whose room for the topic's name is used again.
    pub(super) fn overwrite(self, tp: &mut TopicIdPartition) {
        self.topic.clone_into(&mut tp.topic);
        tp.topic_id = self.topic_id;
        tp.partition = self.partition;
    }

    /// How many bytes it takes.
    pub(super) fn len(self) -> usize {
        counted_len(self.topic.len()) + 16 + 4 + 1
    }

    /// Topic id and partition, which tell it from every other.
    pub(super) fn identity(self) -> (Uuid, i32) {
        (self.topic_id, self.partition)
    }
}

impl<'a> From<&'a TopicIdPartition> for PartitionFields<'a> {
    fn from(tp: &'a TopicIdPartition) -> Self {
        Self {
            topic: &tp.topic,
            topic_id: tp.topic_id,
            partition: tp.partition,
        }
    }
}

/// The entries of an array of leader epochs, which were read once before.
#[derive(Clone, Debug)]
pub(super) struct EpochEntries<'a> {
    left: usize,
    from: Reader<'a>,
}

impl Iterator for EpochEntries<'_> {
    type Item = (LeaderEpoch, i64);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        self.from.leader_epoch().ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for EpochEntries<'_> {}

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
fn counted_len(length: usize) -> usize {
    uvarint_len(length + 1) + length
}

/// A byte string; `None` is null.
pub(super) fn put_nullable_bytes(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => out.push(0),
        Some(bytes) => {
            put_uvarint(out, bytes.len() + 1);
            out.extend_from_slice(bytes);
        }
    }
}

pub(super) fn nullable_bytes_len(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, |bytes| counted_len(bytes.len()))
}

pub(super) fn put_topic_id_partition(out: &mut Vec<u8>, tp: &TopicIdPartition) {
    put_uvarint(out, tp.topic.len() + 1);
    out.extend_from_slice(tp.topic.as_bytes());
    out.extend_from_slice(tp.topic_id.as_bytes());
    out.put_i32(tp.partition);
    out.push(NO_TAGS);
}

pub(super) fn put_segment_id(out: &mut Vec<u8>, tp: &TopicIdPartition, id: Uuid) {
    put_topic_id_partition(out, tp);
    out.extend_from_slice(id.as_bytes());
    out.push(NO_TAGS);
}

pub(super) fn segment_id_len(tp: &TopicIdPartition) -> usize {
    PartitionFields::from(tp).len() + 16 + 1
}

pub(super) fn put_leader_epochs(
    out: &mut Vec<u8>,
    epochs: impl ExactSizeIterator<Item = (LeaderEpoch, i64)>,
) {
    put_uvarint(out, epochs.len() + 1);
    for (epoch, offset) in epochs {
        out.put_i32(epoch.0);
        out.put_i64(offset);
        out.push(NO_TAGS);
    }
}

pub(super) fn leader_epochs_len(count: usize) -> usize {
    uvarint_len(count + 1) + count * EPOCH_ENTRY
}
