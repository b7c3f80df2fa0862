//! The first record at or after a timestamp.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::RemoteLogReader;
use super::lineage::{Epochs, epoch_of};
use super::range::log_size;
use crate::error::RemoteStorageError;
use crate::index::{BatchPrefix, Batches, DEFAULT_MAX_DECOMPRESSED_BYTES, corrupt_log};
use crate::model::{
    IndexType, LeaderEpoch, RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition,
};
use crate::ops::OpenIndex;

/// A scan fetches this much at once.
const SCAN_BYTES: usize = 1024 * 1024;

/// A record found by its timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OffsetAndTimestamp {
    /// The record's offset.
    pub offset: i64,
    /// Its timestamp, in milliseconds since 1970-01-01 UTC.
    pub timestamp_ms: i64,
    /// The leader epoch of its batch; `None` when the batch has none.
    pub leader_epoch: Option<LeaderEpoch>,
}

impl RemoteLogReader {
    /// Finds the first record of the partition, in the order of offsets, whose offset is at or
    /// after `starting_offset` and whose timestamp is at or after `timestamp_ms`.
    ///
    /// `leader_epochs` is the partition's history, each epoch with its first offset: a broker has
    /// its own, and without (`None`) it is the one that the tier tells. Segments that do not belong
    /// to it are passed over, and so are those whose highest timestamp is lower. Control records
    /// count, as in Kafka. When a segment that qualifies has no such record after all, the search
    /// goes on with the next.
    ///
    /// # Errors
    ///
    /// Those of the metadata store and of the fetches; [`Corrupt`](crate::ErrorKind::Corrupt) for
    /// damaged batches and old message sets.
    pub async fn offset_for_timestamp(
        &self,
        partition: &TopicIdPartition,
        timestamp_ms: i64,
        starting_offset: i64,
        leader_epochs: Option<&BTreeMap<LeaderEpoch, i64>>,
    ) -> Result<Option<OffsetAndTimestamp>, RemoteStorageError> {
        let of_tier;
        let epochs = match leader_epochs {
            Some(epochs) => epochs,
            None => match self.lineage(partition).await? {
                Some(lineage) => {
                    of_tier = lineage.epochs;
                    &*of_tier
                }
                None => return Ok(None),
            },
        };
        let first_epoch = epoch_of(epochs, starting_offset)
            .or_else(|| epochs.first_key_value().map(|(epoch, _)| *epoch));
        let Some(first_epoch) = first_epoch else {
            return Ok(None);
        };
        let lineage = without_empty_epochs(epochs);
        let mut seen = HashSet::new();
        for &epoch in epochs.range(first_epoch..).map(|(epoch, _)| epoch) {
            let metadata = &self.shared.metadata;
            for segment in metadata.list_segments_by_epoch(partition, epoch).await? {
                let qualifies = segment.state() == RemoteLogSegmentState::CopySegmentFinished
                    // −1 is unknown, and not older than everything.
                    && (segment.max_timestamp_ms() >= timestamp_ms
                        || segment.max_timestamp_ms() == -1)
                    && segment.end_offset() >= starting_offset
                    && is_of_lineage(&segment, &lineage);
                if !qualifies || !seen.insert(segment.remote_log_segment_id().id) {
                    continue;
                }
                let segment = Arc::new(segment);
                let found = self
                    .scan_for_timestamp(&segment, timestamp_ms, starting_offset)
                    .await?;
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
        Ok(None)
    }

    async fn scan_for_timestamp(
        &self,
        segment: &Arc<RemoteLogSegmentMetadata>,
        timestamp_ms: i64,
        starting_offset: i64,
    ) -> Result<Option<OffsetAndTimestamp>, RemoteStorageError> {
        let open = OpenIndex::new(Arc::clone(segment), IndexType::Timestamp);
        let index = self.shared.storage.open_index(open).await?;
        let reached = index.scan_start(timestamp_ms).await?;
        let from = starting_offset.max(reached.offset);
        let start = self.start_position(segment, from).await?;
        let mut range = self
            .fetch_range(segment, start.position, SCAN_BYTES)
            .await?;
        start.check(segment, &range)?;
        loop {
            let mut batches = Batches::new(&range.bytes);
            for batch in batches.by_ref() {
                let batch = batch?;
                let found = batch.first_record_at_or_after_timestamp(
                    starting_offset,
                    timestamp_ms,
                    DEFAULT_MAX_DECOMPRESSED_BYTES,
                )?;
                if let Some((offset, timestamp_ms)) = found {
                    let epoch = batch.header()?.partition_leader_epoch();
                    return Ok(Some(OffsetAndTimestamp {
                        offset,
                        timestamp_ms,
                        leader_epoch: (epoch >= 0).then_some(LeaderEpoch(epoch)),
                    }));
                }
            }
            let cut = batches.remainder();
            if range.at_end && cut.is_empty() {
                return Ok(None);
            }
            let position = range.position + batches.position() as u64;
            // A batch that the range cut off is fetched whole, however large it is.
            let needed = BatchPrefix::read(cut)?.map_or(BatchPrefix::SIZE, |cut| cut.size);
            let left = log_size(segment).map(|size| size.saturating_sub(position));
            if range.at_end || left.is_some_and(|left| !cut.is_empty() && left < needed as u64) {
                return Err(corrupt_log(format_args!(
                    "the log of segment {} ends within the batch at position {position}",
                    segment.remote_log_segment_id()
                )));
            }
            range = self
                .fetch_range(segment, position, needed.max(SCAN_BYTES))
                .await?;
        }
    }
}

/// Whether a segment belongs to this history, which is one without empty epochs (Kafka's
/// `isRemoteSegmentWithinLeaderEpochs`).
fn is_of_lineage(segment: &RemoteLogSegmentMetadata, lineage: &Epochs) -> bool {
    let epochs = without_empty_epochs(segment.segment_leader_epochs());
    let (Some((&oldest, &oldest_start)), Some((&newest, _))) =
        (lineage.first_key_value(), lineage.last_key_value())
    else {
        return false;
    };
    let Some((&last, _)) = epochs.last_key_value() else {
        return false;
    };
    if last < oldest || last > newest {
        return false;
    }
    let mut of_segment = epochs.range(oldest..);
    let Some((&first, &first_start)) = of_segment.next() else {
        return false;
    };
    match lineage.get(&first) {
        // The log's start may have been moved up into the segment.
        Some(&start) if first_start < start && (first, start) != (oldest, oldest_start) => {
            return false;
        }
        Some(_) => {}
        None => return false,
    }
    // From there on the two must tell the same, epoch by epoch.
    let mut expected = lineage.range(first..).skip(1);
    if !of_segment.all(|entry| expected.next() == Some(entry)) {
        return false;
    }
    expected
        .next()
        .is_none_or(|(_, &start)| segment.end_offset() < start)
}

/// An epoch that starts where the next one does has written nothing.
fn without_empty_epochs(epochs: &Epochs) -> Epochs {
    let starts = epochs.values().skip(1).map(Some).chain([None]);
    epochs
        .iter()
        .zip(starts)
        .filter(|((_, start), next)| Some(*start) != *next)
        .map(|((epoch, start), _)| (*epoch, *start))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::segments::SegmentSpec;

    fn epochs(entries: &[(i32, i64)]) -> Epochs {
        let entries = entries.iter();
        entries
            .map(|&(epoch, at)| (LeaderEpoch(epoch), at))
            .collect()
    }

    fn segment(entries: &[(i32, i64)], end_offset: i64) -> RemoteLogSegmentMetadata {
        let spec = SegmentSpec::new(2, entries[0].1..=end_offset);
        let spec = spec.state(RemoteLogSegmentState::CopySegmentFinished);
        spec.epochs(entries).make()
    }

    #[test]
    fn a_segment_is_of_the_lineage_when_its_epochs_tell_the_same_story() {
        let lineage = [(1, 10), (2, 20), (4, 40), (5, 50)];
        for (of_segment, end, expected, why) in [
            (&[(1, 10)][..], 19, true, "all of an epoch"),
            (&[(2, 25)], 30, true, "a part of an epoch"),
            (&[(5, 60)], 1_000, true, "the last epoch has no end"),
            (&[(1, 10), (2, 20), (4, 40)], 49, true, "epoch by epoch"),
            (
                &[(2, 20), (4, 40)],
                50,
                false,
                "it ends where the next epoch has begun",
            ),
            (
                &[(1, 10)],
                20,
                false,
                "it ends where the next epoch has begun",
            ),
            (
                &[(0, 0)],
                9,
                false,
                "its last epoch is older than the lineage",
            ),
            (
                &[(5, 60), (6, 70)],
                80,
                false,
                "its last epoch is newer than the lineage",
            ),
            (
                &[(3, 30)],
                35,
                false,
                "an epoch that the lineage does not know",
            ),
            (
                &[(2, 20), (3, 30), (4, 40)],
                45,
                false,
                "one between two that it knows",
            ),
            (&[(2, 15)], 18, false, "it begins before its epoch did"),
            (&[(1, 5)], 8, true, "the log's start was moved up over it"),
            (&[(1, 5), (2, 20)], 30, true, "and into it"),
            (
                &[(0, 0), (1, 10)],
                15,
                true,
                "epochs below the lineage do not count",
            ),
            (
                &[(0, 0), (1, 5), (2, 20)],
                30,
                true,
                "nor does where its first one begins",
            ),
            (
                &[(0, 0), (2, 15)],
                30,
                false,
                "but only at the lineage's own first",
            ),
            (
                &[(1, 10), (2, 21)],
                30,
                false,
                "a later epoch begins elsewhere",
            ),
            (
                &[(1, 10), (4, 40)],
                45,
                false,
                "an epoch of the lineage is missing",
            ),
            (
                &[(1, 10), (2, 20), (4, 41)],
                45,
                false,
                "the last one begins elsewhere",
            ),
            (
                &[(1, 10), (2, 20), (3, 40), (4, 40)],
                45,
                true,
                "an epoch that wrote nothing",
            ),
        ] {
            let found = is_of_lineage(&segment(of_segment, end), &epochs(&lineage));
            assert_eq!(found, expected, "{why}: {of_segment:?} up to {end}");
        }
    }

    #[test]
    fn epochs_that_wrote_nothing_say_nothing() {
        for (given, expected) in [
            (
                &[(0, 0), (1, 5), (2, 5), (3, 9)][..],
                &[(0, 0), (2, 5), (3, 9)][..],
            ),
            (&[(0, 7), (1, 7), (2, 7)], &[(2, 7)]),
            (&[(0, 7)], &[(0, 7)]),
            (&[], &[]),
        ] {
            assert_eq!(without_empty_epochs(&epochs(given)), epochs(expected));
        }
        let nobody = segment(&[(0, 0)], 5);
        assert!(
            !is_of_lineage(&nobody, &Epochs::new()),
            "no lineage, no segment"
        );
    }
}
