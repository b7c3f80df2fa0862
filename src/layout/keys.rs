//! Keys of a tier's objects in a bucket or container.

use object_store::path::Path;

use super::is_topic;
use super::tier::{push_partition_dir_name, push_segment_file_name};
use crate::error::RemoteStorageError;
use crate::model::{RemoteLogSegmentMetadata, TopicIdPartition};

/// Where in a bucket or container a tier lies: the front part of each of its keys, or nothing.
///
/// `/tier/`, ` tier/ ` and `tier` are the same prefix. The `Default` is none: the tier's partitions
/// stand at the root.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct KeyPrefix(Path);

impl KeyPrefix {
    /// Takes `prefix` without the white space and slashes around it; what is blank is no prefix.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument) for a prefix that cannot be part of
    /// a key as it stands: with an empty, `.` or `..` segment, or with ASCII control characters.
    pub fn new(prefix: &str) -> Result<Self, RemoteStorageError> {
        let trimmed = prefix.trim_matches(|c: char| c == '/' || c.is_whitespace());
        Path::parse(trimmed).map(Self).map_err(|_| {
            RemoteStorageError::InvalidArgument(format!(
                "prefix {trimmed:?} cannot stand in an object key: leave out `//`, `.` and `..` \
                 segments and control characters"
            ))
        })
    }

    /// The prefix as a path without slashes around it; the root if there is none.
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// The start of a key below this prefix, its `/` included.
    pub(super) fn start_key(&self) -> String {
        // Room for the longest key of most tiers, so that it is built in one allocation.
        let mut key = String::with_capacity(self.0.as_ref().len() + 192);
        if !self.0.is_root() {
            key.push_str(self.0.as_ref());
            key.push('/');
        }
        key
    }
}

/// The key of the directory that holds the partition's segments, without a slash at its end.
///
/// # Errors
///
/// As for [`segment_key`].
pub fn partition_dir_key(
    prefix: &KeyPrefix,
    metadata: &RemoteLogSegmentMetadata,
) -> Result<Path, RemoteStorageError> {
    check_key_parts(metadata.topic_id_partition())?;
    let mut key = prefix.start_key();
    push_partition_dir_name(&mut key, metadata.topic_id_partition());
    parse_key(&key)
}

/// The key of one of a segment's objects: prefix,
/// [`partition_dir_name`](super::partition_dir_name) and
/// [`segment_file_name`](super::segment_file_name), joined by `/`.
///
/// # Errors
///
/// [`InvalidArgument`](RemoteStorageError::InvalidArgument) when the names would not be parsed
/// back: for a topic that is empty or has characters that Kafka does not allow, a `/` for example,
/// and for a negative partition.
pub fn segment_key(
    prefix: &KeyPrefix,
    metadata: &RemoteLogSegmentMetadata,
    suffix: &str,
) -> Result<Path, RemoteStorageError> {
    check_key_parts(metadata.topic_id_partition())?;
    let mut key = prefix.start_key();
    push_partition_dir_name(&mut key, metadata.topic_id_partition());
    key.push('/');
    push_segment_file_name(&mut key, metadata, suffix);
    parse_key(&key)
}

fn check_key_parts(tp: &TopicIdPartition) -> Result<(), RemoteStorageError> {
    if !is_topic(&tp.topic) {
        return Err(RemoteStorageError::InvalidArgument(format!(
            "topic {:?} cannot stand in an object key: a topic name has one or more of \
             a-z A-Z 0-9 . _ -",
            tp.topic
        )));
    }
    if tp.partition < 0 {
        return Err(RemoteStorageError::InvalidArgument(format!(
            "partition {} of topic {} is negative",
            tp.partition, tp.topic
        )));
    }
    Ok(())
}

pub(super) fn parse_key(key: &str) -> Result<Path, RemoteStorageError> {
    Path::parse(key).map_err(|_| {
        RemoteStorageError::InvalidArgument(format!("{key:?} cannot be an object's key"))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::super::tier::tests::{orders, segment};
    use super::*;

    #[test]
    fn a_key_is_prefix_directory_and_file() {
        let prefix = KeyPrefix::new("c").unwrap();
        let metadata = orders(0, 0x1e);
        assert_eq!(
            segment_key(&prefix, &metadata, ".log").unwrap().as_ref(),
            "c/orders-0-AAAAAAAAAAAAAAAAAAAAAQ/00000000000000000000-AAAAAAAAAAAAAAAAAAAAHg.log"
        );
        assert_eq!(
            partition_dir_key(&prefix, &metadata).unwrap().as_ref(),
            "c/orders-0-AAAAAAAAAAAAAAAAAAAAAQ"
        );
        assert_eq!(
            segment_key(&KeyPrefix::default(), &metadata, ".index")
                .unwrap()
                .as_ref(),
            "orders-0-AAAAAAAAAAAAAAAAAAAAAQ/00000000000000000000-AAAAAAAAAAAAAAAAAAAAHg.index"
        );
        assert_eq!(
            partition_dir_key(&KeyPrefix::default(), &metadata)
                .unwrap()
                .as_ref(),
            "orders-0-AAAAAAAAAAAAAAAAAAAAAQ"
        );
    }

    #[test]
    fn a_prefix_is_kept_as_written_so_that_keys_below_it_are_found_again() {
        let prefix = KeyPrefix::new("über/100%/~me").unwrap();
        let key = segment_key(&prefix, &orders(0, 1), ".log").unwrap();
        assert!(key.as_ref().starts_with("über/100%/~me/orders-0-"), "{key}");
        let below: Vec<_> = key.prefix_match(prefix.as_path()).unwrap().collect();
        assert_eq!(below.len(), 2);
    }

    #[test]
    fn a_topic_or_partition_that_no_parser_reads_back_makes_no_key() {
        for topic in ["", "a/b", "../../etc", "a b", "é", "a\n"] {
            let metadata = segment(topic, 0, Uuid::nil(), 0, Uuid::nil());
            let error = segment_key(&KeyPrefix::default(), &metadata, ".log").unwrap_err();
            assert!(
                matches!(&error, RemoteStorageError::InvalidArgument(text) if text.contains("topic")),
                "{topic:?}: {error}"
            );
            partition_dir_key(&KeyPrefix::default(), &metadata).unwrap_err();
        }
        let metadata = segment("orders", -1, Uuid::nil(), 0, Uuid::nil());
        let error = segment_key(&KeyPrefix::default(), &metadata, ".log").unwrap_err();
        assert_eq!(
            error.to_string(),
            "partition -1 of topic orders is negative"
        );
        partition_dir_key(&KeyPrefix::default(), &metadata).unwrap_err();
    }

    #[test]
    fn spellings_of_a_prefix_are_one_prefix() {
        for spelling in ["/tier/", " tier/ ", "tier", "//tier", "/ tier /"] {
            assert_eq!(
                KeyPrefix::new(spelling).unwrap().as_path().as_ref(),
                "tier",
                "{spelling:?}"
            );
        }
        for blank in ["", "/", "///", "   ", "\t\n", " / / "] {
            assert_eq!(
                KeyPrefix::new(blank).unwrap(),
                KeyPrefix::default(),
                "{blank:?}"
            );
        }
        assert_eq!(
            KeyPrefix::new("/a/b/c/").unwrap().as_path().as_ref(),
            "a/b/c"
        );
    }

    #[test]
    fn a_prefix_that_cannot_stand_in_a_key_is_refused() {
        for prefix in ["c//orders", "a/../b", "a/./b", "..", ".", "a\u{0}b", "a\nb"] {
            let error = KeyPrefix::new(prefix).unwrap_err();
            let RemoteStorageError::InvalidArgument(text) = error else {
                panic!("{prefix:?}: {error:?}");
            };
            assert!(text.starts_with(&format!("prefix {prefix:?} ")), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_normalised_prefix_stays_as_it_is(prefix in any::<String>()) {
            if let Ok(prefix) = KeyPrefix::new(&prefix) {
                prop_assert_eq!(KeyPrefix::new(prefix.as_path().as_ref()).unwrap(), prefix);
            }
        }
    }
}
