//! What can go wrong at a metadata event log.

use crate::error::{ErrorSource, RemoteStorageError};

/// Why a call to a [`MetadataEventLog`](super::MetadataEventLog) failed.
///
/// For a publish, [`OutcomeUnknown`](Self::OutcomeUnknown) is the only variant after which the
/// event may be in the log, now or later. After every other one it is not, and never will be.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetadataLogError {
    /// The event was not appended; the same call may succeed later.
    #[error("the event was not appended: {reason}")]
    Publish {
        /// What prevented it.
        reason: String,
        /// What the client reported.
        source: Option<ErrorSource>,
    },
    /// Nobody can tell yet whether the event was appended.
    #[error("it is not known whether the event was appended: {reason}")]
    OutcomeUnknown {
        /// What happened to the answer.
        reason: String,
        /// What the client reported.
        source: Option<ErrorSource>,
    },
    /// The log has no such metadata partition.
    #[error("metadata partition {partition} is outside of 0..{count}")]
    PartitionOutOfRange {
        /// The partition that was asked for.
        partition: i32,
        /// How many partitions the log has.
        count: i32,
    },
    /// The log was shut down.
    #[error("the metadata event log was closed")]
    Closed,
    /// Rights, configuration or the topic itself are wrong: repeating the call changes nothing.
    #[error("{reason}")]
    Rejected {
        /// What is wrong, and what to change.
        reason: String,
        /// What the client reported.
        source: Option<ErrorSource>,
    },
    /// The offset is not in the log (any more).
    #[error("offset {offset} of metadata partition {partition} is outside of the log")]
    OffsetOutOfRange {
        /// The metadata partition.
        partition: i32,
        /// The offset that was asked for.
        offset: i64,
    },
    /// A read failed; the same call may succeed later.
    #[error("{reason}")]
    Unavailable {
        /// What failed.
        reason: String,
        /// What the client reported.
        source: Option<ErrorSource>,
    },
}

impl MetadataLogError {
    /// Whether the same call may succeed if it is repeated.
    ///
    /// A publish whose outcome is unknown is not: repeating it may write the event twice.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Publish { .. } | Self::Unavailable { .. })
    }

    /// This failure of a publish into metadata partition `partition`, as the crate's error.
    pub fn into_storage(self, partition: i32) -> RemoteStorageError {
        match self {
            Self::OutcomeUnknown { .. } => RemoteStorageError::EventOutcomeUnknown {
                partition,
                offset: None,
                source: Some(ErrorSource::new(self)),
            },
            _ => RemoteStorageError::EventNotSent {
                partition,
                transient: self.is_retryable(),
                source: Some(ErrorSource::new(self)),
            },
        }
    }
}
