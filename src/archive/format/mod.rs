//! The bytes of the archive: manifests, places in a chain, chain records, and how each is spelled.

mod chain;
mod decode;
pub(crate) mod digest;
pub(crate) mod json;
mod manifest;
mod printable;
mod record;

pub use chain::{ChainHead, ChainStamp, EpochId, ManifestSeq};
pub use decode::ManifestDecodeError;
pub use digest::{HexBytes, ParseHexError, Sha256Digest};
pub use manifest::{
    MANIFEST_BODY_DOMAIN, MANIFEST_DOMAIN, MANIFEST_FORMAT_VERSION, MANIFEST_SUFFIX,
    MAX_MANIFEST_BYTES, ManifestBody, ManifestSignature, ObjectEntry, SegmentIdentity,
    SegmentManifest, canonical_manifest_bytes, manifest_head, manifest_signing_bytes,
};
pub use printable::Printable;
pub(crate) use printable::excerpt;
pub use record::{WORM_CHAIN_RECORD_VERSION, WormChainRecord};
