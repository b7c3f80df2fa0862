//! Refuses operations that the configuration forbids, whatever their arguments.
//!
//! These are services, not layers: each takes the place of the one that would have done the work,
//! and holds no path to a store. A write-once archive has [`RefuseDeletes`] where the deleter
//! would be; a process that may only write has [`RefuseReads`] for both fetches.
//!
//! A refusal is told apart from a failure: it has a kind of its own
//! ([`ErrorKind::Refused`](crate::error::ErrorKind::Refused)), is never retryable, and is counted
//! in `krabka_remote_storage_refused_total`. A caller that keeps asking is a misconfiguration, so
//! it is logged as a warning, but at most once a minute for each of these services and its clones.

use std::fmt;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::Service;

use super::metrics::refused;
use crate::error::{RemoteStorageError, WormError};
use crate::index_cache::IndexHandle;
use crate::model::RemoteLogSegmentMetadata;
use crate::ops::OpenIndex;
use crate::ops::{DeleteSegment, FetchIndex, FetchSegment, StorageOp};

/// Time between two warnings.
const WARNING_INTERVAL: Duration = Duration::from_mins(1);

/// The answer of a refusal, which is there at once.
pub type Refusal<Op> = Ready<Result<<Op as StorageOp>::Output, RemoteStorageError>>;

/// A service that answers every delete with
/// [`DeleteRefused`](WormError::DeleteRefused).
#[derive(Clone)]
pub struct RefuseDeletes {
    log_key: Arc<dyn Fn(&RemoteLogSegmentMetadata) -> String + Send + Sync>,
    warnings: Warnings,
}

impl RefuseDeletes {
    /// Refuses deletes; `log_key` renders the key of a segment's `.log` for the message.
    pub fn new(
        log_key: impl Fn(&RemoteLogSegmentMetadata) -> String + Send + Sync + 'static,
    ) -> Self {
        Self {
            log_key: Arc::new(log_key),
            warnings: Warnings::default(),
        }
    }
}

impl fmt::Debug for RefuseDeletes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefuseDeletes").finish_non_exhaustive()
    }
}

impl Service<DeleteSegment> for RefuseDeletes {
    type Response = ();
    type Error = RemoteStorageError;
    type Future = Refusal<DeleteSegment>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, op: DeleteSegment) -> Self::Future {
        let key = (self.log_key)(&op.metadata);
        self.warnings.refuse(&op, WormError::DeleteRefused { key })
    }
}

/// A service that answers every fetch with [`ReadRefused`](WormError::ReadRefused).
#[derive(Clone, Debug, Default)]
pub struct RefuseReads {
    warnings: Warnings,
}

impl RefuseReads {
    /// Refuses fetches of log bytes and of indexes.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Service<FetchSegment> for RefuseReads {
    type Response = Bytes;
    type Error = RemoteStorageError;
    type Future = Refusal<FetchSegment>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, op: FetchSegment) -> Self::Future {
        self.warnings.refuse(&op, WormError::ReadRefused)
    }
}

impl Service<FetchIndex> for RefuseReads {
    type Response = Bytes;
    type Error = RemoteStorageError;
    type Future = Refusal<FetchIndex>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, op: FetchIndex) -> Self::Future {
        self.warnings.refuse(&op, WormError::ReadRefused)
    }
}

impl Service<OpenIndex> for RefuseReads {
    type Response = IndexHandle;
    type Error = RemoteStorageError;
    type Future = Refusal<OpenIndex>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, op: OpenIndex) -> Self::Future {
        self.warnings.refuse(&op, WormError::ReadRefused)
    }
}

/// The warnings of one refusing service and its clones.
#[derive(Clone, Debug, Default)]
struct Warnings {
    state: Arc<Mutex<LastWarning>>,
}

#[derive(Debug, Default)]
struct LastWarning {
    at: Option<Instant>,
    unlogged: u64,
}

impl Warnings {
    fn refuse<Op: StorageOp>(&self, op: &Op, error: WormError) -> Refusal<Op> {
        refused::<Op>().increment(1);
        if let Some(unlogged) = self.due() {
            let segment = op
                .segment()
                .map(|metadata| metadata.remote_log_segment_id());
            tracing::warn!(
                operation = Op::KIND.as_str(),
                segment = segment.map(tracing::field::display),
                unlogged,
                %error,
                "an operation was refused; more within a minute are counted and not logged",
            );
        }
        ready(Err(error.into()))
    }

    /// Whether to log this refusal, and how many were not logged since the last that was.
    fn due(&self) -> Option<u64> {
        let mut state = self.state.lock();
        let now = Instant::now();
        if state.at.is_some_and(|at| now < at + WARNING_INTERVAL) {
            state.unlogged += 1;
            return None;
        }
        state.at = Some(now);
        Some(std::mem::take(&mut state.unlogged))
    }
}

#[cfg(test)]
mod tests;
