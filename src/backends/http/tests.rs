//! The connector, over connections of this machine.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use object_store::PutPayload;
use object_store::client::HttpRequestBody;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use super::body::MAX_PIECE_BYTES;
use super::*;
use crate::backends::http::recorder::{Recorder, Seen, answer, everything_of};

const MIB: usize = 1024 * 1024;

fn client(connector: &HttpStoreConnector) -> HttpClient {
    let options = ClientOptions::new()
        .with_allow_http(true)
        .with_timeout_disabled();
    connector.connect(&options).unwrap()
}

fn direct() -> HttpStoreConnector {
    HttpStoreConnector::new().bypassing_proxies(true)
}

fn request(method: Method, url: &str, body: impl Into<HttpRequestBody>) -> HttpRequest {
    http::Request::builder()
        .method(method)
        .uri(url)
        .body(body.into())
        .unwrap()
}

fn get(url: &str) -> HttpRequest {
    request(Method::GET, url, HttpRequestBody::empty())
}

/// Ends a test that hangs.
async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_mins(1), work)
        .await
        .expect("done in a minute")
}

fn ok(_: &Seen) -> axum::response::Response {
    answer(StatusCode::OK, &[], "answered")
}

#[tokio::test]
async fn a_body_arrives_whole_with_its_exact_length() {
    let server = Recorder::start(ok).await;
    let client = client(&direct());
    let odd: Bytes = (0..3 * MAX_PIECE_BYTES + 7)
        .map(|at| at.to_le_bytes()[0])
        .collect();
    let payload = PutPayload::from_iter([odd.slice(..5), Bytes::new(), odd.slice(5..)]);
    let bodies: [(HttpRequestBody, &[u8]); 4] = [
        (payload.into(), &odd),
        (odd.clone().into(), &odd),
        ("short".to_owned().into(), b"short"),
        (HttpRequestBody::empty(), b""),
    ];
    for (body, expected) in bodies {
        let response = client
            .execute(request(Method::PUT, server.url(), body))
            .await
            .unwrap();
        assert_eq!(response.into_body().bytes().await.unwrap(), "answered");
        let seen = server.seen().pop().unwrap();
        assert_eq!(seen.body, expected);
        assert_eq!(seen.header("transfer-encoding"), None);
        let length = seen.header("content-length").unwrap_or("0");
        assert_eq!(length.parse::<usize>().unwrap(), expected.len());
    }
}

#[tokio::test]
async fn pieces_are_short_slices_of_the_body_and_each_is_a_sign_of_life() {
    use http_body_util::BodyExt;

    let whole = Bytes::from(vec![7; 2 * MAX_PIECE_BYTES + 1]);
    let activity = Activity::start();
    let mut pieces = Pieces::new(whole.clone().into(), Some(activity.clone()));
    let mut left = whole.len();
    for length in [MAX_PIECE_BYTES, MAX_PIECE_BYTES, 1] {
        assert_eq!(
            http_body::Body::size_hint(&pieces).exact(),
            Some(left as u64)
        );
        let before = activity.last();
        let piece = pieces.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(activity.last() > before);
        assert_eq!(piece.len(), length);
        // A slice, not a copy.
        assert_eq!(piece.as_ptr(), whole[whole.len() - left..].as_ptr());
        left -= length;
    }
    assert!(http_body::Body::is_end_stream(&pieces));
    assert!(pieces.frame().await.is_none());
}

/// Waits for a connection and its request's head.
async fn accept(listener: TcpListener) -> (TcpStream, Vec<u8>) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut read = Vec::new();
    let end = |read: &[u8]| read.windows(4).position(|window| window == b"\r\n\r\n");
    while end(&read).is_none() {
        assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0);
    }
    let body = read.split_off(end(&read).unwrap() + 4);
    (stream, body)
}

#[tokio::test]
async fn a_slow_upload_shows_signs_of_life_while_it_lasts() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (begun, has_begun) = oneshot::channel();
    let (go_on, may_go_on) = oneshot::channel();
    let (most, has_most) = oneshot::channel();
    let (finish, may_finish) = oneshot::channel::<()>();
    let server = tokio::spawn(async move {
        let (mut stream, start) = accept(listener).await;
        let mut buffer = vec![0; MIB];
        let mut read = start.len();
        while read < 8 * MIB {
            read += stream.read(&mut buffer).await.unwrap();
        }
        begun.send(()).unwrap();
        may_go_on.await.unwrap();
        while read < 40 * MIB {
            read += stream.read(&mut buffer).await.unwrap();
        }
        most.send(()).unwrap();
        may_finish.await.unwrap();
        while read < 64 * MIB {
            read += stream.read(&mut buffer).await.unwrap();
        }
        assert_eq!(read, 64 * MIB);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .await
            .unwrap();
    });

    let activity = Activity::start();
    let client = client(&direct());
    let upload = activity.scope(async move {
        let body = PutPayload::from(vec![0; 64 * MIB]);
        client.execute(request(Method::PUT, &url, body)).await
    });
    let upload = tokio::spawn(upload);

    in_time(has_begun).await.unwrap();
    let early = activity.last();
    go_on.send(()).unwrap();
    in_time(has_most).await.unwrap();
    // More went than buffers could hold, so pieces were taken meanwhile.
    assert!(activity.last() > early);
    assert!(!upload.is_finished());
    finish.send(()).unwrap();
    assert_eq!(in_time(upload).await.unwrap().unwrap().status(), 200);
    in_time(server).await.unwrap();
}

#[tokio::test]
async fn a_slow_answer_shows_signs_of_life_while_it_lasts() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (go_on, may_go_on) = oneshot::channel();
    let server = tokio::spawn(async move {
        let (mut stream, _) = accept(listener).await;
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n01234")
            .await
            .unwrap();
        may_go_on.await.unwrap();
        stream.write_all(b"56789").await.unwrap();
    });

    let activity = Activity::start();
    let begun = activity.last();
    let (head, has_head) = oneshot::channel();
    let client = client(&direct());
    let download = tokio::spawn(activity.scope(async move {
        let response = client.execute(get(&url)).await.unwrap();
        head.send(()).unwrap();
        response.into_body().bytes().await
    }));
    in_time(has_head).await.unwrap();
    let at_head = activity.last();
    assert!(at_head > begun);
    go_on.send(()).unwrap();
    assert_eq!(in_time(download).await.unwrap().unwrap(), "0123456789");
    assert!(activity.last() > at_head);
    in_time(server).await.unwrap();
}

#[tokio::test]
async fn outside_an_attempt_requests_work_too() {
    let server = Recorder::start(ok).await;
    assert!(Activity::current().is_none());
    let response = client(&direct()).execute(get(server.url())).await.unwrap();
    assert_eq!(response.status(), 200);
    let agent = server.only().header("user-agent").unwrap().to_owned();
    assert!(agent.starts_with("krabka-remote-storage/"), "{agent}");
}

#[tokio::test]
async fn no_redirect_is_followed() {
    let server = Recorder::start(|_| {
        let headers = [
            ("location", "/elsewhere?sig=MARKED"),
            ("x-amz-bucket-region", "eu-west-1"),
        ];
        answer(StatusCode::TEMPORARY_REDIRECT, &headers, "")
    })
    .await;
    let error = client(&direct())
        .execute(get(server.url()))
        .await
        .unwrap_err();
    server.only();
    let text = everything_of(&error);
    assert!(text.contains("status code: 307"), "{text}");
    assert!(text.contains("eu-west-1"), "{text}");
    assert!(!text.contains("MARKED"), "{text}");
}

#[tokio::test]
async fn not_modified_is_no_redirect() {
    let server = Recorder::start(|_| answer(StatusCode::NOT_MODIFIED, &[], "")).await;
    let response = client(&direct()).execute(get(server.url())).await.unwrap();
    assert_eq!(response.status(), 304);
}

#[tokio::test]
async fn of_an_error_answer_little_is_read_and_no_secret_kept() {
    let server = Recorder::start(|_| {
        let long = "x".repeat(4 * MIB);
        let body = format!("{{\"error\":\"denied for tokenMARKED\",\"y\":\"{long}\"}}");
        answer(StatusCode::FORBIDDEN, &[], body)
    })
    .await;
    let connector = direct().hiding(["tokenMARKED".to_owned()]);
    let response = client(&connector).execute(get(server.url())).await.unwrap();
    assert_eq!(response.status(), 403);
    let body = response.into_body().bytes().await.unwrap();
    assert!(
        body.starts_with(b"{\"error\":\"denied for ***\""),
        "{body:?}"
    );
    assert!(body.len() <= 64 * 1024, "{}", body.len());
}

#[tokio::test]
async fn an_error_answer_that_breaks_off_still_has_its_status() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = accept(listener).await;
        let head = b"HTTP/1.1 503 Slow Down\r\ncontent-length: 100\r\n\r\n<Code>SlowDown</Code>";
        stream.write_all(head).await.unwrap();
    });
    let response = in_time(client(&direct()).execute(get(&url))).await.unwrap();
    assert_eq!(response.status(), 503);
    let body = in_time(response.into_body().bytes()).await.unwrap();
    assert_eq!(body, "<Code>SlowDown</Code>");
    in_time(server).await.unwrap();
}

#[tokio::test]
async fn a_failure_is_told_by_its_kind_and_without_the_url() {
    let client = client(&direct());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let url = format!("http://{address}/key?sig=MARKED");

    // Closed before an answer.
    let server = tokio::spawn(async move { drop(accept(listener).await) });
    let error = in_time(client.execute(get(&url))).await.unwrap_err();
    let interrupted = [HttpErrorKind::Request, HttpErrorKind::Interrupted];
    assert!(interrupted.contains(&error.kind()), "{:?}", error.kind());
    assert!(!everything_of(&error).contains("MARKED"));
    in_time(server).await.unwrap();

    // Nobody there.
    let error = in_time(client.execute(get(&url))).await.unwrap_err();
    assert_eq!(error.kind(), HttpErrorKind::Connect);
    assert!(!everything_of(&error).contains("MARKED"));

    // Cut off within the body.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/key?sig=MARKED", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = accept(listener).await;
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n01234";
        stream.write_all(head).await.unwrap();
    });
    let response = in_time(client.execute(get(&url))).await.unwrap();
    let error = in_time(response.into_body().bytes()).await.unwrap_err();
    assert_eq!(error.kind(), HttpErrorKind::Interrupted, "{error:?}");
    assert!(!everything_of(&error).contains("MARKED"));
    in_time(server).await.unwrap();
}

#[tokio::test]
async fn plain_http_is_only_sent_where_it_is_allowed() {
    let server = Recorder::start(ok).await;
    let client = direct().connect(&ClientOptions::new()).unwrap();
    client.execute(get(server.url())).await.unwrap_err();
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn https_to_a_server_without_tls_fails_and_sends_nothing() {
    let server = Recorder::start(ok).await;
    let url = server.url().replace("http:", "https:");
    let error = in_time(client(&direct()).execute(get(&url)))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), HttpErrorKind::Connect, "{error:?}");
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn a_host_name_is_resolved() {
    let server = Recorder::start(ok).await;
    let url = server.url().replace("127.0.0.1", "localhost");
    // Where the name also has an IPv6 address, nobody listens there: the next one is tried.
    let response = in_time(client(&direct()).execute(get(&url))).await.unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test]
async fn a_request_goes_through_the_proxy_that_the_options_name() {
    let proxy = Recorder::start(ok).await;
    let options = ClientOptions::new()
        .with_allow_http(true)
        .with_proxy_url(proxy.url())
        .with_proxy_excludes("excluded.example");
    let client = direct().connect(&options).unwrap();
    client
        .execute(get("http://store.example/key"))
        .await
        .unwrap();
    assert_eq!(proxy.only().uri, "http://store.example/key");
}

#[test]
fn a_setting_that_cannot_be_read_is_refused_and_not_repeated() {
    for (key, value) in [
        (ClientConfigKey::AllowHttp, "MARKED"),
        (ClientConfigKey::ConnectTimeout, "MARKED"),
        (ClientConfigKey::PoolMaxIdlePerHost, "MARKED"),
        (ClientConfigKey::ProxyUrl, "http://user:MARKED@"),
    ] {
        let options = ClientOptions::new().with_config(key, value);
        let error = HttpStoreConnector::new().connect(&options).unwrap_err();
        let text = everything_of(&error);
        assert!(!text.contains("MARKED"), "{text}");
    }
}

#[test]
fn credentials_in_headers_are_marked_as_secret() {
    let mut headers = HeaderMap::new();
    for name in SECRET_HEADERS {
        headers.insert(name, "MARKED".parse().unwrap());
    }
    mark_secret(&mut headers);
    assert!(!format!("{headers:?}").contains("MARKED"));
}
