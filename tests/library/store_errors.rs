//! What real `object_store` clients report over HTTP, classified: the classification reads the
//! texts that they print, so a change of these texts must not go unnoticed. And what they report
//! holds the credentials of the request, which must not be told.
#![cfg(all(feature = "aws", feature = "azure"))]

use std::error::Error as StdError;
use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Response, StatusCode, Uri};
use futures::StreamExt;
use krabka_remote_storage::error::{StoreCall, StoreFailure};
use krabka_remote_storage::model::OpKind;
use krabka_remote_storage::{ErrorKind, RemoteStorageError};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, RetryConfig};

/// Answers a request with the status that its last path segment names, and an error page that
/// repeats the request as S3 does.
async fn answer(method: Method, uri: Uri, headers: HeaderMap) -> Response<Body> {
    let token = headers
        .get("x-amz-security-token")
        .and_then(|token| token.to_str().ok())
        .unwrap_or_default();
    let key = uri.path().rsplit('/').next().unwrap_or_default();
    let response = Response::builder();
    let page = |code: &str| {
        Body::from(format!(
            "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>It went wrong.</Message>\
             <Token-0>{token}</Token-0><StringToSign>{method} {uri}</StringToSign></Error>"
        ))
    };
    match key {
        "moved" => response
            .status(StatusCode::MOVED_PERMANENTLY)
            .body(Body::empty()),
        "cut" => response
            .header("content-length", "10")
            .header("last-modified", "Tue, 28 Jul 2026 10:00:00 GMT")
            .header("etag", "\"1\"")
            .body(Body::from_stream(
                futures::stream::iter([Ok("01234")]).chain(futures::stream::once(async {
                    // Lets the server send what it has.
                    tokio::task::yield_now().await;
                    Err(std::io::Error::other("cut"))
                })),
            )),
        "no-bucket" => response.status(404).body(page("NoSuchBucket")),
        // S3 may answer a completion with status 200, and fail afterwards.
        "late" => response.body(page("InternalError")),
        status => response
            .status(status.parse::<u16>().unwrap_or(400))
            .body(page("SomeCode")),
    }
    .unwrap()
}

async fn server() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        axum::serve(listener, Router::new().fallback(answer))
            .await
            .unwrap();
    });
    address
}

fn once() -> RetryConfig {
    RetryConfig {
        max_retries: 0,
        ..RetryConfig::default()
    }
}

/// A client that carries a secret wherever one can be.
fn s3(server: SocketAddr) -> AmazonS3 {
    AmazonS3Builder::new()
        .with_endpoint(format!("http://user-MARKED:password-MARKED@{server}"))
        .with_bucket_name("bucket")
        .with_region("us-east-1")
        .with_access_key_id("AKIA-MARKED")
        .with_secret_access_key("secret-MARKED")
        .with_token("session-MARKED")
        .with_allow_http(true)
        .with_retry(once())
        .build()
        .unwrap()
}

fn classified(key: &str, error: object_store::Error) -> RemoteStorageError {
    let call = StoreCall {
        operation: OpKind::Get,
        key,
        segment: None,
    };
    RemoteStorageError::from_store(call, error)
}

async fn failed_get(store: &dyn ObjectStore, key: &str) -> RemoteStorageError {
    let answer = store.get(&Path::from(key)).await;
    let error = match answer {
        Ok(object) => object.bytes().await.unwrap_err(),
        Err(error) => error,
    };
    classified(key, error)
}

fn chain(error: &RemoteStorageError) -> Vec<String> {
    std::iter::successors(Some(error as &dyn StdError), |&cause| cause.source())
        .map(ToString::to_string)
        .collect()
}

/// Checks that nothing of what is printed tells a secret, and that there was one to tell.
fn assert_silent(error: &RemoteStorageError, had_a_secret: bool) {
    let told = format!("{error:?} {error:#?} {}", chain(error).join(": "));
    assert!(!told.contains("MARKED"), "{told}");
    let raw = error
        .source()
        .and_then(|source| source.downcast_ref::<StoreFailure>())
        .map(|failure| format!("{:?}", failure.store_error()));
    if let Some(raw) = raw {
        assert_eq!(raw.contains("MARKED"), had_a_secret, "{raw}");
    }
}

#[tokio::test]
async fn each_http_status_of_a_real_client_has_its_reaction() {
    let store = s3(server().await);
    for (status, kind) in [
        (400, ErrorKind::Rejected),
        (401, ErrorKind::Rejected),
        (403, ErrorKind::Rejected),
        (404, ErrorKind::Rejected),
        (408, ErrorKind::Unavailable),
        (409, ErrorKind::Rejected),
        (412, ErrorKind::Conflict),
        (413, ErrorKind::Rejected),
        (416, ErrorKind::Rejected),
        (429, ErrorKind::Unavailable),
        (500, ErrorKind::Unavailable),
        (502, ErrorKind::Unavailable),
        (503, ErrorKind::Unavailable),
    ] {
        let error = failed_get(&store, &format!("p/{status}")).await;
        assert_eq!(error.kind(), kind, "{status}: {error:?}");
        // A precondition's error has no status of its own.
        assert_eq!(
            error.status(),
            (status != 412).then_some(status),
            "{error:?}"
        );
        assert!(
            chain(&error)
                .last()
                .unwrap()
                .ends_with(": SomeCode: It went wrong."),
            "{:?}",
            chain(&error)
        );
        assert_silent(&error, true);
    }
}

#[tokio::test]
async fn a_missing_bucket_of_a_real_client_is_known() {
    let error = failed_get(&s3(server().await), "p/no-bucket").await;
    assert_eq!(
        error.to_string(),
        "get of `p/no-bucket` failed: no such bucket or container"
    );
    assert_silent(&error, true);
}

#[tokio::test]
async fn a_redirect_of_a_real_client_to_nowhere_is_not_repeated() {
    let error = failed_get(&s3(server().await), "p/moved").await;
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error:?}");
    assert_silent(&error, true);
}

#[tokio::test]
async fn a_body_that_a_real_client_found_cut_short_can_be_asked_for_again() {
    let error = failed_get(&s3(server().await), "p/cut").await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert_eq!(error.status(), None);
    assert_silent(&error, false);
}

#[tokio::test]
async fn a_server_that_does_not_answer_a_real_client_can_be_asked_again() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = failed_get(&s3(address), "p/k").await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert_eq!(error.status(), None);
    assert_silent(&error, true);
}

#[tokio::test]
async fn a_completion_that_failed_after_status_200_can_be_repeated() {
    let store = s3(server().await);
    let parts = vec![PartId {
        content_id: "1".to_owned(),
    }];
    let error = store
        .complete_multipart(&Path::from("p/late"), &"upload-MARKED".to_owned(), parts)
        .await
        .unwrap_err();
    let error = classified("p/late", error);
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(
        chain(&error)
            .last()
            .unwrap()
            .ends_with("InternalError: It went wrong."),
        "{error:?}"
    );
    assert_silent(&error, true);
}

#[tokio::test]
async fn a_shared_access_signature_is_not_told() {
    let address = server().await;
    let store = MicrosoftAzureBuilder::new()
        .with_account("account")
        .with_container_name("container")
        .with_endpoint(format!("http://{address}"))
        .with_config(AzureConfigKey::SasKey, "sv=2024-11-04&sp=r&sig=MARKED")
        .with_allow_http(true)
        .with_retry(once())
        .build()
        .unwrap();
    for (status, kind) in [
        (400, ErrorKind::Rejected),
        (403, ErrorKind::Rejected),
        (503, ErrorKind::Unavailable),
    ] {
        let error = failed_get(&store, &format!("p/{status}")).await;
        assert_eq!(error.kind(), kind, "{error:?}");
        assert_eq!(error.status(), Some(status));
        assert_silent(&error, true);
    }
}

#[test]
fn a_client_that_cannot_be_set_up_tells_no_secret_of_its_endpoint() {
    let error = AmazonS3Builder::new()
        .with_url("https://user-MARKED:password-MARKED@host/path?sig=MARKED")
        .with_bucket_name("bucket")
        .build()
        .unwrap_err();
    assert!(error.to_string().contains("MARKED"), "{error}");
    let error = RemoteStorageError::from_store_builder(error);
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_silent(&error, true);
}
