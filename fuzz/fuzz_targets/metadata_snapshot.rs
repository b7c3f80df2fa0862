#![no_main]

use krabka_remote_storage::metadata::RemoteLogMetadataCache;
use krabka_remote_storage::topic::{SNAPSHOT_FORMAT_VERSION, Snapshot, SnapshotCaches};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|content: &[u8]| {
    let _ = Snapshot::decode(content);
    let mut bytes = SNAPSHOT_FORMAT_VERSION.to_be_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_be_bytes());
    let caches = SnapshotCaches::decode(&bytes);
    let Ok(snapshot) = Snapshot::decode(&bytes) else {
        assert!(caches.is_err());
        return;
    };
    let caches = caches.expect("what the other decoder takes");
    assert_eq!(caches.committed_offsets, snapshot.committed_offsets);
    let made = snapshot.dump.partitions.iter().cloned();
    let made: Vec<_> = made
        .map(|dump| RemoteLogMetadataCache::import(dump).export())
        .collect();
    let read: Vec<_> = caches.caches.iter().map(RemoteLogMetadataCache::export).collect();
    assert_eq!(read, made);
    Snapshot::decode(&snapshot.encode()).expect("what was written");
});
