//! `krabka-worm-verify`: proves a write-once archive from its objects and public keys alone.

mod args;
#[path = "../console/mod.rs"]
mod console;
mod failure;
mod json;
mod logs;
mod pins;
mod progress;
mod store;
mod text;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use clap::Parser;
use krabka_remote_storage::archive::{Verdict, verify_archive};

use self::args::{Cli, Command, Format, VerifyArgs};
use self::console::{interrupted, print_error, print_note, say, usage};
use self::failure::Failure;
use self::json::Document;
use self::progress::Progress;
use self::store::ArchiveStore;

fn main() -> ExitCode {
    let Cli {
        command: Command::Verify(args),
    } = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    logs::start();
    let format = args.format;
    let done = match tokio::runtime::Runtime::new() {
        Ok(runtime) => {
            let done = runtime.block_on(async {
                tokio::select! {
                    done = run(args) => done,
                    () = interrupted() => Err(Failure::Interrupted),
                }
            });
            // A file request that hangs must not hold up the end.
            runtime.shutdown_background();
            done
        }
        Err(error) => Err(Failure::during("cannot start", error)),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            print_error(&failure);
            if format == Format::Json && matches!(failure, Failure::Error { .. }) {
                // Whoever reads JSON gets an object, whatever happened.
                let _ = write(|out| json::write_error(out, &failure));
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Verifies, says what was found, and answers with the exit code.
async fn run(args: VerifyArgs) -> Result<u8, Failure> {
    let keys = args.trusted_keys()?;
    let mut rules = args.rules()?;
    let pinned = args.pins.as_deref().map(pins::read).transpose()?;
    rules.expects_partitions = pinned.as_ref().is_some_and(|pins| !pins.is_empty());
    let store = ArchiveStore::open(&args)?;
    let request = args.request(&store, pinned.clone());

    let progress = Progress::start();
    let reads = progress.watch(store.reads());
    let report = verify_archive(&reads, &request, &keys)
        .await
        .map_err(|error| Failure::during(format!("cannot verify {}", store.location()), error))?;
    let uploads = store.open_uploads(&request, &report).await;
    progress.end();

    let grade = rules.grade(&report, uploads.as_deref().map_err(String::as_str));
    let document = Document {
        report: &report,
        grade: &grade,
        depth: request.depth,
        is_protected: store.is_protected(),
        open_uploads: uploads.as_deref().unwrap_or_default(),
    };
    let mut code = grade.verdict.exit_code();
    for finding in &grade.findings {
        if finding.fails {
            say(format_args!("{}\n", finding.text));
        } else {
            print_note(&finding.text);
        }
    }
    if let Some(path) = &args.write_pins {
        code = write_pins(path, pinned, &document, code);
    }
    let written = match args.format {
        Format::Text => write(|out| text::write(out, &document)),
        Format::Json => write(|out| json::write(out, &document)),
    };
    match written {
        Ok(()) => Ok(code),
        // Whoever read the report has seen enough; the verdict stands.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(code),
        Err(error) => {
            print_error(&Failure::during("cannot write the report", error));
            Ok(or_error(code))
        }
    }
}

/// Pins what a clean archive holds, and answers with the exit code.
fn write_pins(
    path: &std::path::Path,
    pinned: Option<pins::Pins>,
    document: &Document<'_>,
    code: u8,
) -> u8 {
    if document.grade.verdict != Verdict::Ok {
        print_note("no pins were written: only an archive that is in order can be pinned");
        return code;
    }
    match pins::write(path, pinned.unwrap_or_default(), document.report) {
        Ok(()) => code,
        Err(failure) => {
            print_error(&failure);
            or_error(code)
        }
    }
}

/// An exit code that says that something failed, without hiding a verdict that says more.
fn or_error(code: u8) -> u8 {
    if code == Verdict::Ok.exit_code() {
        Verdict::Error.exit_code()
    } else {
        code
    }
}

/// Writes to standard output, all of it.
fn write(report: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(64 * 1024, io::stdout().lock());
    report(&mut out)?;
    out.flush()
}
