//! Metadata that is lost is made anew from the archive, equal to what it was.

use futures::TryStreamExt as _;
use krabka_remote_storage::archive::{VerifyBreakKind, VerifyRequest, authenticate_archive};
use krabka_remote_storage::rebuild::dump_archive;
use krabka_remote_storage::testing::segments::SegmentSpec;
use krabka_remote_storage::{
    AuthenticatedArchive, ChainStamp, InmemoryRemoteLogMetadataManager, LeaderEpoch,
    RemoteLogMetadataManager as _, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState, RemoteStorageError, TopicIdPartition, WormChainRecord, WormError,
};
use object_store::ObjectStoreExt as _;
use object_store::path::Path;
use uuid::Uuid;

use super::store::ReadOnly;
use crate::support::archive::{Archive, Key, Sealed, epoch, shallow, trusted};

/// The manager that the archive's copies went through.
fn original(segments: &[Sealed]) -> InmemoryRemoteLogMetadataManager {
    let manager = InmemoryRemoteLogMetadataManager::new();
    for sealed in segments {
        let started = &sealed.metadata;
        manager
            .add_remote_log_segment_metadata(started.clone())
            .unwrap();
        manager
            .update_remote_log_segment_metadata(RemoteLogSegmentMetadataUpdate::new(
                started.remote_log_segment_id().clone(),
                started.event_timestamp_ms(),
                Some(sealed.receipt.to_custom_metadata()),
                RemoteLogSegmentState::CopySegmentFinished,
                started.broker_id(),
            ))
            .unwrap();
    }
    manager
}

async fn authenticated(archive: &Archive) -> AuthenticatedArchive {
    authenticate_archive(&archive.store(), &shallow(), &trusted())
        .await
        .unwrap()
}

async fn rebuilt(archive: &Archive) -> InmemoryRemoteLogMetadataManager {
    let authenticated = authenticated(archive).await;
    let dump = dump_archive(&archive.memory, &authenticated).await.unwrap();
    let manager = InmemoryRemoteLogMetadataManager::new();
    manager.import(dump);
    manager
}

/// A segment with epochs, timestamps and a broker of its own.
fn segment(
    start: i64,
    end: i64,
    epochs: &[(i32, i64)],
    event_timestamp_ms: i64,
    stamp: ChainStamp,
) -> RemoteLogSegmentMetadata {
    let tp = TopicIdPartition::new(Uuid::from_u128(0x70), "deep.topic_1", 3);
    let id = 0x9000 + u128::try_from(event_timestamp_ms).unwrap();
    let spec = SegmentSpec::new(id, start..=end).of(&tp).size(4321);
    let spec = spec.at(event_timestamp_ms - 7, event_timestamp_ms);
    let spec = spec.broker(i32::try_from(event_timestamp_ms % 5).unwrap());
    let segment = spec.epochs(epochs).make();
    segment
        .with_txn_index_empty(start % 200 == 0)
        .with_custom_metadata(WormChainRecord::request(stamp).to_custom_metadata())
}

/// First and last offset, and where leader epochs begin.
type Shape = (i64, i64, &'static [(i32, i64)]);

/// A partition whose segments overlap, in runs that began in another order than their offsets.
async fn with_overlaps() -> Archive {
    let mut archive = Archive::empty();
    let runs: [(u128, &[Shape]); 3] = [
        (
            3,
            &[(100, 199, &[(0, 100), (2, 150)]), (200, 299, &[(2, 200)])],
        ),
        // A new leader copies from the beginning.
        (1, &[(0, 149, &[(0, 0)]), (150, 260, &[(2, 150), (4, 255)])]),
        (
            2,
            &[
                (100, 260, &[(0, 100), (2, 150)]),
                (261, 400, &[(4, 261), (7, 390)]),
            ],
        ),
    ];
    let mut now = 1000;
    for (run, segments) in runs {
        let mut stamp = ChainStamp::genesis(epoch(run));
        for (start, end, epochs) in segments {
            now += 10;
            let metadata = segment(*start, *end, epochs, now, stamp);
            let sealed = archive.seal_metadata(metadata, Key::usual()).await;
            stamp = sealed.receipt.next_stamp().unwrap();
        }
    }
    archive
}

#[tokio::test]
async fn the_dump_of_an_archive_is_that_of_the_manager_that_made_it() {
    for archive in [
        Archive::sealed().await,
        with_overlaps().await,
        Archive::empty(),
    ] {
        let (original, rebuilt) = (original(&archive.segments), rebuilt(&archive).await);
        assert_eq!(rebuilt.export(), original.export());
    }
}

#[tokio::test]
async fn every_query_has_the_answer_that_it_had() {
    let archive = with_overlaps().await;
    let (original, rebuilt) = (original(&archive.segments), rebuilt(&archive).await);
    let tp = archive.segments[0].metadata.topic_id_partition();
    let mut answered = 0;
    for leader_epoch in -1..9 {
        let leader_epoch = LeaderEpoch(leader_epoch);
        assert_eq!(
            rebuilt.highest_offset_for_epoch(tp, leader_epoch).unwrap(),
            original.highest_offset_for_epoch(tp, leader_epoch).unwrap()
        );
        let list = |manager: &InmemoryRemoteLogMetadataManager| {
            manager
                .list_remote_log_segments_by_epoch(tp, leader_epoch)
                .unwrap()
        };
        assert_eq!(list(&rebuilt), list(&original));
        let size = |manager: &InmemoryRemoteLogMetadataManager| {
            manager.remote_log_size(tp, leader_epoch).unwrap()
        };
        assert_eq!(size(&rebuilt), size(&original));
        for offset in 0..410 {
            let ask = |manager: &InmemoryRemoteLogMetadataManager| {
                manager
                    .remote_log_segment_metadata(tp, leader_epoch, offset)
                    .unwrap()
            };
            let answer = ask(&original);
            answered += usize::from(answer.is_some());
            assert_eq!(ask(&rebuilt), answer, "{leader_epoch:?} {offset}");
            let next = |manager: &InmemoryRemoteLogMetadataManager| {
                manager
                    .next_segment_with_txn_index(tp, leader_epoch, offset)
                    .unwrap()
            };
            assert_eq!(next(&rebuilt), next(&original));
        }
    }
    assert!(answered > 300, "{answered}");
}

#[tokio::test]
async fn manifests_come_in_the_order_of_the_chain_and_a_few_are_held() {
    let archive = Archive::sealed().await;
    let authenticated = authenticated(&archive).await;
    let manifests: Vec<_> = authenticated
        .manifests(&archive.memory)
        .try_collect()
        .await
        .unwrap();
    let found: Vec<_> = manifests
        .iter()
        .map(|m| (&m.manifest_key, &m.manifest, m.head))
        .collect();
    let sealed: Vec<_> = archive
        .segments
        .iter()
        .map(|s| (&s.manifest_key, &s.manifest, s.receipt.head.unwrap()))
        .collect();
    assert_eq!(found, sealed);
}

#[tokio::test]
async fn what_is_not_proven_makes_no_metadata() {
    let archive = Archive::sealed().await;
    // A break in one partition, an unknown key in another.
    let log = archive.segments[1].key(".log");
    archive
        .put(&log, archive.get(&log).await.to_ascii_uppercase())
        .await;
    let other = Key::new("other", 9).sign(archive.segments[7].manifest.body.clone());
    archive
        .put_manifest(&archive.segments[7].manifest_key, &other)
        .await;
    let authenticated = authenticated(&archive).await;
    assert_eq!(
        authenticated.report().first_break().map(|found| found.kind),
        Some(VerifyBreakKind::Digest)
    );
    let dump = dump_archive(&archive.memory, &authenticated).await.unwrap();
    let expected = original(&archive.segments[3..7]).export();
    assert_eq!(dump, expected);
}

#[tokio::test]
async fn a_manifest_that_is_another_by_now_is_refused() {
    let archive = Archive::one_run(2).await;
    let authenticated = authenticated(&archive).await;
    let key = &archive.segments[1].manifest_key;
    let refused = async |archive: &Archive, says: &str| {
        let error = dump_archive(&archive.memory, &authenticated)
            .await
            .unwrap_err();
        let RemoteStorageError::Worm(WormError::Archive(text)) = &error else {
            panic!("{error:?}");
        };
        assert!(text.contains(key) && text.contains(says), "{text}");
    };
    let changed = archive.fork();
    changed
        .resign(1, |body| body.segment.max_timestamp_ms += 1)
        .await;
    refused(&changed, "changed").await;
    let removed = archive.fork();
    removed.delete(key).await;
    refused(&removed, "removed").await;

    let mut store = ReadOnly::new(&archive.memory);
    store.refused.insert(key.clone());
    dump_archive(&store, &authenticated).await.unwrap_err();
}

#[tokio::test]
async fn one_partition_in_two_places_is_no_metadata() {
    let archive = Archive::one_run(1).await;
    // The same archive again, sealed below another prefix.
    let sealed = &archive.segments[0];
    let mut body = sealed.manifest.body.clone();
    for object in &mut body.objects {
        let bytes = archive.get(&object.key).await;
        object.key = format!("second/{}", object.key);
        let path = Path::parse(&object.key).unwrap();
        archive.memory.put(&path, bytes.into()).await.unwrap();
    }
    let key = format!("second/{}", sealed.manifest_key);
    archive.put_manifest(&key, &Key::usual().sign(body)).await;
    let whole = VerifyRequest::default();
    let authenticated = authenticate_archive(&archive.store(), &whole, &trusted())
        .await
        .unwrap();
    assert!(authenticated.report().ok());
    let error = dump_archive(&archive.memory, &authenticated)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, RemoteStorageError::InvalidArgument(_)),
        "{error:?}"
    );
    assert!(
        error.to_string().contains("second/archive/orders-0-"),
        "{error}"
    );
}
