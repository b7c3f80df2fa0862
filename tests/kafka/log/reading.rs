//! Subscriptions on the mock cluster, with what goes wrong there.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use krabka_remote_storage::metadata::topic::{
    MetadataEventLog as _, MetadataLogError, MetadataStreamItem,
};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr as Error};

use super::mock::{Mock, Reader, events, publish, start, within};

#[tokio::test(flavor = "multi_thread")]
async fn what_was_published_before_and_after_comes_in_order_and_once() {
    let mock = Mock::new(1, 2);
    let log = mock.log().await;
    publish(&log, 1, 0..5).await;
    let mut reader = Reader::new(&log, vec![start(1, 0)]).await;
    assert_eq!(reader.read_to(1, 5).await, events(0..5));
    publish(&log, 1, 5..8).await;
    assert_eq!(reader.read_to(1, 8).await, events(5..8));
    assert_eq!(within(log.high_water_marks()).await.unwrap(), [0, 8]);
    assert_eq!(within(log.low_water_marks()).await.unwrap(), [0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_subscriptions_read_the_same() {
    let mock = Mock::new(1, 1);
    let log = mock.log().await;
    publish(&log, 0, 0..3).await;
    let mut first = Reader::new(&log, vec![start(0, 0)]).await;
    let mut second = Reader::new(&log, vec![start(0, 2)]).await;
    publish(&log, 0, 3..4).await;
    assert_eq!(first.read_to(0, 4).await, events(0..4));
    assert_eq!(second.read_to(0, 4).await, events(2..4));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_is_assigned_later_comes_from_its_start_with_its_own_number() {
    let mock = Mock::new(1, 3);
    let log = mock.log().await;
    publish(&log, 0, 0..3).await;
    publish(&log, 2, 0..3).await;
    let mut reader = Reader::new(&log, Vec::new()).await;
    assert!(reader.handle.assigned().is_empty());
    assert_eq!(reader.handle.add(start(2, 1)), 1);
    assert_eq!(reader.handle.add(start(0, -7)), 2);
    assert_eq!(reader.handle.add(start(2, 0)), 1, "it is assigned already");
    reader.handle.add(start(3, 0));
    reader.handle.add(start(-1, 0));
    assert_eq!(reader.handle.assigned(), [0, 2]);
    let mut read = Vec::new();
    while read.len() < 5 {
        let page = reader.page().await;
        let number = if page.partition == 2 { 1 } else { 2 };
        assert_eq!(page.generation, number);
        read.extend(
            page.records
                .into_iter()
                .map(|one| (one.partition, one.offset)),
        );
    }
    read.sort_unstable();
    assert_eq!(read, [(0, 0), (0, 1), (0, 2), (2, 1), (2, 2)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_was_removed_and_added_comes_from_the_new_start() {
    let mock = Mock::new(1, 1);
    let log = mock.log().await;
    publish(&log, 0, 0..5).await;
    let mut reader = Reader::new(&log, vec![start(0, 0)]).await;
    assert_eq!(reader.read_to(0, 5).await, events(0..5));
    for (turn, from) in [(2, 3), (3, 0), (4, 5)] {
        reader.handle.remove(0);
        assert!(reader.handle.assigned().is_empty());
        assert_eq!(reader.handle.add(start(0, from)), turn);
        let mut next = from;
        while next < 5 {
            let page = reader.page().await;
            assert_eq!(page.generation, turn);
            for record in page.records {
                assert_eq!(record.offset, next);
                next += 1;
            }
        }
    }
    publish(&log, 0, 5..6).await;
    let page = reader.page().await;
    assert_eq!((page.generation, page.next_offset), (4, 6));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_comes_and_goes_under_load_always_comes_from_its_own_start() {
    let mock = Mock::new(1, 2);
    let log = mock.log().await;
    // Partition 1 has more, so that its end is behind that of partition 0.
    publish(&log, 0, 0..50).await;
    publish(&log, 1, 0..100).await;
    let publishing = [0, 1].map(|partition| {
        let log = Arc::clone(&log);
        tokio::spawn(async move {
            for number in 0..500 {
                publish(&log, partition, number..number + 1).await;
            }
        })
    });
    let mut reader = Reader::new(&log, vec![start(0, 0), start(1, 0)]).await;
    for turn in 0..150_u64 {
        let partition = i32::from(turn % 3 == 0);
        // Added several times before anybody looks, and looked at after some delay or none.
        let mut latest = (0, 0);
        for quick in 0..=turn % 3 {
            let from = i64::try_from((turn * 7 + quick * 11) % 50).unwrap();
            reader.handle.remove(partition);
            latest = (reader.handle.add(start(partition, from)), from);
        }
        if turn % 4 == 0 {
            tokio::time::sleep(Duration::from_millis(turn % 7)).await;
        }
        let (generation, mut next) = latest;
        let until = next + 40;
        while next < until {
            let page = reader.page().await;
            if page.partition != partition {
                continue;
            }
            assert_eq!(page.generation, generation, "turn {turn}");
            for record in page.records {
                assert_eq!(record.offset, next, "turn {turn}");
                next += 1;
            }
            assert_eq!(page.next_offset, next, "turn {turn}");
        }
    }
    for publishing in publishing {
        publishing.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_brokers_neither_end_a_stream_nor_cost_a_record() {
    let mock = Mock::new(1, 1);
    let log = mock.log().await;
    // Nobody needs a group here.
    let refused = [Error::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED; 3];
    mock.cluster
        .request_errors(RDKafkaApiKey::FindCoordinator, &refused);
    let mut reader = Reader::new(&log, vec![start(0, 0)]).await;
    for (round, error) in [
        Error::RD_KAFKA_RESP_ERR__TRANSPORT,
        Error::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
        Error::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART,
        Error::RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE,
        Error::RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR,
        Error::RD_KAFKA_RESP_ERR_OFFSET_NOT_AVAILABLE,
        Error::RD_KAFKA_RESP_ERR_UNKNOWN,
        Error::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
    ]
    .into_iter()
    .enumerate()
    {
        mock.cluster
            .request_errors(RDKafkaApiKey::Fetch, &[error, error]);
        publish(&log, 0, round * 5..round * 5 + 5).await;
        let end = i64::try_from(round * 5 + 5).unwrap();
        assert_eq!(
            reader.read_to(0, end).await,
            events(round * 5..round * 5 + 5)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offset_that_brokers_do_not_have_is_told_once_and_for_its_partition_alone() {
    let mock = Mock::new(1, 2);
    let log = mock.log().await;
    publish(&log, 0, 0..3).await;
    publish(&log, 1, 0..3).await;
    let mut reader = Reader::new(&log, vec![start(0, 0), start(1, 9)]).await;
    let mut read = Vec::new();
    let mut is_told = false;
    while read.len() < 3 || !is_told {
        match reader.item().await {
            MetadataStreamItem::Page(page) => {
                assert_eq!(page.partition, 0);
                read.extend(page.records.into_iter().map(|one| one.offset));
            }
            other => {
                let expected = MetadataStreamItem::OutOfRange {
                    partition: 1,
                    generation: 2,
                    position: 9,
                };
                assert_eq!(other, expected);
                assert!(!is_told);
                is_told = true;
            }
        }
    }
    // The partition has grown beyond the offset: that does not bring it back.
    publish(&log, 1, 3..12).await;
    publish(&log, 0, 3..5).await;
    assert_eq!(reader.read_to(0, 5).await, events(3..5));
    reader.handle.remove(1);
    reader.handle.add(start(1, 0));
    assert_eq!(reader.read_to(1, 12).await, events(0..12));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_was_away_is_read_on_from_where_it_was() {
    let mock = Mock::new(1, 1);
    let log = mock.log().await;
    let mut reader = Reader::new(&log, vec![start(0, 0)]).await;
    publish(&log, 0, 0..3).await;
    assert_eq!(reader.read_to(0, 3).await, events(0..3));
    for round in 1..3 {
        mock.cluster.broker_down(-1).unwrap();
        let unanswered =
            tokio::time::timeout(std::time::Duration::from_millis(100), reader.items.next());
        assert!(
            unanswered.await.is_err(),
            "nothing comes, and the stream goes on"
        );
        mock.cluster.broker_up(-1).unwrap();
        publish(&log, 0, round * 3..round * 3 + 3).await;
        let end = i64::try_from(round * 3 + 3).unwrap();
        assert_eq!(
            reader.read_to(0, end).await,
            events(round * 3..round * 3 + 3)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_moves_under_load_costs_and_doubles_nothing() {
    const EVENTS: usize = 600;
    let mock = Mock::new(3, 1);
    let log = mock.log().await;
    let mut reader = Reader::new(&log, vec![start(0, 0)]).await;
    let writer = std::sync::Arc::clone(&log);
    let writing = tokio::spawn(async move { publish(&writer, 0, 0..EVENTS).await });
    let mut read = Vec::new();
    let mut moves = 0;
    while read.len() < EVENTS {
        let page = reader.page().await;
        read.extend(
            page.records
                .into_iter()
                .map(|one| (one.offset, one.payload)),
        );
        if read.len() > moves * 100 {
            moves += 1;
            let leader = Some(i32::try_from(moves % 3).unwrap() + 1);
            let topic = &mock.config.topic;
            mock.cluster.partition_leader(topic, 0, leader).unwrap();
        }
    }
    writing.await.unwrap();
    assert!(moves >= 6, "{moves}");
    assert_eq!(read, events(0..EVENTS));
}

#[tokio::test(flavor = "multi_thread")]
async fn marks_fail_as_a_whole_when_one_partition_does_not_tell_them() {
    let mut mock = Mock::new(1, 2);
    mock.config.request_timeout = std::time::Duration::from_secs(2);
    let log = mock.log().await;
    publish(&log, 0, 0..3).await;
    let refused = Error::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    mock.cluster
        .request_errors(RDKafkaApiKey::ListOffsets, &[refused; 10]);
    let error = within(log.high_water_marks()).await.unwrap_err();
    assert!(
        matches!(error, MetadataLogError::Rejected { .. }),
        "{error:?}"
    );
    mock.cluster
        .clear_request_errors(RDKafkaApiKey::ListOffsets);
    mock.cluster.broker_down(-1).unwrap();
    let error = within(log.low_water_marks()).await.unwrap_err();
    assert!(
        matches!(error, MetadataLogError::Unavailable { .. }),
        "{error:?}"
    );
    mock.cluster.broker_up(-1).unwrap();
    assert_eq!(within(log.high_water_marks()).await.unwrap(), [3, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_that_pass_while_marks_are_asked_for_are_waited_out() {
    let mock = Mock::new(1, 2);
    let log = mock.log().await;
    publish(&log, 1, 0..3).await;
    for passing in [
        Error::RD_KAFKA_RESP_ERR_UNKNOWN_LEADER_EPOCH,
        Error::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
        Error::RD_KAFKA_RESP_ERR_UNKNOWN,
    ] {
        mock.cluster
            .request_errors(RDKafkaApiKey::ListOffsets, &[passing; 6]);
        assert_eq!(within(log.high_water_marks()).await.unwrap(), [0, 3]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_when_the_log_is_shut_down_or_dropped() {
    let mock = Mock::new(1, 1);
    let log = mock.log().await;
    let mut reader = Reader::new(&log, vec![start(0, 0)]).await;
    within(log.shutdown()).await;
    assert_eq!(within(reader.items.next()).await, None);
    assert_eq!(within(reader.items.next()).await, None);

    let log = mock.log().await;
    let mut reader = Reader::new(&log, vec![start(0, 0)]).await;
    drop(log);
    assert_eq!(within(reader.items.next()).await, None);
}
