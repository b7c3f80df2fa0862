//! What a change answers: applied, refused, not sent, or unknown.

use std::error::Error as _;

use krabka_remote_storage::topic::{EventOutcome, MetadataEvent};
use krabka_remote_storage::{
    ErrorKind, RemoteLogMetadataStore, RemotePartitionDeleteMetadata, RemotePartitionDeleteState,
    RemoteStorageError,
};

use super::scripted_log::{Publish, ScriptedLog};
use super::*;

#[tokio::test(start_paused = true)]
async fn a_change_is_seen_as_soon_as_its_call_returns() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    let manager = ready(&log, &dir).await;
    let tp = tp_in(2);
    let segment = segment(&tp, 1, 0);
    manager.add_segment(segment.clone()).await.unwrap();
    assert_eq!(manager.find_segment(&tp, EPOCH, 5).await.unwrap(), None);
    manager.update_segment(finished(&segment)).await.unwrap();
    let found = manager.find_segment(&tp, EPOCH, 5).await.unwrap().unwrap();
    assert_eq!(found, segment.with_update(&finished(&segment)).unwrap());
    assert_eq!(manager.highest_offset(&tp, EPOCH).await.unwrap(), Some(9));
    assert_eq!(manager.newest_segment(&tp).await.unwrap(), Some(found));
    assert_eq!(manager.log_size(&tp, EPOCH).await.unwrap(), 1024);
    assert_eq!(manager.list_segments(&tp).await.unwrap().len(), 1);
    assert_eq!(
        manager
            .list_segments_by_epoch(&tp, EPOCH)
            .await
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn another_manager_sees_the_change_too() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    let (one, other_dir) = (ready(&log, &dir).await, TempDir::new().unwrap());
    let segment = segment(&tp_in(1), 1, 0);
    one.add_segment(segment.clone()).await.unwrap();
    let other = ready(&log, &other_dir).await;
    other.update_segment(finished(&segment)).await.unwrap();
    assert_eq!(
        other
            .find_segment(&tp_in(1), EPOCH, 0)
            .await
            .unwrap()
            .unwrap()
            .state(),
        CopySegmentFinished
    );
}

#[tokio::test(start_paused = true)]
async fn what_the_state_machine_refuses_is_not_published() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    let manager = ready(&log, &dir).await;
    let known = segment(&tp_in(0), 1, 0);
    manager.add_segment(known.clone()).await.unwrap();
    manager.update_segment(finished(&known)).await.unwrap();
    let before = log.inner.high_water_marks().await.unwrap();

    let taken = manager
        .add_segment(segment(&tp_in(0), 1, 50))
        .await
        .unwrap_err();
    assert!(
        matches!(taken, RemoteStorageError::InvalidAdd { .. }),
        "{taken}"
    );
    let unknown = manager
        .update_segment(finished(&segment(&tp_in(0), 9, 0)))
        .await
        .unwrap_err();
    assert!(
        matches!(unknown, RemoteStorageError::SegmentNotFound(_)),
        "{unknown}"
    );
    let back = manager
        .update_segment(update(&known, RemoteLogSegmentState::DeleteSegmentFinished))
        .await
        .unwrap_err();
    assert!(
        matches!(back, RemoteStorageError::InvalidSegmentTransition { .. }),
        "{back}"
    );
    let started = manager
        .update_segment(update(&known, CopySegmentStarted))
        .await
        .unwrap_err();
    assert!(
        matches!(started, RemoteStorageError::InvalidArgument(_)),
        "{started}"
    );
    let state = RemotePartitionDeleteState::DeletePartitionFinished;
    let deleted = RemotePartitionDeleteMetadata::new(tp_in(0), state, 1, 1);
    let deleted = manager.put_partition_delete(deleted).await.unwrap_err();
    assert!(matches!(
        deleted,
        RemoteStorageError::InvalidPartitionDeleteTransition { .. }
    ));

    assert_eq!(log.inner.high_water_marks().await.unwrap(), before);
}

#[tokio::test(start_paused = true)]
async fn a_repetition_succeeds_and_writes_nothing() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    let manager = ready(&log, &dir).await;
    let segment = segment(&tp_in(0), 1, 0);
    manager.add_segment(segment.clone()).await.unwrap();
    manager.add_segment(segment.clone()).await.unwrap();
    manager.update_segment(finished(&segment)).await.unwrap();
    manager.update_segment(finished(&segment)).await.unwrap();
    assert_eq!(log.inner.high_water_marks().await.unwrap()[0], 2);
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_begins_a_deletion_once_more_by_a_call_as_by_a_replay() {
    let (log, dirs) = (
        ScriptedLog::new(PARTITIONS),
        [(); 3].map(|()| TempDir::new().unwrap()),
    );
    let managers = [ready(&log, &dirs[0]).await, ready(&log, &dirs[1]).await];
    let segment = segment(&tp_in(0), 1, 0);
    managers[0].add_segment(segment.clone()).await.unwrap();
    managers[0]
        .update_segment(finished(&segment))
        .await
        .unwrap();
    let first = update(&segment, RemoteLogSegmentState::DeleteSegmentStarted);
    managers[0].update_segment(first.clone()).await.unwrap();
    let mut again = first;
    again.broker_id = 2;
    again.event_timestamp_ms += 1;
    // The other broker has to have read what it repeats.
    while managers[1].metadata_partition_readiness()[0].applied_offset < 2 {
        tokio::task::yield_now().await;
    }
    managers[1].update_segment(again).await.unwrap();
    assert_eq!(log.inner.high_water_marks().await.unwrap()[0], 4);
    let replayed = ready(&log, &dirs[2]).await;
    for manager in [&managers[1], &replayed] {
        let listed = manager.list_segments(&tp_in(0)).await.unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(
            (listed[0].broker_id(), listed[0].event_timestamp_ms()),
            (2, 3)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_loses_a_race_tells_its_writer() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    let manager = ready(&log, &dir).await;
    let segment = segment(&tp_in(0), 1, 0);
    manager.add_segment(segment.clone()).await.unwrap();
    // Another broker's event, which this manager has not read when it looks: no task has run since.
    let other = update(&segment, RemoteLogSegmentState::DeleteSegmentStarted);
    publish(&*log.inner, &MetadataEvent::UpdateSegment(other)).await;
    let late = manager
        .update_segment(finished(&segment))
        .await
        .unwrap_err();
    assert!(
        matches!(
            late,
            RemoteStorageError::InvalidSegmentTransition {
                from: RemoteLogSegmentState::DeleteSegmentStarted,
                to: CopySegmentFinished,
                ..
            }
        ),
        "{late}"
    );
    assert_eq!(
        log.inner.high_water_marks().await.unwrap()[0],
        3,
        "it was published"
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_that_was_not_sent_can_be_sent_again() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    let manager = ready(&log, &dir).await;
    let segment = segment(&tp_in(3), 1, 0);
    log.next_publishes([Publish::NotSent, Publish::Rejected]);

    let error = manager.add_segment(segment.clone()).await.unwrap_err();
    assert!(matches!(
        error,
        RemoteStorageError::EventNotSent { partition: 3, .. }
    ));
    assert_eq!(
        (error.kind(), error.is_retryable()),
        (ErrorKind::Unavailable, true)
    );
    assert!(
        error
            .source()
            .unwrap()
            .to_string()
            .contains("the broker is not there")
    );
    let error = manager.add_segment(segment.clone()).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.is_retryable()),
        (ErrorKind::Rejected, false)
    );
    assert!(
        manager
            .outcome_of(&MetadataEvent::AddSegment(segment.clone()))
            .is_none()
    );

    manager.add_segment(segment.clone()).await.unwrap();
    assert_eq!(log.inner.high_water_marks().await.unwrap()[3], 1);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_found_out_later() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    let manager = ready(&log, &dir).await;
    let (lost, kept, hung) = (
        segment(&tp_in(0), 1, 0),
        segment(&tp_in(0), 2, 10),
        segment(&tp_in(0), 3, 20),
    );
    log.next_publishes([
        Publish::LosesEvent,
        Publish::LosesAnswer,
        Publish::HangsAfterwards,
    ]);
    for segment in [&lost, &kept, &hung] {
        let error = manager.add_segment(segment.clone()).await.unwrap_err();
        assert!(matches!(
            error,
            RemoteStorageError::EventOutcomeUnknown { partition: 0, .. }
        ));
        assert_eq!(
            (error.kind(), error.is_retryable()),
            (ErrorKind::OutcomeUnknown, false)
        );
    }
    tokio::task::yield_now().await;
    let outcome = |segment: &RemoteLogSegmentMetadata| {
        manager.outcome_of(&MetadataEvent::AddSegment(segment.clone()))
    };
    assert!(matches!(
        outcome(&lost),
        Some(EventOutcome::NotSeen { next_offset: 2 })
    ));
    assert!(matches!(
        outcome(&kept),
        Some(EventOutcome::Applied { offset: 0 })
    ));
    assert!(matches!(
        outcome(&hung),
        Some(EventOutcome::Applied { offset: 1 })
    ));

    // Repeating the call settles the rest: what is there is not written twice.
    for segment in [lost, kept, hung] {
        manager.add_segment(segment).await.unwrap();
    }
    assert_eq!(log.inner.high_water_marks().await.unwrap()[0], 3);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_event_that_was_refused_says_so() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    let manager = ready(&log, &dir).await;
    let segment = segment(&tp_in(0), 1, 0);
    manager.add_segment(segment.clone()).await.unwrap();
    let other = update(&segment, RemoteLogSegmentState::DeleteSegmentStarted);
    publish(&*log.inner, &MetadataEvent::UpdateSegment(other)).await;
    log.next_publishes([Publish::LosesAnswer]);
    manager
        .update_segment(finished(&segment))
        .await
        .unwrap_err();
    tokio::task::yield_now().await;
    let outcome = manager.outcome_of(&MetadataEvent::UpdateSegment(finished(&segment)));
    assert!(
        matches!(
            &outcome,
            Some(EventOutcome::Refused {
                offset: 2,
                error: RemoteStorageError::InvalidSegmentTransition { .. }
            })
        ),
        "{outcome:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn no_change_waits_longer_than_its_timeout() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    let manager = ready(&log, &dir).await;
    for fault in [Publish::Hangs, Publish::HangsAfterwards] {
        log.next_publishes([fault]);
        let begin = tokio::time::Instant::now();
        let error = manager
            .add_segment(segment(&tp_in(0), fault as u128, 0))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
        assert_eq!(begin.elapsed().as_secs(), 120);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_change_leaves_its_outcome_to_be_found_out() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    let manager = ready(&log, &dir).await;
    log.next_publishes([Publish::HangsAfterwards]);
    let segment = segment(&tp_in(0), 1, 0);
    let call = manager.add_segment(segment.clone());
    assert!(
        tokio::time::timeout(Duration::from_secs(1), call)
            .await
            .is_err()
    );
    let outcome = manager.outcome_of(&MetadataEvent::AddSegment(segment));
    assert!(
        matches!(outcome, Some(EventOutcome::Applied { offset: 0 })),
        "{outcome:?}"
    );
}
