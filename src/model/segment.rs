//! The metadata of one remote segment, and the events that change it.

use std::collections::BTreeMap;
use std::fmt;

use super::{LeaderEpoch, RemoteLogSegmentId, RemoteLogSegmentState};
use crate::error::RemoteStorageError;

/// Bytes that a copy hands to the metadata store, which gives them back on every later call.
///
/// Their meaning is the storage manager's own. `Debug` shows their number only. Apache Kafka's
/// broker takes at most `remote.log.metadata.custom.metadata.max.bytes` (128 by default).
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct CustomMetadata(pub Vec<u8>);

impl fmt::Debug for CustomMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CustomMetadata({} bytes)", self.0.len())
    }
}

/// The part of a segment's metadata that [`RemoteLogSegmentMetadata::new`] takes together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteLogSegmentDetails {
    /// Length of the `.log` in bytes.
    pub segment_size_in_bytes: i32,
    /// The segment's state.
    pub state: RemoteLogSegmentState,
    /// For each leader epoch of the segment, the first offset of that epoch inside it.
    pub segment_leader_epochs: BTreeMap<LeaderEpoch, i64>,
}

impl RemoteLogSegmentDetails {
    /// Bundles the three values; [`RemoteLogSegmentMetadata::new`] checks them.
    pub fn new(
        segment_size_in_bytes: i32,
        state: RemoteLogSegmentState,
        segment_leader_epochs: BTreeMap<LeaderEpoch, i64>,
    ) -> Self {
        Self {
            segment_size_in_bytes,
            state,
            segment_leader_epochs,
        }
    }
}

/// What is known of one remote segment (Kafka's `RemoteLogSegmentMetadata`).
///
/// Offsets are inclusive at both ends. Every value satisfies the checks of
/// [`RemoteLogSegmentMetadata::new`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteLogSegmentMetadata {
    remote_log_segment_id: RemoteLogSegmentId,
    start_offset: i64,
    end_offset: i64,
    max_timestamp_ms: i64,
    broker_id: i32,
    event_timestamp_ms: i64,
    segment_size_in_bytes: i32,
    custom_metadata: Option<CustomMetadata>,
    state: RemoteLogSegmentState,
    segment_leader_epochs: BTreeMap<LeaderEpoch, i64>,
    txn_index_empty: bool,
}

impl RemoteLogSegmentMetadata {
    /// Describes a segment that holds the offsets `start_offset..=end_offset`.
    ///
    /// `end_offset` may exceed the last stored record: a leader sets it to the offset before the
    /// next segment. `max_timestamp_ms` is the highest record timestamp, −1 when there is none.
    /// The value starts without custom metadata and with `txn_index_empty == false`.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument) when `start_offset` or the size is
    /// negative, when the end lies before the start, or when no leader epoch is given. Epoch
    /// offsets outside the segment are accepted, as Kafka does; such an epoch is never readable.
    pub fn new(
        remote_log_segment_id: RemoteLogSegmentId,
        start_offset: i64,
        end_offset: i64,
        max_timestamp_ms: i64,
        broker_id: i32,
        event_timestamp_ms: i64,
        details: RemoteLogSegmentDetails,
    ) -> Result<Self, RemoteStorageError> {
        let metadata = Self {
            remote_log_segment_id,
            start_offset,
            end_offset,
            max_timestamp_ms,
            broker_id,
            event_timestamp_ms,
            segment_size_in_bytes: details.segment_size_in_bytes,
            custom_metadata: None,
            state: details.state,
            segment_leader_epochs: details.segment_leader_epochs,
            txn_index_empty: false,
        };
        metadata.check()?;
        Ok(metadata)
    }

    fn check(&self) -> Result<(), RemoteStorageError> {
        let epochs = self.segment_leader_epochs.len();
        let size = self.segment_size_in_bytes;
        match segment_problem(self.start_offset, self.end_offset, size, epochs) {
            None => Ok(()),
            Some(problem) => Err(RemoteStorageError::InvalidArgument(format!(
                "segment {}: {problem}",
                self.remote_log_segment_id
            ))),
        }
    }

    /// The same segment with this custom metadata.
    #[must_use]
    pub fn with_custom_metadata(mut self, custom_metadata: CustomMetadata) -> Self {
        self.custom_metadata = Some(custom_metadata);
        self
    }

    /// The same segment, marked as having (`false`) or not having (`true`) aborted transactions
    /// in its transaction index.
    #[must_use]
    pub fn with_txn_index_empty(mut self, txn_index_empty: bool) -> Self {
        self.txn_index_empty = txn_index_empty;
        self
    }

    /// The segment after `update`, which replaces state, event timestamp and broker id.
    ///
    /// Custom metadata is replaced only when the update carries some, so that a receipt survives
    /// the events of a deletion. Apache Kafka clears it in that case; its own brokers always
    /// repeat the stored value, so the two rules agree on what they write.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument) when the update names another
    /// segment, [`InvalidSegmentTransition`](RemoteStorageError::InvalidSegmentTransition) when
    /// the state may not follow.
    pub fn with_update(
        &self,
        update: &RemoteLogSegmentMetadataUpdate,
    ) -> Result<Self, RemoteStorageError> {
        if update.remote_log_segment_id != self.remote_log_segment_id {
            return Err(RemoteStorageError::InvalidArgument(format!(
                "an update of segment {} cannot change segment {}",
                update.remote_log_segment_id, self.remote_log_segment_id
            )));
        }
        if !self.state.is_valid_transition(update.state) {
            return Err(RemoteStorageError::InvalidSegmentTransition {
                id: self.remote_log_segment_id.clone(),
                from: self.state,
                to: update.state,
            });
        }
        let mut updated = self.clone();
        updated.state = update.state;
        updated.event_timestamp_ms = update.event_timestamp_ms;
        updated.broker_id = update.broker_id;
        if let Some(custom_metadata) = &update.custom_metadata {
            updated.custom_metadata = Some(custom_metadata.clone());
        }
        Ok(updated)
    }

    /// The segment's id, unique to the copy attempt.
    pub fn remote_log_segment_id(&self) -> &RemoteLogSegmentId {
        &self.remote_log_segment_id
    }

    /// The partition that the segment belongs to.
    pub fn topic_id_partition(&self) -> &super::TopicIdPartition {
        &self.remote_log_segment_id.topic_id_partition
    }

    /// First offset, inclusive.
    pub fn start_offset(&self) -> i64 {
        self.start_offset
    }

    /// Last offset, inclusive; it may exceed the last stored record.
    pub fn end_offset(&self) -> i64 {
        self.end_offset
    }

    /// Highest record timestamp in milliseconds since 1970-01-01 UTC; −1 when unknown.
    pub fn max_timestamp_ms(&self) -> i64 {
        self.max_timestamp_ms
    }

    /// The broker that made the latest event.
    pub fn broker_id(&self) -> i32 {
        self.broker_id
    }

    /// When the latest event was made, in milliseconds since 1970-01-01 UTC.
    pub fn event_timestamp_ms(&self) -> i64 {
        self.event_timestamp_ms
    }

    /// Length of the `.log` in bytes, as the copying broker stated it.
    pub fn segment_size_in_bytes(&self) -> i32 {
        self.segment_size_in_bytes
    }

    /// What the copy returned for safe-keeping.
    pub fn custom_metadata(&self) -> Option<&CustomMetadata> {
        self.custom_metadata.as_ref()
    }

    /// The segment's state.
    pub fn state(&self) -> RemoteLogSegmentState {
        self.state
    }

    /// For each leader epoch of the segment, the first offset of that epoch inside it.
    pub fn segment_leader_epochs(&self) -> &BTreeMap<LeaderEpoch, i64> {
        &self.segment_leader_epochs
    }

    /// Whether the segment is known to have no aborted transactions (Kafka's `isTxnIdxEmpty`).
    pub fn txn_index_empty(&self) -> bool {
        self.txn_index_empty
    }
}

/// Why no segment can have these offsets, this size and so many leader epochs.
pub(crate) fn segment_problem(
    start_offset: i64,
    end_offset: i64,
    size_in_bytes: i32,
    leader_epochs: usize,
) -> Option<String> {
    if start_offset < 0 {
        // A negative base offset would render a file name that no parser accepts.
        Some(format!("start offset {start_offset} is negative"))
    } else if end_offset < start_offset {
        Some(format!(
            "end offset {end_offset} is below start offset {start_offset}"
        ))
    } else if size_in_bytes < 0 {
        Some(format!("size of {size_in_bytes} bytes is negative"))
    } else if leader_epochs == 0 {
        Some("no leader epoch is given".to_owned())
    } else {
        None
    }
}

/// An event that changes a segment's metadata (Kafka's `RemoteLogSegmentMetadataUpdate`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteLogSegmentMetadataUpdate {
    /// The segment that changes.
    pub remote_log_segment_id: RemoteLogSegmentId,
    /// When the event was made, in milliseconds since 1970-01-01 UTC.
    pub event_timestamp_ms: i64,
    /// New custom metadata; `None` keeps what is stored.
    pub custom_metadata: Option<CustomMetadata>,
    /// The new state.
    pub state: RemoteLogSegmentState,
    /// The broker that made the event.
    pub broker_id: i32,
}

impl RemoteLogSegmentMetadataUpdate {
    /// Makes the event that the segment is now in `state`.
    pub fn new(
        remote_log_segment_id: RemoteLogSegmentId,
        event_timestamp_ms: i64,
        custom_metadata: Option<CustomMetadata>,
        state: RemoteLogSegmentState,
        broker_id: i32,
    ) -> Self {
        Self {
            remote_log_segment_id,
            event_timestamp_ms,
            custom_metadata,
            state,
            broker_id,
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::model::TopicIdPartition;

    fn segment_id(id: u128) -> RemoteLogSegmentId {
        let tp = TopicIdPartition::new(Uuid::from_u128(1), "orders", 7);
        RemoteLogSegmentId::new(tp, Uuid::from_u128(id))
    }

    fn build(
        offsets: (i64, i64),
        size: i32,
        epochs: &[(i32, i64)],
    ) -> Result<RemoteLogSegmentMetadata, RemoteStorageError> {
        RemoteLogSegmentMetadata::new(
            segment_id(0xfe),
            offsets.0,
            offsets.1,
            -1,
            1,
            456,
            RemoteLogSegmentDetails::new(
                size,
                RemoteLogSegmentState::CopySegmentStarted,
                epochs
                    .iter()
                    .map(|&(epoch, offset)| (LeaderEpoch(epoch), offset))
                    .collect(),
            ),
        )
    }

    fn update(state: RemoteLogSegmentState) -> RemoteLogSegmentMetadataUpdate {
        RemoteLogSegmentMetadataUpdate::new(segment_id(0xfe), 789, None, state, 2)
    }

    #[test]
    fn a_segment_that_cannot_be_is_refused_with_its_id_and_the_reason() {
        for (offsets, size, epochs, reason) in [
            ((0, 9), 1, &[][..], "no leader epoch is given"),
            (
                (10, 9),
                1,
                &[(0, 10)],
                "end offset 9 is below start offset 10",
            ),
            ((-1, 9), 1, &[(0, 0)], "start offset -1 is negative"),
            (
                (i64::MIN, i64::MAX),
                1,
                &[(0, 0)],
                "start offset -9223372036854775808 is negative",
            ),
            ((0, 9), -1, &[(0, 0)], "size of -1 bytes is negative"),
        ] {
            let error = build(offsets, size, epochs).unwrap_err();
            assert!(
                matches!(error, RemoteStorageError::InvalidArgument(_)),
                "{error:?}"
            );
            assert_eq!(
                error.to_string(),
                format!("segment AAAAAAAAAAAAAAAAAAAA_g of orders-7: {reason}")
            );
        }
    }

    #[test]
    fn what_kafka_accepts_at_the_edges_is_accepted() {
        // One offset; an empty log; the largest of everything.
        build((5, 5), 0, &[(0, 5)]).unwrap();
        build((0, i64::MAX), i32::MAX, &[(i32::MAX, 0)]).unwrap();
        // Epoch offsets outside the segment, and not ascending.
        build((10, 20), 1, &[(0, -5), (1, 30), (2, 15), (-1, i64::MIN)]).unwrap();
    }

    #[test]
    fn a_new_segment_has_what_was_given_and_nothing_else() {
        let segment = build((5, 9), 3, &[(2, 5), (1, 7)]).unwrap();
        assert_eq!(segment.remote_log_segment_id(), &segment_id(0xfe));
        assert_eq!(segment.topic_id_partition().topic, "orders");
        assert_eq!((segment.start_offset(), segment.end_offset()), (5, 9));
        assert_eq!(segment.max_timestamp_ms(), -1);
        assert_eq!(segment.broker_id(), 1);
        assert_eq!(segment.event_timestamp_ms(), 456);
        assert_eq!(segment.segment_size_in_bytes(), 3);
        assert_eq!(segment.state(), RemoteLogSegmentState::CopySegmentStarted);
        assert_eq!(
            segment.segment_leader_epochs(),
            &BTreeMap::from([(LeaderEpoch(1), 7), (LeaderEpoch(2), 5)])
        );
        assert_eq!(segment.custom_metadata(), None);
        assert!(!segment.txn_index_empty());
    }

    #[test]
    fn an_update_replaces_state_time_and_broker_and_keeps_the_rest() {
        let before = build((0, 9), 1, &[(0, 0)])
            .unwrap()
            .with_custom_metadata(CustomMetadata(vec![9]))
            .with_txn_index_empty(true);
        let untouched = before.clone();

        let after = before
            .with_update(&update(RemoteLogSegmentState::CopySegmentFinished))
            .unwrap();
        assert_eq!(after.broker_id(), 2);
        assert_eq!(after.event_timestamp_ms(), 789);
        assert_eq!(after.state(), RemoteLogSegmentState::CopySegmentFinished);
        assert_eq!(after.custom_metadata(), Some(&CustomMetadata(vec![9])));
        assert!(after.txn_index_empty());
        assert_eq!(before, untouched);

        let expected = RemoteLogSegmentMetadata {
            broker_id: 2,
            event_timestamp_ms: 789,
            state: RemoteLogSegmentState::CopySegmentFinished,
            ..before
        };
        assert_eq!(after, expected);
    }

    #[test]
    fn custom_metadata_of_an_update_replaces_also_when_it_is_empty() {
        let before = build((0, 9), 1, &[(0, 0)])
            .unwrap()
            .with_custom_metadata(CustomMetadata(vec![9]));
        for bytes in [vec![], vec![1, 2]] {
            let mut update = update(RemoteLogSegmentState::CopySegmentFinished);
            update.custom_metadata = Some(CustomMetadata(bytes.clone()));
            let after = before.with_update(&update).unwrap();
            assert_eq!(after.custom_metadata(), Some(&CustomMetadata(bytes)));
        }
    }

    #[test]
    fn an_update_of_another_segment_is_refused_before_its_state_is_looked_at() {
        let segment = build((0, 9), 1, &[(0, 0)]).unwrap();
        let mut foreign = update(RemoteLogSegmentState::DeleteSegmentFinished);
        foreign.remote_log_segment_id = segment_id(0x0a);
        let error = segment.with_update(&foreign).unwrap_err();
        assert!(matches!(error, RemoteStorageError::InvalidArgument(_)));
        assert_eq!(
            error.to_string(),
            "an update of segment AAAAAAAAAAAAAAAAAAAACg of orders-7 cannot change segment \
             AAAAAAAAAAAAAAAAAAAA_g of orders-7"
        );
    }

    #[test]
    fn an_update_moves_the_state_as_the_table_allows() {
        for from in RemoteLogSegmentState::ALL {
            let mut segment = build((0, 9), 1, &[(0, 0)]).unwrap();
            segment.state = from;
            for to in RemoteLogSegmentState::ALL {
                match segment.with_update(&update(to)) {
                    Ok(updated) => {
                        assert!(from.is_valid_transition(to), "{from} to {to}");
                        assert_eq!(updated.state(), to);
                    }
                    Err(RemoteStorageError::InvalidSegmentTransition {
                        id,
                        from: reported_from,
                        to: reported_to,
                    }) => {
                        assert!(!from.is_valid_transition(to), "{from} to {to}");
                        assert_eq!(&id, segment.remote_log_segment_id());
                        assert_eq!((reported_from, reported_to), (from, to));
                    }
                    Err(error) => panic!("{error:?}"),
                }
            }
        }
    }

    #[test]
    fn equality_covers_every_field() {
        let segment = || build((0, 9), 1, &[(0, 0)]).unwrap();
        let changes: [fn(&mut RemoteLogSegmentMetadata); 11] = [
            |it| it.remote_log_segment_id.id = Uuid::nil(),
            |it| it.start_offset += 1,
            |it| it.end_offset += 1,
            |it| it.max_timestamp_ms += 1,
            |it| it.broker_id += 1,
            |it| it.event_timestamp_ms += 1,
            |it| it.segment_size_in_bytes += 1,
            |it| it.custom_metadata = Some(CustomMetadata::default()),
            |it| it.state = RemoteLogSegmentState::DeleteSegmentStarted,
            |it| it.segment_leader_epochs.clear(),
            |it| it.txn_index_empty = true,
        ];
        assert_eq!(segment(), segment());
        for (at, change) in changes.into_iter().enumerate() {
            let mut other = segment();
            change(&mut other);
            assert_ne!(other, segment(), "change {at}");
        }
    }

    #[test]
    fn custom_metadata_shows_its_length_and_no_byte() {
        let segment = build((0, 9), 1, &[(0, 0)])
            .unwrap()
            .with_custom_metadata(CustomMetadata(b"MARKED".to_vec()));
        let debug = format!("{segment:?}");
        assert!(debug.contains("CustomMetadata(6 bytes)"), "{debug}");
        assert!(!debug.contains("MARKED"), "{debug}");
        assert!(!debug.contains("77, 65"), "{debug}");
    }
}
