//! Surveys of logs in this process.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use krabka_remote_storage::metadata::SegmentView;
use krabka_remote_storage::metadata::topic::{
    AssignmentHandle, InProcessMetadataEventLog, KeyedEvent, MetadataEvent, MetadataEventLog,
    MetadataEventRecord, MetadataEventStream, MetadataLogError, MetadataPartitionSurvey,
    PartitionStart, PoisonReason, RangeVisitor, TopicSurvey, metadata_partition_for,
};
use krabka_remote_storage::{RemotePartitionDeleteMetadata, RemotePartitionDeleteState};
use parking_lot::Mutex;

use super::*;
use crate::support::metadata_topic::{answers, bytes, epoch, int, records, rows, text};

const LIMIT: Duration = Duration::from_secs(30);

/// Kafka's topic, in a log of this process.
async fn kafkas_topic() -> Arc<InProcessMetadataEventLog> {
    let log = InProcessMetadataEventLog::new(5);
    for record in records() {
        let value = Bytes::from(record.value);
        let offset = log.publish(record.metadata_partition, value).await.unwrap();
        assert_eq!(offset, record.offset);
    }
    log
}

async fn survey(log: &dyn MetadataEventLog) -> TopicSurvey {
    let mut survey = TopicSurvey::new();
    catch_up(&mut survey, log).await.unwrap();
    survey
}

/// Reads on, and answers with what was shown: metadata partition, offset, whether it is poison.
async fn catch_up(
    survey: &mut TopicSurvey,
    log: &dyn MetadataEventLog,
) -> Result<Vec<(i32, i64, bool)>, MetadataLogError> {
    let mut shown = Vec::new();
    let mut observer = |record: &MetadataEventRecord,
                        event: &Result<MetadataEvent, PoisonReason>| {
        shown.push((record.partition, record.offset, event.is_err()));
    };
    survey.catch_up(log, LIMIT, &mut observer).await?;
    shown.sort_unstable();
    Ok(shown)
}

/// The numbers of all metadata partitions together.
fn sum(survey: &TopicSurvey, number: impl Fn(&MetadataPartitionSurvey) -> u64) -> u64 {
    survey.metadata_partitions().iter().map(number).sum()
}

fn add(id: u128, start: i64) -> Bytes {
    MetadataEvent::AddSegment(started(id, start, 1)).encode()
}

fn finish(id: u128) -> Bytes {
    let state = RemoteLogSegmentState::CopySegmentFinished;
    MetadataEvent::UpdateSegment(update(id, 2, state)).encode()
}

#[tokio::test]
async fn a_real_topic_gives_every_answer_of_kafkas_own_store() {
    let log = kafkas_topic().await;
    let survey = survey(&*log).await;
    let all = records();
    let is_add = |event: &MetadataEvent| matches!(event, MetadataEvent::AddSegment(_));
    let adds = all.iter().filter(|record| is_add(&record.event)).count();
    assert_eq!(sum(&survey, |one| one.records), all.len() as u64);
    assert_eq!(sum(&survey, |one| one.adds), adds as u64);
    assert_eq!(sum(&survey, |one| one.updates), (all.len() - adds) as u64);
    assert_eq!(sum(&survey, MetadataPartitionSurvey::poison), 0);
    assert_eq!(sum(&survey, |one| one.misplaced + one.dropped), 0);
    for one in survey.metadata_partitions() {
        let of_partition = all.iter().filter(|r| r.metadata_partition == one.partition);
        assert_eq!(one.high, i64::try_from(of_partition.count()).unwrap());
        assert_eq!((one.low, one.next), (0, one.high));
    }
    assert_eq!(survey.topic_id(), log.topic_id());

    let answers = answers();
    let partitions = survey.partitions();
    let key = |tp: &TopicIdPartition| {
        let id = kafka_uuid(tp.topic_id);
        format!("{id}:{}:{}", tp.topic, tp.partition)
    };
    let keys: BTreeSet<_> = partitions
        .iter()
        .map(|partition| key(partition.cache.topic_id_partition()))
        .collect();
    assert!(keys.iter().eq(answers.keys()), "{keys:?}");
    for partition in partitions {
        let tp = partition.cache.topic_id_partition();
        assert_eq!(partition.metadata_partition, metadata_partition_for(tp, 5));
        let expected = &answers[&key(tp)];
        for row in rows(&expected["lookups"]) {
            let found = partition
                .cache
                .find_segment(epoch(row), int(&row["offset"]));
            let found = found.map(|view| kafka_uuid(view.id()));
            assert_eq!(found.as_deref(), row["segment_id"].as_str(), "{row}");
        }
        let statistics = partition.statistics();
        let highest: Vec<_> = rows(&expected["highest_offset_for_epoch"])
            .filter_map(|row| Some((epoch(row), row["offset"].as_i64()?)))
            .collect();
        assert_eq!(statistics.highest_offsets, highest);
        for state in RemoteLogSegmentState::ALL {
            let of_state =
                rows(&expected["list_all"]).filter(|row| text(&row["state"]) == state.to_string());
            let in_state = statistics.in_state(state);
            assert_eq!(in_state.segments, of_state.count() as u64, "{tp} {state}");
            assert_eq!(in_state.bytes > 0, in_state.segments > 0);
        }
    }
}

#[tokio::test]
async fn poison_records_are_counted_by_reason_shown_and_passed_over() {
    let log = InProcessMetadataEventLog::new(1);
    let another_state = {
        let add = SegmentSpec::new(9, 0..=9).of(&orders()).at(1, 1);
        let add = add.state(RemoteLogSegmentState::CopySegmentFinished);
        MetadataEvent::AddSegment(add.make()).encode()
    };
    let first_state = {
        let state = RemoteLogSegmentState::CopySegmentStarted;
        MetadataEvent::UpdateSegment(update(1, 3, state)).encode()
    };
    let tombstone = KeyedEvent {
        key: Bytes::from_static(b"k"),
        event: None,
    };
    log.publish(0, add(1, 0)).await.unwrap();
    log.publish_keyed(0, tombstone).await.unwrap();
    for value in [
        Bytes::new(),
        Bytes::from(bytes("020000")),
        Bytes::from_static(b"hello"),
        another_state,
        first_state,
        finish(1),
    ] {
        log.publish(0, value).await.unwrap();
    }
    let mut survey = TopicSurvey::new();
    let shown = catch_up(&mut survey, &*log).await.unwrap();
    let poison: Vec<_> = shown.iter().filter(|(_, _, poison)| *poison).collect();
    let expected: Vec<_> = (1..=6).map(|offset| (0, offset, true)).collect();
    assert!(poison.into_iter().eq(&expected));
    let one = &survey.metadata_partitions()[0];
    assert_eq!(
        (one.tombstones, one.undecodable, one.unpublishable),
        (1, 3, 2)
    );
    assert_eq!((one.records, one.poison(), one.next), (8, 6, 8));
    let finished = survey.partition(&orders()).unwrap();
    assert_eq!((finished.events, finished.dropped), (2, 0));
    assert!(finished.cache.find_segment(LeaderEpoch(0), 5).is_some());
}

#[tokio::test]
async fn each_catch_up_reads_what_came_since_the_one_before() {
    let log = InProcessMetadataEventLog::new(1);
    let mut survey = TopicSurvey::new();
    assert_eq!(catch_up(&mut survey, &*log).await.unwrap(), []);
    log.publish(0, add(1, 0)).await.unwrap();
    assert_eq!(catch_up(&mut survey, &*log).await.unwrap(), [(0, 0, false)]);
    assert_eq!(catch_up(&mut survey, &*log).await.unwrap(), []);
    log.publish(0, finish(1)).await.unwrap();
    assert_eq!(catch_up(&mut survey, &*log).await.unwrap(), [(0, 1, false)]);
    let cache = &survey.partition(&orders()).unwrap().cache;
    assert_eq!(cache.highest_offset(LeaderEpoch(0)), Some(9));
}

#[tokio::test]
async fn events_of_another_metadata_partition_and_of_other_partitions_are_counted_and_not_kept() {
    let log = InProcessMetadataEventLog::new(3);
    let right = metadata_partition_for(&orders(), 3);
    let wrong = (right + 1) % 3;
    log.publish(wrong, add(1, 0)).await.unwrap();
    let other = TopicIdPartition::new(Uuid::from_u128(5), "others", 0);
    let of_other = MetadataEvent::PartitionDelete(RemotePartitionDeleteMetadata::new(
        other.clone(),
        RemotePartitionDeleteState::DeletePartitionMarked,
        1,
        1,
    ))
    .encode();
    log.publish(metadata_partition_for(&other, 3), of_other)
        .await
        .unwrap();
    log.publish(right, add(2, 10)).await.unwrap();
    // Dropped: nobody has added it.
    log.publish(right, finish(3)).await.unwrap();
    let mut survey = TopicSurvey::new().keeping(|tp| tp.topic == "orders");
    catch_up(&mut survey, &*log).await.unwrap();
    assert_eq!(sum(&survey, |one| one.misplaced), 1);
    assert_eq!(sum(&survey, |one| one.dropped), 1);
    assert_eq!(sum(&survey, |one| one.partition_deletes), 1);
    assert_eq!(survey.partitions().len(), 1);
    assert!(survey.partition(&other).is_none());
    let kept = survey.partition(&orders()).unwrap();
    assert_eq!((kept.events, kept.dropped), (2, 1));
    let ids: Vec<_> = kept
        .cache
        .list_segments()
        .iter()
        .map(SegmentView::id)
        .collect();
    assert_eq!(ids, [Uuid::from_u128(2)]);
}

#[tokio::test]
async fn a_trimmed_topic_is_read_from_where_it_begins_and_a_loss_meanwhile_is_an_error() {
    let log = InProcessMetadataEventLog::new(1);
    for id in 0..4 {
        log.publish(0, add(id, 0)).await.unwrap();
    }
    log.delete_records(0, 2).unwrap();
    let mut survey = TopicSurvey::new();
    let shown = catch_up(&mut survey, &*log).await.unwrap();
    assert_eq!(shown, [(0, 2, false), (0, 3, false)]);
    let one = &survey.metadata_partitions()[0];
    assert_eq!((one.low, one.high, one.records), (2, 4, 2));

    log.publish(0, add(4, 0)).await.unwrap();
    log.publish(0, add(5, 0)).await.unwrap();
    log.delete_records(0, 5).unwrap();
    match catch_up(&mut survey, &*log).await {
        Err(MetadataLogError::OffsetOutOfRange { partition, offset }) => {
            assert_eq!((partition, offset), (0, 4));
        }
        other => panic!("{other:?}"),
    }
}

/// A log in this process, with other answers than its own.
struct Altered {
    log: Arc<InProcessMetadataEventLog>,
    high: Mutex<Option<i64>>,
    topic_id: Mutex<Option<Uuid>>,
    delivers: bool,
}

impl Altered {
    fn new(log: &Arc<InProcessMetadataEventLog>, delivers: bool) -> Self {
        Self {
            log: Arc::clone(log),
            high: Mutex::new(None),
            topic_id: Mutex::new(log.topic_id()),
            delivers,
        }
    }
}

#[async_trait]
impl MetadataEventLog for Altered {
    fn partition_count(&self) -> i32 {
        self.log.partition_count()
    }

    fn topic_id(&self) -> Option<Uuid> {
        *self.topic_id.lock()
    }

    async fn publish(&self, partition: i32, payload: Bytes) -> Result<i64, MetadataLogError> {
        self.log.publish(partition, payload).await
    }

    async fn publish_keyed(
        &self,
        partition: i32,
        record: KeyedEvent,
    ) -> Result<i64, MetadataLogError> {
        self.log.publish_keyed(partition, record).await
    }

    async fn subscribe(
        &self,
        starts: Vec<PartitionStart>,
    ) -> Result<(MetadataEventStream, Arc<dyn AssignmentHandle>), MetadataLogError> {
        let (items, handle) = self.log.subscribe(starts).await?;
        if self.delivers {
            return Ok((items, handle));
        }
        Ok((Box::pin(futures::stream::pending()), handle))
    }

    async fn low_water_marks(&self) -> Result<Vec<i64>, MetadataLogError> {
        self.log.low_water_marks().await
    }

    async fn high_water_marks(&self) -> Result<Vec<i64>, MetadataLogError> {
        let mut marks = self.log.high_water_marks().await?;
        if let Some(high) = *self.high.lock() {
            marks[0] = high;
        }
        Ok(marks)
    }

    async fn visit_range(
        &self,
        partition: i32,
        start: i64,
        end: i64,
        visitor: &mut RangeVisitor<'_>,
    ) -> Result<(), MetadataLogError> {
        self.log.visit_range(partition, start, end, visitor).await
    }
}

#[tokio::test]
async fn records_beyond_the_end_that_was_seen_are_left_to_the_next_catch_up() {
    let log = InProcessMetadataEventLog::new(1);
    for id in 0..5 {
        log.publish(0, add(id, 0)).await.unwrap();
    }
    let altered = Altered::new(&log, true);
    *altered.high.lock() = Some(3);
    let mut survey = TopicSurvey::new();
    assert_eq!(catch_up(&mut survey, &altered).await.unwrap().len(), 3);
    assert_eq!(survey.metadata_partitions()[0].next, 3);
    *altered.high.lock() = None;
    let shown = catch_up(&mut survey, &altered).await.unwrap();
    assert_eq!(shown, [(0, 3, false), (0, 4, false)]);
    // A topic that is shorter than before is another one.
    *altered.high.lock() = Some(4);
    let result = catch_up(&mut survey, &altered).await;
    assert!(
        matches!(result, Err(MetadataLogError::Rejected { .. })),
        "{result:?}"
    );
}

#[tokio::test]
async fn a_topic_that_was_made_again_meanwhile_is_refused() {
    let log = InProcessMetadataEventLog::new(1);
    let altered = Altered::new(&log, true);
    let mut survey = survey(&altered).await;
    *altered.topic_id.lock() = Some(Uuid::from_u128(1));
    let result = catch_up(&mut survey, &altered).await;
    assert!(
        matches!(result, Err(MetadataLogError::Rejected { .. })),
        "{result:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_log_that_stops_delivering_is_given_up() {
    let log = InProcessMetadataEventLog::new(4);
    log.publish(2, add(1, 0)).await.unwrap();
    let altered = Altered::new(&log, false);
    let result = catch_up(&mut TopicSurvey::new(), &altered).await;
    match result {
        Err(MetadataLogError::Unavailable { reason, .. }) => {
            assert!(
                reason.contains("within 30s of the metadata partitions 2,"),
                "{reason}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_closed_log_is_an_error() {
    let log = InProcessMetadataEventLog::new(1);
    log.close();
    let result = catch_up(&mut TopicSurvey::new(), &*log).await;
    assert!(
        matches!(result, Err(MetadataLogError::Closed)),
        "{result:?}"
    );
}
