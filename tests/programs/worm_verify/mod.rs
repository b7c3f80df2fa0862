//! The program `krabka-worm-verify`, run as its users run it.

#[cfg(target_os = "linux")]
mod at_once;
mod auditor;
#[cfg(feature = "aws")]
mod bucket;
mod copied;
mod output;
mod pins;
mod sealed;
#[cfg(all(feature = "aws", feature = "gcp", feature = "azure"))]
mod servers;
mod verdicts;
