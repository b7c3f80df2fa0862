//! Keys of the index topic. The topic is compacted by them: the last value of a key counts.

use std::num::NonZeroU32;

use uuid::Uuid;
use zerocopy::big_endian::{I16, I32, I64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::entry::WalIndexEntry;
use super::error::DisklessError;
use crate::index::LogOffset;

/// What every known key begins with.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct PartitionKey {
    version: I16,
    topic_id: [u8; 16],
    partition: I32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RangeKey {
    partition: PartitionKey,
    first_offset: I64,
}

impl PartitionKey {
    fn new(version: i16, topic_id: Uuid, partition: i32) -> Self {
        Self {
            version: version.into(),
            topic_id: topic_id.into_bytes(),
            partition: partition.into(),
        }
    }
}

/// The key of a range: 30 bytes, big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WalIndexKey {
    /// The topic's unique id.
    pub topic_id: Uuid,
    /// The partition's index in the topic.
    pub partition: i32,
    /// The range's first offset.
    pub first_offset: LogOffset,
}

impl WalIndexKey {
    /// The version that such a key begins with.
    pub const VERSION: i16 = 0;

    /// The key's bytes.
    pub fn to_bytes(self) -> [u8; 30] {
        let partition = PartitionKey::new(Self::VERSION, self.topic_id, self.partition);
        zerocopy::transmute!(RangeKey {
            partition,
            first_offset: self.first_offset.into(),
        })
    }

    /// The key that has these bytes; `None` for another version or length.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let key = RangeKey::ref_from_bytes(bytes).ok()?;
        (key.partition.version.get() == Self::VERSION).then(|| Self {
            topic_id: Uuid::from_bytes(key.partition.topic_id),
            partition: key.partition.partition.get(),
            first_offset: key.first_offset.get(),
        })
    }
}

/// The key under which a range is published.
impl From<&WalIndexEntry> for WalIndexKey {
    fn from(entry: &WalIndexEntry) -> Self {
        Self {
            topic_id: entry.topic_id,
            partition: entry.partition,
            first_offset: entry.first_offset,
        }
    }
}

/// The key of a partition's delete floor: 22 bytes, big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WalDeleteFloorKey {
    /// The topic's unique id.
    pub topic_id: Uuid,
    /// The partition's index in the topic.
    pub partition: i32,
}

impl WalDeleteFloorKey {
    /// The version that such a key begins with.
    pub const VERSION: i16 = 1;

    /// The key's bytes.
    pub fn to_bytes(self) -> [u8; 22] {
        zerocopy::transmute!(PartitionKey::new(
            Self::VERSION,
            self.topic_id,
            self.partition
        ))
    }

    /// The key that has these bytes; `None` for another version or length.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let key = PartitionKey::ref_from_bytes(bytes).ok()?;
        (key.version.get() == Self::VERSION).then(|| Self {
            topic_id: Uuid::from_bytes(key.topic_id),
            partition: key.partition.get(),
        })
    }
}

/// The version that a key begins with; `None` for a key that is too short to have one.
pub fn wal_index_key_version(key: &[u8]) -> Option<i16> {
    key.first_chunk().copied().map(i16::from_be_bytes)
}

/// A key of the index topic, of either kind.
#[derive(Clone, Copy, Debug)]
pub(super) enum AnyKey {
    Range(WalIndexKey),
    Floor(WalDeleteFloorKey),
}

impl AnyKey {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, DisklessError> {
        let key = match wal_index_key_version(bytes) {
            Some(WalIndexKey::VERSION) => WalIndexKey::from_bytes(bytes).map(Self::Range),
            Some(WalDeleteFloorKey::VERSION) => {
                WalDeleteFloorKey::from_bytes(bytes).map(Self::Floor)
            }
            Some(version) => return Err(DisklessError::UnknownKeyVersion(version)),
            None => None,
        };
        key.filter(Self::is_possible)
            .ok_or(DisklessError::InvalidKey)
    }

    fn is_possible(&self) -> bool {
        match self {
            Self::Range(key) => key.partition >= 0 && key.first_offset >= 0,
            Self::Floor(key) => key.partition >= 0,
        }
    }
}

/// The partition of the index topic that older builds published an object's ranges to: Java's
/// string hash over the bytes of the object's key, modulo the number of partitions.
pub fn wal_index_partition(object_key: &str, partitions: NonZeroU32) -> u32 {
    let hash = object_key.bytes().fold(0_u32, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(u32::from(byte))
    });
    hash % partitions
}
