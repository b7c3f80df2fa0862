//! What a partition's segments do not say of its answers.
//!
//! Most partitions need none of it: where the finished segments of an epoch do not overlap, each of
//! them answers, and the highest offset is the end of the last one. An overlap, or a segment that
//! was deleted, leaves more behind, and so does a cache that is not exactly as far as the offset
//! that the snapshot has for its metadata partition.

use bytes::BufMut as _;
use uuid::Uuid;

use super::super::codec_error::CodecError;
use super::super::partitioning::try_metadata_partition_for;
use super::super::wire::{PartitionFields, Reader, put_topic_id_partition, put_uvarint};
use crate::metadata::EpochDump;
use crate::metadata::slots::Slot;
use crate::model::{LeaderEpoch, RemoteLogSegmentState, TopicIdPartition};

/// What an entry of this kind begins with. No event does: it is an unknown frame version.
pub(super) const ANSWERS: u8 = 0;

/// Epoch, a flag, number of readable segments: the least that an epoch takes.
const EPOCH: usize = 4 + 1 + 1;
/// Start offset and segment id.
const READABLE: usize = 8 + 16;

/// The contents of the entry.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) applied_offset: Option<i64>,
    pub(super) epochs: Vec<EpochDump>,
}

/// The offset that a partition's cache was applied to, where the snapshot does not say it: the one
/// of its metadata partition.
pub(super) fn usual_applied_offset(tp: &TopicIdPartition, committed: &[i64]) -> Option<i64> {
    let count = i32::try_from(committed.len()).ok()?;
    let partition = usize::try_from(try_metadata_partition_for(tp, count)?).ok()?;
    let committed = *committed.get(partition)?;
    (committed >= 0).then_some(committed)
}

pub(super) fn put(
    out: &mut Vec<u8>,
    tp: &TopicIdPartition,
    applied_offset: Option<i64>,
    epochs: &[EpochDump],
) {
    out.push(ANSWERS);
    put_topic_id_partition(out, tp);
    put_optional(out, applied_offset);
    put_uvarint(out, epochs.len());
    for epoch in epochs {
        out.put_i32(epoch.leader_epoch.0);
        put_optional(out, epoch.highest_offset);
        put_uvarint(out, epoch.readable.len());
        for (start, id) in &epoch.readable {
            out.put_i64(*start);
            out.extend_from_slice(id.as_bytes());
        }
    }
}

fn put_optional(out: &mut Vec<u8>, offset: Option<i64>) {
    out.push(offset.is_some().into());
    if let Some(offset) = offset {
        out.put_i64(offset);
    }
}

impl Answers {
    /// Reads the entry that begins with [`ANSWERS`].
    pub(super) fn read(entry: &[u8]) -> Result<(PartitionFields<'_>, Self), CodecError> {
        let mut from = Reader::new(entry);
        from.u8("the kind of entry")?;
        let partition = from.topic_id_partition()?;
        let applied_offset = optional(&mut from, "the applied offset")?;
        let count = from.count("the number of epochs", EPOCH)?;
        let mut epochs = Vec::with_capacity(count);
        for _ in 0..count {
            let leader_epoch = LeaderEpoch(from.i32("a leader epoch")?);
            let highest_offset = optional(&mut from, "the highest offset of an epoch")?;
            let count = from.count("the number of readable segments", READABLE)?;
            let readable = (0..count).map(|_| {
                let start = from.i64("the start offset of a readable segment")?;
                Ok((start, from.uuid("the id of a readable segment")?))
            });
            epochs.push(EpochDump {
                leader_epoch,
                readable: readable.collect::<Result<_, CodecError>>()?,
                highest_offset,
            });
        }
        from.end()?;
        let answers = Self {
            applied_offset,
            epochs,
        };
        Ok((partition, answers))
    }
}

fn optional(from: &mut Reader<'_>, field: &'static str) -> Result<Option<i64>, CodecError> {
    match from.u8(field)? {
        0 => Ok(None),
        1 => from.i64(field).map(Some),
        flag => Err(CodecError::Protocol(format!(
            "{flag} is no flag of {field}: it is 0 or 1"
        ))),
    }
}

/// Follows the rows of a partition, and says whether they tell by themselves what each epoch
/// answers.
///
/// They do when, in every epoch, the finished segments in the order of the rows are the readable
/// ones, none overlaps the next, and the last one ends at the highest offset. Then none of them can
/// have superseded another in whatever order they finished, and an import finds the same.
#[derive(Debug)]
pub(super) struct Telling<'a> {
    epochs: &'a [EpochDump],
    /// For each epoch how many readable segments were seen, and where the last one ends.
    seen: Vec<(usize, Option<i64>)>,
    tells_all: bool,
}

impl<'a> Telling<'a> {
    pub(super) fn new(epochs: &'a [EpochDump]) -> Self {
        Self {
            epochs,
            seen: vec![(0, None); epochs.len()],
            tells_all: epochs.is_sorted_by(|a, b| a.leader_epoch < b.leader_epoch),
        }
    }

    pub(super) fn row(&mut self, row: &Slot) {
        let is_finished = row.state == RemoteLogSegmentState::CopySegmentFinished;
        // A dump without epochs leaves it to the import anyway.
        if is_finished && self.tells_all && !self.epochs.is_empty() {
            self.tells_all = row.epochs().all(|span| match span.end {
                Some(end) => self.span(span.epoch, (span.start, end), row.id),
                None => true,
            });
        }
    }

    fn span(&mut self, epoch: LeaderEpoch, (start, end): (i64, i64), id: Uuid) -> bool {
        let place = self
            .epochs
            .binary_search_by_key(&epoch, |dump| dump.leader_epoch);
        let Ok(place) = place else {
            return false;
        };
        let (seen, last_end) = &mut self.seen[place];
        let answers = self.epochs[place].readable.get(*seen) == Some(&(start, id));
        let is_apart = start <= end && last_end.is_none_or(|last| last < start);
        *seen += 1;
        *last_end = Some(end);
        answers && is_apart
    }

    /// The epochs that have to be written down: all of them or, where the rows tell all, none.
    pub(super) fn untold(self) -> &'a [EpochDump] {
        let tells_all = self.tells_all
            && self
                .epochs
                .iter()
                .zip(&self.seen)
                .all(|(dump, (seen, end))| {
                    dump.readable.len() == *seen && end.is_some() && dump.highest_offset == *end
                });
        if tells_all { &[] } else { self.epochs }
    }
}
