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
