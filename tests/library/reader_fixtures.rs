//! The reader over the tier that a real Kafka wrote, against what Kafka's consumer says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use krabka_remote_storage::backends::LocalClient;
use krabka_remote_storage::index::{Batches, DEFAULT_MAX_DECOMPRESSED_BYTES};
use krabka_remote_storage::metadata::InmemoryRemoteLogMetadataManager;
use krabka_remote_storage::ops::{List, StoreTarget};
use krabka_remote_storage::rebuild::TierRebuilder;
use krabka_remote_storage::{
    LeaderEpoch, RemoteLogReader, RemoteStorage, RlmmCacheDump, TopicIdPartition,
    parse_partition_dir_name,
};
use proptest::prelude::*;
use serde_json::Value;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn json(path: &str) -> Value {
    serde_json::from_slice(&std::fs::read(data().join(path)).unwrap()).unwrap()
}

/// One tiered partition, and what Kafka's consumer says of it.
struct Tiered {
    name: String,
    partition: TopicIdPartition,
    reader: RemoteLogReader,
    epochs: BTreeMap<LeaderEpoch, i64>,
    earliest: i64,
    /// Inclusive.
    last_offset: i64,
    expected: Value,
}

impl Tiered {
    fn epoch_of(&self, offset: i64) -> LeaderEpoch {
        let mut begun = self.epochs.iter().filter(|(_, first)| **first <= offset);
        *begun
            .next_back()
            .map_or(self.epochs.first_key_value().unwrap().0, |(epoch, _)| epoch)
    }
}

/// Opens every partition that is in the tier and that the consumer was asked about.
async fn tiered_partitions() -> Vec<Tiered> {
    let root = data().join("tier/kafka-tiered-storage");
    let storage = RemoteStorage::builder(Arc::new(LocalClient::new(&root)))
        .build()
        .unwrap();
    let rebuilder = TierRebuilder::new(storage.clone());
    let metadata = Arc::new(InmemoryRemoteLogMetadataManager::new());
    let mut tiered = Vec::new();
    for entry in std::fs::read_dir(&root).unwrap() {
        let dir = entry.unwrap().file_name().into_string().unwrap();
        let parsed = parse_partition_dir_name(&dir).unwrap();
        let name = format!("{}-{}", parsed.topic, parsed.partition);
        if !data().join(format!("expected/{name}.json")).exists() {
            continue;
        }
        let partition = TopicIdPartition::new(parsed.topic_id, parsed.topic, parsed.partition);
        let target = StoreTarget::object(object_store::path::Path::from(dir));
        let listing = storage.send(List::new(target)).await.unwrap();
        let rebuilt = rebuilder
            .rebuild_partition(&partition, &listing)
            .await
            .unwrap();
        assert!(rebuilt.skipped.is_empty(), "{:?}", rebuilt.skipped);
        metadata.import(RlmmCacheDump {
            partitions: vec![rebuilt.dump],
        });
        let expected = json(&format!("expected/{name}.json"));
        let offset = |which: &str| expected["offsets"][which]["offset"].as_i64().unwrap();
        let reader = RemoteLogReader::new(storage.clone(), Arc::clone(&metadata) as _);
        tiered.push(Tiered {
            epochs: reader.leader_epochs(&partition).await.unwrap(),
            earliest: offset("earliest"),
            last_offset: offset("latest_tiered"),
            name,
            partition,
            reader,
            expected,
        });
    }
    assert!(tiered.len() >= 7, "{}", tiered.len());
    tiered
}

/// The logs of a partition's segments as they lie in the tier, by base offset.
fn logs(tiered: &Tiered) -> BTreeMap<i64, Vec<u8>> {
    let root = data().join("tier/kafka-tiered-storage");
    let dir = std::fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| {
            path.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with(&format!("{}-", tiered.name))
        })
        .unwrap();
    std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name[..20].parse().unwrap(), std::fs::read(path).unwrap())
        })
        .collect()
}

#[tokio::test]
async fn a_partition_read_from_its_start_is_its_log_byte_for_byte() {
    for tiered in tiered_partitions().await {
        for budget in [1, 4_096, 100_000] {
            let logs = logs(&tiered);
            let mut read: BTreeMap<i64, Vec<u8>> = BTreeMap::new();
            let mut offset = *logs.first_key_value().unwrap().0;
            while offset <= tiered.last_offset {
                let epoch = tiered.epoch_of(offset);
                let batches = tiered
                    .reader
                    .read(&tiered.partition, epoch, offset, budget)
                    .await
                    .unwrap();
                let batches = batches.unwrap_or_else(|| panic!("{} at {offset}", tiered.name));
                assert!(batches.next_offset > offset);
                let log = read.entry(batches.segment.start_offset()).or_default();
                assert_eq!(
                    batches.position,
                    log.len() as u64,
                    "{} at {offset}",
                    tiered.name
                );
                log.extend_from_slice(&batches.bytes);
                offset = batches.next_offset;
            }
            assert!(read == logs, "{} with {budget} bytes a read", tiered.name);
        }
    }
}

#[tokio::test]
async fn read_committed_offsets_are_those_that_kafkas_consumer_sees() {
    for tiered in tiered_partitions().await {
        let mut ranges: Vec<(i64, i64)> = Vec::new();
        for pair in tiered.expected["read_committed_ranges"].as_array().unwrap() {
            let (first, last) = (pair[0].as_i64().unwrap(), pair[1].as_i64().unwrap());
            ranges.push((first, last));
        }
        let undecided = tiered
            .reader
            .first_undecided_offset(&tiered.partition)
            .await
            .unwrap();
        let end = undecided.unwrap_or(i64::MAX).min(tiered.last_offset + 1);
        let expected: Vec<i64> = ranges
            .into_iter()
            .flat_map(|(first, last)| first..=last)
            .filter(|offset| *offset < end)
            .collect();
        for budget in [1, 3_000, 1 << 20] {
            let mut seen = Vec::new();
            let mut offset = tiered.earliest;
            while offset < end {
                let epoch = tiered.epoch_of(offset);
                let read = tiered
                    .reader
                    .read_committed(&tiered.partition, epoch, offset, budget, None)
                    .await
                    .unwrap()
                    .unwrap();
                assert_eq!(read.undecided_from, undecided);
                for batch in read
                    .visible_batches(DEFAULT_MAX_DECOMPRESSED_BYTES)
                    .unwrap()
                {
                    let records = batch.records(DEFAULT_MAX_DECOMPRESSED_BYTES).unwrap();
                    seen.extend(
                        records
                            .iter()
                            .map(|record| record.offset)
                            .filter(|o| *o >= offset),
                    );
                }
                offset = read.batches.next_offset;
            }
            seen.retain(|offset| *offset < end);
            assert_eq!(seen, expected, "{} with {budget} bytes a read", tiered.name);
        }
    }
}

#[tokio::test]
async fn aborted_transactions_are_found_from_any_offset() {
    // From wherever a consumer starts, the same offsets are visible from there on.
    for tiered in tiered_partitions().await {
        // One range: nothing was aborted, and nothing says where a transaction ended.
        let ranges = tiered.expected["read_committed_ranges"].as_array();
        if ranges.is_none_or(|ranges| ranges.len() < 2) {
            continue;
        }
        let undecided = tiered
            .reader
            .first_undecided_offset(&tiered.partition)
            .await
            .unwrap();
        let end = undecided.unwrap_or(i64::MAX).min(tiered.last_offset + 1);
        let visible = |offset: i64| {
            let ranges = tiered.expected["read_committed_ranges"].as_array().unwrap();
            ranges.iter().any(|pair| {
                (pair[0].as_i64().unwrap()..=pair[1].as_i64().unwrap()).contains(&offset)
            })
        };
        for start in tiered.earliest..end {
            let epoch = tiered.epoch_of(start);
            let read = tiered
                .reader
                .read_committed(&tiered.partition, epoch, start, 2_000, None)
                .await
                .unwrap()
                .unwrap();
            let mut seen = Vec::new();
            for batch in read
                .visible_batches(DEFAULT_MAX_DECOMPRESSED_BYTES)
                .unwrap()
            {
                let records = batch.records(DEFAULT_MAX_DECOMPRESSED_BYTES).unwrap();
                seen.extend(
                    records
                        .iter()
                        .map(|record| record.offset)
                        .filter(|o| *o >= start),
                );
            }
            let last = read.batches.next_offset.min(end);
            let expected: Vec<i64> = (start..last).filter(|offset| visible(*offset)).collect();
            assert_eq!(seen, expected, "{} from {start}", tiered.name);
        }
    }
}

#[tokio::test]
async fn offsets_for_timestamps_are_those_that_kafkas_consumer_gets() {
    let mut asked = 0;
    for tiered in tiered_partitions().await {
        for row in tiered.expected["offsets_for_times"].as_array().unwrap() {
            let ask = row["ask_ms"].as_i64().unwrap();
            let found = tiered
                .reader
                .offset_for_timestamp(&tiered.partition, ask, tiered.earliest, None)
                .await
                .unwrap();
            let expected = row["offset"]
                .as_i64()
                .filter(|offset| (0..=tiered.last_offset).contains(offset));
            let what = format!("{} at {ask}: {row}", tiered.name);
            assert_eq!(found.map(|found| found.offset), expected, "{what}");
            if let Some(found) = found {
                asked += 1;
                assert_eq!(
                    found.timestamp_ms,
                    row["timestamp_ms"].as_i64().unwrap(),
                    "{what}"
                );
                let epoch = row["leader_epoch"]
                    .as_i64()
                    .map(|epoch| LeaderEpoch(epoch.try_into().unwrap()));
                assert_eq!(found.leader_epoch, epoch, "{what}");
            }
        }
    }
    assert!(asked > 100, "{asked}");
}

#[test]
fn any_offset_and_any_budget_answer_whole_batches_of_the_file() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let all = runtime.block_on(tiered_partitions());
    let logs: Vec<_> = all.iter().map(logs).collect();
    let config = ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(which in 0..all.len(), at in any::<u32>(), budget in 0..200_000_usize)| {
        let (tiered, logs) = (&all[which], &logs[which]);
        let first = *logs.first_key_value().unwrap().0;
        let span = tiered.last_offset - first;
        let offset = first + i64::from(at) * span / i64::from(u32::MAX);
        let epoch = tiered.epoch_of(offset);
        let read = runtime
            .block_on(tiered.reader.read(&tiered.partition, epoch, offset, budget))
            .unwrap()
            .unwrap();
        // They are the file's own bytes.
        let log = &logs[&read.segment.start_offset()];
        let start = usize::try_from(read.position).unwrap();
        prop_assert_eq!(&read.bytes[..], &log[start..start + read.bytes.len()]);
        // They are whole, the first holds the offset, and only it may exceed the budget.
        let mut batches = Batches::new(&read.bytes);
        let mut next_offset = None;
        for (index, batch) in batches.by_ref().enumerate() {
            let batch = batch.unwrap();
            let header = batch.header().unwrap();
            if index == 0 {
                prop_assert!(header.base_offset() <= offset);
                prop_assert!(header.last_offset().unwrap() >= offset);
            } else {
                prop_assert!(batch.position() + batch.size() <= budget);
            }
            next_offset = Some(header.last_offset().unwrap() + 1);
        }
        prop_assert!(batches.remainder().is_empty());
        prop_assert!(next_offset.unwrap() <= read.next_offset);
        // As many as the budget allows: the next one would not have fitted.
        let end = start + read.bytes.len();
        if let Some(Ok(next)) = Batches::new(&log[end..]).next() {
            let sequential = read.bytes.len() >= budget / 2;
            prop_assert!(sequential || read.bytes.len() + next.size() > budget);
        }
    });
}

#[tokio::test]
async fn an_offset_outside_the_tier_or_its_lineage_is_none() {
    for tiered in tiered_partitions().await {
        let newest = *tiered.epochs.last_key_value().unwrap().0;
        let reader = &tiered.reader;
        let behind = tiered.last_offset + 1;
        assert!(
            reader
                .read(&tiered.partition, newest, behind, 1_000)
                .await
                .unwrap()
                .is_none()
        );
        let unknown = LeaderEpoch(newest.0 + 1);
        assert!(
            reader
                .read(&tiered.partition, unknown, tiered.last_offset, 1_000)
                .await
                .unwrap()
                .is_none()
        );
    }
}
