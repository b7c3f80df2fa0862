//! One directory's listing, packed: a fixed number of bytes for a segment with all its objects.
//!
//! A directory may hold hundreds of thousands of objects with long keys. The names that copies
//! write are made of an offset, an id and one of few suffixes, so they are kept as these; only
//! other names are kept as they are.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Bound;

use futures::TryStreamExt;
use object_store::ObjectStore;
use object_store::path::Path;
use uuid::Uuid;

use super::read::unlisted;
use crate::archive::format::{MANIFEST_SUFFIX, excerpt};
use crate::error::WormError;
use crate::layout::{SEGMENT_FILE_SUFFIXES, SegmentFileName, parse_segment_file_name};

/// What a segment's directory entry can be: the six objects, and the manifest.
const ARTIFACTS: usize = SEGMENT_FILE_SUFFIXES.len() + 1;

/// The manifest among the artifacts.
const MANIFEST: usize = SEGMENT_FILE_SUFFIXES.len();

/// How many rows may wait to be merged at least.
const UNMERGED: usize = 64 * 1024;

/// A set of a segment's objects, one bit each, in the order of [`SEGMENT_FILE_SUFFIXES`]; the next
/// bit is the manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Artifacts(u8);

impl Artifacts {
    pub(super) const LOG: Self = Self(1);
    const MANIFEST: Self = Self(1 << MANIFEST);

    /// The one with this suffix, if it is one of a segment's objects.
    pub(super) fn from_suffix(suffix: &str) -> Option<Self> {
        let at = SEGMENT_FILE_SUFFIXES
            .iter()
            .position(|known| *known == suffix)?;
        Some(Self(1 << at))
    }

    pub(super) fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(super) fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }

    fn remove(&mut self, other: Self) {
        self.0 &= !other.0;
    }

    pub(super) fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// The suffixes, in order.
    pub(super) fn suffixes(self) -> impl Iterator<Item = &'static str> {
        (0..ARTIFACTS)
            .filter(move |at| self.0 & (1 << at) != 0)
            .map(|at| {
                SEGMENT_FILE_SUFFIXES
                    .get(at)
                    .copied()
                    .unwrap_or(MANIFEST_SUFFIX)
            })
    }

    fn index(self) -> usize {
        self.0.trailing_zeros() as usize
    }
}

/// The objects of one copy attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) start_offset: i64,
    pub(super) segment_id: Uuid,
    /// Capped; see [`Listing::size`].
    sizes: [u32; ARTIFACTS],
    listed: Artifacts,
    named: Artifacts,
}

impl Row {
    fn order(&self) -> (i64, Uuid) {
        (self.start_offset, self.segment_id)
    }

    pub(super) fn has_manifest(&self) -> bool {
        self.listed.contains(Artifacts::MANIFEST)
    }

    /// The listed objects, the manifest left out.
    pub(super) fn objects(&self) -> Artifacts {
        Artifacts(self.listed.0 & !Artifacts::MANIFEST.0)
    }

    /// The file name of one of the row's artifacts, or the stem of all with an empty suffix.
    pub(super) fn file_name(&self, suffix: &str) -> String {
        file_name(self.start_offset, self.segment_id, suffix)
    }
}

/// A name that is none of a segment's artifacts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Other {
    size: u64,
    named: bool,
}

/// What stands under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) size: u64,
    /// The segment's row, for one of its objects.
    pub(super) row: Option<u32>,
}

/// What a directory holds.
#[derive(Debug, Default)]
pub(super) struct Listing {
    directory: String,
    rows: Vec<Row>,
    /// Rows up to here are sorted and merged.
    merged: usize,
    /// Sizes that a row cannot hold.
    large: BTreeMap<(i64, Uuid, usize), u64>,
    others: BTreeMap<String, Other>,
    /// Names that are there and must not be followed.
    irregular: BTreeSet<String>,
    /// Names that are listed twice, with a slash behind: two keys of the store that its client
    /// takes for one, of which it can read the first alone.
    twice: BTreeSet<String>,
}

impl Listing {
    /// Of this directory, to be filled.
    pub(super) fn of(directory: &str) -> Self {
        Self {
            directory: directory.to_owned(),
            ..Self::default()
        }
    }

    /// Lists the objects that stand directly in the directory.
    pub(super) async fn read(store: &dyn ObjectStore, directory: &str) -> Result<Self, WormError> {
        let cannot = |reason: String| unlisted(directory, excerpt(&reason));
        let path = Path::parse(directory).map_err(|e| cannot(e.to_string()))?;
        let mut listing = Self::of(directory);
        let mut objects = store.list(Some(&path));
        while let Some(object) = objects
            .try_next()
            .await
            .map_err(|e| cannot(e.to_string()))?
        {
            listing.add(object.location.as_ref(), object.size);
        }
        Ok(listing.filled())
    }

    /// Adds an object; one that is elsewhere or below is passed over. Answers whether it took memory:
    /// what stands beside another object of its segment takes none.
    pub(super) fn add(&mut self, key: &str, size: u64) -> bool {
        let before = self.rows.len() + self.others.len();
        let name = self.name_of(key);
        if let Some(name) = name.map(str::to_owned) {
            self.push(&name, size);
        }
        self.rows.len() + self.others.len() > before
    }

    /// The same listing, when all objects have been added.
    pub(super) fn filled(mut self) -> Self {
        self.merge();
        self.rows.shrink_to_fit();
        self
    }

    /// Whether nothing is there.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.others.is_empty()
    }

    /// The directory's key.
    pub(super) fn directory(&self) -> &str {
        &self.directory
    }

    /// The key of a name in this directory.
    pub(super) fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.directory)
    }

    /// The name that a key has in this directory; `None` for a key that is elsewhere or below.
    pub(super) fn name_of<'a>(&self, key: &'a str) -> Option<&'a str> {
        let name = key.strip_prefix(&self.directory)?.strip_prefix('/')?;
        (!name.contains('/')).then_some(name)
    }

    pub(super) fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub(super) fn row(&self, row: u32) -> &Row {
        &self.rows[row as usize]
    }

    /// The size of one of a row's artifacts.
    pub(super) fn size(&self, row: &Row, artifact: Artifacts) -> u64 {
        let at = artifact.index();
        match row.sizes[at] {
            u32::MAX => self
                .large
                .get(&(row.start_offset, row.segment_id, at))
                .copied()
                .unwrap_or(u64::from(u32::MAX)),
            size => u64::from(size),
        }
    }

    /// The key of a row's manifest.
    pub(super) fn manifest_key(&self, row: u32) -> String {
        self.key(&self.row(row).file_name(MANIFEST_SUFFIX))
    }

    /// The size of a row's manifest.
    pub(super) fn manifest_size(&self, row: &Row) -> u64 {
        self.size(row, Artifacts::MANIFEST)
    }

    /// Names that end like manifests and are not those of any segment, with their sizes.
    pub(super) fn odd_manifests(&self) -> impl Iterator<Item = (&str, u64)> {
        self.others
            .iter()
            .filter(|(name, _)| name.ends_with(MANIFEST_SUFFIX))
            .map(|(name, other)| (name.as_str(), other.size))
    }

    /// The row of this copy attempt.
    pub(super) fn find_row(&self, start_offset: i64, segment_id: Uuid) -> Option<u32> {
        let at = self
            .rows
            .binary_search_by_key(&(start_offset, segment_id), Row::order)
            .ok()?;
        u32::try_from(at).ok()
    }

    /// What stands under a name.
    pub(super) fn find(&self, name: &str) -> Option<Listed> {
        let Some((file, artifact)) = parse_artifact(name) else {
            let size = self.others.get(name)?.size;
            return Some(Listed { size, row: None });
        };
        let at = self.find_row(file.base_offset, file.segment_id)?;
        let row = self.row(at);
        row.listed.contains(artifact).then(|| Listed {
            size: self.size(row, artifact),
            row: Some(at),
        })
    }

    /// Takes note that a manifest names this object.
    pub(super) fn mark_named(&mut self, name: &str) {
        match parse_artifact(name) {
            Some((file, artifact)) => {
                if let Some(row) = self.find_row(file.base_offset, file.segment_id) {
                    self.mark_row_named(row, artifact);
                }
            }
            None => {
                if let Some(other) = self.others.get_mut(name) {
                    other.named = true;
                }
            }
        }
    }

    /// Takes note that a manifest names these objects.
    pub(super) fn mark_row_named(&mut self, row: u32, artifacts: Artifacts) {
        self.rows[row as usize].named.insert(artifacts);
    }

    /// Names with the row's stem that are none of a segment's artifacts.
    pub(super) fn strays(&self, row: &Row) -> impl Iterator<Item = &str> {
        let stem = row.file_name("");
        let from = (Bound::Included(stem.clone()), Bound::Unbounded);
        self.others
            .range(from)
            .map(|(name, _)| name.as_str())
            .take_while(move |name| name.starts_with(&stem))
            .filter(|name| !name.ends_with(MANIFEST_SUFFIX))
    }

    /// Takes a name out of the listing: it is there, and must not be followed.
    pub(super) fn exclude(&mut self, name: &str) {
        let was_listed = match parse_artifact(name) {
            Some((file, artifact)) => {
                let row = self.find_row(file.base_offset, file.segment_id);
                row.is_some_and(|row| {
                    let listed = &mut self.rows[row as usize].listed;
                    let was_listed = listed.contains(artifact);
                    listed.remove(artifact);
                    was_listed
                })
            }
            None => self.others.remove(name).is_some(),
        };
        if was_listed {
            self.irregular.insert(name.to_owned());
        }
    }

    /// Adds names that are there, were not listed, and must not be followed.
    pub(super) fn add_irregular(&mut self, names: BTreeSet<String>) {
        self.irregular.extend(names);
    }

    /// Takes every name out of the listing.
    pub(super) fn exclude_all(&mut self) {
        let mut names: Vec<_> = self.others.keys().cloned().collect();
        for row in &self.rows {
            names.extend(row.listed.suffixes().map(|suffix| row.file_name(suffix)));
        }
        for name in names {
            self.exclude(&name);
        }
    }

    /// Names of all objects that no manifest names; manifests are not among them unless they must
    /// not be followed.
    pub(super) fn orphans(&self) -> BTreeSet<String> {
        let mut orphans = &self.irregular | &self.twice;
        for row in &self.rows {
            let unnamed = Artifacts(row.objects().0 & !row.named.0);
            orphans.extend(unnamed.suffixes().map(|suffix| row.file_name(suffix)));
        }
        let others = self.others.iter();
        orphans.extend(
            others
                .filter(|(name, other)| !other.named && !name.ends_with(MANIFEST_SUFFIX))
                .map(|(name, _)| name.clone()),
        );
        orphans
    }

    /// Whether the name is there and must not be followed.
    pub(super) fn is_irregular(&self, name: &str) -> bool {
        self.irregular.contains(name)
    }

    /// Whether the directory holds what it held, whatever manifests name of it.
    pub(super) fn holds_the_same_as(&self, older: &Self) -> bool {
        self.rows.len() == older.rows.len()
            && self.large == older.large
            && self.irregular == older.irregular
            && self.twice == older.twice
            && self
                .rows
                .iter()
                .zip(&older.rows)
                .all(|(a, b)| a.holds_the_same_as(b))
            && self.others.len() == older.others.len()
            && self
                .others
                .iter()
                .zip(&older.others)
                .all(|(a, b)| a.0 == b.0 && a.1.size == b.1.size)
    }

    /// What manifests named of a row in an older listing that held the same for it.
    pub(super) fn unchanged_since(&self, row: &Row, older: &Self) -> Option<(u32, Artifacts)> {
        let at = older.find_row(row.start_offset, row.segment_id)?;
        let before = older.row(at);
        let same = row.holds_the_same_as(before)
            // Sizes of 4 GiB and strays are rare enough to look at the row again.
            && !row.sizes.contains(&u32::MAX)
            && self.strays(row).next().is_none()
            && older.strays(before).next().is_none();
        same.then_some((at, before.named))
    }

    fn push(&mut self, name: &str, size: u64) {
        let Some((file, artifact)) = parse_artifact(name) else {
            let other = Other { size, named: false };
            if self.others.insert(name.to_owned(), other).is_some() {
                self.twice.insert(format!("{name}/"));
            }
            return;
        };
        let (start_offset, segment_id) = (file.base_offset, file.segment_id);
        let at = artifact.index();
        let capped = u32::try_from(size).unwrap_or(u32::MAX);
        if capped == u32::MAX {
            self.large.insert((start_offset, segment_id, at), size);
        }
        // Stores list in the order of keys, so a segment's objects come one after the other.
        if self
            .rows
            .last()
            .is_none_or(|last| last.order() != (start_offset, segment_id))
        {
            // A file system lists in any order, which makes a row of each object at first.
            if self.rows.len() >= self.merged + self.may_wait() {
                self.merge();
                // Doubling, as a vector grows by itself, would hold twice the rows.
                self.rows.reserve_exact(self.may_wait());
            }
            self.rows.push(Row {
                start_offset,
                segment_id,
                sizes: [0; ARTIFACTS],
                listed: Artifacts::default(),
                named: Artifacts::default(),
            });
        }
        if let Some(row) = self.rows.last_mut() {
            if row.listed.contains(artifact) {
                self.twice.insert(format!("{name}/"));
                return;
            }
            row.sizes[at] = capped;
            row.listed.insert(artifact);
        }
    }

    fn merge(&mut self) {
        self.rows.sort_unstable_by_key(Row::order);
        let twice = &mut self.twice;
        self.rows.dedup_by(|later, first| {
            let same = later.order() == first.order();
            if same {
                let both = Artifacts(first.listed.0 & later.listed.0);
                twice.extend(both.suffixes().map(|suffix| first.file_name(suffix) + "/"));
                for (size, later) in first.sizes.iter_mut().zip(later.sizes) {
                    *size = (*size).max(later);
                }
                first.listed.insert(later.listed);
            }
            same
        });
        self.merged = self.rows.len();
    }

    /// How many rows may wait to be merged: a share of all, so that the work stays linear and the
    /// memory near what the merged ones take.
    fn may_wait(&self) -> usize {
        self.merged / 4 + UNMERGED
    }
}

impl Row {
    fn holds_the_same_as(&self, other: &Self) -> bool {
        self.order() == other.order() && self.listed == other.listed && self.sizes == other.sizes
    }
}

/// The file name of a segment's object.
pub(super) fn file_name(start_offset: i64, segment_id: Uuid, suffix: &str) -> String {
    let mut name = String::with_capacity(64);
    let _ = write!(
        name,
        "{}",
        SegmentFileName {
            base_offset: start_offset,
            segment_id,
            suffix
        }
    );
    name
}

/// The parts of a name that one of a segment's artifacts has.
fn parse_artifact(name: &str) -> Option<(SegmentFileName<'_>, Artifacts)> {
    let file = parse_segment_file_name(name)?;
    let artifact = if file.suffix == MANIFEST_SUFFIX {
        Artifacts::MANIFEST
    } else {
        Artifacts::from_suffix(file.suffix)?
    };
    Some((file, artifact))
}
