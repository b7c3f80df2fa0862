//! Archives are sealed into memory, tampered with, and verified.

mod attested;
mod hostile;
mod in_use;
mod insider;
mod leftovers;
mod local;
mod mutations;
mod objects;
mod rebuilt;
mod store;
mod tamper;
