//! A tier and its metadata, both written by Kafka's brokers, read by this crate.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use krabka_remote_storage::backends::LocalClient;
use krabka_remote_storage::index::{Batch, DEFAULT_MAX_DECOMPRESSED_BYTES, Record, TimestampType};
use krabka_remote_storage::topic::{
    KafkaMetadataEventLog, KafkaMetadataLogConfig, MetadataEvent, MetadataEventLog as _,
    metadata_partitions_for,
};
use krabka_remote_storage::{
    LeaderEpoch, RemoteLogMetadataStore as _, RemoteLogReader, RemoteLogSegmentMetadata,
    RemoteLogSegmentState, RemoteStorage, TopicIdPartition, decode_kafka_uuid,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::{NamedTempFile, TempDir};

use super::cluster::{Cluster, Managed, java, json_file, json_lines, within};
use super::oracle::{Question, all_records, hex, record_line};
use crate::support::metadata_topic::{int, rows, text};

/// What Kafka's clients say of a partition that `TierTopic` has filled.
pub(crate) struct Expected {
    pub(crate) records: Vec<Value>,
    pub(crate) about: Value,
}

impl Expected {
    pub(crate) fn read(dir: &Path, topic: &str, partition: i32) -> Self {
        Self {
            records: json_lines(&dir.join(format!("{topic}-{partition}.records.ndjson"))),
            about: json_file(&dir.join(format!("{topic}-{partition}.json"))),
        }
    }

    pub(crate) fn offset(&self, which: &str) -> i64 {
        int(&self.about["offsets"][which]["offset"])
    }

    /// The records up to this offset.
    pub(crate) fn up_to(&self, last: i64) -> Vec<Value> {
        let records = self.records.iter();
        records
            .take_while(|record| int(&record["offset"]) <= last)
            .cloned()
            .collect()
    }

    /// The records of these that a read-committed consumer gets.
    pub(crate) fn committed(&self, records: &[Value]) -> Vec<Value> {
        let is_committed = |record: &&Value| {
            let offset = int(&record["offset"]);
            rows(&self.about["read_committed_ranges"])
                .any(|range| (int(&range[0])..=int(&range[1])).contains(&offset))
        };
        records.iter().filter(is_committed).cloned().collect()
    }
}

/// A topic that `TierTopic` has filled, and the folder of what Kafka's clients say of it.
pub(crate) struct Filled {
    pub(crate) topic: String,
    pub(crate) dir: TempDir,
    about: Value,
}

impl Filled {
    pub(crate) fn topic(kafka: &Cluster, topic: &str, settings: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        let path = dir.path().to_str().unwrap().to_owned();
        let about = kafka.program("TierTopic", &[&[topic, path.as_str()], settings].concat());
        Self {
            topic: topic.to_owned(),
            about: about.into_iter().next_back().unwrap(),
            dir,
        }
    }

    pub(crate) fn partition(&self, partition: i32) -> TopicIdPartition {
        let topic_id = decode_kafka_uuid(text(&self.about["topic_id"])).unwrap();
        TopicIdPartition::new(topic_id, self.topic.clone(), partition)
    }

    pub(crate) fn expected(&self, partition: i32) -> Expected {
        Expected::read(self.dir.path(), &self.topic, partition)
    }
}

/// A record as Kafka's consumer shows it in `TierTopic`'s files.
fn as_json(batch: &Batch<'_>, record: &Record<&[u8]>) -> Value {
    let header = batch.header().unwrap();
    let timestamp_type = match header.timestamp_type() {
        TimestampType::CreateTime => "CreateTime",
        TimestampType::LogAppendTime => "LogAppendTime",
    };
    let mut json = json!({
        "offset": record.offset,
        "leader_epoch": header.partition_leader_epoch(),
        "timestamp_ms": record.timestamp,
        "timestamp_type": timestamp_type,
        "key": record.key.map(hex),
        "value_len": record.value.map_or(-1, |value| i64::try_from(value.len()).unwrap()),
        "value_sha256": record.value.map(|value| hex(&Sha256::digest(value))),
    });
    let headers: Vec<_> = record
        .headers()
        .map(|header| json!([header.key_text(), header.value.map(hex)]))
        .collect();
    if !headers.is_empty() {
        json["headers"] = headers.into();
    }
    json
}

fn records_of<'a>(batches: impl IntoIterator<Item = &'a Batch<'a>>, from: i64) -> Vec<Value> {
    let mut found = Vec::new();
    for batch in batches {
        if batch.header().unwrap().is_control() {
            continue;
        }
        let records = batch.records(DEFAULT_MAX_DECOMPRESSED_BYTES).unwrap();
        let records = records.iter().filter(|record| record.offset >= from);
        found.extend(records.map(|record| as_json(batch, &record)));
    }
    found
}

/// One partition of a tier, as this crate reads it.
struct Tiered {
    partition: TopicIdPartition,
    reader: RemoteLogReader,
    epochs: BTreeMap<LeaderEpoch, i64>,
}

impl Tiered {
    fn epoch_of(&self, offset: i64) -> LeaderEpoch {
        let mut begun = self.epochs.iter().filter(|(_, first)| **first <= offset);
        let first = self.epochs.first_key_value().unwrap();
        *begun.next_back().unwrap_or(first).0
    }

    async fn read(&self, from: i64, last: i64, max_bytes: usize) -> Vec<Value> {
        let mut found = Vec::new();
        let mut offset = from;
        while offset <= last {
            let epoch = self.epoch_of(offset);
            let read = self.reader.read(&self.partition, epoch, offset, max_bytes);
            let read = read.await.unwrap();
            let read = read.unwrap_or_else(|| panic!("{} has no {offset}", self.partition));
            let batches: Vec<_> = krabka_remote_storage::index::Batches::new(&read.bytes)
                .collect::<Result<_, _>>()
                .unwrap();
            found.extend(records_of(&batches, offset));
            offset = read.next_offset;
        }
        found
    }

    async fn read_committed(&self, from: i64, last: i64, max_bytes: usize) -> Vec<Value> {
        let mut found = Vec::new();
        let mut offset = from;
        while offset <= last {
            let epoch = self.epoch_of(offset);
            let read = self
                .reader
                .read_committed(&self.partition, epoch, offset, max_bytes, None);
            let read = read.await.unwrap().unwrap();
            let visible = read.visible_batches(DEFAULT_MAX_DECOMPRESSED_BYTES);
            found.extend(records_of(&visible.unwrap(), offset));
            offset = read.batches.next_offset;
        }
        found
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_brokers_have_tiered_is_read_here_as_their_consumers_read_it() {
    let Some(kafka) = Cluster::start(&["--brokers", "3", "--tiered"]) else {
        return;
    };
    let filled = Filled::topic(&kafka, "tiered", &[]);
    let partitions = [0, 1].map(|partition| filled.partition(partition));

    let config = KafkaMetadataLogConfig::new(kafka.bootstrap());
    let log = within("the log", KafkaMetadataEventLog::open_read_only(config));
    let log = log.await.unwrap();
    let managed = Managed::over(&log);
    let manager = &managed.manager;
    let wanted = metadata_partitions_for(&partitions, log.partition_count());
    within("the replay", async {
        manager.reconcile_assignment(&wanted).await.unwrap();
        manager.wait_until_ready().await.unwrap();
    })
    .await;

    let storage = RemoteStorage::builder(Arc::new(LocalClient::new(kafka.tier())))
        .build()
        .unwrap();
    for (partition, number) in partitions.iter().zip(0..) {
        let expected = filled.expected(number);
        let (earliest, last) = (
            expected.offset("earliest"),
            expected.offset("latest_tiered"),
        );
        let reader = RemoteLogReader::new(storage.clone(), Arc::clone(manager) as _);
        let tiered = Tiered {
            epochs: reader.leader_epochs(partition).await.unwrap(),
            partition: partition.clone(),
            reader,
        };
        assert!(tiered.epochs.len() > 2, "{:?}", tiered.epochs);
        let segments = manager.list_segments(partition).await.unwrap();
        let finished = segments
            .iter()
            .filter(|segment| segment.state() == RemoteLogSegmentState::CopySegmentFinished);
        assert!(finished.count() > 2, "{segments:#?}");
        // Those below the start were deleted.
        assert!(
            segments
                .iter()
                .all(|segment| segment.end_offset() >= earliest)
        );
        assert_eq!(number == 1, earliest > 0);

        let records = expected.up_to(last);
        assert!(records.len() > 300, "{}", records.len());
        let committed = expected.committed(&records);
        assert!(committed.len() < records.len(), "something was aborted");
        for max_bytes in [1, 5_000, 1 << 20] {
            let read = tiered.read(earliest, last, max_bytes).await;
            assert_same(&read, &records, partition);
        }
        // The tier may end within a transaction, and ends for it where that begins.
        let undecided = tiered
            .reader
            .first_undecided_offset(partition)
            .await
            .unwrap();
        let decided = undecided.unwrap_or(last + 1) - 1;
        let committed: Vec<_> = committed
            .into_iter()
            .filter(|record| int(&record["offset"]) <= decided)
            .collect();
        for max_bytes in [1, 5_000, 1 << 20] {
            let read = tiered.read_committed(earliest, decided, max_bytes).await;
            let read: Vec<_> = read
                .into_iter()
                .filter(|record| int(&record["offset"]) <= decided)
                .collect();
            assert_same(&read, &committed, partition);
        }
        offsets_for_times(&tiered, &segments, &expected, last).await;
    }
    answers_are_those_of_kafkas_store(&log, &managed, &partitions).await;
    log.shutdown().await;
}

fn assert_same(found: &[Value], expected: &[Value], partition: &TopicIdPartition) {
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found, expected, "{partition}");
    }
    assert_eq!(found.len(), expected.len(), "{partition}");
}

async fn offsets_for_times(
    tiered: &Tiered,
    segments: &[RemoteLogSegmentMetadata],
    expected: &Expected,
    last: i64,
) {
    let earliest = expected.offset("earliest");
    let mut found_some = 0;
    for row in rows(&expected.about["offsets_for_times"]) {
        let ask = int(&row["ask_ms"]);
        let found = tiered
            .reader
            .offset_for_timestamp(&tiered.partition, ask, earliest, None)
            .await
            .unwrap();
        // What only the local log has is not in the tier.
        let in_tier = row["offset"].as_i64().filter(|offset| *offset <= last);
        let what = format!("{} at {ask}: {row}", tiered.partition);
        // Kafka looks into the first segment that has such a timestamp and no further. Where it was
        // below the log's start there, Kafka finds nothing, and the reader the next that there is.
        let mut candidates = segments.iter();
        let first = candidates.find(|one| one.max_timestamp_ms() >= ask);
        if row["offset"].is_null() && first.is_some_and(|one| one.start_offset() < earliest) {
            let mut records = expected.records.iter();
            let next = records.find(|record| int(&record["timestamp_ms"]) >= ask);
            let next = next.map_or(i64::MAX, |record| int(&record["offset"]));
            let is_record = |at| expected.records.iter().any(|one| int(&one["offset"]) == at);
            match found {
                // Control records have the time of their writing, which is later than all of these.
                Some(found) => assert!(
                    found.offset == next || found.offset < next && !is_record(found.offset),
                    "{what}: {found:?}, not {next}"
                ),
                None => assert!(next > last, "{what}: {next}"),
            }
            found_some += i32::from(found.is_some());
            continue;
        }
        assert_eq!(found.map(|found| found.offset), in_tier, "{what}");
        if let Some(found) = found {
            found_some += 1;
            assert_eq!(found.timestamp_ms, int(&row["timestamp_ms"]), "{what}");
            let epoch = found.leader_epoch.map(|epoch| i64::from(epoch.0));
            assert_eq!(epoch, row["leader_epoch"].as_i64(), "{what}");
        }
    }
    assert!(found_some > 20, "{found_some}");
}

/// The topic as the brokers wrote it, and both stores' answers to the same questions.
async fn answers_are_those_of_kafkas_store(
    log: &Arc<KafkaMetadataEventLog>,
    managed: &Managed,
    partitions: &[TopicIdPartition],
) {
    let mut input = NamedTempFile::new().unwrap();
    for record in within("the records", all_records(&**log)).await {
        MetadataEvent::decode(&record.payload).unwrap();
        writeln!(input, "{}", record_line(&record)).unwrap();
    }
    let mut asked = Vec::new();
    for tp in partitions {
        let mut questions = vec![Question::List];
        for epoch in (0..12).map(LeaderEpoch) {
            questions.extend([
                Question::HighestOffset(epoch),
                Question::ListOf(epoch),
                Question::Size(epoch),
            ]);
            for offset in (0..2_000).step_by(37) {
                questions.push(Question::Segment(epoch, offset));
                questions.push(Question::SegmentWithTxnIndex(epoch, offset));
            }
        }
        for question in questions {
            writeln!(input, "{}", question.line(tp)).unwrap();
            asked.push((tp, question));
        }
    }
    input.flush().unwrap();
    let answers = java(
        "MetadataOracle",
        &["answer", input.path().to_str().unwrap()],
    );
    assert_eq!(answers.len(), asked.len());
    for (line, (tp, question)) in answers.iter().zip(asked) {
        let ours = question.of(&*managed.manager, tp).await;
        assert_eq!(ours, question.kafkas(line), "{tp}: {question:?}");
    }
}
