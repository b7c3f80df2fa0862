//! What a store must be able to do, and the service that asks it.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use tower::Service;

use crate::error::RemoteStorageError;
use crate::model::RemoteLogSegmentMetadata;
use crate::ops::{
    AbortUpload, CompleteUpload, Create, Delete, Get, Head, List, ListUploads, OpFuture, Put,
    PutPart, ReadRetention, StartUpload, every_store_request,
};

/// One object store, as single requests see it.
///
/// Each method is one attempt: it neither repeats nor limits itself, which is the work of the
/// layers above. The contract that every implementation keeps, whatever the store does:
///
/// - `get` answers exactly the asked bytes, clamped at the object's end; a range that begins at or
///   beyond the end fails with status 416; any other difference between what was asked and what
///   came is [`Corrupt`](RemoteStorageError::Corrupt);
/// - `put`, `create` and `complete_upload` make an object visible whole or not at all, and durable
///   when they answer;
/// - `create` answers only when it knows what stands under the key;
/// - `delete` and `abort_upload` succeed when there is nothing (left) to remove.
///
/// Dropping a future leaves what the request has already done.
pub trait StoreClient: fmt::Debug + Send + Sync + 'static {
    /// One GET.
    fn get(self: Arc<Self>, request: Get) -> OpFuture<Get>;

    /// One HEAD.
    fn head(self: Arc<Self>, request: Head) -> OpFuture<Head>;

    /// One PUT that replaces.
    fn put(self: Arc<Self>, request: Put) -> OpFuture<Put>;

    /// One create, its outcome resolved.
    fn create(self: Arc<Self>, request: Create) -> OpFuture<Create>;

    /// Starts a multipart upload.
    fn start_upload(self: Arc<Self>, request: StartUpload) -> OpFuture<StartUpload>;

    /// Uploads one part.
    fn put_part(self: Arc<Self>, request: PutPart) -> OpFuture<PutPart>;

    /// Makes a multipart upload visible.
    fn complete_upload(self: Arc<Self>, request: CompleteUpload) -> OpFuture<CompleteUpload>;

    /// Gives a multipart upload up.
    fn abort_upload(self: Arc<Self>, request: AbortUpload) -> OpFuture<AbortUpload>;

    /// One DELETE.
    fn delete(self: Arc<Self>, request: Delete) -> OpFuture<Delete>;

    /// Lists one level.
    fn list(self: Arc<Self>, request: List) -> OpFuture<List>;

    /// Lists uploads that were neither completed nor aborted.
    fn list_uploads(self: Arc<Self>, request: ListUploads) -> OpFuture<ListUploads>;

    /// Reads what the bucket promises to keep. A store that has no bucket promises nothing.
    fn read_retention(self: Arc<Self>, _request: ReadRetention) -> OpFuture<ReadRetention> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Whether this store can hold the segment at all, before anything is written.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument) when it cannot: a file system
    /// limits the length of names.
    fn check_segment(&self, _segment: &RemoteLogSegmentMetadata) -> Result<(), RemoteStorageError> {
        Ok(())
    }
}

/// The innermost service: hands each request to a [`StoreClient`]. Always ready.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    client: Arc<dyn StoreClient>,
}

impl Store {
    /// A service over this client.
    pub(crate) fn new(client: Arc<dyn StoreClient>) -> Self {
        Self { client }
    }
}

macro_rules! answer_with {
    ($($request:ident => $method:ident,)*) => {$(
        impl Service<$request> for Store {
            type Response = <$request as crate::ops::StorageOp>::Output;
            type Error = RemoteStorageError;
            type Future = OpFuture<$request>;

            fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
                Poll::Ready(Ok(()))
            }

            fn call(&mut self, request: $request) -> Self::Future {
                Arc::clone(&self.client).$method(request)
            }
        }
    )*};
}

every_store_request!(answer_with);
