//! Verifies a finished archive from its objects alone.
//!
//! The verifier trusts nothing but the public keys that it is given. Of each partition it reads
//! every manifest, recomputes its head from its bytes, checks its signature, follows the chain,
//! and compares the objects that manifests name with what is listed and, at
//! [`VerifyDepth::Deep`], with their digests. Keys that stand in a manifest are looked up in the
//! listing and never followed because they are named.
//!
//! What an archive alone cannot show is that its end was cut off: the newest manifests with their
//! objects, whole runs, whole partitions. [`VerifyRequest::expect_positions`] closes that gap with
//! what an earlier report saw.
//!
//! "Could not look" is never mixed with "is broken": a listing that fails is the only error, an
//! object that cannot be read is named as such and the rest of the report stands. An archive may
//! be in use meanwhile: what can look broken because a listing is no snapshot is reported only if
//! it is still so in a new listing.
//!
//! # Cost
//!
//! Everything is listed once to find the partitions. What was found of a small one, of up to 64
//! objects, is kept as its listing until its turn comes, within 16 MiB for all; the others are
//! listed a second time, one by one. Each manifest is read once, and once more at depth. Memory is
//! 64 MiB at most and 200 bytes for each manifest of the directories that are looked at (up to
//! eight at once), whatever objects claim of their size, plus a few hundred bytes for each directory
//! and the report: a foreign object costs its key.

mod archive;
mod attestation;
mod authenticated;
mod bodies;
mod context;
mod directory;
mod discover;
mod finding;
mod grade;
mod index;
mod listing;
mod local;
mod objects;
mod read;
mod report;
mod request;
mod tally;
mod tip;
mod walk;

pub use archive::{authenticate_archive, verify_archive};
pub use authenticated::{AuthenticatedArchive, AuthenticatedManifest};
pub use discover::{WORM_PROBE_BODY, WORM_PROBE_NAME};
pub use finding::{VerifyBreak, VerifyBreakKind};
pub use grade::{Finding, Grade, GradeRules, Verdict};
pub use report::{
    ArchiveVerifyReport, EpochSpan, ObjectProtectionReport, OffsetGap, OffsetOverlap, OrphanClass,
    OrphanObject, PartitionVerifyReport, UnattestedManifest, UnreadableObject,
};
pub use request::{ExpectedPosition, VerifyDepth, VerifyRequest};
pub use tip::recover_chain_stamp;
