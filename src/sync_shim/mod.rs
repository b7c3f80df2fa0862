//! Blocking faces of the asynchronous services, for callers and plugins written against Kafka's
//! synchronous interfaces.

mod adapter;
mod bridge;
mod metadata;

pub use adapter::PluginService;
pub use metadata::{BlockingMetadataManager, PluginMetadataStore};
