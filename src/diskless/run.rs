//! The record batches of a run.

use super::object::WalObjectEntry;
use crate::error::RemoteStorageError;
use crate::index::{Batches, LogOffset, TimestampMs, corrupt_log};

/// What the batches of a run tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WalRunSummary {
    /// How many batches there are.
    pub batches: usize,
    /// The highest timestamp of their records; −1 when none has one.
    pub max_timestamp_ms: TimestampMs,
}

impl WalObjectEntry {
    /// Checks a run's batches: all whole, of magic 2, their checksums right, their offsets in
    /// order, from the run's first offset to its last.
    ///
    /// Offsets may have holes between batches, as in any log. `run` is what
    /// [`run_of`](Self::run_of) answers.
    ///
    /// # Errors
    ///
    /// The log is corrupt, or `unsupported magic`.
    pub fn check_run(&self, run: &[u8]) -> Result<WalRunSummary, RemoteStorageError> {
        let mut summary = WalRunSummary {
            batches: 0,
            max_timestamp_ms: -1,
        };
        let mut next_offset = self.first_offset;
        let mut batches = Batches::new(run);
        for batch in batches.by_ref() {
            let batch = batch?;
            let header = batch.header()?;
            let (first, last) = (header.base_offset(), header.last_offset()?);
            let is_first = summary.batches == 0;
            if first < next_offset || (is_first && first != self.first_offset) {
                return Err(corrupt_log(format_args!(
                    "batch at byte {} of the run begins at offset {first}, not at {next_offset}{}",
                    batch.position(),
                    if is_first { "" } else { " or above" }
                )));
            }
            batch.check_crc()?;
            next_offset = last.saturating_add(1);
            summary.batches += 1;
            summary.max_timestamp_ms = summary.max_timestamp_ms.max(header.max_timestamp());
        }
        let left = batches.remainder().len();
        if left > 0 {
            return Err(corrupt_log(format_args!(
                "{left} bytes at the end of the run are no whole batch"
            )));
        }
        if next_offset.checked_sub(1) != Some(self.last_offset) {
            return Err(corrupt_log(format_args!(
                "the run's batches end before offset {next_offset}, and the run at {}",
                self.last_offset
            )));
        }
        Ok(summary)
    }
}

/// The batches that answer a read from `offset` on: whole ones, from the first that reaches the
/// offset, of at most `max_bytes` together, and the first one whatever its size.
///
/// `range` are the bytes that [`WalRead`](super::WalRead) names. They are handed on as they are, as
/// Kafka does: no checksum is compared. Empty when no batch reaches the offset.
///
/// # Errors
///
/// The log is corrupt: bytes that are no batch, or a batch that is not whole; `unsupported magic`.
pub fn whole_batches(
    range: &[u8],
    offset: LogOffset,
    max_bytes: usize,
) -> Result<&[u8], RemoteStorageError> {
    let mut found = None;
    let mut batches = Batches::new(range);
    for batch in batches.by_ref() {
        let batch = batch?;
        let end = batch.position() + batch.size();
        found = match found {
            None if batch.last_offset()? < offset => None,
            None => Some(batch.position()..end),
            Some(found) if end - found.start > max_bytes => return Ok(&range[found]),
            Some(found) => Some(found.start..end),
        };
    }
    let left = batches.remainder().len();
    if left > 0 {
        return Err(corrupt_log(format_args!(
            "{left} bytes at the end of the range are no whole batch"
        )));
    }
    Ok(found.map_or(&[], |found| &range[found]))
}
