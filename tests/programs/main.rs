//! The programs, run as their users run them. What asks a Kafka cluster is in `tests/kafka`.

#![cfg(feature = "cli")]

mod krabka_tier;
#[path = "../support/mod.rs"]
mod support;
mod worm_verify;
