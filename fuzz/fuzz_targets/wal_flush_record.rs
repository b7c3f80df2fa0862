#![no_main]

use krabka_remote_storage::diskless::{WalCaptureProjection, WalFlushRecord, WalIndexKey};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let _ = WalFlushRecord::from_bytes(body);
    // And once with a version that lets the body be looked at.
    let value = [&[0, 2], body].concat();
    let Ok(record) = WalFlushRecord::from_bytes(&value) else {
        return;
    };
    assert_eq!(record.to_bytes().expect("the known version"), value);
    for entry in &record.entries {
        let key = WalIndexKey::from(entry);
        let mut projection = WalCaptureProjection::new();
        match projection.apply(Some(&key.to_bytes()), Some(&value)) {
            Ok(()) => {
                let found = projection.lookup(key.topic_id, key.partition, key.first_offset);
                assert_eq!(found.expect("the range").entry, *entry);
                assert_eq!(projection.references(&record.object_key), 1);
            }
            Err(_) => assert_eq!(projection, WalCaptureProjection::new()),
        }
    }
});
