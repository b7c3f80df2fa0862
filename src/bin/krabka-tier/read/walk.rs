//! Walks a partition of a tier from an offset on, as one reader of its metadata made anew.
//!
//! Memory is bounded by what the reader reads ahead, or by the largest batch where that is more.
//! What is damaged is passed by where the tier has another way to the same records: an offset index
//! that is lost or wrong by reading the log from its start, a damaged copy of a segment by another
//! one. Everything else that is damaged is an error, after what could be read before it.

use std::collections::HashSet;
use std::ops::ControlFlow;

use krabka_remote_storage::index::{
    Batch, BatchPrefix, Batches, DEFAULT_MAX_DECOMPRESSED_BYTES, ProducerSnapshot,
    ProducerSnapshotEntry, corrupt_log,
};
use krabka_remote_storage::model::{
    IndexType, RemoteLogSegmentMetadata, TopicIdPartition, kafka_uuid,
};
use krabka_remote_storage::reader::FetchedBatches;
use krabka_remote_storage::{FetchIndex, RemoteStorageError};
use uuid::Uuid;

use super::committed::{Ahead, Held};

use crate::ends::is_damage;
use crate::failure::{Failure, chain, print_note};
use crate::inventory::Inventory;
use crate::lineage::newest;
use crate::rebuilt::damaged;
use crate::tier::{Tier, TierSegment};
use crate::view::{Found, Read, View};

/// How much is read at once before the reader reads ahead.
const PIECE_BYTES: usize = 1024 * 1024;

/// How many bytes of batches may still be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    left: Option<u64>,
    /// The first batch is read whatever its size.
    untouched: bool,
}

impl Budget {
    pub(super) fn new(max_bytes: Option<u64>) -> Self {
        Self {
            left: max_bytes,
            untouched: true,
        }
    }

    /// Takes a batch from the budget; false when it is too large for what is left.
    fn take(&mut self, bytes: u64) -> bool {
        if let Some(left) = &mut self.left {
            if *left < bytes && !self.untouched {
                return false;
            }
            *left = left.saturating_sub(bytes);
        }
        self.untouched = false;
        true
    }

    fn is_spent(&self) -> bool {
        self.left == Some(0) && !self.untouched
    }

    fn piece(&self) -> usize {
        let left = self.left.and_then(|left| usize::try_from(left).ok());
        left.unwrap_or(usize::MAX).min(PIECE_BYTES)
    }
}

/// One partition of a tier, open for reading.
pub(super) struct TierLog<'a> {
    tier: &'a Tier,
    inventory: &'a Inventory,
    partition: TopicIdPartition,
    /// The complete segments, or those that the cluster names, by base offset.
    segments: Vec<TierSegment>,
    view: View,
    damaged: Vec<Damaged>,
}

/// A segment that cannot be read, and where its offsets may be.
struct Damaged {
    segment: TierSegment,
    /// `None` when it is not known.
    end_offset: Option<i64>,
    reason: RemoteStorageError,
}

/// Where a walk is.
#[derive(Debug)]
struct Place {
    /// The first offset that is still wanted.
    next: i64,
    /// Where to go on reading: below `next` while a log is read from its start.
    at: i64,
    /// The segment that was read last, by id.
    segment: Option<Uuid>,
    /// Segments that are read without their index.
    without_index: HashSet<Uuid>,
    /// Whether it goes where another walk has been, which has told what there is to tell.
    is_known: bool,
}

/// What a step of a walk came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walked {
    On,
    /// Whoever takes the batches has enough.
    Enough,
    /// The tier ends here.
    ToEnd,
}

impl<'a> TierLog<'a> {
    pub(super) async fn open(
        tier: &'a Tier,
        inventory: &'a Inventory,
        partition: TopicIdPartition,
    ) -> Result<Self, Failure> {
        let segments = inventory.segments(tier, &partition).await?;
        let view = View::of(tier, inventory, &partition, &segments).await?;
        let mended = view.rebuilt.mended.iter();
        // A cluster's metadata has the leader epochs: no batch was read for them.
        for mended in mended.filter(|_| !view.rebuilt.is_of_cluster) {
            print_note(format_args!(
                "the leader epochs of segment {} at offset {} were read from its batches: {}",
                kafka_uuid(mended.segment.id.id),
                mended.segment.start_offset,
                chain(&mended.reason)
            ));
        }
        let mut damaged = Vec::new();
        for skipped in &view.rebuilt.skipped {
            let segment = segments
                .iter()
                .find(|segment| segment.listed.id == skipped.segment.id);
            damaged.extend(segment.map(|segment| Damaged {
                segment: segment.clone(),
                end_offset: None,
                reason: skipped.reason.clone(),
            }));
        }
        Ok(Self {
            tier,
            inventory,
            partition,
            segments,
            view,
            damaged,
        })
    }

    /// The first offset at or after this one that is still the log's.
    ///
    /// `DeleteRecords` moves a log's start up into a segment, and the leader epochs begin there. What
    /// the segment has before it no consumer gets from a broker.
    pub(super) fn first_kept(&self, offset: i64) -> Result<i64, Failure> {
        let Some(start) = self.log_start()?.filter(|start| offset < *start) else {
            return Ok(offset);
        };
        let segment = self.view.segment_at(start)?;
        if segment.is_none_or(|segment| offset < segment.start_offset()) {
            return Ok(offset);
        }
        print_note(format_args!(
            "offsets {offset} to {} were deleted: the log begins at offset {start}",
            start - 1
        ));
        Ok(start)
    }

    /// Where the leader epochs begin, if that is within a segment.
    fn log_start(&self) -> Result<Option<i64>, Failure> {
        let Some((_, &start)) = self.view.lineage.epochs().first_key_value() else {
            return Ok(None);
        };
        let segment = self.view.segment_at(start)?;
        let is_within = segment.is_some_and(|segment| segment.start_offset() < start);
        Ok(is_within.then_some(start))
    }

    /// The offset of the first record whose timestamp is this one or later.
    pub(super) async fn offset_for_timestamp(
        &mut self,
        timestamp_ms: i64,
    ) -> Result<Option<i64>, Failure> {
        let Some(first) = self.segments.first().map(TierSegment::base_offset) else {
            return Ok(None);
        };
        let first = self.log_start()?.map_or(first, |start| start.max(first));
        if self.damaged.is_empty() {
            let lineage = self.view.lineage.epochs();
            let found = self
                .view
                .reader
                .offset_for_timestamp(&self.partition, timestamp_ms, first, Some(lineage))
                .await;
            match found {
                Ok(found) => return Ok(found.map(|found| found.offset)),
                Err(error) if is_damage(&error) => print_note(format_args!(
                    "the timestamp is looked for from batch to batch: {}",
                    chain(&error)
                )),
                Err(error) => return Err(error.into()),
            }
        }
        let mut found = None;
        self.read(first, Budget::new(None), |batch| {
            found = batch.first_record_at_or_after_timestamp(
                first,
                timestamp_ms,
                DEFAULT_MAX_DECOMPRESSED_BYTES,
            )?;
            Ok(match found {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            })
        })
        .await?;
        Ok(found.map(|(offset, _)| offset))
    }

    /// Hands each batch that ends at or after `offset` to `write`, until that has enough, or the
    /// budget or the tier ends.
    pub(super) async fn read(
        &mut self,
        offset: i64,
        mut budget: Budget,
        mut write: impl FnMut(&Batch<'_>) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<(), Failure> {
        self.check_bounds(offset)?;
        let mut place = Place::at(offset);
        loop {
            if budget.is_spent() {
                return Ok(());
            }
            let max_bytes = budget.piece();
            let walked = self
                .step(&mut place, max_bytes, |_, batch| {
                    if !budget.take(batch.size() as u64) {
                        return Ok(ControlFlow::Break(()));
                    }
                    write(batch)
                })
                .await?;
            if walked != Walked::On {
                return Ok(());
            }
        }
    }

    /// The same of what a consumer gets that reads committed: [`Ahead`] tells what that is.
    ///
    /// A batch is handed out when all transactions up to it are decided; a note says where records
    /// end before those that are not.
    pub(super) async fn read_committed(
        &mut self,
        offset: i64,
        mut budget: Budget,
        mut write: impl FnMut(&Batch<'_>) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<(), Failure> {
        self.check_bounds(offset)?;
        let mut ahead = Ahead::new(offset, self.producers_at_end(offset).await?);
        let mut held = Held::default();
        let mut scout = Place::at(offset);
        // Where to read again what could not be held.
        let mut again = Place::at(offset);
        let mut end: Option<Result<(), Failure>> = None;
        loop {
            let decided = ahead.decided_up_to();
            while let Some((last_offset, bytes)) = held.pop_below(decided) {
                for batch in Batches::new(&bytes) {
                    let batch = batch?;
                    if !budget.take(batch.size() as u64) {
                        return Ok(());
                    }
                    if ahead.is_visible(&batch)? && write(&batch)?.is_break() {
                        return Ok(());
                    }
                }
                if budget.is_spent() {
                    return Ok(());
                }
                again.go_to(last_offset.saturating_add(1));
            }
            if held.is_empty() && held.is_cut() && again.next < decided {
                self.hold_again(&mut again, &mut held, ahead.next()).await?;
                continue;
            }
            match &end {
                None => {
                    let max_bytes = if held.is_empty() {
                        budget.piece()
                    } else {
                        PIECE_BYTES
                    };
                    let walked = self.step(&mut scout, max_bytes, |fetched, batch| {
                        ahead.follow(batch)?;
                        held.push(fetched, batch)?;
                        Ok(ControlFlow::Continue(()))
                    });
                    end = match walked.await {
                        Ok(Walked::ToEnd) => Some(Ok(())),
                        Ok(_) => None,
                        Err(failure) => Some(Err(failure)),
                    };
                }
                Some(Ok(())) if ahead.drop_wrong_snapshot() => print_note(
                    "the producer snapshot at the end of the tier does not fit the log, which tells \
                     the open transactions alone",
                ),
                Some(_) => break,
            }
        }
        let is_failed = end.as_ref().is_some_and(Result::is_err);
        if let Some(from) = ahead.first_undecided()
            && (is_failed || !held.is_empty() || held.is_cut())
        {
            let why = if is_failed {
                "cannot be followed to its end"
            } else {
                "is open at the end of the tier"
            };
            print_note(format_args!(
                "the transaction that began at offset {from} {why}: records from there on are left \
                 out"
            ));
        }
        end.unwrap_or(Ok(()))
    }

    /// Holds the batches again that there was no room for, up to this offset, or as many as there is
    /// room for.
    async fn hold_again(
        &mut self,
        again: &mut Place,
        held: &mut Held,
        until: i64,
    ) -> Result<(), Failure> {
        held.mend();
        let mut walked = Walked::On;
        while walked == Walked::On && again.next < until {
            let step = self.step(again, PIECE_BYTES, |fetched, batch| {
                Ok(
                    if batch.last_offset()? < until && held.push(fetched, batch)? {
                        ControlFlow::Continue(())
                    } else {
                        ControlFlow::Break(())
                    },
                )
            });
            walked = step.await?;
        }
        if held.is_empty() {
            return Err(Failure::Refused(format!(
                "offset {} was in the tier, and is not any more: something removes segments",
                again.next
            )));
        }
        Ok(())
    }

    /// One step of a walk: shows the next batches that are wanted to `take`, until that has enough.
    async fn step(
        &mut self,
        place: &mut Place,
        max_bytes: usize,
        mut take: impl FnMut(&FetchedBatches, &Batch<'_>) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<Walked, Failure> {
        let max_bytes = if place.at < place.next {
            PIECE_BYTES
        } else {
            max_bytes
        };
        let read = match self.view.find(place.at, max_bytes).await {
            Ok(Found::Batches(read)) => read,
            Ok(Found::NotBefore(offset)) => {
                place.at = offset;
                return Ok(Walked::On);
            }
            Ok(Found::End) => {
                return match self.damage_in(place.next, i64::MAX) {
                    Some(damaged) => Err(damaged.failure()),
                    None => Ok(Walked::ToEnd),
                };
            }
            Err(error) => {
                self.go_around(place, error, true).await?;
                return Ok(Walked::On);
            }
        };
        match self.show(place, &read, &mut take) {
            Err(Failure::Storage(error)) => {
                self.go_around(place, error, false).await?;
                Ok(Walked::On)
            }
            walked => walked,
        }
    }

    /// The producers at the end of the tier, as the snapshot of its newest segment has them. None when
    /// it is of no use: what it alone knows are transactions that began before `offset`.
    async fn producers_at_end(&self, offset: i64) -> Result<Vec<ProducerSnapshotEntry>, Failure> {
        let Some(newest) = newest(&self.view.rebuilt.segments) else {
            return Ok(Vec::new());
        };
        let fetch = FetchIndex::new(newest.clone(), IndexType::ProducerSnapshot);
        let fetched = self.tier.storage.fetch_index(fetch).await;
        let parsed = fetched
            .and_then(|bytes| ProducerSnapshot::parse(&bytes).map(|told| told.entries().to_vec()));
        match parsed {
            Ok(entries) => Ok(entries),
            Err(error) if is_damage(&error) => {
                let first = self.segments.first().map(TierSegment::base_offset);
                if first.is_some_and(|first| first < offset) {
                    print_note(format_args!(
                        "nothing tells whether a transaction that began before offset {offset} is \
                         open at the end of the tier: {}",
                        chain(&error)
                    ));
                }
                Ok(Vec::new())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn check_bounds(&self, offset: i64) -> Result<(), Failure> {
        let tp = format!("{}-{}", self.partition.topic, self.partition.partition);
        let Some(first) = self.segments.first() else {
            return Err(Failure::Refused(format!(
                "{tp} has no complete segment in {}",
                self.tier.location()
            )));
        };
        let first = first.base_offset();
        if offset < first {
            return Err(Failure::Refused(format!(
                "offset {offset} is before the first of {tp} in the tier, {first}"
            )));
        }
        let ends = self.view.rebuilt.segments.iter();
        match ends.map(RemoteLogSegmentMetadata::end_offset).max() {
            // The next offset that a broker would tier is not wrong, only not there yet.
            Some(last) if offset > last.saturating_add(1) => {
                match self.damage_in(last + 1, i64::MAX) {
                    Some(damaged) => Err(damaged.failure()),
                    None => Err(Failure::Refused(format!(
                        "offset {offset} is after the last of {tp} in the tier, {last}"
                    ))),
                }
            }
            _ => Ok(()),
        }
    }

    /// Shows what is wanted of these batches.
    fn show(
        &self,
        place: &mut Place,
        read: &Read,
        take: &mut impl FnMut(&FetchedBatches, &Batch<'_>) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<Walked, Failure> {
        let fetched = &read.batches;
        let segment = &fetched.segment;
        let reach = self.view.lineage.reach(segment, read.epoch);
        if place.segment != Some(segment.remote_log_segment_id().id) {
            let first = BatchPrefix::read(&fetched.bytes)?
                .filter(|first| first.magic == 2 && first.offset < reach)
                .map_or(i64::MIN, |first| first.offset);
            self.pass_gap(place, segment.start_offset().max(first))?;
            place.segment = Some(segment.remote_log_segment_id().id);
        }
        let mut batches = Batches::new(&fetched.bytes);
        while let Some(batch) = batches.next() {
            let batch = batch?;
            let last_offset = batch.last_offset()?;
            if last_offset >= reach {
                if let Some(next) = batches.next() {
                    check_order(last_offset, next?.last_offset()?)?;
                }
                // A later leader did not take it over, and wrote others in its place.
                place.at = reach;
                return Ok(Walked::On);
            }
            if last_offset < place.next {
                if place.at == place.next {
                    check_order(place.next - 1, last_offset)?;
                }
                continue;
            }
            if take(fetched, &batch)?.is_break() {
                return Ok(Walked::Enough);
            }
            place.next = last_offset.saturating_add(1);
            place.at = place.next;
        }
        place.at = fetched.next_offset;
        Ok(Walked::On)
    }

    /// Says what is passed over when the next segment has records from here on.
    fn pass_gap(&self, place: &Place, start_offset: i64) -> Result<(), Failure> {
        if start_offset <= place.next {
            return Ok(());
        }
        let (first, last) = (place.next, start_offset - 1);
        if let Some(damaged) = self.damage_in(first, last) {
            return Err(damaged.failure());
        }
        if !place.is_known {
            // Compaction leaves such gaps, and so does a segment that is missing.
            print_note(format_args!(
                "offsets {first} to {last} are in no segment of the tier"
            ));
        }
        Ok(())
    }

    /// A damaged segment that may hold some of these offsets, which no other segment holds.
    fn damage_in(&self, first: i64, last: i64) -> Option<&Damaged> {
        // One that starts no later than a whole one before the gap is another copy of that.
        let starts = self.view.rebuilt.segments.iter();
        let before = starts
            .map(RemoteLogSegmentMetadata::start_offset)
            .filter(|start| *start <= first)
            .max();
        self.damaged.iter().find(|damaged| {
            let start = damaged.segment.base_offset();
            start <= last
                && match damaged.end_offset {
                    Some(end) => end >= first,
                    None => before.is_none_or(|before| start > before),
                }
        })
    }

    /// Finds another way to the records at `place`, or fails with what is in the way.
    async fn go_around(
        &mut self,
        place: &mut Place,
        error: RemoteStorageError,
        of_reader: bool,
    ) -> Result<(), Failure> {
        if !is_damage(&error) {
            return Err(error.into());
        }
        let Some(metadata) = self.view.segment_at(place.at)? else {
            return Err(error.into());
        };
        let id = metadata.remote_log_segment_id().clone();
        let start_offset = metadata.start_offset();
        // Only a read that begins within a segment has asked the index.
        let asked_index = of_reader && place.segment != Some(id.id) && place.at > start_offset;
        if asked_index && place.without_index.insert(id.id) {
            print_note(format_args!(
                "the log of segment {} is read from its start, offset {start_offset}: {}",
                kafka_uuid(id.id),
                chain(&error)
            ));
            place.at = start_offset;
            return Ok(());
        }
        let failure = damaged(&id, start_offset, error.clone());
        let segment = self.segments.iter().find(|segment| segment.listed.id == id);
        let Some(segment) = segment.cloned() else {
            return Err(failure);
        };
        self.damaged.push(Damaged {
            segment,
            end_offset: Some(metadata.end_offset()),
            reason: error,
        });
        let others: Vec<_> = self
            .segments
            .iter()
            .filter(|segment| !self.is_damaged(segment))
            .cloned()
            .collect();
        let view = View::of(self.tier, self.inventory, &self.partition, &others).await?;
        // It is another copy only if it begins before what is wanted. Trouble with it is not what
        // there is to repair.
        match view.find(place.next, PIECE_BYTES).await {
            Ok(Found::Batches(read)) if read.batches.segment.start_offset() <= place.next => {
                print_note(format_args!(
                    "{}; another copy is read from offset {} on",
                    chain(&failure),
                    place.next
                ));
                self.view = view;
                place.at = place.next;
                place.segment = None;
                Ok(())
            }
            _ => Err(failure),
        }
    }

    fn is_damaged(&self, segment: &TierSegment) -> bool {
        let mut damaged = self.damaged.iter();
        damaged.any(|damaged| damaged.segment.listed.id == segment.listed.id)
    }
}

/// Batches lie in the order of their offsets, which no checksum covers.
fn check_order(last_offset: i64, next_last_offset: i64) -> Result<(), RemoteStorageError> {
    if next_last_offset > last_offset {
        return Ok(());
    }
    Err(corrupt_log(format_args!(
        "the batch up to offset {next_last_offset} follows on offset {last_offset}"
    )))
}

impl Place {
    fn at(offset: i64) -> Self {
        Self {
            next: offset,
            at: offset,
            segment: None,
            without_index: HashSet::new(),
            is_known: false,
        }
    }

    /// Goes on at an offset that has been read before.
    fn go_to(&mut self, offset: i64) {
        self.next = offset;
        self.at = offset;
        self.segment = None;
        self.is_known = true;
    }
}

impl Damaged {
    fn failure(&self) -> Failure {
        let id = &self.segment.listed.id;
        damaged(id, self.segment.base_offset(), self.reason.clone())
    }
}
