//! Measures every call on both floors, through the `metrics` facade.
//!
//! Around a segment operation [`MetricsLayer`] measures what the caller waited for, and goes
//! directly inside the trace. Around a store request it measures one attempt, and goes inside the
//! retry and outside the timeout. A call that is dropped before it answers is recorded with the
//! outcome `cancelled`, so samples equal calls.
//!
//! # Every metric
//!
//! | Name | Kind | Labels | Unit | Meaning |
//! |---|---|---|---|---|
//! | `krabka_remote_storage_operation_duration_seconds` | histogram | `operation`, `outcome` | seconds | How long segment operations took, as their callers saw it |
//! | `krabka_remote_storage_in_flight` | gauge | `operation` | count | Segment operations that have begun and not ended |
//! | `krabka_remote_storage_bytes_total` | counter | `operation`, `direction` | bytes | Object content that successful segment operations moved |
//! | `krabka_remote_storage_oldest_copy_age_seconds` | gauge | | seconds | For how long the oldest copy in flight has run; 0 when there is none |
//! | `krabka_remote_storage_refused_total` | counter | `operation` | count | Segment operations that the configuration forbids (write-once, write-only) |
//! | `krabka_remote_storage_requests_total` | counter | `request`, `outcome` | count | Requests to the store, each attempt counted |
//! | `krabka_remote_storage_request_duration_seconds` | histogram | `request`, `outcome` | seconds | How long single attempts took, the wait for a permit included |
//! | `krabka_remote_storage_request_attempts` | histogram | `request`, `outcome` | count | Attempts that a store request took until it was answered for good; not recorded for a request whose caller gave up |
//! | `krabka_remote_storage_permit_wait_seconds` | histogram | `direction` | seconds | How long attempts waited for a permit, also those that gave up waiting |
//! | `krabka_remote_storage_requests_in_flight` | gauge | `direction` | count | Store requests that hold a permit |
//! | `krabka_remote_storage_index_cache_hits_total` | counter | `index` | count | Indexes that were asked for and needed no load of their own |
//! | `krabka_remote_storage_index_cache_misses_total` | counter | `index` | count | Loads of indexes that were begun |
//! | `krabka_remote_storage_index_cache_evictions_total` | counter | `index` | count | Cached indexes that made room for others, or that nobody asked for any more |
//! | `krabka_remote_storage_index_cache_disk_errors_total` | counter | | count | Indexes that could not be written to the cache's directory, or not be read back |
//! | `krabka_remote_storage_index_cache_entries` | gauge | | count | Indexes in the cache; of a process with several caches, in the one that changed last |
//! | `krabka_remote_storage_index_cache_bytes` | gauge | | bytes | Size of the indexes in the cache, likewise |
//! | `worm_manifests_sealed_total` | counter | | count | Manifests of a write-once archive that were stored |
//! | `worm_manifest_seal_failures_total` | counter | | count | Sealed copies that failed at the archive's own part: a check before the first object, the signature, or the manifest (also where its outcome is unknown) |
//!
//! | Label | Values |
//! |---|---|
//! | `operation` | `copy_segment`, `fetch_segment`, `fetch_index`, `delete_segment` |
//! | `request` | `get`, `head`, `put`, `create`, `start_upload`, `put_part`, `complete_upload`, `abort_upload`, `delete`, `list`, `read_retention` |
//! | `outcome` | `ok`, `cancelled`, or the failure's [`ErrorKind`](crate::ErrorKind): `io`, `not_found`, `invalid`, `conflict`, `refused`, `unavailable`, `rejected`, `timed_out`, `outcome_unknown`, `corrupt`, `not_ready`, `closed` |
//! | `direction` | `read`, `write` |
//! | `index` | `offset`, `timestamp`, `transaction` |
//!
//! What a topic-backed metadata manager measures is a table in
//! [`metadata::topic`](crate::metadata::topic#metrics); [`describe_metrics`] describes it, too.
//!
//! # The age of the oldest copy
//!
//! A gauge is pushed, and an age grows by itself. No background task pushes it: it is set
//! whenever a copy begins or ends, and whenever [`CopiesInFlight::refresh`] is called. An exporter
//! calls that before it reads the recorder; without it the gauge shows the age as of the last
//! copy that began or ended.

mod keys;

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use metrics::{Gauge, IntoF64};
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower::{Layer, Service};

pub use keys::describe_metrics;
pub(in crate::layers) use keys::{
    Direction, manifest_seal_failures, manifests_sealed, permit_wait, refused, request_attempts,
    requests_in_flight,
};

use super::outcome::Outcome;
use crate::error::RemoteStorageError;
use crate::model::OpKind;
use crate::ops::{OpService, StorageOp, beginning};

/// A [`Layer`] that wraps services in [`Metrics`].
#[derive(Clone, Debug, Default)]
pub struct MetricsLayer {
    /// `None` for those of the process: most calls are no copies, and a retry clones its service
    /// for each of them.
    copies: Option<CopiesInFlight>,
}

impl MetricsLayer {
    /// Measures calls, and counts copies among all those of this process.
    pub fn new() -> Self {
        Self::default()
    }

    /// Measures calls, and counts copies among these.
    pub fn with_copies(copies: CopiesInFlight) -> Self {
        Self {
            copies: Some(copies),
        }
    }
}

impl<S> Layer<S> for MetricsLayer {
    type Service = Metrics<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Metrics {
            inner,
            copies: self.copies.clone(),
        }
    }
}

/// A service that measures the calls it passes to `S`.
#[derive(Clone, Debug)]
pub struct Metrics<S> {
    inner: S,
    copies: Option<CopiesInFlight>,
}

impl<Op: StorageOp, S: OpService<Op>> Service<Op> for Metrics<S> {
    type Response = Op::Output;
    type Error = RemoteStorageError;
    type Future = Measured<S::Future, Op>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, op: Op) -> Self::Future {
        let sample = Sample::start(self.copies.as_ref());
        Measured {
            call: self.inner.call(op),
            sample: Some(sample),
        }
    }
}

pin_project! {
    /// The response future of [`Metrics`].
    pub struct Measured<F, Op: StorageOp> {
        #[pin]
        call: F,
        // Dropped after the call, and so measures its way out too.
        sample: Option<Sample<Op>>,
    }
}

impl<Op, F> Future for Measured<F, Op>
where
    Op: StorageOp,
    F: Future<Output = Result<Op::Output, RemoteStorageError>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let result = ready!(this.call.poll(cx));
        if let Some(sample) = this.sample.take() {
            sample.end(&result);
        }
        Poll::Ready(result)
    }
}

/// The copies that have begun and not ended, of every handle that shares this value.
///
/// It keeps `krabka_remote_storage_oldest_copy_age_seconds`.
#[derive(Clone, Debug, Default)]
pub struct CopiesInFlight {
    state: Arc<Mutex<Beginnings>>,
}

/// When each copy began. Numbers are given in the order of beginning, so the first is the oldest.
#[derive(Debug, Default)]
struct Beginnings {
    next: u64,
    began: BTreeMap<u64, Instant>,
}

impl CopiesInFlight {
    /// Those of every handle in this process, which is what the one gauge is about.
    pub fn of_process() -> Self {
        static PROCESS: LazyLock<CopiesInFlight> = LazyLock::new(CopiesInFlight::default);
        PROCESS.clone()
    }

    /// For how long the oldest copy has run; `None` when there is none.
    pub fn oldest_age(&self) -> Option<Duration> {
        self.state.lock().oldest_age()
    }

    /// Sets the gauge to the age of the oldest copy as of now, and to 0 when there is none.
    pub fn refresh(&self) {
        self.state.lock().publish();
    }

    fn start(&self) -> CopyInFlight {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.began.insert(number, Instant::now());
        state.publish();
        CopyInFlight {
            number,
            copies: self.clone(),
        }
    }
}

impl Beginnings {
    fn oldest_age(&self) -> Option<Duration> {
        self.began
            .first_key_value()
            .map(|(_, began)| began.elapsed())
    }

    /// Called with the lock held, so that a stale age never overwrites a newer one.
    fn publish(&self) {
        let age = self.oldest_age().unwrap_or_default();
        keys::oldest_copy_age().set(age.as_secs_f64());
    }
}

/// A copy in flight.
struct CopyInFlight {
    number: u64,
    copies: CopiesInFlight,
}

impl Drop for CopyInFlight {
    fn drop(&mut self) {
        let mut state = self.copies.state.lock();
        state.began.remove(&self.number);
        state.publish();
    }
}

/// One call; it records itself whichever way it ends.
struct Sample<Op: StorageOp> {
    began: Instant,
    outcome: Outcome,
    bytes: u64,
    /// `None` for a store request, which is in flight when it has its permit.
    in_flight: Option<InFlight<Op>>,
    _copy: Option<CopyInFlight>,
}

impl<Op: StorageOp> Sample<Op> {
    fn start(copies: Option<&CopiesInFlight>) -> Self {
        let start_copy = || match copies {
            Some(copies) => copies.start(),
            None => CopiesInFlight::of_process().start(),
        };
        let is_operation = !Op::KIND.is_store_request();
        Self {
            began: beginning(),
            outcome: Outcome::Cancelled,
            bytes: 0,
            in_flight: is_operation.then(InFlight::start),
            _copy: (Op::KIND == OpKind::CopySegment).then(start_copy),
        }
    }

    fn end(mut self, result: &Result<Op::Output, RemoteStorageError>) {
        self.outcome = Outcome::of(result);
        if let Ok(output) = result {
            self.bytes = Op::bytes_answered(output);
        }
    }
}

impl<Op: StorageOp> Drop for Sample<Op> {
    fn drop(&mut self) {
        let took = Since(self.began);
        if self.in_flight.is_some() {
            keys::operation_duration::<Op>(self.outcome).record(took);
            if self.bytes > 0 {
                keys::bytes::<Op>().increment(self.bytes);
            }
        } else {
            keys::requests::<Op>(self.outcome).increment(1);
            keys::request_duration::<Op>(self.outcome).record(took);
        }
    }
}

/// The time since then, in seconds. The clock is read only when there is a recorder to tell.
struct Since(Instant);

impl IntoF64 for Since {
    fn into_f64(self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}

/// A segment operation in flight. It keeps its gauge, so that a recorder which is installed in
/// between does not see the end of what it did not see begin.
struct InFlight<Op> {
    gauge: Gauge,
    operation: PhantomData<fn() -> Op>,
}

impl<Op: StorageOp> InFlight<Op> {
    fn start() -> Self {
        let gauge = keys::in_flight::<Op>();
        gauge.increment(1.0);
        Self {
            gauge,
            operation: PhantomData,
        }
    }
}

impl<Op> Drop for InFlight<Op> {
    fn drop(&mut self) {
        self.gauge.decrement(1.0);
    }
}

#[cfg(test)]
mod tests;
