//! A local directory as a store: an object's key is its file's path below the root.
//!
//! What it promises: an object is under its final name whole or not at all, and when a write
//! answers, file and directory are on the disk (`fsync` of the file, then rename or link, then
//! `fsync` of the directory; new directories are synced into their parents). A create is a hard
//! link, which exactly one of several rivals gets, at any size.
//!
//! What it trusts: the file system. It must know hard links, POSIX renames and `fsync`, so this is
//! a store for Unix. Symbolic links are followed as the system does, but for the last step of a
//! write, which replaces the link. A key cannot lead out of the root by itself: it has no `..`.
//!
//! Unfinished files stand beside their target as `.NAME.RANDOM.tmp`; listings leave them out, and
//! such a name is refused as a key. A writer holds a lock on its own, so that the first write into a
//! directory can remove what crashed processes left there and nothing else.
//!
//! Each request is one hop to a thread that may block. Once the future of a write has been dropped,
//! nothing becomes visible that was not before.

pub(super) mod config;
mod read;
mod staging;
#[cfg(test)]
mod tests;
mod uploads;

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectMeta;
use object_store::path::Path;
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use self::staging::{Directories, Staged, parse_staged_name, sync_directory};
use self::uploads::Uploads;
use super::StoreClient;
use crate::error::RemoteStorageError;
use crate::layout;
use crate::model::RemoteLogSegmentMetadata;
use crate::ops::{
    AbortUpload, Activity, CompleteUpload, Create, Delete, Get, Head, List, ListUploads, OpFuture,
    Put, PutPart, StartUpload, StorageOp, Written,
};

/// How often a create is tried again when its rival's file is gone before it could be read.
const CONFLICT_RETRIES: u32 = 3;

/// A [`StoreClient`] over a local directory.
pub struct LocalClient {
    root: PathBuf,
    directories: Directories,
    uploads: Uploads,
}

impl LocalClient {
    /// A store in this directory, which the first write creates if it is missing.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        Self {
            root: if root.as_os_str().is_empty() {
                PathBuf::from(".")
            } else {
                root
            },
            directories: Directories::default(),
            uploads: Uploads::default(),
        }
    }

    /// The directory.
    pub fn root(&self) -> &FilePath {
        &self.root
    }
}

impl fmt::Debug for LocalClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LocalClient").field(&self.root).finish()
    }
}

impl StoreClient for LocalClient {
    fn get(self: Arc<Self>, request: Get) -> OpFuture<Get> {
        Box::pin(hop(move |caller| self.read(&request, caller)))
    }

    fn head(self: Arc<Self>, request: Head) -> OpFuture<Head> {
        Box::pin(hop(move |_| self.stat(request.target.key())))
    }

    fn put(self: Arc<Self>, request: Put) -> OpFuture<Put> {
        Box::pin(hop(move |caller| {
            let path = self.file_path(request.target.key())?;
            let mut staged = self.stage(&path)?;
            staged.write(&request.payload, caller)?;
            staged.rename_to(&path, caller)?;
            Ok(Written::default())
        }))
    }

    fn create(self: Arc<Self>, request: Create) -> OpFuture<Create> {
        Box::pin(hop(move |caller| self.create_file(&request, caller)))
    }

    fn start_upload(self: Arc<Self>, request: StartUpload) -> OpFuture<StartUpload> {
        Box::pin(async move {
            let client = Arc::clone(&self);
            // A future that is dropped meanwhile drops the file, and with it removes it.
            let staged =
                hop(move |_| client.stage(&client.file_path(request.target.key())?)).await?;
            Ok(self.uploads.add(staged))
        })
    }

    fn put_part(self: Arc<Self>, request: PutPart) -> OpFuture<PutPart> {
        Box::pin(hop(move |caller| {
            let path = self.file_path(request.target.key())?;
            self.uploads.write_part(&path, &request, caller)
        }))
    }

    fn complete_upload(self: Arc<Self>, request: CompleteUpload) -> OpFuture<CompleteUpload> {
        Box::pin(hop(move |caller| {
            let path = self.file_path(request.target.key())?;
            self.uploads.complete(&path, &request, caller)
        }))
    }

    fn abort_upload(self: Arc<Self>, request: AbortUpload) -> OpFuture<AbortUpload> {
        Box::pin(hop(move |_| {
            let path = self.file_path(request.target.key())?;
            self.uploads.abort(&path, &request.upload)
        }))
    }

    fn delete(self: Arc<Self>, request: Delete) -> OpFuture<Delete> {
        Box::pin(hop(move |_| {
            let path = self.file_path(request.target.key())?;
            match fs::remove_file(&path) {
                Ok(()) => sync_directory(directory_of(&path)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(RemoteStorageError::io("delete", &path, error)),
            }
        }))
    }

    fn list(self: Arc<Self>, request: List) -> OpFuture<List> {
        Box::pin(hop(move |_| self.list_directory(request.target.key())))
    }

    fn list_uploads(self: Arc<Self>, request: ListUploads) -> OpFuture<ListUploads> {
        Box::pin(hop(move |_| {
            let prefix = request.target.key();
            uploads::list_below(&self.directory_path(prefix), prefix).map(Some)
        }))
    }

    fn check_segment(&self, segment: &RemoteLogSegmentMetadata) -> Result<(), RemoteStorageError> {
        layout::check_local_dir_name(&layout::partition_dir_name(segment))
    }
}

impl LocalClient {
    /// Where the object's file is.
    fn file_path(&self, key: &Path) -> Result<PathBuf, RemoteStorageError> {
        match key.filename() {
            None => Err(RemoteStorageError::InvalidArgument(
                "an empty key names no object: it is the tier's root".to_owned(),
            )),
            Some(name) if parse_staged_name(name).is_some() => {
                Err(RemoteStorageError::InvalidArgument(format!(
                    "`{key}` cannot be an object's key: such names are kept for unfinished files"
                )))
            }
            Some(_) => Ok(self.directory_path(key)),
        }
    }

    fn directory_path(&self, key: &Path) -> PathBuf {
        let mut path = self.root.clone();
        if !key.is_root() {
            path.push(key.as_ref());
        }
        path
    }

    /// A new unfinished file that is to become the file at `path`.
    fn stage(&self, path: &FilePath) -> Result<Staged, RemoteStorageError> {
        let directory = directory_of(path);
        self.directories.prepare(&self.root, directory)?;
        let error = match Staged::create(path) {
            Ok(staged) => return Ok(staged),
            Err(error) => error,
        };
        if error.kind() != io::ErrorKind::NotFound {
            return Err(RemoteStorageError::io("create a file for", path, error));
        }
        // Somebody has removed the directory since it was prepared.
        self.directories.forget(directory);
        self.directories.prepare(&self.root, directory)?;
        Staged::create(path)
            .map_err(|error| RemoteStorageError::io("create a file for", path, error))
    }

    fn create_file(
        &self,
        request: &Create,
        caller: &Caller,
    ) -> Result<Written, RemoteStorageError> {
        let path = self.file_path(request.target.key())?;
        let mut staged = self.stage(&path)?;
        staged.write(&request.payload, caller)?;
        let created = Written {
            create_precondition: true,
            ..Written::default()
        };
        for _ in 0..=CONFLICT_RETRIES {
            if staged.link_to(&path, caller)? {
                return Ok(created);
            }
            let size = request.payload.content_length() as u64;
            match read::is_content(&path, size, &request.sha256, caller)? {
                Some(true) => {
                    // An earlier attempt may have been cut off before it got this far.
                    sync_file(&path)?;
                    sync_directory(directory_of(&path))?;
                    return Ok(created);
                }
                Some(false) => {
                    return Err(RemoteStorageError::ObjectExists {
                        key: request.key().to_owned(),
                    });
                }
                // Deleted meanwhile.
                None => {}
            }
        }
        Err(RemoteStorageError::Backend {
            key: request.key().to_owned(),
            operation: Create::KIND,
            status: Some(409),
            transient: true,
            reason: format!(
                "create of `{}` met a rival {} times that was gone when looked at",
                request.key(),
                CONFLICT_RETRIES + 1
            ),
            source: None,
        })
    }
}

/// How long a dropped future waits for a rename that is just being made, which takes microseconds:
/// on a file system that hangs it must not hang as well.
const RENAME_LIMIT: Duration = Duration::from_millis(100);

/// The caller of a request, as the thread sees it that does the work.
struct Caller {
    dropped: Arc<Mutex<bool>>,
    activity: Option<Activity>,
}

impl Caller {
    /// Bytes have moved.
    fn mark(&self) {
        if let Some(activity) = &self.activity {
            activity.mark();
        }
    }

    /// Ends work whose caller has gone: nobody will see the error.
    fn still_waits(&self, path: &FilePath) -> Result<(), RemoteStorageError> {
        self.unless_dropped(path, || Ok(()))
    }

    /// Takes the step that makes an object visible, unless the caller has gone. The caller cannot go
    /// meanwhile, so that nothing appears after its future was dropped.
    fn unless_dropped<T>(
        &self,
        path: &FilePath,
        step: impl FnOnce() -> Result<T, RemoteStorageError>,
    ) -> Result<T, RemoteStorageError> {
        let dropped = self.dropped.lock();
        if *dropped {
            let gone = io::Error::new(io::ErrorKind::Interrupted, "the call was dropped");
            return Err(RemoteStorageError::io("write", path, gone));
        }
        step()
    }
}

/// Tells the thread when the caller's future is dropped.
struct Waiting(Arc<Mutex<bool>>);

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(mut dropped) = self.0.try_lock_for(RENAME_LIMIT) {
            *dropped = true;
        }
    }
}

/// Does the file work of one request in one hop to a thread that may block.
async fn hop<T: Send + 'static>(
    work: impl FnOnce(&Caller) -> Result<T, RemoteStorageError> + Send + 'static,
) -> Result<T, RemoteStorageError> {
    let waiting = Waiting(Arc::default());
    let caller = Caller {
        dropped: Arc::clone(&waiting.0),
        activity: Activity::current(),
    };
    let done = tokio::task::spawn_blocking(move || work(&caller));
    // If the call is dropped before a thread takes it, it is never done.
    let done = AbortOnDropHandle::new(done).await;
    drop(waiting);
    // Only a runtime that shuts down does not run the work.
    done.unwrap_or_else(|error| Err(io::Error::other(error).into()))
}

/// The directory that holds the file; every path here has one, the root at least.
fn directory_of(path: &FilePath) -> &FilePath {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => FilePath::new("."),
    }
}

fn sync_file(path: &FilePath) -> Result<(), RemoteStorageError> {
    File::open(path)
        .and_then(|file| file.sync_all())
        .map_err(|error| RemoteStorageError::io("sync", path, error))
}

fn object_meta(location: Path, metadata: &fs::Metadata) -> io::Result<ObjectMeta> {
    Ok(ObjectMeta {
        location,
        last_modified: metadata.modified()?.into(),
        size: metadata.len(),
        e_tag: None,
        version: None,
    })
}
