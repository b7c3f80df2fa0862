//! Who a segment belongs to, and which segment it is.

use std::fmt;
use std::hash::{Hash, Hasher};

use base64::Engine as _;
use base64::display::Base64Display;
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
            kafka_text(&self.topic_id)
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
        write!(
            f,
            "{} of {}-{}",
            kafka_text(&self.id),
            tp.topic,
            tp.partition
        )
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
        if !kafka_uuid(id).starts_with('-') {
            return id;
        }
    }
}

/// Length of Kafka's text of an id.
pub(crate) const KAFKA_UUID_LEN: usize = 22;

/// Apache Kafka's text of an id: URL-safe Base64 without padding, always 22 characters.
///
/// It is the text of Kafka's `Uuid.toString`, and stands in file names, keys and messages.
pub fn kafka_uuid(id: Uuid) -> String {
    kafka_text(&id).to_string()
}

/// The id with this [`kafka_uuid`]; `None` for any other text.
///
/// An id has one text here, so one key: padding, other alphabets and non-zero trailing bits are
/// refused, some of which Kafka's `Uuid.fromString` accepts.
pub fn decode_kafka_uuid(text: &str) -> Option<Uuid> {
    // The buffer's size is what refuses a longer text: nothing is allocated for it.
    let mut bytes = [0; 18];
    let length = URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).ok()?;
    Uuid::from_slice(&bytes[..length]).ok()
}

/// [`kafka_uuid`] without an allocation, for a text that is built of several.
pub(crate) fn kafka_text(id: &Uuid) -> impl fmt::Display + '_ {
    Base64Display::new(id.as_bytes(), &URL_SAFE_NO_PAD)
}

/// The same, faster, at the end of a text.
pub(crate) fn push_kafka_text(text: &mut String, id: &Uuid) {
    URL_SAFE_NO_PAD.encode_string(id.as_bytes(), text);
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

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
            assert!(!kafka_uuid(id).starts_with('-'), "{id}");
        }
    }

    #[test]
    fn ids_have_kafkas_text() {
        for (id, text) in [
            (0, "AAAAAAAAAAAAAAAAAAAAAA"),
            (1, "AAAAAAAAAAAAAAAAAAAAAQ"),
            (0x0a, "AAAAAAAAAAAAAAAAAAAACg"),
            (0x1e, "AAAAAAAAAAAAAAAAAAAAHg"),
            (0xfe, "AAAAAAAAAAAAAAAAAAAA_g"),
            (
                0x2d68_2b32_656b_4f46_bfff_b6b8_49ab_2e3c,
                "LWgrMmVrT0a__7a4SasuPA",
            ),
            (u128::MAX, "_____________________w"),
            (0xf8 << 120, "-AAAAAAAAAAAAAAAAAAAAA"),
            (
                0x0123_4567_89ab_cdef_0123_4567_89ab_cdef,
                "ASNFZ4mrze8BI0VniavN7w",
            ),
            (
                0xf47a_c10b_58cc_4372_a567_0e02_b2c3_d479,
                "9HrBC1jMQ3KlZw4CssPUeQ",
            ),
            (
                0x6c2a_97f5_4fbe_4bee_94f1_750c_f482_36e5,
                "bCqX9U--S-6U8XUM9II25Q",
            ),
            (
                0x87de_7ab2_8133_4f38_bd6b_e34e_43e0_ef28,
                "h956soEzTzi9a-NOQ-DvKA",
            ),
        ] {
            let id = Uuid::from_u128(id);
            assert_eq!(kafka_uuid(id), text);
            assert_eq!(decode_kafka_uuid(text), Some(id), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_id() {
        for text in [
            "",
            "A",
            "AAAA",
            "AAAAAAAAAAAAAAAAAAAAAQAA",
            "AAAAAAAAAAAAAAAAAAAAAQA",
            "AAAAAAAAAAAAAAAAAAAAAR",
            "AAAAAAAAAAAAAAAAAAAAAQ==",
            "+AAAAAAAAAAAAAAAAAAAAA",
            "/AAAAAAAAAAAAAAAAAAAAA",
            "AAAAAAAAAAAAAAAAAAAA+g",
            "AAAAAAAAAAAAAAAAAAAA/g",
            "AAAAAAAAAAAAAAAAAAAAé",
            "AAAAAAAAAAAAAAAAAAAAA ",
            "00000000-0000-0000-0000-000000000001",
        ] {
            assert_eq!(decode_kafka_uuid(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_rendered_id_is_parsed_back(id in any::<u128>()) {
            let id = Uuid::from_u128(id);
            let text = kafka_uuid(id);
            prop_assert_eq!(text.len(), KAFKA_UUID_LEN);
            prop_assert!(text.ends_with(['A', 'Q', 'g', 'w']));
            prop_assert_eq!(decode_kafka_uuid(&text), Some(id));
        }

        #[test]
        fn an_id_has_no_second_text(text in "[A-Za-z0-9_-]{22}") {
            if let Some(id) = decode_kafka_uuid(&text) {
                prop_assert_eq!(kafka_uuid(id), text);
            }
        }
    }
}
