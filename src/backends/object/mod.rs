//! Store requests over any `object_store` client.
//!
//! The client's own retries must be off, so that its attempts and ours do not multiply. A client
//! that is known only as [`ObjectStore`] uploads parts through `put_multipart`, where a failed part
//! cannot be sent again by itself; with [`MultipartStore`] each part is a request of its own.

mod create;
mod opaque_uploads;

use std::fmt;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{StreamExt, TryFutureExt};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    Attributes, Error as StoreError, GetOptions, GetRange, GetResult, ObjectStore, ObjectStoreExt,
    PutMode, PutMultipartOptions, PutOptions, PutResult,
};
use parking_lot::Mutex;
use tokio::time::Instant;

use self::create::Expected;
use self::opaque_uploads::OpaqueUploads;
use super::StoreClient;
use crate::error::{RemoteStorageError, StoreCall};
use crate::model::LOG_FILE_SUFFIX;
use crate::ops::{
    AbortUpload, Activity, ByteRange, CompleteUpload, Create, Delete, Fetched, Get, Head, List,
    ListUploads, Listing, OpFuture, OpenUpload, PartTag, Put, PutPart, ReadRetention,
    RetentionPolicy, StartUpload, StorageOp, UploadId, WriteMode, Written,
};

/// Lists a store's open uploads below a prefix.
pub type UploadLister = Arc<
    dyn Fn(Path) -> BoxFuture<'static, Result<Vec<OpenUpload>, RemoteStorageError>> + Send + Sync,
>;

/// Reads what a store's bucket promises to keep.
pub type RetentionReader =
    Arc<dyn Fn() -> BoxFuture<'static, Result<RetentionPolicy, RemoteStorageError>> + Send + Sync>;

/// Makes a store client anew, so that it reads its credentials again.
pub type Reconnect = Arc<dyn Fn() -> Result<StoreHandles, RemoteStorageError> + Send + Sync>;

/// Completes multipart uploads that must not replace anything.
///
/// "Exists" comes back as the store says it, and an upload that it does not know (any more) as not
/// found: what that means is found out by whoever asked.
pub(in crate::backends) trait ConditionalCompletion: Send + Sync {
    /// One attempt.
    fn complete(
        &self,
        key: Path,
        upload: UploadId,
        parts: Arc<[PartTag]>,
    ) -> BoxFuture<'_, object_store::Result<PutResult>>;
}

/// Credentials are not read again more often than this, however many requests are refused.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(10);

/// Buffers for a body are reserved up to this size at once, and grow from there: a length that a
/// store announces is no reason to allocate it.
const MAX_RESERVED_BODY: u64 = 16 * 1024 * 1024;

/// The two faces of one store client.
#[derive(Clone)]
pub struct StoreHandles {
    object: Arc<dyn ObjectStore>,
    multipart: Option<Arc<dyn MultipartStore>>,
    completion: Option<Arc<dyn ConditionalCompletion>>,
}

impl StoreHandles {
    /// A client of which nothing else is known.
    pub fn opaque(store: Arc<dyn ObjectStore>) -> Self {
        Self {
            object: store,
            multipart: None,
            completion: None,
        }
    }

    /// A client whose uploads are made of separate requests.
    pub fn with_multipart<T: ObjectStore + MultipartStore>(store: Arc<T>) -> Self {
        Self {
            object: Arc::clone(&store) as Arc<dyn ObjectStore>,
            multipart: Some(store),
            completion: None,
        }
    }

    /// A client whose uploads these are, which can also complete them on condition.
    pub(in crate::backends) fn with_uploads<U: MultipartStore + ConditionalCompletion>(
        store: Arc<dyn ObjectStore>,
        uploads: Arc<U>,
    ) -> Self {
        Self {
            object: store,
            multipart: Some(Arc::clone(&uploads) as Arc<dyn MultipartStore>),
            completion: Some(uploads),
        }
    }

    /// Completes uploads on condition with this.
    #[cfg(feature = "aws")]
    pub(in crate::backends) fn with_completion(
        mut self,
        completion: impl ConditionalCompletion + 'static,
    ) -> Self {
        self.completion = Some(Arc::new(completion));
        self
    }
}

impl fmt::Debug for StoreHandles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client's own Debug shows credentials; its Display names the store.
        f.debug_tuple("StoreHandles")
            .field(&format_args!("{}", self.object))
            .finish()
    }
}

/// A [`StoreClient`] over an `object_store` client.
pub struct ObjectStoreClient {
    handles: ArcSwap<StoreHandles>,
    opaque_uploads: OpaqueUploads,
    upload_lister: Option<UploadLister>,
    retention_reader: Option<RetentionReader>,
    reconnect: Option<Reconnect>,
    reconnected: Mutex<Option<Instant>>,
    log_attributes: Attributes,
}

impl fmt::Debug for ObjectStoreClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client's own Debug may hold an endpoint or a credential; its Display names the store.
        f.debug_tuple("ObjectStoreClient")
            .field(&format_args!("{}", self.handles.load().object))
            .finish()
    }
}

impl ObjectStoreClient {
    /// A client over these handles, whose retries and timeouts must be off.
    pub fn new(handles: StoreHandles) -> Self {
        Self {
            handles: ArcSwap::from_pointee(handles),
            opaque_uploads: OpaqueUploads::default(),
            upload_lister: None,
            retention_reader: None,
            reconnect: None,
            reconnected: Mutex::new(None),
            log_attributes: Attributes::new(),
        }
    }

    /// Answers [`ListUploads`] with this.
    #[must_use]
    pub fn with_upload_lister(mut self, lister: UploadLister) -> Self {
        self.upload_lister = Some(lister);
        self
    }

    /// Answers [`ReadRetention`] with this.
    #[must_use]
    pub fn with_retention_reader(mut self, reader: RetentionReader) -> Self {
        self.retention_reader = Some(reader);
        self
    }

    /// When the store refuses the credentials (401, 403), makes the client anew with this and lets
    /// the request be repeated once. For credentials that come from the surroundings and expire.
    #[must_use]
    pub fn with_reconnect(mut self, reconnect: Reconnect) -> Self {
        self.reconnect = Some(reconnect);
        self
    }

    /// Writes `.log` objects with these attributes (a storage class, say).
    #[must_use]
    pub fn with_log_attributes(mut self, attributes: Attributes) -> Self {
        self.log_attributes = attributes;
        self
    }

    fn object(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.handles.load().object)
    }

    fn multipart(&self) -> Option<Arc<dyn MultipartStore>> {
        self.handles.load().multipart.clone()
    }

    fn attributes(&self, key: &Path) -> Attributes {
        if key.as_ref().ends_with(LOG_FILE_SUFFIX) {
            self.log_attributes.clone()
        } else {
            Attributes::new()
        }
    }

    /// Classifies a failure, reading credentials anew where that may help.
    fn failed<R: StorageOp>(&self, request: &R, error: StoreError) -> RemoteStorageError {
        let segment = request.segment().filter(|_| !R::KIND.is_write());
        let call = StoreCall {
            operation: R::KIND,
            key: request.key(),
            segment: segment.map(|metadata| metadata.remote_log_segment_id()),
        };
        let mut error = RemoteStorageError::from_store(call, error);
        if let RemoteStorageError::Backend {
            status: Some(401 | 403),
            transient,
            ..
        } = &mut error
        {
            *transient = self.read_credentials_anew();
        }
        error
    }

    /// Whether the request is worth another attempt, with credentials just read.
    fn read_credentials_anew(&self) -> bool {
        let Some(reconnect) = &self.reconnect else {
            return false;
        };
        let mut reconnected = self.reconnected.lock();
        if reconnected.is_some_and(|at| at.elapsed() < RECONNECT_INTERVAL) {
            return false;
        }
        *reconnected = Some(Instant::now());
        match reconnect() {
            Ok(handles) => {
                self.handles.store(Arc::new(handles));
                true
            }
            Err(error) => {
                tracing::warn!(error = %error, "could not read credentials anew");
                false
            }
        }
    }
}

impl StoreClient for ObjectStoreClient {
    fn get(self: Arc<Self>, request: Get) -> OpFuture<Get> {
        Box::pin(async move {
            let answer = self.ask(&request).await?;
            let object_size = Some(answer.object_size);
            let bytes = read_body(answer, request.key())
                .await
                .map_err(|error| match error {
                    BodyError::Store(error) => self.get_failed(&request, error),
                    BodyError::Wrong(error) => error,
                })?;
            Ok(Fetched { bytes, object_size })
        })
    }

    fn head(self: Arc<Self>, request: Head) -> OpFuture<Head> {
        Box::pin(async move {
            match self.object().head(request.target.key()).await {
                Ok(meta) => Ok(Some(meta)),
                Err(StoreError::NotFound { .. }) => Ok(None),
                Err(error) => Err(self.failed(&request, error)),
            }
        })
    }

    fn put(self: Arc<Self>, request: Put) -> OpFuture<Put> {
        Box::pin(async move {
            let options = PutOptions {
                attributes: self.attributes(request.target.key()),
                ..PutOptions::default()
            };
            self.object()
                .put_opts(request.target.key(), request.payload.clone(), options)
                .await
                .map(|result| written(result, false))
                .map_err(|error| self.failed(&request, error))
        })
    }

    fn create(self: Arc<Self>, request: Create) -> OpFuture<Create> {
        Box::pin(async move {
            let options = PutOptions {
                mode: PutMode::Create,
                attributes: self.attributes(request.target.key()),
                ..PutOptions::default()
            };
            let store = self.object();
            let expected = Expected {
                operation: Create::KIND,
                key: request.target.key(),
                size_bytes: request.payload.content_length() as u64,
                sha256: &request.sha256,
            };
            create::resolve(&store, &expected, || {
                store.put_opts(
                    request.target.key(),
                    request.payload.clone(),
                    options.clone(),
                )
            })
            .await
            .map_err(|failure| self.create_failed(&request, failure))
        })
    }

    fn start_upload(self: Arc<Self>, request: StartUpload) -> OpFuture<StartUpload> {
        Box::pin(async move {
            let key = request.target.key();
            let options = PutMultipartOptions {
                attributes: self.attributes(key),
                ..PutMultipartOptions::default()
            };
            let started = if let Some(store) = self.multipart() {
                let started = store.create_multipart_opts(key, options).await;
                started.map(UploadId::from)
            } else {
                let started = self.object().put_multipart_opts(key, options).await;
                started.map(|upload| self.opaque_uploads.add(upload))
            };
            started.map_err(|error| self.failed(&request, error))
        })
    }

    fn put_part(self: Arc<Self>, request: PutPart) -> OpFuture<PutPart> {
        Box::pin(async move {
            let Some(store) = self.multipart() else {
                return self
                    .opaque_uploads
                    .put_part(&request)
                    .await
                    .map_err(|error| not_repeatable(self.failed(&request, error)));
            };
            let index = request.number as usize - 1;
            store
                .put_part(
                    request.target.key(),
                    &request.upload.to_string(),
                    index,
                    request.payload.clone(),
                )
                .await
                .map(|part| PartTag::from(part.content_id))
                .map_err(|error| self.failed(&request, error))
        })
    }

    fn complete_upload(self: Arc<Self>, request: CompleteUpload) -> OpFuture<CompleteUpload> {
        Box::pin(async move {
            if let WriteMode::Create { size_bytes, sha256 } = &request.mode {
                return self.complete_once(&request, *size_bytes, sha256).await;
            }
            let Some(store) = self.multipart() else {
                return self
                    .opaque_uploads
                    .complete(&request.upload)
                    .await
                    .map(|result| written(result, false))
                    .map_err(|error| not_repeatable(self.failed(&request, error)));
            };
            let parts = request
                .parts
                .iter()
                .map(|tag| PartId {
                    content_id: tag.to_string(),
                })
                .collect();
            store
                .complete_multipart(request.target.key(), &request.upload.to_string(), parts)
                .await
                .map(|result| written(result, false))
                .map_err(|error| self.failed(&request, error))
        })
    }

    fn abort_upload(self: Arc<Self>, request: AbortUpload) -> OpFuture<AbortUpload> {
        Box::pin(async move {
            let aborted = match self.multipart() {
                Some(store) => {
                    let id = request.upload.to_string();
                    store.abort_multipart(request.target.key(), &id).await
                }
                None => self.opaque_uploads.abort(&request.upload).await,
            };
            match aborted {
                Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
                // The store in memory has no error of its own for this.
                Err(error) if error.to_string().contains("MultipartUpload not found") => Ok(()),
                Err(error) => Err(self.failed(&request, error)),
            }
        })
    }

    fn delete(self: Arc<Self>, request: Delete) -> OpFuture<Delete> {
        Box::pin(async move {
            match self.object().delete(request.target.key()).await {
                Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
                Err(error) => Err(self.failed(&request, error)),
            }
        })
    }

    fn list(self: Arc<Self>, request: List) -> OpFuture<List> {
        Box::pin(async move {
            let prefix = Some(request.target.key()).filter(|key| !key.as_ref().is_empty());
            self.object()
                .list_with_delimiter(prefix)
                .await
                .map(|result| Listing {
                    objects: result.objects,
                    prefixes: result.common_prefixes,
                })
                .map_err(|error| self.failed(&request, error))
        })
    }

    fn list_uploads(self: Arc<Self>, request: ListUploads) -> OpFuture<ListUploads> {
        let prefix = request.target.key().clone();
        match &self.upload_lister {
            Some(lister) => Box::pin(lister(prefix).map_ok(Some)),
            None => Box::pin(std::future::ready(Ok(None))),
        }
    }

    fn read_retention(self: Arc<Self>, _request: ReadRetention) -> OpFuture<ReadRetention> {
        match &self.retention_reader {
            Some(reader) => Box::pin(reader().map_ok(Some)),
            None => Box::pin(std::future::ready(Ok(None))),
        }
    }
}

impl ObjectStoreClient {
    /// Completes an upload that must not replace anything.
    async fn complete_once(
        &self,
        request: &CompleteUpload,
        size_bytes: u64,
        sha256: &[u8; 32],
    ) -> Result<Written, RemoteStorageError> {
        let handles = self.handles.load_full();
        let Some(completion) = &handles.completion else {
            let error = StoreError::NotSupported {
                source: "this store cannot complete an upload on condition".into(),
            };
            return Err(self.failed(request, error));
        };
        let expected = Expected {
            operation: CompleteUpload::KIND,
            key: request.target.key(),
            size_bytes,
            sha256,
        };
        create::resolve(&handles.object, &expected, || {
            completion.complete(
                request.target.key().clone(),
                UploadId::clone(&request.upload),
                Arc::clone(&request.parts),
            )
        })
        .await
        .map_err(|failure| self.create_failed(request, failure))
    }

    fn create_failed<R: StorageOp>(
        &self,
        request: &R,
        failure: create::Failure,
    ) -> RemoteStorageError {
        match failure {
            create::Failure::Store(error) => self.failed(request, error),
            create::Failure::Settled(error) => error,
        }
    }
}

/// An answer whose body is still to be read.
struct Answer {
    body: BoxStream<'static, Result<Bytes, StoreError>>,
    /// How many bytes the body must have.
    length: u64,
    object_size: u64,
}

impl ObjectStoreClient {
    /// Sends a GET, and checks which range is answered.
    async fn ask(&self, request: &Get) -> Result<Answer, RemoteStorageError> {
        let options = GetOptions {
            range: match &request.range {
                ByteRange::Whole => None,
                ByteRange::From(start) => Some(GetRange::Offset(*start)),
                ByteRange::Bounded(range) => Some(GetRange::Bounded(range.clone())),
            },
            ..GetOptions::default()
        };
        // Not a reference of its own: these are counted where all requests would have to.
        let handles = self.handles.load();
        let call = handles.object.get_opts(request.target.key(), options);
        let answer = call.await;
        let result = answer.map_err(|error| self.get_failed(request, error))?;
        let range = answered_range(request, &result)?;
        Ok(Answer {
            length: range.end - range.start,
            object_size: result.meta.size,
            body: result.into_stream(),
        })
    }

    /// A GET's failure: a range that cannot be satisfied and an answer to another range than the
    /// one asked for have no type of their own in `object_store`, only a text.
    fn get_failed(&self, request: &Get, error: StoreError) -> RemoteStorageError {
        const BEYOND_THE_END: [&str; 2] = [
            "Wanted range starting at ",
            // Azurite answers any range of an empty blob like this, where Azure says 416.
            "\"bytes 0--1/0\"",
        ];
        const WRONG_RANGE: [&str; 4] = [
            "Failed to parse value for CONTENT_RANGE header",
            "Received non-partial response when range requested",
            "Content-Range header not present in partial response",
            "Requested ",
        ];
        if !matches!(error, StoreError::Generic { .. }) {
            return self.failed(request, error);
        }
        let text = error.to_string();
        let has = |marks: &[&str]| marks.iter().any(|mark| text.contains(mark));
        if has(&BEYOND_THE_END) {
            let mut failure = self.failed(request, error);
            if let RemoteStorageError::Backend {
                status, transient, ..
            } = &mut failure
            {
                *status = Some(416);
                *transient = false;
            }
            return failure;
        }
        if has(&WRONG_RANGE) {
            return RemoteStorageError::Corrupt {
                key: request.key().to_owned(),
                reason: format!("the store answered another range than {:?}", request.range),
            };
        }
        self.failed(request, error)
    }
}

/// The range that must have been answered, checked against the one that was.
fn answered_range(
    request: &Get,
    result: &GetResult,
) -> Result<std::ops::Range<u64>, RemoteStorageError> {
    let size = result.meta.size;
    let expected = match &request.range {
        ByteRange::Whole => 0..size,
        ByteRange::From(start) => *start..size,
        ByteRange::Bounded(range) => range.start..range.end.min(size),
    };
    if result.range == expected {
        return Ok(expected);
    }
    Err(RemoteStorageError::Corrupt {
        key: request.key().to_owned(),
        reason: format!(
            "bytes {expected:?} were due, the store announced {:?}",
            result.range
        ),
    })
}

enum BodyError {
    Store(StoreError),
    Wrong(RemoteStorageError),
}

/// Reads a body of exactly `length` bytes. One that comes in one piece is handed on as it is.
async fn read_body(answer: Answer, key: &str) -> Result<Bytes, BodyError> {
    let Answer {
        mut body, length, ..
    } = answer;
    let activity = Activity::current();
    let wrong = |received: u64| {
        BodyError::Wrong(RemoteStorageError::Corrupt {
            key: key.to_owned(),
            reason: format!("{length} bytes were announced, {received} came"),
        })
    };
    let (mut first, mut rest, mut received) = (Bytes::new(), None::<BytesMut>, 0);
    loop {
        let mut next = body.next();
        let piece = if let Poll::Ready(piece) = futures::poll!(&mut next) {
            piece
        } else {
            // Marked where a wait begins: what is at hand costs no look at the clock.
            activity
                .iter()
                .filter(|_| received > 0)
                .for_each(Activity::mark);
            next.await
        };
        let Some(piece) = piece else { break };
        let piece = piece.map_err(BodyError::Store)?;
        received += piece.len() as u64;
        if received > length {
            return Err(wrong(received));
        }
        if piece.is_empty() {
        } else if received == piece.len() as u64 {
            first = piece;
        } else {
            rest.get_or_insert_with(|| {
                let reserve = usize::try_from(length.min(MAX_RESERVED_BODY)).unwrap_or(0);
                let mut buffer = BytesMut::with_capacity(reserve);
                buffer.extend_from_slice(&std::mem::take(&mut first));
                buffer
            })
            .extend_from_slice(&piece);
        }
    }
    if received < length {
        return Err(wrong(received));
    }
    Ok(rest.map_or(first, BytesMut::freeze))
}

fn written(result: PutResult, create_precondition: bool) -> Written {
    Written {
        e_tag: result.e_tag,
        version_id: result.version,
        create_precondition,
    }
}

/// A part or a completion through an opaque client cannot be sent twice.
fn not_repeatable(mut error: RemoteStorageError) -> RemoteStorageError {
    if let RemoteStorageError::Backend { transient, .. } = &mut error {
        *transient = false;
    }
    error
}
