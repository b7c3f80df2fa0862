//! The reader over made-up segments: what a read costs, what it survives, and what it never
//! answers.

mod cached;
mod committed;
mod hostile;
mod read_ahead;
mod requests;
mod segments;

use krabka_remote_storage::reader::FetchedBatches;
use krabka_remote_storage::{LeaderEpoch, RemoteLogReader, RemoteStorageError, index};

use crate::support::tier::partition;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
const EPOCH: LeaderEpoch = LeaderEpoch(0);

/// Reads partition 0 in epoch 0.
async fn read(reader: &RemoteLogReader, offset: i64, max_bytes: usize) -> FetchedBatches {
    try_read(reader, offset, max_bytes)
        .await
        .unwrap()
        .unwrap_or_else(|| panic!("offset {offset} is out of range"))
}

async fn try_read(
    reader: &RemoteLogReader,
    offset: i64,
    max_bytes: usize,
) -> Result<Option<FetchedBatches>, RemoteStorageError> {
    reader.read(&partition(0), EPOCH, offset, max_bytes).await
}

/// First and last offset of each batch.
fn spans(batches: &FetchedBatches) -> Vec<(i64, i64)> {
    let mut walk = index::Batches::new(&batches.bytes);
    let spans = walk
        .by_ref()
        .map(|batch| {
            let header = *batch.unwrap().header().unwrap();
            (header.base_offset(), header.last_offset().unwrap())
        })
        .collect();
    assert!(walk.remainder().is_empty(), "batches are whole");
    spans
}

/// Different numbers below `bound`, each time the same.
fn scattered(bound: i64) -> impl Iterator<Item = i64> {
    (1_u64..).map(move |step| {
        let mixed = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1;
        i64::try_from(mixed).unwrap() % bound
    })
}
