//! Completions that must not replace anything: what is sent, and what every answer comes to.

use std::sync::Arc;

use parking_lot::Mutex;

use super::*;
use crate::error::ErrorKind;
use crate::ops::{PartTag, Written};

const KEY: &str = "tier/topic 1+2/a.log";
const PATH: &str = "/bucket/tier/topic%201%2B2/a.log";
const OWN: &[u8] = b"these very bytes";

/// What a completion is answered.
#[derive(Clone, Copy)]
enum Completion {
    /// With this status and body, and nothing is done.
    Refused(u16, &'static str),
    /// It succeeds.
    Done,
    /// It succeeds, and the answer is no answer.
    Lost,
}

/// One bucket with one key, whose completions are answered in this order and then as a real store
/// does; reading it back is answered with this status.
struct Bucket {
    object: Option<&'static [u8]>,
    completions: Vec<Completion>,
    read_back: StatusCode,
}

impl Bucket {
    fn answer(&mut self, seen: &Seen) -> Response {
        match (&seen.method, self.object) {
            (&Method::POST, object) => {
                let next = if self.completions.is_empty() {
                    match object {
                        Some(_) => Completion::Refused(404, "<Code>NoSuchUpload</Code>"),
                        None => Completion::Done,
                    }
                } else {
                    self.completions.remove(0)
                };
                self.completed(next)
            }
            (_, None) => answer(StatusCode::NOT_FOUND, &[], ""),
            (_, Some(_)) if self.read_back != StatusCode::OK => answer(self.read_back, &[], ""),
            (_, Some(object)) => {
                let length = object.len().to_string();
                let headers = [
                    ("etag", "\"read\""),
                    ("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT"),
                    ("content-length", &*length),
                    ("x-amz-version-id", "version 2"),
                ];
                let body = if seen.method == Method::HEAD {
                    b""
                } else {
                    object
                };
                answer(StatusCode::OK, &headers, body)
            }
        }
    }

    fn completed(&mut self, completion: Completion) -> Response {
        const NAME_SPACE: &str = "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";
        match completion {
            Completion::Refused(status, body) => {
                answer(StatusCode::from_u16(status).unwrap(), &[], body)
            }
            Completion::Done => {
                self.object = Some(OWN);
                let body = format!(
                    "<?xml version=\"1.0\"?>\n   <CompleteMultipartUploadResult {NAME_SPACE}><ETag>\
                     &quot;whole-1&quot;</ETag></CompleteMultipartUploadResult>"
                );
                let version = [("x-amz-version-id", "version 1")];
                answer(StatusCode::OK, &version, body)
            }
            Completion::Lost => {
                self.object = Some(OWN);
                answer(StatusCode::OK, &[], "  \n <CompleteMultipart")
            }
        }
    }
}

async fn serve(bucket: Bucket) -> (Recorder, Arc<dyn StoreClient>) {
    let bucket = Mutex::new(bucket);
    let server = Recorder::start(move |seen| bucket.lock().answer(seen)).await;
    let client = open(s3(&server)).client;
    (server, client)
}

fn bucket(object: Option<&'static [u8]>, completions: &[Completion]) -> Bucket {
    Bucket {
        object,
        completions: completions.to_vec(),
        read_back: StatusCode::OK,
    }
}

async fn complete(client: &Arc<dyn StoreClient>) -> Result<Written, RemoteStorageError> {
    let tags = [
        "<PartMetadata><e_tag>\"tag &amp; 1\"</e_tag><checksum_sha256>c3Vt</checksum_sha256>\
         </PartMetadata>",
        "\"tag 2\"",
    ];
    let complete = CompleteUpload {
        target: target(KEY),
        upload: "upload 1/+".into(),
        parts: tags.map(PartTag::from).into(),
        mode: WriteMode::Create {
            size_bytes: OWN.len() as u64,
            sha256: Sha256::digest(OWN).into(),
        },
    };
    Arc::clone(client).complete_upload(complete).await
}

fn count(server: &Recorder, method: &Method) -> usize {
    let seen = server.seen();
    seen.iter().filter(|seen| seen.method == *method).count()
}

#[tokio::test]
async fn a_completion_that_creates_is_one_signed_request_with_its_condition() {
    let (server, client) = serve(bucket(None, &[])).await;
    let written = complete(&client).await.unwrap();
    assert_eq!(
        written,
        Written {
            e_tag: Some("\"whole-1\"".to_owned()),
            version_id: Some("version 1".to_owned()),
            create_precondition: true,
        }
    );
    let seen = server.only();
    assert_eq!((&seen.method, seen.uri.path()), (&Method::POST, PATH));
    assert_eq!(
        query(&seen),
        [("uploadId".to_owned(), "upload 1/+".to_owned())]
    );
    assert_eq!(seen.header("if-none-match"), Some("*"));
    let signature = seen.header("authorization").unwrap();
    assert!(
        signature.contains("SignedHeaders=host;if-none-match;x-amz-content-sha256;x-amz-date"),
        "{signature}"
    );
    assert_eq!(
        seen.body,
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>\"tag &amp; 1\"</ETag>\
         <ChecksumSHA256>c3Vt</ChecksumSHA256></Part><Part><PartNumber>2</PartNumber><ETag>\"tag \
         2\"</ETag></Part></CompleteMultipartUpload>"
    );
}

#[tokio::test]
async fn whatever_says_that_something_stands_there_is_resolved_by_what_does() {
    let same_length: &[u8] = b"those very bytes";
    let rows = [
        Completion::Refused(412, "<Code>PreconditionFailed</Code>"),
        Completion::Refused(409, "<Code>ConditionalRequestConflict</Code>"),
        Completion::Refused(404, "<Code>NoSuchUpload</Code>"),
        Completion::Refused(200, "<Error><Code>PreconditionFailed</Code></Error>"),
        Completion::Refused(
            200,
            "  <Error><Code>ConditionalRequestConflict</Code></Error>",
        ),
        Completion::Refused(
            200,
            "<Error><Code>NoSuchUpload</Code><Message>m</Message></Error>",
        ),
    ];
    for refused in rows {
        for foreign in [same_length, b"other length"] {
            let (_server, client) = serve(bucket(Some(foreign), &[refused])).await;
            let error = complete(&client).await.unwrap_err();
            assert!(
                matches!(&error, RemoteStorageError::ObjectExists { key } if key == KEY),
                "{error:?}"
            );
        }
        let (server, client) = serve(bucket(Some(OWN), &[refused])).await;
        let written = complete(&client).await.unwrap();
        assert!(written.create_precondition);
        assert_eq!(written.version_id.as_deref(), Some("version 2"));
        assert_eq!(
            (count(&server, &Method::HEAD), count(&server, &Method::GET)),
            (1, 1)
        );
    }
}

#[tokio::test]
async fn an_own_completion_whose_answer_was_lost_is_a_success_when_it_is_repeated() {
    let (_server, client) = serve(bucket(None, &[Completion::Lost])).await;
    let lost = complete(&client).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::Unavailable, "{lost:?}");
    assert!(lost.is_retryable());
    let written = complete(&client).await.unwrap();
    assert_eq!(written.version_id.as_deref(), Some("version 2"));
}

#[tokio::test]
async fn a_conflict_without_an_object_is_repeated_three_times_and_no_more() {
    let conflict = Completion::Refused(409, "<Code>ConditionalRequestConflict</Code>");
    for (conflicts, succeeds) in [(1, true), (3, true), (4, false)] {
        let (server, client) = serve(bucket(None, &vec![conflict; conflicts])).await;
        let result = complete(&client).await;
        assert_eq!(
            result.is_ok(),
            succeeds,
            "{conflicts} conflicts: {result:?}"
        );
        let sent = conflicts.min(4) + usize::from(succeeds);
        assert_eq!(count(&server, &Method::POST), sent);
        if let Err(error) = result {
            assert_eq!((error.status(), error.is_retryable()), (Some(409), true));
        }
    }
}

#[tokio::test]
async fn an_upload_that_is_gone_without_an_object_is_a_404() {
    let gone = Completion::Refused(404, "<Error><Code>NoSuchUpload</Code></Error>");
    let (server, client) = serve(bucket(None, &[gone])).await;
    let error = complete(&client).await.unwrap_err();
    assert_eq!((error.status(), error.is_retryable()), (Some(404), false));
    assert_eq!(count(&server, &Method::HEAD), 1);
}

#[tokio::test]
async fn other_errors_are_repeated_or_not_as_their_status_says_wherever_it_stands() {
    for (status, body, expected, repeatable) in [
        (500, "<Code>InternalError</Code>", 500, true),
        (503, "<Code>SlowDown</Code>", 503, true),
        (400, "<Code>InvalidPart</Code>", 400, false),
        (403, "<Code>AccessDenied</Code>", 403, false),
        (200, "<Error><Code>InternalError</Code></Error>", 500, true),
        (200, "<Error><Code>SlowDown</Code></Error>", 503, true),
        (200, "<Error><Code>SomethingNew</Code></Error>", 500, true),
        (200, "<Error></Error>", 500, true),
        (200, "<Error><Code>InvalidPart</Code></Error>", 400, false),
        (200, "<Error><Code>AccessDenied</Code></Error>", 403, false),
    ] {
        let refused = Completion::Refused(status, body);
        let (server, client) = serve(bucket(None, &[refused])).await;
        let error = complete(&client).await.unwrap_err();
        assert_eq!(
            (error.status(), error.is_retryable()),
            (Some(expected), repeatable),
            "{status} {body}: {error:?}"
        );
        assert_eq!(server.seen().len(), 1, "nothing was to be resolved");
    }
}

#[tokio::test]
async fn an_answer_that_says_neither_leaves_the_outcome_to_a_repetition() {
    let long: &'static str = String::leak(" ".repeat(64 * 1024 + 1));
    for body in [
        "",
        "\n",
        "done",
        "<Other/>",
        "<CompleteMultipartUploadResult><ETag>",
        long,
    ] {
        let (_server, client) = serve(bucket(None, &[Completion::Refused(200, body)])).await;
        let error = complete(&client).await.unwrap_err();
        assert!(error.is_retryable(), "{} bytes: {error:?}", body.len());
    }
}

#[tokio::test]
async fn what_may_not_be_read_back_leaves_the_outcome_unknown() {
    let exists = Completion::Refused(412, "");
    let (_server, client) = serve(Bucket {
        read_back: StatusCode::FORBIDDEN,
        ..bucket(Some(OWN), &[exists])
    })
    .await;
    let error = complete(&client).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error:?}");
}

#[tokio::test]
async fn an_error_inside_a_success_shows_its_code_alone() {
    let body = "<Error><Code>Internal\u{1b}Error</Code><Message>secretMARKED of AKIAMARKED</Message>\
                </Error>";
    let (_server, client) = serve(bucket(None, &[Completion::Refused(200, body)])).await;
    let text = everything_of(&complete(&client).await.unwrap_err());
    assert!(text.contains("InternalError"), "{text}");
    assert!(!text.contains("MARKED"), "{text}");
}

#[cfg(feature = "gcp")]
#[tokio::test]
async fn a_store_without_the_condition_refuses_before_anything_is_sent() {
    let server = Recorder::start(|_| answer(StatusCode::OK, &[], "")).await;
    let config = GcsConfig {
        bucket: "bucket".to_owned(),
        endpoint: Some(server.url().to_owned()),
        allow_http: true,
        options: [("google_bearer_token".to_owned(), "token".to_owned())].into(),
        ..GcsConfig::default()
    };
    let client = ObjectStoreConfig::Gcs(config).open().unwrap().client;
    let error = complete(&client).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error:?}");
    assert!(server.seen().is_empty());
}
