//! How to react to an error.

/// What a caller can do about an error. Stable: it is also the metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Look at the local disk.
    Io,
    /// There is no such segment, object or index.
    NotFound,
    /// Fix the call or the configuration.
    Invalid,
    /// Something else stands where the call wanted to write.
    Conflict,
    /// The archive forbids it, whatever the arguments.
    Refused,
    /// Try again later.
    Unavailable,
    /// The store answered, and the answer will not change by itself: fix permissions or the
    /// request.
    Rejected,
    /// Time ran out.
    TimedOut,
    /// Repeat the call to learn what became of it.
    OutcomeUnknown,
    /// Bytes are damaged.
    Corrupt,
    /// Try again when the metadata has caught up.
    NotReady,
    /// The handle was closed: open another one.
    Closed,
}

impl ErrorKind {
    /// Every kind.
    pub const ALL: [Self; 12] = [
        Self::Io,
        Self::NotFound,
        Self::Invalid,
        Self::Conflict,
        Self::Refused,
        Self::Unavailable,
        Self::Rejected,
        Self::TimedOut,
        Self::OutcomeUnknown,
        Self::Corrupt,
        Self::NotReady,
        Self::Closed,
    ];

    /// The stable name, used as the metric label `outcome`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Io => "io",
            Self::NotFound => "not_found",
            Self::Invalid => "invalid",
            Self::Conflict => "conflict",
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
            Self::Rejected => "rejected",
            Self::TimedOut => "timed_out",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::Corrupt => "corrupt",
            Self::NotReady => "not_ready",
            Self::Closed => "closed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reactions_have_labels_of_their_own() {
        assert_eq!(
            ErrorKind::ALL.map(ErrorKind::as_str),
            [
                "io",
                "not_found",
                "invalid",
                "conflict",
                "refused",
                "unavailable",
                "rejected",
                "timed_out",
                "outcome_unknown",
                "corrupt",
                "not_ready",
                "closed"
            ]
        );
    }
}
