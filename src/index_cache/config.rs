//! How a cache is set up.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Size of an index cache in bytes, unless it is set: 1 GiB, as Kafka's
/// `remote.log.index.file.cache.total.size.bytes`.
pub const DEFAULT_INDEX_CACHE_TOTAL_SIZE_BYTES: u64 = 1 << 30;

/// Kafka's `remote.log.index.file.cache.ttl.ms`.
const DEFAULT_TIME_TO_IDLE: Duration = Duration::from_mins(15);

const DEFAULT_MAX_LOADING_BYTES: u64 = 128 << 20;

/// Where a [`RemoteIndexCache`](super::RemoteIndexCache) keeps what, and how much of it.
#[derive(Clone, Debug)]
pub struct IndexCacheConfig {
    pub(super) storage: Storage,
    pub(super) max_bytes: u64,
    pub(super) time_to_idle: Option<Duration>,
    pub(super) max_loading_bytes: u64,
}

#[derive(Clone, Debug)]
pub(super) enum Storage {
    Memory,
    Files { log_dir: PathBuf, keep: bool },
}

impl IndexCacheConfig {
    /// A cache in files in the directory
    /// [`remote-log-index-cache`](crate::layout::REMOTE_INDEX_CACHE_DIR) below `log_dir`, as
    /// Kafka has it. Searches read a page or two of a file; memory holds a checksum and an entry of
    /// each page, 4 bytes for each KiB, and no file stays open.
    pub fn files(log_dir: impl AsRef<Path>) -> Self {
        Self::new(Storage::Files {
            log_dir: log_dir.as_ref().to_owned(),
            keep: false,
        })
    }

    /// A cache in memory.
    pub fn memory() -> Self {
        Self::new(Storage::Memory)
    }

    fn new(storage: Storage) -> Self {
        Self {
            storage,
            max_bytes: DEFAULT_INDEX_CACHE_TOTAL_SIZE_BYTES,
            time_to_idle: Some(DEFAULT_TIME_TO_IDLE),
            max_loading_bytes: DEFAULT_MAX_LOADING_BYTES,
        }
    }

    /// Keeps files for the next process, which finds them when it sets this too: a warm restart.
    /// Without it the directory is emptied each time it is opened. Of no effect in memory.
    ///
    /// A file that is found is checked against the checksum in its name before its first use. It
    /// is written without `fsync`, so after a power failure some are not found to be good.
    #[must_use]
    pub fn keep_files(mut self) -> Self {
        if let Storage::Files { keep, .. } = &mut self.storage {
            *keep = true;
        }
        self
    }

    /// How much is kept, in bytes; [`DEFAULT_INDEX_CACHE_TOTAL_SIZE_BYTES`] unless it is set.
    ///
    /// An index of less than 32 bytes counts for 32. Loads under way come on top, and so do
    /// evicted indexes for as long as somebody holds them.
    #[must_use]
    pub fn max_bytes(mut self, max_bytes: u64) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// For how long an index may stay that nobody asks for, within a quarter; `None` keeps it.
    /// 15 minutes unless it is set, as in Kafka.
    #[must_use]
    pub fn time_to_idle(mut self, time_to_idle: Option<Duration>) -> Self {
        self.time_to_idle = time_to_idle;
        self
    }

    /// How many bytes may be loading at once; further loads wait. 128 MiB unless it is set.
    ///
    /// A load counts for what its segment's size lets expect, and from its answer on for what it
    /// is. One that is larger than all that may load at once goes alone.
    #[must_use]
    pub fn max_loading_bytes(mut self, max_loading_bytes: u64) -> Self {
        self.max_loading_bytes = max_loading_bytes;
        self
    }
}
