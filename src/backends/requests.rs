//! The store requests with their attempt layers on, as segment operations use them.

use std::sync::Arc;
use std::task::{Context, Poll};

use tower::{Layer, Service, service_fn};

use super::{Store, StoreClient};
use crate::error::{RemoteStorageError, WormError};
use crate::ops::{
    AbortUpload, CompleteUpload, Create, Delete, Get, Head, List, ListUploads, OpFuture, OpService,
    OpStack, Put, PutPart, ReadRetention, StartUpload, StorageOp, begin_together, beginning,
    every_store_request,
};

/// Every store request, each a finished stack. A clone is one reference.
#[derive(Clone)]
pub(crate) struct StoreRequests {
    stacks: Arc<Stacks>,
}

macro_rules! stacks {
    ($($request:ident => $name:ident,)*) => {
        #[derive(Clone)]
        struct Stacks {
            client: Arc<dyn StoreClient>,
            $($name: OpStack<$request>,)*
        }

        impl StoreRequests {
            /// Wraps each request to `client` in `layer`, the attempt layers.
            pub(crate) fn new<L>(client: Arc<dyn StoreClient>, layer: &L) -> Self
            where
                L: Layer<Store>,
                $(L::Service: OpService<$request>,)*
            {
                let store = Store::new(Arc::clone(&client));
                Self {
                    stacks: Arc::new(Stacks {
                        client,
                        $($name: OpStack::new(layer.layer(store.clone())),)*
                    }),
                }
            }
        }

        $(
            impl StoreRequest for $request {}

            impl HasStack for $request {
                fn stack(requests: &StoreRequests) -> &OpStack<Self> {
                    &requests.stacks.$name
                }
            }
        )*
    };
}

every_store_request!(stacks);

impl StoreRequests {
    /// The same requests without the two that replace and remove objects: these are answered with
    /// an error, and hold no path to the store.
    #[must_use]
    pub(crate) fn write_once(&self) -> Self {
        let mut stacks = Stacks::clone(&self.stacks);
        stacks.put = OpStack::new(service_fn(|put: Put| async move {
            Err(RemoteStorageError::InvalidArgument(format!(
                "put of `{}` would replace what stands there: an archive only creates",
                put.key()
            )))
        }));
        stacks.delete = OpStack::new(service_fn(|delete: Delete| async move {
            Err(WormError::delete_refused(delete.key()).into())
        }));
        Self {
            stacks: Arc::new(stacks),
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
