//! How the log's connections are secured.

use std::fmt;
use std::path::PathBuf;

use rdkafka::ClientConfig;

use super::super::log_error::MetadataLogError;
use crate::error::ErrorSource;

/// Printed in place of a secret.
const HIDDEN: &str = "***";

/// What a connection runs on; Kafka's `security.protocol`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SecurityProtocol {
    /// Neither encrypted nor authenticated.
    Plaintext,
    /// TLS.
    #[default]
    Ssl,
    /// SASL without encryption.
    SaslPlaintext,
    /// SASL over TLS.
    SaslSsl,
}

impl SecurityProtocol {
    fn name(self) -> &'static str {
        match self {
            Self::Plaintext => "plaintext",
            Self::Ssl => "ssl",
            Self::SaslPlaintext => "sasl_plaintext",
            Self::SaslSsl => "sasl_ssl",
        }
    }

    fn has_tls(self) -> bool {
        matches!(self, Self::Ssl | Self::SaslSsl)
    }

    fn has_sasl(self) -> bool {
        matches!(self, Self::SaslPlaintext | Self::SaslSsl)
    }
}

/// How a client says who it is; Kafka's `sasl.mechanism`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SaslMechanism {
    /// Name and password as they are: for encrypted connections only.
    Plain,
    /// SCRAM with SHA-256.
    ScramSha256,
    /// SCRAM with SHA-512.
    ScramSha512,
}

impl SaslMechanism {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

/// A certificate or a key as PEM.
#[derive(Clone, PartialEq, Eq)]
pub enum Pem {
    /// In this file, which is read when a client is made.
    File(PathBuf),
    /// These bytes.
    Bytes(Vec<u8>),
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Bytes(_) => f.debug_tuple("Bytes").field(&HIDDEN).finish(),
        }
    }
}

impl Pem {
    /// Sets `{name}.location` or `{name}.pem`.
    fn set(&self, config: &mut ClientConfig, name: &str) {
        match self {
            Self::File(path) => {
                config.set(format!("{name}.location"), path.to_string_lossy());
            }
            Self::Bytes(bytes) => {
                config.set(format!("{name}.pem"), String::from_utf8_lossy(bytes));
            }
        }
    }

    fn check_file(&self, what: &str) -> Result<(), MetadataLogError> {
        let Self::File(path) = self else {
            return Ok(());
        };
        match std::fs::read(path) {
            Ok(_) => Ok(()),
            Err(error) => Err(MetadataLogError::Rejected {
                reason: format!("the file {} of `{what}` cannot be read", path.display()),
                source: Some(ErrorSource::new(error)),
            }),
        }
    }

    fn validate(&self, what: &str) -> Result<(), String> {
        match self {
            Self::File(path) if path.to_str().is_none_or(|path| path.contains('\0')) => {
                Err(format!("the path of {what} is not text"))
            }
            Self::Bytes(bytes) if std::str::from_utf8(bytes).is_err() || bytes.contains(&0) => {
                Err(format!("{what} is not PEM"))
            }
            _ => Ok(()),
        }
    }
}

/// A certificate by which brokers know this client.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The certificate, and those between it and the authority.
    pub certificate: Pem,
    /// Its private key.
    pub key: Pem,
    /// The key's password, if it has one.
    pub key_password: Option<String>,
}

impl fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientIdentity")
            .field("certificate", &self.certificate)
            .field("key", &self.key)
            .field("key_password", &self.key_password.as_ref().map(|_| HIDDEN))
            .finish()
    }
}

/// A name and a password, and how they are presented.
#[derive(Clone, PartialEq, Eq)]
pub struct SaslCredentials {
    /// How they are presented.
    pub mechanism: SaslMechanism,
    /// The name.
    pub username: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for SaslCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaslCredentials")
            .field("mechanism", &self.mechanism)
            .field("username", &self.username)
            .field("password", &HIDDEN)
            .finish()
    }
}

/// TLS and credentials, of every connection of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientSecurity {
    /// What connections run on.
    pub protocol: SecurityProtocol,
    /// The authorities whose certificates brokers may have; `None`: those of the system.
    pub trust_roots: Option<Pem>,
    /// Whether a broker may have a certificate for another host name. For tests.
    pub accept_any_host_name: bool,
    /// A certificate by which brokers know this client.
    pub identity: Option<ClientIdentity>,
    /// A name and a password.
    pub sasl: Option<SaslCredentials>,
}

impl ClientSecurity {
    pub(super) fn validate(&self) -> Result<(), String> {
        let protocol = self.protocol;
        if protocol.has_sasl() != self.sasl.is_some() {
            let fault = if protocol.has_sasl() {
                "needs credentials in sasl"
            } else {
                "presents no credentials, and sasl has some"
            };
            return Err(format!("the protocol {protocol:?} {fault}"));
        }
        if !protocol.has_tls() && (self.trust_roots.is_some() || self.identity.is_some()) {
            return Err(format!(
                "the protocol {protocol:?} has no TLS, and trust_roots or identity is given"
            ));
        }
        if let Some(roots) = &self.trust_roots {
            roots.validate("trust_roots")?;
        }
        if let Some(identity) = &self.identity {
            identity.certificate.validate("identity.certificate")?;
            identity.key.validate("identity.key")?;
            check_text("identity.key_password", identity.key_password.as_deref())?;
        }
        if let Some(sasl) = &self.sasl {
            check_text("sasl.username", Some(&sasl.username))?;
            check_text("sasl.password", Some(&sasl.password))?;
        }
        Ok(())
    }

    /// Reads each file once: the client does not say which one it cannot read.
    pub(super) fn check_files(&self) -> Result<(), MetadataLogError> {
        if let Some(roots) = &self.trust_roots {
            roots.check_file("security.trust_roots")?;
        }
        if let Some(identity) = &self.identity {
            identity
                .certificate
                .check_file("security.identity.certificate")?;
            identity.key.check_file("security.identity.key")?;
        }
        Ok(())
    }

    pub(super) fn set(&self, config: &mut ClientConfig) {
        config.set("security.protocol", self.protocol.name());
        if let Some(roots) = &self.trust_roots {
            roots.set(config, "ssl.ca");
        }
        if self.accept_any_host_name {
            config.set("ssl.endpoint.identification.algorithm", "none");
        }
        if let Some(identity) = &self.identity {
            identity.certificate.set(config, "ssl.certificate");
            identity.key.set(config, "ssl.key");
            if let Some(password) = &identity.key_password {
                config.set("ssl.key.password", password);
            }
        }
        if let Some(sasl) = &self.sasl {
            config
                .set("sasl.mechanism", sasl.mechanism.name())
                .set("sasl.username", &sasl.username)
                .set("sasl.password", &sasl.password);
        }
    }
}

/// A C library takes no text with a NUL character, and says so with the text.
fn check_text(field: &str, text: Option<&str>) -> Result<(), String> {
    if text.is_some_and(|text| text.is_empty() || text.contains('\0')) {
        return Err(format!("{field} is empty, or has a NUL character"));
    }
    Ok(())
}
