//! What a trace tells, done again with managers of this crate.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use krabka_remote_storage::topic::{
    AssignmentHandle, InProcessMetadataEventLog, KeyedEvent, MetadataEvent, MetadataEventLog,
    MetadataEventStream, MetadataLogError, PartitionStart, RangeVisitor,
    TopicBasedRemoteLogMetadataManager, metadata_partition_for,
};
use krabka_remote_storage::{
    RemoteLogMetadataStore, RemoteLogSegmentMetadata, RemoteStorageError, TopicIdPartition,
};
use parking_lot::Mutex;
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::trace::{Names, Trace};
use crate::support::metadata_topic::{epoch, int, int32, rows, text};

/// How many lines of which kind were held against the manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Answers of the store, all equal.
    pub(crate) answers: usize,
    /// Answers of `is_ready`.
    pub(crate) is_ready: usize,
    /// Those of them where this manager is ready and Kafka's is not yet.
    pub(crate) ready_sooner: usize,
    /// Writes, which ended alike.
    pub(crate) writes: usize,
}

pub(crate) async fn replay(trace: &Trace) -> Counts {
    let mut counts = Counts::default();
    let mut managers = HashMap::new();
    for (at, line) in trace.lines.iter().enumerate() {
        let Some(number) = line.get("manager").map(int) else {
            continue;
        };
        let manager = managers
            .entry(number)
            .or_insert_with(|| Replayed::new(trace, number));
        // A line that never comes to its end would hang.
        let what = format!("line {}: {line}", at + 1);
        tokio::time::timeout(Duration::from_secs(20), manager.line(at, line, &mut counts))
            .await
            .expect(&what);
    }
    counts
}

/// One of our managers, in the place of Kafka's with this number.
struct Replayed<'a> {
    trace: &'a Trace,
    number: i64,
    names: Names,
    written: BTreeSet<i64>,
    log: Arc<TraceLog>,
    manager: Arc<TopicBasedRemoteLogMetadataManager>,
    /// Partitions that were given to it.
    loaded: BTreeSet<i64>,
    _dir: TempDir,
}

/// A log whose marks are those that the manager in the trace was told, and not known before.
struct TraceLog {
    inner: Arc<InProcessMetadataEventLog>,
    targets: Mutex<BTreeMap<i32, i64>>,
    are_known: watch::Sender<bool>,
}

impl<'a> Replayed<'a> {
    fn new(trace: &'a Trace, number: i64) -> Self {
        let log = Arc::new(TraceLog {
            inner: InProcessMetadataEventLog::new(trace.count(number)),
            targets: Mutex::default(),
            are_known: watch::Sender::new(false),
        });
        let dir = TempDir::new().unwrap();
        let manager = TopicBasedRemoteLogMetadataManager::start(
            Arc::clone(&log) as _,
            Handle::current(),
            dir.path(),
            Duration::from_hours(1),
        );
        Self {
            names: trace.names(number),
            written: trace.written(number),
            manager: manager.unwrap(),
            loaded: BTreeSet::new(),
            _dir: dir,
            trace,
            number,
            log,
        }
    }

    async fn line(&mut self, at: usize, line: &Value, counts: &mut Counts) {
        if let Some(partition) = line.get("loaded") {
            self.loaded.insert(int(partition));
            self.log.are_known.send_replace(false);
            self.assign().await;
        } else if let Some(assigned) = line.get("assigned") {
            let assigned = rows(assigned).map(|one| int(&one["topic_partition"]));
            self.loaded = assigned.collect();
            for partition in rows(&line["metadata_partitions"]).map(int32) {
                let target = self.trace.target(self.number, partition, at);
                let mut targets = self.log.targets.lock();
                if !self.manager_reads(partition) {
                    targets.insert(partition, target);
                }
            }
            self.assign().await;
            self.log.are_known.send_replace(true);
            while !self.has_begun() && !self.is_closed() {
                tokio::task::yield_now().await;
            }
        } else if let Some(record) = line.get("read") {
            self.read(int(record), counts).await;
        } else if let Some(partition) = line.get("ready") {
            let tp = self.names.of(&self.trace.partitions[&int(partition)]);
            while self.manager.check_ready(&tp).await.is_err() {
                tokio::task::yield_now().await;
            }
        } else if line.get("ask").is_some() {
            self.ask(line, counts).await;
        } else if let Some(call) = line.get("call") {
            if line.get("error").is_some() {
                self.write_in_vain(line).await;
                counts.writes += 1;
            }
            assert!(text(call).starts_with(['a', 'u', 'p']), "{line}");
        } else if line.get("closed").is_some() {
            self.manager.shutdown();
        } else {
            let is_known = ["cleared", "metadata_partition_count"];
            assert!(is_known.iter().any(|key| line.get(key).is_some()), "{line}");
        }
    }

    fn manager_reads(&self, partition: i32) -> bool {
        let readiness = self.manager.metadata_partition_readiness();
        let mut readiness = readiness.iter();
        readiness.any(|one| one.partition == partition && one.target_offset.is_some())
    }

    /// Whether the manager knows how far it has to read.
    fn has_begun(&self) -> bool {
        let readiness = self.manager.metadata_partition_readiness();
        let mut readiness = readiness.iter();
        readiness.all(|one| one.target_offset.is_some())
    }

    /// Assigns what the loaded partitions need, as a broker does.
    async fn assign(&self) {
        let count = self.trace.count(self.number);
        let loaded = self.loaded.iter().map(|tp| &self.trace.partitions[tp]);
        let desired: BTreeSet<i32> = loaded
            .map(|tp| match self.names.place(tp) {
                Some(place) => place,
                None => metadata_partition_for(tp, count),
            })
            .collect();
        let desired: Vec<_> = desired.into_iter().collect();
        let manager = Arc::clone(&self.manager);
        let wanted = desired.clone();
        // It returns when the marks are known.
        tokio::spawn(async move { manager.reconcile_assignment(&wanted).await });
        while self.manager.assigned_metadata_partitions() != desired && !self.is_closed() {
            tokio::task::yield_now().await;
        }
    }

    fn is_closed(&self) -> bool {
        format!("{:?}", self.manager).contains("is_closed: true")
    }

    async fn read(&self, number: i64, counts: &mut Counts) {
        let record = &self.trace.records[&number];
        let partition = record.metadata_partition;
        let next = self.log.next_offset(partition).await;
        // What it reads once more is in the log already.
        if record.offset >= next {
            assert_eq!(record.offset, next, "record {number}");
            let tp = self.names.of(record.event.topic_id_partition());
            // Kafka's manager writes before it is ready, too.
            if self.written.contains(&number) && self.manager.check_ready(&tp).await.is_ok() {
                self.write(&self.names.event(&record.event))
                    .await
                    .unwrap_or_else(|error| panic!("record {number}: {error}"));
                counts.writes += 1;
            }
            if self.log.next_offset(partition).await == next {
                let value = self.names.value(&record.event);
                self.log.publish(partition, value).await.unwrap();
            }
        }
        let has_read = || {
            let readiness = self.manager.metadata_partition_readiness();
            let of = readiness.iter().find(|one| one.partition == partition);
            of.is_none_or(|one| one.applied_offset >= record.offset)
        };
        while !has_read() {
            tokio::task::yield_now().await;
        }
    }

    async fn write(&self, event: &MetadataEvent) -> Result<(), RemoteStorageError> {
        let manager = &self.manager;
        match event.clone() {
            MetadataEvent::AddSegment(segment) => manager.add_segment(segment).await,
            MetadataEvent::UpdateSegment(update) => manager.update_segment(update).await,
            MetadataEvent::PartitionDelete(delete) => manager.put_partition_delete(delete).await,
        }
    }

    /// A write whose event Kafka's manager did not see: nothing was assigned.
    async fn write_in_vain(&self, line: &Value) {
        let value = crate::support::metadata_topic::bytes(text(&line["value"]));
        let event = self.names.event(&MetadataEvent::decode(&value).unwrap());
        let before = self.log.inner.high_water_marks().await.unwrap();
        let error = self.write(&event).await.unwrap_err();
        assert!(
            matches!(error, RemoteStorageError::NotReady { .. }),
            "{line}: {error}"
        );
        assert_eq!(self.log.inner.high_water_marks().await.unwrap(), before);
    }

    async fn ask(&self, line: &Value, counts: &mut Counts) {
        let tp = self
            .names
            .of(&self.trace.partitions[&int(&line["topic_partition"])]);
        if text(&line["ask"]) == "is_ready" {
            let kafkas = line["answer"].as_bool().unwrap();
            let ours = self.manager.check_ready(&tp).await.is_ok();
            assert!(ours || !kafkas, "{line}");
            counts.is_ready += 1;
            counts.ready_sooner += usize::from(ours && !kafkas);
            return;
        }
        let found = self.answer(&tp, line).await;
        let expected = match line.get("error") {
            Some(error) => match text(error) {
                "RemoteResourceNotFoundException" => Ok(Answer::nothing(text(&line["ask"]))),
                "ReplicaNotAvailableException" => Err("NotReady".to_owned()),
                other => panic!("an error that nobody expects: {other}"),
            },
            None => Ok(self.kafkas_answer(line)),
        };
        let found = found.map_err(|error| match error {
            RemoteStorageError::NotReady { .. } => "NotReady".to_owned(),
            other => other.to_string(),
        });
        assert_eq!(found, expected, "{line}");
        counts.answers += 1;
    }

    fn kafkas_answer(&self, line: &Value) -> Answer {
        let answer = &line["answer"];
        let segment = |number: &Value| self.names.segment(&self.trace.segments[&int(number)]);
        match text(&line["ask"]) {
            "remote_log_segment_metadata" | "next_segment_with_txn_index" => {
                Answer::Segment((!answer.is_null()).then(|| segment(answer)))
            }
            "highest_offset_for_epoch" => Answer::Offset(answer.as_i64()),
            "remote_log_size" => Answer::Bytes(int(answer)),
            "list_remote_log_segments" => Answer::segments(rows(answer).map(segment).collect()),
            other => panic!("a question that nobody knows: {other}"),
        }
    }

    async fn answer(
        &self,
        tp: &TopicIdPartition,
        line: &Value,
    ) -> Result<Answer, RemoteStorageError> {
        let manager = &self.manager;
        let offset = || int(&line["offset"]);
        Ok(match text(&line["ask"]) {
            "remote_log_segment_metadata" => {
                Answer::Segment(manager.find_segment(tp, epoch(line), offset()).await?)
            }
            "next_segment_with_txn_index" => {
                let epoch = epoch(line);
                let found = manager.find_segment_with_txn_index(tp, epoch, offset());
                Answer::Segment(found.await?)
            }
            "highest_offset_for_epoch" => {
                Answer::Offset(manager.highest_offset(tp, epoch(line)).await?)
            }
            "remote_log_size" => Answer::Bytes(manager.log_size(tp, epoch(line)).await?),
            "list_remote_log_segments" if line.get("epoch").is_some() => {
                Answer::segments(manager.list_segments_by_epoch(tp, epoch(line)).await?)
            }
            "list_remote_log_segments" => Answer::segments(manager.list_segments(tp).await?),
            other => panic!("a question that nobody knows: {other}"),
        })
    }
}

#[derive(Debug, PartialEq)]
enum Answer {
    Segment(Option<RemoteLogSegmentMetadata>),
    /// In an order of their own.
    Segments(Vec<RemoteLogSegmentMetadata>),
    Offset(Option<i64>),
    Bytes(i64),
}

impl Answer {
    fn segments(mut segments: Vec<RemoteLogSegmentMetadata>) -> Self {
        segments.sort_by_key(|segment| segment.remote_log_segment_id().id);
        Self::Segments(segments)
    }

    fn nothing(ask: &str) -> Self {
        match ask {
            "highest_offset_for_epoch" => Self::Offset(None),
            "remote_log_size" => Self::Bytes(0),
            "list_remote_log_segments" => Self::Segments(Vec::new()),
            _ => Self::Segment(None),
        }
    }
}

impl TraceLog {
    async fn next_offset(&self, partition: i32) -> i64 {
        let high = self.inner.high_water_marks().await.unwrap();
        high[usize::try_from(partition).unwrap()]
    }
}

#[async_trait]
impl MetadataEventLog for TraceLog {
    fn partition_count(&self) -> i32 {
        self.inner.partition_count()
    }

    async fn publish(&self, partition: i32, payload: Bytes) -> Result<i64, MetadataLogError> {
        self.inner.publish(partition, payload).await
    }

    async fn publish_keyed(
        &self,
        partition: i32,
        record: KeyedEvent,
    ) -> Result<i64, MetadataLogError> {
        self.inner.publish_keyed(partition, record).await
    }

    async fn subscribe(
        &self,
        starts: Vec<PartitionStart>,
    ) -> Result<(MetadataEventStream, Arc<dyn AssignmentHandle>), MetadataLogError> {
        self.inner.subscribe(starts).await
    }

    async fn low_water_marks(&self) -> Result<Vec<i64>, MetadataLogError> {
        self.inner.low_water_marks().await
    }

    async fn high_water_marks(&self) -> Result<Vec<i64>, MetadataLogError> {
        let mut are_known = self.are_known.subscribe();
        are_known.wait_for(|known| *known).await.unwrap();
        let mut marks = self.inner.high_water_marks().await?;
        for (&partition, &target) in &*self.targets.lock() {
            let mark = &mut marks[usize::try_from(partition).unwrap()];
            *mark = target.max(*mark);
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
        self.inner.visit_range(partition, start, end, visitor).await
    }
}
