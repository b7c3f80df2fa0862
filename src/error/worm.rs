//! Errors of the write-once archive.

use super::ErrorKind;

/// Why the write-once archive refused a call, or could not seal or verify.
///
/// No text in it has key material, and text from outside is escaped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WormError {
    /// The archive could not be listed. This says nothing about its integrity.
    #[error("cannot look at the archive: {0}")]
    Archive(String),
    /// A segment without a chain record cannot be sealed.
    #[error("the segment's metadata carries no chain record: seed it from the listed segments")]
    MissingChainStamp,
    /// A chain record is not exactly a record of its version.
    #[error("malformed chain record: {0}")]
    MalformedChainRecord(String),
    /// A chain record of a version that this code does not know.
    #[error("{}", version_text(.found.as_deref()))]
    #[non_exhaustive]
    UnsupportedChainRecordVersion {
        /// The version as it stands in the record's JSON; `None` where the record has none.
        found: Option<String>,
    },
    /// A manifest could not be written.
    #[error("cannot encode the manifest: {0}")]
    Codec(String),
    /// No digest was taken of an object.
    #[error("no digest of `{key}`: it cannot be sealed")]
    #[non_exhaustive]
    MissingDigest {
        /// The object's key.
        key: String,
    },
    /// A store with versions did not name the version that it created.
    #[error("the store named no version of `{key}`: check that the bucket's versioning is enabled")]
    #[non_exhaustive]
    MissingVersionId {
        /// The object's key.
        key: String,
    },
    /// An archive never deletes.
    #[error("delete refused for `{key}`: the archive keeps every object until its retention ends")]
    #[non_exhaustive]
    DeleteRefused {
        /// The segment's `.log` key, rendered for this message only.
        key: String,
    },
    /// This process may write to the archive, and not read from it.
    #[error("read refused: this archive is configured as write-only")]
    ReadRefused,
    /// A signing or verification key could not be loaded or used. The text may name the file.
    #[error("signing key: {0}")]
    SigningKey(String),
}

fn version_text(found: Option<&str>) -> String {
    match found {
        Some(found) => format!(
            "unsupported version {} of a chain record: a newer writer was here",
            found.escape_default()
        ),
        None => "a chain record without a version".to_owned(),
    }
}

impl WormError {
    /// The refusal to delete what stands under this key.
    pub fn delete_refused(key: impl Into<String>) -> Self {
        Self::DeleteRefused { key: key.into() }
    }

    /// What a caller can do about this error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::DeleteRefused { .. } | Self::ReadRefused => ErrorKind::Refused,
            Self::Archive(_) => ErrorKind::Io,
            Self::MissingChainStamp
            | Self::MalformedChainRecord(_)
            | Self::UnsupportedChainRecordVersion { .. }
            | Self::Codec(_)
            | Self::MissingDigest { .. }
            | Self::MissingVersionId { .. }
            | Self::SigningKey(_) => ErrorKind::Invalid,
        }
    }
}
