//! The manager's snapshot on the local disk: loaded once, written at times. All of it blocks.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;

use super::manager::Shared;
use super::partition::Caches;
use super::partitioning::try_metadata_partition_for;
use super::snapshot::{SNAPSHOT_FILE_NAME, SnapshotCaches, SnapshotEncoder, SnapshotError};
use super::telemetry::{self, SnapshotOutcome};
use crate::error::RemoteStorageError;
use crate::metadata::RemoteLogMetadataCache;

/// How many rejected snapshots are kept.
const KEPT_ASIDE: u32 = 4;

/// What a snapshot says of one metadata partition.
pub(super) struct Parked {
    /// The first offset that it does not have.
    pub(super) position: i64,
    pub(super) caches: Caches,
}

/// Reads the snapshot. One that is bad, or of another log, is put aside under a name of its own,
/// and nothing is known then.
pub(super) fn load(shared: &Shared) -> HashMap<i32, Parked> {
    let path = path(shared);
    let snapshot = match SnapshotCaches::load(&path) {
        Ok(None) => return HashMap::new(),
        Ok(Some(snapshot)) => snapshot,
        Err(error) => {
            reject(&path, &error);
            return HashMap::new();
        }
    };
    if let Err(mismatch) = check_origin(&snapshot, shared) {
        reject(&path, &mismatch);
        return HashMap::new();
    }
    telemetry::snapshot(SnapshotOutcome::Loaded);
    let parked = park(snapshot.caches, &snapshot.committed_offsets);
    *shared.committed.write() = snapshot.committed_offsets;
    parked
}

fn path(shared: &Shared) -> PathBuf {
    shared.config.snapshot_dir.join(SNAPSHOT_FILE_NAME)
}

/// A snapshot that is whole, but of another log.
#[derive(Debug, thiserror::Error)]
enum Mismatch {
    #[error(
        "it was made with {snapshot} metadata partitions and the log has {log}: events are in other \
         partitions now, and those from before are not all found"
    )]
    PartitionCount { snapshot: usize, log: usize },
    #[error(
        "it is of topic id {snapshot}, and the log is of topic id {log}: the topic was made again"
    )]
    Topic {
        snapshot: uuid::Uuid,
        log: uuid::Uuid,
    },
    #[error(
        "it has metadata partition {partition} up to offset {applied}, and the log now has offsets          {low} (inclusive) to {high} (exclusive)"
    )]
    Offsets {
        partition: i32,
        applied: i64,
        low: i64,
        high: i64,
    },
}

impl Parked {
    /// Whether the log can be read on from here: neither the position nor an event that a cache has
    /// beyond it is outside of the log.
    pub(super) fn fits(&self, low: i64, high: i64) -> bool {
        let is_ahead = |cache: &Arc<RwLock<RemoteLogMetadataCache>>| {
            cache
                .read()
                .applied_offset()
                .is_some_and(|applied| applied >= high)
        };
        (low..=high).contains(&self.position) && !self.caches.values().any(is_ahead)
    }
}

/// Puts the snapshot aside whose offsets of a partition the log no longer has: when the log has
/// grown again, the next start would believe them. Nothing happens when there is none.
pub(super) fn put_stale_aside(shared: &Shared, partition: i32, low: i64, high: i64) {
    let mut committed = shared.committed.write();
    let of_partition = usize::try_from(partition).ok();
    let applied = of_partition.and_then(|index| committed.get(index).copied());
    let Some(applied) = applied.filter(|applied| *applied >= 0) else {
        return;
    };
    let problem = Mismatch::Offsets {
        partition,
        applied,
        low,
        high,
    };
    reject(&path(shared), &problem);
    committed.fill(-1);
}

fn check_origin(snapshot: &SnapshotCaches, shared: &Shared) -> Result<(), Mismatch> {
    let log = shared.partitions.len();
    if snapshot.committed_offsets.len() != log {
        return Err(Mismatch::PartitionCount {
            snapshot: snapshot.committed_offsets.len(),
            log,
        });
    }
    match (snapshot.topic_id, shared.log.topic_id()) {
        (Some(snapshot), Some(log)) if snapshot != log => Err(Mismatch::Topic { snapshot, log }),
        _ => Ok(()),
    }
}

fn park(caches: Vec<RemoteLogMetadataCache>, committed: &[i64]) -> HashMap<i32, Parked> {
    let count = i32::try_from(committed.len()).unwrap_or(i32::MAX);
    let mut parked: HashMap<i32, Parked> = (0..count)
        .zip(committed)
        .filter(|(_, committed)| **committed >= 0)
        .map(|(partition, committed)| {
            let position = committed.saturating_add(1);
            let caches = Caches::new();
            (partition, Parked { position, caches })
        })
        .collect();
    for cache in caches {
        let tp = cache.topic_id_partition().clone();
        let partition = try_metadata_partition_for(&tp, count);
        // Without an offset its events are replayed from the start.
        if let Some(parked) = partition.and_then(|partition| parked.get_mut(&partition)) {
            parked.caches.insert(tp, Arc::new(RwLock::new(cache)));
        }
    }
    parked
}

fn reject(path: &Path, problem: &(dyn std::error::Error + 'static)) {
    telemetry::snapshot(SnapshotOutcome::Rejected);
    let aside = put_aside(path);
    tracing::warn!(
        error = problem,
        path = %path.display(),
        kept_as = aside.as_ref().map_or_else(ToString::to_string, |to| to.display().to_string()),
        "the snapshot is put aside; what does not fit the metadata log is replayed from its start"
    );
}

/// Keeps the file as evidence: under the first free of a few names, or the last of them.
fn put_aside(path: &Path) -> io::Result<PathBuf> {
    let name = |number| path.with_file_name(format!("{SNAPSHOT_FILE_NAME}.rejected-{number}"));
    let free = (1..KEPT_ASIDE).map(name).find(|aside| !aside.exists());
    let aside = free.unwrap_or_else(|| name(KEPT_ASIDE));
    fs::rename(path, &aside)?;
    Ok(aside)
}

/// Writes what has been applied up to now, and what the snapshot before says of partitions that
/// were not assigned since.
pub(super) fn write(
    shared: &Shared,
    parked: &[(i32, i64, Caches)],
) -> Result<(), RemoteStorageError> {
    // Not all at one moment: each cache has the events up to its partition's position, and says
    // how many it has beyond.
    let mut committed: Vec<i64> = vec![-1; shared.partitions.len()];
    let mut caches = Vec::new();
    let mut captured = Vec::new();
    for (partition, committed) in shared.partitions.iter().zip(&mut committed) {
        let was_dirty = partition.is_dirty();
        partition.set_dirty(false);
        if was_dirty {
            captured.push(partition);
        }
        if let Some((position, of_partition)) = partition.capture() {
            *committed = position - 1;
            caches.extend(of_partition);
        }
    }
    for (partition, position, of_partition) in parked {
        if let Some(committed) = usize::try_from(*partition)
            .ok()
            .and_then(|partition| committed.get_mut(partition))
        {
            *committed = position - 1;
            caches.extend(of_partition.values().cloned());
        }
    }
    let mut encoder = SnapshotEncoder::new(shared.log.topic_id(), &committed);
    for cache in caches {
        encoder.cache(&cache.read());
    }
    let written = encoder.write_atomic(&path(shared));
    match written {
        Ok(()) => *shared.committed.write() = committed,
        Err(_) => captured
            .iter()
            .for_each(|partition| partition.set_dirty(true)),
    }
    written.map_err(|error| match error {
        SnapshotError::Io(error) => error.into(),
        other => io::Error::other(other).into(),
    })
}
