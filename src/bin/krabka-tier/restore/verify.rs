//! Checks restored segments as they lie in the directory: what a broker would start from.
//!
//! Each log is walked once, a megabyte at a time: checksums of all batches, the order of their
//! offsets, and along with them the indexes, the transaction index against the abort markers, and the
//! producer snapshot against the producers seen. A transaction may go through several segments, so
//! they are checked in the order of the log.

use std::fs::{self, File};
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use krabka_remote_storage::index::{
    Batch, BatchHeader, BatchPrefix, Batches, ProducerSnapshot, corrupt_log,
};
use krabka_remote_storage::layout::log_file_name;
use krabka_remote_storage::model::{IndexType, LOG_FILE_SUFFIX, LeaderEpoch};
use krabka_remote_storage::{ErrorKind, RemoteStorageError};
use zerocopy::FromBytes as _;

use super::indexes::{Abort, OffsetEntries, Seen, TimeEntries, TxnEntries};
use crate::lineage::Lineage;
use crate::transactions::{Checksum, Producers, Step};

/// How much of a log is in memory at once. Of a larger batch only the checksum is computed.
const WINDOW_BYTES: usize = 1 << 20;

/// A segment in the directory.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) base_offset: i64,
    pub(super) last_offset: i64,
    /// Whether its log was cut: nothing is beside it then.
    pub(super) cut: Option<Cut>,
}

/// What tells whether a log that was cut is the segment's.
#[derive(Clone, Debug)]
pub(super) struct Cut {
    /// The offset index of all of it, where there is one.
    pub(super) offset_index: Option<Bytes>,
}

/// What is wrong with one.
#[derive(Debug)]
pub(super) enum Finding {
    /// Its log is damaged at this position.
    Log {
        position: u64,
        error: RemoteStorageError,
    },
    /// Its log begins behind where the segment does.
    Gap(RangeInclusive<i64>),
    /// The file with this suffix does not fit its log.
    Beside {
        suffix: &'static str,
        problem: String,
    },
}

/// Checks the segments of a directory one after the other.
pub(super) struct Verifier {
    dir: PathBuf,
    lineage: Lineage,
    producers: Producers,
    /// From here on everything was walked up to the next segment.
    from: i64,
    next: i64,
    /// Where in a log the walk is.
    position: u64,
}

/// A batch that has been walked.
struct Walked {
    seen: Seen,
    abort: Option<Abort>,
}

impl Verifier {
    /// `lineage` has the leader epochs of the log.
    pub(super) fn new(dir: &Path, lineage: Lineage) -> Self {
        Self {
            dir: dir.to_owned(),
            lineage,
            producers: Producers::default(),
            from: 0,
            next: -1,
            position: 0,
        }
    }

    /// Checks the next segment of the log.
    ///
    /// # Errors
    ///
    /// A file could not be read.
    pub(super) fn check(&mut self, segment: &Segment) -> Result<Vec<Finding>, RemoteStorageError> {
        if segment.base_offset != self.next {
            self.producers = Producers::default();
            self.from = segment.base_offset;
        }
        self.next = segment.last_offset + 1;
        let base_offset = segment.base_offset;
        let beside = |index: IndexType| self.read(base_offset, index.suffix());
        let offsets = match &segment.cut {
            Some(cut) => cut.offset_index.clone(),
            None => beside(IndexType::Offset)?,
        };
        let times = beside(IndexType::Timestamp)?;
        let aborts = beside(IndexType::Transaction)?;
        let snapshot = self.read(self.next, IndexType::ProducerSnapshot.suffix())?;

        let mut offset_entries = offsets
            .as_deref()
            .map(|bytes| OffsetEntries::new(base_offset, bytes))
            .transpose()?;
        let mut time_entries = times
            .as_deref()
            .map(|bytes| TimeEntries::new(base_offset, bytes))
            .transpose()?;
        let mut txn_entries = TxnEntries::new(base_offset, aborts.as_deref(), self.from);
        let mut first_offset = None;
        let walked = self.walk(segment, |batch| {
            let seen = &batch.seen;
            first_offset.get_or_insert(seen.first_offset);
            if let Some(entries) = &mut offset_entries {
                entries.follow(seen);
            }
            if let Some(entries) = &mut time_entries {
                entries.follow(seen);
            }
            if let Some(abort) = &batch.abort {
                txn_entries.follow(abort);
            }
        });
        match walked {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                self.next = -1;
                let position = self.position;
                return Ok(vec![Finding::Log { position, error }]);
            }
            Err(error) => return Err(error),
        }
        let mut findings = Vec::new();
        if let Some(first) = first_offset.filter(|first| *first > base_offset) {
            findings.push(Finding::Gap(base_offset..=first - 1));
        }
        let mut find = |index: IndexType, problem: Option<String>| {
            findings.extend(problem.map(|problem| Finding::Beside {
                suffix: index.suffix(),
                problem,
            }));
        };
        if segment.cut.is_some() {
            // The rest of the index is about what was cut off.
            find(
                IndexType::Offset,
                offset_entries.and_then(OffsetEntries::misfit),
            );
            return Ok(findings);
        }
        let timed = time_entries.as_ref().map(TimeEntries::count);
        let problem = offset_entries.and_then(|entries| entries.finish(segment.last_offset, timed));
        find(IndexType::Offset, problem);
        let problem = time_entries.and_then(TimeEntries::finish);
        find(IndexType::Timestamp, problem);
        find(IndexType::Transaction, txn_entries.finish());
        let problem = snapshot.and_then(|bytes| self.problem_of_snapshot(&bytes, base_offset));
        find(IndexType::ProducerSnapshot, problem);
        Ok(findings)
    }

    /// Only what this segment tells counts: what is wrong with an earlier one was found there.
    fn problem_of_snapshot(&self, bytes: &[u8], base_offset: i64) -> Option<String> {
        match ProducerSnapshot::parse(bytes) {
            Ok(snapshot) => self
                .producers
                .contradict(snapshot.entries(), base_offset)
                .then(|| "has other producers than the log: it is another segment's".to_owned()),
            Err(error) => Some(format!("cannot be used: {error}")),
        }
    }

    /// A file of the directory, if it is there.
    fn read(&self, offset: i64, suffix: &str) -> Result<Option<Bytes>, RemoteStorageError> {
        let path = self.dir.join(log_file_name(offset, suffix)?);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(RemoteStorageError::io("read", &path, error)),
        }
    }

    /// Shows each batch of a log to `visit`.
    fn walk(
        &mut self,
        segment: &Segment,
        mut visit: impl FnMut(&Walked),
    ) -> Result<(), RemoteStorageError> {
        let path = self
            .dir
            .join(log_file_name(segment.base_offset, LOG_FILE_SUFFIX)?);
        let failed = |error| RemoteStorageError::io("read", &path, error);
        let file = File::open(&path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let mut window = vec![0; WINDOW_BYTES];
        let mut next = segment.base_offset;
        self.position = 0;
        while self.position < length {
            let start = self.position;
            let here = usize::try_from(length - start).unwrap_or(usize::MAX);
            let window = &mut window[..here.min(WINDOW_BYTES)];
            file.read_exact_at(window, start).map_err(failed)?;
            let mut batches = Batches::new(window);
            for batch in batches.by_ref() {
                let batch = batch?;
                self.position = start + batch.position() as u64;
                let walked = in_order(self.whole(&batch, next)?, next, segment.last_offset)?;
                next = walked.seen.last_offset + 1;
                visit(&walked);
            }
            self.position = start + batches.position() as u64;
            if self.position > start {
                continue;
            }
            let prefix = BatchPrefix::read(window)?.filter(|prefix| prefix.size <= here);
            let Some(prefix) = prefix else {
                return Err(corrupt_log(format_args!(
                    "a batch begins, of which only {here} bytes are there"
                )));
            };
            let walked = self.large(&prefix, window, next)?;
            let mut checksum = Checksum::of(window, &prefix)?;
            let mut read = window.len();
            while read < prefix.size {
                let part = &mut window[..WINDOW_BYTES.min(prefix.size - read)];
                file.read_exact_at(part, start + read as u64)
                    .map_err(failed)?;
                checksum.update(part);
                read += part.len();
            }
            checksum.check()?;
            let walked = in_order(walked, next, segment.last_offset)?;
            next = walked.seen.last_offset + 1;
            visit(&walked);
            self.position += prefix.size as u64;
        }
        if segment.cut.is_some() && next <= segment.last_offset {
            return Err(corrupt_log(format_args!(
                "the offsets {next} to {} are not there, and it goes on behind them",
                segment.last_offset
            )));
        }
        Ok(())
    }

    /// A batch that is in memory.
    fn whole(&mut self, batch: &Batch<'_>, next: i64) -> Result<Walked, RemoteStorageError> {
        Checksum::check_batch(batch)?;
        let last_offset = batch.last_offset()?;
        if batch.magic() != 2 {
            return Ok(Walked::old(next, last_offset, self.position));
        }
        self.follow(batch.header()?, Step::of(batch)?)
    }

    /// One of which only the start is, with the header.
    fn large(
        &mut self,
        prefix: &BatchPrefix,
        start: &[u8],
        next: i64,
    ) -> Result<Walked, RemoteStorageError> {
        let header = BatchHeader::ref_from_prefix(start).map(|(header, _)| header);
        match (prefix.magic, header, prefix.last_offset) {
            (2, Ok(header), _) if header.is_control() => Err(corrupt_log(format_args!(
                "a control batch has {} bytes",
                prefix.size
            ))),
            (2, Ok(header), _) => self.follow(header, Step::of_data(header)),
            (0 | 1, _, Some(last_offset)) => Ok(Walked::old(next, last_offset, self.position)),
            _ => Err(corrupt_log(format_args!(
                "magic {} is unknown",
                prefix.magic
            ))),
        }
    }

    fn follow(&mut self, header: &BatchHeader, step: Step) -> Result<Walked, RemoteStorageError> {
        self.check_epoch(header)?;
        let first_offset = self.producers.follow(header, step)?;
        let abort = (step == Step::Aborted).then(|| Abort {
            producer_id: header.producer_id(),
            offset: header.base_offset(),
            first_offset,
            last_stable_offset: self
                .producers
                .first_open()
                .unwrap_or(header.base_offset().saturating_add(1)),
        });
        Ok(Walked {
            seen: Seen {
                position: self.position,
                first_offset: header.base_offset(),
                last_offset: header.last_offset()?,
                max_timestamp: header.max_timestamp(),
            },
            abort,
        })
    }

    /// No checksum covers the leader epoch of a batch. A broker that finds another one than the
    /// checkpoint has takes it for one of a later leader.
    fn check_epoch(&self, header: &BatchHeader) -> Result<(), RemoteStorageError> {
        let epoch = header.partition_leader_epoch();
        match self.lineage.epoch_of(header.base_offset()) {
            Some(told) if epoch >= 0 && told != LeaderEpoch(epoch) => {
                Err(corrupt_log(format_args!(
                    "the batch at offset {} has leader epoch {epoch}, and the checkpoint has {told}",
                    header.base_offset()
                )))
            }
            _ => Ok(()),
        }
    }
}

impl Walked {
    /// A message set tells its last offset only: it may go on where the one before ends.
    fn old(next: i64, last_offset: i64, position: u64) -> Self {
        Self {
            seen: Seen {
                position,
                first_offset: next.min(last_offset),
                last_offset,
                max_timestamp: -1,
            },
            abort: None,
        }
    }
}

/// Offsets rise within a log, and are its segment's. No checksum covers them.
fn in_order(walked: Walked, next: i64, last: i64) -> Result<Walked, RemoteStorageError> {
    let seen = &walked.seen;
    if seen.first_offset >= next && seen.last_offset <= last {
        return Ok(walked);
    }
    Err(corrupt_log(format_args!(
        "a batch has the offsets {} to {}, where {next} to {last} are left",
        seen.first_offset, seen.last_offset
    )))
}
