//! An S3 bucket in this process, which behaves as a test tells it.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::response::Response;
use http::{Method, StatusCode};
use parking_lot::Mutex;

use super::S3Config;
use crate::backends::http::recorder::{Recorder, Seen, answer};
use crate::backends::{Backend, ObjectStoreConfig};

/// What the bucket does and says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conduct {
    /// Whether a PUT with `If-None-Match: *` is refused where an object stands.
    pub(crate) honours_create: bool,
    /// The same for completions of uploads.
    pub(crate) completions: Completions,
    /// The content of its answer about versioning.
    pub(crate) versioning: &'static str,
    /// The content of its answer about Object Lock; without one it has none.
    pub(crate) object_lock: Option<&'static str>,
    /// Whether objects may be read.
    pub(crate) readable: bool,
}

/// How a condition on a completion is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completions {
    Honoured,
    Ignored,
    /// Refused with this status.
    Refused(u16),
}

impl Default for Conduct {
    /// As AWS does in a bucket that protects its objects.
    fn default() -> Self {
        Self {
            honours_create: true,
            completions: Completions::Honoured,
            versioning: "<Status>Enabled</Status>",
            object_lock: Some(
                "<ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention>\
                 <Mode>COMPLIANCE</Mode><Years>7</Years></DefaultRetention></Rule>",
            ),
            readable: true,
        }
    }
}

pub(crate) struct FakeS3 {
    server: Recorder,
    bucket: Arc<Mutex<Bucket>>,
}

struct Bucket {
    conduct: Conduct,
    objects: BTreeMap<String, Vec<u8>>,
    uploads: BTreeMap<String, Vec<u8>>,
    writes: usize,
}

impl FakeS3 {
    pub(crate) async fn start(conduct: Conduct) -> Self {
        let bucket = Arc::new(Mutex::new(Bucket {
            conduct,
            objects: BTreeMap::new(),
            uploads: BTreeMap::new(),
            writes: 0,
        }));
        let answering = Arc::clone(&bucket);
        let server = Recorder::start(move |seen| answering.lock().answer(seen)).await;
        Self { server, bucket }
    }

    pub(crate) fn config(&self) -> S3Config {
        S3Config {
            bucket: "bucket".to_owned(),
            prefix: Some("tier".to_owned()),
            endpoint: Some(self.server.url().to_owned()),
            allow_http: true,
            access_key_id: Some("AKIAMARKED".to_owned()),
            secret_access_key: Some("secretMARKED".to_owned()),
            max_retries: 0,
            ..S3Config::default()
        }
    }

    pub(crate) fn open(&self) -> Backend {
        ObjectStoreConfig::S3(self.config()).open().unwrap()
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.server.seen()
    }

    /// Every object by its key.
    pub(crate) fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        self.bucket.lock().objects.clone()
    }

    pub(crate) fn put(&self, key: &str, body: &[u8]) {
        let mut bucket = self.bucket.lock();
        bucket.objects.insert(key.to_owned(), body.to_vec());
    }

    /// How often an object was written.
    pub(crate) fn writes(&self) -> usize {
        self.bucket.lock().writes
    }

    pub(crate) fn open_uploads(&self) -> usize {
        self.bucket.lock().uploads.len()
    }
}

impl Bucket {
    fn answer(&mut self, seen: &Seen) -> Response {
        let key = seen.uri.path().trim_start_matches("/bucket/").to_owned();
        let id = seen
            .query()
            .split('&')
            .find_map(|pair| pair.strip_prefix("uploadId="));
        match (&seen.method, seen.query(), id) {
            (&Method::GET, "versioning=", _) => {
                document("VersioningConfiguration", self.conduct.versioning)
            }
            (&Method::GET, "object-lock=", _) => match self.conduct.object_lock {
                Some(lock) => document("ObjectLockConfiguration", lock),
                None => refused(404, "ObjectLockConfigurationNotFoundError"),
            },
            (&Method::POST, "uploads" | "uploads=", _) => {
                let id = format!("upload-{}", self.uploads.len());
                self.uploads.insert(id.clone(), Vec::new());
                let id = format!("<UploadId>{id}</UploadId>");
                document("InitiateMultipartUploadResult", &id)
            }
            (&Method::PUT, _, Some(id)) => match self.uploads.get_mut(id) {
                Some(upload) => {
                    upload.extend_from_slice(&seen.body);
                    answer(StatusCode::OK, &[("etag", "\"part\"")], "")
                }
                None => refused(404, "NoSuchUpload"),
            },
            (&Method::POST, _, Some(id)) => self.complete(key, id, seen),
            (&Method::DELETE, _, Some(id)) => match self.uploads.remove(id) {
                Some(_) => answer(StatusCode::NO_CONTENT, &[], ""),
                None => refused(404, "NoSuchUpload"),
            },
            (&Method::PUT, "", None) => {
                let conditional = seen.header("if-none-match") == Some("*");
                if conditional && self.conduct.honours_create && self.objects.contains_key(&key) {
                    return refused(412, "PreconditionFailed");
                }
                self.write(key, seen.body.to_vec());
                answer(StatusCode::OK, &[("etag", "\"tag\""), VERSION], "")
            }
            (&Method::GET | &Method::HEAD, "" | "versionId=version", None) => self.read(&key, seen),
            _ => refused(405, "MethodNotAllowed"),
        }
    }

    fn complete(&mut self, key: String, id: &str, seen: &Seen) -> Response {
        if !self.uploads.contains_key(id) {
            return refused(404, "NoSuchUpload");
        }
        if seen.header("if-none-match") == Some("*") {
            match self.conduct.completions {
                Completions::Honoured if self.objects.contains_key(&key) => {
                    return refused(412, "PreconditionFailed");
                }
                Completions::Refused(status) => return refused(status, "NotImplemented"),
                Completions::Honoured | Completions::Ignored => {}
            }
        }
        let body = self.uploads.remove(id).unwrap();
        self.write(key, body);
        document("CompleteMultipartUploadResult", "<ETag>\"whole\"</ETag>")
    }

    fn read(&self, key: &str, seen: &Seen) -> Response {
        let Some(object) = self.objects.get(key) else {
            return refused(404, "NoSuchKey");
        };
        if !self.conduct.readable {
            return refused(403, "AccessDenied");
        }
        let asked = seen.header("range").map(|range| {
            let (first, last) = range
                .strip_prefix("bytes=")
                .unwrap()
                .split_once('-')
                .unwrap();
            let last: usize = last.parse().unwrap();
            first.parse().unwrap()..object.len().min(last + 1)
        });
        let range = asked.clone().unwrap_or(0..object.len());
        let length = range.len().to_string();
        let bounds = format!(
            "bytes {}-{}/{}",
            range.start,
            range.end.saturating_sub(1),
            object.len()
        );
        let mut headers = vec![
            ("etag", "\"tag\""),
            ("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT"),
            ("content-length", &*length),
            VERSION,
        ];
        let status = if asked.is_some() {
            headers.push(("content-range", &*bounds));
            StatusCode::PARTIAL_CONTENT
        } else {
            StatusCode::OK
        };
        let head = seen.method == Method::HEAD;
        let body = if head {
            Vec::new()
        } else {
            object[range].to_vec()
        };
        answer(status, &headers, body)
    }

    fn write(&mut self, key: String, body: Vec<u8>) {
        self.writes += 1;
        self.objects.insert(key, body);
    }
}

const VERSION: (&str, &str) = ("x-amz-version-id", "version");

fn document(root: &str, content: &str) -> Response {
    let body = format!("<{root}>{content}</{root}>");
    answer(StatusCode::OK, &[], body)
}

fn refused(status: u16, code: &str) -> Response {
    let body = format!("<Error><Code>{code}</Code><Message>no</Message></Error>");
    answer(StatusCode::from_u16(status).unwrap(), &[], body)
}
