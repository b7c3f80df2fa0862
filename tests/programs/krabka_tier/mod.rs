//! The program `krabka-tier`, run as its users run it.

mod bad_input;
mod cluster_missing;
mod committed;
mod consumer;
mod copy;
mod damaged;
mod diskless;
mod kafka;
mod keygen;
mod ls;
#[cfg(all(feature = "aws", feature = "gcp", feature = "azure"))]
mod object_store;
mod quickstart;
mod read;
mod restore;
mod restore_checked;
mod rm;
