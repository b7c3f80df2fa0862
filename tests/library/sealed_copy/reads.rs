//! How much of local files a sealed copy reads, by the system's own count.

use std::fs;
use std::time::Duration;

use krabka_remote_storage::segment::MultipartCreate;
use krabka_remote_storage::{
    CopySegment, ObjectStoreConfig, RemoteStorage, Sha256Digest, WormChainRecord,
};
use tempfile::TempDir;
use tokio::runtime::Builder;

use super::leader::{RULES, archiver, genesis};
use krabka_remote_storage::testing::segments::{files, metadata, pattern};

/// The threads of the test's runtime, apart from those of all other tests.
const THREADS: &str = "sealing";

/// How many bytes those threads have read so far, by whatever call.
fn bytes_read() -> u64 {
    let mut bytes = 0;
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        // A thread of another test may have ended meanwhile.
        if fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == THREADS) {
            let counts = fs::read_to_string(task.join("io")).unwrap();
            let read = counts.lines().find_map(|line| line.strip_prefix("rchar: "));
            bytes += read.unwrap().parse::<u64>().unwrap();
        }
    }
    bytes
}

/// How many bytes a sealed copy reads, and how many the log has.
fn read_by_a_copy(large: MultipartCreate) -> (u64, u64) {
    // Two full parts and a bit, beside objects that go up at once.
    const LOG: usize = 9 << 20;

    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name(THREADS)
        // What an ended thread has read is not counted any more.
        .thread_keep_alive(Duration::from_hours(1))
        .enable_all()
        .build()
        .unwrap();
    let (from, root) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let log = pattern(LOG, 7);
    let metadata = metadata(0x1e, 0, LOG as u64)
        .as_ref()
        .clone()
        .with_custom_metadata(WormChainRecord::request(genesis()).to_custom_metadata());
    let copy = CopySegment::new(metadata, files(from.path(), &log));
    let config = ObjectStoreConfig::Local {
        root: root.path().to_owned(),
    };
    let storage = RemoteStorage::builder(config.open().unwrap())
        .seal_on_unchecked_store(archiver(1), RULES, large)
        .build()
        .unwrap();

    let before = bytes_read();
    let copied = runtime.block_on(runtime.spawn(async move { storage.copy(copy).await }));
    let read = bytes_read() - before;

    let receipt = copied.unwrap().unwrap();
    let sealed = &receipt.objects[0];
    assert_eq!(sealed.sha256, Some(Sha256Digest::of(&log).0));
    (read, LOG as u64)
}

#[test]
fn a_sealed_copy_into_a_directory_reads_each_byte_once_and_none_back() {
    // The small files, and what the runtime reads to wake itself up.
    const BESIDE: u64 = 16 << 10;

    let (read, log) = read_by_a_copy(MultipartCreate::Conditional);
    assert!((log..log + BESIDE).contains(&read), "{read} of {log}");
    // The count sees what is read back where that is asked for.
    let (read, log) = read_by_a_copy(MultipartCreate::ReadBack);
    assert!(
        (2 * log..2 * log + BESIDE).contains(&read),
        "{read} of {log}"
    );
}
