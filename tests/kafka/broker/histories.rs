//! Random histories of segments, written by a manager of this crate to a real broker, and read by
//! Kafka's own classes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write as _;
use std::sync::Arc;

use futures::{StreamExt as _, stream};
use krabka_remote_storage::topic::{MetadataEvent, TopicBasedRemoteLogMetadataManager};
use krabka_remote_storage::{
    CustomMetadata, LeaderEpoch, RemoteLogMetadataStore, RemoteLogSegmentDetails,
    RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState, RemotePartitionDeleteMetadata, RemotePartitionDeleteState,
    TopicIdPartition,
};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tempfile::NamedTempFile;
use uuid::Uuid;

use super::cluster::{Cluster, Managed, java, log, within};
use super::oracle::{Answer, Question, all_records, hex, record_line};
use crate::support::metadata_topic;

const HISTORIES: usize = 1_000;
const TASKS: usize = 32;

/// A partition's life as its leaders tell it, one after the other.
struct History {
    dice: StdRng,
    tp: TopicIdPartition,
    events: Vec<MetadataEvent>,
    /// Segments that are not deleted, oldest first.
    segments: Vec<RemoteLogSegmentMetadata>,
    next_offset: i64,
    epoch: i32,
    broker: i32,
    time: i64,
    /// Where finished segments begin, by epoch. A broker copies nothing twice.
    begun: BTreeSet<(LeaderEpoch, i64)>,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut dice = StdRng::seed_from_u64(seed);
        let topic_id = Uuid::from_u128(dice.random());
        let partition = dice.random_range(0..40);
        let mut history = Self {
            tp: TopicIdPartition::new(topic_id, format!("topic-{seed}"), partition),
            events: Vec::new(),
            segments: Vec::new(),
            next_offset: dice.random_range(0..3) * 50,
            epoch: dice.random_range(0..3),
            broker: 1,
            time: 1_700_000_000_000,
            begun: BTreeSet::new(),
            dice,
        };
        for _ in 0..history.dice.random_range(2..9) {
            history.go_on();
        }
        if history.dice.random_bool(0.1) {
            history.delete_partition();
        }
        history
    }

    fn go_on(&mut self) {
        self.time += self.dice.random_range(0..5_000);
        if self.dice.random_bool(0.2) {
            self.epoch += self.dice.random_range(1..3);
            self.broker = self.dice.random_range(1..4);
        }
        if self.segments.len() > 1 && self.dice.random_bool(0.35) {
            self.delete_oldest();
        } else {
            self.copy();
        }
    }

    fn copy(&mut self) {
        // A leader that was elected without being in sync copies anew what it has otherwise.
        let back = if self.dice.random_bool(0.15) {
            self.dice.random_range(0..40)
        } else {
            0
        };
        let start = (self.next_offset - back).max(0);
        let end = self.next_offset.max(start) + self.dice.random_range(0..60);
        let mut epochs = BTreeMap::from([(LeaderEpoch(self.epoch), start)]);
        if end > start && self.dice.random_bool(0.3) {
            self.epoch += 1;
            let at = self.dice.random_range(start + 1..=end);
            epochs.insert(LeaderEpoch(self.epoch), at);
        }
        if epochs
            .iter()
            .any(|(&epoch, &at)| self.begun.contains(&(epoch, at)))
        {
            return;
        }
        let details = RemoteLogSegmentDetails::new(
            self.dice.random_range(0..i32::MAX),
            RemoteLogSegmentState::CopySegmentStarted,
            epochs,
        );
        let id = RemoteLogSegmentId::new(self.tp.clone(), Uuid::from_u128(self.dice.random()));
        let latest = self.time - self.dice.random_range(-1..100);
        let mut segment =
            RemoteLogSegmentMetadata::new(id, start, end, latest, self.broker, self.time, details)
                .unwrap()
                .with_txn_index_empty(self.dice.random_bool(0.6));
        if self.dice.random_bool(0.2) {
            segment = segment.with_custom_metadata(self.custom());
        }
        self.events.push(MetadataEvent::AddSegment(segment.clone()));
        self.segments.push(segment);
        // Otherwise a leader died over it.
        if self.dice.random_bool(0.85) {
            let last = self.segments.len() - 1;
            let custom = self.dice.random_bool(0.3).then(|| self.custom());
            self.update(last, RemoteLogSegmentState::CopySegmentFinished, custom);
            let finished = self.segments[last].segment_leader_epochs();
            let begun = finished.iter().map(|(&epoch, &at)| (epoch, at));
            self.begun.extend(begun);
            self.next_offset = end + 1;
        }
    }

    fn delete_oldest(&mut self) {
        self.update(0, RemoteLogSegmentState::DeleteSegmentStarted, None);
        if self.dice.random_bool(0.3) {
            // The leader has changed meanwhile.
            self.broker += 1;
            self.time += 1;
            self.update(0, RemoteLogSegmentState::DeleteSegmentStarted, None);
        }
        if self.dice.random_bool(0.8) {
            self.update(0, RemoteLogSegmentState::DeleteSegmentFinished, None);
            self.segments.remove(0);
        } else {
            let stuck = self.segments.remove(0);
            self.segments.push(stuck);
        }
    }

    fn update(&mut self, at: usize, state: RemoteLogSegmentState, custom: Option<CustomMetadata>) {
        self.time += self.dice.random_range(1..50);
        let segment = &self.segments[at];
        // Without it Kafka would forget what the segment has.
        let custom = custom.or_else(|| segment.custom_metadata().cloned());
        let id = segment.remote_log_segment_id().clone();
        let update = RemoteLogSegmentMetadataUpdate::new(id, self.time, custom, state, self.broker);
        self.segments[at] = segment.with_update(&update).unwrap();
        self.events.push(MetadataEvent::UpdateSegment(update));
    }

    fn delete_partition(&mut self) {
        for state in RemotePartitionDeleteState::ALL {
            let event =
                RemotePartitionDeleteMetadata::new(self.tp.clone(), state, self.time, self.broker);
            self.events.push(MetadataEvent::PartitionDelete(event));
        }
    }

    fn custom(&mut self) -> CustomMetadata {
        let length = self.dice.random_range(0..20);
        CustomMetadata((0..length).map(|_| self.dice.random()).collect())
    }

    /// What is asked after an event.
    fn questions(&mut self, is_last: bool) -> Vec<Question> {
        let mut questions = Vec::new();
        if is_last || self.dice.random_bool(0.2) {
            questions.push(Question::List);
            for epoch in 0..self.epoch + 2 {
                let epoch = LeaderEpoch(epoch);
                questions.push(Question::HighestOffset(epoch));
                questions.push(Question::ListOf(epoch));
                questions.push(Question::Size(epoch));
                let offset = self.dice.random_range(0..self.next_offset + 10);
                questions.push(Question::Segment(epoch, offset));
                questions.push(Question::SegmentWithTxnIndex(epoch, offset));
            }
        }
        questions
    }
}

/// What a partition was asked, and its answers here.
struct Asked {
    tp: TopicIdPartition,
    /// After each event of the partition.
    after: Vec<Vec<(Question, Answer)>>,
}

async fn live(manager: Arc<TopicBasedRemoteLogMetadataManager>, seed: u64) -> Asked {
    let mut history = History::new(seed);
    let events = std::mem::take(&mut history.events);
    let mut after = Vec::new();
    let count = events.len();
    for (number, event) in events.into_iter().enumerate() {
        let written = match event {
            MetadataEvent::AddSegment(segment) => manager.add_segment(segment).await,
            MetadataEvent::UpdateSegment(update) => manager.update_segment(update).await,
            MetadataEvent::PartitionDelete(delete) => manager.put_partition_delete(delete).await,
        };
        written.unwrap_or_else(|error| panic!("history {seed}, event {number}: {error}"));
        let mut answers = Vec::new();
        for question in history.questions(number + 1 == count) {
            answers.push((question, question.of(&*manager, &history.tp).await));
        }
        after.push(answers);
    }
    Asked {
        tp: history.tp,
        after,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kafkas_classes_read_what_is_written_here_and_answer_the_same() {
    let Some(kafka) = Cluster::shared() else {
        return;
    };
    let config = kafka.own_topic(5);
    let log = log(&config).await;
    let managed = Managed::ready(&log).await;
    let histories = (0..HISTORIES).map(|seed| {
        let manager = Arc::clone(&managed.manager);
        tokio::spawn(live(manager, seed as u64))
    });
    let asked = stream::iter(histories).buffer_unordered(TASKS);
    let asked: HashMap<_, _> = within("the histories", asked.collect::<Vec<_>>())
        .await
        .into_iter()
        .map(|asked| {
            let asked = asked.unwrap();
            (asked.tp.clone(), asked)
        })
        .collect();
    assert_eq!(asked.len(), HISTORIES);

    // The records in their order, and the questions where they were asked.
    let mut input = NamedTempFile::new().unwrap();
    let mut expected = Vec::new();
    let mut seen: HashMap<TopicIdPartition, usize> = HashMap::new();
    let records = within("the records", all_records(&*log)).await;
    for record in &records {
        writeln!(input, "{}", record_line(record)).unwrap();
        let event = MetadataEvent::decode(&record.payload).unwrap();
        let of = &asked[event.topic_id_partition()];
        let number = seen.entry(of.tp.clone()).or_default();
        for (question, answer) in &of.after[*number] {
            writeln!(input, "{}", question.line(&of.tp)).unwrap();
            expected.push((&of.tp, question, answer));
        }
        *number += 1;
    }
    for of in asked.values() {
        assert_eq!(seen.get(&of.tp).copied().unwrap_or(0), of.after.len());
    }
    assert!(records.len() > 8 * HISTORIES, "{} events", records.len());
    assert!(
        expected.len() > 20 * HISTORIES,
        "{} questions",
        expected.len()
    );
    input.flush().unwrap();
    let path = input.path().to_str().unwrap();

    let mut decoded = java("MetadataOracle", &["decode", path]);
    decoded.retain(|line| line.get("ask").is_none());
    assert_eq!(decoded.len(), records.len());
    for (line, record) in decoded.iter().zip(&records) {
        let event = line.get("event").unwrap_or_else(|| panic!("{line}"));
        assert_eq!(
            metadata_topic::event(event),
            MetadataEvent::decode(&record.payload).unwrap()
        );
        // Kafka's serde writes the same bytes again.
        assert_eq!(metadata_topic::text(&line["value"]), hex(&record.payload));
    }

    let answered = java("MetadataOracle", &["answer", path]);
    assert_eq!(answered.len(), expected.len());
    for (line, (tp, question, answer)) in answered.iter().zip(expected) {
        assert_eq!(&question.kafkas(line), answer, "{tp}: {question:?}");
    }
    log.shutdown().await;
    kafka.delete_topic(&config.topic).await;
}
