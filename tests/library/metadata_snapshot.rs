//! The snapshot file: golden values, bad input, and what a round trip keeps.

use bytes::BufMut as _;
use krabka_remote_storage::metadata::RemoteLogMetadataCache;
use krabka_remote_storage::testing::segments::{SegmentSpec, orders};
use krabka_remote_storage::topic::{
    CodecError, MetadataEvent, SNAPSHOT_FORMAT_VERSION, Snapshot, SnapshotCaches, SnapshotError,
};
use krabka_remote_storage::{
    PartitionDump, RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState, RemotePartitionDeleteState, RlmmCacheDump, TopicIdPartition,
};
use proptest::prelude::*;
use uuid::Uuid;

use crate::support::metadata_topic::bytes as hex;

use RemoteLogSegmentState::{CopySegmentFinished, DeleteSegmentFinished, DeleteSegmentStarted};

const ADD: &str = "010000076f7264657273000000000000000000000000000000ca0000000700000000000000000000000000000000fe00000000000000000000000000000000630000002a0000000000000064000000000000007b03000000000000000000000000000000000100000000000000320000001000000100";
const DELETE: &str =
    "010200076f7264657273000000000000000000000000000000ca00000007000000000000000000000000000000";

fn tp() -> TopicIdPartition {
    orders(0xca, 7)
}

fn segment(id: u128, offsets: (i64, i64), epochs: &[(i32, i64)]) -> RemoteLogSegmentMetadata {
    let spec = SegmentSpec::new(id, offsets.0..=offsets.1).of(&tp());
    let spec = spec.size(4096).at(100, 123).broker(42);
    spec.epochs(epochs).make()
}

/// The snapshot of the golden with two entries.
fn golden() -> Snapshot {
    let started = segment(0xfe, (0, 99), &[(0, 0), (1, 50)]);
    let id = started.remote_log_segment_id().clone();
    let finish = RemoteLogSegmentMetadataUpdate::new(id, 123, None, CopySegmentFinished, 42);
    let finished = started.with_update(&finish).unwrap();
    let marked = RemotePartitionDeleteState::DeletePartitionMarked;
    Snapshot {
        topic_id: Some(Uuid::from_u128(0x11)),
        committed_offsets: vec![5, -1],
        dump: RlmmCacheDump {
            partitions: vec![PartitionDump::new(tp(), vec![finished], Some(marked))],
        },
    }
}

/// A file with a right checksum.
fn sealed(content: &[u8]) -> Vec<u8> {
    let mut bytes = content.to_vec();
    bytes.put_u32(crc32c::crc32c(content));
    bytes
}

fn head(count: i32, offsets: &[i64]) -> Vec<u8> {
    let mut bytes = vec![0, 1];
    bytes.extend_from_slice(&[0; 16]);
    bytes.put_i32(count);
    for offset in offsets {
        bytes.put_i64(*offset);
    }
    bytes
}

fn with_entries(entries: &[&[u8]]) -> Vec<u8> {
    let mut bytes = head(1, &[5]);
    bytes.push(u8::try_from(entries.len()).unwrap());
    for entry in entries {
        bytes.push(u8::try_from(entry.len()).unwrap());
        bytes.extend_from_slice(entry);
    }
    sealed(&bytes)
}

#[test]
fn the_golden_snapshots_are_written_and_read() {
    let empty = "00010000000000000000000000000000000000000000001b165751";
    assert_eq!(Snapshot::default().encode(), hex(empty));
    assert_eq!(Snapshot::decode(&hex(empty)).unwrap(), Snapshot::default());

    let offsets =
        "000100000000000000000000000000000011000000020000000000000005ffffffffffffffff00c754bc98";
    let snapshot = Snapshot {
        dump: RlmmCacheDump::default(),
        ..golden()
    };
    assert_eq!(snapshot.encode(), hex(offsets));
    assert_eq!(Snapshot::decode(&hex(offsets)).unwrap(), snapshot);

    let whole = format!(
        "000100000000000000000000000000000011000000020000000000000005ffffffffffffffff0276{ADD}2d{DELETE}a3d461ce"
    );
    // The partition's events are in metadata partition 1, of which nothing was applied.
    assert_eq!(hex(&whole).len(), 208);
    assert_eq!(golden().encode(), hex(&whole));
    assert_eq!(Snapshot::decode(&hex(&whole)).unwrap(), golden());
    assert_eq!(SNAPSHOT_FORMAT_VERSION, 1);
}

#[test]
fn what_is_no_snapshot_says_why() {
    let malformed = |bytes: &[u8]| match Snapshot::decode(bytes).unwrap_err() {
        SnapshotError::Malformed(error) => error,
        error => panic!("{error:?}"),
    };
    assert!(matches!(malformed(b""), CodecError::UnexpectedEof(0)));
    assert!(matches!(malformed(&[0; 26]), CodecError::UnexpectedEof(26)));
    for version in [0, 2, u16::MAX] {
        let mut bytes = golden().encode();
        bytes[..2].copy_from_slice(&version.to_be_bytes());
        let error = Snapshot::decode(&bytes).unwrap_err();
        assert!(matches!(error, SnapshotError::UnsupportedVersion(found) if found == version));
    }
    let mut content = head(1, &[5]);
    content.extend_from_slice(&[0, 7, 7, 7]);
    let error = Snapshot::decode(&sealed(&content)).unwrap_err();
    assert!(
        matches!(error, SnapshotError::TrailingBytes(3)),
        "{error:?}"
    );

    let update = RemoteLogSegmentMetadataUpdate::new(
        RemoteLogSegmentId::new(tp(), Uuid::from_u128(1)),
        1,
        None,
        CopySegmentFinished,
        1,
    );
    let update = MetadataEvent::UpdateSegment(update).encode();
    assert!(matches!(
        malformed(&with_entries(&[&update])),
        CodecError::Domain(_)
    ));
    malformed(&with_entries(&[b"no event"]));
    malformed(&with_entries(&[b""]));
    malformed(&with_entries(&[&[0]]));
    // Counts and lengths that nothing stands behind.
    malformed(&sealed(&[&head(i32::MAX, &[5])[..], &[0]].concat()));
    malformed(&sealed(&[&head(-1, &[5])[..], &[0]].concat()));
    malformed(&sealed(
        &[&head(1, &[5])[..], &[0xff, 0xff, 0xff, 0xff, 0x0f]].concat(),
    ));
    malformed(&sealed(
        &[&head(1, &[5])[..], &[1, 0xff, 0xff, 0xff, 0xff, 0x0f]].concat(),
    ));
    // Offsets after which nothing can be read on.
    for offset in [-2, i64::MIN, i64::MAX] {
        malformed(&sealed(&[&head(1, &[offset])[..], &[0]].concat()));
    }
}

#[test]
fn writers_of_one_file_do_not_disturb_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("snapshot");
    let snapshots: Vec<_> = (0..4)
        .map(|number| Snapshot {
            committed_offsets: vec![number; 20_000 * usize::try_from(number).unwrap() + 1],
            ..golden()
        })
        .collect();
    std::thread::scope(|scope| {
        for snapshot in &snapshots {
            scope.spawn(|| {
                for _ in 0..25 {
                    snapshot.write_atomic(&path).unwrap();
                    let read = Snapshot::load(&path).unwrap().unwrap();
                    assert!(snapshots.contains(&read));
                }
            });
        }
    });
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn every_cut_and_every_changed_byte_is_an_error() {
    let bytes = golden().encode();
    for length in 0..bytes.len() {
        Snapshot::decode(&bytes[..length]).unwrap_err();
    }
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            Snapshot::decode(&changed).unwrap_err();
        }
    }
}

/// A cache after random events, at consecutive offsets.
fn cache() -> impl Strategy<Value = RemoteLogMetadataCache> {
    let event = (0..6_u128, 0..8_i64, 1..40_i64, 0..3_i32, 0..5_u8);
    prop::collection::vec(event, 0..60).prop_map(|events| {
        let mut cache = RemoteLogMetadataCache::new(tp());
        for (offset, (id, start, length, epoch, kind)) in (0..).zip(events) {
            let (start, end) = (start * 10, start * 10 + length);
            let segment = segment(id, (start, end), &[(epoch, start), (epoch + 1, start + 4)]);
            let id = segment.remote_log_segment_id().clone();
            let state = [
                CopySegmentFinished,
                DeleteSegmentStarted,
                DeleteSegmentFinished,
            ];
            let event = match state.get(usize::from(kind)) {
                Some(state) => MetadataEvent::UpdateSegment(RemoteLogSegmentMetadataUpdate::new(
                    id, offset, None, *state, 1,
                )),
                None => MetadataEvent::AddSegment(segment),
            };
            let _ = cache.replay(offset, &event);
        }
        cache
    })
}

proptest! {
    #[test]
    fn a_cache_that_was_written_and_read_answers_as_before(
        cache in cache(),
        behind in 0..3_i64,
    ) {
        let applied = cache.applied_offset().unwrap_or(-1);
        let snapshot = Snapshot {
            topic_id: None,
            committed_offsets: vec![(applied - behind).max(-1)],
            dump: RlmmCacheDump { partitions: vec![cache.export()] },
        };
        let read = Snapshot::decode(&snapshot.encode()).unwrap();
        prop_assert_eq!(&read.committed_offsets, &snapshot.committed_offsets);
        let mut expected = cache.export();
        let dump = read.dump.partitions.into_iter().next();
        if dump.is_none() {
            // Of a partition about which nothing is known nothing is written: its events, all of
            // them refused, can be read again.
            expected.applied_offset = None;
        }
        let new = || RemoteLogMetadataCache::new(tp());
        let again = dump.map_or_else(new, RemoteLogMetadataCache::import).export();
        prop_assert_eq!(again, expected);
    }

    #[test]
    fn both_decoders_take_the_same_bytes_for_the_same_caches(
        cache in cache(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let snapshot = Snapshot {
            topic_id: None,
            committed_offsets: vec![cache.applied_offset().unwrap_or(-1)],
            dump: RlmmCacheDump { partitions: vec![cache.export()] },
        };
        let mut content = snapshot.encode();
        content.truncate(content.len() - size_of::<u32>());
        for (at, byte) in changes {
            let at = at.index(content.len());
            content[at] = byte;
        }
        if let Some(cut) = cut {
            content.truncate(cut.index(content.len()));
        }
        let bytes = sealed(&content);
        match (Snapshot::decode(&bytes), SnapshotCaches::decode(&bytes)) {
            (Ok(read), Ok(caches)) => {
                prop_assert_eq!(&caches.committed_offsets, &read.committed_offsets);
                let imported = read.dump.partitions.into_iter().map(RemoteLogMetadataCache::import);
                let imported: Vec<_> = imported.map(|cache| cache.export()).collect();
                let made: Vec<_> = caches.caches.iter().map(RemoteLogMetadataCache::export).collect();
                prop_assert_eq!(made, imported);
            }
            (Err(one), Err(other)) => prop_assert_eq!(one.to_string(), other.to_string()),
            (one, other) => prop_assert!(false, "{one:?}, but {other:?}"),
        }
    }

    #[test]
    fn no_bytes_panic(content in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Snapshot::decode(&content);
        let _ = Snapshot::decode(&sealed(&[&[0, 1][..], &content].concat()));
        let _ = Snapshot::decode(&with_entries(&[&content[..content.len().min(100)]]));
    }
}
