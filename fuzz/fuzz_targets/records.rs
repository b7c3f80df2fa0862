#![no_main]

use krabka_remote_storage::index::{
    BatchHeader, Batches, ControlRecordType, EndTransactionMarker, RecordBatch,
};
use libfuzzer_sys::fuzz_target;

const LIMIT: usize = 1 << 20;

fuzz_target!(|input: (u8, u16, &[u8])| {
    let (attributes, count, blob) = input;
    let bytes = batch(attributes, count, blob);
    let Some(Ok(batch)) = Batches::new(&bytes).next() else {
        panic!("a whole batch of magic 2");
    };
    let Ok(records) = batch.records(LIMIT) else {
        return;
    };
    assert_eq!(records.len(), usize::from(count));
    let owned: RecordBatch = batch.decode(LIMIT).expect("decoded before");
    for (record, owned) in records.iter().zip(&owned.records) {
        assert_eq!(record.value, owned.value.as_deref());
        assert_eq!(record.headers().count(), owned.headers().len());
        let _ = ControlRecordType::of(&record);
        let _ = EndTransactionMarker::of(&record);
    }
});

/// A batch of magic 2 with these records, and a right length and checksum.
fn batch(attributes: u8, count: u16, blob: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; BatchHeader::SIZE];
    bytes[16] = 2;
    bytes[22] = attributes;
    bytes[59..61].copy_from_slice(&count.to_be_bytes());
    bytes.extend(blob);
    let length = i32::try_from(bytes.len() - 12).expect("a small input");
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes
}
