//! Why nothing can be said about an archive.

use std::error::Error;

use krabka_remote_storage::archive::Verdict;

/// The end of a run without a verdict on the archive.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The arguments do not fit together.
    #[error("{0}")]
    Usage(String),
    /// Something could not be read, listed or written.
    #[error("{what}")]
    Error {
        what: String,
        source: Box<dyn Error + Send + Sync>,
    },
    /// A signal asked the program to end.
    #[error("interrupted")]
    Interrupted,
}

impl Failure {
    pub(crate) fn during(
        what: impl Into<String>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self::Error {
            what: what.into(),
            source: source.into(),
        }
    }

    /// The exit code of the program.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Error { .. } => Verdict::Error.exit_code(),
            Self::Interrupted => 130,
        }
    }
}
