//! The local files of a closed segment, and the kinds of index beside its log.

use std::path::PathBuf;

use bytes::Bytes;

/// Suffix of a segment's log, which holds its record batches.
pub const LOG_FILE_SUFFIX: &str = ".log";

/// The local files that a copy reads (Kafka's `LogSegmentData`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSegmentData {
    /// The segment's `.log`.
    pub log_segment: PathBuf,
    /// The segment's `.index`.
    pub offset_index: PathBuf,
    /// The segment's `.timeindex`.
    pub time_index: PathBuf,
    /// The segment's `.txnindex`; absent when no transaction in it was aborted.
    pub transaction_index: Option<PathBuf>,
    /// The producer state **after** the segment: the local `.snapshot` that is named after the
    /// base offset of the next segment. Kafka always has one.
    pub producer_snapshot_index: Option<PathBuf>,
    /// The text of the leader-epoch checkpoint, with every epoch from the log's start up to the
    /// segment's end (`0\n1\n0 0\n` is one epoch, 0, from offset 0).
    pub leader_epoch_index: Bytes,
}

/// An index that is kept beside a segment's log (Kafka's `RemoteStorageManager.IndexType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IndexType {
    /// Offset to position in the log.
    Offset,
    /// Timestamp to offset.
    Timestamp,
    /// Producer state after the segment.
    ProducerSnapshot,
    /// Leader epochs and their start offsets, from the log's start to the segment's end.
    LeaderEpoch,
    /// Aborted transactions whose end lies in the segment.
    Transaction,
}

impl IndexType {
    /// Every kind, in Kafka's order.
    pub const ALL: [Self; 5] = [
        Self::Offset,
        Self::Timestamp,
        Self::ProducerSnapshot,
        Self::LeaderEpoch,
        Self::Transaction,
    ];

    /// The file name suffix in the remote tier, its dot included.
    ///
    /// The leader-epoch suffix has underscores here; the local log's file is named
    /// `leader-epoch-checkpoint`.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Offset => ".index",
            Self::Timestamp => ".timeindex",
            Self::ProducerSnapshot => ".snapshot",
            Self::LeaderEpoch => ".leader_epoch_checkpoint",
            Self::Transaction => ".txnindex",
        }
    }

    /// The kind with exactly this suffix.
    pub fn from_suffix(suffix: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.suffix() == suffix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suffix_is_parsed_back_to_its_kind() {
        for kind in IndexType::ALL {
            assert_eq!(IndexType::from_suffix(kind.suffix()), Some(kind));
        }
    }

    #[test]
    fn near_misses_of_a_suffix_are_no_index() {
        for suffix in [".log", "", ".INDEX", "index", ".timeindex2", ".manifest"] {
            assert_eq!(IndexType::from_suffix(suffix), None, "{suffix:?}");
        }
    }
}
