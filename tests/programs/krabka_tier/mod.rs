//! The program `krabka-tier`, run as its users run it.

#![cfg(feature = "cli")]

mod bad_input;
#[path = "../support/batches.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, clippy::pedantic)]
mod batches;
#[cfg(feature = "kafka")]
mod cluster;
mod cluster_missing;
mod committed;
mod consumer;
mod copy;
mod damaged;
mod diskless;
mod kafka;
mod keygen;
mod ls;
#[cfg(feature = "kafka")]
#[path = "../support/metadata_topic.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, clippy::pedantic)]
mod metadata_topic;
#[cfg(all(feature = "aws", feature = "gcp", feature = "azure"))]
mod object_store;
mod program;
mod quickstart;
mod read;
mod restore;
mod restore_checked;
mod rm;
