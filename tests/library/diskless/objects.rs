//! WAL objects: what is refused, and what a run's batches are checked for.

use krabka_remote_storage::diskless::{
    WalObjectBuilder, WalObjectEntry, WalObjectError, parse_wal_object,
};
use proptest::prelude::*;

use super::samples::{OBJECT, TOPIC_ID, unhex};
use krabka_remote_storage::testing::batches::BatchSpec;

/// Where the footer of the golden object begins.
const FOOTER: usize = 13;

fn manifest_error(object: &[u8]) -> String {
    match parse_wal_object(object) {
        Err(error @ WalObjectError::BadManifest { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// The golden object with these bytes at a place.
fn changed(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut object = unhex(OBJECT);
    object[at..at + bytes.len()].copy_from_slice(bytes);
    object
}

#[test]
fn what_is_too_short_for_any_object_is_told_apart() {
    for len in 0..14 {
        let object = &unhex(OBJECT)[..len];
        assert_eq!(
            parse_wal_object(object),
            Err(WalObjectError::TooShort { len })
        );
    }
}

#[test]
fn magic_and_version_are_compared_at_both_ends() {
    let end = unhex(OBJECT).len() - 1;
    for (at, at_end) in [(0, false), (3, false), (end, true), (end - 3, true)] {
        assert_eq!(
            parse_wal_object(&changed(at, b"x")),
            Err(WalObjectError::BadMagic { at_end })
        );
    }
    // A cut object has no magic at its end, whatever the cut.
    let whole = unhex(OBJECT);
    for len in 14..whole.len() {
        assert_eq!(
            parse_wal_object(&whole[..len]),
            Err(WalObjectError::BadMagic { at_end: true })
        );
    }
    for version in [0, 2, 0x0100, u16::MAX] {
        assert_eq!(
            parse_wal_object(&changed(4, &version.to_le_bytes())),
            Err(WalObjectError::BadVersion(version))
        );
    }
}

#[test]
fn a_footer_that_does_not_fit_is_refused() {
    let at = unhex(OBJECT).len() - 8;
    for length in [1_u32, 47, 49, 95] {
        let error = manifest_error(&changed(at, &length.to_le_bytes()));
        assert!(error.contains("no whole number"), "{length}: {error}");
    }
    for length in [144_u32, u32::MAX, u32::MAX / 48 * 48] {
        let error = manifest_error(&changed(at, &length.to_le_bytes()));
        assert!(
            error.contains("reaches into the header"),
            "{length}: {error}"
        );
    }
    // Into the header by one byte: a footer of 48 where 47 are between header and trailer.
    let mut short = unhex(OBJECT)[..6].to_vec();
    short.extend([0; 47]);
    short.extend(48_u32.to_le_bytes());
    short.extend(b"CKWL");
    assert!(manifest_error(&short).contains("reaches into the header"));
}

#[test]
fn runs_that_cannot_be_are_refused_with_their_number() {
    let (first, second) = (FOOTER, FOOTER + 48);
    for (says, object) in [
        (
            "run 0: it begins inside the header",
            changed(first + 36, &[5]),
        ),
        ("run 1: it ends beyond the runs", changed(second + 44, &[4])),
        (
            "run 1: it ends beyond the runs",
            changed(second + 36, &u64::MAX.to_le_bytes()),
        ),
        (
            "run 1: it overlaps the run before it, or is out of order",
            changed(second + 36, &[9]),
        ),
        (
            "run 0: it ends beyond the runs",
            changed(first + 44, &u32::MAX.to_le_bytes()),
        ),
        (
            "run 0: its last offset is below its first",
            changed(first + 28, &[9]),
        ),
        (
            "run 0: its first offset is negative",
            changed(first + 20, &(-1_i64).to_le_bytes()),
        ),
        (
            "run 1: its partition is negative",
            changed(second + 16, &(-1_i32).to_le_bytes()),
        ),
        ("run 1: it has no bytes", changed(second + 44, &[0])),
    ] {
        let error = manifest_error(&object);
        assert!(error.contains(says), "{says}: {error}");
    }
}

#[test]
fn a_run_that_no_object_can_hold_is_not_added() {
    let mut builder = WalObjectBuilder::new();
    builder.append_run(TOPIC_ID, 3, 10, 11, b"abcd").unwrap();
    for (reason, partition, first, last, run) in [
        ("its partition is negative", -1, 0, 0, &b"x"[..]),
        ("its first offset is negative", 0, -1, 0, b"x"),
        ("its last offset is below its first", 0, 5, 4, b"x"),
        ("it has no bytes", 0, 0, 0, b""),
    ] {
        let error = WalObjectError::InvalidRun { partition, reason };
        let result = builder.append_run(TOPIC_ID, partition, first, last, run);
        assert_eq!(result, Err(error.clone()));
        let finished = builder
            .clone()
            .finish_with_run(TOPIC_ID, partition, first, last, run);
        assert_eq!(finished, Err(error));
    }
    builder.append_run(TOPIC_ID, 4, 0, 0, b"xyz").unwrap();
    assert_eq!(builder.finish(), unhex(OBJECT));
}

fn run(first: i64, last: i64, batches: &[Vec<u8>]) -> (WalObjectEntry, Vec<u8>) {
    let bytes = batches.concat();
    let mut builder = WalObjectBuilder::new();
    let entry = builder
        .append_run(TOPIC_ID, 0, first, last, &bytes)
        .unwrap();
    (entry, bytes)
}

#[test]
fn a_runs_batches_are_whole_in_order_and_from_its_first_offset_to_its_last() {
    let batch = |base, records| BatchSpec::new(base, records, 0).timestamp(base * 2).make();
    let (entry, bytes) = run(7, 20, &[batch(7, 3), batch(10, 1), batch(15, 6)]);
    let summary = entry.check_run(&bytes).unwrap();
    assert_eq!((summary.batches, summary.max_timestamp_ms), (3, 30));
    assert_eq!(entry.to_index_entry(30).max_timestamp_ms, 30);

    let mut flipped = batch(10, 1);
    *flipped.last_mut().unwrap() ^= 1;
    let cut = batch(10, 1)[..60].to_vec();
    for (says, first, last, batches) in [
        ("has checksum", 7, 10, vec![batch(7, 3), flipped]),
        (
            "bytes at the end of the run are no whole batch",
            7,
            10,
            vec![batch(7, 3), cut],
        ),
        ("begins at offset 7, not at 6", 6, 9, vec![batch(7, 3)]),
        ("begins at offset 7, not at 8", 8, 9, vec![batch(7, 3)]),
        (
            "begins at offset 9, not at 10 or above",
            7,
            9,
            vec![batch(7, 3), batch(9, 1)],
        ),
        (
            "end before offset 10, and the run at 10",
            7,
            10,
            vec![batch(7, 3)],
        ),
        (
            "end before offset 10, and the run at 8",
            7,
            8,
            vec![batch(7, 3)],
        ),
        // A message set of magic 1.
        (
            "magic",
            5,
            5,
            vec![unhex(
                "0000000000000005000000178a65e96d010000000000000003e8ffffffff0000000161",
            )],
        ),
    ] {
        let (entry, bytes) = run(first, last, &batches);
        let error = entry.check_run(&bytes).unwrap_err().to_string();
        assert!(error.contains(says), "{says}: {error}");
    }
    assert!(entry.check_run(&[]).is_err(), "no batch at all");
}

#[test]
fn a_run_is_found_in_its_own_object_only() {
    let object = unhex(OBJECT);
    let runs = parse_wal_object(&object).unwrap();
    assert_eq!(runs[1].bytes(), 10..13);
    assert_eq!(runs[1].run_of(&object[..12]), None);
    let far = WalObjectEntry {
        byte_start: u64::MAX,
        ..runs[0]
    };
    assert_eq!(far.run_of(&object), None);
}

proptest! {
    #[test]
    fn what_is_built_is_parsed_and_damage_never_panics(
        runs in prop::collection::vec((0..5_i32, 0..1000_i64, 0..50_i64, prop::collection::vec(any::<u8>(), 1..20)), 0..8),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut builder = WalObjectBuilder::new();
        let mut expected = Vec::new();
        for (partition, first, more, bytes) in &runs {
            let entry = builder.append_run(TOPIC_ID, *partition, *first, first + more, bytes).unwrap();
            expected.push(entry);
        }
        let object = builder.finish();
        let parsed = parse_wal_object(&object).unwrap();
        prop_assert_eq!(&parsed, &expected);
        for (entry, (_, _, _, bytes)) in parsed.iter().zip(&runs) {
            prop_assert_eq!(entry.run_of(&object), Some(&bytes[..]));
            let _ = entry.check_run(bytes);
        }
        let mut damaged = object.to_vec();
        for (at, byte) in edits {
            let at = at.index(damaged.len());
            damaged[at] = byte;
        }
        if let Ok(entries) = parse_wal_object(&damaged) {
            let mut end = 6;
            for entry in entries {
                prop_assert!(entry.byte_start >= end && entry.byte_len > 0);
                prop_assert!(entry.partition >= 0 && entry.first_offset >= 0);
                prop_assert!(entry.last_offset >= entry.first_offset);
                end = entry.bytes().end;
                prop_assert!(entry.run_of(&damaged).is_some());
            }
        }
    }
}
