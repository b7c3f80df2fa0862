//! Names in a broker's own log directories, which a copy reads.

use super::{OFFSET_DIGITS, split_offset, split_topic_partition};
use crate::error::RemoteStorageError;

/// File name of a local log's leader epochs.
pub const LEADER_EPOCH_CHECKPOINT_FILE: &str = "leader-epoch-checkpoint";

/// File name of a local log's topic id.
pub const PARTITION_METADATA_FILE: &str = "partition.metadata";

/// The name of a file in a broker's own partition directory: the offset in 20 digits and the
/// suffix, its dot included.
///
/// For `.log` and the indexes it is the segment's first offset; for a `.snapshot` the offset up to
/// which (exclusive) it holds the producer state, so the one that belongs to a segment is named
/// after the first offset of the next.
///
/// # Errors
///
/// [`InvalidArgument`](RemoteStorageError::InvalidArgument) for a negative offset.
pub fn log_file_name(offset: i64, suffix: &str) -> Result<String, RemoteStorageError> {
    if offset < 0 {
        return Err(RemoteStorageError::InvalidArgument(format!(
            "offset {offset} cannot name a log file: it is negative"
        )));
    }
    Ok(format!("{offset:0OFFSET_DIGITS$}{suffix}"))
}

/// A parsed [`log_file_name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFileName<'a> {
    /// The offset that the file is named after.
    pub offset: i64,
    /// All that follows it. Beside those of [`SEGMENT_FILE_SUFFIXES`](super::SEGMENT_FILE_SUFFIXES)
    /// a broker leaves files that end in `.deleted`, `.cleaned` or `.swap`: the caller decides what it
    /// knows.
    pub suffix: &'a str,
}

/// Parses the name of a file in a broker's partition directory.
///
/// `None` unless it begins with 20 digits that are an offset and goes on with a dot.
pub fn parse_log_file_name(name: &str) -> Option<LogFileName<'_>> {
    let (offset, suffix) = split_offset(name)?;
    suffix
        .starts_with('.')
        .then_some(LogFileName { offset, suffix })
}

/// What a broker does with one of its partition directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogDirState {
    /// The partition's log: `TOPIC-PARTITION`.
    Current,
    /// A new replica that is not yet in use: `TOPIC-PARTITION.ID-future`.
    Future,
    /// Renamed, to be deleted: `TOPIC-PARTITION.ID-delete`.
    Deleted,
    /// Left behind by a partition that moved elsewhere: `TOPIC-PARTITION.ID-stray`.
    Stray,
}

/// The name of a partition's directory in a broker's log directory (an entry of `log.dirs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogDirName<'a> {
    /// The topic's name. A broker may have cut it short in a directory that is not
    /// [`Current`](LogDirState::Current), to stay within
    /// [`MAX_FILE_NAME_BYTES`](super::MAX_FILE_NAME_BYTES).
    pub topic: &'a str,
    /// The partition's index in the topic.
    pub partition: i32,
    /// What the broker does with the directory.
    pub state: LogDirState,
}

/// Parses the name of a partition's directory as a broker's `log.dirs` has them (Kafka's
/// `LocalLog.parseTopicPartitionName`).
///
/// `None` unless it is Kafka's topic characters, a `-` and a partition index, or these with a
/// unique id and `-future`, `-delete` or `-stray` behind. Internal topics are named like others.
pub fn parse_log_dir_name(name: &str) -> Option<LogDirName<'_>> {
    const MARKS: [(&str, LogDirState); 3] = [
        ("-future", LogDirState::Future),
        ("-delete", LogDirState::Deleted),
        ("-stray", LogDirState::Stray),
    ];
    let marked = MARKS
        .into_iter()
        .find_map(|(mark, state)| Some((name.strip_suffix(mark)?, state)));
    let (topic_partition, state) = match marked {
        Some((rest, state)) => {
            let (topic_partition, unique_id) = rest.rsplit_once('.')?;
            if unique_id.is_empty() {
                return None;
            }
            (topic_partition, state)
        }
        None => (name, LogDirState::Current),
    };
    let (topic, partition) = split_topic_partition(topic_partition)?;
    Some(LogDirName {
        topic,
        partition,
        state,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::SEGMENT_FILE_SUFFIXES;
    use super::*;

    #[test]
    fn log_files_are_named_after_20_digits() {
        assert_eq!(
            log_file_name(0, ".log").unwrap(),
            "00000000000000000000.log"
        );
        assert_eq!(
            log_file_name(i64::MAX, ".snapshot").unwrap(),
            "09223372036854775807.snapshot"
        );
        let error = log_file_name(-1, ".log").unwrap_err();
        assert!(
            matches!(error, RemoteStorageError::InvalidArgument(_)),
            "{error:?}"
        );
        for (name, offset, suffix) in [
            ("00000000000000000011.log", 11, ".log"),
            ("00000000000000000011.log.deleted", 11, ".log.deleted"),
            ("00000000000000000011.index.swap", 11, ".index.swap"),
            ("00000000000000000011.", 11, "."),
        ] {
            assert_eq!(
                parse_log_file_name(name),
                Some(LogFileName { offset, suffix })
            );
        }
    }

    #[test]
    fn other_names_are_no_log_file() {
        for name in [
            LEADER_EPOCH_CHECKPOINT_FILE,
            PARTITION_METADATA_FILE,
            "0.log",
            "0000000000000000011.log",
            "000000000000000000011.log",
            "99999999999999999999.log",
            "-0000000000000000011.log",
            "00000000000000000011",
            "00000000000000000011-AAAAAAAAAAAAAAAAAAAAAQ.log",
            ".kafka_cleanshutdown",
            "",
        ] {
            assert_eq!(parse_log_file_name(name), None, "{name:?}");
        }
    }

    #[test]
    fn a_brokers_partition_directories_are_told_apart() {
        use LogDirState::{Current, Deleted, Future, Stray};
        for (name, topic, partition, state) in [
            ("orders-3", "orders", 3, Current),
            (
                "clicks.log-append_time-0",
                "clicks.log-append_time",
                0,
                Current,
            ),
            ("__consumer_offsets-49", "__consumer_offsets", 49, Current),
            ("a-delete-0", "a-delete", 0, Current),
            ("orders--1", "orders-", 1, Current),
            (
                "orders-3.0123456789abcdef0123456789abcdef-delete",
                "orders",
                3,
                Deleted,
            ),
            ("a.b-3.0123456789abcdef-future", "a.b", 3, Future),
            ("orders-3.0123456789abcdef-stray", "orders", 3, Stray),
        ] {
            let expected = LogDirName {
                topic,
                partition,
                state,
            };
            assert_eq!(parse_log_dir_name(name), Some(expected), "{name}");
        }
    }

    #[test]
    fn other_names_are_no_partition_directory_of_a_broker() {
        for name in [
            "",
            "orders",
            "-3",
            "orders-",
            "orders-x",
            "orders-+3",
            "orders-2147483648",
            "lost found-3",
            "orders-3-delete",
            "orders-3.-delete",
            "orders.0123-delete",
            "remote-log-index-cache",
            "meta.properties",
            "recovery-point-offset-checkpoint",
        ] {
            assert_eq!(parse_log_dir_name(name), None, "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn a_rendered_log_file_name_is_parsed_back(
            offset in 0..=i64::MAX,
            suffix in proptest::sample::select(&SEGMENT_FILE_SUFFIXES[..]),
        ) {
            let name = log_file_name(offset, suffix).unwrap();
            prop_assert_eq!(parse_log_file_name(&name), Some(LogFileName { offset, suffix }));
        }

        #[test]
        fn a_log_directory_of_any_topic_is_parsed_back(
            topic in "[a-zA-Z0-9._-]{1,40}",
            partition in 0..=i32::MAX,
        ) {
            let name = format!("{topic}-{partition}");
            prop_assert_eq!(
                parse_log_dir_name(&name),
                Some(LogDirName { topic: &topic, partition, state: LogDirState::Current })
            );
        }
    }
}
