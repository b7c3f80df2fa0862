//! A frozen projection: a portable document of what is where.

use std::fmt;
use std::sync::Arc;

use super::document::{DisklessPartitionCapture, Document};
use super::error::DisklessError;
use super::value::WalDeleteFloorRecord;
use crate::archive::{SegmentManifest, Sha256Digest};
use crate::index::TimestampMs;

/// A frozen [`WalCaptureProjection`](super::WalCaptureProjection): which ranges of which objects
/// hold the committed log of each partition.
///
/// A value of this type is valid, whether it was captured or decoded, and never changes. Its
/// *state* is its JSON without the member `authentication`, in the one spelling that is written;
/// that is what a seal covers. A document in another spelling (white space, other order of
/// members) is read as what it says.
#[derive(Clone, PartialEq, Eq)]
pub struct DisklessWalCapture {
    /// Without authentication.
    document: Document,
    /// The JSON of the document.
    state: Vec<u8>,
    /// The keys of all objects that ranges name, in order.
    objects: Vec<Arc<str>>,
    authentication: Option<SegmentManifest>,
}

impl DisklessWalCapture {
    /// The version that is written, and the only one that is read.
    pub const FORMAT_VERSION: u16 = Document::FORMAT_VERSION;

    pub(super) fn new(mut document: Document) -> Result<Self, DisklessError> {
        let objects = document.check()?;
        let authentication = document.authentication.take();
        Ok(Self {
            state: json(&document)?,
            document,
            objects,
            authentication,
        })
    }

    /// Decodes and checks a document. Signature and claims of a sealed one are not looked at:
    /// [`authenticate`](Self::authenticate) does that.
    ///
    /// # Errors
    ///
    /// [`NoCaptureVersion`](DisklessError::NoCaptureVersion) or
    /// [`UnsupportedVersion`](DisklessError::UnsupportedVersion), whatever else the document has;
    /// [`Malformed`](DisklessError::Malformed) for what is not exactly a capture's JSON (members
    /// that are missing, unknown or there twice, other types, trailing bytes);
    /// [`InvalidCapture`](DisklessError::InvalidCapture) for a negative cutoff or time, a wrong
    /// topic name, a partition that stands twice, ranges that overlap, are out of order, are
    /// another partition's or leave a gap above the floor, and a wrong recovery cutoff.
    pub fn from_slice(bytes: &[u8]) -> Result<Self, DisklessError> {
        Self::new(Document::read(bytes)?)
    }

    /// The document's bytes: compact JSON, the members in the order of the format, absent ones left
    /// out.
    ///
    /// # Errors
    ///
    /// None: it takes a writer that fails, and there is none.
    pub fn to_vec(&self) -> Result<Vec<u8>, DisklessError> {
        let mut bytes = self.state.clone();
        if let Some(manifest) = &self.authentication {
            // It is the last member.
            bytes.pop();
            bytes.extend_from_slice(b",\"authentication\":");
            bytes.append(&mut json(manifest)?);
            bytes.push(b'}');
        }
        Ok(bytes)
    }

    /// The bytes that a seal covers: the document without authentication.
    pub fn state(&self) -> &[u8] {
        &self.state
    }

    /// When it was captured, in milliseconds since 1970-01-01 UTC.
    pub fn captured_at_ms(&self) -> TimestampMs {
        self.document.captured_at_ms
    }

    /// Up to where each partition of the index topic was applied, exclusive.
    pub fn source_cutoffs(&self) -> &[i64] {
        &self.document.source_cutoffs
    }

    /// The partitions, in the order of the document; a projection orders them by topic, topic id and
    /// index.
    pub fn partitions(&self) -> &[DisklessPartitionCapture] {
        &self.document.partitions
    }

    /// The keys of the objects that ranges name, in order, each once.
    pub fn objects(&self) -> impl ExactSizeIterator<Item = &str> {
        self.objects.iter().map(|key| &**key)
    }

    /// SHA-256 of the metadata snapshot (a controller's checkpoint) that was captured with this.
    pub fn metadata_snapshot_sha256(&self) -> Option<Sha256Digest> {
        self.document.metadata_snapshot_sha256
    }

    /// SHA-256 of the snapshot of remote-log metadata that was captured with this.
    pub fn rlmm_snapshot_sha256(&self) -> Option<Sha256Digest> {
        self.document.rlmm_snapshot_sha256
    }

    /// SHA-256 of the consumer groups' offsets that were captured with this.
    pub fn group_offsets_sha256(&self) -> Option<Sha256Digest> {
        self.document.group_offsets_sha256
    }

    /// The signed manifest of a sealed capture, as it stands there: nothing of it is checked.
    pub fn authentication(&self) -> Option<&SegmentManifest> {
        self.authentication.as_ref()
    }

    /// The same capture with the digests of what was captured with it: the metadata snapshot, the
    /// remote-log metadata, the consumer groups' offsets. They are part of the state, so a seal is
    /// gone.
    ///
    /// # Errors
    ///
    /// None: it takes a writer that fails, and there is none.
    pub fn with_snapshots(
        self,
        metadata: Option<Sha256Digest>,
        rlmm: Option<Sha256Digest>,
        group_offsets: Option<Sha256Digest>,
    ) -> Result<Self, DisklessError> {
        let document = Document {
            metadata_snapshot_sha256: metadata,
            rlmm_snapshot_sha256: rlmm,
            group_offsets_sha256: group_offsets,
            ..self.document
        };
        Ok(Self {
            state: json(&document)?,
            document,
            objects: self.objects,
            authentication: None,
        })
    }

    pub(super) fn sealed(self, manifest: SegmentManifest) -> Self {
        Self {
            authentication: Some(manifest),
            ..self
        }
    }

    pub(super) fn object_keys(&self) -> &[Arc<str>] {
        &self.objects
    }

    /// Records of the index topic that lead a new projection to the captured state: keys and values
    /// of all ranges and of all floors above 0.
    pub fn index_records(&self) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
        self.partitions().iter().flat_map(|partition| {
            let floor = WalDeleteFloorRecord {
                topic_id: partition.topic_id,
                partition: partition.partition,
                floor: partition.delete_floor,
            };
            let floor =
                (floor.floor > 0).then(|| (floor.key().to_bytes().to_vec(), floor.to_bytes()));
            let ranges = partition.ranges.iter().map(|range| {
                let (key, value) = range.to_record();
                (key.to_vec(), value)
            });
            floor.into_iter().chain(ranges)
        })
    }
}

impl fmt::Debug for DisklessWalCapture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The state says the same as the document, and the objects are in its ranges.
        f.debug_struct("DisklessWalCapture")
            .field("document", &self.document)
            .field("authentication", &self.authentication)
            .finish_non_exhaustive()
    }
}

/// Only a failing writer could make this fail, and a vector is none.
fn json(value: &impl serde::Serialize) -> Result<Vec<u8>, DisklessError> {
    serde_json::to_vec(value).map_err(|error| DisklessError::InvalidCapture(error.to_string()))
}
