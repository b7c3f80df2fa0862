//! What the library does, asked through its public interface.
//!
//! One program, so that the library is linked once. Its tests run at the same time in one process:
//! a test that sets what belongs to the process, or counts it, runs by [`support::alone`].

mod backend_conformance;
mod create_once;
mod diskless;
mod http_faults;
mod index_fixtures;
mod kafka_names;
mod local_tier;
mod metadata_cache;
mod metadata_manager;
mod metadata_snapshot;
mod metadata_traces;
mod names;
mod reader;
mod reader_fixtures;
mod rebuild;
mod sealed_copy;
mod secrets;
mod segment_copy;
mod segment_fetch;
mod stack_order;
mod store_errors;
#[path = "../support/mod.rs"]
mod support;
mod sync_shim;
mod topic_codec;
mod topic_manager;
mod topic_survey;
mod worm_archive;
mod worm_start;
