//! `krabka-tier diskless`: WAL objects and captures of diskless topics.

mod capture;
mod object;
mod source;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use krabka_remote_storage::ChainHead;
use krabka_remote_storage::archive::Printable;

use self::source::Source;
use crate::failure::{Failure, print_error};
use crate::output::{Audience, Output, count};
use crate::tier::Patience;

/// Looks at what diskless topics keep in an object store.
#[derive(Args, Debug)]
pub(crate) struct DisklessArgs {
    #[command(subcommand)]
    command: DisklessCommand,
}

#[derive(Debug, Subcommand)]
enum DisklessCommand {
    Inspect(InspectArgs),
}

/// Prints the runs of a WAL object or the ranges of a capture, checks them, and says what is wrong.
///
/// Of an object every batch is checked: that it is whole, its checksum, its offsets. Of a capture
/// the document is; with --public-key also that it is what was signed with that key.
#[derive(Args, Debug)]
struct InspectArgs {
    /// The object or capture: a file, or the URL of an object, which is that of a tier with the
    /// object's key behind it.
    #[arg(value_name = "FILE|URL")]
    what: String,

    /// Proves a sealed capture with this public key: 32 raw bytes, 64 hexadecimal digits, or
    /// `SubjectPublicKeyInfo` as DER or PEM.
    #[arg(long, value_name = "FILE")]
    public_key: Option<PathBuf>,

    /// The name under which the key is trusted; by default whatever name the capture gives it.
    #[arg(
        long,
        value_name = "ID",
        requires = "public_key",
        allow_hyphen_values = true
    )]
    key_id: Option<String>,

    /// The head that the capture must have, as it was written down when it was sealed. Without it an
    /// older capture that was sealed with the same key passes, too.
    #[arg(long, value_name = "HEX64", requires = "public_key")]
    expect_head: Option<ChainHead>,

    /// Writes one JSON object a line; the README has their fields.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: DisklessArgs, patience: Patience) -> Result<(), Failure> {
    let DisklessCommand::Inspect(args) = args.command;
    let source = Source::new(&args.what, patience)?;
    source
        .until_interrupted(async {
            let bytes = source.read().await?;
            inspect(&source, &bytes, &args)
        })
        .await
}

fn inspect(source: &Source, bytes: &[u8], args: &InspectArgs) -> Result<(), Failure> {
    let mut output = Output::new(Audience::of(args.json));
    let problems = if bytes.starts_with(b"CKWL") {
        if args.public_key.is_some() {
            return Err(Failure::Refused(format!(
                "{source} is a WAL object, which nobody signs: --public-key proves a sealed capture, \
                 and its claims say what objects have to be"
            )));
        }
        object::inspect(bytes, &mut output)
    } else if bytes.trim_ascii_start().starts_with(b"{") {
        capture::inspect(bytes, args, &mut output)
    } else {
        return Err(Failure::Refused(format!(
            "{source} is neither a WAL object, which begins with `CKWL`, nor a capture, which is a \
             JSON object"
        )));
    }
    .map_err(|error| match error {
        Failure::Storage(error) => Failure::during(format!("cannot inspect {source}"), error),
        other => other,
    })?;
    output.flush()?;
    for problem in &problems {
        print_error(&Failure::Refused(Printable(problem).to_string()));
    }
    match problems.len() {
        0 => Ok(()),
        found => Err(Failure::Refused(format!(
            "{} with {source}",
            count(found, "problem", "problems")
        ))),
    }
}
