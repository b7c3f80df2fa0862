//! The store requests with their attempt layers on, as segment operations use them.

use std::sync::Arc;
use std::task::{Context, Poll};

use tower::{Layer, Service, service_fn};

use super::{Store, StoreClient};
use crate::error::{RemoteStorageError, WormError};
use crate::ops::{
    AbortUpload, CompleteUpload, Create, Delete, Get, Head, List, ListUploads, OpFuture, OpService,
    OpStack, Put, PutPart, ReadRetention, StartUpload, StorageOp, begin_together, beginning,
};

/// Every store request, each a finished stack. A clone is one reference.
#[derive(Clone)]
pub(crate) struct StoreRequests {
    stacks: Arc<Stacks>,
}

struct Stacks {
    client: Arc<dyn StoreClient>,
    get: OpStack<Get>,
    head: OpStack<Head>,
    put: OpStack<Put>,
    create: OpStack<Create>,
    start_upload: OpStack<StartUpload>,
    put_part: OpStack<PutPart>,
    complete_upload: OpStack<CompleteUpload>,
    abort_upload: OpStack<AbortUpload>,
    delete: OpStack<Delete>,
    list: OpStack<List>,
    list_uploads: OpStack<ListUploads>,
    read_retention: OpStack<ReadRetention>,
}

impl StoreRequests {
    /// Wraps each request to `client` in `layer`, the attempt layers.
    pub(crate) fn new<L>(client: Arc<dyn StoreClient>, layer: &L) -> Self
    where
        L: Layer<Store>,
        L::Service: OpService<Get>
            + OpService<Head>
            + OpService<Put>
            + OpService<Create>
            + OpService<StartUpload>
            + OpService<PutPart>
            + OpService<CompleteUpload>
            + OpService<AbortUpload>
            + OpService<Delete>
            + OpService<List>
            + OpService<ListUploads>
            + OpService<ReadRetention>,
    {
        let store = Store::new(Arc::clone(&client));
        let service = || layer.layer(store.clone());
        Self {
            stacks: Arc::new(Stacks {
                get: OpStack::new(service()),
                head: OpStack::new(service()),
                put: OpStack::new(service()),
                create: OpStack::new(service()),
                start_upload: OpStack::new(service()),
                put_part: OpStack::new(service()),
                complete_upload: OpStack::new(service()),
                abort_upload: OpStack::new(service()),
                delete: OpStack::new(service()),
                list: OpStack::new(service()),
                list_uploads: OpStack::new(service()),
                read_retention: OpStack::new(service()),
                client,
            }),
        }
    }

    /// The same requests without the two that replace and remove objects: these are answered with
    /// an error, and hold no path to the store.
    #[must_use]
    pub(crate) fn write_once(&self) -> Self {
        let stacks = &self.stacks;
        let refuse_put = service_fn(|put: Put| async move {
            Err(RemoteStorageError::InvalidArgument(format!(
                "put of `{}` would replace what stands there: an archive only creates",
                put.key()
            )))
        });
        let refuse_delete = service_fn(|delete: Delete| async move {
            let key = delete.key().to_owned();
            Err(WormError::DeleteRefused { key }.into())
        });
        Self {
            stacks: Arc::new(Stacks {
                put: OpStack::new(refuse_put),
                delete: OpStack::new(refuse_delete),
                client: Arc::clone(&stacks.client),
                get: stacks.get.clone(),
                head: stacks.head.clone(),
                create: stacks.create.clone(),
                start_upload: stacks.start_upload.clone(),
                put_part: stacks.put_part.clone(),
                complete_upload: stacks.complete_upload.clone(),
                abort_upload: stacks.abort_upload.clone(),
                list: stacks.list.clone(),
                list_uploads: stacks.list_uploads.clone(),
                read_retention: stacks.read_retention.clone(),
            }),
        }
    }

    /// The store below the layers.
    pub(crate) fn client(&self) -> &Arc<dyn StoreClient> {
        &self.stacks.client
    }

    /// Sends one request, repeated as the layers see fit.
    pub(crate) async fn send<R: StoreRequest>(
        &self,
        request: R,
    ) -> Result<R::Output, RemoteStorageError> {
        self.begin(request).await
    }

    /// Sends one request now; [`send`](Self::send) sends it when it is awaited.
    pub(crate) fn begin<R: StoreRequest>(&self, request: R) -> OpFuture<R> {
        begin_together(beginning(), || R::stack(self).run(request))
    }
}

impl<R: StoreRequest> Service<R> for StoreRequests {
    type Response = R::Output;
    type Error = RemoteStorageError;
    type Future = OpFuture<R>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        self.begin(request)
    }
}

impl std::fmt::Debug for StoreRequests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreRequests")
            .field("client", &self.stacks.client)
            .finish_non_exhaustive()
    }
}

/// A request that [`RemoteStorage::send`](crate::RemoteStorage::send) takes: each that stands in
/// [`ops`](crate::ops) as a store request.
#[allow(private_bounds, reason = "a request is not for others to add")]
pub trait StoreRequest: StorageOp + HasStack {}

/// A request that [`StoreRequests`] has a stack for.
pub(crate) trait HasStack: StorageOp {
    fn stack(requests: &StoreRequests) -> &OpStack<Self>;
}

macro_rules! stacks {
    ($($request:ident => $field:ident,)*) => {$(
        impl StoreRequest for $request {}

        impl HasStack for $request {
            fn stack(requests: &StoreRequests) -> &OpStack<Self> {
                &requests.stacks.$field
            }
        }
    )*};
}

stacks! {
    Get => get,
    Head => head,
    Put => put,
    Create => create,
    StartUpload => start_upload,
    PutPart => put_part,
    CompleteUpload => complete_upload,
    AbortUpload => abort_upload,
    Delete => delete,
    List => list,
    ListUploads => list_uploads,
    ReadRetention => read_retention,
}
