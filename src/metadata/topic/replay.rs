//! Applying the events of a log to a cache, each once.

use super::codec_error::CodecError;
use super::event::{EventFields, MetadataEvent};
use super::wire::PartitionFields;
use crate::error::RemoteStorageError;
use crate::metadata::slots::{Slot, SlotUpdate};
use crate::metadata::{Effect, RemoteLogMetadataCache};
use crate::model::RemotePartitionDeleteMetadata;

/// An event without its partition, in the form that a cache takes.
#[derive(Debug)]
pub(super) enum Change<'a> {
    Add(Slot),
    Update(SlotUpdate<'a>),
    Delete(RemotePartitionDeleteMetadata),
}

impl<'a> Change<'a> {
    /// Reads the value of a record, as [`MetadataEvent::decode`] does.
    #[inline]
    pub(super) fn decode(value: &'a [u8]) -> Result<(PartitionFields<'a>, Self), CodecError> {
        Ok(match EventFields::read(value)? {
            EventFields::Add(partition, add) => (partition, Self::Add(add.into_slot(partition)?)),
            EventFields::Update(partition, update) => (partition, Self::Update(update)),
            EventFields::Delete(partition, delete) => (partition, Self::Delete(delete)),
        })
    }
}

impl RemoteLogMetadataCache {
    /// Applies the event that stands at `offset` of the event log, unless it was applied before.
    ///
    /// The cache remembers how far its log was applied, in its [dump](Self::export) too. So any
    /// part of the log may be replayed over a newer state, from whatever offset: the events that
    /// the state already has change nothing. (Without that an old add would bring a segment back
    /// that was deleted since, and displace the one that answers in its place.) This is the rule
    /// of Apache Kafka's `ConsumerTask`.
    ///
    /// # Errors
    ///
    /// Why the event was dropped, as the replay form of the event says. The offset counts as
    /// applied all the same, and a replay goes on with the next event.
    pub fn replay(&mut self, offset: i64, event: &MetadataEvent) -> Result<(), RemoteStorageError> {
        if !self.advance(offset) {
            return Ok(());
        }
        match event {
            MetadataEvent::AddSegment(metadata) => self.replay_add_segment(metadata),
            MetadataEvent::UpdateSegment(update) => self.update_segment(update),
            MetadataEvent::PartitionDelete(delete) => self.replay_partition_delete(delete),
        }
    }

    /// As [`replay`](Self::replay), of an event of this partition.
    ///
    /// A manager's replay of a million events takes 2.2 times as long as their application here
    /// where each is made a [`MetadataEvent`] before, and at most twice as long with this
    /// (`cargo bench --bench metadata_topic -- replay`).
    #[inline]
    pub(super) fn replay_change(
        &mut self,
        offset: i64,
        change: Change<'_>,
    ) -> Result<(), RemoteStorageError> {
        if !self.advance(offset) {
            return Ok(());
        }
        match change {
            Change::Add(slot) => self.replay_add_slot(slot),
            Change::Update(update) => self.update_slot(&update),
            Change::Delete(delete) => self.replay_partition_delete(&delete),
        }
    }

    /// Whether the event at this offset is new, which it is no longer then.
    fn advance(&mut self, offset: i64) -> bool {
        let is_new = self.applied_offset.is_none_or(|applied| offset > applied);
        if is_new {
            self.applied_offset = Some(offset);
        }
        is_new
    }

    /// What this event of a caller would do.
    ///
    /// # Errors
    ///
    /// Why the event is refused, as the plain form of the event says.
    pub fn check(&self, event: &MetadataEvent) -> Result<Effect, RemoteStorageError> {
        match event {
            MetadataEvent::AddSegment(metadata) => self.check_add_segment(metadata),
            MetadataEvent::UpdateSegment(update) => self.check_update_segment(update),
            MetadataEvent::PartitionDelete(delete) => self.check_partition_delete(delete),
        }
    }
}
