//! Requests, errors and hand-driven services for the tests of the layers.

mod traced;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use object_store::path::Path;
use tower::util::MapErr;
use tower::{BoxError, ServiceExt as _};
use tower_test::mock::Mock;

pub(super) use traced::{Entry, Traced};

use crate::error::RemoteStorageError;
use crate::model::{
    CopiedObject, CopyReceipt, IndexType, LogSegmentData, OpKind, RemoteLogSegmentMetadata,
};
use crate::ops::{
    ByteRange, CopySegment, DeleteSegment, FetchIndex, FetchSegment, Fetched, Get, StoreTarget,
};
use crate::testing::segments::{SegmentSpec, orders};

/// The key of [`get`].
pub(super) const KEY: &str = "orders-0/00000000000000000000.log";

/// A mock that fails with the crate's error.
pub(super) type Store<Op, Answer> = MapErr<Mock<Op, Answer>, fn(BoxError) -> RemoteStorageError>;

/// The error that a test sent through a mock.
pub(super) fn typed<Op: Send + 'static, Answer: Send + 'static>(
    mock: Mock<Op, Answer>,
) -> Store<Op, Answer> {
    mock.map_err(|error| *error.downcast().expect("tests send the crate's error"))
}

pub(super) fn metadata() -> Arc<RemoteLogSegmentMetadata> {
    let spec = SegmentSpec::new(9, 0..=99).of(&orders(7, 0)).size(10);
    Arc::new(spec.make())
}

pub(super) fn copy() -> CopySegment {
    let data = LogSegmentData {
        log_segment: PathBuf::from("00000000000000000000.log"),
        offset_index: PathBuf::from("00000000000000000000.index"),
        time_index: PathBuf::from("00000000000000000000.timeindex"),
        transaction_index: None,
        producer_snapshot_index: None,
        leader_epoch_index: Bytes::new(),
    };
    CopySegment::new(metadata(), data)
}

/// What a copy of ten bytes answers.
pub(super) fn receipt() -> CopyReceipt {
    CopyReceipt {
        objects: vec![CopiedObject {
            suffix: ".log",
            key: KEY.to_owned(),
            size_bytes: 10,
            sha256: None,
            e_tag: None,
            version_id: None,
            create_precondition: false,
        }],
        custom_metadata: None,
    }
}

pub(super) fn fetch() -> FetchSegment {
    FetchSegment::new(metadata(), 0, Some(9))
}

pub(super) fn fetch_index() -> FetchIndex {
    FetchIndex::new(metadata(), IndexType::Offset)
}

pub(super) fn delete() -> DeleteSegment {
    DeleteSegment::new(metadata())
}

/// The first attempt of a GET.
pub(super) fn get() -> Get {
    Get {
        target: StoreTarget::of_segment(Path::from(KEY), metadata()),
        range: ByteRange::Whole,
    }
}

/// The same GET as its attempt number `attempt`.
pub(super) fn get_attempt(attempt: u32) -> Get {
    let mut get = get();
    get.target.attempt = attempt;
    get
}

pub(super) fn fetched(bytes: &'static [u8]) -> Fetched {
    Fetched {
        bytes: Bytes::from_static(bytes),
        object_size: Some(bytes.len() as u64),
    }
}

/// A failure that may pass.
pub(super) fn unavailable() -> RemoteStorageError {
    backend(503, true)
}

/// A failure that will not.
pub(super) fn rejected() -> RemoteStorageError {
    backend(400, false)
}

pub(super) fn corrupt() -> RemoteStorageError {
    RemoteStorageError::Corrupt {
        key: KEY.to_owned(),
        reason: "3 bytes instead of 10".to_owned(),
    }
}

fn backend(status: u16, transient: bool) -> RemoteStorageError {
    RemoteStorageError::Backend {
        key: KEY.to_owned(),
        operation: OpKind::Get,
        status: Some(status),
        transient,
        reason: format!("get of `{KEY}` failed with HTTP status {status}"),
        source: None,
    }
}

/// What was recorded through `metrics` since the recorder was last looked at: a look empties it.
///
/// By name without the prefix, and labels written as `request=get,outcome=ok`.
pub(super) struct Recorded(BTreeMap<(String, String), Value>);

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Counter(u64),
    Gauge(f64),
    /// Every sample, in the order in which they were recorded.
    Histogram(Vec<f64>),
}

impl Recorded {
    pub(super) fn take(recorder: &DebuggingRecorder) -> Self {
        let metrics = recorder.snapshotter().snapshot().into_vec();
        Self(
            metrics
                .into_iter()
                .map(|(key, _, _, value)| {
                    let key = key.key();
                    let name = key
                        .name()
                        .strip_prefix("krabka_remote_storage_")
                        .expect("every name has the prefix");
                    let labels: Vec<_> = key
                        .labels()
                        .map(|label| format!("{}={}", label.key(), label.value()))
                        .collect();
                    let value = match value {
                        DebugValue::Counter(count) => Value::Counter(count),
                        DebugValue::Gauge(value) => Value::Gauge(value.into_inner()),
                        DebugValue::Histogram(samples) => {
                            Value::Histogram(samples.into_iter().map(f64::from).collect())
                        }
                    };
                    ((name.to_owned(), labels.join(",")), value)
                })
                .collect(),
        )
    }

    pub(super) fn value(&self, name: &str, labels: &str) -> Option<Value> {
        self.0.get(&(name.to_owned(), labels.to_owned())).cloned()
    }
}
