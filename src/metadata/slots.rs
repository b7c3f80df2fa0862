//! The compact records of one partition's segments, and the arena that holds them.
//!
//! A record leaves out what its partition has in common (topic, topic id, index) and keeps the
//! usual leader-epoch map, one epoch that begins with the segment, in place. Records lie in blocks
//! of 64: a block is never moved, so a growing partition has no moment at which a million records
//! are copied, and it is given back when the last segment in it is gone. The table of ids holds
//! eight bytes a record, because a record has its id itself.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};
use std::ops::{Index, IndexMut};

use hashbrown::HashTable;
use uuid::Uuid;

use crate::model::{
    CustomMetadata, LeaderEpoch, RemoteLogSegmentDetails, RemoteLogSegmentId,
    RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState,
    TopicIdPartition,
};

/// One segment, without the names of its partition.
///
/// What a lookup by offset needs comes first and, by the alignment, lies in one cache line: among
/// a million segments it is a read from main memory.
#[derive(Debug)]
#[repr(C, align(32))]
pub(super) struct Slot {
    pub(super) start_offset: i64,
    pub(super) end_offset: i64,
    pub(super) epochs: SegmentEpochs,
    pub(super) id: Uuid,
    pub(super) max_timestamp_ms: i64,
    pub(super) event_timestamp_ms: i64,
    pub(super) custom_metadata: Option<Box<[u8]>>,
    pub(super) broker_id: i32,
    pub(super) segment_size_in_bytes: i32,
    pub(super) state: RemoteLogSegmentState,
    pub(super) txn_index_empty: bool,
}

/// What an update says of its segment, without the names of the partition and borrowed from
/// wherever it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotUpdate<'a> {
    pub(super) id: Uuid,
    pub(super) event_timestamp_ms: i64,
    pub(super) custom_metadata: Option<&'a [u8]>,
    pub(super) broker_id: i32,
    pub(super) state: RemoteLogSegmentState,
}

impl<'a> From<&'a RemoteLogSegmentMetadataUpdate> for SlotUpdate<'a> {
    fn from(update: &'a RemoteLogSegmentMetadataUpdate) -> Self {
        Self {
            id: update.remote_log_segment_id.id,
            event_timestamp_ms: update.event_timestamp_ms,
            custom_metadata: update.custom_metadata.as_ref().map(|custom| &*custom.0),
            broker_id: update.broker_id,
            state: update.state,
        }
    }
}

/// A segment's leader epochs and their start offsets, ascending.
#[derive(Debug)]
pub(super) struct SegmentEpochs(EpochMap);

#[derive(Debug)]
enum EpochMap {
    /// One epoch, which begins with the segment.
    Whole(LeaderEpoch),
    /// Any other map, in the order of epochs.
    Listed(Box<[(LeaderEpoch, i64)]>),
}

/// The part of a segment that belongs to one leader epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EpochSpan {
    pub(super) epoch: LeaderEpoch,
    /// First offset, inclusive.
    pub(super) start: i64,
    /// Last offset, inclusive: the one before the next higher epoch of the same segment. `None`
    /// when there is no offset before that.
    pub(super) end: Option<i64>,
}

impl SegmentEpochs {
    /// The epochs, which ascend, of a segment that begins at `start_offset`.
    pub(super) fn new(
        start_offset: i64,
        mut epochs: impl ExactSizeIterator<Item = (LeaderEpoch, i64)>,
    ) -> Self {
        Self(match (epochs.len(), epochs.next()) {
            (1, Some((epoch, start))) if start == start_offset => EpochMap::Whole(epoch),
            (_, first) => EpochMap::Listed(first.into_iter().chain(epochs).collect()),
        })
    }
}

impl Slot {
    pub(super) fn new(metadata: &RemoteLogSegmentMetadata) -> Self {
        let epochs = metadata.segment_leader_epochs().iter();
        let epochs = epochs.map(|(&epoch, &start)| (epoch, start));
        let epochs = SegmentEpochs::new(metadata.start_offset(), epochs);
        Self {
            id: metadata.remote_log_segment_id().id,
            start_offset: metadata.start_offset(),
            end_offset: metadata.end_offset(),
            max_timestamp_ms: metadata.max_timestamp_ms(),
            event_timestamp_ms: metadata.event_timestamp_ms(),
            broker_id: metadata.broker_id(),
            segment_size_in_bytes: metadata.segment_size_in_bytes(),
            epochs,
            custom_metadata: metadata.custom_metadata().map(|custom| (&*custom.0).into()),
            state: metadata.state(),
            txn_index_empty: metadata.txn_index_empty(),
        }
    }

    /// The owned form, as a segment of this partition.
    pub(super) fn to_metadata(&self, tp: &TopicIdPartition) -> RemoteLogSegmentMetadata {
        let mut epochs = BTreeMap::new();
        for span in self.epochs() {
            epochs.insert(span.epoch, span.start);
        }
        let metadata = RemoteLogSegmentMetadata::new(
            RemoteLogSegmentId::new(tp.clone(), self.id),
            self.start_offset,
            self.end_offset,
            self.max_timestamp_ms,
            self.broker_id,
            self.event_timestamp_ms,
            RemoteLogSegmentDetails::new(self.segment_size_in_bytes, self.state, epochs),
        )
        .expect("the values of a segment that was valid when it was added")
        .with_txn_index_empty(self.txn_index_empty);
        match &self.custom_metadata {
            Some(custom) => metadata.with_custom_metadata(CustomMetadata(custom.to_vec())),
            None => metadata,
        }
    }

    /// Every epoch of the segment, ascending.
    pub(super) fn epochs(&self) -> impl ExactSizeIterator<Item = EpochSpan> + '_ {
        (0..self.epoch_count()).map(|at| self.span(at))
    }

    /// The segment's part of this epoch.
    pub(super) fn epoch(&self, epoch: LeaderEpoch) -> Option<EpochSpan> {
        let at = match &self.epochs.0 {
            EpochMap::Whole(only) => (*only == epoch).then_some(0),
            EpochMap::Listed(list) => list.binary_search_by_key(&epoch, |(e, _)| *e).ok(),
        };
        at.map(|at| self.span(at))
    }

    fn epoch_count(&self) -> usize {
        match &self.epochs.0 {
            EpochMap::Whole(_) => 1,
            EpochMap::Listed(list) => list.len(),
        }
    }

    fn span(&self, at: usize) -> EpochSpan {
        match &self.epochs.0 {
            EpochMap::Whole(epoch) => EpochSpan {
                epoch: *epoch,
                start: self.start_offset,
                end: Some(self.end_offset),
            },
            EpochMap::Listed(list) => EpochSpan {
                epoch: list[at].0,
                start: list[at].1,
                end: match list.get(at + 1) {
                    Some((_, next)) => next.checked_sub(1),
                    None => Some(self.end_offset),
                },
            },
        }
    }
}

/// Where a [`Slot`] lies. It names the same segment until that segment is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SlotId(u32);

const BLOCK: u32 = u64::BITS;

#[derive(Debug)]
struct Block {
    /// A bit for each slot that is taken.
    taken: u64,
    slots: [Option<Slot>; BLOCK as usize],
}

/// An id in the table of ids: part of its hash, and where the record with the whole id lies.
#[derive(Clone, Copy, Debug)]
struct IdEntry {
    hash: u32,
    slot: SlotId,
}

/// The hash that the table goes by. It is made of what an entry keeps, so a table that grows need
/// not look at the records.
fn table_hash(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

/// The arena, and the segments' ids.
#[derive(Debug, Default)]
pub(super) struct Slots {
    by_id: HashTable<IdEntry>,
    // Ids come from outside, so the hash has a random key.
    hash: RandomState,
    blocks: Vec<Option<Box<Block>>>,
    /// Blocks with taken and free slots.
    partial: BTreeSet<u32>,
    /// Numbers of blocks that were given back.
    vacant: Vec<u32>,
}

impl Slots {
    /// The segment with this id.
    pub(super) fn find(&self, id: Uuid) -> Option<SlotId> {
        self.find_hashed(self.hash_of(id), id)
    }

    fn find_hashed(&self, hash: u32, id: Uuid) -> Option<SlotId> {
        let found = self.by_id.find(table_hash(hash), |entry| {
            entry.hash == hash && self[entry.slot].id == id
        });
        found.map(|entry| entry.slot)
    }

    /// Makes room for so many more segments in the table of ids.
    pub(super) fn reserve(&mut self, segments: usize) {
        self.by_id.reserve(segments, |entry| table_hash(entry.hash));
    }

    /// Takes a segment in. Its id must not be there.
    pub(super) fn insert(&mut self, slot: Slot) -> SlotId {
        let hash = self.hash_of(slot.id);
        self.insert_hashed(hash, slot)
    }

    #[inline]
    fn insert_hashed(&mut self, hash: u32, slot: Slot) -> SlotId {
        let slot = self.place(slot);
        let entry = IdEntry { hash, slot };
        self.by_id
            .insert_unique(table_hash(hash), entry, |entry| table_hash(entry.hash));
        slot
    }

    /// Takes a segment in, unless its id is there: then it comes back, with the place of the other.
    pub(super) fn insert_unless_known(&mut self, slot: Slot) -> Option<(SlotId, Slot)> {
        let hash = self.hash_of(slot.id);
        if let Some(known) = self.find_hashed(hash, slot.id) {
            return Some((known, slot));
        }
        self.insert_hashed(hash, slot);
        None
    }

    pub(super) fn remove(&mut self, slot: SlotId) {
        let hash = table_hash(self.hash_of(self[slot].id));
        if let Ok(entry) = self.by_id.find_entry(hash, |entry| entry.slot == slot) {
            entry.remove();
        }
        self.free(slot);
        // What a burst of segments needed is given back once most of them are gone.
        if self.by_id.len() < self.by_id.capacity() / 8 {
            let twice = self.by_id.len() * 2;
            self.by_id.shrink_to(twice, |entry| table_hash(entry.hash));
        }
    }

    fn hash_of(&self, id: Uuid) -> u32 {
        #[allow(clippy::cast_possible_truncation)] // half of the hash is enough
        let hash = self.hash.hash_one(id.as_u128()) as u32;
        hash
    }

    #[inline]
    fn place(&mut self, slot: Slot) -> SlotId {
        let number = match self.partial.first() {
            Some(&number) => number,
            None => self.new_block(),
        };
        let block = self.blocks[number as usize]
            .as_mut()
            .expect("a listed block exists");
        let at = (!block.taken).trailing_zeros();
        block.slots[at as usize] = Some(slot);
        block.taken |= 1 << at;
        if block.taken == u64::MAX {
            self.partial.remove(&number);
        }
        SlotId(number * BLOCK + at)
    }

    fn free(&mut self, id: SlotId) {
        let (number, at) = (id.0 / BLOCK, id.0 % BLOCK);
        let place = &mut self.blocks[number as usize];
        let block = place.as_mut().expect("the block of a taken slot");
        block.slots[at as usize] = None;
        block.taken &= !(1 << at);
        if block.taken == 0 {
            *place = None;
            self.partial.remove(&number);
            self.vacant.push(number);
        } else {
            self.partial.insert(number);
        }
    }

    /// Every slot, in no meaningful order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot> {
        let blocks = self.blocks.iter().flatten();
        blocks.flat_map(|block| block.slots.iter().flatten())
    }

    /// Every slot with its place, ascending by place. Where nothing was removed this is the order
    /// in which they came.
    pub(super) fn entries(&self) -> impl Iterator<Item = (SlotId, &Slot)> {
        let blocks = (0..).zip(&self.blocks);
        blocks.flat_map(|(number, block)| {
            let slots = block.iter().flat_map(|block| &block.slots);
            let places = (number * BLOCK..).map(SlotId);
            places
                .zip(slots)
                .filter_map(|(place, slot)| Some((place, slot.as_ref()?)))
        })
    }

    fn new_block(&mut self) -> u32 {
        let block = Some(Box::new(Block {
            taken: 0,
            slots: [const { None }; BLOCK as usize],
        }));
        let number = if let Some(number) = self.vacant.pop() {
            self.blocks[number as usize] = block;
            number
        } else {
            self.blocks.push(block);
            u32::try_from(self.blocks.len() - 1).expect("no memory holds that many blocks")
        };
        self.partial.insert(number);
        number
    }
}

impl Index<SlotId> for Slots {
    type Output = Slot;

    fn index(&self, id: SlotId) -> &Slot {
        self.blocks[(id.0 / BLOCK) as usize]
            .as_ref()
            .and_then(|block| block.slots[(id.0 % BLOCK) as usize].as_ref())
            .expect("a slot id in use")
    }
}

impl IndexMut<SlotId> for Slots {
    fn index_mut(&mut self, id: SlotId) -> &mut Slot {
        self.blocks[(id.0 / BLOCK) as usize]
            .as_mut()
            .and_then(|block| block.slots[(id.0 % BLOCK) as usize].as_mut())
            .expect("a slot id in use")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::segments::SegmentSpec;

    fn segment(id: u128, epochs: &[(i32, i64)]) -> RemoteLogSegmentMetadata {
        let spec = SegmentSpec::new(id, 10..=20).epochs(epochs).size(60);
        let spec = spec.state(RemoteLogSegmentState::CopySegmentFinished);
        spec.at(30, 50).broker(40).make()
    }

    #[test]
    fn a_record_gives_back_every_field() {
        let plain = segment(1, &[(3, 10)]);
        let rich = segment(2, &[(0, 10), (1, 15), (7, 99)])
            .with_txn_index_empty(true)
            .with_custom_metadata(CustomMetadata(vec![1, 2, 3]));
        let odd = segment(3, &[(3, 11)]).with_custom_metadata(CustomMetadata(Vec::new()));
        for metadata in [plain, rich, odd] {
            let back = Slot::new(&metadata).to_metadata(metadata.topic_id_partition());
            assert_eq!(back, metadata);
            assert_eq!(back.topic_id_partition().topic, "orders");
        }
    }

    #[test]
    fn an_epoch_ends_before_the_next_epoch_of_its_segment() {
        let slot = Slot::new(&segment(1, &[(0, 10), (2, 15), (5, i64::MIN), (6, 18)]));
        let ends: Vec<_> = slot.epochs().map(|span| span.end).collect();
        assert_eq!(ends, [Some(14), None, Some(17), Some(20)]);
        assert_eq!(slot.epoch(LeaderEpoch(0)).unwrap().end, Some(14));
        assert_eq!(slot.epoch(LeaderEpoch(1)), None);
        assert_eq!(slot.epoch(LeaderEpoch(6)).unwrap().start, 18);
    }

    #[test]
    fn a_block_is_given_back_with_its_last_segment_and_its_number_used_again() {
        let mut slots = Slots::default();
        let ids: Vec<_> = (0..130)
            .map(|id| slots.insert(Slot::new(&segment(id, &[(0, 10)]))))
            .collect();
        assert_eq!(slots.blocks.iter().flatten().count(), 3);
        for &id in &ids[..64] {
            slots.remove(id);
        }
        assert_eq!(slots.blocks.iter().flatten().count(), 2);
        // The free slots of the third block come first, then the vacant number.
        for id in 200..263 {
            slots.insert(Slot::new(&segment(id, &[(0, 10)])));
        }
        assert_eq!(slots.blocks.len(), 3);
        assert_eq!(slots.blocks.iter().flatten().count(), 3);
        assert_eq!(slots[ids[129]].id, Uuid::from_u128(129));
        assert_eq!(slots.iter().count(), 66 + 63);
        assert_eq!(slots.find(Uuid::from_u128(129)), Some(ids[129]));
        assert_eq!(slots.find(Uuid::from_u128(3)), None);
    }

    #[test]
    fn a_record_is_three_half_cache_lines() {
        assert_eq!(size_of::<Option<Slot>>(), 96);
    }

    #[test]
    fn the_table_of_ids_follows_the_number_of_segments_both_ways() {
        let mut slots = Slots::default();
        let insert = |slots: &mut Slots, id| slots.insert(Slot::new(&segment(id, &[(0, 10)])));
        let ids: Vec<_> = (0..10_000).map(|id| insert(&mut slots, id)).collect();
        let full = slots.by_id.capacity();
        for &id in &ids[..9_900] {
            slots.remove(id);
        }
        assert!(slots.by_id.capacity() < full / 8);
        for id in 9_900..10_000 {
            assert_eq!(slots.find(Uuid::from_u128(id)), Some(ids[id as usize]));
        }
    }

    #[test]
    fn a_freed_slot_inside_a_full_block_is_used_again() {
        let mut slots = Slots::default();
        let ids: Vec<_> = (0..64)
            .map(|id| slots.insert(Slot::new(&segment(id, &[(0, 10)]))))
            .collect();
        slots.remove(ids[17]);
        let again = slots.insert(Slot::new(&segment(99, &[(0, 10)])));
        assert_eq!(again, ids[17]);
        assert_eq!(slots[again].id, Uuid::from_u128(99));
    }
}
