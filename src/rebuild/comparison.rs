//! A tier's listings compared with the metadata of its cluster, while both go on changing.
//!
//! A broker announces a copy before it writes the first object, and a deletion before it removes
//! one. So the metadata is read, then the directories are listed, then the metadata is read on:
//! what is strange in a listing, and is not explained by either state of the metadata or by an event
//! between them, is strange for good.

use std::collections::{HashMap, HashSet};

use object_store::path::Path;
use uuid::Uuid;

use super::listing::{ListedObject, ListedSegment, list_segments};
use crate::layout::parse_segment_file_name;
use crate::metadata::topic::MetadataEvent;
use crate::metadata::{RemoteLogMetadataCache, SegmentView};
use crate::model::{
    IndexType, LOG_FILE_SUFFIX, RemoteLogSegmentId, RemoteLogSegmentState,
    RemotePartitionDeleteState, TopicIdPartition,
};
use crate::ops::Listing;

/// The objects that each finished segment has. Only one with aborted transactions has a transaction
/// index, and brokers before Apache Kafka 4.0 do not say whether it does.
const REQUIRED: [&str; 5] = [
    LOG_FILE_SUFFIX,
    IndexType::Offset.suffix(),
    IndexType::Timestamp.suffix(),
    IndexType::ProducerSnapshot.suffix(),
    IndexType::LeaderEpoch.suffix(),
];

/// Holds listings of a tier against metadata.
///
/// In this order: read the metadata; [`compare`](Self::compare) each partition's listing, taken
/// afterwards, with it; read the metadata on, showing each event to [`observe`](Self::observe); ask
/// for the [`findings`](Self::findings). What is as it should be takes no memory.
#[derive(Debug, Default)]
pub struct TierComparison {
    suspects: Vec<Suspect>,
    strangers: Vec<Finding>,
    segments: u64,
    deleted: HashSet<Uuid>,
    deleted_partitions: HashSet<TopicIdPartition>,
}

/// A segment that was not as a finished one should be, when its partition was compared.
#[derive(Debug)]
struct Suspect {
    segment: ListedSegment,
    /// Its state in the metadata then.
    before: Option<RemoteLogSegmentState>,
}

/// A difference between a tier and its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The partition.
    pub topic_id_partition: TopicIdPartition,
    /// The segment's id and first offset; `None` for an object that is of no segment.
    pub segment: Option<(Uuid, i64)>,
    /// What differs.
    pub difference: Difference,
    /// The objects that are there.
    pub objects: Vec<ListedObject>,
}

/// How a segment of the tier and its metadata differ. Times are milliseconds since 1970-01-01 UTC.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Difference {
    /// No metadata names these objects.
    Unnamed,
    /// The object's name is none of a segment's.
    Stranger,
    /// The copy has begun, not long ago.
    CopyInProgress {
        /// When.
        since_ms: i64,
    },
    /// The copy began long ago and has not ended. There may be no object of it.
    AbandonedCopy {
        /// When.
        since_ms: i64,
    },
    /// The deletion has begun, and objects are left.
    BeingDeleted {
        /// When.
        since_ms: i64,
    },
    /// A finished segment lacks these objects.
    MissingObjects {
        /// Their suffixes.
        suffixes: Vec<&'static str>,
    },
    /// The `.log` of a finished segment has another length than the metadata says.
    OtherSize {
        /// What the metadata says, in bytes.
        named: u64,
        /// What the tier has, in bytes.
        listed: u64,
    },
}

impl Finding {
    /// Whether somebody has to do something: objects that nobody will remove, or records that cannot
    /// be read. Copies and deletions under way are none of it, and neither is an abandoned copy
    /// that has left nothing.
    pub fn is_problem(&self) -> bool {
        match self.difference {
            Difference::CopyInProgress { .. } | Difference::BeingDeleted { .. } => false,
            Difference::AbandonedCopy { .. } => !self.objects.is_empty(),
            Difference::Unnamed
            | Difference::Stranger
            | Difference::MissingObjects { .. }
            | Difference::OtherSize { .. } => true,
        }
    }

    /// The bytes of the objects that are there.
    pub fn size(&self) -> u64 {
        self.objects.iter().map(|object| object.size).sum()
    }
}

impl TierComparison {
    /// A comparison of nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many segments were compared, in the tier, in the metadata, or in both.
    pub fn segments(&self) -> u64 {
        self.segments
    }

    /// Compares the listing of a partition's directory with its metadata, which was read before the
    /// listing was made. Partitions that have no directory are to be compared with an empty listing.
    pub fn compare(
        &mut self,
        tp: &TopicIdPartition,
        listing: &Listing,
        metadata: Option<&RemoteLogMetadataCache>,
    ) {
        let named = metadata.map(RemoteLogMetadataCache::list_segments);
        let mut named: HashMap<(i64, Uuid), SegmentView<'_>> = named
            .unwrap_or_default()
            .into_iter()
            .map(|segment| ((segment.start_offset(), segment.id()), segment))
            .collect();
        for segment in list_segments(tp, listing) {
            let known = named.remove(&(segment.start_offset, segment.id.id));
            self.add(segment, known);
        }
        let mut without_objects: Vec<_> = named.into_values().collect();
        without_objects.sort_by_key(|segment| (segment.start_offset(), segment.id()));
        for known in without_objects {
            let segment = ListedSegment {
                id: RemoteLogSegmentId::new(tp.clone(), known.id()),
                start_offset: known.start_offset(),
                objects: Vec::new(),
            };
            self.add(segment, Some(known));
        }
        for object in &listing.objects {
            if !is_of_segment(&object.location) {
                let object = ListedObject {
                    key: object.location.clone(),
                    suffix: String::new(),
                    size: object.size,
                    last_modified_ms: object.last_modified.timestamp_millis(),
                };
                self.strangers.push(Finding {
                    topic_id_partition: tp.clone(),
                    segment: None,
                    difference: Difference::Stranger,
                    objects: vec![object],
                });
            }
        }
    }

    fn add(&mut self, segment: ListedSegment, known: Option<SegmentView<'_>>) {
        self.segments += 1;
        let is_as_it_should_be = known.is_some_and(|known| {
            known.state() == RemoteLogSegmentState::CopySegmentFinished
                && fault_of(&segment, &known).is_none()
        });
        if !is_as_it_should_be {
            let before = known.map(|known| known.state());
            self.suspects.push(Suspect { segment, before });
        }
    }

    /// Takes in an event that came after the metadata of [`compare`](Self::compare).
    pub fn observe(&mut self, event: &MetadataEvent) {
        match event {
            MetadataEvent::UpdateSegment(update)
                if update.state == RemoteLogSegmentState::DeleteSegmentFinished =>
            {
                self.deleted.insert(update.remote_log_segment_id.id);
            }
            MetadataEvent::PartitionDelete(delete)
                if delete.state == RemotePartitionDeleteState::DeletePartitionFinished =>
            {
                self.deleted_partitions
                    .insert(delete.topic_id_partition.clone());
            }
            _ => {}
        }
    }

    /// What differs, given the metadata as it is after the listings: by partition as they were
    /// compared, then by start offset.
    ///
    /// A copy whose event is from before `abandoned_before_ms` counts as abandoned.
    pub fn findings<'a>(
        self,
        metadata: impl Fn(&TopicIdPartition) -> Option<&'a RemoteLogMetadataCache>,
        abandoned_before_ms: i64,
    ) -> Vec<Finding> {
        let mut later = Later {
            known: HashMap::new(),
            partition: None,
        };
        let mut findings = Vec::new();
        for Suspect { segment, before } in self.suspects {
            let id = &segment.id;
            let tp = &id.topic_id_partition;
            let after = later.find(tp, &metadata, (segment.start_offset, id.id));
            let was_deleted = self.deleted.contains(&id.id) || self.deleted_partitions.contains(tp);
            let difference = match after {
                None if before.is_none() && !was_deleted => Some(Difference::Unnamed),
                // Its deletion has ended since.
                None => None,
                Some(after) => difference(&segment, &after, before, abandoned_before_ms),
            };
            if let Some(difference) = difference {
                findings.push(Finding {
                    topic_id_partition: tp.clone(),
                    segment: Some((id.id, segment.start_offset)),
                    difference,
                    objects: segment.objects,
                });
            }
        }
        findings.extend(self.strangers);
        findings
    }
}

/// The segments of the partition that was asked for last: suspects come by partition.
struct Later<'a> {
    partition: Option<TopicIdPartition>,
    known: HashMap<(i64, Uuid), SegmentView<'a>>,
}

impl<'a> Later<'a> {
    fn find(
        &mut self,
        tp: &TopicIdPartition,
        metadata: impl Fn(&TopicIdPartition) -> Option<&'a RemoteLogMetadataCache>,
        key: (i64, Uuid),
    ) -> Option<SegmentView<'a>> {
        if self.partition.as_ref() != Some(tp) {
            let segments = metadata(tp).map(RemoteLogMetadataCache::list_segments);
            let segments = segments.unwrap_or_default().into_iter();
            self.known = segments
                .map(|segment| ((segment.start_offset(), segment.id()), segment))
                .collect();
            self.partition = Some(tp.clone());
        }
        self.known.get(&key).copied()
    }
}

fn difference(
    segment: &ListedSegment,
    after: &SegmentView<'_>,
    before: Option<RemoteLogSegmentState>,
    abandoned_before_ms: i64,
) -> Option<Difference> {
    let since_ms = after.event_timestamp_ms();
    let has_objects = !segment.objects.is_empty();
    match after.state() {
        RemoteLogSegmentState::CopySegmentStarted if since_ms < abandoned_before_ms => {
            Some(Difference::AbandonedCopy { since_ms })
        }
        RemoteLogSegmentState::CopySegmentStarted => {
            has_objects.then_some(Difference::CopyInProgress { since_ms })
        }
        // The listing is of a time when it was finished, too.
        RemoteLogSegmentState::CopySegmentFinished => (before == Some(after.state()))
            .then(|| fault_of(segment, after))
            .flatten(),
        RemoteLogSegmentState::DeleteSegmentStarted => {
            has_objects.then_some(Difference::BeingDeleted { since_ms })
        }
        RemoteLogSegmentState::DeleteSegmentFinished => None,
    }
}

/// What is wrong with the objects of a finished segment.
fn fault_of(segment: &ListedSegment, known: &SegmentView<'_>) -> Option<Difference> {
    let missing = REQUIRED.iter().copied();
    let suffixes: Vec<_> = missing
        .filter(|suffix| segment.object(suffix).is_none())
        .collect();
    if !suffixes.is_empty() {
        return Some(Difference::MissingObjects { suffixes });
    }
    let named = u64::from(known.segment_size_in_bytes().unsigned_abs());
    let listed = segment.log().map_or(0, |log| log.size);
    (named != listed).then_some(Difference::OtherSize { named, listed })
}

fn is_of_segment(key: &Path) -> bool {
    key.filename()
        .is_some_and(|name| parse_segment_file_name(name).is_some())
}
