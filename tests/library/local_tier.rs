//! A copy to a local directory that is dropped at every await.

use std::future::{Future, poll_fn};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use std::{fs, thread};

use krabka_remote_storage::backends::{LocalClient, RequestLimits};
use krabka_remote_storage::layout::{partition_dir_name, segment_file_name};
use krabka_remote_storage::{
    CopySegment, DeleteSegment, FetchSegment, LOG_FILE_SUFFIX, RemoteLogSegmentMetadata,
    RemoteStorage,
};
use tempfile::TempDir;

use crate::support::with;
use krabka_remote_storage::testing::segments::{files, metadata, pattern};

const PART: usize = 64 * 1024;

/// Uploads the log in several parts.
fn open(root: &Path) -> RemoteStorage {
    let limits = with(RequestLimits::default(), |it| {
        it.multipart_threshold = PART as u64;
        it.multipart_chunk_size = PART;
        it.max_parts_in_flight = 2;
    });
    RemoteStorage::builder(Arc::new(LocalClient::new(root)))
        .limits(limits)
        .build()
        .unwrap()
}

/// Polls `call` so many times at most. Answers whether it came to its end.
async fn poll_at_most(mut polls: usize, call: impl Future) -> bool {
    let mut call = pin!(call);
    poll_fn(|context| {
        polls -= 1;
        match call.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if polls == 0 => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

fn partition(root: &Path, metadata: &RemoteLogSegmentMetadata) -> PathBuf {
    root.join(partition_dir_name(metadata))
}

fn names(directory: &Path) -> Vec<String> {
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// Waits until the threads that work for dropped calls have ended.
fn wait_for_unfinished_files(directory: &Path) {
    for _ in 0..20_000 {
        if names(directory).iter().all(|name| !name.starts_with('.')) {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("left behind: {:?}", names(directory));
}

#[test]
fn a_copy_dropped_at_every_await_leaves_whole_objects_no_unfinished_file_and_can_be_repeated() {
    let log = pattern(3 * PART + 17, 5);
    let mut ended = 0;
    for polls in 1.. {
        let dir = TempDir::new().unwrap();
        let root = dir.path().join("tier");
        let data = files(dir.path(), &log);
        let metadata = metadata(1, 0, log.len() as u64);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let storage = open(&root);
        let copied = runtime.block_on(async {
            let copy = CopySegment::new(Arc::clone(&metadata), Arc::clone(&data));
            let copied = poll_at_most(polls, storage.copy(copy)).await;
            let report = storage.close(Duration::from_secs(20)).await;
            assert!(report.cut_off.is_empty() && !report.aborts_unfinished);
            copied
        });
        let partition = partition(&root, &metadata);
        wait_for_unfinished_files(&partition);
        let log_file = partition.join(segment_file_name(&metadata, LOG_FILE_SUFFIX));
        if let Ok(found) = fs::read(&log_file) {
            assert!(found == log, "a torn log after {polls} polls");
            assert_eq!(names(&partition).len(), 6, "the log is visible last");
        } else {
            assert!(!copied);
        }

        runtime.block_on(async {
            let storage = open(&root);
            let copy = CopySegment::new(Arc::clone(&metadata), data);
            storage.copy(copy).await.unwrap();
            let fetch = FetchSegment::new(Arc::clone(&metadata), 0, None);
            assert!(storage.fetch(fetch).await.unwrap() == log);
            storage
                .delete(DeleteSegment::new(Arc::clone(&metadata)))
                .await
                .unwrap();
        });
        assert_eq!(names(&partition), [""; 0]);
        ended += usize::from(copied);
        if ended == 3 {
            assert!(polls > 5, "only {polls} awaits");
            return;
        }
    }
}
