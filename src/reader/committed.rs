//! What a read-committed consumer sees: aborted transactions, and where the tier is undecided.

use std::collections::HashSet;

use super::lineage::epoch_of;
use super::{FetchedBatches, RemoteLogReader};
use crate::error::{ErrorKind, RemoteStorageError};
use crate::index::{
    AbortedTxnIndexEntry, Batch, Batches, ControlRecordType, ProducerSnapshot, Records,
    collect_aborted_txns, parse_txn_index,
};
use crate::model::{IndexType, LeaderEpoch, RemoteLogSegmentMetadata, TopicIdPartition};
use crate::ops::FetchIndex;

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
    /// Each once, by first offset. None of them ended before the read began.
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

impl RemoteLogReader {
    /// Reads whole batches as [`read`](Self::read) does, and what a read-committed consumer needs
    /// to know of them.
    ///
    /// `local` is what the caller's own log knows of aborted transactions behind the tier's end;
    /// with it the caller decides itself how far its log is stable, and nothing is undecided here.
    /// From a tier alone (`None`) records end before the first undecided transaction.
    ///
    /// Transaction indexes are fetched only of segments that may have one.
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
        local: Option<&[AbortedTxnIndexEntry]>,
    ) -> Result<Option<CommittedRead>, RemoteStorageError> {
        let Some(batches) = self.read(partition, epoch, offset, max_bytes).await? else {
            return Ok(None);
        };
        let aborted = self
            .aborted_transactions(&batches, local.unwrap_or_default())
            .await?;
        let undecided_from = match local {
            Some(_) => None,
            None => self.first_undecided_offset(partition).await?,
        };
        Ok(Some(CommittedRead {
            batches,
            aborted,
            undecided_from,
        }))
    }

    /// Collects the aborted transactions that concern these batches, from their own segment and
    /// the ones after it, until every transaction in them is decided; then from `local`, what the
    /// caller's own log knows.
    ///
    /// # Errors
    ///
    /// Those of the metadata store and of the fetches. A missing transaction index counts as an
    /// empty one.
    pub async fn aborted_transactions(
        &self,
        batches: &FetchedBatches,
        local: &[AbortedTxnIndexEntry],
    ) -> Result<AbortedTransactions, RemoteStorageError> {
        let Some(first) = Batches::new(&batches.bytes).next() else {
            return Ok(AbortedTransactions {
                is_complete: true,
                ..AbortedTransactions::default()
            });
        };
        // The batches tell exactly which offsets are concerned; Kafka's bound, an entry of the
        // offset index, lies somewhat behind them.
        let bounds = Bounds {
            lower: first_offset(&first?)?,
            upper: batches.next_offset,
        };
        let mut found = Vec::new();
        let mut is_complete = false;
        let mut segment = Some((*batches.segment).clone());
        while let Some(current) = segment {
            is_complete = self.collect_from(&current, bounds, &mut found).await?;
            if is_complete {
                break;
            }
            segment = self.next_with_txn_index(&current).await?;
        }
        if !is_complete {
            is_complete = bounds.collect(local, &mut found);
        }
        found.sort_unstable();
        found.dedup();
        Ok(AbortedTransactions {
            transactions: found,
            is_complete,
        })
    }

    /// The first offset of the oldest transaction that is open at the tier's end: neither its
    /// commit nor its abort is in the tier. `None` when there is none.
    ///
    /// # Errors
    ///
    /// Those of the metadata store and of the fetch. A segment without a producer snapshot tells
    /// of no transaction.
    pub async fn first_undecided_offset(
        &self,
        partition: &TopicIdPartition,
    ) -> Result<Option<i64>, RemoteStorageError> {
        let Some(lineage) = self.lineage(partition).await? else {
            return Ok(None);
        };
        let fetch = FetchIndex::new(lineage.newest, IndexType::ProducerSnapshot);
        match self.shared.storage.fetch_index(fetch).await {
            Ok(bytes) => Ok(ProducerSnapshot::parse(&bytes)?.first_undecided_offset()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Collects from one segment's transaction index; whether that was all.
    async fn collect_from(
        &self,
        segment: &RemoteLogSegmentMetadata,
        bounds: Bounds,
        found: &mut Vec<AbortedTransaction>,
    ) -> Result<bool, RemoteStorageError> {
        if segment.txn_index_empty() {
            return Ok(false);
        }
        let fetch = FetchIndex::new(segment.clone(), IndexType::Transaction);
        match self.shared.storage.fetch_index(fetch).await {
            Ok(bytes) => Ok(bounds.collect(parse_txn_index(&bytes)?, found)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The next segment after this one, in this epoch or a later one of the lineage, that may have
    /// aborted transactions.
    async fn next_with_txn_index(
        &self,
        segment: &RemoteLogSegmentMetadata,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
        let partition = segment.topic_id_partition();
        let Some(next_offset) = segment.end_offset().checked_add(1) else {
            return Ok(None);
        };
        let Some(lineage) = self.lineage(partition).await? else {
            return Ok(None);
        };
        let Some(first_epoch) = epoch_of(&lineage.epochs, next_offset) else {
            return Ok(None);
        };
        for (&epoch, &epoch_start) in lineage.epochs.range(first_epoch..) {
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
    /// Collects from one index; whether that was all.
    fn collect(
        self,
        entries: &[AbortedTxnIndexEntry],
        found: &mut Vec<AbortedTransaction>,
    ) -> bool {
        let result = collect_aborted_txns(entries, self.lower, self.upper);
        found.extend(result.aborted.iter().map(|entry| AbortedTransaction {
            first_offset: entry.start_offset.get(),
            producer_id: entry.producer_id.get(),
        }));
        result.is_complete
    }
}

fn first_offset(batch: &Batch<'_>) -> Result<i64, RemoteStorageError> {
    batch.header().map(crate::index::BatchHeader::base_offset)
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
    /// [`Corrupt`](ErrorKind::Corrupt) for a damaged control batch or an old message set.
    pub fn visible_batches(
        &self,
        max_decompressed_bytes: usize,
    ) -> Result<Vec<Batch<'_>>, RemoteStorageError> {
        let mut pending = self.aborted.transactions.iter().peekable();
        let mut aborted_producers = HashSet::new();
        let mut visible = Vec::new();
        for batch in Batches::new(&self.batches.bytes) {
            let batch = batch?;
            let header = batch.header()?;
            if self
                .undecided_from
                .is_some_and(|from| header.base_offset() >= from)
            {
                break;
            }
            let last_offset = header.last_offset()?;
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
