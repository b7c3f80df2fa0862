//! What the decoders of `diskless` allocate: their results, and never what a size only declares.

use std::hint::black_box;

use krabka_remote_storage::diskless::{
    WalCaptureProjection, WalFlushRecord, WalIndexEntry, WalObjectBuilder, WalObjectEntry,
    parse_wal_object, whole_batches,
};
use uuid::Uuid;

use crate::least;
use crate::support::alone::alone;

const TOPIC_ID: Uuid = Uuid::from_u128(7);

#[test]
fn decoders_allocate_their_results_and_nothing_that_is_only_declared() {
    alone(|| {
        parsing_an_object_allocates_its_list_of_runs_alone();
        lookups_and_cuts_allocate_nothing();
        declared_counts_are_not_allocated();
    });
}

fn parsing_an_object_allocates_its_list_of_runs_alone() {
    for runs in [1, 1_000] {
        let mut builder = WalObjectBuilder::new();
        for partition in 0..runs {
            builder
                .append_run(TOPIC_ID, partition, 0, 0, &batch())
                .unwrap();
        }
        let object = builder.finish();
        let heap = least(|| {
            black_box(parse_wal_object(&object).unwrap());
        });
        let list = usize::try_from(runs).unwrap() * size_of::<WalObjectEntry>();
        assert_eq!((heap.count, heap.peak), (1, list), "{runs} runs");

        let parsed = parse_wal_object(&object).unwrap();
        let heap = least(|| {
            for run in &parsed {
                run.check_run(run.run_of(&object).unwrap()).unwrap();
            }
        });
        assert_eq!(heap.count, 0, "checking {runs} runs in place");
    }
}

fn lookups_and_cuts_allocate_nothing() {
    let mut projection = WalCaptureProjection::new();
    for number in 0..1_000 {
        let (key, value) = WalFlushRecord::keyed_entry("wal/a", entry(number));
        projection.apply(Some(&key), Some(&value)).unwrap();
    }
    let partition = projection.partition(TOPIC_ID, 0).unwrap();
    let range = batch().repeat(3);
    let heap = least(|| {
        black_box(projection.lookup(TOPIC_ID, 0, 500));
        black_box(partition.read(500, 1 << 20));
        black_box((partition.frontier(), partition.earliest_offset()));
        black_box(whole_batches(&range, 0, 1 << 20).unwrap());
    });
    assert_eq!(heap.count, 0);
}

fn declared_counts_are_not_allocated() {
    let (_, value) = WalFlushRecord::keyed_entry("", entry(0));
    for at in [2, 10] {
        let mut value = value.clone();
        value[at..at + 8].copy_from_slice(&(1_u64 << 40).to_le_bytes());
        let heap = least(|| drop(WalFlushRecord::from_bytes(&value).unwrap_err()));
        assert!(heap.peak < 1_024, "a count of 2^40: {heap:?}");
    }
    let mut object = WalObjectBuilder::new().finish().to_vec();
    object[6..10].copy_from_slice(&(48_u32 * 80_000_000).to_le_bytes());
    let heap = least(|| drop(parse_wal_object(&object).unwrap_err()));
    assert!(heap.peak < 1_024, "a footer of 3.8 GB: {heap:?}");
}

fn entry(number: i64) -> WalIndexEntry {
    WalIndexEntry {
        topic_id: TOPIC_ID,
        partition: 0,
        first_offset: number,
        last_offset: number,
        byte_start: 6,
        byte_len: 64,
        max_timestamp_ms: 0,
    }
}

/// A batch of offset 0 without records.
fn batch() -> Vec<u8> {
    let checked = [0; 40];
    [
        &[0; 8][..],
        &49_i32.to_be_bytes(),
        &[0, 0, 0, 0, 2],
        &crc32c::crc32c(&checked).to_be_bytes(),
        &checked,
    ]
    .concat()
}
