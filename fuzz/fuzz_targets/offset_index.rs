#![no_main]

use krabka_remote_storage::index::{OffsetIndex, parse_offset_index, position_for_relative_offset};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (i64, u32, &[u8])| {
    let (base_offset, target, bytes) = input;
    let entries = parse_offset_index(bytes).expect("any bytes are an index");
    assert!(entries.is_sorted_by_key(|entry| (entry.relative_offset, entry.position)));
    let position = position_for_relative_offset(entries, target);
    let index = OffsetIndex::new(base_offset, bytes);
    let found = index.lookup(base_offset.saturating_add(target.into()));
    // Where all entries are in order, both searches see the same.
    if entries.len() == bytes.len() / 8 && base_offset < i64::MAX - i64::from(u32::MAX) {
        assert_eq!(found.position, position);
    }
    let range = index.lookup_range(base_offset.saturating_add(target.into()));
    assert_eq!(range.floor, found);
    let _ = index.fetch_upper_bound_offset(target, bytes.len());
    let _ = index.sanity_check();
});
