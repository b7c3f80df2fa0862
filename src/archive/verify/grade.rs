//! What a report comes to: one verdict, with the exit code that a program ends with.
//!
//! Findings are data in a report. Whether they are a reason to act depends on what is expected:
//! that is what [`GradeRules`] say.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use serde::Serialize;

use super::finding::VerifyBreakKind;
use super::report::{ArchiveVerifyReport, OrphanClass, PartitionVerifyReport, SAMPLE};
use crate::archive::format::{ChainHead, MANIFEST_SUFFIX, Printable};

/// What an archive's verification comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// Nothing is wrong.
    Ok,
    /// Something was changed, put in, or taken out so that what is left contradicts itself.
    Tamper,
    /// Objects or manifests are not there, and nothing else is wrong.
    Missing,
    /// Something could not be read or listed: it says nothing about the archive.
    Error,
    /// The archive does not hold, or does not end with, what was expected from elsewhere.
    HeadMismatch,
    /// Objects are there that no manifest names.
    Orphans,
    /// Manifests without a signature by a trusted key, or a chain that was begun anew.
    Attestation,
    /// There is no manifest.
    Empty,
}

impl Verdict {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Tamper => "tamper",
            Self::Missing => "missing",
            Self::Error => "error",
            Self::HeadMismatch => "head_mismatch",
            Self::Orphans => "orphans",
            Self::Attestation => "attestation",
            Self::Empty => "empty",
        }
    }

    /// The exit code of a program with this verdict; 2 is left for wrong command lines.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Tamper => 1,
            Self::Error => 3,
            Self::HeadMismatch => 4,
            Self::Attestation => 5,
            Self::Orphans => 6,
            Self::Empty => 7,
            Self::Missing => 8,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is expected of an archive, and what is let pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are independent, each with its own name in the documentation"
)]
pub struct GradeRules {
    /// The tip that each partition must have, unless [`expect_heads`](Self::expect_heads) names
    /// another.
    pub expect_head: Option<ChainHead>,
    /// By a directory's key, the tip of that partition, which must be there.
    pub expect_heads: BTreeMap<String, ChainHead>,
    /// Whether the report was made with pinned positions, so that there must be a partition.
    pub expects_partitions: bool,
    /// Lets a partition have more than one run.
    pub allow_epoch_restarts: bool,
    /// Takes what retried copies have left, and uploads that nobody has ended, for a fault too.
    pub strict_orphans: bool,
    /// Lets other objects be there that no manifest names.
    pub allow_orphans: bool,
    /// Lets an archive have no manifest.
    pub allow_empty: bool,
}

/// One line about an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// What it is about.
    pub verdict: Verdict,
    /// Whether it keeps the archive from being [`Ok`](Verdict::Ok); otherwise it is a note.
    pub fails: bool,
    /// One line, whatever keys are in it: control characters and what is not ASCII are escaped.
    pub text: String,
}

/// The verdict on an archive, with its reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grade {
    /// The verdict: that of the first finding that fails.
    pub verdict: Verdict,
    /// All that is worth a line: what decides first.
    pub findings: Vec<Finding>,
}

impl GradeRules {
    /// Grades a report.
    ///
    /// `open_uploads` are the keys of uploads that nobody has ended, or why they could not be
    /// listed; a store that has none gives an empty list.
    ///
    /// The order of the findings: breaks, what could not be read, expected heads, orphans,
    /// restarts, attestation, open uploads, emptiness. Something unreadable decides only where
    /// there is no break; and where all breaks are objects or manifests that are missing, the
    /// verdict is [`Missing`](Verdict::Missing).
    pub fn grade(
        &self,
        report: &ArchiveVerifyReport,
        open_uploads: Result<&[String], &str>,
    ) -> Grade {
        let mut findings = Findings::default();
        findings.breaks(report);
        findings.unreadable(report);
        self.heads(report, &mut findings);
        self.orphans(report, &mut findings);
        self.attestation(report, &mut findings);
        self.uploads(open_uploads, &mut findings);
        if report.manifests() == 0 {
            let text = "EMPTY ARCHIVE: no manifest was accepted; a wrong prefix looks the same";
            findings.add(Verdict::Empty, !self.allow_empty, text);
        }
        Grade {
            verdict: findings.verdict(),
            findings: findings.0,
        }
    }

    fn heads(&self, report: &ArchiveVerifyReport, findings: &mut Findings) {
        let mut mismatch = |expected: ChainHead, directory: &str, found: &str| {
            let directory = Printable(directory);
            findings.add(
                Verdict::HeadMismatch,
                true,
                format!("HEAD MISMATCH: expected {expected}, archive tip {found}, in {directory}"),
            );
        };
        for partition in &report.partitions {
            let directory = partition.partition_dir.as_str();
            let Some(expected) = self
                .expect_heads
                .get(directory)
                .or(self.expect_head.as_ref())
            else {
                continue;
            };
            let tip = partition.head.unwrap_or(ChainHead::GENESIS);
            if tip == *expected || has_unreadable_manifest(partition) {
                continue;
            }
            if tip == ChainHead::GENESIS {
                mismatch(*expected, directory, "GENESIS");
            } else {
                mismatch(*expected, directory, &tip.to_string());
            }
        }
        let partitions = report.partitions.iter();
        let there: BTreeSet<&str> = partitions.map(|p| p.partition_dir.as_str()).collect();
        for (directory, expected) in &self.expect_heads {
            if !there.contains(directory.as_str()) {
                mismatch(*expected, directory, "none (the directory is not there)");
            }
        }
        let expects = self.expect_head.is_some() || self.expects_partitions;
        if report.partitions.is_empty() && expects {
            let text = match self.expect_head {
                Some(head) => format!("HEAD MISMATCH: expected {head}, and no partition is there"),
                None => "HEAD MISMATCH: pinned positions were given, and no partition is there"
                    .to_owned(),
            };
            findings.add(Verdict::HeadMismatch, true, text);
        }
    }

    fn orphans(&self, report: &ArchiveVerifyReport, findings: &mut Findings) {
        let of_class = |class: OrphanClass| {
            let partitions = report.partitions.iter();
            partitions
                .flat_map(|partition| &partition.orphan_objects)
                .filter(move |orphan| orphan.class == class)
                .map(|orphan| orphan.key.as_str())
        };
        let global = report.global_orphan_objects.iter().map(String::as_str);
        let strict = self.strict_orphans;
        let others = strict || !self.allow_orphans;
        let (superseded, uncommitted) = (OrphanClass::Superseded, OrphanClass::Uncommitted);
        let foreign = OrphanClass::Foreign;
        findings.keys(strict, orphans_of(superseded), of_class(superseded));
        findings.keys(others, orphans_of(uncommitted), of_class(uncommitted));
        findings.keys(others, orphans_of(foreign), of_class(foreign));
        findings.keys(
            others,
            "ORPHAN OBJECTS (outside of every partition)",
            global,
        );
    }

    fn attestation(&self, report: &ArchiveVerifyReport, findings: &mut Findings) {
        let restarts = |p: &PartitionVerifyReport| p.runs.saturating_sub(1);
        let restarts: u64 = report.partitions.iter().map(restarts).sum();
        if restarts > 0 {
            let text = format!("INCOMPLETE ATTESTATION: chain restarted {restarts} time(s)");
            findings.add(Verdict::Attestation, !self.allow_epoch_restarts, text);
        }
        let sum = |count: fn(&PartitionVerifyReport) -> u64| -> u64 {
            report.partitions.iter().map(count).sum()
        };
        let unsigned = sum(|partition| partition.unsigned_manifests);
        let untrusted = sum(|partition| partition.untrusted_manifests);
        if unsigned > 0 || untrusted > 0 {
            let mut text =
                format!("INCOMPLETE ATTESTATION: {unsigned} unsigned, {untrusted} untrusted");
            let sample = report.partitions.iter().flat_map(|p| &p.unattested);
            for manifest in sample.take(SAMPLE) {
                let _ = write!(text, "; {}", Printable(&manifest.manifest_key));
                let _ = match &manifest.key_id {
                    Some(key_id) => write!(text, " by `{}`", Printable(key_id)),
                    None => write!(text, " unsigned"),
                };
            }
            findings.add(Verdict::Attestation, true, text);
        }
    }

    fn uploads(&self, open_uploads: Result<&[String], &str>, findings: &mut Findings) {
        match open_uploads {
            Ok(keys) => {
                let keys = keys.iter().map(String::as_str);
                findings.keys(self.strict_orphans, "INCOMPLETE MULTIPART UPLOADS", keys);
            }
            Err(reason) => {
                let reason = Printable(reason);
                let text = format!("ERROR: open multipart uploads could not be listed: {reason}");
                findings.add(Verdict::Error, true, text);
            }
        }
    }
}

/// Whether it cannot be told where the partition ends.
fn has_unreadable_manifest(partition: &PartitionVerifyReport) -> bool {
    let mut unreadable = partition.unreadable_objects.iter();
    unreadable.any(|object| object.key.ends_with(MANIFEST_SUFFIX))
}

fn orphans_of(class: OrphanClass) -> &'static str {
    match class {
        OrphanClass::Superseded => "ORPHAN OBJECTS (superseded: left by copies that were retried)",
        OrphanClass::Uncommitted => {
            "ORPHAN OBJECTS (uncommitted: left by copies without a manifest)"
        }
        OrphanClass::Foreign => "ORPHAN OBJECTS (foreign)",
    }
}

/// Findings in the order in which they decide.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, verdict: Verdict, fails: bool, text: impl Into<String>) {
        let text = text.into();
        self.0.push(Finding {
            verdict,
            fails,
            text,
        });
    }

    /// What is missing or changed, and then which pinned positions are not there.
    fn breaks(&mut self, report: &ArchiveVerifyReport) {
        let breaks = || {
            report
                .partitions
                .iter()
                .filter_map(|p| p.first_break.as_ref())
        };
        for found in breaks() {
            match found.kind {
                VerifyBreakKind::Tip => {}
                VerifyBreakKind::Missing => {
                    self.add(Verdict::Missing, true, format!("MISSING at {found}"));
                }
                _ => self.add(Verdict::Tamper, true, format!("TAMPER DETECTED at {found}")),
            }
        }
        for found in breaks().filter(|found| found.kind == VerifyBreakKind::Tip) {
            self.add(
                Verdict::HeadMismatch,
                true,
                format!("HEAD MISMATCH at {found}"),
            );
        }
    }

    fn unreadable(&mut self, report: &ArchiveVerifyReport) {
        for object in report.partitions.iter().flat_map(|p| &p.unreadable_objects) {
            let (key, reason) = (Printable(&object.key), &object.reason);
            self.add(
                Verdict::Error,
                true,
                format!("ERROR: {key} could not be read: {reason}"),
            );
        }
    }

    /// The first few of some keys, and how many there are.
    fn keys<'a>(&mut self, fails: bool, title: &str, keys: impl Iterator<Item = &'a str>) {
        let (mut text, mut count) = (String::new(), 0_u64);
        for key in keys {
            count += 1;
            if count <= SAMPLE as u64 {
                let separator = if count == 1 { "" } else { ", " };
                let _ = write!(text, "{separator}{}", Printable(key));
            }
        }
        if count == 0 {
            return;
        }
        if count > SAMPLE as u64 {
            let _ = write!(text, " and {} more", count - SAMPLE as u64);
        }
        let verdict = Verdict::Orphans;
        self.add(verdict, fails, format!("{title}: {count}: {text}"));
    }

    fn verdict(&self) -> Verdict {
        let failing = || self.0.iter().filter(|finding| finding.fails);
        if failing().any(|finding| finding.verdict == Verdict::Tamper) {
            return Verdict::Tamper;
        }
        failing()
            .next()
            .map_or(Verdict::Ok, |finding| finding.verdict)
    }
}
