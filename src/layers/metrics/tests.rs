use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use metrics_util::MetricKind;
use metrics_util::debugging::DebuggingRecorder;
use tokio::time::advance;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};
use tower::{ServiceBuilder, ServiceExt as _, service_fn};
use tower_test::assert_request_eq;
use tower_test::mock::{self, Handle, Spawn};

use super::*;

use crate::index_cache::RemoteIndexCache;
use crate::layers::samples::{
    self, Recorded, Store, Value, copy, delete, fetch, fetch_index, fetched, get, get_attempt,
    receipt, unavailable,
};
use crate::layers::{
    IndexCacheLayer, PermitsLayer, RefuseDeletes, RefuseReads, RetryLayer, RetryPolicy,
};
use crate::layout::REMOTE_INDEX_CACHE_DIR;
use crate::model::{CopyReceipt, IndexType};
use crate::ops::{CopySegment, FetchIndex, FetchSegment, Fetched, Get};

type Driven = Spawn<Metrics<Store<CopySegment, CopyReceipt>>>;

fn copier() -> (CopiesInFlight, Driven, Handle<CopySegment, CopyReceipt>) {
    let copies = CopiesInFlight::default();
    let layer = MetricsLayer::with_copies(copies.clone());
    let (service, handle) = mock::spawn_with(move |mock| layer.layer(samples::typed(mock)));
    (copies, service, handle)
}

/// Metrics that leave the copies of other tests alone.
fn layer() -> MetricsLayer {
    MetricsLayer::with_copies(CopiesInFlight::default())
}

#[tokio::test]
async fn answers_and_errors_are_passed_through() {
    let (_, mut service, mut handle) = copier();
    let op = copy();
    assert_ready_ok!(service.poll_ready());
    let mut call = task::spawn(service.call(op.clone()));
    assert_request_eq!(handle, op.clone()).send_response(receipt());
    assert_eq!(assert_ready_ok!(call.poll()), receipt());

    assert_ready_ok!(service.poll_ready());
    let mut call = task::spawn(service.call(op.clone()));
    assert_request_eq!(handle, op).send_error(unavailable());
    assert_eq!(assert_ready_err!(call.poll()).status(), Some(503));
}

#[tokio::test]
async fn it_is_ready_when_the_service_below_is() {
    let (_, mut service, mut handle) = copier();
    handle.allow(0);
    assert_pending!(service.poll_ready());
    handle.allow(1);
    assert_ready_ok!(service.poll_ready());
}

#[tokio::test(start_paused = true)]
async fn an_operation_is_one_sample_with_its_outcome_and_a_success_counts_its_bytes() {
    let recorder = DebuggingRecorder::new();
    let _local = ::metrics::set_default_local_recorder(&recorder);
    let (_, mut service, mut handle) = copier();
    for (seconds, succeeds) in [(2, true), (3, false), (4, true)] {
        assert_ready_ok!(service.poll_ready());
        let mut call = task::spawn(service.call(copy()));
        advance(Duration::from_secs(seconds)).await;
        let (_, answer) = handle.next_request().await.unwrap();
        if succeeds {
            answer.send_response(receipt());
        } else {
            answer.send_error(unavailable());
        }
        assert!(call.poll().is_ready());
    }
    let seen = Recorded::take(&recorder);
    let duration = |outcome| {
        let labels = format!("operation=copy_segment,outcome={outcome}");
        seen.value("operation_duration_seconds", &labels)
    };
    assert_eq!(duration("ok"), Some(Value::Histogram(vec![2.0, 4.0])));
    assert_eq!(duration("unavailable"), Some(Value::Histogram(vec![3.0])));
    assert_eq!(
        seen.value("bytes_total", "operation=copy_segment,direction=write"),
        Some(Value::Counter(20))
    );
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_is_one_sample_too_polled_or_not() {
    let recorder = DebuggingRecorder::new();
    let _local = ::metrics::set_default_local_recorder(&recorder);
    let (_, mut service, mut handle) = copier();
    assert_ready_ok!(service.poll_ready());
    drop(service.call(copy()));
    handle.next_request().await.unwrap();

    assert_ready_ok!(service.poll_ready());
    let mut call = task::spawn(service.call(copy()));
    assert_pending!(call.poll());
    advance(Duration::from_secs(1)).await;
    drop(call);
    let seen = Recorded::take(&recorder);
    assert_eq!(
        seen.value(
            "operation_duration_seconds",
            "operation=copy_segment,outcome=cancelled"
        ),
        Some(Value::Histogram(vec![0.0, 1.0]))
    );
    assert_eq!(
        seen.value("in_flight", "operation=copy_segment"),
        Some(Value::Gauge(0.0))
    );
}

#[tokio::test]
async fn clones_count_their_operations_in_flight_together() {
    let recorder = DebuggingRecorder::new();
    let _local = ::metrics::set_default_local_recorder(&recorder);
    let change = || Recorded::take(&recorder).value("in_flight", "operation=copy_segment");
    let (_, service, mut handle) = copier();
    let (mut first, mut second) = (service.clone(), service);
    assert_ready_ok!(first.poll_ready());
    assert_ready_ok!(second.poll_ready());
    let mut answered = task::spawn(first.call(copy()));
    let dropped = task::spawn(second.call(copy()));
    assert_eq!(change(), Some(Value::Gauge(2.0)));
    let (_, answer) = handle.next_request().await.unwrap();
    answer.send_response(receipt());
    assert_ready_ok!(answered.poll());
    assert_eq!(change(), Some(Value::Gauge(-1.0)));
    drop(dropped);
    assert_eq!(change(), Some(Value::Gauge(-1.0)));
}

#[tokio::test(start_paused = true)]
async fn inside_the_retry_each_attempt_is_a_request() {
    let recorder = DebuggingRecorder::new();
    let _local = ::metrics::set_default_local_recorder(&recorder);
    let retry = RetryLayer::new(RetryPolicy::new(5, Duration::from_mins(3)).jitter(|| 1.0));
    let (mut service, mut handle) =
        mock::spawn_with(|mock| retry.layer(layer().layer(samples::typed(mock))));
    assert_ready_ok!(service.poll_ready());
    let mut call = task::spawn(service.call(get()));
    for attempt in 1..=2 {
        let answer = assert_request_eq!(handle, get_attempt(attempt));
        advance(Duration::from_secs(1)).await;
        answer.send_error(unavailable());
        assert_pending!(call.poll());
        // The pause is in no sample.
        advance(Duration::from_millis(201)).await;
        assert_pending!(call.poll());
    }
    let answer = assert_request_eq!(handle, get_attempt(3));
    answer.send_response(fetched(b"log"));
    assert_ready_ok!(call.poll());

    let seen = Recorded::take(&recorder);
    let value = |name, outcome| seen.value(name, &format!("request=get,outcome={outcome}"));
    assert_eq!(
        value("requests_total", "unavailable"),
        Some(Value::Counter(2))
    );
    assert_eq!(value("requests_total", "ok"), Some(Value::Counter(1)));
    assert_eq!(
        value("request_duration_seconds", "unavailable"),
        Some(Value::Histogram(vec![1.0, 1.0]))
    );
    assert_eq!(
        value("request_duration_seconds", "ok"),
        Some(Value::Histogram(vec![0.0]))
    );
    assert_eq!(
        value("request_attempts", "ok"),
        Some(Value::Histogram(vec![3.0]))
    );
}

#[tokio::test(start_paused = true)]
async fn the_age_is_that_of_the_oldest_copy_whatever_the_order_of_their_ends() {
    let recorder = DebuggingRecorder::new();
    let _local = ::metrics::set_default_local_recorder(&recorder);
    let age = || Recorded::take(&recorder).value("oldest_copy_age_seconds", "");
    let (copies, mut service, _handle) = copier();
    assert_eq!(copies.oldest_age(), None);

    let mut calls = Vec::new();
    for _ in 0..3 {
        assert_ready_ok!(service.poll_ready());
        calls.push(service.call(copy()));
        advance(Duration::from_secs(10)).await;
    }
    // Set when the third began.
    assert_eq!(age(), Some(Value::Gauge(20.0)));
    copies.refresh();
    assert_eq!(age(), Some(Value::Gauge(30.0)));
    assert_eq!(copies.oldest_age(), Some(Duration::from_secs(30)));

    drop(calls.remove(1));
    assert_eq!(age(), Some(Value::Gauge(30.0)));
    drop(calls.remove(0));
    assert_eq!(age(), Some(Value::Gauge(10.0)));
    drop(calls);
    assert_eq!(age(), Some(Value::Gauge(0.0)));
    copies.refresh();
    assert_eq!(age(), Some(Value::Gauge(0.0)));
    assert_eq!(copies.oldest_age(), None);
}

#[tokio::test]
async fn other_operations_are_no_copies() {
    let copies = CopiesInFlight::default();
    let mut service =
        MetricsLayer::with_copies(copies.clone()).layer(service_fn(|_: FetchSegment| {
            std::future::pending::<Result<Bytes, RemoteStorageError>>()
        }));
    let _running = Service::call(&mut service, fetch());
    assert_eq!(copies.oldest_age(), None);
}

#[tokio::test]
async fn the_copies_of_a_process_are_those_of_every_handle() {
    let mut service = MetricsLayer::default().layer(service_fn(|_: CopySegment| {
        std::future::pending::<Result<CopyReceipt, RemoteStorageError>>()
    }));
    let _running = Service::call(&mut service, copy());
    assert!(CopiesInFlight::of_process().oldest_age().is_some());
}

/// Name, kind, label names and unit of a metric.
type Row = (String, String, Vec<String>, String);

/// The table in the docs of this module.
fn documented() -> BTreeSet<Row> {
    let cells = |line: &str| -> Vec<String> {
        line.split('|')
            .map(|cell| cell.trim().replace('`', ""))
            .collect()
    };
    include_str!("../metrics.rs")
        .lines()
        .filter(|line| line.starts_with("//! | `krabka_remote_storage_"))
        .map(cells)
        .map(|cells| {
            let labels = cells[3].split(", ").filter(|label| !label.is_empty());
            let labels = labels.map(str::to_owned).collect();
            (cells[1].clone(), cells[2].clone(), labels, cells[4].clone())
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn the_table_in_the_docs_is_what_both_floors_emit_and_describe() {
    let recorder = DebuggingRecorder::new();
    let _local = ::metrics::set_default_local_recorder(&recorder);
    describe_metrics();

    let permits = PermitsLayer::new(2, 2);
    let store = ServiceBuilder::new()
        .layer(RetryLayer::new(RetryPolicy::new(1, Duration::from_mins(3))))
        .layer(layer())
        .layer(permits)
        .service(service_fn(|get: Get| async move {
            match get.target.attempt {
                1 => Err(unavailable()),
                _ => Ok::<Fetched, _>(fetched(b"log")),
            }
        }));
    let fetcher = layer().layer(service_fn(move |_: FetchSegment| {
        let get = store.clone().oneshot(get());
        async move { Ok(get.await?.bytes) }
    }));
    fetcher.oneshot(fetch()).await.unwrap();
    let copier = layer().layer(service_fn(|_: CopySegment| async { Ok(receipt()) }));
    copier.oneshot(copy()).await.unwrap();
    let deleter = layer().layer(RefuseDeletes::new(|_| String::new()));
    deleter.oneshot(delete()).await.unwrap_err();
    let indexes = layer().layer(RefuseReads::new());
    indexes.oneshot(fetch_index()).await.unwrap_err();
    use_index_cache().await;

    let emitted: BTreeSet<Row> = recorder
        .snapshotter()
        .snapshot()
        .into_vec()
        .into_iter()
        .map(|(key, unit, description, _)| {
            let kind = match key.kind() {
                MetricKind::Counter => "counter",
                MetricKind::Gauge => "gauge",
                MetricKind::Histogram => "histogram",
            };
            let labels = key.key().labels().map(|label| label.key().to_owned());
            assert!(description.is_some(), "{key:?} is described");
            (
                key.key().name().to_owned(),
                kind.to_owned(),
                labels.collect(),
                unit.expect("described").as_str().to_owned(),
            )
        })
        .collect();
    assert_eq!(emitted, documented());
    assert_eq!(emitted.len(), 16);
}

/// A miss, a hit, a file that cannot be read, an eviction.
async fn use_index_cache() {
    let dir = tempfile::tempdir().unwrap();
    let cache = RemoteIndexCache::new(dir.path(), 32).unwrap();
    let service = IndexCacheLayer::new(cache).layer(service_fn(|op: FetchIndex| async move {
        Ok(match op.index {
            IndexType::Offset => Bytes::from_static(&[0; 8]),
            _ => Bytes::new(),
        })
    }));
    let fetch = |index| {
        let service = service.clone();
        service.oneshot(FetchIndex::new(samples::metadata(), index))
    };
    fetch(IndexType::Offset).await.unwrap();
    fetch(IndexType::Offset).await.unwrap();
    let files = std::fs::read_dir(dir.path().join(REMOTE_INDEX_CACHE_DIR)).unwrap();
    for file in files {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    fetch(IndexType::Offset).await.unwrap();
    fetch(IndexType::Timestamp).await.unwrap();
}

#[test]
fn the_values_of_labels_in_the_docs_are_those_that_exist() {
    let documented: BTreeMap<&str, BTreeSet<&str>> = include_str!("../metrics.rs")
        .lines()
        .skip_while(|line| *line != "//! | Label | Values |")
        .filter_map(|line| line.strip_prefix("//! | `"))
        .map(|row| {
            let (label, values) = row.split_once("` | ").unwrap();
            // Words in backquotes stand at the odd places.
            let values = values.split('`').skip(1).step_by(2);
            (
                label,
                values.filter(|value| !value.contains("::")).collect(),
            )
        })
        .collect();
    let (requests, operations): (Vec<OpKind>, Vec<OpKind>) =
        OpKind::ALL.iter().partition(|kind| kind.is_store_request());
    let names = |kinds: Vec<OpKind>| kinds.into_iter().map(OpKind::as_str).collect();
    let expected = BTreeMap::from([
        ("operation", names(operations)),
        ("request", names(requests)),
        ("index", ["offset", "timestamp", "transaction"].into()),
        (
            "outcome",
            Outcome::ALL
                .into_iter()
                .map(Outcome::as_str)
                .chain(["ErrorKind"])
                .collect(),
        ),
        ("direction", BTreeSet::from(["read", "write"])),
    ]);
    assert_eq!(documented, expected);
}
