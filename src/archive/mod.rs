//! The write-once archive: manifests, their chain, and the verifier.
//!
//! A segment is sealed by a manifest, the last object of its copy. It lists the segment's objects
//! with their digests, names the head of the manifest before, and is signed. So whoever has the
//! objects and a public key can tell later that nothing was changed, left out or put in.
//!
//! | Property | Who enforces it | How a breach is found |
//! |---|---|---|
//! | an object cannot be altered or destroyed | the bucket's retention | its digest, in the manifest |
//! | a key is written once | a conditional create | when it is written |
//! | which objects a segment has | the manifest | objects without a manifest |
//! | order and completeness of a run of manifests | the chain of heads | position and head |
//! | who made a manifest | a signature, by a key that is trusted **from elsewhere** | the signature |
//! | the newest manifests, whole runs and partitions are still there | nothing in the archive | positions that were written down elsewhere |
//!
//! `format/` holds what is written and how it is read, `keys/` who signs and who is trusted, and
//! `verify/` the verifier; sealing, the next place in a chain and the rule for leftovers stand on
//! top of them.
//!
//! Nothing here creates, extends or changes retention.

mod config;
mod format;
mod keys;
mod leftover;
mod place;
mod seal;
#[cfg(test)]
mod vectors;
mod verify;

pub use config::WormConfig;
pub use format::{
    ChainHead, ChainStamp, EpochId, HexBytes, MANIFEST_BODY_DOMAIN, MANIFEST_DOMAIN,
    MANIFEST_FORMAT_VERSION, MANIFEST_SUFFIX, MAX_MANIFEST_BYTES, ManifestBody,
    ManifestDecodeError, ManifestSeq, ManifestSignature, ObjectEntry, ParseHexError, Printable,
    SegmentIdentity, SegmentManifest, Sha256Digest, WORM_CHAIN_RECORD_VERSION, WormChainRecord,
    canonical_manifest_bytes, manifest_head, manifest_signing_bytes,
};
pub(crate) use format::{excerpt, json};
pub(crate) use keys::is_signed_with;
pub use keys::{
    FileSigner, GeneratedKey, KeyLimit, ManifestPublicKey, ManifestSigner, TrustedManifestKeys,
    VerifiedManifest, generate_key, verify_manifest_signature,
};
pub use leftover::{
    Leftover, LeftoverEvidence, LeftoverResolution, SettledLeftovers, leftovers, resolve_leftovers,
};
pub use place::next_chain_stamp;
pub use seal::{SealedManifest, WormArchiver};
pub use verify::{
    ArchiveVerifyReport, AuthenticatedArchive, AuthenticatedManifest, EpochSpan, ExpectedPosition,
    Finding, Grade, GradeRules, ObjectProtectionReport, OffsetGap, OffsetOverlap, OrphanClass,
    OrphanObject, PartitionVerifyReport, UnattestedManifest, UnreadableObject, Verdict,
    VerifyBreak, VerifyBreakKind, VerifyDepth, VerifyRequest, WORM_PROBE_BODY, WORM_PROBE_NAME,
    authenticate_archive, recover_chain_stamp, verify_archive,
};
