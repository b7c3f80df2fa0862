//! The deletion of a whole remote partition.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::TopicIdPartition;

/// How far the deletion of a remote partition has come (Kafka's `RemotePartitionDeleteState`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
pub enum RemotePartitionDeleteState {
    /// The controller has marked the partition for deletion; its segments stay readable.
    DeletePartitionMarked = 0,
    /// Segments are being deleted.
    DeletePartitionStarted = 1,
    /// Nothing is left of the partition.
    DeletePartitionFinished = 2,
}

impl RemotePartitionDeleteState {
    /// Every state, in the order of their wire ids.
    pub const ALL: [Self; 3] = [
        Self::DeletePartitionMarked,
        Self::DeletePartitionStarted,
        Self::DeletePartitionFinished,
    ];

    /// The id that stands for this state in Kafka's metadata records.
    pub const fn wire_id(self) -> i8 {
        self as i8
    }

    /// The state with this wire id; `None` for an id that Kafka does not define.
    pub fn from_wire_id(id: i8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.wire_id() == id)
    }

    /// Whether a partition's deletion may move from `from` (`None`: not begun) to `target`.
    pub const fn is_valid_transition(from: Option<Self>, target: Self) -> bool {
        use RemotePartitionDeleteState::{
            DeletePartitionFinished, DeletePartitionMarked, DeletePartitionStarted,
        };
        matches!(
            (from, target),
            (None | Some(DeletePartitionMarked), DeletePartitionMarked)
                | (
                    Some(DeletePartitionMarked | DeletePartitionStarted),
                    DeletePartitionStarted
                )
                | (
                    Some(DeletePartitionStarted | DeletePartitionFinished),
                    DeletePartitionFinished
                )
        )
    }
}

impl fmt::Display for RemotePartitionDeleteState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DeletePartitionMarked => "DELETE_PARTITION_MARKED",
            Self::DeletePartitionStarted => "DELETE_PARTITION_STARTED",
            Self::DeletePartitionFinished => "DELETE_PARTITION_FINISHED",
        })
    }
}

/// One event in the deletion of a remote partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemotePartitionDeleteMetadata {
    /// The partition that is deleted.
    pub topic_id_partition: TopicIdPartition,
    /// How far the deletion has come.
    pub state: RemotePartitionDeleteState,
    /// When the event was made, in milliseconds since 1970-01-01 UTC.
    pub event_timestamp_ms: i64,
    /// The broker that made the event.
    pub broker_id: i32,
}

impl RemotePartitionDeleteMetadata {
    /// Makes the event that `topic_id_partition` is now in `state`.
    pub fn new(
        topic_id_partition: TopicIdPartition,
        state: RemotePartitionDeleteState,
        event_timestamp_ms: i64,
        broker_id: i32,
    ) -> Self {
        Self {
            topic_id_partition,
            state,
            event_timestamp_ms,
            broker_id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_table_is_kafkas() {
        // Rows: from none and from each state; columns: to each state.
        let table = [
            [true, false, false],
            [true, true, false],
            [false, true, true],
            [false, false, true],
        ];
        let from = std::iter::once(None).chain(RemotePartitionDeleteState::ALL.map(Some));
        for (from, row) in from.zip(table) {
            for (target, legal) in RemotePartitionDeleteState::ALL.into_iter().zip(row) {
                assert_eq!(
                    RemotePartitionDeleteState::is_valid_transition(from, target),
                    legal,
                    "{from:?} to {target}"
                );
            }
        }
    }

    #[test]
    fn wire_ids_are_kafkas_and_unknown_ones_are_rejected() {
        for id in i8::MIN..=i8::MAX {
            let state = RemotePartitionDeleteState::from_wire_id(id);
            let wire = state.map(RemotePartitionDeleteState::wire_id);
            assert_eq!(wire, (0..=2).contains(&id).then_some(id));
        }
    }
}
