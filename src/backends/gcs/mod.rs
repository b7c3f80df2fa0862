//! Google Cloud Storage.

mod retention;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use object_store::client::HttpConnector;
use object_store::gcp::{GoogleCloudStorage, GoogleCloudStorageBuilder, GoogleConfigKey as Key};
use serde::Deserialize;
use url::Url;

use crate::backends::backend::{Backend, StoreKind};
use crate::backends::config::checks::{
    self, Checks, ClientFields, Patience, debug_without_secrets,
};
use crate::backends::config::env::Environment;
use crate::backends::config::limits::PartRule;
use crate::backends::config::limits::RequestLimits;
use crate::backends::gcs::retention::GcsRetention;
use crate::backends::http::HttpStoreConnector;
use crate::backends::http::open_uploads::BucketUploads;
use crate::backends::http::signed::{Authority, SignedClient};
use crate::backends::{ObjectStoreClient, StoreHandles};
use crate::error::RemoteStorageError;
use crate::layout::KeyPrefix;

const CHECKS: Checks = Checks("GCS");

const GOOGLE: &str = "https://storage.googleapis.com";

/// Limits of multipart uploads: <https://cloud.google.com/storage/quotas#requests>.
const PARTS: PartRule = PartRule {
    store: "Google Cloud Storage",
    min_bytes: 5 * 1024 * 1024,
    max_parts: 10_000,
};

/// How a tier in Google Cloud Storage is reached.
///
/// Credentials are the key of a service account, its file, a file of application credentials, or,
/// where none of these is given, those of the surroundings, as `object_store` finds them: the
/// environment (`GOOGLE_APPLICATION_CREDENTIALS`, …), the application default credentials, the
/// workload's identity. Those are read anew when the store refuses them.
///
/// `Debug` shows no secret.
#[derive(Clone)]
#[non_exhaustive]
pub struct GcsConfig {
    /// The bucket. Required.
    pub bucket: String,
    /// The front part of every key. White space and slashes around it do not count.
    pub prefix: Option<String>,
    /// The base URL of the API where it is not Google's, without the bucket, without user info.
    pub endpoint: Option<String>,
    /// The file with the key of a service account. Excludes `service_account_key`.
    pub service_account_path: Option<String>,
    /// The key of a service account, as JSON. Excludes `service_account_path`.
    pub service_account_key: Option<String>,
    /// A file of application credentials; a service account goes before it.
    pub application_credentials_path: Option<String>,
    /// Allows an endpoint without TLS. Default false.
    pub allow_http: bool,
    /// As [`RequestLimits::multipart_threshold`].
    pub multipart_threshold: u64,
    /// As [`RequestLimits::multipart_chunk_size`]; at least 5 MiB.
    pub multipart_chunk_size: usize,
    /// As [`RequestLimits::max_retries`].
    pub max_retries: usize,
    /// As [`RequestLimits::retry_timeout`].
    pub retry_timeout: Duration,
    /// As [`RequestLimits::request_timeout`].
    pub request_timeout: Duration,
    /// As [`RequestLimits::copy_deadline`].
    pub copy_deadline: Duration,
    /// As [`RequestLimits::max_parts_in_flight`].
    pub max_parts_in_flight: usize,
    /// As [`RequestLimits::max_reads`].
    pub max_reads: usize,
    /// As [`RequestLimits::max_writes`].
    pub max_writes: usize,
    /// As [`RequestLimits::connect_timeout`].
    pub connect_timeout: Duration,
    /// Settings of `object_store`'s GCS client that have no field here, by the names that it gives
    /// them: `google_bearer_token`, `google_proxy_url`, ….
    pub options: BTreeMap<String, String>,
}

impl Default for GcsConfig {
    fn default() -> Self {
        let limits = RequestLimits::default();
        Self {
            bucket: String::new(),
            prefix: None,
            endpoint: None,
            service_account_path: None,
            service_account_key: None,
            application_credentials_path: None,
            allow_http: false,
            multipart_threshold: limits.multipart_threshold,
            multipart_chunk_size: limits.multipart_chunk_size,
            max_retries: limits.max_retries,
            retry_timeout: limits.retry_timeout,
            request_timeout: limits.request_timeout,
            copy_deadline: limits.copy_deadline,
            max_parts_in_flight: limits.max_parts_in_flight,
            max_reads: limits.max_reads,
            max_writes: limits.max_writes,
            connect_timeout: limits.connect_timeout,
            options: BTreeMap::new(),
        }
    }
}

debug_without_secrets!(
    GcsConfig,
    shown: [
        bucket, prefix, allow_http, multipart_threshold, multipart_chunk_size, max_retries,
        retry_timeout, request_timeout, copy_deadline, max_parts_in_flight, max_reads, max_writes,
        connect_timeout
    ],
    secret: [service_account_path, service_account_key, application_credentials_path]
);

impl GcsConfig {
    /// Checks the configuration, without touching the store or a file.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument) that names the field and not its
    /// value.
    pub fn validate(&self) -> Result<(), RemoteStorageError> {
        CHECKS.name("bucket", &self.bucket, &['-', '.', '_'])?;
        self.key_prefix()?;
        if let Some(endpoint) = &self.endpoint {
            CHECKS.endpoint("endpoint", endpoint, self.allow_http)?;
        }
        if self.service_account_path.is_some() && self.service_account_key.is_some() {
            return Err(CHECKS.refuse(
                "service_account_path",
                "is given together with `service_account_key`: give one of them",
            ));
        }
        if let Some(key) = &self.service_account_key {
            ServiceAccount::parse("service_account_key", key.as_bytes())?
                .check_base_url("service_account_key", self.allow_http)?;
        }
        let limits = self.limits();
        limits.validate()?;
        limits.check_parts(&PARTS)?;
        self.further_options().map(drop)
    }

    /// What the layers above the store keep.
    pub fn limits(&self) -> RequestLimits {
        RequestLimits {
            max_retries: self.max_retries,
            retry_timeout: self.retry_timeout,
            request_timeout: self.request_timeout,
            copy_deadline: self.copy_deadline,
            connect_timeout: self.connect_timeout,
            max_parts_in_flight: self.max_parts_in_flight,
            max_reads: self.max_reads,
            max_writes: self.max_writes,
            multipart_threshold: self.multipart_threshold,
            multipart_chunk_size: self.multipart_chunk_size,
        }
    }

    /// The configuration of a bucket whose other settings stand in the environment.
    pub(in crate::backends) fn from_environment(
        bucket: &str,
        prefix: Option<String>,
        environment: &Environment,
    ) -> Result<Self, RemoteStorageError> {
        let mut config = Self {
            bucket: bucket.to_owned(),
            prefix,
            service_account_path: environment.get("SERVICE_ACCOUNT").map(str::to_owned),
            ..Self::default()
        };
        let mut says_http = false;
        for (name, value) in environment.settings("GOOGLE_") {
            // As `object_store` does, what it has no name for is left alone.
            let Ok(key) = name.parse::<Key>() else {
                continue;
            };
            let text = || Some(value.to_owned());
            match key {
                Key::Bucket => {}
                Key::BaseUrl => config.endpoint = text(),
                Key::ServiceAccount => config.service_account_path = text(),
                Key::ServiceAccountKey => config.service_account_key = text(),
                Key::ApplicationCredentials => config.application_credentials_path = text(),
                Key::Client(client) => {
                    says_http |= client == object_store::ClientConfigKey::AllowHttp;
                    if !config.client_fields().set(client, &name, value)? {
                        config.options.insert(name, value.to_owned());
                    }
                }
                _ => {
                    config.options.insert(name, value.to_owned());
                }
            }
        }
        if !says_http {
            // `object_store` lets this store be named with an http URL in the environment.
            let named = match (&config.endpoint, &config.service_account_key) {
                (Some(endpoint), _) => Some(endpoint.clone()),
                (None, Some(key)) => {
                    ServiceAccount::parse("service_account_key", key.as_bytes())?.gcs_base_url
                }
                (None, None) => None,
            };
            config.allow_http = named.is_some_and(|url| url.starts_with("http://"));
        }
        Ok(config)
    }

    fn client_fields(&mut self) -> ClientFields<'_> {
        ClientFields {
            allow_http: &mut self.allow_http,
            connect_timeout: &mut self.connect_timeout,
            request_timeout: &mut self.request_timeout,
        }
    }

    /// Makes the client. See [`ObjectStoreConfig::open`](crate::backends::ObjectStoreConfig::open).
    pub(in crate::backends) fn open(
        &self,
        environment: &Environment,
    ) -> Result<Backend, RemoteStorageError> {
        self.validate()?;
        let prefix = self.key_prefix()?;
        let location = crate::backends::backend::location("gs", &self.bucket, &prefix);
        let connection = Connection {
            config: self.clone(),
            environment: environment.clone(),
        };
        let Connected {
            store,
            signed,
            base_url,
        } = connection.make(Patience::OfLayers)?;
        let alone = connection.make(Patience::OfClient)?.store;
        let uploads = BucketUploads {
            client: signed.clone(),
            bucket_url: base_url
                .join(&self.bucket)
                .map_err(|_| CHECKS.refuse("endpoint", "makes no URL with the bucket"))?,
        };
        let retention = GcsRetention {
            client: signed,
            base_url,
            bucket: self.bucket.clone(),
        };
        let mut client = ObjectStoreClient::new(StoreHandles::with_multipart(store))
            .with_upload_lister(uploads.into_lister())
            .with_retention_reader(retention.into_reader());
        if !self.has_credentials() {
            client = client.with_reconnect(Arc::new(move || {
                connection
                    .make(Patience::OfLayers)
                    .map(|connected| StoreHandles::with_multipart(connected.store))
            }));
        }
        Ok(Backend {
            client: Arc::new(client),
            prefix,
            limits: self.limits(),
            object_store: Some(alone),
            location,
            kind: StoreKind::Gcs {
                bucket: self.bucket.clone(),
            },
            with_checksums: None,
        })
    }

    fn has_credentials(&self) -> bool {
        self.service_account_path.is_some()
            || self.service_account_key.is_some()
            || self.application_credentials_path.is_some()
            || self
                .further_options()
                .is_ok_and(|options| options.iter().any(|(key, _)| *key == Key::BearerToken))
    }

    fn key_prefix(&self) -> Result<KeyPrefix, RemoteStorageError> {
        KeyPrefix::new(self.prefix.as_deref().unwrap_or_default())
    }

    /// The further options, each under the name that the client knows.
    fn further_options(&self) -> Result<Vec<(Key, &str)>, RemoteStorageError> {
        let mut options = Vec::with_capacity(self.options.len());
        for (name, value) in &self.options {
            let key: Key = name.to_ascii_lowercase().parse().map_err(|_| {
                CHECKS.refuse(
                    "options",
                    format_args!("have `{name}`, which is no setting of it"),
                )
            })?;
            let refused = match key {
                Key::ApplicationCredentials
                | Key::BaseUrl
                | Key::Bucket
                | Key::ServiceAccount
                | Key::ServiceAccountKey => Some("has a field of its own"),
                // Its client signs writes all the same.
                Key::SkipSignature => Some("is not supported"),
                Key::Client(client) => checks::refused_client_option(client),
                _ => None,
            };
            if let Some(why) = refused {
                return Err(CHECKS.refuse("options", format_args!("have `{name}`, which {why}")));
            }
            options.push((key, value.as_str()));
        }
        Ok(options)
    }
}

/// What this crate reads of a service account's key.
#[derive(Deserialize)]
struct ServiceAccount {
    gcs_base_url: Option<String>,
    private_key: String,
}

impl ServiceAccount {
    fn parse(field: &str, json: &[u8]) -> Result<Self, RemoteStorageError> {
        // The cause may repeat a part of the key.
        serde_json::from_slice(json).map_err(|_| {
            CHECKS.refuse(
                field,
                "is no key of a service account: give the JSON that Google made, `private_key` \
                 included",
            )
        })
    }

    fn read(path: &str) -> Result<Self, RemoteStorageError> {
        let json = std::fs::read(path)
            .map_err(|error| RemoteStorageError::io("read", Path::new(path), error))?;
        Self::parse("service_account_path", &json)
    }

    fn check_base_url(
        &self,
        field: &str,
        allow_http: bool,
    ) -> Result<Option<Url>, RemoteStorageError> {
        let url = self.gcs_base_url.as_deref();
        url.map(|url| CHECKS.endpoint(&format!("gcs_base_url in {field}"), url, allow_http))
            .transpose()
    }
}

/// What a client is made of, kept to make it anew.
struct Connection {
    config: GcsConfig,
    environment: Environment,
}

impl Connection {
    fn make(&self, patience: Patience) -> Result<Connected, RemoteStorageError> {
        let config = &self.config;
        let mut client_options = patience.client_options(&config.limits(), config.allow_http);
        let mut builder = GoogleCloudStorageBuilder::new();
        let mut secrets = Vec::new();

        let mut credentials: Vec<(Key, String)> = [
            (Key::ServiceAccount, &config.service_account_path),
            (Key::ServiceAccountKey, &config.service_account_key),
            (
                Key::ApplicationCredentials,
                &config.application_credentials_path,
            ),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key, value.clone()?)))
        .collect();
        if !config.has_credentials() {
            credentials.extend(self.surroundings());
        }
        for (key, value) in config.further_options()? {
            match key {
                Key::Client(client) => client_options = client_options.with_config(client, value),
                key => credentials.push((key, value.to_owned())),
            }
        }
        let mut base_url = match &config.endpoint {
            Some(endpoint) => Some(CHECKS.endpoint("endpoint", endpoint, config.allow_http)?),
            None => None,
        };
        for (key, value) in credentials {
            let account = match key {
                Key::ServiceAccount => Some(ServiceAccount::read(&value)?),
                Key::ServiceAccountKey => Some(ServiceAccount::parse(
                    "service_account_key",
                    value.as_bytes(),
                )?),
                Key::BearerToken => {
                    CHECKS.header("google_bearer_token", Some(&value))?;
                    secrets.push(value.clone());
                    None
                }
                _ => None,
            };
            if let Some(account) = account {
                let named = account.check_base_url(key.as_ref(), config.allow_http)?;
                base_url = base_url.or(named);
                secrets.push(account.private_key);
            }
            builder = builder.with_config(key, value);
        }

        let base_url = match base_url {
            Some(url) => url,
            None => CHECKS.endpoint("endpoint", GOOGLE, false)?,
        };
        let connector = HttpStoreConnector::new()
            .hiding(secrets)
            .bypassing_proxies(checks::is_loopback(&base_url));
        let store = builder
            .with_bucket_name(&config.bucket)
            .with_base_url(&checks::base_of(&base_url))
            .with_client_options(client_options.clone())
            .with_retry(patience.retries(&config.limits()))
            .with_http_connector(connector.clone())
            .build()
            // The cause may repeat what it could not read.
            .map_err(|_| {
                CHECKS.refuse(
                    "service_account_path",
                    "or another of its credentials cannot be read: give files and keys as Google \
                     made them",
                )
            })?;
        Ok(Connected {
            signed: SignedClient {
                client: connector
                    .connect(&client_options)
                    .map_err(|_| CHECKS.refuse("options", "make no HTTP client"))?,
                authority: Authority::Google(Arc::clone(store.credentials())),
            },
            store: Arc::new(store),
            base_url: Url::parse(&format!("{}/", checks::base_of(&base_url)))
                .map_err(|_| CHECKS.refuse("endpoint", "is no URL"))?,
        })
    }

    /// The credentials that the environment names.
    fn surroundings(&self) -> impl Iterator<Item = (Key, String)> {
        let file = self.environment.get("SERVICE_ACCOUNT");
        let settings = self.environment.settings("GOOGLE_");
        file.map(|file| (Key::ServiceAccount, file.to_owned()))
            .into_iter()
            .chain(settings.filter_map(|(name, value)| {
                let key = name.parse().ok()?;
                matches!(
                    key,
                    Key::ServiceAccount
                        | Key::ServiceAccountKey
                        | Key::ApplicationCredentials
                        | Key::BearerToken
                )
                .then(|| (key, value.to_owned()))
            }))
    }
}

/// A client, and what sends the requests that it has no method for.
struct Connected {
    store: Arc<GoogleCloudStorage>,
    signed: SignedClient,
    /// Ends with a slash.
    base_url: Url,
}
