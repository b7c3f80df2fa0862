//! Uploads through a client that is known only as an `ObjectStore`.
//!
//! Such an upload numbers its parts by the order in which they are begun, so a part that arrives
//! early waits for the ones before it. Parts of one copy are sent in their order and permits are
//! fair, so the wait is for a part that is already on its way.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use object_store::{Error as StoreError, MultipartUpload, PutPayload, PutResult, UploadPart};
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use uuid::Uuid;

use crate::ops::{PartTag, PutPart, UploadId};

/// The open uploads of one client.
#[derive(Default)]
pub(in crate::backends) struct OpaqueUploads {
    uploads: Mutex<HashMap<UploadId, Arc<AsyncMutex<OpaqueUpload>>>>,
}

struct OpaqueUpload {
    upload: Box<dyn MultipartUpload>,
    /// The number of the part to begin next.
    next: u32,
    /// Parts that arrived before their turn.
    early: BTreeMap<u32, EarlyPart>,
}

struct EarlyPart {
    payload: PutPayload,
    begun: oneshot::Sender<UploadPart>,
}

impl OpaqueUpload {
    /// Begins every part whose turn it is.
    fn begin_due(&mut self) {
        while let Some(part) = self.early.remove(&self.next) {
            self.next += 1;
            // If nobody waits for it any more, the upload is being given up.
            let _ = part.begun.send(self.upload.put_part(part.payload));
        }
    }
}

impl OpaqueUploads {
    /// Takes an upload in, and gives it an id.
    pub(in crate::backends) fn add(&self, upload: Box<dyn MultipartUpload>) -> UploadId {
        let id = UploadId::from(Uuid::new_v4().to_string());
        let upload = OpaqueUpload {
            upload,
            next: 1,
            early: BTreeMap::new(),
        };
        self.uploads
            .lock()
            .insert(Arc::clone(&id), Arc::new(AsyncMutex::new(upload)));
        id
    }

    /// Sends one part, when those before it have been begun.
    pub(in crate::backends) async fn put_part(
        &self,
        request: &PutPart,
    ) -> Result<PartTag, StoreError> {
        let (begun, waits) = oneshot::channel();
        {
            let upload = self.find(&request.upload)?;
            let mut upload = upload.lock().await;
            if request.number < upload.next {
                return Err(StoreError::NotSupported {
                    source: format!("part {} cannot be sent again", request.number).into(),
                });
            }
            let part = EarlyPart {
                payload: request.payload.clone(),
                begun,
            };
            upload.early.insert(request.number, part);
            upload.begin_due();
        }
        waits.await.map_err(|_| unknown(&request.upload))?.await?;
        Ok(PartTag::from(request.number.to_string()))
    }

    /// Makes the upload visible. Until that has succeeded it can still be given up, also when this
    /// call is dropped half-way.
    pub(in crate::backends) async fn complete(
        &self,
        id: &UploadId,
    ) -> Result<PutResult, StoreError> {
        let upload = self.find(id)?;
        let result = upload.lock().await.upload.complete().await?;
        self.uploads.lock().remove(id);
        Ok(result)
    }

    /// Gives the upload up. One that is not known (any more) is not found.
    pub(in crate::backends) async fn abort(&self, id: &UploadId) -> Result<(), StoreError> {
        let upload = self.find(id)?;
        upload.lock().await.upload.abort().await?;
        self.uploads.lock().remove(id);
        Ok(())
    }

    fn find(&self, id: &UploadId) -> Result<Arc<AsyncMutex<OpaqueUpload>>, StoreError> {
        let upload = self.uploads.lock().get(id).cloned();
        upload.ok_or_else(|| unknown(id))
    }
}

fn unknown(id: &UploadId) -> StoreError {
    StoreError::NotFound {
        path: id.to_string(),
        source: "there is no such upload".into(),
    }
}
