//! The metrics of both floors.
pub(super) mod keys;
