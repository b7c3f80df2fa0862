use std::time::Duration;

use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};
use tower::{ServiceExt as _, service_fn};
use tower_test::assert_request_eq;
use tower_test::mock::{self, Handle, Spawn};
use tracing::Level;

use super::*;
use crate::layers::samples::{
    self, Entry, KEY, Store, Traced, copy, delete, fetched, get, get_attempt, receipt, unavailable,
};
use crate::layers::{RetryLayer, RetryPolicy};
use crate::ops::{CopySegment, DeleteSegment, Fetched, Get, PutPart, StoreTarget};

type Driven = Spawn<Trace<Store<Get, Fetched>>>;

fn service() -> (Driven, Handle<Get, Fetched>) {
    mock::spawn_with(|mock| TraceLayer.layer(samples::typed(mock)))
}

/// The fields of a span, in the order of their names.
fn fields(entry: &Entry) -> Vec<(&str, &str)> {
    let fields = entry.fields.iter();
    fields
        .map(|(name, value)| (*name, value.as_str()))
        .collect()
}

#[tokio::test]
async fn answers_and_errors_are_passed_through_with_and_without_a_subscriber() {
    for subscriber in [None, Some(Traced::start())] {
        let (mut service, mut handle) = service();
        assert_ready_ok!(service.poll_ready());
        let mut call = task::spawn(service.call(get()));
        assert_request_eq!(handle, get()).send_response(fetched(b"log"));
        assert_eq!(assert_ready_ok!(call.poll()), fetched(b"log"));

        assert_ready_ok!(service.poll_ready());
        let mut call = task::spawn(service.call(get()));
        assert_request_eq!(handle, get()).send_error(unavailable());
        assert_eq!(assert_ready_err!(call.poll()).status(), Some(503));
        drop(subscriber);
    }
}

#[tokio::test]
async fn it_is_ready_when_the_service_below_is() {
    let (mut service, mut handle) = service();
    handle.allow(0);
    assert_pending!(service.poll_ready());
    handle.allow(1);
    assert_ready_ok!(service.poll_ready());
}

#[tokio::test]
async fn a_segment_operation_has_a_span_that_names_its_segment() {
    let traced = Traced::start();
    let service = TraceLayer.layer(service_fn(|_: CopySegment| async { Ok(receipt()) }));
    service.oneshot(copy()).await.unwrap();
    let spans = traced.take();
    assert_eq!(spans.len(), 1);
    assert_eq!(spans[0].name, "segment_operation");
    assert_eq!(spans[0].level, Level::INFO);
    assert_eq!(
        fields(&spans[0]),
        [
            ("operation", "copy_segment"),
            ("outcome", "ok"),
            ("partition", "0"),
            ("segment", "AAAAAAAAAAAAAAAAAAAACQ"),
            ("topic", "orders"),
        ]
    );
}

#[tokio::test]
async fn a_store_request_has_a_span_that_names_its_object() {
    let traced = Traced::start();
    let layer = TraceLayer;
    let part = PutPart {
        target: StoreTarget::object(KEY.into()),
        upload: "upload".into(),
        number: 17,
        offset: 0,
        payload: bytes::Bytes::from_static(b"part").into(),
    };
    layer
        .layer(service_fn(|_: PutPart| async { Ok("tag".into()) }))
        .oneshot(part)
        .await
        .unwrap();
    layer
        .layer(service_fn(|_: Get| async {
            Err::<Fetched, _>(unavailable())
        }))
        .oneshot(get_attempt(2))
        .await
        .unwrap_err();
    let spans = traced.take();
    assert_eq!(spans.len(), 2);
    assert!(spans.iter().all(|span| span.name == "store_request"));
    assert!(spans.iter().all(|span| span.level == Level::DEBUG));
    assert_eq!(
        fields(&spans[0]),
        [
            ("attempt", "1"),
            ("key", KEY),
            ("outcome", "ok"),
            ("part", "17"),
            ("request", "put_part"),
        ]
    );
    assert_eq!(
        fields(&spans[1]),
        [
            ("attempt", "2"),
            ("key", KEY),
            ("outcome", "unavailable"),
            ("request", "get"),
        ]
    );
}

#[tokio::test]
async fn a_dropped_call_ends_its_span_as_cancelled_polled_or_not() {
    let traced = Traced::start();
    let (mut service, mut handle) = service();
    assert_ready_ok!(service.poll_ready());
    drop(service.call(get()));
    handle.next_request().await.unwrap();

    assert_ready_ok!(service.poll_ready());
    let mut call = task::spawn(service.call(get()));
    assert_pending!(call.poll());
    drop(call);
    let spans = traced.take();
    assert_eq!(spans.len(), 2);
    for span in spans {
        assert_eq!(span.field("outcome"), Some("cancelled"));
    }
}

#[tokio::test]
async fn calls_of_clones_have_spans_of_their_own() {
    let traced = Traced::start();
    let (service, mut handle) = service();
    let (mut first, mut second) = (service.clone(), service);
    assert_ready_ok!(first.poll_ready());
    assert_ready_ok!(second.poll_ready());
    let mut failing = task::spawn(first.call(get()));
    let mut succeeding = task::spawn(second.call(get()));
    assert_request_eq!(handle, get()).send_error(unavailable());
    assert_request_eq!(handle, get()).send_response(fetched(b"log"));
    assert_ready_ok!(succeeding.poll());
    assert_ready_err!(failing.poll());
    let outcomes = traced.take();
    let outcomes: Vec<_> = outcomes.iter().map(|span| span.field("outcome")).collect();
    assert_eq!(outcomes, [Some("ok"), Some("unavailable")]);
}

#[tokio::test(start_paused = true)]
async fn attempts_are_children_of_the_operation_and_a_repeat_is_one_event() {
    let traced = Traced::start();
    let retry = RetryLayer::new(RetryPolicy::new(3, Duration::from_mins(3)).jitter(|| 1.0));
    let store = retry.layer(TraceLayer.layer(service_fn(|get: Get| async move {
        match get.target.attempt {
            1 => Err(unavailable()),
            _ => Ok(fetched(b"log")),
        }
    })));
    let deleter = TraceLayer.layer(service_fn(move |_: DeleteSegment| {
        let store = store.clone();
        async move { store.oneshot(get()).await.map(|_| ()) }
    }));
    deleter.oneshot(delete()).await.unwrap();

    let entries = traced.take();
    let summary: Vec<_> = entries
        .iter()
        .map(|entry| (entry.name.as_str(), entry.parent, entry.field("attempt")))
        .collect();
    let operation = Some("segment_operation");
    let repeat = "a store request failed and will be repeated";
    assert_eq!(
        summary,
        [
            ("store_request", operation, Some("1")),
            (repeat, operation, Some("2")),
            ("store_request", operation, Some("2")),
            ("segment_operation", None, None),
        ]
    );
    assert_eq!(entries[1].level, Level::DEBUG);
    assert_eq!(
        fields(&entries[1]),
        [
            ("attempt", "2"),
            (
                "error",
                &format!("get of `{KEY}` failed with HTTP status 503")
            ),
            ("error_kind", "unavailable"),
            ("key", KEY),
            ("pause", "100ms"),
            ("request", "get"),
        ]
    );
}

#[tokio::test]
async fn a_span_that_a_layer_below_opens_in_its_call_is_a_child() {
    let traced = Traced::start();
    let inner = TraceLayer.layer(service_fn(|_: CopySegment| async { Ok(receipt()) }));
    TraceLayer.layer(inner).oneshot(copy()).await.unwrap();
    let parents: Vec<_> = traced.take().iter().map(|span| span.parent).collect();
    assert_eq!(parents, [Some("segment_operation"), None]);
}
