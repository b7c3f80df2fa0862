//! Errors of the diskless formats.

use std::io;

use uuid::Uuid;

use crate::error::{RemoteStorageError, WormError};

/// Why a key, a value, a projection or a capture was refused.
///
/// Text from outside is escaped and cut short.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DisklessError {
    /// A value is too short to have a version.
    #[error("truncated {record}: {len} bytes hold no version")]
    Truncated {
        /// What it should have been.
        record: &'static str,
        /// Its length in bytes.
        len: usize,
    },
    /// A value or a capture of a version that this code does not know. A value without a version
    /// is from before krabka 1.0; its first bytes are read as one.
    #[error("unsupported {record} version {found}: this build reads version {supported}")]
    UnsupportedVersion {
        /// What it is.
        record: &'static str,
        /// Its version; of a capture, the JSON that stands in its place.
        found: String,
        /// The version that is read and written.
        supported: u16,
    },
    /// The bytes behind the version are not exactly a body, or the JSON not exactly a capture.
    #[error("malformed {record}: {reason}")]
    Malformed {
        /// What it should have been.
        record: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A record of the index topic without a key.
    #[error("diskless WAL index record has no key")]
    MissingKey,
    /// A key of a version that this code does not know.
    #[error("unknown diskless WAL index key version {0}")]
    UnknownKeyVersion(i16),
    /// A key that is too short, or of a known version and another length or content.
    #[error("invalid diskless WAL index key")]
    InvalidKey,
    /// A value that speaks of something else than its key.
    #[error("{record} key/value mismatch: {reason}")]
    KeyValueMismatch {
        /// What it is.
        record: &'static str,
        /// What differs.
        reason: &'static str,
    },
    /// A range that cannot be.
    #[error("invalid diskless WAL index range of {}: {reason}", partition_text(*.topic_id, *.partition))]
    InvalidRange {
        /// The topic's unique id.
        topic_id: Uuid,
        /// The partition's index in the topic.
        partition: i32,
        /// What is wrong.
        reason: &'static str,
    },
    /// A delete floor that cannot be.
    #[error("invalid diskless WAL delete floor of {}: {reason}", partition_text(*.topic_id, *.partition))]
    InvalidFloor {
        /// The topic's unique id.
        topic_id: Uuid,
        /// The partition's index in the topic.
        partition: i32,
        /// What is wrong.
        reason: &'static str,
    },
    /// A capture that says what cannot be, or a projection that makes no capture.
    #[error("invalid diskless WAL capture: {0}")]
    InvalidCapture(String),
    /// A capture has no `format_version`: it is from before krabka 1.0, or no capture.
    #[error("diskless WAL capture has no format_version: this build reads version 1")]
    NoCaptureVersion,
    /// The claims to be signed are not those of the capture's objects.
    #[error("objects to be claimed are not those that the capture names: {0}")]
    Claims(String),
    /// A sealed capture is not what was signed, not signed by a trusted key, or not the one that
    /// is expected.
    #[error("diskless WAL capture is not authentic: {0}")]
    NotAuthentic(String),
    /// A capture could not be signed.
    #[error("cannot seal the diskless WAL capture")]
    Seal(#[source] WormError),
}

fn partition_text(topic_id: Uuid, partition: i32) -> String {
    format!("partition {partition} of topic {topic_id}")
}

/// Why bytes are no WAL object, or could not become a part of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WalObjectError {
    /// Fewer bytes than an object without runs has.
    #[error("WAL object is too short: {len} bytes, and the least is 14")]
    TooShort {
        /// The length in bytes.
        len: usize,
    },
    /// The object does not begin, or does not end, with `CKWL`.
    #[error("WAL object does not {} with the magic `CKWL`", if *.at_end { "end" } else { "begin" })]
    BadMagic {
        /// Whether it is the magic at the end.
        at_end: bool,
    },
    /// The object is of a version that this code does not know.
    #[error("unsupported WAL object version {0}: this build reads version 1")]
    BadVersion(u16),
    /// The footer does not describe the object.
    #[error("bad WAL object manifest: {reason}")]
    BadManifest {
        /// What is wrong, and with which run, counted from 0.
        reason: String,
    },
    /// A run that no object can hold.
    #[error("run of partition {partition} cannot be added to the WAL object: {reason}")]
    InvalidRun {
        /// The partition's index in the topic.
        partition: i32,
        /// What is wrong.
        reason: &'static str,
    },
}

/// Wrong bytes are an I/O error of kind `InvalidData`, as those of Kafka's own formats are.
impl From<DisklessError> for RemoteStorageError {
    fn from(error: DisklessError) -> Self {
        match error {
            DisklessError::Seal(error) => Self::Worm(error),
            DisklessError::Claims(_) => Self::InvalidArgument(error.to_string()),
            error => io::Error::new(io::ErrorKind::InvalidData, error).into(),
        }
    }
}

/// A run that cannot be added is an invalid argument, all else wrong bytes.
impl From<WalObjectError> for RemoteStorageError {
    fn from(error: WalObjectError) -> Self {
        match error {
            WalObjectError::InvalidRun { .. } => Self::InvalidArgument(error.to_string()),
            error => io::Error::new(io::ErrorKind::InvalidData, error).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn the_crates_error_tells_wrong_bytes_from_a_wrong_call() {
        let of = |error: DisklessError| RemoteStorageError::from(error);
        let corrupt = of(DisklessError::UnknownKeyVersion(17));
        assert_eq!(corrupt.kind(), ErrorKind::Corrupt);
        assert_eq!(
            corrupt.to_string(),
            "unknown diskless WAL index key version 17"
        );
        let claims = of(DisklessError::Claims("`a` is missing".to_owned()));
        assert_eq!(claims.kind(), ErrorKind::Invalid);
        let seal = of(DisklessError::Seal(WormError::SigningKey("x".to_owned())));
        assert!(matches!(seal, RemoteStorageError::Worm(_)));

        let object = RemoteStorageError::from(WalObjectError::TooShort { len: 3 });
        assert_eq!(object.kind(), ErrorKind::Corrupt);
        let run = RemoteStorageError::from(WalObjectError::InvalidRun {
            partition: 1,
            reason: "it is empty",
        });
        assert_eq!(run.kind(), ErrorKind::Invalid);
    }
}
