//! The records inside a batch.

use std::borrow::Cow;
use std::iter::FusedIterator;

use bytes::Bytes;

use super::compression::Failure;
use super::corrupt::corrupt_log;
use super::cursor::{Cursor, Defect, size};
use super::header::{BatchHeader, TimestampType};
use super::{LogOffset, TimestampMs};
use crate::error::RemoteStorageError;

/// One record.
///
/// `B` holds its bytes: `&[u8]` while the batch is walked in place, [`Bytes`] where a record has
/// to live longer ([`RecordBatch`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record<B> {
    /// The record's offset in the partition.
    pub offset: LogOffset,
    /// The record's time: its own, or under [`TimestampType::LogAppendTime`] that of its batch.
    pub timestamp: TimestampMs,
    /// The offset as stored: relative to the batch's base offset.
    pub offset_delta: i32,
    /// The timestamp as stored: relative to the batch's base timestamp.
    pub timestamp_delta: i64,
    /// The key, if there is one. It may be empty.
    pub key: Option<B>,
    /// The value; `None` is a tombstone to compaction.
    pub value: Option<B>,
    /// The headers as stored, without their count.
    headers: B,
    headers_count: usize,
}

/// One header of a record. Names may repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Header<'a> {
    /// The name: UTF-8, if the producer kept to the protocol.
    pub key: &'a [u8],
    /// The value, if there is one.
    pub value: Option<&'a [u8]>,
}

/// The headers of a record, in order.
#[derive(Clone, Debug)]
pub struct Headers<'a> {
    cursor: Cursor<'a>,
    left: usize,
}

impl<B: AsRef<[u8]>> Record<B> {
    /// The record's headers, in order.
    pub fn headers(&self) -> Headers<'_> {
        Headers {
            cursor: Cursor::new(self.headers.as_ref()),
            left: self.headers_count,
        }
    }
}

impl<'a> Header<'a> {
    /// The name as text, as Kafka's clients show it: what is not UTF-8 becomes `U+FFFD`.
    pub fn key_text(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.key)
    }

    fn read(cursor: &mut Cursor<'a>) -> Result<Self, Defect> {
        Ok(Self {
            key: cursor.bytes()?,
            value: cursor.nullable_bytes()?,
        })
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        // Read once before, so it cannot fail now.
        Header::read(&mut self.cursor).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Headers<'_> {}
impl FusedIterator for Headers<'_> {}

/// The records of one batch, all of them checked.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    header: BatchHeader,
    body: Cow<'a, [u8]>,
    count: usize,
}

/// Walks the [`Records`] of a batch. Keys, values and headers are borrowed from it.
#[derive(Clone, Debug)]
pub struct RecordsIter<'r> {
    header: &'r BatchHeader,
    cursor: Cursor<'r>,
    left: usize,
}

impl<'a> Records<'a> {
    /// Decompresses the blob that follows a header, and reads all of it once.
    pub(super) fn decode(
        header: &BatchHeader,
        blob: &'a [u8],
        max_decompressed_bytes: usize,
    ) -> Result<Self, RemoteStorageError> {
        let corrupt = |defect: &str| {
            corrupt_log(format_args!(
                "records of the batch at offset {}: {defect}",
                header.base_offset()
            ))
        };
        let compression = header.compression_type()?;
        let count = size(header.records_count()).map_err(corrupt)?;
        // An emptied batch keeps its codec and has nothing to decompress.
        let body = if count == 0 && blob.is_empty() {
            Cow::Borrowed(blob)
        } else {
            let limit = max_decompressed_bytes;
            match compression.decompress(blob, limit) {
                Ok(body) => body,
                Err(Failure::TooLarge(size)) => {
                    return Err(RemoteStorageError::RecordTooLarge { size, limit });
                }
                Err(Failure::Damaged(detail)) => {
                    return Err(corrupt(&format!("{compression}: {detail}")));
                }
            }
        };
        let mut cursor = Cursor::new(&body);
        for _ in 0..count {
            read_record(header, &mut cursor).map_err(corrupt)?;
        }
        if !cursor.is_empty() {
            return Err(corrupt("bytes are left after the last one"));
        }
        Ok(Self {
            header: *header,
            body,
            count,
        })
    }

    /// The header of the batch.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether the batch has no records: compaction removed them all.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Walks the records in order.
    pub fn iter(&self) -> RecordsIter<'_> {
        RecordsIter {
            header: &self.header,
            cursor: Cursor::new(&self.body),
            left: self.count,
        }
    }

    /// The same records in memory of their own. Decompressed bytes are not copied again.
    pub fn into_record_batch(self) -> RecordBatch {
        let body = match self.body {
            Cow::Borrowed(bytes) => Bytes::copy_from_slice(bytes),
            Cow::Owned(bytes) => Bytes::from(bytes),
        };
        let records = RecordsIter {
            header: &self.header,
            cursor: Cursor::new(&body),
            left: self.count,
        }
        .map(|record| Record {
            offset: record.offset,
            timestamp: record.timestamp,
            offset_delta: record.offset_delta,
            timestamp_delta: record.timestamp_delta,
            key: record.key.map(|key| body.slice_ref(key)),
            value: record.value.map(|value| body.slice_ref(value)),
            headers: body.slice_ref(record.headers),
            headers_count: record.headers_count,
        })
        .collect();
        let header = &self.header;
        RecordBatch {
            base_offset: header.base_offset(),
            partition_leader_epoch: header.partition_leader_epoch(),
            attributes: header.attributes(),
            last_offset_delta: header.last_offset_delta(),
            base_timestamp: header.base_timestamp(),
            max_timestamp: header.max_timestamp(),
            producer_id: header.producer_id(),
            producer_epoch: header.producer_epoch(),
            base_sequence: header.base_sequence(),
            records,
        }
    }
}

impl<'r> IntoIterator for &'r Records<'_> {
    type Item = Record<&'r [u8]>;
    type IntoIter = RecordsIter<'r>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'r> Iterator for RecordsIter<'r> {
    type Item = Record<&'r [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        // Read once before, so it cannot fail now.
        read_record(self.header, &mut self.cursor).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for RecordsIter<'_> {}
impl FusedIterator for RecordsIter<'_> {}

/// A decoded batch of magic 2, in memory of its own. Field by field what [`BatchHeader`] says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordBatch {
    /// The offset of the first record, or where it was before compaction.
    pub base_offset: LogOffset,
    /// The epoch of the leader that appended the batch; −1 when unknown.
    pub partition_leader_epoch: i32,
    /// The attributes as they stand.
    pub attributes: i16,
    /// The batch's last offset less its base offset.
    pub last_offset_delta: i32,
    /// What the timestamps of the records are deltas to.
    pub base_timestamp: TimestampMs,
    /// The largest timestamp of the batch; −1 when unknown.
    pub max_timestamp: TimestampMs,
    /// The id of the producer; −1 when there is none.
    pub producer_id: i64,
    /// The epoch of the producer; −1 when there is none.
    pub producer_epoch: i16,
    /// The sequence number of the first record; −1 when there is none.
    pub base_sequence: i32,
    /// The records.
    pub records: Vec<Record<Bytes>>,
}

fn read_record<'a>(
    header: &BatchHeader,
    cursor: &mut Cursor<'a>,
) -> Result<Record<&'a [u8]>, Defect> {
    let mut body = Cursor::new(cursor.bytes()?);
    let _attributes = body.take(1)?;
    let timestamp_delta = body.varlong()?;
    let offset_delta = body.varint()?;
    let key = body.nullable_bytes()?;
    let value = body.nullable_bytes()?;
    let headers_count = size(body.varint()?)?;
    let headers = body.rest();
    if headers_count > headers.len() {
        return Err("more headers than bytes");
    }
    for _ in 0..headers_count {
        Header::read(&mut body)?;
    }
    if !body.is_empty() {
        return Err("bytes are left in a record");
    }
    let offset = header
        .base_offset()
        .checked_add(offset_delta.into())
        .ok_or("an offset overflows")?;
    let timestamp = match header.timestamp_type() {
        TimestampType::LogAppendTime => header.max_timestamp(),
        TimestampType::CreateTime => header
            .base_timestamp()
            .checked_add(timestamp_delta)
            .ok_or("a timestamp overflows")?,
    };
    Ok(Record {
        offset,
        timestamp,
        offset_delta,
        timestamp_delta,
        key,
        value,
        headers,
        headers_count,
    })
}
