//! Bounds one attempt of one store request.
//!
//! The limit is on silence, not on length: a request whose body moves is never cut, however long
//! it takes. The layer runs the attempt inside an [`Activity`]; whatever moves bytes of a body
//! marks it. Without a mark the limit is on the answer. Waiting below this layer (for the
//! service to be ready, for a permit) is silence too.
//!
//! It goes inside the retry, which repeats an attempt that ran out of time, and outside the
//! permits. When time runs out, and when the caller drops the call, the attempt is dropped; a
//! write may then have taken effect or not.

use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tower::{Layer, Service};

use crate::error::RemoteStorageError;
use crate::ops::{Activity, OpFuture, OpService, StorageOp, call_when_ready};

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
    type Future = OpFuture<Op>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, op: Op) -> Self::Future {
        let limit = self.limit;
        let activity = Activity::start();
        let began = activity.last();
        let attempt = activity.in_scope(|| call_when_ready(&mut self.inner, op.clone()));
        let attempt = activity.scope(attempt);
        Box::pin(async move {
            let mut attempt = pin!(attempt);
            // Often the answer is at hand, and no timer is needed.
            if let Poll::Ready(result) = futures::poll!(attempt.as_mut()) {
                return result;
            }
            loop {
                let left = limit.saturating_sub(activity.last().elapsed());
                match timeout(left, attempt.as_mut()).await {
                    Ok(result) => return result,
                    // Bytes moved since the clock was set.
                    Err(_) if activity.last().elapsed() < limit => {}
                    Err(_) => return Err(timed_out(&op, began)),
                }
            }
        })
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
