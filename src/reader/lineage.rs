//! Which leader epoch each offset of a partition belongs to, as the tier itself tells.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use uuid::Uuid;

use super::RemoteLogReader;
use crate::error::{ErrorKind, RemoteStorageError};
use crate::index::{LeaderEpochCheckpoint, ProducerSnapshot};
use crate::model::{IndexType, LeaderEpoch, RemoteLogSegmentMetadata, TopicIdPartition};
use crate::ops::FetchIndex;

/// Leader epochs and their first offsets, from the log's start up to the tier's end.
pub(super) type Epochs = BTreeMap<LeaderEpoch, i64>;

/// How many partitions' epochs are remembered.
const REMEMBERED_PARTITIONS: usize = 4096;

/// The newest finished segment of a partition, and the leader epochs up to its end.
#[derive(Clone, Debug)]
pub(super) struct Lineage {
    pub(super) newest: Arc<RemoteLogSegmentMetadata>,
    pub(super) epochs: Arc<Epochs>,
}

/// What was read of partitions' newest segments.
#[derive(Debug, Default)]
pub(super) struct Lineages {
    known: Mutex<HashMap<TopicIdPartition, Known>>,
}

/// What one segment tells of the history up to its end.
#[derive(Clone, Debug)]
struct Known {
    newest: Uuid,
    epochs: Arc<Epochs>,
    /// The first offset of the oldest transaction that was open at its end, once it is known.
    #[expect(
        clippy::option_option,
        reason = "unknown, and known to be none, are two things"
    )]
    first_undecided: Option<Option<i64>>,
}

impl Lineages {
    /// What is known of this partition, if this is still its newest segment.
    fn get(&self, partition: &TopicIdPartition, newest: Uuid) -> Option<Known> {
        let known = self.known.lock();
        known
            .get(partition)
            .filter(|known| known.newest == newest)
            .cloned()
    }

    fn put(&self, partition: &TopicIdPartition, learnt: Known) {
        let mut known = self.known.lock();
        if known.len() >= REMEMBERED_PARTITIONS {
            known.clear();
        }
        known.insert(partition.clone(), learnt);
    }
}

/// The epoch that an offset belongs to.
pub(super) fn epoch_of(epochs: &Epochs, offset: i64) -> Option<LeaderEpoch> {
    let begun = epochs.iter().take_while(|(_, first)| **first <= offset);
    begun.last().map(|(epoch, _)| *epoch)
}

impl RemoteLogReader {
    /// The partition's leader epochs, each with its first offset, as the checkpoint of its newest
    /// finished segment tells. Empty when the tier has no finished segment.
    ///
    /// A broker has its own leader epochs; this is for those who have only the tier. Costs one
    /// fetch for each new segment.
    ///
    /// # Errors
    ///
    /// Those of the metadata store and of the fetch;
    /// [`Corrupt`](crate::ErrorKind::Corrupt) for a damaged checkpoint.
    pub async fn leader_epochs(
        &self,
        partition: &TopicIdPartition,
    ) -> Result<BTreeMap<LeaderEpoch, i64>, RemoteStorageError> {
        let lineage = self.lineage(partition).await?;
        Ok(lineage.map_or_else(BTreeMap::new, |lineage| (*lineage.epochs).clone()))
    }

    pub(super) async fn lineage(
        &self,
        partition: &TopicIdPartition,
    ) -> Result<Option<Lineage>, RemoteStorageError> {
        let newest = self.shared.metadata.newest_segment(partition).await?;
        let Some(newest) = newest.map(Arc::new) else {
            return Ok(None);
        };
        let id = newest.remote_log_segment_id().id;
        if let Some(known) = self.shared.lineages.get(partition, id) {
            return Ok(Some(Lineage {
                newest,
                epochs: known.epochs,
            }));
        }
        let fetch = FetchIndex::new(Arc::clone(&newest), IndexType::LeaderEpoch);
        let bytes = self.shared.storage.fetch_index(fetch).await?;
        let mut epochs = LeaderEpochCheckpoint::parse(&bytes)?.lineage()?;
        // Of a tier without a checkpoint's text the segment's own epochs are all that is known.
        if epochs.is_empty() {
            epochs.clone_from(newest.segment_leader_epochs());
        }
        let known = Known {
            newest: id,
            epochs: Arc::new(epochs),
            first_undecided: None,
        };
        let epochs = Arc::clone(&known.epochs);
        self.shared.lineages.put(partition, known);
        Ok(Some(Lineage { newest, epochs }))
    }

    /// The first offset of the oldest transaction that is open at the tier's end: neither its
    /// commit nor its abort is in the tier. `None` when there is none.
    ///
    /// Costs a fetch of the producer snapshot for each new segment.
    ///
    /// # Errors
    ///
    /// Those of the metadata store and of the fetch. A segment without a producer snapshot tells
    /// of no transaction.
    pub async fn first_undecided_offset(
        &self,
        partition: &TopicIdPartition,
    ) -> Result<Option<i64>, RemoteStorageError> {
        let Some(Lineage { newest, epochs }) = self.lineage(partition).await? else {
            return Ok(None);
        };
        let id = newest.remote_log_segment_id().id;
        let known = self.shared.lineages.get(partition, id);
        if let Some(first_undecided) = known.and_then(|known| known.first_undecided) {
            return Ok(first_undecided);
        }
        let fetch = FetchIndex::new(newest, IndexType::ProducerSnapshot);
        let first_undecided = match self.shared.storage.fetch_index(fetch).await {
            Ok(bytes) => ProducerSnapshot::parse(&bytes)?.first_undecided_offset(),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let known = Known {
            newest: id,
            epochs,
            first_undecided: Some(first_undecided),
        };
        self.shared.lineages.put(partition, known);
        Ok(first_undecided)
    }

    /// The finished segment that goes on where `segment` ends.
    ///
    /// Usually it continues the epoch in which `segment` ends, and the metadata store knows it;
    /// only at a change of epoch the checkpoint has to be asked.
    pub(super) async fn segment_after(
        &self,
        segment: &RemoteLogSegmentMetadata,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
        let partition = segment.topic_id_partition();
        let Some(next_offset) = segment.end_offset().checked_add(1) else {
            return Ok(None);
        };
        let Some((&last_epoch, _)) = segment.segment_leader_epochs().last_key_value() else {
            return Ok(None);
        };
        let metadata = &self.shared.metadata;
        let next = metadata
            .find_segment(partition, last_epoch, next_offset)
            .await?;
        if next.is_some() {
            return Ok(next);
        }
        let Some(lineage) = self.lineage(partition).await? else {
            return Ok(None);
        };
        let Some(epoch) = epoch_of(&lineage.epochs, next_offset).filter(|e| *e != last_epoch)
        else {
            return Ok(None);
        };
        metadata.find_segment(partition, epoch, next_offset).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_belongs_to_the_last_epoch_that_began_at_or_below_it() {
        let epochs = Epochs::from([
            (LeaderEpoch(0), 0),
            (LeaderEpoch(2), 50),
            (LeaderEpoch(3), 100),
        ]);
        for (offset, epoch) in [(0, 0), (49, 0), (50, 2), (99, 2), (100, 3), (i64::MAX, 3)] {
            assert_eq!(epoch_of(&epochs, offset), Some(LeaderEpoch(epoch)));
        }
        assert_eq!(epoch_of(&epochs, -1), None);
        assert_eq!(epoch_of(&Epochs::new(), 5), None);
    }
}
