//! A snapshot, written piece by piece.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::BufMut as _;
use uuid::Uuid;

use super::super::event::MetadataEvent;
use super::super::partitioning::try_metadata_partition_for;
use super::super::wire::{put_topic_id_partition, put_uvarint};
use super::{SNAPSHOT_FORMAT_VERSION, STATE_ENTRY, SnapshotError, write_atomic};
use crate::metadata::slots::Slot;
use crate::metadata::{EpochDump, PartitionDump};
use crate::model::{LeaderEpoch, RemoteLogSegmentState, RemotePartitionDeleteMetadata};

/// Takes the partitions one after the other, so that their dumps need not be in memory together.
#[derive(Debug)]
pub(in crate::metadata::topic) struct SnapshotEncoder {
    committed: Vec<i64>,
    head: Vec<u8>,
    entries: Vec<u8>,
    count: usize,
}

impl SnapshotEncoder {
    pub(in crate::metadata::topic) fn new(topic_id: Option<Uuid>, committed: &[i64]) -> Self {
        let mut head = Vec::with_capacity(2 + 16 + 4 + committed.len() * 8);
        head.put_u16(SNAPSHOT_FORMAT_VERSION);
        head.extend_from_slice(topic_id.unwrap_or_default().as_bytes());
        head.put_i32(i32::try_from(committed.len()).expect("an i32 counts metadata partitions"));
        for offset in committed {
            head.put_i64(*offset);
        }
        Self {
            committed: committed.to_vec(),
            head,
            entries: Vec::new(),
            count: 0,
        }
    }

    /// Adds what is known of one partition.
    pub(in crate::metadata::topic) fn partition(&mut self, dump: &PartitionDump) {
        for segment in &dump.segments {
            let event = MetadataEvent::AddSegment(segment.clone());
            self.entry(&event.encode());
        }
        if let Some(state) = dump.delete_state {
            let tp = dump.topic_id_partition.clone();
            let event = RemotePartitionDeleteMetadata::new(tp, state, 0, 0);
            self.entry(&MetadataEvent::PartitionDelete(event).encode());
        }
        if dump.applied_offset != self.usual_offset(dump) || !can_be_worked_out(dump) {
            self.entry(&state_entry(dump));
        }
    }

    /// The offset that a partition gets whose entries do not say more.
    fn usual_offset(&self, dump: &PartitionDump) -> Option<i64> {
        let count = i32::try_from(self.committed.len()).ok()?;
        let partition = try_metadata_partition_for(&dump.topic_id_partition, count)?;
        let committed = self.committed[usize::try_from(partition).ok()?];
        (committed >= 0).then_some(committed)
    }

    fn entry(&mut self, bytes: &[u8]) {
        put_uvarint(&mut self.entries, bytes.len());
        self.entries.extend_from_slice(bytes);
        self.count += 1;
    }

    pub(in crate::metadata::topic) fn finish(self) -> Vec<u8> {
        let mut bytes = self.head;
        bytes.reserve(self.entries.len() + 16);
        put_uvarint(&mut bytes, self.count);
        bytes.extend_from_slice(&self.entries);
        let checksum = crc32c::crc32c(&bytes);
        bytes.put_u32(checksum);
        bytes
    }

    pub(in crate::metadata::topic) fn write_atomic(self, path: &Path) -> Result<(), SnapshotError> {
        write_atomic(path, &self.finish())
    }
}

fn state_entry(dump: &PartitionDump) -> Vec<u8> {
    let mut entry = vec![STATE_ENTRY];
    put_topic_id_partition(&mut entry, &dump.topic_id_partition);
    put_offset(&mut entry, dump.applied_offset);
    put_uvarint(&mut entry, dump.epochs.len());
    for epoch in &dump.epochs {
        entry.put_i32(epoch.leader_epoch.0);
        put_offset(&mut entry, epoch.highest_offset);
        put_uvarint(&mut entry, epoch.readable.len());
        for (start, id) in &epoch.readable {
            entry.put_i64(*start);
            entry.extend_from_slice(id.as_bytes());
        }
    }
    entry
}

fn put_offset(entry: &mut Vec<u8>, offset: Option<i64>) {
    entry.put_u8(offset.is_some().into());
    if let Some(offset) = offset {
        entry.put_i64(offset);
    }
}

/// Whether an import without the epochs answers the same.
///
/// It does where every finished segment answers in each of its epochs, none reaches into another,
/// and nothing higher was ever readable: then the order in which they finished has no influence.
fn can_be_worked_out(dump: &PartitionDump) -> bool {
    if dump.epochs.is_empty() {
        return true;
    }
    let mut epochs: BTreeMap<LeaderEpoch, Vec<(i64, i64, Uuid)>> = BTreeMap::new();
    for segment in &dump.segments {
        if segment.state() == RemoteLogSegmentState::CopySegmentFinished {
            let slot = Slot::new(segment);
            for span in slot.epochs() {
                if let Some(end) = span.end {
                    epochs
                        .entry(span.epoch)
                        .or_default()
                        .push((span.start, end, slot.id));
                }
            }
        }
    }
    let worked_out = epochs.into_iter().map(|(leader_epoch, mut spans)| {
        spans.sort_unstable();
        let mut is_apart = spans.iter().all(|(start, end, _)| start <= end);
        is_apart &= spans.windows(2).all(|pair| pair[0].1 < pair[1].0);
        is_apart.then(|| EpochDump {
            leader_epoch,
            highest_offset: spans.last().map(|(_, end, _)| *end),
            readable: spans
                .into_iter()
                .map(|(start, _, id)| (start, id))
                .collect(),
        })
    });
    worked_out.eq(dump.epochs.iter().map(|epoch| Some(epoch.clone())))
}
