//! Metadata made anew from what lies in a tier, for tiers whose metadata store is not at hand.
//!
//! From a listing and a few small reads for each segment a [`TierRebuilder`] makes the
//! [`PartitionDump`] that a metadata manager imports. It reads the leader-epoch checkpoint of every
//! complete segment (one with a `.log`), and the end of those logs that no later segment adjoins.
//! Where a checkpoint is lost or damaged, or says that a log ends in another epoch than its last
//! batch, the batches of the segment's log tell the epochs, as a broker's recovery finds them.
//!
//! What the tier does not tell stays unknown: a rebuilt segment has broker −1, no custom metadata,
//! a maximum timestamp of −1, and the time of its `.log` as its event timestamp. Its end offset is
//! where the next segment of the same lineage begins, less one. If a whole segment is missing
//! between the two, and no leader epoch began in it, this names offsets that the log does not hold;
//! to a reader that is like records lost to compaction. [`TierRebuilder::log_end`] tells where a log
//! really ends, and so whether something is missing behind it.
//!
//! Where segments overlap, those answer that would if all had finished in the order of their
//! highest leader epoch, the time of their `.log`, and id.
//!
//! An archive tells all of it: see [`dump_archive`].
//!
//! Where the metadata store is at hand, [`RebuiltPartition::named_by`] takes the segments that it
//! names in the place of those that a listing shows, and a [`TierComparison`] holds the two against
//! each other.

mod archive;
mod comparison;
mod listing;
mod log_walk;
mod named;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::stream::{self, StreamExt as _};
use tower::ServiceExt as _;
use uuid::Uuid;

pub use self::archive::dump_archive;
pub use self::comparison::{Difference, Finding, TierComparison};
pub use self::listing::{ListedObject, ListedSegment, list_segments};
pub use self::log_walk::LogEnd;
use self::log_walk::LogWalk;
pub use self::named::named_segments;
use crate::error::{ErrorKind, RemoteStorageError};
use crate::index::{LeaderEpochCheckpoint, OffsetIndex};
use crate::metadata::{PartitionDump, RemoteLogMetadataCache};
use crate::model::{
    IndexType, LeaderEpoch, RemoteLogSegmentDetails, RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState, TopicIdPartition,
};
use crate::ops::{FetchIndex, FetchSegment, Listing, OpService};

/// Segments that are read at once.
const CONCURRENT_SEGMENTS: usize = 16;

/// The broker of every rebuilt event: none.
const NO_BROKER: i32 = -1;

/// Makes the metadata of partitions anew from their listings.
#[derive(Clone, Debug)]
pub struct TierRebuilder<S> {
    storage: S,
}

/// What a partition's listing and its small reads told.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RebuiltPartition {
    /// The metadata, every segment in state `CopySegmentFinished`.
    pub dump: PartitionDump,
    /// Complete segments that are left out, because they are damaged or were deleted meanwhile.
    pub skipped: Vec<DamagedSegment>,
    /// Segments of the dump whose checkpoint is lost or damaged: the batches of the whole log were
    /// walked to find their leader epochs.
    pub mended: Vec<DamagedSegment>,
}

/// A complete segment with something wrong.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DamagedSegment {
    /// The segment.
    pub segment: ListedSegment,
    /// What is wrong with it.
    pub reason: RemoteStorageError,
}

/// A complete segment, and the leader epochs of its log up to its end.
struct Candidate {
    segment: ListedSegment,
    checkpoint: LeaderEpochCheckpoint,
    /// The epochs of the segment itself.
    epochs: BTreeMap<LeaderEpoch, i64>,
    /// Why the checkpoint is not the one in the tier.
    mended: Option<RemoteStorageError>,
}

impl<S> TierRebuilder<S>
where
    S: OpService<FetchSegment> + OpService<FetchIndex>,
{
    /// A rebuilder that reads through `storage`, a `RemoteStorage` or any service of these two
    /// operations.
    pub fn new(storage: S) -> Self {
        Self { storage }
    }

    /// Makes the metadata of one partition anew.
    ///
    /// `listing` is that of the partition's directory. Costs one fetch for each complete segment,
    /// and at most two more for each that no later segment adjoins: usually the last one only.
    /// (A lost checkpoint costs its whole log, and a lost offset index what it would have saved.)
    ///
    /// # Errors
    ///
    /// The first fetch that failed for another reason than the segment itself. Segments that are
    /// missing an object or are damaged are no error: they are reported as
    /// [`skipped`](RebuiltPartition::skipped).
    ///
    /// # Cancellation
    ///
    /// Nothing is written, so dropping the future has no effect.
    pub async fn rebuild_partition(
        &self,
        topic_id_partition: &TopicIdPartition,
        listing: &Listing,
    ) -> Result<RebuiltPartition, RemoteStorageError> {
        let segments = list_segments(topic_id_partition, listing);
        self.rebuild_segments(topic_id_partition, segments).await
    }

    /// Makes the metadata of one partition anew from some of its segments, as
    /// [`rebuild_partition`](Self::rebuild_partition) does from all: as if no others were there.
    ///
    /// # Errors
    ///
    /// Those of [`rebuild_partition`](Self::rebuild_partition).
    pub async fn rebuild_segments(
        &self,
        topic_id_partition: &TopicIdPartition,
        segments: Vec<ListedSegment>,
    ) -> Result<RebuiltPartition, RemoteStorageError> {
        let mut skipped = Vec::new();
        let complete = segments.into_iter().filter(ListedSegment::is_complete);
        let candidates = stream::iter(complete)
            .map(|segment| self.read_checkpoint(segment))
            .buffered(CONCURRENT_SEGMENTS)
            .collect()
            .await;
        let candidates: Vec<Candidate> = keep_usable(candidates, &mut skipped)?;

        let adjoining = adjoining_starts(&candidates);
        let finished = stream::iter(candidates.into_iter().zip(adjoining))
            .map(|(candidate, next_start)| self.finish(candidate, next_start))
            .buffered(CONCURRENT_SEGMENTS)
            .collect()
            .await;
        let mut finished: Vec<Rebuilt> = keep_usable(finished, &mut skipped)?;

        finished.sort_by_key(Rebuilt::rank);
        let mut cache = RemoteLogMetadataCache::new(topic_id_partition.clone());
        let mut mended = Vec::new();
        for rebuilt in finished {
            let segment = rebuilt.segment;
            match (enter(&mut cache, &rebuilt.metadata), rebuilt.mended) {
                (Err(reason), _) => skipped.push(DamagedSegment { segment, reason }),
                (Ok(()), Some(reason)) => mended.push(DamagedSegment { segment, reason }),
                (Ok(()), None) => {}
            }
        }
        mended.sort_by_key(|mended| mended.segment.start_offset);
        Ok(RebuiltPartition {
            dump: cache.export(),
            skipped,
            mended,
        })
    }

    /// Finds the last batch of a complete segment's log; `None` of a log without batches.
    ///
    /// `position` is where a batch begins, in bytes, and the nearer to the end the less is fetched:
    /// one fetch from the position of the offset index's last entry. A position that fits no batch
    /// costs a walk from the log's start.
    ///
    /// # Errors
    ///
    /// [`Corrupt`](ErrorKind::Corrupt) when the log has bytes that are no batch, or ends within
    /// one; otherwise those of the fetch.
    pub async fn log_end(
        &self,
        segment: &ListedSegment,
        position: u64,
    ) -> Result<Option<LogEnd>, RemoteStorageError> {
        self.walk(segment)?.end(position).await
    }

    fn walk(&self, segment: &ListedSegment) -> Result<LogWalk<S>, RemoteStorageError> {
        let metadata = Arc::new(segment.provisional_metadata()?);
        Ok(LogWalk::new(self.storage.clone(), segment, metadata))
    }

    async fn read_checkpoint(&self, segment: ListedSegment) -> Outcome<Candidate> {
        let reason = match self.checkpoint_of(&segment).await {
            Ok((checkpoint, epochs)) if !epochs.is_empty() => {
                return Ok(Candidate {
                    segment,
                    checkpoint,
                    epochs,
                    mended: None,
                });
            }
            Ok(_) => no_epoch(&segment),
            Err(reason) => reason,
        };
        if !is_of_segment(&reason) {
            return Err(DamagedSegment { segment, reason });
        }
        match self.checkpoint_from_log(&segment).await {
            Ok(Some((checkpoint, epochs))) => Ok(Candidate {
                segment,
                checkpoint,
                epochs,
                mended: Some(reason),
            }),
            Err(error) if !is_of_segment(&error) => Err(DamagedSegment {
                segment,
                reason: error,
            }),
            // What was wrong first is what there is to repair.
            Ok(None) | Err(_) => Err(DamagedSegment { segment, reason }),
        }
    }

    async fn checkpoint_from_log(
        &self,
        segment: &ListedSegment,
    ) -> Result<Option<(LeaderEpochCheckpoint, BTreeMap<LeaderEpoch, i64>)>, RemoteStorageError>
    {
        let Some(checkpoint) = self.walk(segment)?.checkpoint().await? else {
            return Ok(None);
        };
        let epochs = checkpoint.segment_leader_epochs(segment.start_offset, i64::MAX)?;
        Ok(Some((checkpoint, epochs)))
    }

    async fn checkpoint_of(
        &self,
        segment: &ListedSegment,
    ) -> Result<(LeaderEpochCheckpoint, BTreeMap<LeaderEpoch, i64>), RemoteStorageError> {
        let request = FetchIndex::new(segment.provisional_metadata()?, IndexType::LeaderEpoch);
        let bytes = self.storage.clone().oneshot(request).await?;
        let checkpoint = LeaderEpochCheckpoint::parse(&bytes)?;
        // It ends with the segment, so whatever it has from the start on is the segment's.
        let epochs = checkpoint.segment_leader_epochs(segment.start_offset, i64::MAX)?;
        Ok((checkpoint, epochs))
    }

    async fn finish(&self, mut candidate: Candidate, next_start: Option<i64>) -> Outcome<Rebuilt> {
        match self.metadata_of(&mut candidate, next_start).await {
            Ok(metadata) => Ok(Rebuilt {
                segment: candidate.segment,
                metadata,
                mended: candidate.mended,
            }),
            Err(reason) => Err(DamagedSegment {
                segment: candidate.segment,
                reason,
            }),
        }
    }

    async fn metadata_of(
        &self,
        candidate: &mut Candidate,
        next_start: Option<i64>,
    ) -> Result<RemoteLogSegmentMetadata, RemoteStorageError> {
        let segment = &candidate.segment;
        let (end_offset, leader_epoch) = if let Some(next) = next_start {
            (next - 1, None)
        } else {
            let end = self.end(segment).await?;
            (end.last_offset, end.leader_epoch)
        };
        let mut epochs = candidate.epochs_between(segment.start_offset, end_offset);
        let last_epoch = epochs.last_key_value().map(|(epoch, _)| *epoch);
        let reason = match (last_epoch, leader_epoch) {
            // Every epoch that the checkpoint has began behind the segment, so it is another's.
            (None, _) => Some(no_epoch(segment)),
            (Some(told), Some(real)) if told != real => Some(other_epoch(segment, told, real)),
            _ => None,
        };
        if let Some(reason) = reason {
            let Some((checkpoint, _)) = self.checkpoint_from_log(segment).await? else {
                return Err(reason);
            };
            epochs = checkpoint.segment_leader_epochs(segment.start_offset, end_offset)?;
            candidate.mended = Some(reason);
        }
        candidate.segment.metadata(end_offset, epochs)
    }

    /// The end of a log that no later segment tells: two fetches. A log without a batch ends where
    /// it starts.
    async fn end(&self, segment: &ListedSegment) -> Result<LogEnd, RemoteStorageError> {
        let empty = LogEnd {
            last_offset: segment.start_offset,
            leader_epoch: None,
        };
        if segment.log().is_none_or(|log| log.size == 0) {
            return Ok(empty);
        }
        let request = FetchIndex::new(segment.provisional_metadata()?, IndexType::Offset);
        let position = match self.storage.clone().oneshot(request).await {
            Ok(index) => {
                let index = OffsetIndex::new(segment.start_offset, &index);
                index.lookup(i64::MAX).position
            }
            Err(error) if is_of_segment(&error) => 0,
            Err(error) => return Err(error),
        };
        let end = self.log_end(segment, position.into()).await?;
        Ok(end.unwrap_or(empty))
    }
}

/// A segment or why it is left out.
type Outcome<T> = Result<T, DamagedSegment>;

/// Parts the usable from the skipped. An error that is not the segment's own ends everything.
fn keep_usable<T>(
    outcomes: Vec<Outcome<T>>,
    skipped: &mut Vec<DamagedSegment>,
) -> Result<Vec<T>, RemoteStorageError> {
    let mut usable = Vec::with_capacity(outcomes.len());
    for outcome in outcomes {
        match outcome {
            Ok(segment) => usable.push(segment),
            Err(skip) if is_of_segment(&skip.reason) => skipped.push(skip),
            Err(skip) => return Err(skip.reason),
        }
    }
    Ok(usable)
}

/// Whether an error is about one segment, and others may be whole.
fn is_of_segment(error: &RemoteStorageError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound | ErrorKind::Corrupt | ErrorKind::Invalid
    )
}

fn no_epoch(segment: &ListedSegment) -> RemoteStorageError {
    RemoteStorageError::InvalidArgument(format!(
        "the leader epoch checkpoint of segment {} has no epoch of the segment",
        segment.id
    ))
}

fn other_epoch(
    segment: &ListedSegment,
    told: LeaderEpoch,
    real: LeaderEpoch,
) -> RemoteStorageError {
    RemoteStorageError::InvalidArgument(format!(
        "the leader epoch checkpoint of segment {} says that it ends in epoch {told}, and its log \
         ends in epoch {real}",
        segment.id
    ))
}

/// For each candidate, the start of the segment that adjoins it.
///
/// A segment adjoins another when no other one begins between them, and its checkpoint tells of the
/// same epochs from the other's start up to its own: then the epoch before its start is the other's
/// last one. A segment that ranks before the other was not copied as its continuation, so it may lie
/// inside of it.
fn adjoining_starts(candidates: &[Candidate]) -> Vec<Option<i64>> {
    // By the epoch that each follows; of equal starts one will do.
    let mut followers: BTreeMap<(LeaderEpoch, i64), &Candidate> = BTreeMap::new();
    for candidate in candidates {
        let start = candidate.segment.start_offset;
        let before = candidate.epochs_between(start - 1, start - 1);
        if let Some((&epoch, _)) = before.last_key_value() {
            followers.insert((epoch, start), candidate);
        }
    }
    let starts: BTreeSet<i64> = candidates
        .iter()
        .map(|candidate| candidate.segment.start_offset)
        .collect();
    let adjoining = candidates.iter().map(|candidate| {
        let start = candidate.segment.start_offset;
        let (&epoch, _) = candidate.epochs.last_key_value()?;
        let after = (epoch, start.checked_add(1)?)..=(epoch, i64::MAX);
        let (&(_, next_start), next) = followers.range(after).next()?;
        let adjoins = next.epochs_between(start, next_start - 1) == candidate.epochs
            && next.copied() >= candidate.copied()
            // One of these may follow this segment, whatever the checkpoints say.
            && starts.range(start + 1..next_start).next().is_none();
        adjoins.then_some(next_start)
    });
    adjoining.collect()
}

impl Candidate {
    /// What says first which of two segments was copied later.
    fn copied(&self) -> (Option<LeaderEpoch>, i64) {
        let epoch = self.epochs.last_key_value().map(|(epoch, _)| *epoch);
        (
            epoch,
            self.segment.log().map_or(-1, |log| log.last_modified_ms),
        )
    }

    /// The epochs of these offsets; none where the checkpoint does not tell.
    fn epochs_between(&self, start: i64, end: i64) -> BTreeMap<LeaderEpoch, i64> {
        let epochs = self.checkpoint.segment_leader_epochs(start, end);
        epochs.unwrap_or_default()
    }
}

struct Rebuilt {
    segment: ListedSegment,
    metadata: RemoteLogSegmentMetadata,
    mended: Option<RemoteStorageError>,
}

impl Rebuilt {
    fn rank(&self) -> (Option<LeaderEpoch>, i64, Uuid) {
        let epochs = self.metadata.segment_leader_epochs();
        (
            epochs.last_key_value().map(|(epoch, _)| *epoch),
            self.metadata.event_timestamp_ms(),
            self.metadata.remote_log_segment_id().id,
        )
    }
}

/// Gives the segment the life that its copy had.
fn enter(
    cache: &mut RemoteLogMetadataCache,
    started: &RemoteLogSegmentMetadata,
) -> Result<(), RemoteStorageError> {
    cache.add_segment(started)?;
    cache.update_segment(&RemoteLogSegmentMetadataUpdate::new(
        started.remote_log_segment_id().clone(),
        started.event_timestamp_ms(),
        None,
        RemoteLogSegmentState::CopySegmentFinished,
        NO_BROKER,
    ))
}

impl ListedSegment {
    /// Enough of the metadata to name the segment's objects.
    fn provisional_metadata(&self) -> Result<RemoteLogSegmentMetadata, RemoteStorageError> {
        let epochs = BTreeMap::from([(LeaderEpoch(-1), self.start_offset)]);
        self.metadata(self.start_offset, epochs)
    }

    /// The metadata of the segment as its copy began.
    fn metadata(
        &self,
        end_offset: i64,
        epochs: BTreeMap<LeaderEpoch, i64>,
    ) -> Result<RemoteLogSegmentMetadata, RemoteStorageError> {
        let log = self.log();
        let (size, modified_ms) = log.map_or((0, -1), |log| (log.size, log.last_modified_ms));
        let size = i32::try_from(size).map_err(|_| {
            RemoteStorageError::InvalidArgument(format!(
                "segment {}: its log has {size} bytes, and a segment of Kafka has at most {}",
                self.id,
                i32::MAX
            ))
        })?;
        let details =
            RemoteLogSegmentDetails::new(size, RemoteLogSegmentState::CopySegmentStarted, epochs);
        let txn_index = self.object(IndexType::Transaction.suffix());
        RemoteLogSegmentMetadata::new(
            self.id.clone(),
            self.start_offset,
            end_offset,
            -1,
            NO_BROKER,
            modified_ms,
            details,
        )
        .map(|metadata| {
            metadata.with_txn_index_empty(txn_index.is_none_or(|index| index.size == 0))
        })
    }
}
