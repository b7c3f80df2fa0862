//! Makes a multipart upload to S3 visible on condition that nothing stands under its key.
//!
//! `object_store` completes uploads unconditionally. S3 has the condition since 2024: a
//! `CompleteMultipartUpload` with `If-None-Match: *`.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::IF_NONE_MATCH;
use http::{HeaderValue, Method, StatusCode};
use object_store::path::Path;
use object_store::{Error as StoreError, PutResult};
use percent_encoding::{AsciiSet, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::backends::http::signed::{Failure, QUERY, Request, SignedClient};
use crate::backends::object::ConditionalCompletion;
use crate::ops::{PartTag, UploadId};

/// How the slashes of a key stay.
const KEY: &AsciiSet = &QUERY.remove(b'/');

/// The answer is a few lines, after blanks that S3 sends while it works: one every few seconds.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// No code of an error is longer.
const MAX_CODE_CHARS: usize = 64;

/// Completions in one S3 bucket.
pub(in crate::backends) struct S3Completion {
    /// Sends them.
    pub(in crate::backends) client: SignedClient,
    /// The bucket, without a query.
    pub(in crate::backends) bucket_url: Url,
}

impl ConditionalCompletion for S3Completion {
    fn complete(
        &self,
        key: Path,
        upload: UploadId,
        parts: Arc<[PartTag]>,
    ) -> BoxFuture<'_, object_store::Result<PutResult>> {
        Box::pin(async move {
            self.send(&key, &upload, &parts)
                .await
                .map_err(|failure| failure.into_store_error(key.to_string()))
        })
    }
}

impl S3Completion {
    async fn send(
        &self,
        key: &Path,
        upload: &UploadId,
        parts: &[PartTag],
    ) -> Result<PutResult, Failure> {
        let mut url = self.bucket_url.clone();
        let path = format!(
            "{}/{}",
            url.path().trim_end_matches('/'),
            utf8_percent_encode(key.as_ref(), KEY)
        );
        url.set_path(&path);
        url.set_query(Some(&format!(
            "uploadId={}",
            utf8_percent_encode(upload, QUERY)
        )));
        let mut request = Request::new(Method::POST, url, MAX_ANSWER_BYTES);
        request
            .headers
            .insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
        request.body = body(parts);
        let answer = self.client.send(request).await?;
        let e_tag = completed(&answer.body)?;
        let version = answer.headers.get("x-amz-version-id");
        Ok(PutResult {
            e_tag,
            version: version.and_then(|version| Some(version.to_str().ok()?.to_owned())),
            extensions: http::Extensions::new(),
        })
    }
}

/// The list of parts, as S3 takes it.
fn body(parts: &[PartTag]) -> Bytes {
    let part = (1..)
        .zip(parts)
        .map(|(number, tag)| CompletedPart::of(number, tag))
        .collect();
    quick_xml::se::to_string(&CompleteMultipartUpload { part })
        .expect("texts and numbers have an XML form")
        .into()
}

#[derive(Serialize)]
struct CompleteMultipartUpload {
    #[serde(rename = "Part")]
    part: Vec<CompletedPart>,
}

#[derive(Serialize)]
struct CompletedPart {
    #[serde(rename = "PartNumber")]
    number: u32,
    #[serde(rename = "ETag")]
    e_tag: String,
    #[serde(rename = "ChecksumSHA256", skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    #[serde(rename = "ChecksumCRC64NVME", skip_serializing_if = "Option::is_none")]
    crc64nvme: Option<String>,
}

/// What `object_store` calls a part whose checksum it has sent; without one it is the bare tag.
#[derive(Deserialize)]
struct TaggedPart {
    e_tag: String,
    checksum_sha256: Option<String>,
    checksum_crc64nvme: Option<String>,
}

impl CompletedPart {
    fn of(number: u32, tag: &str) -> Self {
        let tagged = quick_xml::de::from_str(tag).unwrap_or_else(|_| TaggedPart {
            e_tag: tag.to_owned(),
            checksum_sha256: None,
            checksum_crc64nvme: None,
        });
        Self {
            number,
            e_tag: tagged.e_tag,
            sha256: tagged.checksum_sha256,
            crc64nvme: tagged.checksum_crc64nvme,
        }
    }
}

/// The answer with status 200: S3 begins to answer before it knows the outcome, so this can be an
/// error.
#[derive(Deserialize)]
enum Document {
    CompleteMultipartUploadResult {
        #[serde(rename = "ETag")]
        e_tag: Option<String>,
    },
    Error {
        #[serde(rename = "Code")]
        code: Option<String>,
    },
}

/// The tag of the completed object.
fn completed(body: &[u8]) -> Result<Option<String>, Failure> {
    // Blanks that kept the connection open, also before the declaration.
    match quick_xml::de::from_reader(body.trim_ascii()) {
        Ok(Document::CompleteMultipartUploadResult { e_tag }) => {
            Ok(e_tag.filter(|tag| !tag.is_empty()))
        }
        Ok(Document::Error { code }) => Err(error_of(&code.unwrap_or_default())),
        // Cut off, or by something between: the outcome is not known.
        Err(_) => Err(Failure::Store(StoreError::Generic {
            store: "S3",
            source: "the answer to the completion is none: it may have succeeded".into(),
        })),
    }
}

/// The status with which S3 gives this code otherwise. Its message is left out: it can repeat what
/// was sent.
fn error_of(code: &str) -> Failure {
    let status = match code {
        "PreconditionFailed" => StatusCode::PRECONDITION_FAILED,
        "ConditionalRequestConflict" | "OperationAborted" => StatusCode::CONFLICT,
        "NoSuchUpload" | "NoSuchBucket" => StatusCode::NOT_FOUND,
        "AccessDenied" => StatusCode::FORBIDDEN,
        "InvalidPart" | "InvalidPartOrder" | "EntityTooSmall" | "InvalidRequest" | "BadDigest" => {
            StatusCode::BAD_REQUEST
        }
        "SlowDown" | "ServiceUnavailable" => StatusCode::SERVICE_UNAVAILABLE,
        // S3 means them to be repeated.
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let code: String = code
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(MAX_CODE_CHARS)
        .collect();
    Failure::Status {
        status,
        body: format!("<Code>{code}</Code>"),
    }
}
