//! The segments that metadata names, in the place of those that a listing shows.

use RemoteLogSegmentState::{CopySegmentFinished, CopySegmentStarted, DeleteSegmentStarted};
use krabka_remote_storage::rebuild::{RebuiltPartition, named_segments};

use super::*;

fn ids(segments: &[krabka_remote_storage::rebuild::ListedSegment]) -> Vec<(u128, usize)> {
    let segments = segments.iter();
    segments
        .map(|segment| (segment.id.id.as_u128(), segment.objects.len()))
        .collect()
}

#[test]
fn only_finished_segments_are_named_with_or_without_their_objects() {
    let cache = cache(&[
        (1, 0, CopySegmentFinished, 1),
        (2, 10, CopySegmentFinished, 2),
        (3, 20, CopySegmentStarted, 3),
        (4, 30, DeleteSegmentStarted, 4),
    ]);
    // The tier has one more, and of another start than the metadata says.
    let listing = whole(&[(2, 10), (3, 20), (4, 30), (5, 40), (1, 1)]);
    let named = named_segments(&cache.export(), &listing);
    assert_eq!(ids(&named), [(1, 0), (2, 5)]);
}

#[test]
fn the_metadata_of_named_segments_is_that_of_the_cluster() {
    let cache = cache(&[
        (1, 0, CopySegmentFinished, 1),
        (2, 10, CopySegmentFinished, 2),
        (3, 20, CopySegmentStarted, 3),
    ]);
    let dump = cache.export();
    let named = named_segments(&dump, &whole(&[(1, 0), (2, 10)]));
    let rebuilt = RebuiltPartition::named_by(&dump, named);
    assert_eq!(rebuilt.dump.segments, dump.segments[..2]);
    assert_eq!(rebuilt.dump.epochs, dump.epochs);
    assert!(rebuilt.skipped.is_empty() && rebuilt.mended.is_empty());
}

#[test]
fn a_segment_without_its_log_is_left_out_and_one_without_its_checkpoint_is_told() {
    let cache = cache(&[
        (1, 0, CopySegmentFinished, 1),
        (2, 10, CopySegmentFinished, 2),
    ]);
    let dump = cache.export();
    let mut listing = whole(&[(1, 0), (2, 10)]);
    listing.objects.retain(|object| {
        let key = object.location.as_ref();
        !(key.contains("0000-AAAAAAAAAAAAAAAAAAAAAQ.log")
            || key.ends_with("Ag.leader_epoch_checkpoint"))
    });
    let rebuilt = RebuiltPartition::named_by(&dump, named_segments(&dump, &listing));
    assert_eq!(rebuilt.dump.segments, dump.segments[1..]);
    assert_eq!(rebuilt.skipped.len(), 1);
    let text = rebuilt.skipped[0].reason.to_string();
    assert_eq!(
        text,
        "the metadata names segment AAAAAAAAAAAAAAAAAAAAAQ of orders-7 as finished, and its `.log` \
         is not in the tier"
    );
    assert_eq!(rebuilt.mended.len(), 1);
    let text = rebuilt.mended[0].reason.to_string();
    assert!(text.contains("AAAAAAAAAAAAAAAAAAAAAg"), "{text}");
    assert!(text.contains("`.leader_epoch_checkpoint`"), "{text}");
}

#[test]
fn what_was_superseded_answers_again_without_the_segment_that_superseded_it() {
    let cache = cache(&[
        (1, 0, CopySegmentFinished, 1),
        (2, 0, CopySegmentFinished, 2),
    ]);
    let dump = cache.export();
    let mut named = named_segments(&dump, &whole(&[(1, 0), (2, 0)]));
    let answers = |named| {
        let rebuilt = RebuiltPartition::named_by(&dump, named);
        let cache = RemoteLogMetadataCache::import(rebuilt.dump);
        cache
            .find_segment(LeaderEpoch(0), 5)
            .unwrap()
            .id()
            .as_u128()
    };
    assert_eq!(answers(named.clone()), 2);
    named.pop();
    assert_eq!(answers(named), 1);
}
