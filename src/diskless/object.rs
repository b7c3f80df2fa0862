//! A WAL object: runs of record batches of several partitions, end to end, and a footer that says
//! whose they are.
//!
//! ```text
//! "CKWL" · u16 1 · runs · footer, 48 bytes a run · u32 length of the footer · "CKWL"
//! footer: topic id 16 · i32 partition · i64 first · i64 last offset · u64 start · u32 length
//! ```
//!
//! Integers are little-endian. There is no checksum but those of the batches.

use std::ops::Range;

use bytes::Bytes;
use uuid::Uuid;
use zerocopy::little_endian::{I32, I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::entry::WalIndexEntry;
use super::error::WalObjectError;
use crate::index::{LogOffset, TimestampMs};

const MAGIC: [u8; 4] = *b"CKWL";
const VERSION: u16 = 1;

/// Bytes before the first run.
pub(super) const HEADER_LEN: usize = size_of::<Header>();
/// Bytes behind the footer.
const TRAILER_LEN: usize = size_of::<Trailer>();
const FOOTER_ENTRY_LEN: usize = size_of::<FooterEntry>();

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 4],
    version: U16,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Trailer {
    footer_len: U32,
    magic: [u8; 4],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct FooterEntry {
    topic_id: [u8; 16],
    partition: I32,
    first_offset: I64,
    last_offset: I64,
    byte_start: U64,
    byte_len: U32,
}

/// A run of an object, as the footer has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WalObjectEntry {
    /// The topic's unique id.
    pub topic_id: Uuid,
    /// The partition's index in the topic.
    pub partition: i32,
    /// First offset, inclusive.
    pub first_offset: LogOffset,
    /// Last offset, inclusive.
    pub last_offset: LogOffset,
    /// Where the run begins, in bytes from the object's first byte.
    pub byte_start: u64,
    /// Its length in bytes.
    pub byte_len: u32,
}

impl WalObjectEntry {
    /// The run's place, in bytes from the object's first byte; the end is exclusive.
    pub fn bytes(&self) -> Range<u64> {
        self.byte_start..self.byte_start.saturating_add(u64::from(self.byte_len))
    }

    /// The run's batches in its object; `None` where the object is shorter than that.
    pub fn run_of<'a>(&self, object: &'a [u8]) -> Option<&'a [u8]> {
        let Range { start, end } = self.bytes();
        object.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
    }

    /// The range to be published for the run.
    ///
    /// `max_timestamp_ms` is the highest timestamp of its records
    /// ([`check_run`](Self::check_run) finds it), or the time of the flush where they have none.
    pub fn to_index_entry(self, max_timestamp_ms: TimestampMs) -> WalIndexEntry {
        WalIndexEntry {
            topic_id: self.topic_id,
            partition: self.partition,
            first_offset: self.first_offset,
            last_offset: self.last_offset,
            byte_start: self.byte_start,
            byte_len: self.byte_len,
            max_timestamp_ms,
        }
    }

    /// What is wrong with the run by itself.
    fn fault(&self) -> Option<&'static str> {
        if self.partition < 0 {
            Some("its partition is negative")
        } else if self.first_offset < 0 {
            Some("its first offset is negative")
        } else if self.last_offset < self.first_offset {
            Some("its last offset is below its first")
        } else if self.byte_len == 0 {
            Some("it has no bytes")
        } else {
            None
        }
    }
}

/// Puts a WAL object together.
#[derive(Clone, Debug, Default)]
pub struct WalObjectBuilder {
    /// Header and runs; empty before the first run.
    object: Vec<u8>,
    entries: Vec<WalObjectEntry>,
}

impl WalObjectBuilder {
    /// A builder without runs. It allocates with the first one.
    pub fn new() -> Self {
        Self::default()
    }

    /// A builder that has room for `runs` runs of `body_len` bytes together, and their footer. As
    /// long as they are not more, no byte is copied twice.
    pub fn with_capacity(body_len: usize, runs: usize) -> Self {
        let room = HEADER_LEN + body_len + runs * FOOTER_ENTRY_LEN + TRAILER_LEN;
        Self {
            object: Vec::with_capacity(room),
            entries: Vec::with_capacity(runs),
        }
    }

    /// Bytes of all runs.
    pub fn body_len(&self) -> usize {
        self.object.len().saturating_sub(HEADER_LEN)
    }

    /// Whether there is no run.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a run: batches of one partition, in the order of their offsets, of which
    /// `first_offset` and `last_offset` are the lowest and the highest. The bytes are taken as they
    /// are. Answers where they stand.
    ///
    /// # Errors
    ///
    /// [`InvalidRun`](WalObjectError::InvalidRun) for a run that is empty, 4 GiB or longer, or has
    /// a negative partition, a negative offset, or a last offset below the first; also when
    /// the footer would be 4 GiB. The builder is as it was.
    pub fn append_run(
        &mut self,
        topic_id: Uuid,
        partition: i32,
        first_offset: LogOffset,
        last_offset: LogOffset,
        run: &[u8],
    ) -> Result<WalObjectEntry, WalObjectError> {
        let invalid = |reason| WalObjectError::InvalidRun { partition, reason };
        let byte_len =
            u32::try_from(run.len()).map_err(|_| invalid("it has 4 GiB or more: split it"))?;
        if self.entries.len() >= u32::MAX as usize / FOOTER_ENTRY_LEN {
            return Err(invalid("the object has too many runs: begin a new one"));
        }
        let entry = WalObjectEntry {
            topic_id,
            partition,
            first_offset,
            last_offset,
            byte_start: (HEADER_LEN + self.body_len()) as u64,
            byte_len,
        };
        if let Some(reason) = entry.fault() {
            return Err(invalid(reason));
        }
        self.begin();
        self.object.extend_from_slice(run);
        self.entries.push(entry);
        Ok(entry)
    }

    /// The object's bytes. They are parsed again, without runs too.
    pub fn finish(mut self) -> Bytes {
        self.begin();
        let footer_len = self.entries.len() * FOOTER_ENTRY_LEN;
        self.object.reserve(footer_len + TRAILER_LEN);
        for entry in &self.entries {
            let entry = FooterEntry {
                topic_id: entry.topic_id.into_bytes(),
                partition: entry.partition.into(),
                first_offset: entry.first_offset.into(),
                last_offset: entry.last_offset.into(),
                byte_start: entry.byte_start.into(),
                byte_len: entry.byte_len.into(),
            };
            self.object.extend_from_slice(entry.as_bytes());
        }
        let trailer = Trailer {
            // `append_run` has seen to it.
            footer_len: u32::try_from(footer_len).unwrap_or(u32::MAX).into(),
            magic: MAGIC,
        };
        self.object.extend_from_slice(trailer.as_bytes());
        self.object.into()
    }

    /// [`append_run`](Self::append_run), then [`finish`](Self::finish).
    ///
    /// # Errors
    ///
    /// Those of `append_run`.
    pub fn finish_with_run(
        mut self,
        topic_id: Uuid,
        partition: i32,
        first_offset: LogOffset,
        last_offset: LogOffset,
        run: &[u8],
    ) -> Result<Bytes, WalObjectError> {
        self.append_run(topic_id, partition, first_offset, last_offset, run)?;
        Ok(self.finish())
    }

    fn begin(&mut self) {
        if self.object.is_empty() {
            let header = Header {
                magic: MAGIC,
                version: VERSION.into(),
            };
            self.object.extend_from_slice(header.as_bytes());
        }
    }
}

/// The runs of a WAL object, in the order of their bytes.
///
/// The batches are not looked at: [`WalObjectEntry::check_run`] does that. Of memory it takes the
/// list, which is not larger than the footer.
///
/// # Errors
///
/// As the variants of [`WalObjectError`] say. A footer is bad whose length is not that of whole
/// entries or reaches into the header; and a run that begins inside the header, ends beyond the
/// runs, is not behind the one before it, is empty, or has a negative partition, a negative
/// offset, or a last offset below the first.
pub fn parse_wal_object(object: &[u8]) -> Result<Vec<WalObjectEntry>, WalObjectError> {
    let too_short = || WalObjectError::TooShort { len: object.len() };
    let (header, behind) = Header::ref_from_prefix(object).map_err(|_| too_short())?;
    let (runs_and_footer, trailer) = Trailer::ref_from_suffix(behind).map_err(|_| too_short())?;
    if header.magic != MAGIC {
        return Err(WalObjectError::BadMagic { at_end: false });
    }
    if trailer.magic != MAGIC {
        return Err(WalObjectError::BadMagic { at_end: true });
    }
    if header.version.get() != VERSION {
        return Err(WalObjectError::BadVersion(header.version.get()));
    }
    let bad = |reason| WalObjectError::BadManifest { reason };
    let footer_len = trailer.footer_len.get() as usize;
    let body_len = runs_and_footer.len().checked_sub(footer_len);
    let Some((body, footer)) = body_len.and_then(|at| runs_and_footer.split_at_checked(at)) else {
        let room = runs_and_footer.len();
        return Err(bad(format!(
            "a footer of {footer_len} bytes reaches into the header: there are {room}"
        )));
    };
    let footer = <[FooterEntry]>::ref_from_bytes(footer).map_err(|_| {
        bad(format!(
            "a footer of {footer_len} bytes has no whole number of entries of {FOOTER_ENTRY_LEN}"
        ))
    })?;
    let body_end = (HEADER_LEN + body.len()) as u64;
    let mut last_end = HEADER_LEN as u64;
    let mut entries = Vec::with_capacity(footer.len());
    for (run, entry) in footer.iter().enumerate() {
        let entry = WalObjectEntry {
            topic_id: Uuid::from_bytes(entry.topic_id),
            partition: entry.partition.get(),
            first_offset: entry.first_offset.get(),
            last_offset: entry.last_offset.get(),
            byte_start: entry.byte_start.get(),
            byte_len: entry.byte_len.get(),
        };
        let Range { start, end } = entry.bytes();
        let fault = if start < HEADER_LEN as u64 {
            Some("it begins inside the header")
        } else if end > body_end {
            Some("it ends beyond the runs")
        } else if start < last_end {
            Some("it overlaps the run before it, or is out of order")
        } else {
            entry.fault()
        };
        if let Some(fault) = fault {
            return Err(bad(format!("run {run}: {fault}")));
        }
        last_end = end;
        entries.push(entry);
    }
    Ok(entries)
}
