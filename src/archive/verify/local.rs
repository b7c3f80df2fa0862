//! Local stores: which listed names are links, and which names are not listed.
//!
//! The client of local files follows symbolic links. In an archive a link is no evidence: what it
//! shows can be exchanged without touching the archive.
//!
//! It also passes over what is no regular file, and over names that end like those of its own
//! uploads under way. Whoever looks through an archive must see these, too.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path as FilePath, PathBuf};

use object_store::path::Path;
use object_store::{GetOptions, GetResultPayload, ObjectStore};

use super::read::{blocking, unlisted};
use crate::archive::format::excerpt;
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
    Names {
        /// What is no regular file; the client lists some of them.
        not_files: BTreeSet<OsString>,
        /// What the client passes over, directories left aside.
        passed_over: BTreeSet<String>,
    },
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
        blocking(move || scan(root, &parts))
            .await
            .map_err(|e| unlisted(directory, e))
    }

    /// By directory, what the client passes over under a prefix. Directories that have nothing of
    /// this are not in it, and nothing is that is reached through a link.
    pub(super) async fn passed_over(
        &self,
        prefix: &str,
    ) -> Result<BTreeMap<String, BTreeSet<String>>, WormError> {
        let root = self.0.clone();
        let from = prefix.to_owned();
        blocking(move || passed_over_below(&root, from))
            .await
            .map_err(|e| unlisted(prefix, e))
    }
}

fn passed_over_below(
    root: &FilePath,
    from: String,
) -> io::Result<BTreeMap<String, BTreeSet<String>>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![(root.join(&from), from)];
    while let Some((path, key)) = directories.pop() {
        let entries = match fs::read_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries.map_err(|error| in_directory(&path, &error))?,
        };
        let mut names = BTreeSet::new();
        for (at, entry) in entries.enumerate() {
            let entry = entry?;
            let (kind, name) = (entry.file_type()?, entry.file_name());
            // Of a directory that may be read and not searched the client lists nothing, and says
            // nothing: what is in it would look as if it had never been there.
            if at == 0
                && let Err(error) = fs::symlink_metadata(entry.path())
                && error.kind() != io::ErrorKind::NotFound
            {
                return Err(in_directory(&path, &error));
            }
            if kind.is_dir() {
                let name = name.to_string_lossy();
                let key = match key.as_str() {
                    "" => name.into_owned(),
                    key => format!("{key}/{name}"),
                };
                directories.push((entry.path(), key));
            } else if is_passed_over(kind, &name) {
                names.insert(name.to_string_lossy().into_owned());
            }
        }
        if !names.is_empty() {
            found.insert(key, names);
        }
    }
    Ok(found)
}

/// The same error, with the directory in it.
fn in_directory(path: &FilePath, error: &io::Error) -> io::Error {
    let path = excerpt(&path.to_string_lossy());
    io::Error::new(error.kind(), format!("{path}: {error}"))
}

/// Whether the client does not list this, which is no directory, or shows it as something else.
fn is_passed_over(kind: fs::FileType, name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let upload = name.rsplit_once('#').map_or("", |(_, number)| number);
    !kind.is_file() || !upload.is_empty() && upload.bytes().all(|b| b.is_ascii_digit())
}

fn scan(root: PathBuf, parts: &[String]) -> io::Result<Irregular> {
    let mut path = root;
    for part in parts {
        path.push(part);
        if fs::symlink_metadata(&path)?.file_type().is_symlink() {
            return Ok(Irregular::All);
        }
    }
    let (mut not_files, mut passed_over) = (BTreeSet::new(), BTreeSet::new());
    for entry in fs::read_dir(&path)? {
        let entry = entry?;
        let (kind, name) = (entry.file_type()?, entry.file_name());
        if !kind.is_dir() && is_passed_over(kind, &name) {
            passed_over.insert(name.to_string_lossy().into_owned());
        }
        if !kind.is_file() {
            not_files.insert(name);
        }
    }
    Ok(Irregular::Names {
        not_files,
        passed_over,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_store_whose_root_cannot_be_listed_is_told_in_words() {
        let no_directory = tempfile::NamedTempFile::new().unwrap();
        let root = LocalRoot(no_directory.path().to_owned());
        for (prefix, begins) in [
            ("", "listing the store's root failed: "),
            ("a/b", "listing `a/b` failed: "),
        ] {
            let WormError::Archive(text) = root.passed_over(prefix).await.unwrap_err() else {
                panic!("another error");
            };
            assert!(text.starts_with(begins), "{text}");
        }
    }
}
