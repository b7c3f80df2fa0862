//! Why a command failed, and the exit code that says so.

use std::io;

use krabka_remote_storage::RemoteStorageError;
use krabka_remote_storage::topic::MetadataLogError;

pub(crate) use crate::console::{chain, print_error, print_note};

/// The end of a command that did not do all it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The library or the tier said no.
    #[error(transparent)]
    Storage(#[from] RemoteStorageError),
    /// The same, with what it was about.
    #[error("{what}")]
    During {
        what: String,
        source: RemoteStorageError,
    },
    /// A cluster's metadata topic could not be read.
    #[error("{what}")]
    Cluster {
        what: String,
        source: MetadataLogError,
    },
    /// What was asked for cannot be done, and why.
    #[error("{0}")]
    Refused(String),
    /// The arguments do not fit together.
    #[error("{0}")]
    Usage(String),
    /// What the command writes could not be written.
    #[error("cannot write to standard output")]
    Output(#[source] io::Error),
    /// Whoever read the output has seen enough.
    #[error("standard output was closed")]
    OutputClosed,
    /// A signal asked the program to end.
    #[error("interrupted")]
    Interrupted,
}

impl Failure {
    pub(crate) fn during(what: impl Into<String>, source: RemoteStorageError) -> Self {
        Self::During {
            what: what.into(),
            source,
        }
    }

    /// The exit code of the program.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::OutputClosed => 0,
            Self::Usage(_) => 2,
            Self::Interrupted => 130,
            _ => 1,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::OutputClosed
        } else {
            Self::Output(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_chain_names_each_cause_once() {
        let source = io::Error::new(io::ErrorKind::NotFound, "no such file");
        let error = RemoteStorageError::io("read", Path::new("/a/b"), source);
        let failure = Failure::during("cannot copy orders-0", error);
        assert_eq!(
            chain(&failure),
            "cannot copy orders-0\n  caused by: cannot read /a/b\n  caused by: no such file"
        );
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let closed = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(closed.exit_code(), 0);
        let full = Failure::from(io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(full.exit_code(), 1);
    }
}
