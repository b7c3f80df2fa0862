//! The one place where an `object_store` failure becomes an error of this crate.

use std::error::Error as StdError;
use std::io;

use object_store::Error as StoreError;

use super::redact::{ServerAnswer, redact};
use super::source::{ErrorSource, StoreFailure, causes};
use super::{CallError, RemoteStorageError, named};
use crate::model::{OpKind, RemoteLogSegmentId};

/// The request that failed: what [`RemoteStorageError::from_store`] needs to name it.
#[derive(Clone, Copy, Debug)]
pub struct StoreCall<'a> {
    /// The request.
    pub operation: OpKind,
    /// The object's key, or the prefix that was listed.
    pub key: &'a str,
    /// The segment that the object belongs to, where it is known.
    pub segment: Option<&'a RemoteLogSegmentId>,
}

impl RemoteStorageError {
    /// Classifies a failure of an object store client.
    ///
    /// - A missing object is [`SegmentNotFound`](Self::SegmentNotFound) where the segment is known.
    ///   A missing bucket says nothing about the segment, and is [`Backend`](Self::Backend).
    /// - "Already exists" is [`ObjectExists`](Self::ObjectExists) for the requests that create. It
    ///   must have been resolved before it comes here: it may be the caller's own, earlier success.
    ///   Another request that gets this answer (a 409) met something else, a lock on the object
    ///   say, and was refused.
    /// - What the store reports without having answered (a refused connection, a body cut short) is
    ///   transient, as are the statuses 408, 429 and 5xx. Every other answer stays the same when the
    ///   request is repeated; so does a failure of a store in memory. A failure of the local file
    ///   system is [`Io`](Self::Io).
    ///
    /// The client's error is kept as the source, without its secrets: see [`StoreFailure`].
    pub fn from_store(call: StoreCall<'_>, error: StoreError) -> Self {
        match error {
            StoreError::NotFound { .. } if is_about_the_bucket(&error) => {
                let reason = format!("{}: no such bucket or container", call.phrase(None));
                call.backend(Some(404), false, reason, error)
            }
            StoreError::NotFound { ref path, .. } => {
                if let Some(id) = call.segment {
                    return Self::SegmentNotFound(id.clone());
                }
                let reason = format!("not found: {path}");
                call.backend(Some(404), false, reason, error)
            }
            StoreError::AlreadyExists { .. } if call.creates() => Self::ObjectExists {
                key: call.key.to_owned(),
            },
            StoreError::AlreadyExists { .. } => call.rejected(Some(409), error),
            StoreError::Precondition { ref source, .. } => Self::PreconditionFailed {
                key: call.key.to_owned(),
                reason: innermost(source.as_ref()),
            },
            StoreError::PermissionDenied { .. } => call.rejected(Some(403), error),
            StoreError::Unauthenticated { .. } => call.rejected(Some(401), error),
            StoreError::Generic { store, .. } => match server_answer(&error) {
                Answered::Status(status) if is_transient_status(status) => {
                    call.unavailable(Some(status), error)
                }
                Answered::Status(status) => call.rejected(Some(status), error),
                Answered::Redirect => call.rejected(None, error),
                Answered::No if store == LOCAL_STORE => call.local(error),
                Answered::No if store == MEMORY_STORE => call.rejected(None, error),
                Answered::No => call.unavailable(None, error),
            },
            // Unsupported or unimplemented calls, invalid paths, unknown configuration keys.
            _ => call.rejected(None, error),
        }
    }

    /// A failure to set up an object store client from its configuration.
    pub fn from_store_builder(error: StoreError) -> Self {
        Self::InvalidArgument(format!(
            "the store cannot be set up like this: {}",
            StoreFailure::new(error).line()
        ))
    }
}

/// How `object_store` names its stores that make no requests over a network.
const LOCAL_STORE: &str = "LocalFileSystem";
const MEMORY_STORE: &str = "InMemory";

impl StoreCall<'_> {
    /// Whether "already exists" is an answer to what this request asked for.
    fn creates(&self) -> bool {
        matches!(self.operation, OpKind::Create | OpKind::CompleteUpload)
    }

    fn phrase(&self, status: Option<u16>) -> String {
        let (operation, key) = (self.operation, named(self.key));
        match status {
            Some(status) => format!("{operation} of {key} failed with HTTP status {status}"),
            None => format!("{operation} of {key} failed"),
        }
    }

    fn unavailable(&self, status: Option<u16>, error: StoreError) -> RemoteStorageError {
        self.backend(status, true, self.phrase(status), error)
    }

    fn rejected(&self, status: Option<u16>, error: StoreError) -> RemoteStorageError {
        self.backend(status, false, self.phrase(status), error)
    }

    /// A failure of the local file system, or of a local store that was asked for the impossible.
    fn local(&self, error: StoreError) -> RemoteStorageError {
        let kind = causes(&error)
            .find_map(|cause| cause.downcast_ref::<io::Error>())
            .map(io::Error::kind);
        match kind {
            Some(kind) => RemoteStorageError::from(io::Error::new(
                kind,
                CallError {
                    call: self.phrase(None),
                    source: StoreFailure::new(error),
                },
            )),
            None => self.rejected(None, error),
        }
    }

    fn backend(
        &self,
        status: Option<u16>,
        transient: bool,
        reason: String,
        error: StoreError,
    ) -> RemoteStorageError {
        RemoteStorageError::Backend {
            key: self.key.to_owned(),
            operation: self.operation,
            status,
            transient,
            reason,
            source: Some(ErrorSource::new(StoreFailure::new(error))),
        }
    }
}

/// Whether an answer with this status may change when the request is repeated.
fn is_transient_status(status: u16) -> bool {
    matches!(status, 408 | 429 | 500..=599)
}

/// What a server said, if it was a server that failed.
enum Answered {
    /// It answered with this status.
    Status(u16),
    /// It sent the client elsewhere without saying where: a bucket of another region.
    Redirect,
    /// Nothing, or an error inside an answer with status 200, which S3 means to be repeated.
    No,
}

fn server_answer(error: &(dyn StdError + 'static)) -> Answered {
    const BARE_REDIRECT: &str = "Received redirect without LOCATION";
    causes(error)
        .find_map(|cause| {
            let text = cause.to_string();
            if text.starts_with(BARE_REDIRECT) {
                return Some(Answered::Redirect);
            }
            ServerAnswer::of(&text)?.status.map(Answered::Status)
        })
        .unwrap_or(Answered::No)
}

/// Whether a "not found" is about the bucket or container itself. (To a HEAD, which has no body,
/// the answer is the same for both.)
fn is_about_the_bucket(error: &(dyn StdError + 'static)) -> bool {
    // Only the codes count: a key can have any of these words in it.
    const MARKS: [&str; 3] = [
        "<Code>NoSuchBucket</Code>",
        "<Code>ContainerNotFound</Code>",
        "The specified bucket does not exist",
    ];
    causes(error).any(|cause| {
        let text = cause.to_string();
        let page = ServerAnswer::of(&text).map_or("", |answer| answer.body);
        MARKS.iter().any(|mark| page.contains(mark))
    })
}

fn innermost(error: &(dyn StdError + 'static)) -> String {
    causes(error)
        .last()
        .map_or_else(String::new, |cause| redact(&cause.to_string()))
}

#[cfg(test)]
mod tests {
    use object_store::path::Path;
    use uuid::Uuid;

    use super::*;
    use crate::error::ErrorKind;
    use crate::model::TopicIdPartition;

    /// One link of a chain, which repeats the next in its text as `object_store` does.
    #[derive(Debug)]
    struct Link {
        text: String,
        source: Option<Box<dyn StdError + Send + Sync>>,
    }

    impl Link {
        fn new(text: &str) -> Self {
            Self {
                text: text.to_owned(),
                source: None,
            }
        }

        fn before(self, text: &str) -> Self {
            Self {
                text: format!("{text}{self}"),
                source: Some(Box::new(self)),
            }
        }
    }

    impl std::fmt::Display for Link {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(&self.text)
        }
    }

    impl StdError for Link {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            self.source.as_deref().map(|source| source as _)
        }
    }

    /// A failed request as `object_store` reports it.
    fn answered(line: &str, page: &str) -> Box<dyn StdError + Send + Sync> {
        let answer = format!("Server returned non-2xx status code: {line}: {page}");
        Box::new(Link::new(&answer).before("Error performing GET http://host/b/k in 1ms - "))
    }

    fn generic(source: Box<dyn StdError + Send + Sync>) -> StoreError {
        StoreError::Generic {
            store: "S3",
            source,
        }
    }

    fn segment() -> RemoteLogSegmentId {
        let tp = TopicIdPartition::new(Uuid::from_u128(1), "orders", 7);
        RemoteLogSegmentId::new(tp, Uuid::from_u128(0xfe))
    }

    fn classified(operation: OpKind, error: StoreError) -> RemoteStorageError {
        let call = StoreCall {
            operation,
            key: "p/k",
            segment: None,
        };
        RemoteStorageError::from_store(call, error)
    }

    fn source_texts(error: &RemoteStorageError) -> Vec<String> {
        causes(error).skip(1).map(ToString::to_string).collect()
    }

    fn not_found(page: &str) -> StoreError {
        StoreError::NotFound {
            path: "p/k".to_owned(),
            source: answered("404 Not Found", page),
        }
    }

    #[test]
    fn a_missing_object_of_a_known_segment_is_a_missing_segment() {
        let id = segment();
        let call = StoreCall {
            operation: OpKind::Get,
            key: "p/k",
            segment: Some(&id),
        };
        // The key of a topic with such a name is no mark of a missing bucket.
        for page in [
            "",
            "<Error><Code>NoSuchKey</Code><Key>NoSuchBucket-0-x/ContainerNotFound</Key></Error>",
        ] {
            let error = RemoteStorageError::from_store(call, not_found(page));
            assert!(
                matches!(&error, RemoteStorageError::SegmentNotFound(missing) if *missing == id),
                "{error:?}"
            );
        }
    }

    #[test]
    fn another_missing_object_is_rejected_and_named() {
        let error = classified(OpKind::Get, not_found(""));
        assert_eq!(error.kind(), ErrorKind::Rejected);
        assert_eq!(error.status(), Some(404));
        assert_eq!(error.to_string(), "not found: p/k");
        assert!(error.source().is_some());
    }

    #[test]
    fn a_missing_bucket_is_no_missing_segment() {
        let id = segment();
        for page in [
            "<Error><Code>NoSuchBucket</Code><Message>The bucket is not there</Message></Error>",
            "<Error><Code>ContainerNotFound</Code></Error>",
            r#"{"error":{"code":404,"message":"The specified bucket does not exist."}}"#,
        ] {
            let call = StoreCall {
                operation: OpKind::Get,
                key: "p/k",
                segment: Some(&id),
            };
            let error = RemoteStorageError::from_store(call, not_found(page));
            assert_eq!(error.kind(), ErrorKind::Rejected, "{error:?}");
            assert_eq!(error.status(), Some(404));
            assert_eq!(
                error.to_string(),
                "get of `p/k` failed: no such bucket or container"
            );
        }
    }

    #[test]
    fn a_create_that_lost_is_told_apart_from_a_request_that_was_locked_out() {
        let exists = || StoreError::AlreadyExists {
            path: "p/k".to_owned(),
            source: answered("409 Conflict", "<Code>BlobImmutableDueToPolicy</Code>"),
        };
        for operation in [OpKind::Create, OpKind::CompleteUpload] {
            let error = classified(operation, exists());
            assert_eq!(error.to_string(), "object already exists: p/k");
            assert_eq!(error.kind(), ErrorKind::Conflict);
        }
        for operation in [OpKind::Put, OpKind::Delete] {
            let error = classified(operation, exists());
            assert_eq!(
                error.to_string(),
                format!("{operation} of `p/k` failed with HTTP status 409")
            );
            assert_eq!(error.kind(), ErrorKind::Rejected);
            assert_eq!(
                source_texts(&error).last().unwrap(),
                "Server returned non-2xx status code: 409 Conflict: BlobImmutableDueToPolicy"
            );
        }
    }

    #[test]
    fn a_failed_precondition_tells_its_reason() {
        let error = classified(
            OpKind::Put,
            StoreError::Precondition {
                path: "p/k".to_owned(),
                source: answered(
                    "412 Precondition Failed",
                    "<Error><Code>PreconditionFailed</Code><Token>MARKED</Token></Error>",
                ),
            },
        );
        assert_eq!(
            error.to_string(),
            "precondition failed for `p/k`: Server returned non-2xx status code: 412 Precondition \
             Failed: PreconditionFailed"
        );
        assert_eq!(error.kind(), ErrorKind::Conflict);
    }

    #[test]
    fn what_the_store_will_not_do_is_rejected_with_its_cause() {
        let path = || "p/k".to_owned();
        let cause = || Box::new(Link::new("the cause"));
        for (error, status, cause) in [
            (
                StoreError::PermissionDenied {
                    path: path(),
                    source: cause(),
                },
                Some(403),
                "the cause",
            ),
            (
                StoreError::Unauthenticated {
                    path: path(),
                    source: cause(),
                },
                Some(401),
                "the cause",
            ),
            (
                StoreError::NotSupported { source: cause() },
                None,
                "the cause",
            ),
            (
                StoreError::NotImplemented {
                    operation: "get".to_owned(),
                    implementer: "Fake".to_owned(),
                },
                None,
                "Operation get not yet implemented by Fake.",
            ),
            (
                StoreError::from(Path::parse("a//b").unwrap_err()),
                None,
                "Path \"a//b\" contained empty path segment",
            ),
            (
                StoreError::UnknownConfigurationKey {
                    store: "S3",
                    key: "colour".to_owned(),
                },
                None,
                "Configuration key: 'colour' is not valid for store 'S3'.",
            ),
            (
                StoreError::NotModified {
                    path: path(),
                    source: cause(),
                },
                None,
                "the cause",
            ),
        ] {
            let error = classified(OpKind::Get, error);
            assert_eq!(error.kind(), ErrorKind::Rejected, "{error:?}");
            assert!(!error.is_retryable());
            assert_eq!(error.status(), status, "{error:?}");
            let text = error.to_string();
            assert!(text.starts_with("get of `p/k` failed"), "{text}");
            assert_eq!(source_texts(&error).last().unwrap(), cause);
        }
    }

    #[test]
    fn an_http_status_says_whether_a_repetition_helps() {
        for (line, kind) in [
            ("307 Temporary Redirect", ErrorKind::Rejected),
            ("400 Bad Request", ErrorKind::Rejected),
            ("401 Unauthorized", ErrorKind::Rejected),
            ("403 Forbidden", ErrorKind::Rejected),
            ("404 Not Found", ErrorKind::Rejected),
            ("408 Request Timeout", ErrorKind::Unavailable),
            ("409 Conflict", ErrorKind::Rejected),
            ("412 Precondition Failed", ErrorKind::Rejected),
            ("413 Payload Too Large", ErrorKind::Rejected),
            ("416 Range Not Satisfiable", ErrorKind::Rejected),
            ("429 Too Many Requests", ErrorKind::Unavailable),
            ("500 Internal Server Error", ErrorKind::Unavailable),
            ("502 Bad Gateway", ErrorKind::Unavailable),
            ("503 Service Unavailable", ErrorKind::Unavailable),
            ("599 <unknown status code>", ErrorKind::Unavailable),
        ] {
            // The page speaks of another status: that of the answer counts.
            let error = classified(
                OpKind::Get,
                generic(answered(
                    line,
                    "Server returned non-2xx status code: 418 teapot",
                )),
            );
            let status = line[..3].parse().unwrap();
            assert_eq!(error.kind(), kind, "{line}");
            assert_eq!(error.is_retryable(), kind == ErrorKind::Unavailable);
            assert_eq!(error.status(), Some(status));
            assert_eq!(
                error.to_string(),
                format!("get of `p/k` failed with HTTP status {status}")
            );
            assert!(
                source_texts(&error).iter().any(|text| text.contains(line)),
                "{error:?}"
            );
        }
    }

    #[test]
    fn what_was_not_answered_may_be_repeated() {
        for source in [
            Link::new("HTTP error: error sending request"),
            Link::new("Server returned error response: <Error><Code>InternalError</Code></Error>"),
            Link::new("connection reset").before("Error performing GET http://h/404 in 1ms - "),
        ] {
            let error = classified(OpKind::Put, generic(Box::new(source)));
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
            assert!(error.is_retryable());
            assert_eq!(error.status(), None);
            assert_eq!(error.to_string(), "put of `p/k` failed");
        }
    }

    #[test]
    fn a_redirect_to_nowhere_stays_what_it_is() {
        let source = Link::new(
            "Received redirect without LOCATION, this normally indicates an incorrectly configured \
             region",
        );
        let error = classified(
            OpKind::Get,
            generic(Box::new(source.before("Error performing - "))),
        );
        assert_eq!(error.kind(), ErrorKind::Rejected);
    }

    #[test]
    fn a_printed_chain_repeats_nothing() {
        let page = "<Error><Code>SlowDown</Code><Message>Reduce your rate.</Message></Error>";
        let error = classified(
            OpKind::Get,
            generic(answered("503 Service Unavailable", page)),
        );
        assert_eq!(
            source_texts(&error),
            [
                "Generic S3 error",
                "Error performing GET http://host/b/k in 1ms",
                "Server returned non-2xx status code: 503 Service Unavailable: SlowDown: Reduce \
                 your rate.",
            ]
        );
    }

    #[test]
    fn the_clients_own_error_can_be_had() {
        let error = classified(OpKind::Get, generic(Box::new(Link::new("x"))));
        let source = error.source().unwrap();
        let failure: &StoreFailure = source.downcast_ref().unwrap();
        assert!(matches!(
            failure.store_error(),
            StoreError::Generic { store: "S3", .. }
        ));
    }

    #[tokio::test]
    async fn a_failure_of_the_local_file_system_is_no_failure_of_a_network() {
        use object_store::ObjectStoreExt;
        use object_store::local::LocalFileSystem;

        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "0123456789").unwrap();
        let store = LocalFileSystem::new_with_prefix(dir.path()).unwrap();

        let key = Path::from("file/below");
        let error = store.put(&key, "x".into()).await.unwrap_err();
        let error = classified(OpKind::Put, error);
        let RemoteStorageError::Io(inner) = &error else {
            panic!("{error:?}");
        };
        assert_ne!(inner.kind(), io::ErrorKind::Other);
        assert_eq!(error.kind(), ErrorKind::Io);
        assert_eq!(error.to_string(), "put of `p/k` failed");
        assert!(
            source_texts(&error)
                .iter()
                .any(|text| text.contains(&*dir.path().to_string_lossy())),
            "{error:?}"
        );

        let error = store
            .get_range(&Path::from("file"), 11..12)
            .await
            .unwrap_err();
        let error = classified(OpKind::Get, error);
        assert_eq!(error.kind(), ErrorKind::Rejected, "{error:?}");
    }

    #[tokio::test]
    async fn a_failure_of_a_store_in_memory_stays_the_same() {
        use object_store::ObjectStoreExt;

        let store = object_store::memory::InMemory::new();
        let key = Path::from("k");
        store.put(&key, "0123456789".into()).await.unwrap();
        let error = store.get_range(&key, 11..12).await.unwrap_err();
        let error = classified(OpKind::Get, error);
        assert_eq!(error.kind(), ErrorKind::Rejected, "{error:?}");
    }

    #[test]
    fn secrets_of_a_url_or_an_error_page_are_not_told() {
        const PAGE: &str = "<Error><Code>ExpiredToken</Code><Message>Expired.</Message><Token-0>\
                            session-MARKED</Token-0></Error>";
        let cause = || {
            let answer = format!("Server returned non-2xx status code: 400 Bad Request: {PAGE}");
            Box::new(Link::new(&answer).before(
                "Error performing GET http://AKIA-MARKED:pw-MARKED@host/b/k?sig=MARKED in 1ms - ",
            ))
        };
        let path = || "p/k".to_owned();
        for error in [
            generic(cause()),
            StoreError::NotFound {
                path: path(),
                source: cause(),
            },
            StoreError::AlreadyExists {
                path: path(),
                source: cause(),
            },
            StoreError::Precondition {
                path: path(),
                source: cause(),
            },
            StoreError::PermissionDenied {
                path: path(),
                source: cause(),
            },
            StoreError::NotSupported { source: cause() },
        ] {
            let error = classified(OpKind::Put, error);
            let debug = format!("{error:?} {error:#?}");
            let chain: String = causes(&error).map(ToString::to_string).collect();
            assert!(!debug.contains("MARKED"), "{debug}");
            assert!(!chain.contains("MARKED"), "{chain}");
            assert!(chain.contains("400 Bad Request: ExpiredToken"), "{chain}");
        }
        let error = RemoteStorageError::from_store_builder(generic(cause()));
        assert!(!format!("{error:?} {error}").contains("MARKED"), "{error}");
    }

    #[test]
    fn a_client_that_cannot_be_set_up_is_a_wrong_argument() {
        let error = RemoteStorageError::from_store_builder(generic(Box::new(
            Link::new("relative URL").before("Unable parse source url: "),
        )));
        assert!(matches!(&error, RemoteStorageError::InvalidArgument(_)));
        assert_eq!(
            error.to_string(),
            "the store cannot be set up like this: Generic S3 error: Unable parse source url: \
             relative URL"
        );
    }
}
