//! The chain that ties a partition's manifests together: positions and heads.
//!
//! Each partition has a chain of manifests. A run of it, an *epoch*, begins at position 0 over
//! [`ChainHead::GENESIS`]; each further manifest names the head of the one before. A writer that
//! cannot know where the chain stands opens a new epoch: that is visible for ever, and harmless,
//! whereas two manifests at one position are a fork that nobody can repair.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::digest::hex_32;
use super::json;

/// A manifest's position in its epoch, counted from 0.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ManifestSeq(pub u64);

impl ManifestSeq {
    /// The next position; `None` behind the last.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }
}

impl fmt::Display for ManifestSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The id of one unbroken run of a partition's chain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EpochId(#[serde(with = "json::hyphenated")] pub Uuid);

impl EpochId {
    /// A random id.
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

impl fmt::Display for EpochId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl fmt::Debug for EpochId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EpochId({self})")
    }
}

hex_32! {
    /// What a manifest is known by to the next one: a digest over its content, its position and
    /// the head before it (see [`manifest_head`](super::manifest_head)).
    ChainHead
}

impl ChainHead {
    /// The head before the first manifest of an epoch.
    pub const GENESIS: Self = Self([0; 32]);
}

/// A place in a chain: what the next manifest has to say of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChainStamp {
    /// The run.
    pub epoch_id: EpochId,
    /// The position in the run.
    pub seq: ManifestSeq,
    /// The head of the manifest before.
    pub prev_head: ChainHead,
}

impl ChainStamp {
    /// The first place of a new epoch.
    pub fn genesis(epoch_id: EpochId) -> Self {
        Self {
            epoch_id,
            seq: ManifestSeq(0),
            prev_head: ChainHead::GENESIS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: EpochId = EpochId(Uuid::from_u128(10));

    #[test]
    fn heads_and_ids_have_one_text() {
        assert_eq!(ChainHead::GENESIS.to_string(), "0".repeat(64));
        assert_eq!(
            format!("{:?}", ChainHead([0xab; 32])),
            format!("ChainHead({})", "ab".repeat(32))
        );
        assert_eq!(A.to_string(), "00000000-0000-0000-0000-00000000000a");
        assert_eq!(ManifestSeq(u64::MAX).next(), None);
        assert_eq!(ManifestSeq(0).next(), Some(ManifestSeq(1)));
    }
}
