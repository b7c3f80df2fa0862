//! The transactions of a log, as its own batches tell them, and the checksums that make them trusted.
//!
//! A record batch has a checksum, and the marker that ends a transaction is a batch like others. The
//! transaction indexes and the producer snapshots beside a log only repeat what it says, so nothing
//! here asks them.

use std::collections::HashMap;

use krabka_remote_storage::RemoteStorageError;
use krabka_remote_storage::index::{
    Batch, BatchHeader, BatchPrefix, ControlRecordType, DEFAULT_MAX_DECOMPRESSED_BYTES,
    ProducerSnapshotEntry, corrupt_log,
};

/// What a batch of magic 2 does to the transactions of its producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It has nothing to do with them.
    None,
    /// It has data of a transaction.
    Data,
    /// It ends the transaction.
    Committed,
    Aborted,
}

impl Step {
    /// # Errors
    ///
    /// The checksum of a control batch is wrong, or it holds no control record.
    pub(crate) fn of(batch: &Batch<'_>) -> Result<Self, RemoteStorageError> {
        let header = batch.header()?;
        if header.is_control() {
            let records = batch.records(DEFAULT_MAX_DECOMPRESSED_BYTES)?;
            let marker = records.iter().next();
            return Ok(
                match marker.as_ref().map(ControlRecordType::of).transpose()? {
                    Some(ControlRecordType::Abort) => Self::Aborted,
                    Some(ControlRecordType::Commit) => Self::Committed,
                    _ => Self::None,
                },
            );
        }
        Ok(Self::of_data(header))
    }

    /// Of a batch that is not one of control records.
    pub(crate) fn of_data(header: &BatchHeader) -> Self {
        if header.is_transactional() {
            Self::Data
        } else {
            Self::None
        }
    }
}

/// The checksum of a batch of any format, in parts.
pub(crate) struct Checksum {
    offset: i64,
    declared: u32,
    computed: Computed,
}

enum Computed {
    Crc32c(u32),
    /// Of messages of magic 0 and 1.
    Crc32(flate2::Crc),
}

impl Checksum {
    /// Compares the checksum of a batch with its bytes.
    ///
    /// # Errors
    ///
    /// The log is corrupt, or the magic is unknown.
    pub(crate) fn check_batch(batch: &Batch<'_>) -> Result<(), RemoteStorageError> {
        if batch.magic() == 2 {
            return batch.check_crc();
        }
        batch.last_offset()?;
        match BatchPrefix::read(batch.bytes())? {
            Some(prefix) => Self::of(batch.bytes(), &prefix)?.check(),
            None => Ok(()),
        }
    }

    /// Begins with the first bytes of a batch, which have its header.
    ///
    /// # Errors
    ///
    /// The header is not there.
    pub(crate) fn of(start: &[u8], prefix: &BatchPrefix) -> Result<Self, RemoteStorageError> {
        // Where the checksum stands, and from where on it covers the bytes: in a record batch from
        // the attributes on (KIP-98), in a message from behind itself.
        let (declared_at, from) = if prefix.magic == 2 {
            (17, 21)
        } else {
            (12, 16)
        };
        let (Some((declared, _)), Some(bytes)) = (
            start
                .get(declared_at..)
                .and_then(<[u8]>::split_first_chunk::<4>),
            start.get(from..),
        ) else {
            return Err(corrupt_log("a batch is shorter than its header"));
        };
        let mut checksum = Self {
            offset: prefix.offset,
            declared: u32::from_be_bytes(*declared),
            computed: if prefix.magic == 2 {
                Computed::Crc32c(0)
            } else {
                Computed::Crc32(flate2::Crc::new())
            },
        };
        checksum.update(bytes);
        Ok(checksum)
    }

    /// Goes on with the bytes that follow.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match &mut self.computed {
            Computed::Crc32c(crc) => *crc = crc32c::crc32c_append(*crc, bytes),
            Computed::Crc32(crc) => crc.update(bytes),
        }
    }

    /// Compares.
    ///
    /// # Errors
    ///
    /// The log is corrupt.
    pub(crate) fn check(&self) -> Result<(), RemoteStorageError> {
        let computed = match &self.computed {
            Computed::Crc32c(crc) => *crc,
            Computed::Crc32(crc) => crc.sum(),
        };
        if computed == self.declared {
            return Ok(());
        }
        Err(corrupt_log(format_args!(
            "batch at offset {} has checksum {computed:08x} instead of {:08x}",
            self.offset, self.declared
        )))
    }
}

/// The producers of a log, from where a walk of it began.
#[derive(Debug, Default)]
pub(crate) struct Producers {
    /// Those with data whose marker has not been read: its first offset.
    open: HashMap<i64, i64>,
    /// The last offset of each one's data.
    last_data: HashMap<i64, i64>,
}

impl Producers {
    /// Takes in the next batch of the log. The first offset of the transaction that it ends.
    pub(crate) fn follow(
        &mut self,
        header: &BatchHeader,
        step: Step,
    ) -> Result<Option<i64>, RemoteStorageError> {
        let producer = header.producer_id();
        if !header.is_control() && producer >= 0 {
            self.last_data.insert(producer, header.last_offset()?);
        }
        Ok(match step {
            Step::None => None,
            Step::Data => {
                self.open.entry(producer).or_insert(header.base_offset());
                None
            }
            Step::Committed | Step::Aborted => self.open.remove(&producer),
        })
    }

    /// The first offset of the oldest transaction that is open.
    pub(crate) fn first_open(&self) -> Option<i64> {
        self.open.values().min().copied()
    }

    /// Whether a snapshot of the producers at the end of the log is not that of this log, of which
    /// everything from an offset on was walked.
    pub(crate) fn contradict(&self, snapshot: &[ProducerSnapshotEntry], from: i64) -> bool {
        snapshot.iter().any(|entry| {
            let last_offset = entry.last_offset.get();
            match self.last_data.get(&entry.producer_id.get()) {
                // A marker of a newer producer epoch makes a broker forget the data.
                Some(&last) if last >= from => last_offset >= 0 && last != last_offset,
                _ => last_offset >= from,
            }
        })
    }
}
