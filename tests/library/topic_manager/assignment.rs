//! What is assigned, when it is ready, and what happens when the log cannot be read on.

use bytes::Bytes;
use krabka_remote_storage::topic::{KeyedEvent, MetadataLogError, MetadataStreamItem};
use krabka_remote_storage::{ErrorKind, RemoteLogMetadataStore, RemoteStorageError};

use super::scripted_log::{Marks, Publish, ScriptedLog};
use super::*;

async fn assert_not_ready(manager: &TopicBasedRemoteLogMetadataManager, partition: i32) {
    let tp = tp_in(partition);
    let not_ready = |error: RemoteStorageError| {
        assert!(
            matches!(error, RemoteStorageError::NotReady { partition: found, .. } if found == partition),
            "{error}"
        );
    };
    not_ready(manager.find_segment(&tp, EPOCH, 0).await.unwrap_err());
    not_ready(
        manager
            .find_segment_with_txn_index(&tp, EPOCH, 0)
            .await
            .unwrap_err(),
    );
    not_ready(manager.highest_offset(&tp, EPOCH).await.unwrap_err());
    not_ready(manager.newest_segment(&tp).await.unwrap_err());
    not_ready(manager.list_segments(&tp).await.unwrap_err());
    not_ready(
        manager
            .list_segments_by_epoch(&tp, EPOCH)
            .await
            .unwrap_err(),
    );
    not_ready(manager.log_size(&tp, EPOCH).await.unwrap_err());
    not_ready(manager.check_ready(&tp).await.unwrap_err());
    not_ready(manager.add_segment(segment(&tp, 99, 0)).await.unwrap_err());
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_is_not_assigned_finds_nothing_and_takes_nothing() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    let manager = start(&log, &dir);
    manager.reconcile_assignment(&[1]).await.unwrap();
    manager.wait_until_ready().await.unwrap();
    assert_eq!(manager.assigned_metadata_partitions(), [1]);
    let tp = tp_in(0);
    assert_eq!(manager.find_segment(&tp, EPOCH, 0).await.unwrap(), None);
    assert_eq!(manager.highest_offset(&tp, EPOCH).await.unwrap(), None);
    assert_eq!(manager.list_segments(&tp).await.unwrap(), []);
    assert_eq!(
        manager.check_ready(&tp).await.unwrap_err().kind(),
        ErrorKind::NotReady
    );
    let refused = manager.add_segment(segment(&tp, 1, 0)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotReady);
    assert_eq!(
        log.inner.high_water_marks().await.unwrap(),
        [0; 4],
        "nothing was published"
    );
}

#[tokio::test(start_paused = true)]
async fn every_call_is_gated_until_the_replay_has_come_to_the_mark() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    // The mark is one beyond what can be read: as if the record were still on its way.
    log.pretend_marks(None, Some(vec![1, 0, 0, 0]));
    let manager = start(&log, &dir);
    manager.reconcile_assignment(&[0, 1]).await.unwrap();
    assert_not_ready(&manager, 0).await;
    let readiness = manager.metadata_partition_readiness();
    assert_eq!((readiness[0].partition, readiness[0].ready), (0, false));
    assert_eq!(
        (readiness[0].applied_offset, readiness[0].target_offset),
        (-1, Some(1))
    );
    assert_eq!(readiness[0].lag(), Some(1));
    assert_eq!((readiness[1].ready, readiness[1].lag()), (true, Some(0)));

    let segment = segment(&tp_in(0), 1, 0);
    publish(&*log.inner, &MetadataEvent::AddSegment(segment)).await;
    manager.wait_until_ready().await.unwrap();
    assert_eq!(manager.list_segments(&tp_in(0)).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_empty_and_a_fully_expired_partition_are_ready_at_once() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    publish(
        &*log.inner,
        &MetadataEvent::AddSegment(segment(&tp_in(2), 1, 0)),
    )
    .await;
    log.inner.delete_records(2, 1).unwrap();
    let manager = ready(&log, &dir).await;
    assert_eq!(manager.list_segments(&tp_in(2)).await.unwrap(), []);
    assert_eq!(manager.metadata_partition_readiness()[2].applied_offset, 0);
    manager.add_segment(segment(&tp_in(2), 2, 0)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_position_without_records_opens_the_gate() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    // Below the mark are a marker and an offset that compaction took: no record comes for them.
    log.pretend_marks(None, Some(vec![5, 0, 0, 0]));
    let manager = start(&log, &dir);
    manager.reconcile_assignment(&[0]).await.unwrap();
    assert_not_ready(&manager, 0).await;
    log.inject(Some(MetadataStreamItem::Page(
        krabka_remote_storage::topic::MetadataEventPage {
            partition: 0,
            generation: 1,
            records: Vec::new(),
            next_offset: 5,
        },
    )));
    manager.wait_until_ready().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn marks_that_cannot_be_read_keep_the_gate_closed_and_are_asked_for_again() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    log.next_marks([Marks::Fail, Marks::Hang, Marks::Fail]);
    let manager = start(&log, &dir);
    let error = manager.reconcile_assignment(&[0]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotReady);
    assert_eq!(manager.assigned_metadata_partitions(), [0]);
    assert_not_ready(&manager, 0).await;
    assert_eq!(
        manager.metadata_partition_readiness()[0].target_offset,
        None
    );
    let begin = tokio::time::Instant::now();
    manager.wait_until_ready().await.unwrap();
    assert_eq!(log.questions(), 4);
    // Twice a backoff and once the patience with an answer that does not come.
    assert!(
        begin.elapsed() < Duration::from_secs(33),
        "{:?}",
        begin.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn an_assignment_outside_of_the_log_is_refused_whole() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    let manager = ready(&log, &dir).await;
    for wrong in [-1, PARTITIONS] {
        let error = manager.reconcile_assignment(&[0, wrong]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    assert_eq!(manager.assigned_metadata_partitions(), [0, 1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn what_is_taken_away_is_forgotten_and_replayed_when_it_comes_back() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    let manager = ready(&log, &dir).await;
    let segment = segment(&tp_in(0), 1, 0);
    manager.add_segment(segment.clone()).await.unwrap();
    manager.reconcile_assignment(&[1]).await.unwrap();
    assert_eq!(manager.list_segments(&tp_in(0)).await.unwrap(), []);
    publish(
        &*log.inner,
        &MetadataEvent::UpdateSegment(finished(&segment)),
    )
    .await;
    manager.reconcile_assignment(&[0]).await.unwrap();
    manager.wait_until_ready().await.unwrap();
    assert!(
        manager
            .find_segment(&tp_in(0), EPOCH, 0)
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test(start_paused = true)]
async fn a_late_page_of_an_earlier_assignment_is_passed_over() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    let manager = ready(&log, &dir).await;
    manager.reconcile_assignment(&[]).await.unwrap();
    log.pretend_marks(None, Some(vec![7, 0, 0, 0]));
    manager.reconcile_assignment(&[0]).await.unwrap();
    let late = |generation| krabka_remote_storage::topic::MetadataEventPage {
        partition: 0,
        generation,
        records: Vec::new(),
        next_offset: 7,
    };
    log.inject(Some(MetadataStreamItem::Page(late(1))));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_not_ready(&manager, 0).await;
    log.inject(Some(MetadataStreamItem::Page(late(5))));
    manager.wait_until_ready().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_writer_whose_partition_is_taken_away_learns_that_its_event_is_in_the_log() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    let manager = ready(&log, &dir).await;
    // Two assignments at once, and the event between them: it is acknowledged to nobody's replay.
    let taken = manager.reconcile_assignment(&[]);
    let segment = segment(&tp_in(0), 1, 0);
    let (written, taken) = tokio::join!(manager.add_segment(segment), taken);
    taken.unwrap();
    if let Err(error) = written {
        assert!(
            matches!(
                error,
                RemoteStorageError::EventOutcomeUnknown {
                    partition: 0,
                    offset: Some(0),
                    ..
                }
            ),
            "{error}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn poison_records_are_passed_over() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    let good = segment(&tp_in(0), 1, 0);
    let elsewhere = MetadataEvent::AddSegment(segment(&tp_in(1), 2, 0)).encode();
    let foreign_state = MetadataEvent::AddSegment(good.with_update(&finished(&good)).unwrap());
    for poison in [
        Bytes::new(),
        Bytes::from_static(b"no event"),
        Bytes::from_static(&[1, 3, 0]),
        elsewhere,
        foreign_state.encode(),
    ] {
        log.inner.publish(0, poison).await.unwrap();
    }
    let tombstone = KeyedEvent {
        key: Bytes::from_static(b"key"),
        event: None,
    };
    log.inner.publish_keyed(0, tombstone).await.unwrap();
    publish(&*log.inner, &MetadataEvent::AddSegment(good.clone())).await;
    let manager = ready(&log, &dir).await;
    assert_eq!(manager.list_segments(&tp_in(0)).await.unwrap(), [good]);
    assert_eq!(manager.list_segments(&tp_in(1)).await.unwrap(), []);
    assert_eq!(manager.metadata_partition_readiness()[0].applied_offset, 6);
}

#[tokio::test(start_paused = true)]
async fn a_log_that_was_trimmed_beyond_the_position_is_replayed_from_its_start() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    let manager = ready(&log, &dir).await;
    let (old, new) = (segment(&tp_in(0), 1, 0), segment(&tp_in(0), 2, 10));
    manager.add_segment(old).await.unwrap();
    publish(
        &*log.inner,
        &MetadataEvent::AddSegment(segment(&tp_in(0), 3, 20)),
    )
    .await;
    publish(&*log.inner, &MetadataEvent::AddSegment(new.clone())).await;
    // Before the manager has run again: offset 1 is lost to it.
    log.inner.delete_records(0, 2).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    manager.wait_until_ready().await.unwrap();
    assert_eq!(manager.list_segments(&tp_in(0)).await.unwrap(), [new]);
}

#[tokio::test(start_paused = true)]
async fn a_position_that_cannot_be_read_closes_the_gate_and_the_log_is_replayed() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    let manager = ready(&log, &dir).await;
    let segment = segment(&tp_in(0), 1, 0);
    manager.add_segment(segment.clone()).await.unwrap();
    log.next_marks([Marks::Fail]);
    log.inject(Some(MetadataStreamItem::OutOfRange {
        partition: 0,
        generation: 1,
        position: 1,
    }));
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    assert_not_ready(&manager, 0).await;
    manager.wait_until_ready().await.unwrap();
    assert_eq!(manager.list_segments(&tp_in(0)).await.unwrap(), [segment]);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_ends_fails_its_writers_and_is_made_again() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    let manager = ready(&log, &dir).await;
    let known = segment(&tp_in(0), 1, 0);
    manager.add_segment(known.clone()).await.unwrap();
    log.fail_next_subscription(MetadataLogError::Closed);
    log.inject(None);
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    // The assignment stays ready: what it knows is still true.
    assert_eq!(
        manager.list_segments(&tp_in(0)).await.unwrap(),
        std::slice::from_ref(&known)
    );
    manager.update_segment(finished(&known)).await.unwrap();
    assert_eq!(log.subscriptions(), 3);
    assert_eq!(log.delivered(), 2, "nothing was read twice");
}

#[tokio::test(start_paused = true)]
async fn a_shut_down_manager_refuses_every_call_and_leaves_nobody_waiting() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    let manager = ready(&log, &dir).await;
    log.next_publishes([Publish::Hangs]);
    let waiting = manager.add_segment(segment(&tp_in(0), 1, 0));
    let stop = async {
        tokio::task::yield_now().await;
        manager.shutdown();
    };
    let begin = tokio::time::Instant::now();
    let (written, ()) = tokio::join!(waiting, stop);
    assert_eq!(written.unwrap_err().kind(), ErrorKind::OutcomeUnknown);
    assert!(begin.elapsed().is_zero());
    for error in [
        manager
            .find_segment(&tp_in(0), EPOCH, 0)
            .await
            .map(|_| ())
            .unwrap_err(),
        manager
            .add_segment(segment(&tp_in(0), 1, 0))
            .await
            .unwrap_err(),
        manager.reconcile_assignment(&[0]).await.unwrap_err(),
        manager.wait_until_ready().await.unwrap_err(),
        manager.flush().await.unwrap_err(),
        manager.check_ready(&tp_in(0)).await.unwrap_err(),
    ] {
        assert!(error.to_string().contains("has been shut down"), "{error}");
    }
    manager.shutdown_and_flush().await.unwrap();
}
