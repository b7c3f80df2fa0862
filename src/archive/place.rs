//! The place for a partition's next manifest, from what its segments carry.

use std::collections::BTreeSet;

use super::format::{ChainStamp, EpochId, WormChainRecord};
use crate::error::WormError;
use crate::model::{RemoteLogSegmentMetadata, RemoteLogSegmentState};

/// The place for a partition's next manifest, from all segments that the metadata store lists for
/// the partition.
///
/// Live segments (in no delete state) with a receipt are candidates. The one with the greatest
/// start offset decides on the epoch (among equals the greater position, then the first listed);
/// the place is the one after the greatest position that any receipt of this epoch has. Requests,
/// records that cannot be read, and segments without a record are passed over. Without a candidate
/// the place is the first of a new epoch, `new_epoch_id`.
///
/// `None` means that nothing may be sealed: a live segment carries a record of an unknown version,
/// whose position a newer writer has taken, or the chosen epoch is exhausted.
///
/// Leftovers of crashed copies have to be resolved before, see
/// [`resolve_leftovers`](super::resolve_leftovers), and a listing that failed is no empty listing:
/// it would open an epoch for nothing.
pub fn next_chain_stamp<'a>(
    segments: impl IntoIterator<Item = &'a RemoteLogSegmentMetadata>,
    new_epoch_id: EpochId,
) -> Option<ChainStamp> {
    next_chain_stamp_outside(segments, new_epoch_id, &BTreeSet::new())
}

/// [`next_chain_stamp`] that passes over the receipts of these epochs.
pub(super) fn next_chain_stamp_outside<'a>(
    segments: impl IntoIterator<Item = &'a RemoteLogSegmentMetadata>,
    new_epoch_id: EpochId,
    closed: &BTreeSet<EpochId>,
) -> Option<ChainStamp> {
    let mut receipts: Vec<(i64, WormChainRecord)> = Vec::new();
    for segment in segments {
        match live_record(segment) {
            Some(Ok(record)) if record.head.is_some() && !closed.contains(&record.epoch_id) => {
                receipts.push((segment.start_offset(), record));
            }
            Some(Err(WormError::UnsupportedChainRecordVersion { found: Some(_) })) => return None,
            _ => {}
        }
    }
    // `max_by_key` would answer with the last of equals.
    let newest = receipts
        .iter()
        .rev()
        .max_by_key(|(start_offset, record)| (*start_offset, record.seq));
    let Some((_, newest)) = newest else {
        return Some(ChainStamp::genesis(new_epoch_id));
    };
    receipts
        .iter()
        .rev()
        .filter(|(_, record)| record.epoch_id == newest.epoch_id)
        .max_by_key(|(_, record)| record.seq)
        .and_then(|(_, tip)| tip.next_stamp())
}

/// The chain record of a segment that is in no delete state.
pub(super) fn live_record(
    segment: &RemoteLogSegmentMetadata,
) -> Option<Result<WormChainRecord, WormError>> {
    match segment.state() {
        RemoteLogSegmentState::CopySegmentStarted | RemoteLogSegmentState::CopySegmentFinished => {
            let metadata = segment.custom_metadata()?;
            Some(WormChainRecord::from_custom_metadata(metadata))
        }
        RemoteLogSegmentState::DeleteSegmentStarted
        | RemoteLogSegmentState::DeleteSegmentFinished => None,
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::format::{ChainHead, ManifestSeq};
    use super::super::vectors::v2_metadata;
    use super::*;
    use crate::model::{
        CustomMetadata, LeaderEpoch, RemoteLogSegmentDetails, RemoteLogSegmentId,
        RemoteLogSegmentState::{
            CopySegmentFinished, CopySegmentStarted, DeleteSegmentFinished, DeleteSegmentStarted,
        },
    };

    const FRESH: EpochId = EpochId(Uuid::from_u128(0xf));
    const A: EpochId = EpochId(Uuid::from_u128(0xa));
    const B: EpochId = EpochId(Uuid::from_u128(0xb));

    fn segment(
        start_offset: i64,
        state: RemoteLogSegmentState,
        custom_metadata: impl Into<Option<CustomMetadata>>,
    ) -> RemoteLogSegmentMetadata {
        let details =
            RemoteLogSegmentDetails::new(1, state, [(LeaderEpoch(0), start_offset)].into());
        let tp = v2_metadata().topic_id_partition().clone();
        let id = RemoteLogSegmentId::generate_new(tp);
        let segment =
            RemoteLogSegmentMetadata::new(id, start_offset, start_offset + 99, -1, 0, 0, details)
                .unwrap();
        match custom_metadata.into() {
            Some(custom_metadata) => segment.with_custom_metadata(custom_metadata),
            None => segment,
        }
    }

    fn receipt(epoch_id: EpochId, seq: u64, head: u8) -> CustomMetadata {
        let stamp = ChainStamp {
            epoch_id,
            seq: ManifestSeq(seq),
            prev_head: ChainHead::GENESIS,
        };
        let record = WormChainRecord::request(stamp).with_head(ChainHead([head; 32]));
        record.to_custom_metadata()
    }

    fn request(epoch_id: EpochId, seq: u64) -> CustomMetadata {
        let stamp = ChainStamp {
            epoch_id,
            seq: ManifestSeq(seq),
            prev_head: ChainHead::GENESIS,
        };
        WormChainRecord::request(stamp).to_custom_metadata()
    }

    fn text(text: &str) -> CustomMetadata {
        CustomMetadata(text.into())
    }

    fn place(epoch_id: EpochId, seq: u64, head: u8) -> ChainStamp {
        ChainStamp {
            epoch_id,
            seq: ManifestSeq(seq),
            prev_head: ChainHead([head; 32]),
        }
    }

    #[test]
    fn without_a_receipt_the_chain_begins_anew() {
        let genesis = Some(ChainStamp::genesis(FRESH));
        assert_eq!(next_chain_stamp([], FRESH), genesis);
        for custom_metadata in [
            None,
            Some(request(A, 7)),
            Some(text("not json")),
            Some(text("{}")),
            Some(text(r#"{"version":0}"#)),
        ] {
            let segments = [segment(0, CopySegmentFinished, custom_metadata)];
            assert_eq!(next_chain_stamp(&segments, FRESH), genesis, "{segments:?}");
        }
    }

    #[test]
    fn segments_in_a_delete_state_are_passed_over_whatever_they_carry() {
        for state in [DeleteSegmentStarted, DeleteSegmentFinished] {
            for custom_metadata in [receipt(A, 7, 1), text(r#"{"version":1}"#)] {
                let segments = [segment(0, state, custom_metadata)];
                assert_eq!(
                    next_chain_stamp(&segments, FRESH),
                    Some(ChainStamp::genesis(FRESH))
                );
            }
        }
    }

    #[test]
    fn a_live_record_of_an_unknown_version_stops_sealing() {
        for state in [CopySegmentStarted, CopySegmentFinished] {
            let segments = [
                segment(100, CopySegmentFinished, receipt(A, 0, 1)),
                segment(0, state, text(r#"{"version":1}"#)),
            ];
            assert_eq!(next_chain_stamp(&segments, FRESH), None);
        }
    }

    #[test]
    fn the_next_place_follows_the_newest_receipt_whatever_the_order_of_the_listing() {
        let mut segments = [
            segment(0, CopySegmentFinished, receipt(A, 0, 1)),
            segment(100, CopySegmentFinished, receipt(A, 1, 2)),
            segment(200, CopySegmentStarted, request(A, 2)),
        ];
        assert_eq!(next_chain_stamp(&segments, FRESH), Some(place(A, 2, 2)));
        segments.reverse();
        assert_eq!(next_chain_stamp(&segments, FRESH), Some(place(A, 2, 2)));
    }

    #[test]
    fn a_receipt_on_a_started_segment_counts() {
        let segments = [
            segment(0, CopySegmentFinished, receipt(A, 0, 1)),
            segment(100, CopySegmentStarted, receipt(A, 1, 2)),
        ];
        assert_eq!(next_chain_stamp(&segments, FRESH), Some(place(A, 2, 2)));
    }

    #[test]
    fn segments_copied_out_of_order_do_not_fork_the_chain() {
        // By offset alone the tip would be position 1, and 2 would be used again.
        let segments = [
            segment(200, CopySegmentFinished, receipt(A, 1, 2)),
            segment(100, CopySegmentFinished, receipt(A, 2, 3)),
        ];
        assert_eq!(next_chain_stamp(&segments, FRESH), Some(place(A, 3, 3)));
    }

    #[test]
    fn the_epoch_is_that_of_the_greatest_offset() {
        let segments = [
            segment(0, CopySegmentFinished, receipt(A, 8, 1)),
            segment(100, CopySegmentFinished, receipt(B, 0, 2)),
        ];
        assert_eq!(next_chain_stamp(&segments, FRESH), Some(place(B, 1, 2)));
        // Among equal offsets the greater position decides, then the first listed.
        let segments = [
            segment(100, CopySegmentFinished, receipt(A, 8, 1)),
            segment(100, CopySegmentFinished, receipt(B, 0, 2)),
        ];
        assert_eq!(next_chain_stamp(&segments, FRESH), Some(place(A, 9, 1)));
        let mut segments = [
            segment(100, CopySegmentFinished, receipt(A, 3, 1)),
            segment(100, CopySegmentFinished, receipt(B, 3, 2)),
        ];
        assert_eq!(next_chain_stamp(&segments, FRESH), Some(place(A, 4, 1)));
        segments.reverse();
        assert_eq!(next_chain_stamp(&segments, FRESH), Some(place(B, 4, 2)));
    }

    #[test]
    fn an_exhausted_epoch_gives_no_place() {
        let segments = [segment(0, CopySegmentFinished, receipt(A, u64::MAX, 1))];
        assert_eq!(next_chain_stamp(&segments, FRESH), None);
    }
}
