//! An in-memory store that notes every request, and delays or fails those that a test names.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartId,
    MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};
use parking_lot::Mutex;

/// One request that reached the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `get`, `head`, `put`, `create`, `start`, `part`, `complete`, `abort`, `delete`, `list`.
    pub kind: &'static str,
    /// The object, or the prefix that is listed.
    pub key: String,
    /// Counted from 1, for a part.
    pub part: Option<usize>,
    /// Bytes sent, or asked for.
    pub bytes: u64,
}

/// What becomes of a request.
#[derive(Clone, Debug, Default)]
pub struct Fate {
    /// Waits this long first.
    pub delay: Duration,
    /// And then?
    pub outcome: Outcome,
}

impl Fate {
    /// Comes at once.
    pub fn of(outcome: Outcome) -> Self {
        Self {
            delay: Duration::ZERO,
            outcome,
        }
    }
}

/// How a request ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// Does its work.
    #[default]
    Served,
    /// Fails with this status (0: the connection breaks) and does nothing.
    Failed(u16),
    /// Does its work, and the answer is lost.
    AnswerLost,
    /// Never answers, and does nothing.
    Hangs,
    /// Does its work, and never answers.
    DoneAndHangs,
}

type Script = dyn Fn(&Request, usize) -> Fate + Send + Sync;

/// The bytes of an object that is made where it is read.
type Content = dyn Fn(Range<u64>) -> Bytes + Send + Sync;

type Generated = (ObjectMeta, Arc<Content>);

/// A store over memory. Clones share everything.
#[derive(Clone)]
pub struct TestStore {
    /// What is in it, to be looked at and changed without a request.
    pub inner: Arc<InMemory>,
    requests: Arc<Mutex<Vec<Request>>>,
    script: Arc<Mutex<Arc<Script>>>,
    generated: Arc<Mutex<HashMap<Path, Generated>>>,
    open_uploads: Arc<Mutex<Vec<String>>>,
    /// The version of each object, once the store counts them.
    versions: Arc<Mutex<Option<HashMap<Path, u64>>>>,
    in_flight: Arc<AtomicUsize>,
    most_in_flight: Arc<AtomicUsize>,
}

impl fmt::Debug for TestStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TestStore")
    }
}

impl fmt::Display for TestStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TestStore")
    }
}

impl TestStore {
    /// An empty one, that serves every request at once.
    #[allow(clippy::new_ret_no_self)] // Clients take it shared.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::new(InMemory::new()),
            requests: Arc::default(),
            script: Arc::new(Mutex::new(Arc::new(|_: &Request, _| Fate::default()))),
            generated: Arc::default(),
            open_uploads: Arc::default(),
            versions: Arc::default(),
            in_flight: Arc::default(),
            most_in_flight: Arc::default(),
        })
    }

    /// Decides the fate of each request from it and from how many of its kind came before.
    pub fn script(&self, script: impl Fn(&Request, usize) -> Fate + Send + Sync + 'static) {
        *self.script.lock() = Arc::new(script);
    }

    /// From now on each write gets a version, `version-1` being an object's first.
    pub fn count_versions(&self) {
        *self.versions.lock() = Some(HashMap::new());
    }

    /// Writes as somebody else does, in between. Nothing is noted, and nothing is waited for.
    pub fn overwrite(&self, key: &str, bytes: Vec<u8>) {
        let key = Path::from(key);
        let put = self
            .inner
            .put_opts(&key, bytes.into(), PutOptions::default());
        futures::executor::block_on(put).unwrap();
        self.next_version(&key);
    }

    fn next_version(&self, key: &Path) -> Option<String> {
        let mut versions = self.versions.lock();
        let version = versions.as_mut()?.entry(key.clone()).or_default();
        *version += 1;
        Some(format!("version-{version}"))
    }

    fn version(&self, key: &Path) -> Option<String> {
        let versions = self.versions.lock();
        let version = versions.as_ref()?.get(key)?;
        Some(format!("version-{version}"))
    }

    fn versioned(&self, key: &Path, result: PutResult) -> PutResult {
        PutResult {
            version: self.next_version(key),
            ..result
        }
    }

    /// Each request takes `latency` plus its bytes at `bytes_per_second`.
    pub fn throttle(&self, latency: Duration, bytes_per_second: f64) {
        self.script(move |request, _| Fate {
            delay: latency + Duration::from_secs_f64(request.bytes as f64 / bytes_per_second),
            outcome: Outcome::Served,
        });
    }

    /// Puts an object that takes no memory: its bytes are made where they are read.
    pub fn generate(
        &self,
        key: &Path,
        size: u64,
        content: impl Fn(Range<u64>) -> Bytes + Send + Sync + 'static,
    ) {
        let meta = ObjectMeta {
            location: key.clone(),
            last_modified: std::time::UNIX_EPOCH.into(),
            size,
            e_tag: None,
            version: None,
        };
        let mut generated = self.generated.lock();
        generated.insert(key.clone(), (meta, Arc::new(content)));
    }

    /// What stands under a key.
    async fn answer(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let generated = self.generated.lock().get(location).cloned();
        let Some((meta, content)) = generated else {
            // Only the newest version is kept.
            let options = GetOptions {
                version: None,
                ..options
            };
            let mut result = self.inner.get_opts(location, options).await?;
            result.meta.version = self.version(location);
            return Ok(result);
        };
        let range = match &options.range {
            None => 0..meta.size,
            Some(range) => range.as_range(meta.size).map_err(|source| Error::Generic {
                store: "TestStore",
                source: Box::new(source),
            })?,
        };
        let bytes = if options.head {
            Bytes::new()
        } else {
            content(range.clone())
        };
        Ok(GetResult {
            payload: GetResultPayload::Stream(futures::stream::iter([Ok(bytes)]).boxed()),
            meta,
            range,
            attributes: object_store::Attributes::new(),
            extensions: object_store::Extensions::default(),
        })
    }

    /// Every request so far, in the order in which they came.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().clone()
    }

    /// Begins to count anew.
    pub fn forget_requests(&self) {
        self.requests.lock().clear();
    }

    /// How many requests of this kind came.
    pub fn count(&self, kind: &str) -> usize {
        self.requests
            .lock()
            .iter()
            .filter(|request| request.kind == kind)
            .count()
    }

    /// Uploads that were neither completed nor aborted.
    pub fn open_uploads(&self) -> Vec<String> {
        self.open_uploads.lock().clone()
    }

    /// How many requests were open at once, at most.
    pub fn most_in_flight(&self) -> usize {
        self.most_in_flight.load(Ordering::SeqCst)
    }

    /// Every key and the length of its object.
    pub async fn objects(&self) -> Vec<(String, u64)> {
        let mut objects: Vec<_> = self
            .inner
            .list(None)
            .map(|meta| meta.unwrap())
            .map(|meta| (meta.location.to_string(), meta.size))
            .collect()
            .await;
        objects.sort();
        objects
    }

    async fn serve<T>(&self, request: Request, work: impl Future<Output = Result<T>>) -> Result<T> {
        let fate = {
            let mut requests = self.requests.lock();
            let before = requests.iter().filter(|r| r.kind == request.kind).count();
            requests.push(request.clone());
            let script = Arc::clone(&self.script.lock());
            script(&request, before)
        };
        let now = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_in_flight.fetch_max(now, Ordering::SeqCst);
        let _gauge = Decrement(Arc::clone(&self.in_flight));
        // Also where nothing is to be waited for, a request lets others run, as a real one does.
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        if !fate.delay.is_zero() {
            tokio::time::sleep(fate.delay).await;
        }
        match fate.outcome {
            Outcome::Failed(status) => Err(failure(status, &request.key)),
            Outcome::Served => work.await,
            Outcome::AnswerLost => {
                work.await?;
                Err(failure(0, &request.key))
            }
            Outcome::Hangs => std::future::pending().await,
            Outcome::DoneAndHangs => {
                work.await?;
                std::future::pending().await
            }
        }
    }
}

struct Decrement(Arc<AtomicUsize>);

impl Drop for Decrement {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The error that an HTTP client reports for this status; 0 stands for a broken connection.
pub fn failure(status: u16, key: &str) -> Error {
    let path = key.to_owned();
    let source = match status {
        0 => "connection reset by peer".into(),
        status => format!("Server returned non-2xx status code: {status} : ").into(),
    };
    match status {
        403 => Error::PermissionDenied { path, source },
        404 => Error::NotFound { path, source },
        409 => Error::AlreadyExists { path, source },
        412 => Error::Precondition { path, source },
        _ => Error::Generic {
            store: "TestStore",
            source,
        },
    }
}

fn request(kind: &'static str, key: &Path, bytes: u64) -> Request {
    Request {
        kind,
        key: key.to_string(),
        part: None,
        bytes,
    }
}

#[async_trait]
impl ObjectStore for TestStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let kind = match opts.mode {
            PutMode::Create => "create",
            _ => "put",
        };
        let length = payload.content_length() as u64;
        let work = async {
            let result = self.inner.put_opts(location, payload, opts).await?;
            Ok(self.versioned(location, result))
        };
        self.serve(request(kind, location, length), work).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let id = MultipartStore::create_multipart(self, location).await?;
        Ok(Box::new(TestUpload {
            store: self.clone(),
            key: location.clone(),
            id,
            parts: Arc::default(),
            begun: 0,
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let kind = if options.head { "head" } else { "get" };
        let size = self
            .answer(location, GetOptions::new().with_head(true))
            .await;
        let size = size.map_or(0, |result| result.meta.size);
        let bytes = match &options.range {
            _ if options.head => 0,
            None => size,
            Some(range) => range
                .as_range(size)
                .map_or(0, |range: Range<u64>| range.end - range.start),
        };
        let work = self.answer(location, options);
        self.serve(request(kind, location, bytes), work).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        locations
            .then(move |location| {
                let store = store.clone();
                async move {
                    let location = location?;
                    let work = async {
                        let one = futures::stream::iter([Ok(location.clone())]).boxed();
                        store.inner.delete_stream(one).next().await.unwrap()
                    };
                    store.serve(request("delete", &location, 0), work).await
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let noted = request("list", prefix.unwrap_or(&Path::ROOT), 0);
        self.requests.lock().push(noted);
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let noted = request("list", prefix.unwrap_or(&Path::ROOT), 0);
        self.serve(noted, self.inner.list_with_delimiter(prefix))
            .await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[async_trait]
impl MultipartStore for TestStore {
    async fn create_multipart(&self, path: &Path) -> Result<MultipartId> {
        let work = async {
            let id = self.inner.create_multipart(path).await?;
            self.open_uploads.lock().push(id.clone());
            Ok(id)
        };
        self.serve(request("start", path, 0), work).await
    }

    async fn put_part(
        &self,
        path: &Path,
        id: &MultipartId,
        part_idx: usize,
        data: PutPayload,
    ) -> Result<PartId> {
        let mut noted = request("part", path, data.content_length() as u64);
        noted.part = Some(part_idx + 1);
        let work = self.inner.put_part(path, id, part_idx, data);
        self.serve(noted, work).await
    }

    async fn complete_multipart(
        &self,
        path: &Path,
        id: &MultipartId,
        parts: Vec<PartId>,
    ) -> Result<PutResult> {
        let work = async {
            if !self.open_uploads.lock().contains(id) {
                return Err(failure(404, path.as_ref()));
            }
            let result = self.inner.complete_multipart(path, id, parts).await?;
            self.open_uploads.lock().retain(|open| open != id);
            Ok(self.versioned(path, result))
        };
        self.serve(request("complete", path, 0), work).await
    }

    async fn abort_multipart(&self, path: &Path, id: &MultipartId) -> Result<()> {
        let work = async {
            if !self.open_uploads.lock().contains(id) {
                return Err(failure(404, path.as_ref()));
            }
            self.inner.abort_multipart(path, id).await?;
            self.open_uploads.lock().retain(|open| open != id);
            Ok(())
        };
        self.serve(request("abort", path, 0), work).await
    }
}

/// An upload as a client hands it out that is known only as an `ObjectStore`.
#[derive(Debug)]
struct TestUpload {
    store: TestStore,
    key: Path,
    id: MultipartId,
    parts: Arc<Mutex<Vec<(usize, PartId)>>>,
    begun: usize,
}

#[async_trait]
impl MultipartUpload for TestUpload {
    fn put_part(&mut self, data: PutPayload) -> object_store::UploadPart {
        let (store, key, id) = (self.store.clone(), self.key.clone(), self.id.clone());
        let (parts, index) = (Arc::clone(&self.parts), self.begun);
        self.begun += 1;
        Box::pin(async move {
            let part = MultipartStore::put_part(&store, &key, &id, index, data).await?;
            parts.lock().push((index, part));
            Ok(())
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let mut parts = std::mem::take(&mut *self.parts.lock());
        parts.sort_by_key(|(index, _)| *index);
        let parts = parts.into_iter().map(|(_, part)| part).collect();
        self.store
            .complete_multipart(&self.key, &self.id, parts)
            .await
    }

    async fn abort(&mut self) -> Result<()> {
        self.store.abort_multipart(&self.key, &self.id).await
    }
}
