//! Questions, asked of a manager of this crate and of Kafka's own classes.

use krabka_remote_storage::topic::{MetadataEventLog, MetadataEventRecord};
use krabka_remote_storage::{
    LeaderEpoch, RemoteLogMetadataStore, RemoteLogSegmentMetadata, TopicIdPartition, kafka_uuid,
};
use serde_json::{Value, json};

use crate::support::metadata_topic::{int, rows, segment, text};

/// What is asked of a partition.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Question {
    Segment(LeaderEpoch, i64),
    SegmentWithTxnIndex(LeaderEpoch, i64),
    HighestOffset(LeaderEpoch),
    List,
    ListOf(LeaderEpoch),
    Size(LeaderEpoch),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    Segment(Option<RemoteLogSegmentMetadata>),
    Offset(Option<i64>),
    /// By id: Kafka's lists have other orders.
    Segments(Vec<RemoteLogSegmentMetadata>),
    Size(i64),
}

impl Answer {
    fn segments(mut segments: Vec<RemoteLogSegmentMetadata>) -> Self {
        segments.sort_by_key(|segment| segment.remote_log_segment_id().id);
        Self::Segments(segments)
    }
}

impl Question {
    pub(crate) async fn of(
        self,
        store: &dyn RemoteLogMetadataStore,
        tp: &TopicIdPartition,
    ) -> Answer {
        match self {
            Self::Segment(epoch, offset) => {
                Answer::Segment(store.find_segment(tp, epoch, offset).await.unwrap())
            }
            Self::SegmentWithTxnIndex(epoch, offset) => {
                let found = store.find_segment_with_txn_index(tp, epoch, offset).await;
                Answer::Segment(found.unwrap())
            }
            Self::HighestOffset(epoch) => {
                Answer::Offset(store.highest_offset(tp, epoch).await.unwrap())
            }
            Self::List => Answer::segments(store.list_segments(tp).await.unwrap()),
            Self::ListOf(epoch) => {
                Answer::segments(store.list_segments_by_epoch(tp, epoch).await.unwrap())
            }
            Self::Size(epoch) => Answer::Size(store.log_size(tp, epoch).await.unwrap()),
        }
    }

    /// The question as a line for the program `MetadataOracle`.
    pub(crate) fn line(self, tp: &TopicIdPartition) -> String {
        let (ask, epoch, offset) = match self {
            Self::Segment(epoch, offset) => {
                ("remote_log_segment_metadata", Some(epoch), Some(offset))
            }
            Self::SegmentWithTxnIndex(epoch, offset) => {
                ("next_segment_with_txn_index", Some(epoch), Some(offset))
            }
            Self::HighestOffset(epoch) => ("highest_offset_for_epoch", Some(epoch), None),
            Self::List => ("list_remote_log_segments", None, None),
            Self::ListOf(epoch) => ("list_remote_log_segments", Some(epoch), None),
            Self::Size(epoch) => ("remote_log_size", Some(epoch), None),
        };
        let mut line = json!({
            "ask": ask,
            "topic_id": kafka_uuid(tp.topic_id),
            "topic": tp.topic,
            "partition": tp.partition,
        });
        if let Some(epoch) = epoch {
            line["epoch"] = epoch.0.into();
        }
        if let Some(offset) = offset {
            line["offset"] = offset.into();
        }
        line.to_string()
    }

    /// What `MetadataOracle` answered.
    pub(crate) fn kafkas(self, line: &Value) -> Answer {
        if let Some(error) = line.get("error") {
            // Of a partition that was deleted nothing is found here.
            assert_eq!(text(error), "RemoteResourceNotFoundException", "{line}");
            return match self {
                Self::Segment(..) | Self::SegmentWithTxnIndex(..) => Answer::Segment(None),
                Self::HighestOffset(_) => Answer::Offset(None),
                Self::List | Self::ListOf(_) => Answer::Segments(Vec::new()),
                Self::Size(_) => Answer::Size(0),
            };
        }
        let answer = &line["answer"];
        match self {
            Self::Segment(..) | Self::SegmentWithTxnIndex(..) => {
                Answer::Segment((!answer.is_null()).then(|| segment(answer)))
            }
            Self::HighestOffset(_) => Answer::Offset(answer.as_i64()),
            Self::List | Self::ListOf(_) => Answer::segments(rows(answer).map(segment).collect()),
            Self::Size(_) => Answer::Size(int(answer)),
        }
    }
}

/// A record as a line for `MetadataOracle`.
pub(crate) fn record_line(record: &MetadataEventRecord) -> String {
    let value = (!record.tombstone).then(|| hex(&record.payload));
    json!({
        "metadata_partition": record.partition,
        "offset": record.offset,
        "value": value,
    })
    .to_string()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut hex = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        write!(hex, "{byte:02x}").unwrap();
    }
    hex
}

/// Every record of a log, by partition and offset.
pub(crate) async fn all_records(log: &dyn MetadataEventLog) -> Vec<MetadataEventRecord> {
    let (low, high) = (
        log.low_water_marks().await.unwrap(),
        log.high_water_marks().await.unwrap(),
    );
    let mut records = Vec::new();
    for (partition, (low, high)) in (0..).zip(low.into_iter().zip(high)) {
        records.extend(log.read_range(partition, low, high).await.unwrap());
    }
    records
}
