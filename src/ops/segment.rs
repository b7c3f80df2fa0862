//! What callers ask of a tier: one request type for each operation on a segment.

use std::sync::Arc;

use bytes::Bytes;

use super::StorageOp;
use crate::model::{
    CopyProgress, CopyReceipt, IndexType, LogSegmentData, OpKind, RemoteLogSegmentMetadata,
};

/// Copies a closed segment and its indexes to the remote tier.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CopySegment {
    /// The segment, in state `CopySegmentStarted`.
    pub metadata: Arc<RemoteLogSegmentMetadata>,
    /// The local files to copy.
    pub data: Arc<LogSegmentData>,
    /// Where the copy is; keep a clone to watch it.
    pub progress: CopyProgress,
}

impl CopySegment {
    /// Asks for a copy of these files as this segment.
    pub fn new(
        metadata: impl Into<Arc<RemoteLogSegmentMetadata>>,
        data: impl Into<Arc<LogSegmentData>>,
    ) -> Self {
        Self {
            metadata: metadata.into(),
            data: data.into(),
            progress: CopyProgress::new(),
        }
    }
}

impl StorageOp for CopySegment {
    type Output = CopyReceipt;
    const KIND: OpKind = OpKind::CopySegment;

    fn segment(&self) -> Option<&Arc<RemoteLogSegmentMetadata>> {
        Some(&self.metadata)
    }

    fn progress(&self) -> Option<&CopyProgress> {
        Some(&self.progress)
    }

    fn bytes_answered(receipt: &CopyReceipt) -> u64 {
        receipt.size_bytes()
    }
}

/// Fetches a range of a segment's log bytes.
///
/// The range is clamped to the object's real length, whatever the metadata says of its size. A
/// start at the length answers no bytes; a start beyond it is an error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FetchSegment {
    /// The segment.
    pub metadata: Arc<RemoteLogSegmentMetadata>,
    /// First byte position in the `.log`, inclusive.
    pub start_position: u32,
    /// Last byte position, **inclusive**, as in Kafka's interface; `None` reads to the end.
    pub end_position: Option<u32>,
}

impl FetchSegment {
    /// Asks for the bytes `start_position..=end_position`, or from the start position to the end.
    pub fn new(
        metadata: impl Into<Arc<RemoteLogSegmentMetadata>>,
        start_position: u32,
        end_position: Option<u32>,
    ) -> Self {
        Self {
            metadata: metadata.into(),
            start_position,
            end_position,
        }
    }
}

impl StorageOp for FetchSegment {
    type Output = Bytes;
    const KIND: OpKind = OpKind::FetchSegment;

    fn segment(&self) -> Option<&Arc<RemoteLogSegmentMetadata>> {
        Some(&self.metadata)
    }

    fn bytes_answered(bytes: &Bytes) -> u64 {
        bytes.len() as u64
    }
}

/// Fetches one index of a segment whole.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FetchIndex {
    /// The segment.
    pub metadata: Arc<RemoteLogSegmentMetadata>,
    /// Which index.
    pub index: IndexType,
}

impl FetchIndex {
    /// Asks for this index of this segment.
    pub fn new(metadata: impl Into<Arc<RemoteLogSegmentMetadata>>, index: IndexType) -> Self {
        Self {
            metadata: metadata.into(),
            index,
        }
    }
}

impl StorageOp for FetchIndex {
    type Output = Bytes;
    const KIND: OpKind = OpKind::FetchIndex;

    fn segment(&self) -> Option<&Arc<RemoteLogSegmentMetadata>> {
        Some(&self.metadata)
    }

    fn bytes_answered(bytes: &Bytes) -> u64 {
        bytes.len() as u64
    }
}

/// Finds one index of a segment, to search it.
///
/// Unlike [`FetchIndex`] it does not bring the bytes: an index that lies in a file is searched
/// there. A transaction index that the segment does not have is an empty one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenIndex {
    /// The segment.
    pub metadata: Arc<RemoteLogSegmentMetadata>,
    /// Which index.
    pub index: IndexType,
}

impl OpenIndex {
    /// Asks for this index of this segment.
    pub fn new(metadata: impl Into<Arc<RemoteLogSegmentMetadata>>, index: IndexType) -> Self {
        Self {
            metadata: metadata.into(),
            index,
        }
    }
}

/// Deletes every object of a segment. Objects that are not there are no error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeleteSegment {
    /// The segment.
    pub metadata: Arc<RemoteLogSegmentMetadata>,
}

impl DeleteSegment {
    /// Asks for the deletion of this segment's objects.
    pub fn new(metadata: impl Into<Arc<RemoteLogSegmentMetadata>>) -> Self {
        Self {
            metadata: metadata.into(),
        }
    }
}

impl StorageOp for DeleteSegment {
    type Output = ();
    const KIND: OpKind = OpKind::DeleteSegment;

    fn segment(&self) -> Option<&Arc<RemoteLogSegmentMetadata>> {
        Some(&self.metadata)
    }
}
