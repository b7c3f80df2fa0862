//! What a read-committed consumer sees: aborted transactions, and where the tier is undecided.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::lineage::{Epochs, epoch_of};
use super::{FetchedBatches, RemoteLogReader};
use crate::error::RemoteStorageError;
use crate::index::{
    AbortedTxnIndexEntry, Batch, Batches, ControlRecordType, Records, TxnIndexSearchResult,
    collect_aborted_txns,
};
use crate::model::{IndexType, LeaderEpoch, RemoteLogSegmentMetadata, TopicIdPartition};
use crate::ops::OpenIndex;

/// An aborted transaction, as a fetch response names it: data of this producer from this offset on
/// is not to be delivered, up to the producer's next abort marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AbortedTransaction {
    /// The transaction's first offset.
    pub first_offset: i64,
    /// The producer.
    pub producer_id: i64,
}

/// The aborted transactions that concern a read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AbortedTransactions {
    /// Each once, by first offset. None of them ended before the data of transactions begins.
    pub transactions: Vec<AbortedTransaction>,
    /// Whether every transaction that the read's data may belong to was decided in what was
    /// looked at. If not, the abort marker may lie beyond: see
    /// [`first_undecided_offset`](RemoteLogReader::first_undecided_offset).
    pub is_complete: bool,
}

/// Batches for a read-committed consumer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CommittedRead {
    /// The batches, control batches and aborted data included, as Kafka's fetch returns them.
    pub batches: FetchedBatches,
    /// What to leave out of them; [`visible_batches`](Self::visible_batches) does.
    pub aborted: AbortedTransactions,
    /// The first offset that this tier cannot tell about: a transaction that is open at its end
    /// began there. What lies at or behind it must not be delivered. `None` when the tier's end
    /// leaves none open.
    pub undecided_from: Option<i64>,
}

/// What a broker's own log knows beyond the tier.
#[derive(Clone, Copy, Debug)]
pub struct LocalLog<'a> {
    /// The log's leader epochs, each with its first offset: its whole history, the tier included.
    pub leader_epochs: &'a BTreeMap<LeaderEpoch, i64>,
    /// Its aborted transactions behind the tier's end, from its transaction indexes in their order.
    /// What the tier has, too, does no harm.
    pub aborted: &'a [AbortedTxnIndexEntry],
}

impl RemoteLogReader {
    /// Reads whole batches as [`read`](Self::read) does, and what a read-committed consumer needs
    /// to know of them.
    ///
    /// A broker hands in its own log; it knows itself how far that is stable, so nothing is
    /// undecided here. From a tier alone (`None`) records end before the first undecided
    /// transaction.
    ///
    /// As in Kafka, the transaction indexes and the producer snapshot are trusted with what was
    /// aborted and what is open: where they are lost, or another segment's, aborted data passes for
    /// committed. Only the markers in the log itself tell for certain.
    ///
    /// Transaction indexes are fetched only for batches with data of transactions, and only of
    /// segments that may have one. A tier alone costs two more fetches whenever it has grown: the
    /// checkpoint and the producer snapshot of its newest segment.
    ///
    /// # Errors
    ///
    /// Those of [`read`](Self::read).
    pub async fn read_committed(
        &self,
        partition: &TopicIdPartition,
        epoch: LeaderEpoch,
        offset: i64,
        max_bytes: usize,
        local: Option<LocalLog<'_>>,
    ) -> Result<Option<CommittedRead>, RemoteStorageError> {
        let Some(batches) = self.read(partition, epoch, offset, max_bytes).await? else {
            return Ok(None);
        };
        // In this order: what grows the tier meanwhile decides transactions, and whatever is
        // decided here must be found there.
        let undecided_from = match local {
            Some(_) => None,
            None => self.first_undecided_offset(partition).await?,
        };
        let aborted = self.aborted_transactions(&batches, local).await?;
        Ok(Some(CommittedRead {
            batches,
            aborted,
            undecided_from,
        }))
    }

    /// Collects the aborted transactions that have data in these batches, from their own segment
    /// and the ones after it, until every transaction in them is decided; then from what the
    /// caller's own log knows.
    ///
    /// # Errors
    ///
    /// Those of the metadata store and of the fetches. A missing transaction index counts as an
    /// empty one.
    pub async fn aborted_transactions(
        &self,
        batches: &FetchedBatches,
        local: Option<LocalLog<'_>>,
    ) -> Result<AbortedTransactions, RemoteStorageError> {
        let mut found = Vec::new();
        let Some(bounds) = Bounds::of_transactions(&batches.bytes)? else {
            return Ok(AbortedTransactions {
                transactions: found,
                is_complete: true,
            });
        };
        let mut is_complete = self
            .collect_from(&batches.segment, bounds, &mut found)
            .await?;
        if !is_complete {
            is_complete = self
                .collect_after(&batches.segment, bounds, local, &mut found)
                .await?;
        }
        if let Some(local) = local
            && !is_complete
        {
            let result = collect_aborted_txns(local.aborted, bounds.lower, bounds.upper);
            is_complete = take_in(&result, &mut found);
        }
        found.sort_unstable();
        found.dedup();
        Ok(AbortedTransactions {
            transactions: found,
            is_complete,
        })
    }

    /// Collects from the segments after this one; whether that was all.
    async fn collect_after(
        &self,
        segment: &RemoteLogSegmentMetadata,
        bounds: Bounds,
        local: Option<LocalLog<'_>>,
        found: &mut Vec<AbortedTransaction>,
    ) -> Result<bool, RemoteStorageError> {
        let partition = segment.topic_id_partition();
        let of_tier;
        let epochs = match local {
            Some(local) => local.leader_epochs,
            None => match self.lineage(partition).await? {
                Some(lineage) => {
                    of_tier = lineage.epochs;
                    &*of_tier
                }
                None => return Ok(false),
            },
        };
        let mut end_offset = segment.end_offset();
        while let Some(next) = self
            .next_with_txn_index(partition, epochs, end_offset)
            .await?
        {
            end_offset = next.end_offset();
            if self.collect_from(&Arc::new(next), bounds, found).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Collects from one segment's transaction index; whether that was all.
    async fn collect_from(
        &self,
        segment: &Arc<RemoteLogSegmentMetadata>,
        bounds: Bounds,
        found: &mut Vec<AbortedTransaction>,
    ) -> Result<bool, RemoteStorageError> {
        if segment.txn_index_empty() {
            return Ok(false);
        }
        let open = OpenIndex::new(Arc::clone(segment), IndexType::Transaction);
        let index = self.shared.storage.open_index(open).await?;
        let result = index
            .collect_aborted_txns(bounds.lower, bounds.upper)
            .await?;
        Ok(take_in(&result, found))
    }

    /// The next segment after this offset, in this epoch or a later one of the lineage, that may
    /// have aborted transactions.
    async fn next_with_txn_index(
        &self,
        partition: &TopicIdPartition,
        epochs: &Epochs,
        end_offset: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
        let Some(next_offset) = end_offset.checked_add(1) else {
            return Ok(None);
        };
        // Below a log start that was moved up, all epochs come later.
        let first_epoch = epoch_of(epochs, next_offset).unwrap_or(LeaderEpoch(i32::MIN));
        for (&epoch, &epoch_start) in epochs.range(first_epoch..) {
            let from = next_offset.max(epoch_start);
            let metadata = &self.shared.metadata;
            let next = metadata
                .find_segment_with_txn_index(partition, epoch, from)
                .await?;
            if next.is_some() {
                return Ok(next);
            }
        }
        Ok(None)
    }
}

/// The offsets that are concerned: `lower` is inclusive, `upper` exclusive.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    lower: i64,
    upper: i64,
}

impl Bounds {
    /// The bounds of the transactions' data in these batches; `None` when there is none. They tell
    /// exactly what is concerned: Kafka's upper bound, an entry of the offset index, lies behind.
    fn of_transactions(batches: &[u8]) -> Result<Option<Self>, RemoteStorageError> {
        let mut bounds: Option<Self> = None;
        for batch in Batches::new(batches) {
            let batch = batch?;
            if batch.magic() != 2 {
                // Message sets are older than transactions.
                continue;
            }
            let header = batch.header()?;
            if header.is_transactional() && !header.is_control() {
                let upper = header.last_offset()?.saturating_add(1);
                let lower = bounds.map_or(header.base_offset(), |bounds| bounds.lower);
                bounds = Some(Self { lower, upper });
            }
        }
        Ok(bounds)
    }
}

/// Takes in what one index tells; whether that was all.
fn take_in(result: &TxnIndexSearchResult, found: &mut Vec<AbortedTransaction>) -> bool {
    found.extend(result.aborted.iter().map(|entry| AbortedTransaction {
        first_offset: entry.start_offset.get(),
        producer_id: entry.producer_id.get(),
    }));
    result.is_complete
}

impl CommittedRead {
    /// The batches whose records a read-committed consumer delivers, by Kafka's consumer's rule:
    /// no control batches, no data of aborted transactions, nothing at or behind
    /// [`undecided_from`](Self::undecided_from). Of the first batch, records below the asked offset
    /// are for the caller to leave out, as with any fetch.
    ///
    /// `max_decompressed_bytes` bounds what a control batch may decompress to.
    ///
    /// # Errors
    ///
    /// [`Corrupt`](crate::ErrorKind::Corrupt) for a damaged control batch.
    pub fn visible_batches(
        &self,
        max_decompressed_bytes: usize,
    ) -> Result<Vec<Batch<'_>>, RemoteStorageError> {
        let mut pending = self.aborted.transactions.iter().peekable();
        let mut aborted_producers = HashSet::new();
        let mut visible = Vec::new();
        for batch in Batches::new(&self.batches.bytes) {
            let batch = batch?;
            let last_offset = batch.last_offset()?;
            // It is the first offset of a batch, so no batch begins before it and ends behind.
            if self.undecided_from.is_some_and(|from| last_offset >= from) {
                break;
            }
            if batch.magic() != 2 {
                // Message sets are older than transactions.
                visible.push(batch);
                continue;
            }
            let header = batch.header()?;
            while let Some(begun) = pending.next_if(|begun| begun.first_offset <= last_offset) {
                aborted_producers.insert(begun.producer_id);
            }
            if header.is_control() {
                if is_abort_marker(&batch.records(max_decompressed_bytes)?)? {
                    aborted_producers.remove(&header.producer_id());
                }
            } else if !header.is_transactional()
                || !aborted_producers.contains(&header.producer_id())
            {
                visible.push(batch);
            }
        }
        Ok(visible)
    }
}

fn is_abort_marker(records: &Records<'_>) -> Result<bool, RemoteStorageError> {
    let Some(marker) = records.iter().next() else {
        return Ok(false);
    };
    Ok(ControlRecordType::of(&marker)? == ControlRecordType::Abort)
}
