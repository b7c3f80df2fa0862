//! The snapshot's file: replaced as a whole, or not at all. All of it blocks.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use parking_lot::Mutex;

use crate::error::file_error;

/// Held while a file is replaced. A manager that was dropped may still be writing when the next one
/// in its place begins to.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Puts these bytes in the place of the file at `path`, and brings them to the disk.
///
/// Whenever the process ends, the file is there with its old bytes or with the new ones.
pub(super) fn replace(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let Some(name) = path.file_name() else {
        let error = io::Error::new(io::ErrorKind::InvalidInput, "it names no file");
        return Err(file_error("write the snapshot", path, error));
    };
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let _alone = ONE_AT_A_TIME.lock();
    fs::create_dir_all(directory)
        .map_err(|error| file_error("create directory", directory, error))?;
    let mut temporary = name.to_owned();
    temporary.push(".tmp");
    let temporary = directory.join(temporary);
    let replaced = write(&temporary, parts)
        .map_err(|error| file_error("write", &temporary, error))
        .and_then(|()| {
            let renamed = fs::rename(&temporary, path);
            renamed.map_err(|error| file_error("rename a file to", path, error))
        });
    if replaced.is_err() {
        // The failure that is reported is the first one.
        let _ = fs::remove_file(&temporary);
        return replaced;
    }
    // The file is whole under either name, so a directory that cannot be synced costs at most the
    // newest snapshot.
    let _ = File::open(directory).and_then(|directory| directory.sync_all());
    Ok(())
}

fn write(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let mut file = File::create(path)?;
    for part in parts {
        file.write_all(part)?;
    }
    file.sync_all()
}

/// The bytes of the file at `path`; `None` when there is no file.
pub(super) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(file_error("read", path, error)),
    }
}
