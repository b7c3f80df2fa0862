//! Which records are committed, found out ahead of what is handed out.
//!
//! A batch of a transaction is committed when the next marker of its producer is a commit. Nothing
//! else is trusted with that: a transaction index or a producer snapshot that is lost, damaged or
//! another segment's cannot make aborted data pass for committed. Where the log does not have the
//! marker, the records end before the transaction.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::RangeInclusive;

use bytes::Bytes;
use krabka_remote_storage::RemoteStorageError;
use krabka_remote_storage::index::{Batch, ProducerSnapshotEntry, corrupt_log};
use krabka_remote_storage::reader::FetchedBatches;

use crate::failure::Failure;
use crate::transactions::{Checksum, Producers, Step};

/// How many bytes of batches are held back at most while their transactions are not decided. What is
/// behind them is read a second time.
const MAX_HELD_BYTES: usize = 64 * 1024 * 1024;

/// The transactions of the log that lies ahead.
pub(super) struct Ahead {
    /// Where the walk began.
    from: i64,
    /// The offset that it has reached.
    next: i64,
    producers: Producers,
    /// Transactions that began before the walk and are open at the tier's end, as the producer
    /// snapshot there says: first offsets by producer.
    claimed: BTreeMap<i64, i64>,
    snapshot: Vec<ProducerSnapshotEntry>,
    /// Aborted data, by producer: from the first offset to the marker.
    aborted: HashMap<i64, VecDeque<RangeInclusive<i64>>>,
}

impl Ahead {
    /// `snapshot` has the producers at the end of the tier, as far as that is known.
    pub(super) fn new(from: i64, snapshot: Vec<ProducerSnapshotEntry>) -> Self {
        let claimed = snapshot
            .iter()
            .map(|entry| {
                let first = entry.current_txn_first_offset.get();
                (entry.producer_id.get(), first)
            })
            .filter(|(_, first)| (0..from).contains(first))
            .collect();
        Self {
            from,
            next: from,
            producers: Producers::default(),
            claimed,
            snapshot,
            aborted: HashMap::new(),
        }
    }

    /// Takes in the next batch of the log.
    ///
    /// # Errors
    ///
    /// [`Failure::Storage`] when the batch is damaged; [`Failure::Refused`] when offsets are missing
    /// before it in which a transaction may have ended.
    pub(super) fn follow(&mut self, batch: &Batch<'_>) -> Result<(), Failure> {
        let last_offset = batch.last_offset()?;
        // Of a message set, too: a damaged magic would hide a transaction.
        Checksum::check_batch(batch)?;
        if batch.magic() != 2 {
            // Message sets are older than transactions.
            self.next = last_offset.saturating_add(1);
            return Ok(());
        }
        let header = batch.header()?;
        let step = Step::of(batch)?;
        let first_offset = header.base_offset();
        if first_offset < self.next && self.next > self.from {
            return Err(Failure::Storage(corrupt_log(format_args!(
                "the batch at offset {first_offset} follows on offset {}",
                self.next - 1
            ))));
        }
        if first_offset > self.next
            && let Some(first) = self.producers.first_open()
        {
            return Err(undecidable(first, self.next, first_offset - 1));
        }
        let ended = self.producers.follow(header, step)?;
        let producer = header.producer_id();
        if matches!(step, Step::Committed | Step::Aborted) {
            self.claimed.remove(&producer);
        }
        if let (Step::Aborted, Some(first)) = (step, ended) {
            let of_producer = self.aborted.entry(producer).or_default();
            of_producer.push_back(first..=first_offset);
        }
        self.next = last_offset.saturating_add(1);
        Ok(())
    }

    /// The offset that the walk has reached.
    pub(super) fn next(&self) -> i64 {
        self.next
    }

    /// The first offset of the oldest transaction that is not decided.
    pub(super) fn first_undecided(&self) -> Option<i64> {
        let claimed = self.claimed.values().min().copied();
        claimed.into_iter().chain(self.producers.first_open()).min()
    }

    /// The offset below which everything is decided.
    pub(super) fn decided_up_to(&self) -> i64 {
        self.first_undecided().unwrap_or(i64::MAX).min(self.next)
    }

    /// Whether a consumer is handed this batch, which is decided. Batches are asked for in the order
    /// of the log, and each once.
    pub(super) fn is_visible(&mut self, batch: &Batch<'_>) -> Result<bool, RemoteStorageError> {
        if batch.magic() != 2 {
            return Ok(true);
        }
        let header = batch.header()?;
        if header.is_control() || !header.is_transactional() {
            return Ok(!header.is_control());
        }
        let Some(aborted) = self.aborted.get_mut(&header.producer_id()) else {
            return Ok(true);
        };
        let offset = header.base_offset();
        while aborted
            .pop_front_if(|ended| *ended.end() < offset)
            .is_some()
        {}
        Ok(aborted.front().is_none_or(|ended| !ended.contains(&offset)))
    }

    /// Gives up what the producer snapshot says, if the log, which was walked to its end, says
    /// otherwise. Whether that decides anything.
    pub(super) fn drop_wrong_snapshot(&mut self) -> bool {
        let is_wrong =
            !self.claimed.is_empty() && self.producers.contradict(&self.snapshot, self.from);
        if is_wrong {
            self.claimed.clear();
        }
        is_wrong
    }
}

fn undecidable(first: i64, missing: i64, last_missing: i64) -> Failure {
    Failure::Refused(format!(
        "cannot tell how the transaction that began at offset {first} ended: it may have in offsets \
         {missing} to {last_missing}, which are in no segment of the tier; --offset {} reads on \
         behind them",
        last_missing.saturating_add(1)
    ))
}

/// Batches that wait for their transactions, in the order of the log.
#[derive(Default)]
pub(super) struct Held {
    batches: VecDeque<(i64, Bytes)>,
    bytes: usize,
    /// Whether there are more behind them that were read and let go.
    is_cut: bool,
}

impl Held {
    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Holds a batch, unless there is no room; false then, and for all that come after it, until
    /// [`mend`](Self::mend).
    pub(super) fn push(
        &mut self,
        fetched: &FetchedBatches,
        batch: &Batch<'_>,
    ) -> Result<bool, RemoteStorageError> {
        if self.is_cut {
            return Ok(false);
        }
        if !self.is_empty() && self.bytes.saturating_add(batch.size()) > MAX_HELD_BYTES {
            self.is_cut = true;
            return Ok(false);
        }
        let position = batch.position();
        let bytes = fetched.bytes.slice(position..position + batch.size());
        self.bytes += bytes.len();
        self.batches.push_back((batch.last_offset()?, bytes));
        Ok(true)
    }

    /// Goes on holding: what was let go is read again from here on.
    pub(super) fn mend(&mut self) {
        self.is_cut = false;
    }

    /// The oldest batch, if it ends below this offset.
    pub(super) fn pop_below(&mut self, offset: i64) -> Option<(i64, Bytes)> {
        let popped = self.batches.pop_front_if(|(last, _)| *last < offset)?;
        self.bytes -= popped.1.len();
        Some(popped)
    }
}
