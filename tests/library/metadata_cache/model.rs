//! The cache's rules once more, slow and plain: a list of segments, a list of places, and scans.

use std::collections::BTreeMap;

use krabka_remote_storage::{
    LeaderEpoch, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState,
    RemotePartitionDeleteState,
};
use uuid::Uuid;

use RemoteLogSegmentState::{
    CopySegmentFinished, CopySegmentStarted, DeleteSegmentFinished, DeleteSegmentStarted,
};

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    InvalidAdd,
    NotFound,
    InvalidTransition,
    InvalidDelete,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    segments: Vec<RemoteLogSegmentMetadata>,
    /// Which segment answers in an epoch from an offset on.
    places: Vec<(LeaderEpoch, i64, Uuid)>,
    highest: BTreeMap<LeaderEpoch, i64>,
    deletion: Option<RemotePartitionDeleteState>,
}

fn id(segment: &RemoteLogSegmentMetadata) -> Uuid {
    segment.remote_log_segment_id().id
}

/// The last offset of this epoch in the segment, if there is an offset before the next epoch.
fn epoch_end(segment: &RemoteLogSegmentMetadata, epoch: LeaderEpoch) -> Option<i64> {
    let mut later = segment
        .segment_leader_epochs()
        .iter()
        .filter(|(e, _)| **e > epoch);
    match later.next() {
        Some((_, &i64::MIN)) => None,
        Some((_, next)) => Some(next - 1),
        None => Some(segment.end_offset()),
    }
}

impl Model {
    pub(crate) fn add(&mut self, new: &RemoteLogSegmentMetadata, replay: bool) -> Outcome {
        if new.state() != CopySegmentStarted || self.is_deleted() {
            return Outcome::InvalidAdd;
        }
        if let Some(at) = self.position(id(new)) {
            let known = &self.segments[at];
            if known.state() != CopySegmentStarted || (!replay && known != new) {
                return Outcome::InvalidAdd;
            }
            self.segments.remove(at);
        }
        self.segments.push(new.clone());
        Outcome::Done
    }

    pub(crate) fn update(&mut self, update: &RemoteLogSegmentMetadataUpdate) -> Outcome {
        let id = update.remote_log_segment_id.id;
        let Some(at) = self.position(id) else {
            return match update.state {
                DeleteSegmentFinished => Outcome::Done,
                _ => Outcome::NotFound,
            };
        };
        let segment = self.segments[at].clone();
        if segment.state() == update.state {
            let exact = segment.event_timestamp_ms() == update.event_timestamp_ms
                && segment.broker_id() == update.broker_id
                && (update.custom_metadata.is_none()
                    || update.custom_metadata.as_ref() == segment.custom_metadata());
            if exact {
                return Outcome::Done;
            }
            if update.state != DeleteSegmentStarted {
                return Outcome::InvalidTransition;
            }
        }
        let Ok(updated) = segment.with_update(update) else {
            return Outcome::InvalidTransition;
        };
        match update.state {
            CopySegmentStarted => unreachable!("no other state leads here"),
            CopySegmentFinished => self.finish(&updated),
            DeleteSegmentStarted => self.places.retain(|(_, _, holder)| *holder != id),
            DeleteSegmentFinished => {}
        }
        self.segments[at] = updated;
        if update.state == DeleteSegmentFinished {
            self.segments.remove(at);
        }
        Outcome::Done
    }

    fn finish(&mut self, segment: &RemoteLogSegmentMetadata) {
        for (&epoch, &start) in segment.segment_leader_epochs() {
            let Some(end) = epoch_end(segment, epoch) else {
                continue;
            };
            let reaches_as_far = self
                .highest
                .get(&epoch)
                .is_none_or(|highest| *highest <= end);
            self.places.retain(|&(e, place, _)| {
                e != epoch || place < start || (place > start && !reaches_as_far)
            });
            self.places.push((epoch, start, id(segment)));
            let highest = self.highest.entry(epoch).or_insert(end);
            *highest = end.max(*highest);
        }
    }

    pub(crate) fn delete(&mut self, to: RemotePartitionDeleteState, replay: bool) -> Outcome {
        let legal = RemotePartitionDeleteState::is_valid_transition(self.deletion, to);
        if !legal && !replay {
            return Outcome::InvalidDelete;
        }
        self.deletion = self.deletion.max(Some(to));
        if self.is_deleted() {
            *self = Self {
                deletion: self.deletion,
                ..Self::default()
            };
        }
        Outcome::Done
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.deletion == Some(RemotePartitionDeleteState::DeletePartitionFinished)
    }

    pub(crate) fn deletion(&self) -> Option<RemotePartitionDeleteState> {
        self.deletion
    }

    pub(crate) fn find(
        &self,
        epoch: LeaderEpoch,
        offset: i64,
    ) -> Option<&RemoteLogSegmentMetadata> {
        let below = self
            .places
            .iter()
            .filter(|(e, start, _)| *e == epoch && *start <= offset);
        let (_, _, holder) = below.max_by_key(|(_, start, _)| *start)?;
        let segment = &self.segments[self.position(*holder).expect("places hold known segments")];
        let inside = offset >= segment.start_offset()
            && offset <= segment.end_offset()
            && epoch_end(segment, epoch).is_some_and(|end| offset <= end);
        inside.then_some(segment)
    }

    pub(crate) fn find_with_txn_index(
        &self,
        epoch: LeaderEpoch,
        offset: i64,
    ) -> Option<&RemoteLogSegmentMetadata> {
        let segment = self.find(epoch, offset)?;
        if !segment.txn_index_empty() {
            return Some(segment);
        }
        if segment.end_offset() == i64::MAX {
            return None;
        }
        self.find_with_txn_index(epoch, segment.end_offset() + 1)
    }

    pub(crate) fn highest(&self, epoch: LeaderEpoch) -> Option<i64> {
        self.highest.get(&epoch).copied()
    }

    pub(crate) fn newest(&self) -> Option<&RemoteLogSegmentMetadata> {
        let (_, _, newest) = self
            .places
            .iter()
            .max_by_key(|(epoch, at, _)| (*epoch, *at))?;
        self.segments.iter().find(|segment| id(segment) == *newest)
    }

    pub(crate) fn list(&self) -> Vec<RemoteLogSegmentMetadata> {
        let mut segments = self.segments.clone();
        segments.sort_by_key(|segment| (segment.start_offset(), id(segment)));
        segments
    }

    pub(crate) fn list_by_epoch(&self, epoch: LeaderEpoch) -> Vec<RemoteLogSegmentMetadata> {
        let mut segments = self.list();
        segments.retain(|segment| segment.segment_leader_epochs().contains_key(&epoch));
        segments
    }

    fn position(&self, segment: Uuid) -> Option<usize> {
        self.segments.iter().position(|known| id(known) == segment)
    }
}
