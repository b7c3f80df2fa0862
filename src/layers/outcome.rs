//! How a call ended: one word, the same in metrics and spans.

use crate::error::{ErrorKind, RemoteStorageError};

/// How a call ended. Its word is the label `outcome`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It answered.
    Ok,
    /// It was dropped before it answered.
    Cancelled,
    /// It failed.
    Failed(ErrorKind),
}

impl Outcome {
    /// Every outcome, each at its [`index`](Self::index).
    pub(super) const ALL: [Self; 14] = [
        Self::Ok,
        Self::Cancelled,
        Self::Failed(ErrorKind::ALL[0]),
        Self::Failed(ErrorKind::ALL[1]),
        Self::Failed(ErrorKind::ALL[2]),
        Self::Failed(ErrorKind::ALL[3]),
        Self::Failed(ErrorKind::ALL[4]),
        Self::Failed(ErrorKind::ALL[5]),
        Self::Failed(ErrorKind::ALL[6]),
        Self::Failed(ErrorKind::ALL[7]),
        Self::Failed(ErrorKind::ALL[8]),
        Self::Failed(ErrorKind::ALL[9]),
        Self::Failed(ErrorKind::ALL[10]),
        Self::Failed(ErrorKind::ALL[11]),
    ];

    pub(super) fn of<T>(result: &Result<T, RemoteStorageError>) -> Self {
        match result {
            Ok(_) => Self::Ok,
            Err(error) => Self::Failed(error.kind()),
        }
    }

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Cancelled => "cancelled",
            Self::Failed(kind) => kind.as_str(),
        }
    }

    /// The place in tables with one entry per outcome.
    pub(super) const fn index(self) -> usize {
        match self {
            Self::Ok => 0,
            Self::Cancelled => 1,
            Self::Failed(kind) => 2 + kind as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_stands_at_its_index() {
        for (index, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome.index(), index, "{outcome:?}");
        }
        assert_eq!(Outcome::ALL.len(), 2 + ErrorKind::ALL.len());
    }
}
