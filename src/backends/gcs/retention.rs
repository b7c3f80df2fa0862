//! The retention policy of a bucket of Google Cloud Storage.
//!
//! Reference: `Buckets: get` of Google's JSON API. It needs the permission `storage.buckets.get`.

use std::sync::Arc;

use http::Method;
use percent_encoding::utf8_percent_encode;
use serde::Deserialize;
use serde_json::Number;
use url::Url;

use crate::backends::RetentionReader;
use crate::backends::http::retention::{MAX_POLICY_BYTES, shown, unreadable, wrong};
use crate::backends::http::signed::{QUERY, Request, SignedClient};
use crate::error::RemoteStorageError;
use crate::ops::RetentionPolicy;

/// Reads the policy of one bucket.
pub(in crate::backends) struct GcsRetention {
    /// Sends the requests.
    pub(in crate::backends) client: SignedClient,
    /// Where the API is; ends with a slash.
    pub(in crate::backends) base_url: Url,
    /// The bucket's name.
    pub(in crate::backends) bucket: String,
}

impl GcsRetention {
    /// Reads it for an [`ObjectStoreClient`](crate::backends::ObjectStoreClient).
    pub(in crate::backends) fn into_reader(self) -> RetentionReader {
        let retention = Arc::new(self);
        Arc::new(move || {
            let retention = Arc::clone(&retention);
            Box::pin(async move { retention.read().await })
        })
    }

    async fn read(&self) -> Result<RetentionPolicy, RemoteStorageError> {
        let mut url = self.base_url.clone();
        url.set_path(&format!(
            "{}storage/v1/b/{}",
            url.path(),
            utf8_percent_encode(&self.bucket, QUERY)
        ));
        url.set_query(Some("fields=versioning,retentionPolicy"));
        let request = Request::new(Method::GET, url, MAX_POLICY_BYTES);
        let answer = self.client.send(request).await;
        let answer = answer.map_err(|failure| unreadable(&self.bucket, failure))?;
        let bucket: Bucket = serde_json::from_slice(&answer.body)
            .map_err(|_| wrong(&self.bucket, "the answer is no JSON document of this kind"))?;
        let mut unmet = Vec::new();
        match &bucket.retention_policy {
            None => unmet.push("it has no retention policy".to_owned()),
            Some(policy) => policy.add_unmet(&mut unmet),
        }
        Ok(RetentionPolicy {
            unmet,
            versioned: bucket
                .versioning
                .is_some_and(|versioning| versioning.enabled == Some(true)),
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bucket {
    versioning: Option<Versioning>,
    retention_policy: Option<Policy>,
}

#[derive(Deserialize)]
struct Versioning {
    enabled: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Policy {
    /// Seconds.
    retention_period: Option<Period>,
    is_locked: Option<bool>,
}

/// A 64-bit number, which Google's JSON has as a text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Period {
    Text(String),
    Number(Number),
}

impl Policy {
    fn add_unmet(&self, unmet: &mut Vec<String>) {
        if self.is_locked != Some(true) {
            unmet.push("its retention policy is not locked".to_owned());
        }
        let period = match &self.retention_period {
            None => {
                unmet.push("its retention policy has no period".to_owned());
                return;
            }
            Some(Period::Text(text)) => text.clone(),
            Some(Period::Number(number)) => number.to_string(),
        };
        if !period.parse::<u64>().is_ok_and(|period| period > 0) {
            unmet.push(format!(
                "the period of its retention policy is {}, not a number of seconds above zero",
                shown(&period)
            ));
        }
    }
}
