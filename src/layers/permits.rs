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

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::future::BoxFuture;
use metrics::Gauge;
use pin_project_lite::pin_project;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tower::{Layer, Service};

use super::metrics::{Direction, permit_wait, requests_in_flight};
use crate::error::RemoteStorageError;
use crate::ops::{OpService, ReadyCall, StorageOp, call_when_ready};

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

impl Pools {
    fn of(&self, direction: Direction) -> &Semaphore {
        match direction {
            Direction::Read => &self.reads,
            Direction::Write => &self.writes,
        }
    }
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
            shared: Arc::new(Shared {
                inner,
                pools: Arc::clone(&self.pools),
            }),
        }
    }
}

/// A service that calls `S` when it has a permit.
///
/// It is always ready: the wait is part of the call. So a caller that is ready and never calls
/// takes no permit from others.
#[derive(Debug)]
pub struct Permits<S> {
    /// One reference, as a retry and each call take their own.
    shared: Arc<Shared<S>>,
}

#[derive(Debug)]
struct Shared<S> {
    inner: S,
    pools: Arc<Pools>,
}

impl<S> Clone for Permits<S> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<Op: StorageOp, S: OpService<Op>> Service<Op> for Permits<S> {
    type Response = Op::Output;
    type Error = RemoteStorageError;
    type Future = Permitted<S, Op>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, op: Op) -> Self::Future {
        Permitted {
            state: State::Begun {
                permits: Some(self.clone()),
                op: Some(op),
                wait: None,
            },
        }
    }
}

pin_project! {
    /// The response future of [`Permits`].
    pub struct Permitted<S: Service<Op>, Op> {
        #[pin]
        state: State<S, Op>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S: Service<Op>, Op> {
        // It has no permit yet. Then the wait has taken over `permits`, if there is one.
        Begun {
            permits: Option<Permits<S>>,
            op: Option<Op>,
            wait: Option<BoxFuture<'static, Held<S>>>,
        },
        // The request is over before its permit is free: fields are dropped in this order.
        Running {
            #[pin]
            call: ReadyCall<S, Op>,
            held: Held<S>,
        },
        Ended,
    }
}

impl<S: OpService<Op>, Op: StorageOp> Future for Permitted<S, Op> {
    type Output = Result<Op::Output, RemoteStorageError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let direction = Direction::of(Op::KIND);
        let mut state = self.project().state;
        loop {
            match state.as_mut().project() {
                StateProj::Begun { permits, op, wait } => {
                    let held = if let Some(wait) = wait {
                        ready!(wait.as_mut().poll(cx))
                    } else if let Some(permits) = permits.take() {
                        match Held::at_once(direction, permits) {
                            Ok(held) => held,
                            Err(permits) => {
                                *wait = Some(Box::pin(waited(direction, permits)));
                                continue;
                            }
                        }
                    } else {
                        unreachable!("a wait has taken it over")
                    };
                    let op = op.take().expect("it goes with the permit");
                    let call = call_when_ready(&mut held.inner(), op);
                    state.set(State::Running { call, held });
                }
                StateProj::Running { call, .. } => {
                    let result = ready!(call.poll(cx));
                    state.set(State::Ended);
                    return Poll::Ready(result);
                }
                StateProj::Ended => panic!("polled after it answered"),
            }
        }
    }
}

async fn waited<S>(direction: Direction, permits: Permits<S>) -> Held<S> {
    let waiting = Waiting::start(direction);
    let permit = permits.shared.pools.of(direction).acquire().await;
    permit.expect("the pools are never closed").forget();
    let permit = Permit { direction, permits };
    drop(waiting);
    Held::start(permit)
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

/// A permit that was taken and forgotten: one of the pool's own would borrow it.
struct Permit<S> {
    direction: Direction,
    permits: Permits<S>,
}

impl<S> Drop for Permit<S> {
    fn drop(&mut self) {
        self.permits.shared.pools.of(self.direction).add_permits(1);
    }
}

/// A request in flight, and its permit, which comes back though a metrics recorder panics.
struct Held<S> {
    in_flight: Gauge,
    permit: Permit<S>,
}

impl<S> Held<S> {
    /// A permit that is free goes to nobody who waits, so taking it is fair.
    fn at_once(direction: Direction, permits: Permits<S>) -> Result<Self, Permits<S>> {
        let pool = permits.shared.pools.of(direction);
        if pool.try_acquire().map(SemaphorePermit::forget).is_err() {
            return Err(permits);
        }
        let permit = Permit { direction, permits };
        permit_wait(direction).record(Duration::ZERO);
        Ok(Self::start(permit))
    }

    fn start(permit: Permit<S>) -> Self {
        let in_flight = requests_in_flight(permit.direction);
        in_flight.increment(1.0);
        Self { in_flight, permit }
    }

    fn inner(&self) -> S
    where
        S: Clone,
    {
        self.permit.permits.shared.inner.clone()
    }
}

impl<S> Drop for Held<S> {
    fn drop(&mut self) {
        self.in_flight.decrement(1.0);
    }
}

#[cfg(test)]
mod tests;
