//! Finds partition directories: one that is named itself, or those in an entry of `log.dirs`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use krabka_remote_storage::RemoteStorageError;
use krabka_remote_storage::layout::{LogDirState, PARTITION_METADATA_FILE, parse_log_dir_name};

use super::PartitionDir;

/// Kafka's own topics, which brokers do not tier.
const INTERNAL_TOPICS: [&str; 5] = [
    "__consumer_offsets",
    "__transaction_state",
    "__share_group_state",
    "__remote_log_metadata",
    "__cluster_metadata",
];

/// What was found at a path.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// The partitions, by directory name.
    pub(crate) partitions: Vec<PartitionDir>,
    /// Directories that were passed over, and why.
    pub(crate) passed_over: Vec<(PathBuf, &'static str)>,
    /// Why partitions cannot be opened.
    pub(crate) problems: Vec<RemoteStorageError>,
}

/// Finds the partitions at or directly below `path`.
pub(crate) fn walk(path: &Path, internal_topics: bool) -> Result<Walk, RemoteStorageError> {
    let failed = |error| RemoteStorageError::io("list", path, error);
    // The real name: `.` and a path that ends in `..` have none of their own.
    let real = path.canonicalize().map_err(failed)?;
    let name = real
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    if let Some(parsed) = parse_log_dir_name(name)
        && (real.join(PARTITION_METADATA_FILE).exists() || !holds_partitions(&real)?)
    {
        if let Some(reason) = unused(parsed.state) {
            return Err(RemoteStorageError::InvalidArgument(format!(
                "{} is {reason}: name the directory of the partition itself",
                path.display()
            )));
        }
        return Ok(Walk {
            partitions: vec![PartitionDir::open(path, parsed)?],
            ..Walk::default()
        });
    }
    let mut found = Walk::default();
    let mut entries = fs::read_dir(path)
        .map_err(failed)?
        .collect::<io::Result<Vec<_>>>()
        .map_err(failed)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let dir = entry.path();
        let name = entry.file_name();
        // Files of the broker's own, and directories of other names, are not meant.
        let parsed = name.to_str().and_then(parse_log_dir_name);
        let Some(parsed) = parsed.filter(|_| dir.is_dir()) else {
            continue;
        };
        if let Some(reason) = unused(parsed.state) {
            found.passed_over.push((dir, reason));
        } else if INTERNAL_TOPICS.contains(&parsed.topic) && !internal_topics {
            found.passed_over.push((dir, "an internal topic"));
        } else {
            match PartitionDir::open(&dir, parsed) {
                Ok(partition) => found.partitions.push(partition),
                Err(error) => found.problems.push(error),
            }
        }
    }
    if found.partitions.is_empty() && found.passed_over.is_empty() && found.problems.is_empty() {
        return Err(RemoteStorageError::InvalidArgument(format!(
            "{} is no partition's directory and holds none: name a broker's log directory, or a \
             `TOPIC-PARTITION` in it",
            path.display()
        )));
    }
    Ok(found)
}

/// What a directory is that holds no partition in use.
fn unused(state: LogDirState) -> Option<&'static str> {
    match state {
        LogDirState::Current => None,
        LogDirState::Future => Some("a replica that is not in use yet"),
        LogDirState::Deleted => Some("what the broker is deleting"),
        LogDirState::Stray => Some("left behind by a partition that has moved"),
    }
}

/// Whether a directory is an entry of `log.dirs` that happens to be named like a partition
/// (`kafka-logs-1`).
fn holds_partitions(path: &Path) -> Result<bool, RemoteStorageError> {
    let failed = |error| RemoteStorageError::io("list", path, error);
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        if name.to_str().and_then(parse_log_dir_name).is_some() && entry.path().is_dir() {
            return Ok(true);
        }
    }
    Ok(false)
}
