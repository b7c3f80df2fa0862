//! Why a snapshot could not be read or written.

use std::io;

use super::super::codec_error::CodecError;

/// Why a snapshot could not be read or written.
///
/// Whatever is wrong with a file, the state that it stands for can be replayed from the log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The file system failed; the error names the file.
    #[error("the file system failed")]
    Io(#[from] io::Error),
    /// The file is of a format version that is not read here.
    #[error("snapshot format version {0} is not read here")]
    UnsupportedVersion(u16),
    /// The bytes are not those that were written.
    #[error("the snapshot has checksum {stored:08x}, and its bytes have {computed:08x}")]
    ChecksumMismatch {
        /// The checksum at the file's end.
        stored: u32,
        /// The checksum of what stands before it.
        computed: u32,
    },
    /// The bytes are not a snapshot.
    #[error("the bytes are no snapshot")]
    Malformed(#[from] CodecError),
    /// Bytes follow after the last entry.
    #[error("{0} bytes follow after the last entry of the snapshot")]
    TrailingBytes(usize),
}
