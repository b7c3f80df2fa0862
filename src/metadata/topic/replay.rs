//! Applying the events of a log to a cache, each once.

use super::event::MetadataEvent;
use crate::error::RemoteStorageError;
use crate::metadata::{Effect, RemoteLogMetadataCache};

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
        if self.applied_offset.is_some_and(|applied| offset <= applied) {
            return Ok(());
        }
        self.applied_offset = Some(offset);
        match event {
            MetadataEvent::AddSegment(metadata) => self.replay_add_segment(metadata),
            MetadataEvent::UpdateSegment(update) => self.update_segment(update),
            MetadataEvent::PartitionDelete(delete) => self.replay_partition_delete(delete),
        }
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
