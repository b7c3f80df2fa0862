use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::{advance, sleep};
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};
use tower::service_fn;
use tower_test::assert_request_eq;
use tower_test::mock::{self, Handle, Spawn};

use super::*;
use crate::error::ErrorKind;
use crate::layers::PermitsLayer;
use crate::layers::samples::{self, KEY, Store, fetched, get, unavailable};
use crate::model::OpKind;
use crate::ops::{Activity, Delete, Fetched, Get, OpStack, PartTag, PutPart, StoreTarget};

const LIMIT: Duration = Duration::from_secs(30);

type Driven = Spawn<Timeout<Store<Get, Fetched>>>;

fn service() -> (Driven, Handle<Get, Fetched>) {
    mock::spawn_with(|mock| TimeoutLayer::new(LIMIT).layer(samples::typed(mock)))
}

#[tokio::test(start_paused = true)]
async fn answers_and_errors_are_passed_through() {
    let (mut service, mut handle) = service();
    assert_ready_ok!(service.poll_ready());
    let mut call = task::spawn(service.call(get()));
    assert_pending!(call.poll());
    assert_request_eq!(handle, get()).send_response(fetched(b"log"));
    assert_eq!(assert_ready_ok!(call.poll()), fetched(b"log"));

    assert_ready_ok!(service.poll_ready());
    let mut call = task::spawn(service.call(get()));
    assert_pending!(call.poll());
    assert_request_eq!(handle, get()).send_error(unavailable());
    assert_eq!(assert_ready_err!(call.poll()).status(), Some(503));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_come_ends_the_attempt() {
    let (mut service, mut handle) = service();
    assert_ready_ok!(service.poll_ready());
    let mut call = task::spawn(service.call(get()));
    assert_pending!(call.poll());
    let _unanswered = assert_request_eq!(handle, get());
    advance(Duration::from_millis(29_998)).await;
    assert_pending!(call.poll());
    advance(Duration::from_millis(3)).await;
    let error = assert_ready_err!(call.poll());
    assert!(error.is_retryable(), "one attempt may be repeated");
    assert!(
        matches!(
            &error,
            RemoteStorageError::TimedOut { operation: OpKind::Get, phase: None, key, part: None, after }
                if key == KEY && *after == LIMIT + Duration::from_millis(1)
        ),
        "{error:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_error_of_a_part_names_it() {
    let (mut service, _handle) = mock::spawn_with(|mock: mock::Mock<PutPart, PartTag>| {
        TimeoutLayer::new(LIMIT).layer(samples::typed(mock))
    });
    assert_ready_ok!(service.poll_ready());
    let error = service
        .call(PutPart {
            target: StoreTarget::object(KEY.into()),
            upload: "upload".into(),
            number: 17,
            offset: 0,
            payload: bytes::Bytes::from_static(b"part").into(),
        })
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("put_part timed out after 30s, part 17 of `{KEY}`")
    );
}

#[tokio::test(start_paused = true)]
async fn a_body_that_moves_is_not_cut_and_one_that_stops_is() {
    let began = Instant::now();
    let mut service = TimeoutLayer::new(LIMIT).layer(service_fn(|_: Get| async {
        let activity = Activity::current().expect("the attempt has an activity");
        for _ in 0..10 {
            sleep(Duration::from_secs(29)).await;
            activity.mark();
        }
        std::future::pending::<()>().await;
        Ok(fetched(b"never"))
    }));
    let error = service.call(get()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let after = Duration::from_secs(290) + LIMIT;
    assert_eq!(began.elapsed().as_secs(), after.as_secs());
    assert!(
        matches!(error, RemoteStorageError::TimedOut { after: told, .. } if told.as_secs() == after.as_secs())
    );
}

#[tokio::test(start_paused = true)]
async fn a_body_that_ends_in_time_is_answered_however_long_it_took() {
    let mut service = TimeoutLayer::new(LIMIT).layer(service_fn(|_: Get| async {
        for _ in 0..100 {
            sleep(Duration::from_secs(20)).await;
            Activity::current().expect("in an attempt").mark();
        }
        Ok(fetched(b"slow"))
    }));
    assert_eq!(service.call(get()).await.unwrap(), fetched(b"slow"));
}

#[tokio::test(start_paused = true)]
async fn a_limit_beyond_every_clock_is_no_limit() {
    let mut service = TimeoutLayer::new(Duration::MAX).layer(service_fn(|_: Get| async {
        sleep(Duration::from_hours(24 * 365)).await;
        Ok(fetched(b"slow"))
    }));
    assert_eq!(service.call(get()).await.unwrap(), fetched(b"slow"));
}

#[tokio::test(start_paused = true)]
async fn it_is_always_ready_and_bounds_the_wait_for_the_service_below() {
    let (mut service, mut handle) = service();
    handle.allow(0);
    assert_ready_ok!(service.poll_ready());
    let error = service.call(get()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_pending!(handle.poll_request());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_drops_the_attempt() {
    let (mut service, mut handle) = service();
    let mut call = task::spawn(service.call(get()));
    assert_pending!(call.poll());
    assert_request_eq!(handle, get());
    drop(call);
    assert_pending!(handle.poll_request());
}

#[tokio::test(start_paused = true)]
async fn calls_of_clones_have_times_of_their_own() {
    let (service, mut handle) = service();
    let (mut early, mut late) = (service.clone(), service);
    assert_ready_ok!(early.poll_ready());
    assert_ready_ok!(late.poll_ready());
    let mut first = task::spawn(early.call(get()));
    assert_pending!(first.poll());
    let _unanswered = assert_request_eq!(handle, get());
    advance(LIMIT / 2).await;
    let mut second = task::spawn(late.call(get()));
    assert_pending!(second.poll());
    advance(LIMIT / 2 + Duration::from_millis(1)).await;
    assert_ready_err!(first.poll());
    assert_pending!(second.poll());
    assert_request_eq!(handle, get()).send_response(fetched(b"log"));
    assert_ready_ok!(second.poll());
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_a_permit_is_part_of_the_attempt() {
    let timeout = TimeoutLayer::new(LIMIT);
    let permits = PermitsLayer::new(1, 1);
    let (mut service, mut handle) =
        mock::spawn_with(|mock| timeout.layer(permits.layer(samples::typed(mock))));
    let mut running = task::spawn(service.call(get()));
    let mut waiting = task::spawn(service.call(get()));
    assert_pending!(running.poll());
    assert_pending!(waiting.poll());
    let _unanswered = assert_request_eq!(handle, get());
    advance(LIMIT + Duration::from_millis(1)).await;
    let error = assert_ready_err!(waiting.poll());
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_pending!(handle.poll_request(), "it was never sent");

    // The time of the one that was sent has run out too, and that frees its permit.
    assert_ready_err!(running.poll());
    let mut next = task::spawn(service.call(get()));
    assert_pending!(next.poll());
    assert_request_eq!(handle, get());
}

/// A service that is never ready, and has a place in a queue from when it was asked.
struct Queued {
    queue: Arc<AtomicUsize>,
    has_place: bool,
}

impl Clone for Queued {
    fn clone(&self) -> Self {
        Self {
            queue: Arc::clone(&self.queue),
            has_place: false,
        }
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.queue
            .fetch_sub(usize::from(self.has_place), Ordering::Relaxed);
    }
}

impl Service<Delete> for Queued {
    type Response = ();
    type Error = RemoteStorageError;
    type Future = Ready<Result<(), RemoteStorageError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        let is_new = !std::mem::replace(&mut self.has_place, true);
        self.queue.fetch_add(usize::from(is_new), Ordering::Relaxed);
        Poll::Pending
    }

    fn call(&mut self, _: Delete) -> Self::Future {
        ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_in_a_queue_goes_with_the_call_that_waits_in_it() {
    let queue = Arc::new(AtomicUsize::new(0));
    let service = Queued {
        queue: Arc::clone(&queue),
        has_place: false,
    };
    let limit = TimeoutLayer::new(LIMIT);
    for stack in [
        OpStack::new(service.clone()),
        // Always ready itself.
        OpStack::new(limit.layer(service)),
    ] {
        let delete = || Delete {
            target: StoreTarget::object(KEY.into()),
        };
        let mut calls = [stack.run(delete()), stack.run(delete())];
        for call in &mut calls {
            assert!(futures::poll!(call).is_pending());
        }
        assert_eq!(queue.load(Ordering::Relaxed), 2, "one for each call");
        drop(calls);
        assert_eq!(queue.load(Ordering::Relaxed), 0);
    }
}
