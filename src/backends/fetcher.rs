//! Fetches a range of a segment's log, or one of its indexes whole: one GET each.

use std::future::ready;
use std::task::{Context, Poll};

use bytes::Bytes;
use tower::Service;

use super::StoreRequests;
use crate::error::RemoteStorageError;
use crate::layout::{KeyPrefix, segment_key};
use crate::model::LOG_FILE_SUFFIX;
use crate::ops::{ByteRange, FetchIndex, FetchSegment, Fetched, Get, Head, OpFuture, StoreTarget};

/// HTTP's "range not satisfiable": the range begins at or beyond the object's end.
const RANGE_NOT_SATISFIABLE: u16 = 416;

/// Answers [`FetchSegment`] and [`FetchIndex`] from a store. Always ready.
///
/// Dropping a call drops its request; nothing is left behind.
#[derive(Clone, Debug)]
pub struct Fetcher {
    store: StoreRequests,
    prefix: KeyPrefix,
}

impl Fetcher {
    /// A fetcher for the segments whose keys begin with `prefix`.
    pub fn new(store: StoreRequests, prefix: KeyPrefix) -> Self {
        Self { store, prefix }
    }

    /// The request for these bytes.
    fn get(&self, op: FetchSegment) -> Result<Get, RemoteStorageError> {
        let start = u64::from(op.start_position);
        let range = match op.end_position {
            Some(end) if end < op.start_position => {
                return Err(RemoteStorageError::InvalidArgument(format!(
                    "end position {end} is below start position {start}"
                )));
            }
            // The end is inclusive, and may be the largest u32.
            Some(end) => ByteRange::Bounded(start..u64::from(end) + 1),
            None if start == 0 => ByteRange::Whole,
            None => ByteRange::From(start),
        };
        let key = segment_key(&self.prefix, &op.metadata, LOG_FILE_SUFFIX)?;
        let target = StoreTarget::of_segment(key, op.metadata);
        Ok(Get { target, range })
    }

    async fn fetch_index(self, op: FetchIndex) -> Result<Bytes, RemoteStorageError> {
        let key = segment_key(&self.prefix, &op.metadata, op.index.suffix())?;
        let get = Get {
            target: StoreTarget::of_segment(key, op.metadata),
            range: ByteRange::Whole,
        };
        self.store.send(get).await.map(|fetched| fetched.bytes)
    }
}

impl Service<FetchSegment> for Fetcher {
    type Response = Bytes;
    type Error = RemoteStorageError;
    type Future = OpFuture<FetchSegment>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, op: FetchSegment) -> Self::Future {
        let start = u64::from(op.start_position);
        let get = match self.get(op) {
            Ok(get) => get,
            Err(error) => return Box::pin(ready(Err(error))),
        };
        let target = get.target.clone();
        // Called here, not in the block: it begins when this call does.
        let mut store = self.store.clone();
        let answer = store.call(get);
        Box::pin(async move {
            match answer.await {
                Ok(Fetched { bytes, .. }) => Ok(bytes),
                Err(error) if error.status() == Some(RANGE_NOT_SATISFIABLE) => {
                    // Boxed, as it is rare: its future would make every fetch's larger.
                    Box::pin(explain(store, target, start, error)).await
                }
                Err(error) => Err(error),
            }
        })
    }
}

impl Service<FetchIndex> for Fetcher {
    type Response = Bytes;
    type Error = RemoteStorageError;
    type Future = OpFuture<FetchIndex>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, op: FetchIndex) -> Self::Future {
        Box::pin(self.clone().fetch_index(op))
    }
}

/// Stores disagree about a range that begins at the end: one HEAD tells what it was.
async fn explain(
    store: StoreRequests,
    target: StoreTarget,
    start: u64,
    error: RemoteStorageError,
) -> Result<Bytes, RemoteStorageError> {
    let Some(meta) = store
        .send(Head {
            target: target.clone(),
        })
        .await?
    else {
        return Err(match target.segment {
            Some(segment) => {
                RemoteStorageError::SegmentNotFound(segment.remote_log_segment_id().clone())
            }
            None => error,
        });
    };
    match start.cmp(&meta.size) {
        std::cmp::Ordering::Equal => Ok(Bytes::new()),
        std::cmp::Ordering::Greater => Err(RemoteStorageError::InvalidArgument(format!(
            "start position {start} is beyond the {} bytes of `{}`",
            meta.size, target.key
        ))),
        std::cmp::Ordering::Less => Err(error),
    }
}
