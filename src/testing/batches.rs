//! Logs of made-up batches, with the indexes that a broker of Kafka 4.0 or later writes beside them.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};

/// Kafka's default of `index.interval.bytes`.
pub const INDEX_INTERVAL_BYTES: usize = 4096;

/// The bytes of a batch before its records.
const HEADER_BYTES: usize = 61;

const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;

/// A record batch of magic 2 to be made: uncompressed, and by default with one small record.
#[derive(Clone, Copy, Debug)]
pub struct BatchSpec {
    /// The offset of its first record.
    pub base_offset: i64,
    /// How many offsets it has, each with a record.
    pub records: i32,
    /// Its whole size in bytes, at least; padding in the first record's value makes it up.
    pub size: usize,
    /// That of the leader which took it.
    pub epoch: i32,
    /// That of every record, in milliseconds.
    pub timestamp: i64,
    /// -1 for none.
    pub producer_id: i64,
    /// Is of a transaction of this producer.
    pub is_transactional: bool,
}

impl BatchSpec {
    /// A batch of no producer, of epoch 0, whose timestamp is its base offset.
    pub fn new(base_offset: i64, records: i32, size: usize) -> Self {
        Self {
            base_offset,
            records,
            size,
            epoch: 0,
            timestamp: base_offset,
            producer_id: -1,
            is_transactional: false,
        }
    }

    /// A batch of a transaction of this producer.
    #[must_use]
    pub fn of_transaction(mut self, producer_id: i64) -> Self {
        self.producer_id = producer_id;
        self.is_transactional = true;
        self
    }

    /// Is of this leader epoch.
    #[must_use]
    pub fn epoch(mut self, epoch: i32) -> Self {
        self.epoch = epoch;
        self
    }

    /// Has this timestamp.
    #[must_use]
    pub fn timestamp(mut self, timestamp: i64) -> Self {
        self.timestamp = timestamp;
        self
    }

    /// The offset of its last record.
    pub fn last_offset(&self) -> i64 {
        self.base_offset + i64::from(self.records) - 1
    }

    /// The batch's bytes, of exactly the wanted size unless that is too small for the records.
    pub fn make(&self) -> Vec<u8> {
        let rest: Vec<u8> = (1..self.records)
            .flat_map(|delta| record(delta, 0, b""))
            .collect();
        let wanted = self.size.saturating_sub(HEADER_BYTES + rest.len());
        // A longer length takes more bytes to say, so some sizes need a byte of key as well.
        let first = (0..3)
            .flat_map(|key| (7..16).map(move |less| (key, less)))
            .map(|(key, less)| {
                let value = vec![0xab; wanted.saturating_sub(less + key)];
                record(0, key, &value)
            })
            .find(|record| record.len() == wanted)
            .unwrap_or_else(|| record(0, 0, b""));
        let attributes = if self.is_transactional {
            TRANSACTIONAL
        } else {
            0
        };
        self.wrap(attributes, &[first, rest].concat())
    }

    /// The marker that ends a transaction of the producer: its commit, or else its abort.
    pub fn make_marker(&self, is_commit: bool) -> Vec<u8> {
        let mut body = vec![0];
        varint(&mut body, 0);
        varint(&mut body, 0);
        varint(&mut body, 4);
        body.extend([0, 0, 0, u8::from(is_commit)]);
        varint(&mut body, 6);
        body.extend([0, 0, 0, 0, 0, 7]);
        varint(&mut body, 0);
        let mut records = Vec::new();
        varint(&mut records, body.len());
        records.extend(body);
        self.wrap(TRANSACTIONAL | CONTROL, &records)
    }

    fn wrap(&self, attributes: i16, records: &[u8]) -> Vec<u8> {
        let mut checked = Vec::new();
        checked.put_i16(attributes);
        checked.put_i32(self.records - 1);
        checked.put_i64(self.timestamp);
        checked.put_i64(self.timestamp);
        checked.put_i64(self.producer_id);
        checked.put_i16(if self.producer_id < 0 { -1 } else { 0 });
        checked.put_i32(-1);
        checked.put_i32(self.records);
        checked.put_slice(records);
        let mut batch = Vec::new();
        batch.put_i64(self.base_offset);
        batch.put_i32(i32::try_from(9 + checked.len()).unwrap());
        batch.put_i32(self.epoch);
        batch.put_i8(2);
        batch.put_u32(crc32c::crc32c(&checked));
        batch.put_slice(&checked);
        batch
    }
}

fn record(offset_delta: i32, key: usize, value: &[u8]) -> Vec<u8> {
    let mut body = vec![0];
    varint(&mut body, 0);
    varint(&mut body, usize::try_from(offset_delta).unwrap());
    varint(&mut body, key);
    body.extend(std::iter::repeat_n(b'k', key));
    varint(&mut body, value.len());
    body.extend(value);
    varint(&mut body, 0);
    let mut record = Vec::new();
    varint(&mut record, body.len());
    record.extend(body);
    record
}

/// A zigzag varint of a number that is not negative.
#[allow(clippy::cast_possible_truncation)] // Seven bits at a time.
fn varint(bytes: &mut Vec<u8>, number: usize) {
    let mut rest = number << 1;
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

/// The files of a segment while it is written.
#[derive(Clone, Debug)]
pub struct SegmentFiles {
    /// The first offset.
    pub base_offset: i64,
    /// The last one so far.
    pub last_offset: i64,
    /// The batches.
    pub log: Vec<u8>,
    /// Entries of the offset index.
    pub offset_index: Vec<u8>,
    /// Entries of the time index.
    pub time_index: Vec<u8>,
    /// Entries of the transaction index.
    pub txn_index: Vec<u8>,
    /// Largest timestamp so far, and the offset that reached it.
    max_timestamp: (i64, i64),
    indexed_timestamp: i64,
    since_entry: usize,
}

impl SegmentFiles {
    /// Empty files.
    pub fn new(base_offset: i64) -> Self {
        Self {
            base_offset,
            last_offset: base_offset - 1,
            log: Vec::new(),
            offset_index: Vec::new(),
            time_index: Vec::new(),
            txn_index: Vec::new(),
            max_timestamp: (-1, base_offset),
            indexed_timestamp: -1,
            since_entry: 0,
        }
    }

    /// Batches of this size and of `records` records each, as many as make `size` bytes.
    pub fn uniform(base_offset: i64, size: usize, batch: usize, records: i32) -> Self {
        let mut files = Self::new(base_offset);
        while files.log.len() < size {
            let spec = BatchSpec::new(files.last_offset + 1, records, batch);
            files.append(&spec);
        }
        files.roll()
    }

    /// Appends a batch.
    pub fn append(&mut self, batch: &BatchSpec) -> &mut Self {
        self.append_bytes(batch, &batch.make())
    }

    /// Appends the marker that ends a transaction, and notes an abort in the transaction index.
    /// `last_stable_offset` is the first offset of the oldest transaction that is still open, or
    /// the one after the marker.
    pub fn append_marker(
        &mut self,
        producer_id: i64,
        aborted: Option<(i64, Option<i64>)>,
    ) -> &mut Self {
        let offset = self.last_offset + 1;
        let marker = BatchSpec::new(offset, 1, 0).of_transaction(producer_id);
        self.append_bytes(&marker, &marker.make_marker(aborted.is_none()));
        if let Some((first_offset, open_from)) = aborted {
            self.txn_index.put_i16(0);
            self.txn_index.put_i64(producer_id);
            self.txn_index.put_i64(first_offset);
            self.txn_index.put_i64(offset);
            self.txn_index.put_i64(open_from.unwrap_or(offset + 1));
        }
        self
    }

    /// Appends the bytes of a batch as Kafka does: an entry before it, when more than the interval
    /// has been written since the last one.
    pub fn append_bytes(&mut self, batch: &BatchSpec, bytes: &[u8]) -> &mut Self {
        self.last_offset = batch.last_offset();
        if batch.timestamp > self.max_timestamp.0 {
            self.max_timestamp = (batch.timestamp, self.last_offset);
        }
        if self.since_entry > INDEX_INTERVAL_BYTES {
            let position = u32::try_from(self.log.len()).unwrap();
            self.offset_index.put_u32(self.relative(self.last_offset));
            self.offset_index.put_u32(position);
            self.index_timestamp();
            self.since_entry = 0;
        }
        self.log.extend_from_slice(bytes);
        self.since_entry += bytes.len();
        self
    }

    /// The files when the segment is closed.
    #[must_use]
    pub fn roll(mut self) -> Self {
        self.index_timestamp();
        self
    }

    fn index_timestamp(&mut self) {
        let (timestamp, offset) = self.max_timestamp;
        if timestamp > self.indexed_timestamp {
            self.time_index.put_i64(timestamp);
            self.time_index.put_u32(self.relative(offset));
            self.indexed_timestamp = timestamp;
        }
    }

    fn relative(&self, offset: i64) -> u32 {
        u32::try_from(offset - self.base_offset).unwrap()
    }
}

/// A log of any length that is made where it is read: batches of one size, end to end. Only their
/// base offsets differ, which the checksum does not cover.
#[derive(Clone, Debug)]
pub struct UniformLog {
    base_offset: i64,
    records: i32,
    template: Vec<u8>,
    batches: usize,
}

impl UniformLog {
    /// So many batches, of `batch` bytes and `records` records each.
    pub fn new(base_offset: i64, batches: usize, batch: usize, records: i32) -> Self {
        let template = BatchSpec::new(0, records, batch).make();
        assert_eq!(template.len(), batch);
        Self {
            base_offset,
            records,
            template,
            batches,
        }
    }

    /// In bytes.
    pub fn size(&self) -> u64 {
        (self.batches * self.template.len()) as u64
    }

    /// The last offset of the log.
    pub fn end_offset(&self) -> i64 {
        self.base_offset_of(self.batches) - 1
    }

    fn base_offset_of(&self, batch: usize) -> i64 {
        self.base_offset + i64::from(self.records) * i64::try_from(batch).unwrap()
    }

    /// The bytes from one position to another.
    #[allow(clippy::cast_possible_truncation)] // Positions in a log of less than 4 GiB.
    pub fn bytes(&self, range: Range<u64>) -> Bytes {
        let size = self.template.len();
        let range = range.start as usize..range.end as usize;
        let mut bytes = BytesMut::with_capacity(range.len());
        let mut at = range.start;
        while at < range.end {
            let (batch, from) = (at / size, at % size);
            let to = size.min(from + range.end - at);
            let begin = bytes.len();
            bytes.extend_from_slice(&self.template[from..to]);
            let base_offset = self.base_offset_of(batch).to_be_bytes();
            for place in from..to.min(8) {
                bytes[begin + place - from] = base_offset[place];
            }
            at += to - from;
        }
        bytes.freeze()
    }

    /// The offset index of such a log, where each batch is larger than the interval: an entry for
    /// each but the first.
    pub fn offset_index(&self) -> Vec<u8> {
        assert!(self.template.len() > INDEX_INTERVAL_BYTES);
        let mut index = Vec::with_capacity(8 * self.batches);
        for batch in 1..self.batches {
            let last = self.base_offset_of(batch + 1) - 1 - self.base_offset;
            index.put_u32(u32::try_from(last).unwrap());
            index.put_u32(u32::try_from(batch * self.template.len()).unwrap());
        }
        index
    }
}
