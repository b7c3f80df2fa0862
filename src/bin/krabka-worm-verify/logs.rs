//! Logs on standard error, as `RUST_LOG` filters them; none without it.

use std::env;
use std::io::{self, Write};

use krabka_remote_storage::archive::Printable;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::console::print_note;

/// Starts logging: `RUST_LOG=debug`, or `RUST_LOG=krabka_remote_storage=debug,info`.
pub(crate) fn start() {
    let Ok(filter) = env::var("RUST_LOG") else {
        return;
    };
    match filter.parse::<Targets>() {
        Ok(targets) => {
            let lines = tracing_subscriber::fmt::layer()
                .with_ansi(false)
                .with_writer(|| Lines);
            // It fails only when there is a subscriber already.
            let _ = tracing_subscriber::registry()
                .with(targets)
                .with(lines)
                .try_init();
        }
        Err(_) => print_note("RUST_LOG is no filter, so nothing is logged"),
    }
}

/// Writes each event as one line: what stands in keys must not look like a line of its own.
struct Lines;

impl Write for Lines {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = format!("{}\n", Printable(text.trim_end_matches('\n')));
        io::stderr().write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
