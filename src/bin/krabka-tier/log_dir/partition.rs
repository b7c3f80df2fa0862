//! One partition's directory: whose it is, and which of its segments are closed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use krabka_remote_storage::RemoteStorageError;
use krabka_remote_storage::index::LeaderEpochCheckpoint;
use krabka_remote_storage::layout::{
    LEADER_EPOCH_CHECKPOINT_FILE, LogDirName, PARTITION_METADATA_FILE, parse_log_file_name,
};
use krabka_remote_storage::model::{LOG_FILE_SUFFIX, TopicIdPartition, decode_kafka_uuid};

/// A partition's directory in a broker's log directory.
#[derive(Clone, Debug)]
pub(crate) struct PartitionDir {
    pub(crate) path: PathBuf,
    pub(crate) topic_id_partition: TopicIdPartition,
}

/// The log file of a closed segment, which nobody has looked into yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClosedLog {
    pub(crate) base_offset: i64,
    /// Where the next segment begins: this one ends before it.
    pub(crate) next_base_offset: i64,
    pub(crate) size_bytes: u64,
}

impl PartitionDir {
    /// Opens a directory whose name has been parsed.
    pub(super) fn open(path: &Path, name: LogDirName<'_>) -> Result<Self, RemoteStorageError> {
        let file = path.join(PARTITION_METADATA_FILE);
        let text = fs::read_to_string(&file).map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                RemoteStorageError::InvalidArgument(format!(
                    "{} has no `{PARTITION_METADATA_FILE}`, which names the topic's id: a broker \
                     from Kafka 2.8 on writes one into each partition's directory",
                    path.display()
                ))
            } else {
                RemoteStorageError::io("read", &file, error)
            }
        })?;
        let topic_id = parse_topic_id(&text).map_err(|problem| {
            RemoteStorageError::InvalidArgument(format!("{}: {problem}", file.display()))
        })?;
        Ok(Self {
            path: path.to_owned(),
            topic_id_partition: TopicIdPartition::new(topic_id, name.topic, name.partition),
        })
    }

    /// The logs of the partition's closed segments, by base offset: all but the active one, which
    /// has the highest.
    pub(crate) fn closed_logs(&self) -> Result<Vec<ClosedLog>, RemoteStorageError> {
        let failed = |error| RemoteStorageError::io("list", &self.path, error);
        let mut logs = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // Foreign files, and those that a broker is about to delete or swap, are not meant.
            let name = entry.file_name();
            let Some(file) = name.to_str().and_then(parse_log_file_name) else {
                continue;
            };
            if file.suffix == LOG_FILE_SUFFIX {
                logs.push((file.offset, entry.path()));
            }
        }
        if logs.is_empty() {
            return Err(RemoteStorageError::InvalidArgument(format!(
                "{} holds no log segment: there is no file named after an offset of 20 digits and \
                 `{LOG_FILE_SUFFIX}`",
                self.path.display()
            )));
        }
        logs.sort_unstable();
        let mut closed = Vec::with_capacity(logs.len());
        for pair in logs.windows(2) {
            let (base_offset, path) = &pair[0];
            match fs::metadata(path) {
                Ok(metadata) => closed.push(ClosedLog {
                    base_offset: *base_offset,
                    next_base_offset: pair[1].0,
                    size_bytes: metadata.len(),
                }),
                // The broker has just deleted it. What is still there is a link that leads nowhere, as
                // to a disk that is not mounted.
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound
                        && fs::symlink_metadata(path).is_err() => {}
                Err(error) => return Err(RemoteStorageError::io("find", path, error)),
            }
        }
        Ok(closed)
    }

    /// The leader epochs of the log.
    pub(crate) fn leader_epochs(&self) -> Result<LeaderEpochCheckpoint, RemoteStorageError> {
        let file = self.path.join(LEADER_EPOCH_CHECKPOINT_FILE);
        let bytes =
            fs::read(&file).map_err(|error| RemoteStorageError::io("read", &file, error))?;
        LeaderEpochCheckpoint::parse(&bytes).map_err(|error| damaged(&file, error))
    }
}

/// Says which file an error about bytes is about.
pub(super) fn damaged(file: &Path, error: RemoteStorageError) -> RemoteStorageError {
    let error = io::Error::new(io::ErrorKind::InvalidData, error);
    RemoteStorageError::io("use", file, error)
}

/// Reads a `partition.metadata` (Kafka's `PartitionMetadataFile`): `version: 0`, `topic_id: ID`.
fn parse_topic_id(text: &str) -> Result<uuid::Uuid, String> {
    let mut version = None;
    let mut topic_id = None;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| format!("line {line:?} is not `name: value`"))?;
        match name.trim() {
            "version" => version = Some(value.trim()),
            "topic_id" => topic_id = Some(value.trim()),
            _ => {
                return Err(format!(
                    "{name:?} is not known; `version` and `topic_id` are"
                ));
            }
        }
    }
    match version {
        Some("0") => {}
        Some(other) => return Err(format!("version {other:?} is not supported; 0 is")),
        None => return Err("there is no `version`".to_owned()),
    }
    let topic_id = topic_id.ok_or("there is no `topic_id`")?;
    decode_kafka_uuid(topic_id)
        .filter(|id| !id.is_nil())
        .ok_or_else(|| format!("{topic_id:?} is no topic id: 22 characters, as Kafka writes them"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_id_is_read_as_kafka_writes_it() {
        let id = parse_topic_id("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ").unwrap();
        assert_eq!(id, uuid::Uuid::from_u128(1));
        parse_topic_id("version: 0\r\ntopic_id:  AAAAAAAAAAAAAAAAAAAAAQ\r\n").unwrap();
    }

    #[test]
    fn a_damaged_partition_metadata_says_what_is_wrong() {
        for (text, says) in [
            ("", "no `version`"),
            ("version: 0\n", "no `topic_id`"),
            (
                "version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ",
                "version \"1\"",
            ),
            (
                "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
                "no topic id",
            ),
            ("version: 0\ntopic_id: short", "no topic id"),
            ("version: 0\nother: x", "not known"),
            ("nonsense", "not `name: value`"),
        ] {
            let problem = parse_topic_id(text).unwrap_err();
            assert!(problem.contains(says), "{text:?}: {problem}");
        }
    }
}
