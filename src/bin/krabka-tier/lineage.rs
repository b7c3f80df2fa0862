//! Which leader epoch each offset of a partition belongs to.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use krabka_remote_storage::index::LeaderEpochCheckpoint;
use krabka_remote_storage::model::{IndexType, LeaderEpoch, RemoteLogSegmentMetadata, kafka_uuid};
use krabka_remote_storage::{FetchIndex, RemoteStorage, RemoteStorageError};

use crate::ends::is_damage;

/// A history of a log: each leader epoch with its first offset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lineage {
    epochs: BTreeMap<LeaderEpoch, i64>,
}

impl Lineage {
    /// The history that the partition's newest segment tells, and below it, where the log's start
    /// was moved up, that of the segments that are still there.
    pub(crate) async fn of(
        storage: &RemoteStorage,
        segments: &[RemoteLogSegmentMetadata],
    ) -> Result<Self, RemoteStorageError> {
        let mut newest_first: Vec<_> = segments.iter().collect();
        newest_first.sort_by_key(|segment| Reverse(age(segment)));
        let mut lineage = Self::default();
        for segment in &newest_first {
            match told_by(storage, segment).await {
                Ok(told) if !told.is_empty() => {
                    lineage.extend_below(&told);
                    break;
                }
                Err(error) if !is_damage(&error) => return Err(error),
                // Its own epochs are known from its batches.
                _ => lineage.extend_below(segment.segment_leader_epochs()),
            }
        }
        for segment in newest_first {
            lineage.extend_below(segment.segment_leader_epochs());
        }
        Ok(lineage)
    }

    /// Takes in what another history tells of offsets below this one's first.
    fn extend_below(&mut self, older: &BTreeMap<LeaderEpoch, i64>) {
        for (&epoch, &start) in older.iter().rev() {
            let is_older = self
                .epochs
                .first_key_value()
                .is_none_or(|(&first, &first_start)| epoch <= first && start < first_start);
            if is_older {
                self.epochs.insert(epoch, start);
            }
        }
    }

    pub(crate) fn epochs(&self) -> &BTreeMap<LeaderEpoch, i64> {
        &self.epochs
    }

    /// The epoch that an offset was written in; `None` before the first.
    pub(crate) fn epoch_of(&self, offset: i64) -> Option<LeaderEpoch> {
        let begun = self
            .epochs
            .iter()
            .take_while(|(_, start)| **start <= offset);
        begun.last().map(|(epoch, _)| *epoch)
    }

    /// Where a segment that holds offsets of `epoch` leaves this history: exclusive, and the highest
    /// offset when it does not. Behind it are records that a later leader did not take over.
    pub(crate) fn reach(&self, segment: &RemoteLogSegmentMetadata, epoch: LeaderEpoch) -> i64 {
        let later = self.epochs.iter().filter(|(later, _)| **later > epoch);
        for (later, start) in later {
            if segment.segment_leader_epochs().get(later) != Some(start) {
                return *start;
            }
        }
        i64::MAX
    }
}

/// The history up to the end of a segment, as its checkpoint tells it.
async fn told_by(
    storage: &RemoteStorage,
    segment: &RemoteLogSegmentMetadata,
) -> Result<BTreeMap<LeaderEpoch, i64>, RemoteStorageError> {
    let fetch = FetchIndex::new(segment.clone(), IndexType::LeaderEpoch);
    let bytes = storage.fetch_index(fetch).await?;
    let checkpoint = LeaderEpochCheckpoint::parse(&bytes)?;
    let own = checkpoint.segment_leader_epochs(segment.start_offset(), segment.end_offset())?;
    if own != *segment.segment_leader_epochs() {
        return Err(RemoteStorageError::InvalidArgument(format!(
            "the leader epoch checkpoint of segment {} is not that of its log",
            kafka_uuid(segment.remote_log_segment_id().id)
        )));
    }
    checkpoint.lineage()
}

/// The segment with the end of the log.
pub(crate) fn newest(segments: &[RemoteLogSegmentMetadata]) -> Option<&RemoteLogSegmentMetadata> {
    segments.iter().max_by_key(|segment| age(segment))
}

/// Orders segments by how far along the log's history they end.
fn age(segment: &RemoteLogSegmentMetadata) -> (Option<LeaderEpoch>, i64) {
    let newest = segment.segment_leader_epochs().last_key_value();
    (newest.map(|(epoch, _)| *epoch), segment.end_offset())
}

#[cfg(test)]
mod tests {
    use krabka_remote_storage::model::{
        RemoteLogSegmentDetails, RemoteLogSegmentId, RemoteLogSegmentState, TopicIdPartition,
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
    fn what_is_below_a_start_that_was_moved_up_is_of_the_history_again() {
        let newest_first = [
            vec![(2, 450), (3, 500)],
            // Of a leader whose records were given up.
            vec![(1, 140)],
            vec![(0, 100), (2, 150)],
            vec![(0, 0)],
        ];
        for told in [vec![], vec![(2, 432), (3, 500)]] {
            let mut lineage = Lineage {
                epochs: epochs(&told),
            };
            // By age: the one of epoch 1 comes behind those of later epochs.
            for older in [0, 2, 1, 3] {
                lineage.extend_below(&epochs(&newest_first[older]));
            }
            assert_eq!(lineage.epochs, epochs(&[(0, 0), (2, 150), (3, 500)]));
        }
    }

    #[test]
    fn an_offset_belongs_to_the_last_epoch_that_began_at_or_below_it() {
        let lineage = Lineage {
            epochs: epochs(&[(0, 5), (2, 50)]),
        };
        for (offset, epoch) in [(4, None), (5, Some(0)), (49, Some(0)), (50, Some(2))] {
            assert_eq!(lineage.epoch_of(offset), epoch.map(LeaderEpoch));
        }
    }

    #[test]
    fn a_segment_reaches_to_where_a_later_leader_began_without_it() {
        let lineage = Lineage {
            epochs: epochs(&[(0, 0), (1, 50), (3, 90)]),
        };
        let reach = |of, end| lineage.reach(&segment(of, end), LeaderEpoch(0));
        assert_eq!(reach(&[(0, 0), (1, 50), (3, 90)], 99), i64::MAX);
        assert_eq!(reach(&[(0, 0), (1, 50)], 80), 90);
        assert_eq!(reach(&[(0, 0)], 99), 50);
        assert_eq!(reach(&[(0, 0), (1, 60)], 99), 50);
        let segment = segment(&[(3, 95)], 99);
        assert_eq!(lineage.reach(&segment, LeaderEpoch(3)), i64::MAX);
    }
}
