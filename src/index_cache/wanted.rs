//! What is asked for, and what the store answers.

use bytes::Bytes;

use super::content::{Content, Fetch, Key};
use crate::error::{ErrorKind, RemoteStorageError};
use crate::model::{IndexType, RemoteLogSegmentMetadata};

/// An index that is asked for, and what its segment tells about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) key: Key,
    pub(super) start_offset: i64,
    /// A guess at its size.
    pub(super) expected_bytes: u64,
}

impl Wanted {
    /// `None` for a kind that is never cached.
    pub(super) fn new(metadata: &RemoteLogSegmentMetadata, index: IndexType) -> Option<Self> {
        /// Kafka's default of `index.interval.bytes`.
        const INTERVAL_BYTES: u64 = 4096;
        /// For those who have set it lower, and for aborted transactions.
        const MARGIN_BYTES: u64 = 16 * 1024;
        let key = Key::new(metadata.remote_log_segment_id().id, index)?;
        let log_bytes = u64::try_from(metadata.segment_size_in_bytes()).unwrap_or_default();
        let entry_bytes = match index {
            IndexType::Offset => 8,
            IndexType::Timestamp => 12,
            _ => 0,
        };
        Some(Self {
            key,
            start_offset: metadata.start_offset(),
            expected_bytes: log_bytes / INTERVAL_BYTES * entry_bytes + MARGIN_BYTES,
        })
    }
}

pub(super) async fn fetched(
    index: IndexType,
    fetch: &Fetch,
) -> Result<Content, RemoteStorageError> {
    let bytes = found_or_missing(index, fetch().await)?;
    Ok(bytes.map_or(Content::Missing, Content::Memory))
}

/// A transaction index may be missing; the others may not.
pub(super) fn found_or_missing(
    index: IndexType,
    fetched: Result<Bytes, RemoteStorageError>,
) -> Result<Option<Bytes>, RemoteStorageError> {
    match fetched {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if index == IndexType::Transaction && error.kind() == ErrorKind::NotFound => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
