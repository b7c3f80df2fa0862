//! Walks a partition of a tier from an offset on, by its listing, its offset indexes and its logs.
//!
//! Memory is bounded by a piece of a log, or by the largest batch where that is more. Where segments
//! overlap, those answer that copies of later leaders and later times left; to know, the ends of the
//! few segments around the offset are read, not those of the whole partition.

use std::collections::HashMap;

use futures::{StreamExt as _, stream};
use krabka_remote_storage::index::{Batch, BatchPrefix, Batches, OffsetIndex, corrupt_log};
use krabka_remote_storage::model::{IndexType, TopicIdPartition};
use krabka_remote_storage::{FetchIndex, RemoteStorageError};

use crate::ends::{Ended, LogEnd, answering, fetch_log, is_damage, log_end};
use crate::failure::{Failure, print_note};
use crate::tier::{CONCURRENT_REQUESTS, Tier, TierSegment};

/// How much of a log is fetched at once.
const PIECE_BYTES: u64 = 1024 * 1024;

/// How many first offsets below the wanted one are looked at: copies of two leaders overlap their
/// neighbours.
const LOOK_BACK: usize = 4;

/// The complete segments of one partition.
pub(super) struct TierLog<'a> {
    tier: &'a Tier,
    partition: TopicIdPartition,
    /// By base offset.
    segments: Vec<TierSegment>,
    /// What is known of their ends, by place in `segments`.
    ends: HashMap<usize, Result<Option<LogEnd>, RemoteStorageError>>,
}

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
}

impl<'a> TierLog<'a> {
    pub(super) async fn open(tier: &'a Tier, partition: TopicIdPartition) -> Result<Self, Failure> {
        let mut segments = tier.segments(&partition).await?;
        segments.retain(|segment| segment.listed.is_complete());
        Ok(Self {
            tier,
            partition,
            segments,
            ends: HashMap::new(),
        })
    }

    /// Hands each batch that ends at or after `offset` to `write`, until the budget or the tier ends.
    pub(super) async fn read(
        &mut self,
        offset: i64,
        mut budget: Budget,
        mut write: impl FnMut(&Batch<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut next = offset;
        self.check_bounds(offset).await?;
        while let Some((place, end)) = self.segment_at(next).await? {
            let first = self.segments[place].base_offset();
            if first > next {
                // Compaction leaves such gaps, and so does a segment that is missing.
                print_note(format_args!(
                    "offsets {next} to {} are in no segment of the tier",
                    first - 1
                ));
            }
            let more = self
                .read_segment(place, &mut next, &mut budget, &mut write)
                .await?;
            if !more {
                return Ok(());
            }
            next = next.max(end.last_offset.saturating_add(1));
        }
        Ok(())
    }

    async fn check_bounds(&mut self, offset: i64) -> Result<(), Failure> {
        let tp = format!("{}-{}", self.partition.topic, self.partition.partition);
        let (Some(first), Some(last)) = (self.segments.first(), self.segments.last()) else {
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
        if offset <= last.base_offset() {
            return Ok(());
        }
        let place = self.segments.len();
        let near = self.around(place);
        self.find_ends(&near).await?;
        let last = near
            .iter()
            .filter_map(|place| self.end(*place))
            .map(|end| end.last_offset)
            .max();
        match last {
            // The next offset that a broker would tier is not wrong, only not there yet.
            Some(last) if offset > last.saturating_add(1) => Err(Failure::Refused(format!(
                "offset {offset} is after the last of {tp} in the tier, {last}"
            ))),
            _ => Ok(()),
        }
    }

    /// The segment to read for an offset: one that holds it, else the first one after it.
    async fn segment_at(&mut self, offset: i64) -> Result<Option<(usize, LogEnd)>, Failure> {
        let after = self
            .segments
            .partition_point(|segment| segment.base_offset() <= offset);
        let mut near = self.around(after);
        self.find_ends(&near).await?;
        if let Some(found) = self.choose(&near, |ended| ended.offsets().contains(&offset)) {
            return Ok(Some(found));
        }
        if let Some(Err(error)) = near.iter().rev().find_map(|place| {
            let end = self.ends.get(place)?;
            end.is_err().then_some(end)
        }) {
            // What holds the offset may be what is damaged.
            let what = format!("cannot find offset {offset}: a segment is damaged");
            return Err(Failure::during(what, error.clone()));
        }
        let Some(first_after) = self.segments.get(after) else {
            return Ok(None);
        };
        let base = first_after.base_offset();
        near = (after..self.segments.len())
            .take_while(|place| self.segments[*place].base_offset() == base)
            .collect();
        self.find_ends(&near).await?;
        Ok(self.choose(&near, |_| true))
    }

    /// The places of the segments with the last few first offsets before a place.
    fn around(&self, after: usize) -> Vec<usize> {
        let (mut first, mut bases, mut last_base) = (after, 0, None);
        for place in (0..after).rev() {
            let base = self.segments[place].base_offset();
            if last_base != Some(base) {
                bases += 1;
                last_base = Some(base);
            }
            if bases > LOOK_BACK {
                break;
            }
            first = place;
        }
        (first..after).collect()
    }

    async fn find_ends(&mut self, places: &[usize]) -> Result<(), Failure> {
        let unknown: Vec<usize> = places
            .iter()
            .copied()
            .filter(|place| !self.ends.contains_key(place))
            .collect();
        let storage = &self.tier.storage;
        let found: Vec<_> = stream::iter(unknown)
            .map(|place| {
                let segment = &self.segments[place];
                async move { (place, log_end(storage, segment).await) }
            })
            .buffered(CONCURRENT_REQUESTS)
            .collect()
            .await;
        for (place, end) in found {
            match end {
                Err(error) if !is_damage(&error) => return Err(error.into()),
                end => self.ends.insert(place, end),
            };
        }
        Ok(())
    }

    fn end(&self, place: usize) -> Option<LogEnd> {
        *self.ends.get(&place)?.as_ref().ok()?
    }

    /// Of the segments that answer, the last one that fits.
    fn choose(
        &self,
        places: &[usize],
        fits: impl Fn(&Ended<'_>) -> bool,
    ) -> Option<(usize, LogEnd)> {
        let ended: Vec<_> = places
            .iter()
            .filter_map(|place| {
                let end = self.end(*place)?;
                let segment = &self.segments[*place];
                Some(Ended { segment, end })
            })
            .collect();
        let answering = answering(&ended);
        let chosen = answering.values().rev().find(|ended| fits(ended))?;
        let place = places.iter().copied().find(|place| {
            let id = &self.segments[*place].listed.id;
            *id == chosen.segment.listed.id
        })?;
        Some((place, chosen.end))
    }

    /// Reads one segment from `next` on, and moves `next` behind each batch. False when the budget
    /// has ended.
    async fn read_segment(
        &self,
        place: usize,
        next: &mut i64,
        budget: &mut Budget,
        write: &mut impl FnMut(&Batch<'_>) -> Result<(), Failure>,
    ) -> Result<bool, Failure> {
        let segment = &self.segments[place];
        let storage = &self.tier.storage;
        let size = segment.log_size().unwrap_or_default();
        let index = FetchIndex::new(segment.handle.clone(), IndexType::Offset);
        let index = storage.fetch_index(index).await?;
        let index = OffsetIndex::new(segment.base_offset(), &index);
        let mut position = u64::from(index.lookup(*next).position);
        let mut piece = PIECE_BYTES;
        while position < size {
            let bytes = fetch_log(storage, segment, position, (position + piece).min(size)).await?;
            let mut batches = Batches::new(&bytes);
            for batch in batches.by_ref() {
                let batch = batch?;
                let last_offset = batch.last_offset()?;
                if last_offset < *next {
                    continue;
                }
                if !budget.take(batch.size() as u64) {
                    return Ok(false);
                }
                write(&batch)?;
                *next = last_offset.saturating_add(1);
            }
            position += batches.position() as u64;
            piece = PIECE_BYTES;
            if batches.position() == 0 {
                piece = size_of_batch(batches.remainder(), size - position)?;
            }
        }
        Ok(true)
    }
}

/// The size of the batch that begins here and goes beyond what was fetched.
fn size_of_batch(bytes: &[u8], left: u64) -> Result<u64, RemoteStorageError> {
    let prefix = BatchPrefix::read(bytes)?
        .filter(|prefix| prefix.size as u64 <= left)
        .ok_or_else(|| corrupt_log("the log ends within its last batch"))?;
    Ok(prefix.size as u64)
}
