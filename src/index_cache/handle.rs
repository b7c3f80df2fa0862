//! An index that was found, to be searched.

use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::content::{Fetch, IndexCacheOutcome, blocking};
use super::file::{FileEntries, IndexFile};
use super::inner::Inner;
use super::wanted::Wanted;
use crate::error::RemoteStorageError;
use crate::index::{
    AbortedTxnIndexEntry, BytePosition, LogOffset, OffsetIndex, OffsetIndexEntry, OffsetPosition,
    OffsetRange, TimeIndex, TimestampMs, TimestampOffset, TxnIndex, TxnIndexSearchResult,
    lookup_offset, lookup_offset_range, lookup_scan_start, lookup_upper_bound_offset,
    search_txn_index,
};
use crate::model::{IndexType, OpKind, RemoteLogSegmentMetadata};
use crate::ops::{OpenIndex, StorageOp};

/// One index of a segment, as [`OpenIndex`] answers it. A clone is one
/// reference.
///
/// It stays good whatever the cache evicts or removes meanwhile; the memory or the file goes with
/// its last holder, so it is not to be kept for long. A search in memory allocates nothing and
/// does not wait. In a file it reads a block or two of 4 KiB, each checked against a checksum, on a
/// thread that may block; a transaction index takes as many as its answer is long.
///
/// # Errors
///
/// Searches and reads fail only when a file turns out to be unreadable and the index could not be
/// fetched again, with the error of that fetch, and with
/// [`InvalidArgument`](RemoteStorageError::InvalidArgument) when it is an index of another kind.
#[derive(Clone)]
pub struct IndexHandle {
    index: IndexType,
    base_offset: LogOffset,
    source: Source,
    outcome: IndexCacheOutcome,
}

#[derive(Clone)]
pub(super) enum Source {
    Memory(Bytes),
    File(Arc<FromFile>),
}

/// An index in a file, and how to get it when the file fails.
pub(super) struct FromFile {
    pub(super) file: Arc<IndexFile>,
    pub(super) cache: Arc<Inner>,
    pub(super) wanted: Wanted,
    pub(super) fetch: Fetch,
}

impl IndexHandle {
    pub(super) fn new(
        metadata: &RemoteLogSegmentMetadata,
        index: IndexType,
        source: Source,
        outcome: IndexCacheOutcome,
    ) -> Self {
        Self {
            index,
            base_offset: metadata.start_offset(),
            source,
            outcome,
        }
    }

    /// Which index it is.
    pub fn index(&self) -> IndexType {
        self.index
    }

    /// What the cache had to do with it.
    pub fn outcome(&self) -> IndexCacheOutcome {
        self.outcome
    }

    /// Its size in bytes; 0 when the segment has no such index.
    pub fn len(&self) -> usize {
        match &self.source {
            Source::Memory(bytes) => bytes.len(),
            Source::File(from) => from.file.len(),
        }
    }

    /// Whether it has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of its bytes; without a copy when they are in memory.
    pub async fn bytes(&self) -> Result<Bytes, RemoteStorageError> {
        match &self.source {
            Source::Memory(bytes) => Ok(bytes.clone()),
            Source::File(from) => from.whole().await,
        }
    }

    /// Where to start reading for `offset`, by an offset index: [`OffsetIndex::lookup`].
    pub async fn lookup(&self, offset: LogOffset) -> Result<OffsetPosition, RemoteStorageError> {
        self.expect(IndexType::Offset)?;
        let base_offset = self.base_offset;
        let in_bytes = |bytes: &[u8]| OffsetIndex::new(base_offset, bytes).lookup(offset);
        self.search(in_bytes, move |entries| {
            let range = entries.narrowed(|count, first: &mut dyn FnMut(usize) -> _| {
                lookup_offset(base_offset, count, offset, first)
            });
            let entry = |entry| entries.get(range.start + entry);
            lookup_offset(base_offset, range.len(), offset, entry)
        })
        .await
    }

    /// Between which batches the one that holds `offset` lies, by an offset index:
    /// [`OffsetIndex::lookup_range`].
    pub async fn lookup_range(&self, offset: LogOffset) -> Result<OffsetRange, RemoteStorageError> {
        self.expect(IndexType::Offset)?;
        let base_offset = self.base_offset;
        let in_bytes = |bytes: &[u8]| OffsetIndex::new(base_offset, bytes).lookup_range(offset);
        self.search(in_bytes, move |entries| {
            let range = entries.narrowed(|count, first: &mut dyn FnMut(usize) -> _| {
                lookup_offset(base_offset, count, offset, first)
            });
            let entry = |entry| entries.get(range.start + entry);
            lookup_offset_range(base_offset, range.len(), offset, entry)
        })
        .await
    }

    /// Beyond which offset a fetch of `fetch_size` bytes from `position` on cannot go, by an offset
    /// index: [`OffsetIndex::fetch_upper_bound_offset`].
    pub async fn fetch_upper_bound_offset(
        &self,
        position: BytePosition,
        fetch_size: usize,
    ) -> Result<Option<LogOffset>, RemoteStorageError> {
        self.expect(IndexType::Offset)?;
        let base_offset = self.base_offset;
        let in_bytes = |bytes: &[u8]| {
            OffsetIndex::new(base_offset, bytes).fetch_upper_bound_offset(position, fetch_size)
        };
        self.search(in_bytes, move |entries| {
            let count = entries.count::<OffsetIndexEntry>();
            let fetched = (position, fetch_size);
            lookup_upper_bound_offset(base_offset, count, fetched, |entry| entries.get(entry))
        })
        .await
    }

    /// From which entry on to look for `timestamp`, by a time index: [`TimeIndex::scan_start`].
    pub async fn scan_start(
        &self,
        timestamp: TimestampMs,
    ) -> Result<TimestampOffset, RemoteStorageError> {
        self.expect(IndexType::Timestamp)?;
        let base_offset = self.base_offset;
        let in_bytes = |bytes: &[u8]| TimeIndex::new(base_offset, bytes).scan_start(timestamp);
        self.search(in_bytes, move |entries| {
            let range = entries.narrowed(|count, first: &mut dyn FnMut(usize) -> _| {
                lookup_scan_start(base_offset, count, timestamp, first)
            });
            let entry = |entry| entries.get(range.start + entry);
            lookup_scan_start(base_offset, range.len(), timestamp, entry)
        })
        .await
    }

    /// The aborted transactions that concern a fetch of the offsets from `fetch_offset` up to and
    /// without `upper_bound_offset`, by a transaction index: [`TxnIndex::collect_aborted_txns`].
    pub async fn collect_aborted_txns(
        &self,
        fetch_offset: LogOffset,
        upper_bound_offset: LogOffset,
    ) -> Result<TxnIndexSearchResult, RemoteStorageError> {
        self.expect(IndexType::Transaction)?;
        let base_offset = self.base_offset;
        let in_bytes = |bytes: &[u8]| {
            TxnIndex::new(base_offset, bytes).collect_aborted_txns(fetch_offset, upper_bound_offset)
        };
        self.search(in_bytes, move |entries| {
            let count = entries.count::<AbortedTxnIndexEntry>();
            search_txn_index(count, fetch_offset, upper_bound_offset, |entry| {
                entries.get(entry)
            })
        })
        .await
    }

    /// One search, in memory or by positioned reads.
    async fn search<T: Send + 'static>(
        &self,
        in_bytes: impl FnOnce(&[u8]) -> T,
        in_file: impl FnOnce(&mut FileEntries<'_>) -> io::Result<T> + Send + 'static,
    ) -> Result<T, RemoteStorageError> {
        let from = match &self.source {
            Source::Memory(bytes) => return Ok(in_bytes(bytes)),
            Source::File(from) => from,
        };
        let file = Arc::clone(&from.file);
        match blocking(move || in_file(&mut file.entries()?)).await {
            Ok(found) => Ok(found),
            Err(error) => {
                let key = from.wanted.key;
                from.cache.discard(key, &from.file, &error).await;
                Ok(in_bytes(&from.anew().await?))
            }
        }
    }

    fn expect(&self, index: IndexType) -> Result<(), RemoteStorageError> {
        if self.index == index {
            return Ok(());
        }
        Err(RemoteStorageError::InvalidArgument(format!(
            "this search is one in `*{}` and not in `*{}`: open that index",
            index.suffix(),
            self.index.suffix()
        )))
    }
}

impl fmt::Debug for IndexHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexHandle")
            .field("index", &self.index)
            .field("base_offset", &self.base_offset)
            .field("len", &self.len())
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}

impl FromFile {
    async fn whole(&self) -> Result<Bytes, RemoteStorageError> {
        match self.cache.read(self.wanted.key, &self.file).await {
            Ok(bytes) => Ok(bytes),
            Err(_) => self.anew().await,
        }
    }

    /// The index by way of the cache, from which the file is gone.
    async fn anew(&self) -> Result<Bytes, RemoteStorageError> {
        let fetch = Arc::clone(&self.fetch);
        let (bytes, _) = self.cache.read_or_load(self.wanted, None, fetch).await?;
        Ok(bytes.unwrap_or_default())
    }
}

impl StorageOp for OpenIndex {
    type Output = IndexHandle;
    /// It is one more way to fetch an index, in spans and metrics too.
    const KIND: OpKind = OpKind::FetchIndex;

    fn segment(&self) -> Option<&Arc<RemoteLogSegmentMetadata>> {
        Some(&self.metadata)
    }

    fn bytes_answered(index: &IndexHandle) -> u64 {
        match index.outcome() {
            IndexCacheOutcome::Hit => 0,
            IndexCacheOutcome::Miss | IndexCacheOutcome::Disabled => index.len() as u64,
        }
    }
}
