//! The crate's one error, and what a caller can do about it.
//!
//! A variant says what happened and to what; [`RemoteStorageError::kind`] says how to react.
//! Display is one lower-case phrase and leaves the cause to `source()`, so a printed chain repeats
//! nothing. Every failure of an `object_store` client enters the crate through
//! [`RemoteStorageError::from_store`].

mod classify;
mod worm;

use std::error::Error as StdError;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use classify::StoreCall;
pub use worm::WormError;

use crate::model::{
    CopyPhase, OpKind, RemoteLogSegmentId, RemoteLogSegmentState, RemotePartitionDeleteState,
    TopicIdPartition,
};

/// The cause of an error, shared by its clones.
pub type ErrorSource = Arc<dyn StdError + Send + Sync>;

/// Why a remote-tier call failed.
///
/// Cheap to clone, so one failed load can answer every reader that waits for it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteStorageError {
    /// A local file could not be read or written; the message names it.
    #[error(transparent)]
    Io(Arc<io::Error>),
    /// The segment is unknown to the metadata store, or its object or index is not in the tier.
    #[error("segment not found: {0}")]
    SegmentNotFound(RemoteLogSegmentId),
    /// A segment cannot enter the metadata store like this.
    #[error("segment {id} cannot be added: {reason}")]
    InvalidAdd {
        /// The segment.
        id: RemoteLogSegmentId,
        /// The rule it breaks.
        reason: String,
    },
    /// A segment's state cannot change like this.
    #[error("segment {id} cannot go from {from} to {to}")]
    InvalidSegmentTransition {
        /// The segment.
        id: RemoteLogSegmentId,
        /// Its state.
        from: RemoteLogSegmentState,
        /// The state that was asked for.
        to: RemoteLogSegmentState,
    },
    /// A partition's deletion cannot proceed like this.
    #[error(
        "deletion of partition {tp} cannot go from {} to {to}",
        .from.map_or_else(|| "no deletion".to_owned(), |from| from.to_string())
    )]
    InvalidPartitionDeleteTransition {
        /// The partition.
        tp: TopicIdPartition,
        /// How far its deletion has come.
        from: Option<RemotePartitionDeleteState>,
        /// The state that was asked for.
        to: RemotePartitionDeleteState,
    },
    /// The call or the configuration is wrong; the text says what to change.
    #[error("{0}")]
    InvalidArgument(String),
    /// A conditional create found other bytes under this key.
    #[error("object already exists: {key}")]
    ObjectExists {
        /// The object's key.
        key: String,
    },
    /// An object is not the one that was expected.
    #[error("precondition failed for `{key}`: {reason}")]
    PreconditionFailed {
        /// The object's key.
        key: String,
        /// What differs.
        reason: String,
    },
    /// The write-once archive refused the call or could not seal.
    #[error("write-once archive: {0}")]
    Worm(#[from] WormError),
    /// The object store failed or refused.
    #[error("{reason}")]
    Backend {
        /// The object's key, or the prefix or bucket that was asked for.
        key: String,
        /// The request that failed.
        operation: OpKind,
        /// The HTTP status, where the store answered with one.
        status: Option<u16>,
        /// Whether the same request may succeed if it is repeated.
        transient: bool,
        /// What happened, the key included.
        reason: String,
        /// What the client reported.
        #[source]
        source: Option<ErrorSource>,
    },
    /// Time ran out.
    #[error("{}", timed_out_text(*.operation, *.phase, .key, *.part, *.after))]
    TimedOut {
        /// What ran out of time: one request, or a whole copy.
        operation: OpKind,
        /// Where a copy was; `None` for a single request.
        phase: Option<CopyPhase>,
        /// The object it was busy with; empty before the first.
        key: String,
        /// The part of that object, counted from 1.
        part: Option<u32>,
        /// How long it took.
        after: Duration,
    },
    /// Whether the operation took effect is not known (yet): ask again, and it is found out.
    #[error("outcome of {operation} of `{key}` is unknown: repeat the call to learn it")]
    OutcomeUnknown {
        /// The operation.
        operation: OpKind,
        /// The object concerned.
        key: String,
    },
    /// The store sent other bytes than those that were asked for.
    #[error("wrong bytes from the store for `{key}`: {reason}")]
    Corrupt {
        /// The object's key.
        key: String,
        /// What is wrong with the answer.
        reason: String,
    },
    /// The records of one batch decompress to more than the caller allows.
    #[error("records of {size} bytes or more are over the limit of {limit}: raise it to read them")]
    RecordTooLarge {
        /// How many bytes they have at least; decompression stopped there.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The metadata partition is assigned here but not caught up; this is no answer about the
    /// segment.
    #[error("metadata partition {partition} has not caught up: try again later")]
    NotReady {
        /// The partition of the metadata topic.
        partition: i32,
    },
}

fn timed_out_text(
    operation: OpKind,
    phase: Option<CopyPhase>,
    key: &str,
    part: Option<u32>,
    after: Duration,
) -> String {
    use std::fmt::Write as _;

    let mut text = format!("{operation} timed out after {after:?}");
    if let Some(phase) = phase {
        let _ = write!(text, " while {phase}");
    }
    if let Some(part) = part {
        let _ = write!(text, ", part {part}");
    }
    if !key.is_empty() {
        let _ = write!(text, " of `{key}`");
    }
    text
}

/// What a caller can do about an error. Stable: it is also the metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Look at the local disk.
    Io,
    /// There is no such segment, object or index.
    NotFound,
    /// Fix the call or the configuration.
    Invalid,
    /// Something else stands where the call wanted to write.
    Conflict,
    /// The archive forbids it, whatever the arguments.
    Refused,
    /// Try again later.
    Unavailable,
    /// The store answered, and the answer will not change by itself: fix permissions or the
    /// request.
    Rejected,
    /// Time ran out.
    TimedOut,
    /// Repeat the call to learn what became of it.
    OutcomeUnknown,
    /// Bytes are damaged.
    Corrupt,
    /// Try again when the metadata has caught up.
    NotReady,
}

impl ErrorKind {
    /// Every kind.
    pub const ALL: [Self; 11] = [
        Self::Io,
        Self::NotFound,
        Self::Invalid,
        Self::Conflict,
        Self::Refused,
        Self::Unavailable,
        Self::Rejected,
        Self::TimedOut,
        Self::OutcomeUnknown,
        Self::Corrupt,
        Self::NotReady,
    ];

    /// The stable name, used as the metric label `outcome`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Io => "io",
            Self::NotFound => "not_found",
            Self::Invalid => "invalid",
            Self::Conflict => "conflict",
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
            Self::Rejected => "rejected",
            Self::TimedOut => "timed_out",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::Corrupt => "corrupt",
            Self::NotReady => "not_ready",
        }
    }
}

/// What could not be done to which file. It travels inside an [`io::Error`] that keeps its kind.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}", .path.display())]
struct FileError {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl From<io::Error> for RemoteStorageError {
    fn from(error: io::Error) -> Self {
        Self::Io(Arc::new(error))
    }
}

impl RemoteStorageError {
    /// A failure of the local file system, with the file's name in its message.
    ///
    /// `action` completes "cannot …": `read`, `create`, `rename`.
    pub fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::from(io::Error::new(
            source.kind(),
            FileError {
                action,
                path: path.to_owned(),
                source,
            },
        ))
    }

    /// What a caller can do about this error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io(error) => match error.kind() {
                io::ErrorKind::InvalidInput => ErrorKind::Invalid,
                io::ErrorKind::InvalidData => ErrorKind::Corrupt,
                _ => ErrorKind::Io,
            },
            Self::SegmentNotFound(_) => ErrorKind::NotFound,
            Self::InvalidAdd { .. }
            | Self::InvalidSegmentTransition { .. }
            | Self::InvalidPartitionDeleteTransition { .. }
            | Self::InvalidArgument(_)
            | Self::RecordTooLarge { .. } => ErrorKind::Invalid,
            Self::ObjectExists { .. } | Self::PreconditionFailed { .. } => ErrorKind::Conflict,
            Self::Worm(error) => error.kind(),
            Self::Backend { transient, .. } => {
                if *transient {
                    ErrorKind::Unavailable
                } else {
                    ErrorKind::Rejected
                }
            }
            Self::TimedOut { .. } => ErrorKind::TimedOut,
            Self::OutcomeUnknown { .. } => ErrorKind::OutcomeUnknown,
            Self::Corrupt { .. } => ErrorKind::Corrupt,
            Self::NotReady { .. } => ErrorKind::NotReady,
        }
    }

    /// Whether the same request may succeed if it is repeated.
    ///
    /// A timeout is retryable when it ended one attempt of one request, and not when it ended a
    /// whole operation. The retry layer repeats a [`Corrupt`](Self::Corrupt) answer to a read
    /// once, as it does a 401 or 403 (with fresh credentials); those rules need to know what was
    /// tried before and stand there.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::TimedOut {
                phase, operation, ..
            } => {
                phase.is_none()
                    && !matches!(
                        operation,
                        OpKind::CopySegment
                            | OpKind::FetchSegment
                            | OpKind::FetchIndex
                            | OpKind::DeleteSegment
                    )
            }
            _ => matches!(self.kind(), ErrorKind::Unavailable | ErrorKind::NotReady),
        }
    }

    /// The HTTP status with which the store answered, where there was one.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Backend { status, .. } => *status,
            _ => None,
        }
    }
}
