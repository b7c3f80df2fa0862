//! Reads whether a bucket protects what is written to it.
//!
//! "The policy could not be read" and "the policy is not good enough" are told apart: the first is
//! an error, the second an answer that names each condition that is not met.

use super::signed::Failure;
use crate::error::{RemoteStorageError, StoreCall};
use crate::model::OpKind;

/// What a bucket says of itself is a few lines.
pub(in crate::backends) const MAX_POLICY_BYTES: usize = 64 * 1024;

/// How much of a value that a store gave stands in a text.
pub(in crate::backends) const MAX_VALUE_CHARS: usize = 64;

/// The request failed.
pub(in crate::backends) fn unreadable(what: &str, failure: Failure) -> RemoteStorageError {
    if matches!(failure, Failure::TooLong(_)) {
        return wrong(what, &failure.to_string());
    }
    let call = StoreCall {
        operation: OpKind::ReadRetention,
        key: what,
        segment: None,
    };
    RemoteStorageError::from_store(call, failure.into_store_error(what.to_owned()))
}

/// The answer, with status 200, is not what was asked for.
pub(in crate::backends) fn wrong(what: &str, why: &str) -> RemoteStorageError {
    RemoteStorageError::Backend {
        key: what.to_owned(),
        operation: OpKind::ReadRetention,
        status: Some(200),
        transient: false,
        reason: format!("{} of `{what}` failed: {why}", OpKind::ReadRetention),
        source: None,
    }
}

/// A value of the store's as it can be shown.
pub(in crate::backends) fn shown(value: &str) -> String {
    let value: String = value.chars().take(MAX_VALUE_CHARS).collect();
    format!("`{}`", value.escape_debug())
}
