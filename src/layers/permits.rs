//! Bounds the store requests in flight, reads and writes apart.
//!
//! The permits belong to the layer: every service that one [`PermitsLayer`] makes draws on the
//! same two pools, so the bound holds over all calls of a handle, and uploads cannot starve
//! consumers. A write is a request whose [`OpKind`](crate::model::OpKind) says so.
//!
//! It goes directly around the store: inside the retry, so a request that waits out its backoff
//! holds no permit, and inside the timeout, so that waiting for one is part of the attempt. A
//! permit is held until the answer is there or the call is dropped.
//!
//! Permits are given in the order in which they were asked for, so nothing starves: the request
//! that gives an upload up waits behind the writes that were there before it, not behind those
//! that came later. And nothing can wait in a circle: what holds a permit is one request, which
//! waits for the store and for nothing else. A copy that waits for its parts holds none.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use metrics::Gauge;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tower::{Layer, Service, ServiceExt as _};

use super::metrics::{Direction, permit_wait, requests_in_flight};
use crate::error::RemoteStorageError;
use crate::ops::{OpFuture, OpService, StorageOp};

/// A [`Layer`] that wraps services in [`Permits`], all of them sharing its two pools.
#[derive(Clone, Debug)]
pub struct PermitsLayer {
    pools: Arc<Pools>,
}

#[derive(Debug)]
struct Pools {
    reads: Semaphore,
    writes: Semaphore,
}

impl PermitsLayer {
    /// Lets this many requests run at once. Zero would let none run, ever, and counts as one.
    ///
    /// Stores are configured with 64 reads and 16 writes by default.
    pub fn new(max_reads: usize, max_writes: usize) -> Self {
        let pool = |size: usize| Semaphore::new(size.clamp(1, Semaphore::MAX_PERMITS));
        let pools = Pools {
            reads: pool(max_reads),
            writes: pool(max_writes),
        };
        Self {
            pools: Arc::new(pools),
        }
    }
}

impl<S> Layer<S> for PermitsLayer {
    type Service = Permits<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Permits {
            inner,
            pools: Arc::clone(&self.pools),
        }
    }
}

/// A service that calls `S` when it has a permit.
///
/// It is always ready: the wait is part of the call. So a caller that is ready and never calls
/// takes no permit from others.
#[derive(Clone, Debug)]
pub struct Permits<S> {
    inner: S,
    pools: Arc<Pools>,
}

impl<Op: StorageOp, S: OpService<Op>> Service<Op> for Permits<S> {
    type Response = Op::Output;
    type Error = RemoteStorageError;
    type Future = OpFuture<Op>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, op: Op) -> Self::Future {
        let direction = Direction::of(Op::KIND);
        let Self { inner, pools } = self.clone();
        Box::pin(async move {
            let pool = match direction {
                Direction::Read => &pools.reads,
                Direction::Write => &pools.writes,
            };
            // A permit that is free goes to nobody who waits, so taking it is fair. The wait is
            // boxed: few requests have one, and all would carry its place.
            let permit = match pool.try_acquire() {
                Ok(permit) => {
                    permit_wait(direction).record(Duration::ZERO);
                    permit
                }
                Err(_) => Box::pin(waited(direction, pool)).await,
            };
            let _held = Held::start(direction, permit);
            inner.oneshot(op).await
        })
    }
}

async fn waited(direction: Direction, pool: &Semaphore) -> SemaphorePermit<'_> {
    let _waiting = Waiting::start(direction);
    let permit = pool.acquire().await;
    permit.expect("the pools are never closed")
}

/// A wait for a permit; recorded when it ends, also when the caller gave up.
struct Waiting {
    direction: Direction,
    began: Instant,
}

impl Waiting {
    fn start(direction: Direction) -> Self {
        Self {
            direction,
            began: Instant::now(),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        permit_wait(self.direction).record(self.began.elapsed());
    }
}

/// A request in flight.
struct Held<'a> {
    in_flight: Gauge,
    _permit: SemaphorePermit<'a>,
}

impl<'a> Held<'a> {
    fn start(direction: Direction, permit: SemaphorePermit<'a>) -> Self {
        let in_flight = requests_in_flight(direction);
        in_flight.increment(1.0);
        Self {
            in_flight,
            _permit: permit,
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.in_flight.decrement(1.0);
    }
}

#[cfg(test)]
mod tests;
