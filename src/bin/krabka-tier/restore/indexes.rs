//! Compares the indexes of a segment with the batches of its log, which go by one after the other.
//!
//! Each entry has to be right, and none may be lacking that the log or another index proves. What
//! comes after the entries of a preallocated index, zeros, is no entry.

use std::iter::{Copied, Peekable};
use std::slice::Iter;

use krabka_remote_storage::RemoteStorageError;
use krabka_remote_storage::index::{
    AbortedTxnIndexEntry, OffsetIndexEntry, TimeIndexEntry, TxnIndex, parse_offset_index,
    parse_time_index, parse_txn_index,
};

/// A batch of the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) position: u64,
    pub(super) first_offset: i64,
    pub(super) last_offset: i64,
    /// −1 when unknown.
    pub(super) max_timestamp: i64,
}

/// An abort marker of the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Abort {
    pub(super) producer_id: i64,
    pub(super) offset: i64,
    /// Where the transaction's data begins in what was walked; `None` when it has none there.
    pub(super) first_offset: Option<i64>,
    /// The last stable offset behind it, if no transaction is open that was not walked.
    pub(super) last_stable_offset: i64,
}

/// Entries that wait for their batches, and the first thing that is wrong with them.
struct Entries<'a, E: Copy> {
    rest: Peekable<Copied<Iter<'a, E>>>,
    count: usize,
    problem: Option<String>,
}

impl<'a, E: Copy> Entries<'a, E> {
    /// `entries` are those at the start of `bytes` that are in order.
    fn new(entries: &'a [E], bytes: &[u8]) -> Self {
        let (_, tail) = bytes.split_at(size_of_val(entries));
        let problem = if bytes.len().is_multiple_of(size_of::<E>()) {
            let is_zero = tail.iter().all(|byte| *byte == 0);
            (!is_zero).then(|| format!("is out of order behind entry {}", entries.len()))
        } else {
            Some(format!(
                "has {} bytes, which are no whole number of entries",
                bytes.len()
            ))
        };
        Self {
            rest: entries.iter().copied().peekable(),
            count: entries.len(),
            problem,
        }
    }

    fn blame(&mut self, problem: String) {
        self.problem.get_or_insert(problem);
    }
}

/// The offset index.
pub(super) struct OffsetEntries<'a> {
    base_offset: i64,
    entries: Entries<'a, OffsetIndexEntry>,
    /// The offset of the entry before.
    before: Option<i64>,
}

impl<'a> OffsetEntries<'a> {
    pub(super) fn new(base_offset: i64, bytes: &'a [u8]) -> Result<Self, RemoteStorageError> {
        let mut entries = Entries::new(parse_offset_index(bytes)?, bytes);
        // A broker writes no entry before the first batch: this is one of a preallocated file.
        let unwritten = entries
            .rest
            .next_if(|entry| entry.relative_offset.get() == 0 && entry.position.get() == 0);
        entries.count -= usize::from(unwritten.is_some());
        Ok(Self {
            base_offset,
            entries,
            before: None,
        })
    }

    pub(super) fn follow(&mut self, batch: &Seen) {
        while let Some(entry) = self
            .entries
            .rest
            .next_if(|entry| u64::from(entry.position.get()) <= batch.position)
        {
            let offset = self.base_offset + i64::from(entry.relative_offset.get());
            let position = entry.position.get();
            if u64::from(position) < batch.position {
                self.entries.blame(format!(
                    "says that a batch begins at position {position}, and none does"
                ));
            }
            // Brokers before 4.0 named the last offset of several batches that were appended at once.
            if offset < batch.last_offset {
                self.entries.blame(format!(
                    "has offset {offset} for the batch at position {position}, which has the \
                     offsets {} to {}",
                    batch.first_offset, batch.last_offset
                ));
            }
            if let Some(before) = self.before
                && before >= batch.first_offset
            {
                self.entries.blame(format!(
                    "has offset {before} for a batch before position {position}, where offset {} \
                     begins",
                    batch.first_offset
                ));
            }
            self.before = Some(offset);
        }
    }

    /// What is wrong with the entries of the batches that went by.
    pub(super) fn misfit(self) -> Option<String> {
        self.entries.problem
    }

    /// What is wrong with the index of a log that ends with this offset. Each of its entries was
    /// written with one of the time index, if the time had gone on, and the last one there is that of
    /// the segment's end.
    pub(super) fn finish(mut self, last_offset: i64, timed: Option<usize>) -> Option<String> {
        if let Some(entry) = self.entries.rest.next() {
            let position = entry.position;
            self.entries.blame(format!(
                "says that a batch begins at position {position}, behind the last one of the log"
            ));
        }
        if self.before.is_some_and(|before| before > last_offset) {
            self.entries
                .blame(format!("goes beyond offset {last_offset}, the log's last"));
        }
        let count = self.entries.count;
        if timed.is_some_and(|timed| timed > count + 1) {
            self.entries.blame(format!(
                "has {count} entries, and the `.timeindex` of the same segment has {}",
                timed.unwrap_or_default()
            ));
        }
        self.entries.problem
    }
}

/// The time index.
pub(super) struct TimeEntries<'a> {
    base_offset: i64,
    entries: Entries<'a, TimeIndexEntry>,
    last: i64,
    max_timestamp: i64,
    /// Whether the headers of the batches tell their largest timestamps: those of old formats do not.
    is_known: bool,
    wrong: Option<String>,
}

impl<'a> TimeEntries<'a> {
    pub(super) fn new(base_offset: i64, bytes: &'a [u8]) -> Result<Self, RemoteStorageError> {
        Ok(Self {
            base_offset,
            entries: Entries::new(parse_time_index(bytes)?, bytes),
            last: -1,
            max_timestamp: -1,
            is_known: true,
            wrong: None,
        })
    }

    /// The number of entries.
    pub(super) fn count(&self) -> usize {
        self.entries.count
    }

    pub(super) fn follow(&mut self, batch: &Seen) {
        self.max_timestamp = self.max_timestamp.max(batch.max_timestamp);
        self.is_known &= batch.max_timestamp >= 0;
        let base_offset = self.base_offset;
        while let Some(entry) = self.entries.rest.next_if(|entry| {
            base_offset + i64::from(entry.relative_offset.get()) <= batch.last_offset
        }) {
            self.last = entry.timestamp.get();
            if self.last != self.max_timestamp {
                let (told, real) = (self.last, self.max_timestamp);
                let offset = base_offset + i64::from(entry.relative_offset.get());
                self.wrong.get_or_insert_with(|| {
                    format!(
                        "has {told} for the largest timestamp up to offset {offset}, which is {real}"
                    )
                });
            }
        }
    }

    /// What is wrong with the index. A segment that is closed gets an entry of its largest timestamp.
    pub(super) fn finish(mut self) -> Option<String> {
        if self.entries.rest.next().is_some() {
            self.entries
                .blame("goes beyond the last offset of the log".to_owned());
        }
        let is_short = self.last != self.max_timestamp;
        let wrong = self.wrong.or_else(|| {
            is_short.then(|| {
                format!(
                    "ends before {}, the largest timestamp of the log",
                    self.max_timestamp
                )
            })
        });
        let problem = self.entries.problem;
        problem.or_else(|| wrong.filter(|_| self.is_known))
    }
}

/// The transaction index; a segment without aborted transactions has none.
pub(super) struct TxnEntries<'a> {
    entries: Entries<'a, AbortedTxnIndexEntry>,
    is_there: bool,
    /// Before this offset transactions may have begun that were not walked.
    from: i64,
}

impl<'a> TxnEntries<'a> {
    pub(super) fn new(base_offset: i64, bytes: Option<&'a [u8]>, from: i64) -> Self {
        let is_there = bytes.is_some();
        let bytes = bytes.unwrap_or_default();
        let sane = TxnIndex::new(base_offset, bytes).sanity_check();
        let (entries, problem) = match sane.and_then(|()| parse_txn_index(bytes)) {
            Ok(entries) => (entries, None),
            Err(error) => (&[][..], Some(error.to_string())),
        };
        let mut entries = Entries::new(entries, &bytes[..size_of_val(entries)]);
        entries.problem = problem.map(|problem| format!("cannot be used: {problem}"));
        Self {
            entries,
            is_there,
            from,
        }
    }

    pub(super) fn follow(&mut self, abort: &Abort) {
        let offset = abort.offset;
        while let Some(entry) = self
            .entries
            .rest
            .next_if(|entry| entry.last_offset.get() < offset)
        {
            self.stray(&entry);
        }
        let entry = self.entries.rest.next_if(|entry| {
            entry.last_offset.get() == offset && entry.producer_id.get() == abort.producer_id
        });
        match (entry, abort.first_offset) {
            (Some(entry), first) => {
                let told = entry.start_offset.get();
                // Its first data may lie before what was walked.
                if first != Some(told) && told >= self.from {
                    self.entries.blame(format!(
                        "has a transaction from offset {told} to {offset} that began elsewhere"
                    ));
                }
                let (told, real) = (entry.last_stable_offset.get(), abort.last_stable_offset);
                if told != real && told >= self.from {
                    self.entries.blame(format!(
                        "has {told} for the last stable offset behind the abort at {offset}, which \
                         is {real}"
                    ));
                }
            }
            (None, Some(first)) if self.is_there => self.entries.blame(format!(
                "lacks the transaction that began at offset {first} and was aborted at {offset}"
            )),
            (None, Some(_)) => self.entries.blame(format!(
                "is not there, and a transaction was aborted at offset {offset}"
            )),
            // A marker without data.
            (None, None) => {}
        }
    }

    pub(super) fn finish(mut self) -> Option<String> {
        if let Some(entry) = self.entries.rest.next() {
            self.stray(&entry);
        }
        self.entries.problem
    }

    fn stray(&mut self, entry: &AbortedTxnIndexEntry) {
        self.entries.blame(format!(
            "has a transaction that was aborted at offset {}, where the log has no such marker",
            entry.last_offset
        ));
    }
}
