//! Configurations of the stores, one type a store, and their URL form.
//!
//! | Store | Type | URL | Feature |
//! |---|---|---|---|
//! | local directory | [`ObjectStoreConfig::Local`] | `file:///abs/dir` | |
//! | memory | [`ObjectStoreConfig::InMemory`] | `memory:///` | |
//! | Amazon S3 and what speaks its protocol | `S3Config` | `s3://BUCKET/PREFIX` | `aws` |
//! | Google Cloud Storage | `GcsConfig` | `gs://BUCKET/PREFIX` | `gcp` |
//! | Azure Blob Storage | `AzureConfig` | `az://CONTAINER/PREFIX` | `azure` |
//!
//! A configuration is data: nothing is opened, read or asked before [`ObjectStoreConfig::open`].
//! Secrets appear in no `Debug` and in no message of an error.

#[cfg(feature = "_http")]
pub(super) mod checks;
pub(super) mod env;
pub(super) mod limits;
#[cfg(test)]
mod tests;
mod url;

use std::path::PathBuf;

#[cfg(feature = "azure")]
use super::AzureConfig;
#[cfg(feature = "gcp")]
use super::GcsConfig;
#[cfg(feature = "aws")]
use super::S3Config;
use super::{Backend, local, memory};
use crate::error::RemoteStorageError;
use env::Environment;

/// Where a tier is, and how its store is reached.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[allow(
    clippy::large_enum_variant,
    reason = "a process has a few of these; boxes would only get in the way of whoever writes one"
)]
pub enum ObjectStoreConfig {
    /// Amazon S3, or a store that speaks its protocol.
    #[cfg(feature = "aws")]
    S3(S3Config),
    /// Google Cloud Storage.
    #[cfg(feature = "gcp")]
    Gcs(GcsConfig),
    /// Azure Blob Storage.
    #[cfg(feature = "azure")]
    Azure(AzureConfig),
    /// A directory on a local file system.
    Local {
        /// The directory; made when the tier is opened, if it is missing.
        root: PathBuf,
    },
    /// Memory of this process. Each opening is a new, empty tier.
    InMemory,
}

impl ObjectStoreConfig {
    /// Reads the URL form; what is not in the URL comes from the environment of this process.
    ///
    /// `file:///abs/dir`, `memory:///`, `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`,
    /// `az://CONTAINER/PREFIX`. The prefix may be missing; it and the directory are
    /// percent-decoded. The environment variables are those that `object_store` reads, `AWS_…`,
    /// `GOOGLE_…` and `AZURE_…`; one that names a bucket or container yields to the URL.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument), which never repeats the URL: for
    /// user info or a query string in it, for what is no such URL, for a store whose feature is
    /// off, and for what [`validate`](Self::validate) refuses.
    pub fn from_url(url: &str) -> Result<Self, RemoteStorageError> {
        Self::from_url_in(url, &Environment::of_process())
    }

    fn from_url_in(url: &str, environment: &Environment) -> Result<Self, RemoteStorageError> {
        let config = url::parse(url, environment)?;
        config.validate()?;
        Ok(config)
    }

    /// Checks the configuration, without touching the store.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument) that names the field and not its
    /// value.
    pub fn validate(&self) -> Result<(), RemoteStorageError> {
        match self {
            #[cfg(feature = "aws")]
            Self::S3(config) => config.validate(),
            #[cfg(feature = "gcp")]
            Self::Gcs(config) => config.validate(),
            #[cfg(feature = "azure")]
            Self::Azure(config) => config.validate(),
            Self::Local { root } => local::config::validate(root),
            Self::InMemory => Ok(()),
        }
    }

    /// Makes the client of the store. Sends no request; a local directory is made if it is missing,
    /// and a file with credentials is read.
    ///
    /// # Errors
    ///
    /// As [`validate`](Self::validate), and [`Io`](RemoteStorageError::Io) for a local directory
    /// that cannot be made or a file that cannot be read.
    pub fn open(&self) -> Result<Backend, RemoteStorageError> {
        self.open_in(&Environment::of_process())
    }

    #[cfg_attr(not(feature = "_http"), expect(unused_variables))]
    fn open_in(&self, environment: &Environment) -> Result<Backend, RemoteStorageError> {
        match self {
            #[cfg(feature = "aws")]
            Self::S3(config) => config.open(environment),
            #[cfg(feature = "gcp")]
            Self::Gcs(config) => config.open(environment),
            #[cfg(feature = "azure")]
            Self::Azure(config) => config.open(environment),
            Self::Local { root } => local::config::open(root),
            Self::InMemory => Ok(memory::config::open()),
        }
    }
}
