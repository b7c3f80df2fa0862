//! Diskless WAL ranges: where in shared objects the record batches of diskless topics lie.
//!
//! With diskless topics, acknowledged batches of many partitions are written together into shared
//! *WAL objects*. A compacted topic, [`WAL_INDEX_TOPIC`], says which byte range of which object
//! holds which offsets. Here are the words that writers and readers of both share, and their
//! bytes; uploading objects, ordering writes and trimming local logs are the broker's.
//!
//! | Format | Item | Version |
//! |---|---|---|
//! | WAL object (`CKWL`) | [`WalObjectBuilder`], [`parse_wal_object`] | u16 little-endian behind the magic: 1 |
//! | range key | [`WalIndexKey`] | i16 big-endian: 0 |
//! | delete-floor key | [`WalDeleteFloorKey`] | i16 big-endian: 1 |
//! | range value | [`WalFlushRecord`] | i16 big-endian: 2 |
//! | delete-floor value | [`WalDeleteFloorRecord`] | i16 big-endian: 0 |
//! | capture | [`DisklessWalCapture`] | `format_version` of its JSON: 1 |
//!
//! Versions are independent of each other. Keys and versions are big-endian, the bodies of values
//! and WAL objects little-endian: that is history, and stays.
//!
//! A [`WalCaptureProjection`] is the state that replaying the topic leads to. It answers which
//! range holds an offset, what retention expires, and which objects are still named; frozen, it is
//! a [`DisklessWalCapture`], which the archive's keys can [seal](DisklessWalCapture::seal).
//!
//! The order of a write is: PUT the object, publish its ranges, wait until the local projection
//! shows them, trim the local log ([`trim_target`]). A crash between two steps leaves an object
//! that no range names, and nothing else.
//!
//! No decoder panics, loops without end, or allocates from a size that its input only declares.
//! The formats are those of krabka; KIP-1163 and KIP-1164 name the same things differently, and
//! `docs/diskless.md` maps them.

mod capture;
mod document;
mod entry;
mod error;
mod key;
mod object;
mod partition;
mod projection;
mod retention;
mod run;
mod seal;
mod value;

use std::time::Duration;

pub use capture::DisklessWalCapture;
pub use document::DisklessPartitionCapture;
pub use entry::{WalIndexEntry, WalRange};
pub use error::{DisklessError, WalObjectError};
pub use key::{WalDeleteFloorKey, WalIndexKey, wal_index_key_version, wal_index_partition};
pub use object::{WalObjectBuilder, WalObjectEntry, parse_wal_object};
pub use partition::{WalPartition, WalRead};
pub use projection::WalCaptureProjection;
pub use retention::{RetentionRules, may_delete_object, trim_target};
pub use run::{WalRunSummary, whole_batches};
pub use value::{WalDeleteFloorRecord, WalFlushRecord};

pub use crate::layout::wal_object::{
    WAL_OBJECT_DIR, WAL_OBJECT_SUFFIX, WalObjectKey, parse_wal_object_key, wal_object_key,
};

/// The compacted topic that says where ranges of offsets lie.
pub const WAL_INDEX_TOPIC: &str = "__diskless_wal_index";

/// The key of a record that only marks a place in the topic; its value is empty. A reader skips it
/// before it decodes anything: to a projection its key is unknown.
pub const REPLAY_FENCE_KEY: &[u8] = b"__krabka_diskless_replay_fence";

/// The name by which a capture's head is pinned; the topic in the identity that is signed.
pub const CAPTURE_HEAD_NAME: &str = "diskless-capture";

/// The key of the claim that stands for the capture itself. No object has it.
pub const CAPTURE_STATE_KEY: &str = "__krabka_diskless_capture_state";

/// The suffix of that claim.
pub const CAPTURE_STATE_SUFFIX: &str = ".capture-state";

/// At how many bytes of batches a broker writes a WAL object, by default.
pub const DEFAULT_WAL_OBJECT_BYTES: usize = 8 << 20;

/// How long a broker gathers batches for a WAL object, by default.
pub const DEFAULT_FLUSH_INTERVAL: Duration = Duration::from_millis(250);
