//! Blocking faces of the asynchronous services, for callers and plugins written against Kafka's
//! synchronous interfaces.

mod adapter;
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the faces that wait by it come next")
)]
mod bridge;

pub use adapter::PluginService;
