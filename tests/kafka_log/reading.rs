//! Subscriptions on the mock cluster.

use krabka_remote_storage::metadata::topic::MetadataEventLog as _;

use super::mock::{Mock, Reader, events, publish, start, within};

#[tokio::test(flavor = "multi_thread")]
async fn what_was_published_before_and_after_comes_in_order_and_once() {
    let mock = Mock::new(1, 2);
    let log = mock.log().await;
    eprintln!("{:?}", log.topic_report());
    publish(&log, 1, 0..5).await;
    let mut reader = Reader::new(&log, vec![start(1, 0)]).await;
    assert_eq!(reader.read_to(1, 5).await, events(0..5));
    publish(&log, 1, 5..8).await;
    assert_eq!(reader.read_to(1, 8).await, events(5..8));
    assert_eq!(within(log.high_water_marks()).await.unwrap(), [0, 8]);
    assert_eq!(within(log.low_water_marks()).await.unwrap(), [0, 0]);
    assert!(log.topic_id().is_some());
}
