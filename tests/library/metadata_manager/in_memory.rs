//! The in-memory manager, asked through both of its faces.

use krabka_remote_storage::{
    InmemoryRemoteLogMetadataManager, RemoteLogMetadataManager, RemoteLogMetadataStore,
    RemotePartitionDeleteMetadata, RemotePartitionDeleteState, RemoteStorageError,
};

use super::*;
use RemotePartitionDeleteState::{
    DeletePartitionFinished, DeletePartitionMarked, DeletePartitionStarted,
};

fn partition_delete(
    tp: &TopicIdPartition,
    state: RemotePartitionDeleteState,
) -> RemotePartitionDeleteMetadata {
    RemotePartitionDeleteMetadata::new(tp.clone(), state, 1, 1)
}

#[test]
fn partitions_are_apart_and_a_segment_of_an_unknown_one_is_named() {
    let manager: &dyn RemoteLogMetadataManager = &InmemoryRemoteLogMetadataManager::new();
    let (here, there) = (tp(1, 0), tp(1, 1));
    store_segment(manager, &here, 1, (0, 9));

    assert_eq!(found(manager, &here, 5), Some(1));
    assert_eq!(found(manager, &there, 5), None);
    assert_eq!(
        manager.highest_offset_for_epoch(&here, EPOCH).unwrap(),
        Some(9)
    );
    assert_eq!(
        manager.highest_offset_for_epoch(&there, EPOCH).unwrap(),
        None
    );
    assert!(manager.list_remote_log_segments(&there).unwrap().is_empty());
    assert!(
        manager
            .list_remote_log_segments_by_epoch(&there, EPOCH)
            .unwrap()
            .is_empty()
    );
    assert_eq!(manager.remote_log_size(&here, EPOCH).unwrap(), 1024);
    assert_eq!(manager.remote_log_size(&there, EPOCH).unwrap(), 0);
    assert!(
        manager
            .next_segment_with_txn_index(&there, EPOCH, 0)
            .unwrap()
            .is_none()
    );
    assert!(manager.is_ready(&there), "the in-memory manager always is");

    let result =
        manager.update_remote_log_segment_metadata(update(&there, 1, DeleteSegmentStarted));
    assert!(
        matches!(result, Err(RemoteStorageError::SegmentNotFound(id)) if id == segment_id(&there, 1))
    );
}

#[test]
fn refused_and_empty_events_leave_no_partition_behind() {
    let manager = InmemoryRemoteLogMetadataManager::new();
    let result = manager.add_remote_log_segment_metadata(segment_in(
        &tp(1, 0),
        1,
        (0, 9),
        CopySegmentFinished,
    ));
    assert!(matches!(result, Err(RemoteStorageError::InvalidAdd { .. })));
    manager
        .update_remote_log_segment_metadata(update(&tp(1, 1), 1, DeleteSegmentFinished))
        .unwrap();
    let result = manager
        .put_remote_partition_delete_metadata(partition_delete(&tp(1, 2), DeletePartitionStarted));
    assert!(matches!(
        result,
        Err(RemoteStorageError::InvalidPartitionDeleteTransition {
            from: None,
            to: DeletePartitionStarted,
            ..
        })
    ));
    assert!(manager.export().partitions.is_empty());
}

#[test]
fn a_partition_is_deleted_in_three_steps() {
    let manager = InmemoryRemoteLogMetadataManager::new();
    let tp = tp(1, 0);
    store_segment(&manager, &tp, 1, (0, 9));
    for state in [DeletePartitionMarked, DeletePartitionStarted] {
        manager
            .put_remote_partition_delete_metadata(partition_delete(&tp, state))
            .unwrap();
        assert_eq!(found(&manager, &tp, 5), Some(1), "readable while {state}");
    }
    for _ in 0..2 {
        manager
            .put_remote_partition_delete_metadata(partition_delete(&tp, DeletePartitionFinished))
            .unwrap();
        assert_eq!(found(&manager, &tp, 5), None);
        assert!(manager.list_remote_log_segments(&tp).unwrap().is_empty());
    }
    let result = manager.add_remote_log_segment_metadata(started(&tp, 2, 10, 19));
    assert!(matches!(result, Err(RemoteStorageError::InvalidAdd { .. })));
}

#[tokio::test]
async fn the_asynchronous_face_gives_the_same_answers() {
    let manager = InmemoryRemoteLogMetadataManager::new();
    let store: &dyn RemoteLogMetadataStore = &manager;
    let tp = tp(1, 0);
    store
        .add_segment(started(&tp, 1, 0, 9).with_txn_index_empty(true))
        .await
        .unwrap();
    store.add_segment(started(&tp, 2, 10, 19)).await.unwrap();
    assert_eq!(store.find_segment(&tp, EPOCH, 5).await.unwrap(), None);
    for id in [1, 2] {
        store
            .update_segment(update(&tp, id, CopySegmentFinished))
            .await
            .unwrap();
    }

    store.check_ready(&tp).await.unwrap();
    let first = store.find_segment(&tp, EPOCH, 5).await.unwrap().unwrap();
    assert_eq!(id_of(&first), 1);
    let with_aborts = store
        .find_segment_with_txn_index(&tp, EPOCH, 5)
        .await
        .unwrap();
    assert_eq!(with_aborts.as_ref().map(id_of), Some(2));
    assert_eq!(store.highest_offset(&tp, EPOCH).await.unwrap(), Some(19));
    assert_eq!(store.log_size(&tp, EPOCH).await.unwrap(), 2048);
    let all = store.list_segments(&tp).await.unwrap();
    assert_eq!(all.iter().map(id_of).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(store.list_segments_by_epoch(&tp, EPOCH).await.unwrap(), all);
    assert!(
        store
            .list_segments_by_epoch(&tp, LeaderEpoch(1))
            .await
            .unwrap()
            .is_empty()
    );

    let result = store
        .update_segment(update(&tp, 2, DeleteSegmentFinished))
        .await;
    assert!(matches!(
        result,
        Err(RemoteStorageError::InvalidSegmentTransition { .. })
    ));
    store
        .put_partition_delete(partition_delete(&tp, DeletePartitionMarked))
        .await
        .unwrap();
    assert_eq!(found(&manager, &tp, 15), Some(2));
}
