//! The keys of the archive: who signs manifests, whose signatures count, and key files.

mod key_file;
mod keygen;
mod signer;
mod trusted;
mod verified;

pub use keygen::{GeneratedKey, generate_key};
pub use signer::{FileSigner, ManifestPublicKey, ManifestSigner, verify_manifest_signature};
pub(crate) use signer::{check_key_id, is_signed_with};
pub use trusted::{KeyLimit, TrustedManifestKeys};
pub use verified::VerifiedManifest;
