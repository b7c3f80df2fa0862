#![no_main]

use krabka_remote_storage::diskless::{
    WalCaptureProjection, WalDeleteFloorKey, WalIndexKey, parse_wal_object_key,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|key: &[u8]| {
    if let Some(read) = WalIndexKey::from_bytes(key) {
        assert_eq!(read.to_bytes(), key);
    }
    if let Some(read) = WalDeleteFloorKey::from_bytes(key) {
        assert_eq!(read.to_bytes(), key);
    }
    let mut projection = WalCaptureProjection::new();
    let _ = projection.apply(Some(key), None);
    assert_eq!(projection, WalCaptureProjection::new());
    let _ = parse_wal_object_key(&String::from_utf8_lossy(key));
});
