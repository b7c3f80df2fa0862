//! One closed segment: its files, and what its metadata says of it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use bytes::Bytes;
use krabka_remote_storage::RemoteStorageError;
use krabka_remote_storage::index::{
    BatchHeader, BatchPrefix, LeaderEpochCheckpoint, OffsetIndex, ProducerSnapshot, TimeIndex,
    corrupt_log, parse_txn_index, sanity_check_txn_index,
};
use krabka_remote_storage::layout::log_file_name;
use krabka_remote_storage::model::{
    IndexType, LOG_FILE_SUFFIX, LeaderEpoch, LogSegmentData, RemoteLogSegmentDetails,
    RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteLogSegmentState,
};
use zerocopy::FromBytes as _;

use super::ClosedLog;
use super::partition::{PartitionDir, damaged};

/// Stands for the broker that copied a segment, where none did.
const NO_BROKER: i32 = -1;

/// A segment that the broker no longer writes to.
#[derive(Clone, Debug)]
pub(crate) struct ClosedSegment {
    pub(crate) base_offset: i64,
    /// Inclusive: the offset before the next segment's first.
    pub(crate) end_offset: i64,
    pub(crate) size_bytes: i32,
    pub(crate) max_timestamp_ms: i64,
    pub(crate) leader_epochs: BTreeMap<LeaderEpoch, i64>,
    pub(crate) txn_index_empty: bool,
    pub(crate) data: LogSegmentData,
}

/// Whether a closed log may end before the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gaps {
    /// No: a log that does has been cut.
    Refused,
    /// Yes: compaction removes batches.
    Allowed,
}

impl ClosedSegment {
    /// Opens a closed segment, and checks that all of it is there.
    ///
    /// `None` when the whole segment is below the log's start: the broker is about to delete it.
    pub(crate) fn open(
        dir: &PartitionDir,
        log: ClosedLog,
        checkpoint: &LeaderEpochCheckpoint,
        gaps: Gaps,
    ) -> Result<Option<Self>, RemoteStorageError> {
        let base_offset = log.base_offset;
        let end_offset = log.next_base_offset - 1;
        let file = |offset, suffix| {
            let name = log_file_name(offset, suffix)?;
            Ok::<_, RemoteStorageError>(dir.path.join(name))
        };
        let log_segment = file(base_offset, LOG_FILE_SUFFIX)?;
        let leader_epochs = checkpoint
            .segment_leader_epochs(base_offset, end_offset)
            .map_err(|error| damaged(&log_segment, error))?;
        if leader_epochs.is_empty() {
            if checkpoint.entries.is_empty() {
                return Err(RemoteStorageError::InvalidArgument(format!(
                    "the leader epochs of {} are not known: the checkpoint beside it is empty",
                    log_segment.display()
                )));
            }
            return Ok(None);
        }

        let offset_index = file(base_offset, IndexType::Offset.suffix())?;
        let time_index = file(base_offset, IndexType::Timestamp.suffix())?;
        // The state after the segment is the state before the next one.
        let snapshot = file(log.next_base_offset, IndexType::ProducerSnapshot.suffix())?;
        let txn_index = file(base_offset, IndexType::Transaction.suffix())?;
        required(&log_segment)?;
        required(&offset_index)?;
        required(&time_index)?;
        required(&snapshot)?;
        let transaction_index = is_there(&txn_index)?.then_some(txn_index);

        let walked = walk_log(&log_segment, base_offset, end_offset, gaps)?;
        let indexes = Indexes::read(
            base_offset,
            &offset_index,
            &time_index,
            transaction_index.as_deref(),
        )?;
        if indexes.last_position > 0 && indexes.last_position >= walked.size_bytes.cast_unsigned() {
            let position = indexes.last_position;
            let detail =
                format_args!("the offset index has a batch at {position}: it has been cut");
            return Err(damaged(&log_segment, corrupt_log(detail)));
        }
        for (index, last_offset) in [
            (&offset_index, indexes.last_indexed_offset),
            (&time_index, indexes.last_timed_offset),
        ] {
            if last_offset > end_offset {
                let problem = format!(
                    "it goes up to offset {last_offset}, and its segment to {end_offset}: it is \
                     another segment's"
                );
                let problem = io::Error::new(io::ErrorKind::InvalidData, problem);
                return Err(RemoteStorageError::io("use", index, problem));
            }
        }
        check_snapshot(&snapshot)?;
        Ok(Some(Self {
            base_offset,
            end_offset,
            size_bytes: walked.size_bytes,
            max_timestamp_ms: walked.max_timestamp_ms.max(indexes.max_timestamp_ms),
            leader_epochs,
            txn_index_empty: indexes.txn_index_empty,
            data: LogSegmentData {
                log_segment,
                offset_index,
                time_index,
                transaction_index,
                producer_snapshot_index: Some(snapshot),
                leader_epoch_index: Bytes::from(checkpoint.up_to(end_offset).to_string()),
            },
        }))
    }

    /// Its log file, as it was found.
    pub(crate) fn log(&self) -> ClosedLog {
        ClosedLog {
            base_offset: self.base_offset,
            next_base_offset: self.end_offset + 1,
            size_bytes: self.size_bytes.unsigned_abs().into(),
        }
    }

    /// The metadata of a copy of this segment that begins now.
    pub(crate) fn metadata(
        &self,
        id: RemoteLogSegmentId,
        event_timestamp_ms: i64,
    ) -> Result<RemoteLogSegmentMetadata, RemoteStorageError> {
        let details = RemoteLogSegmentDetails::new(
            self.size_bytes,
            RemoteLogSegmentState::CopySegmentStarted,
            self.leader_epochs.clone(),
        );
        let metadata = RemoteLogSegmentMetadata::new(
            id,
            self.base_offset,
            self.end_offset,
            self.max_timestamp_ms,
            NO_BROKER,
            event_timestamp_ms,
            details,
        )?;
        Ok(metadata.with_txn_index_empty(self.txn_index_empty))
    }

    /// Bytes of all that a copy sends.
    pub(crate) fn size_of_files(&self) -> Result<u64, RemoteStorageError> {
        let data = &self.data;
        let optional = [&data.transaction_index, &data.producer_snapshot_index];
        let files = [&data.log_segment, &data.offset_index, &data.time_index].into_iter();
        let mut bytes = data.leader_epoch_index.len() as u64;
        for file in files.chain(optional.into_iter().flatten()) {
            let metadata =
                fs::metadata(file).map_err(|error| RemoteStorageError::io("find", file, error))?;
            bytes += metadata.len();
        }
        Ok(bytes)
    }
}

fn required(path: &Path) -> Result<(), RemoteStorageError> {
    if is_there(path)? {
        return Ok(());
    }
    Err(RemoteStorageError::InvalidArgument(format!(
        "{} is missing, and every closed segment has one: a broker that starts on this directory \
         makes missing indexes anew",
        path.display()
    )))
}

/// Who starts from a damaged snapshot does not know the producers, and Kafka refuses it.
fn check_snapshot(path: &Path) -> Result<(), RemoteStorageError> {
    let bytes = fs::read(path).map_err(|error| RemoteStorageError::io("read", path, error))?;
    ProducerSnapshot::parse(&bytes).map_err(|error| damaged(path, error))?;
    Ok(())
}

fn is_there(path: &Path) -> Result<bool, RemoteStorageError> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => Ok(true),
        Ok(_) => {
            let problem = io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file");
            Err(RemoteStorageError::io("read", path, problem))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(RemoteStorageError::io("find", path, error)),
    }
}

/// What the indexes say, after Kafka's own checks of them.
struct Indexes {
    /// Where the batch of the offset index's last entry begins; 0 without an entry.
    last_position: u32,
    /// Of the offset index's last entry; the segment's first without one.
    last_indexed_offset: i64,
    /// Of the time index's last entry; the segment's first without one.
    last_timed_offset: i64,
    max_timestamp_ms: i64,
    txn_index_empty: bool,
}

impl Indexes {
    fn read(
        base_offset: i64,
        offset_index: &Path,
        time_index: &Path,
        txn_index: Option<&Path>,
    ) -> Result<Self, RemoteStorageError> {
        let read = |path: &Path| {
            fs::read(path).map_err(|error| RemoteStorageError::io("read", path, error))
        };
        let offsets = read(offset_index)?;
        let offsets = OffsetIndex::new(base_offset, &offsets);
        offsets
            .sanity_check()
            .map_err(|error| damaged(offset_index, error))?;
        let times = read(time_index)?;
        let times = TimeIndex::new(base_offset, &times);
        times
            .sanity_check()
            .map_err(|error| damaged(time_index, error))?;
        let mut txn_index_empty = true;
        if let Some(path) = txn_index {
            let bytes = read(path)?;
            parse_txn_index(&bytes)
                .and_then(|entries| sanity_check_txn_index(entries, base_offset))
                .map_err(|error| damaged(path, error))?;
            txn_index_empty = bytes.is_empty();
        }
        let last_offset = offsets.lookup(i64::MAX);
        let last_time = times.lookup(i64::MAX);
        Ok(Self {
            last_position: last_offset.position,
            last_indexed_offset: last_offset.offset,
            last_timed_offset: last_time.offset,
            max_timestamp_ms: last_time.timestamp,
            txn_index_empty,
        })
    }
}

struct WalkedLog {
    size_bytes: i32,
    /// Of the batches of magic 2, which have it in their headers; −1 without any.
    max_timestamp_ms: i64,
}

/// Walks a log from header to header, without reading its records.
///
/// A closed log ends where a batch does and holds only offsets of its segment, up to the last: a
/// log that was cut, or that is no log at all, is found here and not by whoever reads the tier.
fn walk_log(
    path: &Path,
    base_offset: i64,
    end_offset: i64,
    gaps: Gaps,
) -> Result<WalkedLog, RemoteStorageError> {
    let failed = |error| RemoteStorageError::io("read", path, error);
    let file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let corrupt = |detail: fmt::Arguments<'_>| damaged(path, corrupt_log(detail));
    let at = |position: u64, detail: &dyn fmt::Display| {
        corrupt(format_args!("at position {position}: {detail}"))
    };
    let size_bytes = i32::try_from(length)
        .map_err(|_| corrupt(format_args!("{length} bytes are more than a segment has")))?;
    let mut max_timestamp_ms = -1;
    let mut last_offset = base_offset - 1;
    let mut position = 0;
    while position < length {
        let mut header = [0; BatchHeader::SIZE];
        let here = usize::try_from(length - position).unwrap_or(usize::MAX);
        let header = &mut header[..here.min(BatchHeader::SIZE)];
        file.read_exact_at(header, position).map_err(failed)?;
        let batch = BatchPrefix::read(header)
            .map_err(|error| at(position, &error))?
            .ok_or_else(|| at(position, &"the log ends within a batch"))?;
        if batch.size > here {
            let size = batch.size;
            return Err(at(
                position,
                &format_args!("a batch of {size} bytes begins, and {here} are there"),
            ));
        }
        let last = batch
            .last_offset
            .ok_or_else(|| at(position, &format_args!("magic {} is unknown", batch.magic)))?;
        if batch.offset <= last_offset || last < batch.offset || last > end_offset {
            return Err(at(
                position,
                &format_args!(
                    "a batch has the offsets {} to {last}, where {} to {end_offset} are left",
                    batch.offset,
                    last_offset + 1
                ),
            ));
        }
        last_offset = last;
        if batch.magic == 2
            && let Ok((header, _)) = BatchHeader::ref_from_prefix(header)
        {
            max_timestamp_ms = max_timestamp_ms.max(header.max_timestamp());
        }
        position += batch.size as u64;
    }
    if last_offset < end_offset && gaps == Gaps::Refused {
        return Err(corrupt(format_args!(
            "the log ends before offset {}, and the next segment begins with {}: it has been cut \
             (or compacted: then copy it with --allow-gaps)",
            last_offset + 1,
            end_offset + 1
        )));
    }
    Ok(WalkedLog {
        size_bytes,
        max_timestamp_ms,
    })
}
