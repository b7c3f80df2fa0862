//! A store that takes everything and keeps nothing.

use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartId, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// Each write takes `delay`, and its bytes are dropped.
#[derive(Clone, Debug)]
pub struct SinkStore {
    pub delay: Duration,
}

impl std::fmt::Display for SinkStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SinkStore")
    }
}

fn nothing(path: &Path) -> Error {
    Error::NotFound {
        path: path.to_string(),
        source: "a sink keeps nothing".into(),
    }
}

fn put_result() -> PutResult {
    PutResult {
        e_tag: None,
        version: None,
        extensions: object_store::Extensions::default(),
    }
}

#[async_trait]
impl ObjectStore for SinkStore {
    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        tokio::time::sleep(self.delay).await;
        Ok(put_result())
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(nothing(path))
    }

    async fn get_opts(&self, path: &Path, _: GetOptions) -> Result<GetResult> {
        Err(nothing(path))
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        locations
    }

    fn list(&self, _: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        Box::pin(futures::stream::empty())
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        Err(nothing(&Path::ROOT))
    }

    async fn copy_opts(&self, from: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(nothing(from))
    }
}

#[async_trait]
impl MultipartStore for SinkStore {
    async fn create_multipart(&self, _: &Path) -> Result<MultipartId> {
        Ok("upload".to_owned())
    }

    async fn put_part(
        &self,
        _: &Path,
        _: &MultipartId,
        index: usize,
        _payload: PutPayload,
    ) -> Result<PartId> {
        tokio::time::sleep(self.delay).await;
        Ok(PartId {
            content_id: index.to_string(),
        })
    }

    async fn complete_multipart(
        &self,
        _: &Path,
        _: &MultipartId,
        _: Vec<PartId>,
    ) -> Result<PutResult> {
        Ok(put_result())
    }

    async fn abort_multipart(&self, _: &Path, _: &MultipartId) -> Result<()> {
        Ok(())
    }
}
