//! What may go: ranges, objects, and the local log.

use std::time::Duration;

use super::entry::WalRange;
use super::partition::WalPartition;
use super::projection::WalCaptureProjection;
use crate::index::{LogOffset, TimestampMs};

/// How much of a partition is kept. What is `None` sets no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionRules {
    /// `retention.bytes`: bytes of batches.
    pub max_bytes: Option<u64>,
    /// `retention.ms`: the age of a range's highest timestamp.
    pub max_age: Option<Duration>,
}

impl WalPartition {
    /// The ranges that retention expires at this time: the front ones, and never the last.
    ///
    /// A range goes while those up to it are too many bytes (without it there are still
    /// [`max_bytes`](RetentionRules::max_bytes) or more), while its highest timestamp is older than
    /// [`max_age`](RetentionRules::max_age), or while it lies wholly below the delete floor. A
    /// negative timestamp is unknown, which is not old. Publish a delete floor at the first offset
    /// that stays, or a capture finds a gap, and a tombstone for each that goes.
    pub fn expired(
        &self,
        rules: RetentionRules,
        now_ms: TimestampMs,
    ) -> impl Iterator<Item = &WalRange> {
        let count = self.ranges().count();
        let front = || self.ranges().take(count.saturating_sub(1));
        let by_size = rules.max_bytes.map_or(0, |max_bytes| {
            let all: u64 = self.ranges().map(bytes_of).sum();
            let mut debt = all.saturating_sub(max_bytes);
            front()
                .take_while(|range| {
                    let goes = debt >= bytes_of(range);
                    debt = debt.saturating_sub(bytes_of(range));
                    goes
                })
                .count()
        });
        let by_time = rules.max_age.map_or(0, |max_age| {
            let max_age = i64::try_from(max_age.as_millis()).unwrap_or(i64::MAX);
            let oldest = now_ms.saturating_sub(max_age);
            let is_old = |range: &&WalRange| {
                let timestamp = range.entry.max_timestamp_ms;
                timestamp >= 0 && timestamp < oldest
            };
            front().take_while(is_old).count()
        });
        let floor = self.delete_floor();
        let by_floor = front()
            .take_while(|range| range.entry.last_offset < floor)
            .count();
        self.ranges().take(by_size.max(by_time).max(by_floor))
    }
}

fn bytes_of(range: &WalRange) -> u64 {
    u64::from(range.entry.byte_len)
}

/// Whether an object may be deleted now: no range names it, and it has been idle for `grace`.
///
/// `idle_since_ms` is the later of two times: when the object was written (its ranges may not be
/// published yet), and when the last range that named it went (readers may still be at it).
pub fn may_delete_object(
    projection: &WalCaptureProjection,
    object_key: &str,
    idle_since_ms: TimestampMs,
    now_ms: TimestampMs,
    grace: Duration,
) -> bool {
    let grace = i64::try_from(grace.as_millis()).unwrap_or(i64::MAX);
    projection.references(object_key) == 0 && now_ms.saturating_sub(idle_since_ms) >= grace
}

/// Up to which offset, exclusive, the local log may be trimmed: what the projection shows in objects
/// and all replicas have had for a while.
///
/// `safety_lag` is in offsets. Trim only what the local projection shows: what was published and
/// not yet read back may be lost.
pub fn trim_target(
    frontier: LogOffset,
    high_watermark: LogOffset,
    safety_lag: LogOffset,
) -> LogOffset {
    let safe = high_watermark.saturating_sub(safety_lag.max(0));
    frontier.min(safe).max(0)
}
