//! The name and the labels of every metric, made at compile time.
//!
//! A key is a constant, so recording a sample allocates nothing of ours. It is looked up in the
//! recorder at each use, so a recorder that is installed after a stack was built is found.

use std::marker::PhantomData;

use metrics::{Gauge, Histogram, Key, Label, Level, Metadata};

use crate::layers::outcome::Outcome;
use crate::model::OpKind;
use crate::ops::StorageOp;

const REQUEST_ATTEMPTS: &str = "krabka_remote_storage_request_attempts";
const PERMIT_WAIT_SECONDS: &str = "krabka_remote_storage_permit_wait_seconds";
const REQUESTS_IN_FLIGHT: &str = "krabka_remote_storage_requests_in_flight";

static METADATA: Metadata<'_> = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

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

/// How many attempts a store request took until it was answered for good.
pub(in crate::layers) fn request_attempts<Op: StorageOp>(outcome: Outcome) -> Histogram {
    histogram(&Request::<Op>::ATTEMPTS[outcome.index()])
}

/// How long store requests of this direction waited for a permit.
pub(in crate::layers) fn permit_wait(direction: Direction) -> Histogram {
    static KEYS: [Key; 2] = by_direction(PERMIT_WAIT_SECONDS);
    histogram(&KEYS[direction as usize])
}

/// Store requests of this direction that hold a permit.
pub(in crate::layers) fn requests_in_flight(direction: Direction) -> Gauge {
    static KEYS: [Key; 2] = by_direction(REQUESTS_IN_FLIGHT);
    gauge(&KEYS[direction as usize])
}

fn histogram(key: &Key) -> Histogram {
    metrics::with_recorder(|recorder| recorder.register_histogram(key, &METADATA))
}

fn gauge(key: &Key) -> Gauge {
    metrics::with_recorder(|recorder| recorder.register_gauge(key, &METADATA))
}

const fn by_direction(name: &'static str) -> [Key; 2] {
    static READ: [Label; 1] = [Label::from_static_parts(
        "direction",
        Direction::Read.as_str(),
    )];
    static WRITE: [Label; 1] = [Label::from_static_parts(
        "direction",
        Direction::Write.as_str(),
    )];
    [
        Key::from_static_parts(name, &READ),
        Key::from_static_parts(name, &WRITE),
    ]
}

/// An array with one entry per outcome.
macro_rules! per_outcome {
    ($index:ident => $entry:expr) => {
        per_outcome!($index => $entry; 0 1 2 3 4 5 6 7 8 9 10 11 12)
    };
    ($index:ident => $entry:expr; $($value:literal)*) => {
        [$({
            const $index: usize = $value;
            $entry
        }),*]
    };
}

/// The keys of one kind of store request.
struct Request<Op>(PhantomData<Op>);

impl<Op: StorageOp> Request<Op> {
    const LABELS: &'static [[Label; 2]; Outcome::ALL.len()] = &per_outcome!(I => [
        Label::from_static_parts("request", Op::KIND.as_str()),
        Label::from_static_parts("outcome", Outcome::ALL[I].as_str()),
    ]);
    const ATTEMPTS: &'static [Key; Outcome::ALL.len()] =
        &per_outcome!(I => Key::from_static_parts(REQUEST_ATTEMPTS, &Self::LABELS[I]));
}
