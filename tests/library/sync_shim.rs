//! Kafka's blocking interface over the asynchronous services, and a blocking plugin as services.
//!
//! From which threads a blocking call can wait is tested beside the code that finds it out; here
//! are the interface's own rules, over a local directory and over an object store.

use std::error::Error as _;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use krabka_remote_storage::layers::metrics::MetricsLayer;
use krabka_remote_storage::layers::{DeadlineLayer, TraceLayer};
use krabka_remote_storage::layout::{SEGMENT_FILE_SUFFIXES, partition_dir_name, segment_file_name};
use krabka_remote_storage::sync_shim::{BlockingStorageManager, PluginService};
use krabka_remote_storage::{
    CopySegment, ErrorKind, FetchIndex, FetchSegment, IndexType, LocalTieredStorage,
    ObjectStoreConfig, RemoteStorage, RemoteStorageError, RemoteStorageManager, S3RemoteStorage,
    TopicIdPartition, parse_partition_dir_name, parse_segment_file_name,
};
use object_store::memory::InMemory;
use tempfile::TempDir;
use tower::{ServiceBuilder, ServiceExt as _};

use krabka_remote_storage::testing::segments::{SegmentSpec, files, metadata};
use krabka_remote_storage::testing::store::TestStore;

const BODY: &[u8] = b"0123456789";

/// The same tests over each tier that has a blocking preset.
fn tiers() -> Vec<(TempDir, Box<dyn RemoteStorageManager>)> {
    let new = || TempDir::new().unwrap();
    let local = new();
    let tier = LocalTieredStorage::new(local.path().join("tier"));
    let prefix = Some("/c/".to_owned());
    let object = S3RemoteStorage::with_store(Arc::new(InMemory::new()), prefix).unwrap();
    vec![(local, Box::new(tier)), (new(), Box::new(object))]
}

/// Fails when `test` does not come to its end.
fn watched<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = mpsc::channel();
    let thread = thread::spawn(move || {
        let result = test();
        let _ = done.send(());
        result
    });
    match wait.recv_timeout(Duration::from_secs(30)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("deadlock"),
        _ => thread.join().expect("the test panicked, see above"),
    }
}

#[test]
fn what_was_copied_is_read_back_by_ranges_and_indexes() {
    for (dir, tier) in tiers() {
        // The size in the metadata is no limit: the object's is.
        let metadata = metadata(0x0a, 0, 8);
        let data = files(dir.path(), BODY);
        for _ in 0..2 {
            let custom = tier.copy_log_segment_data(&metadata, &data).unwrap();
            assert_eq!(custom, None);
        }
        for (start, end, expected) in [
            (0, None, "0123456789"),
            (2, Some(5), "2345"),
            (7, None, "789"),
            (8, Some(99), "89"),
            (3, Some(3), "3"),
            (0, Some(u32::MAX), "0123456789"),
            (10, None, ""),
            (10, Some(10), ""),
        ] {
            let bytes = tier.fetch_log_segment(&metadata, start, end).unwrap();
            assert_eq!(bytes, expected.as_bytes(), "{start} {end:?}");
        }
        for (start, end) in [(11, None), (11, Some(12)), (5, Some(4))] {
            let error = tier.fetch_log_segment(&metadata, start, end).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{start} {end:?}: {error}");
        }
        for (index, expected) in [
            (IndexType::Offset, "offset index"),
            (IndexType::Timestamp, "time index"),
            (IndexType::ProducerSnapshot, "snapshot"),
            (IndexType::LeaderEpoch, "0\n1\n0 0\n"),
            (IndexType::Transaction, "transaction index"),
        ] {
            let bytes = tier.fetch_index(&metadata, index).unwrap();
            assert_eq!(bytes, expected.as_bytes());
        }
    }
}

#[test]
fn a_deleted_segment_is_not_found_and_its_neighbour_untouched() {
    for (dir, tier) in tiers() {
        let data = files(dir.path(), BODY);
        let (a, b) = (metadata(0x0a, 0, 10), metadata(0x0b, 0, 10));
        tier.copy_log_segment_data(&a, &data).unwrap();
        tier.copy_log_segment_data(&b, &data).unwrap();
        for _ in 0..2 {
            tier.delete_log_segment_data(&a).unwrap();
        }
        // Arguments are checked first.
        let error = tier.fetch_log_segment(&a, 5, Some(4)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        for error in [
            tier.fetch_log_segment(&a, 0, None).unwrap_err(),
            tier.fetch_index(&a, IndexType::Offset).unwrap_err(),
        ] {
            let RemoteStorageError::SegmentNotFound(id) = error else {
                panic!("{error:?}");
            };
            assert_eq!(&id, a.remote_log_segment_id());
        }
        assert_eq!(tier.fetch_log_segment(&b, 0, None).unwrap(), BODY);
    }
}

#[test]
fn a_segment_without_optional_files_has_no_such_indexes() {
    for (dir, tier) in tiers() {
        let metadata = metadata(0x0a, 0, 10);
        let mut data = files(dir.path(), BODY).as_ref().clone();
        data.transaction_index = None;
        tier.copy_log_segment_data(&metadata, &data).unwrap();
        let error = tier
            .fetch_index(&metadata, IndexType::Transaction)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}

#[test]
fn a_missing_source_file_is_an_error_that_names_it_and_nothing_stays() {
    for (dir, tier) in tiers() {
        let metadata = metadata(0x0a, 0, 10);
        let mut data = files(dir.path(), BODY).as_ref().clone();
        data.time_index = dir.path().join("missing.timeindex");
        let error = tier.copy_log_segment_data(&metadata, &data).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("missing.timeindex"), "{error}");
        for index in IndexType::ALL {
            let error = tier.fetch_index(&metadata, index).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound);
        }
    }
}

#[test]
fn a_local_tier_is_created_by_the_first_copy_with_kafkas_names() {
    let dir = TempDir::new().unwrap();
    let root = dir.path().join("some/where");
    let tier = LocalTieredStorage::new(&root);
    assert_eq!(tier.root(), root);
    let metadata = metadata(0x0a, 7, 10);
    let error = tier.fetch_log_segment(&metadata, 0, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(!root.exists());

    let data = files(dir.path(), BODY);
    tier.copy_log_segment_data(&metadata, &data).unwrap();
    let mut expected: Vec<_> = SEGMENT_FILE_SUFFIXES
        .iter()
        .map(|suffix| segment_file_name(&metadata, suffix))
        .collect();
    expected.sort();
    let partition = root.join(partition_dir_name(&metadata));
    assert_eq!(names(&partition), expected);
    tier.delete_log_segment_data(&metadata).unwrap();
    assert_eq!(names(&partition), [""; 0], "the directory stays");
}

#[test]
fn a_tier_that_kafka_wrote_is_read_byte_for_byte() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tier/kafka-tiered-storage");
    let tier = LocalTieredStorage::new(&root);
    let mut logs = 0;
    for dir in names(&root) {
        let name = parse_partition_dir_name(&dir).unwrap();
        let partition = TopicIdPartition::new(name.topic_id, name.topic, name.partition);
        for file in names(&root.join(&dir)) {
            let name = parse_segment_file_name(&file).unwrap();
            let (id, offset) = (name.segment_id.as_u128(), name.base_offset);
            let metadata = SegmentSpec::new(id, offset..=offset).of(&partition).make();
            let expected = fs::read(root.join(&dir).join(&file)).unwrap();
            let bytes = if let Some(index) = IndexType::from_suffix(name.suffix) {
                tier.fetch_index(&metadata, index)
            } else {
                logs += 1;
                tier.fetch_log_segment(&metadata, 0, None)
            };
            assert!(bytes.unwrap() == expected, "{dir}/{file}");
        }
    }
    assert!(logs > 20, "{logs}");
}

#[test]
fn a_topic_name_too_long_for_the_disk_is_an_invalid_argument_and_nothing_is_written() {
    let dir = TempDir::new().unwrap();
    let root = dir.path().join("tier");
    let tier = LocalTieredStorage::new(&root);
    let partition = TopicIdPartition::new(uuid::Uuid::from_u128(1), "t".repeat(249), 0);
    let long = SegmentSpec::new(0x0a, 0..=9).of(&partition).size(10).make();
    let data = files(dir.path(), BODY);
    let error = tier.copy_log_segment_data(&long, &data).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(!root.exists());
}

#[test]
fn presets_work_from_every_kind_of_thread() {
    let round_trip = |tier: &dyn RemoteStorageManager, dir: &Path, id| {
        let metadata = metadata(id, 0, 10);
        let data = files(dir, BODY);
        tier.copy_log_segment_data(&metadata, &data).unwrap();
        assert_eq!(tier.fetch_log_segment(&metadata, 0, None).unwrap(), BODY);
        tier.delete_log_segment_data(&metadata).unwrap();
    };
    watched(move || {
        for (dir, tier) in tiers() {
            let call = |id| round_trip(tier.as_ref(), dir.path(), id);
            call(1);
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async { call(2) });
            thread::scope(|scope| {
                scope.spawn(|| runtime.handle().block_on(async { call(3) }));
            });
            let single = tokio::runtime::Builder::new_current_thread().build();
            single.unwrap().block_on(async { call(4) });

            let (dir, tier) = (Arc::new(dir), Arc::new(tier));
            for id in [5, 6] {
                let (dir, tier) = (Arc::clone(&dir), Arc::clone(&tier));
                let call = move || round_trip(tier.as_ref().as_ref(), dir.path(), id);
                let made = if id == 5 {
                    runtime.spawn_blocking(call)
                } else {
                    runtime.spawn(async move { call() })
                };
                runtime.block_on(made).unwrap();
            }
            // The last of them is dropped inside of asynchronous code.
            runtime.block_on(async move { drop((dir, tier)) });
        }
    });
}

#[test]
fn many_plain_threads_share_one_tier() {
    watched(|| {
        for (dir, tier) in tiers() {
            let data = files(dir.path(), BODY);
            thread::scope(|scope| {
                for id in 0..16 {
                    let (tier, data) = (&tier, &data);
                    scope.spawn(move || {
                        for round in 0..8 {
                            let metadata = metadata(id, round, 10);
                            tier.copy_log_segment_data(&metadata, data).unwrap();
                            let bytes = tier.fetch_log_segment(&metadata, 2, Some(5));
                            assert_eq!(bytes.unwrap(), b"2345");
                            tier.delete_log_segment_data(&metadata).unwrap();
                        }
                    });
                }
            });
        }
    });
}

#[test]
fn on_a_current_thread_runtime_its_own_handle_is_refused_on_its_thread_alone() {
    watched(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let storage = RemoteStorage::open(&ObjectStoreConfig::InMemory).unwrap();
        let tier = BlockingStorageManager::with_handle(storage, runtime.handle().clone());
        let metadata = metadata(1, 0, 10);
        let refused = runtime.block_on(async { tier.fetch_log_segment(&metadata, 0, None) });
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("spawn_blocking"), "{error}");

        let call = {
            let (tier, metadata) = (tier.clone(), Arc::clone(&metadata));
            move || tier.fetch_log_segment(&metadata, 0, None).unwrap_err()
        };
        let blocking = runtime.block_on(async { tokio::task::spawn_blocking(call.clone()).await });
        assert_eq!(blocking.unwrap().kind(), ErrorKind::NotFound);
        assert_eq!(
            call().kind(),
            ErrorKind::NotFound,
            "nobody drives the runtime"
        );
    });
}

#[test]
fn a_closed_tier_refuses_calls_and_can_be_closed_again() {
    watched(|| {
        let dir = TempDir::new().unwrap();
        let tier = LocalTieredStorage::new(dir.path().join("tier"));
        let metadata = metadata(1, 0, 10);
        let data = files(dir.path(), BODY);
        tier.copy_log_segment_data(&metadata, &data).unwrap();
        let clone = tier.clone();
        for _ in 0..2 {
            let report = tier.close(Duration::from_secs(5)).unwrap();
            assert!(report.cut_off.is_empty());
        }
        for error in [
            tier.fetch_log_segment(&metadata, 0, None).unwrap_err(),
            clone.copy_log_segment_data(&metadata, &data).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(error.to_string().contains("close"), "{error}");
        }
    });
}

#[test]
fn closing_waits_for_a_call_in_flight_and_cuts_it_off_when_grace_ends() {
    watched(|| {
        let dir = TempDir::new().unwrap();
        let store = TestStore::new();
        store.throttle(Duration::from_mins(10), 1e9);
        let tier = S3RemoteStorage::with_store(store.clone(), None).unwrap();
        let data = files(dir.path(), BODY);
        thread::scope(|scope| {
            let copy = scope.spawn(|| tier.copy_log_segment_data(&metadata(1, 0, 10), &data));
            while store.requests().is_empty() {
                thread::sleep(Duration::from_millis(1));
            }
            let report = tier.close(Duration::from_millis(20)).unwrap();
            assert_eq!(report.cut_off.len(), 1);
            let error = copy.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        });
    });
}

#[test]
fn multipart_tuning_cuts_files_from_the_threshold_on() {
    let dir = TempDir::new().unwrap();
    for (length, parts) in [(7, 0), (8, 2), (20, 5)] {
        let store = TestStore::new();
        let tier = S3RemoteStorage::with_store(store.clone(), Some("c".to_owned()))
            .unwrap()
            .with_multipart_tuning(8, 4);
        let mut data = files(dir.path(), &BODY.repeat(2)[..length])
            .as_ref()
            .clone();
        let small = dir.path().join("small");
        fs::write(&small, "index").unwrap();
        data.offset_index.clone_from(&small);
        data.time_index = small;
        data.transaction_index = None;
        data.producer_snapshot_index = None;
        data.leader_epoch_index = "epochs".into();
        let metadata = metadata(1, 0, length as u64);
        tier.copy_log_segment_data(&metadata, &data).unwrap();
        assert_eq!(
            store.count("part"),
            parts,
            "{length}: {:?}",
            store.requests()
        );
        let bytes = tier.fetch_log_segment(&metadata, 0, None).unwrap();
        assert_eq!(bytes, &BODY.repeat(2)[..length]);
        assert!(
            store
                .requests()
                .iter()
                .all(|request| request.key.starts_with("c/orders-0-"))
        );
    }
}

#[test]
fn a_chunk_size_of_zero_fails_every_copy() {
    let dir = TempDir::new().unwrap();
    let store = TestStore::new();
    let tier = S3RemoteStorage::with_store(store.clone(), None)
        .unwrap()
        .with_multipart_tuning(u64::MAX, 0);
    let data = files(dir.path(), BODY);
    let error = tier
        .copy_log_segment_data(&metadata(1, 0, 10), &data)
        .unwrap_err();
    let RemoteStorageError::Io(error) = error else {
        panic!("{error:?}");
    };
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert_eq!(store.requests(), []);
}

#[test]
fn a_prefix_that_cannot_stand_in_a_key_is_refused() {
    let error = S3RemoteStorage::with_store(Arc::new(InMemory::new()), Some("a/../b".to_owned()))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[cfg(all(feature = "aws", feature = "gcp"))]
#[test]
fn presets_show_where_the_tier_is_and_no_secret() {
    use krabka_remote_storage::{GcsConfig, S3Config};

    use crate::support::with;

    let secret = "s3cr3t-marker";
    let s3 = S3RemoteStorage::from_s3_config(&with(S3Config::default(), |it| {
        it.bucket = "bucket".to_owned();
        it.prefix = Some("c".to_owned());
        it.region = "us-east-1".to_owned();
        it.access_key_id = Some(secret.to_owned());
        it.secret_access_key = Some(secret.to_owned());
    }))
    .unwrap();
    assert_eq!(
        format!("{s3:?}"),
        r#"S3RemoteStorage { prefix: "c", archive: false, .. }"#
    );
    let manager = BlockingStorageManager::new(s3.storage().clone());
    assert!(!format!("{manager:?}").contains(secret));

    let error = S3RemoteStorage::from_s3_config(&with(S3Config::default(), |it| {
        it.access_key_id = Some(secret.to_owned());
    }))
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(!format!("{error:?}").contains(secret));

    let error = S3RemoteStorage::from_gcs_config(&GcsConfig::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);

    let local = LocalTieredStorage::new("/some/where");
    assert_eq!(
        format!("{local:?}"),
        r#"LocalTieredStorage { root: "/some/where", .. }"#
    );
}

#[tokio::test]
async fn a_plugin_gets_the_layers() {
    let dir = TempDir::new().unwrap();
    let plugin = Arc::new(LocalTieredStorage::new(dir.path().join("tier")));
    let observed = ServiceBuilder::new()
        .layer(TraceLayer::default())
        .layer(MetricsLayer::new());
    let copy = observed
        .clone()
        .layer(DeadlineLayer::new(Duration::from_mins(1)))
        .service(PluginService::new(
            Arc::clone(&plugin) as Arc<dyn RemoteStorageManager>
        ));
    let read = observed.service(PluginService::new(plugin));

    let metadata = metadata(1, 0, 10);
    let data = files(dir.path(), BODY);
    let request = CopySegment::new(Arc::clone(&metadata), data);
    let receipt = copy.oneshot(request).await.unwrap();
    assert_eq!(receipt.custom_metadata, None);
    let fetch = FetchSegment::new(Arc::clone(&metadata), 2, Some(5));
    assert_eq!(read.clone().oneshot(fetch).await.unwrap(), "2345");
    let fetch = FetchSegment::new(Arc::clone(&metadata), 5, Some(2));
    let error = read.clone().oneshot(fetch).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.source().is_none());
    let fetch = FetchIndex::new(metadata, IndexType::Offset);
    assert_eq!(read.oneshot(fetch).await.unwrap(), "offset index");
}

/// What is in a directory, in order.
fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
