//! A store that can only be read, and does what a test says on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;

type BeforeList = Box<dyn FnMut(usize) + Send>;
type Hides = Box<dyn Fn(usize, &str) -> bool + Send + Sync>;

/// Reads of a store in memory, with faults.
pub(crate) struct ReadOnly {
    memory: InMemory,
    /// Called before each listing, with how many came before: the first finds the directories.
    pub(crate) before_list: Mutex<BeforeList>,
    /// What such a listing leaves out.
    pub(crate) hides: Hides,
    /// Keys that are refused.
    pub(crate) refused: BTreeSet<String>,
    /// Keys that are listed and cannot be found, this many times.
    pub(crate) vanished: Mutex<BTreeMap<String, usize>>,
    /// Older versions, by key and id.
    pub(crate) versions: BTreeMap<(String, String), Bytes>,
    /// How long a read of this key takes.
    pub(crate) latency: Box<dyn Fn(&str) -> Duration + Send + Sync>,
    gets: Mutex<Vec<String>>,
    lists: Mutex<BTreeMap<String, usize>>,
}

impl ReadOnly {
    pub(crate) fn new(memory: &InMemory) -> Self {
        Self {
            memory: memory.clone(),
            before_list: Mutex::new(Box::new(|_| {})),
            hides: Box::new(|_, _| false),
            refused: BTreeSet::new(),
            vanished: Mutex::default(),
            versions: BTreeMap::new(),
            latency: Box::new(|_| Duration::ZERO),
            gets: Mutex::default(),
            lists: Mutex::default(),
        }
    }

    pub(crate) fn shared(self) -> (Arc<Self>, Arc<dyn ObjectStore>) {
        let store = Arc::new(self);
        (store.clone(), store)
    }

    /// The keys that were read, each time.
    pub(crate) fn gets(&self) -> Vec<String> {
        self.gets.lock().clone()
    }

    /// How often this key was read.
    pub(crate) fn gets_of(&self, key: &str) -> usize {
        self.gets.lock().iter().filter(|get| *get == key).count()
    }

    /// How many listings there were.
    pub(crate) fn lists(&self) -> usize {
        self.lists.lock().values().sum()
    }

    /// How often this prefix was listed.
    pub(crate) fn lists_of(&self, prefix: &str) -> usize {
        self.lists.lock().get(prefix).copied().unwrap_or(0)
    }
}

#[async_trait]
impl ObjectStore for ReadOnly {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let key = location.to_string();
        if !options.head {
            self.gets.lock().push(key.clone());
            tokio::time::sleep((self.latency)(&key)).await;
        }
        if self.refused.contains(&key) {
            return Err(Error::PermissionDenied {
                path: key,
                source: io::Error::other("403 Forbidden\n\u{1b}[2KOK").into(),
            });
        }
        let not_found = || Error::NotFound {
            path: key.clone(),
            source: io::Error::other("404").into(),
        };
        if let Some(times) = self.vanished.lock().get_mut(&key)
            && *times > 0
        {
            *times -= 1;
            return Err(not_found());
        }
        if let Some(version) = &options.version {
            let bytes = self.versions.get(&(key.clone(), version.clone()));
            let bytes = bytes.ok_or_else(not_found)?;
            let scratch = InMemory::new();
            scratch
                .put_opts(location, bytes.clone().into(), PutOptions::default())
                .await?;
            return scratch.get_opts(location, GetOptions::default()).await;
        }
        self.memory.get_opts(location, options).await
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let name = prefix.map(Path::to_string).unwrap_or_default();
        let number = self.lists();
        *self.lists.lock().entry(name).or_default() += 1;
        (self.before_list.lock())(number);
        let listed: Vec<_> = futures::executor::block_on(self.memory.list(prefix).collect());
        let shown = listed.into_iter().filter(|object| {
            let object = object.as_ref();
            object.is_ok_and(|object| !(self.hides)(number, object.location.as_ref()))
        });
        futures::stream::iter(shown.collect::<Vec<_>>()).boxed()
    }

    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        unreachable!("a verifier never writes")
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        unreachable!("a verifier never writes")
    }

    fn delete_stream(
        &self,
        _: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        unreachable!("a verifier never deletes")
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.memory.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        unreachable!("a verifier never writes")
    }
}

impl fmt::Debug for ReadOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadOnly")
    }
}

impl fmt::Display for ReadOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadOnly")
    }
}
