//! What brokers may answer to a fetch: holes, ends without records, too much, nothing.

use std::time::Duration;

use bytes::Bytes;
use krabka_remote_storage::metadata::topic::{
    KafkaMetadataEventLog, MetadataEventLog as _, MetadataEventQueueCapacity, MetadataLogError,
    MetadataStreamItem,
};

use super::fake_broker::{Batch, FakeBroker, Script};
use super::mock::{Reader, event, start, within};

fn batch(offsets: &[i64], last_offset: i64) -> Batch {
    let record = |&offset: &i64| (offset, event(usize::try_from(offset).unwrap()));
    Batch {
        records: offsets.iter().map(record).collect(),
        last_offset,
    }
}

/// A log with holes everywhere, as compaction leaves them.
fn holes() -> Script {
    Script {
        partitions: Some(1),
        batches: vec![
            batch(&[3, 5], 9),
            batch(&[12], 12),
            batch(&[20, 21, 24], 29),
        ],
        low: 2,
        high: 30,
        ..Script::default()
    }
}

async fn opened(broker: &FakeBroker) -> std::sync::Arc<KafkaMetadataEventLog> {
    within(KafkaMetadataEventLog::open_read_only(broker.config.clone()))
        .await
        .unwrap()
}

fn offsets(records: &[(i64, Bytes)]) -> Vec<i64> {
    records.iter().map(|(offset, _)| *offset).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_position_moves_on_over_holes_and_over_an_end_without_records() {
    let broker = FakeBroker::new(holes()).await;
    let log = opened(&broker).await;
    let mut reader = Reader::new(&log, vec![start(0, 2)]).await;
    let read = reader.read_to(0, 30).await;
    assert_eq!(offsets(&read), [3, 5, 12, 20, 21, 24]);

    {
        let mut script = broker.script.lock();
        script.batches.push(batch(&[31], 35));
        script.high = 36;
    }
    assert_eq!(offsets(&reader.read_to(0, 36).await), [31]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_is_visited_over_its_holes_and_ends_where_it_is_told_to() {
    let broker = FakeBroker::new(holes()).await;
    let log = opened(&broker).await;
    for (range, expected) in [
        ((2, 30), &[3, 5, 12, 20, 21, 24][..]),
        // Between the records of a batch.
        ((5, 21), &[5, 12, 20]),
        // Nothing but holes.
        ((6, 12), &[]),
        ((25, 30), &[]),
        // Beyond the end: as far as the log goes.
        ((21, 100), &[21, 24]),
        ((30, 40), &[]),
        ((9, 9), &[]),
    ] {
        let records = within(log.read_range(0, range.0, range.1)).await.unwrap();
        let read: Vec<_> = records.iter().map(|record| record.offset).collect();
        assert_eq!(read, expected, "{range:?}");
    }
    let error = within(log.read_range(0, 0, 5)).await.unwrap_err();
    assert!(
        matches!(
            error,
            MetadataLogError::OffsetOutOfRange {
                partition: 0,
                offset: 0
            }
        ),
        "{error:?}"
    );
    let error = within(log.read_range(1, 0, 5)).await.unwrap_err();
    assert!(
        matches!(
            error,
            MetadataLogError::PartitionOutOfRange {
                partition: 1,
                count: 1
            }
        ),
        "{error:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_visitor_that_fails_ends_the_visit_with_its_error() {
    let broker = FakeBroker::new(holes()).await;
    let log = opened(&broker).await;
    let mut seen = Vec::new();
    let mut visitor = |record: krabka_remote_storage::metadata::topic::MetadataEventRecord| {
        seen.push(record.offset);
        match record.offset {
            12 => Err(MetadataLogError::Closed),
            _ => Ok(()),
        }
    };
    let error = within(log.visit_range(0, 2, 30, &mut visitor))
        .await
        .unwrap_err();
    assert!(matches!(error, MetadataLogError::Closed), "{error:?}");
    assert_eq!(seen, [3, 5, 12]);
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_outside_of_the_log_are_told_for_their_partition_alone() {
    for position in [0, 31] {
        let broker = FakeBroker::new(holes()).await;
        let log = opened(&broker).await;
        let mut reader = Reader::new(&log, vec![start(0, position)]).await;
        let expected = MetadataStreamItem::OutOfRange {
            partition: 0,
            generation: 1,
            position,
        };
        assert_eq!(reader.item().await, expected);
        assert_eq!(reader.handle.assigned(), [0]);
        assert_eq!(reader.handle.add(start(0, 2)), 1, "it is assigned still");
        reader.handle.remove(0);
        assert_eq!(reader.handle.add(start(0, 2)), 2);
        assert_eq!(reader.read_to(0, 30).await.len(), 6);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_that_does_not_read_stops_the_fetching() {
    const RECORDS: i64 = 100_000;
    const PER_BATCH: i64 = 100;
    let value = Bytes::from(vec![7; 100]);
    let batches = (0..RECORDS / PER_BATCH).map(|number| {
        let first = number * PER_BATCH;
        let offsets = first..first + PER_BATCH;
        Batch {
            records: offsets.map(|offset| (offset, value.clone())).collect(),
            last_offset: first + PER_BATCH - 1,
        }
    });
    let mut broker = FakeBroker::new(Script {
        partitions: Some(1),
        batches: batches.collect(),
        high: RECORDS,
        ..Script::default()
    })
    .await;
    broker.config.event_queue_capacity = MetadataEventQueueCapacity::new(500).unwrap();
    broker.config.fetch_max_bytes = 64 * 1024;
    let log = opened(&broker).await;
    let mut reader = Reader::new(&log, vec![start(0, 0)]).await;
    within(broker.has_answered.notified()).await;
    // No fetch comes any more, whatever the time.
    while tokio::time::timeout(Duration::from_millis(300), broker.has_answered.notified())
        .await
        .is_ok()
    {}
    let fetched = broker.script.lock().fetched;
    assert!((1..=500 + 1000).contains(&fetched), "{fetched}");

    let read = reader.read_to(0, RECORDS).await;
    assert_eq!(read.len(), usize::try_from(RECORDS).unwrap());
    assert!(read.iter().map(|(offset, _)| *offset).eq(0..RECORDS));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_stands_still_while_its_topic_goes_on_is_read_by_another_consumer() {
    let mut broker = FakeBroker::new(Script {
        first_consumer_is_stuck: true,
        ..holes()
    })
    .await;
    broker.config.stall_check_interval = Duration::from_millis(100);
    let log = opened(&broker).await;
    let mut reader = Reader::new(&log, vec![start(0, 2)]).await;
    assert_eq!(
        offsets(&reader.read_to(0, 30).await),
        [3, 5, 12, 20, 21, 24]
    );
    let consumers = broker.script.lock().consumers.len();
    assert_eq!(consumers, 2, "one that stood still, and its successor");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_visit_that_gets_nowhere_ends_with_an_error() {
    let mut broker = FakeBroker::new(holes()).await;
    broker.config.stall_check_interval = Duration::from_millis(100);
    broker.config.request_timeout = Duration::from_millis(500);
    let log = opened(&broker).await;
    let fetch = kafka_protocol::messages::ApiKey::Fetch as i16;
    broker.script.lock().silent.insert(fetch);
    let error = within(log.read_range(0, 2, 30)).await.unwrap_err();
    assert!(
        matches!(error, MetadataLogError::Unavailable { .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("offset 2"), "{error}");
}
