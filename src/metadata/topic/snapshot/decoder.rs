//! Reading a snapshot: first that the bytes are those that were written, then what they say.

use std::collections::HashMap;

use uuid::Uuid;

use super::super::codec_error::CodecError;
use super::super::event::{AddFields, EventFields};
use super::super::wire::PartitionFields;
use super::answers::{ANSWERS, Answers, usual_applied_offset};
use super::{SNAPSHOT_FORMAT_VERSION, SnapshotError};
use crate::metadata::assembly::Assembly;
use crate::model::{
    LeaderEpoch, RemoteLogSegmentId, RemoteLogSegmentMetadata, RemotePartitionDeleteState,
    TopicIdPartition,
};

/// Version, topic id, number of offsets, number of entries, checksum.
const SHORTEST: usize = 2 + 16 + 4 + 1 + 4;
/// Length, and the one byte that tells what it is.
const SHORTEST_ENTRY: usize = 1 + 1;

/// Where the segments of one partition go.
pub(super) trait Rows: Sized {
    fn new(tp: &TopicIdPartition) -> Self;

    fn push(
        &mut self,
        tp: &TopicIdPartition,
        add: AddFields<'_, impl ExactSizeIterator<Item = (LeaderEpoch, i64)>>,
    ) -> Result<(), CodecError>;
}

/// A snapshot with its segments in `R`.
#[derive(Debug)]
pub(super) struct Decoded<R> {
    pub(super) topic_id: Option<Uuid>,
    pub(super) committed_offsets: Vec<i64>,
    /// In the order in which they come first.
    pub(super) partitions: Vec<Partition<R>>,
}

/// What the entries of one partition say.
#[derive(Debug)]
pub(super) struct Partition<R> {
    pub(super) tp: TopicIdPartition,
    pub(super) rows: R,
    pub(super) delete_state: Option<RemotePartitionDeleteState>,
    answers: Option<Answers>,
}

impl<R> Partition<R> {
    /// What the segments do not say.
    pub(super) fn answers(&mut self, committed_offsets: &[i64]) -> Answers {
        self.answers.take().unwrap_or_else(|| Answers {
            applied_offset: usual_applied_offset(&self.tp, committed_offsets),
            epochs: Vec::new(),
        })
    }
}

pub(super) fn decode<R: Rows>(bytes: &[u8]) -> Result<Decoded<R>, SnapshotError> {
    if bytes.len() < SHORTEST {
        return Err(CodecError::UnexpectedEof(bytes.len()).into());
    }
    let mut from = Envelope::new(bytes);
    let version = u16::from_be_bytes(from.array()?);
    if version != SNAPSHOT_FORMAT_VERSION {
        return Err(SnapshotError::UnsupportedVersion(version));
    }
    let stored = u32::from_be_bytes(from.checksum()?);
    let computed = crc32c::crc32c(&bytes[..bytes.len() - size_of_val(&stored)]);
    if stored != computed {
        return Err(SnapshotError::ChecksumMismatch { stored, computed });
    }
    let topic_id = Uuid::from_bytes(from.array()?);
    let committed_offsets = from.committed_offsets()?;
    let count = from.uvarint()?;
    let mut partitions = Partitions::default();
    if count > (from.rest.len() / SHORTEST_ENTRY) as u64 {
        return Err(CodecError::LengthOverflow(count).into());
    }
    for number in 0..count {
        let position = from.position();
        let entry = from.entry()?;
        partitions
            .entry(entry)
            .map_err(|error| in_entry(number, position, error))?;
    }
    if !from.rest.is_empty() {
        return Err(SnapshotError::TrailingBytes(from.rest.len()));
    }
    Ok(Decoded {
        topic_id: (!topic_id.is_nil()).then_some(topic_id),
        committed_offsets,
        partitions: partitions.list,
    })
}

fn in_entry(number: u64, position: usize, error: CodecError) -> CodecError {
    let at = |reason| format!("entry {number}, at byte {position}: {reason}");
    match error {
        CodecError::Domain(reason) => CodecError::Domain(at(reason)),
        CodecError::Protocol(reason) => CodecError::Protocol(at(reason)),
        other => other,
    }
}

/// What stands around the entries.
#[derive(Debug)]
struct Envelope<'a> {
    rest: &'a [u8],
    /// Where the rest ends.
    end: usize,
}

impl<'a> Envelope<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            end: bytes.len(),
        }
    }

    fn position(&self) -> usize {
        self.end - self.rest.len()
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let (bytes, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(CodecError::UnexpectedEof(self.end))?;
        self.rest = rest;
        Ok(*bytes)
    }

    /// What stands at the very end.
    fn checksum<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let (rest, bytes) = self
            .rest
            .split_last_chunk()
            .ok_or(CodecError::UnexpectedEof(self.end))?;
        self.rest = rest;
        self.end -= N;
        Ok(*bytes)
    }

    /// An unsigned varint of at most 10 bytes.
    fn uvarint(&mut self) -> Result<u64, CodecError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(CodecError::LengthOverflow(u64::MAX))
    }

    fn committed_offsets(&mut self) -> Result<Vec<i64>, CodecError> {
        let count = i32::from_be_bytes(self.array()?);
        let Ok(count) = usize::try_from(count) else {
            let reason = format!("there is no log of {count} metadata partitions");
            return Err(CodecError::Domain(reason));
        };
        if count > self.rest.len() / size_of::<i64>() {
            return Err(CodecError::LengthOverflow(count as u64));
        }
        let offsets = (0..count).map(|partition| {
            let offset = i64::from_be_bytes(self.array()?);
            // The replay goes on at the next offset, which must exist.
            if !(-1..i64::MAX).contains(&offset) {
                let reason = format!(
                    "{offset} is no offset that metadata partition {partition} was applied to"
                );
                return Err(CodecError::Domain(reason));
            }
            Ok(offset)
        });
        offsets.collect()
    }

    fn entry(&mut self) -> Result<&'a [u8], CodecError> {
        let length = self.uvarint()?;
        let split = usize::try_from(length).ok();
        let split = split.and_then(|length| self.rest.split_at_checked(length));
        let (entry, rest) = split.ok_or(CodecError::LengthOverflow(length))?;
        self.rest = rest;
        Ok(entry)
    }
}

/// The partitions that were met.
#[derive(Debug)]
struct Partitions<R> {
    list: Vec<Partition<R>>,
    places: HashMap<(Uuid, i32), usize>,
    /// Where the one stands that the last entry was of: mostly the next one is, too.
    latest: usize,
    /// What the adds of that one begin with. Empty before there is one.
    prefix: Vec<u8>,
}

impl<R> Default for Partitions<R> {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            places: HashMap::new(),
            latest: 0,
            prefix: Vec::new(),
        }
    }
}

impl<R: Rows> Partitions<R> {
    fn entry(&mut self, entry: &[u8]) -> Result<(), CodecError> {
        if let Some(partition) = self.list.get_mut(self.latest)
            && let Some(rest) = entry.strip_prefix(&*self.prefix)
            && let Some(add) = AddFields::read_usual(rest)
        {
            return partition.rows.push(&partition.tp, add);
        }
        if entry.first() == Some(&ANSWERS) {
            let (fields, answers) = Answers::read(entry)?;
            let partition = self.of(fields);
            if partition.answers.replace(answers).is_some() {
                return Err(twice(&partition.tp, "what its epochs answer"));
            }
            return Ok(());
        }
        match EventFields::read(entry)? {
            EventFields::Add(fields, add) => {
                let partition = self.of(fields);
                partition.rows.push(&partition.tp, add)
            }
            EventFields::Delete(fields, delete) => {
                let partition = self.of(fields);
                if partition.delete_state.replace(delete.state).is_some() {
                    return Err(twice(&partition.tp, "how far its deletion has come"));
                }
                Ok(())
            }
            EventFields::Update(fields, update) => {
                let id = RemoteLogSegmentId::new(fields.to_owned(), update.id);
                Err(CodecError::Domain(format!(
                    "an update, of segment {id}, has no place in a snapshot"
                )))
            }
        }
    }

    fn of(&mut self, fields: PartitionFields<'_>) -> &mut Partition<R> {
        let identity = fields.identity();
        let latest = self.list.get(self.latest);
        if latest.is_none_or(|latest| PartitionFields::from(&latest.tp).identity() != identity) {
            let next = self.list.len();
            self.latest = *self.places.entry(identity).or_insert(next);
            let tp = fields.to_owned();
            self.prefix = EventFields::prefix(&tp);
            if self.latest == next {
                self.list.push(Partition {
                    rows: R::new(&tp),
                    tp,
                    delete_state: None,
                    answers: None,
                });
            }
        }
        &mut self.list[self.latest]
    }
}

fn twice(tp: &TopicIdPartition, what: &str) -> CodecError {
    CodecError::Domain(format!("the snapshot says twice of {tp} {what}"))
}

impl Rows for Vec<RemoteLogSegmentMetadata> {
    fn new(_: &TopicIdPartition) -> Self {
        Vec::new()
    }

    fn push(
        &mut self,
        tp: &TopicIdPartition,
        add: AddFields<'_, impl ExactSizeIterator<Item = (LeaderEpoch, i64)>>,
    ) -> Result<(), CodecError> {
        self.push(add.into_metadata(tp.clone())?);
        Ok(())
    }
}

impl Rows for Assembly {
    fn new(tp: &TopicIdPartition) -> Self {
        // The entries say nothing of how many there are.
        Assembly::new(tp.clone(), 0)
    }

    fn push(
        &mut self,
        tp: &TopicIdPartition,
        add: AddFields<'_, impl ExactSizeIterator<Item = (LeaderEpoch, i64)>>,
    ) -> Result<(), CodecError> {
        self.row(add.into_slot(tp.into())?);
        Ok(())
    }
}
