//! A million events in `__remote_log_metadata`: how long a manager of this crate takes until it is
//! ready, beside Apache Kafka's own manager on the same topic.
//!
//! Needs a Kafka without tiered storage, whose metadata topic this is alone, and Java 17 with
//! Maven for the program `ReplayBench` of `tests/kafka`:
//!
//! ```text
//! env=$(tests/servers/kafka.sh start) && eval "$env"
//! cargo bench --features kafka --bench beside_kafka
//! tests/servers/kafka.sh stop
//! ```
//!
//! Both begin with nothing, connect, and end when the one partition of the million events is ready.
//! Kafka's runs are in one JVM, so that all but the first are warm, between two halves of ours.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use krabka_remote_storage::topic::{
    KafkaMetadataEventLog, KafkaMetadataLogConfig, MetadataEvent, MetadataEventLog,
    TopicBasedRemoteLogMetadataManager, metadata_partition_for,
};
use krabka_remote_storage::{
    LeaderEpoch, RemoteLogMetadataStore as _, RemoteLogSegmentDetails, RemoteLogSegmentId,
    RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState,
    TopicIdPartition, kafka_uuid,
};
use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use tokio::runtime::{Handle, Runtime};
use uuid::Uuid;

const EVENTS: i64 = 1_000_000;
/// Offsets of a segment.
const LENGTH: i64 = 1_000;
const RUNS: usize = 6;

fn main() {
    let variable = "KRABKA_TEST_KAFKA_BOOTSTRAP_SERVERS";
    let Ok(servers) = std::env::var(variable) else {
        println!("{variable} is not set: start Kafka with tests/servers/kafka.sh");
        return;
    };
    let runtime = Runtime::new().expect("a runtime");
    let mut config = KafkaMetadataLogConfig::new(servers);
    config.num_partitions = 5;
    config.replication = 1;
    config.min_isr = Some(1);
    let partition = TopicIdPartition::new(Uuid::from_u128(0xca), "orders", 7);
    runtime.block_on(fill(&config, &partition));

    let ours = |turns| {
        (0..turns)
            .map(|_| runtime.block_on(replay(&config, &partition)))
            .collect::<Vec<_>>()
    };
    let mut here = ours(RUNS / 2);
    let kafkas = replay_with_kafkas_manager(&config, &partition);
    here.extend(ours(RUNS - RUNS / 2));
    println!("until {EVENTS} events are replayed: here {here:.2?}, Kafka's manager {kafkas:.2?}");
    let (here, warm) = (median(here), median(kafkas[1..].to_vec()));
    println!(
        "median: here {here:.2?}, Kafka's manager {warm:.2?} once warm: {:.2} times its rate",
        warm.as_secs_f64() / here.as_secs_f64()
    );
}

/// Writes half a million segments whose copies have finished, unless they are there.
async fn fill(config: &KafkaMetadataLogConfig, tp: &TopicIdPartition) {
    let log = KafkaMetadataEventLog::start(config.clone())
        .await
        .expect("a log");
    let number = metadata_partition_for(tp, log.partition_count());
    let high = log.high_water_marks().await.expect("marks");
    let there = high[usize::try_from(number).expect("a partition")];
    assert!(
        there == 0 || there == EVENTS,
        "the metadata topic has {there} other events: give this bench a Kafka of its own"
    );
    log.shutdown().await;
    if there == EVENTS {
        return;
    }
    let (servers, topic, tp) = (config.bootstrap.clone(), config.topic.clone(), tp.clone());
    let filled = tokio::task::spawn_blocking(move || {
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", servers)
            .set("enable.idempotence", "true")
            .set("linger.ms", "20")
            .create()
            .expect("a producer");
        for event in (0..EVENTS / 2).flat_map(|segment| life(&tp, segment)) {
            let record = || {
                BaseRecord::<(), [u8]>::to(&topic)
                    .partition(number)
                    .payload(&event)
            };
            while let Err((error, _)) = producer.send(record()) {
                let full = KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull);
                assert_eq!(error, full);
                producer.poll(Duration::from_millis(1));
            }
        }
        producer.flush(Duration::from_mins(2)).expect("written");
    });
    filled.await.expect("a topic");
}

/// The two events of a segment.
fn life(tp: &TopicIdPartition, number: i64) -> [bytes::Bytes; 2] {
    let start = number * LENGTH;
    let id = RemoteLogSegmentId::new(tp.clone(), Uuid::from_u128(number.unsigned_abs().into()));
    let epoch = LeaderEpoch(i32::try_from(number / 100_000).expect("a few"));
    let details = RemoteLogSegmentDetails::new(
        1 << 30,
        RemoteLogSegmentState::CopySegmentStarted,
        BTreeMap::from([(epoch, start)]),
    );
    let end = start + LENGTH - 1;
    let started = RemoteLogSegmentMetadata::new(id.clone(), start, end, start, 1, start, details);
    let finished = RemoteLogSegmentState::CopySegmentFinished;
    let finished = RemoteLogSegmentMetadataUpdate::new(id, start + 1, None, finished, 1);
    [
        MetadataEvent::AddSegment(started.expect("a segment")).encode(),
        MetadataEvent::UpdateSegment(finished).encode(),
    ]
}

async fn replay(config: &KafkaMetadataLogConfig, tp: &TopicIdPartition) -> Duration {
    let dir = tempfile::tempdir().expect("a folder");
    let began = Instant::now();
    let log = KafkaMetadataEventLog::start(config.clone())
        .await
        .expect("a log");
    let number = metadata_partition_for(tp, log.partition_count());
    let manager = TopicBasedRemoteLogMetadataManager::start(
        Arc::clone(&log) as Arc<dyn MetadataEventLog>,
        Handle::current(),
        dir.path(),
        Duration::from_hours(1),
    )
    .expect("a manager");
    manager
        .reconcile_assignment(&[number])
        .await
        .expect("an assignment");
    manager.wait_until_ready().await.expect("a replay");
    let took = began.elapsed();
    let last = EVENTS / 2 * LENGTH - 1;
    let newest = manager.newest_segment(tp).await.expect("an answer");
    assert_eq!(newest.map(|segment| segment.end_offset()), Some(last));
    manager.shutdown();
    log.shutdown().await;
    took
}

fn replay_with_kafkas_manager(
    config: &KafkaMetadataLogConfig,
    tp: &TopicIdPartition,
) -> Vec<Duration> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let class_path = said(Command::new("bash").arg(repository.join("tests/kafka/compile.sh")));
    let id = kafka_uuid(tp.topic_id);
    let lines = said(
        Command::new("java")
            .args([
                "-Xmx3g",
                "-cp",
                class_path.trim(),
                "krabka.test.ReplayBench",
            ])
            .args([&config.bootstrap, &RUNS.to_string()])
            .arg(format!("{id}:{}:{}", tp.topic, tp.partition)),
    );
    let runs = lines.lines().map(|line| {
        let run: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(run["events"], EVENTS, "{line}");
        Duration::from_secs_f64(run["seconds"].as_f64().expect("seconds"))
    });
    runs.collect()
}

fn said(command: &mut Command) -> String {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .expect("a program");
    assert!(output.status.success(), "{command:?}");
    String::from_utf8(output.stdout).expect("text")
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
