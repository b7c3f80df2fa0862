//! The budget holds at every moment.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use super::*;

const WRITERS: u64 = 64;
const KEYS: u128 = 10_000;
const BUDGET: u64 = 1 << 20;
const MAX_INDEX_BYTES: usize = 8 << 10;

/// How long, in seconds: 60 for the whole soak.
fn seconds() -> u64 {
    std::env::var("KRABKA_SOAK_SECONDS").map_or(1, |text| text.parse().expect("a number"))
}

/// An index of a size that its key decides.
fn index_of(id: u128) -> Bytes {
    let size = usize::try_from(id.wrapping_mul(7919) % MAX_INDEX_BYTES as u128).unwrap();
    Bytes::from(vec![(id % 251) as u8; size])
}

async fn write(cache: RemoteIndexCache, seed: u64, until: Instant) -> u64 {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut written = 0;
    let mut last = 0;
    while Instant::now() < until {
        // Three in ten put again what was just put.
        let id = if random.random_ratio(3, 10) {
            cache.remove_segment(Uuid::from_u128(last)).await;
            last
        } else {
            random.random_range(0..KEYS)
        };
        last = id;
        let fetch = move || async move {
            tokio::task::yield_now().await;
            Ok(index_of(id))
        };
        let (bytes, _) = cache
            .get_or_fetch(&segment(id), IndexType::Offset, fetch)
            .await
            .unwrap();
        assert_eq!(bytes, index_of(id));
        written += 1;
    }
    written
}

async fn soak(case: &Case) {
    let until = Instant::now() + Duration::from_secs(seconds());
    let is_over = Arc::new(AtomicBool::new(false));
    let watcher = std::thread::spawn({
        let (cache, is_over) = (case.cache.clone(), Arc::clone(&is_over));
        move || {
            let (mut looks, mut most) = (0_u64, 0);
            while !is_over.load(Ordering::Relaxed) {
                let held = cache.inner().usage().held();
                assert!(
                    held.weight <= held.max_weight + held.unsettled,
                    "over the budget: {held:?}"
                );
                assert!(
                    held.unsettled <= WRITERS * MAX_INDEX_BYTES as u64,
                    "{held:?}"
                );
                most = most.max(held.weight);
                looks += 1;
                std::thread::yield_now();
            }
            (looks, most)
        }
    });
    let writers: Vec<_> = (0..WRITERS)
        .map(|seed| tokio::spawn(write(case.cache.clone(), seed, until)))
        .collect();
    let mut written = 0;
    for writer in writers {
        written += writer.await.unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    let (looks, most) = watcher.join().unwrap();
    println!(
        "{}: {written} writes, {looks} looks, at most {most} of {BUDGET} bytes, {:?}",
        case.mode,
        case.cache.stats()
    );
    assert!(written > WRITERS && most > BUDGET / 2, "{written} {most}");

    let held = case.cache.inner().usage().held();
    assert_eq!(held.unsettled, 0);
    assert!(held.weight <= BUDGET, "{held:?}");
    assert_eq!(case.cache.inner().loads_under_way(), 0);
    // What is counted is what is there.
    let mut counted = (0, 0);
    for id in 0..KEYS {
        let key = content::Key::new(Uuid::from_u128(id), IndexType::Offset).unwrap();
        if let Some(content) = case.cache.inner().peek(key) {
            counted.0 += 1;
            counted.1 += content.len() as u64;
        }
    }
    assert_eq!((held.entries, held.bytes), counted);
    if case.mode != "memory" {
        let in_files: u64 = case
            .cached_files()
            .iter()
            .map(|path| fs::metadata(path).unwrap().len())
            .sum();
        assert_eq!(in_files, held.bytes);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_budget_is_kept_at_every_moment_under_64_writers() {
    for case in Case::each(BUDGET) {
        soak(&case).await;
    }
}
