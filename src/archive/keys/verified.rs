//! Manifests whose signature was checked.

use super::signer::{ManifestPublicKey, is_signed_with};
use crate::archive::format::{ChainHead, SegmentManifest, manifest_head};

/// A manifest whose signature was checked with a key that is trusted.
///
/// There is no other way to make one, so a check cannot be forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedManifest {
    manifest: SegmentManifest,
    head: ChainHead,
}

impl VerifiedManifest {
    /// Checks the manifest's signature with this key; `None` when it is unsigned or signed with
    /// another key.
    pub fn check(manifest: SegmentManifest, key: &ManifestPublicKey) -> Option<Self> {
        let head = manifest_head(&manifest.body);
        is_signed_with(&manifest, head, key).then_some(Self { manifest, head })
    }

    /// The manifest.
    pub fn manifest(&self) -> &SegmentManifest {
        &self.manifest
    }

    /// The manifest by value.
    pub fn into_manifest(self) -> SegmentManifest {
        self.manifest
    }

    /// The manifest's head.
    pub fn head(&self) -> ChainHead {
        self.head
    }
}
