//! "These bytes under this key, once", with a known outcome on every store.
//!
//! A conditional create that answers "exists" may have met another writer's object, or its own,
//! written by an earlier attempt whose answer was lost; an S3 409 may even mean that there is
//! nothing. So the answer is always resolved by reading back size and digest.

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use object_store::{
    Error as StoreError, GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, PutOptions,
};
use sha2::{Digest, Sha256};

use crate::error::RemoteStorageError;
use crate::model::OpKind;
use crate::ops::{Activity, Create, StorageOp, Written};

/// How often a create is repeated when the store says "exists" and there is nothing.
const CONFLICT_RETRIES: u32 = 3;

/// The pause before such a repeat: the rival request must end first.
const CONFLICT_PAUSE: Duration = Duration::from_millis(100);

/// Why a create did not succeed.
pub(super) enum Failure {
    /// The store failed; the caller classifies it.
    Store(StoreError),
    /// The outcome is this.
    Settled(RemoteStorageError),
}

/// Creates the object, and finds out what "exists" means.
pub(super) async fn resolve(
    store: &Arc<dyn ObjectStore>,
    request: &Create,
    options: PutOptions,
) -> Result<Written, Failure> {
    let key = &request.target.key;
    for conflict in 0..=CONFLICT_RETRIES {
        if conflict > 0 {
            tokio::time::sleep(CONFLICT_PAUSE * conflict).await;
        }
        match store
            .put_opts(key, request.payload.clone(), options.clone())
            .await
        {
            Ok(result) => {
                return Ok(Written {
                    e_tag: result.e_tag,
                    version_id: result.version,
                    create_precondition: true,
                });
            }
            // 409 and 412 alike: which it was does not matter, what stands there does.
            Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => {}
            Err(error) => return Err(Failure::Store(error)),
        }
        match store.head(key).await {
            Ok(meta) => return compare(store, request, meta).await,
            Err(StoreError::NotFound { .. }) => {}
            Err(error) => return Err(unreadable(request, error)),
        }
    }
    Err(Failure::Settled(RemoteStorageError::Backend {
        key: request.key().to_owned(),
        operation: OpKind::Create,
        status: Some(409),
        transient: true,
        reason: format!(
            "create of `{}` met a conflict {} times, and no object stands there",
            request.key(),
            CONFLICT_RETRIES + 1
        ),
        source: None,
    }))
}

/// Tells the own success from a foreign object.
async fn compare(
    store: &Arc<dyn ObjectStore>,
    request: &Create,
    meta: ObjectMeta,
) -> Result<Written, Failure> {
    let foreign = || {
        Failure::Settled(RemoteStorageError::ObjectExists {
            key: request.key().to_owned(),
        })
    };
    if meta.size != request.payload.content_length() as u64 {
        return Err(foreign());
    }
    let options = GetOptions {
        version: meta.version.clone(),
        ..GetOptions::default()
    };
    let result = match store.get_opts(&request.target.key, options).await {
        Ok(result) => result,
        Err(error) => return Err(unreadable(request, error)),
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
    if digest.finalize().as_slice() != request.sha256 {
        return Err(foreign());
    }
    Ok(Written {
        e_tag: meta.e_tag,
        version_id: meta.version,
        create_precondition: true,
    })
}

/// An object stands there that these credentials may not read: ours or not, nobody can tell.
fn unreadable(request: &Create, error: StoreError) -> Failure {
    match error {
        StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => {
            Failure::Settled(RemoteStorageError::OutcomeUnknown {
                operation: OpKind::Create,
                key: request.key().to_owned(),
            })
        }
        error => Failure::Store(error),
    }
}
