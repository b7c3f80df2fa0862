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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::batch::Batches;
    use super::super::golden::{B1, EMPTY, LAT, T1, joined, rebuilt, unhex};
    use super::*;

    fn decode(batch: &[u8]) -> Result<RecordBatch, RemoteStorageError> {
        let batch = Batches::new(batch).next().expect("a batch")?;
        batch.decode(1 << 20)
    }

    /// The records blob of `T1` with these bytes in its place, `count` of them.
    fn with_blob(count: i32, blob: &[u8]) -> Result<RecordBatch, RemoteStorageError> {
        decode(&rebuilt(T1, 0, count, blob))
    }

    #[test]
    fn records_are_read_in_place() {
        let bytes = unhex(B1);
        let batch = Batches::new(&bytes).next().expect("one").expect("batch");
        let records = batch.records(0).expect("records, which are not compressed");
        assert_eq!((records.len(), records.is_empty()), (2, false));
        assert_eq!(records.header().base_offset(), 10);

        let all: Vec<_> = records.iter().collect();
        assert_eq!((all[0].offset, all[0].timestamp), (10, 1000));
        assert_eq!(
            (all[0].key, all[0].value),
            (Some(&b"k"[..]), Some(&b"v0"[..]))
        );
        assert_eq!(all[0].headers().len(), 0);
        assert_eq!((all[1].offset, all[1].timestamp), (11, 1100));
        assert_eq!((all[1].offset_delta, all[1].timestamp_delta), (1, 100));
        assert_eq!((all[1].key, all[1].value), (None, Some(&b"v1"[..])));
        let headers: Vec<_> = all[1].headers().collect();
        assert_eq!(headers[0].key_text(), "h");
        assert_eq!(headers[0].value, Some(&b"x"[..]));
        assert_eq!(headers.len(), 1);

        let value = all[1].value.expect("value").as_ptr();
        assert!(bytes.as_ptr_range().contains(&value), "nothing is copied");
    }

    #[test]
    fn an_owned_batch_says_the_same() {
        let bytes = unhex(B1);
        let batch = Batches::new(&bytes).next().expect("one").expect("batch");
        let owned = batch.decode(0).expect("batch");
        assert_eq!((owned.base_offset, owned.last_offset_delta), (10, 1));
        assert_eq!((owned.base_timestamp, owned.max_timestamp), (1000, 1100));
        assert_eq!((owned.producer_id, owned.producer_epoch), (-1, -1));
        assert_eq!((owned.base_sequence, owned.attributes), (-1, 0));
        assert_eq!(owned.partition_leader_epoch, 0);
        let records = batch.records(0).expect("records");
        for (borrowed, owned) in records.iter().zip(&owned.records) {
            assert_eq!(borrowed.offset, owned.offset);
            assert_eq!(borrowed.timestamp, owned.timestamp);
            assert_eq!(borrowed.key, owned.key.as_deref());
            assert_eq!(borrowed.value, owned.value.as_deref());
            assert!(borrowed.headers().eq(owned.headers()));
        }
    }

    #[test]
    fn an_append_time_is_that_of_every_record() {
        let batch = decode(&unhex(LAT)).expect("batch");
        let read: Vec<_> = batch
            .records
            .iter()
            .map(|r| (r.offset, r.timestamp))
            .collect();
        assert_eq!(read, [(20, 5000), (21, 5000)]);
    }

    #[test]
    fn an_emptied_batch_has_no_records_whatever_its_codec() {
        assert_eq!(decode(&unhex(EMPTY)).expect("batch").records, []);
        for codec in 0..5 {
            assert_eq!(
                decode(&rebuilt(EMPTY, codec, 0, &[]))
                    .expect("batch")
                    .records,
                []
            );
        }
        assert!(decode(&rebuilt(EMPTY, 5, 0, &[])).is_err(), "unknown codec");
    }

    #[test]
    fn compressed_records_are_those_that_went_in() {
        let bytes = unhex(T1);
        let plain = decode(&bytes).expect("batch");
        let packed = zstd::bulk::compress(&bytes[61..], 3).expect("zstd");
        let read = decode(&rebuilt(T1, 4, 4, &packed)).expect("batch");
        assert_eq!(read.records, plain.records);
        let error = decode(&rebuilt(T1, 1, 4, &packed)).expect_err("not gzip");
        assert!(error.to_string().contains("batch at offset 10: gzip"));
    }

    #[test]
    fn a_key_may_be_empty_and_a_header_may_have_no_value() {
        // length, attributes, timestamp, offset, key, value, one header "h" without value
        let blob = [0x14, 0, 0, 0, 0, 0x01, 0x02, 0x02, b'h', 0x01];
        let mut blob = blob.to_vec();
        blob[0] = u8::try_from((blob.len() - 1) * 2).expect("length");
        let batch = with_blob(1, &blob).expect("batch");
        assert_eq!(batch.records[0].key.as_deref(), Some(&b""[..]));
        assert_eq!(batch.records[0].value, None);
        let header = batch.records[0].headers().next().expect("header");
        assert_eq!((header.key, header.value), (&b"h"[..], None));
    }

    #[test]
    fn a_header_name_that_is_not_utf_8_is_kept_and_shown_as_kafka_shows_it() {
        let blob = [0x12, 0, 0, 0, 0x01, 0x01, 0x02, 0x02, 0xff, 0x01];
        let batch = with_blob(1, &blob).expect("batch");
        let header = batch.records[0].headers().next().expect("header");
        assert_eq!(header.key, [0xff]);
        assert_eq!(header.key_text(), "\u{fffd}");
    }

    #[test]
    fn records_that_no_producer_writes_are_refused() {
        let good = [0x0c, 0, 0, 0, 0x01, 0x01, 0];
        assert!(with_blob(1, &good).is_ok());
        for (count, blob, why) in [
            (2, &good[..], "fewer records than declared"),
            (0, &good, "more records than declared"),
            (-1, &good, "a negative count"),
            (i32::MAX, &good, "an impossible count"),
            (
                1,
                &[0x0e, 0, 0, 0, 0x01, 0x01, 0],
                "a length beyond the end",
            ),
            (
                1,
                &[0x0e, 0, 0, 0, 0x01, 0x01, 0, 9],
                "bytes left in a record",
            ),
            (
                1,
                &[0x0c, 0, 0, 0, 0x01, 0x01, 0, 9],
                "bytes left after the last",
            ),
            (
                1,
                &[0x0a, 0, 0, 0, 0x01, 0x01, 0],
                "a length that is too short",
            ),
            (1, &[0x01, 0, 0, 0, 0x01, 0x01, 0], "a negative length"),
            (1, &[0x0c, 0, 0, 0, 0x03, 0x01, 0], "a key length of -2"),
            (1, &[0x0c, 0, 0, 0, 0x01, 0x03, 0], "a value length of -2"),
            (
                1,
                &[0x0c, 0, 0, 0, 0x01, 0x01, 0x01],
                "a negative header count",
            ),
            (
                1,
                &[0x0c, 0, 0, 0, 0x01, 0x01, 0x02],
                "more headers than bytes",
            ),
            (
                1,
                &[0x10, 0, 0, 0, 0x01, 0x01, 0x02, 0x01, 0x01],
                "a header without name",
            ),
            (
                1,
                &[0x10, 0, 0, 0, 0x01, 0x01, 0x02, 0, 0x03],
                "a header value length of -2",
            ),
            (1, &[0x80; 20], "an endless number"),
            (1, &[], "no bytes at all"),
        ] {
            assert!(with_blob(count, blob).is_err(), "{why}");
        }
    }

    #[test]
    fn offsets_and_timestamps_that_overflow_are_refused() {
        let mut late = unhex(T1);
        late[27..35].copy_from_slice(&(i64::MAX - 500).to_be_bytes());
        let crc = crc32c::crc32c(&late[21..]);
        late[17..21].copy_from_slice(&crc.to_be_bytes());
        let error = decode(&late).expect_err("timestamp");
        assert!(error.to_string().contains("a timestamp overflows"));
        // The last offset still fits, that of the record does not.
        let mut far = rebuilt(T1, 0, 1, &[0x0c, 0, 0, 0x0a, 0x01, 0x01, 0]);
        far[..8].copy_from_slice(&(i64::MAX - 4).to_be_bytes());
        let error = decode(&far).expect_err("offset");
        assert!(error.to_string().contains("an offset overflows"));
    }

    proptest! {
        #[test]
        fn any_records_are_read_or_refused(
            codec in 0_i16..8,
            count in -1_i32..6,
            blob in proptest::collection::vec(any::<u8>(), 0..120),
        ) {
            let _ = decode(&rebuilt(T1, codec, count, &blob));
        }

        #[test]
        fn changed_records_are_read_or_refused(
            at in 0_usize..24,
            value: u8,
            cut in 0_usize..3,
        ) {
            // Around the 24 bytes of the records of B1, so that most of the structure is right.
            let mut blob = unhex(B1)[61..].to_vec();
            blob[at] = value;
            blob.truncate(24 - cut);
            if let Ok(batch) = decode(&rebuilt(B1, 0, 2, &blob)) {
                prop_assert_eq!(batch.records.len(), 2);
                for record in &batch.records {
                    prop_assert_eq!(record.headers().count(), record.headers().len());
                }
            }
        }
    }

    #[test]
    fn borrowed_batches_of_a_log_can_be_held_together() {
        let log = joined(&[B1, T1]);
        let batches: Vec<_> = Batches::new(&log)
            .map(|batch| batch.expect("batch"))
            .collect();
        let records: Vec<_> = batches
            .iter()
            .map(|b| b.records(0).expect("records"))
            .collect();
        assert_eq!(records.iter().flatten().count(), 6);
    }
}
