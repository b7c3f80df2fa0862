//! The producer snapshot: the idempotent and transactional producers of a partition at one offset.
//!
//! The snapshot in a tier is the state **after** its segment. A tier only carries these bytes. What
//! a reader of a tier alone needs from the newest one are the transactions that were still open,
//! because no log that is at hand decides them.

use std::collections::HashSet;

use zerocopy::big_endian::{I16, I32, I64, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::LogOffset;
use super::corrupt::corrupt_file;
use crate::error::RemoteStorageError;

const FILE: &str = "producer snapshot";
/// Where the checksummed part begins: after version and checksum.
const CRC_START: usize = 6;

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SnapshotHeader {
    version: I16,
    crc: U32,
    count: I32,
}

/// The state of one producer, as it lies in the file: 46 bytes, big-endian (Kafka's
/// `ProducerStateEntry`).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ProducerSnapshotEntry {
    /// The producer.
    pub producer_id: I64,
    /// Its epoch.
    pub producer_epoch: I16,
    /// The sequence number of its last record; −1 when it has written markers only.
    pub last_sequence: I32,
    /// The offset of its last record; −1 when it has written markers only.
    pub last_offset: I64,
    /// The last offset of its last batch less the first one.
    pub offset_delta: I32,
    /// The largest timestamp of its last batch, in milliseconds since 1970-01-01 UTC.
    pub timestamp: I64,
    /// The epoch of the transaction coordinator that ended its last transaction; −1 when none did.
    pub coordinator_epoch: I32,
    /// The first offset of its open transaction; −1 when it has none.
    pub current_txn_first_offset: I64,
}

/// A producer snapshot, read in place.
#[derive(Clone, Copy, Debug)]
pub struct ProducerSnapshot<'a> {
    entries: &'a [ProducerSnapshotEntry],
}

impl<'a> ProducerSnapshot<'a> {
    /// Reads a snapshot.
    ///
    /// # Errors
    ///
    /// The snapshot is corrupt: a version other than 1, a wrong checksum, other than the declared
    /// number of entries, or a producer that appears twice.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, RemoteStorageError> {
        let (header, body) = SnapshotHeader::ref_from_prefix(bytes)
            .map_err(|_| corrupt_file(FILE, format_args!("{} bytes are no header", bytes.len())))?;
        if header.version.get() != 1 {
            return Err(corrupt_file(
                FILE,
                format_args!("version is {}, not 1", header.version),
            ));
        }
        let declared = header.crc.get();
        let computed = crc32c::crc32c(bytes.get(CRC_START..).unwrap_or_default());
        if computed != declared {
            return Err(corrupt_file(
                FILE,
                format_args!("checksum is {computed:08x}, not {declared:08x}"),
            ));
        }
        let entries = usize::try_from(header.count.get()).ok().and_then(|count| {
            let entries = <[ProducerSnapshotEntry]>::ref_from_bytes(body).ok()?;
            (entries.len() == count).then_some(entries)
        });
        let entries = entries.ok_or_else(|| {
            corrupt_file(
                FILE,
                format_args!("{} bytes are not {} entries", body.len(), header.count),
            )
        })?;
        let mut seen = HashSet::with_capacity(entries.len());
        for entry in entries {
            if !seen.insert(entry.producer_id.get()) {
                return Err(corrupt_file(
                    FILE,
                    format_args!("producer {} appears twice", entry.producer_id),
                ));
            }
        }
        Ok(Self { entries })
    }

    /// The producers, in no particular order.
    pub fn entries(&self) -> &'a [ProducerSnapshotEntry] {
        self.entries
    }

    /// The producers that have a transaction open.
    pub fn open_transactions(&self) -> impl Iterator<Item = &'a ProducerSnapshotEntry> + use<'a> {
        self.entries
            .iter()
            .filter(|entry| entry.current_txn_first_offset.get() >= 0)
    }

    /// The offset below which every transaction is decided: the first offset of the oldest open
    /// one. `None` when none is open.
    pub fn first_undecided_offset(&self) -> Option<LogOffset> {
        self.open_transactions()
            .map(|entry| entry.current_txn_first_offset.get())
            .min()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::golden::unhex;
    use super::*;

    const GOLDEN: &str = concat!(
        "0001563974bf00000001",
        "000000000000002a00030000000900000000000000650000000400000000",
        "0012d687000000080000000000000063",
    );

    fn golden_entry() -> ProducerSnapshotEntry {
        ProducerSnapshotEntry {
            producer_id: 42.into(),
            producer_epoch: 3.into(),
            last_sequence: 9.into(),
            last_offset: 101.into(),
            offset_delta: 4.into(),
            timestamp: 1_234_567.into(),
            coordinator_epoch: 8.into(),
            current_txn_first_offset: 99.into(),
        }
    }

    fn snapshot(version: i16, count: i32, entries: &[ProducerSnapshotEntry]) -> Vec<u8> {
        let body = [&count.to_be_bytes(), entries.as_bytes()].concat();
        let crc = crc32c::crc32c(&body);
        [&version.to_be_bytes()[..], &crc.to_be_bytes(), &body].concat()
    }

    #[test]
    fn the_golden_snapshots_are_read() {
        let golden = unhex(GOLDEN);
        let read = ProducerSnapshot::parse(&golden).expect("snapshot");
        assert_eq!(read.entries(), [golden_entry()]);
        assert_eq!(read.first_undecided_offset(), Some(99));
        assert_eq!(snapshot(1, 1, &[golden_entry()]), golden);

        let empty = unhex("000148674bc700000000");
        let read = ProducerSnapshot::parse(&empty).expect("snapshot");
        assert_eq!(read.entries(), []);
        assert_eq!(read.first_undecided_offset(), None);
    }

    #[test]
    fn only_open_transactions_are_undecided() {
        let mut others = [golden_entry(); 3];
        for (id, (entry, first)) in others.iter_mut().zip([-1, 70, 80]).enumerate() {
            entry.producer_id = i64::try_from(id).expect("id").into();
            entry.current_txn_first_offset = first.into();
        }
        let bytes = snapshot(1, 3, &others);
        let read = ProducerSnapshot::parse(&bytes).expect("snapshot");
        assert_eq!(read.open_transactions().count(), 2);
        assert_eq!(read.first_undecided_offset(), Some(70));
    }

    #[test]
    fn what_is_no_snapshot_is_refused() {
        let one = [golden_entry()];
        let refused = |bytes: &[u8]| {
            let error = ProducerSnapshot::parse(bytes).expect_err("refused");
            assert_eq!(error.to_string(), "corrupt producer snapshot bytes");
        };
        refused(&[]);
        refused(&unhex(GOLDEN)[..9]);
        refused(&snapshot(2, 1, &one));
        refused(&snapshot(1, -1, &[]));
        refused(&snapshot(1, 0, &one));
        refused(&snapshot(1, 2, &one));
        refused(&snapshot(1, i32::MAX, &one));
        refused(&snapshot(1, 2, &[golden_entry(); 2]));
        let mut flipped = unhex(GOLDEN);
        flipped[20] ^= 1;
        refused(&flipped);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..120),
            count: i32,
        ) {
            let _ = ProducerSnapshot::parse(&bytes);
            // And once with a checksum that lets the rest be looked at.
            let crc = crc32c::crc32c(&[&count.to_be_bytes()[..], &bytes].concat());
            let sealed = [&[0, 1], &crc.to_be_bytes()[..], &count.to_be_bytes(), &bytes].concat();
            let _ = ProducerSnapshot::parse(&sealed);
        }
    }
}
