//! The manifest: what a sealed segment consists of, and where it stands in its chain.
//!
//! A manifest is JSON. What is hashed and signed are its canonical bytes: domain, fixed-width
//! numbers (big-endian) and length-prefixed strings, so that no two contents share them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::chain::{ChainHead, ChainStamp, EpochId, ManifestSeq};
use super::digest::{HexBytes, Sha256Digest};
use super::json;
use crate::model::RemoteLogSegmentMetadata;

/// The format that is written, and the only one that is verified. Format 1 lacked
/// [`ObjectEntry::create_precondition`].
pub const MANIFEST_FORMAT_VERSION: u32 = 2;

/// Suffix of a manifest's key.
pub const MANIFEST_SUFFIX: &str = ".manifest";

/// The largest manifest, in bytes, inclusive. No larger one is written or read.
pub const MAX_MANIFEST_BYTES: u64 = 1_048_576;

/// What canonical bytes begin with.
pub const MANIFEST_BODY_DOMAIN: &[u8; 29] = b"krabka-worm-manifest-body-v1\0";

/// What a signed message begins with.
pub const MANIFEST_DOMAIN: &[u8; 24] = b"krabka-worm-manifest-v1\0";

/// A manifest: a body and, beside it, the signature over the body's head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SegmentManifest {
    /// What is attested.
    #[serde(deserialize_with = "json::object")]
    pub body: ManifestBody,
    /// By whom; `None` in an archive without a signing key.
    #[serde(deserialize_with = "json::nullable_object")]
    pub signature: Option<ManifestSignature>,
}

/// What a manifest attests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestBody {
    /// [`MANIFEST_FORMAT_VERSION`].
    pub format_version: u32,
    /// The segment.
    #[serde(deserialize_with = "json::object")]
    pub segment: SegmentIdentity,
    /// The segment's objects in the order in which they were written, the manifest itself not
    /// among them.
    #[serde(deserialize_with = "json::objects")]
    pub objects: Vec<ObjectEntry>,
    /// The manifest's place in the partition's chain.
    #[serde(deserialize_with = "json::object")]
    pub chain: ChainStamp,
}

/// What a manifest says of its segment, as the metadata had it when the segment was copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SegmentIdentity {
    /// The topic's name.
    pub topic: String,
    /// The topic's unique id.
    #[serde(with = "json::hyphenated")]
    pub topic_id: Uuid,
    /// The partition's index in the topic.
    pub partition: i32,
    /// The id of the copy attempt.
    #[serde(with = "json::hyphenated")]
    pub segment_id: Uuid,
    /// First offset, inclusive.
    pub start_offset: i64,
    /// Last offset, inclusive.
    pub end_offset: i64,
    /// Highest record timestamp in milliseconds since 1970-01-01 UTC; −1 when unknown.
    pub max_timestamp_ms: i64,
    /// The broker that copied the segment.
    pub broker_id: i32,
    /// When the copy began, in milliseconds since 1970-01-01 UTC, by that broker's clock.
    pub event_timestamp_ms: i64,
    /// Length of the `.log` in bytes, as the broker stated it.
    pub segment_size_bytes: i64,
    /// For each leader epoch of the segment, the first offset of that epoch inside it.
    #[serde(deserialize_with = "json::leader_epochs")]
    pub leader_epochs: BTreeMap<i32, i64>,
    /// Whether the segment is known to have no aborted transactions.
    pub txn_index_empty: bool,
}

impl SegmentIdentity {
    /// What a manifest says of the segment with this metadata.
    pub fn from_metadata(metadata: &RemoteLogSegmentMetadata) -> Self {
        let tp = metadata.topic_id_partition();
        Self {
            topic: tp.topic.clone(),
            topic_id: tp.topic_id,
            partition: tp.partition,
            segment_id: metadata.remote_log_segment_id().id,
            start_offset: metadata.start_offset(),
            end_offset: metadata.end_offset(),
            max_timestamp_ms: metadata.max_timestamp_ms(),
            broker_id: metadata.broker_id(),
            event_timestamp_ms: metadata.event_timestamp_ms(),
            segment_size_bytes: i64::from(metadata.segment_size_in_bytes()),
            leader_epochs: metadata
                .segment_leader_epochs()
                .iter()
                .map(|(epoch, offset)| (epoch.0, *offset))
                .collect(),
            txn_index_empty: metadata.txn_index_empty(),
        }
    }
}

/// One object of a sealed segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectEntry {
    /// The artifact's suffix, its dot included.
    pub suffix: String,
    /// The object's whole key, prefix included.
    pub key: String,
    /// The object's length in bytes.
    pub size_bytes: u64,
    /// SHA-256 of the object's bytes: the only claim about its content.
    pub sha256: Sha256Digest,
    /// The store's entity tag, quotes included: it helps to find the object, and proves nothing.
    #[serde(deserialize_with = "json::nullable")]
    pub e_tag: Option<String>,
    /// The store's version id: it helps to find the object, and proves nothing.
    #[serde(deserialize_with = "json::nullable")]
    pub version_id: Option<String>,
    /// Whether the store itself guaranteed that no object stood under the key before.
    #[serde(default)]
    pub create_precondition: bool,
}

/// An Ed25519 signature over a manifest's head and place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestSignature {
    /// The name of the key. Who verifies takes the key by this name from keys of his own.
    pub key_id: String,
    /// The key that the signer says it used. A verifier compares it, and never trusts it.
    pub public_key: HexBytes,
    /// The signature, 64 bytes.
    pub signature: HexBytes,
}

/// The bytes that stand for a manifest's content in digests and signatures.
///
/// The chain covers what a manifest says, not its JSON; that its JSON has one spelling is the
/// decoder's business.
pub fn canonical_manifest_bytes(body: &ManifestBody) -> Vec<u8> {
    let mut out = Vec::with_capacity(canonical_len(body));
    let ManifestBody {
        format_version,
        segment,
        objects,
        chain,
    } = body;
    out.extend_from_slice(MANIFEST_BODY_DOMAIN);
    out.extend_from_slice(&format_version.to_be_bytes());
    push_bytes(&mut out, segment.topic.as_bytes());
    out.extend_from_slice(segment.topic_id.as_bytes());
    out.extend_from_slice(&segment.partition.to_be_bytes());
    out.extend_from_slice(segment.segment_id.as_bytes());
    out.extend_from_slice(&segment.start_offset.to_be_bytes());
    out.extend_from_slice(&segment.end_offset.to_be_bytes());
    out.extend_from_slice(&segment.max_timestamp_ms.to_be_bytes());
    out.extend_from_slice(&segment.broker_id.to_be_bytes());
    out.extend_from_slice(&segment.event_timestamp_ms.to_be_bytes());
    out.extend_from_slice(&segment.segment_size_bytes.to_be_bytes());
    push_count(&mut out, segment.leader_epochs.len());
    for (epoch, start_offset) in &segment.leader_epochs {
        out.extend_from_slice(&epoch.to_be_bytes());
        out.extend_from_slice(&start_offset.to_be_bytes());
    }
    out.push(u8::from(segment.txn_index_empty));
    push_count(&mut out, objects.len());
    for object in objects {
        push_bytes(&mut out, object.suffix.as_bytes());
        push_bytes(&mut out, object.key.as_bytes());
        out.extend_from_slice(&object.size_bytes.to_be_bytes());
        out.extend_from_slice(&object.sha256.0);
        push_optional(&mut out, object.e_tag.as_deref());
        push_optional(&mut out, object.version_id.as_deref());
        if *format_version >= 2 {
            out.push(u8::from(object.create_precondition));
        }
    }
    out.extend_from_slice(chain.epoch_id.0.as_bytes());
    out.extend_from_slice(&chain.seq.0.to_be_bytes());
    out.extend_from_slice(&chain.prev_head.0);
    out
}

/// The head of a manifest: SHA-256 of the head before, the position (8 bytes) and the
/// [canonical bytes](canonical_manifest_bytes), which hold both once more.
pub fn manifest_head(body: &ManifestBody) -> ChainHead {
    let digest = Sha256::new()
        .chain_update(body.chain.prev_head.0)
        .chain_update(body.chain.seq.0.to_be_bytes())
        .chain_update(canonical_manifest_bytes(body))
        .finalize();
    ChainHead(digest.into())
}

/// The message that a manifest's signature is over.
///
/// The key's name and the place are in it beside the head, so that no signature can be moved.
pub fn manifest_signing_bytes(
    key_id: &str,
    epoch_id: EpochId,
    seq: ManifestSeq,
    head: ChainHead,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(88 + key_id.len());
    out.extend_from_slice(MANIFEST_DOMAIN);
    push_bytes(&mut out, key_id.as_bytes());
    out.extend_from_slice(epoch_id.0.as_bytes());
    out.extend_from_slice(&seq.0.to_be_bytes());
    out.extend_from_slice(&head.0);
    out
}

fn canonical_len(body: &ManifestBody) -> usize {
    let optional = |text: &Option<String>| text.as_ref().map_or(1, |text| 9 + text.len());
    let objects: usize = body
        .objects
        .iter()
        .map(|object| {
            let texts = object.suffix.len() + object.key.len();
            57 + texts + optional(&object.e_tag) + optional(&object.version_id)
        })
        .sum();
    194 + body.segment.topic.len() + 12 * body.segment.leader_epochs.len() + objects
}

fn push_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&(count as u64).to_be_bytes());
}

fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    push_count(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn push_optional(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        None => out.push(0),
        Some(text) => {
            out.push(1);
            push_bytes(out, text.as_bytes());
        }
    }
}
