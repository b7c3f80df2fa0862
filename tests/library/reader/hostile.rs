//! Whatever lies in the tier: no panic, no endless loop, no more memory than there are bytes, and
//! never other bytes than the log's own.

use std::cell::Cell;
use std::sync::Arc;

use bytes::Bytes;
use krabka_remote_storage::index::{Batches, DEFAULT_MAX_DECOMPRESSED_BYTES};
use krabka_remote_storage::{ErrorKind, RemoteLogReader};
use proptest::prelude::*;

use super::{EPOCH, spans, try_read};
use crate::support::tier::{MadeSegment, MadeTier, partition};
use krabka_remote_storage::testing::batches::{BatchSpec, SegmentFiles};
use krabka_remote_storage::testing::store::Fate;

/// More requests than any read of the logs here may take.
const ENDLESS: usize = 2_000;

/// A segment with batches of transactions and others, some of them larger than an interval.
fn files(sizes: &[usize]) -> SegmentFiles {
    let mut files = SegmentFiles::new(1_000);
    let mut open = None;
    for (at, size) in sizes.iter().enumerate() {
        let offset = files.last_offset + 1;
        let records = i32::try_from(at % 5).unwrap() + 1;
        let batch = BatchSpec::new(offset, records, *size);
        match at % 4 {
            1 => {
                files.append(&batch.of_transaction(7));
                open = Some(offset);
            }
            3 => {
                files.append_marker(7, open.take().map(|first| (first, None)));
            }
            _ => {
                files.append(&batch);
            }
        }
    }
    files.roll()
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// A tier of this one segment, whose store refuses to go on for ever.
async fn tier_of(segment: &MadeSegment) -> MadeTier {
    let tier = MadeTier::new();
    tier.add(segment).await;
    tier.store.script(|request, before| {
        assert!(before < ENDLESS, "an endless loop at {request:?}");
        Fate::default()
    });
    tier
}

/// Asks everything of a reader. Only the answers of `read` are looked at.
async fn ask_everything(
    reader: &RemoteLogReader,
    log: &[u8],
    offset: i64,
    max_bytes: usize,
) -> Result<(), TestCaseError> {
    let mut next = offset;
    // Sequential reads, too.
    for _ in 0..4 {
        let Ok(Some(read)) = try_read(reader, next, max_bytes).await else {
            break;
        };
        let start = usize::try_from(read.position).unwrap();
        prop_assert_eq!(&read.bytes[..], &log[start..start + read.bytes.len()]);
        prop_assert!(read.next_offset > next, "a reader goes on");
        let mut batches = Batches::new(&read.bytes);
        prop_assert!(batches.by_ref().all(|batch| batch.is_ok()));
        prop_assert!(batches.remainder().is_empty());
        next = read.next_offset;
    }
    let (tp, max) = (partition(0), DEFAULT_MAX_DECOMPRESSED_BYTES);
    if let Ok(Some(read)) = reader
        .read_committed(&tp, EPOCH, offset, max_bytes, None)
        .await
    {
        for batch in read.visible_batches(max).unwrap_or_default() {
            let _ = batch.records(max);
        }
    }
    for timestamp in [i64::MIN, offset, i64::MAX] {
        let _ = reader
            .offset_for_timestamp(&tp, timestamp, offset, None)
            .await;
    }
    let _ = reader.leader_epochs(&tp).await;
    let _ = reader.first_undecided_offset(&tp).await;
    Ok(())
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
}

/// Some bytes changed, or cut off, or others in their place.
fn damage(bytes: &Bytes) -> impl Strategy<Value = Vec<u8>> + use<> {
    let bytes = bytes.to_vec();
    let length = bytes.len();
    let changed = (
        Just(bytes.clone()),
        proptest::collection::vec((0..length.max(1), any::<u8>()), 1..6),
    )
        .prop_map(|(mut bytes, changes)| {
            for (at, byte) in changes {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            bytes
        });
    let cut = (0..=length).prop_map(move |end| bytes[..end].to_vec());
    let others = proptest::collection::vec(any::<u8>(), 0..200);
    prop_oneof![3 => changed, 1 => cut, 1 => others]
}

const SIZES: [usize; 14] = [
    100, 5_000, 90, 80, 4_200, 70, 9_000, 80, 100, 100, 100, 80, 12_000, 300,
];

fn segment() -> MadeSegment {
    MadeSegment::new(1, &files(&SIZES))
}

/// The damaged objects of a segment, each with the size that its metadata tells, or none.
fn damaged_segment() -> impl Strategy<Value = MadeSegment> {
    let made = segment();
    let object = |bytes: &Option<Bytes>| {
        let bytes = bytes.clone().unwrap_or_default();
        prop_oneof![2 => Just(bytes.to_vec()), 3 => damage(&bytes)]
    };
    let size = made.size;
    (
        object(&made.log),
        object(&made.offset_index),
        object(&made.time_index),
        object(&made.txn_index),
        prop_oneof![3 => Just(size), 1 => Just(0), 1 => 1..2 * size],
    )
        .prop_map(move |(log, offset, time, txn, size)| MadeSegment {
            log: Some(log.into()),
            offset_index: Some(offset.into()),
            time_index: Some(time.into()),
            txn_index: Some(txn.into()),
            txn_index_empty: false,
            size,
            ..made.clone()
        })
}

#[test]
fn any_objects_are_read_or_refused() {
    let end = segment().end_offset;
    let runtime = runtime();
    proptest!(config(600), |(
        segment in damaged_segment(),
        offset in 1_000..=end,
        max_bytes in prop_oneof![Just(0), 1..200_usize, Just(20_000), Just(usize::MAX)],
    )| {
        runtime.block_on(async {
            let tier = tier_of(&segment).await;
            let log = segment.log.clone().unwrap();
            ask_everything(&tier.reader(), &log, offset, max_bytes).await
        })?;
    });
}

#[test]
fn any_offset_index_answers_the_right_batches_or_an_error() {
    let made = segment();
    let log = made.log.clone().unwrap();
    let spans_of_log: Vec<(i64, i64)> = Batches::new(&log)
        .map(|batch| {
            let header = *batch.unwrap().header().unwrap();
            (header.base_offset(), header.last_offset().unwrap())
        })
        .collect();
    let runtime = runtime();
    let index = damage(&made.offset_index.clone().unwrap());
    let (answered, refused) = (Cell::new(0), Cell::new(0));
    proptest!(config(600), |(index in index, offset in 1_000..=made.end_offset)| {
        let segment = MadeSegment { offset_index: Some(index.into()), ..made.clone() };
        let read = runtime.block_on(async {
            try_read(&tier_of(&segment).await.reader(), offset, 1).await
        });
        match read {
            Ok(read) => {
                let expected = spans_of_log.iter().find(|(_, last)| *last >= offset);
                let found = spans(&read.unwrap());
                prop_assert_eq!(found.first(), expected);
                answered.set(answered.get() + 1);
            }
            Err(error) => {
                prop_assert_eq!(error.kind(), ErrorKind::Corrupt);
                refused.set(refused.get() + 1);
            }
        }
    });
    assert!(answered.get() > 50, "{answered:?}");
    assert!(refused.get() > 50, "{refused:?}");
}

#[test]
fn any_checkpoint_and_snapshot_are_read_or_refused() {
    let made = segment();
    let runtime = runtime();
    let bytes = || proptest::collection::vec(any::<u8>(), 0..120);
    let text = "0\n[0-3]\n([0-9]{1,2} ?[0-9]{0,20}\n?){0,3}".prop_map(String::into_bytes);
    proptest!(config(300), |(
        checkpoint in prop_oneof![bytes(), text],
        snapshot in bytes(),
        offset in 1_000..=made.end_offset,
    )| {
        runtime.block_on(async {
            let tier = tier_of(&made).await;
            for (suffix, bytes) in [
                (".leader_epoch_checkpoint", &checkpoint),
                (".snapshot", &snapshot),
            ] {
                let payload = Bytes::copy_from_slice(bytes).into();
                let key = made.key(suffix);
                object_store::ObjectStoreExt::put(&*tier.store.inner, &key, payload)
                    .await
                    .unwrap();
            }
            let log = made.log.clone().unwrap();
            ask_everything(&tier.reader(), &log, offset, 1_000).await
        })?;
    });
}

#[test]
fn logs_of_any_batch_sizes_are_read_whole_with_any_budget() {
    let runtime = runtime();
    let sizes = proptest::collection::vec(
        prop_oneof![Just(80_usize), 80..300_usize, 3_000..20_000_usize],
        1..30,
    );
    proptest!(config(200), |(
        sizes in sizes,
        budgets in proptest::collection::vec(0..40_000_usize, 1..5),
        read_ahead in prop_oneof![Just(0), 1..50_000_usize],
    )| {
        let files = files(&sizes);
        let segment = MadeSegment::new(1, &files);
        runtime.block_on(async {
            let tier = tier_of(&segment).await;
            let metadata = Arc::clone(&tier.metadata) as _;
            let reader = RemoteLogReader::with_read_ahead(tier.storage(), metadata, read_ahead);
            let (mut offset, mut log) = (1_000, Vec::new());
            for budget in budgets.iter().cycle() {
                let Some(read) = try_read(&reader, offset, *budget).await.unwrap() else {
                    break;
                };
                prop_assert!(read.bytes.len() <= *budget || spans(&read).len() == 1);
                prop_assert!(!read.bytes.is_empty());
                log.extend_from_slice(&read.bytes);
                offset = read.next_offset;
            }
            prop_assert!(log == files.log);
            Ok(())
        })?;
    });
}
