//! Key files: reading them, and telling their forms apart.
//!
//! A file of the wrong form must fail here. Taken for key bytes it would load, and make every
//! manifest of an archive look forged.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;

use ed25519_dalek::pkcs8::spki::der::asn1::{AnyRef, BitStringRef, OctetStringRef};
use ed25519_dalek::pkcs8::spki::der::{self, Decode, Reader, SliceReader, Tag, TagNumber, Tagged};
use ed25519_dalek::pkcs8::spki::{
    AlgorithmIdentifierRef, ObjectIdentifier, SubjectPublicKeyInfoRef,
};
use zeroize::Zeroizing;

use crate::error::WormError;

/// `id-Ed25519` (RFC 8410).
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");

/// No form of a key comes near to this; attributes of a PKCS#8 file may be of any length.
const MAX_FILE_BYTES: u64 = 16 * 1024;

const PEM_MARK: &[u8] = b"-----BEGIN ";

/// What is wrong with a key's file.
pub(super) fn failed(path: &Path, problem: &str) -> WormError {
    WormError::SigningKey(format!("{}: {problem}", path.display()))
}

/// A secret seed, and the public key where the file carries one.
pub(super) struct SecretKey {
    pub(super) seed: Zeroizing<[u8; 32]>,
    pub(super) public_key: Option<[u8; 32]>,
}

/// Reads a file with a secret key, which nobody but its owner may have access to.
pub(super) fn read_secret(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    read(path, check_private)
}

/// Reads a file with a public key.
pub(super) fn read_public(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    read(path, |_| Ok(()))
}

fn read(
    path: &Path,
    check: impl FnOnce(&Metadata) -> Result<(), String>,
) -> Result<Zeroizing<Vec<u8>>, String> {
    let cannot_read = |e: io::Error| format!("cannot read it: {e}");
    // What is checked is the open file, so it cannot be exchanged in between.
    let file = File::open(path).map_err(cannot_read)?;
    let metadata = file.metadata().map_err(cannot_read)?;
    if !metadata.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    check(&metadata)?;
    // One allocation: a growing buffer would leave copies of the key behind.
    let capacity = usize::try_from(metadata.len().min(MAX_FILE_BYTES)).unwrap_or(0) + 1;
    let mut bytes = Zeroizing::new(Vec::with_capacity(capacity));
    file.take(capacity as u64)
        .read_to_end(&mut bytes)
        .map_err(cannot_read)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("it has more than {MAX_FILE_BYTES} bytes"));
    }
    Ok(bytes)
}

#[cfg(unix)]
fn check_private(metadata: &Metadata) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt as _;

    // A group may read what root owns: that is how secrets are mounted into containers.
    let forbidden = if metadata.uid() == 0 { 0o037 } else { 0o077 };
    if metadata.mode() & forbidden == 0 {
        return Ok(());
    }
    Err(format!(
        "its mode {:04o} lets others have the key: chmod 600",
        metadata.mode() & 0o7777
    ))
}

#[cfg(not(unix))]
fn check_private(_: &Metadata) -> Result<(), String> {
    Ok(())
}

/// A secret key from the bytes of a file: PKCS#8 as PEM or DER, or the seed's 32 raw bytes.
pub(super) fn parse_secret(bytes: &[u8]) -> Result<SecretKey, String> {
    if !is_pem(bytes) {
        return match seed(bytes) {
            Some(seed) => Ok(SecretKey {
                seed,
                public_key: None,
            }),
            None => parse_pkcs8(bytes),
        };
    }
    let (label, der) = parse_pem(bytes)?;
    match label {
        "PRIVATE KEY" => parse_pkcs8(&der),
        "ENCRYPTED PRIVATE KEY" => Err("it is encrypted: decrypt it first".to_owned()),
        "PUBLIC KEY" => Err("it holds a public key, and signing needs the private one".to_owned()),
        _ => Err("its PEM label is not `PRIVATE KEY`".to_owned()),
    }
}

/// A public key from the bytes of a file: 32 raw bytes, `SubjectPublicKeyInfo` as PEM or DER, or
/// 64 hexadecimal digits with or without a line end.
pub(super) fn parse_public(bytes: &[u8]) -> Result<[u8; 32], String> {
    if is_pem(bytes) {
        let (label, der) = parse_pem(bytes)?;
        return match label {
            "PUBLIC KEY" => parse_spki(&der),
            "PRIVATE KEY" | "ENCRYPTED PRIVATE KEY" => {
                Err("it holds a private key, and verifying needs the public one".to_owned())
            }
            _ => Err("its PEM label is not `PUBLIC KEY`".to_owned()),
        };
    }
    if let Ok(key) = bytes.try_into() {
        return Ok(key);
    }
    let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match std::str::from_utf8(line) {
        Ok(digits) if digits.len() == 64 => {
            crate::archive::format::digest::decode_32(digits).map_err(|e| e.to_string())
        }
        _ => parse_spki(bytes),
    }
}

/// The bytes before the seed in PKCS#8 version 1 (RFC 8410), which all libraries read.
const PKCS8_V1_FRONT: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// The bytes before the key in `SubjectPublicKeyInfo`.
const SPKI_FRONT: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

/// A file with a secret key: PKCS#8, version 1, as PEM.
pub(super) fn encode_secret(seed: &[u8; 32]) -> Result<Zeroizing<String>, String> {
    let mut der = Zeroizing::new([0; 48]);
    der[..16].copy_from_slice(&PKCS8_V1_FRONT);
    der[16..].copy_from_slice(seed);
    encode_pem("PRIVATE KEY", &*der).map(Zeroizing::new)
}

/// A file with a public key: `SubjectPublicKeyInfo` as PEM.
pub(super) fn encode_public(key: &[u8; 32]) -> Result<String, String> {
    encode_pem("PUBLIC KEY", &[&SPKI_FRONT[..], key].concat())
}

fn encode_pem(label: &'static str, der: &[u8]) -> Result<String, String> {
    der::pem::encode_string(label, der::pem::LineEnding::LF, der)
        .map_err(|e| format!("it cannot be written as PEM: {e}"))
}

/// A file may have text before its first boundary, as some tools write it.
fn is_pem(bytes: &[u8]) -> bool {
    bytes
        .windows(PEM_MARK.len())
        .any(|window| window == PEM_MARK)
}

fn parse_pem(bytes: &[u8]) -> Result<(&str, Zeroizing<Vec<u8>>), String> {
    der::pem::decode_vec(bytes)
        .map(|(label, der)| (label, Zeroizing::new(der)))
        .map_err(|e| format!("it is not well-formed PEM: {e}"))
}

fn parse_pkcs8(bytes: &[u8]) -> Result<SecretKey, String> {
    let refused =
        |_: der::Error| "it is neither PKCS#8 (PEM or DER) nor a seed of 32 bytes".to_owned();
    let mut reader = SliceReader::new(bytes).map_err(refused)?;
    let (algorithm, key, public_key) = reader
        .sequence(|fields| {
            let version = u8::decode(fields)?;
            if version > 1 {
                return Err(Tag::Integer.value_error());
            }
            let algorithm = AlgorithmIdentifierRef::decode(fields)?;
            let key = OctetStringRef::decode(fields)?;
            let mut public_key = None;
            while !fields.is_finished() {
                public_key = parse_field(AnyRef::decode(fields)?)?.or(public_key);
            }
            Ok((algorithm, key, public_key))
        })
        .map_err(refused)?;
    reader.finish(()).map_err(refused)?;
    check_algorithm(&algorithm)?;
    // RFC 8410: the key is an octet string in an octet string.
    let seed = OctetStringRef::from_der(key.as_bytes())
        .ok()
        .and_then(|bytes| seed(bytes.as_bytes()))
        .ok_or("its private key does not have 32 bytes")?;
    Ok(SecretKey { seed, public_key })
}

/// A seed, copied to where it will be erased and nowhere else.
fn seed(bytes: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
    let mut seed = Zeroizing::new([0; 32]);
    if bytes.len() != seed.len() {
        return None;
    }
    seed.copy_from_slice(bytes);
    Some(seed)
}

/// The public key in one of the fields behind the private key; `None` for attributes.
fn parse_field(field: AnyRef<'_>) -> der::Result<Option<[u8; 32]>> {
    let Tag::ContextSpecific {
        constructed,
        number,
    } = field.tag()
    else {
        return Err(field.tag().value_error());
    };
    let bits = match (number, constructed) {
        (TagNumber::N0, true) => return Ok(None),
        // RFC 5958: `[1] IMPLICIT BIT STRING`, whose first byte counts unused bits.
        (TagNumber::N1, false) => field.value().strip_prefix(&[0]),
        // As older versions of *ring* wrote it: `[1] EXPLICIT`.
        (TagNumber::N1, true) => BitStringRef::from_der(field.value())?.as_bytes(),
        _ => return Err(field.tag().value_error()),
    };
    bits.and_then(|bits| bits.try_into().ok())
        .map(Some)
        .ok_or_else(|| Tag::BitString.value_error())
}

fn parse_spki(bytes: &[u8]) -> Result<[u8; 32], String> {
    let info = SubjectPublicKeyInfoRef::from_der(bytes).map_err(|_| {
        "it is neither 32 raw bytes, nor SubjectPublicKeyInfo (PEM or DER), nor 64 hexadecimal \
         digits"
            .to_owned()
    })?;
    check_algorithm(&info.algorithm)?;
    info.subject_public_key
        .as_bytes()
        .and_then(|key| key.try_into().ok())
        .ok_or_else(|| "its public key does not have 32 bytes".to_owned())
}

fn check_algorithm(algorithm: &AlgorithmIdentifierRef<'_>) -> Result<(), String> {
    if algorithm.oid == ED25519 && algorithm.parameters.is_none() {
        Ok(())
    } else {
        Err("its key is not an Ed25519 key".to_owned())
    }
}
