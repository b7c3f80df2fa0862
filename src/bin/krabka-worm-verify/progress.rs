//! Progress: how much was listed and read so far, on a terminal, and each read in the logs.

use std::fmt;
use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressState, ProgressStyle};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

const REFRESH: Duration = Duration::from_millis(200);

/// What is counted while the archive is read, and shown where standard error is a terminal.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    listed: AtomicU64,
    read: AtomicU64,
    bytes: AtomicU64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        write!(
            f,
            "{} listed, {} read, {}",
            HumanCount(count(&self.listed)),
            HumanCount(count(&self.read)),
            HumanBytes(count(&self.bytes))
        )
    }
}

impl Progress {
    pub(crate) fn start() -> Self {
        let counts = Arc::<Counts>::default();
        let bar = io::stderr().is_terminal().then(|| bar(Arc::clone(&counts)));
        Self { bar, counts }
    }

    /// The store, with what is read from it counted.
    pub(crate) fn watch(&self, store: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
        Arc::new(Watched {
            store,
            counts: Arc::clone(&self.counts),
        })
    }

    /// Leaves the terminal as it was.
    pub(crate) fn end(self) {
        tracing::info!("done: {}", self.counts);
    }
}

fn bar(counts: Arc<Counts>) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {elapsed} {counts}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
        .with_key(
            "counts",
            move |_: &ProgressState, text: &mut dyn fmt::Write| {
                let _ = write!(text, "{counts}");
            },
        );
    let bar = ProgressBar::new_spinner().with_style(style);
    bar.enable_steady_tick(REFRESH);
    bar
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Passes everything on, and counts.
#[derive(Debug)]
struct Watched {
    store: Arc<dyn ObjectStore>,
    counts: Arc<Counts>,
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Watched {
    async fn get_opts(&self, key: &Path, options: GetOptions) -> Result<GetResult> {
        let is_read = !options.head;
        tracing::debug!(%key, version = options.version, is_read, "asking for an object");
        let result = self.store.get_opts(key, options).await?;
        if is_read {
            self.counts.read.fetch_add(1, Ordering::Relaxed);
            let size = result.meta.size;
            self.counts.bytes.fetch_add(size, Ordering::Relaxed);
        }
        Ok(result)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        tracing::debug!(prefix = prefix.map(Path::as_ref), "listing");
        let counts = Arc::clone(&self.counts);
        let objects = self.store.list(prefix).inspect(move |_| {
            counts.listed.fetch_add(1, Ordering::Relaxed);
        });
        objects.boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn put_opts(
        &self,
        key: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.store.put_opts(key, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        key: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(key, options).await
    }

    fn delete_stream(
        &self,
        keys: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.store.delete_stream(keys)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.store.copy_opts(from, to, options).await
    }
}
