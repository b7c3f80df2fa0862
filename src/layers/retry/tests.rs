use bytes::Bytes;
use metrics_util::debugging::DebuggingRecorder;
use tokio::time::advance;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};
use tower::Layer as _;
use tower_test::assert_request_eq;
use tower_test::mock::{self, Handle, Spawn};

use super::*;
use crate::error::ErrorKind;
use crate::layers::samples::{
    self, KEY, Recorded, Store, Value, corrupt, fetched, get, get_attempt, rejected, unavailable,
};
use crate::layers::{PermitsLayer, TimeoutLayer};
use crate::ops::{Create, FetchIndex, Fetched, Get, StoreTarget, Written};

const TOTAL: Duration = Duration::from_mins(3);

/// Repeats after whole pauses: nothing is cut off by the jitter.
fn policy(max_retries: usize, retry_timeout: Duration) -> RetryPolicy {
    RetryPolicy::new(max_retries, retry_timeout).jitter(|| 1.0)
}

type Driven = Spawn<Retry<Store<Get, Fetched>>>;

fn service(policy: RetryPolicy) -> (Driven, Handle<Get, Fetched>) {
    mock::spawn_with(move |mock| RetryLayer::new(policy.clone()).layer(samples::typed(mock)))
}

/// The answer of a call that has to end by itself.
async fn ended<T>(call: tokio::task::JoinHandle<T>) -> T {
    let end = tokio::time::timeout(Duration::from_hours(1), call).await;
    end.expect("the call ends").unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_success_is_passed_through_and_sent_once() {
    let (mut service, mut handle) = service(policy(3, TOTAL));
    assert_ready_ok!(service.poll_ready());
    let mut call = task::spawn(service.call(get()));
    assert_request_eq!(handle, get()).send_response(fetched(b"log"));
    assert_eq!(assert_ready_ok!(call.poll()), fetched(b"log"));
    assert_pending!(handle.poll_request());
}

#[tokio::test(start_paused = true)]
async fn it_is_ready_when_the_service_below_is() {
    let (mut service, mut handle) = service(policy(3, TOTAL));
    handle.allow(0);
    assert_pending!(service.poll_ready());
    handle.allow(1);
    assert_ready_ok!(service.poll_ready());
}

#[tokio::test(start_paused = true)]
async fn a_passing_failure_is_repeated_after_the_pause() {
    let (mut service, mut handle) = service(policy(3, TOTAL));
    assert_ready_ok!(service.poll_ready());
    let mut call = task::spawn(service.call(get()));
    assert_request_eq!(handle, get_attempt(1)).send_error(unavailable());
    assert_pending!(call.poll());
    advance(Duration::from_millis(99)).await;
    assert_pending!(call.poll());
    assert_pending!(handle.poll_request(), "nothing is sent during the pause");

    advance(Duration::from_millis(2)).await;
    assert_pending!(call.poll());
    assert_request_eq!(handle, get_attempt(2)).send_response(fetched(b"log"));
    assert_eq!(assert_ready_ok!(call.poll()), fetched(b"log"));
}

#[tokio::test(start_paused = true)]
async fn n_repeats_are_n_plus_one_attempts_and_the_last_error_is_the_answer() {
    for max_retries in [0, 1, 4] {
        let (mut service, mut handle) = service(policy(max_retries, TOTAL));
        assert_ready_ok!(service.poll_ready());
        let call = tokio::spawn(service.call(get()));
        for attempt in 1..=u32::try_from(max_retries).unwrap() {
            assert_request_eq!(handle, get_attempt(attempt)).send_error(attempt_timed_out());
        }
        let last = get_attempt(u32::try_from(max_retries).unwrap() + 1);
        assert_request_eq!(handle, last).send_error(unavailable());
        let error = ended(call).await.unwrap_err();
        assert_eq!(error.status(), Some(503));
        assert_pending!(handle.poll_request());
    }
}

/// A passing failure that is not the last one.
fn attempt_timed_out() -> RemoteStorageError {
    RemoteStorageError::TimedOut {
        operation: crate::model::OpKind::Get,
        phase: None,
        key: KEY.to_owned(),
        part: None,
        after: Duration::from_secs(30),
    }
}

#[tokio::test(start_paused = true)]
async fn a_lasting_failure_is_not_repeated() {
    let (mut service, mut handle) = service(policy(3, TOTAL));
    assert_ready_ok!(service.poll_ready());
    let mut call = task::spawn(service.call(get()));
    assert_request_eq!(handle, get()).send_error(rejected());
    assert_eq!(assert_ready_err!(call.poll()).kind(), ErrorKind::Rejected);
}

#[tokio::test(start_paused = true)]
async fn pauses_double_from_100_ms_to_10_s() {
    let paused = pauses(policy(9, Duration::MAX), 10).await;
    let expected = [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000];
    assert_eq!(paused, expected.map(Duration::from_millis));
}

#[tokio::test(start_paused = true)]
async fn the_jitter_takes_a_share_of_each_pause() {
    let paused = pauses(policy(3, TOTAL).jitter(|| 0.25), 4).await;
    assert_eq!(paused, [25, 50, 100].map(Duration::from_millis));
    let none = pauses(policy(3, TOTAL).jitter(|| 0.0), 4).await;
    assert_eq!(none, [Duration::ZERO; 3]);
}

/// The pauses between this many attempts of a call that always fails.
async fn pauses(policy: RetryPolicy, attempts: usize) -> Vec<Duration> {
    let (mut service, mut handle) = service(policy);
    assert_ready_ok!(service.poll_ready());
    let call = tokio::spawn(service.call(get()));
    let mut times = Vec::new();
    for _ in 0..attempts {
        let (_, answer) = handle.next_request().await.expect("another attempt");
        times.push(Instant::now());
        answer.send_error(unavailable());
    }
    ended(call).await.unwrap_err();
    // The timer has a resolution of 1 ms.
    times
        .windows(2)
        .map(|pair| Duration::from_millis((pair[1] - pair[0]).as_millis().try_into().unwrap()))
        .collect()
}

#[test]
fn unasked_the_jitter_is_random_and_from_0_to_1() {
    let policy = RetryPolicy::new(1, TOTAL);
    let shares: Vec<f64> = (0..64).map(|_| policy.share()).collect();
    assert!(shares.iter().all(|share| (0.0..1.0).contains(share)));
    assert!(shares.iter().any(|share| *share < 0.5));
    assert!(shares.iter().any(|share| *share >= 0.5));
}

#[tokio::test(start_paused = true)]
async fn no_attempt_starts_beyond_the_total_time() {
    // Attempts at 0 s, 60 s and 120 s; the fourth would start beyond 150 s.
    let policy = policy(10, Duration::from_secs(150));
    let (mut service, mut handle) = service(policy);
    assert_ready_ok!(service.poll_ready());
    let call = tokio::spawn(service.call(get()));
    for attempt in 1..=3 {
        let answer = assert_request_eq!(handle, get_attempt(attempt));
        advance(Duration::from_secs(59)).await;
        answer.send_error(unavailable());
    }
    assert_eq!(
        ended(call).await.unwrap_err().kind(),
        ErrorKind::Unavailable
    );
    assert_pending!(handle.poll_request());
}

#[tokio::test(start_paused = true)]
async fn the_total_time_counts_from_the_call_and_not_from_the_making_of_the_stack() {
    let (mut service, mut handle) = service(policy(1, Duration::from_secs(1)));
    advance(Duration::from_mins(1)).await;
    for _ in 0..2 {
        assert_ready_ok!(service.poll_ready());
        let call = tokio::spawn(service.call(get()));
        assert_request_eq!(handle, get_attempt(1)).send_error(unavailable());
        let repeat = tokio::time::timeout(Duration::from_mins(1), handle.next_request()).await;
        let (request, answer) = repeat.expect("it is repeated").unwrap();
        assert_eq!(request, get_attempt(2));
        answer.send_response(fetched(b"log"));
        ended(call).await.unwrap();
        advance(Duration::from_mins(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_corrupt_answer_to_a_read_is_repeated_once() {
    let (mut service, mut handle) = service(policy(5, TOTAL));
    assert_ready_ok!(service.poll_ready());
    let call = tokio::spawn(service.call(get()));
    assert_request_eq!(handle, get_attempt(1)).send_error(unavailable());
    assert_request_eq!(handle, get_attempt(2)).send_error(corrupt());
    assert_request_eq!(handle, get_attempt(3)).send_error(corrupt());
    assert_eq!(ended(call).await.unwrap_err().kind(), ErrorKind::Corrupt);
    assert_pending!(handle.poll_request());
}

#[tokio::test(start_paused = true)]
async fn a_corrupt_answer_to_a_write_is_not_repeated() {
    let (mut service, mut handle) = mock::spawn_with(|mock: mock::Mock<Create, Written>| {
        RetryLayer::new(policy(5, TOTAL)).layer(samples::typed(mock))
    });
    assert_ready_ok!(service.poll_ready());
    let mut call = task::spawn(service.call(Create {
        target: StoreTarget::object(KEY.into()),
        payload: Bytes::from_static(b"log").into(),
        sha256: [0; 32],
    }));
    let (_, answer) = handle.next_request().await.unwrap();
    answer.send_error(corrupt());
    assert_eq!(assert_ready_err!(call.poll()).kind(), ErrorKind::Corrupt);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_in_its_pause_sends_nothing_more() {
    let (mut service, mut handle) = service(policy(3, TOTAL));
    assert_ready_ok!(service.poll_ready());
    let mut call = task::spawn(service.call(get()));
    assert_request_eq!(handle, get()).send_error(unavailable());
    assert_pending!(call.poll());
    drop(call);
    advance(Duration::from_secs(20)).await;
    assert_pending!(handle.poll_request());
}

#[tokio::test(start_paused = true)]
async fn clones_and_later_calls_begin_anew() {
    let (service, mut handle) = service(policy(1, TOTAL));
    let mut first = service.clone();
    let mut second = service;
    for service in [&mut first, &mut second] {
        for _ in 0..2 {
            assert_ready_ok!(service.poll_ready());
            let call = tokio::spawn(service.call(get()));
            assert_request_eq!(handle, get_attempt(1)).send_error(unavailable());
            assert_request_eq!(handle, get_attempt(2)).send_error(unavailable());
            ended(call).await.unwrap_err();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_does_not_number_its_attempts_is_bounded_too() {
    let (mut service, mut handle) = mock::spawn_with(|mock: mock::Mock<FetchIndex, Bytes>| {
        RetryLayer::new(policy(2, TOTAL)).layer(samples::typed(mock))
    });
    assert_ready_ok!(service.poll_ready());
    let op = FetchIndex::new(samples::metadata(), crate::model::IndexType::Offset);
    let call = tokio::spawn(service.call(op.clone()));
    for _ in 0..3 {
        assert_request_eq!(handle, op.clone()).send_error(unavailable());
    }
    ended(call).await.unwrap_err();
    assert_pending!(handle.poll_request());
}

#[tokio::test(start_paused = true)]
async fn a_backoff_sleep_holds_no_permit() {
    let retry = RetryLayer::new(policy(1, TOTAL));
    let permits = PermitsLayer::new(1, 1);
    let (mut service, mut handle) =
        mock::spawn_with(|mock| retry.layer(permits.layer(samples::typed(mock))));

    assert_ready_ok!(service.poll_ready());
    let mut failed = task::spawn(service.call(get()));
    assert_pending!(failed.poll());
    assert_request_eq!(handle, get_attempt(1)).send_error(unavailable());
    assert_pending!(failed.poll());

    // The only permit is free for another request while the first waits out its pause.
    assert_ready_ok!(service.poll_ready());
    let mut other = task::spawn(service.call(get()));
    assert_pending!(other.poll());
    let answer = assert_request_eq!(handle, get_attempt(1));

    // The first comes back, and now has to wait for the permit.
    advance(Duration::from_millis(101)).await;
    assert_pending!(failed.poll());
    assert_pending!(handle.poll_request());
    answer.send_response(fetched(b"other"));
    assert_eq!(assert_ready_ok!(other.poll()), fetched(b"other"));
    assert!(failed.is_woken());
    assert_pending!(failed.poll());
    assert_request_eq!(handle, get_attempt(2)).send_response(fetched(b"first"));
    assert_eq!(assert_ready_ok!(failed.poll()), fetched(b"first"));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_ran_out_of_time_is_repeated_with_a_time_of_its_own() {
    let retry = RetryLayer::new(policy(2, TOTAL));
    let timeout = TimeoutLayer::new(Duration::from_secs(30));
    let (mut service, mut handle) =
        mock::spawn_with(|mock| retry.layer(timeout.layer(samples::typed(mock))));
    assert_ready_ok!(service.poll_ready());
    let call = tokio::spawn(service.call(get()));
    // Each is left without an answer, until it is given up.
    let first = assert_request_eq!(handle, get_attempt(1));
    let second = assert_request_eq!(handle, get_attempt(2));
    let third = assert_request_eq!(handle, get_attempt(3));
    third.send_response(fetched(b"log"));
    assert_eq!(ended(call).await.unwrap(), fetched(b"log"));
    drop((first, second));
}

#[test]
fn the_debug_form_names_the_bounds() {
    let text = format!("{:?}", policy(3, TOTAL));
    assert!(text.contains("max_retries: 3"), "{text}");
    assert!(text.contains("180s"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn the_attempts_of_each_request_are_counted() {
    let recorder = DebuggingRecorder::new();
    let _local = metrics::set_default_local_recorder(&recorder);
    let (mut service, mut handle) = service(policy(2, TOTAL));
    for (failures, last) in [
        (2, Ok(fetched(b"log"))),
        (0, Ok(fetched(b"log"))),
        (1, Err(rejected())),
    ] {
        assert_ready_ok!(service.poll_ready());
        let mut call = task::spawn(service.call(get()));
        for _ in 0..failures {
            handle
                .next_request()
                .await
                .unwrap()
                .1
                .send_error(unavailable());
            assert_pending!(call.poll());
            advance(Duration::from_millis(201)).await;
            assert_pending!(call.poll());
        }
        let (_, answer) = handle.next_request().await.unwrap();
        match last {
            Ok(fetched) => answer.send_response(fetched),
            Err(error) => answer.send_error(error),
        }
        assert!(call.poll().is_ready());
    }
    let seen = Recorded::take(&recorder);
    let attempts = |outcome| {
        seen.value(
            "request_attempts",
            &format!("request=get,outcome={outcome}"),
        )
    };
    assert_eq!(attempts("ok"), Some(Value::Histogram(vec![3.0, 1.0])));
    assert_eq!(attempts("rejected"), Some(Value::Histogram(vec![2.0])));
}
