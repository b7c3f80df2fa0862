//! Finds a batch or a record in log bytes.

use super::batch::{Batch, Batches};
use super::compression::DEFAULT_MAX_DECOMPRESSED_BYTES;
use super::corrupt::corrupt_log;
use super::record::RecordBatch;
use super::{BytePosition, LogOffset, TimestampMs};
use crate::error::RemoteStorageError;

/// The **inclusive** last byte of a read of at most `max_bytes` from `start` on in a segment of
/// `segment_size` bytes. `None` means to read up to the end of the segment, either because the
/// read reaches it or because `max_bytes` is 0, which sets no bound.
pub fn end_position_for(
    start: BytePosition,
    segment_size: u32,
    max_bytes: usize,
) -> Option<BytePosition> {
    let max_bytes = u32::try_from(max_bytes).unwrap_or(u32::MAX);
    let end = u64::from(start) + u64::from(max_bytes);
    if max_bytes == 0 || end >= segment_size.into() {
        return None;
    }
    BytePosition::try_from(end - 1).ok()
}

/// The first batch whose **last** offset is at or after `floor`: it may begin below it, and is
/// returned whole.
///
/// `data` begins at the start of a batch. The checksum of every batch on the way is compared.
/// `None` when there is no such batch, and also when a batch on the way cannot be read: damaged,
/// cut off, of an old magic, or larger decompressed than [`DEFAULT_MAX_DECOMPRESSED_BYTES`].
/// [`Batches`] tells these apart.
pub fn first_batch_at_or_after(data: &[u8], floor: LogOffset) -> Option<RecordBatch> {
    for batch in Batches::new(data) {
        let batch = batch.ok()?;
        if batch.header().ok()?.last_offset().ok()? >= floor {
            return batch.decode(DEFAULT_MAX_DECOMPRESSED_BYTES).ok();
        }
        batch.check_crc().ok()?;
    }
    None
}

/// The first record, in file order, whose offset is at or after `floor_offset` and whose
/// timestamp is at or after `target`: its offset and timestamp. It may be a control record, as in
/// Kafka.
///
/// `data` begins at the start of a batch and ends with a whole one. No batch may decompress to more
/// than [`DEFAULT_MAX_DECOMPRESSED_BYTES`];
/// [`first_record_at_or_after_timestamp_within`] takes another limit.
///
/// # Errors
///
/// The log is corrupt: a batch up to the record cannot be read, has an old magic, or is cut off.
/// [`RecordTooLarge`](RemoteStorageError::RecordTooLarge): a batch decompresses to more than the
/// limit.
pub fn first_record_at_or_after_timestamp(
    data: &[u8],
    floor_offset: LogOffset,
    target: TimestampMs,
) -> Result<Option<(LogOffset, TimestampMs)>, RemoteStorageError> {
    let limit = DEFAULT_MAX_DECOMPRESSED_BYTES;
    first_record_at_or_after_timestamp_within(data, floor_offset, target, limit)
}

/// [`first_record_at_or_after_timestamp`] with a limit of its own on what one batch may decompress
/// to. Batches that cannot hold the record are not decompressed, so the limit does not concern
/// them; nor does it concern records that are not compressed.
///
/// # Errors
///
/// Those of [`first_record_at_or_after_timestamp`].
pub fn first_record_at_or_after_timestamp_within(
    data: &[u8],
    floor_offset: LogOffset,
    target: TimestampMs,
    max_decompressed_bytes: usize,
) -> Result<Option<(LogOffset, TimestampMs)>, RemoteStorageError> {
    let mut batches = Batches::new(data);
    for batch in batches.by_ref() {
        let found = batch?.first_record_at_or_after_timestamp(
            floor_offset,
            target,
            max_decompressed_bytes,
        )?;
        if found.is_some() {
            return Ok(found);
        }
    }
    if batches.remainder().is_empty() {
        Ok(None)
    } else {
        Err(corrupt_log(format_args!(
            "{} bytes at the end are no whole batch",
            batches.remainder().len()
        )))
    }
}

impl Batch<'_> {
    /// The first record of this batch whose offset is at or after `floor_offset` and whose
    /// timestamp is at or after `target`: its offset and timestamp.
    ///
    /// The checksum is compared. The records are looked at only when the header's last offset and
    /// largest timestamp allow for one.
    ///
    /// # Errors
    ///
    /// Those of [`records`](Self::records).
    pub fn first_record_at_or_after_timestamp(
        &self,
        floor_offset: LogOffset,
        target: TimestampMs,
        max_decompressed_bytes: usize,
    ) -> Result<Option<(LogOffset, TimestampMs)>, RemoteStorageError> {
        let header = self.header()?;
        if header.max_timestamp() < target || header.last_offset()? < floor_offset {
            self.check_crc()?;
            return Ok(None);
        }
        let records = self.records(max_decompressed_bytes)?;
        Ok(records
            .iter()
            .find(|record| record.offset >= floor_offset && record.timestamp >= target)
            .map(|record| (record.offset, record.timestamp)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::golden::{ABORT, B1, COMMIT, EMPTY, LAT, T1, T2, V1, joined, rebuilt, unhex};
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn end_positions_are_inclusive_and_zero_is_no_bound() {
        for ((start, size, max), end) in [
            ((0, 1024, 256), Some(255)),
            ((512, 1024, 999_999), None),
            ((0, 1024, 0), None),
            ((u32::MAX, 1024, 100), None),
            ((0, 2, 1), Some(0)),
            ((0, 1, 1), None),
            ((u32::MAX - 2, u32::MAX, 1), Some(u32::MAX - 2)),
            ((u32::MAX - 1, u32::MAX, 1), None),
            ((0, u32::MAX, usize::MAX), None),
        ] {
            assert_eq!(
                end_position_for(start, size, max),
                end,
                "({start}, {size}, {max})"
            );
        }
    }

    #[test]
    fn the_first_batch_is_the_first_that_ends_at_or_after_the_floor() {
        let log = joined(&[B1, ABORT, COMMIT, EMPTY]);
        let found = |floor| first_batch_at_or_after(&log, floor).map(|batch| batch.base_offset);
        assert_eq!(found(0), Some(10));
        assert_eq!(found(11), Some(10));
        assert_eq!(found(12), Some(12));
        assert_eq!(found(14), Some(14));
        assert_eq!(found(15), None);
        assert_eq!(first_batch_at_or_after(&[], 0), None);
    }

    #[test]
    fn a_batch_that_straddles_the_floor_is_found_whole() {
        let mut log = unhex(T1);
        log[..8].copy_from_slice(&3_i64.to_be_bytes());
        for floor in [3, 5, 6] {
            let batch = first_batch_at_or_after(&log, floor).expect("batch");
            assert_eq!((batch.base_offset, batch.records.len()), (3, 4));
        }
        assert_eq!(first_batch_at_or_after(&log, 7), None);
    }

    #[test]
    fn a_batch_that_cannot_be_read_ends_the_search_for_a_batch() {
        let mut damaged = joined(&[T1, T2]);
        damaged[100] ^= 1;
        assert_eq!(first_batch_at_or_after(&damaged, 10), None);
        assert_eq!(first_batch_at_or_after(&damaged, 14), None);
        assert_eq!(first_batch_at_or_after(&joined(&[V1, T1]), 10), None);
        assert_eq!(first_batch_at_or_after(&unhex(T1)[..107], 10), None);
        let mut overflowing = unhex(T1);
        overflowing[..8].copy_from_slice(&(i64::MAX - 2).to_be_bytes());
        assert_eq!(first_batch_at_or_after(&overflowing, 0), None);
    }

    #[test]
    fn the_first_record_has_offset_and_timestamp_at_or_after_those_asked_for() {
        let log = joined(&[T1, T2]);
        let find = |floor, target| first_record_at_or_after_timestamp(&log, floor, target);
        assert_eq!(find(10, 1600).expect("log"), Some((12, 1600)));
        assert_eq!(find(14, 1000).expect("log"), Some((14, 2000)));
        assert_eq!(find(13, 1650).expect("log"), Some((13, 1700)));
        assert_eq!(find(10, 9999).expect("log"), None);
        let appended = first_record_at_or_after_timestamp(&unhex(LAT), 10, 5000);
        assert_eq!(appended.expect("log"), Some((20, 5000)));
    }

    #[test]
    fn damage_on_the_way_to_a_record_is_an_error() {
        let find = |data: &[u8]| first_record_at_or_after_timestamp(data, 0, 0);
        let text = |data: &[u8]| find(data).expect_err("damage").to_string();
        assert!(text(&unhex(T1)[..12]).starts_with("corrupt remote log bytes: "));
        assert!(text(&unhex(V1)).contains("unsupported magic 1"));
        let mut damaged = unhex(T1);
        damaged[100] ^= 1;
        assert!(text(&damaged).contains("checksum"));
        // Also where only the header is looked at.
        let passed = first_record_at_or_after_timestamp(&damaged, 0, 9999);
        assert_eq!(passed.expect_err("damage").kind(), ErrorKind::Corrupt);
        let mut overflowing = unhex(T1);
        overflowing[..8].copy_from_slice(&(i64::MAX - 2).to_be_bytes());
        assert!(text(&overflowing).contains("overflows"));
    }

    #[test]
    fn the_limit_concerns_compressed_batches_that_may_hold_the_record() {
        let body = &unhex(T1)[61..];
        let packed = zstd::bulk::compress(body, 3).expect("zstd");
        let log = [rebuilt(T1, 4, 4, &packed), unhex(T2)].concat();
        let within = |floor, target, limit| {
            first_record_at_or_after_timestamp_within(&log, floor, target, limit)
        };
        assert_eq!(within(0, 1600, body.len()).expect("log"), Some((12, 1600)));
        let error = within(0, 1600, body.len() - 1).expect_err("limit");
        assert!(
            matches!(error, RemoteStorageError::RecordTooLarge { limit, size }
                if limit == body.len() - 1 && size == body.len())
        );
        // By timestamp or by offset the compressed batch is out, and T2 is not compressed.
        assert_eq!(within(0, 1800, 0).expect("log"), Some((14, 2000)));
        assert_eq!(within(14, 0, 0).expect("log"), Some((14, 2000)));
    }
}
