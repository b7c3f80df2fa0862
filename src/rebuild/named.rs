//! The segments that metadata names, with the objects that they have in a tier.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::listing::{ListedSegment, list_segments};
use super::{DamagedSegment, RebuiltPartition};
use crate::error::RemoteStorageError;
use crate::metadata::PartitionDump;
use crate::model::{
    IndexType, LOG_FILE_SUFFIX, RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteLogSegmentState,
};
use crate::ops::Listing;

/// The finished segments of a partition's metadata, each with the objects that the listing of its
/// directory has of it, which may be none; ordered by start offset and id.
pub fn named_segments(metadata: &PartitionDump, listing: &Listing) -> Vec<ListedSegment> {
    let listed = list_segments(&metadata.topic_id_partition, listing);
    let mut listed: HashMap<(i64, Uuid), ListedSegment> = listed
        .into_iter()
        .map(|segment| ((segment.start_offset, segment.id.id), segment))
        .collect();
    let mut named: Vec<_> = finished(metadata)
        .map(|segment| {
            let id = segment.remote_log_segment_id();
            let start_offset = segment.start_offset();
            let without_objects = || ListedSegment {
                id: id.clone(),
                start_offset,
                objects: Vec::new(),
            };
            let found = listed.remove(&(start_offset, id.id));
            found.unwrap_or_else(without_objects)
        })
        .collect();
    named.sort_by_key(|segment| (segment.start_offset, segment.id.id));
    named
}

impl RebuiltPartition {
    /// What metadata tells of some of a partition's segments: as if no others were there.
    ///
    /// Every segment that the metadata has as finished, and that is among `segments` with its
    /// `.log`, is in the [`dump`](Self::dump) as the metadata has it; one without its `.log` is
    /// [`skipped`](Self::skipped). One without its leader-epoch checkpoint is listed as
    /// [`mended`](Self::mended), though nothing has to be read for it: the metadata has its epochs.
    ///
    /// When a segment that answers is left out, those that it had superseded answer again: as if the
    /// others had finished in the order of their event timestamps.
    pub fn named_by(metadata: &PartitionDump, segments: Vec<ListedSegment>) -> Self {
        let named: HashMap<&RemoteLogSegmentId, &RemoteLogSegmentMetadata> = finished(metadata)
            .map(|segment| (segment.remote_log_segment_id(), segment))
            .collect();
        let (mut kept, mut skipped, mut mended) = (Vec::new(), Vec::new(), Vec::new());
        for segment in segments {
            let Some(&known) = named.get(&segment.id) else {
                continue;
            };
            if !segment.is_complete() {
                let reason = lost(&segment, LOG_FILE_SUFFIX);
                skipped.push(DamagedSegment { segment, reason });
                continue;
            }
            kept.push(known.clone());
            let checkpoint = IndexType::LeaderEpoch.suffix();
            if segment.object(checkpoint).is_none() {
                let reason = lost(&segment, checkpoint);
                mended.push(DamagedSegment { segment, reason });
            }
        }
        let ids: HashSet<Uuid> = kept
            .iter()
            .map(|segment| segment.remote_log_segment_id().id)
            .collect();
        let readable = metadata.epochs.iter().flat_map(|epoch| &epoch.readable);
        let has_all_answers = readable.into_iter().all(|(_, id)| ids.contains(id));
        let mut dump = PartitionDump::new(
            metadata.topic_id_partition.clone(),
            kept,
            metadata.delete_state,
        );
        if has_all_answers {
            dump.epochs.clone_from(&metadata.epochs);
        }
        Self {
            dump,
            skipped,
            mended,
        }
    }
}

fn finished(metadata: &PartitionDump) -> impl Iterator<Item = &RemoteLogSegmentMetadata> {
    let segments = metadata.segments.iter();
    segments.filter(|segment| segment.state() == RemoteLogSegmentState::CopySegmentFinished)
}

fn lost(segment: &ListedSegment, suffix: &str) -> RemoteStorageError {
    RemoteStorageError::InvalidArgument(format!(
        "the metadata names segment {} as finished, and its `{suffix}` is not in the tier",
        segment.id
    ))
}
