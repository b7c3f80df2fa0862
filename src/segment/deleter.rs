//! Deletes the six objects of a segment, the `.log` first.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::join_all;
use tower::Service;

use crate::backends::StoreRequests;
use crate::error::RemoteStorageError;
use crate::layout::{KeyPrefix, SEGMENT_FILE_SUFFIXES, segment_key};
use crate::model::{LOG_FILE_SUFFIX, RemoteLogSegmentMetadata};
use crate::ops::{Delete, DeleteSegment, OpFuture, StoreTarget};

/// Answers [`DeleteSegment`] with six DELETEs, never a listing. Always ready.
///
/// The `.log` goes first: without it a segment is incomplete and is not read. All six are tried,
/// whatever becomes of the others, and the first error is returned; the call can be repeated.
/// Dropping a call leaves what was not deleted yet.
#[derive(Clone, Debug)]
pub(crate) struct Deleter {
    store: StoreRequests,
    prefix: KeyPrefix,
}

impl Deleter {
    /// A deleter for the segments whose keys begin with `prefix`.
    pub(crate) fn new(store: StoreRequests, prefix: KeyPrefix) -> Self {
        Self { store, prefix }
    }

    /// Deletes every object of this segment.
    pub(super) async fn delete(
        &self,
        metadata: &Arc<RemoteLogSegmentMetadata>,
    ) -> Result<(), RemoteStorageError> {
        let log = self.delete_object(metadata, LOG_FILE_SUFFIX).await;
        let indexes = SEGMENT_FILE_SUFFIXES
            .into_iter()
            .filter(|suffix| *suffix != LOG_FILE_SUFFIX)
            .map(|suffix| self.delete_object(metadata, suffix));
        let indexes = join_all(indexes).await;
        std::iter::once(log).chain(indexes).collect()
    }

    async fn delete_object(
        &self,
        metadata: &Arc<RemoteLogSegmentMetadata>,
        suffix: &str,
    ) -> Result<(), RemoteStorageError> {
        let key = segment_key(&self.prefix, metadata, suffix)?;
        let target = StoreTarget::of_segment(key, Arc::clone(metadata));
        self.store.send(Delete { target }).await
    }
}

impl Service<DeleteSegment> for Deleter {
    type Response = ();
    type Error = RemoteStorageError;
    type Future = OpFuture<DeleteSegment>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, op: DeleteSegment) -> Self::Future {
        let deleter = self.clone();
        Box::pin(async move { deleter.delete(&op.metadata).await })
    }
}
