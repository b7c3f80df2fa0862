//! The first listing: which directories there are, and what stands outside of them.

use std::collections::{BTreeMap, BTreeSet};

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};

use super::Context;
use super::local::LocalRoot;
use super::read::{read_capped, unlisted};
use crate::archive::manifest::MANIFEST_SUFFIX;
use crate::archive::printable::excerpt;
use crate::error::WormError;
use crate::layout::{PartitionDirName, parse_partition_dir_name, parse_segment_file_name};

/// Name of the one object that a writer's self-test leaves under its prefix.
pub const WORM_PROBE_NAME: &str = ".krabka-worm-probe";

/// That object's bytes.
pub const WORM_PROBE_BODY: &[u8] = b"krabka-worm-probe v1\n";

/// First component, below the prefix, of what a restore keeps beside an archive.
const RESTORE_INPUTS: &str = "restore-inputs";

/// With how many keys it is tried to learn whether the store is a local one.
const LOCAL_TRIES: usize = 8;

/// What a store holds under a prefix.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Partitions, by their directories' keys.
    pub(super) directories: BTreeMap<String, PartitionDirName>,
    /// Keys outside of them, sorted, each with its size.
    outside: BTreeMap<String, u64>,
    /// A few keys of any kind.
    some_keys: Vec<Path>,
}

impl Found {
    /// Lists everything under the prefix. Keys in partitions' directories are not kept.
    pub(super) async fn list(
        store: &dyn ObjectStore,
        prefix: Option<&str>,
    ) -> Result<Self, WormError> {
        let cannot = |reason: String| unlisted(prefix.unwrap_or(""), excerpt(&reason));
        let path = prefix
            .map(Path::parse)
            .transpose()
            .map_err(|e| cannot(e.to_string()))?;
        let mut found = Self::default();
        let mut objects = store.list(path.as_ref());
        while let Some(object) = objects
            .try_next()
            .await
            .map_err(|e| cannot(e.to_string()))?
        {
            found.add(object);
        }
        Ok(found)
    }

    fn add(&mut self, object: ObjectMeta) {
        let key = object.location.as_ref();
        let (directory, _) = key.rsplit_once('/').unwrap_or(("", key));
        if !self.directories.contains_key(directory) {
            match parse_directory(directory) {
                Some(name) => {
                    self.directories.insert(directory.to_owned(), name);
                }
                None => {
                    self.outside.insert(key.to_owned(), object.size);
                }
            }
        }
        if self.some_keys.len() < LOCAL_TRIES {
            self.some_keys.push(object.location);
        }
    }

    /// The root of a store of local files; `None` for other stores.
    pub(super) async fn local_root(&self, store: &dyn ObjectStore) -> Option<LocalRoot> {
        for key in &self.some_keys {
            // One that cannot be opened tells nothing about the others.
            if let Ok(root) = LocalRoot::of(store, key).await {
                return root;
            }
        }
        None
    }

    /// Adds what a store of local files holds outside of partitions, and its client passes over.
    pub(super) async fn add_passed_over(
        &mut self,
        root: &LocalRoot,
        prefix: Option<&str>,
    ) -> Result<(), WormError> {
        for (directory, names) in root.passed_over(prefix.unwrap_or("")).await? {
            if self.directories.contains_key(&directory) {
                continue;
            }
            let keys = names.into_iter().map(|name| match directory.as_str() {
                "" => name,
                directory => format!("{directory}/{name}"),
            });
            // No size makes one of them a probe.
            self.outside.extend(keys.map(|key| (key, 0)));
        }
        Ok(())
    }

    /// Keys outside of every partition's directory that have no business there.
    pub(super) async fn orphans(&self, context: &Context<'_>, prefix: Option<&str>) -> Vec<String> {
        // Where archives begin: at the prefix, and wherever partitions are.
        let mut roots: BTreeSet<&str> = self
            .directories
            .keys()
            .map(|directory| directory.rsplit_once('/').map_or("", |(root, _)| root))
            .collect();
        roots.insert(prefix.unwrap_or(""));
        let mut orphans = Vec::new();
        for (key, size) in &self.outside {
            let (directory, name) = key.rsplit_once('/').unwrap_or(("", key));
            let is_input = is_restore_input(key, prefix) && !is_archive_name(name);
            let is_probe = name == WORM_PROBE_NAME
                && roots.contains(directory)
                && is_probe(context.store, key, *size).await;
            if !is_input && !is_probe && !context.is_exempt(key, name) {
                orphans.push(key.clone());
            }
        }
        orphans
    }
}

/// Parses the key of a partition's directory, whose last component has one spelling.
pub(super) fn parse_directory(directory: &str) -> Option<PartitionDirName> {
    let (_, name) = directory.rsplit_once('/').unwrap_or(("", directory));
    parse_partition_dir_name(name).filter(|parsed| parsed.to_string() == name)
}

/// Whether an object of this name is part of an archive or looks like it, wherever it stands.
pub(super) fn is_archive_name(name: &str) -> bool {
    name.ends_with(MANIFEST_SUFFIX) || parse_segment_file_name(name).is_some()
}

fn is_restore_input(key: &str, prefix: Option<&str>) -> bool {
    let below = match prefix {
        Some(prefix) => key
            .strip_prefix(prefix)
            .and_then(|rest| rest.strip_prefix('/')),
        None => Some(key),
    };
    below
        .and_then(|below| below.strip_prefix(RESTORE_INPUTS))
        .is_some_and(|rest| rest.starts_with('/'))
}

async fn is_probe(store: &dyn ObjectStore, key: &str, size: u64) -> bool {
    let expected = WORM_PROBE_BODY.len() as u64;
    size == expected
        && matches!(
            read_capped(store, key, expected).await,
            Ok(Some(body)) if body == WORM_PROBE_BODY
        )
}
