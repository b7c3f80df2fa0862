//! Unfinished files, and how they become objects.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path as FilePath, PathBuf};

use object_store::PutPayload;
use parking_lot::{Mutex, RwLock};
use uuid::Uuid;

use super::{Caller, directory_of};
use crate::error::RemoteStorageError;

/// How much is written between two looks at the caller.
const WRITE_STEP: usize = 1024 * 1024;

/// How much is written between two `fsync`s of a long file.
const SYNC_STEP: usize = 16 * 1024 * 1024;

/// Characters of the random part of an unfinished file's name.
const RANDOM_LEN: usize = 32;

/// An unfinished file's name: `.NAME.RANDOM.tmp`, which is no name that Kafka or this crate gives to
/// an object.
pub(super) fn staged_name(name: &str, random: &str) -> String {
    format!(".{name}.{random}.tmp")
}

/// The target's name and the random part of a [`staged_name`].
pub(super) fn parse_staged_name(name: &str) -> Option<(&str, &str)> {
    let (target, random) = name
        .strip_prefix('.')?
        .strip_suffix(".tmp")?
        .rsplit_once('.')?;
    (is_random(random) && !target.is_empty()).then_some((target, random))
}

/// Whether this is the random part of a name that we gave. An id that comes from outside must not
/// lead to another file.
pub(super) fn is_random(text: &str) -> bool {
    text.len() == RANDOM_LEN && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// An unfinished file. Dropped as such, it is removed.
#[derive(Debug)]
pub(super) struct Staged {
    /// Holds the lock that tells a living writer's file from a crashed one's.
    file: File,
    path: PathBuf,
    random: String,
    inode: u64,
    finished: bool,
}

impl Staged {
    /// Creates an empty file beside `target`.
    pub(super) fn create(target: &FilePath) -> io::Result<Self> {
        loop {
            let random = Uuid::new_v4().simple().to_string();
            let path = staged_path(target, &random)?;
            let file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(&path)?;
            match file.try_lock() {
                // A file system without locks: then nobody can take it for a crashed one's.
                Ok(()) | Err(TryLockError::Error(_)) => {}
                // Seen and locked by a sweep before us, which now removes it.
                Err(TryLockError::WouldBlock) => continue,
            }
            let metadata = file.metadata()?;
            if metadata.nlink() > 0 {
                return Ok(Self {
                    file,
                    path,
                    random,
                    inode: metadata.ino(),
                    finished: false,
                });
            }
        }
    }

    /// Any file as an unfinished one, which stays when this is dropped.
    #[cfg(test)]
    pub(super) fn over(path: &FilePath) -> Self {
        Self {
            file: OpenOptions::new().write(true).open(path).unwrap(),
            path: path.to_owned(),
            random: String::new(),
            inode: 0,
            finished: true,
        }
    }

    /// The name's random part.
    pub(super) fn random(&self) -> &str {
        &self.random
    }

    /// The file's number, by which it is known again under another name.
    pub(super) fn inode(&self) -> u64 {
        self.inode
    }

    /// Writes the content and brings it to the disk.
    pub(super) fn write(
        &mut self,
        payload: &PutPayload,
        caller: &Caller,
    ) -> Result<(), RemoteStorageError> {
        let (mut file, path) = (&self.file, &self.path);
        write_in_steps(payload, path, file, caller, |piece| file.write_all(piece))?;
        file.sync_all()
            .map_err(|error| RemoteStorageError::io("sync", path, error))
    }

    /// Makes the file visible, in place of what stood there.
    pub(super) fn rename_to(
        mut self,
        target: &FilePath,
        caller: &Caller,
    ) -> Result<(), RemoteStorageError> {
        caller.unless_dropped(target, || rename(&self.path, target))?;
        self.finished = true;
        sync_directory(directory_of(target))
    }

    /// Makes the file visible if nothing stands there; else answers false.
    pub(super) fn link_to(
        &mut self,
        target: &FilePath,
        caller: &Caller,
    ) -> Result<bool, RemoteStorageError> {
        if !caller.unless_dropped(target, || link(&self.path, target))? {
            return Ok(false);
        }
        // The object is there. What is left of the file's first name is no failure of the create.
        self.finished = fs::remove_file(&self.path).is_ok();
        sync_directory(directory_of(target))?;
        Ok(true)
    }

    /// The file has been given its name by other means.
    pub(super) fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.finished {
            // What cannot be removed now is removed by a later sweep.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Where the unfinished file for `target` with this random part is.
pub(super) fn staged_path(target: &FilePath, random: &str) -> io::Result<PathBuf> {
    match target.file_name().and_then(|name| name.to_str()) {
        Some(name) => Ok(target.with_file_name(staged_name(name, random))),
        None => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Writes a payload piece by piece, and looks at the caller between two of them.
///
/// What was written goes to the disk every now and then: so the last `fsync` is a short one, and its
/// silence is not taken for a request that hangs.
pub(super) fn write_in_steps(
    payload: &PutPayload,
    path: &FilePath,
    file: &File,
    caller: &Caller,
    mut write: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<(), RemoteStorageError> {
    let failed = |error| RemoteStorageError::io("write", path, error);
    let mut unsynced = 0;
    for piece in payload.iter().flat_map(|bytes| bytes.chunks(WRITE_STEP)) {
        caller.still_waits(path)?;
        write(piece).map_err(failed)?;
        unsynced += piece.len();
        if unsynced >= SYNC_STEP {
            file.sync_data().map_err(failed)?;
            unsynced = 0;
        }
        caller.mark();
    }
    Ok(())
}

/// Gives a file another name, in place of what had it.
pub(super) fn rename(from: &FilePath, target: &FilePath) -> Result<(), RemoteStorageError> {
    fs::rename(from, target)
        .map_err(|error| RemoteStorageError::io("rename a file to", target, error))
}

/// Gives a file a second name; false if something has that name.
pub(super) fn link(from: &FilePath, target: &FilePath) -> Result<bool, RemoteStorageError> {
    match fs::hard_link(from, target) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(RemoteStorageError::io("link a file to", target, error)),
    }
}

/// Brings a directory's entries to the disk.
pub(super) fn sync_directory(directory: &FilePath) -> Result<(), RemoteStorageError> {
    match File::open(directory).and_then(|file| file.sync_all()) {
        // Some network file systems do not know it for directories: their servers do it unasked.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced.map_err(|error| RemoteStorageError::io("sync", directory, error)),
    }
}

/// The directories that are known to be there, durable and swept.
#[derive(Debug, Default)]
pub(super) struct Directories {
    ready: RwLock<HashSet<PathBuf>>,
    /// One at a time, so that none is taken for durable while another thread still syncs it.
    preparing: Mutex<()>,
}

impl Directories {
    /// Makes the directory ready for a file.
    pub(super) fn prepare(
        &self,
        root: &FilePath,
        directory: &FilePath,
    ) -> Result<(), RemoteStorageError> {
        if self.ready.read().contains(directory) {
            return Ok(());
        }
        let _preparing = self.preparing.lock();
        if self.ready.read().contains(directory) {
            return Ok(());
        }
        create_durably(directory)?;
        // Another process may have created them, and not have come to this.
        for above in directory.ancestors().skip(1) {
            if !above.starts_with(root) {
                break;
            }
            sync_directory(above)?;
        }
        sweep(directory);
        self.ready.write().insert(directory.to_owned());
        Ok(())
    }

    /// The directory is not there any more.
    pub(super) fn forget(&self, directory: &FilePath) {
        self.ready.write().remove(directory);
    }
}

fn create_durably(directory: &FilePath) -> Result<(), RemoteStorageError> {
    if directory.is_dir() {
        return Ok(());
    }
    let parent = directory_of(directory);
    create_durably(parent)?;
    match fs::create_dir(directory) {
        Ok(()) => sync_directory(parent),
        // Another process was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => {
            sync_directory(parent)
        }
        Err(error) => Err(RemoteStorageError::io("create directory", directory, error)),
    }
}

/// Removes the unfinished files of processes that are gone. Those of living ones are locked.
fn sweep(directory: &FilePath) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name.to_str().and_then(parse_staged_name).is_none() {
            continue;
        }
        let path = entry.path();
        let Ok(file) = File::open(&path) else {
            continue;
        };
        if file.try_lock().is_ok() && fs::remove_file(&path).is_ok() {
            tracing::info!(path = %path.display(), "removed an unfinished file of a crashed process");
        }
    }
}
