//! The program `krabka-tier`, run as its users run it.

#![cfg(feature = "cli")]

mod bad_input;
mod consumer;
mod copy;
mod damaged;
mod kafka;
mod keygen;
mod ls;
#[cfg(all(feature = "aws", feature = "gcp", feature = "azure"))]
mod object_store;
mod program;
mod quickstart;
mod read;
mod restore;
mod rm;
