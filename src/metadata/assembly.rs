//! A cache made at once from rows, as a dump or a snapshot has them.
//!
//! Events come one by one and find a cache in order; rows come all together, so what is ordered is
//! ordered once. The usual rows tell all by themselves: where the finished segments of an epoch do
//! not overlap, each of them answers, in whatever order they finished.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::cache::{EpochState, RemoteLogMetadataCache};
use super::dump::EpochDump;
use super::slots::{Slot, SlotId, Slots};
use crate::model::{
    LeaderEpoch, RemoteLogSegmentState, RemotePartitionDeleteState, TopicIdPartition,
};

/// The rows of one partition, of which a cache is made.
#[derive(Debug)]
pub(super) struct Assembly {
    topic_id_partition: TopicIdPartition,
    slots: Slots,
}

impl Assembly {
    /// No rows yet. `rows` says how many there are to be, and is believed.
    pub(super) fn new(topic_id_partition: TopicIdPartition, rows: usize) -> Self {
        let mut slots = Slots::default();
        slots.reserve(rows);
        Self {
            topic_id_partition,
            slots,
        }
    }

    pub(super) fn topic_id_partition(&self) -> &TopicIdPartition {
        &self.topic_id_partition
    }

    /// Takes a row in, without a check of its history. Of several rows of one id the one with the
    /// most advanced state counts, whatever their order.
    pub(super) fn row(&mut self, row: Slot) {
        if let Some((known, row)) = self.slots.insert_unless_known(row)
            && rank(&self.slots[known]) < rank(&row)
        {
            self.slots[known] = row;
        }
    }

    /// The cache with these rows. `epochs` says which of them answer; without any it is worked out
    /// as if the segments had finished in the order of event timestamp, start offset and id.
    pub(super) fn finish(
        self,
        delete_state: Option<RemotePartitionDeleteState>,
        epochs: &[EpochDump],
        applied_offset: Option<i64>,
    ) -> RemoteLogMetadataCache {
        let mut cache = RemoteLogMetadataCache::new(self.topic_id_partition);
        cache.delete_state = delete_state;
        cache.applied_offset = applied_offset;
        if cache.is_deleted() {
            return cache;
        }
        cache.slots = self.slots;
        let deleted = cache
            .slots
            .entries()
            .filter(|(_, slot)| slot.state == RemoteLogSegmentState::DeleteSegmentFinished);
        let deleted: Vec<_> = deleted.map(|(slot_id, _)| slot_id).collect();
        for slot_id in deleted {
            cache.slots.remove(slot_id);
        }
        let mut members = members(&cache.slots);
        if epochs.is_empty() {
            for (epoch, members) in members {
                let state = members.answer_by_themselves(&cache.slots);
                cache.epochs.insert(epoch, state);
            }
        } else {
            for dump in epochs {
                let members = members.entry(dump.leader_epoch).or_default();
                members.choose(dump, &cache.slots);
            }
            for (epoch, members) in members {
                cache.epochs.insert(epoch, members.answer_as_chosen());
            }
        }
        cache
    }
}

/// The segments of one epoch, before it is known which of them answer.
#[derive(Debug, Default)]
struct Members {
    /// Those that can answer, by start offset.
    finished: Vec<Finished>,
    others: Vec<SlotId>,
    size_in_bytes: i64,
    /// What dumps chose of the finished ones, in the order of the dumps.
    chosen: Vec<Finished>,
    highest: Option<i64>,
}

/// The part of a finished segment that belongs to the epoch, inclusive at both ends.
#[derive(Clone, Copy, Debug)]
struct Finished {
    start: i64,
    end: i64,
    slot_id: SlotId,
}

fn members(slots: &Slots) -> BTreeMap<LeaderEpoch, Members> {
    let mut epochs: BTreeMap<LeaderEpoch, Members> = BTreeMap::new();
    for (slot_id, slot) in slots.entries() {
        let is_finished = slot.state == RemoteLogSegmentState::CopySegmentFinished;
        for span in slot.epochs() {
            let members = epochs.entry(span.epoch).or_default();
            members.size_in_bytes += i64::from(slot.segment_size_in_bytes);
            match span.end {
                Some(end) if is_finished => members.finished.push(Finished {
                    start: span.start,
                    end,
                    slot_id,
                }),
                // Without an end nothing of the epoch is in the segment.
                _ => members.others.push(slot_id),
            }
        }
    }
    for members in epochs.values_mut() {
        members.finished.sort_by_key(|span| span.start);
    }
    epochs
}

impl Members {
    /// Works out which of the finished segments answer.
    fn answer_by_themselves(mut self, slots: &Slots) -> EpochState {
        let spans = &self.finished;
        let is_apart = spans.windows(2).all(|pair| pair[0].end < pair[1].start)
            && spans.iter().all(|span| span.start <= span.end);
        if is_apart {
            self.highest = self.finished.last().map(|span| span.end);
            self.chosen = std::mem::take(&mut self.finished);
            return self.answer_as_chosen();
        }
        let mut state = EpochState {
            size_in_bytes: self.size_in_bytes,
            ..EpochState::default()
        };
        let finished = self.finished.iter().map(|span| span.slot_id);
        state.unreferenced = self.others.into_iter().chain(finished).collect();
        self.finished
            .sort_by_key(|span| rank_in_history(&slots[span.slot_id]));
        for span in self.finished {
            state.make_readable(span.start, span.end, span.slot_id);
        }
        state
    }

    /// Chooses the segments that the dump says answer. What does not fit is left out.
    fn choose(&mut self, dump: &EpochDump, slots: &Slots) {
        self.highest = self.highest.max(dump.highest_offset);
        let mut next = 0;
        for &(start, id) in &dump.readable {
            // Nearly always the one after the last.
            if self
                .finished
                .get(next)
                .is_none_or(|span| span.start != start)
            {
                next = self.finished.partition_point(|span| span.start < start);
            }
            let candidates = self.finished[next..].iter();
            let mut candidates = candidates.take_while(|span| span.start == start);
            if let Some(span) = candidates.find(|span| slots[span.slot_id].id == id) {
                self.chosen.push(*span);
                // What is readable was readable, whatever the dump says.
                self.highest = self.highest.max(Some(span.end));
                next += 1;
            }
        }
    }

    fn answer_as_chosen(self) -> EpochState {
        let mut readable = self.chosen;
        // Of several with one start the last one counts.
        readable.sort_by_key(|span| span.start);
        readable.dedup_by(|next, kept| {
            let is_same = next.start == kept.start;
            if is_same {
                *kept = *next;
            }
            is_same
        });
        let mut unreferenced = self.others;
        let mut answering = readable.iter().peekable();
        for span in &self.finished {
            while answering
                .next_if(|chosen| chosen.start < span.start)
                .is_some()
            {}
            let answers = answering
                .peek()
                .is_some_and(|chosen| chosen.slot_id == span.slot_id);
            if !answers {
                unreferenced.push(span.slot_id);
            }
        }
        EpochState {
            readable: readable
                .into_iter()
                .map(|span| (span.start, span.slot_id))
                .collect(),
            unreferenced: unreferenced.into_iter().collect(),
            highest: self.highest,
            size_in_bytes: self.size_in_bytes,
        }
    }
}

/// Which of two rows of one segment counts: the higher one. Rows of the same state are told apart
/// by all the rest, so that the order of rows has no influence.
fn rank(row: &Slot) -> impl Ord + '_ {
    let epochs: Vec<_> = row.epochs().map(|span| (span.epoch, span.start)).collect();
    (
        row.state,
        row.event_timestamp_ms,
        row.broker_id,
        row.start_offset,
        row.end_offset,
        row.max_timestamp_ms,
        row.segment_size_in_bytes,
        row.custom_metadata.as_deref(),
        row.txn_index_empty,
        epochs,
    )
}

fn rank_in_history(row: &Slot) -> (i64, i64, Uuid) {
    (row.event_timestamp_ms, row.start_offset, row.id)
}
