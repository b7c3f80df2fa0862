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
    #[error("precondition failed for {}: {reason}", named(.key))]
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
        /// What the client reported, mostly a [`StoreFailure`].
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
    #[error("{}", unknown_text(*.operation, .key))]
    OutcomeUnknown {
        /// The operation.
        operation: OpKind,
        /// The object concerned; empty where that is not known either.
        key: String,
    },
    /// The store sent other bytes than those that were asked for.
    #[error("wrong bytes from the store for {}: {reason}", named(.key))]
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

fn unknown_text(operation: OpKind, key: &str) -> String {
    let of = match key {
        "" => String::new(),
        key => format!(" of `{key}`"),
    };
    format!("outcome of {operation}{of} is unknown: repeat the call to learn it")
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
        Self::from(io::Error::new(
            source.kind(),
            FileError {
                action,
                path: path.to_owned(),
                source,
            },
        ))
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
mod tests {
    use std::error::Error as StdError;

    use uuid::Uuid;

    use super::*;

    fn partition() -> TopicIdPartition {
        TopicIdPartition::new(Uuid::from_u128(1), "orders", 7)
    }

    fn segment() -> RemoteLogSegmentId {
        RemoteLogSegmentId::new(partition(), Uuid::from_u128(0xfe))
    }

    fn io_error(kind: io::ErrorKind) -> RemoteStorageError {
        RemoteStorageError::io("read", Path::new("/data/1.log"), io::Error::from(kind))
    }

    fn backend(transient: bool) -> RemoteStorageError {
        RemoteStorageError::Backend {
            key: "k".to_owned(),
            operation: OpKind::Put,
            status: transient.then_some(503),
            transient,
            reason: "put of `k` failed".to_owned(),
            source: Some(ErrorSource::new(io::Error::other("the cause"))),
        }
    }

    fn timed_out(operation: OpKind, phase: Option<CopyPhase>) -> RemoteStorageError {
        RemoteStorageError::TimedOut {
            operation,
            phase,
            key: "k".to_owned(),
            part: Some(3),
            after: Duration::from_secs(30),
        }
    }

    /// One row for each row of the table: error, reaction, worth a repetition, text.
    #[allow(clippy::too_many_lines)] // It is a table.
    fn table() -> Vec<(RemoteStorageError, ErrorKind, bool, &'static str)> {
        use RemoteStorageError as E;
        vec![
            (
                io_error(io::ErrorKind::NotFound),
                ErrorKind::Io,
                false,
                "cannot read /data/1.log",
            ),
            (
                io_error(io::ErrorKind::InvalidInput),
                ErrorKind::Invalid,
                false,
                "cannot read /data/1.log",
            ),
            (
                io_error(io::ErrorKind::InvalidData),
                ErrorKind::Corrupt,
                false,
                "cannot read /data/1.log",
            ),
            (
                E::SegmentNotFound(segment()),
                ErrorKind::NotFound,
                false,
                "segment not found: AAAAAAAAAAAAAAAAAAAA_g of orders-7",
            ),
            (
                E::InvalidAdd {
                    id: segment(),
                    reason: "it is known already".to_owned(),
                },
                ErrorKind::Invalid,
                false,
                "segment AAAAAAAAAAAAAAAAAAAA_g of orders-7 cannot be added: it is known already",
            ),
            (
                E::InvalidSegmentTransition {
                    id: segment(),
                    from: RemoteLogSegmentState::DeleteSegmentStarted,
                    to: RemoteLogSegmentState::CopySegmentFinished,
                },
                ErrorKind::Invalid,
                false,
                "segment AAAAAAAAAAAAAAAAAAAA_g of orders-7 cannot go from DELETE_SEGMENT_STARTED \
                 to COPY_SEGMENT_FINISHED",
            ),
            (
                E::InvalidPartitionDeleteTransition {
                    tp: partition(),
                    from: None,
                    to: RemotePartitionDeleteState::DeletePartitionFinished,
                },
                ErrorKind::Invalid,
                false,
                "deletion of partition orders-7 (topic id AAAAAAAAAAAAAAAAAAAAAQ) cannot go from \
                 no deletion to DELETE_PARTITION_FINISHED",
            ),
            (
                E::InvalidPartitionDeleteTransition {
                    tp: partition(),
                    from: Some(RemotePartitionDeleteState::DeletePartitionFinished),
                    to: RemotePartitionDeleteState::DeletePartitionMarked,
                },
                ErrorKind::Invalid,
                false,
                "deletion of partition orders-7 (topic id AAAAAAAAAAAAAAAAAAAAAQ) cannot go from \
                 DELETE_PARTITION_FINISHED to DELETE_PARTITION_MARKED",
            ),
            (
                E::InvalidArgument("the chunk size is 0: give one above 0".to_owned()),
                ErrorKind::Invalid,
                false,
                "the chunk size is 0: give one above 0",
            ),
            (
                E::ObjectExists {
                    key: "k".to_owned(),
                },
                ErrorKind::Conflict,
                false,
                "object already exists: k",
            ),
            (
                E::PreconditionFailed {
                    key: "k".to_owned(),
                    reason: "another version".to_owned(),
                },
                ErrorKind::Conflict,
                false,
                "precondition failed for `k`: another version",
            ),
            (
                E::from(WormError::DeleteRefused {
                    key: "k".to_owned(),
                }),
                ErrorKind::Refused,
                false,
                "write-once archive: delete refused for `k`: the archive keeps every object until \
                 its retention ends",
            ),
            (
                E::from(WormError::ReadRefused),
                ErrorKind::Refused,
                false,
                "write-once archive: read refused: this archive is configured as write-only",
            ),
            (
                backend(true),
                ErrorKind::Unavailable,
                true,
                "put of `k` failed",
            ),
            (
                backend(false),
                ErrorKind::Rejected,
                false,
                "put of `k` failed",
            ),
            (
                E::exceeds_cap(OpKind::Get, "k", 12, 10),
                ErrorKind::Rejected,
                false,
                "object `k` is 12 bytes, exceeds cap of 10 bytes",
            ),
            (
                timed_out(OpKind::PutPart, None),
                ErrorKind::TimedOut,
                true,
                "put_part timed out after 30s, part 3 of `k`",
            ),
            (
                timed_out(OpKind::CopySegment, Some(CopyPhase::Uploading)),
                ErrorKind::TimedOut,
                false,
                "copy_segment timed out after 30s while uploading, part 3 of `k`",
            ),
            (
                E::OutcomeUnknown {
                    operation: OpKind::CopySegment,
                    key: "k".to_owned(),
                },
                ErrorKind::OutcomeUnknown,
                false,
                "outcome of copy_segment of `k` is unknown: repeat the call to learn it",
            ),
            (
                E::Corrupt {
                    key: "k".to_owned(),
                    reason: "5 of 8 bytes".to_owned(),
                },
                ErrorKind::Corrupt,
                false,
                "wrong bytes from the store for `k`: 5 of 8 bytes",
            ),
            (
                E::NotReady { partition: 3 },
                ErrorKind::NotReady,
                true,
                "metadata partition 3 has not caught up: try again later",
            ),
        ]
    }

    #[test]
    fn each_error_has_the_reaction_and_the_text_of_the_table() {
        for (error, kind, retryable, text) in table() {
            assert_eq!(error.kind(), kind, "{error:?}");
            assert_eq!(error.is_retryable(), retryable, "{error:?}");
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn a_clone_is_the_same_error_with_the_same_cause() {
        for (error, ..) in table() {
            let clone = error.clone();
            assert_eq!(format!("{clone:?}"), format!("{error:?}"));
            assert_eq!(
                clone.source().map(ToString::to_string),
                error.source().map(ToString::to_string)
            );
        }
    }

    #[test]
    fn no_operation_of_a_segment_is_repeated_after_its_time_ran_out() {
        for operation in OpKind::ALL {
            let error = timed_out(operation, None);
            assert_eq!(
                error.is_retryable(),
                !operation.as_str().ends_with("segment") && operation != OpKind::FetchIndex,
                "{operation}"
            );
        }
    }

    #[test]
    fn a_timeout_names_what_is_known() {
        let error = RemoteStorageError::TimedOut {
            operation: OpKind::CopySegment,
            phase: Some(CopyPhase::Preparing),
            key: String::new(),
            part: None,
            after: Duration::from_millis(1500),
        };
        assert_eq!(
            error.to_string(),
            "copy_segment timed out after 1.5s while preparing"
        );
    }

    #[test]
    fn the_cause_of_an_io_error_stays_its_source_with_kind_and_type() {
        let cause = io::Error::from_raw_os_error(28);
        let kind = cause.kind();
        let error = RemoteStorageError::io("write", Path::new("/data/1.log"), cause);
        let RemoteStorageError::Io(inner) = &error else {
            panic!("{error:?}");
        };
        assert_eq!(inner.kind(), kind);
        let source = error.source().unwrap();
        let source: &io::Error = source.downcast_ref().unwrap();
        assert_eq!(source.raw_os_error(), Some(28));
        assert!(source.source().is_none());
    }

    #[test]
    fn the_cause_of_a_store_error_can_be_downcast() {
        let error = backend(true);
        let source = error.source().unwrap();
        assert!(source.is::<io::Error>(), "{source:?}");
        assert_eq!(source.to_string(), "the cause");
        assert_eq!(error.status(), Some(503));
    }

    #[test]
    fn the_cause_of_an_archives_error_is_the_archives_own() {
        let error = RemoteStorageError::from(WormError::ReadRefused);
        let source = error.source().unwrap();
        assert_eq!(source.downcast_ref(), Some(&WormError::ReadRefused));
    }
    #[test]
    fn a_message_about_no_key_names_the_root_of_the_store() {
        use object_store::Error as StoreError;

        let listed = StoreError::Generic {
            store: "S3",
            source: "refused".into(),
        };
        let call = StoreCall {
            operation: OpKind::List,
            key: "",
            segment: None,
        };
        let (key, reason) = (String::new(), "why".to_owned());
        let errors = [
            RemoteStorageError::from_store(call, listed),
            RemoteStorageError::Corrupt {
                key: key.clone(),
                reason: reason.clone(),
            },
            RemoteStorageError::PreconditionFailed { key, reason },
        ];
        for error in errors {
            let text = error.to_string();
            assert!(text.contains("the store's root"), "{text}");
            assert!(!text.contains("``"), "{text}");
        }
        let unknown = RemoteStorageError::OutcomeUnknown {
            operation: OpKind::CopySegment,
            key: String::new(),
        };
        let operation = OpKind::CopySegment;
        assert_eq!(
            unknown.to_string(),
            format!("outcome of {operation} is unknown: repeat the call to learn it")
        );
    }
}
