//! Writing a snapshot, one partition after another.

use std::collections::HashSet;
use std::path::Path;

use uuid::Uuid;

use super::super::event::{AddFields, MetadataEvent};
use super::super::wire::put_uvarint;
use super::answers::{self, Telling, usual_applied_offset};
use super::{SNAPSHOT_FORMAT_VERSION, SnapshotError, file};
use crate::metadata::slots::Slot;
use crate::metadata::{EpochDump, PartitionDump, RemoteLogMetadataCache};
use crate::model::{
    LeaderEpoch, RemotePartitionDeleteMetadata, RemotePartitionDeleteState, TopicIdPartition,
};

/// Makes the bytes of a [`Snapshot`](super::Snapshot) partition by partition, so that no dump of
/// all of them has to be in memory.
#[derive(Debug)]
pub struct SnapshotEncoder {
    topic_id: Option<Uuid>,
    committed_offsets: Vec<i64>,
    entries: Vec<u8>,
    count: usize,
}

impl SnapshotEncoder {
    /// A snapshot of no partition yet; see the fields of [`Snapshot`](super::Snapshot).
    pub fn new(topic_id: Option<Uuid>, committed_offsets: &[i64]) -> Self {
        Self {
            topic_id,
            committed_offsets: committed_offsets.to_vec(),
            entries: Vec::new(),
            count: 0,
        }
    }

    /// Appends what this dump says. A partition is appended once.
    pub fn partition(&mut self, dump: &PartitionDump) {
        let tp = &dump.topic_id_partition;
        let mut telling = Telling::new(&dump.epochs);
        let mut ids = HashSet::new();
        let mut is_unique = true;
        // An import leaves rows of other partitions out, too.
        let rows = dump.segments.iter();
        for row in rows.filter(|row| row.topic_id_partition() == tp) {
            let row = Slot::new(row);
            if !dump.epochs.is_empty() {
                is_unique &= ids.insert(row.id);
            }
            telling.row(&row);
            self.segment(tp, &row);
        }
        let epochs = match telling.untold() {
            // Which of two rows counts is not known before all of them are read.
            [] if !is_unique => &dump.epochs,
            untold => untold,
        };
        self.rest(tp, dump.delete_state, epochs, dump.applied_offset);
    }

    /// Appends what this cache knows, as [`partition`](Self::partition) does with its export.
    pub fn cache(&mut self, cache: &RemoteLogMetadataCache) {
        let tp = cache.topic_id_partition();
        let epochs = cache.export_epochs();
        let mut rows: Vec<_> = cache.slots.iter().collect();
        rows.sort_unstable_by_key(|row| (row.start_offset, row.id));
        let mut telling = Telling::new(&epochs);
        for row in rows {
            telling.row(row);
            self.segment(tp, row);
        }
        let (delete_state, applied_offset) = (cache.delete_state(), cache.applied_offset);
        self.rest(tp, delete_state, telling.untold(), applied_offset);
    }

    fn segment(&mut self, tp: &TopicIdPartition, row: &Slot) {
        let add = add_of(row);
        put_uvarint(&mut self.entries, add.encoded_len(tp));
        add.encode(tp, &mut self.entries);
        self.count += 1;
    }

    fn rest(
        &mut self,
        tp: &TopicIdPartition,
        delete_state: Option<RemotePartitionDeleteState>,
        epochs: &[EpochDump],
        applied_offset: Option<i64>,
    ) {
        if let Some(state) = delete_state {
            let delete = RemotePartitionDeleteMetadata::new(tp.clone(), state, 0, 0);
            self.entry(&MetadataEvent::PartitionDelete(delete).encode());
        }
        let usual = usual_applied_offset(tp, &self.committed_offsets);
        if !epochs.is_empty() || applied_offset != usual {
            let mut entry = Vec::new();
            answers::put(&mut entry, tp, applied_offset, epochs);
            self.entry(&entry);
        }
    }

    fn entry(&mut self, entry: &[u8]) {
        put_uvarint(&mut self.entries, entry.len());
        self.entries.extend_from_slice(entry);
        self.count += 1;
    }

    /// The bytes of the snapshot.
    ///
    /// # Panics
    ///
    /// When there are more than 2^31 − 1 committed offsets.
    pub fn finish(self) -> Vec<u8> {
        let (head, checksum) = self.ends();
        [&head[..], &self.entries, &checksum].concat()
    }

    /// Puts the snapshot in the place of the file at `path`: see
    /// [`Snapshot::write_atomic`](super::Snapshot::write_atomic).
    ///
    /// # Panics
    ///
    /// As [`finish`](Self::finish).
    pub fn write_atomic(self, path: &Path) -> Result<(), SnapshotError> {
        let (head, checksum) = self.ends();
        Ok(file::replace(path, &[&head, &self.entries, &checksum])?)
    }

    /// What stands before the entries, and after them.
    fn ends(&self) -> (Vec<u8>, [u8; 4]) {
        let count = i32::try_from(self.committed_offsets.len());
        let count = count.expect("as many committed offsets as a log has partitions");
        let mut head = Vec::with_capacity(2 + 16 + 4 + 8 * self.committed_offsets.len() + 10);
        head.extend_from_slice(&SNAPSHOT_FORMAT_VERSION.to_be_bytes());
        head.extend_from_slice(self.topic_id.unwrap_or_default().as_bytes());
        head.extend_from_slice(&count.to_be_bytes());
        for offset in &self.committed_offsets {
            head.extend_from_slice(&offset.to_be_bytes());
        }
        put_uvarint(&mut head, self.count);
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&head), &self.entries);
        (head, checksum.to_be_bytes())
    }
}

fn add_of(row: &Slot) -> AddFields<'_, impl ExactSizeIterator<Item = (LeaderEpoch, i64)> + '_> {
    AddFields {
        id: row.id,
        start_offset: row.start_offset,
        end_offset: row.end_offset,
        broker_id: row.broker_id,
        max_timestamp_ms: row.max_timestamp_ms,
        event_timestamp_ms: row.event_timestamp_ms,
        epochs: row.epochs().map(|span| (span.epoch, span.start)),
        segment_size_in_bytes: row.segment_size_in_bytes,
        custom_metadata: row.custom_metadata.as_deref(),
        state: row.state,
        txn_index_empty: row.txn_index_empty,
    }
}
