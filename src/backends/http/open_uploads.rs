//! Lists the multipart uploads that a bucket holds open, in the XML protocol that Amazon S3 and
//! Google Cloud Storage share.
//!
//! `object_store` has no such request. References: S3 `ListMultipartUploads`, and "List multipart
//! uploads" of Google's XML API.

use std::fmt::Write as _;
use std::sync::Arc;

use http::Method;
use object_store::path::Path;
use percent_encoding::utf8_percent_encode;
use serde::Deserialize;
use url::Url;

use super::signed::{Failure as RequestFailure, QUERY, Request, SignedClient};
use crate::backends::UploadLister;
use crate::error::{RemoteStorageError, StoreCall};
use crate::ops::{OpenUpload, StorageOp};

/// Uploads asked for at once: the most that the stores give.
const PAGE_UPLOADS: usize = 1000;

/// A page of a thousand of the longest keys is shorter.
const MAX_PAGE_BYTES: usize = 8 * 1024 * 1024;

/// More open uploads than this are not listed: someone has to clear them first.
const MAX_UPLOADS: usize = 100_000;

/// The open uploads of one bucket.
pub(in crate::backends) struct BucketUploads {
    /// Sends the requests.
    pub(in crate::backends) client: SignedClient,
    /// The bucket, without a query.
    pub(in crate::backends) bucket_url: Url,
}

impl BucketUploads {
    /// Lists them for an [`ObjectStoreClient`](super::ObjectStoreClient).
    pub(in crate::backends) fn into_lister(self) -> UploadLister {
        let uploads = Arc::new(self);
        Arc::new(move |prefix| {
            let uploads = Arc::clone(&uploads);
            Box::pin(async move {
                uploads
                    .list(&prefix)
                    .await
                    .map_err(|error| failed(&prefix, error))
            })
        })
    }

    /// All open uploads below `prefix`. One whose key cannot be a key of this crate is left out.
    async fn list(&self, prefix: &Path) -> Result<Vec<OpenUpload>, Failure> {
        let mut found = Vec::new();
        let mut after: Option<Marker> = None;
        loop {
            let page = self.page(prefix, after.as_ref()).await?;
            let next = page.next();
            found.extend(page.upload.into_iter().filter_map(|upload| {
                Some(OpenUpload {
                    key: Path::parse(&upload.key).ok()?,
                    upload: upload.upload_id.into(),
                })
            }));
            if found.len() > MAX_UPLOADS {
                return Err(Failure::TooMany);
            }
            match next {
                None => return Ok(found),
                // Without progress this would never end.
                next if next == after => return Err(Failure::SamePageAgain),
                next => after = next,
            }
        }
    }

    async fn page(&self, prefix: &Path, after: Option<&Marker>) -> Result<Page, Failure> {
        let mut query = format!("uploads&max-uploads={PAGE_UPLOADS}");
        let mut add = |name: &str, value: &str| {
            let _ = write!(query, "&{name}={}", utf8_percent_encode(value, QUERY));
        };
        if !prefix.as_ref().is_empty() {
            add("prefix", &format!("{prefix}/"));
        }
        if let Some(after) = after {
            if let Some(key) = &after.key {
                add("key-marker", key);
            }
            if let Some(id) = &after.upload_id {
                add("upload-id-marker", id);
            }
        }
        let mut url = self.bucket_url.clone();
        url.set_query(Some(&query));

        let answer = self
            .client
            .send(Request::new(Method::GET, url, MAX_PAGE_BYTES))
            .await?;
        let Document::ListMultipartUploadsResult(page) =
            quick_xml::de::from_reader(&answer.body[..])?;
        Ok(page)
    }
}

/// Where a page ended, handed back as the store gave it. (`SeaweedFS` orders by upload and not by
/// key, and gives the id alone.)
#[derive(Debug, PartialEq, Eq)]
struct Marker {
    key: Option<String>,
    upload_id: Option<String>,
}

/// The answer, told from another document by its root.
#[derive(Debug, Deserialize)]
enum Document {
    ListMultipartUploadsResult(Page),
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Page {
    is_truncated: bool,
    next_key_marker: Option<String>,
    next_upload_id_marker: Option<String>,
    upload: Vec<Upload>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Upload {
    key: String,
    upload_id: String,
}

impl Page {
    /// Where the next page begins, if there is one. Not every store that cuts a listing says where.
    fn next(&self) -> Option<Marker> {
        if !self.is_truncated {
            return None;
        }
        let some = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let given = Marker {
            key: some(&self.next_key_marker),
            upload_id: some(&self.next_upload_id_marker),
        };
        if given.key.is_some() || given.upload_id.is_some() {
            return Some(given);
        }
        self.upload.last().map(|last| Marker {
            key: Some(last.key.clone()),
            upload_id: Some(last.upload_id.clone()),
        })
    }
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Request(#[from] RequestFailure),
    #[error("the store's answer is no list of uploads")]
    Document(#[from] quick_xml::DeError),
    #[error("the store gives the same page of uploads again and again")]
    SamePageAgain,
    #[error(
        "there are more than {MAX_UPLOADS} open uploads: clear them with a lifecycle rule of the \
         bucket, or list a longer prefix"
    )]
    TooMany,
}

fn failed(prefix: &Path, failure: Failure) -> RemoteStorageError {
    let call = StoreCall {
        operation: crate::ops::ListUploads::KIND,
        key: prefix.as_ref(),
        segment: None,
    };
    let path = prefix.to_string();
    match failure {
        Failure::Request(RequestFailure::TooLong(_))
        | Failure::Document(_)
        | Failure::SamePageAgain => RemoteStorageError::Corrupt {
            key: path,
            reason: failure.to_string(),
        },
        Failure::TooMany | Failure::Request(RequestFailure::Uri(_)) => {
            RemoteStorageError::InvalidArgument(failure.to_string())
        }
        Failure::Request(failure) => {
            RemoteStorageError::from_store(call, failure.into_store_error(path))
        }
    }
}
