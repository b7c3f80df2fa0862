//! What is kept of an answer that is no success.

use std::fmt;
use std::sync::Arc;

use http::StatusCode;
use http::header::HeaderMap;
use http_body_util::BodyExt;

use super::body::Received;

/// How much of an error's body is read. What it says stands at its start.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// Shorter texts are no secrets, and occur in other words.
const MIN_SECRET_BYTES: usize = 6;

/// Longer than any region's name.
const MAX_REGION_CHARS: usize = 64;

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

/// Reads the body of an error, up to a bound and without the secrets. A body that breaks off says
/// as much as has come: the status says the rest.
pub(super) async fn read_error(mut body: Received, secrets: &Secrets) -> String {
    let mut read = Vec::new();
    while read.len() < MAX_ERROR_BYTES {
        let Some(Ok(frame)) = body.frame().await else {
            break;
        };
        if let Ok(data) = frame.into_data() {
            let room = MAX_ERROR_BYTES - read.len();
            read.extend_from_slice(&data[..data.len().min(room)]);
        }
    }
    secrets.removed_from(String::from_utf8_lossy(&read).into_owned())
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
            .map(|region| region.chars().take(MAX_REGION_CHARS).collect());
        Self { status, region }
    }
}

impl fmt::Display for Redirected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The classification of errors knows an answer of the server by these words.
        write!(f, "Server returned non-2xx status code: {}: ", self.status)?;
        match &self.region {
            Some(region) => write!(f, "the bucket is in the region {region:?}"),
            None => f.write_str("the store redirects, check region and endpoint"),
        }
    }
}

impl std::error::Error for Redirected {}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(
            redirected.to_string(),
            "Server returned non-2xx status code: 301 Moved Permanently: the store redirects, \
             check region and endpoint"
        );
        headers.insert("x-amz-bucket-region", "eu-west-1".parse().unwrap());
        let redirected = Redirected::new(StatusCode::TEMPORARY_REDIRECT, &headers);
        assert!(
            redirected.to_string().ends_with("region \"eu-west-1\""),
            "{redirected}"
        );
    }
}
