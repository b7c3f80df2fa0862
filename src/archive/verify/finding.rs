//! What is wrong with a partition.

use std::fmt;

use serde::Serialize;

use crate::archive::format::{ManifestSeq, Printable};

/// The kinds of breaks, in the order in which they are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum VerifyBreakKind {
    /// A manifest is larger than manifests can be.
    Oversize,
    /// A manifest is not JSON of exactly a manifest's members and types.
    Decode,
    /// A manifest has another format than the one that is verified.
    Format,
    /// A manifest's bytes are not those that sealing its content writes.
    Encoding,
    /// A manifest is not where its content says, or names objects outside of its directory.
    Misplaced,
    /// A position is missing before this manifest.
    Sequence,
    /// Two validly signed manifests follow the same one.
    Fork,
    /// A second manifest claims a position that is taken.
    DuplicatePosition,
    /// A manifest does not name the head of the one before.
    Head,
    /// A manifest follows the last position that there is.
    Exhausted,
    /// A signature under a trusted name is not by the trusted key.
    Signature,
    /// A manifest lists no object.
    Empty,
    /// A manifest lists no `.log`.
    Incomplete,
    /// An object is listed twice.
    Duplicate,
    /// An object's name does not fit the segment.
    Coordinates,
    /// An object or a manifest is not there.
    Missing,
    /// The segment has objects that its manifest does not list.
    Count,
    /// An object has another size.
    Size,
    /// An object has another content.
    Digest,
    /// A manifest that was expected is not there.
    Tip,
}

impl VerifyBreakKind {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Oversize => "oversize",
            Self::Decode => "decode",
            Self::Format => "format",
            Self::Encoding => "encoding",
            Self::Misplaced => "misplaced",
            Self::Sequence => "sequence",
            Self::Fork => "fork",
            Self::DuplicatePosition => "duplicate_position",
            Self::Head => "head",
            Self::Exhausted => "exhausted",
            Self::Signature => "signature",
            Self::Empty => "empty",
            Self::Incomplete => "incomplete",
            Self::Duplicate => "duplicate",
            Self::Coordinates => "coordinates",
            Self::Missing => "missing",
            Self::Count => "count",
            Self::Size => "size",
            Self::Digest => "digest",
            Self::Tip => "tip",
        }
    }

    /// Whether an archive that is being written can look like this, because a listing is no
    /// snapshot.
    pub(super) fn may_pass(self) -> bool {
        matches!(self, Self::Sequence | Self::Missing | Self::Count)
    }
}

impl fmt::Display for VerifyBreakKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A proof that a partition is not as it was sealed.
///
/// `Display` is one line, whatever keys are in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct VerifyBreak {
    /// What is wrong.
    pub kind: VerifyBreakKind,
    /// The key of the manifest that it was found at; the directory's where there is none.
    pub manifest_key: String,
    /// That manifest's position, where it could be read.
    pub seq: Option<ManifestSeq>,
    /// What was expected and what was found. Text from the archive is escaped in it.
    pub reason: String,
}

impl fmt::Display for VerifyBreak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (seq ", Printable(&self.manifest_key))?;
        match self.seq {
            Some(seq) => seq.fmt(f)?,
            None => f.write_str("unknown")?,
        }
        write!(f, "): {}: {}", self.kind, self.reason)
    }
}

/// What is wrong with one manifest, before it is known where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) kind: VerifyBreakKind,
    pub(super) reason: String,
}

impl Problem {
    pub(super) fn new(kind: VerifyBreakKind, reason: impl Into<String>) -> Self {
        Self {
            kind,
            reason: reason.into(),
        }
    }

    pub(super) fn at(self, manifest_key: String, seq: Option<ManifestSeq>) -> VerifyBreak {
        VerifyBreak {
            kind: self.kind,
            manifest_key,
            seq,
            reason: self.reason,
        }
    }
}
