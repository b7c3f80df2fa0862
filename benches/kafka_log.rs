//! A million events of one partition, replayed through a subscription of `KafkaMetadataEventLog`
//! beside a bare consumer of librdkafka with its own defaults (bar: at least 0.7 times as fast).
//!
//! Needs Kafka: `tests/servers/kafka.sh start` prints where it is, as
//! `KRABKA_TEST_KAFKA_BOOTSTRAP_SERVERS`. The two read in turns, each from a new consumer on; the
//! ratio is that of their median rates.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use krabka_remote_storage::metadata::topic::{
    KafkaMetadataEventLog, KafkaMetadataLogConfig, MetadataEventLog as _, MetadataStreamItem,
    PartitionStart,
};
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::{ClientConfig, Message as _, Offset, TopicPartitionList};
use tokio::runtime::Runtime;
use uuid::Uuid;

const EVENTS: i64 = 1_000_000;
/// Of an event that adds a segment: the reader does not look into it.
const EVENT_BYTES: usize = 118;
const TURNS: usize = 7;

fn main() {
    let variable = "KRABKA_TEST_KAFKA_BOOTSTRAP_SERVERS";
    let Ok(servers) = std::env::var(variable) else {
        println!("{variable} is not set: start Kafka with tests/servers/kafka.sh");
        return;
    };
    let runtime = Runtime::new().expect("a runtime");
    let mut config = KafkaMetadataLogConfig::new(servers);
    config.topic = format!("bench-{}", Uuid::new_v4());
    config.num_partitions = 1;
    config.replication = 1;
    config.min_isr = Some(1);
    let log = runtime
        .block_on(KafkaMetadataEventLog::start(config.clone()))
        .expect("a log");
    fill(&config);

    let (mut bare, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        bare.push(read_bare(&config));
        ours.push(runtime.block_on(read_ours(&log)));
    }
    let (bare, ours) = (median(bare), median(ours));
    println!(
        "replay of {EVENTS} events: {ours:.2?}, bare consumer {bare:.2?}: {:.2} times its rate, bar \
         0.7",
        bare.as_secs_f64() / ours.as_secs_f64()
    );
    runtime.block_on(async {
        log.shutdown().await;
        let admin: AdminClient<DefaultClientContext> = client(&config).create().expect("a client");
        let deleted = admin.delete_topics(&[&config.topic], &AdminOptions::new());
        deleted.await.expect("an answer");
    });
}

fn client(config: &KafkaMetadataLogConfig) -> ClientConfig {
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", &config.bootstrap);
    client
}

fn fill(config: &KafkaMetadataLogConfig) {
    let producer: BaseProducer = client(config)
        .set("linger.ms", "20")
        .create()
        .expect("a producer");
    let mut event = [0; EVENT_BYTES];
    for number in 0..EVENTS {
        event[..8].copy_from_slice(&number.to_be_bytes());
        let record = || {
            BaseRecord::<(), [u8]>::to(&config.topic)
                .partition(0)
                .payload(&event[..])
        };
        while let Err((error, _)) = producer.send(record()) {
            let full = KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull);
            assert_eq!(error, full);
            producer.poll(Duration::from_millis(1));
        }
    }
    producer.flush(Duration::from_mins(1)).expect("written");
}

fn read_bare(config: &KafkaMetadataLogConfig) -> Duration {
    let began = Instant::now();
    let consumer: BaseConsumer = client(config)
        .set("group.id", "bench")
        .set("enable.auto.commit", "false")
        .create()
        .expect("a consumer");
    let mut partitions = TopicPartitionList::new();
    partitions
        .add_partition_offset(&config.topic, 0, Offset::Beginning)
        .expect("an offset");
    consumer.assign(&partitions).expect("an assignment");
    let mut bytes = 0;
    loop {
        let Some(message) = consumer.poll(Duration::from_secs(1)) else {
            continue;
        };
        let message = message.expect("a message");
        bytes += message.payload().map_or(0, <[u8]>::len);
        if message.offset() == EVENTS - 1 {
            assert!(bytes > 0);
            return began.elapsed();
        }
    }
}

async fn read_ours(log: &KafkaMetadataEventLog) -> Duration {
    let began = Instant::now();
    let start = PartitionStart {
        partition: 0,
        start_offset: 0,
    };
    let (mut items, _handle) = log.subscribe(vec![start]).await.expect("a subscription");
    let (mut bytes, mut records) = (0, 0);
    while let Some(MetadataStreamItem::Page(page)) = items.next().await {
        records += page.records.len();
        bytes += page
            .records
            .iter()
            .map(|record| record.payload.len())
            .sum::<usize>();
        if page.next_offset >= EVENTS {
            break;
        }
    }
    assert_eq!(i64::try_from(records), Ok(EVENTS));
    assert!(bytes > 0);
    began.elapsed()
}

fn median(mut turns: Vec<Duration>) -> Duration {
    let middle = turns.len() / 2;
    let (_, median, _) = turns.select_nth_unstable(middle);
    *median
}
