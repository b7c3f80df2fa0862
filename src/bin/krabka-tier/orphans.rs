//! `krabka-tier orphans`: where a tier and the metadata of its cluster differ.

use std::collections::HashSet;
use std::fmt;
use std::pin::pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use indicatif::{HumanBytes, HumanDuration};
use krabka_remote_storage::archive::Printable;
use krabka_remote_storage::metadata::RemoteLogMetadataCache;
use krabka_remote_storage::model::{TopicIdPartition, kafka_uuid};
use krabka_remote_storage::ops::Listing;
use krabka_remote_storage::rebuild::{Difference, Finding, TierComparison};
use krabka_remote_storage::topic::TopicSurvey;
use serde::Serialize;

use crate::cluster::{ClusterArgs, misplaced};
use crate::failure::Failure;
use crate::output::{Audience, Output, count};
use crate::tier::{CONCURRENT_REQUESTS, Patience, Selection, Tier};

/// Compares a tier with the metadata of its cluster: objects that no metadata names, and metadata
/// whose objects are not there. Removes nothing.
///
/// The metadata is read before the tier is listed and once more afterwards, so copies and deletions
/// may go on meanwhile: what is found is no passing state. A copy that has begun is in progress, or
/// abandoned, by its age.
///
/// The program fails if there is something to be done: objects that no broker will ever remove, or
/// segments that cannot be read whole.
#[derive(Args, Debug)]
pub(crate) struct OrphansArgs {
    /// The tier.
    pub(crate) url: String,

    #[command(flatten)]
    cluster: ClusterArgs,

    #[command(flatten)]
    selection: Selection,

    /// How long ago a copy must have begun to count as abandoned. A day, if nothing is said.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 86_400,
        hide_default_value = true
    )]
    older_than: u64,

    /// Writes one JSON object a line; the README has their fields.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(tier: &Tier, args: OrphansArgs, patience: Patience) -> Result<(), Failure> {
    let mut output = Output::new(Audience::of(args.json));
    let selection = args.selection.clone();
    let cluster = args.cluster.open(patience.time()).await?;
    let mut survey = cluster.survey(move |tp| selection.holds(tp)).await?;
    let partitions = partitions(tier, &args.selection, &survey).await?;

    let mut comparison = TierComparison::new();
    let number = partitions.len();
    let mut listings = pin!(
        stream::iter(partitions)
            .map(|partition| async move {
                let listing = match tier.directory(&partition) {
                    Ok(_) => tier.listing(&partition).await?,
                    // A topic's name that no key can have: nothing of it is in any tier.
                    Err(_) => Listing::default(),
                };
                Ok::<_, Failure>((partition, listing))
            })
            .buffered(CONCURRENT_REQUESTS)
    );
    while let Some((partition, listing)) = listings.try_next().await? {
        comparison.compare(&partition, &listing, cache_of(&survey, &partition));
    }
    let observed = cluster.catch_up(&mut survey, |_, event| {
        if let Ok(event) = event {
            comparison.observe(event);
        }
    });
    observed.await?;

    let segments = comparison.segments();
    let now_ms = now_ms();
    let older_than = i64::try_from(args.older_than).unwrap_or(i64::MAX);
    let abandoned_before = now_ms.saturating_sub(older_than.saturating_mul(1000));
    let findings = comparison.findings(|tp| cache_of(&survey, tp), abandoned_before);
    let mut problems = 0;
    for finding in &findings {
        problems += usize::from(finding.is_problem());
        output.event(&Report::Finding(FindingReport::new(finding, now_ms)))?;
    }
    output.event(&Report::Summary(Summary {
        partitions: number,
        segments,
        findings: findings.len(),
        problems,
        misplaced: misplaced(&survey),
    }))?;
    output.flush()?;
    match problems {
        0 => Ok(()),
        _ => Err(Failure::Refused(format!(
            "{} between {} and {cluster}",
            count(
                problems,
                "difference has to be looked at",
                "differences have to be looked at"
            ),
            tier.location()
        ))),
    }
}

/// The partitions that have a directory in the tier, or segments in the metadata.
async fn partitions(
    tier: &Tier,
    selection: &Selection,
    survey: &TopicSurvey,
) -> Result<Vec<TopicIdPartition>, Failure> {
    let mut partitions = tier.partitions().await?;
    partitions.retain(|tp| selection.holds(tp));
    let in_tier: HashSet<TopicIdPartition> = partitions.iter().cloned().collect();
    for known in survey.partitions() {
        let tp = known.cache.topic_id_partition();
        if !in_tier.contains(tp) && !known.cache.list_segments().is_empty() {
            partitions.push(tp.clone());
        }
    }
    Ok(partitions)
}

fn cache_of<'a>(
    survey: &'a TopicSurvey,
    tp: &TopicIdPartition,
) -> Option<&'a RemoteLogMetadataCache> {
    survey.partition(tp).map(|known| &known.cache)
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_millis()).unwrap_or(i64::MAX))
}

/// A line of the output.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Report {
    Finding(FindingReport),
    Summary(Summary),
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "summary")]
struct Summary {
    partitions: usize,
    segments: u64,
    findings: usize,
    problems: usize,
    /// Events that nobody applies: what they name is called `not named` above.
    misplaced: u64,
}

/// A difference, for people and for machines. As JSON, `type` says which.
#[derive(Debug, Serialize)]
struct FindingReport {
    #[serde(flatten)]
    what: What,
    problem: bool,
    topic: String,
    topic_id: String,
    partition: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_offset: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    segment_id: Option<String>,
    size_bytes: u64,
    objects: Vec<ObjectReport>,
    #[serde(skip)]
    age: Option<Duration>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum What {
    UnnamedSegment,
    UnknownObject,
    CopyInProgress {
        since_ms: i64,
    },
    AbandonedCopy {
        since_ms: i64,
    },
    BeingDeleted {
        since_ms: i64,
    },
    MissingObjects {
        missing: Vec<&'static str>,
    },
    OtherSize {
        named_size_bytes: u64,
        log_size_bytes: u64,
    },
}

#[derive(Debug, Serialize)]
struct ObjectReport {
    key: String,
    size_bytes: u64,
    last_modified_ms: i64,
}

impl FindingReport {
    fn new(finding: &Finding, now_ms: i64) -> Self {
        let tp = &finding.topic_id_partition;
        let (what, time_ms) = what_of(finding);
        let age = time_ms.and_then(|time| u64::try_from(now_ms.saturating_sub(time)).ok());
        let objects = finding.objects.iter().map(|object| ObjectReport {
            key: object.key.to_string(),
            size_bytes: object.size,
            last_modified_ms: object.last_modified_ms,
        });
        Self {
            what,
            problem: finding.is_problem(),
            topic: tp.topic.clone(),
            topic_id: kafka_uuid(tp.topic_id),
            partition: tp.partition,
            first_offset: finding.segment.map(|(_, offset)| offset),
            segment_id: finding.segment.map(|(id, _)| kafka_uuid(id)),
            size_bytes: finding.size(),
            objects: objects.collect(),
            age: age.map(Duration::from_millis),
        }
    }
}

/// A difference, and since when it is so.
fn what_of(finding: &Finding) -> (What, Option<i64>) {
    let written = finding.objects.iter().map(|object| object.last_modified_ms);
    match finding.difference {
        Difference::Unnamed => (What::UnnamedSegment, written.max()),
        Difference::CopyInProgress { since_ms } => {
            (What::CopyInProgress { since_ms }, Some(since_ms))
        }
        Difference::AbandonedCopy { since_ms } => {
            (What::AbandonedCopy { since_ms }, Some(since_ms))
        }
        Difference::BeingDeleted { since_ms } => (What::BeingDeleted { since_ms }, Some(since_ms)),
        Difference::MissingObjects { ref suffixes } => {
            let missing = suffixes.clone();
            (What::MissingObjects { missing }, None)
        }
        Difference::OtherSize { named, listed } => {
            let what = What::OtherSize {
                named_size_bytes: named,
                log_size_bytes: listed,
            };
            (what, None)
        }
        _ => (What::UnknownObject, written.max()),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finding(finding) => write!(f, "{finding}"),
            Self::Summary(Summary {
                partitions,
                segments,
                findings,
                problems,
                ..
            }) => write!(
                f,
                "{} of {} compared: {}, of which {problems} {} to be looked at",
                count(*segments, "segment", "segments"),
                count(*partitions, "partition", "partitions"),
                count(*findings, "difference", "differences"),
                if *problems == 1 { "has" } else { "have" },
            ),
        }
    }
}

impl fmt::Display for FindingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.what {
            What::UnnamedSegment => "not named",
            What::UnknownObject => "unknown",
            What::CopyInProgress { .. } => "copying",
            What::AbandonedCopy { .. } => "abandoned",
            What::BeingDeleted { .. } => "deleting",
            What::MissingObjects { .. } => "missing",
            What::OtherSize { .. } => "other size",
        };
        write!(
            f,
            "{name:<10}  {}-{}",
            Printable(&self.topic),
            self.partition
        )?;
        if let (Some(offset), Some(id)) = (self.first_offset, &self.segment_id) {
            write!(f, " from offset {offset}, segment {id}")?;
        }
        let there = format!(
            "{} in {}",
            HumanBytes(self.size_bytes),
            count(self.objects.len(), "object", "objects")
        );
        match &self.what {
            What::UnnamedSegment => write!(f, ": no metadata names {there}"),
            What::UnknownObject => {
                let keys: Vec<_> = self.objects.iter().map(|object| &*object.key).collect();
                let keys = keys.join(", ");
                write!(f, ": {} is no object of a segment", Printable(&keys))
            }
            What::CopyInProgress { .. } => write!(f, ": the copy is under way with {there}"),
            What::AbandonedCopy { .. } => write!(f, ": the copy has not ended and left {there}"),
            What::BeingDeleted { .. } => write!(f, ": the deletion has left {there} so far"),
            What::MissingObjects { missing } => {
                write!(f, ": {} not in the tier", missing.join(", "))
            }
            What::OtherSize {
                named_size_bytes,
                log_size_bytes,
            } => write!(
                f,
                ": .log has {log_size_bytes} bytes, and the metadata says {named_size_bytes}"
            ),
        }?;
        match (&self.what, self.age) {
            (What::UnnamedSegment | What::UnknownObject, Some(age)) => {
                write!(f, ", written {} ago", HumanDuration(age))
            }
            (_, Some(age)) => write!(f, ", begun {} ago", HumanDuration(age)),
            (_, None) => Ok(()),
        }
    }
}
