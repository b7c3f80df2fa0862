//! `krabka-tier metadata dump`: every record of the metadata topic.

use std::ops::Range;

use clap::Args;
use krabka_remote_storage::topic::MetadataLogError;

use super::report::RecordReport;
use super::{Filter, end};
use crate::cluster::{Cluster, ClusterArgs};
use crate::failure::{Failure, print_note};
use crate::output::{Audience, Output};
use crate::tier::Patience;

/// Shows every record of the metadata topic, decoded, by metadata partition and offset.
///
/// Records at which the brokers of Apache Kafka stop are shown with their bytes and the reason, and
/// the program fails in the end.
#[derive(Args, Debug)]
pub(super) struct DumpArgs {
    #[command(flatten)]
    cluster: ClusterArgs,

    #[command(flatten)]
    filter: Filter,

    /// Begins with this offset of each metadata partition.
    #[arg(long, value_name = "OFFSET", value_parser = clap::value_parser!(i64).range(0..))]
    from: Option<i64>,

    /// Ends with this offset of each metadata partition.
    #[arg(long, value_name = "OFFSET", value_parser = clap::value_parser!(i64).range(0..))]
    to: Option<i64>,

    /// Writes one JSON object a line for each record; the README has their fields.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: DumpArgs, patience: Patience) -> Result<(), Failure> {
    if let (Some(from), Some(to)) = (args.from, args.to)
        && from > to
    {
        return Err(Failure::Usage(format!(
            "--from {from} is behind --to {to}: nothing is between them"
        )));
    }
    let mut output = Output::new(Audience::of(args.json));
    let cluster = args.cluster.open(patience.time()).await?;
    let mut poison = 0;
    let mut shown: u64 = 0;
    for (partition, mut offsets) in offsets(&cluster, args.filter.partition).await? {
        offsets.start = offsets.start.max(args.from.unwrap_or(0));
        if let Some(to) = args.to {
            offsets.end = offsets.end.min(to.saturating_add(1));
        }
        if offsets.is_empty() {
            continue;
        }
        let mut failed = None;
        let visited = cluster
            .log
            .visit_range(partition, offsets.start, offsets.end, &mut |record| {
                let event = record.event();
                if !args.filter.holds(&event) {
                    return Ok(());
                }
                poison += u64::from(event.is_err());
                shown += u64::from(event.is_ok());
                let written = output.event(&RecordReport::new(&record, &event));
                written.map_err(|failure| {
                    failed = Some(failure);
                    // It ends the visit.
                    MetadataLogError::Closed
                })
            })
            .await;
        if let Some(failure) = failed {
            return Err(failure);
        }
        // What was read before a failure is whole, and is written out.
        output.flush()?;
        visited.map_err(|source| cluster.failed(source))?;
    }
    output.flush()?;
    if let Some(wanted) = &args.filter.user_partition
        && shown == 0
    {
        print_note(format_args!("{cluster} has no event of {wanted} there"));
    }
    end(poison)
}

/// The offsets that each metadata partition has, or the one that is wanted.
async fn offsets(
    cluster: &Cluster,
    wanted: Option<i32>,
) -> Result<Vec<(i32, Range<i64>)>, Failure> {
    let failed = |source| cluster.failed(source);
    check_partition(cluster, wanted)?;
    let low = cluster.log.low_water_marks().await.map_err(failed)?;
    let high = cluster.log.high_water_marks().await.map_err(failed)?;
    let all = (0..).zip(low.into_iter().zip(high));
    Ok(all
        .filter(|(partition, _)| wanted.is_none_or(|wanted| wanted == *partition))
        .map(|(partition, (low, high))| (partition, low..high))
        .collect())
}

/// Whether there is such a metadata partition.
pub(super) fn check_partition(cluster: &Cluster, wanted: Option<i32>) -> Result<(), Failure> {
    let count = cluster.log.partition_count();
    match wanted {
        Some(partition) if partition >= count => {
            Err(cluster.failed(MetadataLogError::PartitionOutOfRange { partition, count }))
        }
        _ => Ok(()),
    }
}
