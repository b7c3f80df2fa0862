#![no_main]

use krabka_remote_storage::diskless::{WalCaptureProjection, WalDeleteFloorRecord};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let _ = WalDeleteFloorRecord::from_bytes(body);
    // And once with a version that lets the body be looked at.
    let value = [&[0, 0], body].concat();
    if let Ok(record) = WalDeleteFloorRecord::from_bytes(&value) {
        assert_eq!(record.to_bytes(), value);
        let key = record.key().to_bytes();
        let applied = WalCaptureProjection::new().apply(Some(&key), Some(&value));
        assert_eq!(applied.is_ok(), record.partition >= 0 && record.floor >= 0);
    }
});
