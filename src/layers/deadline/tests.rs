use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::time::{Instant, advance};
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};
use tower::service_fn;
use tower_test::assert_request_eq;
use tower_test::mock::{self, Handle, Spawn};

use super::*;
use crate::error::ErrorKind;
use crate::layers::samples::{self, KEY, Store, copy, fetch, receipt, unavailable};
use crate::layers::{RetryLayer, RetryPolicy};
use crate::model::{CopyPhase, CopyReceipt, OpKind};
use crate::ops::{CopySegment, FetchSegment};

const LIMIT: Duration = Duration::from_mins(30);

type Driven = Spawn<Deadline<Store<CopySegment, CopyReceipt>>>;

fn service() -> (Driven, Handle<CopySegment, CopyReceipt>) {
    mock::spawn_with(|mock| DeadlineLayer::new(LIMIT).layer(samples::typed(mock)))
}

#[tokio::test(start_paused = true)]
async fn answers_and_errors_are_passed_through() {
    let (mut service, mut handle) = service();
    assert_ready_ok!(service.poll_ready());
    let op = copy();
    let mut call = task::spawn(service.call(op.clone()));
    assert_pending!(call.poll());
    assert_request_eq!(handle, op.clone()).send_response(receipt());
    assert_eq!(assert_ready_ok!(call.poll()), receipt());

    let mut call = task::spawn(service.call(op.clone()));
    assert_pending!(call.poll());
    assert_request_eq!(handle, op).send_error(unavailable());
    assert_eq!(assert_ready_err!(call.poll()).status(), Some(503));
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_takes_too_long_ends_and_says_where_it_was() {
    let (mut service, mut handle) = service();
    let op = copy();
    let mut call = task::spawn(service.call(op.clone()));
    assert_pending!(call.poll());
    let _unanswered = assert_request_eq!(handle, op.clone());
    op.progress.update(|at| {
        at.phase = CopyPhase::Uploading;
        at.key = KEY.into();
        at.part = Some(3);
    });
    advance(Duration::from_millis(1_799_998)).await;
    assert_pending!(call.poll());
    advance(Duration::from_millis(3)).await;
    let error = assert_ready_err!(call.poll());
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(!error.is_retryable(), "a deadline is not repeated");
    assert_eq!(
        error.to_string(),
        format!("copy_segment timed out after 1800s while uploading, part 3 of `{KEY}`")
    );
}

#[tokio::test(start_paused = true)]
async fn an_operation_without_progress_names_itself() {
    let (mut service, _handle) =
        mock::spawn_with(|mock| DeadlineLayer::new(LIMIT).layer(samples::typed(mock)));
    let call: OpFuture<FetchSegment> = service.call(fetch());
    let error = call.await.unwrap_err();
    assert!(!error.is_retryable());
    assert!(matches!(
        error,
        RemoteStorageError::TimedOut {
            operation: OpKind::FetchSegment,
            phase: None,
            part: None,
            ..
        }
    ));
}

#[tokio::test(start_paused = true)]
async fn the_operation_is_over_when_the_error_is_there_and_its_way_out_does_not_change_it() {
    let over = Arc::new(AtomicBool::new(false));
    let observed = Arc::clone(&over);
    let mut service = DeadlineLayer::new(LIMIT).layer(service_fn(move |op: CopySegment| {
        op.progress.update(|at| at.phase = CopyPhase::Completing);
        let guard = CleansUp(op, Arc::clone(&over));
        async move {
            let _guard = guard;
            std::future::pending().await
        }
    }));
    let error = Service::call(&mut service, copy()).await.unwrap_err();
    assert!(observed.load(Ordering::SeqCst));
    assert!(
        error.to_string().contains("while completing"),
        "{error}, and not the clean-up that the deadline itself caused"
    );
}

/// Does what a dropped copy does.
struct CleansUp(CopySegment, Arc<AtomicBool>);

impl Drop for CleansUp {
    fn drop(&mut self) {
        let progress = &self.0.progress;
        progress.update(|at| at.phase = CopyPhase::CleaningUp);
        self.1.store(true, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_beyond_every_clock_is_no_limit() {
    let mut service = DeadlineLayer::new(Duration::MAX).layer(service_fn(|_: CopySegment| async {
        tokio::time::sleep(Duration::from_hours(24 * 365)).await;
        Ok(receipt())
    }));
    let answer = Service::call(&mut service, copy()).await;
    assert_eq!(answer.unwrap(), receipt());
}

#[tokio::test(start_paused = true)]
async fn it_is_always_ready_and_bounds_the_wait_for_the_service_below() {
    let (mut service, mut handle) = service();
    handle.allow(0);
    assert_ready_ok!(service.poll_ready());
    let error = service.call(copy()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "copy_segment timed out after 1800s while preparing"
    );
    assert_pending!(handle.poll_request());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_drops_the_operation() {
    let (mut service, mut handle) = service();
    let mut call = task::spawn(service.call(copy()));
    assert_pending!(call.poll());
    let (_, answer) = handle.next_request().await.unwrap();
    drop(call);
    // Nobody is left to take it.
    answer.send_response(receipt());
    assert_pending!(handle.poll_request());
}

#[tokio::test(start_paused = true)]
async fn calls_of_clones_have_times_of_their_own() {
    let (service, mut handle) = service();
    let (mut early, mut late) = (service.clone(), service);
    let mut first = task::spawn(early.call(copy()));
    assert_pending!(first.poll());
    let _unanswered = handle.next_request().await.unwrap();
    advance(LIMIT / 2).await;
    let mut second = task::spawn(late.call(copy()));
    assert_pending!(second.poll());
    advance(LIMIT / 2 + Duration::from_millis(1)).await;
    assert_ready_err!(first.poll());
    assert_pending!(second.poll());
    let (_, answer) = handle.next_request().await.unwrap();
    answer.send_response(receipt());
    assert_ready_ok!(second.poll());
}

#[tokio::test(start_paused = true)]
async fn the_pauses_of_a_retry_below_count() {
    let began = Instant::now();
    let deadline = DeadlineLayer::new(Duration::from_secs(5));
    let retry = RetryLayer::new(RetryPolicy::new(100, LIMIT).jitter(|| 1.0));
    let mut service =
        deadline.layer(retry.layer(service_fn(|_: CopySegment| async { Err(unavailable()) })));
    let error = Service::call(&mut service, copy()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(began.elapsed().as_secs(), 5);
}
