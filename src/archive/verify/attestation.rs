//! What a manifest's signature is worth to someone with a set of trusted keys.

use crate::archive::format::{ChainHead, SegmentManifest};
use crate::archive::keys::{TrustedManifestKeys, is_signed_with};

/// How a manifest stands with the trusted keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attestation {
    /// Signed with a key that is trusted at this place.
    Trusted,
    /// Signed under a name that is not trusted (here). What the signature says was not looked at.
    Untrusted,
    /// Not signed.
    Unsigned,
    /// Signed under a trusted name, by its own account with another key.
    KeyDiffers,
    /// Signed under a trusted name, and the key does not verify it.
    SignatureFails,
}

impl Attestation {
    /// Judges a manifest of this directory.
    pub(super) fn of(
        manifest: &SegmentManifest,
        head: ChainHead,
        directory: &str,
        trusted: &TrustedManifestKeys,
    ) -> Self {
        let Some(signature) = &manifest.signature else {
            return Self::Unsigned;
        };
        let chain = &manifest.body.chain;
        // The key comes from the caller's set; the one in the manifest is only compared.
        match trusted.get_at(&signature.key_id, directory, chain.epoch_id, chain.seq) {
            None => Self::Untrusted,
            Some(key) if signature.public_key.0 != key.as_bytes() => Self::KeyDiffers,
            Some(key) if is_signed_with(manifest, head, key) => Self::Trusted,
            Some(_) => Self::SignatureFails,
        }
    }

    /// Which of several manifests at one position is looked at first: the best attested.
    pub(super) fn rank(self) -> u8 {
        match self {
            Self::Trusted => 0,
            Self::Untrusted => 1,
            Self::Unsigned => 2,
            Self::KeyDiffers | Self::SignatureFails => 3,
        }
    }

    /// How the signature contradicts the trusted key, if it does.
    pub(super) fn problem(self) -> Option<&'static str> {
        match self {
            Self::KeyDiffers => Some("it names another key than the trusted one of its key id"),
            Self::SignatureFails => Some("its signature is not by the trusted key of its key id"),
            Self::Trusted | Self::Untrusted | Self::Unsigned => None,
        }
    }
}
