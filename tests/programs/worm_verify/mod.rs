//! The program `krabka-worm-verify`, run as its users run it.

#![cfg(feature = "cli")]

#[path = "../worm_archive/archive.rs"]
#[allow(dead_code)] // Both tests tamper, each in its own ways.
mod archive;
#[cfg(target_os = "linux")]
mod at_once;
mod auditor;
#[cfg(feature = "aws")]
mod bucket;
mod copied;
mod output;
mod pins;
#[path = "../krabka_tier/program.rs"]
#[allow(dead_code)] // The other program's.
mod program;
mod sealed;
#[cfg(all(feature = "aws", feature = "gcp", feature = "azure"))]
mod servers;
#[cfg(all(feature = "aws", feature = "gcp", feature = "azure"))]
#[path = "../support/servers.rs"]
#[allow(dead_code, unreachable_pub)] // Every test of the servers has it.
mod support;
mod verdicts;
