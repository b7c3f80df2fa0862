//! Which calls are in flight, and how a handle is closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::error::RemoteStorageError;
use crate::model::{CopyPhase, CopyProgress, OpKind, RemoteLogSegmentMetadata};
use crate::ops::{StorageOp, begin_together};

/// How long the aborts of calls that were cut off may take.
const ABORT_LIMIT: Duration = Duration::from_secs(10);

/// Into how many parts the list of calls in flight is cut.
const SHARDS: usize = 16;

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
    calls: [Mutex<Calls>; SHARDS],
    /// Calls, and the aborts and commits that outlive them.
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
        let _token = self.tasks.token();
        let shard = &self.calls[own_shard()];
        let entry = {
            // Under the lock, so that a call is either refused or seen by `close`.
            let mut calls = shard.lock();
            if self.tasks.is_closed() {
                return Err(RemoteStorageError::InvalidArgument(format!(
                    "{} was called on a storage handle that has been closed",
                    Op::KIND
                )));
            }
            Entry {
                shard,
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
        {
            let _calls = self.calls.each_ref().map(Mutex::lock);
            self.tasks.close();
        }
        if tokio::time::timeout(grace, self.tasks.wait()).await.is_ok() {
            return CloseReport::default();
        }
        let mut left = Vec::new();
        for shard in &self.calls {
            left.extend(shard.lock().places.iter().flatten().cloned());
        }
        // In the order in which they began.
        left.sort_by_key(|(began, _)| *began);
        self.cut.cancel();
        let ended = tokio::time::timeout(ABORT_LIMIT, self.tasks.wait()).await;
        CloseReport {
            cut_off: left.into_iter().map(|(_, call)| call).collect(),
            aborts_unfinished: ended.is_err(),
        }
    }
}

/// Calls in flight. A place is taken again once its call has ended, so that in the long run none of
/// them allocates.
#[derive(Debug, Default)]
struct Calls {
    places: Vec<Option<(Begun, CutOff)>>,
    free: Vec<usize>,
    next_number: u64,
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
}

/// Threads note their calls apart from each other, so that they don't wait for one lock.
fn own_shard() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SHARD: usize = THREADS.fetch_add(1, Ordering::Relaxed) % SHARDS;
    }
    SHARD.with(|shard| *shard)
}

/// Takes a call off the list, whichever way it ends.
struct Entry<'a> {
    shard: &'a Mutex<Calls>,
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
        // What it holds is dropped when the lock is free again.
        let _call = self.shard.lock().remove(self.place);
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
