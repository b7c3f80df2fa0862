//! A snapshot, read from bytes that claim to be one.

use std::collections::HashMap;

use uuid::Uuid;

use super::super::codec_error::CodecError;
use super::super::event::MetadataEvent;
use super::super::partitioning::try_metadata_partition_for;
use super::super::wire::Reader;
use super::{CHECKSUM, MIN_LENGTH, SNAPSHOT_FORMAT_VERSION, STATE_ENTRY, Snapshot, SnapshotError};
use crate::metadata::{EpochDump, PartitionDump, RlmmCacheDump};
use crate::model::{LeaderEpoch, TopicIdPartition};

/// Leader epoch, no highest offset, no readable segments: the least that an epoch takes.
const EPOCH: usize = 4 + 1 + 1;
/// Start offset and segment id.
const READABLE: usize = 8 + 16;

pub(super) fn snapshot(bytes: &[u8]) -> Result<Snapshot, SnapshotError> {
    if bytes.len() < MIN_LENGTH {
        return Err(CodecError::UnexpectedEof(bytes.len()).into());
    }
    let (content, checksum) = bytes.split_at(bytes.len() - CHECKSUM);
    let version = u16::from_be_bytes([content[0], content[1]]);
    if version != SNAPSHOT_FORMAT_VERSION {
        return Err(SnapshotError::UnsupportedVersion(version));
    }
    let stored = checksum
        .iter()
        .fold(0, |sum, byte| sum << 8 | u32::from(*byte));
    let computed = crc32c::crc32c(content);
    if stored != computed {
        return Err(SnapshotError::ChecksumMismatch { stored, computed });
    }
    let mut from = Cursor {
        rest: &content[2..],
        length: content.len(),
    };
    let topic_id = Uuid::from_bytes(from.array()?);
    let committed_offsets = committed_offsets(&mut from)?;
    let entries = from.uvarint()?;
    // An entry takes a byte for its length and one for its kind at least.
    if entries > (from.rest.len() / 2) as u64 {
        return Err(CodecError::LengthOverflow(entries).into());
    }
    let mut partitions = Partitions::new(&committed_offsets);
    for _ in 0..entries {
        let length = from.uvarint()?;
        let entry = usize::try_from(length)
            .ok()
            .and_then(|length| from.take(length));
        let entry = entry.ok_or(CodecError::LengthOverflow(length))?;
        partitions.add(entry)?;
    }
    if !from.rest.is_empty() {
        return Err(SnapshotError::TrailingBytes(from.rest.len()));
    }
    Ok(Snapshot {
        topic_id: (!topic_id.is_nil()).then_some(topic_id),
        dump: RlmmCacheDump {
            partitions: partitions.dumps,
        },
        committed_offsets,
    })
}

fn committed_offsets(from: &mut Cursor<'_>) -> Result<Vec<i64>, CodecError> {
    let count = i32::from_be_bytes(from.array()?);
    let count = usize::try_from(count)
        .map_err(|_| CodecError::Domain(format!("{count} metadata partitions cannot be")))?;
    if count > from.rest.len() / 8 {
        return Err(CodecError::LengthOverflow(count as u64));
    }
    let mut offsets = Vec::with_capacity(count);
    for partition in 0..count {
        let offset = i64::from_be_bytes(from.array()?);
        // After the last of all offsets nothing could be read on.
        if !(-1..i64::MAX).contains(&offset) {
            return Err(CodecError::Domain(format!(
                "metadata partition {partition} cannot be applied up to offset {offset}"
            )));
        }
        offsets.push(offset);
    }
    Ok(offsets)
}

/// The partitions in the order in which they come first.
struct Partitions<'a> {
    committed: &'a [i64],
    dumps: Vec<PartitionDump>,
    places: HashMap<TopicIdPartition, usize>,
    /// The place of the latest entry's partition: entries of one stand together.
    latest: usize,
}

impl<'a> Partitions<'a> {
    fn new(committed: &'a [i64]) -> Self {
        Self {
            committed,
            dumps: Vec::new(),
            places: HashMap::new(),
            latest: 0,
        }
    }

    fn add(&mut self, entry: &[u8]) -> Result<(), CodecError> {
        if let [STATE_ENTRY, state @ ..] = entry {
            return self.add_state(state);
        }
        match MetadataEvent::decode(entry)? {
            MetadataEvent::AddSegment(segment) => {
                self.partition(segment.topic_id_partition())?
                    .segments
                    .push(segment);
            }
            MetadataEvent::PartitionDelete(delete) => {
                self.partition(&delete.topic_id_partition)?.delete_state = Some(delete.state);
            }
            MetadataEvent::UpdateSegment(update) => {
                return Err(CodecError::Domain(format!(
                    "a snapshot has states and no changes, and here is one of segment {}",
                    update.remote_log_segment_id
                )));
            }
        }
        Ok(())
    }

    fn partition(&mut self, tp: &TopicIdPartition) -> Result<&mut PartitionDump, CodecError> {
        let is_latest = self
            .dumps
            .get(self.latest)
            .is_some_and(|latest| latest.topic_id_partition == *tp);
        if !is_latest {
            self.latest = match self.places.get(tp) {
                Some(place) => *place,
                None => self.first_of(tp)?,
            };
        }
        Ok(&mut self.dumps[self.latest])
    }

    fn first_of(&mut self, tp: &TopicIdPartition) -> Result<usize, CodecError> {
        let count = i32::try_from(self.committed.len()).unwrap_or(i32::MAX);
        let partition = try_metadata_partition_for(tp, count)
            .and_then(|partition| usize::try_from(partition).ok())
            .ok_or_else(|| {
                CodecError::Domain(format!(
                    "{tp} stands in a snapshot without metadata partitions"
                ))
            })?;
        let committed = self.committed[partition];
        let mut dump = PartitionDump::new(tp.clone(), Vec::new(), None);
        dump.applied_offset = (committed >= 0).then_some(committed);
        self.dumps.push(dump);
        let place = self.dumps.len() - 1;
        self.places.insert(tp.clone(), place);
        Ok(place)
    }

    fn add_state(&mut self, entry: &[u8]) -> Result<(), CodecError> {
        let mut from = Reader::new(entry);
        let tp = from.topic_id_partition()?;
        let applied_offset = offset(&mut from, "the applied offset")?;
        let mut epochs = Vec::new();
        for _ in 0..from.count("the number of epochs", EPOCH)? {
            let leader_epoch = LeaderEpoch(from.i32("a leader epoch")?);
            let highest_offset = offset(&mut from, "the highest offset of an epoch")?;
            let mut readable = Vec::new();
            for _ in 0..from.count("the number of readable segments", READABLE)? {
                let start = from.i64("the start of a readable segment")?;
                readable.push((start, from.uuid("the id of a readable segment")?));
            }
            epochs.push(EpochDump {
                leader_epoch,
                readable,
                highest_offset,
            });
        }
        from.end()?;
        let dump = self.partition(&tp)?;
        if !dump.epochs.is_empty() {
            return Err(CodecError::Domain(format!("{tp} has its epochs twice")));
        }
        dump.applied_offset = applied_offset;
        dump.epochs = epochs;
        Ok(())
    }
}

fn offset(from: &mut Reader<'_>, field: &'static str) -> Result<Option<i64>, CodecError> {
    match from.u8(field)? {
        0 => Ok(None),
        1 => from.i64(field).map(Some),
        other => Err(CodecError::Protocol(format!(
            "{field} is there (1) or not (0), and not {other}"
        ))),
    }
}

/// What is left of the content.
struct Cursor<'a> {
    rest: &'a [u8],
    length: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let position = self.length - self.rest.len();
        let (taken, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(CodecError::UnexpectedEof(position))?;
        self.rest = rest;
        Ok(*taken)
    }

    /// An unsigned varint of at most 10 bytes.
    fn uvarint(&mut self) -> Result<u64, CodecError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(CodecError::Protocol(
            "a varint has more than 10 bytes".to_owned(),
        ))
    }
}
