use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use bytes::Bytes;
use metrics::{Key, KeyName, Metadata, SharedString, Unit};
use metrics_util::debugging::DebuggingRecorder;
use tokio::time::advance;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};
use tower::service_fn;
use tower_test::assert_request_eq;
use tower_test::mock::{self, Handle, Mock, Spawn};

use super::*;
use crate::layers::samples::{self, KEY, Recorded, Store, Value, fetched, get, unavailable};
use crate::ops::{AbortUpload, Delete, Fetched, Get, Put, StoreTarget, Written};

type Driven = Spawn<Permits<Store<Get, Fetched>>>;

fn service(max_reads: usize) -> (Driven, Handle<Get, Fetched>) {
    let layer = PermitsLayer::new(max_reads, 1);
    mock::spawn_with(move |mock| layer.layer(samples::typed(mock)))
}

fn put() -> Put {
    Put {
        target: StoreTarget::object(KEY.into()),
        payload: Bytes::from_static(b"log").into(),
    }
}

#[tokio::test]
async fn answers_and_errors_are_passed_through() {
    let (mut service, mut handle) = service(1);
    assert_ready_ok!(service.poll_ready());
    let mut call = task::spawn(service.call(get()));
    assert_pending!(call.poll());
    assert_request_eq!(handle, get()).send_response(fetched(b"log"));
    assert_eq!(assert_ready_ok!(call.poll()), fetched(b"log"));

    let mut call = task::spawn(service.call(get()));
    assert_pending!(call.poll());
    assert_request_eq!(handle, get()).send_error(unavailable());
    assert_eq!(assert_ready_err!(call.poll()).status(), Some(503));
}

#[tokio::test]
async fn no_more_requests_run_than_there_are_permits() {
    let (mut service, mut handle) = service(2);
    let mut calls: Vec<_> = (0..4).map(|_| task::spawn(service.call(get()))).collect();
    for call in &mut calls {
        assert_pending!(call.poll());
    }
    let first = assert_request_eq!(handle, get());
    let _second = assert_request_eq!(handle, get());
    assert_pending!(handle.poll_request());

    first.send_response(fetched(b"log"));
    assert_ready_ok!(calls[0].poll());
    assert!(calls[2].is_woken(), "the one that waited longest goes on");
    assert!(!calls[3].is_woken());
    assert_pending!(calls[2].poll());
    assert_request_eq!(handle, get());
    assert_pending!(handle.poll_request());
}

#[tokio::test]
async fn being_ready_takes_no_permit() {
    let (service, mut handle) = service(1);
    let mut idle = service.clone();
    let mut busy = service;
    assert_ready_ok!(idle.poll_ready());
    assert_ready_ok!(busy.poll_ready());
    let _never_polled = idle.call(get());
    let mut call = task::spawn(busy.call(get()));
    assert_pending!(call.poll());
    assert_request_eq!(handle, get()).send_response(fetched(b"log"));
    assert_ready_ok!(call.poll());
}

#[tokio::test]
async fn it_is_always_ready_and_waits_for_the_service_below_in_the_call() {
    let (mut service, mut handle) = service(1);
    handle.allow(0);
    assert_ready_ok!(service.poll_ready());
    let mut call = task::spawn(service.call(get()));
    assert_pending!(call.poll());
    handle.allow(1);
    assert!(call.is_woken());
    assert_pending!(call.poll());
    assert_request_eq!(handle, get()).send_response(fetched(b"log"));
    assert_ready_ok!(call.poll());
}

#[tokio::test]
async fn a_dropped_call_gives_its_permit_or_its_place_back() {
    let (mut service, mut handle) = service(1);
    let mut running = task::spawn(service.call(get()));
    let mut queued = task::spawn(service.call(get()));
    let mut last = task::spawn(service.call(get()));
    for call in [&mut running, &mut queued, &mut last] {
        assert_pending!(call.poll());
    }
    assert_request_eq!(handle, get());
    drop(queued);
    drop(running);
    assert!(last.is_woken());
    assert_pending!(last.poll());
    assert_request_eq!(handle, get()).send_response(fetched(b"log"));
    assert_ready_ok!(last.poll());
}

#[tokio::test]
async fn the_request_is_over_before_its_permit_is_free() {
    let layer = PermitsLayer::new(1, 1);
    let pools = Arc::clone(&layer.pools);
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let mut service = layer.layer(service_fn(move |_: Get| {
        let held = SendOnDrop(pools.clone(), sender.clone());
        async move {
            let _held = held;
            std::future::pending().await
        }
    }));
    let mut call = task::spawn(service.call(get()));
    assert_pending!(call.poll());
    drop(call);
    assert_eq!(receiver.try_recv(), Ok(0));
    assert_eq!(layer.pools.reads.available_permits(), 1);
}

/// Tells how many permits were free when it was dropped.
struct SendOnDrop(Arc<super::Pools>, tokio::sync::mpsc::UnboundedSender<usize>);

impl Drop for SendOnDrop {
    fn drop(&mut self) {
        let _ = self.1.send(self.0.reads.available_permits());
    }
}

/// A recorder that cannot be used.
struct Panics;

impl metrics::Recorder for Panics {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> metrics::Counter {
        panic!("a recorder")
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        panic!("a recorder")
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> metrics::Histogram {
        metrics::Histogram::noop()
    }
}

#[tokio::test]
async fn a_recorder_that_panics_takes_no_permit_along() {
    let layer = PermitsLayer::new(1, 1);
    let (mut service, _handle) =
        mock::spawn_with(|mock: Mock<Get, Fetched>| layer.layer(samples::typed(mock)));
    let mut call = task::spawn(service.call(get()));
    let poll = AssertUnwindSafe(|| metrics::with_local_recorder(&Panics, || call.poll()));
    assert!(catch_unwind(poll).is_err());
    assert_eq!(layer.pools.reads.available_permits(), 1);
}

#[tokio::test]
async fn reads_and_writes_have_their_own_and_clones_and_kinds_share_them() {
    let layer = PermitsLayer::new(1, 1);
    let (puts, mut put_handle) =
        mock::spawn_with(|mock: Mock<Put, Written>| layer.layer(samples::typed(mock)));
    let (mut deletes, mut delete_handle) =
        mock::spawn_with(|mock: Mock<Delete, ()>| layer.layer(samples::typed(mock)));
    let (mut gets, mut get_handle) =
        mock::spawn_with(|mock: Mock<Get, Fetched>| layer.layer(samples::typed(mock)));

    let mut first = task::spawn(puts.clone().call(put()));
    let mut second = task::spawn(puts.clone().call(put()));
    let mut delete = task::spawn(deletes.call(Delete {
        target: StoreTarget::object(KEY.into()),
    }));
    let mut read = task::spawn(gets.call(get()));
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    assert_pending!(delete.poll());
    assert_pending!(read.poll());

    let (_, answer) = put_handle.next_request().await.unwrap();
    assert_pending!(
        put_handle.poll_request(),
        "a clone has no permit of its own"
    );
    assert_pending!(delete_handle.poll_request(), "a delete is a write");
    assert_request_eq!(get_handle, get()).send_response(fetched(b"log"));
    assert_ready_ok!(read.poll());

    answer.send_response(Written::default());
    assert_ready_ok!(first.poll());
    assert_pending!(second.poll());
    assert_eq!(
        put_handle.next_request().await.unwrap().0.target,
        put().target
    );
}

#[tokio::test]
async fn an_abort_waits_only_behind_the_writes_that_were_there_before_it() {
    let layer = PermitsLayer::new(1, 1);
    let (mut puts, mut put_handle) =
        mock::spawn_with(|mock: Mock<Put, Written>| layer.layer(samples::typed(mock)));
    let (mut aborts, mut abort_handle) =
        mock::spawn_with(|mock: Mock<AbortUpload, ()>| layer.layer(samples::typed(mock)));
    let mut before = task::spawn(puts.call(put()));
    let mut abort = task::spawn(aborts.call(AbortUpload {
        target: StoreTarget::object(KEY.into()),
        upload: "upload".into(),
    }));
    assert_pending!(before.poll());
    assert_pending!(abort.poll());
    let mut flood: Vec<_> = (0..100).map(|_| task::spawn(puts.call(put()))).collect();
    for call in &mut flood {
        assert_pending!(call.poll());
    }
    let (_, answer) = put_handle.next_request().await.unwrap();
    answer.send_response(Written::default());
    assert_ready_ok!(before.poll());
    for call in &mut flood {
        assert_pending!(call.poll());
    }
    assert_pending!(abort.poll());
    let (_, answer) = abort_handle.next_request().await.unwrap();
    answer.send_response(());
    assert_ready_ok!(abort.poll());
}

#[tokio::test]
async fn no_permits_count_as_one() {
    let (mut service, mut handle) = service(0);
    let mut call = task::spawn(service.call(get()));
    assert_pending!(call.poll());
    assert_request_eq!(handle, get());
    // More than the pool can count is as many as it can.
    let _ = PermitsLayer::new(usize::MAX, usize::MAX);
}

#[tokio::test(start_paused = true)]
async fn requests_in_flight_are_counted_while_they_hold_a_permit() {
    let recorder = DebuggingRecorder::new();
    let _local = metrics::set_default_local_recorder(&recorder);
    let change = || Recorded::take(&recorder).value("requests_in_flight", "direction=read");
    let (mut service, mut handle) = service(1);

    let mut first = task::spawn(service.call(get()));
    let mut second = task::spawn(service.call(get()));
    let mut third = task::spawn(service.call(get()));
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    assert_pending!(third.poll());
    assert_eq!(change(), Some(Value::Gauge(1.0)));
    let answer = assert_request_eq!(handle, get());
    advance(Duration::from_secs(2)).await;
    answer.send_response(fetched(b"log"));
    assert_ready_ok!(first.poll());
    assert_eq!(change(), Some(Value::Gauge(-1.0)));
    assert_pending!(second.poll());
    assert_eq!(change(), Some(Value::Gauge(1.0)));
    drop(second);
    assert_eq!(change(), Some(Value::Gauge(-1.0)));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_was_given_up_is_measured_like_any_other() {
    let recorder = DebuggingRecorder::new();
    let _local = metrics::set_default_local_recorder(&recorder);
    let (mut service, _handle) = service(1);
    let mut running = task::spawn(service.call(get()));
    let mut waiting = task::spawn(service.call(get()));
    assert_pending!(running.poll());
    assert_pending!(waiting.poll());
    advance(Duration::from_secs(3)).await;
    drop(waiting);
    assert_eq!(
        Recorded::take(&recorder).value("permit_wait_seconds", "direction=read"),
        Some(Value::Histogram(vec![0.0, 3.0]))
    );
}
