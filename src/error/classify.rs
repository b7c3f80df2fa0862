//! The one place where an `object_store` failure becomes an error of this crate.

use std::error::Error as StdError;
use std::sync::Arc;

use object_store::Error as StoreError;

use super::RemoteStorageError;
use crate::model::{OpKind, RemoteLogSegmentId};

/// The request that failed: what [`RemoteStorageError::from_store`] needs to name it.
#[derive(Clone, Copy, Debug)]
pub struct StoreCall<'a> {
    /// The request.
    pub operation: OpKind,
    /// The object's key, or the prefix that was listed.
    pub key: &'a str,
    /// The segment that the object belongs to, where it is known.
    pub segment: Option<&'a RemoteLogSegmentId>,
}

impl RemoteStorageError {
    /// Classifies a failure of an object store client.
    ///
    /// A missing object is [`SegmentNotFound`](Self::SegmentNotFound) where the segment is known.
    /// "Already exists" must have been resolved by reading the object back before it comes here:
    /// it may be the caller's own, earlier success. What has no HTTP status in its chain of
    /// causes (a refused connection, a body cut short) is transient, as are 408, 429 and 5xx;
    /// every other answer will not change by repeating the request.
    pub fn from_store(call: StoreCall<'_>, error: StoreError) -> Self {
        match error {
            // A missing bucket answers 404 too, and says nothing about the segment.
            StoreError::NotFound { path, source } if !names_the_bucket(source.as_ref()) => {
                match call.segment {
                    Some(id) => Self::SegmentNotFound(id.clone()),
                    None => call.rejected(
                        Some(404),
                        format!("not found: {path}"),
                        StoreError::NotFound { path, source },
                    ),
                }
            }
            StoreError::AlreadyExists { .. } => Self::ObjectExists {
                key: call.key.to_owned(),
            },
            StoreError::Precondition { source, .. } => Self::PreconditionFailed {
                key: call.key.to_owned(),
                reason: innermost(source.as_ref()),
            },
            StoreError::PermissionDenied { .. } => call.failed(Some(403), error),
            StoreError::Unauthenticated { .. } => call.failed(Some(401), error),
            StoreError::NotFound { .. } => call.failed(Some(404), error),
            StoreError::Generic { .. } | StoreError::JoinError { .. } => {
                let status = http_status(&error);
                let transient = status.is_none_or(is_transient_status);
                if transient {
                    call.backend(status, true, call.phrase(status), error)
                } else {
                    call.failed(status, error)
                }
            }
            // Unsupported or unimplemented calls, invalid paths, unknown configuration keys.
            _ => call.failed(None, error),
        }
    }
}

impl StoreCall<'_> {
    fn phrase(&self, status: Option<u16>) -> String {
        let Self { operation, key, .. } = self;
        match status {
            Some(status) => format!("{operation} of `{key}` failed with HTTP status {status}"),
            None => format!("{operation} of `{key}` failed"),
        }
    }

    fn failed(&self, status: Option<u16>, error: StoreError) -> RemoteStorageError {
        self.rejected(status, self.phrase(status), error)
    }

    fn rejected(&self, status: Option<u16>, reason: String, e: StoreError) -> RemoteStorageError {
        self.backend(status, false, reason, e)
    }

    fn backend(
        &self,
        status: Option<u16>,
        transient: bool,
        reason: String,
        error: StoreError,
    ) -> RemoteStorageError {
        RemoteStorageError::Backend {
            key: self.key.to_owned(),
            operation: self.operation,
            status,
            transient,
            reason,
            source: Some(Arc::new(error)),
        }
    }
}

/// Whether an answer with this status may change when the request is repeated.
fn is_transient_status(status: u16) -> bool {
    matches!(status, 408 | 429 | 500..=599)
}

/// The HTTP status in a chain of causes.
///
/// `object_store` keeps the type that carries it private, so it is read from the text that this
/// type prints: `… status code: 503 Service Unavailable …`.
fn http_status(error: &(dyn StdError + 'static)) -> Option<u16> {
    const MARK: &str = "status code: ";
    causes(error).find_map(|cause| {
        let text = cause.to_string();
        let digits = text.split_once(MARK)?.1.get(..3)?;
        digits
            .parse()
            .ok()
            .filter(|status| (100..600).contains(status))
    })
}

/// Whether a "not found" is about the bucket or container itself.
fn names_the_bucket(error: &(dyn StdError + 'static)) -> bool {
    const MARKS: [&str; 3] = [
        "NoSuchBucket",
        "ContainerNotFound",
        "The specified bucket does not exist",
    ];
    causes(error).any(|cause| {
        let text = cause.to_string();
        MARKS.iter().any(|mark| text.contains(mark))
    })
}

fn innermost(error: &(dyn StdError + 'static)) -> String {
    causes(error)
        .last()
        .map_or_else(String::new, ToString::to_string)
}

fn causes<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |cause: &&'a (dyn StdError + 'static)| {
        (*cause).source()
    })
}
