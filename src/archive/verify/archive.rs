//! One verification, from the first listing to the report.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::FuturesOrdered;
use object_store::ObjectStore;
use tokio::sync::Semaphore;

use super::authenticated::AuthenticatedArchive;
use super::context::Context;
use super::directory::{absent, verify_directory};
use super::discover::{Found, parse_directory};
use super::report::ArchiveVerifyReport;
use super::request::{VerifyDepth, VerifyRequest};
use crate::archive::keys::TrustedManifestKeys;
use crate::error::WormError;

/// How many directories are looked at together.
const DIRECTORIES_AT_ONCE: usize = 8;

/// How many manifests, of up to 1 MiB each, are held at a time.
const MANIFEST_READS: usize = 16;

/// How many bodies are read at a time.
const BODY_READS: usize = 8;

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
