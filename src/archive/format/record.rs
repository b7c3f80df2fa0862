//! The chain record that travels in a segment's custom metadata.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::chain::{ChainHead, ChainStamp, EpochId, ManifestSeq};
use super::json;
use super::printable::excerpt;
use crate::error::WormError;
use crate::model::CustomMetadata;

/// The version of the chain record that is written, and the only one that is read.
pub const WORM_CHAIN_RECORD_VERSION: u32 = 0;

/// A segment's place in its partition's chain, as the metadata store keeps it.
///
/// Without a head it is a *request*: the leader asks for the segment to be sealed at this place.
/// With one it is a *receipt*: the segment's manifest stands there, and has this head.
///
/// A receipt has 251 bytes and up to 50 more, and with them is larger than the 128 bytes that
/// Apache Kafka's broker takes as custom metadata by default
/// (`remote.log.metadata.custom.metadata.max.bytes`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WormChainRecord {
    /// The run.
    pub epoch_id: EpochId,
    /// The position in the run.
    pub seq: ManifestSeq,
    /// The head of the manifest before.
    pub prev_head: ChainHead,
    /// The head of the segment's own manifest.
    pub head: Option<ChainHead>,
    /// The version that the store gave to the manifest's object.
    pub manifest_version_id: Option<String>,
}

/// The record's JSON, members in the order in which they are written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    version: u32,
    epoch_id: EpochId,
    seq: ManifestSeq,
    prev_head: ChainHead,
    #[serde(deserialize_with = "json::nullable")]
    head: Option<ChainHead>,
    #[serde(deserialize_with = "json::nullable")]
    manifest_version_id: Option<String>,
}

/// What is looked at first, so that a later version is not called malformed.
#[derive(Deserialize)]
struct Probe<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    version: Option<&'a RawValue>,
}

/// A member that is there, whatever it is; null included.
fn present<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(d).map(Some)
}

impl WormChainRecord {
    /// Asks for a segment to be sealed at `stamp`.
    pub fn request(stamp: ChainStamp) -> Self {
        Self {
            epoch_id: stamp.epoch_id,
            seq: stamp.seq,
            prev_head: stamp.prev_head,
            head: None,
            manifest_version_id: None,
        }
    }

    /// The receipt of this request: the manifest's head is `head`.
    #[must_use]
    pub fn with_head(mut self, head: ChainHead) -> Self {
        self.head = Some(head);
        self
    }

    /// The same record with the version of the manifest's object, where the store has versions.
    #[must_use]
    pub fn with_manifest_version(mut self, version_id: Option<String>) -> Self {
        self.manifest_version_id = version_id;
        self
    }

    /// The place that the record is about.
    pub fn stamp(&self) -> ChainStamp {
        ChainStamp {
            epoch_id: self.epoch_id,
            seq: self.seq,
            prev_head: self.prev_head,
        }
    }

    /// The place after this one: `None` for a request, and behind the last position.
    pub fn next_stamp(&self) -> Option<ChainStamp> {
        Some(ChainStamp {
            epoch_id: self.epoch_id,
            seq: self.seq.next()?,
            prev_head: self.head?,
        })
    }

    /// The record as custom metadata.
    pub fn to_custom_metadata(&self) -> CustomMetadata {
        let wire = Wire {
            version: WORM_CHAIN_RECORD_VERSION,
            epoch_id: self.epoch_id,
            seq: self.seq,
            prev_head: self.prev_head,
            head: self.head,
            manifest_version_id: self.manifest_version_id.clone(),
        };
        // Numbers, strings and nulls into memory: nothing in it can fail.
        CustomMetadata(serde_json::to_vec(&wire).unwrap_or_default())
    }

    /// Reads the record back.
    ///
    /// # Errors
    ///
    /// [`UnsupportedChainRecordVersion`](WormError::UnsupportedChainRecordVersion) for an object
    /// with another version than the number 0, or with none;
    /// [`MalformedChainRecord`](WormError::MalformedChainRecord) for all else that is not exactly
    /// a record of version 0.
    pub fn from_custom_metadata(metadata: &CustomMetadata) -> Result<Self, WormError> {
        let CustomMetadata(bytes) = metadata;
        let malformed = |reason: &str| WormError::MalformedChainRecord(excerpt(reason));
        let text = std::str::from_utf8(bytes).map_err(|e| malformed(&e.to_string()))?;
        if json::is_too_deep(bytes) {
            return Err(malformed("nested too deeply"));
        }
        let probe: Probe<'_> =
            json::from_slice(text.as_bytes()).map_err(|e| malformed(&e.to_string()))?;
        match probe.version.map(RawValue::get) {
            Some("0") => {}
            found => {
                return Err(WormError::UnsupportedChainRecordVersion {
                    found: found.map(str::to_owned),
                });
            }
        }
        let wire: Wire = json::from_slice(bytes).map_err(|e| malformed(&e.to_string()))?;
        Ok(Self {
            epoch_id: wire.epoch_id,
            seq: wire.seq,
            prev_head: wire.prev_head,
            head: wire.head,
            manifest_version_id: wire.manifest_version_id,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::archive::format::{Sha256Digest, manifest_head};
    use crate::archive::vectors::{V2_HEAD, v2};

    fn published() -> WormChainRecord {
        WormChainRecord::request(ChainStamp {
            epoch_id: EpochId(Uuid::from_u128(0x1234)),
            seq: ManifestSeq(11),
            prev_head: ChainHead([0x5a; 32]),
        })
        .with_head(ChainHead([0x6b; 32]))
        .with_manifest_version(Some("v1".to_owned()))
    }

    fn decode(text: &str) -> Result<WormChainRecord, WormError> {
        WormChainRecord::from_custom_metadata(&CustomMetadata(text.into()))
    }

    fn json(record: &WormChainRecord) -> String {
        String::from_utf8(record.to_custom_metadata().0).unwrap()
    }

    #[test]
    fn the_published_record_is_written_and_read() {
        let bytes = published().to_custom_metadata();
        assert_eq!(bytes.0.len(), 252);
        assert_eq!(
            Sha256Digest::of(&bytes.0).to_string(),
            "9837145defbc34dea797a4ef6e219558ec91330c537159bc069a404fc2ceffcc"
        );
        assert_eq!(
            WormChainRecord::from_custom_metadata(&bytes),
            Ok(published())
        );
    }

    #[test]
    fn request_and_receipt_of_v2_are_the_published_ones() {
        let request = WormChainRecord::request(v2().chain);
        let bytes = request.to_custom_metadata().0;
        assert_eq!(bytes.len(), 189);
        assert_eq!(
            Sha256Digest::of(&bytes).to_string(),
            "95650c54f3c4c5ed4a34a572bade6a79d3f7270d697c16b337a036224c82f55c"
        );
        assert_eq!(request.next_stamp(), None);

        let receipt = request.with_head(manifest_head(&v2()));
        assert_eq!(
            json(&receipt),
            format!(
                r#"{{"version":0,"epoch_id":"00000000-0000-0000-0000-000000000099","seq":0,"prev_head":"{}","head":"{V2_HEAD}","manifest_version_id":null}}"#,
                "0".repeat(64)
            )
        );
        assert_eq!(json(&receipt).len(), 251);
        let versioned = receipt.clone().with_manifest_version(Some("v".repeat(32)));
        assert_eq!(json(&versioned).len(), 281);
        assert_eq!(
            receipt.next_stamp(),
            Some(ChainStamp {
                epoch_id: v2().chain.epoch_id,
                seq: ManifestSeq(1),
                prev_head: manifest_head(&v2()),
            })
        );
    }

    #[test]
    fn nothing_follows_the_last_position() {
        let mut record = published();
        record.seq = ManifestSeq(u64::MAX);
        assert_eq!(record.next_stamp(), None);
        assert_eq!(decode(&json(&record)), Ok(record));
    }

    #[test]
    fn another_version_is_unsupported_whatever_else_is_in_it() {
        for found in [
            "1",
            "\"0\"",
            "null",
            "0.0",
            "-0",
            "0e0",
            "[0]",
            "{}",
            "18446744073709551616",
        ] {
            let text = json(&published()).replacen(":0,", &format!(":{found},"), 1);
            assert_eq!(
                decode(&text),
                Err(WormError::UnsupportedChainRecordVersion {
                    found: Some(found.to_owned())
                })
            );
        }
        assert_eq!(
            decode(r#"{"version":1,"more":[{}]}"#),
            Err(WormError::UnsupportedChainRecordVersion {
                found: Some("1".to_owned())
            })
        );
        for without in ["{}", r#"{"seq":1}"#, r#"{"Version":0}"#] {
            assert_eq!(
                decode(without),
                Err(WormError::UnsupportedChainRecordVersion { found: None })
            );
        }
    }

    #[test]
    fn all_else_is_malformed() {
        let valid = json(&published());
        for text in [
            "",
            "0",
            "[]",
            "[0]",
            "null",
            "\"\"",
            "{",
            r#"{"version":0}"#,
            r#"{"version":0,"version":0}"#,
            r#"{"version":1,"version":1}"#,
            &format!("{valid}x"),
            &format!("\u{feff}{valid}"),
            &valid.replacen('{', r#"{"more":1,"#, 1),
            &valid.replacen(r#","manifest_version_id":"v1""#, "", 1),
            &valid.replacen(r#""v1""#, "1", 1),
            &valid.replacen("11", "11.0", 1),
            &valid.replacen("11", "-0", 1),
            &valid.replacen("11", "18446744073709551616", 1),
            &valid.replacen("5a5a", "5a5", 1),
            &valid.replacen("00000000-0000", "000000000000", 1),
            &format!(
                r#"{{"version":1,"x":{}{}}}"#,
                "[".repeat(200),
                "]".repeat(200)
            ),
        ] {
            let result = decode(text);
            assert!(
                matches!(result, Err(WormError::MalformedChainRecord(_))),
                "{text}: {result:?}"
            );
        }
        let result = WormChainRecord::from_custom_metadata(&CustomMetadata(vec![b'{', 0xff]));
        assert!(matches!(result, Err(WormError::MalformedChainRecord(_))));
    }

    #[test]
    fn the_order_of_members_and_white_space_are_no_matter_here() {
        let text = json(&published())
            .replacen(r#""version":0,"#, "", 1)
            .replacen('}', ",\n \"version\": 0 }\n", 1);
        assert_eq!(decode(&text), Ok(published()));
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            epoch_id in any::<u128>(),
            seq in any::<u64>(),
            prev_head in any::<[u8; 32]>(),
            head in any::<Option<[u8; 32]>>(),
            manifest_version_id in any::<Option<String>>(),
        ) {
            let record = WormChainRecord {
                epoch_id: EpochId(Uuid::from_u128(epoch_id)),
                seq: ManifestSeq(seq),
                prev_head: ChainHead(prev_head),
                head: head.map(ChainHead),
                manifest_version_id,
            };
            prop_assert_eq!(
                WormChainRecord::from_custom_metadata(&record.to_custom_metadata()),
                Ok(record)
            );
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in any::<Vec<u8>>()) {
            prop_assert!(WormChainRecord::from_custom_metadata(&CustomMetadata(bytes)).is_err());
        }
    }
}
