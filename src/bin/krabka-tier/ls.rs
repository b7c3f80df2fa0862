//! `krabka-tier ls`: what is in a tier.

mod incomplete;
mod report;

use std::pin::pin;

use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use krabka_remote_storage::RemoteStorageError;

use self::report::PartitionReport;
use crate::ends::{LogEnd, is_damage, log_end};
use crate::failure::{Failure, print_error};
use crate::output::{Audience, Output, count};
use crate::tier::{CONCURRENT_REQUESTS, Selection, Tier, TierSegment};

/// Lists topics, partitions and segments of a tier: offsets, sizes, objects, and gaps.
///
/// Last offsets are read from the logs themselves, with two small requests for each segment. Leader
/// epochs are those of the last batch.
#[derive(Args, Debug)]
pub(crate) struct LsArgs {
    /// The tier.
    pub(crate) url: String,

    #[command(flatten)]
    selection: Selection,

    /// Lists instead what a copy that was cut off has left: segments without a `.log`, and uploads
    /// that nobody has ended.
    #[arg(long)]
    incomplete: bool,

    /// Writes one JSON object a line; the README has their fields.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(tier: &Tier, args: LsArgs) -> Result<(), Failure> {
    let mut output = Output::new(Audience::of(args.json));
    let mut partitions = tier.partitions().await?;
    partitions.retain(|tp| args.selection.holds(tp));
    if args.incomplete {
        return incomplete::run(tier, &args.selection, partitions, &mut output).await;
    }

    let (mut found, mut damaged) = (false, 0);
    let mut listed = pin!(tier.segments_of(partitions));
    while let Some((partition, segments)) = listed.try_next().await? {
        // A local tier keeps the directories of what was removed.
        if segments.is_empty() {
            continue;
        }
        found = true;
        let complete: Vec<_> = segments
            .iter()
            .filter(|segment| segment.listed.is_complete())
            .collect();
        let incomplete = segments.len() - complete.len();
        let ends = ends_of(tier, &complete).await?;
        let report = PartitionReport::new(&partition, &complete, &ends, incomplete);
        output.event(&report)?;
        output.flush()?;
        for end in ends {
            if let Err(error) = end {
                damaged += 1;
                print_error(&error);
            }
        }
    }
    if !found {
        output.note(format_args!("no segments in {}", tier.location()))?;
    }
    output.flush()?;
    match damaged {
        0 => Ok(()),
        _ => Err(Failure::Refused(format!(
            "{} cannot be read to the end",
            count(damaged, "segment", "segments")
        ))),
    }
}

type End = Result<Option<LogEnd>, Failure>;

/// The end of each segment, or what is wrong with it.
async fn ends_of(tier: &Tier, segments: &[&TierSegment]) -> Result<Vec<End>, Failure> {
    let ends: Vec<Result<_, RemoteStorageError>> = stream::iter(segments)
        .map(|segment| log_end(&tier.storage, segment))
        .buffered(CONCURRENT_REQUESTS)
        .collect()
        .await;
    segments
        .iter()
        .zip(ends)
        .map(|(segment, end)| match end {
            Ok(end) => Ok(Ok(end)),
            Err(error) => {
                let is_damage = is_damage(&error);
                let tp = &segment.listed.id.topic_id_partition;
                let what = format!(
                    "{}-{}: segment {} at offset {} is damaged",
                    tp.topic,
                    tp.partition,
                    segment.id_text(),
                    segment.base_offset()
                );
                if is_damage {
                    Ok(Err(Failure::during(what, error)))
                } else {
                    Err(error.into())
                }
            }
        })
        .collect()
}
