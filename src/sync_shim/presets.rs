//! Ready-made tiers with Kafka's blocking interface, under the names that they have there.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;

use super::BlockingStorageManager;
use crate::archive::WormConfig;
#[cfg(feature = "gcp")]
use crate::backends::GcsConfig;
#[cfg(any(feature = "aws", feature = "gcp"))]
use crate::backends::ObjectStoreConfig;
#[cfg(feature = "aws")]
use crate::backends::S3Config;
use crate::backends::{Backend, LocalClient};
use crate::error::RemoteStorageError;
use crate::model::{CustomMetadata, IndexType, LogSegmentData, RemoteLogSegmentMetadata};
use crate::spi::RemoteStorageManager;
use crate::stack::{CloseReport, RemoteStorage, RemoteStorageBuilder};

/// A tier in a local directory, with the names and layout of Apache Kafka's `LocalTieredStorage`.
///
/// Each writes what the other reads. Kafka appends `kafka-tiered-storage` to the directory that it
/// is configured with, so to share a tier with it pass `<dir>/kafka-tiered-storage`.
///
/// An object is visible whole or not at all, and on the disk when a copy returns. It needs no
/// runtime around it and keeps no state: what a stopped process left is there for the next.
/// Unfinished files (`.NAME.RANDOM.tmp`) stand beside their target while a copy runs; what a crash
/// left of them, the next copy into the same partition removes. Kafka's class does not walk
/// directories that hold such a file.
///
/// ```
/// use std::collections::BTreeMap;
/// use krabka_remote_storage::{
///     IndexType, LeaderEpoch, LocalTieredStorage, LogSegmentData, RemoteLogSegmentDetails,
///     RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteLogSegmentState, RemoteStorageManager,
///     TopicIdPartition,
/// };
/// use uuid::Uuid;
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let dir = tempfile::tempdir()?;
///     let file = |name: &str, bytes: &[u8]| {
///         let path = dir.path().join(name);
///         std::fs::write(&path, bytes).map(|()| path)
///     };
///     let segment = LogSegmentData {
///         log_segment: file("00000000000000000000.log", b"record batches")?,
///         offset_index: file("00000000000000000000.index", b"offset index")?,
///         time_index: file("00000000000000000000.timeindex", b"time index")?,
///         transaction_index: None,
///         producer_snapshot_index: None,
///         leader_epoch_index: "0\n1\n0 0\n".into(),
///     };
///     let partition = TopicIdPartition::new(Uuid::new_v4(), "orders", 0);
///     let metadata = RemoteLogSegmentMetadata::new(
///         RemoteLogSegmentId::new(partition, Uuid::new_v4()),
///         0,
///         999,
///         1_700_000_000_000,
///         1,
///         1_700_000_000_123,
///         RemoteLogSegmentDetails::new(
///             14,
///             RemoteLogSegmentState::CopySegmentStarted,
///             BTreeMap::from([(LeaderEpoch(0), 0)]),
///         ),
///     )?;
///
///     let storage = LocalTieredStorage::new(dir.path().join("tier"));
///     storage.copy_log_segment_data(&metadata, &segment)?;
///     assert_eq!(storage.fetch_index(&metadata, IndexType::Offset)?, b"offset index");
///     assert_eq!(storage.fetch_log_segment(&metadata, 7, Some(13))?, b"batches");
///     storage.delete_log_segment_data(&metadata)?;
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct LocalTieredStorage {
    root: PathBuf,
    manager: BlockingStorageManager,
}

impl LocalTieredStorage {
    /// A tier in this directory, which the first copy creates if it is missing.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        let client = Arc::new(LocalClient::new(root.clone()));
        Self {
            root,
            manager: BlockingStorageManager::new(RemoteStorage::builder(client).assemble()),
        }
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }
}

impl fmt::Debug for LocalTieredStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalTieredStorage")
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

/// A tier in an object store: S3, Google Cloud Storage, or any [`ObjectStore`].
///
/// Keys are the file names of [`LocalTieredStorage`], behind the prefix if there is one. It needs no
/// runtime around it.
#[derive(Clone)]
pub struct S3RemoteStorage {
    backend: Backend,
    builder: RemoteStorageBuilder,
    is_archive: bool,
    manager: BlockingStorageManager,
}

impl S3RemoteStorage {
    /// A tier in a store that the caller has made; its own retries and timeouts must be off, as for
    /// [`Backend::from_object_store`].
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument) for a prefix that cannot stand in a
    /// key.
    pub fn with_store(
        store: Arc<dyn ObjectStore>,
        prefix: Option<String>,
    ) -> Result<Self, RemoteStorageError> {
        let prefix = prefix.unwrap_or_default();
        Backend::from_object_store(store, Some(&prefix)).map(Self::on)
    }

    /// A tier in an S3 bucket. Sends no request.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument) that names the field to change.
    #[cfg(feature = "aws")]
    pub fn from_s3_config(config: &S3Config) -> Result<Self, RemoteStorageError> {
        ObjectStoreConfig::S3(config.clone()).open().map(Self::on)
    }

    /// A tier in a bucket of Google Cloud Storage. Sends no request.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument) that names the field to change, and
    /// [`Io`](RemoteStorageError::Io) for a file of credentials that cannot be read.
    #[cfg(feature = "gcp")]
    pub fn from_gcs_config(config: &GcsConfig) -> Result<Self, RemoteStorageError> {
        ObjectStoreConfig::Gcs(config.clone()).open().map(Self::on)
    }

    /// Uploads files of `threshold` bytes and more in parts of `chunk_size` bytes.
    ///
    /// For a tier that is not yet in use: calls that clones make do not share limits with this one.
    /// With a chunk size of 0 every copy fails, with
    /// [`InvalidInput`](std::io::ErrorKind::InvalidInput).
    #[must_use]
    pub fn with_multipart_tuning(mut self, threshold: u64, chunk_size: usize) -> Self {
        self.backend.limits.multipart_threshold = threshold;
        self.backend.limits.multipart_chunk_size = chunk_size;
        let builder = self.builder.limits(self.backend.limits.clone());
        Self::of(self.backend, builder, self.is_archive)
    }

    /// Makes the tier a write-once archive, and waits until its store was looked at: see
    /// [`RemoteStorage::start_archive`], whose errors these are.
    ///
    /// For a tier that is not yet in use, as with
    /// [`with_multipart_tuning`](Self::with_multipart_tuning). It may be called from any thread,
    /// as the calls of a [`BlockingStorageManager`] may.
    pub fn with_worm(self, config: &WormConfig) -> Result<Self, RemoteStorageError> {
        let start = RemoteStorage::start_archive(self.backend.clone(), config);
        let builder = self.manager.wait(start)?;
        Ok(Self::of(self.backend, builder, true))
    }

    fn on(backend: Backend) -> Self {
        let builder = RemoteStorage::builder(backend.clone());
        Self::of(backend, builder, false)
    }

    fn of(backend: Backend, builder: RemoteStorageBuilder, is_archive: bool) -> Self {
        Self {
            manager: BlockingStorageManager::new(builder.clone().assemble()),
            backend,
            builder,
            is_archive,
        }
    }
}

impl fmt::Debug for S3RemoteStorage {
    /// Shows the prefix, and whether it is an archive: a store's own Debug may show credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3RemoteStorage")
            .field("prefix", &self.backend.prefix.as_path().as_ref())
            .field("archive", &self.is_archive)
            .finish_non_exhaustive()
    }
}

macro_rules! manage_with_field {
    ($($preset:ident,)*) => {$(
        impl $preset {
            /// The asynchronous handle, for callers that can await.
            pub fn storage(&self) -> &RemoteStorage {
                self.manager.storage()
            }

            /// Refuses new calls, waits up to `grace` for those in flight, and cuts off the rest;
            /// see [`BlockingStorageManager::close`].
            pub fn close(&self, grace: Duration) -> Result<CloseReport, RemoteStorageError> {
                self.manager.close(grace)
            }
        }

        impl RemoteStorageManager for $preset {
            fn copy_log_segment_data(
                &self,
                metadata: &RemoteLogSegmentMetadata,
                segment_data: &LogSegmentData,
            ) -> Result<Option<CustomMetadata>, RemoteStorageError> {
                self.manager.copy_log_segment_data(metadata, segment_data)
            }

            fn fetch_log_segment(
                &self,
                metadata: &RemoteLogSegmentMetadata,
                start_position: u32,
                end_position: Option<u32>,
            ) -> Result<Vec<u8>, RemoteStorageError> {
                self.manager.fetch_log_segment(metadata, start_position, end_position)
            }

            fn fetch_index(
                &self,
                metadata: &RemoteLogSegmentMetadata,
                index_type: IndexType,
            ) -> Result<Vec<u8>, RemoteStorageError> {
                self.manager.fetch_index(metadata, index_type)
            }

            fn delete_log_segment_data(
                &self,
                metadata: &RemoteLogSegmentMetadata,
            ) -> Result<(), RemoteStorageError> {
                self.manager.delete_log_segment_data(metadata)
            }
        }
    )*};
}

manage_with_field! { LocalTieredStorage, S3RemoteStorage, }
