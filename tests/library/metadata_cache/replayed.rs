//! Events of a log that come again over a newer state.

use krabka_remote_storage::topic::MetadataEvent;
use krabka_remote_storage::{RemotePartitionDeleteMetadata, RemotePartitionDeleteState};

use super::*;

fn add(id: u128, start: i64, end: i64) -> MetadataEvent {
    MetadataEvent::AddSegment(started(id, start, end, &[(0, start)]))
}

fn step(id: u128, state: RemoteLogSegmentState) -> MetadataEvent {
    MetadataEvent::UpdateSegment(update(id, state))
}

/// A segment's life from the first event to the last.
fn life(id: u128, start: i64, end: i64) -> Vec<MetadataEvent> {
    vec![
        add(id, start, end),
        step(id, RemoteLogSegmentState::CopySegmentFinished),
        step(id, RemoteLogSegmentState::DeleteSegmentStarted),
        step(id, RemoteLogSegmentState::DeleteSegmentFinished),
    ]
}

fn replay(cache: &mut RemoteLogMetadataCache, from: usize, history: &[MetadataEvent]) {
    for (offset, event) in history.iter().enumerate().skip(from) {
        let _ = cache.replay(i64::try_from(offset).unwrap(), event);
    }
}

fn replayed(history: &[MetadataEvent]) -> RemoteLogMetadataCache {
    let mut cache = RemoteLogMetadataCache::new(tp());
    replay(&mut cache, 0, history);
    cache
}

#[test]
fn a_replay_over_a_snapshot_does_not_bring_a_displaced_segment_back() {
    let mut history = life(1, 0, 50);
    history.splice(2..2, life(2, 0, 100).into_iter().take(2));
    let end = replayed(&history);
    assert_eq!(found(&end, 0, 10), Some(2));

    let mut again = RemoteLogMetadataCache::import(end.export());
    replay(&mut again, 0, &history);
    assert_eq!(found(&again, 0, 10), Some(2));
    assert_eq!(again.export(), end.export());
    assert_eq!(again.applied_offset(), Some(5));
}

#[test]
fn an_event_behind_what_is_known_is_applied_and_one_before_is_not() {
    let mut cache = RemoteLogMetadataCache::new(tp());
    cache.replay(7, &add(1, 0, 9)).unwrap();
    cache.replay(7, &add(2, 10, 19)).unwrap();
    cache.replay(3, &add(3, 20, 29)).unwrap();
    assert_eq!(listed(&cache), [1]);
    // Offsets have gaps.
    cache.replay(20, &add(2, 10, 19)).unwrap();
    assert_eq!(listed(&cache), [1, 2]);
    // What is refused was looked at all the same.
    cache
        .replay(21, &step(9, RemoteLogSegmentState::CopySegmentFinished))
        .unwrap_err();
    assert_eq!(cache.applied_offset(), Some(21));
}

/// Visits every history that merges these lives, each beginning of one included.
fn histories(
    lives: &[&[MetadataEvent]],
    history: &mut Vec<MetadataEvent>,
    visit: &mut impl FnMut(&[MetadataEvent]),
) {
    visit(history);
    for at in 0..lives.len() {
        let [next, rest @ ..] = lives[at] else {
            continue;
        };
        let mut shorter = lives.to_vec();
        shorter[at] = rest;
        history.push(next.clone());
        histories(&shorter, history, visit);
        history.pop();
    }
}

#[test]
fn every_suffix_of_every_history_replayed_over_its_end_changes_nothing() {
    let state = RemotePartitionDeleteState::DeletePartitionMarked;
    let marked = RemotePartitionDeleteMetadata::new(tp(), state, 1, 1);
    let lives = [
        life(1, 0, 50),
        life(2, 0, 100)[..2].to_vec(),
        life(3, 51, 120)[..2].to_vec(),
        vec![MetadataEvent::PartitionDelete(marked)],
    ];
    let lives: Vec<_> = lives.iter().map(Vec::as_slice).collect();
    let mut visited = 0;
    histories(&lives, &mut Vec::new(), &mut |history| {
        visited += 1;
        let end = replayed(history);
        let dump = end.export();
        for from in 0..history.len() {
            let mut again = RemoteLogMetadataCache::import(dump.clone());
            replay(&mut again, from, history);
            assert_eq!(again.export(), dump, "from event {from} of {history:?}");
        }
    });
    assert!(visited > 10_000, "{visited}");
}
