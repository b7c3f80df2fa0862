//! What a manager has applied, as a file on the local disk.
//!
//! The file is this crate's own (Apache Kafka 4 has none), in format version 1: the topic's id, for
//! each metadata partition the last offset that was applied, and the caches as a list of entries.
//! An entry is an event as it stands in the log, an add in whatever state its segment is, or, where
//! an import could not work it out from the segments, what a partition's epochs answer and how far
//! its log was applied. A checksum ends the file.
//!
//! A snapshot is a short cut and never the truth: one that is damaged, or not of the log that is
//! read, is not used, and the log is replayed.

mod decode;
mod encode;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use uuid::Uuid;

pub(super) use self::encode::SnapshotEncoder;
use super::codec_error::CodecError;
use crate::error::file_error;
use crate::metadata::RlmmCacheDump;

/// The name of the snapshot in its directory.
pub const SNAPSHOT_FILE_NAME: &str = "snapshot";

/// The version of the format that is written, and the only one that is read.
pub const SNAPSHOT_FORMAT_VERSION: u16 = 1;

/// Version, topic id, number of partitions, number of entries, checksum.
const MIN_LENGTH: usize = 2 + 16 + 4 + 1 + CHECKSUM;
const CHECKSUM: usize = 4;

/// The first byte of the entry that is no event: no event begins so.
const STATE_ENTRY: u8 = 0;

/// What a manager has applied.
///
/// The caches may be ahead of the offsets, never behind: each says how far it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The id of the metadata topic; `None` when it is not known.
    pub topic_id: Option<Uuid>,
    /// The last offset that was applied of each metadata partition; −1 when there is none.
    pub committed_offsets: Vec<i64>,
    /// The caches.
    pub dump: RlmmCacheDump,
}

/// Why a snapshot cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The file could not be read or written; the message names it.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is of another version of the format.
    #[error("snapshot format version {0} is not read here, only {SNAPSHOT_FORMAT_VERSION}")]
    UnsupportedVersion(u16),
    /// Its bytes are not those that were written.
    #[error("the snapshot's checksum is {stored:08x}, and its bytes give {computed:08x}")]
    ChecksumMismatch {
        /// What stands at the end of the file.
        stored: u32,
        /// What the bytes before give.
        computed: u32,
    },
    /// It is not in the format.
    #[error("the snapshot is malformed")]
    Malformed(#[from] CodecError),
    /// Bytes stand between the last entry and the checksum.
    #[error("{0} bytes follow the snapshot's last entry")]
    TrailingBytes(usize),
}

impl Snapshot {
    /// The file's bytes.
    ///
    /// The order of partitions is kept. A partition of which nothing is known is left out.
    pub fn encode(&self) -> Vec<u8> {
        let mut encoder = SnapshotEncoder::new(self.topic_id, &self.committed_offsets);
        for partition in &self.dump.partitions {
            encoder.partition(partition);
        }
        encoder.finish()
    }

    /// Reads the file's bytes.
    ///
    /// A partition without an applied offset of its own gets that of its metadata partition. What an
    /// import can work out (see [`PartitionDump::epochs`](crate::dump::PartitionDump::epochs)) is
    /// left to it.
    ///
    /// # Errors
    ///
    /// What the bytes are instead; checked in the order of length, version, checksum, and fields.
    /// Memory is bounded by the length of the bytes, whatever they claim.
    pub fn decode(bytes: &[u8]) -> Result<Self, SnapshotError> {
        decode::snapshot(bytes)
    }

    /// Writes the snapshot as the file at `path`: it replaces the one before whole, or not at all.
    /// When this returns, it lasts. Blocks.
    ///
    /// The directory is made if it is missing. A file beside it, with `.tmp` at the end of its name,
    /// is written first.
    ///
    /// # Errors
    ///
    /// [`Io`](SnapshotError::Io) with the file's name; the one before stays then.
    pub fn write_atomic(&self, path: &Path) -> Result<(), SnapshotError> {
        write_atomic(path, &self.encode())
    }

    /// Reads the snapshot at `path`; `None` when there is none. Blocks.
    ///
    /// # Errors
    ///
    /// [`Io`](SnapshotError::Io) with the file's name, and those of [`decode`](Self::decode).
    pub fn load(path: &Path) -> Result<Option<Self>, SnapshotError> {
        match fs::read(path) {
            Ok(bytes) => Self::decode(&bytes).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(file_error("read", path, error).into()),
        }
    }
}

fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), SnapshotError> {
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    fs::create_dir_all(dir).map_err(|error| file_error("create", dir, error))?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    let beside = path.with_file_name(name);
    let write = || {
        let mut file = File::create(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    let written = write()
        .map_err(|error| file_error("write", &beside, error))
        .and_then(|()| {
            fs::rename(&beside, path).map_err(|error| file_error("replace", path, error))
        });
    if let Err(error) = written {
        // What is left of it is no use to anybody.
        let _ = fs::remove_file(&beside);
        return Err(error.into());
    }
    // The new name lasts only when the directory does. Some file systems cannot say so.
    if let Ok(dir) = File::open(dir) {
        let _ = dir.sync_all();
    }
    Ok(())
}
