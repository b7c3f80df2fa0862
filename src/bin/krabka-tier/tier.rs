//! A tier as its listing shows it. Without a metadata store the listing is all there is.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use futures::{Stream, StreamExt as _, stream};
use krabka_remote_storage::IndexCacheConfig;
use krabka_remote_storage::archive::WORM_PROBE_NAME;
use krabka_remote_storage::backends::{Backend, ObjectStoreConfig};
use krabka_remote_storage::layout::{
    KeyPrefix, parse_partition_dir_name, parse_segment_file_name, partition_dir_key,
};
use krabka_remote_storage::model::{
    LeaderEpoch, RemoteLogSegmentDetails, RemoteLogSegmentId, RemoteLogSegmentMetadata,
    RemoteLogSegmentState, TopicIdPartition, decode_kafka_uuid, kafka_uuid,
};
use krabka_remote_storage::ops::{Head, List, ListUploads, Listing, OpenUpload, StoreTarget};
use krabka_remote_storage::rebuild::{ListedSegment, list_segments};
use krabka_remote_storage::{MANIFEST_SUFFIX, RemoteStorage, RemoteStorageError};
use object_store::path::Path;
use uuid::Uuid;

use crate::copy::{Chains, Holds, SealKeys};
use crate::failure::Failure;
use crate::stats::Stats;

/// How many requests a command has under way at once.
pub(crate) const CONCURRENT_REQUESTS: usize = 32;

/// How many bytes of indexes a read keeps.
const INDEX_CACHE_BYTES: u64 = 64 << 20;

/// How patient the program is with a store.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Seconds that one request may take, its repetitions and pauses included.
    ///
    /// A store that cannot be reached is given up after this time; what already moves is not cut.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, global = true,
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    retry_timeout: u64,
}

impl Patience {
    pub(crate) fn time(self) -> Duration {
        Duration::from_secs(self.retry_timeout)
    }
}

/// Whether a tier that does not exist yet is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    Create,
    Refuse,
}

/// An opened tier.
#[derive(Clone, Debug)]
pub(crate) struct Tier {
    pub(crate) storage: RemoteStorage,
    /// The chains that copies continue, where the tier was opened as an archive to write.
    pub(crate) chains: Option<Chains>,
    location: String,
}

impl Tier {
    /// Opens the tier at a URL. Sends no request.
    pub(crate) fn open(url: &str, patience: Patience, missing: Missing) -> Result<Self, Failure> {
        Self::on(Self::backend(url, patience, missing)?)
    }

    /// Opens the tier at a URL to read records: indexes are kept, and requests are counted.
    pub(crate) fn open_for_reading(
        url: &str,
        patience: Patience,
    ) -> Result<(Self, Stats), Failure> {
        let stats = Stats::default();
        let mut backend = Self::backend(url, patience, Missing::Refuse)?;
        backend.client = stats.of(backend.client);
        let location = backend.location().to_owned();
        let index_cache = IndexCacheConfig::memory()
            .max_bytes(INDEX_CACHE_BYTES)
            .open()?;
        let storage = RemoteStorage::builder(backend)
            .index_cache(index_cache)
            .build()?;
        let tier = Self {
            storage,
            chains: None,
            location,
        };
        Ok((tier, stats))
    }

    /// Opens the tier at a URL as a write-once archive, and makes sure that it can be one.
    pub(crate) async fn open_archive(
        url: &str,
        patience: Patience,
        keys: SealKeys,
    ) -> Result<Self, Failure> {
        let backend = Self::backend(url, patience, Missing::Create)?;
        let location = backend.location().to_owned();
        let root = match ObjectStoreConfig::from_url(url)? {
            ObjectStoreConfig::Local { root } => Some(root),
            _ => None,
        };
        if root.is_some() && !keys.config.allow_unprotected {
            return Err(Failure::Refused(format!(
                "{location} is a local directory, which cannot refuse deletion: --allow-unprotected \
                 seals there all the same, and auditors are told"
            )));
        }
        let Some(reads) = backend.object_store.clone() else {
            return Err(Failure::Refused(format!(
                "{location} cannot be read without layers, as a verifier does"
            )));
        };
        let storage = RemoteStorage::start_archive(backend, &keys.config).await?;
        Ok(Self {
            storage: storage.build()?,
            chains: Some(Chains {
                reads,
                trusted: keys.trusted,
                holds: root.map(Holds::below),
            }),
            location,
        })
    }

    fn backend(url: &str, patience: Patience, missing: Missing) -> Result<Backend, Failure> {
        let config = ObjectStoreConfig::from_url(url)?;
        match &config {
            ObjectStoreConfig::InMemory => {
                return Err(Failure::Refused(
                    "a tier at memory:/// ends with the process that made it: there is nothing in \
                     it to read, and nothing would be left of a copy; use file:///DIRECTORY"
                        .to_owned(),
                ));
            }
            ObjectStoreConfig::Local { root } if missing == Missing::Refuse && !root.is_dir() => {
                return Err(Failure::Refused(format!(
                    "there is no tier: {} is no directory",
                    root.display()
                )));
            }
            _ => {}
        }
        let mut backend = config.open()?;
        let retry_timeout = patience.time();
        backend.limits.retry_timeout = retry_timeout;
        backend.limits.request_timeout = backend.limits.request_timeout.min(retry_timeout / 2);
        Ok(backend)
    }

    pub(crate) fn on(backend: Backend) -> Result<Self, Failure> {
        let location = backend.location().to_owned();
        Ok(Self {
            storage: RemoteStorage::builder(backend).build()?,
            chains: None,
            location,
        })
    }

    /// Where the tier is, without anything secret.
    pub(crate) fn location(&self) -> &str {
        &self.location
    }

    /// The key of a partition's directory.
    pub(crate) fn directory(
        &self,
        partition: &TopicIdPartition,
    ) -> Result<Path, RemoteStorageError> {
        partition_dir(self.prefix(), partition)
    }

    fn prefix(&self) -> &KeyPrefix {
        self.storage.prefix()
    }

    /// Whether the store can hold segments of the partition at all: local names have a limit.
    pub(crate) fn check_partition(
        &self,
        partition: &TopicIdPartition,
    ) -> Result<(), RemoteStorageError> {
        let any_segment = any_segment(partition)?;
        self.storage.check_segment(&any_segment)
    }

    /// Every partition with a directory in the tier, by topic, partition and id.
    pub(crate) async fn partitions(&self) -> Result<Vec<TopicIdPartition>, Failure> {
        let root = self.prefix().as_path().clone();
        let listing = self
            .list(root)
            .await
            .map_err(|error| self.unlisted(error))?;
        let mut partitions: Vec<_> = listing
            .prefixes
            .iter()
            .filter_map(|dir| parse_partition_dir_name(dir.filename()?))
            .map(|name| TopicIdPartition::new(name.topic_id, name.topic, name.partition))
            .collect();
        partitions.sort_by(|a, b| {
            let key = |tp: &TopicIdPartition| (tp.topic.clone(), tp.partition, tp.topic_id);
            key(a).cmp(&key(b))
        });
        Ok(partitions)
    }

    /// The segments of a partition, complete or not, by base offset and then by id. Objects of other
    /// names are passed over.
    pub(crate) async fn segments(
        &self,
        partition: &TopicIdPartition,
    ) -> Result<Vec<TierSegment>, Failure> {
        let listed = self.list_segments(partition).await;
        listed.map_err(|error| self.unlisted(error))
    }

    /// The same, with an error that does not say where the tier is.
    pub(crate) async fn list_segments(
        &self,
        partition: &TopicIdPartition,
    ) -> Result<Vec<TierSegment>, RemoteStorageError> {
        let listing = self.list(self.directory(partition)?).await?;
        in_listing(partition, &listing)
    }

    /// All objects of a partition's directory.
    pub(crate) async fn listing(&self, partition: &TopicIdPartition) -> Result<Listing, Failure> {
        let listing = self.list(self.directory(partition)?).await;
        listing.map_err(|error| self.unlisted(error))
    }

    /// The segments of several partitions, a few listings at once, in the order of the partitions.
    pub(crate) fn segments_of(
        &self,
        partitions: Vec<TopicIdPartition>,
    ) -> impl Stream<Item = Result<(TopicIdPartition, Vec<TierSegment>), Failure>> {
        stream::iter(partitions)
            .map(move |partition| async move {
                let segments = self.segments(&partition).await?;
                Ok((partition, segments))
            })
            .buffered(CONCURRENT_REQUESTS)
    }

    /// The multipart uploads that nobody has ended, where the store lists them.
    pub(crate) async fn open_uploads(&self) -> Result<Option<Vec<TierUpload>>, Failure> {
        let target = StoreTarget::object(self.prefix().as_path().clone());
        let uploads = self.storage.send(ListUploads::new(target)).await?;
        Ok(uploads.map(|uploads| uploads.into_iter().filter_map(TierUpload::new).collect()))
    }

    /// Whether an archive was ever started here.
    pub(crate) async fn is_archive(&self) -> Result<bool, Failure> {
        let probe = self.prefix().as_path().clone().join(WORM_PROBE_NAME);
        let target = StoreTarget::object(probe);
        Ok(self.storage.send(Head::new(target)).await?.is_some())
    }

    async fn list(&self, prefix: Path) -> Result<Listing, RemoteStorageError> {
        let target = StoreTarget::object(prefix);
        self.storage.send(List::new(target)).await
    }

    fn unlisted(&self, error: RemoteStorageError) -> Failure {
        Failure::during(format!("cannot list {}", self.location), error)
    }
}

/// Which partitions of a tier a command is about.
#[derive(Args, Clone, Debug)]
pub(crate) struct Selection {
    /// Only this topic.
    #[arg(long, value_name = "TOPIC", allow_hyphen_values = true)]
    topic: Option<String>,

    /// Only this partition of it.
    #[arg(long, value_name = "N", requires = "topic",
        value_parser = clap::value_parser!(i32).range(0..))]
    partition: Option<i32>,

    /// Only the topic with this id, where there were several of the same name.
    #[arg(long, value_name = "ID", value_parser = parse_id, allow_hyphen_values = true)]
    topic_id: Option<Uuid>,
}

impl Selection {
    pub(crate) fn new(topic: String, partition: Option<i32>, topic_id: Option<Uuid>) -> Self {
        Self {
            topic: Some(topic),
            partition,
            topic_id,
        }
    }

    pub(crate) fn holds(&self, tp: &TopicIdPartition) -> bool {
        self.topic.as_ref().is_none_or(|topic| *topic == tp.topic)
            && self
                .partition
                .is_none_or(|partition| partition == tp.partition)
            && self.topic_id.is_none_or(|id| id == tp.topic_id)
    }

    /// Those of the partitions that are meant: at least one, and all of one topic.
    pub(crate) fn of_one_topic(
        &self,
        mut partitions: Vec<TopicIdPartition>,
        location: &str,
    ) -> Result<Vec<TopicIdPartition>, Failure> {
        partitions.retain(|tp| self.holds(tp));
        let mut ids: Vec<_> = partitions.iter().map(|tp| tp.topic_id).collect();
        ids.sort_unstable();
        ids.dedup();
        match ids[..] {
            [] => Err(Failure::Refused(format!("{self} is not in {location}"))),
            [_] => Ok(partitions),
            _ => {
                let ids: Vec<_> = ids.into_iter().map(kafka_uuid).collect();
                Err(Failure::Refused(format!(
                    "{self} is there {} times, with the topic ids {}: say which one with \
                     --topic-id",
                    ids.len(),
                    ids.join(", ")
                )))
            }
        }
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "topic {:?}", self.topic.as_deref().unwrap_or_default())?;
        if let Some(partition) = self.partition {
            write!(f, " partition {partition}")?;
        }
        if let Some(id) = self.topic_id {
            write!(f, " with the id {}", kafka_uuid(id))?;
        }
        Ok(())
    }
}

/// An id on the command line, as Kafka writes it.
pub(crate) fn parse_id(text: &str) -> Result<Uuid, String> {
    decode_kafka_uuid(text).ok_or_else(|| "an id has 22 characters, as Kafka writes it".to_owned())
}

/// A segment of the tier, and what requests need to name it.
#[derive(Clone, Debug)]
pub(crate) struct TierSegment {
    pub(crate) listed: ListedSegment,
    /// Its end, size and epochs are not those of the segment: the listing does not tell them.
    pub(crate) handle: Arc<RemoteLogSegmentMetadata>,
}

impl TierSegment {
    pub(crate) fn new(listed: ListedSegment) -> Result<Self, RemoteStorageError> {
        let handle = Arc::new(handle(listed.id.clone(), listed.start_offset)?);
        Ok(Self { listed, handle })
    }

    pub(crate) fn base_offset(&self) -> i64 {
        self.listed.start_offset
    }

    /// The id as Kafka writes it.
    pub(crate) fn id_text(&self) -> String {
        kafka_uuid(self.listed.id.id)
    }

    /// The length of the log in bytes; a segment without a log is not complete and never read.
    pub(crate) fn log_size(&self) -> Option<u64> {
        self.listed.log().map(|log| log.size)
    }

    /// Whether it has the manifest of a write-once archive.
    pub(crate) fn is_sealed(&self) -> bool {
        self.listed.object(MANIFEST_SUFFIX).is_some()
    }
}

/// An upload that nobody has ended, to a key of a segment.
#[derive(Clone, Debug)]
pub(crate) struct TierUpload {
    pub(crate) partition: TopicIdPartition,
    pub(crate) segment_id: Uuid,
    pub(crate) base_offset: i64,
    pub(crate) upload: OpenUpload,
}

impl TierUpload {
    /// `None` for the upload of something else.
    fn new(upload: OpenUpload) -> Option<Self> {
        let name = parse_segment_file_name(upload.key.filename()?)?;
        let (segment_id, base_offset) = (name.segment_id, name.base_offset);
        let dir = upload.key.parts().rev().nth(1)?;
        let dir = parse_partition_dir_name(dir.as_ref())?;
        Some(Self {
            partition: TopicIdPartition::new(dir.topic_id, dir.topic, dir.partition),
            segment_id,
            base_offset,
            upload,
        })
    }
}

/// The segments in the listing of a partition's directory.
pub(crate) fn in_listing(
    partition: &TopicIdPartition,
    listing: &Listing,
) -> Result<Vec<TierSegment>, RemoteStorageError> {
    let segments = list_segments(partition, listing).into_iter();
    segments.map(TierSegment::new).collect()
}

/// Metadata that names a segment of the tier in requests.
fn handle(
    id: RemoteLogSegmentId,
    base_offset: i64,
) -> Result<RemoteLogSegmentMetadata, RemoteStorageError> {
    let details = RemoteLogSegmentDetails::new(
        0,
        RemoteLogSegmentState::CopySegmentFinished,
        BTreeMap::from([(LeaderEpoch(0), base_offset)]),
    );
    RemoteLogSegmentMetadata::new(id, base_offset, base_offset, -1, -1, 0, details)
}

fn partition_dir(
    prefix: &KeyPrefix,
    partition: &TopicIdPartition,
) -> Result<Path, RemoteStorageError> {
    partition_dir_key(prefix, &any_segment(partition)?)
}

/// Stands for each segment of a partition, where only the partition matters.
fn any_segment(
    partition: &TopicIdPartition,
) -> Result<RemoteLogSegmentMetadata, RemoteStorageError> {
    let id = RemoteLogSegmentId::new(partition.clone(), Uuid::nil());
    handle(id, 0)
}
