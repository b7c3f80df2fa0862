//! The whole metadata topic, replayed once to its end: what is in it, and what it tells.
//!
//! A survey needs no manager, no snapshot and no local state, and it writes nothing. Records are
//! taken page by page, so its memory is that of the caches: what is known of the segments that are
//! not deleted.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use futures::StreamExt as _;
use uuid::Uuid;

use super::event::MetadataEvent;
use super::log::{
    AssignmentHandle, MetadataEventLog, MetadataEventPage, MetadataEventRecord, MetadataStreamItem,
    PartitionStart,
};
use super::log_error::MetadataLogError;
use super::partitioning::metadata_partition_for;
use super::poison::PoisonReason;
use crate::metadata::RemoteLogMetadataCache;
use crate::model::{
    LeaderEpoch, RemoteLogSegmentState, RemotePartitionDeleteState, TopicIdPartition,
};

/// Called with each record that a survey reads, in the order of offsets within a metadata
/// partition, and with its event.
pub type SurveyObserver<'a> =
    dyn FnMut(&MetadataEventRecord, &Result<MetadataEvent, PoisonReason>) + Send + 'a;

type Filter = Box<dyn Fn(&TopicIdPartition) -> bool + Send + Sync>;

/// What a metadata topic holds, up to the ends that it had.
///
/// Each [`catch_up`](Self::catch_up) replays what came since the one before, the first one all that
/// there is.
#[derive(Default)]
pub struct TopicSurvey {
    topic_id: Option<Uuid>,
    keep: Option<Filter>,
    metadata_partitions: Vec<MetadataPartitionSurvey>,
    partitions: HashMap<TopicIdPartition, PartitionSurvey>,
}

/// What one metadata partition holds. Numbers of records are of those that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MetadataPartitionSurvey {
    /// The metadata partition.
    pub partition: i32,
    /// The first offset that it has.
    pub low: i64,
    /// The offset after its last record.
    pub high: i64,
    /// The offset from which the next [`catch_up`](TopicSurvey::catch_up) goes on.
    pub next: i64,
    /// All records.
    pub records: u64,
    /// Those that begin a segment's copy.
    pub adds: u64,
    /// Those that change a segment's state.
    pub updates: u64,
    /// Those about the deletion of a partition.
    pub partition_deletes: u64,
    /// Those with a null value.
    pub tombstones: u64,
    /// Those whose value is no event.
    pub undecodable: u64,
    /// Those whose event no broker may publish.
    pub unpublishable: u64,
    /// Events that belong into another metadata partition, where brokers look for them: mostly from
    /// before partitions were added to the topic. They are not applied.
    pub misplaced: u64,
    /// Events that do not fit what came before them, and are dropped by every broker.
    pub dropped: u64,
}

impl MetadataPartitionSurvey {
    /// The records at which a broker of Apache Kafka stops: tombstones, undecodable, unpublishable.
    pub fn poison(&self) -> u64 {
        self.tombstones + self.undecodable + self.unpublishable
    }

    fn count(&mut self, event: &Result<MetadataEvent, PoisonReason>) {
        self.records += 1;
        let number = match event {
            Ok(MetadataEvent::AddSegment(_)) => &mut self.adds,
            Ok(MetadataEvent::UpdateSegment(_)) => &mut self.updates,
            Ok(MetadataEvent::PartitionDelete(_)) => &mut self.partition_deletes,
            Err(PoisonReason::Tombstone) => &mut self.tombstones,
            Err(PoisonReason::Undecodable(_)) => &mut self.undecodable,
            Err(PoisonReason::Unpublishable(_)) => &mut self.unpublishable,
        };
        *number += 1;
    }
}

/// What the topic tells of one user's partition.
#[derive(Debug)]
#[non_exhaustive]
pub struct PartitionSurvey {
    /// Its segments.
    pub cache: RemoteLogMetadataCache,
    /// The metadata partition with its events.
    pub metadata_partition: i32,
    /// Its events, those that were dropped included.
    pub events: u64,
    /// Events that do not fit what came before them.
    pub dropped: u64,
}

/// The segments of one user's partition in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentStatistics {
    /// Segments by state, in the order of [`RemoteLogSegmentState::ALL`]. A segment whose deletion
    /// has finished is not there any more, so the last one is always zero.
    pub by_state: [SegmentsInState; RemoteLogSegmentState::ALL.len()],
    /// The highest offset that was ever readable in each leader epoch.
    pub highest_offsets: Vec<(LeaderEpoch, i64)>,
    /// How far the deletion of the partition has come.
    pub delete_state: Option<RemotePartitionDeleteState>,
}

/// How many segments are in one state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentsInState {
    /// Their number.
    pub segments: u64,
    /// Bytes of their logs, as the metadata states them.
    pub bytes: u64,
}

impl SegmentStatistics {
    /// What is in this state.
    pub fn in_state(&self, state: RemoteLogSegmentState) -> SegmentsInState {
        self.by_state[state as usize]
    }
}

impl PartitionSurvey {
    fn new(tp: &TopicIdPartition, metadata_partition: i32) -> Self {
        Self {
            cache: RemoteLogMetadataCache::new(tp.clone()),
            metadata_partition,
            events: 0,
            dropped: 0,
        }
    }

    /// The segments in numbers.
    pub fn statistics(&self) -> SegmentStatistics {
        let mut by_state = [SegmentsInState::default(); RemoteLogSegmentState::ALL.len()];
        for segment in self.cache.list_segments() {
            let of_state = &mut by_state[segment.state() as usize];
            of_state.segments += 1;
            of_state.bytes += u64::from(segment.segment_size_in_bytes().unsigned_abs());
        }
        let epochs = self.cache.epochs.iter();
        SegmentStatistics {
            by_state,
            highest_offsets: epochs
                .filter_map(|(&epoch, state)| Some((epoch, state.highest?)))
                .collect(),
            delete_state: self.cache.delete_state(),
        }
    }
}

impl TopicSurvey {
    /// A survey of the whole topic, which has read nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, of the user's partitions for which `keep` answers true. What is told of the others
    /// is counted and not kept.
    #[must_use]
    pub fn keeping(
        mut self,
        keep: impl Fn(&TopicIdPartition) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.keep = Some(Box::new(keep));
        self
    }

    /// The metadata partitions, ascending; none before the first [`catch_up`](Self::catch_up).
    pub fn metadata_partitions(&self) -> &[MetadataPartitionSurvey] {
        &self.metadata_partitions
    }

    /// What the topic tells of a user's partition; `None` when it has no event of it.
    pub fn partition(&self, tp: &TopicIdPartition) -> Option<&PartitionSurvey> {
        self.partitions.get(tp)
    }

    /// All user's partitions, by topic, partition and topic id.
    pub fn partitions(&self) -> Vec<&PartitionSurvey> {
        let mut partitions: Vec<_> = self.partitions.values().collect();
        partitions.sort_by_key(|survey| {
            let tp = survey.cache.topic_id_partition();
            (&tp.topic, tp.partition, tp.topic_id)
        });
        partitions
    }

    /// The topic's id, where the log knows it.
    pub fn topic_id(&self) -> Option<Uuid> {
        self.topic_id
    }

    /// Reads on to the ends that the metadata partitions have now, applies each event, and shows
    /// every record to `observer`.
    ///
    /// `stall_limit` bounds how long nothing may come while records are missing: a log waits for its
    /// brokers without end.
    ///
    /// # Errors
    ///
    /// Those of the log's marks and subscriptions.
    /// [`OffsetOutOfRange`](MetadataLogError::OffsetOutOfRange) when records were removed that had
    /// not been read, [`Rejected`](MetadataLogError::Rejected) when the topic was made again since
    /// the catch-up before, and [`Unavailable`](MetadataLogError::Unavailable) when it stalled. What
    /// was applied until then stays, and the next call goes on behind it.
    ///
    /// # Cancellation
    ///
    /// A dropped future leaves what was applied until then; the next call goes on behind it.
    pub async fn catch_up(
        &mut self,
        log: &dyn MetadataEventLog,
        stall_limit: Duration,
        observer: &mut SurveyObserver<'_>,
    ) -> Result<(), MetadataLogError> {
        // In this order, so that nothing that is between them was removed before.
        let low = log.low_water_marks().await?;
        let high = log.high_water_marks().await?;
        let mut missing = self.begin(log, &low, &high)?;
        if missing.is_empty() {
            return Ok(());
        }
        let starts = missing
            .iter()
            .map(|(&partition, &(start, _))| PartitionStart {
                partition,
                start_offset: start,
            });
        let (mut items, handle) = log.subscribe(starts.collect()).await?;
        while !missing.is_empty() {
            let item = tokio::time::timeout(stall_limit, items.next()).await;
            let item = item.map_err(|_| stalled(&missing, stall_limit))?;
            match item.ok_or(MetadataLogError::Closed)? {
                MetadataStreamItem::Page(page) => {
                    self.take(page, &mut missing, &*handle, observer);
                }
                MetadataStreamItem::OutOfRange {
                    partition,
                    position,
                    ..
                } => {
                    return Err(MetadataLogError::OffsetOutOfRange {
                        partition,
                        offset: position,
                    });
                }
            }
        }
        Ok(())
    }

    /// Which offsets of which partitions are to be read, from the first to before the second.
    fn begin(
        &mut self,
        log: &dyn MetadataEventLog,
        low: &[i64],
        high: &[i64],
    ) -> Result<BTreeMap<i32, (i64, i64)>, MetadataLogError> {
        let is_first = self.metadata_partitions.is_empty();
        let made_again = || MetadataLogError::Rejected {
            reason:
                "the metadata topic was deleted and made again, or partitions were added to it, \
                     while it was read: begin again"
                    .to_owned(),
            source: None,
        };
        if is_first {
            self.topic_id = log.topic_id();
            self.metadata_partitions = (0..)
                .zip(low)
                .map(|(partition, &low)| MetadataPartitionSurvey {
                    partition,
                    next: low,
                    ..MetadataPartitionSurvey::default()
                })
                .collect();
        } else if self.topic_id != log.topic_id() {
            return Err(made_again());
        }
        if self.metadata_partitions.len() != high.len() || low.len() != high.len() {
            return Err(made_again());
        }
        let mut missing = BTreeMap::new();
        for (survey, (&low, &high)) in self
            .metadata_partitions
            .iter_mut()
            .zip(low.iter().zip(high))
        {
            if high < survey.next {
                return Err(made_again());
            }
            if low > survey.next {
                return Err(MetadataLogError::OffsetOutOfRange {
                    partition: survey.partition,
                    offset: survey.next,
                });
            }
            survey.low = low;
            survey.high = high;
            if survey.next < high {
                missing.insert(survey.partition, (survey.next, high));
            }
        }
        Ok(missing)
    }

    fn take(
        &mut self,
        page: MetadataEventPage,
        missing: &mut BTreeMap<i32, (i64, i64)>,
        handle: &dyn AssignmentHandle,
        observer: &mut SurveyObserver<'_>,
    ) {
        let partition = page.partition;
        let Some(&(_, end)) = missing.get(&partition) else {
            return;
        };
        for record in page.records {
            if record.offset < end {
                let event = record.event();
                observer(&record, &event);
                self.apply(&record, event);
            }
        }
        let next = page.next_offset.min(end);
        if let Some(survey) = self.of_metadata_partition(partition) {
            survey.next = survey.next.max(next);
        }
        if next >= end {
            missing.remove(&partition);
            handle.remove(partition);
        }
    }

    fn apply(&mut self, record: &MetadataEventRecord, event: Result<MetadataEvent, PoisonReason>) {
        let count = i32::try_from(self.metadata_partitions.len()).unwrap_or(i32::MAX);
        let Some(survey) = self.of_metadata_partition(record.partition) else {
            return;
        };
        survey.count(&event);
        let Ok(event) = event else {
            return;
        };
        let tp = event.topic_id_partition();
        if metadata_partition_for(tp, count) != record.partition {
            survey.misplaced += 1;
            return;
        }
        if self.keep.as_ref().is_some_and(|keep| !keep(tp)) {
            return;
        }
        if !self.partitions.contains_key(tp) {
            let new = PartitionSurvey::new(tp, record.partition);
            self.partitions.insert(tp.clone(), new);
        }
        let Some(partition) = self.partitions.get_mut(tp) else {
            return;
        };
        partition.events += 1;
        if partition.cache.replay(record.offset, &event).is_err() {
            partition.dropped += 1;
            if let Some(survey) = self.of_metadata_partition(record.partition) {
                survey.dropped += 1;
            }
        }
    }

    fn of_metadata_partition(&mut self, partition: i32) -> Option<&mut MetadataPartitionSurvey> {
        let index = usize::try_from(partition).ok()?;
        self.metadata_partitions.get_mut(index)
    }
}

impl std::fmt::Debug for TopicSurvey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TopicSurvey")
            .field("topic_id", &self.topic_id)
            .field("metadata_partitions", &self.metadata_partitions)
            .field("partitions", &self.partitions.len())
            .finish_non_exhaustive()
    }
}

fn stalled(missing: &BTreeMap<i32, (i64, i64)>, limit: Duration) -> MetadataLogError {
    let partitions: Vec<_> = missing.keys().map(i32::to_string).collect();
    MetadataLogError::Unavailable {
        reason: format!(
            "nothing came within {limit:?} of the metadata partitions {}, which have records: are \
             their brokers there, and may this client read the topic?",
            partitions.join(", ")
        ),
        source: None,
    }
}
