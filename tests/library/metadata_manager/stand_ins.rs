//! The manager that is not ready, and the one that can be swapped.

use std::future::Future;
use std::sync::Arc;
use std::task::Poll;

use async_trait::async_trait;
use futures::FutureExt as _;
use krabka_remote_storage::topic::{NotReadyRlmm, SwappableRlmm};
use krabka_remote_storage::{
    InmemoryRemoteLogMetadataManager, RemoteLogMetadataManager, RemoteLogMetadataStore,
    RemotePartitionDeleteMetadata, RemotePartitionDeleteState, RemoteStorageError,
};
use tokio::sync::Notify;

use super::*;

pub(crate) fn deletion(tp: &TopicIdPartition) -> RemotePartitionDeleteMetadata {
    let state = RemotePartitionDeleteState::DeletePartitionMarked;
    RemotePartitionDeleteMetadata::new(tp.clone(), state, 1, 1)
}

pub(crate) fn assert_not_ready<T: std::fmt::Debug>(result: Result<T, RemoteStorageError>) {
    let error = result.unwrap_err();
    assert!(
        matches!(error, RemoteStorageError::NotReady { partition: 7, .. }),
        "{error}"
    );
    assert!(error.is_retryable());
}

#[tokio::test]
async fn every_call_of_a_manager_that_is_not_ready_says_so() {
    let tp = tp(1, 7);
    let store: &dyn RemoteLogMetadataStore = &NotReadyRlmm::new();
    assert_not_ready(store.add_segment(started(&tp, 1, 0, 9)).await);
    assert_not_ready(
        store
            .update_segment(update(&tp, 1, DeleteSegmentFinished))
            .await,
    );
    assert_not_ready(store.put_partition_delete(deletion(&tp)).await);
    assert_not_ready(store.find_segment(&tp, EPOCH, 0).await);
    assert_not_ready(store.find_segment_with_txn_index(&tp, EPOCH, 0).await);
    assert_not_ready(store.highest_offset(&tp, EPOCH).await);
    assert_not_ready(store.list_segments(&tp).await);
    assert_not_ready(store.list_segments_by_epoch(&tp, EPOCH).await);
    assert_not_ready(store.log_size(&tp, EPOCH).await);
    assert_not_ready(store.check_ready(&tp).await);

    let manager: &dyn RemoteLogMetadataManager = &NotReadyRlmm;
    assert_not_ready(manager.add_remote_log_segment_metadata(started(&tp, 1, 0, 9)));
    let event = update(&tp, 1, DeleteSegmentFinished);
    assert_not_ready(manager.update_remote_log_segment_metadata(event));
    assert_not_ready(manager.put_remote_partition_delete_metadata(deletion(&tp)));
    assert_not_ready(manager.remote_log_segment_metadata(&tp, EPOCH, 0));
    assert_not_ready(manager.next_segment_with_txn_index(&tp, EPOCH, 0));
    assert_not_ready(manager.highest_offset_for_epoch(&tp, EPOCH));
    assert_not_ready(manager.list_remote_log_segments(&tp));
    assert_not_ready(manager.list_remote_log_segments_by_epoch(&tp, EPOCH));
    assert_not_ready(manager.remote_log_size(&tp, EPOCH));
    assert!(!manager.is_ready(&tp));
}

/// A store that answers lookups only after it is told to, and nothing else.
#[derive(Default)]
struct Gated {
    inner: InmemoryRemoteLogMetadataManager,
    gate: Notify,
}

#[async_trait]
impl RemoteLogMetadataStore for Gated {
    async fn add_segment(&self, _: RemoteLogSegmentMetadata) -> Result<(), RemoteStorageError> {
        unreachable!("this store is only looked up")
    }

    async fn update_segment(
        &self,
        _: RemoteLogSegmentMetadataUpdate,
    ) -> Result<(), RemoteStorageError> {
        unreachable!("this store is only looked up")
    }

    async fn put_partition_delete(
        &self,
        _: RemotePartitionDeleteMetadata,
    ) -> Result<(), RemoteStorageError> {
        unreachable!("this store is only looked up")
    }

    async fn find_segment(
        &self,
        tp: &TopicIdPartition,
        epoch: LeaderEpoch,
        offset: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
        self.gate.notified().await;
        self.inner.find_segment(tp, epoch, offset).await
    }

    async fn find_segment_with_txn_index(
        &self,
        _: &TopicIdPartition,
        _: LeaderEpoch,
        _: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
        unreachable!("this store is only looked up")
    }

    async fn highest_offset(
        &self,
        _: &TopicIdPartition,
        _: LeaderEpoch,
    ) -> Result<Option<i64>, RemoteStorageError> {
        unreachable!("this store is only looked up")
    }

    async fn list_segments(
        &self,
        _: &TopicIdPartition,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, RemoteStorageError> {
        unreachable!("this store is only looked up")
    }

    async fn list_segments_by_epoch(
        &self,
        _: &TopicIdPartition,
        _: LeaderEpoch,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, RemoteStorageError> {
        unreachable!("this store is only looked up")
    }

    async fn log_size(
        &self,
        _: &TopicIdPartition,
        _: LeaderEpoch,
    ) -> Result<i64, RemoteStorageError> {
        unreachable!("this store is only looked up")
    }

    async fn check_ready(&self, _: &TopicIdPartition) -> Result<(), RemoteStorageError> {
        Ok(())
    }
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    future.now_or_never().map_or(Poll::Pending, Poll::Ready)
}

#[tokio::test]
async fn a_call_in_flight_finishes_on_the_store_that_it_began_with() {
    let tp = tp(1, 0);
    let old = Arc::new(Gated::default());
    store_segment(&old.inner, &tp, 1, (0, 9));
    let new = Arc::new(InmemoryRemoteLogMetadataManager::new());
    store_segment(&*new, &tp, 2, (0, 9));

    let swappable = SwappableRlmm::new(old.clone());
    let mut in_flight = swappable.find_segment(&tp, EPOCH, 5);
    assert!(poll_once(&mut in_flight).is_pending());

    let replaced = swappable.swap(new);
    assert!(std::ptr::addr_eq(Arc::as_ptr(&replaced), Arc::as_ptr(&old)));
    let later = swappable.find_segment(&tp, EPOCH, 5).await.unwrap();
    assert_eq!(
        later.as_ref().map(id_of),
        Some(2),
        "a later call meets the new store"
    );

    assert!(poll_once(&mut in_flight).is_pending());
    old.gate.notify_one();
    let first = in_flight.await.unwrap();
    assert_eq!(first.as_ref().map(id_of), Some(1));
}

#[tokio::test]
async fn a_replaced_store_is_released_once_its_calls_have_ended() {
    let tp = tp(1, 0);
    let old = Arc::new(Gated::default());
    let swappable = SwappableRlmm::new(old.clone());
    let mut in_flight = swappable.find_segment(&tp, EPOCH, 5);
    assert!(poll_once(&mut in_flight).is_pending());
    drop(swappable.swap(Arc::new(NotReadyRlmm)));
    assert_eq!(Arc::strong_count(&old), 2, "ours, and the call's");
    drop(in_flight);
    assert_eq!(Arc::strong_count(&old), 1);
}

#[tokio::test]
async fn every_call_reaches_the_current_store() {
    let tp = tp(1, 7);
    let store = SwappableRlmm::new(Arc::new(NotReadyRlmm));
    assert_not_ready(store.add_segment(started(&tp, 1, 0, 9)).await);
    assert_not_ready(
        store
            .update_segment(update(&tp, 1, DeleteSegmentFinished))
            .await,
    );
    assert_not_ready(store.put_partition_delete(deletion(&tp)).await);
    assert_not_ready(store.find_segment(&tp, EPOCH, 0).await);
    assert_not_ready(store.find_segment_with_txn_index(&tp, EPOCH, 0).await);
    assert_not_ready(store.highest_offset(&tp, EPOCH).await);
    assert_not_ready(store.list_segments(&tp).await);
    assert_not_ready(store.list_segments_by_epoch(&tp, EPOCH).await);
    assert_not_ready(store.log_size(&tp, EPOCH).await);
    assert_not_ready(store.check_ready(&tp).await);

    let real = Arc::new(InmemoryRemoteLogMetadataManager::new());
    drop(store.swap(real.clone()));
    assert_every_call_passes(&store, &real).await;
}

/// Every call through `store`, which passes them on to `real`.
pub(crate) async fn assert_every_call_passes(
    store: &dyn RemoteLogMetadataStore,
    real: &InmemoryRemoteLogMetadataManager,
) {
    let tp = tp(1, 7);
    store.check_ready(&tp).await.unwrap();
    let segment = started(&tp, 1, 0, 9).with_txn_index_empty(true);
    store.add_segment(segment).await.unwrap();
    store.add_segment(started(&tp, 2, 10, 19)).await.unwrap();
    for id in [1, 2] {
        store
            .update_segment(update(&tp, id, CopySegmentFinished))
            .await
            .unwrap();
    }
    store.put_partition_delete(deletion(&tp)).await.unwrap();
    let first = store.find_segment(&tp, EPOCH, 5).await.unwrap();
    assert_eq!(first.as_ref().map(id_of), Some(1));
    let with_aborts = store
        .find_segment_with_txn_index(&tp, EPOCH, 5)
        .await
        .unwrap();
    assert_eq!(with_aborts.as_ref().map(id_of), Some(2));
    assert_eq!(store.highest_offset(&tp, EPOCH).await.unwrap(), Some(19));
    assert_eq!(store.list_segments(&tp).await.unwrap().len(), 2);
    assert_eq!(
        store
            .list_segments_by_epoch(&tp, LeaderEpoch(1))
            .await
            .unwrap(),
        []
    );
    assert_eq!(store.log_size(&tp, EPOCH).await.unwrap(), 2048);
    let deletion = real.export().partitions[0].delete_state;
    assert_eq!(
        deletion,
        Some(RemotePartitionDeleteState::DeletePartitionMarked)
    );
}
