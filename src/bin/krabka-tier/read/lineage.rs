//! Which leader epoch each offset of a partition belongs to.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use krabka_remote_storage::model::{LeaderEpoch, RemoteLogSegmentMetadata, TopicIdPartition};
use krabka_remote_storage::{RemoteLogReader, RemoteStorageError};

use crate::ends::is_damage;

/// A history of a log: each leader epoch with its first offset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lineage {
    epochs: BTreeMap<LeaderEpoch, i64>,
}

impl Lineage {
    /// The history that the partition's newest segment tells, and below it, where the log's start
    /// was moved up, that of the segments that are still there.
    pub(super) async fn of(
        reader: &RemoteLogReader,
        partition: &TopicIdPartition,
        segments: &[RemoteLogSegmentMetadata],
    ) -> Result<Self, RemoteStorageError> {
        let told = match reader.leader_epochs(partition).await {
            Err(error) if is_damage(&error) => BTreeMap::new(),
            told => told?,
        };
        Ok(Self::from(told).extended_by(segments))
    }

    fn extended_by(mut self, segments: &[RemoteLogSegmentMetadata]) -> Self {
        let mut newest_first: Vec<_> = segments.iter().collect();
        newest_first.sort_by_key(|segment| Reverse(age(segment)));
        for segment in newest_first {
            for (&epoch, &start) in segment.segment_leader_epochs().iter().rev() {
                let is_older = self
                    .epochs
                    .first_key_value()
                    .is_none_or(|(&first, &first_start)| epoch <= first && start < first_start);
                if is_older {
                    self.epochs.insert(epoch, start);
                }
            }
        }
        self
    }

    pub(super) fn epochs(&self) -> &BTreeMap<LeaderEpoch, i64> {
        &self.epochs
    }

    /// The epoch that an offset was written in; `None` before the first.
    pub(super) fn epoch_of(&self, offset: i64) -> Option<LeaderEpoch> {
        let begun = self
            .epochs
            .iter()
            .take_while(|(_, start)| **start <= offset);
        begun.last().map(|(epoch, _)| *epoch)
    }

    /// Where a segment that holds offsets of `epoch` leaves this history: exclusive, and the highest
    /// offset when it does not. Behind it are records that a later leader did not take over.
    pub(super) fn reach(&self, segment: &RemoteLogSegmentMetadata, epoch: LeaderEpoch) -> i64 {
        let later = self.epochs.iter().filter(|(later, _)| **later > epoch);
        for (later, start) in later {
            if segment.segment_leader_epochs().get(later) != Some(start) {
                return *start;
            }
        }
        i64::MAX
    }
}

/// The segment with the end of the log.
pub(super) fn newest(segments: &[RemoteLogSegmentMetadata]) -> Option<&RemoteLogSegmentMetadata> {
    segments.iter().max_by_key(|segment| age(segment))
}

/// Orders segments by how far along the log's history they end.
fn age(segment: &RemoteLogSegmentMetadata) -> (Option<LeaderEpoch>, i64) {
    let newest = segment.segment_leader_epochs().last_key_value();
    (newest.map(|(epoch, _)| *epoch), segment.end_offset())
}

impl From<BTreeMap<LeaderEpoch, i64>> for Lineage {
    fn from(epochs: BTreeMap<LeaderEpoch, i64>) -> Self {
        Self { epochs }
    }
}

#[cfg(test)]
mod tests {
    use krabka_remote_storage::model::{
        RemoteLogSegmentDetails, RemoteLogSegmentId, RemoteLogSegmentState,
    };
    use uuid::Uuid;

    use super::*;

    fn epochs(pairs: &[(i32, i64)]) -> BTreeMap<LeaderEpoch, i64> {
        let pairs = pairs
            .iter()
            .map(|&(epoch, start)| (LeaderEpoch(epoch), start));
        pairs.collect()
    }

    /// A segment with these epochs that ends here.
    fn segment(of: &[(i32, i64)], end_offset: i64) -> RemoteLogSegmentMetadata {
        let tp = TopicIdPartition::new(Uuid::from_u128(1), "orders", 0);
        let id = RemoteLogSegmentId::generate_new(tp);
        let state = RemoteLogSegmentState::CopySegmentStarted;
        let details = RemoteLogSegmentDetails::new(1, state, epochs(of));
        RemoteLogSegmentMetadata::new(id, of[0].1, end_offset, -1, -1, 0, details).unwrap()
    }

    #[test]
    fn segments_below_a_start_that_was_moved_up_are_of_the_history_again() {
        let told = Lineage::from(epochs(&[(2, 432), (3, 500)]));
        let of_tier = [
            segment(&[(0, 0)], 99),
            segment(&[(0, 100), (2, 150)], 449),
            // Of a leader whose records were given up.
            segment(&[(1, 140)], 160),
            segment(&[(2, 450), (3, 500)], 600),
        ];
        let expected = Lineage::from(epochs(&[(0, 0), (2, 150), (3, 500)]));
        assert_eq!(told.extended_by(&of_tier), expected);
        assert_eq!(Lineage::default().extended_by(&of_tier), expected);
    }

    #[test]
    fn an_offset_belongs_to_the_last_epoch_that_began_at_or_below_it() {
        let lineage = Lineage::from(epochs(&[(0, 5), (2, 50)]));
        for (offset, epoch) in [(4, None), (5, Some(0)), (49, Some(0)), (50, Some(2))] {
            assert_eq!(lineage.epoch_of(offset), epoch.map(LeaderEpoch));
        }
    }

    #[test]
    fn a_segment_reaches_to_where_a_later_leader_began_without_it() {
        let lineage = Lineage::from(epochs(&[(0, 0), (1, 50), (3, 90)]));
        let reach = |of, end| lineage.reach(&segment(of, end), LeaderEpoch(0));
        assert_eq!(reach(&[(0, 0), (1, 50), (3, 90)], 99), i64::MAX);
        assert_eq!(reach(&[(0, 0), (1, 50)], 80), 90);
        assert_eq!(reach(&[(0, 0)], 99), 50);
        assert_eq!(reach(&[(0, 0), (1, 60)], 99), 50);
        let segment = segment(&[(3, 95)], 99);
        assert_eq!(lineage.reach(&segment, LeaderEpoch(3)), i64::MAX);
    }
}
