//! A tier and its metadata, both written by this crate, read by Kafka's broker.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use krabka_remote_storage::backends::LocalClient;
use krabka_remote_storage::ops::{List, StoreTarget};
use krabka_remote_storage::rebuild::TierRebuilder;
use krabka_remote_storage::topic::{KafkaMetadataLogConfig, METADATA_TOPIC};
use krabka_remote_storage::{
    RemoteLogMetadataStore as _, RemoteLogSegmentDetails, RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState, RemoteStorage, TopicIdPartition,
    kafka_uuid,
};
use uuid::Uuid;

use super::cluster::{Cluster, Managed, a_moment, log, within};
use super::tiered::Filled;
use crate::support::metadata_topic::int;

/// The broker that shares its topic has this id.
const BROKER: i32 = 1;

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_reads_the_segments_that_were_copied_and_announced_here() {
    let Some(kafka) = Cluster::shared() else {
        return;
    };
    let topic = format!("copied-{}", Uuid::new_v4());
    let filled = Filled::topic(&kafka, &topic, &["remote.log.copy.disable=true"]);
    let partition = filled.partition(0);
    let expected = filled.expected(0);
    assert_eq!(expected.offset("earliest"), 0);
    assert_eq!(expected.offset("latest_tiered"), -1);

    let local = kafka.dir().join(format!("node-1/data/{topic}-0"));
    copy(&local, &kafka.tier());
    let segments = segments_in(&kafka.tier(), &partition).await;
    assert!(segments.len() > 5, "{}", segments.len());

    let mut config = KafkaMetadataLogConfig::new(kafka.bootstrap());
    config.provision_topic = false;
    config.replication = 1;
    config.min_isr = Some(1);
    let log = log(&config).await;
    assert_eq!(log.topic_report().topic, METADATA_TOPIC);
    let managed = Managed::ready(&log).await;
    for segment in &segments {
        announce(&managed, segment).await;
    }
    log.shutdown().await;

    // The broker deletes what it finds in the tier, and copies nothing in its own name: all closed
    // segments are there.
    let before = bases(&local);
    let settings = "remote.log.copy.disable=false,local.retention.bytes=1";
    let entity = ["--entity-type", "topics", "--entity-name", &topic];
    let change = [&["--alter"], &entity[..], &["--add-config", settings]].concat();
    kafka.tool("kafka.admin.ConfigCommand", &change);
    let end = segments.last().unwrap().end_offset();
    let what = "the deletion of the local segments";
    within(what, async {
        while bases(&local).first().is_none_or(|first| *first <= end) {
            a_moment().await;
        }
    })
    .await;
    assert!(before.len() - bases(&local).len() >= segments.len());

    let consumed = kafka.program("ConsumeAll", &[&topic, "0", "read_uncommitted", "0"]);
    assert!(int(&consumed[0]["offset"]) <= end);
    assert_eq!(consumed.len(), expected.records.len());
    for (found, expected) in consumed.iter().zip(&expected.records) {
        assert_eq!(found, expected);
    }
    let committed = kafka.program("ConsumeAll", &[&topic, "0", "read_committed", "0"]);
    let all = expected.committed(&expected.records);
    assert!(all.len() < consumed.len(), "something was aborted");
    assert!(committed == all);
    kafka.delete_topic(&topic).await;
}

/// Copies the closed segments of a partition's directory into a tier.
fn copy(from: &Path, to: &Path) {
    let program = env!("CARGO_BIN_EXE_krabka-tier");
    let mut program = Command::new(program);
    program.arg("copy").arg(from);
    program.args(["--to", &format!("file://{}", to.display())]);
    let output = program.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// The segments of a partition that a listing of the tier shows, in their order.
async fn segments_in(tier: &Path, partition: &TopicIdPartition) -> Vec<RemoteLogSegmentMetadata> {
    let storage = RemoteStorage::builder(Arc::new(LocalClient::new(tier)))
        .build()
        .unwrap();
    let topic_id = kafka_uuid(partition.topic_id);
    let dir = format!("{}-{}-{topic_id}", partition.topic, partition.partition);
    let target = StoreTarget::object(object_store::path::Path::from(dir));
    let listing = storage.send(List::new(target)).await.unwrap();
    let rebuilder = TierRebuilder::new(storage.clone());
    let rebuilt = rebuilder.rebuild_partition(partition, &listing).await;
    let rebuilt = rebuilt.unwrap();
    assert!(rebuilt.skipped.is_empty(), "{:?}", rebuilt.skipped);
    let mut segments = rebuilt.dump.segments;
    segments.sort_by_key(RemoteLogSegmentMetadata::start_offset);
    segments
}

/// Publishes that a segment's copy has begun, and that it has finished.
async fn announce(managed: &Managed, segment: &RemoteLogSegmentMetadata) {
    let details = RemoteLogSegmentDetails::new(
        segment.segment_size_in_bytes(),
        RemoteLogSegmentState::CopySegmentStarted,
        segment.segment_leader_epochs().clone(),
    );
    let id = segment.remote_log_segment_id();
    let time = segment.event_timestamp_ms();
    let started = RemoteLogSegmentMetadata::new(
        id.clone(),
        segment.start_offset(),
        segment.end_offset(),
        segment.max_timestamp_ms(),
        BROKER,
        time,
        details,
    );
    let started = started
        .unwrap()
        .with_txn_index_empty(segment.txn_index_empty());
    let finished = RemoteLogSegmentState::CopySegmentFinished;
    let finished =
        RemoteLogSegmentMetadataUpdate::new(id.clone(), time + 1, None, finished, BROKER);
    managed.manager.add_segment(started).await.unwrap();
    managed.manager.update_segment(finished).await.unwrap();
}

/// Where the logs of a local partition begin.
fn bases(dir: &Path) -> BTreeSet<i64> {
    let names = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter_map(|name| name.strip_suffix(".log")?.parse().ok())
        .collect()
}
