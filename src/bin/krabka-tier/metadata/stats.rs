//! `krabka-tier metadata stats`: the metadata topic in numbers.

use std::collections::BTreeMap;
use std::fmt;

use clap::Args;
use indicatif::HumanBytes;
use krabka_remote_storage::archive::Printable;
use krabka_remote_storage::model::{RemoteLogSegmentState, TopicIdPartition, kafka_uuid};
use krabka_remote_storage::topic::{MetadataPartitionSurvey, PartitionSurvey, TopicSurvey};
use serde::Serialize;

use super::report::reason_of;
use super::{UserPartition, end, parse_partition};
use crate::cluster::ClusterArgs;
use crate::failure::{Failure, print_error, print_note};
use crate::output::{Audience, Output, count};
use crate::tier::Patience;

/// How many poison records are named.
const MOST_NAMED: u64 = 20;

/// The states that a segment can be in: one whose deletion has finished is not there any more.
const STATES: [RemoteLogSegmentState; 3] = [
    RemoteLogSegmentState::CopySegmentStarted,
    RemoteLogSegmentState::CopySegmentFinished,
    RemoteLogSegmentState::DeleteSegmentStarted,
];

/// Replays the metadata topic, and shows numbers: records of each metadata partition, segments of
/// each user's partition by state, bytes, and the highest offset of each leader epoch.
///
/// Records at which the brokers of Apache Kafka stop are named, and the program fails in the end.
#[derive(Args, Debug)]
pub(super) struct StatsArgs {
    #[command(flatten)]
    cluster: ClusterArgs,

    /// Of the users' partitions only this one.
    #[arg(long, value_name = "TOPIC-N", value_parser = parse_partition, allow_hyphen_values = true)]
    user_partition: Option<UserPartition>,

    /// Writes one JSON object a line; the README has their fields.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: StatsArgs, patience: Patience) -> Result<(), Failure> {
    let mut output = Output::new(Audience::of(args.json));
    let cluster = args.cluster.open(patience.time()).await?;
    let wanted = args.user_partition;
    let is_wanted = move |tp: &TopicIdPartition| wanted.as_ref().is_none_or(|wanted| wanted.is(tp));
    let mut survey = TopicSurvey::new().keeping(is_wanted);
    let mut poison = 0;
    let read = cluster.catch_up(&mut survey, |record, event| {
        if let Err(reason) = event {
            poison += 1;
            if poison <= MOST_NAMED {
                print_error(&Failure::Refused(format!(
                    "metadata partition {} has a poison record at offset {}: {}",
                    record.partition,
                    record.offset,
                    Printable(&reason_of(reason))
                )));
            }
        }
    });
    read.await?;
    if poison > MOST_NAMED {
        print_note(format_args!(
            "and {} more: `krabka-tier metadata dump` shows all",
            poison - MOST_NAMED
        ));
    }
    cluster.note_misplaced(&survey);
    write(&survey, &cluster.to_string(), &mut output)?;
    output.flush()?;
    end(poison)
}

fn write(survey: &TopicSurvey, name: &str, output: &mut Output) -> Result<(), Failure> {
    let mut total = Total::new(survey);
    output.note(name)?;
    output.note(format_args!(
        "  {:>9} {:>10} {:>10} {:>9} {:>9} {:>9} {:>9} {:>7} {:>10} {:>9} {:>8}",
        "PARTITION",
        "LOW",
        "HIGH",
        "RECORDS",
        "ADDS",
        "UPDATES",
        "DELETES",
        "POISON",
        "TOMBSTONES",
        "MISPLACED",
        "DROPPED"
    ))?;
    for partition in survey.metadata_partitions() {
        output.event(&Stats::MetadataPartition(Records::of(partition)))?;
    }
    output.note(format_args!(
        "\n  {:>9} {:>9} {:>8} {:>8} {:>8} {:>11}  USER'S PARTITION",
        "PARTITION", "EVENTS", "COPYING", "FINISHED", "DELETING", "FINISHED"
    ))?;
    for partition in survey.partitions() {
        let user = User::of(partition);
        total.add(&user);
        output.event(&Stats::UserPartition(user))?;
    }
    output.note("")?;
    output.event(&Stats::Total(total))
}

/// A line of the output. As JSON, `type` says which.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Stats {
    MetadataPartition(Records),
    UserPartition(User),
    Total(Total),
}

/// The records of one metadata partition.
#[derive(Debug, Serialize)]
struct Records {
    partition: i32,
    low: i64,
    high: i64,
    #[serde(flatten)]
    numbers: Numbers,
}

#[derive(Debug, Default, Serialize)]
struct Numbers {
    records: u64,
    adds: u64,
    updates: u64,
    partition_deletes: u64,
    /// Tombstones, undecodable and unpublishable records.
    poison: u64,
    tombstones: u64,
    undecodable: u64,
    unpublishable: u64,
    misplaced: u64,
    dropped: u64,
}

/// One user's partition.
#[derive(Debug, Serialize)]
struct User {
    topic: String,
    topic_id: String,
    partition: i32,
    metadata_partition: i32,
    events: u64,
    dropped: u64,
    /// By state.
    segments: BTreeMap<String, u64>,
    size_bytes: BTreeMap<String, u64>,
    /// By leader epoch.
    highest_offsets: BTreeMap<i32, i64>,
    delete_state: Option<String>,
}

#[derive(Debug, Serialize)]
struct Total {
    topic_id: Option<String>,
    metadata_partitions: usize,
    user_partitions: u64,
    #[serde(flatten)]
    numbers: Numbers,
    segments: BTreeMap<String, u64>,
    size_bytes: BTreeMap<String, u64>,
}

impl Records {
    fn of(survey: &MetadataPartitionSurvey) -> Self {
        let mut numbers = Numbers::default();
        numbers.add(survey);
        Self {
            partition: survey.partition,
            low: survey.low,
            high: survey.high,
            numbers,
        }
    }
}

impl Numbers {
    fn add(&mut self, survey: &MetadataPartitionSurvey) {
        self.records += survey.records;
        self.adds += survey.adds;
        self.updates += survey.updates;
        self.partition_deletes += survey.partition_deletes;
        self.poison += survey.poison();
        self.tombstones += survey.tombstones;
        self.undecodable += survey.undecodable;
        self.unpublishable += survey.unpublishable;
        self.misplaced += survey.misplaced;
        self.dropped += survey.dropped;
    }
}

impl User {
    fn of(survey: &PartitionSurvey) -> Self {
        let tp = survey.cache.topic_id_partition();
        let statistics = survey.statistics();
        let of_states = STATES.map(|state| (state.to_string(), statistics.in_state(state)));
        Self {
            topic: tp.topic.clone(),
            topic_id: kafka_uuid(tp.topic_id),
            partition: tp.partition,
            metadata_partition: survey.metadata_partition,
            events: survey.events,
            dropped: survey.dropped,
            segments: of_states
                .iter()
                .map(|(state, of_state)| (state.clone(), of_state.segments))
                .collect(),
            size_bytes: of_states
                .iter()
                .map(|(state, of_state)| (state.clone(), of_state.bytes))
                .collect(),
            highest_offsets: statistics
                .highest_offsets
                .iter()
                .map(|(epoch, offset)| (epoch.0, *offset))
                .collect(),
            delete_state: statistics.delete_state.map(|state| state.to_string()),
        }
    }
}

impl Total {
    fn new(survey: &TopicSurvey) -> Self {
        let mut numbers = Numbers::default();
        for partition in survey.metadata_partitions() {
            numbers.add(partition);
        }
        Self {
            topic_id: survey.topic_id().map(kafka_uuid),
            metadata_partitions: survey.metadata_partitions().len(),
            user_partitions: 0,
            numbers,
            segments: BTreeMap::new(),
            size_bytes: BTreeMap::new(),
        }
    }

    fn add(&mut self, user: &User) {
        self.user_partitions += 1;
        for (state, segments) in &user.segments {
            *self.segments.entry(state.clone()).or_default() += segments;
        }
        for (state, bytes) in &user.size_bytes {
            *self.size_bytes.entry(state.clone()).or_default() += bytes;
        }
    }
}

/// The number of a state.
fn of(numbers: &BTreeMap<String, u64>, state: RemoteLogSegmentState) -> u64 {
    numbers.get(&state.to_string()).copied().unwrap_or_default()
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [started, finished, deleting] = STATES;
        match self {
            Self::MetadataPartition(Records {
                partition,
                low,
                high,
                numbers,
            }) => write!(
                f,
                "  {partition:>9} {low:>10} {high:>10} {:>9} {:>9} {:>9} {:>9} {:>7} {:>10} {:>9} {:>8}",
                numbers.records,
                numbers.adds,
                numbers.updates,
                numbers.partition_deletes,
                numbers.poison,
                numbers.tombstones,
                numbers.misplaced,
                numbers.dropped
            ),
            Self::UserPartition(user) => {
                write!(
                    f,
                    "  {:>9} {:>9} {:>8} {:>8} {:>8} {:>11}  {}-{}  (topic id {})",
                    user.metadata_partition,
                    user.events,
                    of(&user.segments, started),
                    of(&user.segments, finished),
                    of(&user.segments, deleting),
                    HumanBytes(of(&user.size_bytes, finished)).to_string(),
                    Printable(&user.topic),
                    user.partition,
                    user.topic_id
                )?;
                if !user.highest_offsets.is_empty() {
                    f.write_str("  highest offsets:")?;
                }
                for (epoch, offset) in &user.highest_offsets {
                    write!(f, " {offset} in epoch {epoch}")?;
                }
                match &user.delete_state {
                    Some(state) => write!(f, "  {state}"),
                    None => Ok(()),
                }
            }
            Self::Total(total) => write!(
                f,
                "total: {} in {}, {} of them poison; {} with {} of {}, {} and {} begun",
                count(total.numbers.records, "record", "records"),
                count(
                    total.metadata_partitions as u64,
                    "metadata partition",
                    "metadata partitions"
                ),
                total.numbers.poison,
                count(
                    total.user_partitions,
                    "user's partition",
                    "users' partitions"
                ),
                count(
                    of(&total.segments, finished),
                    "finished segment",
                    "finished segments"
                ),
                HumanBytes(of(&total.size_bytes, finished)),
                count(of(&total.segments, started), "copy", "copies"),
                count(of(&total.segments, deleting), "deletion", "deletions")
            ),
        }
    }
}
