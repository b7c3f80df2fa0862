//! The blocking face of a store, and a blocking manager as a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use futures::FutureExt as _;
use krabka_remote_storage::sync_shim::{BlockingMetadataManager, PluginMetadataStore};
use krabka_remote_storage::topic::{NotReadyRlmm, SwappableRlmm};
use krabka_remote_storage::{
    ErrorKind, InmemoryRemoteLogMetadataManager, RemoteLogMetadataManager, RemoteLogMetadataStore,
    RemotePartitionDeleteMetadata, RemoteStorageError,
};
use parking_lot::Mutex;

use super::stand_ins::{assert_every_call_passes, assert_not_ready, deletion};
use super::*;

/// Every call through the blocking face, over a store that has the answers.
fn assert_every_blocking_call_passes(manager: &dyn RemoteLogMetadataManager) {
    let tp = tp(1, 7);
    assert!(manager.is_ready(&tp));
    let first = started(&tp, 1, 0, 9).with_txn_index_empty(true);
    manager.add_remote_log_segment_metadata(first).unwrap();
    manager
        .update_remote_log_segment_metadata(update(&tp, 1, CopySegmentFinished))
        .unwrap();
    store_segment(manager, &tp, 2, (10, 19));
    assert_eq!(found(manager, &tp, 5), Some(1));
    let with_aborts = manager.next_segment_with_txn_index(&tp, EPOCH, 5).unwrap();
    assert_eq!(with_aborts.as_ref().map(id_of), Some(2));
    assert_eq!(
        manager.highest_offset_for_epoch(&tp, EPOCH).unwrap(),
        Some(19)
    );
    assert_eq!(manager.list_remote_log_segments(&tp).unwrap().len(), 2);
    let other_epoch = manager.list_remote_log_segments_by_epoch(&tp, LeaderEpoch(1));
    assert!(other_epoch.unwrap().is_empty());
    assert_eq!(manager.remote_log_size(&tp, EPOCH).unwrap(), 2048);
    manager
        .put_remote_partition_delete_metadata(deletion(&tp))
        .unwrap();
    let result = manager.add_remote_log_segment_metadata(started(&tp, 1, 0, 9));
    assert!(matches!(result, Err(RemoteStorageError::InvalidAdd { .. })));
}

fn in_memory() -> Arc<dyn RemoteLogMetadataStore> {
    Arc::new(InmemoryRemoteLogMetadataManager::new())
}

/// Ends the test process when a call that must not hang does.
fn within_a_minute<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let (done, wait) = mpsc::channel::<()>();
    let watchdog = thread::spawn(move || {
        if wait.recv_timeout(Duration::from_mins(1)) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("a blocking call hangs");
            std::process::abort();
        }
    });
    let result = work();
    drop(done);
    watchdog.join().unwrap();
    result
}

#[test]
fn the_blocking_face_works_from_a_plain_thread() {
    within_a_minute(|| {
        assert_every_blocking_call_passes(&BlockingMetadataManager::new(in_memory()));
    });
}

#[test]
fn the_blocking_face_works_inside_of_either_kind_of_runtime() {
    let current_thread = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let multi_thread = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    for runtime in [&current_thread, &multi_thread] {
        within_a_minute(|| {
            runtime.block_on(async {
                let manager = BlockingMetadataManager::new(in_memory());
                assert_every_blocking_call_passes(&manager);
            });
        });
    }
    within_a_minute(|| {
        multi_thread.block_on(async {
            let task = tokio::spawn(async {
                let manager = BlockingMetadataManager::with_handle(
                    in_memory(),
                    tokio::runtime::Handle::current(),
                );
                assert_every_blocking_call_passes(&manager);
            });
            task.await.unwrap();
        });
    });
}

#[test]
fn a_closed_face_says_so_and_is_not_ready() {
    let manager = BlockingMetadataManager::new(in_memory());
    assert!(manager.is_ready(&tp(1, 0)));
    manager.close();
    let result = manager.highest_offset_for_epoch(&tp(1, 0), EPOCH);
    assert!(matches!(
        result,
        Err(RemoteStorageError::InvalidArgument(_))
    ));
    assert!(!manager.is_ready(&tp(1, 0)));
}

#[test]
fn a_swappable_store_has_a_blocking_face() {
    let tp = tp(1, 7);
    let swappable = Arc::new(SwappableRlmm::new(Arc::new(NotReadyRlmm)));
    let manager = BlockingMetadataManager::new(swappable.clone());
    assert!(!manager.is_ready(&tp));
    assert_not_ready(manager.list_remote_log_segments_by_epoch(&tp, EPOCH));
    drop(swappable.swap(in_memory()));
    within_a_minute(|| assert_every_blocking_call_passes(&manager));
}

#[tokio::test]
async fn every_call_of_a_plugin_passes() {
    let plugin = Arc::new(InmemoryRemoteLogMetadataManager::new());
    assert_every_call_passes(&PluginMetadataStore::new(plugin.clone()), &plugin).await;
    let store = PluginMetadataStore::new(Arc::new(NotReadyRlmm));
    assert_not_ready(store.check_ready(&tp(1, 7)).await);
    assert_not_ready(store.list_segments(&tp(1, 7)).await);
}

#[test]
fn a_plugin_behind_both_faces_answers_as_before() {
    let plugin = Arc::new(InmemoryRemoteLogMetadataManager::new());
    let store = Arc::new(PluginMetadataStore::new(plugin));
    within_a_minute(|| assert_every_blocking_call_passes(&BlockingMetadataManager::new(store)));
}

/// A plugin that has only what the trait requires. Its lookup waits at the gate, if there is one,
/// and panics at offset 13.
#[derive(Default)]
struct Plugin {
    gate: Option<Mutex<mpsc::Receiver<()>>>,
    lookups: AtomicUsize,
}

impl RemoteLogMetadataManager for Plugin {
    fn add_remote_log_segment_metadata(
        &self,
        _: RemoteLogSegmentMetadata,
    ) -> Result<(), RemoteStorageError> {
        Ok(())
    }

    fn update_remote_log_segment_metadata(
        &self,
        _: RemoteLogSegmentMetadataUpdate,
    ) -> Result<(), RemoteStorageError> {
        Ok(())
    }

    fn remote_log_segment_metadata(
        &self,
        _: &TopicIdPartition,
        _: LeaderEpoch,
        offset: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
        self.lookups.fetch_add(1, Ordering::AcqRel);
        if let Some(gate) = &self.gate {
            gate.lock().recv().unwrap();
        }
        assert_ne!(offset, 13, "an unlucky offset");
        Ok(None)
    }

    fn highest_offset_for_epoch(
        &self,
        _: &TopicIdPartition,
        _: LeaderEpoch,
    ) -> Result<Option<i64>, RemoteStorageError> {
        Ok(None)
    }

    fn list_remote_log_segments(
        &self,
        _: &TopicIdPartition,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, RemoteStorageError> {
        Ok(Vec::new())
    }

    fn list_remote_log_segments_by_epoch(
        &self,
        _: &TopicIdPartition,
        _: LeaderEpoch,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, RemoteStorageError> {
        Ok(Vec::new())
    }

    fn put_remote_partition_delete_metadata(
        &self,
        _: RemotePartitionDeleteMetadata,
    ) -> Result<(), RemoteStorageError> {
        Ok(())
    }
}

#[tokio::test]
async fn a_plugin_that_panics_is_an_error_and_can_be_called_again() {
    let store = PluginMetadataStore::new(Arc::new(Plugin::default()));
    let error = store.find_segment(&tp(1, 0), EPOCH, 13).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("an unlucky offset"), "{error}");
    assert_eq!(
        store.find_segment(&tp(1, 0), EPOCH, 12).await.unwrap(),
        None
    );
}

/// On the only thread of its runtime: a plugin that blocks must not stop the other tasks.
#[tokio::test]
async fn a_plugin_that_blocks_does_not_stop_the_runtime() {
    let (open, gate) = mpsc::channel();
    let plugin = Arc::new(Plugin {
        gate: Some(Mutex::new(gate)),
        ..Plugin::default()
    });
    let store = PluginMetadataStore::new(plugin.clone());
    let tp = tp(1, 0);
    let mut lookup = store.find_segment(&tp, EPOCH, 1);
    assert!((&mut lookup).now_or_never().is_none());
    // Another call passes meanwhile.
    assert_eq!(store.highest_offset(&tp, EPOCH).await.unwrap(), None);
    while plugin.lookups.load(Ordering::Acquire) == 0 {
        tokio::task::yield_now().await;
    }
    assert!((&mut lookup).now_or_never().is_none());
    open.send(()).unwrap();
    assert_eq!(lookup.await.unwrap(), None);
}

#[test]
fn a_call_that_is_dropped_before_a_thread_took_it_is_never_made() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let (open, gate) = mpsc::channel();
        let plugin = Arc::new(Plugin {
            gate: Some(Mutex::new(gate)),
            ..Plugin::default()
        });
        let store = PluginMetadataStore::new(plugin.clone());
        let tp = tp(1, 0);
        // It holds the only thread.
        let mut first = store.find_segment(&tp, EPOCH, 1);
        assert!((&mut first).now_or_never().is_none());
        let mut second = store.find_segment(&tp, EPOCH, 2);
        assert!((&mut second).now_or_never().is_none());
        drop(second);
        for _ in 0..3 {
            open.send(()).unwrap();
        }
        assert_eq!(first.await.unwrap(), None);
        // The thread has come to a later call, so it has passed over the second.
        assert_eq!(store.find_segment(&tp, EPOCH, 3).await.unwrap(), None);
        assert_eq!(plugin.lookups.load(Ordering::Acquire), 2);
    });
}
