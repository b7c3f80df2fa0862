//! A WAL object: its runs, and what is wrong with them.

use std::fmt;

use indicatif::HumanBytes;
use krabka_remote_storage::RemoteStorageError;
use krabka_remote_storage::diskless::{WalObjectEntry, parse_wal_object};
use krabka_remote_storage::model::kafka_uuid;
use serde::Serialize;

use crate::failure::{Failure, chain};
use crate::output::{Output, count};

/// A line of output. As JSON, `type` says what it is.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event {
    Run(Run),
    WalObject {
        size_bytes: usize,
        runs: usize,
        problems: usize,
    },
}

#[derive(Debug, Serialize)]
struct Run {
    topic_id: String,
    partition: i32,
    first_offset: i64,
    last_offset: i64,
    byte_start: u64,
    byte_len: u32,
    /// Null when the batches cannot all be read.
    batches: Option<usize>,
    /// −1 when no record has one; null when the batches cannot all be read.
    max_timestamp_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Prints the object's runs, and answers what is wrong with it.
pub(super) fn inspect(bytes: &[u8], output: &mut Output) -> Result<Vec<String>, Failure> {
    let runs = parse_wal_object(bytes).map_err(RemoteStorageError::from)?;
    let mut problems = Vec::new();
    if !runs.is_empty() {
        output.note(format_args!(
            "{:22} {:>9} {:>15} {:>15} {:>11} {:>11} {:>8}",
            "TOPIC ID",
            "PARTITION",
            "FIRST OFFSET",
            "LAST OFFSET",
            "BYTE START",
            "BYTES",
            "BATCHES"
        ))?;
    }
    for (number, entry) in runs.iter().enumerate() {
        let run = Run::of(entry, bytes);
        if let Some(problem) = &run.problem {
            problems.push(format!("run {number}: {problem}"));
        }
        output.event(&Event::Run(run))?;
    }
    problems.extend(overlaps(&runs));
    problems.extend(holes(&runs, bytes.len() as u64));
    output.event(&Event::WalObject {
        size_bytes: bytes.len(),
        runs: runs.len(),
        problems: problems.len(),
    })?;
    Ok(problems)
}

impl Run {
    fn of(entry: &WalObjectEntry, object: &[u8]) -> Self {
        let batches = entry.run_of(object).unwrap_or_default();
        let (summary, problem) = match entry.check_run(batches) {
            Ok(summary) => (Some(summary), None),
            Err(error) => (None, Some(chain(&error))),
        };
        Self {
            topic_id: kafka_uuid(entry.topic_id),
            partition: entry.partition,
            first_offset: entry.first_offset,
            last_offset: entry.last_offset,
            byte_start: entry.byte_start,
            byte_len: entry.byte_len,
            batches: summary.map(|summary| summary.batches),
            max_timestamp_ms: summary.map(|summary| summary.max_timestamp_ms),
            problem,
        }
    }
}

/// Offsets of a partition that are in more than one run.
fn overlaps(runs: &[WalObjectEntry]) -> Vec<String> {
    let mut sorted: Vec<_> = runs.iter().collect();
    sorted.sort_by_key(|run| (run.topic_id, run.partition, run.first_offset));
    sorted
        .windows(2)
        .filter(|pair| {
            (pair[0].topic_id, pair[0].partition) == (pair[1].topic_id, pair[1].partition)
                && pair[0].last_offset >= pair[1].first_offset
        })
        .map(|pair| {
            format!(
                "partition {} of topic {} has offset {} in two runs",
                pair[1].partition,
                kafka_uuid(pair[1].topic_id),
                pair[1].first_offset
            )
        })
        .collect()
}

/// Bytes between header and footer that are in no run. Runs stand end to end.
fn holes(runs: &[WalObjectEntry], size: u64) -> Vec<String> {
    const HEADER: u64 = 6;
    const FOOTER_OF_RUN: u64 = 48;
    const TRAILER: u64 = 8;
    let footer = size.saturating_sub(TRAILER + FOOTER_OF_RUN * runs.len() as u64);
    let mut end = HEADER;
    let mut holes = Vec::new();
    let ends = runs.iter().map(|run| (run.bytes().start, run.bytes().end));
    for (start, next) in ends.chain([(footer, footer)]) {
        if start > end {
            holes.push(format!(
                "{} bytes from byte {end} on are in no run",
                start - end
            ));
        }
        end = next;
    }
    holes
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(run) => run.fmt(f),
            Self::WalObject {
                size_bytes,
                runs,
                problems,
            } => {
                write!(
                    f,
                    "WAL object of {} in {}: ",
                    HumanBytes(*size_bytes as u64),
                    count(*runs, "run", "runs")
                )?;
                match problems {
                    0 => f.write_str("all batches are whole and right"),
                    _ => f.write_str(&count(*problems, "problem", "problems")),
                }
            }
        }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:22} {:>9} {:>15} {:>15} {:>11} {:>11} {:>8}",
            self.topic_id,
            self.partition,
            self.first_offset,
            self.last_offset,
            self.byte_start,
            self.byte_len,
            self.batches
                .map_or("?".to_owned(), |batches| batches.to_string()),
        )?;
        if self.problem.is_some() {
            f.write_str("  damaged")?;
        }
        Ok(())
    }
}
