//! Blocking faces of the asynchronous services, for callers and plugins written against Kafka's
//! synchronous interfaces.

mod adapter;
mod bridge;
mod metadata;
mod presets;
mod storage;

pub use adapter::PluginService;
pub use metadata::{BlockingMetadataManager, PluginMetadataStore};
pub use presets::{LocalTieredStorage, S3RemoteStorage};
pub use storage::BlockingStorageManager;
