//! The leader-epoch checkpoint: which leader epoch began at which offset.
//!
//! A text of ASCII decimals: a line with the version `0`, a line with the number of entries, and a
//! line `epoch startOffset` for each. A broker keeps one for each partition, and a tier one for
//! each segment, which reaches from the start of the log to the end of the segment. (The epochs in
//! a segment's metadata are only those of the segment itself.)

use std::collections::BTreeMap;
use std::fmt;

use super::LogOffset;
use super::corrupt::corrupt_file;
use crate::error::RemoteStorageError;
use crate::model::LeaderEpoch;

const FILE: &str = "leader epoch checkpoint";

/// One leader epoch, and the first offset that was written in it (Kafka's `EpochEntry`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EpochEntry {
    /// The epoch.
    pub epoch: LeaderEpoch,
    /// Its first offset.
    pub start_offset: LogOffset,
}

/// The leader epochs of a log, as a checkpoint file lists them (Kafka's
/// `LeaderEpochCheckpointFile`).
///
/// `Display` is the text of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderEpochCheckpoint {
    /// The entries, in the order of the file.
    pub entries: Vec<EpochEntry>,
}

impl LeaderEpochCheckpoint {
    /// Reads the text of a checkpoint, as strictly as Kafka does. A file that is empty, or that
    /// has nothing after its version, has no entries.
    ///
    /// Any order of entries is accepted, and negative numbers, too: methods that need more say so.
    ///
    /// # Errors
    ///
    /// The checkpoint is corrupt: its version is not 0, an entry is not two numbers, or there are
    /// more or fewer of them than declared.
    pub fn parse(bytes: &[u8]) -> Result<Self, RemoteStorageError> {
        let text = std::str::from_utf8(bytes).map_err(|error| corrupt_file(FILE, error))?;
        let mut lines = text.lines();
        let Some(version) = lines.next() else {
            return Ok(Self::default());
        };
        if version.parse() != Ok(0_i32) {
            return Err(corrupt_file(
                FILE,
                format_args!("version is {version:?}, not 0"),
            ));
        }
        let Some(declared) = lines.next() else {
            return Ok(Self::default());
        };
        let count: i32 = declared.parse().map_err(|_| {
            corrupt_file(FILE, format_args!("{declared:?} is no number of entries"))
        })?;
        let entries = lines.map(parse_entry).collect::<Result<Vec<_>, _>>()?;
        if usize::try_from(count) != Ok(entries.len()) {
            return Err(corrupt_file(
                FILE,
                format_args!("{count} entries are declared, {} are there", entries.len()),
            ));
        }
        Ok(Self { entries })
    }

    /// The checkpoint that goes to the tier with a segment that ends at `end_offset`: the entries
    /// that start at or below it.
    #[must_use]
    pub fn up_to(&self, end_offset: LogOffset) -> Self {
        let mut entries = self.entries.clone();
        entries.retain(|entry| entry.start_offset <= end_offset);
        Self { entries }
    }

    /// The entries as a history of the log: each epoch with its first offset.
    ///
    /// # Errors
    ///
    /// The checkpoint is corrupt: a number is negative, or epochs or offsets do not both increase
    /// from entry to entry. (Kafka itself drops the entries that a later one contradicts.)
    pub fn lineage(&self) -> Result<BTreeMap<LeaderEpoch, LogOffset>, RemoteStorageError> {
        let mut before = EpochEntry {
            epoch: LeaderEpoch(-1),
            start_offset: -1,
        };
        for &entry in &self.entries {
            if entry.epoch <= before.epoch || entry.start_offset <= before.start_offset {
                return Err(corrupt_file(
                    FILE,
                    format_args!("`{entry}` does not come after `{before}`"),
                ));
            }
            before = entry;
        }
        Ok(self
            .entries
            .iter()
            .map(|entry| (entry.epoch, entry.start_offset))
            .collect())
    }

    /// The epochs of a segment for its metadata: those of the offsets `start_offset..=end_offset`,
    /// the first of them beginning at `start_offset`. Empty when the checkpoint knows none.
    ///
    /// # Errors
    ///
    /// Those of [`lineage`](Self::lineage).
    pub fn segment_leader_epochs(
        &self,
        start_offset: LogOffset,
        end_offset: LogOffset,
    ) -> Result<BTreeMap<LeaderEpoch, LogOffset>, RemoteStorageError> {
        let mut epochs = BTreeMap::new();
        for (epoch, first) in self.lineage()? {
            if first > end_offset {
                break;
            }
            if first <= start_offset {
                // A later epoch that covers the start takes the place of this one.
                epochs.clear();
            }
            epochs.insert(epoch, first.max(start_offset));
        }
        Ok(epochs)
    }
}

impl fmt::Display for LeaderEpochCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "0\n{}", self.entries.len())?;
        self.entries
            .iter()
            .try_for_each(|entry| writeln!(f, "{entry}"))
    }
}

impl fmt::Display for EpochEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.epoch, self.start_offset)
    }
}

fn parse_entry(line: &str) -> Result<EpochEntry, RemoteStorageError> {
    // Java's `split` keeps an empty field before leading white space, and drops one behind.
    let mut fields = line.split_ascii_whitespace();
    let fields = (fields.next(), fields.next(), fields.next());
    if let (Some(epoch), Some(start_offset), None) = fields
        && !line.starts_with(|first: char| first.is_ascii_whitespace())
        && let (Ok(epoch), Ok(start_offset)) = (epoch.parse(), start_offset.parse())
    {
        return Ok(EpochEntry {
            epoch: LeaderEpoch(epoch),
            start_offset,
        });
    }
    Err(corrupt_file(
        FILE,
        format_args!("{line:?} is no epoch and start offset"),
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOLDEN: &str = "0\n3\n0 0\n1 50\n2 100\n";

    fn checkpoint(entries: &[(i32, i64)]) -> LeaderEpochCheckpoint {
        let entries = entries
            .iter()
            .map(|&(epoch, start_offset)| EpochEntry {
                epoch: LeaderEpoch(epoch),
                start_offset,
            })
            .collect();
        LeaderEpochCheckpoint { entries }
    }

    fn parse(text: &str) -> Result<LeaderEpochCheckpoint, RemoteStorageError> {
        LeaderEpochCheckpoint::parse(text.as_bytes())
    }

    fn epochs(pairs: &[(i32, i64)]) -> BTreeMap<LeaderEpoch, i64> {
        pairs
            .iter()
            .map(|&(epoch, start)| (LeaderEpoch(epoch), start))
            .collect()
    }

    #[test]
    fn the_golden_text_is_read_and_written() {
        let three = checkpoint(&[(0, 0), (1, 50), (2, 100)]);
        assert_eq!(parse(GOLDEN).expect("checkpoint"), three);
        assert_eq!(three.to_string(), GOLDEN);
        assert_eq!(checkpoint(&[]).to_string(), "0\n0\n");
    }

    #[test]
    fn a_file_without_entries_is_empty() {
        for text in ["", "0", "0\n", "0\n0\n", "0\n0"] {
            assert_eq!(
                parse(text).expect("checkpoint"),
                checkpoint(&[]),
                "{text:?}"
            );
        }
    }

    #[test]
    fn what_kafkas_reader_refuses_is_refused() {
        for text in [
            "1\n0\n",
            "x\n0\n",
            " 0\n0\n",
            "\n",
            "0\nx\n",
            "0\n-1\n",
            "0\n1\n",
            "0\n2\n0 0\n",
            "0\n0\n0 0\n",
            "0\n1\n0 0\n\n",
            "0\n1\n0\n",
            "0\n1\n0 0 0\n",
            "0\n1\n 0 0\n",
            "0\n1\nx 0\n",
            "0\n1\n0 9223372036854775808\n",
            "0\n2147483647\n0 0\n",
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!(error.to_string(), "corrupt leader epoch checkpoint bytes");
        }
        assert!(LeaderEpochCheckpoint::parse(b"0\n1\n0 \xff\n").is_err());
    }

    #[test]
    fn what_kafkas_reader_accepts_is_accepted() {
        for text in ["0\r\n1\r\n3 7\r\n", "0\n1\n3 \t7 \n", "0\n1\n3 7"] {
            assert_eq!(parse(text).expect(text), checkpoint(&[(3, 7)]));
        }
        let disorder = parse("0\n2\n5 9\n-1 3\n").expect("checkpoint");
        assert_eq!(disorder, checkpoint(&[(5, 9), (-1, 3)]));
        assert!(disorder.lineage().is_err());
        assert!(checkpoint(&[(0, 5), (1, 5)]).lineage().is_err());
        assert!(checkpoint(&[(0, -1)]).lineage().is_err());
    }

    #[test]
    fn a_segments_checkpoint_ends_with_the_segment() {
        let all = parse(GOLDEN).expect("checkpoint");
        assert_eq!(all.up_to(49), checkpoint(&[(0, 0)]));
        assert_eq!(all.up_to(50), checkpoint(&[(0, 0), (1, 50)]));
        assert_eq!(all.up_to(1000), all);
    }

    #[test]
    fn a_segments_epochs_begin_with_the_one_that_covers_its_start() {
        let all = parse(GOLDEN).expect("checkpoint");
        let of = |start, end| all.segment_leader_epochs(start, end).expect("epochs");
        assert_eq!(of(0, 49), epochs(&[(0, 0)]));
        assert_eq!(of(10, 50), epochs(&[(0, 10), (1, 50)]));
        assert_eq!(of(50, 99), epochs(&[(1, 50)]));
        assert_eq!(of(60, 300), epochs(&[(1, 60), (2, 100)]));
        let late = checkpoint(&[(4, 20)]);
        assert_eq!(
            late.segment_leader_epochs(0, 10).expect("epochs"),
            epochs(&[])
        );
        assert_eq!(
            late.segment_leader_epochs(0, 30).expect("epochs"),
            epochs(&[(4, 20)])
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = LeaderEpochCheckpoint::parse(&bytes);
        }

        #[test]
        fn near_misses_are_read_or_refused(text in "[0-2]\n[0-3]\n([0-9]{1,2} ?[0-9]{0,20}\n?){0,3}") {
            if let Ok(read) = parse(&text) {
                prop_assert_eq!(parse(&read.to_string()).expect("checkpoint"), read.clone());
                let _ = read.segment_leader_epochs(3, 30);
            }
        }

        #[test]
        fn what_is_written_is_read_again(entries in proptest::collection::vec(any::<(i32, i64)>(), 0..20)) {
            let written = checkpoint(&entries);
            prop_assert_eq!(parse(&written.to_string()).expect("checkpoint"), written);
        }
    }
}
