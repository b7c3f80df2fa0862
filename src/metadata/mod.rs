//! Which segments exist: the metadata of the remote tier.
//!
//! [`RemoteLogMetadataStore`] is what the rest of the crate asks. Its managers differ in where
//! events come from and how long they are kept; the answers of all of them are those of one
//! [`RemoteLogMetadataCache`] for each partition.

mod assembly;
mod cache;
pub mod dump;
mod in_memory;
mod not_ready;
mod slots;
mod store;
mod swappable;
pub mod topic;

pub use cache::{Effect, RemoteLogMetadataCache, SegmentView};
pub(crate) use dump::{EpochDump, PartitionDump, RlmmCacheDump};
pub use in_memory::InmemoryRemoteLogMetadataManager;
pub use store::RemoteLogMetadataStore;
