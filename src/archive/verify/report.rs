//! What a verification found.

use std::collections::BTreeMap;

use serde::Serialize;

use super::finding::VerifyBreak;
use super::request::ExpectedPosition;
use crate::archive::format::{ChainHead, EpochId, ManifestSeq};

/// How many keys a sample has at most.
pub(super) const SAMPLE: usize = 10;

/// What a verification found: all of it is data, and the same archive gives an equal report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ArchiveVerifyReport {
    /// The partitions, by directory.
    pub partitions: Vec<PartitionVerifyReport>,
    /// Keys outside of every partition's directory that have no business there, sorted.
    pub global_orphan_objects: Vec<String>,
}

impl ArchiveVerifyReport {
    /// Whether every partition is [`ok`](PartitionVerifyReport::ok), and nothing else is there.
    ///
    /// An archive without partitions is ok too: a caller that expects some has to ask.
    pub fn ok(&self) -> bool {
        self.global_orphan_objects.is_empty() && self.partitions.iter().all(|p| p.ok)
    }

    /// Manifests that were accepted.
    pub fn manifests(&self) -> u64 {
        let each = self.partitions.iter().map(|p| p.manifests);
        each.fold(0, u64::saturating_add)
    }

    /// The first partition's break.
    pub fn first_break(&self) -> Option<&VerifyBreak> {
        let mut breaks = self.partitions.iter().map(|p| p.first_break.as_ref());
        breaks.find_map(|first_break| first_break)
    }

    /// Whether each accepted manifest carries a signature by a trusted key.
    pub fn fully_attested(&self) -> bool {
        self.partitions
            .iter()
            .all(|p| p.unsigned_manifests == 0 && p.untrusted_manifests == 0)
    }

    /// Whether some partition's chain was begun anew.
    pub fn has_epoch_restarts(&self) -> bool {
        self.partitions.iter().any(|p| p.epochs.len() > 1)
    }

    /// The last accepted manifest of each run, by directory: to be kept elsewhere and given to the
    /// next verification as
    /// [`expect_positions`](super::VerifyRequest::expect_positions).
    pub fn positions(&self) -> BTreeMap<String, Vec<ExpectedPosition>> {
        let positions = |partition: &PartitionVerifyReport| {
            let spans = partition.epochs.iter();
            spans
                .map(|span| ExpectedPosition {
                    epoch_id: span.epoch_id,
                    seq: span.last_seq,
                    head: span.head,
                })
                .collect()
        };
        self.partitions
            .iter()
            .map(|partition| (partition.partition_dir.clone(), positions(partition)))
            .collect()
    }
}

/// What was found in one partition's directory.
///
/// Counts, spans, gaps and overlaps are over accepted manifests: those before the walk along the
/// chain stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PartitionVerifyReport {
    /// The directory's key.
    pub partition_dir: String,
    /// No break, every manifest attested, no orphans, and all of it readable.
    pub ok: bool,
    /// What is wrong, if anything is.
    pub first_break: Option<VerifyBreak>,
    /// Manifests that were accepted.
    pub manifests: u64,
    /// Objects of these that were checked, by size or (at depth) by content.
    pub objects_checked: u64,
    /// Objects whose store guaranteed that nothing stood under their keys before.
    pub create_precondition_objects: ObjectProtectionReport,
    /// Objects that were written behind a reservation, so that the bucket's retention protects
    /// them and what stood there before.
    pub bucket_retention_objects: ObjectProtectionReport,
    /// Objects of which it is not known. Always none, as format 1 is not verified.
    pub unknown_protection_objects: ObjectProtectionReport,
    /// The runs with accepted manifests, in the order of their lowest offsets.
    pub epochs: Vec<EpochSpan>,
    /// The runs of all readable manifests, also one that is broken at its first; none where the
    /// chain was not walked along.
    pub runs: u64,
    /// Manifests without a signature.
    pub unsigned_manifests: u64,
    /// Manifests signed under a name that is not trusted.
    pub untrusted_manifests: u64,
    /// The first few of both.
    pub unattested: Vec<UnattestedManifest>,
    /// Objects that no readable manifest names, sorted by key.
    pub orphan_objects: Vec<OrphanObject>,
    /// Objects and manifests that could not be read, sorted by key. It says nothing about them.
    pub unreadable_objects: Vec<UnreadableObject>,
    /// Offsets that no manifest covers, between some that one does: for information.
    pub offset_gaps: Vec<OffsetGap>,
    /// Offsets that more than one manifest covers: for information.
    pub offset_overlaps: Vec<OffsetOverlap>,
    /// The head of the last accepted manifest in the last run.
    pub head: Option<ChainHead>,
}

/// Objects that are protected in one way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ObjectProtectionReport {
    /// Their number.
    pub count: u64,
    /// The keys of the first ten.
    pub sample: Vec<String>,
}

impl ObjectProtectionReport {
    pub(super) fn add(&mut self, key: impl FnOnce() -> String) {
        self.count += 1;
        if self.sample.len() < SAMPLE {
            self.sample.push(key());
        }
    }
}

/// One run of a partition's chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct EpochSpan {
    /// The run.
    pub epoch_id: EpochId,
    /// The position of its first accepted manifest.
    pub first_seq: ManifestSeq,
    /// The position of its last.
    pub last_seq: ManifestSeq,
    /// How many there are.
    pub manifests: u64,
    /// The lowest offset in them.
    pub start_offset: i64,
    /// The highest offset in them, inclusive.
    pub end_offset: i64,
    /// The head of the last.
    pub head: ChainHead,
}

/// A manifest that no trusted key attests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UnattestedManifest {
    /// The manifest's key.
    pub manifest_key: String,
    /// The name under which it is signed; `None` for an unsigned one.
    pub key_id: Option<String>,
}

/// Why an object may be there that no manifest names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OrphanClass {
    /// An attempt to copy a segment that another attempt then copied: its start offset is that of
    /// an accepted manifest.
    Superseded,
    /// An attempt to copy a segment that has no manifest.
    Uncommitted,
    /// Nothing that a copy writes.
    Foreign,
}

impl OrphanClass {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Superseded => "superseded",
            Self::Uncommitted => "uncommitted",
            Self::Foreign => "foreign",
        }
    }
}

/// An object that no manifest names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[non_exhaustive]
pub struct OrphanObject {
    /// Its key.
    pub key: String,
    /// Why it may be there.
    pub class: OrphanClass,
}

/// An object that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[non_exhaustive]
pub struct UnreadableObject {
    /// Its key.
    pub key: String,
    /// What the store said.
    pub reason: String,
}

/// Offsets between two segments that no segment covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OffsetGap {
    /// The last offset before the gap.
    pub after: i64,
    /// The first offset behind it.
    pub before: i64,
}

/// Offsets that a segment covers again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OffsetOverlap {
    /// The first of them.
    pub first: i64,
    /// The last of them, inclusive.
    pub last: i64,
}
