//! Who signs manifests, and with what their signatures are checked.
//!
//! Signatures are pure Ed25519 (RFC 8032), verified strictly: a signature has one form, and keys
//! under which a signature fits any message are refused when they are loaded.

use std::fmt;
use std::path::Path;

use async_trait::async_trait;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};

use super::key_file::{self, failed};
use crate::archive::format::{
    ChainHead, HexBytes, Printable, SegmentManifest, manifest_head, manifest_signing_bytes,
};
use crate::error::WormError;

/// The longest name of a key, in bytes.
const MAX_KEY_ID_BYTES: usize = 255;

/// Signs manifests with a key that it keeps to itself: in memory, in a key service, in hardware.
#[async_trait]
pub trait ManifestSigner: fmt::Debug + Send + Sync {
    /// The name by which a verifier finds the public key among those it trusts.
    fn key_id(&self) -> &str;

    /// The public half of the key.
    fn public_key(&self) -> &ManifestPublicKey;

    /// The Ed25519 signature over `message`, 64 bytes.
    ///
    /// # Errors
    ///
    /// [`SigningKey`](WormError::SigningKey) when the key cannot be used (now).
    async fn sign(&self, message: &[u8]) -> Result<[u8; 64], WormError>;
}

/// A signer whose key was read from a file and is held in memory.
///
/// The key is erased from memory when the signer is dropped, and `Debug` shows its public half.
pub struct FileSigner {
    key_id: String,
    key: SigningKey,
    public_key: ManifestPublicKey,
}

impl FileSigner {
    /// Reads the key from a file: PKCS#8, version 1 or 2, as PEM or DER, or the 32 raw bytes of
    /// the seed.
    ///
    /// # Errors
    ///
    /// [`SigningKey`](WormError::SigningKey), with the file's name and never its content, for a
    /// file that cannot be read or parsed, that others than its owner have access to (a group may
    /// read what root owns), or whose public key is not that of its private key; and for a
    /// `key_id` that is empty, longer than 255 bytes or not printable ASCII.
    pub fn load(key_id: impl Into<String>, path: &Path) -> Result<Self, WormError> {
        let named = |problem: String| failed(path, &problem);
        let bytes = key_file::read_secret(path).map_err(named)?;
        Self::from_key_bytes(key_id.into(), &bytes).map_err(named)
    }

    fn from_key_bytes(key_id: String, bytes: &[u8]) -> Result<Self, String> {
        check_key_id(&key_id)?;
        let secret = key_file::parse_secret(bytes)?;
        let key = SigningKey::from_bytes(&secret.seed);
        let public_key = ManifestPublicKey(key.verifying_key());
        if secret
            .public_key
            .is_some_and(|stated| stated != *public_key.as_bytes())
        {
            return Err("its public key does not belong to its private key".to_owned());
        }
        Ok(Self {
            key_id,
            key,
            public_key,
        })
    }
}

#[async_trait]
impl ManifestSigner for FileSigner {
    fn key_id(&self) -> &str {
        &self.key_id
    }

    fn public_key(&self) -> &ManifestPublicKey {
        &self.public_key
    }

    async fn sign(&self, message: &[u8]) -> Result<[u8; 64], WormError> {
        Ok(self.key.sign(message).to_bytes())
    }
}

impl fmt::Debug for FileSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSigner")
            .field("key_id", &self.key_id)
            .field("public_key", &self.public_key)
            .finish_non_exhaustive()
    }
}

/// An Ed25519 public key that signatures can be checked with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ManifestPublicKey(VerifyingKey);

impl ManifestPublicKey {
    /// Takes the 32 bytes of a key.
    ///
    /// # Errors
    ///
    /// [`SigningKey`](WormError::SigningKey) for another number of bytes, for bytes that are no
    /// point of the curve or are not its one encoding, and for a key of small order, under which
    /// one signature would fit every message.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, WormError> {
        let problem = |text: &str| WormError::SigningKey(text.to_owned());
        let bytes: &[u8; 32] = bytes
            .try_into()
            .map_err(|_| problem("a public key has 32 bytes"))?;
        let key = VerifyingKey::from_bytes(bytes)
            .map_err(|_| problem("these 32 bytes are no Ed25519 public key"))?;
        // Decoding reduces the coordinate, so it takes more than one encoding of a point.
        if key.to_edwards().compress().as_bytes() != bytes {
            return Err(problem("the public key is not in its canonical encoding"));
        }
        if key.is_weak() {
            return Err(problem(
                "the public key has small order: any message would verify under it",
            ));
        }
        Ok(Self(key))
    }

    /// Reads a key from a file: `SubjectPublicKeyInfo` as PEM or DER, 32 raw bytes, or 64
    /// hexadecimal digits with or without a line end.
    ///
    /// # Errors
    ///
    /// [`SigningKey`](WormError::SigningKey), with the file's name, for a file that cannot be
    /// read, for any other content, and for what [`from_bytes`](Self::from_bytes) refuses.
    pub fn load(path: &Path) -> Result<Self, WormError> {
        let named = |problem: String| failed(path, &problem);
        let bytes = key_file::read_public(path).map_err(named)?;
        let key = key_file::parse_public(&bytes).map_err(named)?;
        Self::from_bytes(&key).map_err(|e| match e {
            WormError::SigningKey(text) => named(text),
            other => other,
        })
    }

    /// The key's 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }

    /// Whether `signature` is the key's signature over `message`, in its one valid form.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        Signature::from_slice(signature)
            .is_ok_and(|signature| self.0.verify_strict(message, &signature).is_ok())
    }
}

impl fmt::Display for ManifestPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(crate::archive::format::digest::encode_32(
            self.as_bytes(),
            &mut [0; 64],
        ))
    }
}

impl fmt::Debug for ManifestPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ManifestPublicKey({self})")
    }
}

impl From<&ManifestPublicKey> for HexBytes {
    fn from(key: &ManifestPublicKey) -> Self {
        Self(key.as_bytes().to_vec())
    }
}

/// Whether the manifest carries a valid signature by this public key.
///
/// The head is computed from the body, and the key that the manifest names is ignored. `false`
/// also for an unsigned manifest, and for bytes that are no key or of small order.
pub fn verify_manifest_signature(manifest: &SegmentManifest, public_key: &[u8]) -> bool {
    let Ok(key) = ManifestPublicKey::from_bytes(public_key) else {
        return false;
    };
    manifest.signature.is_some() && is_signed_with(manifest, manifest_head(&manifest.body), &key)
}

/// [`verify_manifest_signature`] of a manifest whose head is known.
pub(crate) fn is_signed_with(
    manifest: &SegmentManifest,
    head: ChainHead,
    key: &ManifestPublicKey,
) -> bool {
    manifest.signature.as_ref().is_some_and(|signature| {
        let chain = &manifest.body.chain;
        let message = manifest_signing_bytes(&signature.key_id, chain.epoch_id, chain.seq, head);
        key.verifies(&message, &signature.signature.0)
    })
}

/// Names of keys stand in messages and on command lines, so new ones are kept plain.
pub(crate) fn check_key_id(key_id: &str) -> Result<(), String> {
    if key_id.is_empty() || key_id.len() > MAX_KEY_ID_BYTES {
        return Err(format!(
            "a key id has 1 to {MAX_KEY_ID_BYTES} bytes, and this one {}",
            key_id.len()
        ));
    }
    if !key_id.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Err(format!(
            "key id `{}` is not printable ASCII",
            Printable(key_id)
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;
    use crate::archive::vectors::{KEY_ID, PUBLIC_KEY, public_key, seed, signed, v2};

    fn unhex(digits: &str) -> Vec<u8> {
        digits.parse::<HexBytes>().unwrap().0
    }

    fn der(before_seed: &str, behind_seed: &str) -> Vec<u8> {
        let mut der = unhex(before_seed);
        der.extend_from_slice(&seed());
        der.extend(unhex(behind_seed));
        der
    }

    fn pkcs8_v1() -> Vec<u8> {
        der("302e020100300506032b657004220420", "")
    }

    fn pkcs8_v2() -> Vec<u8> {
        let public = format!("812100{PUBLIC_KEY}");
        der("3051020101300506032b657004220420", &public)
    }

    fn pkcs8_v2_of_ring() -> Vec<u8> {
        let public = format!("a123032100{PUBLIC_KEY}");
        der("3053020101300506032b657004220420", &public)
    }

    fn spki() -> Vec<u8> {
        unhex(&format!("302a300506032b6570032100{PUBLIC_KEY}"))
    }

    fn pem(label: &str, der: &[u8]) -> Vec<u8> {
        let base64 = STANDARD.encode(der);
        let lines: Vec<_> = base64
            .as_bytes()
            .chunks(64)
            .map(|line| std::str::from_utf8(line).unwrap())
            .collect();
        let body = lines.join("\n");
        format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n").into_bytes()
    }

    fn key_file(dir: &TempDir, bytes: &[u8]) -> PathBuf {
        let path = dir.path().join("key");
        fs::write(&path, bytes).unwrap();
        set_mode(&path, 0o600);
        path
    }

    #[cfg(unix)]
    fn set_mode(path: &Path, mode: u32) {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[cfg(not(unix))]
    fn set_mode(_: &Path, _: u32) {}

    fn reason(error: &WormError) -> &str {
        match error {
            WormError::SigningKey(text) => text,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn every_form_of_a_signing_key_file_gives_the_same_signer() {
        let dir = TempDir::new().unwrap();
        // `[0]` with one attribute, as some tools put it before the public key.
        let attributes = "a00d300b06035504033104 0c026f6b".replace(' ', "");
        let with_attributes = der("303d020100300506032b657004220420", &attributes);
        for bytes in [
            seed().to_vec(),
            pkcs8_v1(),
            pkcs8_v2(),
            pkcs8_v2_of_ring(),
            with_attributes,
            pem("PRIVATE KEY", &pkcs8_v1()),
            pem("PRIVATE KEY", &pkcs8_v2()),
            pem("PRIVATE KEY", &pkcs8_v2_of_ring()),
            String::from_utf8(pem("PRIVATE KEY", &pkcs8_v1()))
                .unwrap()
                .replace('\n', "\r\n")
                .into_bytes(),
        ] {
            let signer = FileSigner::load(KEY_ID, &key_file(&dir, &bytes)).unwrap();
            assert_eq!(signer.key_id(), KEY_ID);
            assert_eq!(signer.public_key(), &public_key());
            let signature = signer.sign(b"message").await.unwrap();
            assert!(public_key().verifies(b"message", &signature));
        }
    }

    #[test]
    fn other_content_is_refused_with_the_files_name_and_no_byte_of_it() {
        let dir = TempDir::new().unwrap();
        let other_public = format!("812100{}", "11".repeat(32));
        let mismatch = der("3051020101300506032b657004220420", &other_public);
        let mut x25519 = pkcs8_v1();
        x25519[11] = 0x6e;
        let mut version_2 = pkcs8_v1();
        version_2[4] = 2;
        let mut trailing = pkcs8_v1();
        trailing.push(0);
        for (bytes, expected) in [
            (Vec::new(), "neither PKCS#8"),
            (seed()[..31].to_vec(), "neither PKCS#8"),
            (pkcs8_v1()[..47].to_vec(), "neither PKCS#8"),
            (trailing, "neither PKCS#8"),
            (version_2, "neither PKCS#8"),
            (vec![b'0'; 64], "neither PKCS#8"),
            (spki(), "neither PKCS#8"),
            (vec![0; 16 * 1024 + 1], "more than 16384 bytes"),
            (mismatch.clone(), "does not belong"),
            (pem("PRIVATE KEY", &mismatch), "does not belong"),
            (x25519, "not an Ed25519 key"),
            (pem("PUBLIC KEY", &spki()), "public key"),
            (pem("ENCRYPTED PRIVATE KEY", &pkcs8_v1()), "decrypt it"),
            (pem("EC PRIVATE KEY", &pkcs8_v1()), "PEM label"),
            (b"-----BEGIN PRIVATE KEY-----\n???\n".to_vec(), "PEM"),
        ] {
            let path = key_file(&dir, &bytes);
            let error = FileSigner::load(KEY_ID, &path).unwrap_err();
            let text = reason(&error);
            assert!(text.starts_with(path.to_str().unwrap()), "{text}");
            assert!(text.contains(expected), "{expected}: {text}");
            assert!(!text.contains("0001020304"), "{text}");
        }
        let missing = FileSigner::load(KEY_ID, &dir.path().join("none")).unwrap_err();
        assert!(reason(&missing).contains("none: cannot read it"));
        let directory = FileSigner::load(KEY_ID, dir.path()).unwrap_err();
        assert!(reason(&directory).contains("regular file"), "{directory}");
    }

    #[cfg(unix)]
    #[test]
    fn a_key_that_others_have_access_to_is_refused() {
        let dir = TempDir::new().unwrap();
        let path = key_file(&dir, &pkcs8_v1());
        for mode in [0o644, 0o604, 0o660, 0o602, 0o777] {
            set_mode(&path, mode);
            let error = FileSigner::load(KEY_ID, &path).unwrap_err();
            assert!(
                reason(&error).contains(&format!("its mode 0{mode:o} ")),
                "{error}"
            );
        }
        for mode in [0o600, 0o400] {
            set_mode(&path, mode);
            FileSigner::load(KEY_ID, &path).unwrap();
        }
        // A public key is no secret.
        let public = dir.path().join("public");
        fs::write(&public, spki()).unwrap();
        set_mode(&public, 0o644);
        ManifestPublicKey::load(&public).unwrap();
    }

    #[test]
    fn new_key_ids_are_short_and_printable() {
        let dir = TempDir::new().unwrap();
        let path = key_file(&dir, &pkcs8_v1());
        for key_id in ["k", "worm key 1", &"k".repeat(255)] {
            FileSigner::load(key_id, &path).unwrap();
        }
        for key_id in ["", &"k".repeat(256), "clé", "a\nb", "\u{7f}"] {
            let error = FileSigner::load(key_id, &path).unwrap_err();
            let text = reason(&error);
            assert!(text.contains("key id") && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn debug_of_a_signer_shows_no_secret() {
        let signer = FileSigner::from_key_bytes(KEY_ID.to_owned(), &pkcs8_v1()).unwrap();
        assert_eq!(
            format!("{signer:?}"),
            format!(
                "FileSigner {{ key_id: \"worm-key-1\", public_key: ManifestPublicKey({PUBLIC_KEY}), .. }}"
            )
        );
    }

    #[test]
    fn every_form_of_a_public_key_file_gives_the_same_key() {
        let dir = TempDir::new().unwrap();
        for bytes in [
            unhex(PUBLIC_KEY),
            spki(),
            pem("PUBLIC KEY", &spki()),
            PUBLIC_KEY.into(),
            PUBLIC_KEY.to_uppercase().into(),
            format!("{PUBLIC_KEY}\n").into(),
            format!("{PUBLIC_KEY}\r\n").into(),
        ] {
            let path = key_file(&dir, &bytes);
            assert_eq!(ManifestPublicKey::load(&path), Ok(public_key()));
        }
    }

    #[test]
    fn a_public_key_file_of_another_form_fails_when_it_is_loaded() {
        let dir = TempDir::new().unwrap();
        let mut no_point = vec![0; 32];
        no_point[0] = 2;
        for (bytes, expected) in [
            (Vec::new(), "neither 32 raw bytes"),
            (vec![0; 31], "neither 32 raw bytes"),
            (vec![0; 33], "neither 32 raw bytes"),
            (format!("{PUBLIC_KEY}\n\n").into(), "neither 32 raw bytes"),
            (format!(" {PUBLIC_KEY}").into(), "neither 32 raw bytes"),
            (PUBLIC_KEY.replacen('0', "x", 1).into(), "hexadecimal"),
            (pkcs8_v1(), "neither 32 raw bytes"),
            (pem("PRIVATE KEY", &pkcs8_v1()), "private key"),
            (pem("CERTIFICATE", &spki()), "PEM label"),
            ([spki(), vec![0]].concat(), "neither 32 raw bytes"),
            (no_point, "no Ed25519 public key"),
        ] {
            let path = key_file(&dir, &bytes);
            let error = ManifestPublicKey::load(&path).unwrap_err();
            let text = reason(&error);
            assert!(text.starts_with(path.to_str().unwrap()), "{text}");
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }

    #[test]
    fn keys_that_any_signature_fits_or_that_have_two_encodings_are_refused() {
        // The eight points of small order, then encodings whose coordinate is not reduced.
        for (key, expected) in [
            (
                "0000000000000000000000000000000000000000000000000000000000000000",
                "small order",
            ),
            (
                "0100000000000000000000000000000000000000000000000000000000000000",
                "small order",
            ),
            (
                "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
                "small order",
            ),
            (
                "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
                "small order",
            ),
            (
                "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
                "small order",
            ),
            (
                "0000000000000000000000000000000000000000000000000000000000000080",
                "small order",
            ),
            (
                "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
                "small order",
            ),
            (
                "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
                "small order",
            ),
            (
                "0100000000000000000000000000000000000000000000000000000000000080",
                "canonical",
            ),
            (
                "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
                "canonical",
            ),
        ] {
            let error = ManifestPublicKey::from_bytes(&unhex(key)).unwrap_err();
            assert!(reason(&error).contains(expected), "{key}: {error}");
            let mut manifest = signed(v2(), KEY_ID);
            let signature = manifest.signature.as_mut().unwrap();
            signature.signature = HexBytes([unhex(key), vec![0; 32]].concat());
            assert!(!verify_manifest_signature(&manifest, &unhex(key)));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_key_parser_panic(bytes in any::<Vec<u8>>(), cut in any::<proptest::sample::Index>()) {
            let _ = key_file::parse_secret(&bytes);
            let _ = key_file::parse_public(&bytes);
            for valid in [pkcs8_v1(), pkcs8_v2(), pkcs8_v2_of_ring(), spki(), pem("PRIVATE KEY", &pkcs8_v2())] {
                let cut = cut.index(valid.len());
                let mut damaged = valid[..cut].to_vec();
                damaged.extend_from_slice(&bytes);
                let _ = key_file::parse_secret(&damaged);
                let _ = key_file::parse_public(&damaged);
            }
        }
    }
}
