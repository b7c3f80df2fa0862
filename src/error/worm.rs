//! Errors of the write-once archive.

use super::ErrorKind;

/// Why the write-once archive refused a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WormError {
    /// An archive never deletes.
    #[error("delete refused for `{key}`: the archive keeps every object until its retention ends")]
    DeleteRefused {
        /// The segment's `.log` key, rendered for this message only.
        key: String,
    },
    /// This process may write to the archive, and not read from it.
    #[error("read refused: this archive is configured as write-only")]
    ReadRefused,
}

impl WormError {
    /// What a caller can do about this error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::DeleteRefused { .. } | Self::ReadRefused => ErrorKind::Refused,
        }
    }
}
