//! `krabka-tier read`: records of a partition, from an offset on.

mod json;
mod lineage;
mod walk;

use clap::{Args, ValueEnum};
use krabka_remote_storage::index::Batch;
use uuid::Uuid;

use self::walk::{Budget, TierLog};
use crate::failure::Failure;
use crate::output::{Audience, Output};
use crate::tier::{Selection, Tier, parse_id};

/// Reads whole record batches of a partition, from the batch with an offset on.
///
/// `raw` writes the batches as Kafka stored them, the first one whole even if it begins before the
/// offset. `json` writes one object for each record at or after the offset; control records are left
/// out. The records of aborted transactions are there, as for a consumer that reads uncommitted.
#[derive(Args, Debug)]
pub(crate) struct ReadArgs {
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

    /// The first offset that is wanted.
    #[arg(long, value_name = "OFFSET", allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(0..))]
    offset: i64,

    /// How many bytes of batches to read at most; the first batch is always read whole. Without it
    /// everything up to the end of the tier.
    #[arg(long, value_name = "BYTES")]
    max_bytes: Option<u64>,

    /// What to write.
    #[arg(long, value_enum, default_value_t = Format::Json)]
    format: Format,

    /// Adds the records' values to `json`.
    #[arg(long, value_enum)]
    values: Option<Values>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// The batches' own bytes.
    Raw,
    /// One object a line for each record.
    Json,
}

/// How values are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Values {
    /// As text; what is not UTF-8 is replaced.
    Text,
    /// In hexadecimal.
    Hex,
}

pub(crate) async fn run(tier: &Tier, args: ReadArgs) -> Result<(), Failure> {
    if args.format == Format::Raw && args.values.is_some() {
        return Err(Failure::Usage("--values is about --format json".to_owned()));
    }
    let selection = Selection::new(args.topic, Some(args.partition), args.topic_id);
    let mut partitions = selection.of_one_topic(tier.partitions().await?, tier.location())?;
    let partition = partitions.remove(0);
    let mut output = Output::new(Audience::Machines);
    let mut log = TierLog::open(tier, partition).await?;
    let write = |batch: &Batch<'_>| match args.format {
        Format::Raw => output.bytes(batch.bytes()),
        Format::Json => json::write(batch, args.offset, args.values, &mut output),
    };
    let result = log
        .read(args.offset, Budget::new(args.max_bytes), write)
        .await;
    // What was read before a failure is whole, and is written out.
    output.flush()?;
    result
}
