//! What a copy wrote, object by object.

use super::CustomMetadata;

/// One object that a copy wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopiedObject {
    /// The artifact's suffix, its dot included: `.log`, `.index`, ….
    pub suffix: &'static str,
    /// The object's whole key, prefix included.
    pub key: String,
    /// The object's length in bytes.
    pub size_bytes: u64,
    /// SHA-256 of the bytes handed to the store; taken in archive mode only.
    pub sha256: Option<[u8; 32]>,
    /// The store's entity tag, quotes included, as the write reported it.
    pub e_tag: Option<String>,
    /// The store's version id, as the write reported it.
    pub version_id: Option<String>,
    /// Whether the store itself guaranteed that no object stood under the key before.
    pub create_precondition: bool,
}

/// What a copy wrote. It carries what the layers above need, so that sealing can be a layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyReceipt {
    /// The objects of the segment, in the order of Kafka's artifacts: `.log`, `.index`,
    /// `.timeindex`, `.snapshot`, `.leader_epoch_checkpoint`, `.txnindex`.
    pub objects: Vec<CopiedObject>,
    /// What is to be stored with the segment's metadata; `None` outside archive mode.
    pub custom_metadata: Option<CustomMetadata>,
}

impl CopyReceipt {
    /// The bytes of all objects together.
    pub fn size_bytes(&self) -> u64 {
        self.objects.iter().map(|object| object.size_bytes).sum()
    }
}
