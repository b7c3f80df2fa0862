//! The segments that make up one log: what answers for each offset, one after the other.

use std::ops::RangeInclusive;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use krabka_remote_storage::RemoteStorageError;
use krabka_remote_storage::model::{
    IndexType, RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition,
};

use crate::ends::{is_damage, log_end};
use crate::failure::Failure;
use crate::inventory::Inventory;
use crate::rebuilt::{damaged, rebuilder};
use crate::tier::{CONCURRENT_REQUESTS, Tier, TierSegment};
use crate::view::View;

/// The log of a partition as its segments hold it.
pub(super) struct Chain {
    pub(super) view: View,
    /// By offset; they do not overlap.
    pub(super) links: Vec<Link>,
    /// Offsets between the first and the last that are in no segment.
    pub(super) gaps: Vec<RangeInclusive<i64>>,
    /// Complete segments that are of no use, where no other copy begins at the same offset.
    pub(super) damage: Vec<Failure>,
    /// Damaged segments of which there is another copy.
    pub(super) replaced: Vec<Failure>,
}

/// A segment whose log turned out to be damaged.
pub(super) struct Excluded {
    pub(super) id: RemoteLogSegmentId,
    pub(super) base_offset: i64,
    pub(super) text: String,
    pub(super) error: RemoteStorageError,
}

/// One segment of the log.
pub(super) struct Link {
    pub(super) segment: TierSegment,
    /// The last offset of its log that belongs to it.
    pub(super) last_offset: i64,
    /// Whether its log goes on behind that, with what is in the next segment, too, or what a later
    /// leader did not take over.
    pub(super) is_cut: bool,
    /// Why its leader epochs are not those of the checkpoint in the tier.
    pub(super) mended: Option<RemoteStorageError>,
}

impl Excluded {
    fn failure(&self) -> Failure {
        Failure::during(self.text.clone(), self.error.clone())
    }
}

impl Chain {
    /// The log as it is without these segments.
    pub(super) async fn of(
        tier: &Tier,
        inventory: &Inventory,
        partition: &TopicIdPartition,
        excluded: &[Excluded],
    ) -> Result<Self, Failure> {
        let mut segments = inventory.segments(tier, partition).await?;
        segments.retain(|segment| !excluded.iter().any(|one| one.id == segment.listed.id));
        let view = View::of(tier, inventory, partition, &segments).await?;
        let found = follow(&view)?;
        if found.is_empty() {
            if let Some(one) = excluded.first() {
                return Err(one.failure());
            }
            return Err(Failure::Refused(format!(
                "{}-{} has no complete segment in {} that can be read",
                partition.topic,
                partition.partition,
                tier.location()
            )));
        }
        let found = found.into_iter().filter_map(|found| {
            let id = found.metadata.remote_log_segment_id();
            let segment = segments.iter().find(|segment| segment.listed.id == *id);
            segment.map(|segment| (found, segment.clone()))
        });
        let read: Vec<Result<Link, Failure>> = stream::iter(found)
            .map(|(found, segment)| Link::of(tier, &view, found, segment))
            .buffered(CONCURRENT_REQUESTS)
            .try_collect()
            .await?;
        let (mut links, mut damage) = (Vec::new(), Vec::new());
        for link in read {
            match link {
                Ok(link) => links.push(link),
                Err(failure) => damage.push(failure),
            }
        }
        let starts: Vec<i64> = links.iter().map(Link::base_offset).collect();
        for skipped in &view.rebuilt.skipped {
            let segment = &skipped.segment;
            if !starts.contains(&segment.start_offset) {
                damage.push(damaged(
                    &segment.id,
                    segment.start_offset,
                    skipped.reason.clone(),
                ));
            }
        }
        let mut replaced = Vec::new();
        for one in excluded {
            if starts.contains(&one.base_offset) {
                replaced.push(one.failure());
            } else {
                damage.push(one.failure());
            }
        }
        let gaps = links
            .windows(2)
            .map(|pair| pair[0].last_offset + 1..=pair[1].base_offset() - 1)
            .filter(|gap| !gap.is_empty())
            .collect();
        Ok(Self {
            view,
            links,
            gaps,
            damage,
            replaced,
        })
    }

    pub(super) fn first_offset(&self) -> i64 {
        self.links.first().map_or(0, Link::base_offset)
    }

    pub(super) fn last_offset(&self) -> i64 {
        self.links.last().map_or(0, |link| link.last_offset)
    }
}

/// A segment on the way, and where it stops to be the log's: exclusive.
struct Followed {
    metadata: RemoteLogSegmentMetadata,
    until: i64,
}

/// Goes from segment to segment, as a reader does from the first offset to the last.
fn follow(view: &View) -> Result<Vec<Followed>, RemoteStorageError> {
    let mut followed: Vec<Followed> = Vec::new();
    let mut at = view.next_start(-1)?;
    while let Some(offset) = at {
        let (Some(metadata), Some(epoch)) =
            (view.segment_at(offset)?, view.lineage.epoch_of(offset))
        else {
            at = view.next_start(offset)?;
            continue;
        };
        let start = metadata.start_offset();
        // After a change of leaders a segment begins within the one before: both are of one log.
        while followed
            .pop_if(|before| before.metadata.start_offset() >= start)
            .is_some()
        {}
        if let Some(before) = followed.last_mut() {
            before.until = before.until.min(start);
        }
        let reach = view.lineage.reach(&metadata, epoch);
        let until = metadata.end_offset().saturating_add(1).min(reach);
        followed.push(Followed { metadata, until });
        at = if view.segment_at(until)?.is_some() {
            Some(until)
        } else {
            view.next_start(until)?
        };
    }
    Ok(followed)
}

impl Link {
    pub(super) fn base_offset(&self) -> i64 {
        self.segment.base_offset()
    }

    /// The offset after its last: where the next segment begins, unless there is a gap.
    pub(super) fn next_offset(&self) -> i64 {
        self.last_offset + 1
    }

    /// The inner error is the segment's own.
    async fn of(
        tier: &Tier,
        view: &View,
        found: Followed,
        segment: TierSegment,
    ) -> Result<Result<Self, Failure>, Failure> {
        let Followed { metadata, until } = found;
        let id = &segment.listed.id;
        let end = match segment.listed.object(IndexType::Offset.suffix()) {
            Some(_) => log_end(&tier.storage, &segment).await,
            None => rebuilder(&tier.storage).log_end(&segment.listed, 0).await,
        };
        let end = match end {
            Ok(end) => end,
            Err(error) if is_damage(&error) => {
                return Ok(Err(damaged(id, segment.base_offset(), error)));
            }
            Err(error) => return Err(error.into()),
        };
        // Without a batch it is empty, and ends before it begins.
        let last_in_log = end.map_or(metadata.start_offset() - 1, |end| end.last_offset);
        let last_offset = last_in_log.min(until - 1);
        let mended = view
            .rebuilt
            .mended
            .iter()
            .find(|mended| mended.segment.id == *id);
        Ok(Ok(Self {
            last_offset,
            is_cut: last_in_log > last_offset,
            mended: mended.map(|mended| mended.reason.clone()),
            segment,
        }))
    }
}
