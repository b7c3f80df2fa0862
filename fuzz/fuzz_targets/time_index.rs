#![no_main]

use krabka_remote_storage::index::{
    TimeIndex, parse_time_index, relative_offset_floor_for_timestamp,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (i64, i64, &[u8])| {
    let (base_offset, timestamp, bytes) = input;
    let entries = parse_time_index(bytes).expect("any bytes are an index");
    assert!(entries.is_sorted_by_key(|entry| entry.timestamp.get()));
    assert!(entries.is_sorted_by_key(|entry| entry.relative_offset.get()));
    let _ = relative_offset_floor_for_timestamp(entries, timestamp);
    let index = TimeIndex::new(base_offset, bytes);
    assert!(index.scan_start(timestamp).timestamp < timestamp || timestamp <= 0);
    let _ = index.lookup(timestamp);
    let _ = index.sanity_check();
});
