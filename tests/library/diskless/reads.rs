//! Lookups, ranged reads, and the batches that answer them.

use krabka_remote_storage::diskless::{WalCaptureProjection, WalPartition, WalRead, whole_batches};

use super::samples::{TOPIC_ID, publish, raise_floor, range, unhex};
use krabka_remote_storage::testing::batches::BatchSpec;

/// Offsets 10 to 14 and 20 to 29 in object a, 30 to 39 in object b; nothing between 15 and 19.
fn projection() -> WalCaptureProjection {
    let mut projection = WalCaptureProjection::new();
    publish(&mut projection, "a", range(10, 14, 6, 106));
    publish(&mut projection, "a", range(20, 29, 106, 206));
    publish(&mut projection, "b", range(30, 39, 206, 306));
    projection
}

fn partition(projection: &WalCaptureProjection) -> &WalPartition {
    projection.partition(TOPIC_ID, 0).unwrap()
}

fn first_of(projection: &WalCaptureProjection, offset: i64) -> Option<i64> {
    let range = projection.lookup(TOPIC_ID, 0, offset)?;
    Some(range.entry.first_offset)
}

#[test]
fn an_offset_is_answered_by_its_range_or_the_first_after_a_hole() {
    let mut projection = projection();
    for (offset, first) in [
        (i64::MIN, None),
        (-1, None),
        (0, Some(10)),
        (10, Some(10)),
        (14, Some(10)),
        (15, Some(20)),
        (19, Some(20)),
        (29, Some(20)),
        (30, Some(30)),
        (39, Some(30)),
        (40, None),
        (i64::MAX, None),
    ] {
        assert_eq!(first_of(&projection, offset), first, "offset {offset}");
    }
    raise_floor(&mut projection, 0, 12);
    for (offset, first) in [(0, None), (11, None), (12, Some(10)), (15, Some(20))] {
        assert_eq!(first_of(&projection, offset), first, "offset {offset}");
    }
    assert_eq!(projection.lookup(TOPIC_ID, 1, 12), None);
}

#[test]
fn frontier_and_earliest_offset_follow_ranges_and_floor() {
    let mut projection = projection();
    let ends = |projection: &WalCaptureProjection| {
        let partition = partition(projection);
        (partition.earliest_offset(), partition.frontier())
    };
    assert_eq!(ends(&projection), (10, Some(40)));
    raise_floor(&mut projection, 0, 5);
    assert_eq!(ends(&projection), (10, Some(40)));
    raise_floor(&mut projection, 0, 25);
    assert_eq!(ends(&projection), (25, Some(40)));
    raise_floor(&mut projection, 1, 25);
    let only_floor = projection.partition(TOPIC_ID, 1).unwrap();
    assert_eq!(
        (only_floor.earliest_offset(), only_floor.frontier()),
        (25, None)
    );
    assert_eq!(only_floor.lookup(25), None);
}

#[test]
fn a_read_goes_on_while_object_bytes_and_offsets_do() {
    let mut projection = WalCaptureProjection::new();
    for (object, entry) in [
        ("a", range(0, 4, 6, 106)),
        ("a", range(5, 9, 106, 206)),
        ("a", range(10, 14, 206, 306)),
        // A hole in the bytes, a hole in the offsets, another object.
        ("a", range(15, 19, 310, 400)),
        ("a", range(21, 24, 400, 500)),
        ("b", range(25, 29, 500, 600)),
    ] {
        publish(&mut projection, object, entry);
    }
    let read = |offset, max_bytes| {
        let WalRead {
            object_key,
            bytes,
            first_offset,
            last_offset,
        } = partition(&projection).read(offset, max_bytes)?;
        Some((object_key.to_string(), bytes, first_offset, last_offset))
    };
    let found = |key: &str, bytes, first, last| Some((key.to_owned(), bytes, first, last));
    // The first range is there whatever its size.
    assert_eq!(read(0, 0), found("a", 6..106, 0, 4));
    assert_eq!(read(2, 199), found("a", 6..106, 0, 4));
    assert_eq!(read(2, 200), found("a", 6..206, 0, 9));
    assert_eq!(read(2, 300), found("a", 6..306, 0, 14));
    assert_eq!(read(2, u64::MAX), found("a", 6..306, 0, 14));
    assert_eq!(read(7, u64::MAX), found("a", 106..306, 5, 14));
    assert_eq!(read(15, u64::MAX), found("a", 310..400, 15, 19));
    assert_eq!(read(20, u64::MAX), found("a", 400..500, 21, 24));
    assert_eq!(read(25, u64::MAX), found("b", 500..600, 25, 29));
    assert_eq!(read(30, u64::MAX), None);
}

#[test]
fn whole_batches_are_handed_on_and_the_first_one_in_any_case() {
    let batches: Vec<Vec<u8>> = [(0, 3), (3, 1), (8, 2)]
        .into_iter()
        .map(|(base, records)| BatchSpec::new(base, records, 100).make())
        .collect();
    let sizes: Vec<usize> = batches.iter().map(Vec::len).collect();
    let range = batches.concat();
    let cut = |offset, max_bytes| whole_batches(&range, offset, max_bytes).unwrap();
    assert_eq!(cut(0, usize::MAX), range);
    assert_eq!(cut(0, 0), batches[0]);
    assert_eq!(cut(2, sizes[0] + sizes[1] - 1), batches[0]);
    assert_eq!(cut(2, sizes[0] + sizes[1]), batches[..2].concat());
    assert_eq!(cut(3, usize::MAX), batches[1..].concat());
    assert_eq!(cut(4, 1), batches[2], "the hole before it is skipped");
    assert_eq!(cut(9, 1), batches[2]);
    assert_eq!(cut(10, usize::MAX), b"");
    assert_eq!(whole_batches(b"", 0, 1).unwrap(), b"");
}

#[test]
fn bytes_that_are_no_whole_batches_are_refused_before_they_are_handed_on() {
    let batch = BatchSpec::new(0, 1, 100).make();
    let cut = [&batch[..], &batch[..60]].concat();
    // What comes behind the end of the answer does not matter.
    let cut_behind = [&batch[..], &batch[..], &batch[..60]].concat();
    assert_eq!(whole_batches(&cut_behind, 0, 0).unwrap(), batch);
    let error = whole_batches(&cut, 5, 0).unwrap_err().to_string();
    assert!(error.contains("60 bytes at the end"), "{error}");
    assert!(whole_batches(&[0; 30], 0, 0).is_err());
    let magic_9 = {
        let mut bytes =
            unhex("0000000000000005000000178a65e96d010000000000000003e8ffffffff0000000161");
        bytes[16] = 9;
        bytes
    };
    assert!(whole_batches(&magic_9, 0, 0).is_err());
}
