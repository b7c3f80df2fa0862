//! One event of the metadata log, and its bytes.

use crate::model::{
    RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemotePartitionDeleteMetadata,
    TopicIdPartition,
};

/// A change of the metadata of a partition's remote segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataEvent {
    /// A segment's copy begins.
    AddSegment(RemoteLogSegmentMetadata),
    /// A segment's state changes.
    UpdateSegment(RemoteLogSegmentMetadataUpdate),
    /// The deletion of the whole partition goes on.
    PartitionDelete(RemotePartitionDeleteMetadata),
}

impl MetadataEvent {
    /// The user's partition that the event is about.
    pub fn topic_id_partition(&self) -> &TopicIdPartition {
        match self {
            Self::AddSegment(metadata) => metadata.topic_id_partition(),
            Self::UpdateSegment(update) => &update.remote_log_segment_id.topic_id_partition,
            Self::PartitionDelete(delete) => &delete.topic_id_partition,
        }
    }
}

/// Why bytes are not an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The bytes end in the middle of a field.
    #[error("the value ends in a field at byte {0}")]
    UnexpectedEof(usize),
    /// A state that Kafka does not define.
    #[error("{0} is no state of {1}")]
    UnknownState(u8, &'static str),
    /// A length beyond what may be or what is there.
    #[error("a length of {0} does not fit")]
    LengthOverflow(u64),
    /// Fields that contradict each other.
    #[error("{0}")]
    Domain(String),
    /// Bytes that are not Kafka's format, or not of a version that is read here.
    #[error("{0}")]
    Protocol(String),
}
