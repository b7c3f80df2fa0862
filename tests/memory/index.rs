//! What the decoders of `index` allocate: nothing for a search, and never what a size only
//! declares.

use std::hint::black_box;

use krabka_remote_storage::index::{
    Batches, LeaderEpochCheckpoint, OffsetIndex, OffsetIndexEntry, ProducerSnapshot, TimeIndex,
    collect_aborted_txns, parse_offset_index, parse_time_index, parse_txn_index,
    position_for_relative_offset, relative_offset_floor_for_timestamp,
};

use crate::least;
use crate::support::alone::alone;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

#[test]
fn searches_allocate_nothing_and_declared_sizes_are_not_believed() {
    alone(|| {
        searching_an_index_allocates_nothing();
        walking_batches_and_records_in_place_allocates_nothing();
        declared_sizes_are_not_allocated();
    });
}

fn searching_an_index_allocates_nothing() {
    let offsets = offset_index(2 * MIB);
    let times: Vec<u8> = (1..=2 * MIB / 12)
        .flat_map(|entry| {
            let number = u32::try_from(entry).expect("small").to_be_bytes();
            [&[0; 4], &number[..], &number].concat()
        })
        .collect();
    let txns: Vec<u8> = [0; 34].repeat(100);
    let nothing = || {
        let index = OffsetIndex::new(7, &offsets);
        black_box(index.lookup(1_000_000));
        black_box(index.fetch_upper_bound_offset(4096, MIB));
        black_box(index.sanity_check().is_ok());
        let entries = parse_offset_index(&offsets).expect("index");
        black_box(position_for_relative_offset(entries, 1_000_000));

        let index = TimeIndex::new(7, &times);
        black_box(index.lookup(1_000_000));
        black_box(index.scan_start(1_000_000));
        let entries = parse_time_index(&times).expect("index");
        black_box(relative_offset_floor_for_timestamp(entries, 1_000_000));

        let entries = parse_txn_index(&txns).expect("index");
        black_box(collect_aborted_txns(entries, 5, 10).is_complete);
    };
    assert_eq!(least(nothing).count, 0);
}

fn walking_batches_and_records_in_place_allocates_nothing() {
    // Value "v", and one header "h" without value.
    let record = [0x14, 0, 0, 0, 0x01, 0x02, b'v', 0x02, 0x02, b'h', 0x01];
    let log = batch(0, 50, &record.repeat(50)).repeat(20);
    let nothing = || {
        let mut bytes = 0;
        for batch in Batches::new(&log) {
            let records = batch.expect("batch").records(0).expect("records");
            for record in &records {
                bytes += record.value.map_or(0, <[u8]>::len);
                bytes += record
                    .headers()
                    .map(|header| header.key.len())
                    .sum::<usize>();
            }
        }
        assert_eq!(bytes, 2000);
    };
    assert_eq!(least(nothing).count, 0);
}

fn declared_sizes_are_not_allocated() {
    // Each refusal allocates its error, and what else must stay below this.
    let expect = |what: &str, most: usize, refused: &dyn Fn() -> bool| {
        let bytes = least(|| assert!(refused(), "{what}")).total;
        assert!(bytes <= most, "{what}: {bytes} bytes");
    };

    let mut huge = batch(0, 1, &[0; 20]);
    huge[8..12].copy_from_slice(&i32::MAX.to_be_bytes());
    expect("a batch of 2 GiB", 0, &|| {
        Batches::new(&huge).next().is_none()
    });

    let refused = |batch: &[u8]| {
        let batch = Batches::new(batch).next().expect("one").expect("batch");
        batch.records(usize::MAX).is_err()
    };
    let many = batch(0, i32::MAX, &[0x0c, 0, 0, 0, 0x01, 0x01, 0]);
    expect("2^31 records", KIB, &|| refused(&many));
    let headers = batch(0, 1, &[0x14, 0, 0, 0, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f]);
    expect("2^31 headers", KIB, &|| refused(&headers));
    let value = batch(0, 1, &[0x14, 0, 0, 0, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0]);
    expect("a value of 2 GiB", KIB, &|| refused(&value));

    let snappy = batch(2, 1, &[0x80, 0x80, 0x80, 0x80, 0x04, 0x00, 0x61]);
    expect("a snappy block of 1 GiB", KIB, &|| refused(&snappy));
    // The format itself bounds a block: 4 MiB in and out, twice that out when blocks are linked.
    let lz4 = [
        0x04, 0x22, 0x4d, 0x18, 0x40, 0x70, 0xdf, 0xff, 0xff, 0x3f, 0,
    ];
    let lz4 = batch(3, 1, &lz4);
    expect("an lz4 block of 4 MiB", 13 * MIB, &|| refused(&lz4));

    let checkpoint = b"0\n2147483647\n0 0\n";
    expect("2^31 epochs", KIB, &|| {
        LeaderEpochCheckpoint::parse(checkpoint).is_err()
    });
    let count = i32::MAX.to_be_bytes();
    let crc = crc32c::crc32c(&count).to_be_bytes();
    let snapshot = [&[0, 1], &crc[..], &count].concat();
    expect("2^31 producers", KIB, &|| {
        ProducerSnapshot::parse(&snapshot).is_err()
    });
}

fn offset_index(length: usize) -> Vec<u8> {
    let entry = |number: usize| {
        let number = u32::try_from(number).expect("small");
        [(number * 10).to_be_bytes(), (number * 4096).to_be_bytes()].concat()
    };
    (0..length / size_of::<OffsetIndexEntry>())
        .flat_map(entry)
        .collect()
}

/// A batch of magic 2 with these records and a right checksum.
fn batch(attributes: i16, count: i32, blob: &[u8]) -> Vec<u8> {
    let checked = [
        &attributes.to_be_bytes()[..],
        // Last offset delta, timestamps, producer and sequence do not matter here.
        &[0; 34],
        &count.to_be_bytes(),
        blob,
    ]
    .concat();
    let length = i32::try_from(checked.len() + 9).expect("length");
    [
        &[0; 8][..],
        &length.to_be_bytes(),
        &[0, 0, 0, 0, 2],
        &crc32c::crc32c(&checked).to_be_bytes(),
        &checked,
    ]
    .concat()
}
