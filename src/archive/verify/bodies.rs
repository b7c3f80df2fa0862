//! Reading a manifest again when its turn comes, and its objects' bodies.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use futures::{FutureExt as _, StreamExt as _, stream};

use super::context::Context;
use super::finding::{Problem, VerifyBreakKind};
use super::index::Entry;
use super::listing::Listing;
use super::objects::{find, objects_problem};
use super::read::{Body, ReadError, hash, read_capped};
use super::request::VerifyDepth;
use crate::archive::format::{
    MAX_MANIFEST_BYTES, ObjectEntry, Printable, SegmentManifest, manifest_head,
};

/// How many bodies of one manifest are read at once; all manifests together are bound by
/// [`Context::bodies`].
const BODIES_IN_FLIGHT: usize = 8;

/// What came of a closer look at a manifest.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// The manifest, unless it could not be read (again) or has changed.
    pub(super) manifest: Option<SegmentManifest>,
    /// What is wrong with it or with its objects.
    pub(super) problem: Option<Problem>,
    /// By key, why it could not be read.
    pub(super) unreadable: BTreeMap<String, String>,
}

/// Reads a manifest again that was read before.
pub(super) async fn reread(context: &Context<'_>, listing: &Listing, entry: &Entry) -> Look {
    let key = listing.manifest_key(entry.row);
    let _permit = context.reads.acquire().await;
    let mut look = Look::default();
    match read_capped(context.store, &key, MAX_MANIFEST_BYTES).await {
        Ok(bytes) => {
            look.manifest = bytes
                .and_then(|bytes| SegmentManifest::decode(&bytes).ok())
                .filter(|manifest| manifest_head(&manifest.body) == entry.head);
            if look.manifest.is_none() {
                let reason = "it was changed while it was verified";
                look.problem = Some(Problem::new(VerifyBreakKind::Head, reason));
            }
        }
        Err(ReadError::Missing) => {
            let reason = "it was removed while it was verified";
            look.problem = Some(Problem::new(VerifyBreakKind::Missing, reason));
        }
        Err(ReadError::Unreadable(reason)) => {
            look.unreadable.insert(key, reason);
        }
    }
    look
}

/// Finds out what is wrong with a manifest's objects, of which it is known that something is. At
/// depth, bodies are read all the same.
pub(super) async fn explain(
    context: &Context<'_>,
    listing: &Listing,
    entry: &Entry,
    is_accepted: impl Fn(u32) -> bool,
) -> Look {
    let mut look = reread(context, listing, entry).await;
    let Some(manifest) = &look.manifest else {
        return look;
    };
    let row = listing.row(entry.row);
    let found = objects_problem(listing, row, manifest, is_accepted);
    if context.request.depth == VerifyDepth::Deep {
        look.unreadable = check(context, listing, &manifest.body.objects).await.1;
    }
    let Some((mut problem, object)) = found else {
        let reason = "its objects were changed while they were verified";
        look.problem = Some(Problem::new(VerifyBreakKind::Missing, reason));
        return look;
    };
    if let Some(object) = object
        && context.request.depth == VerifyDepth::Deep
        && matches!(
            problem.kind,
            VerifyBreakKind::Missing | VerifyBreakKind::Size
        )
    {
        add_pinned_version(context, object, &mut problem.reason).await;
    }
    look.problem = Some(problem);
    look
}

/// Reads a manifest again and the bodies of its objects.
pub(super) async fn look_deep<'e>(
    context: &Context<'_>,
    listing: &Listing,
    entry: &'e Entry,
) -> (&'e Entry, Look) {
    let mut look = reread(context, listing, entry).await;
    if let Some(manifest) = &look.manifest {
        (look.problem, look.unreadable) = check(context, listing, &manifest.body.objects).await;
    }
    (entry, look)
}

/// Hashes all objects that are listed; the first that differs, in the manifest's order, counts.
async fn check(
    context: &Context<'_>,
    listing: &Listing,
    objects: &[ObjectEntry],
) -> (Option<Problem>, BTreeMap<String, String>) {
    // A key is followed only because it is listed.
    let reads: Vec<_> = objects
        .iter()
        .filter(|object| find(listing, object).is_some())
        .map(|object| read(context, object).boxed())
        .collect();
    let bodies = stream::iter(reads)
        .buffered(BODIES_IN_FLIGHT)
        .collect::<Vec<_>>()
        .await;
    let (mut problem, mut unreadable) = (None, BTreeMap::new());
    for (object, body) in bodies {
        let found = match body {
            Ok(body) if is_sealed(object, body) => continue,
            Ok(body) => Problem::new(
                VerifyBreakKind::Digest,
                format!(
                    "`{}` has SHA-256 {}, and was sealed with {}",
                    Printable(&object.key),
                    body.sha256,
                    object.sha256
                ),
            ),
            Err(ReadError::Missing) => Problem::new(
                VerifyBreakKind::Missing,
                format!(
                    "`{}` is listed, and the store says that it is not there",
                    Printable(&object.key)
                ),
            ),
            Err(ReadError::Unreadable(reason)) => {
                unreadable.insert(object.key.clone(), reason);
                continue;
            }
        };
        let is_first = problem
            .as_ref()
            .is_none_or(|(first, _): &(Problem, _)| found.kind < first.kind);
        if is_first {
            problem = Some((found, object));
        }
    }
    let Some((mut problem, object)) = problem else {
        return (None, unreadable);
    };
    add_pinned_version(context, object, &mut problem.reason).await;
    (Some(problem), unreadable)
}

async fn read<'o>(
    context: &Context<'_>,
    object: &'o ObjectEntry,
) -> (&'o ObjectEntry, Result<Body, ReadError>) {
    let _permit = context.bodies.acquire().await;
    let body = match hash(context.store, &object.key, None).await {
        // A listing and an answer can disagree for a moment.
        Err(ReadError::Missing) => hash(context.store, &object.key, None).await,
        other => other,
    };
    (object, body)
}

/// Says whether the version that was sealed still exists beneath what stands there now.
async fn add_pinned_version(context: &Context<'_>, object: &ObjectEntry, reason: &mut String) {
    let Some(version) = &object.version_id else {
        return;
    };
    let pinned = hash(context.store, &object.key, Some(version)).await;
    let text = match pinned {
        Ok(body) if is_sealed(object, body) => "is intact: it can be recovered",
        Ok(_) => "differs too",
        Err(ReadError::Missing) => "is not there either",
        Err(ReadError::Unreadable(_)) => "could not be read",
    };
    let _ = write!(
        reason,
        "; the sealed version `{}` {text}",
        Printable(version)
    );
}

fn is_sealed(object: &ObjectEntry, body: Body) -> bool {
    body.size == object.size_bytes && body.sha256 == object.sha256
}
