//! What needs the client of the feature `kafka`: over librdkafka's mock cluster, and beside Apache
//! Kafka where `tests/run.sh` has started it. The programs of Kafka's classes, which some of it
//! runs, are in this folder too: its README says what they do.

#[cfg(feature = "cli")]
mod broker;
#[allow(unreachable_pub)]
mod log;
#[path = "../support/mod.rs"]
mod support;
#[cfg(feature = "cli")]
mod tier;
