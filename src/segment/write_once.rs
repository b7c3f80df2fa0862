//! How an archive's large objects are written once, and how it is found out that they were.
//!
//! A [`Create`](crate::ops::Create) is exact on every store, but holds its object in memory. Above
//! the multipart threshold it depends on the store what can be had, see [`MultipartCreate`].

use sha2::{Digest, Sha256};

use crate::backends::StoreRequests;
use crate::error::RemoteStorageError;
use crate::ops::{ByteRange, Get, Head, StoreTarget, Written};

/// How an archive writes objects that are too large for a single request.
///
/// Where the object is read back, each of its bytes is downloaded once, so the writer must be
/// allowed to read, and what it then says of the write ([`Written`]) is the store's answer to a
/// HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultipartCreate {
    /// In parts, completed on the condition that nothing stands under the key
    /// ([`WriteMode::Create`](crate::ops::WriteMode)): the store guarantees that the key is written
    /// once. Local tiers and tiers in memory do, and S3 does where it honours the condition.
    Conditional,
    /// A conditional create of an empty object first, which takes the key; then the parts go over
    /// it, and are read back. Only for buckets with versions, and not where a retention policy
    /// forbids to write over the reservation. Finds another writer, and does not prevent it.
    Reserved,
    /// In parts, read back. For stores whose retention policy itself forbids to write over an
    /// object. Finds another writer, and does not prevent it.
    ReadBack,
    /// In one request, whatever their length, so each is in memory as a whole while it is sent. For
    /// stores of which nothing is known: a conditional create is exact everywhere.
    OneRequest,
}

/// How much of an object is read back in one request.
const READ_BACK_BYTES: u64 = 8 * 1024 * 1024;

/// An object whose upload was completed.
pub(super) struct Sent<'a> {
    pub(super) target: &'a StoreTarget,
    pub(super) size_bytes: u64,
    pub(super) sha256: [u8; 32],
    /// The version that the write reported, where it did.
    pub(super) version_id: Option<&'a str>,
}

/// Reads an object back, a range at a time, and compares version, size and digest.
///
/// The ranges are of one version: the HEAD after them must say what the HEAD before them said.
/// [`PreconditionFailed`](RemoteStorageError::PreconditionFailed) when what stands there is
/// something else, or nothing.
pub(super) async fn read_back(
    store: &StoreRequests,
    sent: Sent<'_>,
) -> Result<Written, RemoteStorageError> {
    let target = sent.target;
    let failed = |reason: String| RemoteStorageError::PreconditionFailed {
        key: target.key().to_string(),
        reason,
    };
    let head = || {
        let target = target.clone();
        store.send(Head { target })
    };
    let Some(meta) = head().await? else {
        return Err(failed(
            "it was written, and nothing stands there".to_owned(),
        ));
    };
    if let Some(wrote) = sent.version_id
        && meta.version.as_deref() != Some(wrote)
    {
        return Err(failed(format!(
            "version {wrote} was written, and {} stands there: somebody else wrote in between",
            meta.version.as_deref().unwrap_or("none")
        )));
    }
    if meta.size != sent.size_bytes {
        return Err(failed(format!(
            "{} bytes were written, and {} stand there",
            sent.size_bytes, meta.size
        )));
    }
    let mut digest = Sha256::new();
    let mut read = 0;
    while read < meta.size {
        let end = meta.size.min(read + READ_BACK_BYTES);
        let target = target.clone();
        let range = ByteRange::Bounded(read..end);
        let bytes = store.send(Get { target, range }).await?.bytes;
        if bytes.len() as u64 != end - read {
            return Err(failed(format!(
                "it ends at byte {} while it is read back",
                read + bytes.len() as u64
            )));
        }
        digest.update(&bytes);
        read = end;
    }
    if digest.finalize().as_slice() != sent.sha256 {
        return Err(failed(
            "other bytes stand there than those that were sent".to_owned(),
        ));
    }
    match head().await? {
        Some(after) if (&after.version, &after.e_tag) == (&meta.version, &meta.e_tag) => {
            Ok(Written {
                e_tag: meta.e_tag,
                version_id: meta.version,
                create_precondition: false,
            })
        }
        _ => Err(failed("it changed while it was read back".to_owned())),
    }
}
