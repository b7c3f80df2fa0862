//! The store that an archive is in.

use std::sync::Arc;

use krabka_remote_storage::archive::{ArchiveVerifyReport, VerifyRequest};
use krabka_remote_storage::backends::{Backend, ObjectStoreConfig};
use krabka_remote_storage::layout::{KeyPrefix, parse_partition_dir_name};
use krabka_remote_storage::ops::{ListUploads, StoreTarget};
use krabka_remote_storage::{RemoteStorage, RemoteStorageError};
use object_store::ObjectStore;

use crate::args::VerifyArgs;
use crate::console::chain;
use crate::failure::Failure;

/// An opened store, and where in it the archive is.
pub(crate) struct ArchiveStore {
    backend: Backend,
    reads: Arc<dyn ObjectStore>,
    prefix: KeyPrefix,
    is_protected: bool,
}

impl ArchiveStore {
    /// Opens the store that the arguments name. Sends no request, and makes nothing.
    pub(crate) fn open(args: &VerifyArgs) -> Result<Self, Failure> {
        let failed = |error: RemoteStorageError| Failure::during("cannot open the store", error);
        let config = args.store.config().map_err(failed)?;
        if let ObjectStoreConfig::Local { root } = &config
            && !root.is_dir()
        {
            let what = format!("there is no archive: {} is no directory", root.display());
            return Err(Failure::during(what, "a wrong path looks the same"));
        }
        let backend = config.open().map_err(failed)?;
        let Some(reads) = backend.object_store.clone() else {
            return Err(Failure::during(
                "cannot open the store",
                "it cannot be read without layers",
            ));
        };
        let below = args.prefix.as_deref().unwrap_or_default();
        let prefix = match (backend.prefix.as_path().as_ref(), below.trim_matches('/')) {
            (whole, "") => whole.to_owned(),
            ("", below) => below.to_owned(),
            (above, below) => format!("{above}/{below}"),
        };
        let prefix = KeyPrefix::new(&prefix)
            .map_err(|error| Failure::Usage(format!("--prefix: {error}")))?;
        Ok(Self {
            backend,
            reads,
            prefix,
            is_protected: can_refuse_deletion(&config),
        })
    }

    /// Where the archive is, without anything secret.
    pub(crate) fn location(&self) -> &str {
        self.backend.location()
    }

    /// The front part of the archive's keys.
    pub(crate) fn prefix(&self) -> &str {
        self.prefix.as_path().as_ref()
    }

    pub(crate) fn reads(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.reads)
    }

    /// Whether the store is of a kind that can refuse to delete what it holds.
    pub(crate) fn is_protected(&self) -> bool {
        self.is_protected
    }

    /// The keys of uploads that nobody has ended, in the partitions that were asked for; or why
    /// they could not be listed, in one line.
    pub(crate) async fn open_uploads(
        &self,
        request: &VerifyRequest,
        report: &ArchiveVerifyReport,
    ) -> Result<Vec<String>, String> {
        let one_line = |error: RemoteStorageError| chain(&error).replace("\n  caused by", "");
        let storage = RemoteStorage::builder(self.backend.clone())
            .build()
            .map_err(one_line)?;
        let target = StoreTarget::object(self.prefix.as_path().clone());
        let uploads = storage
            .send(ListUploads::new(target))
            .await
            .map_err(one_line)?;
        let is_meant = |key: &str| {
            if request.topic.is_none() && request.partition.is_none() {
                return true;
            }
            let directory = key.rsplit_once('/').map_or("", |(directory, _)| directory);
            let name = directory.rsplit('/').next().unwrap_or_default();
            let is_named = parse_partition_dir_name(name).is_some_and(|name| {
                request
                    .topic
                    .as_ref()
                    .is_none_or(|topic| *topic == name.topic)
                    && request.partition.is_none_or(|n| n == name.partition)
            });
            let mut partitions = report.partitions.iter();
            is_named || partitions.any(|partition| partition.partition_dir == directory)
        };
        let mut keys: Vec<String> = uploads
            .unwrap_or_default()
            .into_iter()
            .map(|upload| upload.key.to_string())
            .filter(|key| is_meant(key))
            .collect();
        keys.sort_unstable();
        Ok(keys)
    }
}

fn can_refuse_deletion(config: &ObjectStoreConfig) -> bool {
    match config {
        #[cfg(feature = "aws")]
        ObjectStoreConfig::S3(_) => true,
        #[cfg(feature = "gcp")]
        ObjectStoreConfig::Gcs(_) => true,
        _ => false,
    }
}
