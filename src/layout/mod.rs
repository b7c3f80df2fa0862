//! Every file and key name, rendered and parsed.
//!
//! A tier is flat: one directory a partition, six files a segment in it, the same names in a local
//! tier and in a bucket. They are byte for byte those of Apache Kafka's `LocalTieredStorage`
//! (`RemoteTopicPartitionDirectory`, `RemoteLogSegmentFileset`), so a Kafka broker reads what this
//! crate writes and the other way round:
//!
//! ```text
//! [prefix/]orders-7-AAAAAAAAAAAAAAAAAAAAAQ/00000000000000000011-AAAAAAAAAAAAAAAAAAAA_g.log
//!          topic, partition, topic id      first offset         segment id             suffix
//! ```
//!
//! Ids and topics may hold `-`, so a directory name is parsed by fixed width from the right and a
//! file name by fixed width from the left. A parser answers `None` for what no writer makes and
//! never panics. [`LogFileName`] and [`LogDirName`] are about a broker's own log directories, which a
//! copy reads; [`IndexCacheFileName`] is about what a cache of indexes keeps there,
//! [`WalObjectKey`](wal_object::WalObjectKey) about the objects of diskless topics.

mod index_cache;
mod keys;
mod log_dir;
mod tier;
pub(crate) mod wal_object;

pub use index_cache::{
    IndexCacheFileName, REMOTE_INDEX_CACHE_DIR, index_cache_file_name, parse_index_cache_file_name,
};
pub use keys::{KeyPrefix, partition_dir_key, segment_key};
pub use log_dir::{
    LEADER_EPOCH_CHECKPOINT_FILE, LogDirName, LogDirState, LogFileName, PARTITION_METADATA_FILE,
    log_file_name, parse_log_dir_name, parse_log_file_name,
};
pub use tier::{
    MAX_FILE_NAME_BYTES, PartitionDirName, SEGMENT_FILE_SUFFIXES, SegmentFileName,
    check_local_dir_name, parse_partition_dir_name, parse_segment_file_name, partition_dir_name,
    segment_file_name,
};

#[cfg(test)]
use crate::model::decode_kafka_uuid;

/// Digits of an offset in a file name.
const OFFSET_DIGITS: usize = 20;

/// Splits at the offset that the text begins with.
fn split_offset(name: &str) -> Option<(i64, &str)> {
    let (digits, rest) = name.split_at_checked(OFFSET_DIGITS)?;
    Some((parse_digits(digits)?, rest))
}

/// Splits `TOPIC-PARTITION` at its last `-`: an index is never negative, and a topic may end in one.
fn split_topic_partition(text: &str) -> Option<(&str, i32)> {
    let (topic, index) = text.rsplit_once('-')?;
    let partition = i32::try_from(parse_digits(index)?).ok()?;
    is_topic(topic).then_some((topic, partition))
}

/// A number of digits alone: `str::parse` would also take a sign.
fn parse_digits(text: &str) -> Option<i64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

fn is_topic(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_cut_inside_a_character_is_no_panic() {
        // The fixed widths fall on every byte of the three-byte characters in turn.
        for padding in 0..64 {
            for text in [
                format!("{}€€€€€€€€€€", "0".repeat(padding)),
                format!("€€€€€€€€€€{}", "A".repeat(padding)),
            ] {
                assert_eq!(parse_partition_dir_name(&text), None);
                assert_eq!(parse_segment_file_name(&text), None);
                assert_eq!(parse_log_file_name(&text), None);
                assert_eq!(parse_log_dir_name(&text), None);
            }
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_a_parser_panic(text in any::<String>()) {
            let _ = decode_kafka_uuid(&text);
            let _ = parse_partition_dir_name(&text);
            let _ = parse_segment_file_name(&text);
            let _ = parse_log_file_name(&text);
            let _ = parse_log_dir_name(&text);
        }
    }
}
