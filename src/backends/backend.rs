//! An opened store.

use std::fmt;
use std::sync::Arc;

use object_store::ObjectStore;

use super::config::limits::RequestLimits;
use super::{ObjectStoreClient, StoreClient, StoreHandles};
use crate::error::RemoteStorageError;
use crate::layout::KeyPrefix;

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
    /// As [`ObjectStoreConfig::open`](super::ObjectStoreConfig::open).
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
