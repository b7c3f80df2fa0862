//! Names of a tier's directories and files.

use std::fmt::{self, Write as _};

use uuid::Uuid;

use super::{OFFSET_DIGITS, split_offset, split_topic_partition};
use crate::error::RemoteStorageError;
use crate::model::{
    IndexType, KAFKA_UUID_LEN, LOG_FILE_SUFFIX, RemoteLogSegmentMetadata, TopicIdPartition,
    decode_kafka_uuid, kafka_text, push_kafka_text,
};

/// The suffixes of a segment's objects, `.log` first, in the order of Kafka's artifacts.
pub const SEGMENT_FILE_SUFFIXES: [&str; 6] = [
    LOG_FILE_SUFFIX,
    IndexType::Offset.suffix(),
    IndexType::Timestamp.suffix(),
    IndexType::ProducerSnapshot.suffix(),
    IndexType::LeaderEpoch.suffix(),
    IndexType::Transaction.suffix(),
];

/// The longest name, in bytes, that local file systems take for one file or directory.
pub const MAX_FILE_NAME_BYTES: usize = 255;

/// The name of the directory that holds a partition's segments: `TOPIC-PARTITION-TOPICID`.
pub fn partition_dir_name(metadata: &RemoteLogSegmentMetadata) -> String {
    let mut name = String::new();
    push_partition_dir_name(&mut name, metadata.topic_id_partition());
    name
}

/// A parsed [`partition_dir_name`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionDirName {
    /// The topic's name.
    pub topic: String,
    /// The partition's index in the topic.
    pub partition: i32,
    /// The topic's unique id.
    pub topic_id: Uuid,
}

/// The name, in the one spelling that is written.
impl fmt::Display for PartitionDirName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_partition_dir_name(f, &self.topic, self.partition, &self.topic_id)
    }
}

/// Parses the name of a partition's directory in a tier.
///
/// `None` unless it ends in a 22-character id and a partition index of digits alone, and begins
/// with at least one of Kafka's topic characters (`a-z A-Z 0-9 . _ -`) and nothing else. Leading
/// zeros of the index are accepted, as Kafka does.
pub fn parse_partition_dir_name(name: &str) -> Option<PartitionDirName> {
    let (topic_and_index, id) = name.split_at_checked(name.len().checked_sub(KAFKA_UUID_LEN)?)?;
    let topic_id = decode_kafka_uuid(id)?;
    let (topic, partition) = split_topic_partition(topic_and_index.strip_suffix('-')?)?;
    Some(PartitionDirName {
        topic: topic.to_owned(),
        partition,
        topic_id,
    })
}

/// The name of one of a segment's files: `OFFSET-SEGMENTID` and the suffix.
///
/// The offset is the segment's first, in 20 digits. `suffix` begins with its dot, see
/// [`SEGMENT_FILE_SUFFIXES`].
pub fn segment_file_name(metadata: &RemoteLogSegmentMetadata, suffix: &str) -> String {
    let mut name = String::new();
    push_segment_file_name(&mut name, metadata, suffix);
    name
}

/// A parsed [`segment_file_name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFileName<'a> {
    /// The segment's first offset.
    pub base_offset: i64,
    /// The segment's id.
    pub segment_id: Uuid,
    /// All that follows the id. It may be empty or unknown: the caller decides what it knows.
    pub suffix: &'a str,
}

/// The name, in the one spelling that is written and parsed.
impl fmt::Display for SegmentFileName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            base_offset,
            segment_id,
            suffix,
        } = self;
        let id = kafka_text(segment_id);
        write!(f, "{base_offset:0OFFSET_DIGITS$}-{id}{suffix}")
    }
}

/// Parses the name of a segment's file in a tier.
///
/// `None` unless it begins with 20 digits that are an offset, a `-` and a 22-character id.
pub fn parse_segment_file_name(name: &str) -> Option<SegmentFileName<'_>> {
    let (base_offset, rest) = split_offset(name)?;
    let (id, suffix) = rest.strip_prefix('-')?.split_at_checked(KAFKA_UUID_LEN)?;
    Some(SegmentFileName {
        base_offset,
        segment_id: decode_kafka_uuid(id)?,
        suffix,
    })
}

/// Checks that local file systems take a directory of this name.
///
/// Kafka allows topic names of 249 characters; with more than 231 minus the digits of the
/// partition, a [`partition_dir_name`] is longer than [`MAX_FILE_NAME_BYTES`]. (Names of files are
/// always shorter.) To be called before anything is written.
///
/// # Errors
///
/// [`InvalidArgument`](RemoteStorageError::InvalidArgument) when the name is too long.
pub fn check_local_dir_name(name: &str) -> Result<(), RemoteStorageError> {
    if name.len() <= MAX_FILE_NAME_BYTES {
        return Ok(());
    }
    Err(RemoteStorageError::InvalidArgument(format!(
        "directory name `{name}` has {} bytes, and local file systems take {MAX_FILE_NAME_BYTES}: \
         tier this topic to an object store, its name is too long for a local tier",
        name.len()
    )))
}

/// Names are made for every request, so these two do without the machinery of `write!`.
pub(super) fn push_partition_dir_name(name: &mut String, tp: &TopicIdPartition) {
    name.push_str(&tp.topic);
    name.push('-');
    push_number(name, tp.partition.into(), 1);
    name.push('-');
    push_kafka_text(name, &tp.topic_id);
}

/// Appends a number, with zeros before it up to so many characters.
fn push_number(name: &mut String, number: i64, width: usize) {
    let Ok(mut rest) = u64::try_from(number) else {
        // No segment and no partition has such a number. Writing to a string cannot fail.
        let _ = write!(name, "{number:0width$}");
        return;
    };
    let mut digits = [b'0'; OFFSET_DIGITS];
    let mut begin = digits.len();
    for digit in digits.iter_mut().rev() {
        if rest == 0 {
            break;
        }
        *digit += (rest % 10) as u8;
        rest /= 10;
        begin -= 1;
    }
    let begin = begin.min(digits.len() - width);
    name.push_str(std::str::from_utf8(&digits[begin..]).unwrap_or_default());
}

fn write_partition_dir_name(
    out: &mut impl fmt::Write,
    topic: &str,
    partition: i32,
    topic_id: &Uuid,
) -> fmt::Result {
    write!(out, "{topic}-{partition}-{}", kafka_text(topic_id))
}

pub(super) fn push_segment_file_name(
    name: &mut String,
    metadata: &RemoteLogSegmentMetadata,
    suffix: &str,
) {
    push_number(name, metadata.start_offset(), OFFSET_DIGITS);
    name.push('-');
    push_kafka_text(name, &metadata.remote_log_segment_id().id);
    name.push_str(suffix);
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::segments::SegmentSpec;

    const ID_1: &str = "AAAAAAAAAAAAAAAAAAAAAQ";

    pub(in crate::layout) fn segment(
        topic: &str,
        partition: i32,
        topic_id: Uuid,
        offset: i64,
        id: Uuid,
    ) -> RemoteLogSegmentMetadata {
        let tp = TopicIdPartition::new(topic_id, topic, partition);
        let spec = SegmentSpec::new(id.as_u128(), offset..=offset).of(&tp);
        spec.make()
    }

    pub(in crate::layout) fn orders(offset: i64, id: u128) -> RemoteLogSegmentMetadata {
        segment("orders", 0, Uuid::from_u128(1), offset, Uuid::from_u128(id))
    }

    #[test]
    fn directories_and_files_have_kafkas_names() {
        let metadata = segment("orders", 7, Uuid::from_u128(1), 11, Uuid::from_u128(0xfe));
        assert_eq!(partition_dir_name(&metadata), format!("orders-7-{ID_1}"));
        assert_eq!(
            segment_file_name(&metadata, ".snapshot"),
            "00000000000000000011-AAAAAAAAAAAAAAAAAAAA_g.snapshot"
        );
        assert_eq!(
            segment_file_name(&orders(i64::MAX, 1), ".log"),
            format!("09223372036854775807-{ID_1}.log")
        );
    }

    #[test]
    fn directory_names_are_parsed_from_the_right() {
        let id_1 = Uuid::from_u128(1);
        for (name, topic, partition, topic_id) in [
            ("orders-7-AAAAAAAAAAAAAAAAAAAAAQ", "orders", 7, id_1),
            ("orders-7-3-AAAAAAAAAAAAAAAAAAAAAQ", "orders-7", 3, id_1),
            ("orders--1-AAAAAAAAAAAAAAAAAAAAAQ", "orders-", 1, id_1),
            (
                "-abcd-10--3-_____________________w",
                "-abcd-10-",
                3,
                Uuid::max(),
            ),
            (
                "t-0--AAAAAAAAAAAAAAAAAAAAA",
                "t",
                0,
                Uuid::from_u128(0xf8 << 120),
            ),
            ("orders-07-AAAAAAAAAAAAAAAAAAAAAQ", "orders", 7, id_1),
            (
                "orders-2147483647-AAAAAAAAAAAAAAAAAAAAAQ",
                "orders",
                i32::MAX,
                id_1,
            ),
        ] {
            let expected = PartitionDirName {
                topic: topic.to_owned(),
                partition,
                topic_id,
            };
            assert_eq!(parse_partition_dir_name(name), Some(expected), "{name}");
        }
    }

    #[test]
    fn other_names_are_no_partition_directory() {
        for name in [
            "orders-7-AAAAAAAAAAAAAAAAAAAAA",
            "orders-7-AAAAAAAAAAAAAAAAAAAAAQA",
            "orders-7-AAAAAAAAAAAAAAAAAAAAAQQ",
            "orders-7-AAAAAAAAAAAAAAAAAAAAAR",
            "orders-x-AAAAAAAAAAAAAAAAAAAAAQ",
            "-7-AAAAAAAAAAAAAAAAAAAAAQ",
            "or/ders-7-AAAAAAAAAAAAAAAAAAAAAQ",
            "orders-AAAAAAAAAAAAAAAAAAAAAQ",
            "orders--AAAAAAAAAAAAAAAAAAAAAQ",
            "orders-2147483648-AAAAAAAAAAAAAAAAAAAAAQ",
            "orders-99999999999999999999-AAAAAAAAAAAAAAAAAAAAAQ",
            "orders-+7-AAAAAAAAAAAAAAAAAAAAAQ",
            "orders-7AAAAAAAAAAAAAAAAAAAAAQ",
            "orders-٧-AAAAAAAAAAAAAAAAAAAAAQ",
            "ordérs-7-AAAAAAAAAAAAAAAAAAAAAQ",
            "AAAAAAAAAAAAAAAAAAAAAQ",
            "-AAAAAAAAAAAAAAAAAAAAAQ",
            "",
            "orders",
        ] {
            assert_eq!(parse_partition_dir_name(name), None, "{name:?}");
        }
    }

    #[test]
    fn file_names_are_parsed_from_the_left_with_any_suffix() {
        for suffix in ["", ".log", ".leader_epoch_checkpoint", ".unknown", "-x.y"] {
            let name = format!("00000000000000000011--AAAAAAAAAAAAAAAAAAAAA{suffix}");
            let expected = SegmentFileName {
                base_offset: 11,
                segment_id: Uuid::from_u128(0xf8 << 120),
                suffix,
            };
            assert_eq!(parse_segment_file_name(&name), Some(expected));
        }
    }

    #[test]
    fn other_names_are_no_segment_file() {
        for name in [
            "0000000000000000011-AAAAAAAAAAAAAAAAAAAAAQ.log",
            "0000000000000000001x-AAAAAAAAAAAAAAAAAAAAAQ.log",
            "99999999999999999999-AAAAAAAAAAAAAAAAAAAAAQ.log",
            "09223372036854775808-AAAAAAAAAAAAAAAAAAAAAQ.log",
            "00000000000000000011_AAAAAAAAAAAAAAAAAAAAAQ.log",
            "00000000000000000011AAAAAAAAAAAAAAAAAAAAAQ.log",
            "00000000000000000011-AAAAAAAAAAAAAAAAAAAAA.log",
            "00000000000000000011-AAAAAAAAAAAAAAAAAAAAA",
            "00000000000000000011-AAAAAAAAAA+AAAAAAAAAAQ.log",
            "00000000000000000011-AAAAAAAAAAAAAAAAAAAAAR.log",
            "+0000000000000000011-AAAAAAAAAAAAAAAAAAAAAQ.log",
            "-0000000000000000011-AAAAAAAAAAAAAAAAAAAAAQ.log",
            "",
        ] {
            assert_eq!(parse_segment_file_name(name), None, "{name:?}");
        }
    }

    #[test]
    fn a_directory_name_over_255_bytes_is_refused_for_a_local_tier() {
        for (partition, longest) in [(7, 230), (10, 229), (i32::MAX, 221)] {
            let dir_name = |topic_length| {
                let topic = "t".repeat(topic_length);
                partition_dir_name(&segment(&topic, partition, Uuid::nil(), 0, Uuid::nil()))
            };
            let name = dir_name(longest);
            assert_eq!(name.len(), 255);
            check_local_dir_name(&name).unwrap();

            let name = dir_name(longest + 1);
            let error = check_local_dir_name(&name).unwrap_err();
            let text = error.to_string();
            assert!(
                matches!(error, RemoteStorageError::InvalidArgument(_)),
                "{error:?}"
            );
            assert!(text.contains("has 256 bytes"), "{text}");
            assert!(text.contains(&name), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_rendered_directory_name_is_parsed_back(
            topic in "[a-z0-9]{1,6}(-[a-z0-9]{1,6}){0,3}",
            partition in 0..=i32::MAX,
            topic_id in any::<u128>(),
        ) {
            let topic_id = Uuid::from_u128(topic_id);
            let metadata = segment(&topic, partition, topic_id, 0, Uuid::nil());
            prop_assert_eq!(
                parse_partition_dir_name(&partition_dir_name(&metadata)),
                Some(PartitionDirName { topic, partition, topic_id })
            );
        }

        #[test]
        fn a_rendered_file_name_is_parsed_back(
            base_offset in 0..=i64::MAX,
            segment_id in any::<u128>(),
            suffix in proptest::sample::select(&SEGMENT_FILE_SUFFIXES[..]),
        ) {
            let segment_id = Uuid::from_u128(segment_id);
            let metadata = segment("t", 0, Uuid::nil(), base_offset, segment_id);
            let name = segment_file_name(&metadata, suffix);
            prop_assert_eq!(
                parse_segment_file_name(&name),
                Some(SegmentFileName { base_offset, segment_id, suffix })
            );
        }
    }
}
