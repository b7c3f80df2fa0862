//! Metadata made anew from a tier: from one that Kafka wrote, and from damaged and odd ones.

mod log_end;
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use bytes::Bytes;
use krabka_remote_storage::backends::{ObjectStoreClient, RequestLimits, StoreHandles};
use krabka_remote_storage::layout::{KeyPrefix, parse_partition_dir_name, segment_key};
use krabka_remote_storage::metadata::RemoteLogMetadataCache;
use krabka_remote_storage::ops::Listing;
use krabka_remote_storage::rebuild::{RebuiltPartition, TierRebuilder, list_segments};
use krabka_remote_storage::{
    ErrorKind, IndexType, LOG_FILE_SUFFIX, LeaderEpoch, RemoteLogSegmentMetadata,
    RemoteLogSegmentState, RemoteStorage, RemoteStorageError, TopicIdPartition, kafka_uuid,
};
use object_store::path::Path;
use object_store::{ObjectStore as _, ObjectStoreExt as _};
use proptest::prelude::*;
use uuid::Uuid;

use crate::support::metadata_topic::{answers, data, epoch, int, replay, rows};
use crate::support::with;
use krabka_remote_storage::testing::segments::metadata;
use krabka_remote_storage::testing::store::{Fate, Outcome, TestStore};

fn rebuilder(store: &Arc<TestStore>) -> TierRebuilder<RemoteStorage> {
    let handles = StoreHandles::with_multipart(Arc::clone(store));
    // One attempt a request, so that each answer is seen as it is.
    let limits = with(RequestLimits::default(), |it| it.max_retries = 0);
    let storage = RemoteStorage::builder(Arc::new(ObjectStoreClient::new(handles)))
        .limits(limits)
        .build()
        .unwrap();
    TierRebuilder::new(storage)
}

async fn listing(store: &TestStore, dir: &str) -> Listing {
    let list = store
        .inner
        .list_with_delimiter(Some(&Path::from(dir)))
        .await;
    Listing::new(list.unwrap().objects, Vec::new())
}

fn ids(segments: &[RemoteLogSegmentMetadata]) -> Vec<u128> {
    let id = |s: &RemoteLogSegmentMetadata| s.remote_log_segment_id().id.as_u128();
    segments.iter().map(id).collect()
}

/// What a segment is, apart from the events that made it.
fn facts(
    segment: &RemoteLogSegmentMetadata,
) -> (Uuid, i64, i64, i32, BTreeMap<LeaderEpoch, i64>, bool) {
    (
        segment.remote_log_segment_id().id,
        segment.start_offset(),
        segment.end_offset(),
        segment.segment_size_in_bytes(),
        segment.segment_leader_epochs().clone(),
        segment.txn_index_empty(),
    )
}

#[tokio::test]
async fn the_metadata_of_kafkas_tier_is_what_kafka_itself_had() {
    let caches = replay();
    let answers = answers();
    let mut partitions = 0;
    for dir in fs::read_dir(data().join("tier/kafka-tiered-storage")).unwrap() {
        let dir = dir.unwrap();
        let name = dir.file_name().into_string().unwrap();
        let Some(parsed) = parse_partition_dir_name(&name) else {
            continue;
        };
        partitions += 1;
        let key = format!(
            "{}:{}:{}",
            kafka_uuid(parsed.topic_id),
            parsed.topic,
            parsed.partition
        );
        let tp = TopicIdPartition::new(parsed.topic_id, parsed.topic, parsed.partition);

        let store = TestStore::new();
        let files = fs::read_dir(dir.path()).unwrap();
        let mut files: Vec<_> = files.map(|file| file.unwrap()).collect();
        // As they were copied: in the order of offsets.
        files.sort_by_key(fs::DirEntry::file_name);
        for file in files {
            let object = Path::from(format!("{name}/{}", file.file_name().to_str().unwrap()));
            let bytes = Bytes::from(fs::read(file.path()).unwrap());
            store.inner.put(&object, bytes.into()).await.unwrap();
        }
        let rebuilt = rebuilder(&store)
            .rebuild_partition(&tp, &listing(&store, &name).await)
            .await
            .unwrap();

        assert!(rebuilt.skipped.is_empty(), "{name}: {:?}", rebuilt.skipped);
        let expected: Vec<_> = caches[&key]
            .list_segments()
            .iter()
            .filter(|view| view.state() == RemoteLogSegmentState::CopySegmentFinished)
            .map(|view| facts(&view.to_metadata()))
            .collect();
        let found: Vec<_> = rebuilt.dump.segments.iter().map(facts).collect();
        assert_eq!(found, expected, "{name}");
        // A checkpoint for each segment; index and end of the last log.
        assert_eq!(store.requests().len(), expected.len() + 2, "{name}");

        let cache = RemoteLogMetadataCache::import(rebuilt.dump);
        for row in rows(&answers[&key]["lookups"]) {
            let found = cache.find_segment(epoch(row), int(&row["offset"]));
            let found = found.map(|view| kafka_uuid(view.id()));
            assert_eq!(found.as_deref(), row["segment_id"].as_str(), "{name} {row}");
        }
    }
    assert_eq!(partitions, 7);
}

/// A tier of one partition, made object by object.
struct Tier {
    store: Arc<TestStore>,
    tp: TopicIdPartition,
}

impl Tier {
    fn new() -> Self {
        Self {
            store: TestStore::new(),
            tp: metadata(0, 0, 0).topic_id_partition().clone(),
        }
    }

    async fn put(&self, id: u128, start: i64, suffix: &str, bytes: impl Into<Bytes>) {
        let key = segment_key(&KeyPrefix::default(), &metadata(id, start, 0), suffix).unwrap();
        self.store
            .inner
            .put(&key, bytes.into().into())
            .await
            .unwrap();
    }

    /// A complete segment whose log has these batches, each `(base offset, last offset, size)`.
    async fn segment(&self, id: u128, epochs: &[(i32, i64)], batches: &[(i64, i64, usize)]) {
        let start = batches[0].0;
        let log: Vec<u8> = batches.iter().flat_map(|batch| magic_2(*batch)).collect();
        self.put(id, start, IndexType::Offset.suffix(), Bytes::new())
            .await;
        self.put(
            id,
            start,
            IndexType::LeaderEpoch.suffix(),
            checkpoint(epochs),
        )
        .await;
        self.put(id, start, LOG_FILE_SUFFIX, log).await;
    }

    async fn listing(&self) -> Listing {
        let dir = krabka_remote_storage::partition_dir_name(&metadata(0, 0, 0));
        listing(&self.store, &dir).await
    }

    async fn rebuild(&self) -> RebuiltPartition {
        let listing = self.listing().await;
        rebuilder(&self.store)
            .rebuild_partition(&self.tp, &listing)
            .await
            .unwrap()
    }
}

fn checkpoint(epochs: &[(i32, i64)]) -> String {
    let lines = epochs
        .iter()
        .map(|(epoch, start)| format!("{epoch} {start}\n"));
    format!("0\n{}\n{}", epochs.len(), lines.collect::<String>())
}

/// A batch of magic 2 that is `size` bytes long. No record of it is ever looked at.
fn magic_2((base, last, size): (i64, i64, usize)) -> Vec<u8> {
    let mut batch = vec![0xab; size];
    batch[..8].copy_from_slice(&base.to_be_bytes());
    batch[8..12].copy_from_slice(&i32::try_from(size - 12).unwrap().to_be_bytes());
    batch[16] = 2;
    batch[23..27].copy_from_slice(&i32::try_from(last - base).unwrap().to_be_bytes());
    batch
}

/// The batch as a leader of this epoch appended it.
fn of_epoch(epoch: i32, mut batch: Vec<u8>) -> Vec<u8> {
    batch[12..16].copy_from_slice(&epoch.to_be_bytes());
    batch
}

fn offset_index(entries: &[(u32, u32)]) -> Vec<u8> {
    let entry = |(offset, position): &(u32, u32)| [offset.to_be_bytes(), position.to_be_bytes()];
    entries.iter().flat_map(entry).flatten().collect()
}

fn ends(rebuilt: &RebuiltPartition) -> Vec<(i64, i64)> {
    let segments = rebuilt.dump.segments.iter();
    segments
        .map(|s| (s.start_offset(), s.end_offset()))
        .collect()
}

fn skipped_because(rebuilt: &RebuiltPartition) -> Vec<(u128, ErrorKind)> {
    let skipped = rebuilt.skipped.iter();
    skipped
        .map(|skip| (skip.segment.id.id.as_u128(), skip.reason.kind()))
        .collect()
}

#[tokio::test]
async fn a_segment_without_its_log_is_listed_and_not_read() {
    let tier = Tier::new();
    tier.segment(1, &[(0, 0)], &[(0, 9, 100)]).await;
    tier.put(
        2,
        10,
        IndexType::LeaderEpoch.suffix(),
        checkpoint(&[(0, 0)]),
    )
    .await;
    tier.put(3, 20, ".log.partial", "half of it").await;
    let strange = Path::from("orders-0-AAAAAAAAAAAAAAAAAAAAAQ/README");
    tier.store
        .inner
        .put(&strange, "hello".into())
        .await
        .unwrap();

    let listed = list_segments(&tier.tp, &tier.listing().await);
    let complete: Vec<_> = listed
        .iter()
        .map(|s| (s.start_offset, s.is_complete()))
        .collect();
    assert_eq!(complete, [(0, true), (10, false), (20, false)]);
    assert_eq!(listed[0].size(), 100 + 8);
    assert_eq!(listed[0].log().unwrap().size, 100);
    assert!(listed[1].object(".leader_epoch_checkpoint").is_some());

    let rebuilt = tier.rebuild().await;
    assert_eq!(ids(&rebuilt.dump.segments), [1]);
    assert!(rebuilt.skipped.is_empty());
    assert_eq!(
        ends(&rebuilt),
        [(0, 9)],
        "an incomplete segment bounds nothing"
    );
}

#[tokio::test]
async fn a_segment_ends_before_the_next_one_of_its_lineage() {
    let tier = Tier::new();
    // The log ends at 7: 8 and 9 were compacted away.
    tier.segment(1, &[(0, 0)], &[(0, 7, 100)]).await;
    tier.segment(2, &[(0, 0), (1, 15)], &[(10, 19, 100)]).await;
    tier.segment(3, &[(0, 0), (1, 15)], &[(20, 25, 100)]).await;
    let rebuilt = tier.rebuild().await;
    assert_eq!(ends(&rebuilt), [(0, 9), (10, 19), (20, 25)]);
    let epochs: Vec<_> = rebuilt.dump.segments[1]
        .segment_leader_epochs()
        .iter()
        .collect();
    assert_eq!(epochs, [(&LeaderEpoch(0), &10), (&LeaderEpoch(1), &15)]);
    assert_eq!(tier.store.requests().len(), 3 + 2);
}

#[tokio::test]
async fn a_gap_in_which_an_epoch_began_does_not_belong_to_the_segment_before() {
    let tier = Tier::new();
    tier.segment(1, &[(0, 0)], &[(0, 9, 100)]).await;
    // 10..=19 is missing, and epoch 1 began in it.
    tier.segment(3, &[(0, 0), (1, 12)], &[(20, 29, 100)]).await;
    let rebuilt = tier.rebuild().await;
    assert_eq!(ends(&rebuilt), [(0, 9), (20, 29)]);
    assert_eq!(tier.store.requests().len(), 2 + 4);
}

#[tokio::test]
async fn a_segment_of_another_lineage_bounds_nothing_and_is_superseded() {
    let tier = Tier::new();
    // A leader of epoch 0 copied 50..=99; epoch 1 began at 50 on the leader that came after it.
    tier.segment(1, &[(0, 0)], &[(0, 49, 100)]).await;
    tier.segment(2, &[(0, 0)], &[(50, 99, 100)]).await;
    tier.segment(3, &[(0, 0), (1, 50)], &[(50, 149, 100)]).await;
    tier.segment(4, &[(0, 0), (1, 50)], &[(150, 160, 100)])
        .await;
    let rebuilt = tier.rebuild().await;
    assert_eq!(ids(&rebuilt.dump.segments), [1, 2, 3, 4]);
    assert_eq!(ends(&rebuilt), [(0, 49), (50, 99), (50, 149), (150, 160)]);
    let cache = RemoteLogMetadataCache::import(rebuilt.dump);
    let found = |epoch, offset| {
        let segment = cache.find_segment(LeaderEpoch(epoch), offset);
        segment.map(|segment| segment.id().as_u128())
    };
    assert_eq!(
        found(0, 60),
        Some(2),
        "what is written in epoch 0 stays readable in it"
    );
    assert_eq!(found(1, 60), Some(3));
    assert_eq!(found(1, 160), Some(4));
}

#[tokio::test]
async fn of_overlapping_copies_the_one_that_finished_last_answers() {
    // Whatever the ids: the later `.log` wins, as its copy finished later.
    for (first, second) in [(1, 2), (2, 1)] {
        let tier = Tier::new();
        tier.segment(first, &[(0, 0)], &[(0, 99, 100)]).await;
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        tier.segment(second, &[(0, 0)], &[(0, 99, 100)]).await;
        let rebuilt = tier.rebuild().await;
        assert_eq!(
            ids(&rebuilt.dump.segments),
            [1, 2],
            "the other one stays listed"
        );
        let cache = RemoteLogMetadataCache::import(rebuilt.dump);
        let found = cache.find_segment(LeaderEpoch(0), 50).unwrap();
        assert_eq!(found.id().as_u128(), second);
    }
}

#[tokio::test]
async fn of_overlapping_copies_that_of_a_later_leader_answers_however_old_it_is() {
    let tier = Tier::new();
    tier.segment(1, &[(0, 0), (1, 50)], &[(0, 99, 100)]).await;
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    // The leader of epoch 0 was late.
    tier.segment(2, &[(0, 0)], &[(0, 69, 100)]).await;
    let cache = RemoteLogMetadataCache::import(tier.rebuild().await.dump);
    for (epoch, offset) in [(0, 49), (1, 50)] {
        let found = cache.find_segment(LeaderEpoch(epoch), offset).unwrap();
        assert_eq!(found.id().as_u128(), 1, "offset {offset}");
    }
}

#[tokio::test]
async fn of_overlapping_copies_of_one_moment_the_one_of_the_higher_id_finished_last() {
    for (longer, shorter) in [(1, 2), (2, 1)] {
        let tier = Tier::new();
        tier.segment(longer, &[(0, 0)], &[(0, 199, 100)]).await;
        // The log's start was moved up to 100 before this copy.
        tier.segment(shorter, &[(0, 100)], &[(100, 199, 100)]).await;
        let mut listing = tier.listing().await;
        for object in &mut listing.objects {
            object.last_modified = std::time::UNIX_EPOCH.into();
        }
        let rebuilt = rebuilder(&tier.store)
            .rebuild_partition(&tier.tp, &listing)
            .await
            .unwrap();
        let cache = RemoteLogMetadataCache::import(rebuilt.dump);
        let found = cache.find_segment(LeaderEpoch(0), 150).unwrap();
        assert_eq!(found.id().as_u128(), 2);
    }
}

#[tokio::test]
async fn a_transaction_index_without_entries_is_none() {
    let tier = Tier::new();
    for (id, start, index) in [(1, 0, None), (2, 10, Some("")), (3, 20, Some("entries"))] {
        tier.segment(id, &[(0, 0)], &[(start, start + 9, 100)])
            .await;
        if let Some(index) = index {
            tier.put(id, start, IndexType::Transaction.suffix(), index)
                .await;
        }
    }
    let segments = tier.rebuild().await.dump.segments;
    let empty: Vec<_> = segments
        .iter()
        .map(RemoteLogSegmentMetadata::txn_index_empty)
        .collect();
    assert_eq!(empty, [true, true, false]);
}

#[tokio::test]
async fn a_later_copy_that_holds_earlier_ones_supersedes_them() {
    let tier = Tier::new();
    tier.segment(1, &[(0, 0)], &[(0, 99, 100)]).await;
    tier.segment(2, &[(0, 0)], &[(100, 199, 100)]).await;
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    tier.segment(3, &[(0, 0)], &[(0, 199, 100)]).await;
    tier.segment(4, &[(0, 0)], &[(200, 209, 100)]).await;
    let rebuilt = tier.rebuild().await;
    assert_eq!(ends(&rebuilt), [(0, 99), (0, 199), (100, 199), (200, 209)]);
    let cache = RemoteLogMetadataCache::import(rebuilt.dump);
    for offset in [0, 99, 100, 199] {
        let found = cache.find_segment(LeaderEpoch(0), offset).unwrap();
        assert_eq!(found.id().as_u128(), 3, "offset {offset}");
    }
}

#[tokio::test]
async fn damaged_segments_are_skipped_and_named() {
    let tier = Tier::new();
    let suffix = IndexType::LeaderEpoch.suffix();
    tier.put(1, 0, LOG_FILE_SUFFIX, magic_2((0, 9, 100))).await;
    tier.segment(2, &[(0, 0)], &[(10, 19, 100)]).await;
    tier.put(2, 10, suffix, "0\n7\n0 0\n").await;
    // One batch tells its epoch, and the other does not.
    let half = [of_epoch(0, magic_2((10, 14, 100))), magic_2((15, 19, 100))];
    tier.put(2, 10, LOG_FILE_SUFFIX, half.concat()).await;
    tier.segment(3, &[(0, 0)], &[(20, 29, 100)]).await;
    tier.put(3, 20, suffix, "0\n0\n").await;
    tier.segment(4, &[(0, 0)], &[(30, 39, 100)]).await;
    tier.segment(5, &[(1, 40)], &[(40, 49, 100)]).await;
    let cut = magic_2((40, 49, 100))[..99].to_vec();
    tier.put(5, 40, LOG_FILE_SUFFIX, cut).await;
    let rebuilt = tier.rebuild().await;
    assert_eq!(ids(&rebuilt.dump.segments), [4]);
    assert_eq!(
        skipped_because(&rebuilt),
        [
            (1, ErrorKind::NotFound), // no checkpoint
            (2, ErrorKind::Corrupt),  // fewer entries than declared
            (3, ErrorKind::Invalid),  // no epoch at all
            (5, ErrorKind::Corrupt),  // the log is cut off
        ]
    );
}

#[tokio::test]
async fn a_lost_checkpoint_is_made_anew_from_the_batches() {
    let suffix = IndexType::LeaderEpoch.suffix();
    let of_later_segment = Some("0\n1\n3 30\n");
    for lost in [
        Some("0\n7\n0 0\n"),
        Some("0\n0\n"),
        Some(""),
        of_later_segment,
        None,
    ] {
        let tier = Tier::new();
        let epochs = [(0, 0), (2, 15), (3, 25)];
        tier.segment(1, &epochs[..1], &[(0, 9, 100)]).await;
        tier.segment(
            2,
            &epochs,
            &[(10, 14, 100), (15, 19, 100), (20, 24, 100), (25, 28, 70)],
        )
        .await;
        let mut log = Vec::new();
        // Compaction has removed the first records, and the last.
        for (epoch, batch) in [
            (0, (12, 14, 100)),
            (2, (15, 19, 100)),
            (2, (20, 24, 100)),
            (3, (26, 28, 70)),
        ] {
            log.extend(of_epoch(epoch, magic_2(batch)));
        }
        tier.put(2, 10, LOG_FILE_SUFFIX, log).await;
        tier.segment(3, &epochs, &[(30, 39, 100)]).await;
        if let Some(text) = lost {
            tier.put(2, 10, suffix, text).await;
        } else {
            let key = segment_key(&KeyPrefix::default(), &metadata(2, 10, 0), suffix).unwrap();
            tier.store.inner.delete(&key).await.unwrap();
        }
        let rebuilt = tier.rebuild().await;
        assert_eq!(ids(&rebuilt.dump.segments), [1, 2, 3], "{lost:?}");
        let found = rebuilt.dump.segments[1].segment_leader_epochs();
        let expected =
            [(0, 10), (2, 15), (3, 26)].map(|(epoch, start)| (LeaderEpoch(epoch), start));
        assert_eq!(*found, BTreeMap::from(expected), "{lost:?}");
        assert_eq!(ends(&rebuilt), [(0, 9), (10, 28), (30, 39)], "{lost:?}");
        assert!(rebuilt.skipped.is_empty());
        let mended: Vec<_> = rebuilt
            .mended
            .iter()
            .map(|s| s.segment.start_offset)
            .collect();
        assert_eq!(mended, [10], "{lost:?}");
    }
}

#[tokio::test]
async fn a_checkpoint_that_goes_on_behind_its_segment_takes_no_offsets_from_others() {
    let tier = Tier::new();
    let epochs = [(0, 0), (1, 15), (2, 25)];
    // The first one has the checkpoint of the last.
    tier.segment(1, &epochs, &[(0, 9, 100)]).await;
    tier.segment(2, &epochs[..2], &[(10, 19, 100)]).await;
    tier.segment(3, &epochs, &[(20, 29, 100)]).await;
    tier.segment(4, &epochs, &[(30, 39, 100)]).await;
    let rebuilt = tier.rebuild().await;
    assert_eq!(ends(&rebuilt), [(0, 9), (10, 19), (20, 29), (30, 39)]);
    let cache = RemoteLogMetadataCache::import(rebuilt.dump);
    for (epoch, offset, id) in [(0, 9, 1), (0, 10, 2), (1, 15, 2), (1, 24, 3), (2, 30, 4)] {
        let found = cache.find_segment(LeaderEpoch(epoch), offset).unwrap();
        assert_eq!(found.id().as_u128(), id, "offset {offset}");
    }
}

#[tokio::test]
async fn a_log_larger_than_any_segment_is_skipped() {
    let tier = Tier::new();
    tier.segment(1, &[(0, 0)], &[(0, 9, 100)]).await;
    tier.segment(2, &[(0, 0)], &[(10, 19, 100)]).await;
    let mut listing = tier.listing().await;
    let log = listing
        .objects
        .iter_mut()
        .find(|object| object.location.as_ref().ends_with(LOG_FILE_SUFFIX));
    log.unwrap().size = 1 << 31;
    let rebuilt = rebuilder(&tier.store)
        .rebuild_partition(&tier.tp, &listing)
        .await
        .unwrap();
    assert_eq!(ids(&rebuilt.dump.segments), [2]);
    assert_eq!(skipped_because(&rebuilt), [(1, ErrorKind::Invalid)]);
    assert!(
        rebuilt.skipped[0]
            .reason
            .to_string()
            .contains("2147483648 bytes")
    );
}

#[tokio::test]
async fn a_failing_store_is_an_error_and_not_an_empty_partition() {
    let tier = Tier::new();
    tier.segment(1, &[(0, 0)], &[(0, 9, 100)]).await;
    tier.segment(2, &[(0, 0)], &[(10, 19, 100)]).await;
    for suffix in [".leader_epoch_checkpoint", ".index", ".log"] {
        tier.store.script(move |request, _| Fate {
            outcome: if request.key.ends_with(suffix) {
                Outcome::Failed(503)
            } else {
                Outcome::Served
            },
            ..Fate::default()
        });
        let listing = tier.listing().await;
        let result = rebuilder(&tier.store)
            .rebuild_partition(&tier.tp, &listing)
            .await;
        let error = result.unwrap_err();
        assert!(
            matches!(
                error,
                RemoteStorageError::Backend {
                    status: Some(503),
                    ..
                }
            ),
            "{error}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever lies in the objects of a tier: an answer or a reason, and no panic.
    #[test]
    fn any_bytes_are_rebuilt_or_skipped(
        log in prop::collection::vec(any::<u8>(), 0..200),
        index in prop::collection::vec(any::<u8>(), 0..40),
        epochs in "0\n[0-2]\n([0-9]{1,2} [0-9]{1,19}\n){0,3}",
        start in prop_oneof![0..50_i64, Just(i64::MAX - 9)],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let tier = Tier::new();
            for (id, start) in [(1, start), (2, 60)] {
                let metadata = [
                    (LOG_FILE_SUFFIX, Bytes::from(log.clone())),
                    (IndexType::Offset.suffix(), Bytes::from(index.clone())),
                    (IndexType::LeaderEpoch.suffix(), Bytes::from(epochs.clone())),
                ];
                for (suffix, bytes) in metadata {
                    tier.put(id, start, suffix, bytes).await;
                }
            }
            let rebuilt = tier.rebuild().await;
            assert_eq!(rebuilt.dump.segments.len() + rebuilt.skipped.len(), 2);
        });
    }
}
