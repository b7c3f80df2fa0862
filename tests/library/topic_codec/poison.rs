//! Records at which the metadata thread of a JVM broker stops: none of them can be published.
//!
//! A null value, a value that cannot be decoded, an api key beyond 2 and a version above 0 are no
//! values of `MetadataEvent`, and neither are unknown states, segments without an epoch and
//! offsets that cannot be.

use krabka_remote_storage::{ErrorKind, RemoteStorageError};
use proptest::prelude::*;

use super::properties::event;
use super::*;

#[test]
fn an_add_in_another_state_than_the_first_is_not_published() {
    for state in RemoteLogSegmentState::ALL {
        let add = Segment {
            state,
            ..Segment::default()
        }
        .add();
        let result = add.check_publishable();
        if state == RemoteLogSegmentState::CopySegmentStarted {
            result.unwrap();
            continue;
        }
        match result {
            Err(RemoteStorageError::InvalidAdd { id, reason, .. }) => {
                assert_eq!(id.id, Uuid::from_u128(0xfe));
                let text = format!("a segment enters as COPY_SEGMENT_STARTED, not as {state}");
                assert_eq!(reason, text);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[track_caller]
fn assert_invalid_argument(event: &MetadataEvent, text: &str) {
    match event.check_publishable() {
        Err(RemoteStorageError::InvalidArgument(reason)) => assert_eq!(reason, text),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_update_to_the_first_state_is_not_published() {
    for state in RemoteLogSegmentState::ALL {
        let update = update(state, 1, 1, None);
        if state == RemoteLogSegmentState::CopySegmentStarted {
            assert_invalid_argument(
                &update,
                "no update leads to COPY_SEGMENT_STARTED: segment AAAAAAAAAAAAAAAAAAAA_g of \
                 orders-7 needs an add",
            );
        } else {
            update.check_publishable().unwrap();
        }
    }
}

#[test]
fn a_topic_name_that_no_record_can_hold_is_not_published() {
    let named = |bytes: usize| {
        let mut event = finish();
        if let MetadataEvent::UpdateSegment(update) = &mut event {
            update.remote_log_segment_id.topic_id_partition.topic = "a".repeat(bytes);
        }
        event
    };
    for bytes in [1, 249, 32_767] {
        let event = named(bytes);
        event.check_publishable().unwrap();
        assert_same(&MetadataEvent::decode(&event.encode()).unwrap(), &event);
    }
    for bytes in [0, 32_768, 100_000] {
        assert_invalid_argument(
            &named(bytes),
            &format!("a topic name of {bytes} bytes cannot be published: it has 1 to 32767"),
        );
    }
    let mut event = delete(RemotePartitionDeleteState::DeletePartitionMarked, 1);
    if let MetadataEvent::PartitionDelete(delete) = &mut event {
        delete.topic_id_partition.topic.clear();
    }
    assert!(event.check_publishable().is_err());
}

#[test]
fn an_event_beyond_what_a_length_can_say_is_not_published() {
    // Zeros that nobody touches take no memory.
    let bytes = vec![0; 1 << 31];
    let event = update(
        RemoteLogSegmentState::CopySegmentFinished,
        1,
        1,
        Some(CustomMetadata(bytes)),
    );
    assert_invalid_argument(
        &event,
        "an event of 2147483715 bytes cannot be published: its custom metadata is too long",
    );
}

#[test]
fn a_segment_that_a_jvm_broker_refuses_cannot_be_made() {
    let build = |start, end, epochs: &[(i32, i64)]| {
        let epochs = epochs.iter().map(|&(e, at)| (LeaderEpoch(e), at)).collect();
        RemoteLogSegmentMetadata::new(
            RemoteLogSegmentId::new(orders(), Uuid::from_u128(1)),
            start,
            end,
            1,
            1,
            1,
            RemoteLogSegmentDetails::new(1, RemoteLogSegmentState::CopySegmentStarted, epochs),
        )
    };
    build(0, 0, &[(0, 0)]).unwrap();
    for result in [
        build(0, 0, &[]),
        build(1, 0, &[(0, 0)]),
        build(-1, 0, &[(0, 0)]),
    ] {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Invalid);
    }
}

proptest! {
    /// No null value, nothing that cannot be decoded, no other key, version or state.
    #[test]
    fn whatever_passes_the_check_has_bytes_that_a_broker_takes(event in event()) {
        let value = event.encode();
        prop_assert!(!value.is_empty());
        prop_assert_eq!(value[0], 1);
        prop_assert!(value[1] <= 2);
        prop_assert_eq!(value[2], 0);
        let read = MetadataEvent::decode(&value).unwrap();
        assert_same(&read, &event);
        if event.check_publishable().is_ok() {
            let state = match &read {
                MetadataEvent::AddSegment(add) => Some((add.state(), true)),
                MetadataEvent::UpdateSegment(update) => Some((update.state, false)),
                MetadataEvent::PartitionDelete(_) => None,
            };
            if let Some((state, first)) = state {
                let is_first = state == RemoteLogSegmentState::CopySegmentStarted;
                prop_assert_eq!(is_first, first);
            }
        }
    }
}
