//! Opens a span around every call on both floors.
//!
//! | Span | Level | Fields |
//! |---|---|---|
//! | `segment_operation` | info | `operation`, `topic`, `partition`, `segment` (Kafka's text of the id), `outcome` |
//! | `seal_manifest` | info | `key`, `epoch`, `seq`; opened by the [seal](super::seal) around the commit of a copy, which may outlive its operation |
//! | `store_request` | debug | `request`, `key`, `part`, `attempt`, `outcome` |
//!
//! Around a segment operation the layer goes outermost. Around a store request it goes directly
//! inside the retry, so each attempt has a span, a child of the operation's; a service that makes
//! requests in a task of its own has to carry the span there. `outcome` is recorded at the end
//! and has the same words as the metrics: `ok`, `cancelled` for a call that was dropped, or the
//! kind of the error. Errors themselves go to the caller and are not logged here.
//!
//! A span that nobody subscribes to costs nothing: its fields are not even looked at. No field
//! carries a secret: names, ids and keys only.

use std::task::{Context, Poll};

use futures::future::Either;
use tower::{Layer, Service};
use tracing::field::{self, Empty};
use tracing::{Instrument as _, Span, debug_span, info_span};

use super::outcome::Outcome;
use crate::error::RemoteStorageError;
use crate::model::kafka_text;
use crate::ops::{OpFuture, OpService, StorageOp};

/// A [`Layer`] that wraps services in [`Trace`].
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct TraceLayer;

impl<S> Layer<S> for TraceLayer {
    type Service = Trace<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Trace { inner }
    }
}

/// A service that runs each call of `S` in a span.
#[derive(Clone, Debug)]
pub struct Trace<S> {
    inner: S,
}

impl<Op: StorageOp, S: OpService<Op>> Service<Op> for Trace<S> {
    type Response = Op::Output;
    type Error = RemoteStorageError;
    type Future = Either<S::Future, OpFuture<Op>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, op: Op) -> Self::Future {
        let span = span_of(&op);
        // Called here, not in the block: this is the instance that was polled ready. In the span,
        // because a layer below may open its own already in `call`.
        let call = span.in_scope(|| self.inner.call(op));
        if span.is_disabled() {
            return Either::Left(call);
        }
        let running = Running {
            span: span.clone(),
            outcome: Outcome::Cancelled,
        };
        let call = call.instrument(span);
        Either::Right(Box::pin(async move {
            let result = call.await;
            running.end(Outcome::of(&result));
            result
        }))
    }
}

fn span_of<Op: StorageOp>(op: &Op) -> Span {
    if Op::KIND.is_store_request() {
        return debug_span!(
            "store_request",
            request = Op::KIND.as_str(),
            key = op.key(),
            part = op.part(),
            attempt = op.attempt(),
            outcome = Empty,
        );
    }
    let id = op
        .segment()
        .map(|metadata| metadata.remote_log_segment_id());
    let partition = id.map(|id| &id.topic_id_partition);
    info_span!(
        "segment_operation",
        operation = Op::KIND.as_str(),
        topic = partition.map(|partition| partition.topic.as_str()),
        partition = partition.map(|partition| partition.partition),
        segment = id.map(|id| field::display(kafka_text(&id.id))),
        outcome = Empty,
    )
}

/// A call that has begun; its span learns how it ended.
struct Running {
    span: Span,
    outcome: Outcome,
}

impl Running {
    fn end(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.span.record("outcome", self.outcome.as_str());
    }
}

#[cfg(test)]
mod tests;
