//! `krabka-tier copy`: closed segments of Kafka's own directories, into a tier.

mod bars;
mod holds;
mod plan;
mod report;
mod sealed;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use futures::stream::LocalBoxStream;
use futures::{StreamExt as _, future, stream};
use krabka_remote_storage::model::{CopyReceipt, RemoteLogSegmentId};
use krabka_remote_storage::{
    ChainStamp, CopySegment, ErrorKind, RemoteStorage, RemoteStorageError,
};

use self::bars::Bars;
pub(crate) use self::bars::bytes_bar;
pub(crate) use self::holds::Holds;
use self::plan::{COMPLETE, Plan, Planned, Strictness};
use self::report::Event;
pub(crate) use self::report::Summary;
use self::sealed::Entered;
pub(crate) use self::sealed::{Chains, SealArgs, SealKeys};
use crate::failure::{Failure, chain, print_error};
use crate::log_dir::Gaps;
use crate::output::{Audience, Output, count};
use crate::tier::Tier;

/// Copies closed segments of Kafka's own directories into a tier.
///
/// Each segment goes with its indexes, its producer snapshot and its leader epochs, under the names
/// that Apache Kafka gives them. The active segment of a partition, which has the highest offset,
/// stays where it is. A segment that is complete in the tier with the same size is skipped; one that
/// is not complete there is copied anew. Everything is checked before the first byte is sent; of a
/// partition with a damaged segment nothing is copied.
///
/// With --worm-key the tier is a write-once archive, and what is copied is sealed in it:
/// `krabka-worm-verify` tells whether it is still what was sealed.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct CopyArgs {
    /// Directories of partitions, or log directories (entries of `log.dirs`) that hold them.
    #[arg(required = true, value_name = "DIR")]
    paths: Vec<PathBuf>,

    /// The tier: `file:///DIR`, `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX`.
    #[arg(long, value_name = "URL")]
    pub(crate) to: String,

    /// How many segments are copied at once. Each may hold some 100 MiB of memory, into a local tier
    /// some 40.
    #[arg(long, value_name = "N", default_value_t = 4,
        value_parser = clap::value_parser!(u16).range(1..=256))]
    parallel: u16,

    /// Copies internal topics of a log directory, too, such as `__consumer_offsets`.
    #[arg(long)]
    include_internal: bool,

    /// Copies segments that end before the next one begins, as compaction leaves them.
    ///
    /// Without it such a segment counts as cut.
    #[arg(long)]
    allow_gaps: bool,

    /// Goes on where a segment is damaged or cannot be copied: with the others of its partition, and
    /// with those that had not begun.
    #[arg(long)]
    keep_going: bool,

    #[command(flatten)]
    pub(crate) seal: SealArgs,

    /// Writes one JSON object a line; the README has their fields.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) async fn run(tier: &Tier, args: CopyArgs) -> Result<(), Failure> {
    let mut output = Output::new(Audience::of(args.json));
    let strictness = Strictness {
        gaps: if args.allow_gaps {
            Gaps::Allowed
        } else {
            Gaps::Refused
        },
        whole_partitions: !args.keep_going,
    };
    let checking = bars::spinner("looking what there is to copy");
    let plan = Plan::make(tier, args.paths, args.include_internal, strictness).await;
    checking.finish_and_clear();
    let Plan {
        copies,
        skipped,
        passed_over,
        problems,
    } = plan?;
    let mut summary = Summary {
        segments_skipped: skipped.iter().map(|skip| skip.segments.len()).sum(),
        segments_failed: problems.len(),
        ..Summary::default()
    };
    for (path, reason) in &passed_over {
        tell(output.event(&Event::passed_over(path, reason)))?;
    }
    for problem in &problems {
        print_error(problem);
        if args.json {
            tell(output.event(&Event::problem(chain(problem))))?;
        }
    }
    for skip in &skipped {
        for event in skip.events(args.json) {
            tell(output.event(&event))?;
        }
    }

    let bars = Bars::new(&copies);
    let stop = Cell::new(false);
    let mut running = copies_of(tier, copies, &bars, &stop, args.parallel.into());
    while let Some((planned, result)) = running.next().await {
        match result {
            Ok(copied) => {
                let event = match copied {
                    Copied::Now(id, receipt) => {
                        summary.add(&receipt);
                        Event::copied(&planned, &id, &receipt)
                    }
                    Copied::Meanwhile => {
                        summary.segments_skipped += 1;
                        Event::skipped(&planned.partition, &[planned.segment.log()], COMPLETE)
                    }
                };
                bars.suspend(|| tell(output.event(&event).and_then(|()| output.flush())))?;
            }
            Err(error) => {
                summary.segments_failed += 1;
                stop.set(!args.keep_going);
                let failure = Failure::during(format!("cannot copy {planned}"), error);
                let event = Event::failed(&planned, chain(&failure));
                bars.suspend(|| {
                    print_error(&failure);
                    if args.json {
                        return tell(output.event(&event).and_then(|()| output.flush()));
                    }
                    Ok(())
                })?;
            }
        }
    }
    drop(running);
    bars.finish();
    tell(
        output
            .event(&Event::Summary(summary))
            .and_then(|()| output.flush()),
    )?;
    failure_of(problems.len(), summary, args.keep_going).map_or(Ok(()), Err)
}

/// What is to be said of a copy that did not do all.
fn failure_of(problems: usize, summary: Summary, keep_going: bool) -> Option<Failure> {
    let mut what = Vec::new();
    if problems > 0 {
        what.push(format!(
            "{} left out because of {} above",
            if keep_going {
                "segments were"
            } else {
                "partitions were"
            },
            count(problems, "problem", "problems")
        ));
    }
    let failed = summary.segments_failed - problems;
    if failed > 0 {
        what.push(format!("{} failed", count(failed, "copy", "copies")));
        if !keep_going {
            what.push("what had not begun then was left out (--keep-going copies it)".to_owned());
        }
    }
    if what.is_empty() {
        return None;
    }
    if summary.segments_copied == 0 {
        what.push("nothing was copied".to_owned());
    }
    Some(Failure::Refused(what.join("; ")))
}

/// Copies what is below a log directory, and prints nothing.
pub(crate) async fn quietly(tier: &Tier, log_dir: PathBuf) -> Result<Summary, Failure> {
    let plan = Plan::make(tier, vec![log_dir], false, Strictness::default()).await?;
    if let Some(problem) = plan.problems.into_iter().next() {
        return Err(problem.into());
    }
    let mut summary = Summary {
        segments_skipped: plan.skipped.iter().map(|skip| skip.segments.len()).sum(),
        ..Summary::default()
    };
    let bars = Bars::new(&plan.copies);
    let stop = Cell::new(false);
    let mut running = copies_of(tier, plan.copies, &bars, &stop, 4);
    while let Some((planned, result)) = running.next().await {
        match result.map_err(|error| Failure::during(format!("cannot copy {planned}"), error))? {
            Copied::Now(_, receipt) => summary.add(&receipt),
            Copied::Meanwhile => summary.segments_skipped += 1,
        }
    }
    Ok(summary)
}

/// A copy goes on when nobody listens any more.
fn tell(written: Result<(), Failure>) -> Result<(), Failure> {
    match written {
        Err(Failure::OutputClosed) => Ok(()),
        other => other,
    }
}

/// Makes the copies, so many at once, until it is told to stop. In an archive those of one
/// partition follow each other, each at the place after the one before.
fn copies_of<'a>(
    tier: &'a Tier,
    copies: Vec<Planned>,
    bars: &'a Bars,
    stop: &'a Cell<bool>,
    at_once: usize,
) -> LocalBoxStream<'a, (Planned, Result<Copied, RemoteStorageError>)> {
    let Some(chains) = &tier.chains else {
        return stream::iter(copies)
            .take_while(|_| future::ready(!stop.get()))
            .map(async |planned| {
                let copied = copy_one(&tier.storage, &planned, None, bars).await;
                (planned, copied)
            })
            .buffer_unordered(at_once)
            .boxed_local();
    };
    let mut partitions: Vec<Vec<Planned>> = Vec::new();
    for planned in copies {
        match partitions.last_mut() {
            Some(last) if last[0].partition == planned.partition => last.push(planned),
            _ => partitions.push(vec![planned]),
        }
    }
    stream::iter(partitions)
        .map(move |copies| {
            let begin = (copies.into_iter(), Chain::default());
            let copies = stream::unfold(begin, move |(mut copies, mut chain)| async move {
                let Some(planned) = copies.next().filter(|_| !stop.get()) else {
                    chain.end();
                    return None;
                };
                let copied = chain.copy(tier, chains, &planned, bars).await;
                Some(((planned, copied), (copies, chain)))
            });
            copies.boxed_local()
        })
        .flatten_unordered(at_once)
        .boxed_local()
}

/// What became of a segment.
enum Copied {
    Now(RemoteLogSegmentId, CopyReceipt),
    /// Another copy has sealed it since it was planned.
    Meanwhile,
}

/// The copies into one partition of an archive.
#[derive(Default)]
struct Chain {
    entered: Option<Entered>,
    /// Not known at the beginning, and after a copy that failed.
    place: Option<ChainStamp>,
    /// Whether a manifest may still be on its way.
    is_unsettled: bool,
}

impl Chain {
    async fn copy(
        &mut self,
        tier: &Tier,
        chains: &Chains,
        planned: &Planned,
        bars: &Bars,
    ) -> Result<Copied, RemoteStorageError> {
        let entered = match &mut self.entered {
            Some(entered) => entered,
            None => self
                .entered
                .insert(chains.enter(tier, &planned.partition).await?),
        };
        if entered.has(planned) {
            return Ok(Copied::Meanwhile);
        }
        let place = match self.place.take() {
            Some(place) => place,
            None => chains.next(tier, &planned.partition).await?,
        };
        let copied = copy_one(&tier.storage, planned, Some(place), bars).await;
        match &copied {
            Ok(Copied::Now(_, receipt)) => self.place = sealed::after(receipt),
            Ok(Copied::Meanwhile) => {}
            Err(error) => self.is_unsettled |= error.kind() == ErrorKind::OutcomeUnknown,
        }
        copied
    }

    fn end(self) {
        if let Some(entered) = self.entered
            && !self.is_unsettled
        {
            entered.leave();
        }
    }
}

async fn copy_one(
    storage: &RemoteStorage,
    planned: &Planned,
    place: Option<ChainStamp>,
    bars: &Bars,
) -> Result<Copied, RemoteStorageError> {
    let id = RemoteLogSegmentId::generate_new(planned.partition.clone());
    let copy = request(planned, id.clone(), place)?;
    let _watched = bars.watch(&copy.progress);
    let receipt = match storage.copy(copy.clone()).await {
        // The same request again finds out whether the segment is sealed.
        Err(error) if error.kind() == ErrorKind::OutcomeUnknown => storage.copy(copy).await?,
        result => result?,
    };
    Ok(Copied::Now(id, receipt))
}

/// The request to copy a segment under this id.
fn request(
    planned: &Planned,
    id: RemoteLogSegmentId,
    place: Option<ChainStamp>,
) -> Result<CopySegment, RemoteStorageError> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| {
            i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
        });
    let mut metadata = planned.segment.metadata(id, now)?;
    if let Some(place) = place {
        metadata = sealed::at(metadata, place);
    }
    Ok(CopySegment::new(metadata, planned.segment.data.clone()))
}
