//! One partition's segments by leader epoch, with the semantics of Kafka's segment cache.
//!
//! The model is Kafka's `RemoteLogMetadataCache` and `RemoteLogLeaderEpochState`: a lookup answers
//! from the readable segments of one epoch, a segment that finishes later and reaches at least as
//! far supersedes those that begin at or after it, and what is superseded stays listed so that it
//! gets cleaned up. Where Kafka's cache is wrong this one differs:
//!
//! - an epoch's readable segment that is displaced by one of the same start offset stays listed;
//! - an exact repeat of an update changes nothing, and an inexact one of a finished copy is refused,
//!   so that neither brings a superseded segment back;
//! - a repeated add with other epochs leaves no trace under the old ones;
//! - custom metadata survives an update without any;
//! - a deleted partition stays deleted, whatever event arrives late.
//!
//! Events come in two forms. The plain one serves callers and names what is wrong with an event.
//! The replay form serves an event log that real brokers wrote, where duplicates and late events
//! are normal: it accepts what Kafka's own replay accepts. In both an error means that the event
//! was dropped and nothing has changed. No event panics, whatever its offsets.
//!
//! The cache has no lock of its own. Its answers borrow from it and allocate nothing, except lists.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::slots::{Slot, SlotId, SlotUpdate, Slots};
use crate::error::RemoteStorageError;
use crate::model::{
    LeaderEpoch, RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState, RemotePartitionDeleteMetadata, RemotePartitionDeleteState,
    TopicIdPartition,
};

/// The segments of one partition (Kafka's `RemoteLogMetadataCache`).
#[derive(Debug)]
pub struct RemoteLogMetadataCache {
    topic_id_partition: TopicIdPartition,
    pub(super) slots: Slots,
    /// An epoch stays for its highest offset, also when its last segment is gone.
    pub(super) epochs: BTreeMap<LeaderEpoch, EpochState>,
    pub(super) delete_state: Option<RemotePartitionDeleteState>,
    /// The offset of the last event that came from an event log.
    pub(in crate::metadata) applied_offset: Option<i64>,
}

/// What a legal event does to a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It changes something.
    Change,
    /// It says what the cache knows already, and changes nothing.
    Repetition,
}

/// One leader epoch of a partition (Kafka's `RemoteLogLeaderEpochState`).
#[derive(Debug, Default)]
pub(super) struct EpochState {
    /// The segment that answers from this offset of the epoch on.
    pub(super) readable: BTreeMap<i64, SlotId>,
    /// Segments that are not readable: copy or deletion under way, or superseded.
    pub(super) unreferenced: BTreeSet<SlotId>,
    pub(super) highest: Option<i64>,
    /// Log bytes of readable and unreferenced segments together.
    pub(super) size_in_bytes: i64,
}

impl EpochState {
    /// Makes a finished segment the one that answers from `start` on.
    pub(super) fn make_readable(&mut self, start: i64, end: i64, slot_id: SlotId) {
        while let Some(last) = self.readable.last_entry()
            && *last.key() >= start
            && self.highest.is_none_or(|highest| highest <= end)
        {
            self.unreferenced.insert(last.remove());
        }
        if let Some(displaced) = self.readable.insert(start, slot_id) {
            self.unreferenced.insert(displaced);
        }
        self.unreferenced.remove(&slot_id);
        self.highest = self.highest.max(Some(end));
    }
}

impl RemoteLogMetadataCache {
    /// A cache that knows no segment of this partition.
    pub fn new(topic_id_partition: TopicIdPartition) -> Self {
        Self {
            topic_id_partition,
            slots: Slots::default(),
            epochs: BTreeMap::new(),
            delete_state: None,
            applied_offset: None,
        }
    }

    /// The partition whose segments these are.
    pub fn topic_id_partition(&self) -> &TopicIdPartition {
        &self.topic_id_partition
    }

    /// Records that the copy of a segment has begun.
    ///
    /// Repeating an add with equal metadata changes nothing, as long as the copy has not ended.
    ///
    /// # Errors
    ///
    /// [`InvalidAdd`](RemoteStorageError::InvalidAdd) when the state is not `CopySegmentStarted`,
    /// when the id is taken, and when the partition is another one or has been deleted.
    pub fn add_segment(
        &mut self,
        metadata: &RemoteLogSegmentMetadata,
    ) -> Result<(), RemoteStorageError> {
        if self.check_add_segment(metadata)? == Effect::Change {
            self.insert(Slot::new(metadata));
        }
        Ok(())
    }

    /// What [`add_segment`](Self::add_segment) would do.
    ///
    /// # Errors
    ///
    /// Those of [`add_segment`](Self::add_segment).
    pub fn check_add_segment(
        &self,
        metadata: &RemoteLogSegmentMetadata,
    ) -> Result<Effect, RemoteStorageError> {
        let Some(slot) = self.slot_for_add(metadata)? else {
            return Ok(Effect::Change);
        };
        if self.slots[slot].to_metadata(&self.topic_id_partition) == *metadata {
            Ok(Effect::Repetition)
        } else {
            Err(self.invalid_add(self.slots[slot].id, "the id is already in use"))
        }
    }

    /// Records an add that was read from an event log.
    ///
    /// As in Kafka, the latest add of a segment whose copy has not ended is the one that counts.
    ///
    /// # Errors
    ///
    /// Those of [`add_segment`](Self::add_segment), but for an id whose copy has not ended. They
    /// say why the event was dropped; a replay goes on with the next one.
    pub fn replay_add_segment(
        &mut self,
        metadata: &RemoteLogSegmentMetadata,
    ) -> Result<(), RemoteStorageError> {
        let known = self.slot_for_add(metadata)?;
        self.replace(known, Slot::new(metadata));
        Ok(())
    }

    /// As [`replay_add_segment`](Self::replay_add_segment), of a segment of this partition.
    #[inline]
    pub(in crate::metadata) fn replay_add_slot(
        &mut self,
        slot: Slot,
    ) -> Result<(), RemoteStorageError> {
        let known = self.known_for_add(slot.id, slot.state)?;
        self.replace(known, slot);
        Ok(())
    }

    #[inline]
    fn replace(&mut self, known: Option<SlotId>, slot: Slot) {
        if let Some(known) = known {
            self.remove(known);
        }
        self.insert(slot);
    }

    /// The slot that the id has, when the add may stand for a repetition.
    fn slot_for_add(
        &self,
        metadata: &RemoteLogSegmentMetadata,
    ) -> Result<Option<SlotId>, RemoteStorageError> {
        let id = metadata.remote_log_segment_id();
        if id.topic_id_partition != self.topic_id_partition {
            return Err(RemoteStorageError::InvalidAdd {
                id: id.clone(),
                reason: format!("this is the metadata of {}", self.topic_id_partition),
            });
        }
        self.known_for_add(id.id, metadata.state())
    }

    fn known_for_add(
        &self,
        id: Uuid,
        state: RemoteLogSegmentState,
    ) -> Result<Option<SlotId>, RemoteStorageError> {
        const STARTED: RemoteLogSegmentState = RemoteLogSegmentState::CopySegmentStarted;
        if state != STARTED {
            let reason = format!("a segment enters as {STARTED}, not as {state}");
            return Err(self.invalid_add(id, reason));
        }
        if self.is_deleted() {
            return Err(self.invalid_add(id, "its partition has been deleted"));
        }
        let Some(slot) = self.slots.find(id) else {
            return Ok(None);
        };
        match self.slots[slot].state {
            STARTED => Ok(Some(slot)),
            state => {
                let reason = format!("the id is already in use, in state {state}");
                Err(self.invalid_add(id, reason))
            }
        }
    }

    fn invalid_add(&self, id: Uuid, reason: impl Into<String>) -> RemoteStorageError {
        RemoteStorageError::InvalidAdd {
            id: self.id_of(id),
            reason: reason.into(),
        }
    }

    fn id_of(&self, id: Uuid) -> RemoteLogSegmentId {
        RemoteLogSegmentId::new(self.topic_id_partition.clone(), id)
    }

    /// Changes the state of a segment.
    ///
    /// Repeating the latest update exactly (same state, timestamp and broker; custom metadata
    /// equal or left out) changes nothing, and neither does `DeleteSegmentFinished` for an unknown
    /// segment. A deletion may begin once more, as a new leader has it: the segment is then as that
    /// update says.
    ///
    /// # Errors
    ///
    /// [`SegmentNotFound`](RemoteStorageError::SegmentNotFound) when the segment is unknown,
    /// [`InvalidSegmentTransition`](RemoteStorageError::InvalidSegmentTransition) when the state
    /// may not follow, or is that of a copy again without being an exact repeat. A replay takes
    /// both as the reason why the event was dropped, and goes on.
    pub fn update_segment(
        &mut self,
        update: &RemoteLogSegmentMetadataUpdate,
    ) -> Result<(), RemoteStorageError> {
        if let Some(slot) = self.slot_for_update(update)? {
            self.change(slot, &update.into());
        }
        Ok(())
    }

    /// As [`update_segment`](Self::update_segment), of a segment of this partition.
    pub(in crate::metadata) fn update_slot(
        &mut self,
        update: &SlotUpdate<'_>,
    ) -> Result<(), RemoteStorageError> {
        if let Some(slot) = self.known_for_update(update)? {
            self.change(slot, update);
        }
        Ok(())
    }

    /// Makes a change that is allowed.
    fn change(&mut self, slot_id: SlotId, update: &SlotUpdate<'_>) {
        match update.state {
            RemoteLogSegmentState::DeleteSegmentFinished => return self.remove(slot_id),
            RemoteLogSegmentState::DeleteSegmentStarted => self.make_unreadable(slot_id),
            RemoteLogSegmentState::CopySegmentFinished => self.make_readable(slot_id),
            // No state leads back to this one.
            RemoteLogSegmentState::CopySegmentStarted => {}
        }
        self.slots[slot_id].apply(update);
    }

    /// What [`update_segment`](Self::update_segment) would do.
    ///
    /// # Errors
    ///
    /// Those of [`update_segment`](Self::update_segment).
    pub fn check_update_segment(
        &self,
        update: &RemoteLogSegmentMetadataUpdate,
    ) -> Result<Effect, RemoteStorageError> {
        Ok(match self.slot_for_update(update)? {
            Some(_) => Effect::Change,
            None => Effect::Repetition,
        })
    }

    /// The segment that the update changes; `None` when it repeats what was done before.
    fn slot_for_update(
        &self,
        update: &RemoteLogSegmentMetadataUpdate,
    ) -> Result<Option<SlotId>, RemoteStorageError> {
        let id = &update.remote_log_segment_id;
        if id.topic_id_partition == self.topic_id_partition {
            return self.known_for_update(&update.into());
        }
        match update.state {
            RemoteLogSegmentState::DeleteSegmentFinished => Ok(None),
            _ => Err(RemoteStorageError::SegmentNotFound(id.clone())),
        }
    }

    fn known_for_update(
        &self,
        update: &SlotUpdate<'_>,
    ) -> Result<Option<SlotId>, RemoteStorageError> {
        let Some(slot_id) = self.slots.find(update.id) else {
            return match update.state {
                RemoteLogSegmentState::DeleteSegmentFinished => Ok(None),
                _ => Err(RemoteStorageError::SegmentNotFound(self.id_of(update.id))),
            };
        };
        let slot = &self.slots[slot_id];
        if slot.is_repeated_by(update) {
            return Ok(None);
        }
        // A leader that changes during a deletion has its successor begin it once more.
        let is_again = slot.state == update.state
            && update.state != RemoteLogSegmentState::DeleteSegmentStarted;
        if is_again || !slot.state.is_valid_transition(update.state) {
            return Err(RemoteStorageError::InvalidSegmentTransition {
                id: self.id_of(update.id),
                from: slot.state,
                to: update.state,
            });
        }
        Ok(Some(slot_id))
    }

    /// Records how far the deletion of the partition has come.
    ///
    /// Segments stay readable until `DeletePartitionFinished`. Then everything is dropped but a
    /// marker, so that repeating it is harmless.
    ///
    /// # Errors
    ///
    /// [`InvalidPartitionDeleteTransition`](RemoteStorageError::InvalidPartitionDeleteTransition)
    /// when the state may not follow,
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument) when the partition is another one.
    pub fn put_partition_delete(
        &mut self,
        event: &RemotePartitionDeleteMetadata,
    ) -> Result<(), RemoteStorageError> {
        if self.check_partition_delete(event)? == Effect::Change {
            self.set_delete_state(event.state);
        }
        Ok(())
    }

    /// What [`put_partition_delete`](Self::put_partition_delete) would do.
    ///
    /// # Errors
    ///
    /// Those of [`put_partition_delete`](Self::put_partition_delete).
    pub fn check_partition_delete(
        &self,
        event: &RemotePartitionDeleteMetadata,
    ) -> Result<Effect, RemoteStorageError> {
        self.check_partition(&event.topic_id_partition)?;
        let from = self.delete_state;
        if !RemotePartitionDeleteState::is_valid_transition(from, event.state) {
            return Err(RemoteStorageError::InvalidPartitionDeleteTransition {
                tp: self.topic_id_partition.clone(),
                from,
                to: event.state,
            });
        }
        Ok(if from == Some(event.state) {
            Effect::Repetition
        } else {
            Effect::Change
        })
    }

    /// Records a partition deletion that was read from an event log.
    ///
    /// As in Kafka, a step may be missing (its event may have expired). A step back is ignored.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument) when the partition is another one.
    pub fn replay_partition_delete(
        &mut self,
        event: &RemotePartitionDeleteMetadata,
    ) -> Result<(), RemoteStorageError> {
        self.check_partition(&event.topic_id_partition)?;
        if self.delete_state.is_none_or(|from| from < event.state) {
            self.set_delete_state(event.state);
        }
        Ok(())
    }

    /// The offset of the last event that was replayed from an event log; `None` when there was
    /// none.
    pub fn applied_offset(&self) -> Option<i64> {
        self.applied_offset
    }

    /// The readable segment that holds `offset` in this epoch.
    ///
    /// Only the readable segment with the highest start offset that is not above `offset` is
    /// considered, and only as far as this epoch reaches in it.
    pub fn find_segment(&self, epoch: LeaderEpoch, offset: i64) -> Option<SegmentView<'_>> {
        let (_, &slot) = self
            .epochs
            .get(&epoch)?
            .readable
            .range(..=offset)
            .next_back()?;
        let slot = &self.slots[slot];
        let end = slot.epoch(epoch)?.end?;
        // Segment bounds bite only when an epoch begins or ends outside its segment.
        let held = (slot.start_offset..=slot.end_offset.min(end)).contains(&offset);
        held.then_some(self.view(slot))
    }

    /// The first readable segment at or after `offset` that may hold aborted transactions, as far
    /// as segments of this epoch adjoin.
    pub fn find_segment_with_txn_index(
        &self,
        epoch: LeaderEpoch,
        offset: i64,
    ) -> Option<SegmentView<'_>> {
        let mut segment = self.find_segment(epoch, offset)?;
        while segment.txn_index_empty() {
            // A segment that is found ends at or after the offset asked for, so this advances.
            segment = self.find_segment(epoch, segment.end_offset().checked_add(1)?)?;
        }
        Some(segment)
    }

    /// The highest offset that was ever readable in this epoch. It never decreases.
    pub fn highest_offset(&self, epoch: LeaderEpoch) -> Option<i64> {
        self.epochs.get(&epoch)?.highest
    }

    /// The readable segment in which the newest leader epoch with any ends.
    pub fn newest_segment(&self) -> Option<SegmentView<'_>> {
        let mut epochs = self.epochs.values().rev();
        let slot = epochs.find_map(|state| state.readable.values().next_back())?;
        Some(self.view(&self.slots[*slot]))
    }

    /// Every segment that is not fully deleted, ordered by start offset and id.
    pub fn list_segments(&self) -> Vec<SegmentView<'_>> {
        self.sorted(self.slots.iter())
    }

    /// Every segment with offsets of this epoch that is not fully deleted, in whatever state,
    /// ordered by start offset and id.
    pub fn list_segments_by_epoch(&self, epoch: LeaderEpoch) -> Vec<SegmentView<'_>> {
        let Some(state) = self.epochs.get(&epoch) else {
            return Vec::new();
        };
        let members = state.readable.values().chain(&state.unreferenced);
        self.sorted(members.map(|&slot| &self.slots[slot]))
    }

    /// The log bytes of the segments that
    /// [`list_segments_by_epoch`](Self::list_segments_by_epoch) lists.
    pub fn log_size(&self, epoch: LeaderEpoch) -> i64 {
        self.epochs
            .get(&epoch)
            .map_or(0, |state| state.size_in_bytes)
    }

    /// How far the deletion of the partition has come; `None` when it has not begun.
    pub fn delete_state(&self) -> Option<RemotePartitionDeleteState> {
        self.delete_state
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.delete_state == Some(RemotePartitionDeleteState::DeletePartitionFinished)
    }

    pub(super) fn set_delete_state(&mut self, state: RemotePartitionDeleteState) {
        self.delete_state = Some(state);
        if self.is_deleted() {
            self.slots = Slots::default();
            self.epochs = BTreeMap::new();
        }
    }

    /// Enters a segment that is not readable (yet), in whatever state.
    #[inline]
    fn insert(&mut self, slot: Slot) {
        let slot_id = self.slots.insert(slot);
        let slot = &self.slots[slot_id];
        for span in slot.epochs() {
            let state = self.epochs.entry(span.epoch).or_default();
            state.unreferenced.insert(slot_id);
            state.size_in_bytes += i64::from(slot.segment_size_in_bytes);
        }
    }

    /// Makes a finished segment the one that answers from its start in each of its epochs on.
    fn make_readable(&mut self, slot_id: SlotId) {
        for span in self.slots[slot_id].epochs() {
            // Without an end nothing of the epoch is in the segment; it stays listed there.
            if let (Some(end), Some(state)) = (span.end, self.epochs.get_mut(&span.epoch)) {
                state.make_readable(span.start, end, slot_id);
            }
        }
    }

    fn make_unreadable(&mut self, slot_id: SlotId) {
        for span in self.slots[slot_id].epochs() {
            let Some(state) = self.epochs.get_mut(&span.epoch) else {
                continue;
            };
            // Another segment that has taken the place keeps it.
            if state.readable.get(&span.start) == Some(&slot_id) {
                state.readable.remove(&span.start);
            }
            state.unreferenced.insert(slot_id);
        }
    }

    /// Removes a segment that is not readable.
    fn remove(&mut self, slot_id: SlotId) {
        let slot = &self.slots[slot_id];
        for span in slot.epochs() {
            if let Some(state) = self.epochs.get_mut(&span.epoch) {
                state.unreferenced.remove(&slot_id);
                state.size_in_bytes -= i64::from(slot.segment_size_in_bytes);
            }
        }
        self.slots.remove(slot_id);
    }

    fn check_partition(&self, tp: &TopicIdPartition) -> Result<(), RemoteStorageError> {
        if *tp == self.topic_id_partition {
            return Ok(());
        }
        Err(RemoteStorageError::InvalidArgument(format!(
            "an event of {tp} does not belong to {}",
            self.topic_id_partition
        )))
    }

    fn view<'a>(&'a self, slot: &'a Slot) -> SegmentView<'a> {
        SegmentView {
            topic_id_partition: &self.topic_id_partition,
            slot,
        }
    }

    fn sorted<'a>(&'a self, slots: impl Iterator<Item = &'a Slot>) -> Vec<SegmentView<'a>> {
        let mut segments: Vec<_> = slots.map(|slot| self.view(slot)).collect();
        segments.sort_unstable_by_key(|segment| (segment.start_offset(), segment.id()));
        segments
    }
}

/// A segment as it stands in a [`RemoteLogMetadataCache`], borrowed from it.
#[derive(Clone, Copy, Debug)]
pub struct SegmentView<'a> {
    topic_id_partition: &'a TopicIdPartition,
    slot: &'a Slot,
}

impl<'a> SegmentView<'a> {
    /// The partition that the segment belongs to.
    pub fn topic_id_partition(&self) -> &'a TopicIdPartition {
        self.topic_id_partition
    }

    /// The id of the copy attempt.
    pub fn id(&self) -> Uuid {
        self.slot.id
    }

    /// First offset, inclusive.
    pub fn start_offset(&self) -> i64 {
        self.slot.start_offset
    }

    /// Last offset, inclusive; it may exceed the last stored record.
    pub fn end_offset(&self) -> i64 {
        self.slot.end_offset
    }

    /// Length of the `.log` in bytes.
    pub fn segment_size_in_bytes(&self) -> i32 {
        self.slot.segment_size_in_bytes
    }

    /// The segment's state.
    pub fn state(&self) -> RemoteLogSegmentState {
        self.slot.state
    }

    /// When the latest event was made, in milliseconds since 1970-01-01 UTC.
    pub fn event_timestamp_ms(&self) -> i64 {
        self.slot.event_timestamp_ms
    }

    /// Whether the segment is known to have no aborted transactions.
    pub fn txn_index_empty(&self) -> bool {
        self.slot.txn_index_empty
    }

    /// Everything that is known of the segment, as a value of its own.
    pub fn to_metadata(&self) -> RemoteLogSegmentMetadata {
        self.slot.to_metadata(self.topic_id_partition)
    }
}

impl Slot {
    fn is_repeated_by(&self, update: &SlotUpdate<'_>) -> bool {
        let custom_metadata = update.custom_metadata;
        self.state == update.state
            && self.event_timestamp_ms == update.event_timestamp_ms
            && self.broker_id == update.broker_id
            && custom_metadata.is_none_or(|custom| self.custom_metadata.as_deref() == Some(custom))
    }

    fn apply(&mut self, update: &SlotUpdate<'_>) {
        self.state = update.state;
        self.event_timestamp_ms = update.event_timestamp_ms;
        self.broker_id = update.broker_id;
        if let Some(custom) = update.custom_metadata {
            self.custom_metadata = Some(custom.into());
        }
    }
}
