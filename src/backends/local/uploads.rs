//! Uploads in parts: an unfinished file that is written in places.
//!
//! An upload's id is the random part of the file's name and the file's number. So any client can
//! find, complete or abort it, and a completion that is repeated knows its own file again under the
//! final name.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path as FilePath;

use object_store::path::Path;
use parking_lot::Mutex;

use super::read::{child, for_each_entry};
use super::staging::{
    Staged, is_random, link, parse_staged_name, rename, staged_path, sync_directory, write_in_steps,
};
use super::{Caller, directory_of, sync_file};
use crate::error::RemoteStorageError;
use crate::model::OpKind;
use crate::ops::{
    CompleteUpload, OpenUpload, PartTag, PutPart, StorageOp, UploadId, WriteMode, Written,
};

/// The uploads that were started here. Their files are locked, and removed with the client.
#[derive(Debug, Default)]
pub(super) struct Uploads {
    open: Mutex<HashMap<UploadId, Staged>>,
}

impl Uploads {
    pub(super) fn add(&self, staged: Staged) -> UploadId {
        let id = upload_id(staged.random(), staged.inode());
        self.open.lock().insert(id.clone(), staged);
        id
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.open.lock().is_empty()
    }

    /// Writes one part in its place, and brings it to the disk: so the completion has little left to
    /// do, and parts not yet on the disk are bounded like parts in flight.
    pub(super) fn write_part(
        &self,
        target: &FilePath,
        request: &PutPart,
        caller: &Caller,
    ) -> Result<PartTag, RemoteStorageError> {
        let unknown = || self.unknown(OpKind::PutPart, request.key(), &request.upload);
        let (random, _) = parse_upload_id(&request.upload).ok_or_else(unknown)?;
        let staged = staged_path(target, random)?;
        let file = match OpenOptions::new().write(true).open(&staged) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(unknown()),
            Err(error) => return Err(RemoteStorageError::io("write", &staged, error)),
        };
        let mut position = request.offset;
        write_in_steps(&request.payload, &staged, &file, caller, |piece| {
            file.write_all_at(piece, position)?;
            position += piece.len() as u64;
            Ok(())
        })?;
        file.sync_data()
            .map_err(|error| RemoteStorageError::io("sync", &staged, error))?;
        Ok(part_tag(request.offset, position))
    }

    /// Makes the upload's file visible when all of its parts are there.
    pub(super) fn complete(
        &self,
        target: &FilePath,
        request: &CompleteUpload,
        caller: &Caller,
    ) -> Result<Written, RemoteStorageError> {
        let unknown = || self.unknown(OpKind::CompleteUpload, request.key(), &request.upload);
        let (random, inode) = parse_upload_id(&request.upload).ok_or_else(unknown)?;
        let staged = staged_path(target, random)?;
        let failed = |error| RemoteStorageError::io("complete", &staged, error);
        let length = length_of(request)?;
        match File::open(&staged) {
            Ok(file) => {
                let came = file.metadata().map_err(failed)?.len();
                if came != length {
                    return Err(RemoteStorageError::Corrupt {
                        key: request.key().to_owned(),
                        reason: format!("its parts have {length} bytes, {came} were written"),
                    });
                }
                file.sync_all().map_err(failed)?;
                caller.unless_dropped(target, || publish(&staged, inode, target, request))?;
            }
            // An earlier attempt, whose answer was lost, may have completed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if !is_file(target, inode, Some(length)) {
                    return Err(unknown());
                }
                sync_file(target)?;
            }
            Err(error) => return Err(failed(error)),
        }
        if let Some(staged) = self.open.lock().remove(&request.upload) {
            staged.finish();
        }
        sync_directory(directory_of(target))?;
        Ok(Written {
            create_precondition: request.mode != WriteMode::Overwrite,
            ..Written::default()
        })
    }

    /// The error of an upload whose file is not there, which is then forgotten here too.
    fn unknown(&self, operation: OpKind, key: &str, upload: &UploadId) -> RemoteStorageError {
        self.open.lock().remove(upload);
        RemoteStorageError::Backend {
            key: key.to_owned(),
            operation,
            status: Some(404),
            transient: false,
            reason: format!("no upload `{upload}` of `{key}`: it was aborted or completed"),
            source: None,
        }
    }

    /// Removes the upload's file, whoever started it.
    pub(super) fn abort(
        &self,
        target: &FilePath,
        upload: &UploadId,
    ) -> Result<(), RemoteStorageError> {
        let Some((random, _)) = parse_upload_id(upload) else {
            return Ok(());
        };
        let staged = staged_path(target, random)?;
        match fs::remove_file(&staged) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(RemoteStorageError::io("remove", &staged, error));
            }
            _ => {}
        }
        if let Some(staged) = self.open.lock().remove(upload) {
            staged.finish();
        }
        Ok(())
    }
}

/// The unfinished files in a directory and in those below it that may be read: a tier can be the root
/// of a file system, whose `lost+found` is for root alone.
pub(super) fn list_below(
    directory: &FilePath,
    prefix: &Path,
) -> Result<Vec<OpenUpload>, RemoteStorageError> {
    let mut uploads = Vec::new();
    let mut seen = HashSet::new();
    let root = directory;
    let mut ahead = vec![(directory.to_owned(), prefix.clone())];
    while let Some((directory, prefix)) = ahead.pop() {
        let listed = for_each_entry(&directory, |name, path| {
            let metadata = match fs::metadata(path) {
                Err(error) if leads_nowhere(&error) => return Ok(()),
                metadata => metadata?,
            };
            if metadata.is_dir() {
                // A link may lead upwards.
                if seen.insert((metadata.dev(), metadata.ino()))
                    && let Some(prefix) = child(&prefix, name)
                {
                    ahead.push((path.to_owned(), prefix));
                }
            } else if let Some((target, random)) = parse_staged_name(name)
                && let Some(key) = child(&prefix, target)
            {
                uploads.push(OpenUpload {
                    key,
                    upload: upload_id(random, metadata.ino()),
                });
            }
            Ok(())
        });
        match listed {
            Err(RemoteStorageError::Io(error))
                if error.kind() == io::ErrorKind::PermissionDenied && directory != root => {}
            listed => listed?,
        }
    }
    uploads.sort_unstable_by(|a, b| (&a.key, &a.upload).cmp(&(&b.key, &b.upload)));
    Ok(uploads)
}

/// Whether this is about a link to nothing, or to something that is kept from us.
fn leads_nowhere(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
    )
}

fn publish(
    staged: &FilePath,
    inode: u64,
    target: &FilePath,
    request: &CompleteUpload,
) -> Result<(), RemoteStorageError> {
    match request.mode {
        WriteMode::Overwrite => rename(staged, target),
        WriteMode::Create { .. } => {
            // The name may be our own already, from an attempt that was cut off after the link.
            if !link(staged, target)? && !is_file(target, inode, None) {
                return Err(RemoteStorageError::ObjectExists {
                    key: request.key().to_owned(),
                });
            }
            fs::remove_file(staged).map_err(|error| RemoteStorageError::io("remove", staged, error))
        }
    }
}

fn is_file(path: &FilePath, inode: u64, length: Option<u64>) -> bool {
    fs::metadata(path).is_ok_and(|metadata| {
        metadata.is_file()
            && metadata.ino() == inode
            && length.is_none_or(|length| metadata.len() == length)
    })
}

fn upload_id(random: &str, inode: u64) -> UploadId {
    format!("{random}-{inode}").into()
}

fn parse_upload_id(id: &str) -> Option<(&str, u64)> {
    let (random, inode) = id.split_once('-')?;
    Some((random, inode.parse().ok()?)).filter(|_| is_random(random))
}

fn part_tag(start: u64, end: u64) -> PartTag {
    format!("{start}..{end}").into()
}

/// The length of the object, if its parts follow one another without a gap.
fn length_of(request: &CompleteUpload) -> Result<u64, RemoteStorageError> {
    let mut length = 0;
    for (index, tag) in request.parts.iter().enumerate() {
        let bounds = tag.split_once("..").and_then(|(start, end)| {
            let end: u64 = end.parse().ok()?;
            (start.parse() == Ok(length) && end >= length).then_some(end)
        });
        length = bounds.ok_or_else(|| {
            RemoteStorageError::InvalidArgument(format!(
                "part {} of `{}` is `{tag}` and should begin at {length}: name every part, in order",
                index + 1,
                request.key()
            ))
        })?;
    }
    Ok(length)
}
