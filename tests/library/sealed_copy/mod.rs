//! Copies into a write-once archive: what they send, and what stands after each way in which one
//! can end.

mod copies;
mod crashes;
mod large;
mod leader;
#[cfg(target_os = "linux")]
mod reads;
mod tip;
