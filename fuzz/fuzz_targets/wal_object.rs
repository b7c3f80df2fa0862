#![no_main]

use krabka_remote_storage::diskless::{parse_wal_object, whole_batches};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| {
    let (runs, bytes) = input;
    check(bytes);
    // And once framed, the last bytes as a footer of so many runs.
    let footer_len = u32::from(runs) * 48;
    let framed = [
        b"CKWL\x01\0",
        bytes,
        &footer_len.to_le_bytes(),
        b"CKWL",
    ]
    .concat();
    check(&framed);
    let _ = whole_batches(bytes, 0, usize::from(runs));
});

fn check(object: &[u8]) {
    let Ok(runs) = parse_wal_object(object) else {
        return;
    };
    let mut end = 6;
    for run in runs {
        assert!(run.byte_start >= end && run.byte_len > 0 && run.partition >= 0);
        assert!(0 <= run.first_offset && run.first_offset <= run.last_offset);
        end = run.bytes().end;
        let _ = run.check_run(run.run_of(object).expect("a run inside its object"));
    }
}
