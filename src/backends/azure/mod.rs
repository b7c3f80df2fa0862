//! Azure Blob Storage.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use object_store::azure::{AzureConfigKey as Key, MicrosoftAzure, MicrosoftAzureBuilder};
use percent_encoding::percent_decode_str;
use url::Url;

use crate::backends::backend::{Backend, StoreKind};
use crate::backends::config::checks::{
    self, Checks, ClientFields, Patience, debug_without_secrets,
};
use crate::backends::config::env::Environment;
use crate::backends::config::limits::PartRule;
use crate::backends::config::limits::RequestLimits;
use crate::backends::http::HttpStoreConnector;
use crate::backends::{ObjectStoreClient, StoreHandles};
use crate::error::RemoteStorageError;
use crate::layout::KeyPrefix;

const CHECKS: Checks = Checks("Azure");

/// Limits of block blobs:
/// <https://learn.microsoft.com/rest/api/storageservices/understanding-block-blobs--append-blobs--and-page-blobs>.
const PARTS: PartRule = PartRule {
    store: "Azure Blob Storage",
    min_bytes: 1,
    max_parts: 50_000,
};

/// The emulator's address, account and key are the same for everyone:
/// <https://learn.microsoft.com/azure/storage/common/storage-use-azurite>.
const EMULATOR_ENDPOINT: &str = "http://127.0.0.1:10000";
const EMULATOR_ACCOUNT: &str = "devstoreaccount1";
const EMULATOR_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// How a tier in Azure Blob Storage is reached.
///
/// Credentials are an access key, a SAS token, a client's id with its secret and tenant, or, where
/// none of these is given, those of the surroundings, as `object_store` finds them: the environment
/// (`AZURE_STORAGE_ACCOUNT_KEY`, …), a workload's identity, a managed identity. Those are read anew
/// when the store refuses them.
///
/// `Debug` shows no secret.
#[derive(Clone)]
#[non_exhaustive]
pub struct AzureConfig {
    /// The storage account. Required, but for the emulator.
    pub account: String,
    /// The container. Required.
    pub container: String,
    /// The front part of every key. White space and slashes around it do not count.
    pub prefix: Option<String>,
    /// The URL of the account's blob service where it is not Azure's own, without the container,
    /// without user info. Of the emulator, the URL without the account.
    pub endpoint: Option<String>,
    /// The account's access key, in Base64.
    pub access_key: Option<String>,
    /// A shared access signature: the query string that permits the requests.
    pub sas_token: Option<String>,
    /// The id of an application of Entra ID; with `client_secret` and `tenant_id`.
    pub client_id: Option<String>,
    /// The application's secret.
    pub client_secret: Option<String>,
    /// The application's tenant.
    pub tenant_id: Option<String>,
    /// Speaks to Azurite, with its well-known account and key unless others are given. Default
    /// false.
    pub use_emulator: bool,
    /// Allows an endpoint without TLS. Default false; the emulator has none.
    pub allow_http: bool,
    /// As [`RequestLimits::multipart_threshold`].
    pub multipart_threshold: u64,
    /// As [`RequestLimits::multipart_chunk_size`].
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
    /// Settings of `object_store`'s Azure client that have no field here, by the names that it
    /// gives them: `azure_storage_token`, `azure_federated_token_file`, `azure_proxy_url`, ….
    pub options: BTreeMap<String, String>,
}

impl Default for AzureConfig {
    fn default() -> Self {
        let limits = RequestLimits::default();
        Self {
            account: String::new(),
            container: String::new(),
            prefix: None,
            endpoint: None,
            access_key: None,
            sas_token: None,
            client_id: None,
            client_secret: None,
            tenant_id: None,
            use_emulator: false,
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
    AzureConfig,
    shown: [
        account, container, prefix, use_emulator, allow_http, multipart_threshold,
        multipart_chunk_size, max_retries, retry_timeout, request_timeout, copy_deadline,
        max_parts_in_flight, max_reads, max_writes, connect_timeout
    ],
    secret: [access_key, sas_token, client_id, client_secret, tenant_id]
);

impl AzureConfig {
    /// Checks the configuration, without touching the store.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument) that names the field and not its
    /// value.
    pub fn validate(&self) -> Result<(), RemoteStorageError> {
        CHECKS.name("account", self.account_name(), &['-'])?;
        // `$root`, `$web` and `$logs` are Azure's own.
        CHECKS.name("container", &self.container, &['-', '$'])?;
        self.key_prefix()?;
        self.service_url(&Environment::default())?;
        for (field, value) in [
            ("access_key", &self.access_key),
            ("sas_token", &self.sas_token),
            ("client_id", &self.client_id),
            ("client_secret", &self.client_secret),
            ("tenant_id", &self.tenant_id),
        ] {
            CHECKS.header(field, value.as_deref())?;
        }
        let client = [
            ("client_id", self.client_id.is_some()),
            ("client_secret", self.client_secret.is_some()),
            ("tenant_id", self.tenant_id.is_some()),
        ];
        let given = client.iter().filter(|(_, given)| *given).count();
        if let (1..3, Some((missing, _))) = (given, client.iter().find(|(_, given)| !given)) {
            return Err(CHECKS.refuse(
                missing,
                "is missing: `client_id`, `client_secret` and `tenant_id` go together",
            ));
        }
        let options = self.further_options()?;
        let kinds = usize::from(self.access_key.is_some())
            + usize::from(self.sas_token.is_some())
            + usize::from(given > 0);
        let in_options = options.iter().any(|(key, _)| is_credential(*key));
        if kinds > 1 || (kinds > 0 && in_options) {
            return Err(CHECKS.refuse(
                "access_key",
                "is not its only credential: give one of `access_key`, `sas_token` and the three \
                 of a client",
            ));
        }
        let limits = self.limits();
        limits.validate()?;
        limits.check_parts(&PARTS)
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

    /// The configuration of a container whose other settings stand in the environment.
    pub(in crate::backends) fn from_environment(
        container: &str,
        prefix: Option<String>,
        environment: &Environment,
    ) -> Result<Self, RemoteStorageError> {
        let mut config = Self {
            container: container.to_owned(),
            prefix,
            ..Self::default()
        };
        for (name, value) in settings(environment) {
            // As `object_store` does, what it has no name for is left alone.
            let Ok(key) = name.parse::<Key>() else {
                continue;
            };
            match key {
                Key::ContainerName => {}
                Key::AccountName => value.clone_into(&mut config.account),
                Key::Endpoint => config.endpoint = Some(value.to_owned()),
                Key::UseEmulator => config.use_emulator = checks::boolean(&name, value)?,
                Key::Client(client) if config.client_fields().set(client, &name, value)? => {}
                _ => {
                    config
                        .options
                        .insert(key.as_ref().to_owned(), value.to_owned());
                }
            }
        }
        if config.use_emulator {
            // With its emulator on, `object_store` looks nowhere else.
            config.endpoint = environment
                .get("AZURITE_BLOB_STORAGE_URL")
                .map(str::to_owned);
        }
        config.move_credential_to_its_field();
        Ok(config)
    }

    /// Of several credentials in the environment the one counts that `object_store` takes first.
    fn move_credential_to_its_field(&mut self) {
        let has = |config: &Self, key: Key| config.options.contains_key(key.as_ref());
        let first_by_itself = [Key::CredentialType, Key::Token, Key::FabricTokenServiceUrl];
        if first_by_itself.into_iter().any(|key| has(self, key)) {
            return;
        }
        let mut take = |key: Key| self.options.remove(key.as_ref());
        if let Some(key) = take(Key::AccessKey) {
            self.access_key = Some(key);
            for other in [
                Key::SasKey,
                Key::ClientId,
                Key::ClientSecret,
                Key::AuthorityId,
                Key::FederatedTokenFile,
            ] {
                take(other);
            }
            return;
        }
        let client = [Key::ClientId, Key::ClientSecret, Key::AuthorityId];
        if !has(self, Key::FederatedTokenFile) && client.into_iter().all(|key| has(self, key)) {
            [self.client_id, self.client_secret, self.tenant_id] =
                client.map(|key| self.options.remove(key.as_ref()));
            self.options.remove(Key::SasKey.as_ref());
        } else if !has(self, Key::FederatedTokenFile) {
            self.sas_token = self.options.remove(Key::SasKey.as_ref());
            if self.sas_token.is_some() {
                for key in client {
                    self.options.remove(key.as_ref());
                }
            }
        }
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
        let location = crate::backends::backend::location("az", &self.container, &prefix);
        let connection = Connection {
            config: self.clone(),
            environment: environment.clone(),
        };
        let store = connection.make(Patience::OfLayers)?;
        let alone = connection.make(Patience::OfClient)?;
        let mut client = ObjectStoreClient::new(StoreHandles::with_multipart(store));
        if !self.has_credentials() {
            client = client.with_reconnect(Arc::new(move || {
                connection
                    .make(Patience::OfLayers)
                    .map(StoreHandles::with_multipart)
            }));
        }
        Ok(Backend {
            client: Arc::new(client),
            prefix,
            limits: self.limits(),
            object_store: Some(alone),
            location,
            kind: StoreKind::Azure,
            with_checksums: None,
        })
    }

    /// Whether a field holds a credential; that of the emulator counts.
    fn has_credentials(&self) -> bool {
        self.access_key.is_some()
            || self.sas_token.is_some()
            || self.client_secret.is_some()
            || self.use_emulator
    }

    fn account_name(&self) -> &str {
        if self.account.is_empty() && self.use_emulator {
            EMULATOR_ACCOUNT
        } else {
            &self.account
        }
    }

    fn key_prefix(&self) -> Result<KeyPrefix, RemoteStorageError> {
        KeyPrefix::new(self.prefix.as_deref().unwrap_or_default())
    }

    /// The URL that the container is appended to.
    fn service_url(&self, environment: &Environment) -> Result<Url, RemoteStorageError> {
        let account = self.account_name();
        if !self.use_emulator {
            let azure = || format!("https://{account}.blob.core.windows.net");
            let endpoint = self.endpoint.clone().unwrap_or_else(azure);
            return CHECKS.endpoint("endpoint", &endpoint, self.allow_http);
        }
        let endpoint = self
            .endpoint
            .as_deref()
            .or_else(|| environment.get("AZURITE_BLOB_STORAGE_URL"))
            .unwrap_or(EMULATOR_ENDPOINT);
        let url = CHECKS.endpoint("endpoint", endpoint, true)?;
        // The emulator has the account in the path, where Azure has it in the host name.
        let base = checks::base_of(&url);
        if base.ends_with(&format!("/{account}")) {
            return Ok(url);
        }
        CHECKS.endpoint("endpoint", &format!("{base}/{account}"), true)
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
                Key::AccountName | Key::ContainerName | Key::Endpoint | Key::UseEmulator => {
                    Some("has a field of its own")
                }
                // The endpoint of Microsoft Fabric is an endpoint like another.
                Key::UseFabricEndpoint => Some("is not supported: give the `endpoint`"),
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

/// The variables of the environment that the client knows, by its names for them.
fn settings(environment: &Environment) -> impl Iterator<Item = (String, &str)> {
    let managed = environment.get("IDENTITY_ENDPOINT");
    environment
        .settings("AZURE_")
        .chain(managed.map(|url| (Key::MsiEndpoint.as_ref().to_owned(), url)))
}

/// Whether a setting permits the requests by itself.
fn is_credential(key: Key) -> bool {
    matches!(
        key,
        Key::AccessKey
            | Key::SasKey
            | Key::Token
            | Key::ClientSecret
            | Key::FederatedTokenFile
            | Key::FabricSessionToken
            | Key::CredentialType
    )
}

/// Whether the value itself is what no one may see, and not the name of a file or a kind.
fn is_secret(key: Key) -> bool {
    matches!(
        key,
        Key::AccessKey
            | Key::SasKey
            | Key::Token
            | Key::ClientSecret
            | Key::FabricSessionToken
            | Key::EncryptionKey
    )
}

/// Whether a variable says where credentials come from.
fn is_of_the_surroundings(key: Key) -> bool {
    is_credential(key)
        || matches!(
            key,
            Key::ClientId
                | Key::AuthorityId
                | Key::AuthorityHost
                | Key::MsiEndpoint
                | Key::MsiResourceId
                | Key::ObjectId
                | Key::UseAzureCli
                | Key::FabricTokenServiceUrl
                | Key::FabricWorkloadHost
                | Key::FabricClusterIdentifier
        )
}

/// The secret part of a SAS token, as it is written and as it is sent.
fn sas_signatures(token: &str) -> impl Iterator<Item = String> {
    token
        .split('&')
        .filter_map(|pair| pair.trim_start_matches('?').strip_prefix("sig="))
        .flat_map(|signature| {
            let decoded = percent_decode_str(signature)
                .decode_utf8_lossy()
                .into_owned();
            [signature.to_owned(), decoded]
        })
}

/// What a client is made of, kept to make it anew.
struct Connection {
    config: AzureConfig,
    environment: Environment,
}

impl Connection {
    fn make(&self, patience: Patience) -> Result<Arc<MicrosoftAzure>, RemoteStorageError> {
        let config = &self.config;
        let service_url = config.service_url(&self.environment)?;
        let allow_http = config.allow_http || config.use_emulator;
        let mut client_options = patience.client_options(&config.limits(), allow_http);
        let mut settings: Vec<(Key, &str)> = [
            (Key::AccessKey, &config.access_key),
            (Key::SasKey, &config.sas_token),
            (Key::ClientId, &config.client_id),
            (Key::ClientSecret, &config.client_secret),
            (Key::AuthorityId, &config.tenant_id),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key, value.as_deref()?)))
        .collect();
        if !config.has_credentials() {
            settings.extend(
                self::settings(&self.environment).filter_map(|(name, value)| {
                    let key = name.parse().ok()?;
                    is_of_the_surroundings(key).then_some((key, value))
                }),
            );
        }
        settings.extend(config.further_options()?);
        if config.use_emulator && !settings.iter().any(|(key, _)| is_credential(*key)) {
            settings.push((Key::AccessKey, EMULATOR_KEY));
        }

        let mut builder = MicrosoftAzureBuilder::new();
        let mut secrets = Vec::new();
        for (key, value) in settings {
            if let Key::Client(client) = key {
                client_options = client_options.with_config(client, value);
                continue;
            }
            if is_secret(key) {
                CHECKS.header(key.as_ref(), Some(value))?;
                secrets.push(value.to_owned());
            }
            if key == Key::SasKey {
                secrets.extend(sas_signatures(value));
            }
            builder = builder.with_config(key, value);
        }
        builder
            .with_account(config.account_name())
            .with_container_name(&config.container)
            .with_endpoint(checks::base_of(&service_url))
            .with_client_options(client_options)
            .with_retry(patience.retries(&config.limits()))
            .with_http_connector(
                HttpStoreConnector::new()
                    .hiding(secrets)
                    .bypassing_proxies(checks::is_loopback(&service_url)),
            )
            .build()
            .map(Arc::new)
            // The cause may repeat what it could not read.
            .map_err(|_| {
                CHECKS.refuse(
                    "access_key",
                    "or another of its credentials cannot be read: an access key is Base64, a SAS \
                     token is `name=value` pairs with `&` between them",
                )
            })
    }
}
