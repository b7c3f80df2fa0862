//! Bounds one attempt of one store request.
//!
//! The limit is on silence, not on length: a request whose body moves is never cut, however long
//! it takes. The layer runs the attempt inside an [`Activity`](crate::ops::Activity); whatever
//! moves bytes of a body marks it. Without a mark the limit is on the answer. Waiting below this
//! layer (for the service to be ready, for a permit) is silence too.
//!
//! It goes inside the retry, which repeats an attempt that ran out of time, and outside the
//! permits. When time runs out, and when the caller drops the call, the attempt is dropped; a
//! write may then have taken effect or not.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep, sleep};
use tower::{Layer, Service};

use crate::error::RemoteStorageError;
use crate::ops::{AttemptActivity, OpService, ReadyCall, StorageOp, call_when_ready};

/// A [`Layer`] that wraps services in [`Timeout`].
#[derive(Clone, Copy, Debug)]
pub struct TimeoutLayer {
    limit: Duration,
}

impl TimeoutLayer {
    /// Ends an attempt after this much silence. Stores are configured with 30 s by default.
    pub fn new(limit: Duration) -> Self {
        Self { limit }
    }
}

impl<S> Layer<S> for TimeoutLayer {
    type Service = Timeout<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Timeout {
            inner,
            limit: self.limit,
        }
    }
}

/// A service that answers [`TimedOut`](RemoteStorageError::TimedOut) when `S` is silent for too
/// long.
///
/// It is always ready: the wait for `S` to be ready is part of the attempt that it bounds.
#[derive(Clone, Debug)]
pub struct Timeout<S> {
    inner: S,
    limit: Duration,
}

impl<Op: StorageOp, S: OpService<Op>> Service<Op> for Timeout<S> {
    type Response = Op::Output;
    type Error = RemoteStorageError;
    type Future = Attempt<S, Op>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, op: Op) -> Self::Future {
        let mut activity = AttemptActivity::start();
        Attempt {
            call: Some(activity.in_scope(|| call_when_ready(&mut self.inner, op.clone()))),
            op,
            limit: self.limit,
            activity,
            silence: None,
        }
    }
}

pin_project! {
    /// The response future of [`Timeout`].
    pub struct Attempt<S: Service<Op>, Op> {
        // `None` when its time has run out.
        #[pin]
        call: Option<ReadyCall<S, Op>>,
        op: Op,
        limit: Duration,
        activity: AttemptActivity,
        // The timer, from the first wait on: often the answer is at hand, and none is needed.
        silence: Option<Pin<Box<Sleep>>>,
    }
}

impl<S: OpService<Op>, Op: StorageOp> Future for Attempt<S, Op> {
    type Output = Result<Op::Output, RemoteStorageError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(call) = this.call.as_mut().as_pin_mut() else {
            panic!("polled after it answered");
        };
        if let Poll::Ready(result) = this.activity.in_scope(|| call.poll(cx)) {
            return Poll::Ready(result);
        }
        loop {
            let left = || this.limit.saturating_sub(this.activity.last().elapsed());
            let silence = this.silence.get_or_insert_with(|| Box::pin(sleep(left())));
            // Asked whatever the task's budget: an attempt that always uses it up has a limit too.
            ready!(pin!(unconstrained(silence.as_mut())).poll(cx));
            if left().is_zero() {
                this.call.set(None);
                return Poll::Ready(Err(timed_out(this.op, this.activity.began())));
            }
            // Bytes moved since the timer was set.
            *this.silence = None;
        }
    }
}

fn timed_out<Op: StorageOp>(op: &Op, began: Instant) -> RemoteStorageError {
    let after = Duration::from_millis(began.elapsed().as_millis().try_into().unwrap_or(u64::MAX));
    RemoteStorageError::TimedOut {
        operation: Op::KIND,
        phase: None,
        key: op.key().to_owned(),
        part: op.part(),
        after,
    }
}

#[cfg(test)]
mod tests;
