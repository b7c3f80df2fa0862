//! The directory of a cache that keeps its indexes in files.
//!
//! It belongs to one cache of one process, which holds a lock on a file beside it. Every load
//! writes a file of its own, so nobody who removes an old file can meet a new one.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::content::Key;
use super::file::IndexFile;
use crate::error::RemoteStorageError;
use crate::layout::{REMOTE_INDEX_CACHE_DIR, index_cache_file_name, parse_index_cache_file_name};
use crate::model::IndexType;

/// What the name of a file that is not finished, or not to be found again, ends with. A Kafka
/// broker that starts in the directory removes such files.
const TEMPORARY: &str = ".tmp";

/// Hexadecimal digits of a checksum in a file name.
const CHECKSUM_DIGITS: usize = 8;

/// Random characters in a file name.
const RANDOM_CHARACTERS: usize = 12;

#[derive(Debug)]
pub(super) struct CacheDirectory {
    path: PathBuf,
    /// Whether files stay for the next process.
    keeps_files: bool,
    _lock: File,
}

/// A file that an earlier process left.
pub(super) struct FoundFile {
    pub(super) key: Key,
    pub(super) file: IndexFile,
    modified: SystemTime,
}

impl CacheDirectory {
    /// Takes the directory, and empties it of all but the files that are to be kept: those are
    /// answered, the oldest first.
    pub(super) fn open(
        log_dir: &Path,
        keeps_files: bool,
    ) -> Result<(Self, Vec<FoundFile>), RemoteStorageError> {
        let path = log_dir.join(REMOTE_INDEX_CACHE_DIR);
        fs::create_dir_all(&path)
            .map_err(|error| RemoteStorageError::io("create", &path, error))?;
        let directory = Self {
            _lock: lock(&path)?,
            path,
            keeps_files,
        };
        let found = directory
            .tidy()
            .map_err(|error| RemoteStorageError::io("empty", &directory.path, error))?;
        Ok((directory, found))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn keeps_files(&self) -> bool {
        self.keeps_files
    }

    /// Writes an index to a new file, which is there whole or not at all.
    pub(super) fn write(&self, key: Key, start_offset: i64, bytes: &[u8]) -> io::Result<IndexFile> {
        match self.try_write(key, start_offset, bytes) {
            // Somebody has removed the directory.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(&self.path)?;
                self.try_write(key, start_offset, bytes)
            }
            result => result,
        }
    }

    fn try_write(&self, key: Key, start_offset: i64, bytes: &[u8]) -> io::Result<IndexFile> {
        let checksum = crc32c::crc32c(bytes);
        let mark = format!(".{checksum:0CHECKSUM_DIGITS$x}");
        let mut file = tempfile::Builder::new()
            .prefix(&index_cache_file_name(start_offset, key.segment, &mark))
            .rand_bytes(RANDOM_CHARACTERS)
            .suffix(&format!("{}{TEMPORARY}", key.index.suffix()))
            .tempfile_in(&self.path)?;
        file.write_all(bytes)?;
        let temporary = file.into_temp_path();
        let path = if self.keeps_files {
            // The name without `.tmp`: only what is complete is found by the next process.
            let path = temporary.with_extension("");
            temporary.persist(&path)?;
            path
        } else {
            temporary.keep()?
        };
        Ok(IndexFile::written(path, bytes, checksum))
    }

    fn tidy(&self) -> io::Result<Vec<FoundFile>> {
        let mut kept: Vec<FoundFile> = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            match self.keeps_files.then(|| found(&entry)).flatten() {
                Some(file) => kept.push(file),
                None if entry.file_type()?.is_dir() => fs::remove_dir_all(entry.path())?,
                None => fs::remove_file(entry.path())?,
            }
        }
        kept.sort_by_key(|found| found.modified);
        Ok(kept)
    }
}

/// A file that a cache of this kind has written, and finished.
fn found(entry: &fs::DirEntry) -> Option<FoundFile> {
    let name = entry.file_name();
    let name = parse_index_cache_file_name(name.to_str()?)?;
    let (mark, suffix) = name
        .suffix
        .strip_prefix('.')?
        .split_at_checked(CHECKSUM_DIGITS + RANDOM_CHARACTERS)?;
    let checksum = u32::from_str_radix(mark.get(..CHECKSUM_DIGITS)?, 16).ok()?;
    let key = Key::new(name.segment_id, IndexType::from_suffix(suffix)?)?;
    let metadata = entry.metadata().ok()?;
    let length = usize::try_from(metadata.len()).ok()?;
    (metadata.is_file() && length > 0).then(|| FoundFile {
        key,
        file: IndexFile::found(entry.path(), length, checksum),
        modified: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
    })
}

/// Beside the directory and not in it: a Kafka broker would take it for an index.
fn lock(directory: &Path) -> Result<File, RemoteStorageError> {
    let path = directory.with_extension("lock");
    let cannot_lock = |error| RemoteStorageError::io("lock", &path, error);
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(cannot_lock)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(RemoteStorageError::InvalidArgument(format!(
            "index cache {} is in use, mostly by another process: give each its own log directory",
            directory.display()
        ))),
        Err(TryLockError::Error(error)) => Err(cannot_lock(error)),
    }
}
