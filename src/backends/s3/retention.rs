//! Versioning and Object Lock of an S3 bucket.
//!
//! References: S3 `GetBucketVersioning` and `GetObjectLockConfiguration`. They need the permissions
//! `s3:GetBucketVersioning` and `s3:GetBucketObjectLockConfiguration`.

use std::sync::Arc;

use http::{Method, StatusCode};
use quick_xml::events::Event;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use url::Url;

use crate::backends::RetentionReader;
use crate::backends::http::retention::{MAX_POLICY_BYTES, shown, unreadable, wrong};
use crate::backends::http::signed::{Failure, Request, SignedClient};
use crate::error::RemoteStorageError;
use crate::ops::RetentionPolicy;

/// The code with which S3 says that a bucket has no Object Lock.
const NO_CONFIGURATION: &str = "ObjectLockConfigurationNotFoundError";

/// Reads the policy of one bucket.
pub(in crate::backends) struct S3Retention {
    /// Sends the requests.
    pub(in crate::backends) client: SignedClient,
    /// The bucket, without a query.
    pub(in crate::backends) policy_url: Url,
    /// Its name.
    pub(in crate::backends) bucket: String,
}

impl S3Retention {
    /// Reads it for an [`ObjectStoreClient`](crate::backends::ObjectStoreClient).
    pub(in crate::backends) fn into_reader(self) -> RetentionReader {
        let retention = Arc::new(self);
        Arc::new(move || {
            let retention = Arc::clone(&retention);
            Box::pin(async move { retention.read().await })
        })
    }

    async fn read(&self) -> Result<RetentionPolicy, RemoteStorageError> {
        let versioning = match self.get("versioning").await {
            Ok(body) => body,
            Err(failure) => return Err(unreadable(&self.named("versioning"), failure)),
        };
        let VersioningDocument::VersioningConfiguration { status } =
            parsed(&versioning).map_err(|why| wrong(&self.named("versioning"), &why))?;
        let object_lock = match self.get("object-lock").await {
            Ok(body) => {
                let LockDocument::ObjectLockConfiguration(lock) =
                    parsed(&body).map_err(|why| wrong(&self.named("object-lock"), &why))?;
                Some(lock)
            }
            // The bucket has none: an answer, and no failure.
            Err(Failure::Status { status, body })
                if status == StatusCode::NOT_FOUND && code_of(&body) == Some(NO_CONFIGURATION) =>
            {
                None
            }
            Err(failure) => return Err(unreadable(&self.named("object-lock"), failure)),
        };
        let versioned = status.as_deref().map(str::trim) == Some("Enabled");
        let mut unmet = Vec::new();
        if !versioned {
            unmet.push(match &status {
                None => "its versioning is not enabled".to_owned(),
                Some(status) => format!("its versioning is {}, not `Enabled`", shown(status)),
            });
        }
        match object_lock {
            None => unmet.push("it has no Object Lock configuration".to_owned()),
            Some(lock) => lock.add_unmet(&mut unmet),
        }
        Ok(RetentionPolicy { unmet, versioned })
    }

    /// What a request asks of this bucket, as errors name it.
    fn named(&self, part: &str) -> String {
        format!("{}?{part}", self.bucket)
    }

    async fn get(&self, part: &str) -> Result<Vec<u8>, Failure> {
        let mut url = self.policy_url.clone();
        url.set_query(Some(&format!("{part}=")));
        let request = Request::new(Method::GET, url, MAX_POLICY_BYTES);
        Ok(self.client.send(request).await?.body)
    }
}

/// The code of an error's page.
fn code_of(page: &str) -> Option<&str> {
    let (_, rest) = page.split_once("<Code>")?;
    Some(rest.split_once("</Code>")?.0.trim())
}

/// Reads a document by the local names of its elements, whether or not they have a name space.
///
/// A document type is refused: no store sends one, and entities come with it.
fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    const NOT_XML: &str = "the answer is no XML document of this kind";
    let text = std::str::from_utf8(body).map_err(|_| NOT_XML.to_owned())?;
    let mut reader = quick_xml::Reader::from_str(text);
    loop {
        match reader.read_event() {
            Ok(Event::DocType(_)) => return Err("the answer has a document type".to_owned()),
            Ok(Event::Eof) => break,
            Ok(_) => {}
            Err(_) => return Err(NOT_XML.to_owned()),
        }
    }
    quick_xml::de::from_str(text).map_err(|_| NOT_XML.to_owned())
}

#[derive(Deserialize)]
enum VersioningDocument {
    VersioningConfiguration {
        #[serde(rename = "Status", default)]
        status: Option<String>,
    },
}

#[derive(Deserialize)]
enum LockDocument {
    ObjectLockConfiguration(ObjectLock),
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct ObjectLock {
    object_lock_enabled: Option<String>,
    rule: Option<Rule>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Rule {
    default_retention: Option<DefaultRetention>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct DefaultRetention {
    mode: Option<String>,
    days: Option<String>,
    years: Option<String>,
}

impl ObjectLock {
    fn add_unmet(&self, unmet: &mut Vec<String>) {
        match self.object_lock_enabled.as_deref().map(str::trim) {
            Some("Enabled") => {}
            None => unmet.push("its Object Lock is not enabled".to_owned()),
            Some(other) => unmet.push(format!(
                "its Object Lock is {}, not `Enabled`",
                shown(other)
            )),
        }
        match self
            .rule
            .as_ref()
            .and_then(|rule| rule.default_retention.as_ref())
        {
            None => unmet.push("its Object Lock has no default retention".to_owned()),
            Some(retention) => retention.add_unmet(unmet),
        }
    }
}

impl DefaultRetention {
    fn add_unmet(&self, unmet: &mut Vec<String>) {
        match self.mode.as_deref().map(str::trim) {
            Some("COMPLIANCE") => {}
            None => unmet.push("its default retention has no mode".to_owned()),
            // GOVERNANCE can be passed by with s3:BypassGovernanceRetention.
            Some(mode) => unmet.push(format!(
                "its default retention has the mode {}, not `COMPLIANCE`",
                shown(mode)
            )),
        }
        match (&self.days, &self.years) {
            (None, None) => unmet.push("its default retention has no period".to_owned()),
            (Some(_), Some(_)) => {
                unmet.push("its default retention has both days and years".to_owned());
            }
            (Some(period), None) | (None, Some(period)) => {
                if !period.trim().parse::<u64>().is_ok_and(|period| period > 0) {
                    unmet.push(format!(
                        "the period of its default retention is {}, not a number above zero",
                        shown(period)
                    ));
                }
            }
        }
    }
}
