//! Multipart uploads to a store in memory.
//!
//! `object_store`'s own replace what stands under their key. These are completed by a put, which can
//! be made conditional.

pub(super) mod config;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::BoxFuture;
use object_store::memory::InMemory;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    Attributes, Error as StoreError, MultipartId, ObjectStore, PutMode, PutMultipartOptions,
    PutOptions, PutPayload, PutResult,
};
use parking_lot::Mutex;
use uuid::Uuid;

use crate::backends::object::ConditionalCompletion;
use crate::ops::{PartTag, UploadId};

/// The open uploads to one store.
pub(in crate::backends) struct MemoryUploads {
    store: Arc<InMemory>,
    open: Mutex<HashMap<String, OpenUpload>>,
}

#[derive(Default)]
struct OpenUpload {
    attributes: Attributes,
    /// By index, which is the number less one.
    parts: BTreeMap<usize, PutPayload>,
}

impl MemoryUploads {
    /// No uploads yet to this store.
    pub(in crate::backends) fn of(store: Arc<InMemory>) -> Self {
        Self {
            store,
            open: Mutex::default(),
        }
    }

    /// The upload stays open until it has become an object.
    async fn complete(
        &self,
        key: &Path,
        id: &str,
        parts: usize,
        mode: PutMode,
    ) -> object_store::Result<PutResult> {
        let (payload, attributes) = self.whole(id, parts)?;
        let options = PutOptions {
            mode,
            attributes,
            ..PutOptions::default()
        };
        let result = self.store.put_opts(key, payload, options).await?;
        self.open.lock().remove(id);
        Ok(result)
    }

    fn whole(&self, id: &str, parts: usize) -> object_store::Result<(PutPayload, Attributes)> {
        let open = self.open.lock();
        let upload = open.get(id).ok_or_else(|| unknown(id))?;
        if !upload.parts.keys().copied().eq(0..parts) {
            return Err(StoreError::Generic {
                store: "InMemory",
                source: format!(
                    "{parts} parts are named and {} have come: name every part, in order",
                    upload.parts.len()
                )
                .into(),
            });
        }
        let pieces = upload.parts.values().flat_map(PutPayload::iter);
        Ok((pieces.cloned().collect(), upload.attributes.clone()))
    }
}

#[async_trait]
impl MultipartStore for MemoryUploads {
    async fn create_multipart(&self, key: &Path) -> object_store::Result<MultipartId> {
        self.create_multipart_opts(key, PutMultipartOptions::default())
            .await
    }

    async fn create_multipart_opts(
        &self,
        _key: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<MultipartId> {
        let id = Uuid::new_v4().to_string();
        let upload = OpenUpload {
            attributes: options.attributes,
            ..OpenUpload::default()
        };
        self.open.lock().insert(id.clone(), upload);
        Ok(id)
    }

    async fn put_part(
        &self,
        _key: &Path,
        id: &MultipartId,
        index: usize,
        payload: PutPayload,
    ) -> object_store::Result<PartId> {
        let mut open = self.open.lock();
        let upload = open.get_mut(id).ok_or_else(|| unknown(id))?;
        upload.parts.insert(index, payload);
        Ok(PartId {
            content_id: (index + 1).to_string(),
        })
    }

    async fn complete_multipart(
        &self,
        key: &Path,
        id: &MultipartId,
        parts: Vec<PartId>,
    ) -> object_store::Result<PutResult> {
        self.complete(key, id, parts.len(), PutMode::Overwrite)
            .await
    }

    async fn abort_multipart(&self, _key: &Path, id: &MultipartId) -> object_store::Result<()> {
        let aborted = self.open.lock().remove(id);
        aborted.map(drop).ok_or_else(|| unknown(id))
    }
}

impl ConditionalCompletion for MemoryUploads {
    fn complete(
        &self,
        key: Path,
        upload: UploadId,
        parts: Arc<[PartTag]>,
    ) -> BoxFuture<'_, object_store::Result<PutResult>> {
        Box::pin(async move {
            self.complete(&key, &upload, parts.len(), PutMode::Create)
                .await
        })
    }
}

fn unknown(id: &str) -> StoreError {
    StoreError::NotFound {
        path: id.to_owned(),
        source: "there is no such upload".into(),
    }
}
