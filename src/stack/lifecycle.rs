//! Which calls are in flight, and how a handle is closed.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::error::RemoteStorageError;
use crate::model::{CopyPhase, CopyProgress, OpKind, RemoteLogSegmentMetadata};
use crate::ops::{Sharded, StorageOp, begin_together};

/// How long the aborts of calls that were cut off may take.
const ABORT_LIMIT: Duration = Duration::from_secs(10);

/// What [`close`](super::RemoteStorage::close) had to cut off.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CloseReport {
    /// The calls that had not ended when the grace period did, oldest first.
    pub cut_off: Vec<CutOff>,
    /// Whether requests that give uploads up, or commits of sealed copies, were still under way at
    /// the end. What they could not remove, `krabka-tier ls --incomplete` lists; what became of the
    /// commits, the archive's manifests show.
    pub aborts_unfinished: bool,
}

/// A call that was cut off.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CutOff {
    /// The operation.
    pub operation: OpKind,
    /// The segment that it was about.
    pub segment: Option<Arc<RemoteLogSegmentMetadata>>,
    /// Where it was, for a copy.
    pub progress: Option<CopyProgress>,
}

/// The calls of one storage handle and all its clones.
#[derive(Debug, Default)]
pub(super) struct Lifecycle {
    calls: Sharded<Mutex<Calls>>,
    /// Tells [`close`](Self::close) that a part of the list has become empty.
    emptied: Notify,
    /// The aborts and commits that outlive their calls.
    tasks: TaskTracker,
    cut: CancellationToken,
}

impl Lifecycle {
    /// Where tasks run that [`close`](Self::close) is to wait for.
    pub(super) fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Runs a call, unless the handle is closed.
    pub(super) async fn run<Op, F>(&self, op: Op, call: impl FnOnce(Op) -> F) -> F::Output
    where
        Op: StorageOp,
        F: Future<Output = Result<Op::Output, RemoteStorageError>>,
    {
        let began = Instant::now();
        let call_of = CutOff {
            operation: Op::KIND,
            segment: op.segment().cloned(),
            progress: op.progress().cloned(),
        };
        let shard = self.calls.own();
        let entry = {
            // Under the lock, so that a call is either refused or seen by `close`.
            let mut calls = shard.lock();
            if calls.closed {
                return Err(RemoteStorageError::Closed {
                    operation: Op::KIND,
                });
            }
            Entry {
                shard,
                emptied: &self.emptied,
                place: calls.insert(began, call_of),
            }
        };
        tokio::select! {
            biased;
            result = begin_together(began, || call(op)) => result,
            () = self.cut.cancelled() => Err(cut_off(&entry.call(), began.elapsed())),
        }
    }

    /// Refuses new calls, waits up to `grace` for those in flight, and cuts off the rest.
    pub(super) async fn close(&self, grace: Duration) -> CloseReport {
        for shard in self.calls.iter() {
            shard.lock().closed = true;
        }
        self.tasks.close();
        if tokio::time::timeout(grace, self.all_ended()).await.is_ok() {
            return CloseReport::default();
        }
        let mut left = Vec::new();
        for shard in self.calls.iter() {
            left.extend(shard.lock().places.iter().flatten().cloned());
        }
        // In the order in which they began.
        left.sort_by_key(|(began, _)| *began);
        self.cut.cancel();
        let ended = tokio::time::timeout(ABORT_LIMIT, self.all_ended()).await;
        CloseReport {
            cut_off: left.into_iter().map(|(_, call)| call).collect(),
            aborts_unfinished: ended.is_err(),
        }
    }

    /// Waits for the calls, none of which may begin any more, and then for what they left running.
    async fn all_ended(&self) {
        for shard in self.calls.iter() {
            loop {
                let mut emptied = pin!(self.emptied.notified());
                emptied.as_mut().enable();
                if shard.lock().is_empty() {
                    break;
                }
                emptied.await;
            }
        }
        self.tasks.wait().await;
    }
}

/// Part of the calls in flight. A place is taken again once its call has ended, so that in the long
/// run none of them allocates.
#[derive(Debug, Default)]
struct Calls {
    places: Vec<Option<(Begun, CutOff)>>,
    free: Vec<usize>,
    next_number: u64,
    /// No further call is let in.
    closed: bool,
}

/// When a call began, and which of its part of the list it is.
type Begun = (Instant, u64);

impl Calls {
    fn insert(&mut self, began: Instant, call: CutOff) -> usize {
        let place = self.free.pop().unwrap_or(self.places.len());
        if place == self.places.len() {
            self.places.push(None);
        }
        self.places[place] = Some(((began, self.next_number), call));
        self.next_number += 1;
        place
    }

    fn remove(&mut self, place: usize) -> Option<(Begun, CutOff)> {
        self.free.push(place);
        self.places[place].take()
    }

    fn is_empty(&self) -> bool {
        self.free.len() == self.places.len()
    }
}

/// Takes a call off the list, whichever way it ends.
struct Entry<'a> {
    shard: &'a Mutex<Calls>,
    emptied: &'a Notify,
    place: usize,
}

impl Entry<'_> {
    fn call(&self) -> CutOff {
        let calls = self.shard.lock();
        let call = calls.places[self.place].as_ref();
        let (_, call) = call.expect("an entry keeps its place");
        call.clone()
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let mut calls = self.shard.lock();
        // What it holds is dropped when the lock is free again.
        let _call = calls.remove(self.place);
        let awaited = calls.closed && calls.is_empty();
        drop(calls);
        if awaited {
            self.emptied.notify_waiters();
        }
    }
}

fn cut_off(call: &CutOff, after: Duration) -> RemoteStorageError {
    let snapshot = call.progress.as_ref().map(CopyProgress::snapshot);
    if let Some(copy) = &snapshot
        && copy.phase == CopyPhase::Sealing
    {
        // Its commit goes on by itself, as far as the runtime lets it.
        return RemoteStorageError::OutcomeUnknown {
            operation: call.operation,
            key: copy.key.to_string(),
        };
    }
    let (phase, key, part) = snapshot.map_or_else(
        || (None, String::new(), None),
        |copy| (Some(copy.phase), copy.key.to_string(), copy.part),
    );
    RemoteStorageError::TimedOut {
        operation: call.operation,
        phase,
        key,
        part,
        after,
    }
}
