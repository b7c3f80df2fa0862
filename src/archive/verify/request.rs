//! What is to be verified, how deeply, and against what.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::archive::format::{ChainHead, EpochId, ManifestSeq};

/// Whether the bodies of objects are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum VerifyDepth {
    /// Objects are there and have the size that their manifest says: no body is read.
    #[default]
    Shallow,
    /// Each body has the digest that its manifest says.
    Deep,
}

/// A manifest that must be in the archive: written down elsewhere when it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedPosition {
    /// The run.
    pub epoch_id: EpochId,
    /// The position in the run.
    pub seq: ManifestSeq,
    /// The manifest's head.
    pub head: ChainHead,
}

/// What is to be verified, and what is known of it from elsewhere.
///
/// An archive alone cannot show that its newest manifests, whole runs or whole partitions were
/// removed. [`expect_positions`](Self::expect_positions) does: it pins what an earlier report saw
/// (see [`ArchiveVerifyReport::positions`](super::ArchiveVerifyReport::positions)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyRequest {
    /// Front part of the keys to look at, in whole path components; slashes around it are ignored.
    /// `None` looks at the whole store.
    pub prefix: Option<String>,
    /// Only partitions of the topic with this name: by the directory's name, or by what one of its
    /// manifests says. To know the latter, all manifests are read.
    pub topic: Option<String>,
    /// Only partitions with this index, likewise.
    pub partition: Option<i32>,
    /// Whether bodies are read.
    pub depth: VerifyDepth,
    /// What each partition's tip must be. It holds until the next manifest is written, and says
    /// nothing about earlier runs.
    pub expect_head: Option<ChainHead>,
    /// By a directory's key, manifests that must be in it. Each directory must be there, unless
    /// `topic` or `partition` leave it out by name; more manifests and directories may be.
    pub expect_positions: Option<BTreeMap<String, Vec<ExpectedPosition>>>,
    /// Whether whoever grades the report takes more than one run for normal. It changes no report.
    pub allow_epoch_restarts: bool,
    /// Keys that were proven by other means, so that they are no orphans. Manifests, and names
    /// that a segment's objects have, never become exempt.
    pub externally_authenticated_objects: BTreeSet<String>,
}

impl VerifyRequest {
    /// Whether this partition is meant.
    pub(super) fn selects(&self, topic: &str, partition: i32) -> bool {
        self.topic.as_deref().is_none_or(|wanted| wanted == topic)
            && self.partition.is_none_or(|wanted| wanted == partition)
    }

    /// The manifests that must be in this directory.
    pub(super) fn expected_in(&self, directory: &str) -> &[ExpectedPosition] {
        self.expect_positions
            .as_ref()
            .and_then(|positions| positions.get(directory))
            .map_or(&[], Vec::as_slice)
    }
}
