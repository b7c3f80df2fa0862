//! What becomes of an event that is published, whatever brokers say.

use std::time::Duration;

use bytes::Bytes;
use krabka_remote_storage::metadata::topic::{
    KafkaMetadataEventLog, KeyedEvent, MetadataEventLog as _, MetadataLogError,
};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr as Error};

use super::mock::{Mock, event, events, publish, within};

/// What is in the partition.
async fn written(log: &KafkaMetadataEventLog, partition: i32) -> Vec<(i64, Bytes)> {
    let records = within(log.read_range(partition, 0, i64::MAX))
        .await
        .unwrap();
    let records = records.into_iter();
    records
        .map(|record| (record.offset, record.payload))
        .collect()
}

fn assert_rejected(error: &MetadataLogError, words: &str) {
    assert!(
        matches!(error, MetadataLogError::Rejected { .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains(words), "{error}");
}

fn assert_unknown(error: &MetadataLogError) {
    assert!(
        matches!(error, MetadataLogError::OutcomeUnknown { .. }),
        "{error:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_grow_by_partition() {
    let mock = Mock::new(1, 2);
    let log = mock.log().await;
    for (partition, offset) in [(0, 0), (1, 0), (0, 1), (0, 2), (1, 1)] {
        assert_eq!(
            within(log.publish(partition, event(1))).await.unwrap(),
            offset
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_outside_of_the_log_is_refused_before_anything_is_sent() {
    let mock = Mock::new(1, 2);
    let log = mock.log().await;
    mock.cluster.broker_down(-1).unwrap();
    for partition in [-1, 2] {
        let error = log.publish(partition, event(1)).await.unwrap_err();
        assert!(
            matches!(
                error,
                MetadataLogError::PartitionOutOfRange { count: 2, .. }
            ),
            "{error:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_whose_broker_closes_the_connection_is_written_once() {
    let mock = Mock::new(1, 1);
    let log = mock.log().await;
    publish(&log, 0, 0..1).await;
    let lost = Error::RD_KAFKA_RESP_ERR__TRANSPORT;
    mock.cluster
        .request_errors(RDKafkaApiKey::Produce, &[lost, lost]);
    publish(&log, 0, 1..3).await;
    assert_eq!(written(&log, 0).await, events(0..3));
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_that_pass_are_waited_out() {
    let mock = Mock::new(1, 1);
    let log = mock.log().await;
    publish(&log, 0, 0..1).await;
    let passing = [
        Error::RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID,
        Error::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
        Error::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
        Error::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,
    ];
    mock.cluster
        .request_errors(RDKafkaApiKey::Produce, &passing);
    publish(&log, 0, 1..3).await;
    assert_eq!(written(&log, 0).await, events(0..3));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_not_acknowledged_in_time_has_an_unknown_outcome() {
    let mut mock = Mock::new(1, 1);
    mock.config.publish_timeout = Duration::from_secs(3);
    let log = mock.log().await;
    publish(&log, 0, 0..1).await;
    mock.cluster.broker_down(-1).unwrap();
    assert_unknown(&within(log.publish(0, event(9))).await.unwrap_err());
    mock.cluster.broker_up(-1).unwrap();
    // The log is well again by itself.
    within(async { while log.publish(0, event(1)).await.is_err() {} }).await;
    let read = written(&log, 0).await;
    assert_eq!(read[0], (0, event(0)));
    assert_eq!(read[read.len() - 1].1, event(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn too_few_replicas_until_the_end_leave_the_outcome_unknown() {
    let mut mock = Mock::new(1, 1);
    mock.config.publish_timeout = Duration::from_millis(500);
    let log = mock.log().await;
    let errors = [Error::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS; 200];
    mock.cluster.request_errors(RDKafkaApiKey::Produce, &errors);
    assert_unknown(&within(log.publish(0, event(0))).await.unwrap_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_is_rejected_and_the_next_event_tries_again() {
    let mock = Mock::new(1, 1);
    let log = mock.log().await;
    publish(&log, 0, 0..1).await;
    let refused = Error::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    for _ in 0..2 {
        mock.cluster
            .request_errors(RDKafkaApiKey::Produce, &[refused]);
        assert_rejected(
            &within(log.publish(0, event(9))).await.unwrap_err(),
            "right",
        );
    }
    // The right was given.
    publish(&log, 0, 1..3).await;
    assert_eq!(written(&log, 0).await, events(0..3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_the_metadata_forbids_is_rejected_until_it_does_not() {
    let mock = Mock::new(1, 1);
    let log = mock.log().await;
    publish(&log, 0, 0..1).await;
    let topic = &mock.config.topic;
    let refused = Error::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    mock.cluster.topic_error(topic, refused).unwrap();
    mock.cluster
        .request_errors(RDKafkaApiKey::Produce, &[refused]);
    for _ in 0..2 {
        assert_rejected(
            &within(log.publish(0, event(9))).await.unwrap_err(),
            "right",
        );
    }
    mock.cluster
        .topic_error(topic, Error::RD_KAFKA_RESP_ERR_NO_ERROR)
        .unwrap();
    publish(&log, 0, 1..2).await;
    assert_eq!(written(&log, 0).await, events(0..2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_after_an_attempt_that_may_have_counted_leaves_the_outcome_unknown() {
    let mock = Mock::new(1, 1);
    let log = mock.log().await;
    publish(&log, 0, 0..1).await;
    let errors = [
        Error::RD_KAFKA_RESP_ERR__TRANSPORT,
        Error::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
    ];
    mock.cluster.request_errors(RDKafkaApiKey::Produce, &errors);
    assert_unknown(&within(log.publish(0, event(9))).await.unwrap_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_too_large_is_rejected_by_the_client_and_by_the_broker() {
    let mock = Mock::new(1, 1);
    let log = mock.log().await;
    let large = Bytes::from(vec![0; 2 * 1024 * 1024]);
    assert_rejected(
        &within(log.publish(0, large)).await.unwrap_err(),
        "max.message.bytes",
    );
    let refused = Error::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
    mock.cluster
        .request_errors(RDKafkaApiKey::Produce, &[refused]);
    assert_rejected(
        &within(log.publish(0, event(9))).await.unwrap_err(),
        "max.message.bytes",
    );
    publish(&log, 0, 0..1).await;
    assert_eq!(written(&log, 0).await, events(0..1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_that_can_go_on_no_longer_is_replaced() {
    let mock = Mock::new(1, 1);
    let log = mock.log().await;
    publish(&log, 0, 0..1).await;
    let fatal = Error::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER;
    mock.cluster
        .request_errors(RDKafkaApiKey::Produce, &[fatal]);
    assert_unknown(&within(log.publish(0, event(9))).await.unwrap_err());
    publish(&log, 0, 1..3).await;
    assert_eq!(written(&log, 0).await, events(0..3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_without_a_value_is_a_tombstone_and_one_without_bytes_is_not() {
    let mock = Mock::new(1, 1);
    let log = mock.log().await;
    let key = Bytes::from_static(b"key");
    for event in [Some(event(0)), None, Some(Bytes::new())] {
        let record = KeyedEvent {
            key: key.clone(),
            event,
        };
        within(log.publish_keyed(0, record)).await.unwrap();
    }
    publish(&log, 0, 3..4).await;
    let records = within(log.read_range(0, 0, 4)).await.unwrap();
    let read: Vec<_> = records
        .iter()
        .map(|record| (record.key.clone(), record.payload.clone(), record.tombstone))
        .collect();
    let expected = [
        (Some(key.clone()), event(0), false),
        (Some(key.clone()), Bytes::new(), true),
        (Some(key), Bytes::new(), false),
        (None, event(3), false),
    ];
    assert_eq!(read, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_was_shut_down_refuses_everything_in_time() {
    let mock = Mock::new(1, 1);
    let log = mock.log().await;
    publish(&log, 0, 0..1).await;
    within(log.shutdown()).await;
    within(log.shutdown()).await;
    let closed = |error: MetadataLogError| matches!(error, MetadataLogError::Closed);
    assert!(closed(log.publish(0, event(1)).await.unwrap_err()));
    assert!(closed(log.subscribe(Vec::new()).await.err().unwrap()));
    assert!(closed(log.high_water_marks().await.unwrap_err()));
    assert!(closed(log.low_water_marks().await.unwrap_err()));
    assert!(closed(log.read_range(0, 0, 1).await.unwrap_err()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_on_its_way_when_the_log_is_shut_down_is_answered_in_time() {
    let mock = Mock::new(1, 1);
    let log = mock.log().await;
    publish(&log, 0, 0..1).await;
    mock.cluster.broker_down(-1).unwrap();
    let mut waiting = Box::pin(log.publish(0, event(9)));
    assert!(futures::poll!(&mut waiting).is_pending());
    within(log.shutdown()).await;
    assert_unknown(&within(waiting).await.unwrap_err());
}
