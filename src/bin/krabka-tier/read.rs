//! `krabka-tier read`: records of a partition, from an offset on.

mod committed;
mod json;
mod walk;

use std::ops::ControlFlow;

use clap::{ArgGroup, Args, ValueEnum};
use krabka_remote_storage::index::Batch;
use uuid::Uuid;

use self::walk::{Budget, TierLog};
use crate::cluster::OptionalClusterArgs;
use crate::console::say;
use crate::failure::{Failure, print_note};
use crate::inventory::Inventory;
use crate::output::{Audience, Output};
use crate::stats::Stats;
use crate::tier::{Patience, Selection, Tier, parse_id};

/// Reads whole record batches of a partition, from the batch with an offset on.
///
/// `raw` writes the batches as Kafka stored them, the first one whole even if it begins before the
/// offset. `json` writes one object for each record at or after the offset; control records are left
/// out. The records of aborted transactions are there, as for a consumer that reads uncommitted,
/// unless --read-committed is given.
///
/// Without --bootstrap there is no metadata store to ask: it is made anew from the tier, with one
/// small request for each segment of the partition. What is damaged is passed by where the tier has another way to the same
/// records, with a note on standard error.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("from").required(true).args(["offset", "from_timestamp"])))]
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

    #[command(flatten)]
    cluster: OptionalClusterArgs,

    /// The first offset that is wanted.
    #[arg(long, value_name = "OFFSET", allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(0..))]
    offset: Option<i64>,

    /// Reads from the first record on whose timestamp is this one or later, in milliseconds since
    /// 1970-01-01 UTC.
    #[arg(long, value_name = "MS", allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(0..))]
    from_timestamp: Option<i64>,

    /// Leaves out the data of aborted transactions, and control batches, as a consumer does that
    /// reads committed.
    ///
    /// Only the markers in the log count: a record is written once the commit of its transaction has
    /// been read. Where a damaged or missing segment may have had it, records end before the
    /// transaction, and the program fails.
    ///
    /// A tier cannot tell how a transaction ends that is open at the tier's end: records end before
    /// the first of these, and a note on standard error says so.
    #[arg(long)]
    read_committed: bool,

    /// How many bytes of batches to read at most, those that --read-committed leaves out included;
    /// the first batch is always read whole. Without it everything up to the end of the tier.
    #[arg(long, value_name = "BYTES")]
    max_bytes: Option<u64>,

    /// What to write.
    #[arg(long, value_enum, default_value_t = Format::Json)]
    format: Format,

    /// Adds the records' values to `json`.
    #[arg(long, value_enum)]
    values: Option<Values>,

    /// Says at the end, on standard error, how many requests to the store the read took and how many
    /// bytes came back, by kind of object. A request that was repeated counts each time, a listing
    /// once.
    #[arg(long)]
    stats: bool,
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

pub(crate) async fn run(
    tier: &Tier,
    stats: &Stats,
    args: ReadArgs,
    patience: Patience,
) -> Result<(), Failure> {
    if args.format == Format::Raw && args.values.is_some() {
        return Err(Failure::Usage("--values is about --format json".to_owned()));
    }
    let tell_stats = args.stats;
    let result = read(tier, args, patience).await;
    if tell_stats {
        say(stats);
    }
    result
}

async fn read(tier: &Tier, args: ReadArgs, patience: Patience) -> Result<(), Failure> {
    let selection = Selection::new(args.topic, Some(args.partition), args.topic_id);
    let inventory = Inventory::open(args.cluster, &selection, patience).await?;
    let partition = inventory.partition(tier, &selection).await?;
    let mut log = TierLog::open(tier, &inventory, partition).await?;
    let offset = match (args.offset, args.from_timestamp) {
        (None, Some(timestamp_ms)) => log.offset_for_timestamp(timestamp_ms).await?,
        (offset, _) => offset,
    };
    let Some(offset) = offset else {
        print_note("no record in the tier has this timestamp or a later one");
        return Ok(());
    };
    let offset = log.first_kept(offset)?;
    let mut output = Output::new(Audience::Machines);
    let write = |batch: &Batch<'_>| {
        match args.format {
            Format::Raw => output.bytes(batch.bytes()),
            Format::Json => json::write(batch, offset, args.values, &mut output),
        }
        .map(ControlFlow::Continue)
    };
    let budget = Budget::new(args.max_bytes);
    let result = if args.read_committed {
        log.read_committed(offset, budget, write).await
    } else {
        log.read(offset, budget, write).await
    };
    // What was read before a failure is whole, and is written out.
    output.flush()?;
    result
}
