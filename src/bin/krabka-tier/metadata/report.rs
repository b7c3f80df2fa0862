//! One record of the metadata topic, for people and for machines.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use indicatif::HumanBytes;
use krabka_remote_storage::archive::Printable;
use krabka_remote_storage::model::{
    CustomMetadata, LeaderEpoch, RemoteLogSegmentId, RemoteLogSegmentState,
    RemotePartitionDeleteState, TopicIdPartition, kafka_uuid,
};
use krabka_remote_storage::topic::{MetadataEvent, MetadataEventRecord, PoisonReason};
use serde::{Serialize, Serializer};

use crate::failure::chain;

/// How many bytes of a value people see.
const SHOWN_BYTES: usize = 64;

/// A record, with the names and the order of the project's test data.
#[derive(Debug, Serialize)]
pub(super) struct RecordReport<'a> {
    metadata_partition: i32,
    offset: i64,
    key_null: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<Hex<'a>>,
    value: Option<Hex<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<EventReport<'a>>,
    /// Why a broker of Apache Kafka stops at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    poison: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "type")]
enum EventReport<'a> {
    #[serde(rename = "RemoteLogSegmentMetadata")]
    Add {
        broker_id: i32,
        event_timestamp_ms: i64,
        id: SegmentIdReport<'a>,
        start_offset: i64,
        end_offset: i64,
        max_timestamp_ms: i64,
        segment_size_in_bytes: i32,
        #[serde(serialize_with = "as_text")]
        state: RemoteLogSegmentState,
        txn_idx_empty: bool,
        segment_leader_epochs: &'a BTreeMap<LeaderEpoch, i64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        custom_metadata: Option<Hex<'a>>,
    },
    #[serde(rename = "RemoteLogSegmentMetadataUpdate")]
    Update {
        broker_id: i32,
        event_timestamp_ms: i64,
        id: SegmentIdReport<'a>,
        #[serde(serialize_with = "as_text")]
        state: RemoteLogSegmentState,
        #[serde(skip_serializing_if = "Option::is_none")]
        custom_metadata: Option<Hex<'a>>,
    },
    #[serde(rename = "RemotePartitionDeleteMetadata")]
    PartitionDelete {
        broker_id: i32,
        event_timestamp_ms: i64,
        #[serde(flatten)]
        partition: PartitionReport<'a>,
        #[serde(serialize_with = "as_text")]
        state: RemotePartitionDeleteState,
    },
}

#[derive(Debug, Serialize)]
struct SegmentIdReport<'a> {
    #[serde(flatten)]
    partition: PartitionReport<'a>,
    segment_id: String,
}

#[derive(Debug, Serialize)]
struct PartitionReport<'a> {
    topic_id: String,
    topic: &'a str,
    partition: i32,
}

#[derive(Clone, Copy, Debug)]
struct Hex<'a>(&'a [u8]);

impl<'a> RecordReport<'a> {
    pub(super) fn new(
        record: &'a MetadataEventRecord,
        event: &'a Result<MetadataEvent, PoisonReason>,
    ) -> Self {
        Self {
            metadata_partition: record.partition,
            offset: record.offset,
            key_null: record.key.is_none(),
            key: record.key.as_deref().map(Hex),
            value: (!record.tombstone).then(|| Hex(&record.payload)),
            event: event.as_ref().ok().map(EventReport::new),
            poison: event.as_ref().err().map(reason_of),
        }
    }
}

/// A reason and its causes, in one line.
pub(super) fn reason_of(reason: &PoisonReason) -> String {
    chain(reason).replace("\n  caused by: ", ": ")
}

impl<'a> EventReport<'a> {
    fn new(event: &'a MetadataEvent) -> Self {
        let bytes = |custom: Option<&'a CustomMetadata>| custom.map(|custom| Hex(&custom.0));
        match event {
            MetadataEvent::AddSegment(segment) => Self::Add {
                broker_id: segment.broker_id(),
                event_timestamp_ms: segment.event_timestamp_ms(),
                id: SegmentIdReport::new(segment.remote_log_segment_id()),
                start_offset: segment.start_offset(),
                end_offset: segment.end_offset(),
                max_timestamp_ms: segment.max_timestamp_ms(),
                segment_size_in_bytes: segment.segment_size_in_bytes(),
                state: segment.state(),
                txn_idx_empty: segment.txn_index_empty(),
                segment_leader_epochs: segment.segment_leader_epochs(),
                custom_metadata: bytes(segment.custom_metadata()),
            },
            MetadataEvent::UpdateSegment(update) => Self::Update {
                broker_id: update.broker_id,
                event_timestamp_ms: update.event_timestamp_ms,
                id: SegmentIdReport::new(&update.remote_log_segment_id),
                state: update.state,
                custom_metadata: bytes(update.custom_metadata.as_ref()),
            },
            MetadataEvent::PartitionDelete(delete) => Self::PartitionDelete {
                broker_id: delete.broker_id,
                event_timestamp_ms: delete.event_timestamp_ms,
                partition: PartitionReport::new(&delete.topic_id_partition),
                state: delete.state,
            },
        }
    }
}

impl<'a> SegmentIdReport<'a> {
    fn new(id: &'a RemoteLogSegmentId) -> Self {
        Self {
            partition: PartitionReport::new(&id.topic_id_partition),
            segment_id: kafka_uuid(id.id),
        }
    }
}

impl<'a> PartitionReport<'a> {
    fn new(tp: &'a TopicIdPartition) -> Self {
        Self {
            topic_id: kafka_uuid(tp.topic_id),
            topic: &tp.topic,
            partition: tp.partition,
        }
    }
}

fn as_text<S: Serializer>(value: &impl fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

impl Serialize for Hex<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for RecordReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>3} {:>10}  ", self.metadata_partition, self.offset)?;
        let mut text = String::new();
        match (&self.event, &self.poison) {
            (Some(event), _) => write!(text, "{event}")?,
            (None, Some(reason)) => write!(text, "POISON  {reason}")?,
            (None, None) => {}
        }
        if self.poison.is_some()
            && let Some(Hex(value)) = self.value
        {
            let shown = &value[..value.len().min(SHOWN_BYTES)];
            write!(text, "; {} bytes: {}", value.len(), Hex(shown))?;
            if shown.len() < value.len() {
                text.push_str("...");
            }
        }
        if let Some(Hex(key)) = self.key {
            write!(text, "; with a key of {} bytes", key.len())?;
        }
        // Names come from whoever may write to the topic.
        write!(f, "{}", Printable(&text))
    }
}

impl fmt::Display for EventReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (broker, time, custom) = match self {
            Self::Add {
                broker_id,
                event_timestamp_ms,
                id,
                start_offset,
                end_offset,
                segment_size_in_bytes,
                state,
                segment_leader_epochs,
                custom_metadata,
                ..
            } => {
                write!(
                    f,
                    "{id}  {state}  offsets {start_offset} to {end_offset}, {}, epochs",
                    HumanBytes(u64::from(segment_size_in_bytes.unsigned_abs()))
                )?;
                for (epoch, start) in *segment_leader_epochs {
                    write!(f, " {epoch} from {start}")?;
                }
                (broker_id, event_timestamp_ms, custom_metadata)
            }
            Self::Update {
                broker_id,
                event_timestamp_ms,
                id,
                state,
                custom_metadata,
            } => {
                write!(f, "{id}  {state}")?;
                (broker_id, event_timestamp_ms, custom_metadata)
            }
            Self::PartitionDelete {
                broker_id,
                event_timestamp_ms,
                partition,
                state,
            } => {
                write!(f, "{partition}  {state}")?;
                (broker_id, event_timestamp_ms, &None)
            }
        };
        if let Some(custom) = custom {
            write!(f, ", custom metadata {custom}")?;
        }
        write!(f, ", broker {broker} at {time}")
    }
}

impl fmt::Display for SegmentIdReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  {}", self.partition, self.segment_id)
    }
}

impl fmt::Display for PartitionReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}
