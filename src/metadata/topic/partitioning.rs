//! Which metadata partition holds the events of a user's partition.
//!
//! The rule is that of Apache Kafka's `RemoteLogMetadataTopicPartitioner`, bit for bit: brokers
//! that disagree about it do not see each other's events. The topic's name has no part in it.

use crate::model::TopicIdPartition;

/// The metadata partition of `0..partition_count` that holds the events of this partition.
///
/// # Panics
///
/// When `partition_count` is not above 0; see [`try_metadata_partition_for`].
pub fn metadata_partition_for(tp: &TopicIdPartition, partition_count: i32) -> i32 {
    try_metadata_partition_for(tp, partition_count).expect("a partition count above 0")
}

/// The metadata partition that holds the events of this partition; `None` when `partition_count`
/// is not above 0.
pub fn try_metadata_partition_for(tp: &TopicIdPartition, partition_count: i32) -> Option<i32> {
    let positive = murmur2(java_hash(tp)) & i32::MAX;
    (partition_count > 0).then(|| positive % partition_count)
}

/// The metadata partitions that hold the events of these partitions, ascending, each once.
///
/// # Panics
///
/// When `partition_count` is not above 0.
pub fn metadata_partitions_for<'a>(
    tps: impl IntoIterator<Item = &'a TopicIdPartition>,
    partition_count: i32,
) -> Vec<i32> {
    assert!(partition_count > 0, "a partition count above 0");
    let partitions = tps.into_iter();
    let mut found: Vec<_> = partitions
        .map(|tp| metadata_partition_for(tp, partition_count))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Java's `Objects.hash(leastSignificantBits, mostSignificantBits, partition)`.
fn java_hash(tp: &TopicIdPartition) -> i32 {
    let (most, least) = tp.topic_id.as_u64_pair();
    [long_hash(least), long_hash(most), tp.partition]
        .into_iter()
        .fold(1, |hash, part| 31_i32.wrapping_mul(hash).wrapping_add(part))
}

/// Java's `Long.hashCode`.
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)] // the low half is meant
fn long_hash(value: u64) -> i32 {
    (value ^ (value >> 32)) as u32 as i32
}

/// Kafka's `Utils.murmur2` of the four bytes of `hash`, most significant byte first.
fn murmur2(hash: i32) -> i32 {
    const M: u32 = 0x5bd1_e995;
    const SEED: u32 = 0x9747_b28c;
    // The bytes are written big-endian, and the function reads a block little-endian.
    let mut k = u32::from_le_bytes(hash.to_be_bytes()).wrapping_mul(M);
    k ^= k >> 24;
    k = k.wrapping_mul(M);
    let mut h = (SEED ^ 4).wrapping_mul(M) ^ k;
    h ^= h >> 13;
    h = h.wrapping_mul(M);
    h ^= h >> 15;
    h.cast_signed()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn tp(topic_id: u128, partition: i32) -> TopicIdPartition {
        TopicIdPartition::new(Uuid::from_u128(topic_id), "any name", partition)
    }

    const MIXED: u128 = 0x1234_5678_9abc_def0_0011_2233_4455_6677;

    #[test]
    fn the_worked_example_goes_through_kafkas_steps() {
        let tp = tp(MIXED, 0);
        let (most, least) = tp.topic_id.as_u64_pair();
        assert_eq!(long_hash(least), 1_145_324_612);
        assert_eq!(long_hash(most), -2_004_318_072);
        assert_eq!(java_hash(&tp), -858_963_941);
        assert_eq!(java_hash(&tp).to_be_bytes(), [0xcc, 0xcd, 0x40, 0x1b]);
        assert_eq!(murmur2(java_hash(&tp)), -1_316_724_992);
        assert_eq!(murmur2(java_hash(&tp)) & i32::MAX, 830_758_656);
        assert_eq!(metadata_partition_for(&tp, 50), 6);
    }

    #[test]
    fn metadata_partitions_are_those_of_kafkas_own_class() {
        const PARTITIONS: [i32; 6] = [0, 1, 2, 3, 7, i32::MAX];
        // Of 50 metadata partitions, and of 4.
        for (topic_id, expected) in [
            (0xca, [(12, 0), (49, 1), (37, 3), (9, 3), (31, 1), (12, 2)]),
            (0x01, [(35, 3), (6, 2), (18, 2), (29, 1), (46, 2), (45, 1)]),
            (MIXED, [(6, 0), (36, 0), (44, 0), (2, 0), (26, 0), (47, 3)]),
            (
                0xfeed,
                [(23, 3), (13, 3), (21, 3), (35, 3), (33, 3), (36, 2)],
            ),
            (
                1 << 127 | 1,
                [(4, 2), (8, 2), (3, 1), (8, 2), (48, 2), (9, 3)],
            ),
            (
                u128::MAX,
                [(6, 0), (30, 2), (28, 2), (46, 2), (31, 3), (10, 2)],
            ),
            (0, [(6, 0), (30, 2), (28, 2), (46, 2), (31, 3), (10, 2)]),
        ] {
            let found = PARTITIONS.map(|partition| {
                let tp = tp(topic_id, partition);
                (
                    metadata_partition_for(&tp, 50),
                    metadata_partition_for(&tp, 4),
                )
            });
            assert_eq!(found, expected, "{topic_id:x}");
        }
        for (topic_id, partition, expected) in [
            (0, i32::MIN, 96),
            (u128::MAX, i32::MAX, 5),
            (0xffff_ffff_ffff_ffff_8000_0000_0000_0000, i32::MIN, 45),
        ] {
            assert_eq!(
                metadata_partition_for(&tp(topic_id, partition), 97),
                expected
            );
        }
    }

    #[test]
    fn one_metadata_partition_holds_everything() {
        for partition in [i32::MIN, -1, 0, 1, i32::MAX] {
            assert_eq!(metadata_partition_for(&tp(MIXED, partition), 1), 0);
        }
    }

    #[test]
    fn the_topics_name_has_no_part_in_it() {
        let named = |name: &str| TopicIdPartition::new(Uuid::from_u128(0xca), name, 7);
        assert_eq!(metadata_partition_for(&named(""), 50), 31);
        assert_eq!(metadata_partition_for(&named("orders"), 50), 31);
    }

    #[test]
    fn metadata_partitions_of_many_are_ascending_and_each_once() {
        let tps = [0, 1, 2, 3, 7, 49, 100].map(|partition| tp(0xfeed, partition));
        let expected = [13, 21, 23, 33, 35, 36, 47];
        assert_eq!(metadata_partitions_for(&tps, 50), expected);
        assert_eq!(
            metadata_partitions_for(tps.iter().chain(&tps).rev(), 50),
            expected
        );
        assert_eq!(metadata_partitions_for(&tps, 1), [0]);
        assert!(metadata_partitions_for(&[], 50).is_empty());
    }

    #[test]
    fn without_metadata_partitions_there_is_no_answer() {
        for count in [0, -1, i32::MIN] {
            assert_eq!(try_metadata_partition_for(&tp(1, 0), count), None);
        }
        assert_eq!(try_metadata_partition_for(&tp(0xca, 0), 50), Some(12));
    }

    #[test]
    #[should_panic(expected = "a partition count above 0")]
    fn a_count_of_zero_panics() {
        metadata_partition_for(&tp(1, 0), 0);
    }

    #[test]
    #[should_panic(expected = "a partition count above 0")]
    fn a_count_of_zero_panics_also_without_partitions() {
        metadata_partitions_for(&[], 0);
    }
}
