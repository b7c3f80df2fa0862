//! Walks log bytes from batch to batch.

use std::iter::FusedIterator;

use zerocopy::big_endian::{I32, I64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::LogOffset;
use super::corrupt::corrupt_log;
use super::header::BatchHeader;
use super::record::{RecordBatch, Records};
use crate::error::RemoteStorageError;

/// What the size of a batch does not count: offset and size themselves.
const LOG_OVERHEAD: usize = 12;
/// Where the checksummed part of a batch of magic 2 begins.
const CRC_START: usize = 21;

/// What the first bytes of a batch tell, for a reader that has no more than these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchPrefix {
    /// Length of the whole batch in bytes. Only declared: no such bytes need to exist.
    pub size: usize,
    /// The format: 2 is a record batch; 0 and 1 are the message sets of brokers before 0.11.
    pub magic: i8,
    /// The offset field. In magic 2 it is the first offset, in magic 0 and 1 the last one.
    pub offset: LogOffset,
    /// The last offset of the batch, where magic and bytes tell it.
    pub last_offset: Option<LogOffset>,
}

/// The bytes that say where the next batch begins, whatever the magic.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct EntryStart {
    offset: I64,
    size: I32,
    /// The leader epoch, or the checksum of magic 0 and 1.
    _between: [u8; 4],
    magic: i8,
}

/// What follows [`EntryStart`] in magic 2, up to the last offset.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ToLastOffset {
    _crc_and_attributes: [u8; 6],
    last_offset_delta: I32,
}

impl BatchPrefix {
    /// The number of bytes that tell everything [`read`](Self::read) can know.
    pub const SIZE: usize = size_of::<EntryStart>() + size_of::<ToLastOffset>();

    /// Reads the start of a batch.
    ///
    /// `None` when there are fewer than the 17 bytes up to the magic. The last offset of magic 2
    /// needs 27.
    ///
    /// # Errors
    ///
    /// The log is corrupt: the size is less than any batch of this magic has, or an offset
    /// overflows.
    pub fn read(bytes: &[u8]) -> Result<Option<Self>, RemoteStorageError> {
        let Ok((start, rest)) = EntryStart::ref_from_prefix(bytes) else {
            return Ok(None);
        };
        let (offset, magic) = (start.offset.get(), start.magic);
        let least = match magic {
            1 => 22,
            2 => BatchHeader::SIZE - LOG_OVERHEAD,
            // The least of all, which Kafka asks of every magic.
            _ => 14,
        };
        let size = usize::try_from(start.size.get())
            .ok()
            .filter(|&size| size >= least)
            .ok_or_else(|| {
                corrupt_log(format_args!(
                    "batch at offset {offset} has size {}, and magic {magic} has at least {least}",
                    start.size
                ))
            })?;
        let last_offset = match magic {
            0 | 1 => Some(offset),
            2 => match ToLastOffset::ref_from_prefix(rest) {
                Ok((more, _)) => Some(last_offset(offset, more.last_offset_delta.get())?),
                Err(_) => None,
            },
            _ => None,
        };
        Ok(Some(Self {
            size: LOG_OVERHEAD + size,
            magic,
            offset,
            last_offset,
        }))
    }
}

/// The batches of a range of log bytes, in file order.
///
/// A range may begin at any batch and may end anywhere. A batch that the end cuts off is not an
/// error: the walk ends before it, and [`remainder`](Self::remainder) has what is there of it.
/// Bytes that are no batch are an error, after which the walk is over. A size field that damage
/// made larger than the range looks like a cut: who knows where the log ends can tell by
/// [`BatchPrefix::read`] of the remainder.
///
/// Batches of every magic are walked; only looking into them asks for magic 2. Checksums are
/// not checked, as Kafka does not while fetching.
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    rest: &'a [u8],
    position: usize,
    failed: bool,
}

impl<'a> Batches<'a> {
    /// Walks `bytes`, which begin at the start of a batch.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            position: 0,
            failed: false,
        }
    }

    /// Where the next batch begins, in bytes from the start of the range. After the last one:
    /// how many bytes the whole batches take up.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The bytes from [`position`](Self::position) on. After the last batch they are the part of
    /// a batch that the end of the range cuts off, or nothing.
    pub fn remainder(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<Batch<'a>, RemoteStorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let prefix = match BatchPrefix::read(self.rest) {
            Ok(prefix) => prefix?,
            Err(error) => {
                self.failed = true;
                return Some(Err(error));
            }
        };
        let (bytes, rest) = self.rest.split_at_checked(prefix.size)?;
        let batch = Batch {
            bytes,
            position: self.position,
            prefix,
        };
        self.rest = rest;
        self.position += bytes.len();
        Some(Ok(batch))
    }
}

impl FusedIterator for Batches<'_> {}

/// One whole batch of a log, of any magic, in place.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    bytes: &'a [u8],
    position: usize,
    prefix: BatchPrefix,
}

impl<'a> Batch<'a> {
    /// The whole batch, as the broker stored it.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Where the batch begins, in bytes from the start of the walk.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Length of the whole batch in bytes.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The format: 2, or that of an old message set.
    pub fn magic(&self) -> i8 {
        self.prefix.magic
    }

    /// The last offset of the batch, also of magic 0 and 1.
    ///
    /// # Errors
    ///
    /// The log is corrupt: the magic is unknown.
    pub fn last_offset(&self) -> Result<LogOffset, RemoteStorageError> {
        self.prefix
            .last_offset
            .ok_or_else(|| self.unsupported_magic())
    }

    /// The header of a batch of magic 2.
    ///
    /// # Errors
    ///
    /// `unsupported magic`: this is an old message set, or of an unknown format.
    pub fn header(&self) -> Result<&'a BatchHeader, RemoteStorageError> {
        if self.prefix.magic != 2 {
            return Err(self.unsupported_magic());
        }
        BatchHeader::ref_from_prefix(self.bytes)
            .map(|(header, _)| header)
            .map_err(|_| self.corrupt("is shorter than its header"))
    }

    /// Compares the checksum with the batch's bytes.
    ///
    /// # Errors
    ///
    /// The log is corrupt, or `unsupported magic`.
    pub fn check_crc(&self) -> Result<(), RemoteStorageError> {
        let declared = self.header()?.crc();
        let computed = crc32c::crc32c(self.bytes.get(CRC_START..).unwrap_or_default());
        if computed == declared {
            Ok(())
        } else {
            Err(self.corrupt(format_args!(
                "has checksum {computed:08x} instead of {declared:08x}"
            )))
        }
    }

    /// The records of a batch of magic 2: checksum compared, decompressed, and every one of them
    /// read once, so that walking them cannot fail.
    ///
    /// Records that are not compressed stay where they are. Compressed ones go to a buffer of
    /// their own, of at most `max_decompressed_bytes`.
    ///
    /// # Errors
    ///
    /// The log is corrupt; `unsupported magic`; or
    /// [`RecordTooLarge`](RemoteStorageError::RecordTooLarge): the records decompress to more than
    /// `max_decompressed_bytes`.
    pub fn records(
        &self,
        max_decompressed_bytes: usize,
    ) -> Result<Records<'a>, RemoteStorageError> {
        self.check_crc()?;
        let header = self.header()?;
        let blob = self.bytes.get(BatchHeader::SIZE..).unwrap_or_default();
        Records::decode(header, blob, max_decompressed_bytes)
    }

    /// The header and the records of a batch of magic 2, in memory of their own. Uncompressed
    /// records are copied once.
    ///
    /// # Errors
    ///
    /// Those of [`records`](Self::records).
    pub fn decode(&self, max_decompressed_bytes: usize) -> Result<RecordBatch, RemoteStorageError> {
        self.records(max_decompressed_bytes)
            .map(Records::into_record_batch)
    }

    fn unsupported_magic(&self) -> RemoteStorageError {
        corrupt_log(format_args!(
            "unsupported magic {} at offset {}",
            self.prefix.magic, self.prefix.offset
        ))
    }

    fn corrupt(&self, detail: impl std::fmt::Display) -> RemoteStorageError {
        corrupt_log(format_args!(
            "batch at offset {} {detail}",
            self.prefix.offset
        ))
    }
}

/// The offset of a batch's last record.
pub(super) fn last_offset(
    base_offset: LogOffset,
    delta: i32,
) -> Result<LogOffset, RemoteStorageError> {
    if delta < 0 {
        // Taken as it stands, the batch would lie before the records that it holds.
        return Err(corrupt_log(format_args!(
            "the batch at offset {base_offset} ends before it begins, by {} offsets",
            i64::from(delta).unsigned_abs()
        )));
    }
    base_offset.checked_add(delta.into()).ok_or_else(|| {
        corrupt_log(format_args!(
            "last offset of the batch at offset {base_offset} overflows"
        ))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::golden::{ABORT, B1, COMMIT, EMPTY, LAT, T1, T2, V0, V1, joined, unhex};
    use super::super::{CompressionType, TimestampType};
    use super::*;

    fn only(bytes: &[u8]) -> Batch<'_> {
        let mut batches = Batches::new(bytes);
        let batch = batches.next().expect("a batch").expect("a good batch");
        assert!(batches.next().is_none());
        assert_eq!(batches.remainder(), b"");
        batch
    }

    #[test]
    fn batches_lie_end_to_end() {
        let log = joined(&[B1, ABORT, COMMIT, EMPTY]);
        let mut batches = Batches::new(&log);
        let positions: Vec<_> = batches
            .by_ref()
            .map(|batch| batch.expect("batch"))
            .map(|batch| (batch.position(), batch.size()))
            .collect();
        assert_eq!(positions, [(0, 85), (85, 78), (163, 78), (241, 61)]);
        assert_eq!(batches.position(), 302);
        assert_eq!(batches.remainder(), b"");
    }

    #[test]
    fn a_header_is_read_in_place() {
        let bytes = unhex(ABORT);
        let batch = only(&bytes);
        assert_eq!(batch.bytes().as_ptr(), bytes.as_ptr());
        let header = batch.header().expect("header");
        assert_eq!(std::ptr::from_ref(header).cast(), bytes.as_ptr());
        assert_eq!(size_of::<BatchHeader>(), 61);

        assert_eq!(header.base_offset(), 12);
        assert_eq!(header.partition_leader_epoch(), 0);
        assert_eq!(header.crc(), 0x9a56_1fc0);
        assert_eq!(header.attributes(), 0x30);
        assert_eq!(header.last_offset_delta(), 0);
        assert_eq!(header.last_offset().expect("offset"), 12);
        assert_eq!(header.base_timestamp(), 1200);
        assert_eq!(header.max_timestamp(), 1200);
        assert_eq!(header.producer_id(), 4000);
        assert_eq!(header.producer_epoch(), 1);
        assert_eq!(header.base_sequence(), -1);
        assert_eq!(header.records_count(), 1);
        assert!(header.is_control() && header.is_transactional());
        assert_eq!(header.delete_horizon_ms(), None);
        assert_eq!(
            header.compression_type().expect("codec"),
            CompressionType::None
        );
        assert_eq!(header.timestamp_type(), TimestampType::CreateTime);
    }

    #[test]
    fn attributes_are_told_apart() {
        let with = |attributes: i16| {
            let mut bytes = unhex(LAT);
            bytes[21..23].copy_from_slice(&attributes.to_be_bytes());
            *only(&bytes).header().expect("header")
        };
        let append = with(0b1000);
        assert_eq!(append.timestamp_type(), TimestampType::LogAppendTime);
        assert!(!append.is_control() && !append.is_transactional());
        assert!(with(0b10_0000).is_control());
        assert!(with(0b1_0000).is_transactional());
        assert_eq!(with(0b100_0000).delete_horizon_ms(), Some(1000));
        for (id, name) in ["none", "gzip", "snappy", "lz4", "zstd"].iter().enumerate() {
            // The upper bits are not used and must not matter.
            let id = i16::try_from(id).expect("id");
            let codec = with(-256 | id).compression_type().expect("codec");
            assert_eq!(codec.to_string(), *name);
        }
        for unknown in 5..8 {
            assert!(with(unknown).compression_type().is_err());
        }
    }

    #[test]
    fn a_walk_steps_over_old_message_sets_and_does_not_look_into_them() {
        let log = joined(&[V0, V1, B1]);
        let batches: Vec<_> = Batches::new(&log)
            .map(|batch| batch.expect("entry"))
            .collect();
        let found: Vec<_> = batches
            .iter()
            .map(|batch| {
                (
                    batch.position(),
                    batch.magic(),
                    batch.last_offset().expect("offset"),
                )
            })
            .collect();
        assert_eq!(found, [(0, 0, 5), (27, 1, 5), (62, 2, 11)]);
        for (batch, magic) in batches.iter().zip([0, 1]) {
            let text = format!("unsupported magic {magic} at offset 5");
            let is_refused = |result: Result<(), RemoteStorageError>| {
                assert!(result.expect_err("old magic").to_string().contains(&text));
            };
            is_refused(batch.header().map(drop));
            is_refused(batch.check_crc());
            is_refused(batch.records(100).map(drop));
        }
    }

    #[test]
    fn a_batch_of_an_unknown_magic_is_stepped_over_too() {
        for magic in [3_i8, -1] {
            let mut log = joined(&[B1, ABORT]);
            log[16] = magic.to_be_bytes()[0];
            let batches: Vec<_> = Batches::new(&log)
                .map(|batch| batch.expect("entry"))
                .collect();
            assert_eq!(batches[1].position(), 85);
            let error = batches[0].header().expect_err("magic");
            assert!(error.to_string().contains("unsupported magic"));
            assert!(batches[0].last_offset().is_err());
        }
    }

    #[test]
    fn a_cut_tail_is_no_error_wherever_the_cut_is() {
        let log = joined(&[T1, T2]);
        for end in 0..=log.len() {
            let range = &log[..end];
            let mut batches = Batches::new(range);
            let whole: Result<Vec<_>, _> = batches.by_ref().collect();
            let whole = whole.expect("batches").len();
            let expected = match end {
                0..108 => (0, 0),
                108..204 => (1, 108),
                _ => (2, 204),
            };
            assert_eq!((whole, batches.position()), expected, "{end} bytes");
            assert_eq!(batches.remainder(), &range[batches.position()..]);
        }
    }

    #[test]
    fn damage_is_an_error_and_the_end_of_the_walk() {
        for (magic, least) in [(0_u8, 14_i32), (1, 22), (2, 49), (9, 14)] {
            for size in [least - 1, 0, -1, i32::MIN] {
                let mut log = joined(&[T1, T2]);
                log[108 + 8..108 + 12].copy_from_slice(&size.to_be_bytes());
                log[108 + 16] = magic;
                let mut batches = Batches::new(&log);
                assert!(batches.next().is_some_and(|batch| batch.is_ok()));
                assert!(batches.next().is_some_and(|batch| batch.is_err()));
                assert!(batches.next().is_none());
                assert_eq!(batches.position(), 108);
            }
        }
    }

    #[test]
    fn the_first_bytes_of_a_batch_tell_size_and_last_offset() {
        let log = unhex(T1);
        assert_eq!(BatchPrefix::SIZE, 27);
        assert_eq!(BatchPrefix::read(&log[..16]).expect("start"), None);
        for (end, last_offset) in [(17, None), (26, None), (27, Some(13)), (108, Some(13))] {
            let prefix = BatchPrefix::read(&log[..end])
                .expect("start")
                .expect("prefix");
            let expected = BatchPrefix {
                size: 108,
                magic: 2,
                offset: 10,
                last_offset,
            };
            assert_eq!(prefix, expected, "{end} bytes");
        }
        let legacy = BatchPrefix::read(&unhex(V1)[..17])
            .expect("start")
            .expect("prefix");
        assert_eq!((legacy.size, legacy.last_offset), (35, Some(5)));
    }

    #[test]
    fn a_batch_that_ends_before_it_begins_is_an_error() {
        for delta in [-1_i32, i32::MIN] {
            let mut log = joined(&[B1]);
            log[23..27].copy_from_slice(&delta.to_be_bytes());
            let error = BatchPrefix::read(&log).expect_err("no such batch");
            assert!(error.to_string().contains("ends before it begins"));
        }
    }

    #[test]
    fn a_last_offset_that_overflows_is_an_error() {
        let mut log = unhex(T1);
        log[..8].copy_from_slice(&(i64::MAX - 2).to_be_bytes());
        assert!(BatchPrefix::read(&log).is_err());
        assert!(BatchPrefix::read(&log[..17]).is_ok());
    }

    #[test]
    fn the_checksum_covers_everything_from_the_attributes_on() {
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
        for golden in [B1, ABORT, COMMIT, EMPTY, LAT, T1, T2] {
            let bytes = unhex(golden);
            only(&bytes).check_crc().expect("golden batch");
            for at in (0..bytes.len()).filter(|at| !(8..12).contains(at) && *at != 16) {
                let mut flipped = bytes.clone();
                flipped[at] ^= 0x10;
                // Offset and leader epoch are the broker's to rewrite.
                let covered = at >= 17;
                assert_eq!(only(&flipped).check_crc().is_err(), covered, "byte {at}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_walked_to_an_end(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            sizes in proptest::collection::vec((0_u8..4, 0_u8..100), 0..6),
        ) {
            // Plausible sizes, so that the walk gets beyond the first batch.
            let mut log = bytes;
            let mut at = 0;
            for (magic, size) in sizes {
                if let Some(start) = log.get_mut(at..at + 17) {
                    start[8..12].copy_from_slice(&u32::from(size).to_be_bytes());
                    start[16] = magic;
                }
                at += 12 + usize::from(size);
            }
            let mut batches = Batches::new(&log);
            let mut sum = 0;
            while let Some(Ok(batch)) = batches.next() {
                prop_assert_eq!(batch.position(), sum);
                sum += batch.size();
                let _ = batch.records(1000);
                let _ = batch.decode(1000);
                let _ = batch.last_offset();
            }
            prop_assert_eq!(batches.position(), sum);
            prop_assert_eq!(batches.remainder(), &log[sum..]);
            prop_assert!(batches.next().is_none());
        }
    }
}
