//! What a copy has to do: which segments, and which not.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use krabka_remote_storage::RemoteStorageError;
use krabka_remote_storage::model::TopicIdPartition;
use tokio::task::spawn_blocking;

use super::report::Event;
use super::sealed;
use crate::failure::Failure;
use crate::log_dir::{ClosedLog, ClosedSegment, Gaps, PartitionDir, walk};
use crate::tier::{Tier, TierSegment};

/// Partitions that are looked through at once.
const CONCURRENT_PARTITIONS: usize = 4;

/// What keeps segments from being copied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strictness {
    pub(super) gaps: Gaps,
    /// Nothing is copied of a partition with a damaged segment.
    pub(super) whole_partitions: bool,
}

impl Default for Strictness {
    fn default() -> Self {
        Self {
            gaps: Gaps::Refused,
            whole_partitions: true,
        }
    }
}

/// A segment to copy.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) partition: TopicIdPartition,
    pub(super) segment: ClosedSegment,
    /// Bytes of all its files.
    pub(super) size_bytes: u64,
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}-{}, offsets {} to {} ({})",
            self.partition.topic,
            self.partition.partition,
            self.segment.base_offset,
            self.segment.end_offset,
            self.segment.data.log_segment.display()
        )
    }
}

/// Segments of one partition that are not copied, all for the same reason.
#[derive(Debug)]
pub(super) struct Skipped {
    pub(super) partition: TopicIdPartition,
    pub(super) segments: Vec<ClosedLog>,
    pub(super) reason: &'static str,
}

impl Skipped {
    /// An event for each segment, or one for all of them.
    pub(super) fn events(&self, each: bool) -> Vec<Event> {
        if each {
            let of = |log| Event::skipped(&self.partition, std::slice::from_ref(log), self.reason);
            return self.segments.iter().map(of).collect();
        }
        vec![Event::skipped(&self.partition, &self.segments, self.reason)]
    }
}

/// All of a copy, before its first write.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) copies: Vec<Planned>,
    pub(super) skipped: Vec<Skipped>,
    pub(super) passed_over: Vec<(PathBuf, &'static str)>,
    pub(super) problems: Vec<RemoteStorageError>,
}

pub(super) const COMPLETE: &str = "complete in the tier";
const BELOW_START: &str = "below the start of the log";

impl Plan {
    pub(super) async fn make(
        tier: &Tier,
        paths: Vec<PathBuf>,
        internal_topics: bool,
        strictness: Strictness,
    ) -> Result<Self, Failure> {
        // What is not sealed in an archive is an orphan there, and can never be removed.
        let lacks_key = tier.chains.is_none() && tier.is_archive().await?;
        let (mut plan, partitions) = blocking(move || find(&paths, internal_topics)).await?;
        let mut plans = stream::iter(partitions)
            .map(|dir| Self::of_partition(tier, dir, strictness, lacks_key))
            .buffered(CONCURRENT_PARTITIONS);
        while let Some((partition, of_partition)) = plans.try_next().await? {
            match of_partition {
                Ok(of_partition) => plan.add(&partition, of_partition),
                Err(error) => plan.problems.push(error),
            }
        }
        drop(plans);
        Ok(plan)
    }

    /// The outer error is the tier's, the inner one the partition's.
    async fn of_partition(
        tier: &Tier,
        dir: PartitionDir,
        strictness: Strictness,
        lacks_key: bool,
    ) -> Result<(TopicIdPartition, Result<PartitionPlan, RemoteStorageError>), Failure> {
        let partition = dir.topic_id_partition.clone();
        if let Err(error) = tier.check_partition(&partition) {
            return Ok((partition, Err(error)));
        }
        let in_tier = tier.segments(&partition).await?;
        let seals = tier.chains.is_some();
        if lacks_key || !seals && in_tier.iter().any(TierSegment::is_sealed) {
            let error = sealed::needs_keys(&partition);
            return Ok((partition, Err(error)));
        }
        let plan = blocking(move || PartitionPlan::make(&dir, &in_tier, seals, strictness)).await;
        Ok((partition, plan))
    }

    fn add(&mut self, partition: &TopicIdPartition, of_partition: PartitionPlan) {
        let PartitionPlan {
            copies,
            complete,
            below_start,
            problems,
        } = of_partition;
        for (segments, reason) in [(complete, COMPLETE), (below_start, BELOW_START)] {
            if !segments.is_empty() {
                let partition = partition.clone();
                self.skipped.push(Skipped {
                    partition,
                    segments,
                    reason,
                });
            }
        }
        self.problems.extend(problems);
        self.copies
            .extend(copies.into_iter().map(|(segment, size_bytes)| Planned {
                partition: partition.clone(),
                segment,
                size_bytes,
            }));
    }
}

/// Runs file work where it holds up nothing else.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(ended) => std::panic::resume_unwind(ended.into_panic()),
    }
}

/// The partitions at these paths, each once.
fn find(
    paths: &[PathBuf],
    internal_topics: bool,
) -> Result<(Plan, Vec<PartitionDir>), RemoteStorageError> {
    let mut plan = Plan::default();
    let mut partitions: Vec<PartitionDir> = Vec::new();
    let mut known: HashMap<TopicIdPartition, PathBuf> = HashMap::new();
    for path in paths {
        let found = match walk(path, internal_topics) {
            Ok(found) => found,
            Err(error) => {
                plan.problems.push(error);
                continue;
            }
        };
        plan.passed_over.extend(found.passed_over);
        plan.problems.extend(found.problems);
        for dir in found.partitions {
            let real = dir
                .path
                .canonicalize()
                .map_err(|error| RemoteStorageError::io("open", &dir.path, error))?;
            match known.get(&dir.topic_id_partition) {
                // Named twice.
                Some(other) if *other == real => {}
                Some(other) => plan
                    .problems
                    .push(RemoteStorageError::InvalidArgument(format!(
                        "{} and {} are the same partition: name one of them",
                        other.display(),
                        dir.path.display()
                    ))),
                None => {
                    known.insert(dir.topic_id_partition.clone(), real);
                    partitions.push(dir);
                }
            }
        }
    }
    Ok((plan, partitions))
}

/// Whether a segment need not be copied any more.
pub(super) fn is_complete(log: &ClosedLog, in_tier: &[TierSegment], seals: bool) -> bool {
    in_tier
        .iter()
        // An archive has what is sealed in it.
        .filter(|segment| segment.is_sealed() || !seals)
        .filter(|segment| segment.base_offset() == log.base_offset)
        .any(|segment| segment.log_size() == Some(log.size_bytes))
}

#[derive(Debug, Default)]
struct PartitionPlan {
    copies: Vec<(ClosedSegment, u64)>,
    complete: Vec<ClosedLog>,
    below_start: Vec<ClosedLog>,
    problems: Vec<RemoteStorageError>,
}

impl PartitionPlan {
    fn make(
        dir: &PartitionDir,
        in_tier: &[TierSegment],
        seals: bool,
        strictness: Strictness,
    ) -> Result<Self, RemoteStorageError> {
        let mut plan = Self::default();
        let (complete, wanted): (Vec<_>, Vec<_>) = dir
            .closed_logs()?
            .into_iter()
            .partition(|log| is_complete(log, in_tier, seals));
        plan.complete = complete;
        if wanted.is_empty() {
            return Ok(plan);
        }
        let checkpoint = dir.leader_epochs()?;
        for log in wanted {
            match ClosedSegment::open(dir, log, &checkpoint, strictness.gaps) {
                Ok(Some(segment)) => {
                    let size_bytes = segment.size_of_files()?;
                    plan.copies.push((segment, size_bytes));
                }
                Ok(None) => plan.below_start.push(log),
                Err(error) => plan.problems.push(error),
            }
        }
        if strictness.whole_partitions && !plan.problems.is_empty() {
            plan.copies.clear();
        }
        Ok(plan)
    }
}
