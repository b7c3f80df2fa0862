//! What the tests share: a store that counts, delays and fails on demand, and segments to copy.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::type_complexity,
    clippy::default_trait_access,
    clippy::format_collect
)]

pub mod alone;
pub mod archive;
pub mod metadata_topic;
#[cfg(feature = "cli")]
pub mod program;
#[cfg(all(feature = "aws", feature = "gcp", feature = "azure"))]
pub mod servers;
pub mod sink;
pub mod tier;

/// A value with some of its fields changed: from outside of the crate a `#[non_exhaustive]` struct
/// has no expression of its own.
pub fn with<T>(mut value: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut value);
    value
}
