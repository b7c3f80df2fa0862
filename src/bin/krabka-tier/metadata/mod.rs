//! `krabka-tier metadata`: what the metadata topic of a cluster holds.

mod dump;
mod report;
mod stats;
mod tail;

use std::fmt;

use clap::{Args, Subcommand};
use krabka_remote_storage::archive::Printable;
use krabka_remote_storage::model::TopicIdPartition;
use krabka_remote_storage::topic::{MetadataEvent, PoisonReason};

use crate::failure::Failure;
use crate::output::count;
use crate::tier::Patience;

/// Shows the metadata topic of a cluster: its records, new records as they come, or numbers.
///
/// The topic is read from its start to its end and nothing is written: no record, no offset of a
/// consumer group.
#[derive(Args, Debug)]
pub(crate) struct MetadataArgs {
    #[command(subcommand)]
    command: MetadataCommand,
}

#[derive(Debug, Subcommand)]
enum MetadataCommand {
    Dump(dump::DumpArgs),
    Tail(tail::TailArgs),
    Stats(stats::StatsArgs),
}

pub(crate) async fn run(args: MetadataArgs, patience: Patience) -> Result<(), Failure> {
    match args.command {
        MetadataCommand::Dump(args) => dump::run(args, patience).await,
        MetadataCommand::Tail(args) => tail::run(args, patience).await,
        MetadataCommand::Stats(args) => stats::run(args, patience).await,
    }
}

/// Which records are shown.
#[derive(Args, Clone, Debug)]
struct Filter {
    /// Only records of this metadata partition.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    partition: Option<i32>,

    /// Only events of this partition of a user's topic. Records that are no event may be of any
    /// partition, and are always shown.
    #[arg(long, value_name = "TOPIC-N", value_parser = parse_partition, allow_hyphen_values = true)]
    user_partition: Option<UserPartition>,
}

impl Filter {
    fn holds(&self, event: &Result<MetadataEvent, PoisonReason>) -> bool {
        match (event, &self.user_partition) {
            (Ok(event), Some(wanted)) => wanted.is(event.topic_id_partition()),
            _ => true,
        }
    }
}

/// A partition on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UserPartition {
    topic: String,
    partition: i32,
}

impl UserPartition {
    fn is(&self, tp: &TopicIdPartition) -> bool {
        tp.topic == self.topic && tp.partition == self.partition
    }
}

impl fmt::Display for UserPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", Printable(&self.topic), self.partition)
    }
}

fn parse_partition(text: &str) -> Result<UserPartition, String> {
    let parts = text.rsplit_once('-').and_then(|(topic, partition)| {
        let partition = partition.parse().ok().filter(|number| *number >= 0)?;
        (!topic.is_empty()).then(|| UserPartition {
            topic: topic.to_owned(),
            partition,
        })
    });
    parts.ok_or_else(|| "a partition is TOPIC-N, as in orders-0".to_owned())
}

/// The end of a command that has seen so many poison records.
fn end(poison: u64) -> Result<(), Failure> {
    if poison == 0 {
        return Ok(());
    }
    Err(Failure::Refused(format!(
        "{} in the metadata topic: brokers of Apache Kafka stop at such a record, and read no more of \
         its metadata partition",
        count(poison, "poison record is", "poison records are")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_a_topic_and_a_number() {
        for (text, topic, partition) in [("orders-0", "orders", 0), ("a-b--12", "a-b-", 12)] {
            let expected = UserPartition {
                topic: topic.to_owned(),
                partition,
            };
            assert_eq!(parse_partition(text), Ok(expected));
        }
        for text in [
            "orders",
            "orders-",
            "-0",
            "orders-x",
            "",
            "orders-2147483648",
        ] {
            assert!(parse_partition(text).is_err(), "{text}");
        }
    }
}
