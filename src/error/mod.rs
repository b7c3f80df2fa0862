//! The crate's one error, and what a caller can do about it.
//!
//! A variant says what happened and to what; [`RemoteStorageError::kind`] says how to react.
//! Display is one lower-case phrase and leaves the cause to `source()`, so a printed chain repeats
//! nothing (but for an archive's error: its text is promised to stand in both places). Every failure of an `object_store` client enters the crate through
//! [`RemoteStorageError::from_store`].

mod classify;
mod kind;
mod redact;
mod source;
mod worm;

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use classify::StoreCall;
pub use kind::ErrorKind;
pub use source::{ErrorSource, StoreFailure};
pub use worm::WormError;

use crate::model::{
    CopyPhase, OpKind, RemoteLogSegmentId, RemoteLogSegmentState, RemotePartitionDeleteState,
    TopicIdPartition,
};

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
    #[non_exhaustive]
    InvalidAdd {
        /// The segment.
        id: RemoteLogSegmentId,
        /// The rule it breaks.
        reason: String,
    },
    /// A segment's state cannot change like this.
    #[error("segment {id} cannot go from {from} to {to}")]
    #[non_exhaustive]
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
    #[non_exhaustive]
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
    #[non_exhaustive]
    ObjectExists {
        /// The object's key.
        key: String,
    },
    /// An object is not the one that was expected.
    #[error("precondition failed for {}: {reason}", named(.key))]
    #[non_exhaustive]
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
    #[non_exhaustive]
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
        /// What the client reported, mostly a [`StoreFailure`].
        source: Option<ErrorSource>,
    },
    /// Time ran out.
    #[error("{}", timed_out_text(*.operation, *.phase, .key, *.part, *.after))]
    #[non_exhaustive]
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
    #[error("{}", unknown_text(*.operation, .key))]
    #[non_exhaustive]
    OutcomeUnknown {
        /// The operation.
        operation: OpKind,
        /// The object concerned; empty where that is not known either.
        key: String,
    },
    /// The store sent other bytes than those that were asked for.
    #[error("wrong bytes from the store for {}: {reason}", named(.key))]
    #[non_exhaustive]
    Corrupt {
        /// The object's key.
        key: String,
        /// What is wrong with the answer.
        reason: String,
    },
    /// The records of one batch decompress to more than the caller allows.
    #[error("records of {size} bytes or more are over the limit of {limit}: raise it to read them")]
    #[non_exhaustive]
    RecordTooLarge {
        /// How many bytes they have at least; decompression stopped there.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The event was not written to the metadata log, and will not be: nothing has changed.
    #[error("the event was not written to metadata partition {partition}")]
    #[non_exhaustive]
    EventNotSent {
        /// The partition of the metadata log.
        partition: i32,
        /// Whether the same call may succeed if it is repeated.
        transient: bool,
        /// What the log reported.
        source: Option<ErrorSource>,
    },
    /// The event may be in the metadata log, now or later, and was not seen there yet.
    #[error("{}", event_unknown_text(*.partition, *.offset))]
    #[non_exhaustive]
    EventOutcomeUnknown {
        /// The partition of the metadata log.
        partition: i32,
        /// The event's offset, where the log has acknowledged it.
        offset: Option<i64>,
        /// What the log reported.
        source: Option<ErrorSource>,
    },
    /// The metadata partition is assigned here but not caught up; this is no answer about the
    /// segment.
    #[error("metadata partition {partition} has not caught up: try again later")]
    #[non_exhaustive]
    NotReady {
        /// The partition of the metadata topic.
        partition: i32,
    },
    /// The storage handle was closed before the call.
    #[error("{operation} was called on a storage handle that has been closed")]
    #[non_exhaustive]
    Closed {
        /// The operation.
        operation: OpKind,
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

fn unknown_text(operation: OpKind, key: &str) -> String {
    let of = match key {
        "" => String::new(),
        key => format!(" of `{key}`"),
    };
    format!("outcome of {operation}{of} is unknown: repeat the call to learn it")
}

fn event_unknown_text(partition: i32, offset: Option<i64>) -> String {
    match offset {
        Some(offset) => format!(
            "the event is in metadata partition {partition} at offset {offset}, but was not \
             applied here yet: ask for its outcome, or repeat the call"
        ),
        None => format!(
            "the event may be in metadata partition {partition}, now or later: ask for its \
             outcome, or repeat the call"
        ),
    }
}

/// How a message names an object, or a prefix: the empty key is all of the store.
pub(crate) fn named(key: &str) -> Cow<'_, str> {
    if key.is_empty() {
        "the store's root".into()
    } else {
        format!("`{key}`").into()
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

/// `source` with the file's name in its message. `action` completes "cannot …".
pub(crate) fn file_error(action: &'static str, path: &Path, source: io::Error) -> io::Error {
    io::Error::new(
        source.kind(),
        FileError {
            action,
            path: path.to_owned(),
            source,
        },
    )
}

/// Which request a local store failed. It travels like a [`FileError`].
#[derive(Debug, thiserror::Error)]
#[error("{call}")]
struct CallError {
    call: String,
    source: StoreFailure,
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
        Self::from(file_error(action, path, source))
    }

    /// An object is larger than its reader takes; nothing more of it is read.
    ///
    /// `cap_bytes` is the largest size that would have been taken.
    pub fn exceeds_cap(operation: OpKind, key: &str, size_bytes: u64, cap_bytes: u64) -> Self {
        Self::Backend {
            key: key.to_owned(),
            operation,
            status: None,
            transient: false,
            reason: format!(
                "object `{key}` is {size_bytes} bytes, exceeds cap of {cap_bytes} bytes"
            ),
            source: None,
        }
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
            Self::Backend { transient, .. } | Self::EventNotSent { transient, .. } => {
                if *transient {
                    ErrorKind::Unavailable
                } else {
                    ErrorKind::Rejected
                }
            }
            Self::TimedOut { .. } => ErrorKind::TimedOut,
            Self::OutcomeUnknown { .. } | Self::EventOutcomeUnknown { .. } => {
                ErrorKind::OutcomeUnknown
            }
            Self::Corrupt { .. } => ErrorKind::Corrupt,
            Self::NotReady { .. } => ErrorKind::NotReady,
            Self::Closed { .. } => ErrorKind::Closed,
        }
    }

    /// Whether the same request may succeed if it is repeated.
    ///
    /// A timeout is retryable when it ended one attempt of one request, and not when it ended a
    /// whole operation. Two rules need to know what was tried before and stand elsewhere: the retry
    /// layer repeats a [`Corrupt`](Self::Corrupt) answer to a read once, and a store that has just
    /// read its credentials anew marks a 401 or 403 as transient, so that it is repeated.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::TimedOut {
                phase, operation, ..
            } => phase.is_none() && operation.is_store_request(),
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

#[cfg(test)]
mod tests;
