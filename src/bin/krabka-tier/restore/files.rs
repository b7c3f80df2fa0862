//! Which files a restored directory has, where their bytes come from, and what is wrong with that.

use krabka_remote_storage::index::{BatchPrefix, Batches, LeaderEpochCheckpoint, OffsetIndex};
use krabka_remote_storage::index::{EpochEntry, corrupt_log};
use krabka_remote_storage::layout::{
    LEADER_EPOCH_CHECKPOINT_FILE, PARTITION_METADATA_FILE, log_file_name,
};
use krabka_remote_storage::model::{IndexType, LOG_FILE_SUFFIX, TopicIdPartition, kafka_uuid};
use krabka_remote_storage::rebuild::ListedObject;
use krabka_remote_storage::{FetchIndex, FetchSegment, RemoteStorage, RemoteStorageError};

use super::chain::{Chain, Link};
use crate::ends::is_damage;
use crate::failure::{Failure, chain as causes};
use crate::tier::{Tier, TierSegment};

/// How much of a log is read at once to find where it is cut.
const STEP_BYTES: u64 = 1 << 20;

/// All files of a restored directory.
pub(super) struct Plan {
    pub(super) files: Vec<PlannedFile>,
    pub(super) problems: Vec<Problem>,
    /// Worth knowing, and nothing wrong.
    pub(super) notes: Vec<String>,
}

/// One file to write.
pub(super) struct PlannedFile {
    pub(super) name: String,
    pub(super) bytes: Source,
}

/// Where a file's bytes come from.
pub(super) enum Source {
    /// The first bytes of an object, all of them unless it is cut.
    Object {
        segment: TierSegment,
        object: ListedObject,
        size: u64,
    },
    Text(String),
}

/// Something that may keep the partition from being restored.
pub(super) struct Problem {
    pub(super) kind: ProblemKind,
    pub(super) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProblemKind {
    /// Offsets that will not be there.
    Gap,
    /// Files that will not be there.
    Missing,
}

/// What is restored in spite of a problem.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strictness {
    pub(super) gaps: bool,
    pub(super) missing: bool,
}

impl Strictness {
    pub(super) fn allows(self, kind: ProblemKind) -> bool {
        match kind {
            ProblemKind::Gap => self.gaps,
            ProblemKind::Missing => self.missing,
        }
    }
}

/// Which options would allow what is refused.
pub(super) fn remedy(problems: &[Problem], strictness: Strictness) -> String {
    let refused =
        |kind| !strictness.allows(kind) && problems.iter().any(|problem| problem.kind == kind);
    let mut options = Vec::new();
    if refused(ProblemKind::Gap) {
        options.push("--allow-gaps restores what there is");
    }
    if refused(ProblemKind::Missing) {
        options.push("--allow-missing leaves to the broker what it can make anew");
    }
    options.join(", ")
}

impl Plan {
    pub(super) async fn of(
        tier: &Tier,
        partition: &TopicIdPartition,
        chain: &Chain,
    ) -> Result<Self, Failure> {
        let mut plan = Self {
            files: Vec::new(),
            problems: Vec::new(),
            notes: Vec::new(),
        };
        for failure in &chain.damage {
            plan.problem(ProblemKind::Gap, causes(failure));
        }
        for failure in &chain.replaced {
            plan.notes
                .push(format!("{}; another copy is restored", causes(failure)));
        }
        for gap in &chain.gaps {
            let (first, last) = (gap.start(), gap.end());
            plan.problem(
                ProblemKind::Gap,
                format!("offsets {first} to {last} are in no segment of the tier"),
            );
        }
        for link in &chain.links {
            if link.is_cut {
                plan.add_cut(tier, link).await?;
            } else {
                plan.add_whole(link)?;
            }
        }
        plan.add_checkpoint(tier, chain).await?;
        plan.files.push(PlannedFile {
            name: PARTITION_METADATA_FILE.to_owned(),
            // Kafka ends the file without a line break.
            bytes: Source::Text(format!(
                "version: 0\ntopic_id: {}",
                kafka_uuid(partition.topic_id)
            )),
        });
        Ok(plan)
    }

    fn problem(&mut self, kind: ProblemKind, text: String) {
        self.problems.push(Problem { kind, text });
    }

    /// All of a segment.
    fn add_whole(&mut self, link: &Link) -> Result<(), RemoteStorageError> {
        let base_offset = link.base_offset();
        for (suffix, offset, is_required) in [
            (LOG_FILE_SUFFIX, base_offset, true),
            (IndexType::Offset.suffix(), base_offset, true),
            (IndexType::Timestamp.suffix(), base_offset, true),
            // Only a segment with aborted transactions has one.
            (IndexType::Transaction.suffix(), base_offset, false),
            // The state after the segment is the state before the next one.
            (
                IndexType::ProducerSnapshot.suffix(),
                link.next_offset(),
                true,
            ),
        ] {
            match link.segment.listed.object(suffix) {
                Some(object) => self.files.push(PlannedFile {
                    name: log_file_name(offset, suffix)?,
                    bytes: Source::Object {
                        segment: link.segment.clone(),
                        object: object.clone(),
                        size: object.size,
                    },
                }),
                None if is_required => {
                    self.problem(
                        ProblemKind::Missing,
                        format!("{} has lost its `{suffix}`", name(&link.segment)),
                    );
                }
                None => {}
            }
        }
        Ok(())
    }

    /// The batches of a segment up to where the next one begins. What is beside its log is about more
    /// than these.
    async fn add_cut(&mut self, tier: &Tier, link: &Link) -> Result<(), Failure> {
        let Some(log) = link.segment.listed.log() else {
            return Ok(());
        };
        let size = position_of(&tier.storage, &link.segment, link.next_offset())
            .await
            .map_err(|error| {
                let what = format!(
                    "cannot find offset {} in the log of {}",
                    link.next_offset(),
                    name(&link.segment)
                );
                Failure::during(what, error)
            })?;
        self.notes.push(format!(
            "{} is cut before offset {}, where another one goes on: a broker makes its indexes anew",
            name(&link.segment),
            link.next_offset()
        ));
        self.files.push(PlannedFile {
            name: log_file_name(link.base_offset(), LOG_FILE_SUFFIX)?,
            bytes: Source::Object {
                segment: link.segment.clone(),
                object: log.clone(),
                size,
            },
        });
        Ok(())
    }

    /// The leader epochs up to the end of the log: the newest segment's checkpoint, unless the tier
    /// has more of the history.
    async fn add_checkpoint(&mut self, tier: &Tier, chain: &Chain) -> Result<(), Failure> {
        for link in &chain.links {
            if let Some(reason) = &link.mended {
                self.problem(
                    ProblemKind::Missing,
                    format!(
                        "{} has lost its leader epochs: {}",
                        name(&link.segment),
                        causes(reason)
                    ),
                );
            }
        }
        let last_offset = chain.last_offset();
        let epochs = chain.view.lineage.epochs();
        let entries: Vec<_> = epochs
            .iter()
            .map(|(&epoch, &start_offset)| EpochEntry {
                epoch,
                start_offset,
            })
            .filter(|entry| entry.start_offset <= last_offset)
            .collect();
        let history = LeaderEpochCheckpoint { entries };
        let text = match chain.links.last() {
            Some(link) if link.mended.is_none() => {
                let fetch = FetchIndex::new(link.segment.handle.clone(), IndexType::LeaderEpoch);
                let bytes = tier.storage.fetch_index(fetch).await?;
                let is_all = LeaderEpochCheckpoint::parse(&bytes).is_ok_and(|told| told == history);
                is_all.then(|| String::from_utf8_lossy(&bytes).into_owned())
            }
            _ => None,
        };
        self.files.push(PlannedFile {
            name: LEADER_EPOCH_CHECKPOINT_FILE.to_owned(),
            bytes: Source::Text(text.unwrap_or_else(|| history.to_string())),
        });
        Ok(())
    }
}

/// A segment in words.
pub(super) fn name(segment: &TierSegment) -> String {
    format!(
        "segment {} at offset {}",
        segment.id_text(),
        segment.base_offset()
    )
}

/// Where the first batch begins that ends at or after an offset: the log's length without such a
/// batch.
async fn position_of(
    storage: &RemoteStorage,
    segment: &TierSegment,
    offset: i64,
) -> Result<u64, RemoteStorageError> {
    let size = segment.log_size().unwrap_or_default();
    let fetch = FetchIndex::new(segment.handle.clone(), IndexType::Offset);
    let indexed = match storage.fetch_index(fetch).await {
        Ok(index) => OffsetIndex::new(segment.base_offset(), &index)
            .lookup(offset - 1)
            .position
            .into(),
        Err(error) if is_damage(&error) => 0,
        Err(error) => return Err(error),
    };
    match walk_to(storage, segment, offset, indexed, size).await {
        Err(error) if indexed > 0 && is_damage(&error) => {
            walk_to(storage, segment, offset, 0, size).await
        }
        found => found,
    }
}

async fn walk_to(
    storage: &RemoteStorage,
    segment: &TierSegment,
    offset: i64,
    from: u64,
    size: u64,
) -> Result<u64, RemoteStorageError> {
    let mut position = from;
    while position < size {
        let end = (position + STEP_BYTES).min(size) - 1;
        let in_log = |position: u64| {
            u32::try_from(position)
                .map_err(|_| corrupt_log(format_args!("position {position} is beyond any segment")))
        };
        let fetch = FetchSegment::new(
            segment.handle.clone(),
            in_log(position)?,
            Some(in_log(end)?),
        );
        let bytes = storage.fetch(fetch).await?;
        let mut batches = Batches::new(&bytes);
        for batch in batches.by_ref() {
            let batch = batch?;
            if batch.last_offset()? >= offset {
                return Ok(position + batch.position() as u64);
            }
        }
        position += batches.position() as u64;
        // A batch that is cut off: its first bytes tell enough, or are fetched again.
        match BatchPrefix::read(batches.remainder())? {
            Some(prefix) if prefix.last_offset.is_some_and(|last| last >= offset) => break,
            Some(prefix) if prefix.last_offset.is_some() => position += prefix.size as u64,
            _ if batches.position() > 0 => {}
            _ => return Err(corrupt_log("the log ends within a batch")),
        }
    }
    Ok(position.min(size))
}
