//! "These bytes under this key, once", with a known outcome on every store.
//!
//! A conditional create, in one request or as the completion of a multipart upload, that answers "exists" may have met another writer's object, or its own,
//! written by an earlier attempt whose answer was lost; an S3 409 may even mean that there is
//! nothing. So the answer is always resolved by reading back size and digest.

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{
    Error as StoreError, GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, PutResult,
};
use sha2::{Digest, Sha256};

use crate::error::RemoteStorageError;
use crate::model::OpKind;
use crate::ops::{Activity, Written};

/// How often a create is repeated when the store says "exists" and there is nothing.
const CONFLICT_RETRIES: u32 = 3;

/// The pause before such a repeat: the rival request must end first.
const CONFLICT_PAUSE: Duration = Duration::from_millis(100);

/// Why a create did not succeed.
pub(in crate::backends) enum Failure {
    /// The store failed; the caller classifies it.
    Store(StoreError),
    /// The outcome is this.
    Settled(RemoteStorageError),
}

/// The object that is to stand there.
pub(in crate::backends) struct Expected<'a> {
    /// The request that creates it.
    pub(in crate::backends) operation: OpKind,
    pub(in crate::backends) key: &'a Path,
    pub(in crate::backends) size_bytes: u64,
    pub(in crate::backends) sha256: &'a [u8; 32],
}

/// Creates the object with `create`, one attempt of the request, and finds out what "exists" means.
///
/// A completion is also told that there is no such upload when an earlier one succeeded: then, too,
/// what stands there decides.
pub(in crate::backends) async fn resolve<F>(
    store: &Arc<dyn ObjectStore>,
    expected: &Expected<'_>,
    create: impl Fn() -> F,
) -> Result<Written, Failure>
where
    F: Future<Output = object_store::Result<PutResult>>,
{
    let key = expected.key;
    for conflict in 0..=CONFLICT_RETRIES {
        if conflict > 0 {
            tokio::time::sleep(CONFLICT_PAUSE * conflict).await;
        }
        let mut forgotten = None;
        match create().await {
            Ok(result) => {
                return Ok(Written {
                    e_tag: result.e_tag,
                    version_id: result.version,
                    create_precondition: true,
                });
            }
            // 409 and 412 alike: which it was does not matter, what stands there does.
            Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => {}
            Err(error @ StoreError::NotFound { .. })
                if expected.operation == OpKind::CompleteUpload =>
            {
                forgotten = Some(error);
            }
            Err(error) => return Err(Failure::Store(error)),
        }
        match (store.head(key).await, forgotten) {
            (Ok(meta), _) => return compare(store, expected, meta).await,
            (Err(StoreError::NotFound { .. }), Some(error)) => return Err(Failure::Store(error)),
            (Err(StoreError::NotFound { .. }), None) => {}
            (Err(error), _) => return Err(unreadable(expected, error)),
        }
    }
    Err(Failure::Settled(RemoteStorageError::Backend {
        key: key.to_string(),
        operation: expected.operation,
        status: Some(409),
        transient: true,
        reason: format!(
            "{} of `{key}` met a conflict {} times, and no object stands there",
            expected.operation,
            CONFLICT_RETRIES + 1
        ),
        source: None,
    }))
}

/// Tells the own success from a foreign object.
async fn compare(
    store: &Arc<dyn ObjectStore>,
    expected: &Expected<'_>,
    meta: ObjectMeta,
) -> Result<Written, Failure> {
    let foreign = || {
        Failure::Settled(RemoteStorageError::ObjectExists {
            key: expected.key.to_string(),
        })
    };
    if meta.size != expected.size_bytes {
        return Err(foreign());
    }
    let options = GetOptions {
        version: meta.version.clone(),
        ..GetOptions::default()
    };
    let result = match store.get_opts(expected.key, options).await {
        Ok(result) => result,
        Err(error) => return Err(unreadable(expected, error)),
    };
    let activity = Activity::current();
    let digest = result
        .into_stream()
        .try_fold(Sha256::new(), |mut digest, piece| {
            if let Some(activity) = &activity {
                activity.mark();
            }
            digest.update(&piece);
            std::future::ready(Ok(digest))
        })
        .await
        .map_err(Failure::Store)?;
    if digest.finalize().as_slice() != expected.sha256 {
        return Err(foreign());
    }
    Ok(Written {
        e_tag: meta.e_tag,
        version_id: meta.version,
        create_precondition: true,
    })
}

/// An object stands there that these credentials may not read: ours or not, nobody can tell.
fn unreadable(expected: &Expected<'_>, error: StoreError) -> Failure {
    match error {
        StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => {
            Failure::Settled(RemoteStorageError::OutcomeUnknown {
                operation: expected.operation,
                key: expected.key.to_string(),
            })
        }
        error => Failure::Store(error),
    }
}
