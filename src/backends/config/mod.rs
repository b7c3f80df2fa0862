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

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use object_store::ObjectStore;

pub use limits::{DEFAULT_MULTIPART_CHUNK_SIZE, DEFAULT_MULTIPART_THRESHOLD, RequestLimits};

#[cfg(feature = "azure")]
use super::AzureConfig;
#[cfg(feature = "gcp")]
use super::GcsConfig;
#[cfg(feature = "aws")]
use super::S3Config;
use super::{ObjectStoreClient, StoreClient, StoreHandles, local, memory};
use crate::error::RemoteStorageError;
use crate::layout::KeyPrefix;
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

/// What a backend is known to be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreKind {
    /// Amazon S3 or a store that speaks its protocol, opened from its configuration.
    S3 {
        /// The bucket.
        bucket: String,
        /// Whether the configuration says that the store honours conditional creates.
        conditional_put: bool,
    },
    /// Google Cloud Storage, opened from its configuration.
    Gcs {
        /// The bucket.
        bucket: String,
    },
    /// Azure Blob Storage.
    Azure,
    /// A local directory.
    Local,
    /// Memory of this process.
    Memory,
    /// A client that the caller made, of which nothing is known.
    Opaque,
}

/// Opens a store anew, in another way.
pub(in crate::backends) type Reopen =
    Arc<dyn Fn() -> Result<Backend, RemoteStorageError> + Send + Sync>;

/// An opened store: its client, where the tier lies in it, and the limits to keep.
#[derive(Clone)]
#[non_exhaustive]
pub struct Backend {
    /// Answers single requests.
    pub client: Arc<dyn StoreClient>,
    /// The front part of each of the tier's keys.
    pub prefix: KeyPrefix,
    /// What the layers above the client keep.
    pub limits: RequestLimits,
    /// A client as `object_store` knows it, for those who read the store without layers: it repeats
    /// requests by itself, within the same limits.
    pub object_store: Option<Arc<dyn ObjectStore>>,
    pub(in crate::backends) location: String,
    pub(in crate::backends) kind: StoreKind,
    /// Opens it with checksums, where it sends none.
    pub(in crate::backends) with_checksums: Option<Reopen>,
}

impl Backend {
    /// A store that the caller has made, with the default limits.
    ///
    /// Its own retries and timeouts must be off: its attempts and those of the layers above would
    /// multiply, and a long body would be cut. Of a store over HTTP, make the client with
    /// `HttpStoreConnector`, so that the layers see a body move.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument) for a prefix that cannot stand in
    /// a key.
    pub fn from_object_store(
        store: Arc<dyn ObjectStore>,
        prefix: Option<&str>,
    ) -> Result<Self, RemoteStorageError> {
        let prefix = KeyPrefix::new(prefix.unwrap_or_default())?;
        let location = match prefix.as_path().as_ref() {
            "" => store.to_string(),
            prefix => format!("{store}/{prefix}"),
        };
        let client = ObjectStoreClient::new(StoreHandles::opaque(Arc::clone(&store)));
        Ok(Self {
            client: Arc::new(client),
            prefix,
            limits: RequestLimits::default(),
            object_store: Some(store),
            location,
            kind: StoreKind::Opaque,
            with_checksums: None,
        })
    }

    /// Where the tier is, in a form to show: the store, the bucket and the prefix, no secret.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// What the store is known to be.
    pub fn kind(&self) -> &StoreKind {
        &self.kind
    }

    /// The same store with a checksum on each upload, where its protocol has one. A bucket of S3
    /// with a default retention takes no upload without.
    ///
    /// A client that sends none is made anew.
    ///
    /// # Errors
    ///
    /// As [`ObjectStoreConfig::open`].
    pub fn with_checksums(self) -> Result<Self, RemoteStorageError> {
        let Some(reopen) = &self.with_checksums else {
            return Ok(self);
        };
        let reopened = reopen()?;
        Ok(Self {
            client: reopened.client,
            object_store: reopened.object_store,
            with_checksums: None,
            ..self
        })
    }
}

impl From<Arc<dyn StoreClient>> for Backend {
    /// A client that the caller has made, of which nothing is known: the default limits, no prefix.
    fn from(client: Arc<dyn StoreClient>) -> Self {
        Self {
            client,
            prefix: KeyPrefix::default(),
            limits: RequestLimits::default(),
            object_store: None,
            location: "a store of the caller's own".to_owned(),
            kind: StoreKind::Opaque,
            with_checksums: None,
        }
    }
}

impl<C: StoreClient> From<Arc<C>> for Backend {
    fn from(client: Arc<C>) -> Self {
        Self::from(client as Arc<dyn StoreClient>)
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An `object_store` client shows its credentials in its Debug.
        f.debug_struct("Backend")
            .field("location", &self.location)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// `SCHEME://BUCKET/PREFIX`, of a bucket and prefix that were checked.
#[cfg(feature = "_http")]
pub(in crate::backends) fn location(scheme: &str, bucket: &str, prefix: &KeyPrefix) -> String {
    match prefix.as_path().as_ref() {
        "" => format!("{scheme}://{bucket}"),
        prefix => format!("{scheme}://{bucket}/{prefix}"),
    }
}
