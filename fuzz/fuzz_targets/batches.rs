#![no_main]

use krabka_remote_storage::index::{
    BatchPrefix, Batches, first_batch_at_or_after, first_record_at_or_after_timestamp_within,
};
use libfuzzer_sys::fuzz_target;

const LIMIT: usize = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let mut batches = Batches::new(data);
    let mut sum = 0;
    while let Some(Ok(batch)) = batches.next() {
        assert_eq!(batch.position(), sum);
        sum += batch.size();
        let _ = batch.last_offset();
        if let Ok(records) = batch.records(LIMIT) {
            assert_eq!(records.iter().count(), records.len());
        }
    }
    assert_eq!(batches.remainder(), &data[sum..]);
    let _ = BatchPrefix::read(data);
    let _ = first_batch_at_or_after(data, 10);
    let _ = first_record_at_or_after_timestamp_within(data, 10, 1000, LIMIT);
});
