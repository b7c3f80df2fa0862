//! What the program writes to standard output: lines for people, or one JSON object a line.

use std::fmt;
use std::io::{self, BufWriter, Stdout, Write as _};

use clap::ValueEnum;
use serde::Serialize;

use crate::failure::Failure;

/// For whom a command writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Audience {
    People,
    Machines,
}

impl Audience {
    pub(crate) fn of(json: bool) -> Self {
        if json { Self::Machines } else { Self::People }
    }
}

/// Standard output.
#[derive(Debug)]
pub(crate) struct Output {
    audience: Audience,
    out: BufWriter<Stdout>,
}

impl Output {
    pub(crate) fn new(audience: Audience) -> Self {
        Self {
            audience,
            out: BufWriter::with_capacity(64 * 1024, io::stdout()),
        }
    }

    /// Writes an event in the form that is asked for.
    pub(crate) fn event<E: Serialize + fmt::Display>(&mut self, event: &E) -> Result<(), Failure> {
        match self.audience {
            Audience::People => self.line(event),
            Audience::Machines => self.json(event),
        }
    }

    /// Writes a line that only people need.
    pub(crate) fn note(&mut self, text: impl fmt::Display) -> Result<(), Failure> {
        match self.audience {
            Audience::People => self.line(text),
            Audience::Machines => Ok(()),
        }
    }

    pub(crate) fn line(&mut self, text: impl fmt::Display) -> Result<(), Failure> {
        Ok(writeln!(self.out, "{text}")?)
    }

    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer(&mut self.out, value).map_err(io::Error::from)?;
        Ok(self.out.write_all(b"\n")?)
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        Ok(self.out.write_all(bytes)?)
    }

    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.out.flush()?)
    }
}

/// `one` or `2 many`: a number and the right form of a word.
pub(crate) fn count<N: Copy + fmt::Display + PartialEq + From<u8>>(
    number: N,
    one: &str,
    many: &str,
) -> String {
    if number == N::from(1) {
        format!("1 {one}")
    } else {
        format!("{number} {many}")
    }
}
