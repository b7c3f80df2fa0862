//! Reads the directories that a Kafka broker keeps: its `log.dirs`, and the partitions in them.
//!
//! Nothing here writes. A segment is handed out only when everything that belongs to it is there
//! and whole, so that a copy of something damaged fails before its first request.

mod partition;
mod segment;
#[cfg(test)]
mod tests;
mod walk;

pub(crate) use partition::{ClosedLog, PartitionDir};
pub(crate) use segment::{ClosedSegment, Gaps};
pub(crate) use walk::walk;

#[cfg(test)]
pub(crate) use tests::test_data;
