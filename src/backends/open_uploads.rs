//! Lists the multipart uploads that a bucket holds open, in the XML protocol that Amazon S3 and
//! Google Cloud Storage share.
//!
//! `object_store` has no such request. References: S3 `ListMultipartUploads`, and "List multipart
//! uploads" of Google's XML API.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use http::{Method, StatusCode};
use object_store::client::{HttpClient, HttpError, HttpRequest, HttpRequestBody};
use object_store::path::Path;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use url::Url;

use super::UploadLister;
use crate::error::{RemoteStorageError, StoreCall};
use crate::ops::{OpenUpload, StorageOp};

/// Uploads asked for at once: the most that the stores give.
const PAGE_UPLOADS: usize = 1000;

/// A page of a thousand of the longest keys is shorter.
const MAX_PAGE_BYTES: usize = 8 * 1024 * 1024;

/// More open uploads than this are not listed: someone has to clear them first.
const MAX_UPLOADS: usize = 100_000;

/// What RFC 3986 leaves as it is, as signatures have it.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The open uploads of one bucket.
pub(super) struct BucketUploads {
    /// Sends the requests.
    pub(super) client: HttpClient,
    /// The bucket, without a query.
    pub(super) bucket_url: Url,
    /// What permits the requests.
    pub(super) authority: Authority,
}

/// What permits a request.
pub(super) enum Authority {
    /// A signature of AWS.
    #[cfg(feature = "aws")]
    Aws {
        /// Gives the keys.
        credentials: object_store::aws::AwsCredentialProvider,
        /// The region to sign for.
        region: String,
        /// Whether the requester pays.
        request_payer: bool,
    },
    /// A token of Google's.
    #[cfg(feature = "gcp")]
    Google(object_store::gcp::GcpCredentialProvider),
    /// The store asks for none.
    #[cfg(feature = "aws")]
    None,
}

impl BucketUploads {
    /// Lists them for an [`ObjectStoreClient`](super::ObjectStoreClient).
    pub(super) fn into_lister(self) -> UploadLister {
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

        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.method_mut() = Method::GET;
        *request.uri_mut() = url.as_str().parse().map_err(Failure::Uri)?;
        self.authority.permit(&mut request).await?;
        let (parts, body) = self.client.execute(request).await?.into_parts();
        let body = read(body.bytes_stream()).await?;
        if !parts.status.is_success() {
            return Err(Failure::Status {
                status: parts.status,
                body: String::from_utf8_lossy(&body).into_owned(),
            });
        }
        let Document::ListMultipartUploadsResult(page) = quick_xml::de::from_reader(&body[..])?;
        Ok(page)
    }
}

impl Authority {
    async fn permit(&self, request: &mut HttpRequest) -> Result<(), Failure> {
        match self {
            #[cfg(feature = "aws")]
            Self::Aws {
                credentials,
                region,
                request_payer,
            } => {
                let credential = credentials.get_credential().await?;
                object_store::aws::AwsAuthorizer::new(&credential, "s3", region)
                    .with_request_payer(*request_payer)
                    .try_authorize(request, None)?;
            }
            #[cfg(feature = "gcp")]
            Self::Google(credentials) => {
                let credential = credentials.get_credential().await?;
                let mut token =
                    http::HeaderValue::try_from(format!("Bearer {}", credential.bearer))
                        .map_err(|_| Failure::Token)?;
                token.set_sensitive(true);
                request
                    .headers_mut()
                    .insert(http::header::AUTHORIZATION, token);
            }
            #[cfg(feature = "aws")]
            Self::None => {}
        }
        Ok(())
    }
}

async fn read(
    mut body: impl futures::Stream<Item = Result<Bytes, HttpError>> + Unpin,
) -> Result<Vec<u8>, Failure> {
    let mut read = Vec::new();
    while let Some(bytes) = body.next().await {
        read.extend_from_slice(&bytes?);
        if read.len() > MAX_PAGE_BYTES {
            return Err(Failure::LongPage);
        }
    }
    Ok(read)
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
    #[error("the bucket's URL cannot be asked")]
    Uri(#[source] http::uri::InvalidUri),
    #[cfg(feature = "gcp")]
    #[error("the access token has a character that cannot be sent")]
    Token,
    #[error(transparent)]
    Store(#[from] object_store::Error),
    #[error(transparent)]
    Http(#[from] HttpError),
    // The classification of errors knows an answer of the server by these words.
    #[error("Server returned non-2xx status code: {status}: {body}")]
    Status { status: StatusCode, body: String },
    #[error("the store's answer is longer than {MAX_PAGE_BYTES} bytes")]
    LongPage,
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
    let error = match failure {
        Failure::Store(error) => error,
        Failure::LongPage | Failure::Document(_) | Failure::SamePageAgain => {
            return RemoteStorageError::Corrupt {
                key: path,
                reason: failure.to_string(),
            };
        }
        Failure::TooMany | Failure::Uri(_) => {
            return RemoteStorageError::InvalidArgument(failure.to_string());
        }
        Failure::Status { status, .. } => {
            let source = Box::new(failure);
            match status {
                StatusCode::UNAUTHORIZED => object_store::Error::Unauthenticated { path, source },
                StatusCode::FORBIDDEN => object_store::Error::PermissionDenied { path, source },
                StatusCode::NOT_FOUND => object_store::Error::NotFound { path, source },
                _ => generic(source),
            }
        }
        Failure::Http(_) => generic(Box::new(failure)),
        #[cfg(feature = "gcp")]
        Failure::Token => generic(Box::new(failure)),
    };
    RemoteStorageError::from_store(call, error)
}

fn generic(source: Box<Failure>) -> object_store::Error {
    object_store::Error::Generic {
        store: "open uploads",
        source,
    }
}
