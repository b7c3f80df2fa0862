//! Amazon S3, and every store that speaks its protocol.

mod completion;
#[cfg(test)]
pub(crate) mod fake;
mod retention;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{
    AmazonS3, AmazonS3Builder, AmazonS3ConfigKey as Key, Checksum, S3ConditionalPut,
};
use object_store::client::HttpConnector;
use object_store::{Attribute, Attributes};
use url::{Host, Url};

use crate::backends::backend::{Backend, Reopen, StoreKind};
use crate::backends::config::checks::{
    self, Checks, ClientFields, Patience, debug_without_secrets,
};
use crate::backends::config::env::Environment;
use crate::backends::config::limits::PartRule;
use crate::backends::config::limits::RequestLimits;
use crate::backends::http::HttpStoreConnector;
use crate::backends::http::open_uploads::BucketUploads;
use crate::backends::http::signed::{Authority, SignedClient};
use crate::backends::s3::completion::S3Completion;
use crate::backends::s3::retention::S3Retention;
use crate::backends::{ObjectStoreClient, StoreHandles};
use crate::error::RemoteStorageError;
use crate::layout::KeyPrefix;

const CHECKS: Checks = Checks("S3");

/// The region in which requests are signed for a store that knows none.
const PLACEHOLDER_REGION: &str = "us-east-1";

/// Limits of S3: <https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html>.
const PARTS: PartRule = PartRule {
    store: "S3",
    min_bytes: 5 * 1024 * 1024,
    max_parts: 10_000,
};

/// How a tier in Amazon S3, or in a store that speaks its protocol, is reached.
///
/// Credentials are the two keys, or, where neither is given, those of the surroundings, as
/// `object_store` finds them: the environment (`AWS_ACCESS_KEY_ID`, …), a web identity token, the
/// container's, the instance's. Those are read anew when the store refuses them.
///
/// `Debug` shows no secret.
#[derive(Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are independent settings, each with its own name in the documentation"
)]
#[non_exhaustive]
pub struct S3Config {
    /// The bucket. Required.
    pub bucket: String,
    /// The front part of every key. White space and slashes around it do not count.
    pub prefix: Option<String>,
    /// The region. Required for AWS; elsewhere it may be empty.
    pub region: String,
    /// The URL of a store that is not AWS, without the bucket, without user info.
    pub endpoint: Option<String>,
    /// The access key's id. Given together with the secret key, or not at all.
    pub access_key_id: Option<String>,
    /// The access key's secret.
    pub secret_access_key: Option<String>,
    /// The token that belongs to temporary keys.
    pub session_token: Option<String>,
    /// Allows an endpoint without TLS. Default false.
    pub allow_http: bool,
    /// Puts the bucket's name into the host name instead of the path. Default false.
    pub virtual_hosted_style: bool,
    /// Whether the store honours `If-None-Match: *`, which makes a create exact. An archive needs
    /// it. Default true.
    pub conditional_put: bool,
    /// Sends the SHA-256 of each upload, for the store to check. Default true.
    pub checksum_sha256: bool,
    /// Encrypts new objects with this key of AWS KMS (SSE-KMS).
    pub sse_kms_key_id: Option<String>,
    /// The storage class of new `.log` objects; the indexes stay in the bucket's standard class,
    /// because they are small and read often.
    pub storage_class: Option<String>,
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
    /// Settings of `object_store`'s S3 client that have no field here, by the names that it gives
    /// them: `aws_role_arn`, `aws_request_payer`, `aws_proxy_url`, ….
    pub options: BTreeMap<String, String>,
}

impl Default for S3Config {
    fn default() -> Self {
        let limits = RequestLimits::default();
        Self {
            bucket: String::new(),
            prefix: None,
            region: String::new(),
            endpoint: None,
            access_key_id: None,
            secret_access_key: None,
            session_token: None,
            allow_http: false,
            virtual_hosted_style: false,
            conditional_put: true,
            checksum_sha256: true,
            sse_kms_key_id: None,
            storage_class: None,
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
    S3Config,
    shown: [
        bucket, prefix, region, allow_http, virtual_hosted_style, conditional_put, checksum_sha256,
        storage_class, multipart_threshold, multipart_chunk_size, max_retries, retry_timeout,
        request_timeout, copy_deadline, max_parts_in_flight, max_reads, max_writes, connect_timeout
    ],
    secret: [access_key_id, secret_access_key, session_token, sse_kms_key_id]
);

impl S3Config {
    /// Checks the configuration, without touching the store.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument) that names the field and not its
    /// value.
    pub fn validate(&self) -> Result<(), RemoteStorageError> {
        // `:` divides tenant and bucket in Ceph.
        CHECKS.name("bucket", &self.bucket, &['-', '.', '_', ':'])?;
        self.key_prefix()?;
        self.bucket_url()?;
        CHECKS.header("access_key_id", self.access_key_id.as_deref())?;
        CHECKS.header("secret_access_key", self.secret_access_key.as_deref())?;
        CHECKS.header("session_token", self.session_token.as_deref())?;
        CHECKS.header("sse_kms_key_id", self.sse_kms_key_id.as_deref())?;
        CHECKS.header("storage_class", self.storage_class.as_deref())?;
        match (&self.access_key_id, &self.secret_access_key) {
            (Some(_), None) => {
                return Err(CHECKS.refuse(
                    "access_key_id",
                    "is given without `secret_access_key`: give both or neither",
                ));
            }
            (None, Some(_)) => {
                return Err(CHECKS.refuse(
                    "secret_access_key",
                    "is given without `access_key_id`: give both or neither",
                ));
            }
            (None, None) if self.session_token.is_some() => {
                return Err(CHECKS.refuse(
                    "session_token",
                    "is given without the two keys that it belongs to",
                ));
            }
            _ => {}
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

    /// The configuration of a bucket whose other settings stand in the environment of this process:
    /// the variables `AWS_…` that `object_store` reads. Nothing is checked yet but their values.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument) that names a variable and not its
    /// value.
    pub fn from_env(bucket: &str) -> Result<Self, RemoteStorageError> {
        Self::from_environment(bucket, None, &Environment::of_process())
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
            ..Self::default()
        };
        let mut default_region = None;
        let mut s3_endpoint = None;
        for (name, value) in environment.settings("AWS_") {
            // As `object_store` does, what it has no name for is left alone.
            let Ok(key) = name.parse::<Key>() else {
                continue;
            };
            let text = || Some(value.to_owned());
            match key {
                Key::Bucket => {}
                Key::AccessKeyId => config.access_key_id = text(),
                Key::SecretAccessKey => config.secret_access_key = text(),
                Key::Token => config.session_token = text(),
                Key::Region => value.clone_into(&mut config.region),
                Key::DefaultRegion => default_region = text(),
                Key::Endpoint => config.endpoint = text(),
                Key::S3Endpoint => s3_endpoint = text(),
                Key::VirtualHostedStyleRequest => {
                    config.virtual_hosted_style = checks::boolean(&name, value)?;
                }
                Key::ConditionalPut => {
                    config.conditional_put = match value.trim() {
                        "etag" => true,
                        "disabled" => false,
                        _ => {
                            let what = "is neither `etag` nor `disabled`";
                            return Err(CHECKS.refuse("AWS_CONDITIONAL_PUT", what));
                        }
                    };
                }
                Key::Checksum if value.eq_ignore_ascii_case("sha256") => {}
                Key::Checksum => {
                    config.checksum_sha256 = false;
                    config.options.insert(name, value.to_owned());
                }
                Key::Client(client) if config.client_fields().set(client, &name, value)? => {}
                _ => {
                    config.options.insert(name, value.to_owned());
                }
            }
        }
        config.endpoint = s3_endpoint.or(config.endpoint);
        if config.region.is_empty() {
            config.region = default_region.unwrap_or_else(|| PLACEHOLDER_REGION.to_owned());
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
        let location = crate::backends::backend::location("s3", &self.bucket, &prefix);
        let connection = Connection {
            config: self.clone(),
            environment: environment.clone(),
        };
        let connected = connection.make(Patience::OfLayers)?;
        let alone = connection.make(Patience::OfClient)?.store;
        let mut client = ObjectStoreClient::new(connected.handles())
            .with_upload_lister(connected.uploads().into_lister())
            .with_retention_reader(connected.retention(self)?.into_reader())
            .with_log_attributes(self.log_attributes());
        if self.access_key_id.is_none() {
            client = client.with_reconnect(Arc::new(move || {
                connection
                    .make(Patience::OfLayers)
                    .map(|connected| connected.handles())
            }));
        }
        Ok(Backend {
            client: Arc::new(client),
            prefix,
            limits: self.limits(),
            object_store: Some(alone),
            location,
            kind: StoreKind::S3 {
                bucket: self.bucket.clone(),
                conditional_put: self.conditional_put,
            },
            with_checksums: self.with_checksums(environment),
        })
    }

    /// How to open the store with checksums, if its uploads have none.
    fn with_checksums(&self, environment: &Environment) -> Option<Reopen> {
        let other = |(key, _): &(Key, &str)| matches!(key, Key::Checksum);
        if self.checksum_sha256 || self.further_options().ok()?.iter().any(other) {
            return None;
        }
        let environment = environment.clone();
        let config = Self {
            checksum_sha256: true,
            ..self.clone()
        };
        Some(Arc::new(move || config.open(&environment)))
    }

    fn key_prefix(&self) -> Result<KeyPrefix, RemoteStorageError> {
        KeyPrefix::new(self.prefix.as_deref().unwrap_or_default())
    }

    fn log_attributes(&self) -> Attributes {
        let class = self.storage_class.clone();
        class
            .map(|class| (Attribute::StorageClass, class))
            .into_iter()
            .collect()
    }

    fn signing_region(&self) -> &str {
        if self.region.is_empty() {
            PLACEHOLDER_REGION
        } else {
            &self.region
        }
    }

    /// The URL that a key is appended to.
    fn bucket_url(&self) -> Result<Url, RemoteStorageError> {
        // The region becomes part of a host name, and of a header.
        if !self.region.is_empty() {
            CHECKS.name("region", &self.region, &['-'])?;
        }
        let bucket = &self.bucket;
        let endpoint = match &self.endpoint {
            Some(endpoint) => CHECKS.endpoint("endpoint", endpoint, self.allow_http)?,
            None if self.region.is_empty() => {
                return Err(CHECKS.refuse(
                    "region",
                    "is empty: AWS needs it (only with an `endpoint` it may be left out)",
                ));
            }
            None => {
                let region = &self.region;
                CHECKS.endpoint(
                    "region",
                    &format!("https://s3.{region}.amazonaws.com"),
                    false,
                )?
            }
        };
        let mut base = checks::base_of(&endpoint);
        if self.virtual_hosted_style {
            let Some(Host::Domain(host)) = endpoint.host() else {
                return Err(CHECKS.refuse(
                    "endpoint",
                    "has an address in place of a host name, which leaves no room for \
                     `virtual_hosted_style`",
                ));
            };
            if !host.starts_with(&format!("{bucket}.")) {
                base = base.replacen("://", &format!("://{bucket}."), 1);
            }
        } else {
            base = format!("{base}/{bucket}");
        }
        Url::parse(&base).map_err(|error| {
            CHECKS.refuse(
                "endpoint",
                format_args!("makes no URL with the bucket: {error}"),
            )
        })
    }

    /// The URL for requests about the bucket as a whole. Its name stands in the path, unless the
    /// endpoint has it already.
    fn policy_url(&self) -> Result<Url, RemoteStorageError> {
        let in_endpoint = |endpoint: &str| {
            let host = format!("://{}.", self.bucket);
            self.virtual_hosted_style && endpoint.contains(&host)
        };
        if self.endpoint.as_deref().is_some_and(in_endpoint) {
            return self.bucket_url();
        }
        let path_style = Self {
            virtual_hosted_style: false,
            ..self.clone()
        };
        path_style.bucket_url()
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
                Key::AccessKeyId
                | Key::Bucket
                | Key::ConditionalPut
                | Key::DefaultRegion
                | Key::Endpoint
                | Key::Region
                | Key::S3Endpoint
                | Key::SecretAccessKey
                | Key::Token
                | Key::VirtualHostedStyleRequest => Some("has a field of its own"),
                // Directory buckets sign differently and know neither versions nor locks.
                Key::S3Express => Some("is not supported"),
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

/// What a client is made of, kept to make it anew.
struct Connection {
    config: S3Config,
    environment: Environment,
}

impl Connection {
    fn make(&self, patience: Patience) -> Result<Connected, RemoteStorageError> {
        let config = &self.config;
        let bucket_url = config.bucket_url()?;
        let mut client_options = patience.client_options(&config.limits(), config.allow_http);
        let mut builder = AmazonS3Builder::new();
        let mut secrets = Vec::new();
        let mut unsigned = false;
        let mut request_payer = false;

        if let (Some(id), Some(secret)) = (&config.access_key_id, &config.secret_access_key) {
            builder = builder
                .with_access_key_id(id)
                .with_secret_access_key(secret);
            secrets.extend([id.clone(), secret.clone()]);
            if let Some(token) = &config.session_token {
                builder = builder.with_token(token);
                secrets.push(token.clone());
            }
        } else {
            for (name, value) in self.environment.settings("AWS_") {
                if let Ok(key) = name.parse::<Key>()
                    && is_of_the_surroundings(key)
                {
                    if matches!(key, Key::AccessKeyId | Key::SecretAccessKey | Key::Token) {
                        CHECKS.header(&name.to_ascii_uppercase(), Some(value))?;
                        secrets.push(value.to_owned());
                    }
                    builder = builder.with_config(key, value);
                }
            }
        }
        for (key, value) in config.further_options()? {
            match key {
                Key::Client(client) => client_options = client_options.with_config(client, value),
                key => {
                    match key {
                        Key::SkipSignature => {
                            unsigned = checks::boolean("AWS_SKIP_SIGNATURE", value)?;
                        }
                        Key::RequestPayer => {
                            request_payer = value.eq_ignore_ascii_case("requester")
                                || checks::boolean("AWS_REQUEST_PAYER", value)?;
                        }
                        Key::Encryption(_) => secrets.push(value.to_owned()),
                        _ => {}
                    }
                    builder = builder.with_config(key, value);
                }
            }
        }
        if config.checksum_sha256 {
            builder = builder.with_checksum_algorithm(Checksum::SHA256);
        }
        if let Some(key) = &config.sse_kms_key_id {
            builder = builder.with_sse_kms_encryption(key);
        }

        let connector = HttpStoreConnector::new()
            .hiding(secrets)
            .bypassing_proxies(checks::is_loopback(&bucket_url));
        let store = builder
            .with_bucket_name(&config.bucket)
            .with_region(config.signing_region())
            // The whole URL is ours, so that there is one place that makes it.
            .with_endpoint(checks::base_of(&bucket_url))
            .with_virtual_hosted_style_request(true)
            // `object_store` takes conditional puts for granted: off must be said.
            .with_conditional_put(if config.conditional_put {
                S3ConditionalPut::ETagMatch
            } else {
                S3ConditionalPut::Disabled
            })
            // One DELETE a key: a bulk request answers 200 with its errors in the body, and not
            // every store has it.
            .with_disable_bulk_delete(true)
            .with_client_options(client_options.clone())
            .with_retry(patience.retries(&config.limits()))
            .with_http_connector(connector.clone())
            .build()
            // The cause may repeat what it could not read.
            .map_err(|_| CHECKS.refuse("options", "or `AWS_…` variables make no client"))?;
        let signed = SignedClient {
            client: connector
                .connect(&client_options)
                .map_err(|_| CHECKS.refuse("options", "make no HTTP client"))?,
            authority: if unsigned {
                Authority::None
            } else {
                Authority::Aws {
                    credentials: Arc::clone(store.credentials()),
                    region: config.signing_region().to_owned(),
                    request_payer,
                }
            },
        };
        Ok(Connected {
            store: Arc::new(store),
            signed,
            bucket_url,
        })
    }
}

/// A client, and what sends the requests that it has no method for.
struct Connected {
    store: Arc<AmazonS3>,
    signed: SignedClient,
    bucket_url: Url,
}

impl Connected {
    fn handles(&self) -> StoreHandles {
        StoreHandles::with_multipart(Arc::clone(&self.store)).with_completion(S3Completion {
            client: self.signed.clone(),
            bucket_url: self.bucket_url.clone(),
        })
    }

    fn retention(&self, config: &S3Config) -> Result<S3Retention, RemoteStorageError> {
        Ok(S3Retention {
            client: self.signed.clone(),
            policy_url: config.policy_url()?,
            bucket: config.bucket.clone(),
        })
    }

    fn uploads(&self) -> BucketUploads {
        BucketUploads {
            client: self.signed.clone(),
            bucket_url: self.bucket_url.clone(),
        }
    }
}

/// Whether a variable says where credentials come from.
fn is_of_the_surroundings(key: Key) -> bool {
    matches!(
        key,
        Key::AccessKeyId
            | Key::SecretAccessKey
            | Key::Token
            | Key::ImdsV1Fallback
            | Key::MetadataEndpoint
            | Key::ContainerCredentialsRelativeUri
            | Key::ContainerCredentialsFullUri
            | Key::ContainerAuthorizationTokenFile
            | Key::WebIdentityTokenFile
            | Key::RoleArn
            | Key::RoleSessionName
            | Key::StsEndpoint
    )
}
