//! Local stores: which listed names are links.
//!
//! The client of local files follows symbolic links. In an archive a link is no evidence: what it
//! shows can be exchanged without touching the archive.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::PathBuf;

use object_store::path::Path;
use object_store::{GetOptions, GetResultPayload, ObjectStore};

use super::read::blocking;
use crate::archive::printable::excerpt;
use crate::error::WormError;

/// The directory in which a store's keys are paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LocalRoot(PathBuf);

/// What must not be followed in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Irregular {
    /// Nothing in it: it is reached through a link itself.
    All,
    /// These names.
    Names(BTreeSet<OsString>),
}

impl LocalRoot {
    /// The root of a store of local files, learned from one of its objects; `None` for other
    /// stores.
    pub(super) async fn of(
        store: &dyn ObjectStore,
        key: &Path,
    ) -> object_store::Result<Option<Self>> {
        let options = GetOptions {
            head: true,
            ..GetOptions::default()
        };
        let GetResultPayload::File(_, path) = store.get_opts(key, options).await?.payload else {
            return Ok(None);
        };
        let root = key
            .parts()
            .try_fold(path.as_path(), |path, _| path.parent());
        Ok(root.map(|root| Self(root.to_owned())))
    }

    /// What must not be followed in one of its directories.
    pub(super) async fn irregular(&self, directory: &str) -> Result<Irregular, WormError> {
        let root = self.0.clone();
        let parts: Vec<String> = directory.split('/').map(str::to_owned).collect();
        blocking(move || scan(root, &parts)).await.map_err(|e| {
            WormError::Archive(format!("listing `{}` failed: {e}", excerpt(directory)))
        })
    }
}

fn scan(root: PathBuf, parts: &[String]) -> io::Result<Irregular> {
    let mut path = root;
    for part in parts {
        path.push(part);
        if fs::symlink_metadata(&path)?.file_type().is_symlink() {
            return Ok(Irregular::All);
        }
    }
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(&path)? {
        let entry = entry?;
        if !entry.file_type()?.is_file() {
            names.insert(entry.file_name());
        }
    }
    Ok(Irregular::Names(names))
}
