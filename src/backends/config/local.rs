//! A tier in a local directory.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;

use object_store::local::LocalFileSystem;

use super::{Backend, RequestLimits, StoreKind};
use crate::backends::LocalClient;
use crate::error::RemoteStorageError;
use crate::layout::KeyPrefix;

/// Checks what can be checked without touching the file system.
pub(super) fn validate(root: &Path) -> Result<(), RemoteStorageError> {
    if root.as_os_str().is_empty() {
        return Err(RemoteStorageError::InvalidArgument(
            "`root` of the local store is empty: name a directory".to_owned(),
        ));
    }
    Ok(())
}

/// Opens the directory, and makes it if it is missing.
pub(super) fn open(root: &Path) -> Result<Backend, RemoteStorageError> {
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
        limits: RequestLimits::default(),
        object_store: Some(Arc::new(object_store)),
        kind: StoreKind::Local,
        with_checksums: None,
    })
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
