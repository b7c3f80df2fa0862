//! Where the logs of a tier end, read from the logs themselves, and what follows from it.
//!
//! A listing tells where a segment begins. Its last offset is in its last batch, which two small
//! requests find: the last entry of the offset index, then the batches from there to the end.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use krabka_remote_storage::index::{BatchHeader, Batches, OffsetIndexEntry, corrupt_log};
use krabka_remote_storage::model::IndexType;
use krabka_remote_storage::ops::{ByteRange, Get, StoreTarget};
use krabka_remote_storage::{ErrorKind, FetchSegment, RemoteStorage, RemoteStorageError};
use uuid::Uuid;
use zerocopy::FromBytes as _;

use crate::tier::TierSegment;

/// How much of a log's end is fetched at once. Behind the last entry of an index there are mostly
/// fewer bytes than this.
const STEP_BYTES: u64 = 64 * 1024;

/// The last batch of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogEnd {
    pub(crate) last_offset: i64,
    /// The epoch of the leader that appended it; −1 when unknown.
    pub(crate) leader_epoch: i32,
}

/// Finds the last batch of a complete segment's log; `None` of a log without batches.
pub(crate) async fn log_end(
    storage: &RemoteStorage,
    segment: &TierSegment,
) -> Result<Option<LogEnd>, RemoteStorageError> {
    let size = segment.log_size().unwrap_or_default();
    let indexed = last_indexed_position(storage, segment).await?;
    match log_end_from(storage, segment, indexed, size).await {
        // An index that does not fit its log.
        Ok(None) if indexed > 0 => log_end_from(storage, segment, 0, size).await,
        Err(error) if indexed > 0 && error.kind() == ErrorKind::Corrupt => {
            log_end_from(storage, segment, 0, size).await
        }
        end => end,
    }
}

/// Walks the batches from a position on, where one begins.
async fn log_end_from(
    storage: &RemoteStorage,
    segment: &TierSegment,
    mut position: u64,
    size: u64,
) -> Result<Option<LogEnd>, RemoteStorageError> {
    let mut end = None;
    while position < size {
        let until = (position + STEP_BYTES).min(size);
        let bytes = fetch_log(storage, segment, position, until).await?;
        let mut batches = Batches::new(&bytes);
        for batch in batches.by_ref() {
            let batch = batch?;
            end = Some(LogEnd {
                last_offset: batch.last_offset()?,
                leader_epoch: batch
                    .header()
                    .map_or(-1, BatchHeader::partition_leader_epoch),
            });
        }
        position += batches.position() as u64;
        if position == size || batches.position() > 0 {
            continue;
        }
        // A batch of more than a step: its header is enough, and the next begins behind it.
        let (header, _) = BatchHeader::ref_from_prefix(&bytes)
            .map_err(|_| corrupt_log(format_args!("the log ends within a batch at {position}")))?;
        end = Some(LogEnd {
            last_offset: header.last_offset()?,
            leader_epoch: header.partition_leader_epoch(),
        });
        position += batch_size(&bytes)?;
        if position > size {
            return Err(corrupt_log("the log ends within its last batch"));
        }
    }
    Ok(end)
}

fn batch_size(bytes: &[u8]) -> Result<u64, RemoteStorageError> {
    use krabka_remote_storage::index::BatchPrefix;
    let prefix = BatchPrefix::read(bytes)?.ok_or_else(|| corrupt_log("a batch is cut off"))?;
    Ok(prefix.size as u64)
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
    let request = Get {
        target: StoreTarget::of_segment(index.key.clone(), segment.handle.clone()),
        range: ByteRange::Bounded(last..last + ENTRY),
    };
    let fetched = storage.store().send(request).await?;
    let entry = OffsetIndexEntry::read_from_bytes(&fetched.bytes)
        .map_err(|_| corrupt_log("the offset index was cut while it was read"))?;
    Ok(entry.position.get().into())
}

/// The bytes `from..until` of a log, both positions within it.
pub(crate) async fn fetch_log(
    storage: &RemoteStorage,
    segment: &TierSegment,
    from: u64,
    until: u64,
) -> Result<bytes::Bytes, RemoteStorageError> {
    let in_log = |position: u64| {
        u32::try_from(position)
            .map_err(|_| corrupt_log(format_args!("position {position} is beyond any segment")))
    };
    let request = FetchSegment::new(
        segment.handle.clone(),
        in_log(from)?,
        Some(in_log(until - 1)?),
    );
    storage.fetch(request).await
}

/// Whether an error is about one segment, and others may be whole.
pub(crate) fn is_damage(error: &RemoteStorageError) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound)
}

/// A complete segment with its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended<'a> {
    pub(crate) segment: &'a TierSegment,
    pub(crate) end: LogEnd,
}

impl Ended<'_> {
    pub(crate) fn offsets(&self) -> RangeInclusive<i64> {
        self.segment.base_offset()..=self.end.last_offset
    }

    /// The order in which copies count: a later one replaces what it covers.
    fn rank(&self) -> (i32, i64, Uuid) {
        let written = self
            .segment
            .listed
            .log()
            .map_or(-1, |log| log.last_modified_ms);
        (self.end.leader_epoch, written, self.segment.listed.id.id)
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
            .filter(|(_, other): &(_, &Ended<'_>)| other.end.last_offset <= segment.end.last_offset)
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
    fn segments(rows: &[(i64, i64, i32, u64)]) -> Vec<(TierSegment, LogEnd)> {
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
                let listing = Listing {
                    objects: vec![log],
                    prefixes: Vec::new(),
                };
                let segment = in_listing(&tp, &listing).unwrap().remove(0);
                (
                    segment,
                    LogEnd {
                        last_offset,
                        leader_epoch,
                    },
                )
            })
            .collect()
    }

    fn ended(segments: &[(TierSegment, LogEnd)]) -> Vec<Ended<'_>> {
        segments
            .iter()
            .map(|(segment, end)| Ended { segment, end: *end })
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
