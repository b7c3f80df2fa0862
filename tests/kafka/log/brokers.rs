//! Against Apache Kafka itself, where `tests/run.sh` has started it.

use std::time::Duration;

use bytes::Bytes;
use krabka_remote_storage::metadata::topic::{
    KafkaMetadataEventLog, KafkaMetadataLogConfig, KeyedEvent, MetadataEventLog as _,
    MetadataLogError, MetadataStreamItem, TopicFinding,
};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};
use uuid::Uuid;

use super::mock::{Reader, events, publish, start, within};

/// A topic of this test's own. `None` when no broker is meant to be there; with the servers a
/// missing variable is a failure.
fn own_topic(partitions: i32) -> Option<KafkaMetadataLogConfig> {
    let name = "KRABKA_TEST_KAFKA_BOOTSTRAP_SERVERS";
    let servers = std::env::var(name).ok();
    assert!(
        servers.is_some() || std::env::var_os("KRABKA_TEST_SERVERS").is_none(),
        "the servers are meant to be there, but {name} is not set"
    );
    let Some(servers) = servers else {
        eprintln!("skipped: {name} is not set; tests/run.sh starts the servers");
        return None;
    };
    let mut config = KafkaMetadataLogConfig::new(servers);
    config.topic = format!("log-{}", Uuid::new_v4());
    config.num_partitions = partitions;
    config.replication = 1;
    config.min_isr = Some(1);
    Some(config)
}

fn admin(config: &KafkaMetadataLogConfig) -> AdminClient<DefaultClientContext> {
    let mut settings = ClientConfig::new();
    settings.set("bootstrap.servers", &config.bootstrap);
    settings.create().unwrap()
}

fn options() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(Duration::from_secs(10)))
}

async fn delete(config: &KafkaMetadataLogConfig) {
    let admin = admin(config);
    let deleted = admin.delete_topics(&[&config.topic], &options());
    within(deleted).await.unwrap().remove(0).unwrap();
}

/// Creates the topic, also while the cluster still deletes one of this name.
async fn create(config: &KafkaMetadataLogConfig, settings: &[(&str, &str)]) {
    let replication = TopicReplication::Fixed(1);
    let mut topic = NewTopic::new(&config.topic, config.num_partitions, replication);
    for (name, value) in settings {
        topic = topic.set(name, value);
    }
    let admin = admin(config);
    within(async {
        loop {
            let answer = admin.create_topics([&topic], &options()).await.unwrap();
            match &answer[0] {
                Ok(_) => return,
                Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(error) => panic!("{error:?}"),
            }
        }
    })
    .await;
}

async fn log(config: &KafkaMetadataLogConfig) -> std::sync::Arc<KafkaMetadataEventLog> {
    within(KafkaMetadataEventLog::start(config.clone()))
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_is_created_written_and_replayed() {
    let Some(config) = own_topic(3) else { return };
    let first = log(&config).await;
    assert!(first.topic_report().was_created);
    assert_eq!(first.partition_count(), 3);
    publish(&first, 2, 0..50).await;

    let second = log(&config).await;
    let report = second.topic_report();
    assert!(!report.was_created);
    assert_eq!(report.findings, []);
    assert_eq!(second.topic_id(), first.topic_id());
    assert!(second.topic_id().is_some());
    assert_eq!(within(second.high_water_marks()).await.unwrap(), [0, 0, 50]);
    let mut reader = Reader::new(&second, vec![start(0, 0), start(2, 0)]).await;
    assert_eq!(reader.read_to(2, 50).await, events(0..50));
    publish(&first, 2, 50..60).await;
    assert_eq!(reader.read_to(2, 60).await, events(50..60));
    within(first.shutdown()).await;
    within(second.shutdown()).await;
    delete(&config).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn null_keys_keys_and_tombstones_are_read_as_they_were_written() {
    let Some(config) = own_topic(1) else { return };
    let log = log(&config).await;
    let key = Bytes::from_static(b"key");
    for event in [Some(Bytes::from_static(b"value")), None, Some(Bytes::new())] {
        let record = KeyedEvent {
            key: key.clone(),
            event,
        };
        within(log.publish_keyed(0, record)).await.unwrap();
    }
    within(log.publish(0, Bytes::from_static(b"event")))
        .await
        .unwrap();
    let records = within(log.read_range(0, 0, 9)).await.unwrap();
    let read: Vec<_> = records
        .iter()
        .map(|record| (record.key.as_deref(), &record.payload[..], record.tombstone))
        .collect();
    let key = Some(&b"key"[..]);
    assert_eq!(
        read,
        [
            (key, &b"value"[..], false),
            (key, b"", true),
            (key, b"", false),
            (None, b"event", false),
        ]
    );
    delete(&config).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn positions_in_a_topic_that_was_made_again_are_out_of_range_however_long_the_new_one_is() {
    let Some(config) = own_topic(2) else { return };
    let log = log(&config).await;
    publish(&log, 0, 0..5).await;
    let old_id = log.topic_id();
    let mut reader = Reader::new(&log, vec![start(0, 0), start(1, 0)]).await;
    assert_eq!(reader.read_to(0, 5).await, events(0..5));

    delete(&config).await;
    create(&config, &[]).await;
    // Longer than the old one at once, so that the position is inside it.
    let writer = within(KafkaMetadataEventLog::start(config.clone()))
        .await
        .unwrap();
    publish(&writer, 0, 100..120).await;

    let mut lost = Vec::new();
    while lost.len() < 2 {
        match reader.item().await {
            MetadataStreamItem::OutOfRange {
                partition,
                position,
                ..
            } => lost.push((partition, position)),
            other => panic!("the new topic's records must not follow the old one's: {other:?}"),
        }
    }
    lost.sort_unstable();
    assert_eq!(lost, [(0, 5), (1, 0)]);

    // The subscriber looks at the marks and begins at the start.
    assert_eq!(within(log.low_water_marks()).await.unwrap(), [0, 0]);
    assert_eq!(within(log.high_water_marks()).await.unwrap(), [20, 0]);
    assert_ne!(log.topic_id(), old_id);
    assert_eq!(log.topic_id(), writer.topic_id());
    reader.handle.remove(0);
    reader.handle.add(start(0, 0));
    let read = reader.read_to(0, 20).await;
    assert_eq!(read.len(), 20);
    assert_eq!(read[0].1, super::mock::event(100));
    delete(&config).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_that_were_added_are_named_before_anything_new_is_read() {
    let Some(config) = own_topic(2) else { return };
    let log = log(&config).await;
    publish(&log, 1, 0..3).await;
    let mut reader = Reader::new(&log, vec![start(1, 0)]).await;
    reader.read_to(1, 3).await;

    let more = NewPartitions::new(&config.topic, 4);
    let added = admin(&config);
    let added = added.create_partitions([&more], &options());
    within(added).await.unwrap().remove(0).unwrap();
    let refused = within(async {
        loop {
            // A broker may still answer with what it knew before.
            if let Err(error) = log.high_water_marks().await {
                return error;
            }
        }
    })
    .await;
    assert!(
        matches!(refused, MetadataLogError::Rejected { .. }),
        "{refused:?}"
    );
    let text = refused.to_string();
    assert!(
        text.contains("had 2 partitions") && text.contains("has 4 now"),
        "{text}"
    );

    publish(&log, 1, 3..5).await;
    assert_eq!(reader.read_to(1, 5).await, events(3..5));
    let opened = within(KafkaMetadataEventLog::start(config.clone()))
        .await
        .unwrap();
    assert_eq!(opened.partition_count(), 4);
    let finding = TopicFinding::PartitionCount {
        configured: 2,
        found: 4,
    };
    assert_eq!(opened.topic_report().findings, [finding]);
    delete(&config).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_remove_events_are_reported() {
    let Some(config) = own_topic(1) else { return };
    let settings = [
        ("cleanup.policy", "compact,delete"),
        ("retention.ms", "1000000"),
        ("min.insync.replicas", "2"),
    ];
    create(&config, &settings).await;
    let log = log(&config).await;
    let findings = &log.topic_report().findings;
    let removed = |setting: &str, found: &str| TopicFinding::RecordsAreRemoved {
        setting: setting.to_owned(),
        found: found.to_owned(),
    };
    for finding in [
        removed("cleanup.policy", "compact,delete"),
        removed("retention.ms", "1000000"),
        TopicFinding::MinIsrAboveReplicas {
            min_isr: 2,
            replicas: 1,
        },
    ] {
        assert!(findings.contains(&finding), "{finding:?} in {findings:?}");
    }
    delete(&config).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_was_trimmed_away_is_out_of_range_and_never_the_end() {
    let Some(config) = own_topic(1) else { return };
    let log = log(&config).await;
    publish(&log, 0, 0..10).await;
    let mut below = TopicPartitionList::new();
    below
        .add_partition_offset(&config.topic, 0, Offset::Offset(4))
        .unwrap();
    within(admin(&config).delete_records(&below, &options()))
        .await
        .unwrap();

    assert_eq!(within(log.low_water_marks()).await.unwrap(), [4]);
    let mut reader = Reader::new(&log, vec![start(0, 1)]).await;
    let expected = MetadataStreamItem::OutOfRange {
        partition: 0,
        generation: 1,
        position: 1,
    };
    assert_eq!(reader.item().await, expected);
    reader.handle.remove(0);
    assert_eq!(reader.handle.add(start(0, 4)), 2);
    assert_eq!(reader.read_to(0, 10).await, events(4..10));

    let error = within(log.read_range(0, 2, 10)).await.unwrap_err();
    assert!(
        matches!(
            error,
            MetadataLogError::OffsetOutOfRange {
                partition: 0,
                offset: 2
            }
        ),
        "{error:?}"
    );
    assert_eq!(within(log.read_range(0, 4, 8)).await.unwrap().len(), 4);
    delete(&config).await;
}
