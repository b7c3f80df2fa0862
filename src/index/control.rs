//! What control records say.

use zerocopy::big_endian::{I16, I32};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::corrupt::corrupt_log;
use super::record::Record;
use crate::error::RemoteStorageError;

/// What a control record is for (Kafka's `ControlRecordType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ControlRecordType {
    /// The producer's transaction was aborted.
    Abort,
    /// The producer's transaction was committed.
    Commit,
    /// A new leader of a `KRaft` log.
    LeaderChange,
    /// The first record of a `KRaft` snapshot.
    SnapshotHeader,
    /// The last record of a `KRaft` snapshot.
    SnapshotFooter,
    /// The version of the `KRaft` protocol.
    KraftVersion,
    /// The voters of a `KRaft` log.
    KraftVoters,
    /// Something later than this crate: to be passed over.
    Unknown(i16),
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ControlKey {
    version: I16,
    kind: I16,
}

impl ControlRecordType {
    /// What this record of a control batch is for. A later version of the key is read as
    /// version 0, as Kafka does.
    ///
    /// # Errors
    ///
    /// The log is corrupt: there is no key, it has fewer than 4 bytes, or its version is negative.
    pub fn of<B: AsRef<[u8]>>(record: &Record<B>) -> Result<Self, RemoteStorageError> {
        let key = record.key.as_ref().map(AsRef::as_ref).unwrap_or_default();
        let key = ControlKey::ref_from_prefix(key)
            .ok()
            .map(|(key, _)| key)
            .filter(|key| key.version.get() >= 0)
            .ok_or_else(|| {
                corrupt_log(format_args!(
                    "control record at offset {} has an invalid key",
                    record.offset
                ))
            })?;
        Ok(match key.kind.get() {
            0 => Self::Abort,
            1 => Self::Commit,
            2 => Self::LeaderChange,
            3 => Self::SnapshotHeader,
            4 => Self::SnapshotFooter,
            5 => Self::KraftVersion,
            6 => Self::KraftVoters,
            unknown => Self::Unknown(unknown),
        })
    }
}

/// The value of an [`Abort`](ControlRecordType::Abort) or a [`Commit`](ControlRecordType::Commit)
/// (Kafka's `EndTransactionMarker`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndTransactionMarker {
    /// The epoch of the transaction coordinator that wrote the marker.
    pub coordinator_epoch: i32,
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct MarkerValue {
    version: I16,
    coordinator_epoch: I32,
}

impl EndTransactionMarker {
    /// Reads the value of this abort or commit marker.
    ///
    /// # Errors
    ///
    /// The log is corrupt: the value has fewer than 6 bytes, or its version is negative.
    pub fn of<B: AsRef<[u8]>>(record: &Record<B>) -> Result<Self, RemoteStorageError> {
        let value = record.value.as_ref().map(AsRef::as_ref).unwrap_or_default();
        MarkerValue::ref_from_prefix(value)
            .ok()
            .map(|(value, _)| value)
            .filter(|value| value.version.get() >= 0)
            .map(|value| Self {
                coordinator_epoch: value.coordinator_epoch.get(),
            })
            .ok_or_else(|| {
                corrupt_log(format_args!(
                    "transaction marker at offset {} has an invalid value",
                    record.offset
                ))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Batches;
    use super::super::golden::{ABORT, B1, COMMIT, rebuilt, unhex};
    use super::*;

    fn type_of(batch: &[u8]) -> Result<ControlRecordType, RemoteStorageError> {
        let batch = Batches::new(batch).next().expect("one").expect("batch");
        ControlRecordType::of(&batch.records(0)?.iter().next().expect("a record"))
    }

    fn marker_of(batch: &[u8]) -> Result<EndTransactionMarker, RemoteStorageError> {
        let batch = Batches::new(batch).next().expect("one").expect("batch");
        EndTransactionMarker::of(&batch.records(0)?.iter().next().expect("a record"))
    }

    /// `ABORT` with another key and value.
    fn marker(key: &[u8], value: &[u8]) -> Vec<u8> {
        let zigzag = |length: usize| u8::try_from(length * 2).expect("length");
        let body = [
            &[0, 0, 0, zigzag(key.len())],
            key,
            &[zigzag(value.len())],
            value,
            &[0],
        ];
        let body = body.concat();
        rebuilt(ABORT, 0x30, 1, &[&[zigzag(body.len())], &body[..]].concat())
    }

    #[test]
    fn markers_tell_abort_from_commit() {
        assert_eq!(
            type_of(&unhex(ABORT)).expect("type"),
            ControlRecordType::Abort
        );
        assert_eq!(
            type_of(&unhex(COMMIT)).expect("type"),
            ControlRecordType::Commit
        );
        for golden in [ABORT, COMMIT] {
            assert_eq!(
                marker_of(&unhex(golden)).expect("marker").coordinator_epoch,
                7
            );
        }
        assert_eq!(marker(&[0, 0, 0, 0], &[0, 0, 0, 0, 0, 7]), unhex(ABORT));
    }

    #[test]
    fn every_type_has_its_number_and_later_ones_are_unknown() {
        for (number, expected) in [
            (0, ControlRecordType::Abort),
            (1, ControlRecordType::Commit),
            (2, ControlRecordType::LeaderChange),
            (3, ControlRecordType::SnapshotHeader),
            (4, ControlRecordType::SnapshotFooter),
            (5, ControlRecordType::KraftVersion),
            (6, ControlRecordType::KraftVoters),
            (7, ControlRecordType::Unknown(7)),
            (1000, ControlRecordType::Unknown(1000)),
            (-1, ControlRecordType::Unknown(-1)),
        ] {
            let [high, low] = i16::to_be_bytes(number);
            // The same in a later version of the key, which may be longer.
            for key in [&[0, 0, high, low][..], &[0, 9, high, low, 1]] {
                assert_eq!(type_of(&marker(key, &[])).expect("type"), expected);
            }
        }
    }

    #[test]
    fn short_keys_and_values_and_negative_versions_are_refused() {
        for key in [&[][..], &[0, 0, 0], &[0xff, 0xff, 0, 0]] {
            assert!(type_of(&marker(key, &[])).is_err());
        }
        let second_of_b1_has_no_key = &unhex(B1);
        let batch = Batches::new(second_of_b1_has_no_key)
            .next()
            .expect("one")
            .expect("batch");
        let records = batch.records(0).expect("records");
        assert!(ControlRecordType::of(&records.iter().nth(1).expect("record")).is_err());
        for value in [&[][..], &[0, 0, 0, 0, 0], &[0xff, 0xff, 0, 0, 0, 7]] {
            assert!(marker_of(&marker(&[0; 4], value)).is_err());
        }
        assert_eq!(
            marker_of(&marker(&[0; 4], &[0, 3, 0, 0, 0, 7, 1])).expect("marker"),
            EndTransactionMarker {
                coordinator_epoch: 7
            }
        );
    }
}
