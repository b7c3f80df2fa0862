//! What becomes of a copy whose outcome was lost.
//!
//! Storing the manifest commits a copy. A process that died, or an answer that did not come, can
//! leave a segment in the metadata store as started though its manifest stands (or will stand) at
//! the requested position. To use the position again would be a fork, for ever. So before a leader
//! seeds its chain it settles each such segment: by what it can learn of the manifest, and where
//! it can learn nothing, by giving up the whole epoch.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use uuid::Uuid;

use super::format::{
    ChainStamp, EpochId, ManifestSeq, SegmentIdentity, SegmentManifest, WormChainRecord,
    manifest_head,
};
use super::keys::{TrustedManifestKeys, VerifiedManifest, verify_manifest_signature};
use super::place::{live_record, next_chain_stamp_outside};
use crate::model::{RemoteLogSegmentMetadata, RemoteLogSegmentState};

/// A segment whose copy was started to be sealed, with no outcome on record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leftover<'a> {
    /// The segment, as it was given to the copy.
    pub segment: &'a RemoteLogSegmentMetadata,
    /// The place that was asked for.
    pub stamp: ChainStamp,
}

/// What is known of a leftover's manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftoverEvidence {
    /// This process ran the copy, and never sent the manifest.
    NeverSent,
    /// Something stands under the manifest's key.
    Found {
        /// Its bytes.
        bytes: Bytes,
        /// Its version, where the store has versions.
        version_id: Option<String>,
    },
    /// Nothing stands there.
    Absent {
        /// Whether the process that made the copy is known to have been dead for longer than a
        /// store client repeats a request, so that the manifest can no longer arrive.
        writer_is_gone: bool,
    },
    /// It could not be found out: the store did not answer, or nothing may be read from it.
    Unknown,
}

/// What is to be done with a leftover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftoverResolution {
    /// The position is free. The metadata may be rolled back; objects stay.
    RollBack,
    /// The copy succeeded: update the segment to `CopySegmentFinished` with this receipt.
    Adopt(WormChainRecord),
    /// Leave the segment as it is, for good: the outcome is open, and its epoch is closed.
    Leave,
}

/// All leftovers of a partition, settled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettledLeftovers {
    resolutions: Vec<(Uuid, LeftoverResolution)>,
    closed: BTreeSet<EpochId>,
}

impl SettledLeftovers {
    /// What is to be done, by segment id, in the order in which to do it.
    pub fn resolutions(&self) -> &[(Uuid, LeftoverResolution)] {
        &self.resolutions
    }

    /// Epochs in which nothing is sealed any more.
    pub fn closed_epochs(&self) -> &BTreeSet<EpochId> {
        &self.closed
    }

    /// [`next_chain_stamp`](super::next_chain_stamp) without the closed epochs. To be called with
    /// the segments as they are listed **after** the resolutions were carried out.
    pub fn next_chain_stamp<'a>(
        &self,
        segments: impl IntoIterator<Item = &'a RemoteLogSegmentMetadata>,
        new_epoch_id: EpochId,
    ) -> Option<ChainStamp> {
        next_chain_stamp_outside(segments, new_epoch_id, &self.closed)
    }
}

/// The leftovers among a partition's listed segments: those in `CopySegmentStarted` that carry a
/// request, by position, start offset and id.
pub fn leftovers<'a>(
    segments: impl IntoIterator<Item = &'a RemoteLogSegmentMetadata>,
) -> Vec<Leftover<'a>> {
    let mut leftovers: Vec<_> = segments
        .into_iter()
        .filter(|segment| segment.state() == RemoteLogSegmentState::CopySegmentStarted)
        .filter_map(|segment| match live_record(segment)? {
            Ok(record) if record.head.is_none() => Some(Leftover {
                segment,
                stamp: record.stamp(),
            }),
            _ => None,
        })
        .collect();
    leftovers.sort_by_key(|leftover| {
        let segment = leftover.segment;
        (
            leftover.stamp.seq,
            segment.start_offset(),
            segment.remote_log_segment_id().id,
        )
    });
    leftovers
}

/// Settles a partition's leftovers, before its chain is seeded.
///
/// `evidence` says by segment id what is known of each manifest; what it does not say is unknown.
/// The rule, per leftover:
///
/// | What is known | Then |
/// |---|---|
/// | the manifest was never sent | the position is free |
/// | it stands there, says exactly what the metadata says, and its signature is valid | it is adopted |
/// | it is absent, and its writer is gone | the position is free |
/// | anything else | the epoch is closed |
///
/// A signature is valid when it is by a key in `trusted`. Without trusted keys an archive is taken
/// to be unsigned: then a manifest may be unsigned, or agree with the key it names itself.
///
/// A manifest that stands at a position which another segment has taken is a fork that happened
/// before, and closes the epoch.
pub fn resolve_leftovers<'a>(
    segments: impl IntoIterator<Item = &'a RemoteLogSegmentMetadata> + Clone,
    evidence: &BTreeMap<Uuid, LeftoverEvidence>,
    trusted: &TrustedManifestKeys,
) -> SettledLeftovers {
    let mut taken: BTreeSet<(EpochId, ManifestSeq)> = segments
        .clone()
        .into_iter()
        .filter_map(|segment| live_record(segment)?.ok())
        .filter(|record| record.head.is_some())
        .map(|record| (record.epoch_id, record.seq))
        .collect();
    let mut settled = SettledLeftovers::default();
    for leftover in leftovers(segments) {
        let id = leftover.segment.remote_log_segment_id().id;
        let place = (leftover.stamp.epoch_id, leftover.stamp.seq);
        let resolution = match evidence.get(&id) {
            Some(
                LeftoverEvidence::NeverSent
                | LeftoverEvidence::Absent {
                    writer_is_gone: true,
                },
            ) => LeftoverResolution::RollBack,
            Some(LeftoverEvidence::Found { bytes, version_id }) => {
                match own_manifest(&leftover, bytes, trusted) {
                    Some(receipt) if taken.insert(place) => {
                        LeftoverResolution::Adopt(receipt.with_manifest_version(version_id.clone()))
                    }
                    _ => LeftoverResolution::Leave,
                }
            }
            Some(
                LeftoverEvidence::Absent {
                    writer_is_gone: false,
                }
                | LeftoverEvidence::Unknown,
            )
            | None => LeftoverResolution::Leave,
        };
        if resolution == LeftoverResolution::Leave {
            settled.closed.insert(leftover.stamp.epoch_id);
        }
        settled.resolutions.push((id, resolution));
    }
    settled
}

/// The receipt of a manifest that is exactly the one which this leftover was to get.
fn own_manifest(
    leftover: &Leftover<'_>,
    bytes: &[u8],
    trusted: &TrustedManifestKeys,
) -> Option<WormChainRecord> {
    let manifest = SegmentManifest::decode(bytes).ok()?;
    if manifest.body.chain != leftover.stamp
        || manifest.body.segment != SegmentIdentity::from_metadata(leftover.segment)
    {
        return None;
    }
    let head = manifest_head(&manifest.body);
    let valid = match &manifest.signature {
        None => trusted.is_empty(),
        Some(signature) if trusted.is_empty() => {
            verify_manifest_signature(&manifest, &signature.public_key.0)
        }
        Some(signature) => {
            let key = *trusted.get(&signature.key_id)?;
            signature.public_key.0 == key.as_bytes()
                && VerifiedManifest::check(manifest, &key).is_some()
        }
    };
    valid.then(|| WormChainRecord::request(leftover.stamp).with_head(head))
}

#[cfg(test)]
mod tests {
    use super::super::vectors::{KEY_ID, signed, trusted, v2, v2_metadata};
    use super::super::{ChainHead, ManifestSeq};
    use super::*;
    use crate::model::{
        CustomMetadata, LeaderEpoch, RemoteLogSegmentDetails, RemoteLogSegmentId,
        RemoteLogSegmentMetadataUpdate, TopicIdPartition,
    };

    const FRESH: EpochId = EpochId(Uuid::from_u128(0xf));

    /// The segment of V2, started, asked to be sealed at this position of V2's epoch.
    fn started(id: u128, start_offset: i64, seq: u64, prev_head: u8) -> RemoteLogSegmentMetadata {
        let stamp = ChainStamp {
            epoch_id: v2().chain.epoch_id,
            seq: ManifestSeq(seq),
            prev_head: ChainHead([prev_head; 32]),
        };
        let tp = TopicIdPartition::new(Uuid::from_u128(0x11), "orders", 3);
        let details = RemoteLogSegmentDetails::new(
            8,
            RemoteLogSegmentState::CopySegmentStarted,
            [(LeaderEpoch(0), start_offset)].into(),
        );
        let id = RemoteLogSegmentId::new(tp, Uuid::from_u128(id));
        RemoteLogSegmentMetadata::new(id, start_offset, start_offset + 99, 5, 7, 6, details)
            .unwrap()
            .with_custom_metadata(WormChainRecord::request(stamp).to_custom_metadata())
    }

    fn finished(
        segment: &RemoteLogSegmentMetadata,
        custom_metadata: Option<CustomMetadata>,
    ) -> RemoteLogSegmentMetadata {
        with_state(
            segment,
            RemoteLogSegmentState::CopySegmentFinished,
            custom_metadata,
        )
    }

    fn with_state(
        segment: &RemoteLogSegmentMetadata,
        state: RemoteLogSegmentState,
        custom_metadata: Option<CustomMetadata>,
    ) -> RemoteLogSegmentMetadata {
        let id = segment.remote_log_segment_id().clone();
        segment
            .with_update(&RemoteLogSegmentMetadataUpdate::new(
                id,
                9,
                custom_metadata,
                state,
                7,
            ))
            .unwrap()
    }

    /// What sealing the segment stores.
    fn manifest(segment: &RemoteLogSegmentMetadata) -> SegmentManifest {
        let mut body = v2();
        body.segment = SegmentIdentity::from_metadata(segment);
        let record = segment.custom_metadata().unwrap();
        body.chain = WormChainRecord::from_custom_metadata(record)
            .unwrap()
            .stamp();
        signed(body, KEY_ID)
    }

    fn found(manifest: &SegmentManifest) -> LeftoverEvidence {
        LeftoverEvidence::Found {
            bytes: manifest.encode().unwrap().into(),
            version_id: Some("v7".to_owned()),
        }
    }

    fn receipt(segment: &RemoteLogSegmentMetadata) -> WormChainRecord {
        let body = manifest(segment).body;
        WormChainRecord::request(body.chain)
            .with_head(manifest_head(&body))
            .with_manifest_version(Some("v7".to_owned()))
    }

    /// Settles one leftover, alone in its partition, that is known like this.
    fn settle(
        segment: &RemoteLogSegmentMetadata,
        evidence: LeftoverEvidence,
    ) -> (LeftoverResolution, bool) {
        let id = segment.remote_log_segment_id().id;
        let settled = resolve_leftovers([segment], &[(id, evidence)].into(), &trusted());
        let [(settled_id, resolution)] = settled.resolutions() else {
            panic!("{settled:?}");
        };
        assert_eq!(*settled_id, id);
        let closed = settled.closed_epochs().contains(&v2().chain.epoch_id);
        (resolution.clone(), closed)
    }

    #[test]
    fn leftovers_are_started_segments_with_a_request_in_the_order_of_their_places() {
        let a = started(3, 100, 4, 1);
        let b = started(1, 100, 4, 1);
        let c = started(2, 0, 4, 1);
        let d = started(9, 900, 3, 1);
        let done = finished(&started(5, 0, 0, 0), None);
        let deleted = with_state(
            &started(6, 0, 0, 0),
            RemoteLogSegmentState::DeleteSegmentStarted,
            None,
        );
        let with_receipt = v2_metadata().with_custom_metadata(receipt(&a).to_custom_metadata());
        let unreadable = v2_metadata().with_custom_metadata(CustomMetadata(b"x".to_vec()));
        let listed = [&a, &done, &b, &deleted, &c, &with_receipt, &unreadable, &d];
        let found: Vec<_> = leftovers(listed)
            .into_iter()
            .map(|leftover| leftover.segment)
            .collect();
        assert_eq!(found, [&d, &c, &b, &a]);
        let settled = resolve_leftovers(listed, &BTreeMap::new(), &trusted());
        let order: Vec<_> = settled
            .resolutions()
            .iter()
            .map(|(id, _)| id.as_u128())
            .collect();
        assert_eq!(order, [9, 2, 1, 3]);
    }

    #[test]
    fn a_manifest_that_was_never_sent_leaves_its_position_free() {
        let segment = started(1, 0, 0, 0);
        assert_eq!(
            settle(&segment, LeftoverEvidence::NeverSent),
            (LeftoverResolution::RollBack, false)
        );
    }

    #[test]
    fn an_absent_manifest_leaves_its_position_free_only_if_it_can_no_longer_arrive() {
        let segment = started(1, 0, 0, 0);
        let absent = |writer_is_gone| LeftoverEvidence::Absent { writer_is_gone };
        assert_eq!(
            settle(&segment, absent(true)),
            (LeftoverResolution::RollBack, false)
        );
        assert_eq!(
            settle(&segment, absent(false)),
            (LeftoverResolution::Leave, true)
        );
    }

    #[test]
    fn what_is_not_known_closes_the_epoch() {
        let segment = started(1, 0, 0, 0);
        assert_eq!(
            settle(&segment, LeftoverEvidence::Unknown),
            (LeftoverResolution::Leave, true)
        );
        let settled = resolve_leftovers([&segment], &BTreeMap::new(), &trusted());
        assert_eq!(
            settled.resolutions(),
            [(Uuid::from_u128(1), LeftoverResolution::Leave)]
        );
    }

    #[test]
    fn a_manifest_that_says_what_the_metadata_says_is_adopted_with_its_version() {
        let segment = started(1, 100, 4, 1);
        assert_eq!(
            settle(&segment, found(&manifest(&segment))),
            (LeftoverResolution::Adopt(receipt(&segment)), false)
        );
    }

    #[test]
    fn a_manifest_that_says_anything_else_closes_the_epoch() {
        let segment = started(1, 100, 4, 1);
        let own = manifest(&segment);
        let mut other_place = own.body.clone();
        other_place.chain.seq = ManifestSeq(5);
        let mut other_segment = own.body.clone();
        other_segment.segment.end_offset += 1;
        let mut unsigned = own.clone();
        unsigned.signature = None;
        let mut forged = own.clone();
        forged.signature.as_mut().unwrap().signature.0[0] ^= 1;
        let mut other_key = own.clone();
        other_key.signature.as_mut().unwrap().public_key.0[0] ^= 1;
        for other in [
            signed(other_place, KEY_ID),
            signed(other_segment, KEY_ID),
            signed(own.body.clone(), "unknown key"),
            unsigned,
            forged,
            other_key,
        ] {
            assert_eq!(
                settle(&segment, found(&other)),
                (LeftoverResolution::Leave, true),
                "{other:?}"
            );
        }
        let mut respelled = own.encode().unwrap();
        respelled.push(b'\n');
        for bytes in [respelled, b"x".to_vec(), Vec::new()] {
            let evidence = LeftoverEvidence::Found {
                bytes: bytes.into(),
                version_id: None,
            };
            assert_eq!(
                settle(&segment, evidence),
                (LeftoverResolution::Leave, true)
            );
        }
    }

    #[test]
    fn without_trusted_keys_a_manifest_may_be_unsigned_but_not_wrongly_signed() {
        let segment = started(1, 100, 4, 1);
        let own = manifest(&segment);
        let mut unsigned = own.clone();
        unsigned.signature = None;
        let mut forged = own.clone();
        forged.signature.as_mut().unwrap().signature.0[0] ^= 1;
        for (manifest, adopted) in [(&own, true), (&unsigned, true), (&forged, false)] {
            let settled = resolve_leftovers(
                [&segment],
                &[(Uuid::from_u128(1), found(manifest))].into(),
                &TrustedManifestKeys::default(),
            );
            let is_adopted = matches!(settled.resolutions()[0].1, LeftoverResolution::Adopt(_));
            assert_eq!(is_adopted, adopted, "{manifest:?}");
        }
    }

    #[test]
    fn a_manifest_at_a_taken_position_is_not_adopted() {
        let first = started(1, 100, 4, 1);
        let second = started(2, 100, 4, 1);
        let evidence = [
            (Uuid::from_u128(1), found(&manifest(&first))),
            (Uuid::from_u128(2), found(&manifest(&second))),
        ]
        .into();
        let settled = resolve_leftovers([&second, &first], &evidence, &trusted());
        assert_eq!(
            settled.resolutions(),
            [
                (
                    Uuid::from_u128(1),
                    LeftoverResolution::Adopt(receipt(&first))
                ),
                (Uuid::from_u128(2), LeftoverResolution::Leave)
            ]
        );
        let done = finished(&first, Some(receipt(&first).to_custom_metadata()));
        let settled = resolve_leftovers([&second, &done], &evidence, &trusted());
        assert_eq!(
            settled.resolutions(),
            [(Uuid::from_u128(2), LeftoverResolution::Leave)]
        );
    }

    #[test]
    fn a_closed_epoch_gives_no_more_places_and_an_adopted_receipt_gives_the_next() {
        let first = started(1, 0, 0, 0);
        let tip = finished(&first, Some(receipt(&first).to_custom_metadata()));
        let head = receipt(&first).head.unwrap();
        let mut next = started(2, 100, 1, 0);
        let stamp = receipt(&first).next_stamp().unwrap();
        next = next.with_custom_metadata(WormChainRecord::request(stamp).to_custom_metadata());

        let free = [(Uuid::from_u128(2), LeftoverEvidence::NeverSent)].into();
        let settled = resolve_leftovers([&tip, &next], &free, &trusted());
        assert_eq!(
            settled.next_chain_stamp([&tip], FRESH),
            Some(stamp),
            "the same position again"
        );

        let adopted = [(Uuid::from_u128(2), found(&manifest(&next)))].into();
        let settled = resolve_leftovers([&tip, &next], &adopted, &trusted());
        let done = finished(&next, Some(receipt(&next).to_custom_metadata()));
        assert_eq!(
            settled.next_chain_stamp([&tip, &done], FRESH),
            receipt(&next).next_stamp()
        );

        let settled = resolve_leftovers([&tip, &next], &BTreeMap::new(), &trusted());
        assert_eq!(
            settled.next_chain_stamp([&tip, &next], FRESH),
            Some(ChainStamp::genesis(FRESH))
        );
        assert_eq!(stamp.prev_head, head);
    }
}
