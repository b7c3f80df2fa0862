//! A capture: its ranges, and what is proved of it.

use std::fmt;

use krabka_remote_storage::archive::{ManifestPublicKey, Printable, SegmentManifest};
use krabka_remote_storage::diskless::{DisklessPartitionCapture, DisklessWalCapture, WalRange};
use krabka_remote_storage::model::kafka_uuid;
use krabka_remote_storage::{ChainHead, RemoteStorageError, Sha256Digest, TrustedManifestKeys};
use serde::Serialize;

use super::InspectArgs;
use crate::failure::{Failure, chain, print_note};
use crate::output::{Output, count};

/// A line of output. As JSON, `type` says what it is.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event<'a> {
    Partition {
        topic: &'a str,
        topic_id: String,
        partition: i32,
        delete_floor: i64,
        /// Exclusive.
        recovery_cutoff: i64,
        ranges: usize,
    },
    Range {
        topic: &'a str,
        topic_id: String,
        partition: i32,
        first_offset: i64,
        last_offset: i64,
        object_key: &'a str,
        byte_start: u64,
        byte_len: u32,
        max_timestamp_ms: i64,
    },
    Capture {
        captured_at_ms: i64,
        source_cutoffs: &'a [i64],
        partitions: usize,
        ranges: usize,
        objects: usize,
        /// Of the document without its seal.
        state_size_bytes: usize,
        state_sha256: Sha256Digest,
        seal: Option<Seal>,
    },
}

#[derive(Debug, Serialize)]
struct Seal {
    key_id: Option<String>,
    head: ChainHead,
    /// Whether it was proved with --public-key.
    proved: bool,
    /// Whether its head is the one of --expect-head.
    pinned: bool,
}

/// Prints the capture's ranges, and answers what is wrong with it.
pub(super) fn inspect(
    bytes: &[u8],
    args: &InspectArgs,
    output: &mut Output,
) -> Result<Vec<String>, Failure> {
    let capture = DisklessWalCapture::from_slice(bytes).map_err(RemoteStorageError::from)?;
    let mut ranges = 0;
    for partition in capture.partitions() {
        output.event(&Event::of_partition(partition))?;
        for range in &partition.ranges {
            output.event(&Event::of_range(partition, range))?;
        }
        ranges += partition.ranges.len();
    }
    let (seal, problem) = match capture.authentication() {
        Some(manifest) => sealed(&capture, manifest, args)?,
        None if args.public_key.is_some() => {
            (None, Some("it is not sealed: nothing is proved".to_owned()))
        }
        None => (None, None),
    };
    output.event(&Event::Capture {
        captured_at_ms: capture.captured_at_ms(),
        source_cutoffs: capture.source_cutoffs(),
        partitions: capture.partitions().len(),
        ranges,
        objects: capture.objects().len(),
        state_size_bytes: capture.state().len(),
        state_sha256: Sha256Digest::of(capture.state()),
        seal,
    })?;
    Ok(problem.into_iter().collect())
}

/// What there is to say of the seal, and what is wrong with it.
fn sealed(
    capture: &DisklessWalCapture,
    manifest: &SegmentManifest,
    args: &InspectArgs,
) -> Result<(Option<Seal>, Option<String>), Failure> {
    let signature = manifest.signature.as_ref();
    let key_id = signature.map(|signature| signature.key_id.clone());
    let head = krabka_remote_storage::manifest_head(&manifest.body);
    let problem = match &args.public_key {
        None => {
            print_note("the capture is sealed, and nothing of that is checked: give --public-key");
            None
        }
        Some(path) => {
            let key = ManifestPublicKey::load(path).map_err(RemoteStorageError::from)?;
            let trusted_id = args.key_id.as_ref().or(key_id.as_ref());
            let trusted = trusted_id
                .map(|id| TrustedManifestKeys::single(id, key))
                .unwrap_or_default();
            let expected = args.expect_head.unwrap_or(head);
            let proved = capture.authenticate(&trusted, expected);
            proved.err().map(|error| chain(&error))
        }
    };
    let proved = args.public_key.is_some() && problem.is_none();
    let pinned = proved && args.expect_head.is_some();
    if proved && !pinned {
        print_note(
            "without --expect-head an older capture that was sealed with the same key passes, too",
        );
    }
    let seal = Seal {
        key_id,
        head,
        proved,
        pinned,
    };
    Ok((Some(seal), problem))
}

impl<'a> Event<'a> {
    fn of_partition(partition: &'a DisklessPartitionCapture) -> Self {
        Self::Partition {
            topic: &partition.topic,
            topic_id: kafka_uuid(partition.topic_id),
            partition: partition.partition,
            delete_floor: partition.delete_floor,
            recovery_cutoff: partition.recovery_cutoff,
            ranges: partition.ranges.len(),
        }
    }

    fn of_range(partition: &'a DisklessPartitionCapture, range: &'a WalRange) -> Self {
        Self::Range {
            topic: &partition.topic,
            topic_id: kafka_uuid(partition.topic_id),
            partition: partition.partition,
            first_offset: range.entry.first_offset,
            last_offset: range.entry.last_offset,
            object_key: &range.object_key,
            byte_start: range.entry.byte_start,
            byte_len: range.entry.byte_len,
            max_timestamp_ms: range.entry.max_timestamp_ms,
        }
    }
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Partition {
                topic,
                topic_id,
                partition,
                delete_floor,
                recovery_cutoff,
                ranges,
            } => {
                write!(
                    f,
                    "{topic}-{partition}  {}, delete floor {delete_floor}, ends before offset \
                     {recovery_cutoff}  (topic id {topic_id})",
                    count(*ranges, "range", "ranges")
                )?;
                if *ranges > 0 {
                    write!(
                        f,
                        "\n  {:>15} {:>15} {:>11} {:>11}  OBJECT",
                        "FIRST OFFSET", "LAST OFFSET", "BYTE START", "BYTES"
                    )?;
                }
                Ok(())
            }
            Self::Range {
                first_offset,
                last_offset,
                object_key,
                byte_start,
                byte_len,
                ..
            } => write!(
                f,
                "  {first_offset:>15} {last_offset:>15} {byte_start:>11} {byte_len:>11}  {}",
                Printable(object_key)
            ),
            Self::Capture {
                captured_at_ms,
                partitions,
                ranges,
                objects,
                state_sha256,
                seal,
                ..
            } => {
                write!(
                    f,
                    "capture of time {captured_at_ms}: {}, {} in {}; its state has SHA-256 \
                     {state_sha256}\n{}",
                    count(*partitions, "partition", "partitions"),
                    count(*ranges, "range", "ranges"),
                    count(*objects, "object", "objects"),
                    seal.as_ref()
                        .map_or("not sealed".to_owned(), Seal::to_string),
                )
            }
        }
    }
}

impl fmt::Display for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key_id = self.key_id.as_deref().unwrap_or_default();
        write!(
            f,
            "sealed with key `{}`, {}; head {}",
            Printable(key_id),
            match (self.proved, self.pinned) {
                (false, _) => "not proved",
                (true, false) => "proved",
                (true, true) => "proved, and the expected one",
            },
            self.head
        )
    }
}
