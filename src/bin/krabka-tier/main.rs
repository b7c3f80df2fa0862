//! `krabka-tier`: copies, lists, reads, restores and removes segments of a remote tier, and shows
//! what a cluster's metadata topic holds.

mod cluster;
#[path = "../console/mod.rs"]
mod console;
mod copy;
mod diskless;
mod ends;
mod failure;
mod inventory;
mod keygen;
mod lineage;
mod log_dir;
mod ls;
mod metadata;
mod orphans;
mod output;
mod quickstart;
mod read;
mod rebuilt;
mod restore;
mod rm;
mod stats;
mod tier;
mod transactions;
mod view;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use self::console::{interrupted, usage};
use self::failure::{Failure, print_error};
use self::tier::{Missing, Patience, Tier};

/// How long calls in flight may take to end when the program does.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

const EXIT_CODES: &str = "\
Exit codes:
  0    all was done; also when whoever read the output stopped reading
  1    something failed: each failure is named on standard error, and what was done stays done
  2    the command line is wrong
  130  interrupted; uploads that were under way have been given up, and no restored directory is
       there

Tiers are named by URLs: file:///DIR, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX.
What a URL does not say comes from the environment: AWS_…, GOOGLE_…, AZURE_….";

/// Kafka tiered storage from the command line.
#[derive(Debug, Parser)]
#[command(name = "krabka-tier", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    patience: Patience,
}

#[derive(Debug, Subcommand)]
enum Command {
    Quickstart(quickstart::QuickstartArgs),
    Copy(copy::CopyArgs),
    Ls(ls::LsArgs),
    Read(read::ReadArgs),
    Restore(restore::RestoreArgs),
    Rm(rm::RmArgs),
    Orphans(orphans::OrphansArgs),
    Metadata(metadata::MetadataArgs),
    Keygen(keygen::KeygenArgs),
    Diskless(diskless::DisklessArgs),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            print_error(&error);
            return ExitCode::FAILURE;
        }
    };
    let done = runtime.block_on(run(cli));
    // A file request that hangs must not hold up the end.
    runtime.shutdown_background();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !matches!(failure, Failure::OutputClosed) {
                print_error(&failure);
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

async fn run(cli: Cli) -> Result<(), Failure> {
    let patience = cli.patience;
    match cli.command {
        Command::Keygen(args) => keygen::run(&args),
        Command::Diskless(args) => diskless::run(args, patience).await,
        Command::Quickstart(args) => quickstart::run(args, patience).await,
        Command::Copy(args) => {
            let tier = match args.seal.keys()? {
                Some(keys) => Tier::open_archive(&args.to, patience, keys).await?,
                None => Tier::open(&args.to, patience, Missing::Create)?,
            };
            until_interrupted(&tier, copy::run(&tier, args)).await
        }
        Command::Ls(args) => {
            let tier = Tier::open(&args.url, patience, Missing::Refuse)?;
            until_interrupted(&tier, ls::run(&tier, args)).await
        }
        Command::Read(args) => {
            let (tier, stats) = Tier::open_for_reading(&args.url, patience)?;
            until_interrupted(&tier, read::run(&tier, &stats, args, patience)).await
        }
        Command::Restore(args) => {
            let tier = Tier::open(&args.url, patience, Missing::Refuse)?;
            until_interrupted(&tier, restore::run(&tier, args, patience)).await
        }
        Command::Rm(args) => {
            let tier = Tier::open(&args.url, patience, Missing::Refuse)?;
            until_interrupted(&tier, rm::run(&tier, args)).await
        }
        Command::Orphans(args) => {
            let tier = Tier::open(&args.url, patience, Missing::Refuse)?;
            until_interrupted(&tier, orphans::run(&tier, args, patience)).await
        }
        Command::Metadata(args) => tokio::select! {
            result = metadata::run(args, patience) => result,
            () = interrupted() => Err(Failure::Interrupted),
        },
    }
}

/// Runs a command, ends it at a signal, and in any case lets uploads be given up.
async fn until_interrupted(
    tier: &Tier,
    command: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let result = tokio::select! {
        result = command => result,
        () = interrupted() => Err(Failure::Interrupted),
    };
    tier.storage.close(CLOSE_GRACE).await;
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
    }
}
