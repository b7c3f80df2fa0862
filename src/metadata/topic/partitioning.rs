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

    #[test]
    fn the_worked_example_goes_through_kafkas_steps() {
        let id = Uuid::from_u128(0x1234_5678_9abc_def0_0011_2233_4455_6677);
        let tp = TopicIdPartition::new(id, "any name", 0);
        assert_eq!(java_hash(&tp), -858_963_941);
        assert_eq!(murmur2(java_hash(&tp)), -1_316_724_992);
        assert_eq!(metadata_partition_for(&tp, 50), 6);
    }
}
