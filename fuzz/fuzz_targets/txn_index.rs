#![no_main]

use krabka_remote_storage::index::{
    TxnIndex, collect_aborted_txns, parse_txn_index, sanity_check_txn_index, txn_overlaps,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (i64, i64, &[u8])| {
    let (from, to, bytes) = input;
    let Ok(entries) = parse_txn_index(bytes) else {
        return;
    };
    assert_eq!(entries.len() * 34, bytes.len());
    let _ = sanity_check_txn_index(entries, from);
    let index = TxnIndex::new(from, bytes);
    let _ = index.sanity_check();
    let searched = index.collect_aborted_txns(from, to);
    assert!(searched.aborted.len() <= entries.len());
    for entry in collect_aborted_txns(entries, from, to).aborted {
        // The bound of a collection is exclusive, those of an overlap are inclusive.
        assert!(from >= to || txn_overlaps(&entry, from, to - 1));
    }
});
