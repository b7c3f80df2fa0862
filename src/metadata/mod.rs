//! Which segments exist: the metadata of the remote tier.

mod cache;
pub mod dump;
mod slots;

pub use cache::{RemoteLogMetadataCache, SegmentView};
pub use dump::{EpochDump, PartitionDump, RlmmCacheDump};
