//! Where the logs of a tier end, read from the logs themselves, and what follows from it.
//!
//! A listing tells where a segment begins. Its last offset is in its last batch, which two small
//! requests find: the last entry of the offset index, then the batches from there to the end.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use krabka_remote_storage::index::{OffsetIndexEntry, corrupt_log};
use krabka_remote_storage::model::{IndexType, LeaderEpoch};
use krabka_remote_storage::ops::{ByteRange, Get, StoreTarget};
use krabka_remote_storage::rebuild::LogEnd;
use krabka_remote_storage::{ErrorKind, RemoteStorage, RemoteStorageError};
use uuid::Uuid;
use zerocopy::FromBytes as _;

use crate::rebuilt::rebuilder;
use crate::tier::TierSegment;

/// Finds the last batch of a complete segment's log; `None` of a log without batches.
pub(crate) async fn log_end(
    storage: &RemoteStorage,
    segment: &TierSegment,
) -> Result<Option<LogEnd>, RemoteStorageError> {
    let indexed = last_indexed_position(storage, segment).await?;
    let end = rebuilder(storage).log_end(&segment.listed, indexed).await?;
    match end {
        Some(LogEnd { last_offset, .. }) if last_offset < segment.base_offset() => {
            Err(corrupt_log(format_args!(
                "the log ends at offset {last_offset}, before its segment begins"
            )))
        }
        end => Ok(end),
    }
}

/// Where the batch of the last index entry begins; 0 without an entry.
async fn last_indexed_position(
    storage: &RemoteStorage,
    segment: &TierSegment,
) -> Result<u64, RemoteStorageError> {
    const ENTRY: u64 = size_of::<OffsetIndexEntry>() as u64;
    let Some(index) = segment.listed.object(IndexType::Offset.suffix()) else {
        return Err(corrupt_log(
            "the offset index of its segment is not in the tier",
        ));
    };
    let entries = index.size / ENTRY;
    if entries == 0 {
        return Ok(0);
    }
    let last = (entries - 1) * ENTRY;
    let request = Get::new(
        StoreTarget::of_segment(index.key.clone(), segment.handle.clone()),
        ByteRange::Bounded(last..last + ENTRY),
    );
    let fetched = storage.send(request).await?;
    let entry = OffsetIndexEntry::read_from_bytes(&fetched.bytes)
        .map_err(|_| corrupt_log("the offset index was cut while it was read"))?;
    Ok(entry.position.get().into())
}

/// Whether an error is about one segment, and others may be whole.
pub(crate) fn is_damage(error: &RemoteStorageError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound | ErrorKind::Corrupt | ErrorKind::Invalid
    )
}

/// A complete segment with its last offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended<'a> {
    pub(crate) segment: &'a TierSegment,
    pub(crate) last_offset: i64,
    /// The highest leader epoch in it.
    pub(crate) leader_epoch: Option<LeaderEpoch>,
}

impl Ended<'_> {
    pub(crate) fn offsets(&self) -> RangeInclusive<i64> {
        self.segment.base_offset()..=self.last_offset
    }

    /// The order in which copies count: a later one replaces what it covers.
    fn rank(&self) -> (Option<LeaderEpoch>, i64, Uuid) {
        let written = self
            .segment
            .listed
            .log()
            .map_or(-1, |log| log.last_modified_ms);
        (self.leader_epoch, written, self.segment.listed.id.id)
    }
}

/// The segments that answer, by base offset.
///
/// As if they had finished in the order of their highest leader epoch, the time of their log, and
/// their id, and each had replaced those before it that it covers whole.
pub(crate) fn answering<'a>(segments: &[Ended<'a>]) -> BTreeMap<i64, Ended<'a>> {
    let mut in_order = segments.to_vec();
    in_order.sort_by_key(Ended::rank);
    let mut answering = BTreeMap::new();
    for segment in in_order {
        let covered: Vec<i64> = answering
            .range(segment.offsets())
            .filter(|(_, other): &(_, &Ended<'_>)| other.last_offset <= segment.last_offset)
            .map(|(base, _)| *base)
            .collect();
        for base in covered {
            answering.remove(&base);
        }
        answering.insert(segment.segment.base_offset(), segment);
    }
    answering
}

/// The offsets between the first and the last that are in no segment.
pub(crate) fn gaps(segments: &[Ended<'_>]) -> Vec<RangeInclusive<i64>> {
    let ranges: BTreeSet<(i64, i64)> = segments
        .iter()
        .map(|segment| segment.offsets().into_inner())
        .collect();
    let mut gaps = Vec::new();
    let mut covered: Option<i64> = None;
    for (first, last) in ranges {
        if let Some(covered) = covered
            && first - 1 > covered
        {
            gaps.push(covered + 1..=first - 1);
        }
        covered = covered.max(Some(last));
    }
    gaps
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use krabka_remote_storage::model::{TopicIdPartition, kafka_uuid};
    use krabka_remote_storage::ops::Listing;
    use object_store::ObjectMeta;
    use object_store::path::Path;

    use super::*;
    use crate::tier::in_listing;

    /// Segments with these first and last offsets, leader epochs and times of the log.
    fn segments(rows: &[(i64, i64, i32, u64)]) -> Vec<(TierSegment, i64, LeaderEpoch)> {
        let tp = TopicIdPartition::new(Uuid::from_u128(1), "orders", 0);
        rows.iter()
            .zip(1..)
            .map(|(&(first, last_offset, leader_epoch, seconds), id)| {
                let id = kafka_uuid(Uuid::from_u128(id));
                let time = UNIX_EPOCH + Duration::from_secs(seconds);
                let log = ObjectMeta {
                    location: Path::from(format!("{first:020}-{id}.log")),
                    last_modified: time.into(),
                    size: 1,
                    e_tag: None,
                    version: None,
                };
                let listing = Listing::new(vec![log], Vec::new());
                let segment = in_listing(&tp, &listing).unwrap().remove(0);
                (segment, last_offset, LeaderEpoch(leader_epoch))
            })
            .collect()
    }

    fn ended(segments: &[(TierSegment, i64, LeaderEpoch)]) -> Vec<Ended<'_>> {
        segments
            .iter()
            .map(|(segment, last_offset, leader_epoch)| Ended {
                segment,
                last_offset: *last_offset,
                leader_epoch: Some(*leader_epoch),
            })
            .collect()
    }

    #[test]
    fn a_later_leader_counts_more_than_a_later_time_and_that_more_than_an_id() {
        for (rows, expected) in [
            ([(0, 9, 2, 5), (0, 9, 1, 9)], 1),
            ([(0, 9, 1, 5), (0, 9, 1, 9)], 2),
            ([(0, 9, 1, 5), (0, 9, 1, 5)], 2),
        ] {
            let segments = segments(&rows);
            let answering = answering(&ended(&segments));
            assert_eq!(answering.len(), 1);
            let id = answering[&0].segment.listed.id.id;
            assert_eq!(id, Uuid::from_u128(expected), "{rows:?}");
        }
    }

    #[test]
    fn only_what_is_covered_whole_is_replaced() {
        let segments = segments(&[(0, 9, 0, 0), (10, 19, 0, 0), (20, 29, 0, 0), (5, 25, 1, 0)]);
        let answering = answering(&ended(&segments));
        assert_eq!(answering.keys().copied().collect::<Vec<_>>(), [0, 5, 20]);
    }

    #[test]
    fn gaps_are_what_no_segment_holds() {
        let segments = segments(&[
            (5, 9, 0, 0),
            (8, 14, 0, 0),
            (6, 7, 0, 0),
            (20, 20, 0, 0),
            (21, 30, 0, 0),
        ]);
        assert_eq!(gaps(&ended(&segments)), [15..=19]);
        assert_eq!(gaps(&[]), []);
    }
}
