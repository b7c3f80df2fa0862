//! The first listing: which directories there are, and what stands outside of them.

use std::collections::{BTreeMap, BTreeSet};

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};

use super::context::{Context, is_archive_name};
use super::listing::Listing;
use super::local::LocalRoot;
use super::read::{read_capped, unlisted};
use crate::archive::format::excerpt;
use crate::error::WormError;
use crate::layout::{PartitionDirName, parse_partition_dir_name};

/// Name of the one object that a writer's self-test leaves under its prefix.
pub const WORM_PROBE_NAME: &str = ".krabka-worm-probe";

/// That object's bytes.
pub const WORM_PROBE_BODY: &[u8] = b"krabka-worm-probe v1\n";

/// First component, below the prefix, of what a restore keeps beside an archive.
const RESTORE_INPUTS: &str = "restore-inputs";

/// With how many keys it is tried to learn whether the store is a local one.
const LOCAL_TRIES: usize = 8;

/// How many objects of a directory are kept at most: a larger one is listed again when its turn
/// comes, which is one request beside one for each of its many manifests.
const KEPT_OBJECTS: usize = 64;

/// What is kept of all directories together, in bytes.
const KEPT_BYTES: usize = 16 * 1024 * 1024;

/// About what a kept directory takes beside its key, and a segment or another object beside its own.
const KEPT_DIRECTORY: usize = 512;
const KEPT_OBJECT: usize = 128;

/// What a store holds under a prefix.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Partitions, by their directories' keys.
    pub(super) directories: BTreeMap<String, Directory>,
    /// What the directories' listings take together.
    kept_bytes: usize,
    /// Keys outside of them, sorted, each with its size.
    outside: BTreeMap<String, u64>,
    /// A few keys of any kind.
    some_keys: Vec<Path>,
}

/// A partition's directory.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) name: PartitionDirName,
    kept: Option<Kept>,
}

/// All that was listed of a directory.
#[derive(Debug)]
struct Kept {
    listing: Listing,
    objects: usize,
    bytes: usize,
}

impl Directory {
    fn empty(name: PartitionDirName, key: &str) -> Self {
        Self {
            name,
            kept: Some(Kept {
                listing: Listing::of(key),
                objects: 0,
                bytes: 0,
            }),
        }
    }

    /// Keeps an object, or nothing of the directory any more, if that is too much for it or for all
    /// directories together.
    fn keep(&mut self, key: &str, size: u64, all_bytes: &mut usize) {
        let Some(kept) = &mut self.kept else {
            return;
        };
        let mut bytes = 0;
        if kept.objects == 0 {
            bytes += KEPT_DIRECTORY + kept.listing.directory().len();
        }
        kept.objects += 1;
        if kept.listing.add(key, size) {
            bytes += KEPT_OBJECT + key.len();
        }
        kept.bytes += bytes;
        *all_bytes += bytes;
        if kept.objects > KEPT_OBJECTS || *all_bytes > KEPT_BYTES {
            *all_bytes -= kept.bytes;
            self.kept = None;
        }
    }

    /// What was listed in it, unless that was too much to be kept.
    pub(super) fn take_listing(&mut self) -> Option<Listing> {
        self.kept.take().map(|kept| kept.listing.filled())
    }
}

impl Found {
    /// Lists everything under the prefix.
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
        let known = match self.directories.get_mut(directory) {
            Some(known) => Some(known),
            None => parse_directory(directory).map(|name| {
                let found = Directory::empty(name, directory);
                self.directories
                    .entry(directory.to_owned())
                    .or_insert(found)
            }),
        };
        match known {
            Some(known) => known.keep(key, object.size, &mut self.kept_bytes),
            None => {
                self.outside.insert(key.to_owned(), object.size);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn found(objects: impl IntoIterator<Item = String>) -> Found {
        let mut found = Found::default();
        for key in objects {
            found.add(ObjectMeta {
                location: Path::parse(key).unwrap(),
                last_modified: std::time::UNIX_EPOCH.into(),
                size: 1,
                e_tag: None,
                version: None,
            });
        }
        found
    }

    fn directory(number: usize) -> String {
        format!("archive/orders-{number}-AAAAAAAAAAAAAAAAAAAAEQ")
    }

    #[test]
    fn the_listings_of_small_directories_are_kept_and_no_part_of_a_larger_one() {
        for (objects, is_kept) in [(1, true), (KEPT_OBJECTS, true), (KEPT_OBJECTS + 1, false)] {
            // As a file system lists them: not one directory after the other.
            let keys = (0..objects).flat_map(|name| {
                (0..3).map(move |number| format!("{}/note-{name}", directory(number)))
            });
            let mut found = found(keys);
            assert_eq!(found.kept_bytes > 0, is_kept);
            for directory in found.directories.values_mut() {
                let names = directory
                    .take_listing()
                    .map(|listing| listing.orphans().len());
                assert_eq!(names, is_kept.then_some(objects));
            }
        }
    }

    #[test]
    fn all_that_is_kept_has_a_limit_whatever_the_number_of_directories() {
        let name = "n".repeat(900);
        let many = (0..15_000).map(|number| format!("{}/{name}", directory(number)));
        let mut found = found(many);
        assert!((KEPT_BYTES - 2_000..=KEPT_BYTES).contains(&found.kept_bytes));
        let listings = found.directories.values_mut();
        let kept = listings.filter_map(Directory::take_listing).count();
        assert!((5_000..12_000).contains(&kept), "{kept}");
        assert_eq!(found.directories.len(), 15_000);
    }
}
