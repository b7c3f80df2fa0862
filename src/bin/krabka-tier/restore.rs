//! `krabka-tier restore`: a partition of a tier, back into a directory that a broker can start from.

mod chain;
mod download;
mod files;
mod indexes;
mod verify;

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::HumanBytes;
use krabka_remote_storage::RemoteStorageError;
use krabka_remote_storage::layout::parse_log_dir_name;
use krabka_remote_storage::model::{TopicIdPartition, kafka_uuid};
use serde::Serialize;
use uuid::Uuid;

use self::chain::Chain;
use self::download::{Filled, Target};
use self::files::{Plan, Problem, Strictness, remedy};
use crate::cluster::OptionalClusterArgs;
use crate::failure::{Failure, print_error, print_note};
use crate::inventory::Inventory;
use crate::output::{Audience, Output, count};
use crate::tier::{Patience, Selection, Tier, parse_id};

/// Writes a partition of a tier back into a directory that a broker can start from.
///
/// All files of every segment that a reader would be sent to: log, indexes, producer snapshot, byte
/// for byte as they lie in the tier; the newest leader-epoch checkpoint, and `partition.metadata`
/// with the topic's id. The cluster has to know the topic by that id. Where two segments overlap, as
/// after a change of leaders, the older one is cut where the newer one begins; a broker makes its
/// indexes anew.
///
/// Everything is written under another name beside DIR, checked, and made durable: checksum,
/// offsets and leader epoch of all batches, every entry of the indexes, the transaction index against
/// the abort markers of the log, the producer snapshot. DIR appears last, whole, or not at all.
#[derive(Args, Debug)]
pub(crate) struct RestoreArgs {
    /// The tier.
    pub(crate) url: String,

    /// The topic.
    #[arg(long, value_name = "TOPIC", allow_hyphen_values = true)]
    topic: String,

    /// The partition.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    partition: i32,

    /// The topic with this id, where there were several of the same name.
    #[arg(long, value_name = "ID", value_parser = parse_id, allow_hyphen_values = true)]
    topic_id: Option<Uuid>,

    #[command(flatten)]
    cluster: OptionalClusterArgs,

    /// The partition's directory, which must be new or empty. In a log directory of a broker it is
    /// named TOPIC-N.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,

    /// Restores what there is when offsets are in no segment, or the log of their segment is damaged.
    ///
    /// Compaction leaves such gaps; without it they are refused.
    #[arg(long)]
    allow_gaps: bool,

    /// Restores segments of which an index, the producer snapshot or the leader epochs are lost or do
    /// not fit the log. What does not fit is left out: a broker makes it anew from the log when it
    /// starts.
    #[arg(long)]
    allow_missing: bool,

    /// Writes one JSON object; the README has its fields.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(tier: &Tier, args: RestoreArgs, patience: Patience) -> Result<(), Failure> {
    let selection = Selection::new(args.topic, Some(args.partition), args.topic_id);
    let target = Target::check(&args.to)?;
    let inventory = Inventory::open(args.cluster, &selection, patience).await?;
    let partition = inventory.partition(tier, &selection).await?;
    let mut reporter = Reporter {
        strictness: Strictness {
            gaps: args.allow_gaps,
            missing: args.allow_missing,
        },
        told: HashSet::new(),
    };
    tell_name(&args.to, &partition);
    // Only what was written can be checked, so it may take another attempt without what is damaged.
    let mut excluded = Vec::new();
    let (chain, restored) = loop {
        let chain = Chain::of(tier, &inventory, &partition, &excluded).await?;
        let plan = Plan::of(tier, &partition, &chain).await?;
        reporter.problems(&plan.problems)?;
        for note in &plan.notes {
            reporter.note(note);
        }
        match target.fill(tier, &chain, &plan, &mut reporter).await? {
            Filled::Whole(restored) => break (chain, restored),
            Filled::Damaged(damaged) => excluded.extend(damaged),
        }
    };

    let mut output = Output::new(Audience::of(args.json));
    output.event(&Restored {
        topic: partition.topic.clone(),
        topic_id: kafka_uuid(partition.topic_id),
        partition: partition.partition,
        dir: args.to.display().to_string(),
        first_offset: chain.first_offset(),
        last_offset: chain.last_offset(),
        segments: chain.links.len(),
        files: restored.files,
        size_bytes: restored.bytes,
    })?;
    output.flush()
}

/// Tells what there is to tell of the partition: each thing once, however many attempts it takes.
struct Reporter {
    strictness: Strictness,
    told: HashSet<String>,
}

impl Reporter {
    fn note(&mut self, text: &str) {
        if self.told.insert(text.to_owned()) {
            print_note(text);
        }
    }

    /// Says what is wrong, and fails unless it was allowed.
    fn problems(&mut self, problems: &[Problem]) -> Result<(), Failure> {
        let mut refused = 0;
        for problem in problems {
            if self.strictness.allows(problem.kind) {
                self.note(&problem.text);
            } else {
                print_error(&Failure::Refused(problem.text.clone()));
                refused += 1;
            }
        }
        if refused > 0 {
            return Err(Failure::Refused(format!(
                "nothing was restored because of {} above: {}",
                count(refused, "problem", "problems"),
                remedy(problems, self.strictness)
            )));
        }
        Ok(())
    }
}

/// Says so when a broker would not know the directory by its name.
fn tell_name(dir: &Path, partition: &TopicIdPartition) {
    let name = dir.file_name().and_then(|name| name.to_str());
    let is_its_own = name
        .and_then(parse_log_dir_name)
        .is_some_and(|name| name.topic == partition.topic && name.partition == partition.partition);
    if !is_its_own {
        print_note(format_args!(
            "a broker finds this partition in a directory named {}-{}",
            partition.topic, partition.partition
        ));
    }
}

/// What was restored.
#[derive(Debug, Serialize)]
struct Restored {
    topic: String,
    topic_id: String,
    partition: i32,
    dir: String,
    first_offset: i64,
    last_offset: i64,
    segments: usize,
    files: usize,
    size_bytes: u64,
}

impl fmt::Display for Restored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "restored {}-{} to {}: {}, {} in {}, offsets {} to {}",
            self.topic,
            self.partition,
            self.dir,
            count(self.segments, "segment", "segments"),
            HumanBytes(self.size_bytes),
            count(self.files, "file", "files"),
            self.first_offset,
            self.last_offset
        )
    }
}

/// An error about a file that is being restored.
fn failed(action: &'static str, path: &Path, error: io::Error) -> Failure {
    RemoteStorageError::io(action, path, error).into()
}
