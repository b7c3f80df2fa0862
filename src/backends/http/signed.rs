//! Requests that `object_store` has no method for, signed as it signs its own.
//!
//! They go through the connector of the store's other requests, so what that promises of redirects,
//! secrets and signs of life holds for them, too.

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, Method, StatusCode};
use object_store::client::{HttpClient, HttpError, HttpRequest, HttpRequestBody};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};
use url::Url;

/// What RFC 3986 leaves as it is, as signatures have it.
pub(in crate::backends) const QUERY: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Sends requests to one bucket.
#[derive(Clone)]
pub(in crate::backends) struct SignedClient {
    /// Sends them.
    pub(in crate::backends) client: HttpClient,
    /// What permits them.
    pub(in crate::backends) authority: Authority,
}

/// What permits a request.
#[derive(Clone)]
pub(in crate::backends) enum Authority {
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

/// One request.
pub(in crate::backends) struct Request {
    pub(in crate::backends) method: Method,
    pub(in crate::backends) url: Url,
    /// Signed with the rest.
    pub(in crate::backends) headers: HeaderMap,
    pub(in crate::backends) body: Bytes,
    /// A longer answer is not read.
    pub(in crate::backends) max_answer_bytes: usize,
}

impl Request {
    /// A request without headers and body.
    pub(in crate::backends) fn new(method: Method, url: Url, max_answer_bytes: usize) -> Self {
        Self {
            method,
            url,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            max_answer_bytes,
        }
    }
}

/// An answer whose status is a success.
pub(in crate::backends) struct Answer {
    #[cfg(feature = "aws")]
    pub(in crate::backends) headers: HeaderMap,
    pub(in crate::backends) body: Vec<u8>,
}

impl SignedClient {
    /// One attempt.
    pub(in crate::backends) async fn send(&self, request: Request) -> Result<Answer, Failure> {
        let mut sent = HttpRequest::new(if request.body.is_empty() {
            HttpRequestBody::empty()
        } else {
            HttpRequestBody::from(request.body)
        });
        *sent.method_mut() = request.method;
        *sent.uri_mut() = request.url.as_str().parse().map_err(Failure::Uri)?;
        *sent.headers_mut() = request.headers;
        self.authority.permit(&mut sent).await?;
        let (parts, body) = self.client.execute(sent).await?.into_parts();
        let success = parts.status.is_success();
        let mut pieces = body.bytes_stream();
        let mut body = Vec::new();
        while let Some(bytes) = pieces.next().await {
            body.extend_from_slice(&bytes?);
            // Of errors, the connector hands on a bounded part.
            if success && body.len() > request.max_answer_bytes {
                return Err(Failure::TooLong(request.max_answer_bytes));
            }
        }
        if !success {
            return Err(Failure::Status {
                status: parts.status,
                body: String::from_utf8_lossy(&body).into_owned(),
            });
        }
        Ok(Answer {
            #[cfg(feature = "aws")]
            headers: parts.headers,
            body,
        })
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
                // A stand-in for Google's service asks for none.
                if credential.bearer.is_empty() {
                    return Ok(());
                }
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

/// Why there is no successful answer.
#[derive(Debug, thiserror::Error)]
pub(in crate::backends) enum Failure {
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
    #[error("the store's answer is longer than {0} bytes")]
    TooLong(usize),
}

impl Failure {
    /// The error that `object_store` has for this.
    pub(in crate::backends) fn into_store_error(self, path: String) -> object_store::Error {
        let Self::Status { status, .. } = self else {
            return match self {
                Self::Store(error) => error,
                other => generic(other),
            };
        };
        let source = Box::new(self);
        match status {
            StatusCode::UNAUTHORIZED => object_store::Error::Unauthenticated { path, source },
            StatusCode::FORBIDDEN => object_store::Error::PermissionDenied { path, source },
            StatusCode::NOT_FOUND => object_store::Error::NotFound { path, source },
            StatusCode::CONFLICT => object_store::Error::AlreadyExists { path, source },
            StatusCode::PRECONDITION_FAILED => object_store::Error::Precondition { path, source },
            _ => generic(*source),
        }
    }
}

fn generic(failure: Failure) -> object_store::Error {
    object_store::Error::Generic {
        store: "signed request",
        source: Box::new(failure),
    }
}
