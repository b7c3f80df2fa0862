//! Turns (partition, leader epoch, offset) into record bytes from the remote tier.
//!
//! [`RemoteLogReader`] finds the segment in the metadata store, the position in its offset index,
//! and fetches a bounded range of its log. What it hands out are whole record batches, as the
//! broker stored them and without a copy; their checksums are not compared, as Kafka does not while
//! fetching. Whoever decodes records compares them.
//!
//! A read whose offset is the one where an earlier read ended is sequential: the reader then reads
//! ahead, twice as far each time, up to a limit. A jump reads just what was asked.
//!
//! The reader trusts the metadata store about which segments there are and how long their logs are,
//! and asks it at each read. It trusts an index only about where to begin: the batch that lies there
//! is compared with what the index says, and every batch with the offset that was asked for. A log
//! that ends too early, or begins with an offset that is not its segment's, is an error, and not the
//! end of its records.
//!
//! Sources: Apache Kafka's `RemoteLogManager` (`read`, `findOffsetByTimestamp`,
//! `addAbortedTransactions`) and its consumer's rule for aborted transactions; KIP-405, KIP-98.

mod committed;
mod cursors;
mod fetch;
mod lineage;
mod position;
mod range;
mod timestamp;

use std::fmt;
use std::sync::Arc;

pub use committed::{AbortedTransaction, AbortedTransactions, CommittedRead, LocalLog};
pub use fetch::FetchedBatches;
pub use timestamp::OffsetAndTimestamp;

use crate::metadata::RemoteLogMetadataStore;
use crate::stack::RemoteStorage;
use cursors::Cursors;
use lineage::Lineages;

/// How far a sequential read reads ahead at most: 8 MiB.
pub const DEFAULT_MAX_READ_AHEAD_BYTES: usize = 8 * 1024 * 1024;

/// How many bytes that were read ahead are kept at most, all sequential reads of one
/// [`RemoteLogReader`] and its clones together: 64 MiB. They share it evenly.
pub const DEFAULT_MAX_BUFFERED_BYTES: usize = 64 * 1024 * 1024;

/// Reads records of remote partitions. A clone is one reference and shares what was read ahead.
///
/// # Cancellation
///
/// Dropping the future of any method has no effect but that bytes read ahead may be fetched again.
#[derive(Clone)]
pub struct RemoteLogReader {
    shared: Arc<Shared>,
}

struct Shared {
    storage: RemoteStorage,
    metadata: Arc<dyn RemoteLogMetadataStore>,
    max_read_ahead: usize,
    cursors: Cursors,
    lineages: Lineages,
}

impl RemoteLogReader {
    /// A reader of the segments that `metadata` knows and `storage` holds.
    pub fn new(storage: RemoteStorage, metadata: Arc<dyn RemoteLogMetadataStore>) -> Self {
        Self::with_read_ahead(storage, metadata, DEFAULT_MAX_READ_AHEAD_BYTES)
    }

    /// A reader that reads ahead at most this far; 0 never reads ahead.
    pub fn with_read_ahead(
        storage: RemoteStorage,
        metadata: Arc<dyn RemoteLogMetadataStore>,
        max_read_ahead: usize,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                storage,
                metadata,
                max_read_ahead,
                cursors: Cursors::new(DEFAULT_MAX_BUFFERED_BYTES),
                lineages: Lineages::default(),
            }),
        }
    }
}

impl fmt::Debug for RemoteLogReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteLogReader")
            .field("storage", &self.shared.storage)
            .field("max_read_ahead", &self.shared.max_read_ahead)
            .finish_non_exhaustive()
    }
}
