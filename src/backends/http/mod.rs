//! The HTTP client below the stores that are reached over a network.
//!
//! `object_store` leaves it to its connector how a request is sent. This one adds what the layers
//! above need and cannot do themselves:
//!
//! - each piece of a body that moves, up or down, marks the [`Activity`] of the attempt, so that
//!   the attempt's timeout limits silence and not length;
//! - no redirect is followed: a request is signed for one host, and a body is not sent twice. The
//!   error says where the bucket is, if the store does;
//! - the body of an error answer is read up to a bound, and the client's own credentials are taken
//!   out of it: stores repeat them;
//! - an error does not carry the URL of its request.

mod answer;
mod body;
#[cfg(any(feature = "aws", feature = "gcp"))]
pub(super) mod open_uploads;
#[cfg(test)]
#[allow(dead_code)] // A test of one store uses less of it than those of all.
pub(crate) mod recorder;
#[cfg(any(feature = "aws", feature = "gcp"))]
pub(super) mod retention;
#[cfg(any(feature = "aws", feature = "gcp"))]
pub(super) mod signed;
#[cfg(test)]
mod tests;
#[cfg(all(test, feature = "aws"))]
mod wire_tests;

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use http::header::HeaderMap;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use rand::seq::SliceRandom;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::Url;

use self::answer::{Redirected, Secrets};
use self::body::{Pieces, Received};
use crate::ops::Activity;

const USER_AGENT: &str = concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION"));

/// Headers that carry a credential.
const SECRET_HEADERS: [&str; 3] = [
    "authorization",
    "x-amz-security-token",
    "x-amz-server-side-encryption-customer-key",
];

/// Makes the HTTP clients of an `object_store` builder, for its `with_http_connector`.
///
/// Stores that this crate opens have it already. Give it to a builder whose store goes to
/// [`Backend::from_object_store`](super::Backend::from_object_store), so that long bodies
/// are not cut by the timeout of an attempt.
///
/// Of the [`ClientOptions`] it takes what has a name in [`ClientConfigKey`], but for the timeout of
/// whole requests, which is the work of the layers, and the fine tuning of HTTP/2.
/// Root certificates are the system's.
#[derive(Clone, Default)]
pub struct HttpStoreConnector {
    secrets: Secrets,
    bypass_proxies: bool,
}

impl HttpStoreConnector {
    /// A connector that uses the proxies of the environment (`HTTPS_PROXY`, `NO_PROXY`, …), as
    /// `object_store` does.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes these from what a store says in error answers.
    #[must_use]
    pub(in crate::backends) fn hiding(mut self, secrets: impl IntoIterator<Item = String>) -> Self {
        self.secrets = secrets.into_iter().collect();
        self
    }

    /// Whether the proxies of the environment are passed by.
    #[must_use]
    pub(in crate::backends) fn bypassing_proxies(mut self, bypass: bool) -> Self {
        self.bypass_proxies = bypass;
        self
    }
}

impl fmt::Debug for HttpStoreConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpStoreConnector").finish_non_exhaustive()
    }
}

impl HttpConnector for HttpStoreConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let settings = Settings(options);
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            // A compressed answer would not have the length that was asked for.
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .user_agent(settings.get(ClientConfigKey::UserAgent).as_deref().unwrap_or(USER_AGENT))
            .https_only(!settings.flag(ClientConfigKey::AllowHttp)?);
        if let Some(headers) = options.get_default_headers() {
            builder = builder.default_headers(headers.clone());
        }
        if let Some(timeout) = settings.get(ClientConfigKey::ConnectTimeout) {
            builder = builder.connect_timeout(parsed(&timeout, humantime::parse_duration)?);
        }
        if let Some(timeout) = settings.get(ClientConfigKey::ReadTimeout) {
            builder = builder.read_timeout(parsed(&timeout, humantime::parse_duration)?);
        }
        if let Some(timeout) = settings.get(ClientConfigKey::PoolIdleTimeout) {
            builder = builder.pool_idle_timeout(parsed(&timeout, humantime::parse_duration)?);
        }
        if let Some(max) = settings.get(ClientConfigKey::PoolMaxIdlePerHost) {
            builder = builder.pool_max_idle_per_host(parsed(&max, str::parse)?);
        }
        if settings.flag(ClientConfigKey::Http1Only)? {
            builder = builder.http1_only();
        }
        if settings.flag(ClientConfigKey::Http2Only)? {
            builder = builder.http2_prior_knowledge();
        }
        if settings.flag(ClientConfigKey::AllowInvalidCertificates)? {
            builder = builder.danger_accept_invalid_certs(true);
        }
        if settings.flag(ClientConfigKey::NoSystemCertificates)? {
            builder = builder.tls_certs_only([]);
        }
        if let Some(proxy) = settings.get(ClientConfigKey::ProxyUrl) {
            if let Some(certificate) = settings.get(ClientConfigKey::ProxyCaCertificate) {
                let certificate = reqwest::Certificate::from_pem(certificate.as_bytes())
                    .map_err(|_| refused("the proxy's certificate is not PEM"))?;
                builder = builder.tls_certs_merge([certificate]);
            }
            let excludes = settings
                .get(ClientConfigKey::ProxyExcludes)
                .unwrap_or_default();
            // The cause would repeat the URL, which may hold the proxy's password.
            let proxy = reqwest::Proxy::all(proxy)
                .map_err(|_| refused("the proxy's URL is none"))?
                .no_proxy(reqwest::NoProxy::from_string(&excludes));
            builder = builder.proxy(proxy);
        } else if self.bypass_proxies {
            builder = builder.no_proxy();
        }
        if settings.flag(ClientConfigKey::RandomizeAddresses)? {
            builder = builder.dns_resolver(Arc::new(ShuffledAddresses));
        }
        let client = builder
            .build()
            .map_err(|error| object_store::Error::Generic {
                store: "HTTP client",
                source: Box::new(error.without_url()),
            })?;
        Ok(HttpClient::new(Service {
            client,
            secrets: self.secrets.clone(),
        }))
    }
}

/// The settings as text, the one form in which [`ClientOptions`] hands them out.
struct Settings<'a>(&'a ClientOptions);

impl Settings<'_> {
    fn get(&self, key: ClientConfigKey) -> Option<String> {
        self.0.get_config_value(&key)
    }

    fn flag(&self, key: ClientConfigKey) -> object_store::Result<bool> {
        match self
            .get(key)
            .unwrap_or_default()
            .to_ascii_lowercase()
            .as_str()
        {
            "1" | "true" | "on" | "yes" | "y" => Ok(true),
            "" | "0" | "false" | "off" | "no" | "n" => Ok(false),
            _ => Err(refused("a setting is neither true nor false")),
        }
    }
}

fn parsed<T, E>(text: &str, parse: impl FnOnce(&str) -> Result<T, E>) -> object_store::Result<T> {
    parse(text).map_err(|_| refused("a setting is no number or no length of time"))
}

fn refused(why: &'static str) -> object_store::Error {
    object_store::Error::Generic {
        store: "HTTP client",
        source: why.into(),
    }
}

/// Spreads connections over the addresses of a store's name, as `object_store` does.
struct ShuffledAddresses;

impl Resolve for ShuffledAddresses {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            // Port 0: the client puts the URL's own in its place.
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let mut addresses: Vec<SocketAddr> = found.collect();
            addresses.shuffle(&mut rand::rng());
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

struct Service {
    client: reqwest::Client,
    secrets: Secrets,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpStoreService").finish_non_exhaustive()
    }
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        // The client moves the bodies in a task of its own, where it could not be found.
        let activity = Activity::current();
        let (mut parts, body) = request.into_parts();
        mark_secret(&mut parts.headers);
        let url: Url = parts
            .uri
            .to_string()
            .parse()
            .map_err(|error: url::ParseError| HttpError::new(HttpErrorKind::Request, error))?;
        let mut request = reqwest::Request::new(parts.method, url);
        *request.headers_mut() = parts.headers;
        *request.body_mut() = Some(if body.content_length() == 0 {
            reqwest::Body::from("")
        } else {
            reqwest::Body::wrap(Pieces::new(body, activity.clone()))
        });

        let response = self.client.execute(request).await.map_err(http_error)?;
        if let Some(activity) = &activity {
            activity.mark();
        }
        let response: http::Response<reqwest::Body> = response.into();
        let (parts, body) = response.into_parts();
        let status = parts.status;
        if status.is_redirection() && status != http::StatusCode::NOT_MODIFIED {
            let redirected = Redirected::new(status, &parts.headers);
            return Err(HttpError::new(HttpErrorKind::Unknown, redirected));
        }
        let body = Received::new(body, activity);
        let body = if status.is_client_error() || status.is_server_error() {
            answer::read_error(body, &self.secrets).await.into()
        } else {
            HttpResponseBody::new(body)
        };
        Ok(HttpResponse::from_parts(parts, body))
    }
}

/// Keeps credentials out of whatever prints headers.
fn mark_secret(headers: &mut HeaderMap) {
    for name in SECRET_HEADERS {
        if let Some(value) = headers.get_mut(name) {
            value.set_sensitive(true);
        }
    }
}

/// What `object_store` needs to know of a failure, without the URL.
fn http_error(error: reqwest::Error) -> HttpError {
    let kind = if error.is_timeout() {
        HttpErrorKind::Timeout
    } else if error.is_connect() {
        HttpErrorKind::Connect
    } else if let Some(kind) = causes(&error).find_map(kind_of_io_error) {
        kind
    } else if error.is_body() {
        HttpErrorKind::Interrupted
    } else if error.is_decode() {
        HttpErrorKind::Decode
    } else if error.is_request() {
        HttpErrorKind::Request
    } else {
        HttpErrorKind::Unknown
    };
    HttpError::new(kind, error.without_url())
}

fn kind_of_io_error(cause: &(dyn StdError + 'static)) -> Option<HttpErrorKind> {
    match cause.downcast_ref::<io::Error>()?.kind() {
        io::ErrorKind::TimedOut => Some(HttpErrorKind::Timeout),
        io::ErrorKind::ConnectionAborted
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => Some(HttpErrorKind::Interrupted),
        _ => None,
    }
}

fn causes(error: &dyn StdError) -> impl Iterator<Item = &(dyn StdError + 'static)> {
    std::iter::successors(error.source(), |cause: &&(dyn StdError + 'static)| {
        (*cause).source()
    })
}
