//! What is at the border of segments: compaction, cut logs, retention.

use futures::FutureExt as _;
use krabka_remote_storage::{
    ErrorKind, LOG_FILE_SUFFIX, LeaderEpoch, RemoteLogMetadataStore as _,
    RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState, RemoteStorageError,
};
use object_store::ObjectStoreExt as _;
use std::sync::Arc;

use super::{KIB, MIB, read, spans, try_read};
use crate::support::tier::{MadeSegment, MadeTier, partition};
use krabka_remote_storage::testing::batches::{BatchSpec, SegmentFiles};
use krabka_remote_storage::testing::store::Fate;

const BATCH: usize = 16 * KIB;

/// Segments of 100 offsets each, ten to a batch.
async fn add_three(tier: &MadeTier) -> Vec<(MadeSegment, SegmentFiles)> {
    let mut added = Vec::new();
    for (id, base) in [(1, 0), (2, 100), (3, 200)] {
        let files = SegmentFiles::uniform(base, 10 * BATCH, BATCH, 10);
        let segment = MadeSegment::new(id, &files);
        tier.add(&segment).await;
        added.push((segment, files));
    }
    added
}

#[tokio::test]
async fn reads_go_on_from_segment_to_segment_to_the_end() {
    let tier = MadeTier::new();
    let added = add_three(&tier).await;
    for budget in [1, 20_000, 50_000, MIB] {
        let reader = tier.reader();
        let (mut offset, mut all) = (0, Vec::new());
        while let Some(batches) = try_read(&reader, offset, budget).await.unwrap() {
            all.extend_from_slice(&batches.bytes);
            offset = batches.next_offset;
        }
        assert_eq!(offset, 300);
        let expected: Vec<u8> = added
            .iter()
            .flat_map(|(_, files)| files.log.clone())
            .collect();
        assert!(all == expected, "with {budget} bytes a read");
    }
}

#[tokio::test]
async fn an_end_that_compaction_removed_leads_to_the_next_segment() {
    // KAFKA-15388. The first segment reaches to offset 99, its last batch to 59; the second has
    // nothing before 150.
    let tier = MadeTier::new();
    let files = SegmentFiles::uniform(0, 6 * BATCH, BATCH, 10);
    let mut first = MadeSegment::new(1, &files);
    first.end_offset = 99;
    tier.add(&first).await;
    let mut files = SegmentFiles::new(100);
    files.append(&BatchSpec::new(150, 10, BATCH));
    let mut second = MadeSegment::new(2, &files.roll());
    second.end_offset = 199;
    tier.add(&second).await;
    let third = MadeSegment::new(3, &SegmentFiles::uniform(200, BATCH, BATCH, 10));
    tier.add(&third).await;

    for (offset, found, segment) in [
        (60, 150, 100),
        (99, 150, 100),
        (100, 150, 100),
        (149, 150, 100),
        (155, 150, 100),
        (160, 200, 200),
        (199, 200, 200),
    ] {
        let batches = read(&tier.reader(), offset, 64 * KIB).await;
        assert_eq!(spans(&batches)[0].0, found, "at {offset}");
        assert_eq!(batches.segment.start_offset(), segment);
        assert!(batches.next_offset > offset);
    }
    // In sequence, nothing is asked for twice.
    tier.store.forget_requests();
    let reader = tier.reader();
    let mut offset = 0;
    let mut found = Vec::new();
    while let Some(batches) = try_read(&reader, offset, MIB).await.unwrap() {
        found.extend(spans(&batches));
        offset = batches.next_offset;
    }
    let bases: Vec<i64> = found.iter().map(|(base, _)| *base).collect();
    assert_eq!(bases, [0, 10, 20, 30, 40, 50, 150, 200]);
    let logs: Vec<u64> = tier.gets().iter().map(|(_, bytes)| *bytes).collect();
    let batch = BATCH as u64;
    assert_eq!(logs, [6 * batch, batch, batch]);
}

#[tokio::test]
async fn where_nothing_follows_a_compacted_end_the_answer_is_empty_and_goes_on_behind() {
    let tier = MadeTier::new();
    let mut segment = MadeSegment::new(1, &SegmentFiles::uniform(0, 6 * BATCH, BATCH, 10));
    segment.end_offset = 99;
    tier.add(&segment).await;
    let reader = tier.reader();
    let batches = read(&reader, 60, MIB).await;
    assert!(batches.bytes.is_empty());
    assert_eq!(batches.next_offset, 100);
    assert!(try_read(&reader, 100, MIB).await.unwrap().is_none());
}

#[tokio::test]
async fn a_compacted_end_leads_into_the_next_leader_epoch() {
    let tier = MadeTier::new();
    let mut first = MadeSegment::new(1, &SegmentFiles::uniform(0, 6 * BATCH, BATCH, 10));
    first.end_offset = 99;
    tier.add(&first).await;
    let mut second = MadeSegment::new(2, &SegmentFiles::uniform(100, BATCH, BATCH, 10));
    second.epochs = [(3, 100)].into();
    second.checkpoint = [(0, 0), (3, 100)].into();
    tier.add(&second).await;
    let batches = read(&tier.reader(), 60, MIB).await;
    assert_eq!(spans(&batches), [(100, 109)]);
}

#[tokio::test]
async fn a_log_that_ends_too_early_is_an_error_and_not_the_end_of_its_records() {
    // Cut between two batches, in the header of one, and inside of one.
    for cut in [3 * BATCH, 3 * BATCH + 10, 3 * BATCH + 30, 3 * BATCH + 100] {
        let tier = MadeTier::new();
        let files = SegmentFiles::uniform(0, 6 * BATCH, BATCH, 10);
        let mut segment = MadeSegment::new(1, &files);
        segment.log = Some(files.log[..cut].to_vec().into());
        tier.add(&segment).await;
        tier.add(&MadeSegment::new(
            2,
            &SegmentFiles::uniform(60, BATCH, BATCH, 10),
        ))
        .await;
        // What is whole is readable as long as a read does not come near the end.
        let batches = read(&tier.reader(), 5, 2 * BATCH).await;
        assert_eq!(spans(&batches), [(0, 9), (10, 19)]);
        for offset in [25, 30, 45, 59] {
            let error = try_read(&tier.reader(), offset, MIB).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            let id = segment.metadata().remote_log_segment_id().to_string();
            let mut causes =
                std::iter::successors(Some(&error as &dyn std::error::Error), |error| {
                    error.source()
                });
            assert!(
                causes.any(|cause| cause.to_string().contains(&id)),
                "{error}"
            );
        }
    }
}

#[tokio::test]
async fn of_a_log_whose_length_nobody_noted_a_cut_shows_inside_of_a_batch() {
    for (cut, is_damaged) in [
        (3 * BATCH, false),
        (3 * BATCH + 10, true),
        (3 * BATCH + 100, true),
    ] {
        let tier = MadeTier::new();
        let files = SegmentFiles::uniform(0, 6 * BATCH, BATCH, 10);
        let mut segment = MadeSegment::new(1, &files);
        segment.size = 0;
        segment.end_offset = 39;
        segment.log = Some(files.log[..cut].to_vec().into());
        tier.add(&segment).await;
        let reader = tier.reader();
        let batches = read(&reader, 5, MIB).await;
        assert_eq!(spans(&batches), [(0, 9), (10, 19), (20, 29)]);
        match try_read(&reader, batches.next_offset, MIB).await {
            Ok(next) => assert!(!is_damaged && next.is_none()),
            Err(error) => {
                assert!(is_damaged);
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            }
        }
    }
}

#[tokio::test]
async fn a_batch_that_claims_more_than_its_log_has_is_not_fetched() {
    let tier = MadeTier::new();
    let files = SegmentFiles::uniform(0, 6 * BATCH, BATCH, 10);
    let mut log = files.log.clone();
    log[3 * BATCH + 8..3 * BATCH + 12].copy_from_slice(&i32::MAX.to_be_bytes());
    let mut segment = MadeSegment::new(1, &files);
    segment.log = Some(log.into());
    tier.add(&segment).await;
    let error = try_read(&tier.reader(), 35, BATCH).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    let down = tier.bytes_down();
    assert!(down <= 3 * BATCH as u64, "{down}");
}

#[tokio::test]
async fn a_segment_that_retention_removed_between_two_reads_is_out_of_range() {
    let tier = MadeTier::new();
    let added = add_three(&tier).await;
    let reader = tier.reader();
    // The second read has read ahead; that is not answered either.
    let mut offset = 0;
    for _ in 0..2 {
        offset = read(&reader, offset, 2 * BATCH).await.next_offset;
    }
    assert_eq!(offset, 40);
    let (first, _) = &added[0];
    tier.update(first, RemoteLogSegmentState::DeleteSegmentStarted)
        .await;
    tier.store.forget_requests();
    assert!(
        try_read(&reader, offset, 2 * BATCH)
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(tier.gets(), []);
    assert_eq!(spans(&read(&reader, 100, BATCH).await), [(100, 109)]);
}

#[tokio::test]
async fn a_segment_that_retention_removes_during_a_read_is_out_of_range() {
    let tier = MadeTier::new();
    let added = add_three(&tier).await;
    let (first, _) = &added[0];
    let metadata = Arc::clone(&tier.metadata);
    let id = first.metadata().remote_log_segment_id().clone();
    tier.store.script(move |request, _| {
        if request.key.ends_with(LOG_FILE_SUFFIX) {
            let state = RemoteLogSegmentState::DeleteSegmentStarted;
            let update = RemoteLogSegmentMetadataUpdate::new(id.clone(), 2, None, state, 1);
            metadata
                .update_segment(update)
                .now_or_never()
                .unwrap()
                .unwrap();
        }
        Fate::default()
    });
    tier.store
        .inner
        .delete(&first.key(LOG_FILE_SUFFIX))
        .await
        .unwrap();
    assert!(try_read(&tier.reader(), 5, MIB).await.unwrap().is_none());
}

#[tokio::test]
async fn a_segment_that_is_copied_anew_during_a_read_answers_it() {
    let tier = MadeTier::new();
    let files = SegmentFiles::uniform(0, 10 * BATCH, BATCH, 10);
    let old = MadeSegment::new(1, &files);
    let new = MadeSegment::new(2, &files);
    tier.add(&old).await;
    tier.put(&new).await;
    tier.metadata.add_segment(new.metadata()).await.unwrap();
    let metadata = Arc::clone(&tier.metadata);
    let id = new.metadata().remote_log_segment_id().clone();
    tier.store.script(move |_, _| {
        let state = RemoteLogSegmentState::CopySegmentFinished;
        let update = RemoteLogSegmentMetadataUpdate::new(id.clone(), 1, None, state, 1);
        metadata
            .update_segment(update)
            .now_or_never()
            .unwrap()
            .unwrap();
        Fate::default()
    });
    tier.store
        .inner
        .delete(&old.key(LOG_FILE_SUFFIX))
        .await
        .unwrap();
    let batches = read(&tier.reader(), 5, MIB).await;
    assert_eq!(batches.bytes, files.log);
    assert_eq!(batches.segment.remote_log_segment_id().id.as_u128(), 2);
}

#[tokio::test]
async fn objects_that_are_gone_while_the_metadata_names_them_are_an_error() {
    let tier = MadeTier::new();
    let added = add_three(&tier).await;
    let (first, _) = &added[0];
    tier.store
        .inner
        .delete(&first.key(LOG_FILE_SUFFIX))
        .await
        .unwrap();
    let error = try_read(&tier.reader(), 5, MIB).await.unwrap_err();
    assert!(
        matches!(error, RemoteStorageError::SegmentNotFound(_)),
        "{error:?}"
    );
    let (second, _) = &added[1];
    tier.store
        .inner
        .delete(&second.key(".index"))
        .await
        .unwrap();
    let error = try_read(&tier.reader(), 150, MIB).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}");
    // The start needs no index.
    assert_eq!(spans(&read(&tier.reader(), 100, BATCH).await), [(100, 109)]);
}

#[tokio::test]
async fn an_index_that_leads_too_far_is_an_error_and_hides_no_record() {
    let tier = MadeTier::new();
    let files = SegmentFiles::uniform(0, 10 * BATCH, BATCH, 10);
    let mut segment = MadeSegment::new(1, &files);
    let mut index = files.offset_index.clone();
    // Offset 39 is said to be where offset 59 is.
    let place = |entry: usize| 8 * entry + 4..8 * entry + 8;
    let further = index[place(4)].to_vec();
    index[place(2)].copy_from_slice(&further);
    segment.offset_index = Some(index.into());
    tier.add(&segment).await;
    for offset in [39, 45] {
        let error = try_read(&tier.reader(), offset, MIB).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(
            error.to_string().contains("corrupt remote log bytes"),
            "{error}"
        );
    }
    assert_eq!(spans(&read(&tier.reader(), 25, BATCH).await), [(20, 29)]);
}

#[tokio::test]
async fn segments_of_several_epochs_are_read_in_each() {
    let tier = MadeTier::new();
    let mut files = SegmentFiles::new(0);
    for base_offset in (0..100).step_by(10) {
        let epoch = if base_offset < 50 { 0 } else { 2 };
        files.append(&BatchSpec::new(base_offset, 10, BATCH).epoch(epoch));
    }
    let mut segment = MadeSegment::new(1, &files.roll());
    segment.epochs = [(0, 0), (2, 50)].into();
    tier.add(&segment).await;
    let reader = tier.reader();
    let epochs = reader.leader_epochs(&partition(0)).await.unwrap();
    assert_eq!(epochs, [(LeaderEpoch(0), 0), (LeaderEpoch(2), 50)].into());
    for (epoch, offset, is_there) in [(0, 49, true), (0, 50, false), (2, 49, false), (2, 50, true)]
    {
        let read = reader
            .read(&partition(0), LeaderEpoch(epoch), offset, BATCH)
            .await
            .unwrap();
        assert_eq!(read.is_some(), is_there, "({epoch}, {offset})");
    }
}

#[tokio::test]
async fn a_log_that_begins_outside_of_its_segment_is_an_error_and_not_passed_over() {
    for begins_with in [0, 200] {
        let tier = MadeTier::new();
        let others = SegmentFiles::uniform(begins_with, 2 * BATCH, BATCH, 10);
        let mut segment = MadeSegment::new(1, &SegmentFiles::uniform(100, 2 * BATCH, BATCH, 10));
        segment.log = Some(others.log.into());
        tier.add(&segment).await;
        let next = SegmentFiles::uniform(120, 2 * BATCH, BATCH, 10);
        tier.add(&MadeSegment::new(2, &next)).await;
        let error = try_read(&tier.reader(), 100, KIB).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let says = format!("begins with offset {begins_with}: it is not the segment's");
        assert!(error.to_string().contains(&says), "{error}");
    }
}
