//! A capture's JSON: its members in their order, and what must hold of them.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::CAPTURE_STATE_KEY;
use super::entry::WalRange;
use super::error::DisklessError;
use crate::archive::{SegmentManifest, Sha256Digest, excerpt, json};
use crate::index::{LogOffset, TimestampMs};

const RECORD: &str = "diskless WAL capture";

/// The longest name of a topic, in bytes.
const MAX_TOPIC_LEN: usize = 249;

/// A partition of a capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DisklessPartitionCapture {
    /// The topic's name.
    pub topic: String,
    /// The topic's unique id.
    #[serde(with = "json::hyphenated")]
    pub topic_id: Uuid,
    /// The partition's index in the topic.
    pub partition: i32,
    /// The lowest offset that is not deleted.
    pub delete_floor: LogOffset,
    /// Where the captured log ends, exclusive: behind the last range, or the floor where that is
    /// higher.
    pub recovery_cutoff: LogOffset,
    /// The ranges in the order of their offsets, without a gap above the floor.
    #[serde(deserialize_with = "json::objects")]
    pub ranges: Vec<WalRange>,
}

/// A whole capture; members that are absent are not written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    pub(super) format_version: u16,
    pub(super) captured_at_ms: TimestampMs,
    pub(super) source_cutoffs: Vec<i64>,
    #[serde(deserialize_with = "json::objects")]
    pub(super) partitions: Vec<DisklessPartitionCapture>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) metadata_snapshot_sha256: Option<Sha256Digest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rlmm_snapshot_sha256: Option<Sha256Digest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) group_offsets_sha256: Option<Sha256Digest>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "json::nullable_object"
    )]
    pub(super) authentication: Option<SegmentManifest>,
}

impl Document {
    pub(super) const FORMAT_VERSION: u16 = 1;

    pub(super) fn new(
        captured_at_ms: TimestampMs,
        source_cutoffs: Vec<i64>,
        partitions: Vec<DisklessPartitionCapture>,
    ) -> Self {
        Self {
            format_version: Self::FORMAT_VERSION,
            captured_at_ms,
            source_cutoffs,
            partitions,
            metadata_snapshot_sha256: None,
            rlmm_snapshot_sha256: None,
            group_offsets_sha256: None,
            authentication: None,
        }
    }

    /// Reads a capture's JSON; of what it says only the version is looked at.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, DisklessError> {
        let document: Self =
            json::from_slice(bytes).map_err(|error| explain(bytes, &error.to_string()))?;
        if document.format_version != Self::FORMAT_VERSION {
            return Err(unsupported(document.format_version.to_string()));
        }
        Ok(document)
    }

    /// Checks what the document says, makes ranges of one object share its key, and answers the keys
    /// of all objects in order.
    pub(super) fn check(&mut self) -> Result<Vec<Arc<str>>, DisklessError> {
        let invalid = |text: String| Err(DisklessError::InvalidCapture(text));
        if self.captured_at_ms < 0 {
            return invalid(format!("its time {} is negative", self.captured_at_ms));
        }
        if let Some(cutoff) = self.source_cutoffs.iter().find(|cutoff| **cutoff < 0) {
            return invalid(format!("the source cutoff {cutoff} is negative"));
        }
        let mut objects = BTreeSet::new();
        let mut places = HashSet::with_capacity(self.partitions.len());
        for partition in &mut self.partitions {
            let checked = partition.check().and_then(|()| {
                if places.insert((partition.topic_id, partition.partition)) {
                    Ok(())
                } else {
                    Err("it stands twice".to_owned())
                }
            });
            if let Err(reason) = checked {
                let topic = excerpt(&partition.topic);
                let index = partition.partition;
                return invalid(format!("partition {topic}-{index}: {reason}"));
            }
            for range in &mut partition.ranges {
                match objects.get(&range.object_key) {
                    Some(shared) => range.object_key = Arc::clone(shared),
                    None => drop(objects.insert(Arc::clone(&range.object_key))),
                }
            }
        }
        Ok(objects.into_iter().collect())
    }
}

impl DisklessPartitionCapture {
    fn check(&self) -> Result<(), String> {
        if !is_topic_name(&self.topic) {
            return Err("its topic has no name that Kafka allows".to_owned());
        }
        if self.partition < 0 {
            return Err("its index is negative".to_owned());
        }
        if self.delete_floor < 0 {
            return Err(format!("its floor {} is negative", self.delete_floor));
        }
        let (mut end, mut covered) = (0, self.delete_floor);
        for range in &self.ranges {
            let entry = &range.entry;
            let at = |reason: &str| format!("range from offset {}: {reason}", entry.first_offset);
            if (entry.topic_id, entry.partition) != (self.topic_id, self.partition) {
                return Err(at("it is another partition's"));
            }
            entry.check().map_err(|error| match error {
                DisklessError::InvalidRange { reason, .. } => at(reason),
                other => other.to_string(),
            })?;
            if range.object_key.is_empty() || &*range.object_key == CAPTURE_STATE_KEY {
                return Err(at("its object's key is empty or reserved"));
            }
            if entry.first_offset < end {
                return Err(at("it overlaps the range before it, or is out of order"));
            }
            // No check lets a last offset pass that has no successor.
            end = entry.last_offset.saturating_add(1);
            if end > self.delete_floor {
                if entry.first_offset > covered {
                    return Err(format!("its ranges have a gap at {covered}"));
                }
                covered = end;
            }
        }
        let cutoff = end.max(self.delete_floor);
        if self.recovery_cutoff != cutoff {
            return Err(format!(
                "its ranges end at {cutoff}, and its recovery cutoff is {}",
                self.recovery_cutoff
            ));
        }
        Ok(())
    }
}

fn is_topic_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=MAX_TOPIC_LEN).contains(&name.len())
        && !matches!(name, "." | "..")
        && name.bytes().all(is_allowed)
}

fn unsupported(found: String) -> DisklessError {
    DisklessError::UnsupportedVersion {
        record: RECORD,
        found,
        supported: Document::FORMAT_VERSION,
    }
}

/// Why bytes are no capture of this version: another version may have other members, so its number
/// is looked at by itself.
fn explain(bytes: &[u8], error: &str) -> DisklessError {
    #[derive(Deserialize)]
    struct Probe<'a> {
        #[serde(borrow)]
        format_version: Option<&'a RawValue>,
    }

    match json::from_slice::<Probe<'_>>(bytes).map(|probe| probe.format_version) {
        Ok(None) => DisklessError::NoCaptureVersion,
        Ok(Some(found)) if found.get() != "1" => unsupported(excerpt(found.get())),
        Ok(Some(_)) | Err(_) => DisklessError::Malformed {
            record: RECORD,
            reason: excerpt(error),
        },
    }
}
