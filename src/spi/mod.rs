//! The two synchronous interfaces of KIP-405, in the shape that Apache Kafka gave them.
//!
//! They are for callers and plugins that were written against them. Asynchronous code uses the
//! typed operations and the asynchronous metadata store; `sync_shim` leads from one world to the
//! other in both directions.
//!
//! Both traits are object safe, and every method may be called from several threads at once.

mod metadata;
mod storage;

pub use metadata::RemoteLogMetadataManager;
pub use storage::RemoteStorageManager;
