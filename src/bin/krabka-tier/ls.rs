//! `krabka-tier ls`: what is in a tier.

mod incomplete;
mod report;

use std::pin::pin;

use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use krabka_remote_storage::RemoteStorageError;
use krabka_remote_storage::rebuild::LogEnd;

use self::report::PartitionReport;
use crate::ends::{is_damage, log_end};
use crate::failure::{Failure, print_error};
use crate::output::{Audience, Output, count};
use crate::rebuilt::{self, Rebuilt};
use crate::tier::{CONCURRENT_REQUESTS, Selection, Tier, TierSegment};

/// Lists topics, partitions and segments of a tier: offsets, sizes, objects, and gaps.
///
/// Last offsets are read from the logs themselves, so that a gap is a real one; leader epochs are
/// those of the last batch. That takes three small requests for each segment.
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
        let of_use = complete.iter().map(|segment| segment.listed.clone());
        let rebuilt = Rebuilt::of(&tier.storage, &partition, of_use.collect()).await?;
        let states = states_of(tier, &complete, &rebuilt).await?;
        let report = PartitionReport::new(&partition, &states, &rebuilt, incomplete)?;
        output.event(&report)?;
        output.flush()?;
        for damage in states.into_iter().filter_map(|state| state.damage) {
            damaged += 1;
            print_error(&damage);
        }
    }
    if !found {
        output.note(format_args!("no segments in {}", tier.location()))?;
    }
    output.flush()?;
    match damaged {
        0 => Ok(()),
        _ => Err(Failure::Refused(format!(
            "{} damaged",
            count(damaged, "segment is", "segments are")
        ))),
    }
}

/// A complete segment, and what its objects told.
struct State<'a> {
    segment: &'a TierSegment,
    /// `None` when the log has no batch or is damaged.
    end: Option<LogEnd>,
    damage: Option<Failure>,
}

/// Reads the end of each segment.
async fn states_of<'a>(
    tier: &Tier,
    segments: &[&'a TierSegment],
    rebuilt: &Rebuilt,
) -> Result<Vec<State<'a>>, Failure> {
    let ends: Vec<Result<_, RemoteStorageError>> = stream::iter(segments)
        .map(|segment| log_end(&tier.storage, segment))
        .buffered(CONCURRENT_REQUESTS)
        .collect()
        .await;
    let states = segments.iter().zip(ends).map(|(&segment, end)| {
        let id = &segment.listed.id;
        let (end, damage) = match end {
            Ok(end) => (end, rebuilt.damage(id).cloned()),
            Err(error) if is_damage(&error) => (None, Some(error)),
            Err(error) => return Err(error.into()),
        };
        let damage = damage.map(|error| rebuilt::damaged(id, segment.base_offset(), error));
        Ok(State {
            segment,
            end,
            damage,
        })
    });
    states.collect()
}
