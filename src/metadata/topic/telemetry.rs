//! What a topic-backed manager measures.

use metrics::{Key, Label, Level, Metadata, Unit};

const LAG: &str = "krabka_remote_storage_metadata_lag_offsets";
const APPLIED_TOTAL: &str = "krabka_remote_storage_metadata_events_applied_total";
const SKIPPED_TOTAL: &str = "krabka_remote_storage_metadata_records_skipped_total";
const PUBLISHED_TOTAL: &str = "krabka_remote_storage_metadata_publishes_total";
const RESTARTS_TOTAL: &str = "krabka_remote_storage_metadata_replay_restarts_total";
const SNAPSHOTS_TOTAL: &str = "krabka_remote_storage_metadata_snapshots_total";

/// Tells the recorder the unit and the meaning of each metric of the topic-backed manager.
pub(crate) fn describe_metrics() {
    metrics::describe_gauge!(
        LAG,
        Unit::Count,
        "Offsets that an assigned metadata partition has to replay until it is ready."
    );
    metrics::describe_counter!(
        APPLIED_TOTAL,
        Unit::Count,
        "Events of the metadata log that were applied."
    );
    metrics::describe_counter!(
        SKIPPED_TOTAL,
        Unit::Count,
        "Records of the metadata log that changed nothing, by reason."
    );
    metrics::describe_counter!(
        PUBLISHED_TOTAL,
        Unit::Count,
        "Events that callers asked to publish, by outcome."
    );
    metrics::describe_counter!(
        RESTARTS_TOTAL,
        Unit::Count,
        "Replays of a metadata partition that began at its start though some of it was known, by \
         reason."
    );
    metrics::describe_counter!(
        SNAPSHOTS_TOTAL,
        Unit::Count,
        "Snapshots that were loaded or written, by outcome."
    );
}

static METADATA: Metadata<'_> = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

fn count(name: &'static str, label: &'static str, value: &'static str, by: u64) {
    if by > 0 {
        let key = Key::from_parts(name, vec![Label::from_static_parts(label, value)]);
        metrics::with_recorder(|recorder| recorder.register_counter(&key, &METADATA)).increment(by);
    }
}

/// Why a record of the log changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SkipReason {
    /// Its value is null.
    Tombstone,
    /// Its value is no event.
    Malformed,
    /// It is about a partition whose events belong to another metadata partition.
    Misplaced,
    /// The state machine refused it.
    Refused,
}

impl SkipReason {
    pub(super) const ALL: [Self; 4] = [
        Self::Tombstone,
        Self::Malformed,
        Self::Misplaced,
        Self::Refused,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Tombstone => "tombstone",
            Self::Malformed => "malformed",
            Self::Misplaced => "misplaced",
            Self::Refused => "refused",
        }
    }
}

/// How a caller's event ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PublishOutcome {
    Applied,
    Repeated,
    Refused,
    NotReady,
    NotSent,
    Unknown,
}

impl PublishOutcome {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Repeated => "repeated",
            Self::Refused => "refused",
            Self::NotReady => "not_ready",
            Self::NotSent => "not_sent",
            Self::Unknown => "unknown",
        }
    }
}

/// Why what was known of a metadata partition is dropped and read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RestartReason {
    /// The log begins behind the position: events between were deleted.
    Trimmed,
    /// The log ends before the position: the topic was made again.
    Shorter,
    /// The position cannot be read, though it is within the marks.
    Unreadable,
}

impl RestartReason {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Trimmed => "trimmed",
            Self::Shorter => "shorter",
            Self::Unreadable => "unreadable",
        }
    }
}

/// What happened to a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SnapshotOutcome {
    Loaded,
    Rejected,
    Written,
    Failed,
}

impl SnapshotOutcome {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Loaded => "loaded",
            Self::Rejected => "rejected",
            Self::Written => "written",
            Self::Failed => "failed",
        }
    }
}

pub(super) fn applied(events: u64) {
    static KEY: Key = Key::from_static_name(APPLIED_TOTAL);
    if events > 0 {
        metrics::with_recorder(|recorder| recorder.register_counter(&KEY, &METADATA))
            .increment(events);
    }
}

pub(super) fn skipped(reason: SkipReason, records: u64) {
    count(SKIPPED_TOTAL, "reason", reason.as_str(), records);
}

pub(super) fn published(outcome: PublishOutcome) {
    count(PUBLISHED_TOTAL, "outcome", outcome.as_str(), 1);
}

pub(super) fn restarted(reason: RestartReason) {
    count(RESTARTS_TOTAL, "reason", reason.as_str(), 1);
}

pub(super) fn snapshot(outcome: SnapshotOutcome) {
    count(SNAPSHOTS_TOTAL, "outcome", outcome.as_str(), 1);
}

/// The gauge of one metadata partition's lag.
#[derive(Clone, Debug)]
pub(super) struct LagGauge(Key);

impl LagGauge {
    pub(super) fn new(partition: i32) -> Self {
        let label = Label::new("partition", partition.to_string());
        Self(Key::from_parts(LAG, vec![label]))
    }

    pub(super) fn set(&self, lag: i64) {
        metrics::with_recorder(|recorder| recorder.register_gauge(&self.0, &METADATA))
            .set(lag as f64);
    }
}
