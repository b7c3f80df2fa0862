//! One metadata partition as the manager knows it: its assignment, its caches, and who waits.
//!
//! Two locks, never held over an await. `state` is what reads need: the gate and the caches. It is
//! written when an assignment begins, becomes ready or ends, and shared otherwise. `writes` is what
//! the writers of events and the replay tell each other. Where both are held, `state` is first.
//!
//! The replay changes the caches before it moves the position. So whoever sees a position sees at
//! least the events below it, and a snapshot that reads the position first never skips one.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::event::MetadataEvent;
use super::log::{MetadataEventPage, MetadataEventRecord};
use super::partitioning::try_metadata_partition_for;
use super::readiness::MetadataPartitionReadiness;
use super::replay::Change;
use super::telemetry::{self, SkipReason};
use super::wire::PartitionFields;
use crate::error::RemoteStorageError;
use crate::metadata::{Effect, RemoteLogMetadataCache};
use crate::model::TopicIdPartition;

/// Caches by the partition that they are about.
pub(super) type Caches = HashMap<TopicIdPartition, Arc<RwLock<RemoteLogMetadataCache>>>;

/// How many publishes of unknown outcome a metadata partition remembers.
const MAX_UNKNOWN: usize = 256;

/// How many events are applied before the writers that wait for them are told.
const CHUNK: usize = 64;

/// What an event became whose publish ended without an answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EventOutcome {
    /// It is in the log and was applied.
    Applied {
        /// Its offset.
        offset: i64,
    },
    /// It is in the log, and the state machine refused it there: nothing has changed.
    Refused {
        /// Its offset.
        offset: i64,
        /// Why.
        error: RemoteStorageError,
    },
    /// It was not in the log up to this point. It may still come.
    NotSeen {
        /// Every event below this offset was looked at.
        next_offset: i64,
    },
}

#[derive(Debug)]
pub(super) struct MetadataPartition {
    number: i32,
    partition_count: i32,
    state: RwLock<Option<Assignment>>,
    writes: Mutex<Writes>,
    /// Publishes whose event the replay looks out for: while there are none, it has nobody to tell
    /// about single events.
    watched: AtomicUsize,
    /// Whether anything was applied since the last snapshot.
    dirty: AtomicBool,
}

#[derive(Debug)]
struct Assignment {
    /// Which of this manager's assignments of the partition this is.
    number: u64,
    /// The high-water mark at the assignment; `None` until it is known.
    target: Option<i64>,
    is_ready: bool,
    caches: Caches,
}

#[derive(Debug, Default)]
struct Writes {
    /// The running assignment's number; 0 when there is none.
    assignment: u64,
    /// The next offset to be applied.
    position: i64,
    next_id: u64,
    in_flight: HashMap<u64, Watched>,
    unknown: VecDeque<Watched>,
    /// Who waits for the event at which offset.
    waiting: BTreeMap<i64, oneshot::Sender<Result<(), RemoteStorageError>>>,
    /// Events that were refused while publishes were under way.
    refused: BTreeMap<i64, RemoteStorageError>,
}

/// An event that is being published, or was published without an answer.
#[derive(Debug)]
struct Watched {
    payload: Bytes,
    seen: Option<(i64, Result<(), RemoteStorageError>)>,
}

/// Whether a query is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    Unassigned,
    NotReady,
    Ready,
}

impl Assignment {
    fn gate(assignment: Option<&Self>) -> Gate {
        match assignment {
            None => Gate::Unassigned,
            Some(Self { is_ready: true, .. }) => Gate::Ready,
            Some(_) => Gate::NotReady,
        }
    }
}

impl MetadataPartition {
    pub(super) fn new(number: i32, partition_count: i32) -> Self {
        Self {
            number,
            partition_count,
            state: RwLock::default(),
            writes: Mutex::default(),
            watched: AtomicUsize::new(0),
            dirty: AtomicBool::new(false),
        }
    }

    fn not_ready(&self) -> RemoteStorageError {
        RemoteStorageError::NotReady {
            partition: self.number,
        }
    }

    /// Asks the cache of a partition; the default when nothing is known of it, or when this
    /// metadata partition is not assigned.
    pub(super) fn query<T: Default>(
        &self,
        tp: &TopicIdPartition,
        ask: impl FnOnce(&RemoteLogMetadataCache) -> T,
    ) -> Result<T, RemoteStorageError> {
        let state = self.state.read();
        match (Assignment::gate(state.as_ref()), &*state) {
            (Gate::Ready, Some(assignment)) => {
                let cache = assignment.caches.get(tp);
                Ok(cache.map(|cache| ask(&cache.read())).unwrap_or_default())
            }
            (Gate::NotReady, _) => Err(self.not_ready()),
            _ => Ok(T::default()),
        }
    }

    pub(super) fn gate(&self) -> Gate {
        Assignment::gate(self.state.read().as_ref())
    }

    pub(super) fn check_ready(&self) -> Result<(), RemoteStorageError> {
        match self.gate() {
            Gate::Ready => Ok(()),
            _ => Err(self.not_ready()),
        }
    }

    // ----- assignments: the actor's part -----

    /// Begins an assignment, whose gate is closed.
    pub(super) fn assign(&self, number: u64) {
        let mut state = self.state.write();
        *state = Some(Assignment {
            number,
            target: None,
            is_ready: false,
            caches: Caches::new(),
        });
        self.writes.lock().assignment = number;
    }

    /// Says where the replay of the assignment begins, and up to which mark it must come.
    pub(super) fn begin_replay(&self, caches: Caches, position: i64, target: i64) {
        let mut state = self.state.write();
        if let Some(assignment) = &mut *state {
            assignment.caches = caches;
            assignment.target = Some(target);
            self.writes.lock().position = position;
            assignment.is_ready = position >= target;
        }
    }

    /// Ends the assignment, and with it the waiting for its events.
    pub(super) fn unassign(&self) {
        let ended = self.state.write().take();
        let waiting = {
            let mut writes = self.writes.lock();
            writes.assignment = 0;
            writes.refused.clear();
            std::mem::take(&mut writes.waiting)
        };
        self.fail(waiting);
        // Not under a lock: a large cache takes a while to be freed.
        drop(ended);
    }

    /// Fails whoever waits for an event that nobody will apply any more.
    pub(super) fn fail_waiting(&self) {
        let waiting = std::mem::take(&mut self.writes.lock().waiting);
        self.fail(waiting);
    }

    fn fail(&self, waiting: BTreeMap<i64, oneshot::Sender<Result<(), RemoteStorageError>>>) {
        for (offset, waiter) in waiting {
            let _ = waiter.send(Err(self.unknown(Some(offset))));
        }
    }

    /// The caches, for a snapshot, and the position that they are at or beyond; `None` when the
    /// partition is not assigned or its replay has not begun.
    pub(super) fn capture(&self) -> Option<(i64, Vec<Arc<RwLock<RemoteLogMetadataCache>>>)> {
        let state = self.state.read();
        let assignment = state.as_ref().filter(|found| found.target.is_some())?;
        let position = self.writes.lock().position;
        Some((position, assignment.caches.values().cloned().collect()))
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::Acquire)
    }

    pub(super) fn set_dirty(&self, dirty: bool) {
        self.dirty.store(dirty, Ordering::Release);
    }

    pub(super) fn position(&self) -> i64 {
        self.writes.lock().position
    }

    pub(super) fn readiness(&self) -> Option<MetadataPartitionReadiness> {
        let state = self.state.read();
        let assignment = state.as_ref()?;
        let position = match assignment.target {
            Some(_) => self.writes.lock().position,
            None => 0,
        };
        Some(MetadataPartitionReadiness {
            partition: self.number,
            applied_offset: position - 1,
            target_offset: assignment.target,
            ready: assignment.is_ready,
        })
    }

    // ----- replay -----

    /// Applies a page, tells the writers that wait for its events, and answers whether the
    /// partition has become ready with it.
    pub(super) fn apply(&self, page: &MetadataEventPage) -> bool {
        let mut skipped = Skipped::default();
        let mut records = page.records.as_slice();
        loop {
            let (chunk, rest) = records.split_at(records.len().min(CHUNK));
            records = rest;
            let next = match rest.first() {
                Some(_) => chunk.last().map_or(0, |last| last.offset + 1),
                None => page.next_offset,
            };
            // Asked before an event is applied: one that is published later stands behind these.
            let is_watched = self.watched.load(Ordering::SeqCst) > 0;
            let mut told = Vec::new();
            self.apply_chunk(chunk, &mut skipped, |offset, payload, result| {
                if is_watched {
                    told.push((offset, payload.clone(), result));
                }
            });
            self.tell(next, told);
            if rest.is_empty() {
                break;
            }
        }
        skipped.report(self.number);
        if !page.records.is_empty() {
            self.set_dirty(true);
            let applied = page.records.len() as u64 - skipped.count();
            telemetry::applied(applied);
        }
        self.open_gate(page.next_offset)
    }

    fn apply_chunk(
        &self,
        chunk: &[MetadataEventRecord],
        skipped: &mut Skipped,
        mut tell: impl FnMut(i64, &Bytes, Result<(), RemoteStorageError>),
    ) {
        let position = self.position();
        let mut records = chunk.iter().filter(|record| record.offset >= position);
        let mut next = next_change(&mut records, skipped);
        let mut tp = TopicIdPartition::new(Uuid::nil(), "", 0);
        while let Some((mut record, fields, mut change)) = next.take() {
            fields.overwrite(&mut tp);
            if try_metadata_partition_for(&tp, self.partition_count) != Some(self.number) {
                let problem = format!("an event of {tp} belongs elsewhere");
                skipped.add(SkipReason::Misplaced, record.offset, &problem);
                next = next_change(&mut records, skipped);
                continue;
            }
            let Some(cache) = self.cache_of(&tp) else {
                // The assignment has ended: nobody reads what this page says.
                return;
            };
            // Kept for all events of this partition that follow each other.
            let mut cache = cache.write();
            loop {
                let result = cache.replay_change(record.offset, change);
                if let Err(error) = &result {
                    skipped.add(SkipReason::Refused, record.offset, error);
                }
                tell(record.offset, &record.payload, result);
                next = next_change(&mut records, skipped);
                match next.take_if(|(_, following, _)| *following == fields) {
                    Some((following, _, other)) => (record, change) = (following, other),
                    None => break,
                }
            }
        }
    }

    fn cache_of(&self, tp: &TopicIdPartition) -> Option<Arc<RwLock<RemoteLogMetadataCache>>> {
        if let Some(known) = self.state.read().as_ref()?.caches.get(tp) {
            return Some(Arc::clone(known));
        }
        let mut state = self.state.write();
        let cache = match state.as_mut()?.caches.entry(tp.clone()) {
            Entry::Occupied(known) => Arc::clone(known.get()),
            Entry::Vacant(new) => {
                let cache = RemoteLogMetadataCache::new(tp.clone());
                Arc::clone(new.insert(Arc::new(RwLock::new(cache))))
            }
        };
        Some(cache)
    }

    /// Moves the position, and answers the writers of the events below it.
    fn tell(&self, next: i64, told: Vec<(i64, Bytes, Result<(), RemoteStorageError>)>) {
        let mut writes = self.writes.lock();
        for (offset, payload, result) in told {
            if let Err(error) = &result {
                writes.refused.insert(offset, error.clone());
            }
            let Writes {
                in_flight, unknown, ..
            } = &mut *writes;
            let same =
                |watched: &&mut Watched| watched.seen.is_none() && watched.payload == payload;
            let first = unknown.iter_mut().chain(in_flight.values_mut()).find(same);
            if let Some(watched) = first {
                watched.seen = Some((offset, result));
            }
            self.count_watched(&writes);
        }
        writes.position = writes.position.max(next);
        while let Some(first) = writes.waiting.first_entry() {
            if *first.key() >= next {
                break;
            }
            let (offset, waiter) = first.remove_entry();
            let answer = writes.refused.remove(&offset).map_or(Ok(()), Err);
            let _ = waiter.send(answer);
        }
        if writes.in_flight.is_empty() {
            writes.refused.clear();
        }
    }

    fn open_gate(&self, position: i64) -> bool {
        let is_due = |assignment: &Assignment| {
            !assignment.is_ready && assignment.target.is_some_and(|target| position >= target)
        };
        if !self.state.read().as_ref().is_some_and(is_due) {
            return false;
        }
        let mut state = self.state.write();
        match &mut *state {
            Some(assignment) if is_due(assignment) => {
                assignment.is_ready = true;
                true
            }
            _ => false,
        }
    }

    // ----- writes -----

    fn unknown(&self, offset: Option<i64>) -> RemoteStorageError {
        RemoteStorageError::EventOutcomeUnknown {
            partition: self.number,
            offset,
            source: None,
        }
    }

    fn count_watched(&self, writes: &Writes) {
        let unseen = writes.unknown.iter().filter(|known| known.seen.is_none());
        let watched = writes.in_flight.len() + unseen.count();
        self.watched.store(watched, Ordering::SeqCst);
    }

    /// Lets an event through to be published; `None` when it repeats what is known already.
    pub(super) fn begin_write(
        self: &Arc<Self>,
        event: &MetadataEvent,
        payload: &Bytes,
    ) -> Result<Option<Publish>, RemoteStorageError> {
        let state = self.state.read();
        let assignment = state
            .as_ref()
            .filter(|assignment| assignment.is_ready)
            .ok_or_else(|| self.not_ready())?;
        let tp = event.topic_id_partition();
        let effect = match assignment.caches.get(tp) {
            Some(cache) => cache.read().check(event)?,
            None => RemoteLogMetadataCache::new(tp.clone()).check(event)?,
        };
        if effect == Effect::Repetition {
            return Ok(None);
        }
        let mut writes = self.writes.lock();
        writes.next_id += 1;
        let id = writes.next_id;
        let watched = Watched {
            payload: payload.clone(),
            seen: None,
        };
        writes.in_flight.insert(id, watched);
        self.count_watched(&writes);
        Ok(Some(Publish {
            partition: Arc::clone(self),
            assignment: assignment.number,
            id,
        }))
    }

    /// What became of the event with these bytes; `None` when its outcome was not left open.
    pub(super) fn outcome_of(&self, payload: &Bytes) -> Option<EventOutcome> {
        let writes = self.writes.lock();
        // The latest publish of the same bytes.
        let mut watched = writes.unknown.iter().rev();
        let found = watched.find(|watched| watched.payload == *payload)?;
        Some(match &found.seen {
            None => EventOutcome::NotSeen {
                next_offset: writes.position,
            },
            Some((offset, Ok(()))) => EventOutcome::Applied { offset: *offset },
            Some((offset, Err(error))) => EventOutcome::Refused {
                offset: *offset,
                error: error.clone(),
            },
        })
    }
}

/// A publish that is under way. Dropped before its outcome is known, it leaves the outcome to be
/// found out.
#[derive(Debug)]
pub(super) struct Publish {
    partition: Arc<MetadataPartition>,
    assignment: u64,
    id: u64,
}

impl Publish {
    /// The event at `offset` is in the log: answers as soon as it was applied.
    pub(super) fn acknowledged(&self, offset: i64) -> Acknowledged {
        let mut writes = self.partition.writes.lock();
        if writes.assignment != self.assignment {
            return Acknowledged::Done(Err(self.partition.unknown(Some(offset))));
        }
        if offset < writes.position {
            let answer = writes.refused.remove(&offset).map_or(Ok(()), Err);
            return Acknowledged::Done(answer);
        }
        let (waiter, answer) = oneshot::channel();
        writes.waiting.insert(offset, waiter);
        Acknowledged::Waiting(answer)
    }

    /// The outcome is known, so there is nothing to find out later.
    pub(super) fn settle(self) {
        let mut writes = self.partition.writes.lock();
        writes.in_flight.remove(&self.id);
        self.partition.count_watched(&writes);
    }
}

impl Drop for Publish {
    fn drop(&mut self) {
        let mut writes = self.partition.writes.lock();
        let Some(watched) = writes.in_flight.remove(&self.id) else {
            return;
        };
        writes.unknown.push_back(watched);
        if writes.unknown.len() > MAX_UNKNOWN {
            writes.unknown.pop_front();
        }
        self.partition.count_watched(&writes);
    }
}

/// An event that the log has acknowledged.
#[derive(Debug)]
pub(super) enum Acknowledged {
    Done(Result<(), RemoteStorageError>),
    Waiting(oneshot::Receiver<Result<(), RemoteStorageError>>),
}

/// Records of one page that changed nothing, for one line in the log.
#[derive(Debug, Default)]
struct Skipped {
    counts: [u64; SkipReason::ALL.len()],
    first: Option<(i64, String)>,
}

impl Skipped {
    fn add(&mut self, reason: SkipReason, offset: i64, problem: &impl ToString) {
        self.counts[reason as usize] += 1;
        if self.first.is_none() {
            self.first = Some((offset, problem.to_string()));
        }
    }

    fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    fn report(&self, partition: i32) {
        let Some((offset, problem)) = &self.first else {
            return;
        };
        tracing::warn!(
            partition,
            count = self.count(),
            first_offset = offset,
            first_problem = problem,
            "records of the metadata log were passed over"
        );
        for reason in SkipReason::ALL {
            telemetry::skipped(reason, self.counts[reason as usize]);
        }
    }
}

/// The next record with an event in it.
#[inline]
fn next_change<'a>(
    records: &mut impl Iterator<Item = &'a MetadataEventRecord>,
    skipped: &mut Skipped,
) -> Option<(&'a MetadataEventRecord, PartitionFields<'a>, Change<'a>)> {
    for record in records {
        if record.tombstone {
            skipped.add(SkipReason::Tombstone, record.offset, &"a null value");
            continue;
        }
        match Change::decode(&record.payload) {
            Ok((fields, change)) => return Some((record, fields, change)),
            Err(error) => skipped.add(SkipReason::Malformed, record.offset, &error),
        }
    }
    None
}
