//! Snapshots: what a restart reads, and what it does not believe.

use std::fs;
use std::path::Path;

use krabka_remote_storage::topic::{SNAPSHOT_FILE_NAME, Snapshot};
use krabka_remote_storage::{
    ErrorKind, RemoteLogMetadataStore, RemotePartitionDeleteMetadata, RemotePartitionDeleteState,
};

use super::scripted_log::ScriptedLog;
use super::*;

use RemoteLogSegmentState::{DeleteSegmentFinished, DeleteSegmentStarted};

fn file(dir: &TempDir) -> std::path::PathBuf {
    dir.path().join(SNAPSHOT_FILE_NAME)
}

fn rejected(dir: &TempDir) -> Vec<Vec<u8>> {
    let mut files: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let is_aside = |path: &Path| path.to_string_lossy().contains("snapshot.rejected-");
    files
        .iter()
        .filter(|path| is_aside(path))
        .map(|path| fs::read(path).unwrap())
        .collect()
}

/// Everything that is answered about the test's partitions, as text.
async fn answers(manager: &TopicBasedRemoteLogMetadataManager) -> Vec<String> {
    let mut answers = Vec::new();
    for partition in 0..PARTITIONS {
        let tp = tp_in(partition);
        let listed = manager.list_segments(&tp).await.unwrap();
        answers.push(format!("{listed:?}"));
        for epoch in (0..3).map(LeaderEpoch) {
            let highest = manager.highest_offset(&tp, epoch).await.unwrap();
            let size = manager.log_size(&tp, epoch).await.unwrap();
            answers.push(format!("{highest:?} {size}"));
            for offset in (0..130).step_by(5) {
                let found = manager.find_segment(&tp, epoch, offset).await.unwrap();
                answers.push(format!("{found:?}"));
            }
        }
    }
    answers
}

/// A history in which segments overlap, displace each other and go, one partition is deleted, and
/// what an epoch remembers outlives its segments.
fn history() -> Vec<MetadataEvent> {
    let (one, other) = (tp_in(0), tp_in(1));
    let (displaced, wide, inner) = (
        segment(&one, 1, 0),
        segment(&one, 2, 0),
        segment(&one, 3, 10),
    );
    let (gone, late) = (segment(&other, 4, 50), segment(&other, 5, 60));
    let add = |segment: &RemoteLogSegmentMetadata| MetadataEvent::AddSegment(segment.clone());
    let step = |segment: &RemoteLogSegmentMetadata, state| {
        MetadataEvent::UpdateSegment(update(segment, state))
    };
    let delete = |tp: &TopicIdPartition, state| {
        MetadataEvent::PartitionDelete(RemotePartitionDeleteMetadata::new(tp.clone(), state, 1, 1))
    };
    vec![
        add(&displaced),
        add(&gone),
        step(&displaced, CopySegmentFinished),
        add(&wide),
        add(&inner),
        step(&inner, CopySegmentFinished),
        step(&gone, CopySegmentFinished),
        step(&wide, CopySegmentFinished),
        step(&displaced, DeleteSegmentStarted),
        step(&gone, DeleteSegmentStarted),
        step(&displaced, DeleteSegmentFinished),
        step(&gone, DeleteSegmentFinished),
        add(&late),
        delete(&other, RemotePartitionDeleteState::DeletePartitionMarked),
        step(&inner, DeleteSegmentStarted),
        delete(&tp_in(2), RemotePartitionDeleteState::DeletePartitionMarked),
        step(&inner, DeleteSegmentFinished),
    ]
}

async fn publish_all(log: &ScriptedLog, events: &[MetadataEvent]) {
    for event in events {
        publish(&*log.inner, event).await;
    }
}

async fn caught_up(manager: &TopicBasedRemoteLogMetadataManager, log: &ScriptedLog) {
    let high = log.inner.high_water_marks().await.unwrap();
    loop {
        let readiness = manager.metadata_partition_readiness();
        if readiness
            .iter()
            .zip(&high)
            .all(|(one, high)| one.applied_offset + 1 >= *high)
        {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_from_a_snapshot_reads_no_old_event() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    publish_all(&log, &history()).await;
    let manager = ready(&log, &dir).await;
    let before = answers(&manager).await;
    assert_eq!(manager.committed_offset(0).await, -1);
    manager.shutdown_and_flush().await.unwrap();
    let high = log.inner.high_water_marks().await.unwrap();
    assert_eq!(manager.committed_offset(0).await, high[0] - 1);

    let delivered = log.delivered();
    let manager = ready(&log, &dir).await;
    assert_eq!(answers(&manager).await, before);
    assert_eq!(log.delivered(), delivered);
    assert_eq!(manager.committed_offset(0).await, high[0] - 1);
    assert_eq!(
        manager.committed_offset(3).await,
        -1,
        "nothing was ever written there"
    );
    assert_eq!(manager.committed_offset(99).await, -1);
}

#[tokio::test(start_paused = true)]
async fn a_manager_killed_at_any_event_is_whole_after_its_restart() {
    let history = history();
    for flushed in 0..=history.len() {
        for killed in flushed..=history.len() {
            let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
            let manager = ready(&log, &dir).await;
            publish_all(&log, &history[..flushed]).await;
            caught_up(&manager, &log).await;
            manager.flush().await.unwrap();
            publish_all(&log, &history[flushed..killed]).await;
            drop(manager);
            publish_all(&log, &history[killed..]).await;

            let restarted = ready(&log, &dir).await;
            let fresh = ready(&log, &TempDir::new().unwrap()).await;
            assert_eq!(
                answers(&restarted).await,
                answers(&fresh).await,
                "{flushed} {killed}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_whose_log_is_replayed_over_it_from_any_earlier_offset_is_whole() {
    let history = history();
    let (log, whole) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    publish_all(&log, &history).await;
    let manager = ready(&log, &whole).await;
    let expected = answers(&manager).await;
    manager.shutdown_and_flush().await.unwrap();
    let snapshot = Snapshot::load(&file(&whole)).unwrap().unwrap();
    let last = snapshot.committed_offsets.clone();
    for (one, other) in (-1..=last[0]).flat_map(|one| (-1..=last[1]).map(move |other| (one, other)))
    {
        let dir = TempDir::new().unwrap();
        let mut earlier = snapshot.clone();
        (earlier.committed_offsets[0], earlier.committed_offsets[1]) = (one, other);
        earlier.write_atomic(&file(&dir)).unwrap();
        let delivered = log.delivered();
        let manager = ready(&log, &dir).await;
        assert_eq!(answers(&manager).await, expected, "from {one} and {other}");
        let read = i64::try_from(log.delivered() - delivered).unwrap();
        assert_eq!(read, last[0] - one + last[1] - other);
    }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_is_damaged_is_put_aside_and_the_log_is_replayed() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    publish_all(&log, &history()).await;
    let manager = ready(&log, &dir).await;
    let expected = answers(&manager).await;
    manager.shutdown_and_flush().await.unwrap();
    let good = fs::read(file(&dir)).unwrap();
    let mut changed = good.clone();
    changed[40] ^= 1;
    let mut old_version = good.clone();
    old_version[1] = 0;
    let bad = [
        Vec::new(),
        b"no snapshot".to_vec(),
        good[..good.len() - 1].to_vec(),
        changed,
        old_version,
    ];
    for bytes in bad {
        let dir = TempDir::new().unwrap();
        fs::write(file(&dir), &bytes).unwrap();
        let manager = ready(&log, &dir).await;
        assert_eq!(answers(&manager).await, expected);
        assert_eq!(rejected(&dir), [bytes], "the evidence is kept");
        manager.shutdown_and_flush().await.unwrap();
        assert_eq!(
            fs::read(file(&dir)).unwrap().len(),
            good.len(),
            "and a good one is written"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn few_rejected_snapshots_are_kept() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    for number in 0..9_u8 {
        fs::write(file(&dir), [number]).unwrap();
        ready(&log, &dir).await;
    }
    assert_eq!(
        rejected(&dir),
        [[0], [1], [2], [8]],
        "the first ones and the last one"
    );
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_of_another_log_is_put_aside() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    publish_all(&log, &history()).await;
    ready(&log, &dir).await.shutdown_and_flush().await.unwrap();
    let bytes = fs::read(file(&dir)).unwrap();

    // The topic was deleted and made again, with as many partitions.
    let other = ScriptedLog::new(PARTITIONS);
    let manager = ready(&other, &dir).await;
    assert_eq!(manager.list_segments(&tp_in(0)).await.unwrap(), []);
    assert_eq!(rejected(&dir), std::slice::from_ref(&bytes));

    // The same topic, with more partitions.
    let more_dir = TempDir::new().unwrap();
    fs::write(file(&more_dir), &bytes).unwrap();
    let more = ScriptedLog::new(PARTITIONS + 1);
    more.pretend_topic_id(log.topic_id().unwrap());
    let manager = ready(&more, &more_dir).await;
    assert_eq!(manager.list_segments(&tp_in(0)).await.unwrap(), []);
    assert_eq!(rejected(&more_dir), [bytes]);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_outside_of_the_log_is_not_believed() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    publish_all(&log, &history()).await;
    ready(&log, &dir).await.shutdown_and_flush().await.unwrap();
    let high = log.inner.high_water_marks().await.unwrap();
    let saved = fs::read(file(&dir)).unwrap();

    // Newer than the log: it lost its end, or was made again under the same id.
    let shorter = ScriptedLog::new(PARTITIONS);
    shorter.pretend_topic_id(log.topic_id().unwrap());
    let one = segment(&tp_in(0), 77, 0);
    publish(&*shorter.inner, &MetadataEvent::AddSegment(one.clone())).await;
    let manager = ready(&shorter, &dir).await;
    assert_eq!(manager.list_segments(&tp_in(0)).await.unwrap(), [one]);
    // It is put aside before anything else happens: this manager writes nothing, and the log grows
    // beyond the offsets that were lost.
    assert_eq!(rejected(&dir), std::slice::from_ref(&saved));
    assert!(!file(&dir).exists());
    assert_eq!(manager.committed_offset(0).await, -1);
    drop(manager);
    publish_all(&shorter, &history()).await;
    publish_all(&shorter, &history()).await;
    let manager = ready(&shorter, &dir).await;
    let replayed = ready(&shorter, &TempDir::new().unwrap()).await;
    assert_eq!(answers(&manager).await, answers(&replayed).await);
    manager.flush().await.unwrap();
    drop(manager);

    // Older than the log: what came between was deleted.
    fs::write(file(&dir), &saved).unwrap();
    let late = segment(&tp_in(0), 78, 100);
    publish(
        &*log.inner,
        &MetadataEvent::AddSegment(segment(&tp_in(0), 79, 90)),
    )
    .await;
    publish(&*log.inner, &MetadataEvent::AddSegment(late.clone())).await;
    log.inner.delete_records(0, high[0] + 1).unwrap();
    let manager = ready(&log, &dir).await;
    assert_eq!(manager.list_segments(&tp_in(0)).await.unwrap(), [late]);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_with_events_that_the_log_does_not_have_is_put_aside() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    publish_all(&log, &history()).await;
    ready(&log, &dir).await.shutdown_and_flush().await.unwrap();
    let high = log.inner.high_water_marks().await.unwrap()[0];
    for applied in [high, high + 1_000, i64::MAX] {
        // Its position is in the log, and one cache has been applied further.
        let mut snapshot = Snapshot::load(&file(&dir)).unwrap().unwrap();
        for partition in &mut snapshot.dump.partitions {
            if partition.topic_id_partition == tp_in(0) {
                partition.applied_offset = Some(applied);
            }
        }
        let other = TempDir::new().unwrap();
        snapshot.write_atomic(&file(&other)).unwrap();
        let manager = ready(&log, &other).await;
        assert_eq!(rejected(&other).len(), 1, "{applied}");
        let replayed = ready(&log, &TempDir::new().unwrap()).await;
        assert_eq!(answers(&manager).await, answers(&replayed).await);
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_not_assigned_yet_stays_in_the_next_snapshot() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    publish_all(&log, &history()).await;
    let manager = ready(&log, &dir).await;
    let expected = answers(&manager).await;
    manager.shutdown_and_flush().await.unwrap();
    // A short life with one partition only.
    let manager = start(&log, &dir);
    manager.reconcile_assignment(&[0]).await.unwrap();
    manager.shutdown_and_flush().await.unwrap();

    let delivered = log.delivered();
    let manager = ready(&log, &dir).await;
    assert_eq!(answers(&manager).await, expected);
    assert_eq!(log.delivered(), delivered, "nothing was read again");
}

#[tokio::test(start_paused = true)]
async fn snapshots_are_written_at_times_and_only_when_something_changed() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    let manager = ready(&log, &dir).await;
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert!(!file(&dir).exists(), "nothing was applied");
    manager.add_segment(segment(&tp_in(0), 1, 0)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(manager.committed_offset(0).await, 0);
    fs::remove_file(file(&dir)).unwrap();
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert!(!file(&dir).exists(), "nothing has changed since");
    // A partition that is behind others counts as well.
    manager.add_segment(segment(&tp_in(1), 2, 0)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(manager.committed_offset(1).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_cannot_be_written_is_an_error_and_nothing_else() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    let manager = ready(&log, &dir).await;
    manager.add_segment(segment(&tp_in(0), 1, 0)).await.unwrap();
    fs::create_dir(file(&dir)).unwrap();
    fs::write(file(&dir).join("in the way"), b"").unwrap();
    let error = manager.flush().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    manager
        .add_segment(segment(&tp_in(0), 2, 10))
        .await
        .unwrap();
    fs::remove_dir_all(file(&dir)).unwrap();
    manager.flush().await.unwrap();
    assert_eq!(manager.committed_offset(0).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_killed_at_any_byte_leaves_the_snapshot_before() {
    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    publish_all(&log, &history()[..8]).await;
    ready(&log, &dir).await.shutdown_and_flush().await.unwrap();
    let old = fs::read(file(&dir)).unwrap();
    publish_all(&log, &history()[8..]).await;
    let manager = ready(&log, &dir).await;
    let expected = answers(&manager).await;
    manager.shutdown_and_flush().await.unwrap();
    let new = fs::read(file(&dir)).unwrap();
    for length in 0..=new.len() {
        let dir = TempDir::new().unwrap();
        fs::write(file(&dir), &old).unwrap();
        fs::write(dir.path().join("snapshot.tmp"), &new[..length]).unwrap();
        let manager = ready(&log, &dir).await;
        assert_eq!(answers(&manager).await, expected, "{length}");
        assert_eq!(rejected(&dir), Vec::<Vec<u8>>::new());
    }
}
