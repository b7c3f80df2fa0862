//! Values of the index topic: a big-endian version, then a little-endian body.
//!
//! A body is what serde's fixed-width encoders (bincode's legacy one, wincode) write: integers of
//! their natural width, a string or list as a u64 count and its content, a UUID as the count 16 and
//! its bytes. Exactly that is read: bytes behind the body are refused.

use uuid::Uuid;

use super::entry::{WalIndexEntry, WalRange};
use super::error::DisklessError;
use super::key::{WalDeleteFloorKey, WalIndexKey};
use crate::index::LogOffset;

const FLUSH_RECORD: &str = "diskless WAL flush record";
const FLOOR_RECORD: &str = "diskless WAL delete-floor record";

/// Bytes of an entry in a body.
const ENTRY_LEN: usize = 8 + 16 + 4 + 8 + 8 + 8 + 4 + 8;

/// The value of a range: an object, and the ranges that it holds.
///
/// Published under the key of a range, it holds exactly that one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalFlushRecord {
    /// The object's whole key.
    pub object_key: String,
    /// [`FORMAT_VERSION`](Self::FORMAT_VERSION).
    pub format_version: u16,
    /// Ranges of the object.
    pub entries: Vec<WalIndexEntry>,
}

impl WalFlushRecord {
    /// The version that is written, and the only one that is read.
    pub const FORMAT_VERSION: u16 = 2;

    /// Key and value that publish one range of an object.
    pub fn keyed_entry(object_key: &str, entry: WalIndexEntry) -> ([u8; 30], Vec<u8>) {
        let value = encode(object_key, &[entry]);
        (WalIndexKey::from(&entry).to_bytes(), value)
    }

    /// The value's bytes.
    ///
    /// # Errors
    ///
    /// [`UnsupportedVersion`](DisklessError::UnsupportedVersion) for another
    /// [`format_version`](Self::format_version).
    pub fn to_bytes(&self) -> Result<Vec<u8>, DisklessError> {
        if self.format_version != Self::FORMAT_VERSION {
            return Err(unsupported(
                FLUSH_RECORD,
                self.format_version.into(),
                Self::FORMAT_VERSION,
            ));
        }
        Ok(encode(&self.object_key, &self.entries))
    }

    /// The value that has exactly these bytes. What they say is not checked.
    ///
    /// # Errors
    ///
    /// [`Truncated`](DisklessError::Truncated),
    /// [`UnsupportedVersion`](DisklessError::UnsupportedVersion) or
    /// [`Malformed`](DisklessError::Malformed).
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DisklessError> {
        let mut body = Body::of(FLUSH_RECORD, Self::FORMAT_VERSION, bytes)?;
        let object_key = body.string()?;
        let count = body.count(ENTRY_LEN)?;
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            entries.push(WalIndexEntry {
                topic_id: body.uuid()?,
                partition: i32::from_le_bytes(body.take()?),
                first_offset: i64::from_le_bytes(body.take()?),
                last_offset: i64::from_le_bytes(body.take()?),
                byte_start: u64::from_le_bytes(body.take()?),
                byte_len: u32::from_le_bytes(body.take()?),
                max_timestamp_ms: i64::from_le_bytes(body.take()?),
            });
        }
        body.end()?;
        Ok(Self {
            object_key,
            format_version: Self::FORMAT_VERSION,
            entries,
        })
    }

    /// The object's key and the one range that a value under this key holds.
    pub(super) fn under(self, key: WalIndexKey) -> Result<(String, WalIndexEntry), DisklessError> {
        let mismatch = |reason| DisklessError::KeyValueMismatch {
            record: "diskless WAL index",
            reason,
        };
        let [entry] = self.entries[..] else {
            return Err(mismatch("a value under a key holds exactly one range"));
        };
        if WalIndexKey::from(&entry) != key {
            return Err(mismatch("the value's range is not the key's"));
        }
        Ok((self.object_key, entry))
    }
}

fn encode(object_key: &str, entries: &[WalIndexEntry]) -> Vec<u8> {
    let length = 2 + 8 + object_key.len() + 8 + entries.len() * ENTRY_LEN;
    let mut out = Vec::with_capacity(length);
    out.extend_from_slice(&WalFlushRecord::FORMAT_VERSION.to_be_bytes());
    push_count(&mut out, object_key.len());
    out.extend_from_slice(object_key.as_bytes());
    push_count(&mut out, entries.len());
    for entry in entries {
        push_uuid(&mut out, entry.topic_id);
        out.extend_from_slice(&entry.partition.to_le_bytes());
        out.extend_from_slice(&entry.first_offset.to_le_bytes());
        out.extend_from_slice(&entry.last_offset.to_le_bytes());
        out.extend_from_slice(&entry.byte_start.to_le_bytes());
        out.extend_from_slice(&entry.byte_len.to_le_bytes());
        out.extend_from_slice(&entry.max_timestamp_ms.to_le_bytes());
    }
    out
}

impl WalRange {
    /// The key of the record that publishes this range. Without a value it removes the range.
    pub fn key(&self) -> WalIndexKey {
        WalIndexKey::from(&self.entry)
    }

    /// Key and value of the record that publishes this range.
    pub fn to_record(&self) -> ([u8; 30], Vec<u8>) {
        WalFlushRecord::keyed_entry(&self.object_key, self.entry)
    }
}

/// The value of a delete floor: what is below it was deleted, by `DeleteRecords` or retention.
///
/// A writer never publishes a lower floor than the last: compaction would keep the lower one alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalDeleteFloorRecord {
    /// The topic's unique id.
    pub topic_id: Uuid,
    /// The partition's index in the topic.
    pub partition: i32,
    /// The lowest offset that is not deleted.
    pub floor: LogOffset,
}

impl WalDeleteFloorRecord {
    /// The version that is written, and the only one that is read.
    pub const VERSION: i16 = 0;

    /// The key that the value belongs to.
    pub fn key(&self) -> WalDeleteFloorKey {
        WalDeleteFloorKey {
            topic_id: self.topic_id,
            partition: self.partition,
        }
    }

    /// The value's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(38);
        out.extend_from_slice(&Self::VERSION.to_be_bytes());
        push_uuid(&mut out, self.topic_id);
        out.extend_from_slice(&self.partition.to_le_bytes());
        out.extend_from_slice(&self.floor.to_le_bytes());
        out
    }

    /// The value that has exactly these bytes. What they say is not checked.
    ///
    /// # Errors
    ///
    /// [`Truncated`](DisklessError::Truncated),
    /// [`UnsupportedVersion`](DisklessError::UnsupportedVersion) or
    /// [`Malformed`](DisklessError::Malformed).
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DisklessError> {
        let mut body = Body::of(FLOOR_RECORD, Self::VERSION.cast_unsigned(), bytes)?;
        let record = Self {
            topic_id: body.uuid()?,
            partition: i32::from_le_bytes(body.take()?),
            floor: i64::from_le_bytes(body.take()?),
        };
        body.end()?;
        Ok(record)
    }

    /// Checks the value against the key that it stands under.
    pub(super) fn check_under(&self, key: WalDeleteFloorKey) -> Result<(), DisklessError> {
        if self.key() != key {
            return Err(DisklessError::KeyValueMismatch {
                record: "diskless WAL delete-floor",
                reason: "the value's partition is not the key's",
            });
        }
        if self.floor < 0 {
            return Err(DisklessError::InvalidFloor {
                topic_id: self.topic_id,
                partition: self.partition,
                reason: "it is negative",
            });
        }
        Ok(())
    }
}

fn push_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&(count as u64).to_le_bytes());
}

fn push_uuid(out: &mut Vec<u8>, id: Uuid) {
    push_count(out, id.as_bytes().len());
    out.extend_from_slice(id.as_bytes());
}

fn unsupported(record: &'static str, found: i32, supported: u16) -> DisklessError {
    DisklessError::UnsupportedVersion {
        record,
        found: found.to_string(),
        supported,
    }
}

/// What of a value's body has not been read.
struct Body<'a> {
    record: &'static str,
    rest: &'a [u8],
}

impl<'a> Body<'a> {
    /// The body behind a value's version.
    fn of(record: &'static str, supported: u16, bytes: &'a [u8]) -> Result<Self, DisklessError> {
        let Some((version, rest)) = bytes.split_first_chunk() else {
            let len = bytes.len();
            return Err(DisklessError::Truncated { record, len });
        };
        let found = i16::from_be_bytes(*version);
        if u16::try_from(found) != Ok(supported) {
            return Err(unsupported(record, found.into(), supported));
        }
        Ok(Self { record, rest })
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], DisklessError> {
        let Some((taken, rest)) = self.rest.split_first_chunk() else {
            let left = self.rest.len();
            return Err(self.malformed(format!("{N} bytes are wanted, and {left} are left")));
        };
        self.rest = rest;
        Ok(*taken)
    }

    /// A count of items that have at least this many bytes each, which must be there.
    fn count(&mut self, item_len: usize) -> Result<usize, DisklessError> {
        let count = u64::from_le_bytes(self.take()?);
        usize::try_from(count)
            .ok()
            .filter(|count| *count <= self.rest.len() / item_len)
            .ok_or_else(|| {
                let left = self.rest.len();
                self.malformed(format!(
                    "a count of {count} is more than the {left} bytes that are left can hold"
                ))
            })
    }

    fn string(&mut self) -> Result<String, DisklessError> {
        let length = self.count(1)?;
        let (text, rest) = self.rest.split_at(length);
        let text = std::str::from_utf8(text)
            .map_err(|_| self.malformed("the object's key is not UTF-8".to_owned()))?;
        self.rest = rest;
        Ok(text.to_owned())
    }

    fn uuid(&mut self) -> Result<Uuid, DisklessError> {
        let length = u64::from_le_bytes(self.take()?);
        if length != 16 {
            return Err(self.malformed(format!("a UUID has 16 bytes, and this one {length}")));
        }
        Ok(Uuid::from_bytes(self.take()?))
    }

    fn end(self) -> Result<(), DisklessError> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(self.malformed(format!("{left} bytes stand behind the body"))),
        }
    }

    fn malformed(&self, reason: String) -> DisklessError {
        DisklessError::Malformed {
            record: self.record,
            reason,
        }
    }
}
