//! Answers indexes from a [`RemoteIndexCache`], so that a read needs one request and not two.
//!
//! The layer stands outside the fetcher, and inside trace and metrics and a refusal of reads. It is
//! always ready, and readies the clone of the service below that it does call. What is loaded is
//! checked first, as Kafka does: an index that is corrupt is fetched once more, and an error if it
//! still is. A transaction index that is not there is remembered too: [`FetchIndex`] answers
//! [`SegmentNotFound`](RemoteStorageError::SegmentNotFound) as ever, [`OpenIndex`] an empty index.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tower::{Layer, Service, ServiceExt as _};

use crate::error::RemoteStorageError;
use crate::index::{OffsetIndex, TimeIndex, TxnIndex};
use crate::index_cache::{IndexHandle, RemoteIndexCache};
use crate::layout::{partition_dir_name, segment_file_name};
use crate::model::IndexType;
use crate::ops::{DeleteSegment, FetchIndex, OpFuture, OpService, OpenIndex};

/// A [`Layer`] that wraps services in [`IndexCache`].
#[derive(Clone, Debug)]
pub struct IndexCacheLayer {
    cache: RemoteIndexCache,
}

impl IndexCacheLayer {
    /// Answers from this cache. All services that the layer makes share it.
    pub fn new(cache: RemoteIndexCache) -> Self {
        Self { cache }
    }
}

impl<S> Layer<S> for IndexCacheLayer {
    type Service = IndexCache<S>;

    fn layer(&self, inner: S) -> Self::Service {
        IndexCache {
            inner,
            cache: self.cache.clone(),
        }
    }
}

/// A service that answers [`FetchIndex`] and [`OpenIndex`] from a cache, and what is not in it from
/// `S`. Before a [`DeleteSegment`] goes on to `S`, the cache forgets the segment.
#[derive(Clone, Debug)]
pub struct IndexCache<S> {
    inner: S,
    cache: RemoteIndexCache,
}

impl<S: OpService<FetchIndex>> Service<FetchIndex> for IndexCache<S> {
    type Response = Bytes;
    type Error = RemoteStorageError;
    type Future = OpFuture<FetchIndex>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, op: FetchIndex) -> Self::Future {
        let Self { inner, cache } = self.clone();
        Box::pin(async move {
            let (metadata, index) = (Arc::clone(&op.metadata), op.index);
            let fetch = move || fetch_checked(inner.clone(), op.clone());
            let (bytes, _) = cache.whole(&metadata, index, fetch).await?;
            bytes.ok_or_else(|| {
                RemoteStorageError::SegmentNotFound(metadata.remote_log_segment_id().clone())
            })
        })
    }
}

impl<S: OpService<FetchIndex>> Service<OpenIndex> for IndexCache<S> {
    type Response = IndexHandle;
    type Error = RemoteStorageError;
    type Future = OpFuture<OpenIndex>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, OpenIndex { metadata, index }: OpenIndex) -> Self::Future {
        if let Some(found) = self.cache.open_in_memory(&metadata, index) {
            return Box::pin(std::future::ready(Ok(found)));
        }
        let Self { inner, cache } = self.clone();
        Box::pin(async move {
            let op = FetchIndex::new(Arc::clone(&metadata), index);
            let fetch = move || fetch_checked(inner.clone(), op.clone());
            cache.open(&metadata, index, fetch).await
        })
    }
}

impl<S: OpService<DeleteSegment>> Service<DeleteSegment> for IndexCache<S> {
    type Response = ();
    type Error = RemoteStorageError;
    type Future = OpFuture<DeleteSegment>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, op: DeleteSegment) -> Self::Future {
        let cache = self.cache.clone();
        let segment = op.metadata.remote_log_segment_id().id;
        let call = self.inner.call(op);
        Box::pin(async move {
            cache.remove_segment(segment).await;
            call.await
        })
    }
}

/// Fetches an index, and once more if it is corrupt: a second answer may be a good one.
async fn fetch_checked<S: OpService<FetchIndex>>(
    service: S,
    op: FetchIndex,
) -> Result<Bytes, RemoteStorageError> {
    let bytes = service.clone().oneshot(op.clone()).await?;
    let Err(error) = check(&op, &bytes) else {
        return Ok(bytes);
    };
    tracing::warn!(%error, "an index from the store is corrupt and will be fetched once more");
    let bytes = service.oneshot(op.clone()).await?;
    check(&op, &bytes)?;
    Ok(bytes)
}

/// Kafka's sanity checks, and what searches trust beyond them.
fn check(op: &FetchIndex, bytes: &[u8]) -> Result<(), RemoteStorageError> {
    let base_offset = op.metadata.start_offset();
    let checked = match op.index {
        IndexType::Offset => OffsetIndex::new(base_offset, bytes).sanity_check(),
        IndexType::Timestamp => TimeIndex::new(base_offset, bytes).sanity_check(),
        IndexType::Transaction => TxnIndex::new(base_offset, bytes).sanity_check(),
        IndexType::ProducerSnapshot | IndexType::LeaderEpoch => Ok(()),
    };
    checked.map_err(|error| RemoteStorageError::Corrupt {
        key: format!(
            "{}/{}",
            partition_dir_name(&op.metadata),
            segment_file_name(&op.metadata, op.index.suffix())
        ),
        reason: std::error::Error::source(&error)
            .map_or_else(|| error.to_string(), ToString::to_string),
    })
}
