//! The start of an archive, on every kind of store, and what can be done to it from then on.

mod blocking;
#[cfg(all(feature = "aws", feature = "gcp", feature = "azure"))]
mod servers;
mod unprotected;

use std::path::Path;

use crate::support::with;
use ed25519_dalek::SigningKey;
use krabka_remote_storage::archive::ManifestPublicKey;
use krabka_remote_storage::{TrustedManifestKeys, WormConfig};

const KEY_ID: &str = "worm-key-1";
const SEED: [u8; 32] = [9; 32];

/// A configuration whose key lies in this directory.
fn signed(dir: &Path) -> WormConfig {
    let path = dir.join("key");
    std::fs::write(&path, SEED).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    with(WormConfig::default(), |it| {
        it.signing_key_path = Some(path);
        it.signing_key_id = Some(KEY_ID.to_owned());
    })
}

/// Its public half.
fn trusted() -> TrustedManifestKeys {
    let public = SigningKey::from_bytes(&SEED).verifying_key();
    let public = ManifestPublicKey::from_bytes(public.as_bytes()).unwrap();
    TrustedManifestKeys::single(KEY_ID, public)
}
