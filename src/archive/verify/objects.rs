//! A manifest's objects against the directory's listing.

use super::finding::{Problem, VerifyBreakKind};
use super::listing::{Artifacts, Listing, Row};
use crate::archive::format::{ManifestBody, ObjectEntry, Printable, SegmentManifest};
use crate::layout::{PartitionDirName, parse_segment_file_name};
use crate::model::LOG_FILE_SUFFIX;

/// The objects of a manifest in which nothing is wrong with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Objects {
    /// All of them.
    pub(super) listed: Artifacts,
    /// Those that the store guaranteed to be new.
    pub(super) created: Artifacts,
}

/// What the manifest says about its place, against where it stands.
pub(super) fn check_place(
    listing: &Listing,
    directory: &PartitionDirName,
    manifest_name: &str,
    body: &ManifestBody,
) -> Result<(), Problem> {
    let misplaced = |reason: String| Err(Problem::new(VerifyBreakKind::Misplaced, reason));
    let segment = &body.segment;
    if segment.topic != directory.topic
        || segment.partition != directory.partition
        || segment.topic_id != directory.topic_id
    {
        return misplaced(format!(
            "it is about partition {} of topic `{}` (topic id {}), in the directory of another",
            segment.partition,
            Printable(&segment.topic),
            segment.topic_id
        ));
    }
    let own_name = super::listing::file_name(
        segment.start_offset,
        segment.segment_id,
        crate::archive::format::MANIFEST_SUFFIX,
    );
    if manifest_name != own_name {
        return misplaced(format!("it is about the segment of `{own_name}`"));
    }
    let outside = body.objects.iter().find(|object| {
        object
            .key
            .strip_prefix(listing.directory())
            .is_none_or(|rest| !rest.starts_with('/'))
    });
    match outside {
        Some(object) => misplaced(format!(
            "it lists `{}`, outside of its directory",
            Printable(&object.key)
        )),
        None => Ok(()),
    }
}

/// The manifest's objects, if nothing at all is wrong with them.
pub(super) fn objects_in_order(
    listing: &Listing,
    row: &Row,
    manifest: &SegmentManifest,
) -> Option<Objects> {
    let stem = listing.key(&row.file_name(""));
    let mut objects = Objects::default();
    for object in &manifest.body.objects {
        let artifact = Artifacts::from_suffix(&object.suffix)?;
        let is_in_order = object.key.strip_prefix(&stem) == Some(&object.suffix)
            && !objects.listed.contains(artifact)
            && row.objects().contains(artifact)
            && listing.size(row, artifact) == object.size_bytes;
        if !is_in_order {
            return None;
        }
        objects.listed.insert(artifact);
        if object.create_precondition {
            objects.created.insert(artifact);
        }
    }
    let is_complete = objects.listed.contains(Artifacts::LOG)
        && objects.listed == row.objects()
        && listing.strays(row).next().is_none();
    is_complete.then_some(objects)
}

/// What is wrong with a manifest's objects: kind by kind, and within a kind in the manifest's
/// order. The entry concerned comes with it, where there is one.
///
/// `is_accepted` says of a row whether its manifest was accepted before this one.
pub(super) fn objects_problem<'m>(
    listing: &Listing,
    row: &Row,
    manifest: &'m SegmentManifest,
    is_accepted: impl Fn(u32) -> bool,
) -> Option<(Problem, Option<&'m ObjectEntry>)> {
    let objects = &manifest.body.objects;
    let about = |kind, text: &str, object: &'m ObjectEntry| {
        let reason = format!("`{}` {text}", Printable(&object.key));
        (Problem::new(kind, reason), Some(object))
    };
    if objects.is_empty() {
        return Some((
            Problem::new(VerifyBreakKind::Empty, "it lists no object"),
            None,
        ));
    }
    if objects
        .iter()
        .all(|object| object.suffix != LOG_FILE_SUFFIX)
    {
        let problem = Problem::new(VerifyBreakKind::Incomplete, "it lists no `.log`");
        return Some((problem, None));
    }
    let mut seen = std::collections::HashSet::new();
    for object in objects {
        if !seen.insert(object.key.as_str()) {
            let text = "is listed twice";
            return Some(about(VerifyBreakKind::Duplicate, text, object));
        }
        let other = find(listing, object).and_then(|listed| listed.row);
        if other.is_some_and(|other| listing.row(other) != row && is_accepted(other)) {
            let text = "is listed by an earlier manifest too";
            return Some(about(VerifyBreakKind::Duplicate, text, object));
        }
    }
    if let Some(object) = objects.iter().find(|object| !fits(listing, row, object)) {
        let text = format!(
            "with suffix `{}` does not fit the segment at offset {} with id {}",
            Printable(&object.suffix),
            row.start_offset,
            row.segment_id
        );
        return Some(about(VerifyBreakKind::Coordinates, &text, object));
    }
    if let Some(object) = objects
        .iter()
        .find(|object| find(listing, object).is_none())
    {
        return Some(about(VerifyBreakKind::Missing, "is not there", object));
    }
    let unlisted = row
        .objects()
        .suffixes()
        .map(|suffix| row.file_name(suffix))
        .chain(listing.strays(row).map(str::to_owned))
        .map(|name| listing.key(&name))
        .find(|key| !seen.contains(key.as_str()));
    if let Some(key) = unlisted {
        let reason = format!(
            "the segment has `{}` too, which it does not list",
            Printable(&key)
        );
        return Some((Problem::new(VerifyBreakKind::Count, reason), None));
    }
    objects.iter().find_map(|object| {
        let size = find(listing, object)?.size;
        let text = format!(
            "has {size} bytes, and was sealed with {}",
            object.size_bytes
        );
        (size != object.size_bytes).then(|| about(VerifyBreakKind::Size, &text, object))
    })
}

/// What stands under an entry's key. A key is attacker's text: it is only ever looked up.
pub(super) fn find(listing: &Listing, object: &ObjectEntry) -> Option<super::listing::Listed> {
    listing.find(listing.name_of(&object.key)?)
}

/// Whether the entry's name is that of an object of the manifest's segment.
fn fits(listing: &Listing, row: &Row, object: &ObjectEntry) -> bool {
    let file = listing
        .name_of(&object.key)
        .and_then(parse_segment_file_name);
    file.is_some_and(|file| {
        file.base_offset == row.start_offset
            && file.segment_id == row.segment_id
            && file.suffix == object.suffix
            && Artifacts::from_suffix(file.suffix).is_some()
    })
}
