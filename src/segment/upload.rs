//! One multipart upload, given up exactly once unless it is completed.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::backends::StoreRequests;
use crate::error::RemoteStorageError;
use crate::ops::{
    AbortUpload, CompleteUpload, PartTag, PutPart, StartUpload, StoreTarget, UploadId, WriteMode,
    Written,
};

/// An open multipart upload. Dropping it aborts it.
///
/// Starting and aborting run as tasks of their own, so a dropped copy neither forgets an upload
/// that the store has just opened nor stops half-way through giving one up.
#[derive(Debug)]
pub(super) struct Upload {
    store: StoreRequests,
    target: StoreTarget,
    /// Taken by whichever ends the upload first.
    id: Option<UploadId>,
    runtime: Handle,
    tasks: TaskTracker,
}

impl Upload {
    /// Starts an upload of this object. `tasks` tracks the requests that outlive their callers.
    pub(super) async fn start(
        store: &StoreRequests,
        target: &StoreTarget,
        tasks: &TaskTracker,
    ) -> Result<Self, RemoteStorageError> {
        let (started, wait) = oneshot::channel();
        let request = StartUpload {
            target: target.clone(),
        };
        let (store, target) = (store.clone(), target.clone());
        let tracker = tasks.clone();
        let start = async move {
            let upload = store.send(request).await.map(|id| Self {
                store,
                target,
                id: Some(id),
                runtime: Handle::current(),
                tasks: tracker,
            });
            // If nobody waits any more, what comes back is dropped here, and so aborted.
            let _ = started.send(upload);
        };
        tasks.spawn(start.in_current_span());
        wait.await.unwrap_or_else(|_| {
            Err(RemoteStorageError::from(std::io::Error::other(
                "the task that starts an upload was stopped with its runtime",
            )))
        })
    }

    /// Uploads one part.
    pub(super) async fn put_part(
        &self,
        number: u32,
        offset: u64,
        bytes: bytes::Bytes,
    ) -> Result<PartTag, RemoteStorageError> {
        self.store
            .send(PutPart {
                target: self.target.clone(),
                upload: self.id(),
                number,
                offset,
                payload: bytes.into(),
            })
            .await
    }

    /// Makes the object visible. When this fails the upload is still open.
    pub(super) async fn complete(
        &self,
        parts: Arc<[PartTag]>,
        mode: WriteMode,
    ) -> Result<Written, RemoteStorageError> {
        self.store
            .send(CompleteUpload {
                target: self.target.clone(),
                upload: self.id(),
                parts,
                mode,
            })
            .await
    }

    /// The upload has been completed, or the store has forgotten it: there is nothing to abort.
    pub(super) fn ended(mut self) {
        self.id = None;
    }

    /// Gives the upload up, and waits until the store has answered.
    pub(super) async fn abort(mut self) {
        if let Some(abort) = self.spawn_abort() {
            let _ = abort.await;
        }
    }

    fn id(&self) -> UploadId {
        Arc::clone(
            self.id
                .as_ref()
                .expect("an upload has its id until it ends"),
        )
    }

    fn spawn_abort(&mut self) -> Option<tokio::task::JoinHandle<()>> {
        let request = AbortUpload {
            target: self.target.clone(),
            upload: self.id.take()?,
        };
        let store = self.store.clone();
        let abort = async move {
            let (target, upload) = (request.target.clone(), Arc::clone(&request.upload));
            if let Err(error) = store.send(request).await {
                tracing::warn!(key = %target.key(), %upload, %error, "could not abort a multipart upload");
            }
        };
        Some(self.tasks.spawn_on(abort.in_current_span(), &self.runtime))
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.spawn_abort();
    }
}
