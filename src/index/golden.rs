//! Batches whose every byte is known, for the tests of this folder.

/// Base offset 10, timestamps 1000 and 1100, records (k, v0) and (null, v1, header h = x).
pub(super) const B1: &str = concat!(
    "000000000000000a0000004900000000028226540300000000000100000000000003e8000000000000044cffffffff",
    "ffffffffffffffffffff0000000212000000026b047630001a00c80102010476310202680278",
);
/// Base offset 12, timestamp 1200, producer 4000 of epoch 1, coordinator epoch 7.
pub(super) const ABORT: &str = concat!(
    "000000000000000c0000004200000000029a561fc000300000000000000000000004b000000000000004b000000000",
    "00000fa00001ffffffff000000012000000008000000000c00000000000700",
);
/// Base offset 13, timestamp 1300, otherwise as `ABORT`.
pub(super) const COMMIT: &str = concat!(
    "000000000000000d000000420000000002bac1e0b50030000000000000000000000514000000000000051400000000",
    "00000fa00001ffffffff000000012000000008000000010c00000000000700",
);
/// Base offset 14, largest timestamp 1400, no records.
pub(super) const EMPTY: &str = concat!(
    "000000000000000e000000310000000002f982d38f000000000000ffffffffffffffff0000000000000578ffffffff",
    "ffffffffffffffffffff00000000",
);
/// Base offset 20, epoch 3, appended at 5000, values a and b.
pub(super) const LAT: &str = concat!(
    "00000000000000140000004100000003022f85ae3200080000000100000000000003e80000000000001388ffffffff",
    "ffffffffffffffffffff000000020e000000010261000e000e0201026200",
);
/// Base offset 10, timestamps 1000, 1100, 1600 and 1700.
pub(super) const T1: &str = concat!(
    "000000000000000a000000600000000002922953fe00000000000300000000000003e800000000000006a4ffffffff",
    "ffffffffffffffffffff0000000414000000010861616161001600c80102010861616161001600b0090401086161",
    "6161001600f80a0601086161616100",
);
/// Base offset 14, timestamps 2000, 2200 and 2400.
pub(super) const T2: &str = concat!(
    "000000000000000e0000005400000000025cd6b83f00000000000200000000000007d00000000000000960ffffffff",
    "ffffffffffffffffffff0000000314000000010862626262001600900302010862626262001600a006040108626262",
    "6200",
);
/// Magic 0, offset 5, null key, value a.
pub(super) const V0: &str = "00000000000000050000000f51df3a320000ffffffff0000000161";
/// Magic 1, timestamp 1000, otherwise as `V0`.
pub(super) const V1: &str =
    "0000000000000005000000178a65e96d010000000000000003e8ffffffff0000000161";

pub(super) fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex"))
        .collect()
}

pub(super) fn joined(batches: &[&str]) -> Vec<u8> {
    batches.iter().flat_map(|batch| unhex(batch)).collect()
}

/// The batch with other attributes and other records, its length and checksum made right.
pub(super) fn rebuilt(batch: &str, attributes: i16, count: i32, blob: &[u8]) -> Vec<u8> {
    let mut bytes = unhex(batch);
    bytes.truncate(57);
    bytes[21..23].copy_from_slice(&attributes.to_be_bytes());
    bytes.extend(count.to_be_bytes());
    bytes.extend(blob);
    let length = i32::try_from(bytes.len() - 12).expect("length");
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes
}
