//! An HTTP server in this process that writes down what it is asked.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn query(&self) -> &str {
        self.uri.query().unwrap_or_default()
    }
}

type Answer = dyn Fn(&Seen) -> Response + Send + Sync;

#[derive(Clone)]
struct Script {
    seen: Arc<Mutex<Vec<Seen>>>,
    answer: Arc<Answer>,
}

/// The server. It ends when this is dropped.
pub(crate) struct Recorder {
    url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    server: JoinHandle<()>,
}

impl Recorder {
    /// Answers each request with what `answer` makes of it.
    pub(crate) async fn start(answer: impl Fn(&Seen) -> Response + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let state = Script {
            seen: Arc::clone(&seen),
            answer: Arc::new(answer),
        };
        let routes = Router::new().fallback(record).with_state(state);
        let server = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { url, seen, server }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    /// The only request so far.
    pub(crate) fn only(&self) -> Seen {
        let seen = self.seen();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen[0].clone()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn record(State(script): State<Script>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let request = Seen {
        method: parts.method,
        uri: parts.uri,
        headers: parts.headers,
        body: axum::body::to_bytes(body, usize::MAX).await.unwrap(),
    };
    let response = (script.answer)(&request);
    script.seen.lock().push(request);
    response
}

/// An answer with these headers.
pub(crate) fn answer(
    status: StatusCode,
    headers: &[(&str, &str)],
    body: impl Into<Body>,
) -> Response {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(body.into()).unwrap()
}

/// An error and its causes, in every form in which they could be printed.
pub(crate) fn everything_of(error: &dyn std::error::Error) -> String {
    let mut text = format!("{error:?}");
    let mut next = Some(error);
    while let Some(error) = next {
        write!(text, "\n{error}\n{error:?}").unwrap();
        next = error.source();
    }
    text
}
