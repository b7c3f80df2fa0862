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
    base_offset.checked_add(delta.into()).ok_or_else(|| {
        corrupt_log(format_args!(
            "last offset of the batch at offset {base_offset} overflows"
        ))
    })
}
