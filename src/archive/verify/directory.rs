//! One partition's directory: looked at, walked along, reported.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt as _;
use futures::stream::FuturesOrdered;

use super::attestation::Attestation;
use super::authenticated::ProvenManifest;
use super::bodies::{Look, explain, look_deep, reread};
use super::context::Context;
use super::finding::{Problem, VerifyBreakKind};
use super::index::{Entry, Index};
use super::listing::Listing;
use super::local::Irregular;
use super::report::{PartitionVerifyReport, UnattestedManifest, UnreadableObject};
use super::request::VerifyDepth;
use super::tally::Tally;
use super::walk::{Stop, Walk};
use crate::archive::format::ObjectEntry;
use crate::error::WormError;
use crate::layout::PartitionDirName;

/// How often a directory is listed again before something is reported that an archive in use can
/// look like.
const MORE_LISTINGS: usize = 2;

/// How many manifests are read again at once, with their bodies.
const MANIFESTS_IN_FLIGHT: usize = 4;

/// A directory's report, and (when they are collected) the objects that a trusted key attests.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) report: PartitionVerifyReport,
    pub(super) objects: BTreeMap<String, ObjectEntry>,
    /// Likewise the manifests, in the order of the chain.
    pub(super) manifests: Vec<ProvenManifest>,
}

/// A directory as it was found, with what persists of passing appearances.
struct State {
    listing: Listing,
    index: Index,
    walk: Walk,
    /// Names that no manifest names, in every listing so far.
    orphans: BTreeSet<String>,
}

/// Verifies one directory; `None` when it is none of those that were asked for.
///
/// `found` is its listing, where there is one already. It may be of some time ago: what an archive
/// in use can look like is looked for in a new one.
pub(super) async fn verify_directory(
    context: &Context<'_>,
    key: &str,
    name: &PartitionDirName,
    found: Option<Listing>,
) -> Result<Option<Outcome>, WormError> {
    let found = match found {
        // Whatever has happened to the directory since then shows in a new listing.
        Some(listing) => without_irregular(context, listing).await.ok(),
        None => None,
    };
    let listing = match found {
        Some(listing) => listing,
        None => list(context, key).await?,
    };
    let mut state = State::read(context, name, listing, None).await;
    let is_selected =
        context.request.selects(&name.topic, name.partition) || state.index.is_selected;
    if !is_selected {
        return Ok(None);
    }
    for _ in 0..MORE_LISTINGS {
        if !state.may_pass(context) {
            break;
        }
        let fresh = list(context, key).await?;
        if fresh.holds_the_same_as(&state.listing) && !state.has_vanished_manifest() {
            break;
        }
        state = State::read(context, name, fresh, Some(state)).await;
    }
    Ok(Some(state.conclude(context).await))
}

/// Lists the directory, without what must not be followed.
async fn list(context: &Context<'_>, directory: &str) -> Result<Listing, WormError> {
    let listing = Listing::read(context.store, directory).await?;
    without_irregular(context, listing).await
}

async fn without_irregular(
    context: &Context<'_>,
    mut listing: Listing,
) -> Result<Listing, WormError> {
    let Some(root) = &context.local else {
        return Ok(listing);
    };
    if listing.is_empty() {
        return Ok(listing);
    }
    match root.irregular(listing.directory()).await? {
        Irregular::All => listing.exclude_all(),
        Irregular::Names {
            not_files,
            passed_over,
        } => {
            for name in not_files {
                // What is no text was not listed.
                if let Some(name) = name.to_str() {
                    listing.exclude(name);
                }
            }
            listing.add_irregular(passed_over);
        }
    }
    Ok(listing)
}

impl State {
    async fn read(
        context: &Context<'_>,
        name: &PartitionDirName,
        mut listing: Listing,
        older: Option<Self>,
    ) -> Self {
        let (older, orphans_before) = match older {
            Some(older) => (Some((older.listing, older.index)), Some(older.orphans)),
            None => (None, None),
        };
        let (older_listing, older_index) = older.unzip();
        let known = older_listing.as_ref().zip(older_index);
        let index = Index::read(context, name, &mut listing, known).await;
        let walk = match index.rejected {
            None => Walk::along(&index, &listing),
            Some(_) => Walk::default(),
        };
        let orphans = listing.orphans();
        let orphans = match orphans_before {
            Some(before) => &before & &orphans,
            None => orphans,
        };
        Self {
            listing,
            index,
            walk,
            orphans,
        }
    }

    /// Whether an archive that is being written can look like this for a moment.
    fn may_pass(&self, context: &Context<'_>) -> bool {
        let stop_may_pass = match &self.walk.stop {
            Some(Stop::Chain(problem)) => problem.kind.may_pass(),
            // What is wrong with them is not known yet.
            Some(Stop::Objects) => true,
            None => false,
        };
        stop_may_pass
            || self.has_vanished_manifest()
            || !self.orphans.is_empty()
            || self.misses_the_tip(context)
    }

    /// Whether something that was expected has not been listed.
    fn misses_the_tip(&self, context: &Context<'_>) -> bool {
        let mut tally = Tally::new(context.request, &self.listing, &self.index);
        if tally.expects_nothing() {
            return false;
        }
        for entry in self.walk.accepted(&self.index) {
            tally.accept(entry, 0);
        }
        tally.tip_problem().is_some()
    }

    /// Whether a manifest was listed and could not be found.
    fn has_vanished_manifest(&self) -> bool {
        let rejected = self.index.rejected.as_ref();
        rejected.is_some_and(|rejected| rejected.kind == VerifyBreakKind::Missing)
    }

    async fn conclude(self, context: &Context<'_>) -> Outcome {
        let Self {
            listing,
            index,
            walk,
            mut orphans,
        } = self;
        let is_deep = context.request.depth == VerifyDepth::Deep;
        let (mut objects, mut manifests) = (BTreeMap::new(), Vec::new());
        let mut unreadable = index.unreadable.clone();
        let mut tally = Tally::new(context.request, &listing, &index);
        // The manifest, and what is wrong with it: known once its turn came.
        let mut stopped: Option<(&Entry, Problem)> = None;

        if is_deep {
            let mut order = walk.order[..walk.accepted].iter();
            let mut looks = FuturesOrdered::new();
            loop {
                while looks.len() < MANIFESTS_IN_FLIGHT
                    && let Some(at) = order.next()
                {
                    let entry = &index.entries[*at as usize];
                    looks.push_back(look_deep(context, &listing, entry));
                }
                let Some((entry, look)) = looks.next().await else {
                    break;
                };
                let unread = look.unreadable.len() as u64;
                unreadable.extend(look.unreadable.clone());
                if let Some(problem) = look.problem {
                    stopped = Some((entry, problem));
                    break;
                }
                if context.collects && entry.attestation == Attestation::Trusted {
                    collect(&mut objects, look);
                    let row = listing.row(entry.row);
                    manifests.push(ProvenManifest {
                        start_offset: row.start_offset,
                        segment_id: row.segment_id,
                        head: entry.head,
                    });
                }
                tally.accept(entry, unread);
            }
        } else {
            for entry in walk.accepted(&index) {
                tally.accept(entry, 0);
            }
        }
        if stopped.is_none()
            && let Some(entry) = walk.stopped_at(&index)
        {
            stopped = match &walk.stop {
                Some(Stop::Chain(problem)) => Some((entry, problem.clone())),
                Some(Stop::Objects) => {
                    let accepted: BTreeSet<u32> =
                        walk.accepted(&index).map(|entry| entry.row).collect();
                    let look =
                        explain(context, &listing, entry, |row| accepted.contains(&row)).await;
                    unreadable.extend(look.unreadable.clone());
                    look.problem.map(|problem| (entry, problem))
                }
                None => None,
            };
        }
        // A forged signature goes before whatever stopped the walk earlier.
        let forged = walk.first_forged(&index);
        let walked_break = forged
            .or(stopped)
            .map(|(entry, problem)| problem.at(listing.manifest_key(entry.row), Some(entry.seq)));
        let first_break = index.rejected.clone().or(walked_break);

        let unattested = name_signers(context, &listing, tally.unattested()).await;
        // What was proven by other means.
        orphans.retain(|name| !context.is_exempt(&listing.key(name), name));
        let mut report = tally.finish(first_break, &orphans);
        report.runs = walk.runs;
        report.unattested = unattested;
        report.unreadable_objects = unreadable
            .into_iter()
            .map(|(key, reason)| UnreadableObject { key, reason })
            .collect();
        report.ok = is_ok(&report);
        if report.first_break.is_some() {
            objects.clear();
            manifests.clear();
        }
        Outcome {
            report,
            objects,
            manifests,
        }
    }
}

/// The report of a directory that must be there and is not.
pub(super) fn absent(directory: &str) -> PartitionVerifyReport {
    let problem = Problem::new(VerifyBreakKind::Tip, "the directory is not there");
    PartitionVerifyReport {
        partition_dir: directory.to_owned(),
        first_break: Some(problem.at(directory.to_owned(), None)),
        ..PartitionVerifyReport::default()
    }
}

fn is_ok(report: &PartitionVerifyReport) -> bool {
    report.first_break.is_none()
        && report.unsigned_manifests == 0
        && report.untrusted_manifests == 0
        && report.orphan_objects.is_empty()
        && report.unreadable_objects.is_empty()
}

fn collect(objects: &mut BTreeMap<String, ObjectEntry>, look: Look) {
    let entries = look.manifest.into_iter().flat_map(|m| m.body.objects);
    objects.extend(
        entries
            .filter(|object| !look.unreadable.contains_key(&object.key))
            .map(|object| (object.key.clone(), object)),
    );
}

/// Under which names the manifests of a sample are signed.
async fn name_signers(
    context: &Context<'_>,
    listing: &Listing,
    sample: &[&Entry],
) -> Vec<UnattestedManifest> {
    let mut named = Vec::with_capacity(sample.len());
    for entry in sample {
        let key_id = if entry.attestation == Attestation::Unsigned {
            None
        } else {
            // Names can be long and of any number: they were not kept.
            let manifest = reread(context, listing, entry).await.manifest;
            let Some(signature) = manifest.and_then(|manifest| manifest.signature) else {
                continue;
            };
            Some(signature.key_id)
        };
        named.push(UnattestedManifest {
            manifest_key: listing.manifest_key(entry.row),
            key_id,
        });
    }
    named
}
