//! Segments to copy and to name: made up on the spot, of any size.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use crate::model::{
    LeaderEpoch, LogSegmentData, RemoteLogSegmentDetails, RemoteLogSegmentId,
    RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition,
};

/// A partition of the topic `orders`, whose id is this number.
pub fn orders(topic_id: u128, partition: i32) -> TopicIdPartition {
    TopicIdPartition::new(Uuid::from_u128(topic_id), "orders", partition)
}

/// Metadata of segment `id` of partition `orders-0`, which begins at `start_offset` and has ten
/// offsets.
pub fn metadata(id: u128, start_offset: i64, size: u64) -> Arc<RemoteLogSegmentMetadata> {
    let size = i32::try_from(size).unwrap();
    let spec = SegmentSpec::new(id, start_offset..=start_offset + 9);
    Arc::new(spec.size(size).make())
}

/// Metadata of a segment to be made.
///
/// By default of one byte of partition `orders-0` in epoch 0, whose copy has begun on broker 1.
#[derive(Clone, Debug)]
pub struct SegmentSpec {
    id: u128,
    offsets: RangeInclusive<i64>,
    partition: TopicIdPartition,
    epochs: Vec<(i32, i64)>,
    size: i32,
    max_timestamp_ms: i64,
    event_timestamp_ms: i64,
    broker_id: i32,
    state: RemoteLogSegmentState,
}

impl SegmentSpec {
    /// The segment of this id with these offsets.
    pub fn new(id: u128, offsets: RangeInclusive<i64>) -> Self {
        Self {
            id,
            epochs: vec![(0, *offsets.start())],
            offsets,
            partition: orders(1, 0),
            size: 1,
            max_timestamp_ms: -1,
            event_timestamp_ms: 0,
            broker_id: 1,
            state: RemoteLogSegmentState::CopySegmentStarted,
        }
    }

    /// Is of this partition.
    #[must_use]
    pub fn of(mut self, partition: &TopicIdPartition) -> Self {
        self.partition = partition.clone();
        self
    }

    /// Has these leader epochs, each from its offset on.
    #[must_use]
    pub fn epochs(mut self, epochs: &[(i32, i64)]) -> Self {
        self.epochs = epochs.to_vec();
        self
    }

    /// Has a log of so many bytes.
    #[must_use]
    pub fn size(mut self, bytes: i32) -> Self {
        self.size = bytes;
        self
    }

    /// Has this largest timestamp of its records, and this one of the event, both in milliseconds.
    #[must_use]
    pub fn at(mut self, max_timestamp_ms: i64, event_timestamp_ms: i64) -> Self {
        self.max_timestamp_ms = max_timestamp_ms;
        self.event_timestamp_ms = event_timestamp_ms;
        self
    }

    /// Comes from this broker.
    #[must_use]
    pub fn broker(mut self, id: i32) -> Self {
        self.broker_id = id;
        self
    }

    /// Is in this state.
    #[must_use]
    pub fn state(mut self, state: RemoteLogSegmentState) -> Self {
        self.state = state;
        self
    }

    /// The metadata.
    pub fn make(&self) -> RemoteLogSegmentMetadata {
        let epochs = self.epochs.iter();
        let epochs = epochs.map(|&(epoch, start)| (LeaderEpoch(epoch), start));
        RemoteLogSegmentMetadata::new(
            RemoteLogSegmentId::new(self.partition.clone(), Uuid::from_u128(self.id)),
            *self.offsets.start(),
            *self.offsets.end(),
            self.max_timestamp_ms,
            self.broker_id,
            self.event_timestamp_ms,
            RemoteLogSegmentDetails::new(self.size, self.state, epochs.collect()),
        )
        .unwrap()
    }
}

/// Bytes that differ from place to place, so that a misplaced range shows.
#[allow(clippy::cast_possible_truncation)] // Below 256.
pub fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length)
        .map(|at| ((at / 251 + at) % 256) as u8 ^ seed)
        .collect()
}

/// Writes the local files of a segment whose log is `log`.
pub fn files(dir: &Path, log: &[u8]) -> Arc<LogSegmentData> {
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    Arc::new(LogSegmentData {
        log_segment: write("0.log", log),
        offset_index: write("0.index", b"offset index"),
        time_index: write("0.timeindex", b"time index"),
        transaction_index: Some(write("0.txnindex", b"transaction index")),
        producer_snapshot_index: Some(write("1.snapshot", b"snapshot")),
        leader_epoch_index: Bytes::from_static(b"0\n1\n0 0\n"),
    })
}
