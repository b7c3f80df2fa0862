//! Reads of files and directories.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path as FilePath;

use bytes::Bytes;
use object_store::ObjectMeta;
use object_store::path::Path;
use sha2::{Digest, Sha256};

use super::staging::parse_staged_name;
use super::{Caller, LocalClient, object_meta};
use crate::error::RemoteStorageError;
use crate::ops::{ByteRange, Fetched, Get, Listing, StorageOp};

/// How much is read between two signs of life.
const READ_STEP: u64 = 4 * 1024 * 1024;

impl LocalClient {
    pub(super) fn read(
        &self,
        request: &Get,
        caller: &Caller,
    ) -> Result<Fetched, RemoteStorageError> {
        let path = self.file_path(request.target.key())?;
        let failed = |error| RemoteStorageError::io("read", &path, error);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(missing(request)),
            Err(error) => return Err(failed(error)),
        };
        let metadata = file.metadata().map_err(failed)?;
        check_file(&metadata).map_err(failed)?;
        let size = metadata.len();
        let range = satisfiable(request, size)?;
        let length = range.end - range.start;
        let bytes = read_range(&mut file, &range, caller).map_err(failed)?;
        if bytes.len() as u64 != length {
            return Err(RemoteStorageError::Corrupt {
                key: request.key().to_owned(),
                reason: format!(
                    "bytes {range:?} were due, the file was cut short to {} of them",
                    bytes.len()
                ),
            });
        }
        Ok(Fetched {
            bytes,
            object_size: Some(size),
        })
    }

    pub(super) fn stat(&self, key: &Path) -> Result<Option<ObjectMeta>, RemoteStorageError> {
        let path = self.file_path(key)?;
        let found = match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => found,
        };
        found
            .and_then(|metadata| {
                check_file(&metadata)?;
                object_meta(key.clone(), &metadata)
            })
            .map(Some)
            .map_err(|error| RemoteStorageError::io("read", &path, error))
    }

    /// Lists one directory. One that is missing is empty, as in a bucket.
    pub(super) fn list_directory(&self, prefix: &Path) -> Result<Listing, RemoteStorageError> {
        let directory = self.directory_path(prefix);
        let mut listing = Listing::default();
        for_each_entry(&directory, |name, entry| {
            // What cannot be a key (a line feed in its name, say) is nobody's object.
            let Some(key) = child(prefix, name) else {
                return Ok(());
            };
            if parse_staged_name(name).is_some() {
                return Ok(());
            }
            let metadata = match fs::metadata(entry) {
                // Gone since, or a link to nowhere.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                metadata => metadata?,
            };
            if metadata.is_dir() {
                listing.prefixes.push(key);
            } else if metadata.is_file() {
                listing.objects.push(object_meta(key, &metadata)?);
            }
            Ok(())
        })?;
        listing.prefixes.sort_unstable();
        listing
            .objects
            .sort_unstable_by(|a, b| a.location.cmp(&b.location));
        Ok(listing)
    }
}

/// Visits each entry of a directory whose name is UTF-8. A missing directory has none.
pub(super) fn for_each_entry(
    directory: &FilePath,
    mut visit: impl FnMut(&str, &FilePath) -> io::Result<()>,
) -> Result<(), RemoteStorageError> {
    let failed = |error| RemoteStorageError::io("list", directory, error);
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed)?,
    };
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if let Some(name) = entry.file_name().to_str() {
            let path = entry.path();
            visit(name, &path).map_err(|error| RemoteStorageError::io("list", &path, error))?;
        }
    }
    Ok(())
}

/// The key of an entry of a directory, if it can be one.
pub(super) fn child(prefix: &Path, name: &str) -> Option<Path> {
    let key = if prefix.is_root() {
        name.to_owned()
    } else {
        format!("{prefix}/{name}")
    };
    Path::parse(key).ok()
}

/// Whether the file has this content; `None` if there is none.
pub(super) fn is_content(
    path: &FilePath,
    size: u64,
    sha256: &[u8; 32],
    caller: &Caller,
) -> Result<Option<bool>, RemoteStorageError> {
    let failed = |error| RemoteStorageError::io("read", path, error);
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(failed)?,
    };
    let metadata = file.metadata().map_err(failed)?;
    check_file(&metadata).map_err(failed)?;
    if metadata.len() != size {
        return Ok(Some(false));
    }
    let mut digest = Sha256::new();
    while io::copy(&mut file.by_ref().take(READ_STEP), &mut digest).map_err(failed)? > 0 {
        caller.mark();
    }
    Ok(Some(digest.finalize().as_slice() == sha256))
}

fn missing(request: &Get) -> RemoteStorageError {
    if let Some(metadata) = request.segment() {
        return RemoteStorageError::SegmentNotFound(metadata.remote_log_segment_id().clone());
    }
    unanswerable(request, 404, format!("not found: {}", request.key()))
}

/// The range to read, its end at most the file's.
fn satisfiable(request: &Get, size: u64) -> Result<Range<u64>, RemoteStorageError> {
    let (start, end) = match &request.range {
        ByteRange::Whole => return Ok(0..size),
        ByteRange::From(start) => (*start, size),
        ByteRange::Bounded(range) => (range.start, range.end.min(size)),
    };
    if start < size {
        return Ok(start..end.max(start));
    }
    let reason = format!("no bytes from {start} on: `{}` has {size}", request.key());
    Err(unanswerable(request, 416, reason))
}

fn unanswerable(request: &Get, status: u16, reason: String) -> RemoteStorageError {
    RemoteStorageError::Backend {
        key: request.key().to_owned(),
        operation: Get::KIND,
        status: Some(status),
        transient: false,
        reason,
        source: None,
    }
}

/// A directory can be opened as well, and so can a device.
fn check_file(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_file() {
        Ok(())
    } else if metadata.is_dir() {
        Err(io::ErrorKind::IsADirectory.into())
    } else {
        Err(io::Error::other("not a regular file"))
    }
}

/// Reads into a buffer of exactly the range's length, which the answer then owns.
fn read_range(file: &mut File, range: &Range<u64>, caller: &Caller) -> io::Result<Bytes> {
    let length = range.end - range.start;
    let mut bytes = Vec::new();
    let reserved = usize::try_from(length)
        .ok()
        .and_then(|length| bytes.try_reserve_exact(length).ok());
    if reserved.is_none() {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    if range.start > 0 {
        file.seek(SeekFrom::Start(range.start))?;
    }
    let mut left = length;
    while left > 0 {
        // Fills the reserved room as it is, without zeroing it first.
        let came = file
            .by_ref()
            .take(left.min(READ_STEP))
            .read_to_end(&mut bytes)? as u64;
        if came == 0 {
            break;
        }
        left -= came;
        caller.mark();
    }
    Ok(Bytes::from(bytes))
}
