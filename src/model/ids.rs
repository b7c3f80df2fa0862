//! Who a segment belongs to, and which segment it is.

use std::fmt;
use std::hash::{Hash, Hasher};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The epoch of a partition's leader: it grows by at least one with every change of leader.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct LeaderEpoch(pub i32);

impl fmt::Display for LeaderEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A partition of a topic, identified for good by the topic's id.
///
/// Two values are equal when topic id and partition are: the name is a label for people and for
/// key names, and the name that belongs to a topic id never changes. Apache Kafka also compares
/// the name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TopicIdPartition {
    /// The topic's unique id.
    pub topic_id: Uuid,
    /// The topic's name.
    pub topic: String,
    /// The partition's index in the topic.
    pub partition: i32,
}

impl TopicIdPartition {
    /// Names partition `partition` of the topic with this id and name.
    pub fn new(topic_id: Uuid, topic: impl Into<String>, partition: i32) -> Self {
        Self {
            topic_id,
            topic: topic.into(),
            partition,
        }
    }
}

impl PartialEq for TopicIdPartition {
    fn eq(&self, other: &Self) -> bool {
        self.topic_id == other.topic_id && self.partition == other.partition
    }
}

impl Eq for TopicIdPartition {}

impl Hash for TopicIdPartition {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.topic_id.hash(state);
        self.partition.hash(state);
    }
}

impl fmt::Display for TopicIdPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}-{} (topic id {})",
            self.topic,
            self.partition,
            text(self.topic_id)
        )
    }
}

/// One attempt to copy a log segment to the remote tier.
///
/// Every attempt has an id of its own, also a repeated one for the same log segment, so objects
/// of different attempts never share a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RemoteLogSegmentId {
    /// The partition that the segment belongs to.
    pub topic_id_partition: TopicIdPartition,
    /// The id of the copy attempt.
    pub id: Uuid,
}

impl RemoteLogSegmentId {
    /// Names the copy attempt `id` of a segment of this partition.
    pub fn new(topic_id_partition: TopicIdPartition, id: Uuid) -> Self {
        Self {
            topic_id_partition,
            id,
        }
    }

    /// Names a new copy attempt, with a fresh [`random_kafka_uuid`].
    pub fn generate_new(topic_id_partition: TopicIdPartition) -> Self {
        Self::new(topic_id_partition, random_kafka_uuid())
    }
}

impl fmt::Display for RemoteLogSegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tp = &self.topic_id_partition;
        write!(f, "{} of {}-{}", text(self.id), tp.topic, tp.partition)
    }
}

/// A random (version 4) id as Apache Kafka's `Uuid.randomUuid` makes them.
///
/// Kafka reserves 0 and 1, and leaves out ids whose Base64 text begins with `-`, because such a
/// text looks like an option on a command line. Ids of that kind are accepted everywhere as input.
pub fn random_kafka_uuid() -> Uuid {
    loop {
        let id = Uuid::new_v4();
        // Version 4 sets a bit that 0 and 1 lack, so only the text needs a look.
        if !text(id).starts_with('-') {
            return id;
        }
    }
}

/// Kafka's text of an id; `layout::kafka_uuid` is its public form.
pub(crate) fn text(id: Uuid) -> String {
    URL_SAFE_NO_PAD.encode(id.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn partitions_are_equal_by_topic_id_and_index_whatever_the_name() {
        let a = TopicIdPartition::new(Uuid::from_u128(1), "orders", 3);
        let renamed = TopicIdPartition::new(Uuid::from_u128(1), "other", 3);
        assert_eq!(a, renamed);
        assert_ne!(a, TopicIdPartition::new(Uuid::from_u128(2), "orders", 3));
        assert_ne!(a, TopicIdPartition::new(Uuid::from_u128(1), "orders", 4));
        assert!(HashSet::from([a]).contains(&renamed));
    }

    #[test]
    fn a_serde_round_trip_keeps_the_name_that_equality_ignores() {
        let id = RemoteLogSegmentId::new(
            TopicIdPartition::new(Uuid::from_u128(1), "orders", 3),
            Uuid::from_u128(2),
        );
        let json = serde_json::to_string(&id).unwrap();
        let back: RemoteLogSegmentId = serde_json::from_str(&json).unwrap();
        assert_eq!(back, id);
        assert_eq!(back.topic_id_partition.topic, "orders");
    }

    #[test]
    fn generated_ids_are_version_4_and_never_look_like_an_option() {
        for _ in 0..2_000 {
            let id = random_kafka_uuid();
            assert_eq!(id.get_version_num(), 4);
            assert!(!text(id).starts_with('-'), "{id}");
        }
    }
}
