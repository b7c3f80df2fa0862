//! `krabka-tier metadata tail`: new records of the metadata topic, as they come.

use std::time::Duration;

use clap::Args;
use futures::StreamExt as _;
use krabka_remote_storage::topic::{
    MetadataEventPage, MetadataLogError, MetadataStreamItem, PartitionStart,
};
use tokio::time::Instant;

use super::dump::check_partition;
use super::report::RecordReport;
use super::{Filter, end};
use crate::cluster::ClusterArgs;
use crate::failure::{Failure, print_note};
use crate::output::{Audience, Output, count};
use crate::tier::Patience;

/// How often the topic itself is looked at while records may come.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// Longer than anybody waits.
const NEVER: Duration = Duration::from_hours(24 * 365 * 30);

/// Shows new records of the metadata topic as they come, until it is interrupted.
///
/// Records of one metadata partition come in order. Brokers that cannot be reached are waited for,
/// with a note. A topic that is deleted, made again, or given more partitions ends the command.
#[derive(Args, Debug)]
pub(super) struct TailArgs {
    #[command(flatten)]
    cluster: ClusterArgs,

    #[command(flatten)]
    filter: Filter,

    /// Ends after this time.
    #[arg(long = "for", value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,

    /// Ends after so many records were shown.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Writes one JSON object a line for each record; the README has their fields.
    #[arg(long)]
    json: bool,
}

/// What has been shown.
struct Shown {
    output: Output,
    filter: Filter,
    left: u64,
    poison: u64,
}

pub(super) async fn run(args: TailArgs, patience: Patience) -> Result<(), Failure> {
    let cluster = args.cluster.open(patience.time()).await?;
    let wanted = args.filter.partition;
    check_partition(&cluster, wanted)?;
    let failed = |source| cluster.failed(source);
    let high = cluster.log.high_water_marks().await.map_err(failed)?;
    let topic_id = cluster.log.topic_id();
    let starts: Vec<_> = (0..)
        .zip(high)
        .filter(|(partition, _)| wanted.is_none_or(|wanted| wanted == *partition))
        .map(|(partition, start_offset)| PartitionStart {
            partition,
            start_offset,
        })
        .collect();
    let partitions = count(starts.len(), "metadata partition", "metadata partitions");
    let (mut items, _handle) = cluster.log.subscribe(starts).await.map_err(failed)?;
    print_note(format_args!(
        "waiting for new records in {partitions} of {cluster}"
    ));
    let end_at = Instant::now() + args.seconds.map_or(NEVER, Duration::from_secs).min(NEVER);
    let mut shown = Shown {
        output: Output::new(Audience::of(args.json)),
        filter: args.filter,
        left: args.count.unwrap_or(u64::MAX),
        poison: 0,
    };
    let made_again = || {
        Err(Failure::Refused(format!(
            "{cluster} was deleted and made again: run the command again"
        )))
    };
    let checked = || async {
        tokio::time::sleep(CHECK_EVERY).await;
        cluster.log.high_water_marks().await
    };
    let mut check = Box::pin(checked());
    // A topic that is being made again is away for a moment.
    let (mut is_reachable, mut was_refused) = (true, false);
    while shown.left > 0 {
        let item = tokio::select! {
            biased;
            () = tokio::time::sleep_until(end_at) => break,
            item = items.next() => item,
            high = &mut check => {
                check = Box::pin(checked());
                match high {
                    Ok(_) if cluster.log.topic_id() != topic_id => return made_again(),
                    Ok(_) => {
                        if !is_reachable {
                            print_note(format_args!("{cluster} answers again"));
                        }
                        (is_reachable, was_refused) = (true, false);
                    }
                    Err(source) if !source.is_retryable() => {
                        if was_refused {
                            return Err(failed(source));
                        }
                        was_refused = true;
                    }
                    Err(source) if is_reachable => {
                        is_reachable = false;
                        print_note(format_args!("{cluster} does not answer, waiting: {source}"));
                    }
                    Err(_) => {}
                }
                continue;
            }
        };
        match item {
            Some(MetadataStreamItem::Page(page)) => shown.page(&page)?,
            Some(MetadataStreamItem::OutOfRange {
                partition,
                position: offset,
                ..
            }) => {
                // The id is that of the topic that marks were asked of last.
                cluster.log.high_water_marks().await.map_err(failed)?;
                if cluster.log.topic_id() != topic_id {
                    return made_again();
                }
                return Err(failed(MetadataLogError::OffsetOutOfRange {
                    partition,
                    offset,
                }));
            }
            _ => return Err(failed(MetadataLogError::Closed)),
        }
    }
    end(shown.poison)
}

impl Shown {
    fn page(&mut self, page: &MetadataEventPage) -> Result<(), Failure> {
        for record in &page.records {
            let event = record.event();
            if self.left == 0 || !self.filter.holds(&event) {
                continue;
            }
            self.left -= 1;
            self.poison += u64::from(event.is_err());
            self.output.event(&RecordReport::new(record, &event))?;
        }
        self.output.flush()
    }
}
