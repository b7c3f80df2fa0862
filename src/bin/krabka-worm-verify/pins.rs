//! Pins: the positions that an archive held when it was last in order, kept outside of it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use krabka_remote_storage::ArchiveVerifyReport;
use krabka_remote_storage::archive::ExpectedPosition;
use tempfile::NamedTempFile;

use crate::failure::Failure;

/// By a directory's key, the last manifest of each of its runs.
pub(crate) type Pins = BTreeMap<String, Vec<ExpectedPosition>>;

/// No file of pins comes near to this: a run takes about 200 bytes.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// Reads a file of pins.
pub(crate) fn read(path: &Path) -> Result<Pins, Failure> {
    let failed = |error: io::Error| {
        Failure::during(format!("cannot read the pins in {}", path.display()), error)
    };
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MAX_FILE_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(failed(io::Error::other("the file is too large")));
    }
    serde_json::from_str(&text).map_err(|error| failed(error.into()))
}

/// Writes the positions of a report, and those of directories that it is not about, in place of
/// what stands in the file: all of it or nothing.
pub(crate) fn write(
    path: &Path,
    before: Pins,
    report: &ArchiveVerifyReport,
) -> Result<(), Failure> {
    let mut pins = before;
    pins.extend(report.positions());
    replace(path, &pins).map_err(|error| {
        Failure::during(
            format!("cannot write the pins to {}", path.display()),
            error,
        )
    })
}

fn replace(path: &Path, pins: &Pins) -> io::Result<()> {
    // The file that a link names is replaced, not the link; and no device, which would be gone.
    let target = fs::canonicalize(path).ok();
    let path = target.as_deref().unwrap_or(path);
    if target.is_some() && !path.is_file() {
        return Err(io::Error::other("it is there, and is no regular file"));
    }
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut file = NamedTempFile::new_in(directory)?;
    serde_json::to_writer_pretty(&mut file, pins)?;
    file.write_all(b"\n")?;
    if let Ok(metadata) = fs::metadata(path) {
        file.as_file().set_permissions(metadata.permissions())?;
    }
    file.as_file().sync_all()?;
    file.persist(path)?;
    File::open(directory)?.sync_all()
}
