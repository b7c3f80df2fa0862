//! A copy of a segment: what it sends, in which order, and what is left when it ends early.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use krabka_remote_storage::backends::{ObjectStoreClient, RequestLimits, StoreHandles};
use krabka_remote_storage::model::{CopyPhase, OpKind};
use krabka_remote_storage::{
    CopySegment, DeleteSegment, ErrorKind, FetchSegment, RemoteStorage, RemoteStorageError,
    S3RemoteStorage,
};
use object_store::ObjectStore;
use tokio::time::Instant;

use crate::support::with;
use krabka_remote_storage::testing::segments::{files, metadata, pattern};
use krabka_remote_storage::testing::store::{Fate, Outcome, TestStore};

const LOG_KEY: &str =
    "orders-0-AAAAAAAAAAAAAAAAAAAAAQ/00000000000000000000-AAAAAAAAAAAAAAAAAAAAHg.log";

/// Objects from 8 bytes on go up in parts of 4.
fn tiny_parts() -> RequestLimits {
    with(RequestLimits::default(), |it| {
        it.multipart_threshold = 8;
        it.multipart_chunk_size = 4;
    })
}

fn storage(store: &Arc<TestStore>, limits: RequestLimits) -> RemoteStorage {
    let handles = StoreHandles::with_multipart(Arc::clone(store));
    RemoteStorage::builder(Arc::new(ObjectStoreClient::new(handles)))
        .limits(limits)
        .build()
        .unwrap()
}

/// The same store, as a client of which nothing else is known.
fn opaque_storage(store: &Arc<TestStore>, limits: RequestLimits) -> RemoteStorage {
    let handles = StoreHandles::opaque(Arc::clone(store) as Arc<dyn ObjectStore>);
    RemoteStorage::builder(Arc::new(ObjectStoreClient::new(handles)))
        .limits(limits)
        .build()
        .unwrap()
}

fn copy_of(dir: &tempfile::TempDir, log: &[u8]) -> CopySegment {
    CopySegment::new(metadata(0x1e, 0, log.len() as u64), files(dir.path(), log))
}

#[tokio::test]
async fn a_small_segment_takes_one_write_per_artifact_and_no_reads() {
    let store = TestStore::new();
    let dir = tempfile::tempdir().unwrap();
    let receipt = storage(&store, RequestLimits::default())
        .copy(copy_of(&dir, b"0123456789"))
        .await
        .unwrap();

    let requests = store.requests();
    assert_eq!(requests.len(), 6, "{requests:?}");
    assert!(requests.iter().all(|request| request.kind == "put"));
    assert_eq!(
        requests.last().unwrap().key,
        LOG_KEY,
        "the log is visible last"
    );
    let suffixes: Vec<_> = receipt.objects.iter().map(|object| object.suffix).collect();
    assert_eq!(
        suffixes,
        [
            ".log",
            ".index",
            ".timeindex",
            ".snapshot",
            ".leader_epoch_checkpoint",
            ".txnindex"
        ]
    );
    assert_eq!(receipt.objects[0].key, LOG_KEY);
    assert_eq!(receipt.objects[0].size_bytes, 10);
    assert_eq!(receipt.custom_metadata, None);
}

#[tokio::test]
async fn a_multipart_log_takes_its_parts_and_two_requests_and_completes_last() {
    let store = TestStore::new();
    let dir = tempfile::tempdir().unwrap();
    let limits = with(RequestLimits::default(), |it| {
        it.multipart_threshold = 102_400;
        it.multipart_chunk_size = 4_096;
    });
    storage(&store, limits)
        .copy(copy_of(&dir, &pattern(102_400, 0)))
        .await
        .unwrap();

    assert_eq!(store.count("put"), 5);
    assert_eq!(store.count("start"), 1);
    assert_eq!(store.count("part"), 25);
    assert_eq!(store.count("complete"), 1);
    assert_eq!(store.requests().len(), 32, "0 reads, 0 lists, nothing else");
    assert_eq!(store.requests().last().unwrap().kind, "complete");
}

#[tokio::test]
async fn the_size_decides_between_one_put_and_parts() {
    for (length, parts) in [(7, 0), (8, 2), (9, 3), (20, 5)] {
        let store = TestStore::new();
        let dir = tempfile::tempdir().unwrap();
        storage(&store, tiny_parts())
            .copy(copy_of(&dir, &pattern(length, 0)))
            .await
            .unwrap();
        let of_log = |kind: &str| {
            let requests = store.requests();
            requests
                .iter()
                .filter(|r| r.kind == kind && r.key == LOG_KEY)
                .count()
        };
        assert_eq!(of_log("part"), parts, "{length} bytes");
        assert_eq!(of_log("put"), usize::from(parts == 0), "{length} bytes");
    }
}

#[tokio::test]
async fn a_tail_after_the_last_full_part_is_kept() {
    for opaque in [false, true] {
        let store = TestStore::new();
        let dir = tempfile::tempdir().unwrap();
        let log = pattern(3 * 4_096 + 137, 7);
        let limits = with(RequestLimits::default(), |it| {
            it.multipart_threshold = 1;
            it.multipart_chunk_size = 4_096;
        });
        let storage = if opaque {
            opaque_storage(&store, limits)
        } else {
            storage(&store, limits)
        };
        let copy = copy_of(&dir, &log);
        let metadata = Arc::clone(&copy.metadata);
        storage.copy(copy).await.unwrap();
        let bytes = storage
            .fetch(FetchSegment::new(metadata, 0, None))
            .await
            .unwrap();
        assert_eq!(bytes, log, "opaque: {opaque}");
    }
}

#[tokio::test]
async fn an_empty_log_is_copied_and_read_as_empty() {
    let store = TestStore::new();
    let dir = tempfile::tempdir().unwrap();
    let mut limits = tiny_parts();
    limits.multipart_threshold = 0;
    let storage = storage(&store, limits);
    let copy = copy_of(&dir, b"");
    let metadata = Arc::clone(&copy.metadata);
    storage.copy(copy).await.unwrap();
    for (start, end) in [(0, None), (0, Some(0)), (0, Some(99))] {
        let fetch = FetchSegment::new(Arc::clone(&metadata), start, end);
        assert_eq!(storage.fetch(fetch).await.unwrap(), "");
    }
}

#[tokio::test]
async fn a_repeated_copy_of_the_same_id_overwrites_and_succeeds() {
    let store = TestStore::new();
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(&store, tiny_parts());
    storage.copy(copy_of(&dir, b"0123456789")).await.unwrap();
    let copy = copy_of(&dir, b"abcdefghijklm");
    let metadata = Arc::clone(&copy.metadata);
    storage.copy(copy).await.unwrap();
    let bytes = storage
        .fetch(FetchSegment::new(metadata, 0, None))
        .await
        .unwrap();
    assert_eq!(bytes, "abcdefghijklm");
}

#[tokio::test(start_paused = true)]
async fn a_part_that_fails_twice_is_sent_three_times_and_nothing_else_again() {
    let store = TestStore::new();
    store.script(|request, _| Fate {
        outcome: match request.part {
            Some(3) if request.key == LOG_KEY => Outcome::Failed(503),
            _ => Outcome::Served,
        },
        ..Fate::default()
    });
    let failing = Arc::clone(&store);
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(&store, tiny_parts());
    let healer = tokio::spawn(async move {
        loop {
            let requests = failing.requests();
            let sent = requests
                .iter()
                .filter(|r| r.part == Some(3) && r.key == LOG_KEY)
                .count();
            if sent == 2 {
                failing.script(|_, _| Fate::default());
                return;
            }
            tokio::time::sleep(Duration::from_micros(50)).await;
        }
    });
    storage.copy(copy_of(&dir, &pattern(20, 0))).await.unwrap();
    healer.await.unwrap();

    let requests = store.requests();
    for part in 1..=5 {
        let sent = requests
            .iter()
            .filter(|r| r.part == Some(part) && r.key == LOG_KEY)
            .count();
        assert_eq!(sent, if part == 3 { 3 } else { 1 }, "part {part}");
    }
    assert_eq!(
        requests
            .iter()
            .filter(|r| r.kind == "start" && r.key == LOG_KEY)
            .count(),
        1
    );
    assert_eq!(store.count("abort"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_failed_copy_aborts_its_upload_once_removes_its_objects_and_names_phase_and_part() {
    for opaque in [false, true] {
        let store = TestStore::new();
        store.script(|request, _| match request.part {
            // By then the indexes are complete, and the copy is still uploading.
            Some(4) if request.key == LOG_KEY => Fate {
                delay: Duration::from_secs(1),
                outcome: Outcome::Failed(400),
            },
            _ => Fate::default(),
        });
        let dir = tempfile::tempdir().unwrap();
        let storage = if opaque {
            opaque_storage(&store, tiny_parts())
        } else {
            storage(&store, tiny_parts())
        };
        let copy = copy_of(&dir, &pattern(20, 0));
        let progress = copy.progress.clone();
        let error = storage.copy(copy).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("while uploading, part 4"), "{text}");
        assert!(text.contains(LOG_KEY), "{text}");
        assert_eq!(progress.snapshot().phase, CopyPhase::CleaningUp);
        storage.close(Duration::from_secs(5)).await;
        let aborts = store.requests();
        let aborts = aborts
            .iter()
            .filter(|r| r.kind == "abort" && r.key == LOG_KEY)
            .count();
        assert_eq!(aborts, 1, "opaque: {opaque}");
        assert_eq!(store.open_uploads(), Vec::<String>::new());
        assert_eq!(store.objects().await, []);
    }
}

#[tokio::test]
async fn an_upload_that_the_store_has_forgotten_is_started_anew_once() {
    for (forgets_at, served_before) in [("part", 0), ("part", 3), ("complete", 0)] {
        let store = TestStore::new();
        store.script(move |request, before| Fate {
            outcome: if request.kind == forgets_at
                && request.key == LOG_KEY
                && before == served_before
            {
                Outcome::Failed(404)
            } else {
                Outcome::Served
            },
            ..Fate::default()
        });
        let dir = tempfile::tempdir().unwrap();
        let log = pattern(20, 0);
        // Only the log is long enough for parts here, so that "the first part" is the log's.
        let mut limits = tiny_parts();
        limits.multipart_threshold = 20;
        // One after the other, so that it is certain which parts the store took before.
        limits.max_parts_in_flight = 1;
        let storage = storage(&store, limits);
        let copy = copy_of(&dir, &log);
        let (metadata, progress) = (Arc::clone(&copy.metadata), copy.progress.clone());
        storage.copy(copy).await.unwrap();
        assert_eq!(store.count("start"), 2, "{forgets_at}");
        let bytes = storage
            .fetch(FetchSegment::new(metadata, 0, None))
            .await
            .unwrap();
        assert_eq!(bytes, log);
        let done = progress.snapshot();
        assert_eq!(done.phase, CopyPhase::Done);
        assert_eq!(done.bytes_done, done.bytes_total, "{forgets_at}");

        store.script(move |request, _| Fate {
            outcome: if request.kind == forgets_at {
                Outcome::Failed(404)
            } else {
                Outcome::Served
            },
            ..Fate::default()
        });
        store.forget_requests();
        let other = CopySegment::new(
            krabka_remote_storage::testing::segments::metadata(0xfe, 0, 20),
            files(dir.path(), &log),
        );
        storage.copy(other).await.unwrap_err();
        assert_eq!(
            store.count("start"),
            2,
            "a store that forgets for ever is not asked for ever"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_completion_whose_answer_was_lost_is_found_out() {
    let store = TestStore::new();
    store.script(|request, before| Fate {
        outcome: match request.kind {
            "complete" if before == 0 => Outcome::AnswerLost,
            _ => Outcome::Served,
        },
        ..Fate::default()
    });
    let dir = tempfile::tempdir().unwrap();
    let mut limits = tiny_parts();
    limits.multipart_threshold = 20;
    let storage = storage(&store, limits);
    storage.copy(copy_of(&dir, &pattern(20, 0))).await.unwrap();
    assert_eq!(store.count("start"), 1, "nothing is sent again");
    assert_eq!(store.count("part"), 5);
    assert_eq!(store.count("head"), 1);
    assert_eq!(store.objects().await.len(), 6);
}

#[tokio::test]
async fn a_missing_or_unreadable_source_file_is_named_and_nothing_is_written() {
    let store = TestStore::new();
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(&store, tiny_parts());
    for missing in [
        "0.log",
        "0.index",
        "0.timeindex",
        "1.snapshot",
        "0.txnindex",
    ] {
        let copy = copy_of(&dir, b"0123456789");
        std::fs::remove_file(dir.path().join(missing)).unwrap();
        let error = storage.copy(copy).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert!(error.to_string().contains(missing), "{error}");
    }
    let copy = copy_of(&dir, b"0123456789");
    std::fs::remove_file(dir.path().join("0.index")).unwrap();
    std::fs::create_dir(dir.path().join("0.index")).unwrap();
    let error = storage.copy(copy).await.unwrap_err();
    assert!(error.to_string().contains("0.index"), "{error}");
    assert_eq!(store.requests(), []);
}

#[tokio::test]
async fn a_chunk_size_of_zero_is_refused_even_below_the_threshold() {
    let store = TestStore::new();
    let limits = with(RequestLimits::default(), |it| it.multipart_chunk_size = 0);
    let handles = StoreHandles::with_multipart(Arc::clone(&store));
    let error = RemoteStorage::builder(Arc::new(ObjectStoreClient::new(handles)))
        .limits(limits)
        .build()
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(
        error.to_string().contains("`multipart_chunk_size` is 0"),
        "{error}"
    );

    // Kafka's interface has no error where it sets the chunk size: there a copy is refused.
    let dir = tempfile::tempdir().unwrap();
    let copy = copy_of(&dir, b"0");
    let made = S3RemoteStorage::with_store(Arc::clone(&store) as _, None).unwrap();
    let tuned = made.with_multipart_tuning(u64::MAX, 0);
    let error = tuned.storage().copy(copy).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(matches!(error, RemoteStorageError::Io(_)));
    assert_eq!(store.requests(), []);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_shrinks_under_the_copy_is_an_error_and_one_that_grows_is_cut() {
    for (new_length, whole) in [(10, false), (30, true)] {
        let store = TestStore::new();
        store.throttle(Duration::from_millis(100), 1e9);
        let dir = tempfile::tempdir().unwrap();
        let mut limits = tiny_parts();
        limits.max_parts_in_flight = 1;
        let storage = storage(&store, limits);
        let copy = copy_of(&dir, &pattern(20, 0));
        let metadata = Arc::clone(&copy.metadata);
        let path = copy.data.log_segment.clone();
        let changer = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(150)).await;
            let file = std::fs::File::options().write(true).open(path).unwrap();
            file.set_len(new_length).unwrap();
        });
        let result = storage.copy(copy).await;
        changer.await.unwrap();
        if whole {
            result.unwrap();
            let bytes = storage
                .fetch(FetchSegment::new(metadata, 0, None))
                .await
                .unwrap();
            assert_eq!(bytes, pattern(20, 0));
        } else {
            let error = result.unwrap_err();
            assert!(error.to_string().contains("0.log"), "{error}");
            assert_eq!(store.objects().await, []);
            assert_eq!(store.open_uploads(), Vec::<String>::new());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_hangs_ends_at_its_deadline_and_says_where_it_was() {
    let store = TestStore::new();
    store.script(|request, _| Fate {
        delay: match request.part {
            Some(2) => Duration::from_secs(1_000_000),
            _ => Duration::ZERO,
        },
        ..Fate::default()
    });
    let dir = tempfile::tempdir().unwrap();
    let mut limits = tiny_parts();
    limits.max_retries = 1_000;
    limits.max_parts_in_flight = 1;
    limits.multipart_threshold = 20;
    limits.copy_deadline = Duration::from_secs(90);
    let storage = storage(&store, limits);
    let began = Instant::now();
    let error = storage
        .copy(copy_of(&dir, &pattern(20, 0)))
        .await
        .unwrap_err();
    assert_eq!(began.elapsed().as_secs(), 90);
    match &error {
        RemoteStorageError::TimedOut {
            operation,
            phase,
            key,
            part,
            after,
            ..
        } => {
            assert_eq!(*operation, OpKind::CopySegment);
            assert_eq!(*phase, Some(CopyPhase::Uploading));
            assert_eq!(key, LOG_KEY);
            assert_eq!(*part, Some(2));
            assert_eq!(after.as_secs(), 90);
        }
        other => panic!("{other:?}"),
    }
    assert!(!error.is_retryable());
    storage.close(Duration::from_mins(1)).await;
    assert_eq!(store.open_uploads(), Vec::<String>::new());
    assert_eq!(store.count("abort"), 1);
}

/// Polls a copy `polls` times and drops it; `None` when it had not ended by then.
async fn drop_after(storage: &RemoteStorage, copy: CopySegment, polls: usize) -> Option<()> {
    let mut copy = pin!(storage.copy(copy));
    let mut left = polls;
    poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        copy.as_mut().poll(context).map(|result| {
            result.expect("nothing fails here");
            Some(())
        })
    })
    .await
}

#[tokio::test]
async fn a_copy_dropped_at_any_await_leaves_no_upload_open_and_no_torn_object() {
    for (opaque, parts_in_flight) in [(false, 1), (false, 4), (true, 1), (true, 4)] {
        let mut polls = 0;
        while drop_and_look(opaque, parts_in_flight, polls)
            .await
            .is_none()
        {
            polls += 1;
        }
        assert!(
            polls > 12,
            "the harness dropped the copy at {polls} places only"
        );
    }
}

/// Drops a copy after so many polls, looks at what is left, and copies again.
async fn drop_and_look(opaque: bool, parts_in_flight: usize, polls: usize) -> Option<()> {
    let store = TestStore::new();
    let dir = tempfile::tempdir().unwrap();
    let mut limits = tiny_parts();
    limits.max_parts_in_flight = parts_in_flight;
    let open = if opaque { opaque_storage } else { storage };
    let storage = open(&store, limits.clone());
    let log = pattern(30, 3);
    let ended = drop_after(&storage, copy_of(&dir, &log), polls).await;
    let report = storage.close(Duration::from_mins(1)).await;
    assert!(report.cut_off.is_empty(), "{report:?}");

    let at = format!("dropped after {polls} polls, opaque: {opaque}, {parts_in_flight} in flight");
    assert_eq!(store.open_uploads(), Vec::<String>::new(), "{at}");
    let objects = store.objects().await;
    for (key, length) in &objects {
        let whole = match key.rsplit_once('.').unwrap().1 {
            "log" => 30,
            "index" => 12,
            "timeindex" => 10,
            "snapshot" | "leader_epoch_checkpoint" => 8,
            "txnindex" => 17,
            other => panic!("{other}"),
        };
        assert_eq!(*length, whole, "{key}, {at}");
        assert!(
            key != LOG_KEY || objects.len() == 6,
            "the log is last, {at}"
        );
    }
    let (started, completed) = (store.count("start"), store.count("complete"));
    let aborts = store.count("abort");
    assert!(
        aborts <= started,
        "each upload is aborted at most once, {at}"
    );
    assert!(aborts + completed >= started, "{at}");

    let again = open(&store, limits);
    let copy = copy_of(&dir, &log);
    let metadata = Arc::clone(&copy.metadata);
    again.copy(copy).await.unwrap();
    let bytes = again
        .fetch(FetchSegment::new(metadata, 0, None))
        .await
        .unwrap();
    assert_eq!(bytes, log, "{at}");
    ended
}

#[tokio::test(start_paused = true)]
async fn parts_in_flight_are_bounded_and_overlap_with_the_indexes() {
    // 64 MiB in parts of 8 MiB, then 1 GiB with the defaults: against the six artifacts in turn.
    let (latency, rate) = (Duration::from_millis(30), 90e6);
    for (mib, tuned, bar) in [(64_u64, true, 0.35), (1_024, false, 0.3)] {
        let store = TestStore::new();
        store.throttle(latency, rate);
        let limits = with(RequestLimits::default(), |it| {
            if tuned {
                it.multipart_threshold = 8 << 20;
                it.multipart_chunk_size = 8 << 20;
            }
        });
        let parts_in_flight = limits.max_parts_in_flight;
        let dir = tempfile::tempdir().unwrap();
        let copy = copy_of(&dir, b"");
        // A sparse file: the bytes do not matter here.
        let file = std::fs::File::options()
            .write(true)
            .open(&copy.data.log_segment)
            .unwrap();
        file.set_len(mib << 20).unwrap();

        let began = Instant::now();
        storage(&store, limits).copy(copy).await.unwrap();
        let took = began.elapsed();
        let bytes: u64 = store.requests().iter().map(|request| request.bytes).sum();
        let in_turn = latency * 6 + Duration::from_secs_f64(bytes as f64 / rate);
        let ratio = took.as_secs_f64() / in_turn.as_secs_f64();
        println!("{mib} MiB: {took:?} against {in_turn:?} in turn, {ratio:.3}");
        assert!(ratio <= bar, "{mib} MiB: {ratio:.3}");
        assert!(store.most_in_flight() <= parts_in_flight + 5);
    }
}

#[tokio::test]
async fn a_delete_tries_all_six_begins_with_the_log_and_returns_the_first_error() {
    let store = TestStore::new();
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(&store, RequestLimits::default());
    let copy = copy_of(&dir, b"0123456789");
    let metadata = Arc::clone(&copy.metadata);
    storage.copy(copy).await.unwrap();
    store.forget_requests();
    store.script(|request, _| Fate {
        outcome: if request.key.ends_with(".timeindex") {
            Outcome::Failed(403)
        } else {
            Outcome::Served
        },
        ..Fate::default()
    });
    let error = storage
        .delete(DeleteSegment::new(Arc::clone(&metadata)))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected);
    assert!(error.to_string().contains(".timeindex"), "{error}");
    assert_eq!(store.count("delete"), 6);
    assert_eq!(store.requests().len(), 6, "never a listing");
    assert_eq!(store.requests()[0].key, LOG_KEY);
    assert_eq!(store.objects().await.len(), 1);

    store.script(|_, _| Fate::default());
    storage
        .delete(DeleteSegment::new(Arc::clone(&metadata)))
        .await
        .unwrap();
    storage.delete(DeleteSegment::new(metadata)).await.unwrap();
    assert_eq!(store.objects().await, []);
}
