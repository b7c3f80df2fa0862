use metrics_util::debugging::DebuggingRecorder;
use tokio::time::advance;
use tower::{Layer as _, ServiceExt as _};
use tracing::Level;

use super::*;
use crate::error::ErrorKind;
use crate::layers::samples::{Recorded, Traced, Value, delete, fetch, fetch_index};
use crate::layers::{RetryLayer, RetryPolicy};
use crate::ops::OpService;

fn deletes() -> RefuseDeletes {
    RefuseDeletes::new(|metadata| {
        let id = metadata.remote_log_segment_id();
        format!("tier/{}/x.log", id.topic_id_partition.topic)
    })
}

/// Takes any service that answers `Op`, as a stack does.
async fn answer<Op: StorageOp>(
    service: impl OpService<Op>,
    op: Op,
) -> Result<Op::Output, RemoteStorageError> {
    service.oneshot(op).await
}

#[tokio::test(start_paused = true)]
async fn a_delete_is_refused_and_the_error_names_the_key_of_the_log() {
    let error = answer(deletes(), delete()).await.unwrap_err();
    assert!(
        matches!(&error, RemoteStorageError::Worm(WormError::DeleteRefused { key })
            if key == "tier/orders/x.log"),
        "{error:?}"
    );
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(!error.is_retryable());
    assert!(error.to_string().starts_with("write-once archive: "));
}

#[tokio::test(start_paused = true)]
async fn both_fetches_are_refused() {
    let segment = answer(RefuseReads::new(), fetch()).await.unwrap_err();
    let index = answer(RefuseReads::new(), fetch_index()).await.unwrap_err();
    for error in [segment, index] {
        assert!(matches!(
            error,
            RemoteStorageError::Worm(WormError::ReadRefused)
        ));
        assert!(!error.is_retryable());
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_counted_once_even_inside_a_retry() {
    let recorder = DebuggingRecorder::new();
    let _local = ::metrics::set_default_local_recorder(&recorder);
    let retry = RetryLayer::new(RetryPolicy::new(5, Duration::from_mins(3)));
    answer(retry.layer(deletes()), delete()).await.unwrap_err();
    answer(RefuseReads::new(), fetch()).await.unwrap_err();
    answer(RefuseReads::new(), fetch()).await.unwrap_err();
    answer(RefuseReads::new(), fetch_index()).await.unwrap_err();
    let seen = Recorded::take(&recorder);
    let refused = |operation| seen.value("refused_total", &format!("operation={operation}"));
    assert_eq!(refused("delete_segment"), Some(Value::Counter(1)));
    assert_eq!(refused("fetch_segment"), Some(Value::Counter(2)));
    assert_eq!(refused("fetch_index"), Some(Value::Counter(1)));
}

#[tokio::test(start_paused = true)]
async fn clones_share_one_warning_a_minute_that_tells_how_many_were_not_logged() {
    let traced = Traced::start();
    let service = deletes();
    for _ in 0..3 {
        answer(service.clone(), delete()).await.unwrap_err();
        advance(Duration::from_secs(19)).await;
    }
    let warnings = traced.take();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(warnings[0].level, Level::WARN);
    assert_eq!(warnings[0].field("operation"), Some("delete_segment"));
    assert_eq!(warnings[0].field("unlogged"), Some("0"));
    let text = warnings[0].field("error").unwrap();
    assert!(text.contains("tier/orders/x.log"), "{text}");
    let segment = warnings[0].field("segment").unwrap();
    assert!(segment.ends_with(" of orders-0"), "{segment}");

    advance(Duration::from_secs(3)).await;
    answer(service.clone(), delete()).await.unwrap_err();
    answer(service, delete()).await.unwrap_err();
    let warnings = traced.take();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(warnings[0].field("unlogged"), Some("2"));
}

#[tokio::test(start_paused = true)]
async fn both_fetches_share_their_warnings() {
    let traced = Traced::start();
    let service = RefuseReads::new();
    answer(service.clone(), fetch()).await.unwrap_err();
    answer(service, fetch_index()).await.unwrap_err();
    assert_eq!(traced.take().len(), 1);
}

#[test]
fn a_refusal_needs_no_runtime_and_is_there_at_once() {
    let mut service = deletes();
    let refusal = Service::call(&mut service, delete());
    assert!(refusal.into_inner().is_err());
    assert_eq!(format!("{service:?}"), "RefuseDeletes { .. }");
}
