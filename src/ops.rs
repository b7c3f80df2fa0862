//! Requests to the remote tier, and the types of their answers, on two floors.
//!
//! *Segment operations* ([`CopySegment`], [`FetchSegment`], [`FetchIndex`], [`OpenIndex`],
//! [`DeleteSegment`]) are
//! what callers use. *Store requests* ([`Get`], [`Put`], [`PutPart`], …) are single requests to a
//! store; retry, timeout and permits wrap these, so a failed part is repeated and never a whole
//! copy, and nothing above has to know which store is below.
//!
//! Each request is a type, answered by a typed [`Service`]. Layers are written once for every
//! [`StorageOp`], or only for the one that they concern.

mod activity;
mod begin;
mod request;
mod segment;
mod sharded;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tower::Service;

pub use activity::Activity;
pub(crate) use activity::AttemptActivity;
pub(crate) use begin::{ReadyCall, begin_together, beginning, call_when_ready};
pub(crate) use request::every_store_request;
pub use request::{
    AbortUpload, ByteRange, CompleteUpload, Create, Delete, Fetched, Get, Head, List, ListUploads,
    Listing, OpenUpload, PartTag, Put, PutPart, ReadRetention, RetentionPolicy, StartUpload,
    StoreTarget, UploadId, WriteMode, Written,
};
pub use segment::{CopySegment, DeleteSegment, FetchIndex, FetchSegment, OpenIndex};
pub(crate) use sharded::Sharded;

use crate::error::RemoteStorageError;
use crate::model::{CopyProgress, OpKind, RemoteLogSegmentMetadata};

/// A request to the remote tier, and the type of its answer.
///
/// A request names bytes (paths, ranges, shared buffers) and never holds a stream, so a clone is
/// cheap and can always be replayed. Repeating a request has no further effect.
pub trait StorageOp: Clone + Send + Sync + 'static {
    /// What a successful call returns.
    type Output: Send + 'static;

    /// Name of the operation in spans, metrics and errors.
    const KIND: OpKind;

    /// The segment concerned, where there is one.
    fn segment(&self) -> Option<&Arc<RemoteLogSegmentMetadata>>;

    /// The object concerned; empty for an operation on a whole segment.
    fn key(&self) -> &str {
        Default::default()
    }

    /// The part of an upload, counted from 1.
    fn part(&self) -> Option<u32> {
        None
    }

    /// Which attempt this is, counted from 1.
    fn attempt(&self) -> u32 {
        1
    }

    /// Makes this the request of the next attempt.
    fn next_attempt(&mut self) {}

    /// How far the operation has come, for operations that tell.
    fn progress(&self) -> Option<&CopyProgress> {
        None
    }

    /// Bytes of object content in the request itself.
    fn bytes_carried(&self) -> u64 {
        0
    }

    /// Bytes of object content in the answer, or moved by the operation that it ends.
    fn bytes_answered(_output: &Self::Output) -> u64 {
        0
    }
}

/// A service that answers `Op`: the one bound that layers and backends write.
pub trait OpService<Op: StorageOp>:
    Service<
        Op,
        Response = Op::Output,
        Error = RemoteStorageError,
        Future: Future<Output = Result<Op::Output, RemoteStorageError>> + Send + 'static,
    > + Clone
    + Send
    + Sync
    + 'static
{
}

impl<Op, S> OpService<Op> for S
where
    Op: StorageOp,
    S: Service<Op, Response = Op::Output, Error = RemoteStorageError>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
{
}

/// The response future of a service that awaits work of its own.
pub type OpFuture<Op> = BoxFuture<'static, Result<<Op as StorageOp>::Output, RemoteStorageError>>;

/// One operation's finished stack, with its type erased.
///
/// A clone is one reference. It is always ready: the wait for the service in it is part of a call.
pub struct OpStack<Op: StorageOp> {
    call: Arc<dyn Fn(Op) -> OpFuture<Op> + Send + Sync>,
}

impl<Op: StorageOp> OpStack<Op> {
    /// Erases the type of this service.
    pub fn new<S: OpService<Op>>(service: S) -> Self {
        // A service is called by one caller at a time, and its clones count in what they share. So
        // threads keep instances of their own, and don't wait for each other's memory.
        let instances = Sharded::<Mutex<Option<S>>>::default();
        let call = move |op| -> OpFuture<Op> {
            // The instance of a thread is in use where a call makes another of the same stack.
            let mut own = instances.own().try_lock();
            let kept = own.as_mut().and_then(|own| own.take());
            let mut instance = kept.unwrap_or_else(|| service.clone());
            let call = call_when_ready(&mut instance, op);
            if let Some(own) = &mut own {
                **own = Some(instance);
            }
            Box::pin(call)
        };
        Self {
            call: Arc::new(call),
        }
    }

    /// Makes a call.
    pub(crate) fn run(&self, op: Op) -> OpFuture<Op> {
        (self.call)(op)
    }
}

impl<Op: StorageOp> Clone for OpStack<Op> {
    fn clone(&self) -> Self {
        Self {
            call: Arc::clone(&self.call),
        }
    }
}

impl<Op: StorageOp> fmt::Debug for OpStack<Op> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpStack").field(&Op::KIND).finish()
    }
}

impl<Op: StorageOp> Service<Op> for OpStack<Op> {
    type Response = Op::Output;
    type Error = RemoteStorageError;
    type Future = OpFuture<Op>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, op: Op) -> Self::Future {
        self.run(op)
    }
}
