//! The errors of damaged bytes.

use std::fmt;
use std::io;

use crate::error::RemoteStorageError;

/// The error of log bytes that are no valid record batches:
/// `corrupt remote log bytes: <detail>`.
pub fn corrupt_log(detail: impl fmt::Display) -> RemoteStorageError {
    invalid_data(format!("corrupt remote log bytes: {detail}"))
}

/// A file beside the log that no Kafka wrote like this.
#[derive(Debug, thiserror::Error)]
#[error("corrupt {file} bytes")]
struct CorruptFile {
    file: &'static str,
    source: Detail,
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Detail(String);

/// The error of an index or state file: `corrupt <file> bytes`, its detail as the cause.
pub(super) fn corrupt_file(file: &'static str, detail: impl fmt::Display) -> RemoteStorageError {
    invalid_data(CorruptFile {
        file,
        source: Detail(detail.to_string()),
    })
}

fn invalid_data(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> RemoteStorageError {
    io::Error::new(io::ErrorKind::InvalidData, error).into()
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn damaged_bytes_are_invalid_data_with_kafkas_texts() {
        let log = corrupt_log("no batch");
        assert_eq!(log.to_string(), "corrupt remote log bytes: no batch");
        assert_eq!(log.kind(), ErrorKind::Corrupt);

        let index = corrupt_file("remote offset index", "too short");
        assert_eq!(index.to_string(), "corrupt remote offset index bytes");
        assert_eq!(index.source().expect("cause").to_string(), "too short");
        assert_eq!(index.kind(), ErrorKind::Corrupt);
    }
}
