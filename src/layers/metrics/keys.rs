//! The name and the labels of every metric, made at compile time.
//!
//! A key is a constant, so recording a sample allocates nothing of ours. It is looked up in the
//! recorder at each use, so a recorder that is installed after a stack was built is found.

use std::marker::PhantomData;

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Unit};

use crate::index_cache;
use crate::layers::outcome::Outcome;
use crate::metadata::topic;
use crate::model::OpKind;
use crate::ops::StorageOp;

const OPERATION_DURATION_SECONDS: &str = "krabka_remote_storage_operation_duration_seconds";
const IN_FLIGHT: &str = "krabka_remote_storage_in_flight";
const BYTES_TOTAL: &str = "krabka_remote_storage_bytes_total";
const OLDEST_COPY_AGE_SECONDS: &str = "krabka_remote_storage_oldest_copy_age_seconds";
const REFUSED_TOTAL: &str = "krabka_remote_storage_refused_total";
const REQUESTS_TOTAL: &str = "krabka_remote_storage_requests_total";
const REQUEST_DURATION_SECONDS: &str = "krabka_remote_storage_request_duration_seconds";
const REQUEST_ATTEMPTS: &str = "krabka_remote_storage_request_attempts";
const PERMIT_WAIT_SECONDS: &str = "krabka_remote_storage_permit_wait_seconds";
const REQUESTS_IN_FLIGHT: &str = "krabka_remote_storage_requests_in_flight";
// Names of the archive as auditors' dashboards know them, without the crate's prefix.
const MANIFESTS_SEALED_TOTAL: &str = "worm_manifests_sealed_total";
const MANIFEST_SEAL_FAILURES_TOTAL: &str = "worm_manifest_seal_failures_total";

/// Tells the recorder the unit and the meaning of each metric.
///
/// Call it once, when the recorder is installed; exporters show the texts beside the values.
pub fn describe_metrics() {
    metrics::describe_histogram!(
        OPERATION_DURATION_SECONDS,
        Unit::Seconds,
        "How long segment operations took, as their callers saw it."
    );
    metrics::describe_gauge!(
        IN_FLIGHT,
        Unit::Count,
        "Segment operations that have begun and not ended."
    );
    metrics::describe_counter!(
        BYTES_TOTAL,
        Unit::Bytes,
        "Object content that successful segment operations moved."
    );
    metrics::describe_gauge!(
        OLDEST_COPY_AGE_SECONDS,
        Unit::Seconds,
        "For how long the oldest copy in flight has run; 0 when there is none."
    );
    metrics::describe_counter!(
        REFUSED_TOTAL,
        Unit::Count,
        "Segment operations that the configuration forbids."
    );
    metrics::describe_counter!(
        REQUESTS_TOTAL,
        Unit::Count,
        "Requests to the store, each attempt counted."
    );
    metrics::describe_histogram!(
        REQUEST_DURATION_SECONDS,
        Unit::Seconds,
        "How long single attempts of store requests took, the wait for a permit included."
    );
    metrics::describe_histogram!(
        REQUEST_ATTEMPTS,
        Unit::Count,
        "Attempts that a store request took until it was answered for good."
    );
    metrics::describe_histogram!(
        PERMIT_WAIT_SECONDS,
        Unit::Seconds,
        "How long attempts of store requests waited for a permit."
    );
    metrics::describe_gauge!(
        REQUESTS_IN_FLIGHT,
        Unit::Count,
        "Store requests that hold a permit."
    );
    index_cache::describe_metrics();
    metrics::describe_counter!(
        MANIFESTS_SEALED_TOTAL,
        Unit::Count,
        "Manifests of a write-once archive that were stored."
    );
    metrics::describe_counter!(
        MANIFEST_SEAL_FAILURES_TOTAL,
        Unit::Count,
        "Sealed copies that failed at the archive's own part."
    );
    topic::describe_metrics();
}

/// Which way bytes go, and which permits a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::layers) enum Direction {
    /// From the store.
    Read,
    /// To the store.
    Write,
}

impl Direction {
    pub(in crate::layers) const fn of(kind: OpKind) -> Self {
        if kind.is_write() {
            Self::Write
        } else {
            Self::Read
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

pub(in crate::layers) fn operation_duration<Op: StorageOp>(outcome: Outcome) -> Histogram {
    histogram(&Operation::<Op>::DURATION[outcome.index()])
}

pub(in crate::layers) fn in_flight<Op: StorageOp>() -> Gauge {
    gauge(Operation::<Op>::IN_FLIGHT)
}

pub(in crate::layers) fn bytes<Op: StorageOp>() -> Counter {
    counter(Operation::<Op>::BYTES)
}

pub(in crate::layers) fn oldest_copy_age() -> Gauge {
    static KEY: Key = Key::from_static_name(OLDEST_COPY_AGE_SECONDS);
    gauge(&KEY)
}

pub(in crate::layers) fn refused<Op: StorageOp>() -> Counter {
    counter(Operation::<Op>::REFUSED)
}

pub(in crate::layers) fn requests<Op: StorageOp>(outcome: Outcome) -> Counter {
    counter(&Request::<Op>::COUNT[outcome.index()])
}

pub(in crate::layers) fn request_duration<Op: StorageOp>(outcome: Outcome) -> Histogram {
    histogram(&Request::<Op>::DURATION[outcome.index()])
}

pub(in crate::layers) fn request_attempts<Op: StorageOp>(outcome: Outcome) -> Histogram {
    histogram(&Request::<Op>::ATTEMPTS[outcome.index()])
}

pub(in crate::layers) fn permit_wait(direction: Direction) -> Histogram {
    static KEYS: [Key; 2] = by_direction(PERMIT_WAIT_SECONDS);
    histogram(&KEYS[direction as usize])
}

pub(in crate::layers) fn requests_in_flight(direction: Direction) -> Gauge {
    static KEYS: [Key; 2] = by_direction(REQUESTS_IN_FLIGHT);
    gauge(&KEYS[direction as usize])
}

pub(in crate::layers) fn manifests_sealed() -> Counter {
    static KEY: Key = Key::from_static_name(MANIFESTS_SEALED_TOTAL);
    counter(&KEY)
}

pub(in crate::layers) fn manifest_seal_failures() -> Counter {
    static KEY: Key = Key::from_static_name(MANIFEST_SEAL_FAILURES_TOTAL);
    counter(&KEY)
}

static METADATA: Metadata<'_> = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

fn histogram(key: &Key) -> Histogram {
    metrics::with_recorder(|recorder| recorder.register_histogram(key, &METADATA))
}

fn gauge(key: &Key) -> Gauge {
    metrics::with_recorder(|recorder| recorder.register_gauge(key, &METADATA))
}

fn counter(key: &Key) -> Counter {
    metrics::with_recorder(|recorder| recorder.register_counter(key, &METADATA))
}

const fn direction_label(direction: Direction) -> Label {
    Label::from_static_parts("direction", direction.as_str())
}

/// Keys of the two directions, each at its place in the enum.
const fn by_direction(name: &'static str) -> [Key; 2] {
    static READ: [Label; 1] = [direction_label(Direction::Read)];
    static WRITE: [Label; 1] = [direction_label(Direction::Write)];
    [
        Key::from_static_parts(name, &READ),
        Key::from_static_parts(name, &WRITE),
    ]
}

/// An array with one entry per outcome, made from the outcome's index.
macro_rules! per_outcome {
    ($index:ident => $entry:expr) => {
        per_outcome!($index => $entry; 0 1 2 3 4 5 6 7 8 9 10 11 12 13)
    };
    ($index:ident => $entry:expr; $($value:literal)*) => {
        [$({
            const $index: usize = $value;
            $entry
        }),*]
    };
}

const OUTCOMES: usize = Outcome::ALL.len();

const fn outcome_label(index: usize) -> Label {
    Label::from_static_parts("outcome", Outcome::ALL[index].as_str())
}

/// The keys of one segment operation.
struct Operation<Op>(PhantomData<Op>);

impl<Op: StorageOp> Operation<Op> {
    const NAME: Label = Label::from_static_parts("operation", Op::KIND.as_str());

    const LABELS: &'static [Label; 1] = &[Self::NAME];
    const IN_FLIGHT: &'static Key = &Key::from_static_parts(IN_FLIGHT, Self::LABELS);
    const REFUSED: &'static Key = &Key::from_static_parts(REFUSED_TOTAL, Self::LABELS);

    const BYTES_LABELS: &'static [Label; 2] =
        &[Self::NAME, direction_label(Direction::of(Op::KIND))];
    const BYTES: &'static Key = &Key::from_static_parts(BYTES_TOTAL, Self::BYTES_LABELS);

    const OUTCOME_LABELS: &'static [[Label; 2]; OUTCOMES] =
        &per_outcome!(I => [Self::NAME, outcome_label(I)]);
    const DURATION: &'static [Key; OUTCOMES] = &per_outcome!(
        I => Key::from_static_parts(OPERATION_DURATION_SECONDS, &Self::OUTCOME_LABELS[I])
    );
}

/// The keys of one kind of store request.
struct Request<Op>(PhantomData<Op>);

impl<Op: StorageOp> Request<Op> {
    const LABELS: &'static [[Label; 2]; OUTCOMES] = &per_outcome!(I => [
        Label::from_static_parts("request", Op::KIND.as_str()),
        outcome_label(I),
    ]);
    const COUNT: &'static [Key; OUTCOMES] =
        &per_outcome!(I => Key::from_static_parts(REQUESTS_TOTAL, &Self::LABELS[I]));
    const DURATION: &'static [Key; OUTCOMES] =
        &per_outcome!(I => Key::from_static_parts(REQUEST_DURATION_SECONDS, &Self::LABELS[I]));
    const ATTEMPTS: &'static [Key; OUTCOMES] =
        &per_outcome!(I => Key::from_static_parts(REQUEST_ATTEMPTS, &Self::LABELS[I]));
}
