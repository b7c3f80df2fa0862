//! A topic that is not what it was, or not what it should be: detected, named, and never passed
//! over in silence.

use std::sync::Arc;
use std::time::Duration;

use krabka_remote_storage::testing::segments::{SegmentSpec, orders};
use krabka_remote_storage::topic::{
    KafkaMetadataEventLog, KafkaMetadataLogConfig, MetadataEventLog as _, MetadataLogError,
    TopicFinding, metadata_partition_for,
};
use krabka_remote_storage::{
    RemoteLogMetadataStore as _, RemoteLogSegmentMetadata, RemoteStorageError, TopicIdPartition,
};
use rdkafka::admin::{NewPartitions, TopicReplication};
use rdkafka::{Offset, TopicPartitionList};
use uuid::Uuid;

use super::cluster::{Cluster, Managed, a_moment, log, options, within};
use super::oracle::all_records;

/// A partition whose events are in this one of the metadata partitions.
fn partition_in(metadata_partition: i32, count: i32) -> TopicIdPartition {
    (0..1_000)
        .map(|partition| orders(0xca, partition))
        .find(|tp| metadata_partition_for(tp, count) == metadata_partition)
        .unwrap()
}

fn segment(tp: &TopicIdPartition, start: i64) -> RemoteLogSegmentMetadata {
    let spec = SegmentSpec::new(Uuid::new_v4().as_u128(), start..=start + 9);
    spec.of(tp).at(0, 1).make()
}

async fn add(managed: &Managed, tp: &TopicIdPartition, count: i64) {
    for number in 0..count {
        let added = managed.manager.add_segment(segment(tp, number * 10));
        within("an event", added).await.unwrap();
    }
}

/// Waits until the manager knows exactly these segments. Until then it may say that it is not
/// ready, and nothing else than before.
async fn until_it_knows(
    managed: &Managed,
    tp: &TopicIdPartition,
    before: &[RemoteLogSegmentMetadata],
    after: &[RemoteLogSegmentMetadata],
) {
    within("the replay", async {
        loop {
            match managed.manager.list_segments(tp).await {
                Ok(found) if found == after => return,
                Ok(found) => assert_eq!(found, before),
                Err(error) => assert!(
                    matches!(error, RemoteStorageError::NotReady { .. }),
                    "{error:?}"
                ),
            }
            a_moment().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_was_made_again_is_replayed_and_the_old_one_forgotten() {
    let Some(kafka) = Cluster::shared() else {
        return;
    };
    let config = kafka.own_topic(2);
    let first = log(&config).await;
    let managed = Managed::ready(&first).await;
    let tp = partition_in(1, 2);
    add(&managed, &tp, 5).await;
    let before = managed.manager.list_segments(&tp).await.unwrap();

    let old_id = first.topic_id().unwrap();
    kafka.delete_topic(&config.topic).await;
    let replication = TopicReplication::Fixed(1);
    kafka.create_topic(&config.topic, 2, replication, &[]).await;
    let second = log(&config).await;
    assert_ne!(second.topic_id(), Some(old_id));
    let other = Managed::ready(&second).await;
    assert!(other.manager.list_segments(&tp).await.unwrap().is_empty());
    // More events than before: the old position is inside the new log.
    let mut written = Vec::new();
    for number in 0..8 {
        let segment = segment(&tp, number * 10);
        let added = other.manager.add_segment(segment.clone());
        within("an event", added).await.unwrap();
        written.push(segment);
    }
    // The first manager may look at any moment, and see the beginning of them.
    within("the replay", async {
        loop {
            match managed.manager.list_segments(&tp).await {
                Ok(found) if found == written => return,
                Ok(found) => assert!(
                    found == before || found == written[..found.len()],
                    "neither the old nor the new: {found:?}"
                ),
                Err(RemoteStorageError::NotReady { .. }) => {}
                Err(error) => panic!("{error:?}"),
            }
            a_moment().await;
        }
    })
    .await;
    // It writes to the new topic, too.
    let more = segment(&tp, 1_000);
    within("a write", async {
        while managed.manager.add_segment(more.clone()).await.is_err() {
            a_moment().await;
        }
    })
    .await;
    let mut after = written.clone();
    after.push(more);
    until_it_knows(&other, &tp, &written, &after).await;
    for log in [&first, &second] {
        log.shutdown().await;
    }
    kafka.delete_topic(&config.topic).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_gone_is_named() {
    let Some(kafka) = Cluster::shared() else {
        return;
    };
    let mut config = kafka.own_topic(1);
    config.publish_timeout = Duration::from_secs(5);
    let log = log(&config).await;
    let managed = Managed::ready(&log).await;
    let tp = partition_in(0, 1);
    add(&managed, &tp, 1).await;
    kafka.delete_topic(&config.topic).await;
    let error = within("an error", async {
        loop {
            // A broker may still answer with what it knew before.
            if let Err(error) = log.high_water_marks().await {
                return error;
            }
            a_moment().await;
        }
    })
    .await;
    assert!(
        matches!(error, MetadataLogError::Rejected { .. }),
        "{error:?}"
    );
    let says = format!("topic {} does not exist any more", config.topic);
    assert_eq!(error.to_string(), says);
    let written = within("a write", managed.manager.add_segment(segment(&tp, 10))).await;
    written.unwrap_err();
    log.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_partitions_were_added_nothing_new_is_assigned_until_the_log_is_opened_again() {
    let Some(kafka) = Cluster::shared() else {
        return;
    };
    let config = kafka.own_topic(2);
    let first = log(&config).await;
    let managed = Managed::over(&first);
    let manager = &managed.manager;
    within("the replay", async {
        manager.reconcile_assignment(&[0]).await.unwrap();
        manager.wait_until_ready().await.unwrap();
    })
    .await;
    let tp = partition_in(0, 2);
    add(&managed, &tp, 2).await;

    let more = NewPartitions::new(&config.topic, 3);
    let added = kafka.admin();
    let added = added.create_partitions([&more], &options()).await.unwrap();
    added[0].as_ref().unwrap();
    let error = within("an error", async {
        loop {
            if let Err(error) = first.high_water_marks().await {
                return error;
            }
            a_moment().await;
        }
    })
    .await;
    assert!(
        matches!(error, MetadataLogError::Rejected { .. }),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(
        text.contains("had 2 partitions") && text.contains("has 3 now"),
        "{text}"
    );
    let assigned = within("an assignment", manager.reconcile_assignment(&[0, 1])).await;
    assert!(
        matches!(
            assigned,
            Err(RemoteStorageError::NotReady { partition: 1, .. })
        ),
        "{assigned:?}"
    );
    let unknown = manager.list_segments(&partition_in(1, 2)).await;
    assert!(
        matches!(
            unknown,
            Err(RemoteStorageError::NotReady { partition: 1, .. })
        ),
        "{unknown:?}"
    );
    // What was being read goes on.
    add(&managed, &tp, 1).await;
    assert_eq!(manager.list_segments(&tp).await.unwrap().len(), 3);

    let second = log(&config).await;
    assert_eq!(second.partition_count(), 3);
    let findings = &second.topic_report().findings;
    let finding = TopicFinding::PartitionCount {
        configured: 2,
        found: 3,
    };
    assert_eq!(findings, &[finding]);
    let reopened = Managed::ready(&second).await;
    let moved = metadata_partition_for(&tp, 3) != 0;
    // Its events stay where they were, and are not taken for another partition's.
    let found = reopened.manager.list_segments(&tp).await.unwrap();
    assert_eq!(found.len(), if moved { 0 } else { 3 });
    for log in [&first, &second] {
        log.shutdown().await;
    }
    kafka.delete_topic(&config.topic).await;
}

async fn existing(
    kafka: &Cluster,
    config: &KafkaMetadataLogConfig,
    settings: &[(&str, &str)],
) -> Arc<KafkaMetadataEventLog> {
    let replication = TopicReplication::Fixed(1);
    kafka
        .create_topic(&config.topic, config.num_partitions, replication, settings)
        .await;
    log(config).await
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_retention_removes_are_announced_and_their_loss_is_noticed() {
    let Some(kafka) = Cluster::shared() else {
        return;
    };
    let config = kafka.own_topic(1);
    let settings = [("retention.ms", "86400000"), ("retention.bytes", "1000000")];
    let log = existing(&kafka, &config, &settings).await;
    for (setting, found) in settings {
        let finding = TopicFinding::RecordsAreRemoved {
            setting: setting.to_owned(),
            found: found.to_owned(),
        };
        let findings = &log.topic_report().findings;
        assert!(findings.contains(&finding), "{findings:?}");
    }
    let managed = Managed::ready(&log).await;
    let tp = partition_in(0, 1);
    add(&managed, &tp, 6).await;
    let all = managed.manager.list_segments(&tp).await.unwrap();

    let mut below = TopicPartitionList::new();
    let offset = Offset::Offset(4);
    below
        .add_partition_offset(&config.topic, 0, offset)
        .unwrap();
    let admin = kafka.admin();
    within("the deletion", admin.delete_records(&below, &options()))
        .await
        .unwrap();
    // One that has read them keeps them, and one that begins now says what is left: it begins at
    // the start of the log, not at its end.
    assert_eq!(managed.manager.list_segments(&tp).await.unwrap(), all);
    let late = Managed::ready(&log).await;
    assert_eq!(late.manager.list_segments(&tp).await.unwrap(), all[4..]);
    let readiness = late.manager.metadata_partition_readiness();
    assert_eq!(readiness[0].target_offset, Some(6));
    log.shutdown().await;
    kafka.delete_topic(&config.topic).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_with_fewer_replicas_than_its_setting_asks_for_is_named() {
    let Some(kafka) = Cluster::shared() else {
        return;
    };
    let config = kafka.own_topic(1);
    let log = existing(&kafka, &config, &[("min.insync.replicas", "2")]).await;
    let finding = TopicFinding::MinIsrAboveReplicas {
        min_isr: 2,
        replicas: 1,
    };
    let findings = &log.topic_report().findings;
    assert!(findings.contains(&finding), "{findings:?}");
    let text = finding.to_string();
    assert!(text.contains("fewer replicas than asked"), "{text}");

    let managed = Managed::ready(&log).await;
    let tp = partition_in(0, 1);
    // Kafka 4.3 takes the number of replicas for it.
    add(&managed, &tp, 1).await;
    assert_eq!(all_records(&*log).await.len(), 1);
    log.shutdown().await;
    kafka.delete_topic(&config.topic).await;
}
