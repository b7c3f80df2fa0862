//! Faults that only show on the wire: a small S3 server that answers as a test tells it.
#![cfg(feature = "aws")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use krabka_remote_storage::{
    CopySegment, ErrorKind, FetchSegment, ObjectStoreConfig, RemoteStorage, RemoteStorageError,
    S3Config,
};
use parking_lot::Mutex;

use crate::support::with;
use krabka_remote_storage::testing::segments::{files, metadata, pattern};

/// One request as it came over the wire.
#[derive(Clone, Debug)]
struct Wire {
    method: String,
    path: String,
    query: HashMap<String, String>,
    range: Option<String>,
}

type Answer = dyn Fn(&Wire, usize) -> Response + Send + Sync;

struct Server {
    requests: Mutex<Vec<Wire>>,
    answer: Box<Answer>,
}

/// Starts a server that answers each request by it and by how many equal ones came before.
async fn serve(
    answer: impl Fn(&Wire, usize) -> Response + Send + Sync + 'static,
) -> (Arc<Server>, S3Config) {
    let server = Arc::new(Server {
        requests: Mutex::default(),
        answer: Box::new(answer),
    });
    let app = Router::new()
        .fallback(handle)
        .with_state(Arc::clone(&server));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    let config = with(S3Config::default(), |it| {
        it.bucket = "bucket".to_owned();
        it.region = "us-east-1".to_owned();
        it.endpoint = Some(endpoint);
        it.access_key_id = Some("key".to_owned());
        it.secret_access_key = Some("secret".to_owned());
        it.allow_http = true;
        it.max_retries = 3;
    });
    (server, config)
}

async fn handle(State(server): State<Arc<Server>>, request: Request) -> Response {
    let query = request.uri().query().unwrap_or_default();
    let wire = Wire {
        method: request.method().to_string(),
        path: request.uri().path().to_owned(),
        query: url::form_urlencoded::parse(query.as_bytes())
            .into_owned()
            .collect(),
        range: request
            .headers()
            .get("range")
            .map(|range| range.to_str().unwrap().to_owned()),
    };
    // The whole body is taken first, as a real server does before it answers a PUT.
    axum::body::to_bytes(request.into_body(), usize::MAX)
        .await
        .unwrap();
    let before = {
        let mut requests = server.requests.lock();
        let same = |other: &&Wire| {
            other.method == wire.method && other.path == wire.path && other.query == wire.query
        };
        let before = requests.iter().filter(same).count();
        requests.push(wire.clone());
        before
    };
    (server.answer)(&wire, before)
}

fn status(status: u16) -> Response {
    Response::builder()
        .status(status)
        .body(Body::empty())
        .unwrap()
}

fn open(config: S3Config) -> RemoteStorage {
    RemoteStorage::open(&ObjectStoreConfig::S3(config)).unwrap()
}

fn fetch(start: u32, end: Option<u32>) -> FetchSegment {
    FetchSegment::new(metadata(0x1e, 0, 10), start, end)
}

#[tokio::test]
async fn a_fetch_that_always_gets_503_takes_the_configured_attempts_on_the_wire() {
    for retries in [0, 2] {
        let (server, config) = serve(|_, _| status(503)).await;
        let config = with(config, |it| it.max_retries = retries);
        let error = open(config).fetch(fetch(2, Some(5))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        assert_eq!(error.status(), Some(503));
        assert_eq!(server.requests.lock().len(), retries + 1);
    }
}

#[tokio::test]
async fn an_answer_that_will_not_change_is_not_asked_for_again() {
    for code in [400, 403, 412, 413, 501] {
        let (server, config) = serve(move |_, _| status(code)).await;
        let error = open(config).fetch(fetch(2, Some(5))).await.unwrap_err();
        let attempts = server.requests.lock().len();
        match code {
            501 => assert_eq!((error.kind(), attempts), (ErrorKind::Unavailable, 4)),
            _ => assert_eq!(attempts, 1, "{code}: {error:?}"),
        }
    }
}

#[tokio::test]
async fn a_part_that_fails_twice_is_sent_three_times_and_nothing_else_again() {
    let (server, config) = serve(|wire, before| {
        let part = wire.query.get("partNumber").map(String::as_str);
        match wire.method.as_str() {
            "PUT" if part == Some("2") && before < 2 => status(503),
            "PUT" => Response::builder().header("etag", "\"tag\"").body(Body::empty()).unwrap(),
            "POST" if wire.query.contains_key("uploads") => {
                let body = "<InitiateMultipartUploadResult><UploadId>upload-1</UploadId></InitiateMultipartUploadResult>";
                Response::new(Body::from(body))
            }
            "POST" => {
                let body = "<CompleteMultipartUploadResult><ETag>\"whole\"</ETag></CompleteMultipartUploadResult>";
                Response::new(Body::from(body))
            }
            _ => status(500),
        }
    })
    .await;
    let config = with(config, |it| {
        it.multipart_threshold = 5 << 20;
        it.multipart_chunk_size = 5 << 20;
    });
    let dir = tempfile::tempdir().unwrap();
    let log = pattern(11 << 20, 0);
    let copy = CopySegment::new(metadata(0x1e, 0, 11 << 20), files(dir.path(), &log));
    let receipt = open(config).copy(copy).await.unwrap();
    assert_eq!(receipt.objects[0].e_tag.as_deref(), Some("\"whole\""));

    let requests = server.requests.lock().clone();
    let part = |number: &str| {
        requests
            .iter()
            .filter(|wire| {
                wire.query
                    .get("partNumber")
                    .is_some_and(|part| part == number)
            })
            .count()
    };
    assert_eq!((part("1"), part("2"), part("3")), (1, 3, 1));
    // Five artifacts, start, completion, and 3 + 2 sendings of parts.
    assert_eq!(requests.len(), 5 + 2 + 5, "{requests:#?}");
    assert!(requests.iter().all(|wire| wire.method != "DELETE"));
}

/// Answers with this status and range, and with these bytes.
fn answer(code: u16, content_range: Option<&str>, bytes: &'static [u8]) -> Response {
    let mut response = Response::builder()
        .status(code)
        .header("last-modified", "Tue, 15 Nov 1994 12:45:26 GMT")
        .header("etag", "\"tag\"");
    if let Some(range) = content_range {
        response = response.header("content-range", range);
    }
    response
        .body(Body::from(Bytes::from_static(bytes)))
        .unwrap()
}

#[tokio::test]
async fn a_store_that_answers_another_range_never_passes_for_the_right_bytes() {
    let wrong: [(&str, u16, Option<&str>, &[u8]); 6] = [
        ("ignores the range", 200, None, b"0123456789"),
        ("wider", 206, Some("bytes 1-6/10"), b"123456"),
        ("narrower", 206, Some("bytes 2-4/10"), b"234"),
        ("elsewhere", 206, Some("bytes 3-6/10"), b"3456"),
        ("body shorter than said", 206, Some("bytes 2-5/10"), b"23"),
        (
            "body longer than said",
            206,
            Some("bytes 2-5/10"),
            b"234567",
        ),
    ];
    for (what, code, range, bytes) in wrong {
        let (server, config) = serve(move |_, _| answer(code, range, bytes)).await;
        let error = open(config).fetch(fetch(2, Some(5))).await.unwrap_err();
        assert!(
            matches!(&error, RemoteStorageError::Corrupt { .. }),
            "{what}: {error:?}"
        );
        assert_eq!(
            server.requests.lock().len(),
            2,
            "{what}: asked once more, and no more"
        );
    }
    let (_, config) = serve(|_, _| answer(206, Some("bytes 2-5/10"), b"2345")).await;
    assert_eq!(open(config).fetch(fetch(2, Some(5))).await.unwrap(), "2345");
}

#[tokio::test]
async fn one_wrong_answer_is_followed_by_the_right_one() {
    let (_, config) = serve(|_, before| match before {
        0 => answer(200, None, b"0123456789"),
        _ => answer(206, Some("bytes 2-5/10"), b"2345"),
    })
    .await;
    assert_eq!(open(config).fetch(fetch(2, Some(5))).await.unwrap(), "2345");
}

#[tokio::test]
async fn an_open_end_is_one_get_from_the_start_position() {
    let (server, config) = serve(|wire, _| match wire.range.as_deref() {
        None => answer(200, None, b"0123456789"),
        Some(_) => answer(206, Some("bytes 7-9/10"), b"789"),
    })
    .await;
    let storage = open(config);
    assert_eq!(storage.fetch(fetch(7, None)).await.unwrap(), "789");
    assert_eq!(storage.fetch(fetch(0, None)).await.unwrap(), "0123456789");
    let ranges: Vec<_> = server
        .requests
        .lock()
        .iter()
        .map(|wire| wire.range.clone())
        .collect();
    assert_eq!(ranges, [Some("bytes=7-".to_owned()), None]);
}

#[tokio::test]
async fn a_body_that_keeps_moving_outlives_the_timeout_and_a_silent_one_does_not() {
    for (pause, ends_well) in [
        (Duration::from_millis(100), true),
        (Duration::from_secs(30), false),
    ] {
        let (_, config) = serve(move |_, _| {
            let pieces = (0..10_u8).map(|digit| vec![b'0' + digit]);
            let pieces = futures::stream::unfold(pieces, move |mut pieces| async move {
                tokio::time::sleep(pause).await;
                let piece = pieces.next()?;
                Some((Ok::<_, std::io::Error>(piece), pieces))
            });
            Response::builder()
                .header("content-length", "10")
                .header("last-modified", "Tue, 15 Nov 1994 12:45:26 GMT")
                .body(Body::from_stream(pieces))
                .unwrap()
        })
        .await;
        let config = with(config, |it| {
            it.max_retries = 0;
            it.request_timeout = Duration::from_millis(500);
        });
        let result = open(config).fetch(fetch(0, None)).await;
        if ends_well {
            assert_eq!(
                result.unwrap(),
                "0123456789",
                "ten pauses are longer than the limit"
            );
        } else {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::TimedOut);
        }
    }
}
