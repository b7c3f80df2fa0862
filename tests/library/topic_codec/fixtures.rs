//! The topic that a real broker wrote: every record both ways.

use krabka_remote_storage::topic::metadata_partition_for;

use super::*;
use crate::support::metadata_topic::records;

#[test]
fn every_record_of_a_real_topic_is_read_and_written_as_kafka_does() {
    let records = records();
    assert_eq!(records.len(), 145);
    for record in records {
        let at = (record.metadata_partition, record.offset);
        let event = MetadataEvent::decode(&record.value).unwrap();
        assert_same(&event, &record.event);
        assert_eq!(event.encode(), record.value, "{at:?}");
        event.check_publishable().unwrap();
    }
}

#[test]
fn every_record_of_a_real_topic_is_where_the_partitioner_says() {
    for record in records() {
        let tp = record.event.topic_id_partition();
        assert_eq!(metadata_partition_for(tp, 5), record.metadata_partition);
    }
}
