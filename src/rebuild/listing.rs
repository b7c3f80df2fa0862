//! The objects of a partition's directory, put together to segments.

use std::collections::BTreeMap;

use object_store::path::Path;
use uuid::Uuid;

use crate::layout::parse_segment_file_name;
use crate::model::{LOG_FILE_SUFFIX, RemoteLogSegmentId, TopicIdPartition};
use crate::ops::Listing;

/// A segment as a listing shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedSegment {
    /// The segment.
    pub id: RemoteLogSegmentId,
    /// Its first offset, which its file names carry.
    pub start_offset: i64,
    /// Its objects, by suffix.
    pub objects: Vec<ListedObject>,
}

/// One object of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedObject {
    /// The object's whole key.
    pub key: Path,
    /// What follows the segment's id in the name: `.log`, `.index`, …, or something unknown.
    pub suffix: String,
    /// Length in bytes.
    pub size: u64,
    /// When it was last written, in milliseconds since 1970-01-01 UTC, by the store's clock.
    pub last_modified_ms: i64,
}

impl ListedSegment {
    /// Whether the segment may be read: its `.log`, which a copy makes visible last, is there.
    pub fn is_complete(&self) -> bool {
        self.log().is_some()
    }

    /// The `.log`.
    pub fn log(&self) -> Option<&ListedObject> {
        self.object(LOG_FILE_SUFFIX)
    }

    /// The object with this suffix, its dot included.
    pub fn object(&self, suffix: &str) -> Option<&ListedObject> {
        self.objects.iter().find(|object| object.suffix == suffix)
    }

    /// The bytes of all objects together.
    pub fn size(&self) -> u64 {
        self.objects.iter().map(|object| object.size).sum()
    }
}

/// Puts the objects of a partition's directory together to segments, complete or not, ordered by
/// start offset and id. Objects whose names are not those of a segment's file are left out.
pub fn list_segments(
    topic_id_partition: &TopicIdPartition,
    listing: &Listing,
) -> Vec<ListedSegment> {
    let mut segments: BTreeMap<(i64, Uuid), Vec<ListedObject>> = BTreeMap::new();
    for object in &listing.objects {
        let Some(name) = object.location.filename() else {
            continue;
        };
        let Some(file) = parse_segment_file_name(name) else {
            continue;
        };
        let objects = segments.entry((file.base_offset, file.segment_id));
        objects.or_default().push(ListedObject {
            key: object.location.clone(),
            suffix: file.suffix.to_owned(),
            size: object.size,
            last_modified_ms: object.last_modified.timestamp_millis(),
        });
    }
    segments
        .into_iter()
        .map(|((start_offset, id), mut objects)| {
            objects.sort_by(|a, b| a.suffix.cmp(&b.suffix));
            ListedSegment {
                id: RemoteLogSegmentId::new(topic_id_partition.clone(), id),
                start_offset,
                objects,
            }
        })
        .collect()
}
