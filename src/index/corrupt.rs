//! The errors of damaged bytes.

use std::fmt;
use std::io;

use crate::error::RemoteStorageError;

/// The error of log bytes that are no valid record batches:
/// `corrupt remote log bytes: <detail>`.
pub fn corrupt_log(detail: impl fmt::Display) -> RemoteStorageError {
    invalid_data(format!("corrupt remote log bytes: {detail}"))
}

pub(super) fn invalid_data(
    error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> RemoteStorageError {
    io::Error::new(io::ErrorKind::InvalidData, error).into()
}
