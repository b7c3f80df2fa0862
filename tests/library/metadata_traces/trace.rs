//! A trace, as it stands in its file.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use krabka_remote_storage::topic::{MetadataEvent, try_metadata_partition_for};
use krabka_remote_storage::{
    RemoteLogSegmentDetails, RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition,
};
use serde_json::Value;
use uuid::Uuid;

use crate::support::metadata_topic::{self, bytes, data, int, int32, text, topic_id_partition};

/// A record of the metadata topic.
pub(crate) struct Record {
    pub(crate) metadata_partition: i32,
    pub(crate) offset: i64,
    pub(crate) event: MetadataEvent,
}

/// The lines of one trace, and what their numbers stand for.
pub(crate) struct Trace {
    pub(crate) lines: Vec<Value>,
    pub(crate) records: HashMap<i64, Record>,
    pub(crate) segments: HashMap<i64, RemoteLogSegmentMetadata>,
    pub(crate) partitions: HashMap<i64, TopicIdPartition>,
    counts: HashMap<i64, i32>,
}

impl Trace {
    pub(crate) fn read(class: &str) -> Self {
        let file = data().join(format!("metadata-traces/{class}.ndjson"));
        let content = std::fs::read_to_string(file).unwrap();
        let lines: Vec<Value> = content
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let mut trace = Self {
            lines: Vec::new(),
            records: HashMap::new(),
            segments: HashMap::new(),
            partitions: HashMap::new(),
            counts: HashMap::new(),
        };
        for line in &lines {
            let is_of_manager = line.get("manager").is_some();
            if let Some(number) = line.get("record").filter(|_| !is_of_manager) {
                let record = Record {
                    metadata_partition: int32(&line["metadata_partition"]),
                    offset: int(&line["offset"]),
                    event: MetadataEvent::decode(&bytes(text(&line["value"]))).unwrap(),
                };
                trace.records.insert(int(number), record);
            } else if let Some(number) = line.get("segment") {
                let segment = metadata_topic::segment(&line["metadata"]);
                trace.segments.insert(int(number), segment);
            } else if line.get("topic_id").is_some() {
                let tp = topic_id_partition(line);
                trace.partitions.insert(int(&line["topic_partition"]), tp);
            } else if let Some(count) = line.get("metadata_partition_count") {
                trace.counts.insert(int(&line["manager"]), int32(count));
            }
        }
        trace.lines = lines;
        trace
    }

    /// The lines of a manager, in their order.
    pub(crate) fn lines_of(&self, manager: i64) -> impl Iterator<Item = (usize, &Value)> {
        let lines = self.lines.iter().enumerate();
        lines.filter(move |(_, line)| line.get("manager").is_some_and(|of| int(of) == manager))
    }

    pub(crate) fn count(&self, manager: i64) -> i32 {
        self.counts[&manager]
    }

    /// Which metadata partition this manager saw a partition's events in.
    fn places(&self, manager: i64) -> HashMap<TopicIdPartition, i32> {
        let mut places = HashMap::new();
        let mut put = |tp: &TopicIdPartition, place| {
            let before = places.insert(tp.clone(), place);
            assert!(before.is_none_or(|before| before == place), "{tp}");
        };
        for (_, line) in self.lines_of(manager) {
            for one in line
                .get("assigned")
                .into_iter()
                .flat_map(metadata_topic::rows)
            {
                let tp = &self.partitions[&int(&one["topic_partition"])];
                put(tp, int32(&one["metadata_partition"]));
            }
            if let Some(record) = line.get("read") {
                let record = &self.records[&int(record)];
                put(record.event.topic_id_partition(), record.metadata_partition);
            }
        }
        places
    }

    /// The names that a manager's partitions get here.
    pub(crate) fn names(&self, manager: i64) -> Names {
        let count = self.count(manager);
        let places = self.places(manager);
        let mut taken = BTreeSet::new();
        let names = places.iter().map(|(tp, &place)| {
            let mut name = tp.clone();
            let mut ids = (1..).map(Uuid::from_u128);
            while try_metadata_partition_for(&name, count) != Some(place)
                || !taken.insert((name.topic_id, name.partition))
            {
                name.topic_id = ids.next().unwrap();
            }
            (tp.clone(), name)
        });
        let names = names.collect();
        Names { names, places }
    }

    /// Offsets that this manager's replay of a metadata partition has to reach before it is ready
    /// there, as Kafka's had read them by then. Out of reach when Kafka's was never ready.
    pub(crate) fn target(&self, manager: i64, metadata_partition: i32, from: usize) -> i64 {
        let places = self.places(manager);
        let mut next = 0;
        for (at, line) in self.lines_of(manager) {
            if let Some(record) = line.get("read") {
                let record = &self.records[&int(record)];
                if record.metadata_partition == metadata_partition {
                    next = next.max(record.offset + 1);
                }
            } else if let Some(ready) = line.get("ready").filter(|_| at > from)
                && places[&self.partitions[&int(ready)]] == metadata_partition
            {
                return next;
            }
        }
        next + 1
    }

    /// Records that this manager wrote itself.
    pub(crate) fn written(&self, manager: i64) -> BTreeSet<i64> {
        let calls = self
            .lines_of(manager)
            .filter(|(_, line)| line.get("call").is_some() && line.get("error").is_none());
        calls
            .filter_map(|(_, line)| line.get("record"))
            .map(int)
            .collect()
    }
}

/// Some of Kafka's tests choose metadata partitions themselves. So that this crate's partitioner
/// says the same, a partition has another topic id here, where need be.
pub(crate) struct Names {
    names: HashMap<TopicIdPartition, TopicIdPartition>,
    places: HashMap<TopicIdPartition, i32>,
}

impl Names {
    pub(crate) fn of(&self, tp: &TopicIdPartition) -> TopicIdPartition {
        self.names.get(tp).unwrap_or(tp).clone()
    }

    /// The metadata partition of a partition, by Kafka's name.
    pub(crate) fn place(&self, tp: &TopicIdPartition) -> Option<i32> {
        self.places.get(tp).copied()
    }

    pub(crate) fn segment(&self, segment: &RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata {
        let renamed = MetadataEvent::AddSegment(segment.clone());
        match self.event(&renamed) {
            MetadataEvent::AddSegment(segment) => segment,
            _ => unreachable!("an add stays an add"),
        }
    }

    /// The same event, with the name that its partition has here.
    pub(crate) fn event(&self, event: &MetadataEvent) -> MetadataEvent {
        let tp = self.of(event.topic_id_partition());
        let mut event = event.clone();
        match &mut event {
            MetadataEvent::AddSegment(segment) => {
                let id = segment.remote_log_segment_id().id;
                let details = RemoteLogSegmentDetails::new(
                    segment.segment_size_in_bytes(),
                    segment.state(),
                    segment.segment_leader_epochs().clone(),
                );
                let renamed = RemoteLogSegmentMetadata::new(
                    RemoteLogSegmentId::new(tp, id),
                    segment.start_offset(),
                    segment.end_offset(),
                    segment.max_timestamp_ms(),
                    segment.broker_id(),
                    segment.event_timestamp_ms(),
                    details,
                )
                .unwrap()
                .with_txn_index_empty(segment.txn_index_empty());
                *segment = match segment.custom_metadata() {
                    Some(custom) => renamed.with_custom_metadata(custom.clone()),
                    None => renamed,
                };
            }
            MetadataEvent::UpdateSegment(update) => {
                update.remote_log_segment_id.topic_id_partition = tp;
            }
            MetadataEvent::PartitionDelete(delete) => delete.topic_id_partition = tp,
        }
        event
    }

    pub(crate) fn value(&self, event: &MetadataEvent) -> Bytes {
        self.event(event).encode()
    }
}
