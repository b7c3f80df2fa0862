//! The start of an archive: nothing is enabled before everything that it rests on was seen to hold.

#[cfg(all(test, feature = "aws"))]
mod tests;

use object_store::path::Path;

use super::{RemoteStorage, RemoteStorageBuilder};
use crate::archive::{WormArchiver, WormConfig};
use crate::backends::{Backend, StoreKind};
use crate::error::RemoteStorageError;
use crate::layers::SealRules;
use crate::ops::{ReadRetention, RetentionPolicy, StoreTarget};
use crate::segment::{MultipartCreate, refuses_second_completion, refuses_second_create};

impl RemoteStorage {
    /// Begins a write-once archive on an open store.
    ///
    /// First it is made sure of, in this order, and the first failure ends it:
    ///
    /// 1. the store is known, from its configuration, to be one that can refuse deletion (S3 and
    ///    what speaks its protocol, Google Cloud Storage), or
    ///    [`allow_unprotected`](WormConfig::allow_unprotected) says that a local directory, memory or
    ///    a client of unknown make is good enough;
    /// 2. on S3 `conditional_put` is on;
    /// 3. `config` is right, and the signing key loads. Up to here nothing is sent;
    /// 4. the bucket's policy can be read, and it is good enough: on S3 versioning, and Object Lock
    ///    with a default retention in the mode COMPLIANCE; on Google Cloud Storage a locked
    ///    retention policy. (The writer needs `s3:GetBucketVersioning` and
    ///    `s3:GetBucketObjectLockConfiguration`, or `storage.buckets.get`.)
    /// 5. the store in fact refuses to write over an object. For this it creates one small object
    ///    under the prefix, `.krabka-worm-probe`, once and for all; verifiers know it. Where uploads
    ///    in parts can be completed on condition, that is tried, too, and decides how large objects
    ///    are written.
    ///
    /// The bucket may be changed later. So each start looks again, and nothing here extends or sets
    /// retention.
    ///
    /// Uploads to S3 carry checksums from here on, whatever the configuration says: AWS takes none
    /// without into such a bucket.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument) for 1, 2 and 3, for a policy that is
    /// not good enough, with each condition that is not met, and for a store that writes over
    /// objects; [`Worm`](RemoteStorageError::Worm) for the signing key;
    /// [`Backend`](RemoteStorageError::Backend) and its like for a policy that cannot be read and
    /// for requests that fail.
    ///
    /// # Cancellation
    ///
    /// A dropped call may leave the probe, and gives its multipart upload up.
    pub async fn start_archive(
        backend: Backend,
        config: &WormConfig,
    ) -> Result<RemoteStorageBuilder, RemoteStorageError> {
        let location = backend.location().to_owned();
        let bucket = bucket_of(&backend, config)?;
        config.check()?;
        let archiver = WormArchiver::from_config(config)?;

        let backend = backend.with_checksums()?;
        let kind = backend.kind().clone();
        let trial = Self::builder(backend.clone()).build()?;
        let policy = match bucket {
            Some(bucket) => trial.retention(&bucket).await?,
            None => RetentionPolicy::default(),
        };
        let (store, prefix) = (trial.store(), trial.prefix());
        if !refuses_second_create(store, prefix).await? {
            return Err(RemoteStorageError::InvalidArgument(format!(
                "{location} cannot hold an archive: its store ignores the condition of a create \
                 and writes over objects, which it was seen to do (check its version, and whether \
                 something between changes requests)"
            )));
        }
        let large = match kind {
            // Its policy forbids to write over an object, and it knows no condition for uploads.
            StoreKind::Gcs { .. } => MultipartCreate::ReadBack,
            StoreKind::Opaque => MultipartCreate::OneRequest,
            StoreKind::S3 { .. } if !refuses_second_completion(store, prefix).await? => {
                MultipartCreate::Reserved
            }
            _ => MultipartCreate::Conditional,
        };
        tracing::info!(%location, ?large, versions = policy.versioned, "archive mode starts");
        let rules = SealRules {
            custom_metadata_limit: config.custom_metadata_limit,
            require_version_ids: policy.versioned,
        };
        let builder = Self::builder(backend).seal_on_unchecked_store(archiver, rules, large);
        Ok(if config.write_only {
            builder.write_only()
        } else {
            builder
        })
    }

    /// The bucket's policy, if it protects what is written.
    async fn retention(&self, bucket: &str) -> Result<RetentionPolicy, RemoteStorageError> {
        let read = ReadRetention {
            target: StoreTarget::object(Path::from(bucket)),
        };
        let policy = self.store().send(read).await?;
        // A client that was put in the place of the store's own may know of none.
        let policy = policy.unwrap_or_else(|| RetentionPolicy {
            unmet: vec!["nothing is known of its retention".to_owned()],
            versioned: false,
        });
        if policy.unmet.is_empty() {
            return Ok(policy);
        }
        Err(RemoteStorageError::InvalidArgument(format!(
            "bucket `{bucket}` does not protect an archive: {}",
            policy.unmet.join("; ")
        )))
    }
}

/// The bucket whose policy is to be looked at; `None` for a store without one that was allowed.
/// Nothing is sent.
fn bucket_of(backend: &Backend, config: &WormConfig) -> Result<Option<String>, RemoteStorageError> {
    let refused = |text: String| Err(RemoteStorageError::InvalidArgument(text));
    let location = backend.location();
    match backend.kind() {
        StoreKind::S3 {
            bucket,
            conditional_put: true,
        }
        | StoreKind::Gcs { bucket } => Ok(Some(bucket.clone())),
        StoreKind::S3 { bucket, .. } => refused(format!(
            "an archive needs `conditional_put = true` of the S3 store with the bucket `{bucket}`: \
             without it objects could be written over"
        )),
        StoreKind::Azure => refused(format!(
            "{location} cannot hold an archive: Azure Blob Storage is not supported yet, use S3 or \
             Google Cloud Storage"
        )),
        _ if config.allow_unprotected => Ok(None),
        _ => refused(format!(
            "{location} cannot refuse deletion: an archive needs an object-store configuration of \
             S3 or Google Cloud Storage with a bucket that can, or `allow_unprotected`"
        )),
    }
}
