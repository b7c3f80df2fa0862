//! Random histories, hostile ones included: every answer of the cache is the model's.

use krabka_remote_storage::dump::{EpochDump, PartitionDump};
use krabka_remote_storage::metadata::RemoteLogMetadataCache;
use krabka_remote_storage::{
    LeaderEpoch, RemoteLogSegmentMetadataUpdate, RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState, RemoteStorageError,
};
use proptest::prelude::*;
use proptest::sample::select;

use super::model::{Model, Outcome};
use super::*;

const EPOCHS: std::ops::Range<i32> = 0..4;

#[derive(Clone, Debug)]
enum Event {
    Add(RemoteLogSegmentMetadata),
    Update(RemoteLogSegmentMetadataUpdate),
    Delete(RemotePartitionDeleteState),
}

/// A row of a dump that nobody has checked.
fn row() -> impl Strategy<Value = RemoteLogSegmentMetadata> {
    (segment(), select(&RemoteLogSegmentState::ALL[..])).prop_map(|(segment, state)| {
        let details =
            RemoteLogSegmentDetails::new(1024, state, segment.segment_leader_epochs().clone());
        let (start, end) = (segment.start_offset(), segment.end_offset());
        let id = segment.remote_log_segment_id().clone();
        RemoteLogSegmentMetadata::new(id, start, end, 1_000, 1, 10, details).unwrap()
    })
}

fn epoch_dump() -> impl Strategy<Value = EpochDump> {
    let readable = (offset(), (0..7_u128).prop_map(Uuid::from_u128));
    let readable = prop::collection::vec(readable, 0..8);
    (EPOCHS, readable, prop::option::of(offset())).prop_map(|(epoch, readable, highest_offset)| {
        EpochDump {
            leader_epoch: LeaderEpoch(epoch),
            readable,
            highest_offset,
        }
    })
}

/// Mostly small offsets, so that segments overlap; now and then an edge.
fn offset() -> impl Strategy<Value = i64> {
    prop_oneof![
        20 => 0..30_i64,
        1 => select(vec![i64::MIN, i64::MIN + 1, -1, i64::MAX - 1, i64::MAX]),
    ]
}

fn segment() -> impl Strategy<Value = RemoteLogSegmentMetadata> {
    let epochs = prop_oneof![
        // As a broker writes it: ascending inside the segment.
        4 => (EPOCHS, prop::collection::vec(0..8_i64, 0..3)).prop_map(|(first, steps)| {
            let mut at = 0;
            let later = steps.into_iter().map(move |step| {
                at += step;
                Some(at)
            });
            (first..).zip(std::iter::once(None).chain(later)).collect::<Vec<_>>()
        }),
        // As nobody should.
        1 => prop::collection::vec((EPOCHS, offset().prop_map(Some)), 1..4),
    ];
    let shape = (0..6_u128, offset(), offset(), epochs);
    (
        shape,
        any::<bool>(),
        prop_oneof![9 => Just(0), 1 => 1..4_u8],
    )
        .prop_map(|((id, a, b, epochs), txn_index_empty, state)| {
            let (a, b) = (a.max(0), b.max(0));
            let (start, end) = (a.min(b), a.max(b));
            let epochs = epochs
                .into_iter()
                .map(|(epoch, at)| match at {
                    None => (epoch, start),
                    Some(at) if (0..30).contains(&at) => (epoch, start.saturating_add(at)),
                    Some(edge) => (epoch, edge),
                })
                .collect::<Vec<_>>();
            let segment = started(id, start, end, &epochs).with_txn_index_empty(txn_index_empty);
            let state = RemoteLogSegmentState::ALL[usize::from(state)];
            if state == RemoteLogSegmentState::CopySegmentStarted {
                segment
            } else {
                // An add in a state in which no segment may enter.
                let details =
                    RemoteLogSegmentDetails::new(1, state, segment.segment_leader_epochs().clone());
                RemoteLogSegmentMetadata::new(segment_id(id), start, end, 1, 1, 1, details).unwrap()
            }
        })
}

fn event() -> impl Strategy<Value = Event> {
    let update = (
        0..6_u128,
        0..3_i64,
        prop::option::of(0..2_u8),
        select(&RemoteLogSegmentState::ALL[..]),
        1..3,
    );
    prop_oneof![
        8 => segment().prop_map(Event::Add),
        16 => update.prop_map(|(id, at, bytes, state, broker)| {
            let bytes = bytes.map(|byte| custom(&[byte]));
            let id = segment_id(id);
            Event::Update(RemoteLogSegmentMetadataUpdate::new(id, at, bytes, state, broker))
        }),
        1 => select(&RemotePartitionDeleteState::ALL[..]).prop_map(Event::Delete),
    ]
}

fn outcome(result: &Result<(), RemoteStorageError>) -> Outcome {
    match result {
        Ok(()) => Outcome::Done,
        Err(RemoteStorageError::InvalidAdd { .. }) => Outcome::InvalidAdd,
        Err(RemoteStorageError::SegmentNotFound(_)) => Outcome::NotFound,
        Err(RemoteStorageError::InvalidSegmentTransition { .. }) => Outcome::InvalidTransition,
        Err(RemoteStorageError::InvalidPartitionDeleteTransition { .. }) => Outcome::InvalidDelete,
        Err(error) => panic!("an error that no event should meet: {error}"),
    }
}

fn apply(cache: &mut RemoteLogMetadataCache, model: &mut Model, event: &Event, replay: bool) {
    let (result, expected) = match event {
        Event::Add(segment) => {
            let result = if replay {
                cache.replay_add_segment(segment)
            } else {
                cache.add_segment(segment)
            };
            (result, model.add(segment, replay))
        }
        Event::Update(update) => (cache.update_segment(update), model.update(update)),
        Event::Delete(state) => {
            let event = RemotePartitionDeleteMetadata::new(tp(), *state, 1, 1);
            let result = if replay {
                cache.replay_partition_delete(&event)
            } else {
                cache.put_partition_delete(&event)
            };
            (result, model.delete(*state, replay))
        }
    };
    assert_eq!(outcome(&result), expected, "{event:?}: {result:?}");
}

fn assert_same_answers(cache: &RemoteLogMetadataCache, model: &Model) {
    let owned = |segments: Vec<SegmentView<'_>>| -> Vec<_> {
        segments.iter().map(SegmentView::to_metadata).collect()
    };
    let edges = [i64::MIN, i64::MIN + 1, i64::MAX - 1, i64::MAX];
    for epoch in (EPOCHS.start..EPOCHS.end + 4).map(LeaderEpoch) {
        for offset in (-2..60).chain(edges) {
            let found = cache.find_segment(epoch, offset);
            let expected = model.find(epoch, offset);
            assert_eq!(
                found.map(|view| view.to_metadata()).as_ref(),
                expected,
                "{epoch}, {offset}"
            );
            let found = cache.find_segment_with_txn_index(epoch, offset);
            let expected = model.find_with_txn_index(epoch, offset);
            assert_eq!(found.map(|view| view.to_metadata()).as_ref(), expected);
        }
        assert_eq!(cache.highest_offset(epoch), model.highest(epoch));
        let listed = model.list_by_epoch(epoch);
        let size: i64 = listed
            .iter()
            .map(|s| i64::from(s.segment_size_in_bytes()))
            .sum();
        assert_eq!(cache.log_size(epoch), size);
        assert_eq!(owned(cache.list_segments_by_epoch(epoch)), listed);
    }
    let newest = cache.newest_segment().map(|view| view.to_metadata());
    assert_eq!(newest.as_ref(), model.newest());
    assert_eq!(owned(cache.list_segments()), model.list());
    assert_eq!(cache.delete_state(), model.deletion());
}

/// What holds of every cache, wherever it came from.
fn assert_consistent(cache: &RemoteLogMetadataCache) {
    let all = cache.list_segments();
    for epoch in EPOCHS.map(LeaderEpoch) {
        let of_epoch = all.iter().map(SegmentView::to_metadata);
        let of_epoch: Vec<_> = of_epoch
            .filter(|segment| segment.segment_leader_epochs().contains_key(&epoch))
            .collect();
        let listed = cache.list_segments_by_epoch(epoch);
        let listed: Vec<_> = listed.iter().map(SegmentView::to_metadata).collect();
        assert_eq!(listed, of_epoch);
        let sizes = of_epoch
            .iter()
            .map(|s| i64::from(s.segment_size_in_bytes()));
        assert_eq!(cache.log_size(epoch), sizes.sum::<i64>());
        for offset in (-2..60).chain([i64::MIN, i64::MAX - 1, i64::MAX]) {
            if let Some(found) = cache.find_segment(epoch, offset) {
                assert!((found.start_offset()..=found.end_offset()).contains(&offset));
                assert_eq!(found.state(), RemoteLogSegmentState::CopySegmentFinished);
                assert!(of_epoch.contains(&found.to_metadata()));
                assert!(cache.highest_offset(epoch) >= Some(offset));
            }
            cache.find_segment_with_txn_index(epoch, offset);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever two brokers write, in whatever order and however often.
    #[test]
    fn every_answer_is_the_models_after_every_event(
        events in prop::collection::vec((event(), any::<bool>()), 1..40),
    ) {
        let mut cache = RemoteLogMetadataCache::new(tp());
        let mut model = Model::default();
        for (event, replay) in &events {
            apply(&mut cache, &mut model, event, *replay);
            assert_same_answers(&cache, &model);
        }
    }

    /// A history that a broker would write, with each event repeated and shuffled a little.
    #[test]
    fn lives_of_many_segments_with_late_and_repeated_events(
        segments in prop::collection::vec(segment(), 1..30),
        order in prop::collection::vec((0..120_usize, 0..4_usize), 150),
    ) {
        let lives: Vec<Vec<Event>> = (0_u128..)
            .zip(segments)
            .map(|(id, shape)| {
                let epochs: Vec<_> = shape.segment_leader_epochs().iter().map(|(e, at)| (e.0, *at)).collect();
                let add = started(id, shape.start_offset(), shape.end_offset(), &epochs);
                let mut life = vec![Event::Add(add)];
                life.extend(RemoteLogSegmentState::ALL[1..].iter().map(|s| Event::Update(update(id, *s))));
                life
            })
            .collect();
        let mut cache = RemoteLogMetadataCache::new(tp());
        let mut model = Model::default();
        for (segment, step) in order {
            apply(&mut cache, &mut model, &lives[segment % lives.len()][step], true);
        }
        assert_same_answers(&cache, &model);
    }

    /// A dump keeps every answer, and goes on as the cache would.
    #[test]
    fn a_dump_keeps_every_answer(
        events in prop::collection::vec((event(), any::<bool>()), 1..60),
        more in prop::collection::vec((event(), any::<bool>()), 1..20),
    ) {
        let mut cache = RemoteLogMetadataCache::new(tp());
        let mut model = Model::default();
        for (event, replay) in &events {
            apply(&mut cache, &mut model, event, *replay);
        }
        let dump = cache.export();
        let mut imported = RemoteLogMetadataCache::import(dump.clone());
        prop_assert_eq!(&imported.export(), &dump);
        assert_same_answers(&imported, &model);
        for (event, replay) in &more {
            apply(&mut imported, &mut model, event, *replay);
        }
        assert_same_answers(&imported, &model);
    }
    /// A dump may say anything: what it makes is still a cache, and dumps of that keep it.
    #[test]
    fn whatever_a_dump_says_makes_a_cache_that_holds_together(
        segments in prop::collection::vec(row(), 0..12),
        delete_state in prop::option::of(select(&RemotePartitionDeleteState::ALL[..])),
        epochs in prop::collection::vec(epoch_dump(), 0..6),
        more in prop::collection::vec((event(), any::<bool>()), 0..20),
    ) {
        let mut dump = PartitionDump::new(tp(), segments, delete_state);
        // Of readable entries as an export writes them, too, some fit.
        let fitting = RemoteLogMetadataCache::import(dump.clone()).export().epochs;
        dump.epochs = fitting;
        dump.epochs.extend(epochs);
        let mut cache = RemoteLogMetadataCache::import(dump);
        assert_consistent(&cache);
        let again = cache.export();
        prop_assert_eq!(&RemoteLogMetadataCache::import(again.clone()).export(), &again);
        for (event, replay) in &more {
            let _ = match event {
                Event::Add(segment) if *replay => cache.replay_add_segment(segment),
                Event::Add(segment) => cache.add_segment(segment),
                Event::Update(update) => cache.update_segment(update),
                Event::Delete(state) => {
                    let event = RemotePartitionDeleteMetadata::new(tp(), *state, 1, 1);
                    cache.replay_partition_delete(&event)
                }
            };
            assert_consistent(&cache);
        }
    }
}
