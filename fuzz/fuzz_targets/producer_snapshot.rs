#![no_main]

use krabka_remote_storage::index::ProducerSnapshot;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|entries: &[u8]| {
    let _ = ProducerSnapshot::parse(entries);
    // And once with a header that lets the entries be looked at.
    let count = i32::try_from(entries.len() / 46).expect("a small input");
    let checked = [&count.to_be_bytes(), entries].concat();
    let crc = crc32c::crc32c(&checked);
    let bytes = [&[0, 1], &crc.to_be_bytes()[..], &checked].concat();
    if let Ok(snapshot) = ProducerSnapshot::parse(&bytes) {
        assert_eq!(snapshot.entries().len() * 46, entries.len());
        assert_eq!(
            snapshot.first_undecided_offset().is_some(),
            snapshot.open_transactions().count() > 0
        );
    }
});
