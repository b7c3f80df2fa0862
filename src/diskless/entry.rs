//! A range: which bytes of which object hold which offsets of a partition.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use super::error::DisklessError;
use super::object::HEADER_LEN;
use crate::archive::json;
use crate::index::{LogOffset, TimestampMs};

/// A partition's offsets, and where in a WAL object their batches lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WalIndexEntry {
    /// The topic's unique id.
    #[serde(with = "json::hyphenated")]
    pub topic_id: Uuid,
    /// The partition's index in the topic.
    pub partition: i32,
    /// First offset, inclusive.
    pub first_offset: LogOffset,
    /// Last offset, inclusive.
    pub last_offset: LogOffset,
    /// Where the batches begin, in bytes from the object's first byte. Its header has 6 bytes, so
    /// it is at least that.
    pub byte_start: u64,
    /// How many bytes they have; at least one.
    pub byte_len: u32,
    /// The highest timestamp of the batches' records, or the time of the flush where they have
    /// none.
    pub max_timestamp_ms: TimestampMs,
}

impl WalIndexEntry {
    /// The first byte behind the batches.
    ///
    /// Saturates: an entry that [`check`](Self::check) lets pass does not reach that far.
    pub fn byte_end(&self) -> u64 {
        self.byte_start.saturating_add(u64::from(self.byte_len))
    }

    /// Checks what must hold of any range.
    ///
    /// # Errors
    ///
    /// [`InvalidRange`](DisklessError::InvalidRange) for a negative partition or offset, a last
    /// offset below the first or without a successor, a range without bytes, and one that begins
    /// inside the object's header or ends beyond any object.
    pub fn check(&self) -> Result<(), DisklessError> {
        let end = self.byte_start.checked_add(u64::from(self.byte_len));
        let reason = if self.partition < 0 {
            "its partition is negative"
        } else if self.first_offset < 0 {
            "its first offset is negative"
        } else if self.last_offset < self.first_offset {
            "its last offset is below its first"
        } else if self.last_offset == LogOffset::MAX {
            "no offset can follow its last one"
        } else if self.byte_len == 0 {
            "it has no bytes"
        } else if self.byte_start < HEADER_LEN as u64 {
            "it begins inside the object's header"
        } else if end.is_none() {
            "it ends beyond any object"
        } else {
            return Ok(());
        };
        Err(DisklessError::InvalidRange {
            topic_id: self.topic_id,
            partition: self.partition,
            reason,
        })
    }
}

/// A range and its object. Ranges of one object share its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WalRange {
    /// The whole key of the object that holds the batches.
    #[serde(serialize_with = "serialize_key", deserialize_with = "deserialize_key")]
    pub object_key: Arc<str>,
    /// Which bytes of it, and which offsets these are.
    #[serde(deserialize_with = "json::object")]
    pub entry: WalIndexEntry,
}

impl WalRange {
    /// Whether `next` goes on where this range ends, in offsets and in bytes of one object.
    pub fn is_continued_by(&self, next: &Self) -> bool {
        let (entry, next_entry) = (&self.entry, &next.entry);
        entry.last_offset.checked_add(1) == Some(next_entry.first_offset)
            && entry.byte_end() == next_entry.byte_start
            && self.object_key == next.object_key
    }
}

fn serialize_key<S: Serializer>(key: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(key)
}

fn deserialize_key<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
    String::deserialize(deserializer).map(Arc::from)
}
