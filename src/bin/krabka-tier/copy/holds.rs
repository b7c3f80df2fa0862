//! One copy at a time into a partition of an archive in a local directory.
//!
//! Whoever seals looks where a partition's chain ends, and goes on from there. Two that do so at once
//! both take the same place, and fork the chain for good. So a copy holds the partition's directory
//! from before it looks until its last manifest stands.
//!
//! The hold is the system's advisory lock on the directory itself: no file in the archive stands for
//! it, and it ends with the process, however that ends. A store over a network has nothing like it.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use krabka_remote_storage::RemoteStorageError;
use parking_lot::Mutex;

use super::plan::blocking;
use crate::console::print_note;

/// The directories of an archive that this process holds.
#[derive(Clone, Debug)]
pub(crate) struct Holds {
    root: PathBuf,
    /// Never dropped: at a signal a manifest may still be on its way when all else has ended. The
    /// system lets go of what was not let go of here when the process is gone.
    held: Arc<ManuallyDrop<Mutex<BTreeMap<PathBuf, File>>>>,
}

/// One partition's directory, held. Dropped, it stays so.
#[derive(Debug)]
pub(super) struct Hold {
    holds: Holds,
    directory: PathBuf,
}

impl Holds {
    /// Of the archive in this directory.
    pub(crate) fn below(root: PathBuf) -> Self {
        Self {
            root,
            held: Arc::default(),
        }
    }

    /// Takes a partition's directory, and makes it if it is missing.
    pub(super) async fn take(&self, directory: &str) -> Result<Hold, RemoteStorageError> {
        let hold = Hold {
            holds: self.clone(),
            directory: self.root.join(directory),
        };
        blocking(move || {
            let path = &hold.directory;
            if let Some(file) = lock(path)? {
                hold.holds.held.lock().insert(path.clone(), file);
            }
            Ok(hold)
        })
        .await
    }
}

impl Hold {
    /// Lets go of the directory: no manifest of this process is on its way into it.
    pub(super) fn release(self) {
        self.holds.held.lock().remove(&self.directory);
    }
}

/// `None` where the file system has no such locks.
fn lock(directory: &Path) -> Result<Option<File>, RemoteStorageError> {
    // The store makes its way durable with the first file.
    fs::create_dir_all(directory)
        .map_err(|error| RemoteStorageError::io("create directory", directory, error))?;
    let file =
        File::open(directory).map_err(|error| RemoteStorageError::io("open", directory, error))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(refused) => unlocked(directory, refused).map(|()| None),
    }
}

/// What it means that a directory could not be locked.
fn unlocked(directory: &Path, refused: TryLockError) -> Result<(), RemoteStorageError> {
    match refused {
        TryLockError::WouldBlock => {
            let busy = io::Error::new(
                io::ErrorKind::ResourceBusy,
                "another copy seals into this partition: wait until it has ended, and repeat this \
                 one",
            );
            Err(RemoteStorageError::io("lock", directory, busy))
        }
        TryLockError::Error(error) => {
            print_note(format_args!(
                "{} cannot be locked ({error}): make sure that no other copy runs into this \
                 partition, or its chain forks for good",
                directory.display()
            ));
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_directory_is_held_until_it_is_released_and_not_only_while_the_hold_lives() {
        let root = tempfile::tempdir().unwrap();
        let take = async || {
            let holds = Holds::below(root.path().to_owned());
            holds.take("orders-0-id").await
        };
        let hold = take().await.unwrap();
        let error = take().await.unwrap_err();
        let text = crate::console::chain(&error);
        let path = root.path().join("orders-0-id");
        assert!(text.contains(&*path.to_string_lossy()), "{text}");
        assert!(text.contains("another copy"), "{text}");
        hold.release();

        drop(take().await.unwrap());
        take().await.unwrap_err();
        Holds::below(root.path().to_owned())
            .take("orders-1-id")
            .await
            .unwrap();
        assert_eq!(path.read_dir().unwrap().count(), 0, "no file stands for it");
    }

    #[test]
    fn a_file_system_without_locks_stops_no_copy() {
        let unsupported = TryLockError::Error(io::ErrorKind::Unsupported.into());
        unlocked(Path::new("/tier/orders-0"), unsupported).unwrap();
    }
}
