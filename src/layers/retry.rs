//! Repeats a store request that failed for a passing reason.
//!
//! The error decides: [`RemoteStorageError::is_retryable`]. In addition a read whose answer was
//! [`Corrupt`](RemoteStorageError::Corrupt) is repeated once. Pauses double from 100 ms to at
//! most 10 s, and each is cut to a random share of itself (full jitter), so that clients which
//! failed together don't come back together. Two bounds hold, whichever is met first: the number
//! of repeats, and a total time, beyond which no new attempt starts. The caller gets the error
//! of the last attempt.
//!
//! It goes outermost on the floor of store requests: inside it are the limit and the permit of
//! each attempt, and neither is held during a pause. The store client's own retry is off, so the
//! two don't multiply. A dropped call ends where it is, be it an attempt or a pause.
//!
//! Attempts are numbered by [`StorageOp::next_attempt`], counted in
//! `krabka_remote_storage_request_attempts`, and each repeat is one debug event.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use backoff::SystemClock;
use backoff::backoff::Backoff as _;
use backoff::exponential::{ExponentialBackoff, ExponentialBackoffBuilder};
use tokio::time::{Instant, Sleep, sleep};
use tower::retry::Policy;

use super::metrics::request_attempts;
use super::outcome::Outcome;
use crate::error::RemoteStorageError;
use crate::ops::{StorageOp, beginning};

/// A [`Layer`](tower::Layer) that wraps services in [`Retry`].
pub type RetryLayer = tower::retry::RetryLayer<RetryPolicy>;

/// A service that repeats what failed in `S`, by a [`RetryPolicy`].
pub type Retry<S> = tower::retry::Retry<RetryPolicy, S>;

/// The pause before the first repeat, before the jitter.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause, before the jitter.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// When to repeat a request, and after which pause.
#[derive(Clone)]
pub struct RetryPolicy {
    max_retries: usize,
    retry_timeout: Duration,
    /// `None` for a random one.
    jitter: Option<Arc<dyn Fn() -> f64 + Send + Sync>>,

    // One call's state. `Retry` clones its policy into each call's future, and only that clone
    // ever learns of a failure.
    began: Instant,
    failures: usize,
    was_corrupt: bool,
    // Only its intervals are used: its own clock starts when it is built. Made at the first
    // failure, as nearly every call has none and carries this with it.
    pauses: Option<Box<ExponentialBackoff<SystemClock>>>,
}

impl RetryPolicy {
    /// Repeats a request at most `max_retries` times, so 0 means one attempt; no attempt starts
    /// later than `retry_timeout` after the first.
    ///
    /// Stores are configured with 10 repeats and 180 s by default.
    pub fn new(max_retries: usize, retry_timeout: Duration) -> Self {
        Self {
            max_retries,
            retry_timeout,
            jitter: None,
            began: Instant::now(),
            failures: 0,
            was_corrupt: false,
            pauses: None,
        }
    }

    /// Takes the share of each pause, from 0 to 1, from this source instead of a random one.
    #[must_use]
    pub fn jitter(mut self, source: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        self.jitter = Some(Arc::new(source));
        self
    }

    fn share(&self) -> f64 {
        match &self.jitter {
            Some(jitter) => jitter(),
            None => rand::random(),
        }
    }

    /// How long to pause before the request that failed like this is repeated, if it is.
    fn pause_after<Op: StorageOp>(&mut self, error: &RemoteStorageError) -> Option<Duration> {
        let corrupt_read =
            matches!(error, RemoteStorageError::Corrupt { .. }) && !Op::KIND.is_write();
        let repeat = error.is_retryable() || (corrupt_read && !self.was_corrupt);
        if !repeat || self.failures >= self.max_retries {
            return None;
        }
        let share = self.share().clamp(0.0, 1.0);
        let pauses = self
            .pauses
            .get_or_insert_with(|| Box::new(doubling_pauses()));
        let pause = pauses.next_backoff()?.mul_f64(share);
        if self.began.elapsed() + pause > self.retry_timeout {
            return None;
        }
        self.was_corrupt |= corrupt_read;
        Some(pause)
    }
}

/// Pauses that double from the first to the longest, without an end of their own.
fn doubling_pauses() -> ExponentialBackoff<SystemClock> {
    ExponentialBackoffBuilder::new()
        .with_initial_interval(FIRST_PAUSE)
        .with_max_interval(MAX_PAUSE)
        .with_multiplier(2.0)
        .with_randomization_factor(0.0)
        .with_max_elapsed_time(None)
        .build()
}

impl fmt::Debug for RetryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryPolicy")
            .field("max_retries", &self.max_retries)
            .field("retry_timeout", &self.retry_timeout)
            .finish_non_exhaustive()
    }
}

impl<Op: StorageOp> Policy<Op, Op::Output, RemoteStorageError> for RetryPolicy {
    type Future = Sleep;

    fn retry(
        &mut self,
        request: &mut Op,
        result: &mut Result<Op::Output, RemoteStorageError>,
    ) -> Option<Sleep> {
        if let Err(error) = result
            && let Some(pause) = self.pause_after::<Op>(error)
        {
            self.failures += 1;
            request.next_attempt();
            tracing::debug!(
                request = Op::KIND.as_str(),
                key = request.key(),
                part = request.part(),
                attempt = request.attempt(),
                ?pause,
                error_kind = error.kind().as_str(),
                %error,
                "a store request failed and will be repeated",
            );
            return Some(sleep(pause));
        }
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 attempts")]
        request_attempts::<Op>(Outcome::of(result)).record((self.failures + 1) as f64);
        None
    }

    fn clone_request(&mut self, request: &Op) -> Option<Op> {
        // Asked before every attempt; the first one starts the clock.
        if self.failures == 0 {
            self.began = beginning();
        }
        Some(request.clone())
    }
}

#[cfg(test)]
mod tests;
