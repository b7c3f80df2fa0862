//! The lifecycle of a remote segment and its legal moves.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a remote segment is in its life (Kafka's `RemoteLogSegmentState`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
pub enum RemoteLogSegmentState {
    /// The copy has begun; nothing can be read yet.
    CopySegmentStarted = 0,
    /// The copy is complete; the segment is readable.
    CopySegmentFinished = 1,
    /// The deletion has begun; the segment is no longer readable.
    DeleteSegmentStarted = 2,
    /// The deletion is complete.
    DeleteSegmentFinished = 3,
}

impl RemoteLogSegmentState {
    /// Every state, in the order of their wire ids.
    pub const ALL: [Self; 4] = [
        Self::CopySegmentStarted,
        Self::CopySegmentFinished,
        Self::DeleteSegmentStarted,
        Self::DeleteSegmentFinished,
    ];

    /// The id that stands for this state in Kafka's metadata records.
    pub const fn wire_id(self) -> i8 {
        self as i8
    }

    /// The state with this wire id; `None` for an id that Kafka does not define.
    pub fn from_wire_id(id: i8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.wire_id() == id)
    }

    /// Whether a segment in this state may move to `target`.
    ///
    /// Staying in a state is legal, so that a repeated event (a producer's retry, a change of
    /// leader) does no harm.
    pub const fn is_valid_transition(self, target: Self) -> bool {
        use RemoteLogSegmentState::{
            CopySegmentFinished, CopySegmentStarted, DeleteSegmentFinished, DeleteSegmentStarted,
        };
        matches!(
            (self, target),
            (
                CopySegmentStarted,
                CopySegmentStarted | CopySegmentFinished | DeleteSegmentStarted
            ) | (
                CopySegmentFinished,
                CopySegmentFinished | DeleteSegmentStarted
            ) | (
                DeleteSegmentStarted,
                DeleteSegmentStarted | DeleteSegmentFinished
            ) | (DeleteSegmentFinished, DeleteSegmentFinished)
        )
    }

    /// Whether a segment may enter the metadata store in state `target`, coming from `from`
    /// (`None`: the segment is unknown).
    pub const fn is_valid_transition_from(from: Option<Self>, target: Self) -> bool {
        match from {
            None => matches!(target, Self::CopySegmentStarted),
            Some(from) => from.is_valid_transition(target),
        }
    }
}

impl fmt::Display for RemoteLogSegmentState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CopySegmentStarted => "COPY_SEGMENT_STARTED",
            Self::CopySegmentFinished => "COPY_SEGMENT_FINISHED",
            Self::DeleteSegmentStarted => "DELETE_SEGMENT_STARTED",
            Self::DeleteSegmentFinished => "DELETE_SEGMENT_FINISHED",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_table_is_kafkas() {
        // Rows: from none and from each state; columns: to each state.
        let table = [
            [true, false, false, false],
            [true, true, true, false],
            [false, true, true, false],
            [false, false, true, true],
            [false, false, false, true],
        ];
        let from = std::iter::once(None).chain(RemoteLogSegmentState::ALL.map(Some));
        for (from, row) in from.zip(table) {
            for (target, legal) in RemoteLogSegmentState::ALL.into_iter().zip(row) {
                assert_eq!(
                    RemoteLogSegmentState::is_valid_transition_from(from, target),
                    legal,
                    "{from:?} to {target}"
                );
            }
        }
    }

    #[test]
    fn wire_ids_are_kafkas_and_unknown_ones_are_rejected() {
        assert_eq!(
            RemoteLogSegmentState::ALL.map(RemoteLogSegmentState::wire_id),
            [0, 1, 2, 3]
        );
        for id in i8::MIN..=i8::MAX {
            let state = RemoteLogSegmentState::from_wire_id(id);
            assert_eq!(
                state.map(RemoteLogSegmentState::wire_id),
                (0..=3).contains(&id).then_some(id)
            );
        }
    }
}
