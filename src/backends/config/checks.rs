//! What the builders of the store clients take without a word and fail on later, or panic on: each
//! is refused here, by the name of its field and without its value where that may be a secret.

use std::fmt;
use std::time::Duration;

use object_store::{BackoffConfig, ClientConfigKey, ClientOptions, RetryConfig};
use url::{Host, Url};

use super::limits::RequestLimits;
use crate::error::RemoteStorageError;

/// Prints in place of a secret.
pub(in crate::backends) const HIDDEN: fmt::Arguments<'static> = format_args!("***");

/// Makes the `Debug` of a configuration: every field, the secrets as `***`.
///
/// A field that is not named in one of the three lists does not compile.
macro_rules! debug_without_secrets {
    ($config:ident, shown: [$($shown:ident),*], secret: [$($secret:ident),*]) => {
        impl std::fmt::Debug for $config {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let Self { endpoint, options, $($shown,)* $($secret,)* } = self;
                f.debug_struct(stringify!($config))
                    $(.field(stringify!($shown), $shown))*
                    .field("endpoint", &endpoint.as_deref().map($crate::backends::config::checks::Shown))
                    $(.field(stringify!($secret), &$secret.as_ref().map(|_| $crate::backends::config::checks::HIDDEN)))*
                    .field("options", &options.keys().map(|name| (name, $crate::backends::config::checks::HIDDEN)).collect::<std::collections::BTreeMap<_, _>>())
                    .finish()
            }
        }
    };
}
pub(in crate::backends) use debug_without_secrets;

/// An endpoint in a `Debug`: shown only where it cannot hold user info or a signed query.
pub(in crate::backends) struct Shown<'a>(pub(in crate::backends) &'a str);

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.contains(['@', '?', '#']) {
            f.write_fmt(HIDDEN)
        } else {
            fmt::Debug::fmt(self.0, f)
        }
    }
}

/// Names a store in messages, and makes them.
#[derive(Clone, Copy)]
pub(in crate::backends) struct Checks(pub(in crate::backends) &'static str);

impl Checks {
    pub(in crate::backends) fn refuse(
        self,
        field: &str,
        what: impl fmt::Display,
    ) -> RemoteStorageError {
        RemoteStorageError::InvalidArgument(format!("`{field}` of the {} store {what}", self.0))
    }

    /// A name that becomes part of a URL: of a bucket, container or account.
    pub(in crate::backends) fn name(
        self,
        field: &str,
        name: &str,
        punctuation: &[char],
    ) -> Result<(), RemoteStorageError> {
        if name.is_empty() {
            return Err(self.refuse(field, "is empty: name it"));
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || punctuation.contains(&c);
        if !name.chars().all(allowed) || matches!(name, "." | "..") {
            return Err(self.refuse(
                field,
                format_args!(
                    "has a character that such a name cannot have: letters, digits and {}",
                    punctuation
                        .iter()
                        .map(|c| format!("`{c}`"))
                        .collect::<Vec<_>>()
                        .join(" ")
                ),
            ));
        }
        Ok(())
    }

    /// A value that is sent in a header, where a line break at its end (read from a file, say)
    /// would make the client panic.
    pub(in crate::backends) fn header(
        self,
        field: &str,
        value: Option<&str>,
    ) -> Result<(), RemoteStorageError> {
        let Some(value) = value else {
            return Ok(());
        };
        if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(self.refuse(
                field,
                "is empty or has white space, a control character or a non-ASCII one: give it \
                 without",
            ));
        }
        Ok(())
    }

    /// The address of a store.
    pub(in crate::backends) fn endpoint(
        self,
        field: &str,
        endpoint: &str,
        allow_http: bool,
    ) -> Result<Url, RemoteStorageError> {
        let url = Url::parse(endpoint)
            .map_err(|error| self.refuse(field, format_args!("is no URL: {error}")))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(self.refuse(
                field,
                "has user info: give the credentials in their own fields",
            ));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(self.refuse(field, "has a query or a fragment: leave it out"));
        }
        match url.scheme() {
            "https" => {}
            "http" if allow_http => {}
            "http" => {
                return Err(self.refuse(
                    field,
                    "is plain http: use https, or set `allow_http` where that is meant",
                ));
            }
            _ => {
                return Err(self.refuse(field, "is no http or https URL"));
            }
        }
        Ok(url)
    }
}

/// Whether a server on this very machine is meant, which no proxy can reach.
pub(in crate::backends) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// A URL without slashes at its end, so that a path can follow it.
pub(in crate::backends) fn base_of(url: &Url) -> String {
    url.as_str().trim_end_matches('/').to_owned()
}

/// Who repeats a client's requests and gives slow ones up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::backends) enum Patience {
    /// The layers above, which know a slow body from a hung one: so attempts of the client and
    /// theirs do not multiply.
    OfLayers,
    /// The client: there are no layers.
    OfClient,
}

impl Patience {
    pub(in crate::backends) fn client_options(
        self,
        limits: &RequestLimits,
        allow_http: bool,
    ) -> ClientOptions {
        let options = ClientOptions::new()
            .with_allow_http(allow_http)
            .with_timeout_disabled()
            .with_connect_timeout(limits.connect_timeout);
        match self {
            Self::OfLayers => options,
            // It bounds silence and not length, as theirs does.
            Self::OfClient => options.with_read_timeout(limits.request_timeout),
        }
    }

    pub(in crate::backends) fn retries(self, limits: &RequestLimits) -> RetryConfig {
        let (max_retries, retry_timeout) = match self {
            Self::OfLayers => (0, Duration::ZERO),
            Self::OfClient => (limits.max_retries, limits.retry_timeout),
        };
        RetryConfig {
            backoff: BackoffConfig::default(),
            max_retries,
            retry_timeout,
        }
    }
}

/// Why a setting of the HTTP client cannot stand among the further options, if it cannot.
pub(in crate::backends) fn refused_client_option(key: ClientConfigKey) -> Option<&'static str> {
    match key {
        ClientConfigKey::AllowHttp => Some("has a field of its own: `allow_http`"),
        ClientConfigKey::ConnectTimeout => Some("has a field of its own: `connect_timeout`"),
        ClientConfigKey::Timeout | ClientConfigKey::ReadTimeout => {
            Some("has a field of its own: `request_timeout`")
        }
        ClientConfigKey::AllowInvalidCertificates
        | ClientConfigKey::DefaultContentType
        | ClientConfigKey::Http1Only
        | ClientConfigKey::Http2Only
        | ClientConfigKey::NoSystemCertificates
        | ClientConfigKey::PoolIdleTimeout
        | ClientConfigKey::PoolMaxIdlePerHost
        | ClientConfigKey::ProxyCaCertificate
        | ClientConfigKey::ProxyExcludes
        | ClientConfigKey::ProxyUrl
        | ClientConfigKey::RandomizeAddresses
        | ClientConfigKey::UserAgent => None,
        _ => Some("is not supported"),
    }
}

/// Takes over the settings of the HTTP client that have fields. The others are left to the caller.
pub(in crate::backends) struct ClientFields<'a> {
    pub(in crate::backends) allow_http: &'a mut bool,
    pub(in crate::backends) connect_timeout: &'a mut Duration,
    pub(in crate::backends) request_timeout: &'a mut Duration,
}

impl ClientFields<'_> {
    /// Whether `key` had a field.
    pub(in crate::backends) fn set(
        &mut self,
        key: ClientConfigKey,
        variable: &str,
        value: &str,
    ) -> Result<bool, RemoteStorageError> {
        match key {
            ClientConfigKey::AllowHttp => *self.allow_http = boolean(variable, value)?,
            ClientConfigKey::ConnectTimeout => *self.connect_timeout = duration(variable, value)?,
            ClientConfigKey::Timeout | ClientConfigKey::ReadTimeout => {
                *self.request_timeout = duration(variable, value)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// A yes or no as `object_store` reads it.
pub(in crate::backends) fn boolean(
    variable: &str,
    value: &str,
) -> Result<bool, RemoteStorageError> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "true" | "on" | "yes" | "y" => Ok(true),
        "0" | "false" | "off" | "no" | "n" => Ok(false),
        _ => Err(RemoteStorageError::InvalidArgument(format!(
            "environment variable {} is neither true nor false",
            variable.to_ascii_uppercase()
        ))),
    }
}

fn duration(variable: &str, value: &str) -> Result<Duration, RemoteStorageError> {
    humantime::parse_duration(value).map_err(|_| {
        RemoteStorageError::InvalidArgument(format!(
            "environment variable {} is no length of time: write it as `30s` or `2m`",
            variable.to_ascii_uppercase()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_refused_without_being_repeated() {
        let checks = Checks("test");
        for (endpoint, why) in [
            ("https://AKIAMARKED:s3cretMARKED@store.example", "user info"),
            ("https://userMARKED@store.example", "user info"),
            ("https://store.example/?sig=MARKED", "query"),
            ("https://store.example/#MARKED", "fragment"),
            ("http://MARKED.example", "allow_http"),
            ("ftp://MARKED.example", "no http"),
            ("MARKED.example:9000", "no http"),
            ("MARKED", "no URL"),
            ("https://", "no URL"),
            ("", "no URL"),
        ] {
            let error = checks.endpoint("endpoint", endpoint, false).unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(text.contains(why), "{endpoint}: {text}");
            assert!(!text.contains("MARKED"), "{text}");
        }
        checks
            .endpoint("endpoint", "https://store.example:9000/base/", false)
            .unwrap();
        checks
            .endpoint("endpoint", "http://[::1]:9000", true)
            .unwrap();
    }

    #[test]
    fn an_endpoint_with_user_info_is_not_shown() {
        assert_eq!(format!("{:?}", Shown("https://user:pass@host")), "***");
        assert_eq!(format!("{:?}", Shown("https://host/?sv=1&sig=2")), "***");
        assert_eq!(
            format!("{:?}", Shown("https://host:9000")),
            "\"https://host:9000\""
        );
    }

    #[test]
    fn a_name_or_header_value_that_would_break_a_request_is_refused() {
        let checks = Checks("test");
        for name in ["", "a b", "a/b", "a\n", "ä", "..", "a?b", "a:b"] {
            let error = checks.name("bucket", name, &['-', '.']).unwrap_err();
            assert!(
                error.to_string().starts_with("`bucket` of the test store "),
                "{error}"
            );
        }
        checks.name("bucket", "my-bucket.1", &['-', '.']).unwrap();
        for value in ["", "abc\n", "a b", "ä", "\u{7f}"] {
            checks.header("session_token", Some(value)).unwrap_err();
        }
        checks.header("session_token", Some("FQoG+/=")).unwrap();
        checks.header("session_token", None).unwrap();
    }

    #[test]
    fn only_this_machine_is_loopback() {
        let loopback = |url: &str| is_loopback(&Url::parse(url).unwrap());
        for url in [
            "http://localhost:1",
            "http://a.localhost",
            "http://127.9.9.9",
            "http://[::1]:1",
        ] {
            assert!(loopback(url), "{url}");
        }
        for url in [
            "http://localhost.example",
            "http://10.0.0.1",
            "http://[::2]",
        ] {
            assert!(!loopback(url), "{url}");
        }
    }
}
