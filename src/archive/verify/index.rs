//! The first look at a directory: each manifest is read once, judged on its own, and kept as the
//! few numbers that the walk along the chain needs.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::sync::SemaphorePermit;
use tokio::task::coop;

use super::attestation::Attestation;
use super::context::Context;
use super::finding::{Problem, VerifyBreak, VerifyBreakKind};
use super::listing::Listing;
use super::objects::{Objects, check_place, objects_in_order};
use super::read::{ReadError, read_capped};
use crate::archive::format::{
    ChainHead, EpochId, MAX_MANIFEST_BYTES, ManifestDecodeError, ManifestSeq, SegmentManifest,
    manifest_head,
};
use crate::layout::PartitionDirName;

/// How many manifests of a directory are read at once; all directories together are bound by
/// [`Context::reads`].
const READS_IN_FLIGHT: usize = 16;

/// One manifest, as much of it as the walk needs.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) seq: ManifestSeq,
    pub(super) prev_head: ChainHead,
    pub(super) head: ChainHead,
    pub(super) end_offset: i64,
    /// The listing's row.
    pub(super) row: u32,
    /// The run, by its place in [`Index::epochs`].
    pub(super) epoch: u32,
    pub(super) attestation: Attestation,
    /// `None` when something is wrong with the objects; what it is, is found out when the walk
    /// comes here.
    pub(super) objects: Option<Objects>,
}

/// A directory's manifests.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// By row.
    pub(super) entries: Vec<Entry>,
    pub(super) epochs: Vec<EpochId>,
    epoch_numbers: HashMap<EpochId, u32>,
    /// The first, by key, that is no manifest of this directory.
    pub(super) rejected: Option<VerifyBreak>,
    /// Manifests that could not be read, and why.
    pub(super) unreadable: BTreeMap<String, String>,
    /// Whether a manifest is about a partition that was asked for.
    pub(super) is_selected: bool,
}

/// A manifest to be read.
struct Job {
    name: String,
    size: u64,
    /// `None` for a name that no segment's manifest has.
    row: Option<u32>,
}

impl Index {
    /// Reads the directory's manifests, and marks in the listing what they name.
    ///
    /// What `older` knows of a segment whose objects are listed as before is taken over.
    pub(super) async fn read(
        context: &Context<'_>,
        directory: &PartitionDirName,
        listing: &mut Listing,
        older: Option<(&Listing, Self)>,
    ) -> Self {
        let mut index = Self::default();
        let mut known = Vec::new();
        let mut older_listing = None;
        if let Some((listing, older)) = older {
            index.epochs = older.epochs;
            index.epoch_numbers = older.epoch_numbers;
            index.is_selected = older.is_selected;
            known = older.entries;
            older_listing = Some(listing);
        }
        index.entries.reserve_exact(
            listing
                .rows()
                .iter()
                .filter(|row| row.has_manifest())
                .count(),
        );

        let mut odd = listing
            .odd_manifests()
            .map(|(name, size)| Job {
                name: name.to_owned(),
                size,
                row: None,
            })
            .collect::<Vec<_>>()
            .into_iter();
        let mut next_row = 0;
        let mut reads = FuturesUnordered::new();
        loop {
            while reads.len() < READS_IN_FLIGHT {
                let Some(job) = index
                    .next_job(listing, &mut next_row, older_listing, &known)
                    .or_else(|| odd.next())
                else {
                    break;
                };
                reads.push(read(context, listing.key(&job.name), job));
            }
            let Some((job, result, permit)) = reads.next().await else {
                break;
            };
            index.take(context, directory, listing, &job, result);
            drop(permit);
            coop::consume_budget().await;
        }
        drop(reads);
        // Answers come in any order.
        index.entries.sort_unstable_by_key(|entry| entry.row);
        index
    }

    /// The next manifest that has to be read; those that are known are taken over on the way.
    fn next_job(
        &mut self,
        listing: &mut Listing,
        next_row: &mut usize,
        older: Option<&Listing>,
        known: &[Entry],
    ) -> Option<Job> {
        while let Some(row) = listing.rows().get(*next_row) {
            let at = u32::try_from(*next_row).ok()?;
            *next_row += 1;
            if !row.has_manifest() {
                continue;
            }
            let unchanged = older.and_then(|older| {
                let (before, named) = listing.unchanged_since(row, older)?;
                let entry = known
                    .binary_search_by_key(&before, |entry| entry.row)
                    .ok()?;
                Some((known[entry].clone(), named))
            });
            if let Some((entry, named)) = unchanged {
                listing.mark_row_named(at, named);
                self.entries.push(Entry { row: at, ..entry });
                continue;
            }
            return Some(Job {
                name: row.file_name(crate::archive::format::MANIFEST_SUFFIX),
                size: listing.manifest_size(row),
                row: Some(at),
            });
        }
        None
    }

    fn take(
        &mut self,
        context: &Context<'_>,
        directory: &PartitionDirName,
        listing: &mut Listing,
        job: &Job,
        result: Result<Option<Bytes>, ReadError>,
    ) {
        let bytes = match result {
            Ok(Some(bytes)) => bytes,
            Ok(None) => {
                let reason = format!("it is larger than {MAX_MANIFEST_BYTES} bytes");
                let problem = Problem::new(VerifyBreakKind::Oversize, reason);
                return self.reject(listing, job, None, problem);
            }
            Err(ReadError::Missing) => {
                let reason = "it is listed, and the store says that it is not there";
                let problem = Problem::new(VerifyBreakKind::Missing, reason);
                return self.reject(listing, job, None, problem);
            }
            Err(ReadError::Unreadable(reason)) => {
                self.unreadable.insert(listing.key(&job.name), reason);
                return;
            }
        };
        let manifest = match SegmentManifest::decode(&bytes) {
            Ok(manifest) => manifest,
            Err(error) => {
                let (kind, seq) = match &error {
                    ManifestDecodeError::Schema(_) => (VerifyBreakKind::Decode, None),
                    ManifestDecodeError::Format { seq, .. } => (VerifyBreakKind::Format, *seq),
                    ManifestDecodeError::Encoding { seq, manifest } => {
                        self.look_at_selection(context, manifest);
                        (VerifyBreakKind::Encoding, Some(*seq))
                    }
                };
                let problem = Problem::new(kind, error.to_string());
                return self.reject(listing, job, seq, problem);
            }
        };
        drop(bytes);
        self.look_at_selection(context, &manifest);
        let chain = manifest.body.chain;
        let place = check_place(listing, directory, &job.name, &manifest.body);
        let row = match (place, job.row) {
            (Ok(()), Some(row)) => row,
            (Err(problem), _) => return self.reject(listing, job, Some(chain.seq), problem),
            // Not reached: a manifest in its place has its segment's name.
            (Ok(()), None) => return,
        };
        let head = manifest_head(&manifest.body);
        let objects = objects_in_order(listing, listing.row(row), &manifest);
        match objects {
            Some(objects) => listing.mark_row_named(row, objects.listed),
            None => {
                for object in &manifest.body.objects {
                    if let Some(name) = listing.name_of(&object.key).map(str::to_owned) {
                        listing.mark_named(&name);
                    }
                }
            }
        }
        let epoch = self.epoch_number(chain.epoch_id);
        self.entries.push(Entry {
            seq: chain.seq,
            prev_head: chain.prev_head,
            head,
            end_offset: manifest.body.segment.end_offset,
            row,
            epoch,
            attestation: Attestation::of(&manifest, head, listing.directory(), context.trusted),
            objects,
        });
    }

    fn reject(&mut self, listing: &Listing, job: &Job, seq: Option<ManifestSeq>, problem: Problem) {
        let key = listing.key(&job.name);
        if self
            .rejected
            .as_ref()
            .is_none_or(|first| key < first.manifest_key)
        {
            self.rejected = Some(problem.at(key, seq));
        }
    }

    fn look_at_selection(&mut self, context: &Context<'_>, manifest: &SegmentManifest) {
        let segment = &manifest.body.segment;
        self.is_selected |= context.request.selects(&segment.topic, segment.partition);
    }

    fn epoch_number(&mut self, epoch_id: EpochId) -> u32 {
        *self.epoch_numbers.entry(epoch_id).or_insert_with(|| {
            self.epochs.push(epoch_id);
            u32::try_from(self.epochs.len() - 1).unwrap_or(u32::MAX)
        })
    }
}

/// The permit comes back with the bytes: as long as they are held, they count.
async fn read<'a>(
    context: &'a Context<'_>,
    key: String,
    job: Job,
) -> (
    Job,
    Result<Option<Bytes>, ReadError>,
    Option<SemaphorePermit<'a>>,
) {
    if job.size > MAX_MANIFEST_BYTES {
        return (job, Ok(None), None);
    }
    let permit = context.reads.acquire().await.ok();
    let result = read_capped(context.store, &key, MAX_MANIFEST_BYTES).await;
    (job, result, permit)
}
