#![no_main]

use krabka_remote_storage::index::LeaderEpochCheckpoint;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(read) = LeaderEpochCheckpoint::parse(bytes) else {
        return;
    };
    let written = read.to_string();
    let again = LeaderEpochCheckpoint::parse(written.as_bytes()).expect("what was written");
    assert_eq!(again, read);
    let _ = read.up_to(10);
    if let Ok(epochs) = read.segment_leader_epochs(5, 10) {
        assert!(epochs.values().all(|offset| (5..=10).contains(offset)));
    }
});
