//! A tier in a local directory.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;

use object_store::local::LocalFileSystem;

use crate::backends::LocalClient;
use crate::backends::backend::{Backend, StoreKind};
use crate::backends::config::limits::RequestLimits;
use crate::error::RemoteStorageError;
use crate::layout::KeyPrefix;

/// The length of a part, and of the shortest file that goes in parts.
const PART_BYTES: usize = 2 * 1024 * 1024;

/// Checks what can be checked without touching the file system.
pub(in crate::backends) fn validate(root: &Path) -> Result<(), RemoteStorageError> {
    if root.as_os_str().is_empty() {
        return Err(RemoteStorageError::InvalidArgument(
            "`root` of the local store is empty: name a directory".to_owned(),
        ));
    }
    Ok(())
}

/// Opens the directory, and makes it if it is missing.
pub(in crate::backends) fn open(root: &Path) -> Result<Backend, RemoteStorageError> {
    validate(root)?;
    create(root).map_err(|error| RemoteStorageError::io("create", root, error))?;
    let root = root
        .canonicalize()
        .map_err(|error| RemoteStorageError::io("open", root, error))?;
    let object_store = LocalFileSystem::new_with_prefix(&root).map_err(|error| {
        RemoteStorageError::InvalidArgument(format!(
            "{} cannot be the root of a local tier: {error}",
            root.display()
        ))
    })?;
    Ok(Backend {
        location: format!("file://{}", root.display()),
        client: Arc::new(LocalClient::new(root)),
        prefix: KeyPrefix::default(),
        limits: limits(),
        object_store: Some(Arc::new(object_store)),
        kind: StoreKind::Local,
        with_checksums: None,
    })
}

/// Here a part costs no request over a network, and an upload is as exact as a single write. So all
/// but short files go in parts, short ones: what is read next, the digest and what goes to the disk
/// then overlap. As many are under way as make up for the time that a disk takes to answer.
fn limits() -> RequestLimits {
    RequestLimits {
        multipart_threshold: PART_BYTES as u64,
        multipart_chunk_size: PART_BYTES,
        max_parts_in_flight: 8,
        ..RequestLimits::default()
    }
}

/// Makes the directory and those above it that are missing, each durable in the one above it.
fn create(root: &Path) -> io::Result<()> {
    if root.is_dir() {
        return Ok(());
    }
    let parent = match root.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => Path::new("/"),
    };
    create(parent)?;
    match fs::create_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && root.is_dir() => {}
        created => created?,
    }
    File::open(parent)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_copy_goes_in_short_parts_and_holds_less_memory_than_one_over_a_network() {
        let (local, other) = (limits(), RequestLimits::default());
        local.validate().unwrap();
        assert_eq!(local.multipart_threshold, 2_097_152);
        let memory = |limits: &RequestLimits| {
            limits.max_parts_in_flight as u64 * limits.multipart_chunk_size as u64
        };
        assert_eq!(memory(&local), 16_777_216);
        assert!(memory(&local) < memory(&other).min(other.multipart_threshold));
    }
}
