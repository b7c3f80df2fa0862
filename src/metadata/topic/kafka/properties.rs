//! A file of client properties, as Kafka's Java tools take it with `--command-config`.
//!
//! The form is that of `java.util.Properties`. Of Kafka's settings those are understood that say how
//! to reach a cluster, and every other one is refused by its name: a setting that is passed over in
//! silence might be the one that a connection was to be secured by. No error repeats a value.

use std::iter::Peekable;
use std::path::PathBuf;
use std::str::Chars;
use std::time::Duration;

use super::config::KafkaMetadataLogConfig;
use super::security::{
    ClientIdentity, ClientSecurity, Pem, SaslCredentials, SaslMechanism, SecurityProtocol,
};

/// One setting, and the line that it begins in.
#[derive(Clone, PartialEq, Eq)]
struct Property {
    line: usize,
    key: String,
    value: String,
}

/// What is gathered from the settings before it fits together.
#[derive(Default)]
struct Settings {
    protocol: Option<SecurityProtocol>,
    mechanism: Option<SaslMechanism>,
    login: Option<Login>,
    trust_roots: Option<Pem>,
    keystore_file: Option<PathBuf>,
    certificates: Option<Pem>,
    key: Option<Pem>,
    key_password: Option<String>,
    accept_any_host_name: bool,
}

/// What `sasl.jaas.config` says.
struct Login {
    is_scram: bool,
    username: String,
    password: String,
}

impl KafkaMetadataLogConfig {
    /// Takes in the text of a file of client properties in the form of Kafka's Java tools.
    ///
    /// | Property | What is taken |
    /// |---|---|
    /// | `security.protocol` | `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT`, `SASL_SSL` |
    /// | `sasl.mechanism` | `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` |
    /// | `sasl.jaas.config` | `PlainLoginModule` or `ScramLoginModule` with `username` and `password` |
    /// | `ssl.truststore.type`, `ssl.keystore.type` | `PEM` |
    /// | `ssl.truststore.location`, `ssl.truststore.certificates` | a file of certificates, or the certificates |
    /// | `ssl.keystore.location` | a file with a private key and its certificates |
    /// | `ssl.keystore.key`, `ssl.keystore.certificate.chain` | the same in the file itself |
    /// | `ssl.key.password` | |
    /// | `ssl.endpoint.identification.algorithm` | `https`, or nothing to accept any host name |
    /// | `client.id`, `request.timeout.ms` | |
    /// | `bootstrap.servers` | passed over: the brokers are those of this configuration |
    ///
    /// What the text does not say stays as it is; its security replaces that of the configuration as
    /// a whole.
    ///
    /// # Errors
    ///
    /// What is wrong, with the line and the property's name, and without any value.
    pub fn set_client_properties(&mut self, text: &str) -> Result<(), String> {
        let mut settings = Settings::default();
        for property in properties(text)? {
            let Property { line, key, .. } = &property;
            let set = self.set_client_property(&mut settings, &property);
            set.map_err(|fault| match name_of(key) {
                Some(name) => format!("line {line}: {name} {fault}"),
                None => format!("line {line} {fault}"),
            })?;
        }
        self.security = settings.into_security()?;
        Ok(())
    }

    fn set_client_property(
        &mut self,
        settings: &mut Settings,
        property: &Property,
    ) -> Result<(), String> {
        let value = property.value.trim();
        match property.key.as_str() {
            "bootstrap.servers" => {}
            "client.id" => value.clone_into(&mut self.client_id),
            "request.timeout.ms" => {
                let millis = value.parse::<u32>();
                let millis = millis.map_err(|_| "is no number of milliseconds".to_owned())?;
                self.request_timeout = Duration::from_millis(millis.into());
            }
            "security.protocol" => settings.protocol = Some(protocol(value)?),
            "sasl.mechanism" => settings.mechanism = Some(mechanism(value)?),
            "sasl.jaas.config" => settings.login = Some(login(value)?),
            "ssl.truststore.type" | "ssl.keystore.type" if value.eq_ignore_ascii_case("PEM") => {}
            "ssl.truststore.type" | "ssl.keystore.type" => {
                return Err(
                    "is not PEM, the only type that is read here: `keytool -exportcert -rfc` and \
                     `openssl pkcs12` write PEM"
                        .to_owned(),
                );
            }
            "ssl.truststore.location" => settings.trust_roots = Some(Pem::File(value.into())),
            "ssl.truststore.certificates" => settings.trust_roots = Some(pem(value)),
            "ssl.keystore.location" => settings.keystore_file = Some(value.into()),
            "ssl.keystore.certificate.chain" => settings.certificates = Some(pem(value)),
            "ssl.keystore.key" => settings.key = Some(pem(value)),
            "ssl.key.password" => settings.key_password = Some(property.value.clone()),
            "ssl.truststore.password" | "ssl.keystore.password" => {
                return Err(
                    "is of a JKS or PKCS12 store, and only PEM is read here: leave it out, and say \
                     ssl.key.password where the key has one"
                        .to_owned(),
                );
            }
            "ssl.endpoint.identification.algorithm" => {
                settings.accept_any_host_name = match value {
                    "" => true,
                    https if https.eq_ignore_ascii_case("https") => false,
                    _ => return Err("is neither https nor empty".to_owned()),
                };
            }
            _ => return Err("is not understood here".to_owned()),
        }
        Ok(())
    }
}

impl Settings {
    fn into_security(self) -> Result<Option<ClientSecurity>, String> {
        let protocol = self.protocol.unwrap_or(SecurityProtocol::Plaintext);
        let identity = match (self.keystore_file, self.certificates, self.key) {
            (None, None, None) => None,
            (Some(file), None, None) => Some((Pem::File(file.clone()), Pem::File(file))),
            (None, Some(certificates), Some(key)) => Some((certificates, key)),
            (Some(_), _, _) => {
                return Err("ssl.keystore.location stands beside ssl.keystore.key or \
                     ssl.keystore.certificate.chain: one of the two"
                    .to_owned());
            }
            (None, _, _) => {
                return Err(
                    "ssl.keystore.key and ssl.keystore.certificate.chain go together, and one is \
                     missing"
                        .to_owned(),
                );
            }
        };
        let sasl = match (self.mechanism, self.login) {
            (None, None) => None,
            (Some(_), None) => {
                return Err("sasl.mechanism is set, and sasl.jaas.config is missing".to_owned());
            }
            // Kafka's default is GSSAPI, which is not understood here.
            (None, Some(_)) => {
                return Err("sasl.jaas.config is set, and sasl.mechanism is missing".to_owned());
            }
            (Some(mechanism), Some(login)) => {
                if login.is_scram != (mechanism != SaslMechanism::Plain) {
                    return Err(
                        "sasl.jaas.config names the login module of another sasl.mechanism"
                            .to_owned(),
                    );
                }
                Some(SaslCredentials {
                    mechanism,
                    username: login.username,
                    password: login.password,
                })
            }
        };
        let security = ClientSecurity {
            protocol,
            trust_roots: self.trust_roots,
            accept_any_host_name: self.accept_any_host_name,
            identity: identity.map(|(certificate, key)| ClientIdentity {
                certificate,
                key,
                key_password: self.key_password,
            }),
            sasl,
        };
        security.validate()?;
        Ok((protocol != SecurityProtocol::Plaintext).then_some(security))
    }
}

fn protocol(value: &str) -> Result<SecurityProtocol, String> {
    Ok(match value.to_ascii_uppercase().as_str() {
        "PLAINTEXT" => SecurityProtocol::Plaintext,
        "SSL" => SecurityProtocol::Ssl,
        "SASL_PLAINTEXT" => SecurityProtocol::SaslPlaintext,
        "SASL_SSL" => SecurityProtocol::SaslSsl,
        _ => {
            return Err("is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL".to_owned());
        }
    })
}

fn mechanism(value: &str) -> Result<SaslMechanism, String> {
    Ok(match value {
        "PLAIN" => SaslMechanism::Plain,
        "SCRAM-SHA-256" => SaslMechanism::ScramSha256,
        "SCRAM-SHA-512" => SaslMechanism::ScramSha512,
        _ => {
            return Err("is none of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512".to_owned());
        }
    })
}

/// PEM in a property stands in one line, or in several that `\` joins, or with `\n` between them.
fn pem(value: &str) -> Pem {
    const LABEL_END: &str = "-----";
    let mut text = String::with_capacity(value.len() + 8);
    // OpenSSL wants the labels on lines of their own. Each block is four pieces around `-----`.
    for (at, piece) in value.split(LABEL_END).enumerate() {
        let is_label = at % 2 == 1;
        if is_label {
            let begin = if piece.starts_with("END ") { "\n" } else { "" };
            text.extend([begin, LABEL_END, piece, LABEL_END, "\n"]);
        } else {
            text.push_str(piece.trim());
        }
    }
    Pem::Bytes(text.into_bytes())
}

/// The name of a property, if it looks like one of Kafka's. What does not may be the end of a secret
/// that was broken into lines.
fn name_of(key: &str) -> Option<&str> {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-_".contains(c);
    (key.contains('.') && key.len() <= 80 && key.chars().all(is_name)).then_some(key)
}

/// Reads `LoginModule required username="…" password="…";`.
fn login(value: &str) -> Result<Login, String> {
    let mut words = jaas_words(value)?.into_iter();
    let module = words.next().unwrap_or_default();
    let is_scram = match module.rsplit('.').next() {
        Some("PlainLoginModule") => false,
        Some("ScramLoginModule") => true,
        _ => {
            return Err("names neither PlainLoginModule nor ScramLoginModule".to_owned());
        }
    };
    if words.next().as_deref() != Some("required") {
        return Err("has no `required` behind the login module".to_owned());
    }
    let (mut username, mut password) = (None, None);
    for word in words {
        match word.split_once('=') {
            Some(("username", value)) => username = Some(value.to_owned()),
            Some(("password", value)) => password = Some(value.to_owned()),
            // `tokenauth` and the like change what the password is.
            _ => {
                return Err("has another option than username=\"…\" and password=\"…\"".to_owned());
            }
        }
    }
    match (username, password) {
        (Some(username), Some(password)) => Ok(Login {
            is_scram,
            username,
            password,
        }),
        _ => Err("needs username=\"…\" and password=\"…\"".to_owned()),
    }
}

/// The words of a JAAS entry, up to its `;`, without the quotes.
fn jaas_words(value: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut rest = value.chars();
    while let Some(c) = rest.next() {
        match c {
            ';' => {
                if !word.is_empty() {
                    words.push(word);
                }
                if rest.as_str().trim().is_empty() {
                    return Ok(words);
                }
                return Err("goes on behind its `;`".to_owned());
            }
            '"' | '\'' => quoted(c, &mut rest, &mut word)?,
            c if c.is_whitespace() => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            c => word.push(c),
        }
    }
    Err("does not end with `;`".to_owned())
}

/// Reads on behind an opening quote to the closing one.
fn quoted(quote: char, rest: &mut Chars<'_>, word: &mut String) -> Result<(), String> {
    while let Some(c) = rest.next() {
        match c {
            c if c == quote => return Ok(()),
            '\\' => word.extend(rest.next()),
            c => word.push(c),
        }
    }
    Err("has a quote that is not closed".to_owned())
}

/// The settings of a text in the form of `java.util.Properties`; of one that stands there twice, the
/// last.
fn properties(text: &str) -> Result<Vec<Property>, String> {
    let mut properties: Vec<Property> = Vec::new();
    let mut lines = (1..).zip(text.lines());
    while let Some((line, first)) = lines.next() {
        let first = first.trim_start();
        if first.is_empty() || first.starts_with(['#', '!']) {
            continue;
        }
        let mut whole = first.to_owned();
        while goes_on(&whole) {
            whole.pop();
            match lines.next() {
                Some((_, next)) => whole.push_str(next.trim_start()),
                None => break,
            }
        }
        let mut chars = whole.chars().peekable();
        let key = unescaped(&mut chars, true);
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        if chars.next_if(|c| matches!(c, '=' | ':')).is_some() {
            while chars.next_if(|c| c.is_whitespace()).is_some() {}
        }
        let value = unescaped(&mut chars, false);
        let (Some(key), Some(value)) = (key, value) else {
            return Err(format!("line {line} has a \\u that no character follows"));
        };
        properties.retain(|before| before.key != key);
        properties.push(Property { line, key, value });
    }
    Ok(properties)
}

/// Whether a line ends in an odd number of `\`.
fn goes_on(line: &str) -> bool {
    let ending = line.bytes().rev().take_while(|byte| *byte == b'\\');
    ending.count() % 2 == 1
}

/// Reads a key, which ends where its value begins, or a value, which ends with the line; `None` for
/// `\u` without a character.
fn unescaped(chars: &mut Peekable<Chars<'_>>, is_key: bool) -> Option<String> {
    let mut text = String::new();
    let ends = |c: &char| is_key && (c.is_whitespace() || matches!(c, '=' | ':'));
    while let Some(c) = chars.next_if(|c| !ends(c)) {
        if c != '\\' {
            text.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => text.push('\n'),
            Some('t') => text.push('\t'),
            Some('r') => text.push('\r'),
            Some('f') => text.push('\u{c}'),
            Some('u') => {
                let mut unit = 0;
                for _ in 0..4 {
                    unit = unit * 16 + chars.next()?.to_digit(16)?;
                }
                text.push(char::from_u32(unit)?);
            }
            Some(c) => text.push(c),
            None => {}
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECRET: &str = "hunter2-of-all";

    fn read(text: &str) -> Result<KafkaMetadataLogConfig, String> {
        let mut config = KafkaMetadataLogConfig::new("localhost:9092");
        config.set_client_properties(text)?;
        config.validate()?;
        Ok(config)
    }

    fn security(text: &str) -> ClientSecurity {
        read(text).unwrap().security.unwrap()
    }

    #[test]
    fn a_file_of_a_sasl_ssl_client_is_understood() {
        let config = read(
            r#"
            # of the operators
            bootstrap.servers=elsewhere:1
            security.protocol=SASL_SSL
            sasl.mechanism = SCRAM-SHA-512
            sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
                username="tier" \
                password="a\"b;c d";
            ssl.truststore.type=PEM
            ssl.truststore.location=/etc/kafka/ca.pem
            client.id: operators
            request.timeout.ms 1500
            "#
            .replace("a\\\"b", "a\\\\\"b")
            .as_str(),
        )
        .unwrap();
        assert_eq!(config.bootstrap, "localhost:9092");
        assert_eq!(config.client_id, "operators");
        assert_eq!(config.request_timeout, Duration::from_millis(1500));
        let security = config.security.unwrap();
        assert_eq!(security.protocol, SecurityProtocol::SaslSsl);
        assert_eq!(
            security.trust_roots,
            Some(Pem::File("/etc/kafka/ca.pem".into()))
        );
        assert!(!security.accept_any_host_name);
        let sasl = security.sasl.unwrap();
        assert_eq!(sasl.mechanism, SaslMechanism::ScramSha512);
        assert_eq!(
            (sasl.username.as_str(), sasl.password.as_str()),
            ("tier", "a\"b;c d")
        );
    }

    #[test]
    fn nothing_and_plaintext_are_no_security() {
        for text in ["", "# nothing\n\n", "security.protocol=PLAINTEXT"] {
            assert_eq!(read(text).unwrap().security, None);
        }
    }

    #[test]
    fn a_client_certificate_comes_from_a_file_or_stands_in_the_properties() {
        let of_file = security(
            "security.protocol=SSL\nssl.keystore.type=PEM\nssl.keystore.location=/k.pem\n\
             ssl.key.password=x\nssl.endpoint.identification.algorithm=",
        );
        assert!(of_file.accept_any_host_name);
        let identity = of_file.identity.unwrap();
        assert_eq!(identity.certificate, Pem::File("/k.pem".into()));
        assert_eq!(identity.key, identity.certificate);
        assert_eq!(identity.key_password.as_deref(), Some("x"));

        let inline = security(
            "security.protocol=SSL\n\
             ssl.keystore.key=-----BEGIN PRIVATE KEY----- \\\n  AAAA \\\n  -----END PRIVATE KEY-----\n\
             ssl.keystore.certificate.chain=-----BEGIN CERTIFICATE-----\\nBBBB\\nCCCC\\n-----END CERTIFICATE-----\\n\
             -----BEGIN CERTIFICATE-----\\nDDDD\\n-----END CERTIFICATE-----\n",
        );
        let identity = inline.identity.unwrap();
        let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        assert_eq!(identity.key, Pem::Bytes(key.into()));
        let chain = "-----BEGIN CERTIFICATE-----\nBBBB\nCCCC\n-----END CERTIFICATE-----\n\
                     -----BEGIN CERTIFICATE-----\nDDDD\n-----END CERTIFICATE-----\n";
        assert_eq!(identity.certificate, Pem::Bytes(chain.into()));
    }

    #[test]
    fn the_form_is_that_of_javas_properties() {
        let text =
            "  a.b = 1 \\= 2\n!c\nd\\:e\\ f:\\u0041\\tx\ng\nh=\\\\\ni=1\ni=2\\\n   3\nj=last\\";
        let read: Vec<_> = properties(text)
            .unwrap()
            .into_iter()
            .map(|property| (property.line, property.key, property.value))
            .collect();
        let expected = [
            (1, "a.b", "1 = 2"),
            (3, "d:e f", "A\tx"),
            (4, "g", ""),
            (5, "h", "\\"),
            (7, "i", "23"),
            (9, "j", "last"),
        ];
        let expected = expected.map(|(line, key, value)| (line, key.to_owned(), value.to_owned()));
        assert_eq!(read, expected);
        assert!(properties("a=\\u00g1").is_err());
        assert!(properties("a=\\ud800").is_err());
    }

    #[test]
    fn what_is_not_understood_is_named_with_its_line() {
        for (text, fault) in [
            ("\nacks=all", "line 2 is not understood here"),
            ("group.id=g", "line 1: group.id is not understood here"),
            (
                "ssl.truststore.type=JKS",
                "line 1: ssl.truststore.type is not PEM",
            ),
            (
                "security.protocol=TLS",
                "line 1: security.protocol is none of PLAINTEXT",
            ),
            (
                "sasl.mechanism=GSSAPI",
                "line 1: sasl.mechanism is none of PLAIN",
            ),
            ("request.timeout.ms=soon", "is no number of milliseconds"),
            (
                "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN",
                "sasl.jaas.config is missing",
            ),
            (
                "security.protocol=SSL\nssl.keystore.key=x",
                "one is missing",
            ),
            (
                "ssl.truststore.location=/ca.pem",
                "has no TLS, and trust_roots or identity is given",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(fault), "{error}");
        }
    }

    #[test]
    fn no_error_repeats_a_secret() {
        let login = "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule";
        for text in [
            format!("{login} required username=\"u\" password=\"{SECRET}\""),
            format!("{login} required username=\"u\" password=\"{SECRET};"),
            format!("{login} required username=\"u\" password=\"{SECRET}\"; more"),
            format!("{login} required username=\"u\" secret=\"{SECRET}\";"),
            format!("{login} username=\"u\" password=\"{SECRET}\";"),
            format!("sasl.jaas.config={SECRET} required;"),
            format!("{login} required password=\"{SECRET}\";"),
            format!("security.protocol={SECRET}"),
            SECRET.to_owned(),
            format!("{SECRET}=x"),
            format!("ssl.keystore.password={SECRET}"),
            format!("ssl.key.password={SECRET}\nssl.keystore.key={SECRET}"),
            format!("sasl.mechanism=PLAIN\n{login} required username=\"u\" password=\"{SECRET}\";"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(!error.contains(SECRET), "{error}");
        }
        let config = read(&format!(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n{login} required \
             username=\"u\" password=\"{SECRET}\";"
        ))
        .unwrap();
        assert!(!format!("{config:?}").contains(SECRET));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in r#"(\\PC|[\\ \n=:#!"';u]|ssl\.keystore\.key=|sasl\.jaas\.config=|----)*"#) {
            let mut config = KafkaMetadataLogConfig::new("localhost:9092");
            let _ = config.set_client_properties(&text);
        }

        #[test]
        fn a_value_is_read_back_from_its_escaped_form(value in r"[ -~\n\t]{0,40}") {
            let escaped: String = value.chars().map(|c| match c {
                '\n' => "\\n".to_owned(),
                '\t' => "\\t".to_owned(),
                '\\' | ' ' => format!("\\{c}"),
                c => c.to_string(),
            }).collect();
            let read = properties(&format!("a.b={escaped}")).unwrap();
            prop_assert_eq!(&read[0].value, &value);
        }
    }
}
