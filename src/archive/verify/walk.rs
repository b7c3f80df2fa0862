//! The walk along a partition's chain.
//!
//! Runs follow each other by their lowest offsets; within a run manifests go by position, and at
//! one position the best attested comes first, so that a forged one never takes its place.

use super::finding::{Problem, VerifyBreakKind};
use super::index::{Entry, Index};
use super::listing::Listing;
use crate::archive::format::{ChainHead, ManifestSeq};

/// How far the walk along a directory's chain came.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// All manifests, by their places in [`Index::entries`], in the order of the walk.
    pub(super) order: Vec<u32>,
    /// How many of them were accepted.
    pub(super) accepted: usize,
    /// What is wrong with the next one. For its objects only the fact is known yet.
    pub(super) stop: Option<Stop>,
    /// The runs.
    pub(super) runs: u64,
}

/// Why a walk stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// At the manifest's place or signature.
    Chain(Problem),
    /// At its objects.
    Objects,
}

impl Walk {
    /// Walks as far as the chain, the signatures and the listed objects are in order.
    pub(super) fn along(index: &Index, listing: &Listing) -> Self {
        let order = order(index, listing);
        let mut walk = Self {
            runs: run_count(index, &order),
            ..Self::default()
        };
        let mut run = Run::default();
        let mut epoch = None;
        // Each may be the one that a gap in the positions stands for.
        let mut unreadable = index.unreadable.len() as u64;
        for at in &order {
            let entry = &index.entries[*at as usize];
            if epoch.replace(entry.epoch) != Some(entry.epoch) {
                run = Run::default();
            }
            walk.stop = run
                .step(entry, &mut unreadable)
                .and_then(|()| check_signature(entry))
                .map_or_else(
                    |problem| Some(Stop::Chain(problem)),
                    |()| entry.objects.is_none().then_some(Stop::Objects),
                );
            if walk.stop.is_some() {
                break;
            }
            walk.accepted += 1;
        }
        walk.order = order;
        walk
    }

    /// The manifests that were accepted, in order.
    pub(super) fn accepted<'i>(&self, index: &'i Index) -> impl Iterator<Item = &'i Entry> {
        self.order[..self.accepted]
            .iter()
            .map(|at| &index.entries[*at as usize])
    }

    /// The manifest at which the walk stopped.
    pub(super) fn stopped_at<'a>(&self, index: &'a Index) -> Option<&'a Entry> {
        self.stop.as_ref()?;
        let at = self.order.get(self.accepted)?;
        index.entries.get(*at as usize)
    }

    /// The first manifest, in the order of the walk, whose signature contradicts its trusted key;
    /// whether the walk came so far or not.
    pub(super) fn first_forged<'a>(&self, index: &'a Index) -> Option<(&'a Entry, Problem)> {
        self.order.iter().find_map(|at| {
            let entry = &index.entries[*at as usize];
            Some((entry, check_signature(entry).err()?))
        })
    }
}

fn order(index: &Index, listing: &Listing) -> Vec<u32> {
    let mut lowest = vec![i64::MAX; index.epochs.len()];
    for entry in &index.entries {
        let lowest = &mut lowest[entry.epoch as usize];
        *lowest = (*lowest).min(listing.row(entry.row).start_offset);
    }
    let count = u32::try_from(index.entries.len()).unwrap_or(u32::MAX);
    let mut order: Vec<u32> = (0..count).collect();
    order.sort_unstable_by(|a, b| {
        let (a, b) = (&index.entries[*a as usize], &index.entries[*b as usize]);
        let run = |entry: &Entry| {
            let epoch = entry.epoch as usize;
            (lowest[epoch], index.epochs[epoch])
        };
        let place = |entry: &Entry| (entry.seq, entry.attestation.rank());
        // Names are compared as text, and seldom: only where positions are claimed twice.
        let name = |entry: &Entry| listing.row(entry.row).file_name("");
        run(a)
            .cmp(&run(b))
            .then_with(|| place(a).cmp(&place(b)))
            .then_with(|| name(a).cmp(&name(b)))
    });
    order
}

fn run_count(index: &Index, order: &[u32]) -> u64 {
    let epoch = |at: &u32| index.entries[*at as usize].epoch;
    order.chunk_by(|a, b| epoch(a) == epoch(b)).count() as u64
}

/// Where the walk is in a run.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// The next position; `None` behind the last.
    expected: Option<ManifestSeq>,
    /// The head that the next manifest names; `None` behind manifests that could not be read.
    head: Option<ChainHead>,
    /// What the manifest before named, and whether it is validly signed.
    last: Option<(ChainHead, bool)>,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            expected: Some(ManifestSeq(0)),
            head: Some(ChainHead::GENESIS),
            last: None,
        }
    }
}

impl Run {
    /// Goes on to this manifest, if its place is the next.
    ///
    /// A gap is no break as long as it may be made of manifests that could not be read, of which
    /// `unreadable` are left.
    fn step(&mut self, entry: &Entry, unreadable: &mut u64) -> Result<(), Problem> {
        let Some(expected) = self.expected else {
            let reason = format!("position {} is behind the last that there is", entry.seq);
            return Err(Problem::new(VerifyBreakKind::Exhausted, reason));
        };
        let is_trusted = entry.attestation.rank() == 0;
        if entry.seq < expected {
            let is_fork = self.last == Some((entry.prev_head, true)) && is_trusted;
            let (kind, text) = if is_fork {
                (
                    VerifyBreakKind::Fork,
                    "was sealed twice, on the same manifest",
                )
            } else {
                (VerifyBreakKind::DuplicatePosition, "is claimed twice")
            };
            return Err(Problem::new(kind, format!("position {} {text}", entry.seq)));
        }
        let missing = entry.seq.0 - expected.0;
        if missing > *unreadable {
            let reason = format!("position {expected} is missing");
            return Err(Problem::new(VerifyBreakKind::Sequence, reason));
        }
        if missing > 0 {
            *unreadable -= missing;
            self.head = None;
        }
        if let Some(head) = self.head
            && head != entry.prev_head
        {
            let reason = format!(
                "it names {} as the head before it, which is {head}",
                entry.prev_head
            );
            return Err(Problem::new(VerifyBreakKind::Head, reason));
        }
        *self = Self {
            expected: entry.seq.next(),
            head: Some(entry.head),
            last: Some((entry.prev_head, is_trusted)),
        };
        Ok(())
    }
}

fn check_signature(entry: &Entry) -> Result<(), Problem> {
    match entry.attestation.problem() {
        Some(reason) => Err(Problem::new(VerifyBreakKind::Signature, reason)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::attestation::Attestation;
    use super::*;

    fn entry(seq: u64, prev_head: u8, head: u8) -> Entry {
        Entry {
            seq: ManifestSeq(seq),
            prev_head: ChainHead([prev_head; 32]),
            head: ChainHead([head; 32]),
            end_offset: 0,
            row: 0,
            epoch: 0,
            attestation: Attestation::Trusted,
            objects: None,
        }
    }

    fn kind(result: Result<(), Problem>) -> Option<VerifyBreakKind> {
        result.err().map(|problem| problem.kind)
    }

    #[test]
    fn a_run_goes_from_genesis_head_by_head() {
        let mut run = Run::default();
        run.step(&entry(0, 0, 1), &mut 0).unwrap();
        run.step(&entry(1, 1, 2), &mut 0).unwrap();
        let at = |entry: &Entry| kind(run.clone().step(entry, &mut 0));
        assert_eq!(at(&entry(2, 1, 3)), Some(VerifyBreakKind::Head));
        assert_eq!(at(&entry(3, 2, 3)), Some(VerifyBreakKind::Sequence));
        assert_eq!(at(&entry(1, 1, 3)), Some(VerifyBreakKind::Fork));
        assert_eq!(
            at(&entry(1, 2, 3)),
            Some(VerifyBreakKind::DuplicatePosition)
        );
        let untrusted = Entry {
            attestation: Attestation::Untrusted,
            ..entry(1, 1, 3)
        };
        assert_eq!(at(&untrusted), Some(VerifyBreakKind::DuplicatePosition));
        assert_eq!(at(&entry(2, 2, 3)), None);
    }

    #[test]
    fn a_run_that_does_not_begin_at_genesis_is_broken() {
        let at = |entry: &Entry| kind(Run::default().step(entry, &mut 0));
        assert_eq!(at(&entry(1, 0, 1)), Some(VerifyBreakKind::Sequence));
        assert_eq!(at(&entry(0, 1, 1)), Some(VerifyBreakKind::Head));
    }

    #[test]
    fn nothing_follows_the_last_position() {
        let mut run = Run {
            expected: Some(ManifestSeq(u64::MAX)),
            head: Some(ChainHead([1; 32])),
            last: None,
        };
        run.step(&entry(u64::MAX, 1, 2), &mut 0).unwrap();
        assert_eq!(
            kind(run.step(&entry(u64::MAX, 2, 3), &mut 0)),
            Some(VerifyBreakKind::Exhausted)
        );
    }

    #[test]
    fn a_gap_is_no_break_while_unreadable_manifests_may_fill_it() {
        let mut run = Run::default();
        let mut unreadable = 3;
        run.step(&entry(0, 0, 1), &mut unreadable).unwrap();
        run.step(&entry(3, 7, 4), &mut unreadable).unwrap();
        assert_eq!(unreadable, 1);
        // Behind the gap heads count again.
        assert_eq!(
            kind(run.clone().step(&entry(4, 7, 5), &mut unreadable)),
            Some(VerifyBreakKind::Head)
        );
        run.step(&entry(5, 7, 6), &mut unreadable).unwrap();
        assert_eq!(
            kind(run.step(&entry(7, 6, 7), &mut unreadable)),
            Some(VerifyBreakKind::Sequence)
        );
    }
}
