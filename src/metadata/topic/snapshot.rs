//! What a manager has applied, in a file of its own: a restart goes on from there.
//!
//! The format is this crate's own, version 1. Numbers are big-endian, varints are unsigned.
//!
//! | Part | Encoding |
//! |---|---|
//! | version | 2 bytes: 1 |
//! | topic id | 16 bytes; zeros: unknown |
//! | metadata partitions | 4 bytes: how many |
//! | committed offsets | 8 bytes for each metadata partition, −1 for none |
//! | entries | varint: how many, then each as a varint of its length and its bytes |
//! | checksum | 4 bytes: CRC-32C of everything before |
//!
//! A user's partition has an entry for each segment, an add event with the segment's real state; one
//! for its delete state, a partition-delete event with timestamp 0 and broker 0; and, where the
//! segments do not say all by themselves, one of another kind:
//!
//! | Part | Encoding |
//! |---|---|
//! | kind | 1 byte: 0, which no event begins with |
//! | partition | as in an event |
//! | applied offset | a flag byte, then 8 bytes if it is 1 |
//! | epochs | varint: how many, ascending; 0: the segments tell |
//! | each epoch | 4 bytes: the epoch; its highest offset, as a flag byte, then 8 bytes if it is 1; varint: how many readable segments |
//! | each readable segment | 8 bytes: the offset from which on it answers; 16 bytes: its id |
//!
//! Without such an entry a partition's cache was applied to the committed offset of its metadata
//! partition, and which segments answer is what
//! [`RemoteLogMetadataCache::import`] works out.

mod answers;
mod decoder;
mod encoder;
mod error;
mod file;

use std::path::Path;

use uuid::Uuid;

use self::answers::Answers;
use self::decoder::{Decoded, decode};
pub use self::encoder::SnapshotEncoder;
pub use self::error::SnapshotError;
use crate::metadata::assembly::Assembly;
use crate::metadata::{PartitionDump, RemoteLogMetadataCache, RlmmCacheDump};

/// The name of the snapshot's file in the snapshot directory.
pub const SNAPSHOT_FILE_NAME: &str = "snapshot";

/// The format version that is written, and the only one that is read.
pub const SNAPSHOT_FORMAT_VERSION: u16 = 1;

/// What a manager has applied of the metadata log.
///
/// The caches have at least the events up to the committed offsets, and may have more; each says
/// how many, so replaying the overlap changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The id of the metadata topic, where it is known: offsets of another topic mean nothing.
    pub topic_id: Option<Uuid>,
    /// The offset up to which each metadata partition was applied, inclusive; −1 for none. There are
    /// as many as the log has partitions.
    pub committed_offsets: Vec<i64>,
    /// The contents of the caches, each partition once.
    pub dump: RlmmCacheDump,
}

impl Snapshot {
    /// The snapshot as bytes.
    ///
    /// What it keeps of each partition is what
    /// [`RemoteLogMetadataCache::import`] would take in: the rows of the partition itself, its
    /// delete state, what its epochs answer where the rows do not tell, and the applied offset.
    ///
    /// # Panics
    ///
    /// When there are more than 2^31 − 1 committed offsets.
    pub fn encode(&self) -> Vec<u8> {
        self.encoder().finish()
    }

    fn encoder(&self) -> SnapshotEncoder {
        let mut encoder = SnapshotEncoder::new(self.topic_id, &self.committed_offsets);
        for partition in &self.dump.partitions {
            encoder.partition(partition);
        }
        encoder
    }

    /// Reads a snapshot.
    ///
    /// Partitions come in the order of their first entries. Where the segments tell what the epochs
    /// answer, the dump's `epochs` are left empty.
    ///
    /// # Errors
    ///
    /// In this order: [`Malformed`](SnapshotError::Malformed) when it is too short for any snapshot,
    /// [`UnsupportedVersion`](SnapshotError::UnsupportedVersion),
    /// [`ChecksumMismatch`](SnapshotError::ChecksumMismatch), and then
    /// [`Malformed`](SnapshotError::Malformed) and
    /// [`TrailingBytes`](SnapshotError::TrailingBytes) for bytes that were never a snapshot.
    pub fn decode(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let Decoded {
            topic_id,
            committed_offsets,
            partitions,
        } = decode(bytes)?;
        let partitions = partitions.into_iter().map(|mut partition| {
            let Answers {
                applied_offset,
                epochs,
            } = partition.answers(&committed_offsets);
            PartitionDump {
                topic_id_partition: partition.tp,
                segments: partition.rows,
                delete_state: partition.delete_state,
                epochs,
                applied_offset,
            }
        });
        let dump = RlmmCacheDump {
            partitions: partitions.collect(),
        };
        Ok(Self {
            topic_id,
            committed_offsets,
            dump,
        })
    }

    /// Puts the snapshot in the place of the file at `path`, whose directory is made if it is not
    /// there. Blocks.
    ///
    /// Whenever the process or the machine stops, the file has its old contents or the new ones:
    /// they are written beside it, under its name and `.tmp`, brought to the disk, and renamed.
    ///
    /// # Errors
    ///
    /// [`Io`](SnapshotError::Io). The old file is unchanged then.
    ///
    /// # Panics
    ///
    /// As [`encode`](Self::encode).
    pub fn write_atomic(&self, path: &Path) -> Result<(), SnapshotError> {
        self.encoder().write_atomic(path)
    }

    /// Reads the snapshot in the file at `path`; `None` when there is no file. Blocks.
    ///
    /// # Errors
    ///
    /// Those of [`decode`](Self::decode), and [`Io`](SnapshotError::Io).
    pub fn load(path: &Path) -> Result<Option<Self>, SnapshotError> {
        match file::read(path)? {
            Some(bytes) => Self::decode(&bytes).map(Some),
            None => Ok(None),
        }
    }
}

/// A snapshot with its partitions as caches, which are made directly from its bytes.
///
/// It holds what [`Snapshot`] does after an
/// [`import`](RemoteLogMetadataCache::import) of each partition, for a fraction of the work.
#[derive(Debug)]
pub struct SnapshotCaches {
    /// See [`Snapshot::topic_id`].
    pub topic_id: Option<Uuid>,
    /// See [`Snapshot::committed_offsets`].
    pub committed_offsets: Vec<i64>,
    /// One cache for each partition, in the order of their first entries.
    pub caches: Vec<RemoteLogMetadataCache>,
}

impl SnapshotCaches {
    /// Reads a snapshot.
    ///
    /// # Errors
    ///
    /// Those of [`Snapshot::decode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let Decoded {
            topic_id,
            committed_offsets,
            partitions,
        } = decode::<Assembly>(bytes)?;
        let caches = partitions.into_iter().map(|mut partition| {
            let answers = partition.answers(&committed_offsets);
            let rows = partition.rows;
            rows.finish(
                partition.delete_state,
                &answers.epochs,
                answers.applied_offset,
            )
        });
        Ok(Self {
            caches: caches.collect(),
            topic_id,
            committed_offsets,
        })
    }

    /// Reads the snapshot in the file at `path`; `None` when there is no file. Blocks.
    ///
    /// # Errors
    ///
    /// Those of [`Snapshot::load`].
    pub fn load(path: &Path) -> Result<Option<Self>, SnapshotError> {
        match file::read(path)? {
            Some(bytes) => Self::decode(&bytes).map(Some),
            None => Ok(None),
        }
    }
}
