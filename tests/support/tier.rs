//! A tier of made-up segments over the test store, and a reader of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{BufMut, Bytes};
use krabka_remote_storage::RemoteIndexCache;
use krabka_remote_storage::backends::{ObjectStoreClient, RequestLimits, StoreHandles};
use krabka_remote_storage::layout::{KeyPrefix, segment_key};
use krabka_remote_storage::metadata::InmemoryRemoteLogMetadataManager;
use krabka_remote_storage::{
    IndexType, LOG_FILE_SUFFIX, RemoteLogMetadataStore, RemoteLogReader, RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState, RemoteStorage, RemoteStorageBuilder,
    TopicIdPartition,
};
use object_store::ObjectStoreExt as _;
use object_store::path::Path;

use crate::support::with;
use krabka_remote_storage::testing::batches::{SegmentFiles, UniformLog};
use krabka_remote_storage::testing::segments::{SegmentSpec, orders};
use krabka_remote_storage::testing::store::TestStore;

/// A tier, and the metadata of what is in it.
pub struct MadeTier {
    pub store: Arc<TestStore>,
    pub metadata: Arc<InmemoryRemoteLogMetadataManager>,
}

/// A segment to be put into a tier. Objects that are `None` are left out.
#[derive(Clone, Debug)]
pub struct MadeSegment {
    pub id: u128,
    pub partition: i32,
    pub start_offset: i64,
    pub end_offset: i64,
    pub max_timestamp: i64,
    /// As the metadata says.
    pub size: i32,
    pub epochs: BTreeMap<i32, i64>,
    /// Entries of the leader-epoch checkpoint. When it is empty they are those of `epochs`, the
    /// first one from offset 0 on.
    pub checkpoint: BTreeMap<i32, i64>,
    pub txn_index_empty: bool,
    /// Producers with an open transaction at the segment's end, and its first offset.
    pub open_transactions: Vec<(i64, i64)>,
    pub log: Option<Bytes>,
    pub offset_index: Option<Bytes>,
    pub time_index: Option<Bytes>,
    pub txn_index: Option<Bytes>,
}

impl MadeSegment {
    /// A segment of epoch 0 of these files.
    pub fn new(id: u128, files: &SegmentFiles) -> Self {
        Self {
            id,
            partition: 0,
            start_offset: files.base_offset,
            end_offset: files.last_offset,
            max_timestamp: files.last_offset,
            size: i32::try_from(files.log.len()).unwrap(),
            epochs: BTreeMap::from([(0, files.base_offset)]),
            checkpoint: BTreeMap::new(),
            txn_index_empty: files.txn_index.is_empty(),
            open_transactions: Vec::new(),
            log: Some(files.log.clone().into()),
            offset_index: Some(files.offset_index.clone().into()),
            time_index: Some(files.time_index.clone().into()),
            txn_index: (!files.txn_index.is_empty()).then(|| files.txn_index.clone().into()),
        }
    }

    pub fn partition_id(&self) -> TopicIdPartition {
        partition(self.partition)
    }

    pub fn metadata(&self) -> RemoteLogSegmentMetadata {
        let epochs: Vec<_> = self.epochs.clone().into_iter().collect();
        let spec = SegmentSpec::new(self.id, self.start_offset..=self.end_offset);
        let spec = spec.of(&self.partition_id()).epochs(&epochs);
        let segment = spec.size(self.size).at(self.max_timestamp, 0).make();
        segment.with_txn_index_empty(self.txn_index_empty)
    }

    /// The key of one of its objects.
    pub fn key(&self, suffix: &str) -> Path {
        segment_key(&KeyPrefix::default(), &self.metadata(), suffix).unwrap()
    }

    fn checkpoint_text(&self) -> String {
        let mut entries = self.checkpoint.clone();
        if entries.is_empty() {
            entries.clone_from(&self.epochs);
            if let Some(mut first) = entries.first_entry() {
                first.insert(0);
            }
        }
        let lines: String = entries
            .iter()
            .map(|(epoch, start)| format!("{epoch} {start}\n"))
            .collect();
        format!("0\n{}\n{lines}", entries.len())
    }

    fn producer_snapshot(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.put_i32(i32::try_from(self.open_transactions.len()).unwrap());
        for (producer_id, first_offset) in &self.open_transactions {
            body.put_i64(*producer_id);
            body.put_i16(0);
            body.put_i32(0);
            body.put_i64(*first_offset);
            body.put_i32(0);
            body.put_i64(0);
            body.put_i32(0);
            body.put_i64(*first_offset);
        }
        let mut snapshot = Vec::new();
        snapshot.put_i16(1);
        snapshot.put_u32(crc32c::crc32c(&body));
        snapshot.extend(body);
        snapshot
    }
}

/// Partition `orders-N`.
pub fn partition(index: i32) -> TopicIdPartition {
    orders(1, index)
}

impl MadeTier {
    pub fn new() -> Self {
        Self {
            store: TestStore::new(),
            metadata: Arc::new(InmemoryRemoteLogMetadataManager::new()),
        }
    }

    /// A handle that repeats nothing, so that each failure and each request shows.
    pub fn storage(&self) -> RemoteStorage {
        self.builder().build().unwrap()
    }

    fn builder(&self) -> RemoteStorageBuilder {
        let handles = StoreHandles::with_multipart(Arc::clone(&self.store));
        RemoteStorage::builder(Arc::new(ObjectStoreClient::new(handles)))
            .limits(with(RequestLimits::default(), |it| it.max_retries = 0))
    }

    pub fn reader(&self) -> RemoteLogReader {
        RemoteLogReader::new(self.storage(), Arc::clone(&self.metadata) as _)
    }

    /// A reader whose indexes come from this cache.
    pub fn cached_reader(&self, cache: &RemoteIndexCache) -> RemoteLogReader {
        let storage = self.builder().index_cache(cache.clone()).build().unwrap();
        RemoteLogReader::new(storage, Arc::clone(&self.metadata) as _)
    }

    /// The same, that reads ahead at most this far.
    pub fn cached_reader_with_read_ahead(
        &self,
        cache: &RemoteIndexCache,
        max_read_ahead: usize,
    ) -> RemoteLogReader {
        let storage = self.builder().index_cache(cache.clone()).build().unwrap();
        let metadata = Arc::clone(&self.metadata) as _;
        RemoteLogReader::with_read_ahead(storage, metadata, max_read_ahead)
    }

    /// Puts a segment's objects into the store and makes it readable.
    pub async fn add(&self, segment: &MadeSegment) {
        self.put(segment).await;
        self.finish(segment).await;
    }

    /// Puts a segment's objects into the store.
    pub async fn put(&self, segment: &MadeSegment) {
        let objects = [
            (LOG_FILE_SUFFIX, segment.log.clone()),
            (IndexType::Offset.suffix(), segment.offset_index.clone()),
            (IndexType::Timestamp.suffix(), segment.time_index.clone()),
            (IndexType::Transaction.suffix(), segment.txn_index.clone()),
            (
                IndexType::ProducerSnapshot.suffix(),
                Some(segment.producer_snapshot().into()),
            ),
            (
                IndexType::LeaderEpoch.suffix(),
                Some(segment.checkpoint_text().into()),
            ),
        ];
        for (suffix, bytes) in objects {
            if let Some(bytes) = bytes {
                let key = segment.key(suffix);
                self.store.inner.put(&key, bytes.into()).await.unwrap();
            }
        }
    }

    /// Makes a segment readable.
    pub async fn finish(&self, segment: &MadeSegment) {
        self.metadata.add_segment(segment.metadata()).await.unwrap();
        self.update(segment, RemoteLogSegmentState::CopySegmentFinished)
            .await;
    }

    /// Moves a segment to another state.
    pub async fn update(&self, segment: &MadeSegment, state: RemoteLogSegmentState) {
        let id = segment.metadata().remote_log_segment_id().clone();
        let update = RemoteLogSegmentMetadataUpdate::new(id, 1, None, state, 1);
        self.metadata.update_segment(update).await.unwrap();
    }

    /// Adds a segment of epoch 0 whose log takes no memory.
    pub async fn add_uniform(&self, id: u128, log: UniformLog, base_offset: i64) -> MadeSegment {
        let segment = MadeSegment {
            end_offset: log.end_offset(),
            max_timestamp: 0,
            size: i32::try_from(log.size()).unwrap(),
            offset_index: Some(log.offset_index().into()),
            log: None,
            ..MadeSegment::new(id, &SegmentFiles::new(base_offset))
        };
        let key = segment.key(LOG_FILE_SUFFIX);
        self.store
            .generate(&key, log.size(), move |range| log.bytes(range));
        self.add(&segment).await;
        segment
    }

    /// The suffix of each object that was asked for, and how many bytes.
    pub fn gets(&self) -> Vec<(String, u64)> {
        let requests = self.store.requests();
        let gets = requests.iter().map(|request| {
            assert_eq!(request.kind, "get", "{request:?}");
            let (_, suffix) = request.key.rsplit_once('.').unwrap();
            (format!(".{suffix}"), request.bytes)
        });
        gets.collect()
    }

    /// How many GETs there were of objects with this suffix.
    pub fn gets_of(&self, suffix: &str) -> usize {
        let gets = self.gets();
        gets.iter().filter(|(of, _)| of == suffix).count()
    }

    /// How many bytes were asked for.
    pub fn bytes_down(&self) -> u64 {
        self.gets().iter().map(|(_, bytes)| bytes).sum()
    }
}
