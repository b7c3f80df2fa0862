//! Random events, and bytes that are nearly or not at all events.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;

fn topic_id_partition() -> impl Strategy<Value = TopicIdPartition> {
    let name = prop_oneof![
        4 => "[a-zA-Z0-9._-]{1,12}",
        1 => "\\PC{1,80}",
        1 => "[a-z]{120,260}",
    ];
    (any::<u128>(), name, any::<i32>()).prop_map(|(id, name, partition)| {
        TopicIdPartition::new(Uuid::from_u128(id), name, partition)
    })
}

fn segment_id() -> impl Strategy<Value = RemoteLogSegmentId> {
    (topic_id_partition(), any::<u128>())
        .prop_map(|(tp, id)| RemoteLogSegmentId::new(tp, Uuid::from_u128(id)))
}

fn custom_metadata() -> impl Strategy<Value = Option<CustomMetadata>> {
    prop::option::of(prop::collection::vec(any::<u8>(), 0..200).prop_map(CustomMetadata))
}

fn segment_state() -> impl Strategy<Value = RemoteLogSegmentState> {
    select(&RemoteLogSegmentState::ALL[..])
}

fn segment() -> impl Strategy<Value = RemoteLogSegmentMetadata> {
    let epochs =
        prop::collection::btree_map(any::<i32>().prop_map(LeaderEpoch), any::<i64>(), 1..200);
    let epochs = prop_oneof![
        3 => (any::<i32>(), any::<i64>()).prop_map(|(e, at)| BTreeMap::from([(LeaderEpoch(e), at)])),
        1 => epochs,
    ];
    let numbers = (any::<i64>(), any::<i32>(), any::<i64>(), 0..=i32::MAX);
    (
        segment_id(),
        (0..=i64::MAX, 0..=i64::MAX),
        numbers,
        segment_state(),
        epochs,
        custom_metadata(),
        any::<bool>(),
    )
        .prop_map(
            |(
                id,
                (a, b),
                (max_timestamp, broker, timestamp, size),
                state,
                epochs,
                custom,
                empty,
            )| {
                let segment = RemoteLogSegmentMetadata::new(
                    id,
                    a.min(b),
                    a.max(b),
                    max_timestamp,
                    broker,
                    timestamp,
                    RemoteLogSegmentDetails::new(size, state, epochs),
                )
                .unwrap()
                .with_txn_index_empty(empty);
                match custom {
                    Some(custom) => segment.with_custom_metadata(custom),
                    None => segment,
                }
            },
        )
}

pub(super) fn event() -> impl Strategy<Value = MetadataEvent> {
    let update = (
        segment_id(),
        any::<i64>(),
        custom_metadata(),
        segment_state(),
        any::<i32>(),
    );
    let delete_states = &RemotePartitionDeleteState::ALL[..];
    let delete = (
        topic_id_partition(),
        select(delete_states),
        any::<i64>(),
        any::<i32>(),
    );
    prop_oneof![
        segment().prop_map(MetadataEvent::AddSegment),
        update.prop_map(|(id, timestamp, custom, state, broker)| {
            MetadataEvent::UpdateSegment(RemoteLogSegmentMetadataUpdate::new(
                id, timestamp, custom, state, broker,
            ))
        }),
        delete.prop_map(|(tp, state, timestamp, broker)| {
            MetadataEvent::PartitionDelete(RemotePartitionDeleteMetadata::new(
                tp, state, timestamp, broker,
            ))
        }),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(event in event()) {
        let value = event.encode();
        assert_same(&MetadataEvent::decode(&value).unwrap(), &event);
    }

    #[test]
    fn any_bytes_are_an_event_or_an_error(value in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(event) = MetadataEvent::decode(&value) {
            assert_same(&MetadataEvent::decode(&event.encode()).unwrap(), &event);
        }
    }

    /// Most of these get past the header, and some to the end.
    #[test]
    fn a_changed_event_is_an_event_or_an_error(
        event in event(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut value = event.encode().to_vec();
        for (at, byte) in changes {
            let at = at.index(value.len());
            value[at] = byte;
        }
        if let Some(cut) = cut {
            value.truncate(cut.index(value.len()));
        }
        if let Ok(event) = MetadataEvent::decode(&value) {
            assert_same(&MetadataEvent::decode(&event.encode()).unwrap(), &event);
        }
    }
}
