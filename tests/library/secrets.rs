//! Marked secrets go in, and what the crate writes (spans, logs, errors, `Debug`) has none of them.
#![cfg(all(feature = "aws", feature = "azure"))]

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use krabka_remote_storage::{
    AzureConfig, CopySegment, DeleteSegment, FetchIndex, FetchSegment, IndexType,
    ObjectStoreConfig, RemoteStorage, RemoteStorageError, S3Config, WormConfig,
};
use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::support::alone::alone;
use crate::support::with;
use krabka_remote_storage::testing::segments::{files, metadata};

const MARK: &str = "MARKED";

/// Collects what a subscriber writes.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Written {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// A server that refuses everything, and repeats the request's headers in its answer, as some do.
async fn refusing_server(status: StatusCode) -> String {
    let app = Router::new().fallback(move |request: axum::extract::Request| async move {
        let body = format!(
            "<Error><Code>Refused</Code><Message>no</Message><Request>{} {:?}</Request></Error>",
            request.uri(),
            request.headers()
        );
        (status, body)
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    endpoint
}

fn configs(endpoint: &str) -> Vec<ObjectStoreConfig> {
    let s3 = with(S3Config::default(), |it| {
        it.bucket = "bucket".to_owned();
        it.region = "us-east-1".to_owned();
        it.endpoint = Some(endpoint.to_owned());
        it.access_key_id = Some(format!("AKIA-{MARK}"));
        it.secret_access_key = Some(format!("secret-{MARK}"));
        it.session_token = Some(format!("token-{MARK}"));
        it.allow_http = true;
        it.max_retries = 1;
    });
    let azure = with(AzureConfig::default(), |it| {
        it.account = "account".to_owned();
        it.container = "container".to_owned();
        it.endpoint = Some(format!("{endpoint}/account"));
        it.sas_token = Some(format!("sv=2024-01-01&sig={MARK}"));
        it.allow_http = true;
        it.max_retries = 1;
    });
    vec![ObjectStoreConfig::S3(s3), ObjectStoreConfig::Azure(azure)]
}

/// An error as a log would print it: its text, its causes, and `Debug`.
fn printed(error: &RemoteStorageError) -> String {
    let mut text = format!("{error} {error:?}");
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        write!(text, " {error} {error:?}").unwrap();
        cause = error.source();
    }
    text
}

/// Alone: in another test's thread, which has no subscriber, a span that is met there first would be
/// noted as one that nobody wants.
#[test]
fn spans_logs_errors_and_debug_have_no_secret() {
    alone(|| tokio_test::block_on(look_for_secrets()));
}

async fn look_for_secrets() {
    let written = Written::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_span_events(FmtSpan::FULL)
        .with_ansi(false)
        .with_writer(written.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);

    let mut shown = String::new();
    for status in [
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::FORBIDDEN,
        StatusCode::BAD_REQUEST,
        StatusCode::NOT_FOUND,
    ] {
        let endpoint = refusing_server(status).await;
        for config in configs(&endpoint) {
            let storage = RemoteStorage::open(&config).unwrap();
            write!(shown, "{config:?} {storage:?} ").unwrap();
            let metadata = metadata(0x1e, 0, 10);
            let dir = tempfile::tempdir().unwrap();
            let copy = CopySegment::new(Arc::clone(&metadata), files(dir.path(), b"0123456789"));
            let errors = [
                storage.copy(copy).await.err(),
                storage
                    .fetch(FetchSegment::new(Arc::clone(&metadata), 0, Some(3)))
                    .await
                    .err(),
                storage
                    .fetch_index(FetchIndex::new(Arc::clone(&metadata), IndexType::Offset))
                    .await
                    .err(),
                storage.delete(DeleteSegment::new(metadata)).await.err(),
            ];
            // Only a delete of what is not there succeeds.
            assert!(
                errors[..3].iter().all(Option::is_some),
                "{status} {errors:?}"
            );
            for error in errors.iter().flatten() {
                shown += &printed(error);
            }
            // Where the store can hold one, this reads the bucket's policy.
            let worm = WormConfig::default();
            let archive = RemoteStorage::start_archive(config.open().unwrap(), &worm).await;
            shown += &printed(&archive.unwrap_err());
        }
    }
    let logged = String::from_utf8(written.0.lock().clone()).unwrap();
    for span in [
        "segment_operation",
        "store_request",
        "read_retention",
        "attempt=2",
        "outcome=\"unavailable\"",
    ] {
        assert!(
            logged.contains(span),
            "the log has {span}: {}",
            &logged[..logged.len().min(2_000)]
        );
    }
    for (what, text) in [("shown", &shown), ("logged", &logged)] {
        if let Some(at) = text.find(MARK) {
            let around = &text[at.saturating_sub(300)..(at + 100).min(text.len())];
            panic!("a secret is {what}: … {around} …");
        }
    }
}
