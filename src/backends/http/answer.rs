//! What is kept of an answer that is no success.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http::header::HeaderMap;
use http_body_util::BodyExt;

use super::body::Received;

/// How much of an error's body is read.
const MAX_READ_BYTES: usize = 64 * 1024;

/// How much is kept of a body that is not the usual document.
const MAX_KEPT_BYTES: usize = 1024;

/// What is kept of an error document. Stores add the credentials that they refused, the string that
/// they signed, and the like.
const KEPT_ELEMENTS: [&str; 7] = [
    "Code",
    "Message",
    "Condition",
    "Region",
    "Resource",
    "RequestId",
    "HostId",
];

/// Shorter texts are no secrets, and occur in other words.
const MIN_SECRET_BYTES: usize = 6;

/// Texts that no error may show.
#[derive(Clone, Default)]
pub(super) struct Secrets(Arc<[String]>);

impl FromIterator<String> for Secrets {
    fn from_iter<I: IntoIterator<Item = String>>(secrets: I) -> Self {
        let mut secrets: Vec<String> = secrets
            .into_iter()
            .filter(|secret| secret.len() >= MIN_SECRET_BYTES)
            .collect();
        // The longest first: one may be a part of another.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self(secrets.into())
    }
}

impl Secrets {
    fn removed_from(&self, mut text: String) -> String {
        for secret in self.0.iter() {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), "***");
            }
        }
        text
    }
}

/// Reads the body of an error and keeps what explains it. A body that breaks off explains as much
/// as has come: the status says the rest.
pub(super) async fn shortened(mut body: Received, secrets: &Secrets) -> Bytes {
    let mut read = Vec::new();
    while read.len() < MAX_READ_BYTES {
        let Some(Ok(frame)) = body.frame().await else {
            break;
        };
        if let Ok(data) = frame.into_data() {
            let room = MAX_READ_BYTES - read.len();
            read.extend_from_slice(&data[..data.len().min(room)]);
        }
    }
    let text = String::from_utf8_lossy(&read);
    secrets.removed_from(explanation(&text)).into()
}

fn explanation(text: &str) -> String {
    let mut kept = String::new();
    for name in KEPT_ELEMENTS {
        if let Some(content) = element(text, name) {
            let _ = write!(kept, "<{name}>{}</{name}>", start_of(content));
        }
    }
    if kept.is_empty() {
        start_of(text).to_owned()
    } else {
        format!("<Error>{kept}</Error>")
    }
}

fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (content, _) = rest.split_once(&format!("</{name}>"))?;
    Some(content)
}

fn start_of(text: &str) -> &str {
    let end = text
        .char_indices()
        .map(|(at, c)| at + c.len_utf8())
        .take_while(|end| *end <= MAX_KEPT_BYTES)
        .last()
        .unwrap_or(0);
    &text[..end]
}

/// A redirect, which is not followed.
#[derive(Debug)]
pub(super) struct Redirected {
    status: StatusCode,
    region: Option<String>,
}

impl Redirected {
    pub(super) fn new(status: StatusCode, headers: &HeaderMap) -> Self {
        let region = headers
            .get("x-amz-bucket-region")
            .and_then(|region| region.to_str().ok())
            .map(|region| start_of(region).to_owned());
        Self { status, region }
    }
}

impl fmt::Display for Redirected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The classification of errors reads the number behind these words.
        write!(
            f,
            "the store redirects, with status code: {}; ",
            self.status.as_u16()
        )?;
        match &self.region {
            Some(region) => write!(f, "its bucket is in the region {region:?}"),
            None => f.write_str("check region and endpoint"),
        }
    }
}

impl std::error::Error for Redirected {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_error_document_stays_what_explains_it() {
        let text = "<?xml version=\"1.0\"?><Error><Code>ExpiredToken</Code><Message>The provided \
                    token has expired.</Message><Token-0>IQoJMARKED</Token-0><AWSAccessKeyId>\
                    AKIAMARKED</AWSAccessKeyId><RequestId>42</RequestId></Error>";
        assert_eq!(
            explanation(text),
            "<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message>\
             <RequestId>42</RequestId></Error>"
        );
    }

    #[test]
    fn of_another_text_stays_the_start() {
        assert_eq!(
            explanation("{\"error\":\"invalid_grant\"}"),
            "{\"error\":\"invalid_grant\"}"
        );
        let long = "ä".repeat(4000);
        assert_eq!(explanation(&long), "ä".repeat(MAX_KEPT_BYTES / 2));
        assert_eq!(explanation(""), "");
    }

    #[test]
    fn a_known_secret_is_removed_wherever_it_stands() {
        let secrets: Secrets = ["tokenMARKED", "tokenMARKED-longer", "abc"]
            .map(str::to_owned)
            .into_iter()
            .collect();
        assert_eq!(
            secrets.removed_from("abc: tokenMARKED-longer, tokenMARKED".to_owned()),
            "abc: ***, ***"
        );
    }

    #[test]
    fn a_redirect_names_its_status_and_the_region() {
        let mut headers = HeaderMap::new();
        let redirected = Redirected::new(StatusCode::MOVED_PERMANENTLY, &headers);
        assert!(
            redirected
                .to_string()
                .contains("status code: 301; check region")
        );
        headers.insert("x-amz-bucket-region", "eu-west-1".parse().unwrap());
        let redirected = Redirected::new(StatusCode::TEMPORARY_REDIRECT, &headers);
        assert!(
            redirected.to_string().ends_with("region \"eu-west-1\""),
            "{redirected}"
        );
    }
}
