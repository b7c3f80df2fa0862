//! Compares what a tier holds with the embedded files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;
use krabka_remote_storage::index::{
    Batches, DEFAULT_MAX_DECOMPRESSED_BYTES, LeaderEpochCheckpoint, corrupt_log, parse_txn_index,
};
use krabka_remote_storage::layout::{
    LEADER_EPOCH_CHECKPOINT_FILE, PARTITION_METADATA_FILE, log_file_name, parse_log_dir_name,
    parse_log_file_name,
};
use krabka_remote_storage::model::{
    IndexType, LOG_FILE_SUFFIX, TopicIdPartition, decode_kafka_uuid,
};
use krabka_remote_storage::{FetchIndex, FetchSegment, RemoteStorage, RemoteStorageError};

use super::data::Embedded;
use crate::failure::Failure;
use crate::output::count;
use crate::tier::TierSegment;

/// How many bytes of a log one request asks for: a few requests a segment, so that ranges are
/// shown to work.
const PIECE_BYTES: u32 = 8 * 1024;

/// One closed segment of an embedded partition: what a tier has to hold of it.
pub(super) struct ExpectedSegment {
    pub(super) partition: TopicIdPartition,
    base_offset: i64,
    log: &'static [u8],
    indexes: Vec<(IndexType, Bytes)>,
}

/// What was compared.
#[derive(Debug, Default)]
pub(super) struct Compared {
    pub(super) segments: usize,
    pub(super) objects: usize,
    pub(super) bytes: u64,
    pub(super) differences: Vec<String>,
    records: usize,
    batches: BTreeMap<&'static str, usize>,
    leader_epochs: BTreeSet<i32>,
    aborted_transactions: usize,
}

/// The closed segments of an embedded partition.
pub(super) fn closed_segments(partition: &Embedded) -> Result<Vec<ExpectedSegment>, Failure> {
    let broken = |file: &str| Failure::Refused(format!("{file} is not inside this program"));
    let file = |name: &str| partition.file(name).ok_or_else(|| broken(name));
    let metadata = String::from_utf8_lossy(file(PARTITION_METADATA_FILE)?);
    let topic_id = metadata
        .split_ascii_whitespace()
        .last()
        .and_then(decode_kafka_uuid)
        .ok_or_else(|| broken("the topic id"))?;
    let name = parse_log_dir_name(partition.name).ok_or_else(|| broken(partition.name))?;
    let tp = TopicIdPartition::new(topic_id, name.topic, name.partition);
    let checkpoint = LeaderEpochCheckpoint::parse(file(LEADER_EPOCH_CHECKPOINT_FILE)?)?;

    let base_offsets: BTreeSet<i64> = partition
        .files
        .iter()
        .filter_map(|(name, _)| parse_log_file_name(name))
        .filter(|name| name.suffix == LOG_FILE_SUFFIX)
        .map(|name| name.offset)
        .collect();
    let next = base_offsets.iter().skip(1);
    let mut segments = Vec::new();
    for (&base_offset, &next) in base_offsets.iter().zip(next) {
        let mut indexes = Vec::new();
        for index in IndexType::ALL {
            let offset = match index {
                IndexType::ProducerSnapshot => next,
                _ => base_offset,
            };
            let bytes = match index {
                IndexType::LeaderEpoch => Some(Bytes::from(checkpoint.up_to(next - 1).to_string())),
                _ => partition
                    .file(&log_file_name(offset, index.suffix())?)
                    .map(Bytes::from_static),
            };
            indexes.extend(bytes.map(|bytes| (index, bytes)));
        }
        segments.push(ExpectedSegment {
            partition: tp.clone(),
            base_offset,
            log: file(&log_file_name(base_offset, LOG_FILE_SUFFIX)?)?,
            indexes,
        });
    }
    Ok(segments)
}

impl ExpectedSegment {
    /// Reads the segment's objects from the tier and compares each byte.
    pub(super) async fn compare(
        &self,
        storage: &RemoteStorage,
        in_tier: &[TierSegment],
    ) -> Result<Compared, Failure> {
        let length = self.log.len() as u64;
        let segment = in_tier
            .iter()
            .filter(|segment| segment.base_offset() == self.base_offset)
            .find(|segment| segment.log_size() == Some(length));
        let mut compared = Compared {
            segments: 1,
            ..Compared::default()
        };
        let Some(segment) = segment else {
            let offset = self.base_offset;
            compared
                .differences
                .push(format!("no complete segment begins with offset {offset}"));
            return Ok(compared);
        };

        let log = fetch_log(storage, segment, self.log.len()).await?;
        compared.object(segment, LOG_FILE_SUFFIX, &log, self.log);
        for (index, expected) in &self.indexes {
            let bytes = match storage
                .fetch_index(FetchIndex::new(segment.handle.clone(), *index))
                .await
            {
                Err(RemoteStorageError::SegmentNotFound(_)) => None,
                other => Some(other?),
            };
            match bytes {
                Some(bytes) => compared.object(segment, index.suffix(), &bytes, expected),
                None => compared.missing(segment, index.suffix()),
            }
            if *index == IndexType::Transaction {
                compared.aborted_transactions += parse_txn_index(expected)?.len();
            }
        }
        if compared.differences.is_empty() {
            compared.decode(&log)?;
        }
        Ok(compared)
    }
}

async fn fetch_log(
    storage: &RemoteStorage,
    segment: &TierSegment,
    length: usize,
) -> Result<Vec<u8>, RemoteStorageError> {
    let mut log = Vec::with_capacity(length);
    loop {
        // Embedded logs are far below 4 GiB.
        let start = u32::try_from(log.len()).unwrap_or(u32::MAX);
        let end = start.saturating_add(PIECE_BYTES - 1);
        let piece = FetchSegment::new(segment.handle.clone(), start, Some(end));
        let piece = storage.fetch(piece).await?;
        if piece.is_empty() {
            return Ok(log);
        }
        log.extend_from_slice(&piece);
    }
}

impl Compared {
    pub(super) fn add(&mut self, other: Self) {
        self.segments += other.segments;
        self.objects += other.objects;
        self.bytes += other.bytes;
        self.differences.extend(other.differences);
        self.records += other.records;
        for (codec, batches) in other.batches {
            *self.batches.entry(codec).or_default() += batches;
        }
        self.leader_epochs.extend(other.leader_epochs);
        self.aborted_transactions += other.aborted_transactions;
    }

    fn object(&mut self, segment: &TierSegment, suffix: &str, bytes: &[u8], expected: &[u8]) {
        self.objects += 1;
        self.bytes += expected.len() as u64;
        if bytes != expected {
            self.differences.push(format!("{}{suffix}", name(segment)));
        }
    }

    fn missing(&mut self, segment: &TierSegment, suffix: &str) {
        self.differences
            .push(format!("{}{suffix} is missing", name(segment)));
    }

    /// Looks into every batch: its checksum, its codec, its records.
    fn decode(&mut self, log: &[u8]) -> Result<(), RemoteStorageError> {
        let mut batches = Batches::new(log);
        for batch in batches.by_ref() {
            let batch = batch?;
            let records = batch.records(DEFAULT_MAX_DECOMPRESSED_BYTES)?;
            let header = records.header();
            self.leader_epochs.insert(header.partition_leader_epoch());
            if !header.is_control() {
                self.records += records.len();
                let codec = header.compression_type()?.as_str();
                *self.batches.entry(codec).or_default() += 1;
            }
        }
        if batches.remainder().is_empty() {
            Ok(())
        } else {
            Err(corrupt_log("the log ends within a batch"))
        }
    }
}

fn name(segment: &TierSegment) -> String {
    format!("{:020}-{}", segment.base_offset(), segment.id_text())
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let codecs: Vec<_> = self.batches.keys().copied().collect();
        write!(
            f,
            "{}, {}, {} records decoded and their checksums right ({}), leader epochs {}",
            count(self.segments, "segment", "segments"),
            count(self.objects, "object", "objects"),
            self.records,
            codecs.join(" "),
            self.leader_epochs
                .iter()
                .map(i32::to_string)
                .collect::<Vec<_>>()
                .join(" "),
        )?;
        if self.aborted_transactions > 0 {
            write!(
                f,
                ", {} aborted transactions in the indexes",
                self.aborted_transactions
            )?;
        }
        Ok(())
    }
}
