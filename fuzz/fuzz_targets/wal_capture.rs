#![no_main]

use krabka_remote_storage::TrustedManifestKeys;
use krabka_remote_storage::diskless::{DisklessWalCapture, WalCaptureProjection};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|document: &[u8]| {
    let Ok(capture) = DisklessWalCapture::from_slice(document) else {
        return;
    };
    let bytes = capture.to_vec().expect("a document");
    let again = DisklessWalCapture::from_slice(&bytes).expect("what was written");
    assert_eq!(again, capture);
    let mut projection = WalCaptureProjection::new();
    for (key, value) in capture.index_records() {
        projection.apply(Some(&key), Some(&value)).expect("a record");
    }
    for partition in capture.partitions() {
        for range in &partition.ranges {
            let offset = range.entry.last_offset;
            let found = projection.lookup(partition.topic_id, partition.partition, offset);
            assert_eq!(found.is_some(), offset >= partition.delete_floor);
        }
    }
    if let Some(head) = capture.head() {
        let nobody = TrustedManifestKeys::default();
        assert!(capture.authenticate(&nobody, head).is_err());
    }
});
