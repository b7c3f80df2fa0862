//! Three brokers: a leader that moves, and one that is killed.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use krabka_remote_storage::topic::{
    KafkaMetadataEventLog, KafkaMetadataLogConfig, MetadataEventLog as _, MetadataStreamItem,
    PartitionStart,
};
use rdkafka::ClientConfig;
use rdkafka::admin::TopicReplication;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use serde_json::json;
use tempfile::TempDir;

use super::cluster::{Cluster, a_moment, log, within};
use super::publishing::writers_lose_nothing;

/// Who leads a partition of the topic.
async fn leader(config: &KafkaMetadataLogConfig, partition: i32) -> i32 {
    let mut settings = ClientConfig::new();
    settings.set("bootstrap.servers", &config.bootstrap);
    let topic = config.topic.clone();
    let asked = tokio::task::spawn_blocking(move || {
        let client: BaseConsumer = settings.create().unwrap();
        let metadata = client.fetch_metadata(Some(&topic), Duration::from_secs(20));
        let metadata = metadata.unwrap();
        let mut partitions = metadata.topics()[0].partitions().iter();
        partitions
            .find(|one| one.id() == partition)
            .unwrap()
            .leader()
    });
    asked.await.unwrap()
}

async fn until_the_leader(
    config: &KafkaMetadataLogConfig,
    partition: i32,
    is_right: impl Fn(i32) -> bool,
) {
    within("the change of the leader", async {
        while !is_right(leader(config, partition).await) {
            a_moment().await;
        }
    })
    .await;
}

/// Makes node 3 the leader of partition 0, while everything runs.
async fn move_leader(kafka: &Cluster, config: &KafkaMetadataLogConfig) {
    let dir = TempDir::new().unwrap();
    let plan = dir.path().join("plan.json");
    let replicas = json!({
        "version": 1,
        "partitions": [{"topic": config.topic, "partition": 0, "replicas": [3, 2, 1]}],
    });
    fs::write(&plan, replicas.to_string()).unwrap();
    let execute = [
        "--execute",
        "--reassignment-json-file",
        plan.to_str().unwrap(),
    ];
    kafka.tool(
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
        &execute,
    );
    let of = ["--topic", &config.topic, "--partition", "0"];
    kafka.tool(
        "org.apache.kafka.tools.LeaderElectionCommand",
        &[&["--election-type", "PREFERRED"], &of[..]].concat(),
    );
    until_the_leader(config, 0, |leader| leader == 3).await;
}

/// Reads every partition from its start on, and answers, when the log is shut down, with how many
/// records it saw of each. Their offsets have no gap.
async fn watch(log: Arc<KafkaMetadataEventLog>) -> Vec<i64> {
    let starts = (0..log.partition_count()).map(|partition| PartitionStart {
        partition,
        start_offset: 0,
    });
    let (mut items, _handle) = log.subscribe(starts.collect()).await.unwrap();
    let mut next = vec![0; usize::try_from(log.partition_count()).unwrap()];
    while let Some(item) = items.next().await {
        let MetadataStreamItem::Page(page) = item else {
            panic!("the position is in the log: {item:?}")
        };
        let next = &mut next[usize::try_from(page.partition).unwrap()];
        for record in page.records {
            assert_eq!(record.offset, *next, "partition {}", page.partition);
            *next += 1;
        }
        assert_eq!(page.next_offset, *next);
    }
    next
}

#[tokio::test(flavor = "multi_thread")]
async fn leaders_that_move_and_die_cost_no_event_and_leave_no_gap() {
    let Some(kafka) = Cluster::start(&["--brokers", "3"]) else {
        return;
    };
    let mut config = kafka.own_topic(4);
    config.replication = 3;
    config.min_isr = Some(2);
    config.publish_timeout = Duration::from_secs(10);
    config.request_timeout = Duration::from_secs(5);
    // Node 1 is the only controller, and has to stay.
    let replicas: [&[i32]; 4] = [&[2, 3, 1], &[3, 2, 1], &[2, 1, 3], &[1, 2, 3]];
    let replication = TopicReplication::Variable(&replicas);
    let settings = [("min.insync.replicas", "2")];
    kafka
        .create_topic(&config.topic, 4, replication, &settings)
        .await;
    let log = log(&config).await;
    let watching = tokio::spawn(watch(Arc::clone(&log)));
    writers_lose_nothing(&config, &log, |progress| {
        let (kafka, config) = (&kafka, &config);
        async move {
            progress.more_applied(1_000).await;
            assert_eq!(leader(config, 0).await, 2);
            move_leader(kafka, config).await;
            progress.more_applied(1_000).await;
            kafka.script(&["kill", "3"]);
            until_the_leader(config, 0, |leader| ![-1, 3].contains(&leader)).await;
            progress.more_applied(1_000).await;
            kafka.script(&["resume", "3"]);
            progress.more_applied(1_000).await;
        }
    })
    .await;
    let high = log.high_water_marks().await.unwrap();
    // What was read before the end comes still.
    within("the last records", async {
        log.shutdown().await;
        let seen = watching.await.unwrap();
        assert!(
            seen.iter().zip(&high).all(|(seen, high)| seen <= high),
            "{seen:?} of {high:?}"
        );
        assert!(seen.iter().sum::<i64>() > high.iter().sum::<i64>() / 2);
    })
    .await;
}
