//! A partition's report, added up manifest by manifest.

use std::collections::BTreeSet;

use super::attestation::Attestation;
use super::finding::{Problem, VerifyBreak, VerifyBreakKind};
use super::index::{Entry, Index};
use super::listing::{Artifacts, Listing};
use super::report::{
    EpochSpan, OffsetGap, OffsetOverlap, OrphanClass, OrphanObject, PartitionVerifyReport, SAMPLE,
};
use super::request::VerifyRequest;
use crate::archive::format::{ChainHead, EpochId, ManifestSeq};
use crate::layout::parse_segment_file_name;

/// What accepted manifests add up to.
pub(super) struct Tally<'a> {
    listing: &'a Listing,
    index: &'a Index,
    report: PartitionVerifyReport,
    /// Offsets of each accepted manifest, both inclusive.
    covered: Vec<(i64, i64)>,
    /// Positions that must be accepted and were not yet.
    awaited: BTreeSet<(EpochId, ManifestSeq, ChainHead)>,
    expected_head: Option<ChainHead>,
    /// The last accepted manifest.
    last: Option<&'a Entry>,
    /// The first that are not attested.
    unattested: Vec<&'a Entry>,
}

impl<'a> Tally<'a> {
    pub(super) fn new(request: &VerifyRequest, listing: &'a Listing, index: &'a Index) -> Self {
        let expected = request.expected_in(listing.directory()).iter();
        Self {
            listing,
            index,
            report: PartitionVerifyReport {
                partition_dir: listing.directory().to_owned(),
                ..PartitionVerifyReport::default()
            },
            covered: Vec::new(),
            awaited: expected
                .map(|position| (position.epoch_id, position.seq, position.head))
                .collect(),
            expected_head: request.expect_head,
            last: None,
            unattested: Vec::new(),
        }
    }

    /// Whether nothing is known from elsewhere.
    pub(super) fn expects_nothing(&self) -> bool {
        self.awaited.is_empty() && self.expected_head.is_none()
    }

    /// Adds an accepted manifest, of whose objects all but `unread` were checked.
    pub(super) fn accept(&mut self, entry: &'a Entry, unread: u64) {
        let report = &mut self.report;
        let row = self.listing.row(entry.row);
        let epoch_id = self.index.epochs[entry.epoch as usize];
        report.manifests += 1;
        if let Some(objects) = entry.objects {
            report.objects_checked += u64::from(objects.listed.len()).saturating_sub(unread);
            for suffix in objects.listed.suffixes() {
                let created = Artifacts::from_suffix(suffix)
                    .is_some_and(|artifact| objects.created.contains(artifact));
                let protection = if created {
                    &mut report.create_precondition_objects
                } else {
                    &mut report.bucket_retention_objects
                };
                protection.add(|| self.listing.key(&row.file_name(suffix)));
            }
        }
        match entry.attestation {
            Attestation::Unsigned => report.unsigned_manifests += 1,
            Attestation::Untrusted => report.untrusted_manifests += 1,
            _ => {}
        }
        if entry.attestation != Attestation::Trusted && self.unattested.len() < SAMPLE {
            self.unattested.push(entry);
        }
        match report.epochs.last_mut() {
            Some(span) if span.epoch_id == epoch_id => {
                span.last_seq = entry.seq;
                span.manifests += 1;
                span.start_offset = span.start_offset.min(row.start_offset);
                span.end_offset = span.end_offset.max(entry.end_offset);
                span.head = entry.head;
            }
            _ => report.epochs.push(EpochSpan {
                epoch_id,
                first_seq: entry.seq,
                last_seq: entry.seq,
                manifests: 1,
                start_offset: row.start_offset,
                end_offset: entry.end_offset,
                head: entry.head,
            }),
        }
        report.head = Some(entry.head);
        self.covered.push((row.start_offset, entry.end_offset));
        self.awaited.remove(&(epoch_id, entry.seq, entry.head));
        self.last = Some(entry);
    }

    /// The first accepted manifests that are not attested.
    pub(super) fn unattested(&self) -> &[&'a Entry] {
        &self.unattested
    }

    /// The report. A break that is known goes before one that is found here, at the tip.
    pub(super) fn finish(
        mut self,
        first_break: Option<VerifyBreak>,
        orphans: &BTreeSet<String>,
    ) -> PartitionVerifyReport {
        let tip_break = match self.tip_problem() {
            Some(problem) if first_break.is_none() => Some(self.at_the_tip(problem)),
            _ => None,
        };
        self.covered.sort_unstable();
        let mut report = self.report;
        report.first_break = first_break.or(tip_break);
        (report.offset_gaps, report.offset_overlaps) = gaps_and_overlaps(&self.covered);
        report.orphan_objects = orphans
            .iter()
            .map(|name| OrphanObject {
                key: self.listing.key(name),
                class: class(name, self.listing, &self.covered),
            })
            .collect();
        report
    }

    /// What is wrong with where the chain ends, by what is known from elsewhere.
    pub(super) fn tip_problem(&self) -> Option<Problem> {
        // A manifest that could not be read may be the one that was expected.
        if !self.index.unreadable.is_empty() {
            return None;
        }
        if let Some((epoch_id, seq, head)) = self.awaited.first() {
            let reason =
                format!("no manifest with head {head} at position {seq} of run {epoch_id}");
            return Some(Problem::new(VerifyBreakKind::Tip, reason));
        }
        let expected = self.expected_head?;
        let tip = self.report.head.unwrap_or(ChainHead::GENESIS);
        let reason = format!("expected {expected} as the last head, found {tip}");
        (tip != expected).then(|| Problem::new(VerifyBreakKind::Tip, reason))
    }

    fn at_the_tip(&self, problem: Problem) -> VerifyBreak {
        match self.last {
            Some(entry) => problem.at(self.listing.manifest_key(entry.row), Some(entry.seq)),
            None => problem.at(self.listing.directory().to_owned(), None),
        }
    }
}

/// Gaps and overlaps between sorted ranges, both ends inclusive.
fn gaps_and_overlaps(covered: &[(i64, i64)]) -> (Vec<OffsetGap>, Vec<OffsetOverlap>) {
    let (mut gaps, mut overlaps) = (Vec::new(), Vec::new());
    let mut ranges = covered.iter();
    let Some(&(_, mut last)) = ranges.next() else {
        return (gaps, overlaps);
    };
    for (start, end) in ranges {
        if *start > last.saturating_add(1) {
            gaps.push(OffsetGap {
                after: last,
                before: *start,
            });
        } else if *start <= last {
            overlaps.push(OffsetOverlap {
                first: *start,
                last: last.min(*end),
            });
        }
        last = last.max(*end);
    }
    (gaps, overlaps)
}

/// Why a name may be there that no manifest names; `covered` is sorted.
fn class(name: &str, listing: &Listing, covered: &[(i64, i64)]) -> OrphanClass {
    let file = parse_segment_file_name(name)
        .filter(|file| Artifacts::from_suffix(file.suffix).is_some())
        .filter(|_| !listing.is_irregular(name));
    let Some(file) = file else {
        return OrphanClass::Foreign;
    };
    let at = covered.partition_point(|(start, _)| *start < file.base_offset);
    match covered.get(at) {
        Some((start, _)) if *start == file.base_offset => OrphanClass::Superseded,
        _ => OrphanClass::Uncommitted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_behind_the_highest_offset_so_far_and_overlaps_before_it() {
        let (gaps, overlaps) =
            gaps_and_overlaps(&[(0, 9), (10, 19), (12, 14), (15, 30), (40, 49), (50, 59)]);
        assert_eq!(
            gaps,
            [OffsetGap {
                after: 30,
                before: 40
            }]
        );
        assert_eq!(
            overlaps,
            [
                OffsetOverlap {
                    first: 12,
                    last: 14
                },
                OffsetOverlap {
                    first: 15,
                    last: 19
                },
            ]
        );
        assert_eq!(gaps_and_overlaps(&[]), (Vec::new(), Vec::new()));
        let (gaps, overlaps) = gaps_and_overlaps(&[(0, i64::MAX), (i64::MAX, i64::MAX)]);
        assert!(gaps.is_empty());
        assert_eq!(
            overlaps,
            [OffsetOverlap {
                first: i64::MAX,
                last: i64::MAX
            }]
        );
    }
}
