//! The reader over a storage with an index cache: the whole stack, in each of the cache's modes.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use krabka_remote_storage::layout::REMOTE_INDEX_CACHE_DIR;
use krabka_remote_storage::{ErrorKind, RemoteLogReader};
use krabka_remote_storage::{IndexCacheConfig, RemoteIndexCache};
use tempfile::TempDir;

use super::{EPOCH, KIB, MIB, read, scattered, spans, try_read};
use crate::support::tier::{MadeSegment, MadeTier, partition};
use krabka_remote_storage::testing::batches::{BatchSpec, SegmentFiles, UniformLog};
use krabka_remote_storage::testing::store::{Fate, Outcome};

const BATCH: usize = 16 * KIB;
const RECORDS: i32 = 10;

/// A reader whose storage has a cache, which is new.
struct Cached {
    mode: &'static str,
    cache: RemoteIndexCache,
    reader: RemoteLogReader,
    dir: TempDir,
}

impl Cached {
    fn new(tier: &MadeTier, mode: &'static str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = match mode {
            "memory" => IndexCacheConfig::memory(),
            _ => IndexCacheConfig::files(dir.path()),
        };
        let cache = config.open().unwrap();
        let reader = tier.cached_reader(&cache);
        Self {
            mode,
            cache,
            reader,
            dir,
        }
    }

    fn each(tier: &MadeTier) -> [Self; 2] {
        ["memory", "files"].map(|mode| Self::new(tier, mode))
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.dir.path().join(REMOTE_INDEX_CACHE_DIR)).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths
            .filter(|path| path.to_string_lossy().contains(".index"))
            .collect()
    }
}

/// A segment of 1 GiB with an index of 512 KiB.
async fn add_one_gib(tier: &MadeTier) -> UniformLog {
    let log = UniformLog::new(0, 1024 * MIB / BATCH, BATCH, RECORDS);
    tier.add_uniform(1, log.clone(), 0).await;
    log
}

fn suffixes(tier: &MadeTier) -> Vec<String> {
    tier.gets().into_iter().map(|(suffix, _)| suffix).collect()
}

#[tokio::test]
async fn a_cold_read_is_two_gets_and_a_warm_one_is_one() {
    let tier = MadeTier::new();
    let log = add_one_gib(&tier).await;
    for cached in Cached::each(&tier) {
        tier.store.forget_requests();
        let batches = read(&cached.reader, 123_456, 64 * KIB).await;
        assert_eq!(spans(&batches)[0], (123_450, 123_459));
        assert_eq!(
            batches.bytes,
            log.bytes(batches.position..batches.position + 64 * 1024)
        );
        assert_eq!(suffixes(&tier), [".index", ".log"], "{}", cached.mode);
        let index = tier.gets()[0].1;
        let bound = 1.01 * (index + 64 * 1024 + BATCH as u64) as f64;
        assert!(tier.bytes_down() as f64 <= bound, "{:?}", tier.gets());

        tier.store.forget_requests();
        let batches = read(&cached.reader, 654_321, 64 * KIB).await;
        assert_eq!(spans(&batches)[0], (654_320, 654_329));
        assert_eq!(suffixes(&tier), [".log"], "{}", cached.mode);
        let stats = cached.cache.stats();
        assert_eq!((stats.hits, stats.misses, stats.bytes), (1, 1, index));
    }
}

#[tokio::test]
async fn sixty_four_reads_at_random_places_of_a_segment_are_sixty_five_gets() {
    let tier = MadeTier::new();
    let log = add_one_gib(&tier).await;
    for cached in Cached::each(&tier) {
        tier.store.forget_requests();
        for offset in scattered(log.end_offset()).map(|at| at + 1).take(64) {
            let batches = read(&cached.reader, offset, 64 * KIB).await;
            let first = offset - offset % i64::from(RECORDS);
            assert_eq!(spans(&batches)[0].0, first);
        }
        assert_eq!(tier.gets().len(), 65, "{}", cached.mode);
        assert_eq!(tier.gets_of(".index"), 1);
        assert_eq!(tier.gets_of(".log"), 64);
    }
}

#[tokio::test(start_paused = true)]
async fn sixty_four_readers_of_a_cold_segment_share_one_get_of_its_index() {
    let tier = MadeTier::new();
    add_one_gib(&tier).await;
    for cached in Cached::each(&tier) {
        // A load that fails wakes all of them, and is not kept.
        for (outcome, is_ok) in [(Outcome::Failed(503), false), (Outcome::Served, true)] {
            tier.store.forget_requests();
            tier.store.script(move |request, _| Fate {
                delay: Duration::from_millis(30),
                outcome: if request.key.ends_with(".index") {
                    outcome
                } else {
                    Outcome::Served
                },
            });
            let mut readers = tokio::task::JoinSet::new();
            for number in 0..64 {
                let reader = cached.reader.clone();
                readers.spawn(async move { try_read(&reader, 1_005 + 100 * number, KIB).await });
            }
            let mut answers = 0;
            while let Some(answer) = readers.join_next().await {
                match answer.unwrap() {
                    Ok(batches) => assert!(is_ok && batches.is_some()),
                    Err(error) => {
                        assert!(!is_ok);
                        assert_eq!(error.kind(), ErrorKind::Unavailable);
                    }
                }
                answers += 1;
            }
            assert_eq!(answers, 64);
            assert_eq!(tier.gets_of(".index"), 1, "{} {is_ok}", cached.mode);
            let logs = if is_ok { 64 } else { 0 };
            assert!(tier.gets_of(".log") >= logs, "{}", cached.mode);
        }
    }
}

#[tokio::test]
async fn sixteen_mib_in_steps_of_one_take_as_many_gets_as_without_a_cache() {
    let tier = MadeTier::new();
    tier.add_uniform(1, UniformLog::new(0, 4096, BATCH, RECORDS), 0)
        .await;
    for cached in Cached::each(&tier) {
        for (read_ahead, most, least) in [(8 * MIB, 6, 1), (0, 17, 17)] {
            cached.cache.remove_segment(uuid::Uuid::from_u128(1)).await;
            tier.store.forget_requests();
            let reader = tier.cached_reader_with_read_ahead(&cached.cache, read_ahead);
            let (mut offset, mut left) = (4_444, 16 * MIB);
            while left > 0 {
                let batches = read(&reader, offset, MIB).await;
                offset = batches.next_offset;
                left = left.saturating_sub(batches.bytes.len());
            }
            let gets = tier.gets();
            assert!(
                (least..=most).contains(&gets.len()),
                "{} {gets:?}",
                cached.mode
            );
            assert_eq!(tier.gets_of(".index"), 1);
            let log: u64 = gets[1..].iter().map(|(_, bytes)| bytes).sum();
            assert!(
                log as f64 <= 1.5 * (16 * MIB) as f64,
                "{} {log}",
                cached.mode
            );
        }
    }
}

#[tokio::test]
async fn time_and_transaction_indexes_are_fetched_once_and_missing_ones_too() {
    let tier = MadeTier::new();
    let mut files = SegmentFiles::new(0);
    for offset in (0..200).step_by(2) {
        files.append(&BatchSpec::new(offset, 1, 5_000).of_transaction(7));
        files.append_marker(7, Some((offset, None)));
    }
    tier.add(&MadeSegment::new(1, &files.roll())).await;
    // Its transaction index is not there, though the metadata does not say so.
    let mut files = SegmentFiles::new(200);
    files.append(&BatchSpec::new(200, 1, 5_000).of_transaction(8));
    let mut second = MadeSegment::new(2, &files.roll());
    second.txn_index_empty = false;
    tier.add(&second).await;
    for cached in Cached::each(&tier) {
        tier.store.forget_requests();
        for (timestamp, gets) in [(101, 1), (5, 1), (180, 1)] {
            let found = cached
                .reader
                .offset_for_timestamp(&partition(0), timestamp, 0, None)
                .await
                .unwrap()
                .unwrap();
            assert_eq!(found.timestamp_ms, timestamp, "{}", cached.mode);
            assert_eq!(found.offset, timestamp);
            assert_eq!(tier.gets_of(".timeindex"), gets, "{}", cached.mode);
            assert_eq!(tier.gets_of(".index"), 1);
        }
        for (offset, aborted, gets) in [
            (50, Some(50), 1),
            (100, Some(100), 1),
            (200, None, 2),
            (200, None, 2),
        ] {
            let read = cached
                .reader
                .read_committed(&partition(0), EPOCH, offset, KIB, None)
                .await
                .unwrap()
                .unwrap();
            let named = read.aborted.transactions.iter();
            let named: Vec<i64> = named.map(|aborted| aborted.first_offset).collect();
            assert_eq!(
                named,
                Vec::from_iter(aborted),
                "{} at {offset}",
                cached.mode
            );
            assert_eq!(tier.gets_of(".txnindex"), gets, "{}", cached.mode);
        }
    }
}

#[tokio::test]
async fn a_search_in_a_file_reads_the_blocks_that_it_passes_and_heeds_their_damage() {
    let tier = MadeTier::new();
    let log = add_one_gib(&tier).await;
    let cached = Cached::new(&tier, "files");
    let offset = log.end_offset() - 105;
    read(&cached.reader, offset, 64 * KIB).await;
    let [file] = &cached.files()[..] else {
        panic!("{:?}", cached.files());
    };
    let good = fs::read(file).unwrap();
    // Entries near the start: no search for the end comes there, so nobody notices.
    let mut damaged = good.clone();
    damaged[8 * 600] ^= 0x40;
    fs::write(file, &damaged).unwrap();
    tier.store.forget_requests();
    let batches = read(&cached.reader, offset, 64 * KIB).await;
    assert!((spans(&batches)[0].0..=spans(&batches)[0].1).contains(&offset));
    assert_eq!(suffixes(&tier), [".log"]);

    // A search that does come there fetches the index again, once.
    tier.store.forget_requests();
    for _ in 0..2 {
        let batches = read(&cached.reader, 6_005, 64 * KIB).await;
        assert_eq!(spans(&batches)[0], (6_000, 6_009));
    }
    assert_eq!(suffixes(&tier), [".index", ".log", ".log"]);
    let [file] = &cached.files()[..] else {
        panic!("{:?}", cached.files());
    };
    assert_eq!(fs::read(file).unwrap(), good);
}

#[tokio::test]
async fn a_corrupt_index_fails_a_read_after_one_more_fetch() {
    let tier = MadeTier::new();
    let files = SegmentFiles::uniform(0, MIB, BATCH, RECORDS);
    let mut segment = MadeSegment::new(1, &files);
    segment.offset_index = Some(files.offset_index[..13].to_vec().into());
    tier.add(&segment).await;
    for cached in Cached::each(&tier) {
        tier.store.forget_requests();
        let error = try_read(&cached.reader, 55, KIB).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert_eq!(suffixes(&tier), [".index", ".index"], "{}", cached.mode);
    }
}
