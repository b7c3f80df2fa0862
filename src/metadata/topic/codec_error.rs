//! Why bytes are not an event, or not a part of a snapshot.

/// Why bytes could not be decoded.
///
/// Positions are in bytes from the start of what was decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// A snapshot ends in the middle of a field.
    #[error("the bytes end at byte {0}, in the middle of a field")]
    UnexpectedEof(usize),
    /// A state that Kafka does not define: its byte, and the type of state.
    #[error("{0} is no wire id of a {1}")]
    UnknownState(u8, &'static str),
    /// A length or a count beyond what its field can have, or beyond what is there.
    #[error("a length or count of {0} is more than can be")]
    LengthOverflow(u64),
    /// Well-formed bytes whose values contradict each other or name nothing that can be.
    #[error("{0}")]
    Domain(String),
    /// Bytes that are not in the format, or in a version of it that is not read here.
    #[error("{0}")]
    Protocol(String),
}
