//! What the programs share: how they speak to standard error, end at a signal, and refuse a wrong
//! command line. Each program has this folder as its module `console`.

use std::env;
use std::error::Error;
use std::fmt;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::error::ErrorKind;

/// Prints an error and each of its causes on a line of its own.
pub(crate) fn print_error(error: &dyn Error) {
    say(format_args!("error: {}\n", chain(error)));
}

/// Prints what is worth knowing and no failure.
pub(crate) fn print_note(text: impl fmt::Display) {
    say(format_args!("note: {text}\n"));
}

/// Writes to standard error. When nobody listens, or its disk is full, there is nowhere to say so: the
/// command goes on, and its exit code tells.
pub(crate) fn say(text: impl fmt::Display) {
    // In one piece, so that lines of several tasks do not mix.
    let _ = io::stderr().write_all(text.to_string().as_bytes());
}

/// An error and its causes, none of them twice.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut last = text.clone();
    let mut cause = error.source();
    while let Some(error) = cause {
        let line = error.to_string();
        // Some errors of foreign crates repeat their cause.
        if !last.contains(&line) {
            text.push_str("\n  caused by: ");
            text.push_str(&line);
        }
        last = line;
        cause = error.source();
    }
    text
}

/// Answers at the first SIGINT or SIGTERM.
pub(crate) async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};

    let (Ok(mut interrupt), Ok(mut terminate)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

/// Prints what is wrong with the command line, or the help that was asked for.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        // A closed pipe is no failure.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let arguments: Vec<String> = env::args_os()
        .skip(1)
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    say(without_urls(&error.render().to_string(), &arguments));
    ExitCode::from(2)
}

/// A text without the URLs among the arguments: a URL may hold a password.
fn without_urls(text: &str, arguments: &[String]) -> String {
    let mut text = text.to_owned();
    for argument in arguments {
        let Some(scheme_end) = argument.find("://") else {
            continue;
        };
        let start = argument[..scheme_end]
            .rfind(|c: char| !c.is_ascii_alphanumeric())
            .map_or(0, |before| before + 1);
        text = text.replace(&argument[start..], "URL");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usage_error_does_not_repeat_a_url() {
        let text = "unexpected argument 's3://key:secret@b/p' found, --to=s3://key:secret@b/p";
        let arguments = ["copy".to_owned(), "--to=s3://key:secret@b/p".to_owned()];
        assert_eq!(
            without_urls(text, &arguments),
            "unexpected argument 'URL' found, --to=URL"
        );
    }
}
