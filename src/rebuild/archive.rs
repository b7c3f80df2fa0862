//! Metadata made anew from an archive that was authenticated.
//!
//! A manifest holds all that the metadata of its segment said when the segment was copied, and the
//! chain tells in which order copies finished. So this metadata is equal to what was lost, but for
//! one thing that nobody wrote into the archive: when a copy *ended*. A rebuilt segment has the
//! event timestamp and the broker of its beginning.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;

use futures::TryStreamExt as _;
use object_store::ObjectStore;

use crate::archive::{
    AuthenticatedArchive, AuthenticatedManifest, EpochId, SegmentIdentity, WormChainRecord,
};
use crate::error::RemoteStorageError;
use crate::metadata::{PartitionDump, RemoteLogMetadataCache, RlmmCacheDump};
use crate::model::{
    LeaderEpoch, RemoteLogSegmentDetails, RemoteLogSegmentId, RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState, TopicIdPartition,
};

/// A partition's segments as they finished, each with its run.
struct Partition {
    id: TopicIdPartition,
    directory: String,
    finished: Vec<(EpochId, Finished)>,
}

/// A segment as its copy began, and the receipt that it ended with.
struct Finished {
    started: RemoteLogSegmentMetadata,
    receipt: WormChainRecord,
}

/// Makes the metadata of an archive anew: that of every segment whose manifest is accepted and
/// attested, in state `CopySegmentFinished`, with the receipt of its copy as custom metadata.
///
/// To be called when the archive's [report](AuthenticatedArchive::report) was graded: what is not
/// proven is left out. `store` is the one that the archive was authenticated in; each manifest is
/// read once. Memory holds the metadata of all segments.
///
/// Which of several segments answers for an offset follows the order in which their copies
/// finished: that of the chain, and of runs the one that began later by its writers' clocks.
///
/// # Errors
///
/// [`Worm`](RemoteStorageError::Worm) when a manifest cannot be read, or is another now;
/// [`Corrupt`](RemoteStorageError::Corrupt) for a manifest that says what no metadata can;
/// [`InvalidArgument`](RemoteStorageError::InvalidArgument) when two directories hold one
/// partition: choose one with the request's prefix.
///
/// # Cancellation
///
/// Nothing is written, so dropping the future has no effect.
pub async fn dump_archive(
    store: &dyn ObjectStore,
    archive: &AuthenticatedArchive,
) -> Result<RlmmCacheDump, RemoteStorageError> {
    let mut partitions: BTreeMap<_, Partition> = BTreeMap::new();
    let mut manifests = pin!(archive.manifests(store));
    while let Some(manifest) = manifests.try_next().await? {
        let directory = manifest
            .manifest_key
            .rsplit_once('/')
            .map_or("", |(dir, _)| dir);
        let segment = &manifest.manifest.body.segment;
        let partition = partitions
            .entry((segment.topic_id, segment.partition))
            .or_insert_with(|| Partition {
                id: TopicIdPartition::new(segment.topic_id, &*segment.topic, segment.partition),
                directory: directory.to_owned(),
                finished: Vec::new(),
            });
        if partition.directory != directory {
            return Err(RemoteStorageError::InvalidArgument(format!(
                "{} and {directory} hold the same partition: choose one by its prefix",
                partition.directory
            )));
        }
        let epoch_id = manifest.manifest.body.chain.epoch_id;
        partition.finished.push((epoch_id, finished(manifest)?));
    }
    let dumps = partitions.into_values().map(Partition::into_dump);
    Ok(RlmmCacheDump {
        partitions: dumps.collect::<Result<_, _>>()?,
    })
}

impl Partition {
    fn into_dump(self) -> Result<PartitionDump, RemoteStorageError> {
        let mut finished = self.finished;
        let mut began: HashMap<EpochId, i64> = HashMap::new();
        for (epoch_id, segment) in &finished {
            let first = segment.started.event_timestamp_ms();
            began.entry(*epoch_id).or_insert(first);
        }
        // A stable sort: within a run, and between runs that began together, the chain's order.
        finished.sort_by_key(|(epoch_id, _)| began[epoch_id]);
        let mut cache = RemoteLogMetadataCache::new(self.id);
        for (_, Finished { started, receipt }) in &finished {
            cache.add_segment(started)?;
            cache.update_segment(&RemoteLogSegmentMetadataUpdate::new(
                started.remote_log_segment_id().clone(),
                started.event_timestamp_ms(),
                Some(receipt.to_custom_metadata()),
                RemoteLogSegmentState::CopySegmentFinished,
                started.broker_id(),
            ))?;
        }
        Ok(cache.export())
    }
}

fn finished(manifest: AuthenticatedManifest) -> Result<Finished, RemoteStorageError> {
    let body = &manifest.manifest.body;
    let started = started(&body.segment).map_err(|reason| RemoteStorageError::Corrupt {
        key: manifest.manifest_key.clone(),
        reason,
    })?;
    let request = WormChainRecord::request(body.chain);
    Ok(Finished {
        started: started.with_custom_metadata(request.to_custom_metadata()),
        receipt: request
            .with_head(manifest.head)
            .with_manifest_version(manifest.version_id),
    })
}

/// The metadata that a segment's copy was given.
fn started(segment: &SegmentIdentity) -> Result<RemoteLogSegmentMetadata, String> {
    let size = i32::try_from(segment.segment_size_bytes)
        .map_err(|_| format!("a segment cannot have {} bytes", segment.segment_size_bytes))?;
    let epochs = segment.leader_epochs.iter();
    let epochs = epochs.map(|(epoch, offset)| (LeaderEpoch(*epoch), *offset));
    let details = RemoteLogSegmentDetails::new(
        size,
        RemoteLogSegmentState::CopySegmentStarted,
        epochs.collect(),
    );
    let partition = TopicIdPartition::new(segment.topic_id, &*segment.topic, segment.partition);
    RemoteLogSegmentMetadata::new(
        RemoteLogSegmentId::new(partition, segment.segment_id),
        segment.start_offset,
        segment.end_offset,
        segment.max_timestamp_ms,
        segment.broker_id,
        segment.event_timestamp_ms,
        details,
    )
    .map(|metadata| metadata.with_txn_index_empty(segment.txn_index_empty))
    .map_err(|error| error.to_string())
}
