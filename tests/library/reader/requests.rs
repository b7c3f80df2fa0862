//! How many requests a read of one place takes, and how many bytes.

use super::{KIB, MIB, read, scattered, spans};
use crate::support::tier::{MadeSegment, MadeTier};
use krabka_remote_storage::testing::batches::{BatchSpec, SegmentFiles, UniformLog};

const BATCH: usize = 16 * KIB;
/// Records of a batch.
const RECORDS: i32 = 10;

/// A segment of 1 GiB.
fn one_gib() -> UniformLog {
    UniformLog::new(0, 1024 * MIB / BATCH, BATCH, RECORDS)
}

#[tokio::test]
async fn a_cold_read_of_a_random_offset_is_one_get_of_the_offset_index_and_one_of_the_log() {
    let tier = MadeTier::new();
    let log = one_gib();
    let segment = tier.add_uniform(1, log.clone(), 0).await;
    let index_size = segment.offset_index.unwrap().len() as u64;
    // All but the first offset, which needs no index.
    for offset in scattered(log.end_offset()).take(300).map(|at| at + 1) {
        let reader = tier.reader();
        tier.store.forget_requests();
        let batches = read(&reader, offset, 64 * KIB).await;
        let first = offset - offset % i64::from(RECORDS);
        assert_eq!(spans(&batches)[0], (first, first + i64::from(RECORDS) - 1));
        let is_near_the_end = log.end_offset() - offset < 4 * i64::from(RECORDS);
        assert!(batches.bytes.len() == 64 * KIB || is_near_the_end);

        let gets = tier.gets();
        let suffixes: Vec<_> = gets.iter().map(|(suffix, _)| suffix.as_str()).collect();
        assert_eq!(suffixes, [".index", ".log"], "at {offset}");
        let bound = 1.01 * (index_size + 64 * 1024 + BATCH as u64) as f64;
        let down = tier.bytes_down();
        assert!((down as f64) <= bound, "{down} bytes at {offset}");
    }
}

#[tokio::test]
async fn the_start_of_a_segment_needs_no_index() {
    let tier = MadeTier::new();
    tier.add_uniform(1, one_gib(), 0).await;
    let batches = read(&tier.reader(), 0, 64 * KIB).await;
    assert_eq!(batches.bytes.len(), 64 * KIB);
    assert_eq!(tier.gets(), [(".log".to_owned(), 64 * 1024)]);
}

#[tokio::test]
async fn the_batch_that_an_index_entry_names_is_the_first_of_the_range() {
    let tier = MadeTier::new();
    tier.add_uniform(1, one_gib(), 0).await;
    // The last offset of a batch.
    let batches = read(&tier.reader(), 12_349, 64 * KIB).await;
    assert_eq!(spans(&batches)[0], (12_340, 12_349));
    let log = tier.gets().pop().unwrap();
    assert_eq!(log, (".log".to_owned(), 64 * 1024));
}

#[tokio::test]
async fn a_third_get_is_for_a_first_batch_that_does_not_fit() {
    let tier = MadeTier::new();
    let batch = 100 * KIB;
    let log = UniformLog::new(0, 100, batch, RECORDS);
    tier.add_uniform(1, log, 0).await;
    for (offset, max_bytes, gets) in [
        (505, 64 * KIB, 3),
        (509, 64 * KIB, 3),
        (509, 0, 3),
        (505, batch, 2),
        (509, batch, 2),
    ] {
        tier.store.forget_requests();
        let batches = read(&tier.reader(), offset, max_bytes).await;
        assert_eq!(spans(&batches), [(500, 509)]);
        assert_eq!(tier.gets().len(), gets, "{offset} with {max_bytes}");
        assert_eq!(tier.gets_of(".log"), gets - 1);
    }
}

#[tokio::test]
async fn a_batch_of_any_size_is_whole_and_costs_little_more_than_itself() {
    let tier = MadeTier::new();
    let size = 5 * MIB;
    let mut files = SegmentFiles::new(0);
    for base_offset in [0, 10, 20] {
        files.append(&BatchSpec::new(base_offset, 10, size));
    }
    tier.add(&MadeSegment::new(1, &files.roll())).await;
    for offset in [5, 15, 19, 25] {
        for max_bytes in [0, 1, 64 * KIB] {
            tier.store.forget_requests();
            let batches = read(&tier.reader(), offset, max_bytes).await;
            let first = offset - offset % 10;
            assert_eq!(spans(&batches), [(first, first + 9)]);
            assert_eq!(batches.bytes.len(), size);
            // To pass over the batch before, its first bytes are enough.
            let down = tier.bytes_down();
            assert!(
                down <= (size + 3 * MIB) as u64,
                "{down} bytes for {offset} with {max_bytes}"
            );
            assert!(tier.gets().len() <= 4, "{:?}", tier.gets());
        }
    }
}

#[tokio::test]
async fn a_read_without_a_bound_is_the_rest_of_the_segment() {
    let tier = MadeTier::new();
    let files = SegmentFiles::uniform(0, MIB, BATCH, RECORDS);
    tier.add(&MadeSegment::new(1, &files)).await;
    let batches = read(&tier.reader(), 45, usize::MAX).await;
    assert_eq!(batches.position, 4 * BATCH as u64);
    assert_eq!(batches.bytes, files.log[4 * BATCH..]);
    assert_eq!(batches.next_offset, 640);
}

#[tokio::test]
async fn small_batches_behind_the_last_entry_of_the_index_are_found() {
    // Fewer bytes than the interval: none of them has an entry.
    let tier = MadeTier::new();
    let mut files = SegmentFiles::new(100);
    for base_offset in 100..120 {
        files.append(&BatchSpec::new(base_offset, 1, 200));
    }
    assert!(files.offset_index.is_empty());
    tier.add(&MadeSegment::new(1, &files.roll())).await;
    for offset in 100..120 {
        tier.store.forget_requests();
        let batches = read(&tier.reader(), offset, 300).await;
        assert_eq!(spans(&batches), [(offset, offset)]);
        assert!(tier.gets().len() <= 2);
    }
}

#[tokio::test]
async fn an_index_with_few_entries_costs_more_steps_but_not_many() {
    // As of an older broker, which made one entry for each append, however large.
    let tier = MadeTier::new();
    let files = SegmentFiles::uniform(0, 20 * MIB, BATCH, RECORDS);
    let mut segment = MadeSegment::new(1, &files);
    segment.offset_index = Some(files.offset_index[..80].to_vec().into());
    tier.add(&segment).await;
    let batches = read(&tier.reader(), files.last_offset - 5, 1).await;
    assert_eq!(
        spans(&batches),
        [(files.last_offset - 9, files.last_offset)]
    );
    let gets = tier.gets().len();
    assert!(gets <= 40, "{gets}");
    let down = tier.bytes_down();
    assert!(down <= files.log.len() as u64 * 11 / 10, "{down}");
}

#[tokio::test]
async fn readers_of_the_same_place_do_not_disturb_each_other() {
    let tier = MadeTier::new();
    tier.add_uniform(1, one_gib(), 0).await;
    let reader = tier.reader();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let reader = reader.clone();
        tasks.spawn(async move { read(&reader, 4_711, 64 * KIB).await });
    }
    while let Some(batches) = tasks.join_next().await {
        let batches = batches.unwrap();
        assert_eq!(spans(&batches)[0], (4_710, 4_719));
        assert_eq!(batches.bytes.len(), 64 * KIB);
    }
}
