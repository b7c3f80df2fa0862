//! Sequential reads: what is read ahead, and of whom.

use std::time::Duration;

use krabka_remote_storage::RemoteLogReader;
use std::sync::Arc;

use super::{EPOCH, KIB, MIB, read, spans, try_read};
use crate::support::tier::{MadeSegment, MadeTier, partition};
use krabka_remote_storage::testing::batches::{SegmentFiles, UniformLog};
use krabka_remote_storage::testing::store::{Fate, Outcome};

const BATCH: usize = 16 * KIB;
const RECORDS: i32 = 10;

/// Reads so many bytes in steps of at most `step`; the offset after them.
async fn read_on(reader: &RemoteLogReader, from: i64, bytes: usize, step: usize) -> i64 {
    let (mut offset, mut left) = (from, bytes);
    while left > 0 {
        let batches = read(reader, offset, step).await;
        let spans = spans(&batches);
        assert!((spans[0].0..=spans[0].1).contains(&offset));
        assert!(batches.bytes.len() <= step || spans.len() == 1);
        offset = batches.next_offset;
        left = left.saturating_sub(batches.bytes.len());
    }
    offset
}

#[tokio::test]
async fn sixteen_mib_in_steps_of_one_take_six_gets() {
    let tier = MadeTier::new();
    tier.add_uniform(1, UniformLog::new(0, 4096, BATCH, RECORDS), 0)
        .await;
    read_on(&tier.reader(), 4_444, 16 * MIB, MIB).await;
    assert_eq!(tier.gets_of(".index"), 1);
    let gets = tier.gets();
    assert!(gets.len() <= 6, "{gets:?}");
    let log: u64 = gets[1..].iter().map(|(_, bytes)| bytes).sum();
    assert!(log as f64 <= 1.5 * (16 * MIB) as f64, "{log} bytes");
}

#[tokio::test]
async fn sixteen_mib_in_steps_of_one_take_seventeen_gets_without_read_ahead() {
    let tier = MadeTier::new();
    tier.add_uniform(1, UniformLog::new(0, 4096, BATCH, RECORDS), 0)
        .await;
    let reader =
        RemoteLogReader::with_read_ahead(tier.storage(), Arc::clone(&tier.metadata) as _, 0);
    read_on(&reader, 4_444, 16 * MIB, MIB).await;
    assert_eq!(tier.gets_of(".index"), 1);
    assert_eq!(tier.gets().len(), 17);
    let index = tier.gets()[0].1;
    assert_eq!(tier.bytes_down(), index + (16 * MIB + BATCH) as u64);
}

#[tokio::test]
async fn batches_that_do_not_fill_a_step_waste_little() {
    for (batch, waste) in [
        (5_000, 1.2),
        (15_001, 1.2),
        (100_000, 1.2),
        (300_001, 1.2),
        (700_000, 1.2),
        // Of large batches fewer fit into 8 MiB, and the one that is cut off is fetched again.
        (3_000_000, 1.5),
    ] {
        let tier = MadeTier::new();
        tier.add_uniform(1, UniformLog::new(0, 96 * MIB / batch, batch, RECORDS), 0)
            .await;
        read_on(&tier.reader(), 44, 64 * MIB, MIB).await;
        let gets = tier.gets();
        let log: u64 = gets[1..].iter().map(|(_, bytes)| bytes).sum();
        assert!(
            log as f64 <= waste * (64 * MIB) as f64,
            "{log} bytes with batches of {batch}: {gets:?}"
        );
        assert!(gets.len() <= 16, "with batches of {batch}: {gets:?}");
    }
}

#[tokio::test]
async fn a_read_elsewhere_reads_no_more_than_it_was_asked_for() {
    let tier = MadeTier::new();
    tier.add_uniform(1, UniformLog::new(0, 4096, BATCH, RECORDS), 0)
        .await;
    let reader = tier.reader();
    read_on(&reader, 0, 8 * MIB, MIB).await;
    tier.store.forget_requests();
    read(&reader, 30_009, 64 * KIB).await;
    assert_eq!(tier.gets().pop().unwrap(), (".log".to_owned(), 64 * 1024));
}

#[tokio::test]
async fn read_ahead_goes_on_across_the_border_of_segments() {
    let tier = MadeTier::new();
    let log = |base| UniformLog::new(base, 512, BATCH, RECORDS);
    for (id, base) in [(1, 0), (2, 5_120), (3, 10_240)] {
        tier.add_uniform(id, log(base), base).await;
    }
    let reader = tier.reader();
    let end = read_on(&reader, 0, 24 * MIB, MIB).await;
    assert_eq!(end, 15_360);
    // 1 + 2 + 4 + 1 (the end of the log), and then 8 each.
    let mib: Vec<_> = tier
        .gets()
        .iter()
        .map(|(suffix, bytes)| (suffix.clone(), bytes >> 20))
        .collect();
    let log = |mib| (".log".to_owned(), mib);
    assert_eq!(mib, [log(1), log(2), log(4), log(1), log(8), log(8)]);
    // And the tier ends.
    assert!(try_read(&reader, end, MIB).await.unwrap().is_none());
}

#[tokio::test]
async fn many_sequential_readers_share_what_may_be_kept() {
    let tier = MadeTier::new();
    let log = UniformLog::new(0, 64 * 1024, BATCH, RECORDS);
    tier.add_uniform(1, log, 0).await;
    let reader = tier.reader();
    let readers = 40;
    let mut offsets: Vec<i64> = (0..readers).map(|at| at * 16_000).collect();
    let mut wanted = 0;
    for _ in 0..16 {
        for offset in &mut offsets {
            let batches = read(&reader, *offset, MIB).await;
            *offset = batches.next_offset;
            wanted += batches.bytes.len();
        }
    }
    let gets = tier.gets();
    let log: Vec<u64> = gets
        .iter()
        .filter(|(suffix, _)| suffix == ".log")
        .map(|(_, bytes)| *bytes)
        .collect();
    let wasted = log.iter().sum::<u64>() as f64 / wanted as f64;
    assert!(wasted <= 1.25, "{wasted} times what was wanted");
    // None of them starts anew.
    assert_eq!(
        gets.len() - log.len(),
        usize::try_from(readers).unwrap() - 1
    );
}

#[tokio::test]
async fn two_readers_side_by_side_are_both_sequential() {
    let tier = MadeTier::new();
    tier.add_uniform(1, UniformLog::new(0, 4096, BATCH, RECORDS), 0)
        .await;
    let reader = tier.reader();
    let mut offsets = [0, 0];
    for _ in 0..16 {
        for offset in &mut offsets {
            *offset = read(&reader, *offset, MIB).await.next_offset;
        }
    }
    assert_eq!(tier.gets_of(".index"), 0);
    assert!(tier.gets().len() <= 10, "{:?}", tier.gets());
}

#[tokio::test]
async fn what_was_read_ahead_is_never_answered_to_another_partition_or_epoch() {
    let tier = MadeTier::new();
    // Leader 1 did not know what leader 0 had written from offset 100 on.
    let old = SegmentFiles::uniform(0, 4 * MIB, BATCH, RECORDS);
    let mut of_old = MadeSegment::new(1, &old);
    let mut new = SegmentFiles::new(100);
    for base_offset in (100..1_000).step_by(5) {
        let batch =
            krabka_remote_storage::testing::batches::BatchSpec::new(base_offset, 5, 8 * KIB);
        new.append(&batch.epoch(1));
    }
    let new = new.roll();
    let mut of_new = MadeSegment::new(2, &new);
    of_new.epochs = [(1, 100)].into();
    of_new.checkpoint = [(0, 0), (1, 100)].into();
    let other = SegmentFiles::uniform(0, 4 * MIB, 4 * KIB, RECORDS);
    let mut of_other = MadeSegment::new(3, &other);
    of_other.partition = 1;
    of_old.checkpoint = [(0, 0)].into();
    for segment in [&of_old, &of_new, &of_other] {
        tier.add(segment).await;
    }
    let reader = tier.reader();
    // Both reads end at offset 100, and the second has read ahead.
    let step = 5 * BATCH;
    let first = read(&reader, 0, step).await;
    let second = read(&reader, first.next_offset, step).await;
    assert_eq!(second.next_offset, 100);

    let in_epoch_1 = reader
        .read(
            &partition(0),
            krabka_remote_storage::LeaderEpoch(1),
            100,
            step,
        )
        .await
        .unwrap()
        .unwrap();
    assert_eq!(in_epoch_1.bytes, new.log[..in_epoch_1.bytes.len()]);
    assert_eq!(in_epoch_1.segment.start_offset(), 100);
    read(&reader, 0, step).await;
    read(&reader, 50, step).await;
    let in_other = reader
        .read(&partition(1), EPOCH, 100, step)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(spans(&in_other)[0], (100, 109));
    assert_eq!(in_other.bytes.len(), step);
    assert!(
        other
            .log
            .windows(step)
            .any(|window| window == in_other.bytes)
    );
    // And an epoch that has nothing there is out of range.
    let nothing = reader
        .read(
            &partition(0),
            krabka_remote_storage::LeaderEpoch(2),
            100,
            step,
        )
        .await;
    assert!(nothing.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_or_failed_read_leaves_the_next_one_right() {
    let tier = MadeTier::new();
    let files = SegmentFiles::uniform(0, 8 * MIB, BATCH, RECORDS);
    tier.add(&MadeSegment::new(1, &files)).await;
    let reader = tier.reader();
    let mut offset = 0;
    let mut log = Vec::new();
    let mut turn = 0;
    while offset <= files.last_offset {
        turn += 1;
        tier.store.script(move |_, _| match turn % 3 {
            0 => Fate {
                delay: Duration::ZERO,
                outcome: Outcome::Failed(503),
            },
            1 => Fate {
                delay: Duration::from_secs(1),
                outcome: Outcome::Served,
            },
            _ => Fate::default(),
        });
        let limit = Duration::from_millis(500);
        let Ok(Ok(batches)) = tokio::time::timeout(limit, try_read(&reader, offset, 100_000)).await
        else {
            continue;
        };
        let batches = batches.unwrap();
        assert_eq!(batches.position, log.len() as u64);
        log.extend_from_slice(&batches.bytes);
        offset = batches.next_offset;
    }
    assert!(log == files.log);
}
