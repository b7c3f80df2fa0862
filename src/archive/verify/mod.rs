//! Verifies a finished archive from its objects alone.
//!
//! The verifier trusts nothing but the public keys that it is given. Of each partition it reads
//! every manifest, recomputes its head from its bytes, checks its signature, follows the chain,
//! and compares the objects that manifests name with what is listed and, at
//! [`VerifyDepth::Deep`], with their digests. Keys that stand in a manifest are looked up in the
//! listing and never followed because they are named.
//!
//! What an archive alone cannot show is that its end was cut off: the newest manifests with their
//! objects, whole runs, whole partitions. [`VerifyRequest::expect_positions`] closes that gap with
//! what an earlier report saw.
//!
//! "Could not look" is never mixed with "is broken": a listing that fails is the only error, an
//! object that cannot be read is named as such and the rest of the report stands. An archive may
//! be in use meanwhile: what can look broken because a listing is no snapshot is reported only if
//! it is still so in a new listing.
//!
//! # Cost
//!
//! Everything is listed once to find the partitions. What was found of a small one, of up to 64
//! objects, is kept as its listing until its turn comes, within 16 MiB for all; the others are
//! listed a second time, one by one. Each manifest is read once, and once more at depth. Memory is
//! 64 MiB at most and 200 bytes for each manifest of the directories that are looked at (up to
//! eight at once), whatever objects claim of their size, plus a few hundred bytes for each directory
//! and the report: a foreign object costs its key.

mod attestation;
mod authenticated;
mod bodies;
mod directory;
mod discover;
mod finding;
mod grade;
mod index;
mod listing;
mod local;
mod objects;
mod read;
mod report;
mod request;
mod tally;
mod tip;
mod walk;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::FuturesOrdered;
use object_store::ObjectStore;
use tokio::sync::Semaphore;

pub use authenticated::{AuthenticatedArchive, AuthenticatedManifest};
pub use discover::{WORM_PROBE_BODY, WORM_PROBE_NAME};
pub use finding::{VerifyBreak, VerifyBreakKind};
pub use grade::{Finding, Grade, GradeRules, Verdict};
pub use report::{
    ArchiveVerifyReport, EpochSpan, ObjectProtectionReport, OffsetGap, OffsetOverlap, OrphanClass,
    OrphanObject, PartitionVerifyReport, UnattestedManifest, UnreadableObject,
};
pub use request::{ExpectedPosition, VerifyDepth, VerifyRequest};
pub use tip::recover_chain_stamp;

use directory::{absent, verify_directory};
use discover::{Found, is_archive_name, parse_directory};
use local::LocalRoot;

use super::keys::TrustedManifestKeys;
use crate::error::WormError;

/// How many directories are looked at together.
const DIRECTORIES_AT_ONCE: usize = 8;

/// How many manifests, of up to 1 MiB each, are held at a time.
const MANIFEST_READS: usize = 16;

/// How many bodies are read at a time.
const BODY_READS: usize = 8;

/// What all parts of one verification share.
struct Context<'a> {
    store: &'a dyn ObjectStore,
    request: &'a VerifyRequest,
    trusted: &'a TrustedManifestKeys,
    /// Bounds the manifests that are held.
    reads: Semaphore,
    /// Bounds the bodies that are read.
    bodies: Semaphore,
    /// Where a store of local files lies.
    local: Option<LocalRoot>,
    /// Whether attested objects are collected.
    collects: bool,
}

impl Context<'_> {
    /// Whether an object that no manifest names was proven by other means.
    fn is_exempt(&self, key: &str, name: &str) -> bool {
        let authenticated = &self.request.externally_authenticated_objects;
        authenticated.contains(key) && !is_archive_name(name)
    }
}

/// Verifies the archive in `store`.
///
/// Needs leave to list and to read. The same archive gives an equal report.
///
/// # Errors
///
/// [`Archive`](WormError::Archive) when a listing fails. Whatever is found is in the report.
///
/// # Cancellation
///
/// Nothing is written, so the future can be dropped at any time.
pub async fn verify_archive(
    store: &Arc<dyn ObjectStore>,
    request: &VerifyRequest,
    trusted: &TrustedManifestKeys,
) -> Result<ArchiveVerifyReport, WormError> {
    let archive = verify(store.as_ref(), request, trusted, false).await?;
    Ok(archive.report)
}

/// Verifies the archive in `store` at [`VerifyDepth::Deep`], whatever the request says, and answers
/// with the objects that are proven by it.
///
/// Memory holds an entry for each of these objects and less than 100 bytes for each manifest,
/// beside what [`verify_archive`] needs.
///
/// # Errors
///
/// As for [`verify_archive`].
pub async fn authenticate_archive(
    store: &Arc<dyn ObjectStore>,
    request: &VerifyRequest,
    trusted: &TrustedManifestKeys,
) -> Result<AuthenticatedArchive, WormError> {
    let request = VerifyRequest {
        depth: VerifyDepth::Deep,
        ..request.clone()
    };
    verify(store.as_ref(), &request, trusted, true).await
}

async fn verify(
    store: &dyn ObjectStore,
    request: &VerifyRequest,
    trusted: &TrustedManifestKeys,
    collects: bool,
) -> Result<AuthenticatedArchive, WormError> {
    let prefix = request
        .prefix
        .as_deref()
        .map(|prefix| prefix.trim_matches('/'))
        .filter(|prefix| !prefix.is_empty());
    let mut found = Found::list(store, prefix).await?;
    let local = found.local_root(store).await;
    if let Some(root) = &local {
        found.add_passed_over(root, prefix).await?;
    }
    let context = Context {
        store,
        request,
        trusted,
        reads: Semaphore::new(MANIFEST_READS),
        bodies: Semaphore::new(BODY_READS),
        local,
        collects,
    };
    let AuthenticatedArchive {
        mut report,
        mut objects,
        mut manifests,
    } = AuthenticatedArchive::default();
    let mut directories = found.directories.iter_mut();
    let mut looks = FuturesOrdered::new();
    loop {
        while looks.len() < DIRECTORIES_AT_ONCE
            && let Some((key, directory)) = directories.next()
        {
            let listing = directory.take_listing();
            looks.push_back(verify_directory(&context, key, &directory.name, listing));
        }
        let Some(outcome) = looks.next().await else {
            break;
        };
        if let Some(outcome) = outcome? {
            objects.extend(outcome.objects);
            if !outcome.manifests.is_empty() {
                let directory = outcome.report.partition_dir.clone();
                manifests.insert(directory, outcome.manifests);
            }
            report.partitions.push(outcome.report);
        }
    }
    drop(looks);
    let missing = missing_directories(request, &found);
    report.partitions.extend(missing.into_iter().map(absent));
    report
        .partitions
        .sort_by(|a, b| a.partition_dir.cmp(&b.partition_dir));
    report.global_orphan_objects = found.orphans(&context, prefix).await;
    Ok(AuthenticatedArchive {
        report,
        objects,
        manifests,
    })
}

/// Directories that must be there and are not; those left aside that are not asked for.
fn missing_directories<'a>(request: &'a VerifyRequest, found: &Found) -> Vec<&'a str> {
    let is_asked_for = |directory: &str| {
        parse_directory(directory).is_none_or(|name| request.selects(&name.topic, name.partition))
    };
    let expected = request.expect_positions.iter().flat_map(BTreeMap::keys);
    expected
        .map(String::as_str)
        .filter(|directory| !found.directories.contains_key(*directory))
        .filter(|directory| is_asked_for(directory))
        .collect()
}
