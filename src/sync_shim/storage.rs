//! A storage handle as Kafka's blocking interface.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::bridge::Bridge;
use crate::error::RemoteStorageError;
use crate::model::{CustomMetadata, IndexType, LogSegmentData, RemoteLogSegmentMetadata};
use crate::ops::{CopySegment, DeleteSegment, FetchIndex, FetchSegment};
use crate::spi::RemoteStorageManager;
use crate::stack::{CloseReport, RemoteStorage};

/// A [`RemoteStorage`] as a blocking [`RemoteStorageManager`].
///
/// It may be called from any thread, a worker of a runtime included, and dropped anywhere. A thread
/// outside of any runtime and one of `spawn_blocking` make the call themselves; a worker of a
/// multi-thread runtime hands its tasks over first; on every other thread a helper thread makes it.
/// A clone is one reference and shares everything.
///
/// # Errors
///
/// Those of the handle; besides, [`InvalidArgument`](RemoteStorageError::InvalidArgument) after
/// [`close`](Self::close), or where waiting could never end (see [`with_handle`](Self::with_handle)),
/// and [`Io`](RemoteStorageError::Io) when no thread can be started or the call panicked.
#[derive(Clone)]
pub struct BlockingStorageManager {
    storage: RemoteStorage,
    bridge: Arc<Bridge>,
}

impl BlockingStorageManager {
    /// A face that runs calls on a runtime of its own, which the first call starts.
    pub fn new(storage: RemoteStorage) -> Self {
        Self {
            storage,
            bridge: Arc::new(Bridge::with_own_runtime()),
        }
    }

    /// A face that runs calls on this runtime, which must live as long as calls are made.
    ///
    /// Calls made by the runtime's own threads run on another one, so that it never waits for
    /// itself. A call made on the only thread of a current-thread runtime is refused with
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument): it would stop all tasks there, and
    /// may be waiting for one of them.
    pub fn with_handle(storage: RemoteStorage, handle: Handle) -> Self {
        Self {
            storage,
            bridge: Arc::new(Bridge::on(handle)),
        }
    }

    /// Waits for other work than the handle's, as its calls are waited for.
    pub(super) fn wait<T: Send>(
        &self,
        call: impl Future<Output = Result<T, RemoteStorageError>> + Send,
    ) -> Result<T, RemoteStorageError> {
        self.bridge.wait(call)
    }

    /// The handle below.
    pub fn storage(&self) -> &RemoteStorage {
        &self.storage
    }

    /// Closes the [handle](RemoteStorage::close), waiting up to `grace` for calls in flight, and then
    /// stops the own runtime, if there is one. Closing twice is harmless.
    ///
    /// # Errors
    ///
    /// When it was called where waiting could never end: nothing is closed then.
    pub fn close(&self, grace: Duration) -> Result<CloseReport, RemoteStorageError> {
        if self.bridge.is_closed() {
            return Ok(CloseReport::default());
        }
        let report = self
            .bridge
            .wait(async { Ok(self.storage.close(grace).await) })?;
        self.bridge.close();
        Ok(report)
    }
}

impl fmt::Debug for BlockingStorageManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingStorageManager")
            .field("storage", &self.storage)
            .field("bridge", &self.bridge)
            .finish()
    }
}

impl RemoteStorageManager for BlockingStorageManager {
    fn copy_log_segment_data(
        &self,
        metadata: &RemoteLogSegmentMetadata,
        segment_data: &LogSegmentData,
    ) -> Result<Option<CustomMetadata>, RemoteStorageError> {
        let op = CopySegment::new(metadata.clone(), segment_data.clone());
        let receipt = self.bridge.wait(self.storage.copy(op))?;
        Ok(receipt.custom_metadata)
    }

    fn fetch_log_segment(
        &self,
        metadata: &RemoteLogSegmentMetadata,
        start_position: u32,
        end_position: Option<u32>,
    ) -> Result<Vec<u8>, RemoteStorageError> {
        let op = FetchSegment::new(metadata.clone(), start_position, end_position);
        // Bytes that nobody else holds become the vector as they are.
        self.bridge.wait(self.storage.fetch(op)).map(Vec::from)
    }

    fn fetch_index(
        &self,
        metadata: &RemoteLogSegmentMetadata,
        index_type: IndexType,
    ) -> Result<Vec<u8>, RemoteStorageError> {
        let op = FetchIndex::new(metadata.clone(), index_type);
        self.bridge
            .wait(self.storage.fetch_index(op))
            .map(Vec::from)
    }

    fn delete_log_segment_data(
        &self,
        metadata: &RemoteLogSegmentMetadata,
    ) -> Result<(), RemoteStorageError> {
        let op = DeleteSegment::new(metadata.clone());
        self.bridge.wait(self.storage.delete(op))
    }
}
