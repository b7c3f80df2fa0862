//! Bounds a whole segment operation, waiting included.
//!
//! It is a hard bound: unlike the timeout of an attempt it does not ask whether bytes move, and
//! everything below it counts, pauses of a retry and the wait for a permit included. When time
//! runs out the operation is dropped, which gives up whatever it had begun, and the error says
//! where it was: phase, object and part, as its
//! [`CopyProgress`] told last.
//!
//! Of a copy whose manifest is being written the outcome is not decided by the time: it is answered
//! with [`OutcomeUnknown`](RemoteStorageError::OutcomeUnknown), and the commit goes on.
//!
//! It goes inside trace and metrics, which record the operation as `timed_out`, and outside
//! everything that works. The error is not retryable: a whole operation is never repeated here.

use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::timeout;
use tower::{Layer, Service, ServiceExt as _};

use crate::error::RemoteStorageError;
use crate::model::{CopyPhase, CopyProgress};
use crate::ops::{OpFuture, OpService, StorageOp};

/// A [`Layer`] that wraps services in [`Deadline`].
#[derive(Clone, Copy, Debug)]
pub struct DeadlineLayer {
    limit: Duration,
}

impl DeadlineLayer {
    /// Ends an operation that takes longer than this. A copy has 30 minutes by default.
    pub fn new(limit: Duration) -> Self {
        Self { limit }
    }
}

impl<S> Layer<S> for DeadlineLayer {
    type Service = Deadline<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Deadline {
            inner,
            limit: self.limit,
        }
    }
}

/// A service that answers [`TimedOut`](RemoteStorageError::TimedOut) when `S` takes too long.
///
/// It is always ready: the wait for `S` to be ready is part of the operation that it bounds.
#[derive(Clone, Debug)]
pub struct Deadline<S> {
    inner: S,
    limit: Duration,
}

impl<Op: StorageOp, S: OpService<Op>> Service<Op> for Deadline<S> {
    type Response = Op::Output;
    type Error = RemoteStorageError;
    type Future = OpFuture<Op>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, op: Op) -> Self::Future {
        let Self { inner, limit } = self.clone();
        Box::pin(async move {
            let mut operation = pin!(inner.oneshot(op.clone()));
            match timeout(limit, operation.as_mut()).await {
                Ok(result) => result,
                // Asked before the operation is dropped: its way out may change the progress.
                Err(_) => Err(timed_out(&op, limit)),
            }
        })
    }
}

fn timed_out<Op: StorageOp>(op: &Op, limit: Duration) -> RemoteStorageError {
    let progress = op.progress().map(CopyProgress::snapshot);
    let (phase, key, part) = match progress {
        // The commit of a sealed copy goes on by itself.
        Some(at) if at.phase == CopyPhase::Sealing => {
            return RemoteStorageError::OutcomeUnknown {
                operation: Op::KIND,
                key: at.key.as_ref().to_owned(),
            };
        }
        Some(at) => (Some(at.phase), at.key.as_ref().to_owned(), at.part),
        None => (None, op.key().to_owned(), op.part()),
    };
    RemoteStorageError::TimedOut {
        operation: Op::KIND,
        phase,
        key,
        part,
        after: limit,
    }
}

#[cfg(test)]
mod tests;
