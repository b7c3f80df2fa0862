//! A tier's listing held against metadata that goes on changing.

use RemoteLogSegmentState::{
    CopySegmentFinished, CopySegmentStarted, DeleteSegmentFinished, DeleteSegmentStarted,
};
use krabka_remote_storage::metadata::topic::MetadataEvent;
use krabka_remote_storage::rebuild::{Difference, Finding, TierComparison};
use krabka_remote_storage::{RemotePartitionDeleteMetadata, RemotePartitionDeleteState};

use super::*;

/// Copies from before this time count as abandoned.
const ABANDONED_BEFORE: i64 = 100;

/// What is found when the metadata is `before`, then the tier is listed, then it is `after`.
fn findings(
    before: &RemoteLogMetadataCache,
    listing: &Listing,
    events: &[MetadataEvent],
    after: &RemoteLogMetadataCache,
) -> Vec<Finding> {
    let mut comparison = TierComparison::new();
    comparison.compare(&orders(), listing, Some(before));
    for event in events {
        comparison.observe(event);
    }
    comparison.findings(|_| Some(after), ABANDONED_BEFORE)
}

/// The same of metadata that does not change.
fn at_rest(metadata: &RemoteLogMetadataCache, listing: &Listing) -> Vec<(u128, Difference, bool)> {
    short(&findings(metadata, listing, &[], metadata))
}

fn short(findings: &[Finding]) -> Vec<(u128, Difference, bool)> {
    let findings = findings.iter();
    findings
        .map(|finding| {
            let id = finding.segment.map_or(0, |(id, _)| id.as_u128());
            (id, finding.difference.clone(), finding.is_problem())
        })
        .collect()
}

fn without(mut listing: Listing, suffix: &str) -> Listing {
    listing
        .objects
        .retain(|object| !object.location.as_ref().ends_with(suffix));
    listing
}

#[test]
fn finished_segments_with_all_their_objects_are_as_they_should_be() {
    let metadata = cache(&[
        (1, 0, CopySegmentFinished, 1),
        // Superseded, and still there.
        (2, 0, CopySegmentFinished, 2),
    ]);
    let mut listing = whole(&[(1, 0), (2, 0)]);
    listing.objects.push(object(1, 0, ".txnindex", 34));
    listing.objects.push(object(1, 0, ".manifest.json", 500));
    assert_eq!(at_rest(&metadata, &listing), []);
}

#[test]
fn objects_that_no_metadata_names_are_found() {
    let metadata = cache(&[(1, 0, CopySegmentFinished, 1)]);
    let found = findings(&metadata, &whole(&[(1, 0), (2, 10)]), &[], &metadata);
    assert_eq!(short(&found), [(2, Difference::Unnamed, true)]);
    assert_eq!(found[0].segment, Some((Uuid::from_u128(2), 10)));
    assert_eq!(found[0].objects.len(), 5);
    assert_eq!(found[0].size(), 5 * LOG_BYTES);
    // Of a partition that the metadata does not know at all, and of one that was deleted.
    let mut comparison = TierComparison::new();
    comparison.compare(&orders(), &whole(&[(2, 10)]), None);
    let found = comparison.findings(|_| None, ABANDONED_BEFORE);
    assert_eq!(short(&found), [(2, Difference::Unnamed, true)]);
}

#[test]
fn an_object_of_another_name_is_found() {
    let metadata = cache(&[(1, 0, CopySegmentFinished, 1)]);
    let mut listing = whole(&[(1, 0)]);
    listing.objects.push(named("notes.txt", 7));
    let found = findings(&metadata, &listing, &[], &metadata);
    assert_eq!(short(&found), [(0, Difference::Stranger, true)]);
    assert_eq!(found[0].size(), 7);
    assert!(found[0].objects[0].key.as_ref().ends_with("/notes.txt"));
}

#[test]
fn a_finished_segment_must_have_its_objects_and_its_length() {
    let metadata = cache(&[(1, 0, CopySegmentFinished, 1)]);
    for suffix in SUFFIXES {
        let listing = without(whole(&[(1, 0)]), suffix);
        let suffixes = vec![suffix];
        let expected = Difference::MissingObjects { suffixes };
        assert_eq!(at_rest(&metadata, &listing), [(1, expected, true)]);
    }
    let nothing = at_rest(&metadata, &Listing::default());
    let suffixes = SUFFIXES.to_vec();
    let expected = Difference::MissingObjects { suffixes };
    assert_eq!(nothing, [(1, expected, true)]);

    let mut listing = without(whole(&[(1, 0)]), ".log");
    listing.objects.push(object(1, 0, ".log", 1000));
    let expected = Difference::OtherSize {
        named: LOG_BYTES,
        listed: 1000,
    };
    assert_eq!(at_rest(&metadata, &listing), [(1, expected, true)]);
}

#[test]
fn a_copy_is_in_progress_or_abandoned_by_its_age() {
    let metadata = cache(&[
        (1, 0, CopySegmentStarted, 99),
        (2, 10, CopySegmentStarted, 100),
        (3, 20, CopySegmentStarted, 99),
        (4, 30, CopySegmentStarted, 100),
    ]);
    let listing = without(whole(&[(1, 0), (2, 10)]), ".log");
    let abandoned = Difference::AbandonedCopy { since_ms: 99 };
    let in_progress = Difference::CopyInProgress { since_ms: 100 };
    // One that left nothing costs nothing, and one that has not written yet is no difference.
    let expected = [
        (1, abandoned.clone(), true),
        (2, in_progress, false),
        (3, abandoned, false),
    ];
    assert_eq!(at_rest(&metadata, &listing), expected);
}

#[test]
fn a_deletion_is_told_while_it_leaves_objects() {
    let metadata = cache(&[
        (1, 0, DeleteSegmentStarted, 5),
        (2, 10, DeleteSegmentStarted, 6),
    ]);
    let listing = without(whole(&[(1, 0)]), ".log");
    let expected = Difference::BeingDeleted { since_ms: 5 };
    assert_eq!(at_rest(&metadata, &listing), [(1, expected, false)]);
}

#[test]
fn what_goes_on_meanwhile_is_no_difference() {
    let listing = whole(&[(1, 0), (2, 10), (4, 30)]);
    let before = cache(&[
        (2, 10, CopySegmentFinished, 200),
        (3, 20, CopySegmentFinished, 200),
        (5, 40, CopySegmentStarted, 200),
    ]);
    // 1 was copied after the first look, 2 is unchanged, 3 was deleted before the listing, 4 was
    // copied after the first look and deleted after the listing, 5 was finished after it.
    let after = cache(&[
        (1, 0, CopySegmentFinished, 300),
        (2, 10, CopySegmentFinished, 200),
        (5, 40, CopySegmentFinished, 300),
    ]);
    let events =
        [3, 4].map(|id| MetadataEvent::UpdateSegment(update(id, 300, DeleteSegmentFinished)));
    assert_eq!(findings(&before, &listing, &events, &after), []);
    // Without the event it would have been there before any metadata named it.
    let found = findings(&before, &listing, &events[..1], &after);
    assert_eq!(short(&found), [(4, Difference::Unnamed, true)]);
}

#[test]
fn a_partition_that_was_deleted_meanwhile_leaves_no_difference() {
    let nothing = cache(&[]);
    let delete = MetadataEvent::PartitionDelete(RemotePartitionDeleteMetadata {
        topic_id_partition: orders(),
        state: RemotePartitionDeleteState::DeletePartitionFinished,
        event_timestamp_ms: 1,
        broker_id: 1,
    });
    assert_eq!(
        findings(&nothing, &whole(&[(1, 0)]), &[delete], &nothing),
        []
    );
}

#[test]
fn a_segment_of_another_start_offset_is_not_the_one_that_is_named() {
    let metadata = cache(&[(1, 0, CopySegmentFinished, 1)]);
    let found = at_rest(&metadata, &whole(&[(1, 1)]));
    let kinds: Vec<_> = found
        .iter()
        .map(|(id, difference, _)| (*id, difference))
        .collect();
    let suffixes = SUFFIXES.to_vec();
    let missing = Difference::MissingObjects { suffixes };
    assert_eq!(kinds, [(1, &Difference::Unnamed), (1, &missing)]);
}
