//! Walks a partition of a tier from an offset on, as one reader of its metadata made anew.
//!
//! Memory is bounded by what the reader reads ahead, or by the largest batch where that is more.
//! What is damaged is passed by where the tier has another way to the same records: an offset index
//! that is lost or wrong by reading the log from its start, a damaged copy of a segment by another
//! one. Everything else that is damaged is an error, after what could be read before it.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::ops::ControlFlow;

use krabka_remote_storage::RemoteStorageError;
use krabka_remote_storage::index::{
    Batch, Batches, ControlRecordType, DEFAULT_MAX_DECOMPRESSED_BYTES,
};
use krabka_remote_storage::model::{
    IndexType, RemoteLogSegmentMetadata, TopicIdPartition, kafka_uuid,
};
use uuid::Uuid;

use crate::ends::is_damage;
use crate::failure::{Failure, chain, print_note};
use crate::lineage::newest;
use crate::rebuilt::damaged;
use crate::tier::{Tier, TierSegment};
use crate::view::{Found, Isolation, Read, View};

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
    partition: TopicIdPartition,
    isolation: Isolation,
    /// The complete segments, by base offset.
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
    /// Of transactions whose end has not been read: the producer, and the first offset whose data was
    /// handed out as committed.
    delivered: HashMap<i64, i64>,
}

impl<'a> TierLog<'a> {
    pub(super) async fn open(
        tier: &'a Tier,
        partition: TopicIdPartition,
        isolation: Isolation,
    ) -> Result<Self, Failure> {
        let mut segments = tier.segments(&partition).await?;
        segments.retain(|segment| segment.listed.is_complete());
        let view = View::of(tier, &partition, &segments).await?;
        for mended in &view.rebuilt.mended {
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
        let log = Self {
            tier,
            partition,
            isolation,
            segments,
            view,
            damaged,
        };
        if isolation == Isolation::Committed {
            log.check_transactions().await?;
        }
        Ok(log)
    }

    /// Fails when nothing tells which transactions are open at the tier's end: they would pass for
    /// committed ones.
    async fn check_transactions(&self) -> Result<(), Failure> {
        const WHAT: &str = "cannot tell which transactions are open at the end of the tier";
        let undecided = self.view.reader.first_undecided_offset(&self.partition);
        undecided
            .await
            .map_err(|error| Failure::during(WHAT, error))?;
        let newest = newest(&self.view.rebuilt.segments);
        let newest = newest.map(RemoteLogSegmentMetadata::remote_log_segment_id);
        let snapshot = IndexType::ProducerSnapshot.suffix();
        let lacks_it = self.segments.iter().find(|segment| {
            Some(&segment.listed.id) == newest && segment.listed.object(snapshot).is_none()
        });
        match lacks_it {
            Some(segment) => Err(Failure::Refused(format!(
                "{WHAT}: segment {} at offset {} has lost its producer snapshot",
                segment.id_text(),
                segment.base_offset()
            ))),
            None => Ok(()),
        }
    }

    /// The offset of the first record whose timestamp is this one or later.
    pub(super) async fn offset_for_timestamp(
        &mut self,
        timestamp_ms: i64,
    ) -> Result<Option<i64>, Failure> {
        let Some(first) = self.segments.first().map(TierSegment::base_offset) else {
            return Ok(None);
        };
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
        let isolation = mem::replace(&mut self.isolation, Isolation::Uncommitted);
        let mut found = None;
        let walked = self
            .read(first, Budget::new(None), |batch| {
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
            .await;
        self.isolation = isolation;
        walked?;
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
        let mut place = Place {
            next: offset,
            at: offset,
            segment: None,
            without_index: HashSet::new(),
            delivered: HashMap::new(),
        };
        while !budget.is_spent() {
            let max_bytes = if place.at < place.next {
                PIECE_BYTES
            } else {
                budget.piece()
            };
            let read = match self.view.find(place.at, max_bytes, self.isolation).await {
                Ok(Found::Batches(read)) => read,
                Ok(Found::NotBefore(offset)) => {
                    place.at = offset;
                    continue;
                }
                Ok(Found::End) => {
                    return match self.damage_in(place.next, i64::MAX) {
                        Some(damaged) => Err(damaged.failure()),
                        None => Ok(()),
                    };
                }
                Err(error) => {
                    self.check_read(&place, &error).await?;
                    self.go_around(&mut place, error, true).await?;
                    continue;
                }
            };
            match self.hand_out(&mut place, &read, &mut budget, &mut write) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(Failure::Storage(error)) => self.go_around(&mut place, error, false).await?,
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
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

    /// Hands out what is wanted of these batches. False when there was enough.
    fn hand_out(
        &self,
        place: &mut Place,
        read: &Read,
        budget: &mut Budget,
        write: &mut impl FnMut(&Batch<'_>) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<bool, Failure> {
        let batches = read.batches();
        let segment = &batches.segment;
        if place.segment != Some(segment.remote_log_segment_id().id) {
            self.pass_gap(place.next, segment.start_offset())?;
            place.segment = Some(segment.remote_log_segment_id().id);
        }
        let reach = self.view.lineage.reach(segment, read.epoch);
        let visible = read.visible()?;
        for batch in Batches::new(&batches.bytes) {
            let batch = batch?;
            let last_offset = batch.last_offset()?;
            if last_offset >= reach {
                // A later leader did not take it over, and wrote others in its place.
                place.at = reach;
                return Ok(true);
            }
            if last_offset < place.next {
                continue;
            }
            if let Some(from) = read.undecided_from().filter(|from| last_offset >= *from) {
                print_note(format_args!(
                    "the transaction that began at offset {from} is open at the end of the tier: \
                     records from there on are left out"
                ));
                return Ok(false);
            }
            if !budget.take(batch.size() as u64) {
                return Ok(false);
            }
            let is_visible = visible.holds(&batch);
            if self.isolation == Isolation::Committed {
                place.follow_transaction(&batch, is_visible)?;
            }
            if is_visible && write(&batch)?.is_break() {
                return Ok(false);
            }
            place.next = last_offset.saturating_add(1);
        }
        place.at = batches.next_offset;
        Ok(true)
    }

    /// Says what is passed over when the next records are those of a segment that starts here.
    fn pass_gap(&self, next: i64, start_offset: i64) -> Result<(), Failure> {
        if start_offset <= next {
            return Ok(());
        }
        let last = start_offset - 1;
        if let Some(damaged) = self.damage_in(next, last) {
            return Err(damaged.failure());
        }
        // Compaction leaves such gaps, and so does a segment that is missing.
        print_note(format_args!(
            "offsets {next} to {last} are in no segment of the tier{}",
            match self.isolation {
                Isolation::Uncommitted => "",
                Isolation::Committed => ": which transactions were aborted in them is not known",
            }
        ));
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

    /// Fails when records can be read, and only the fate of their transactions is not known.
    async fn check_read(&self, place: &Place, error: &RemoteStorageError) -> Result<(), Failure> {
        if self.isolation == Isolation::Uncommitted || !is_damage(error) {
            return Ok(());
        }
        match self.view.find(place.at, 1, Isolation::Uncommitted).await {
            Ok(_) => Err(Failure::during(
                format!(
                    "cannot tell which transactions from offset {} on were aborted",
                    place.at
                ),
                error.clone(),
            )),
            Err(_) => Ok(()),
        }
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
        let view = View::of(self.tier, &self.partition, &others).await?;
        // It is another copy only if it begins before what is wanted. Trouble with it is not what
        // there is to repair.
        match view.find(place.next, PIECE_BYTES, self.isolation).await {
            Ok(Found::Batches(read)) if read.batches().segment.start_offset() <= place.next => {
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

impl Place {
    /// Fails when records were handed out that turn out to be aborted: a segment without a
    /// transaction index has none, or has lost it.
    fn follow_transaction(&mut self, batch: &Batch<'_>, is_visible: bool) -> Result<(), Failure> {
        if batch.magic() != 2 || !batch.header()?.is_transactional() {
            return Ok(());
        }
        let header = batch.header()?;
        let producer = header.producer_id();
        if !header.is_control() {
            if is_visible {
                self.delivered
                    .entry(producer)
                    .or_insert(header.base_offset());
            }
            return Ok(());
        }
        let marker = batch.records(DEFAULT_MAX_DECOMPRESSED_BYTES)?;
        let marker = marker.iter().next();
        let kind = marker.as_ref().map(ControlRecordType::of).transpose()?;
        match (self.delivered.remove(&producer), kind) {
            (Some(first), Some(ControlRecordType::Abort)) => Err(Failure::Refused(format!(
                "a transaction was aborted at offset {}, and its records from offset {first} on were \
                 written as committed: the tier has lost the transaction index of the segment with \
                 that offset",
                header.base_offset()
            ))),
            _ => Ok(()),
        }
    }
}

impl Damaged {
    fn failure(&self) -> Failure {
        let id = &self.segment.listed.id;
        damaged(id, self.segment.base_offset(), self.reason.clone())
    }
}
