//! The state that replaying the index topic leads to.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::sync::Arc;

use uuid::Uuid;

use super::CAPTURE_STATE_KEY;
use super::capture::DisklessWalCapture;
use super::document::{DisklessPartitionCapture, Document};
use super::entry::WalRange;
use super::error::DisklessError;
use super::key::AnyKey;
use super::partition::WalPartition;
use super::value::{WalDeleteFloorRecord, WalFlushRecord};
use crate::index::{LogOffset, TimestampMs};

/// What the index topic says, as far as it was applied.
///
/// Records are applied in the order of each key's; between keys order does not matter, so the
/// topic's partitions may be read in any order. A compacted topic leads to the same state, as long
/// as no floor was published that is lower than the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WalCaptureProjection {
    partitions: HashMap<(Uuid, i32), WalPartition>,
    /// How many ranges name each object. Ranges share these keys.
    objects: HashMap<Arc<str>, usize>,
}

impl WalCaptureProjection {
    /// A projection of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies one record of the index topic: a range replaces the one with the same first offset,
    /// a floor counts if it is higher than the last one, and a tombstone (no value) removes either.
    ///
    /// The caller leaves out records under [`REPLAY_FENCE_KEY`](super::REPLAY_FENCE_KEY).
    ///
    /// # Errors
    ///
    /// For a record without a key, a key or a value that is not exactly of the known versions, a
    /// value that does not belong to its key, and a range or floor that cannot be. The projection
    /// is as it was; it must not be captured, because it lacks what the record says.
    pub fn apply(&mut self, key: Option<&[u8]>, value: Option<&[u8]>) -> Result<(), DisklessError> {
        let key = AnyKey::read(key.ok_or(DisklessError::MissingKey)?)?;
        match (key, value) {
            (AnyKey::Range(key), Some(value)) => {
                let (object_key, entry) = WalFlushRecord::from_bytes(value)?.under(key)?;
                entry.check()?;
                if object_key.is_empty() || object_key == CAPTURE_STATE_KEY {
                    return Err(DisklessError::InvalidRange {
                        topic_id: entry.topic_id,
                        partition: entry.partition,
                        reason: "its object's key is empty or reserved",
                    });
                }
                let object_key = self.name_object(object_key);
                let partition = self.partitions.entry((key.topic_id, key.partition));
                let replaced = partition
                    .or_default()
                    .insert(WalRange { object_key, entry });
                self.forget_object(replaced);
            }
            (AnyKey::Range(key), None) => {
                let removed = self.update(key.topic_id, key.partition, |partition| {
                    partition.remove(key.first_offset)
                });
                self.forget_object(removed);
            }
            (AnyKey::Floor(key), Some(value)) => {
                let record = WalDeleteFloorRecord::from_bytes(value)?;
                record.check_under(key)?;
                let partition = self.partitions.entry((key.topic_id, key.partition));
                partition.or_default().raise_floor(record.floor);
            }
            (AnyKey::Floor(key), None) => {
                self.update(key.topic_id, key.partition, |partition| {
                    partition.remove_floor();
                    None
                });
            }
        }
        Ok(())
    }

    /// A partition, where anything is known of it.
    pub fn partition(&self, topic_id: Uuid, partition: i32) -> Option<&WalPartition> {
        self.partitions.get(&(topic_id, partition))
    }

    /// Every partition of which anything is known, in no particular order.
    pub fn partitions(&self) -> impl Iterator<Item = (Uuid, i32, &WalPartition)> {
        self.partitions
            .iter()
            .map(|((topic_id, index), partition)| (*topic_id, *index, partition))
    }

    /// [`WalPartition::lookup`] in a partition.
    pub fn lookup(&self, topic_id: Uuid, partition: i32, offset: LogOffset) -> Option<&WalRange> {
        self.partition(topic_id, partition)?.lookup(offset)
    }

    /// How many ranges name this object.
    pub fn references(&self, object_key: &str) -> usize {
        self.objects.get(object_key).copied().unwrap_or(0)
    }

    /// The keys of the objects that ranges name, in no particular order.
    pub fn objects(&self) -> impl Iterator<Item = &str> {
        self.objects.keys().map(|key| &**key)
    }

    /// Freezes the projection: the same state gives the same bytes.
    ///
    /// `topics` maps the topics that exist to their names and numbers of partitions. What is known
    /// of other topics is left out. Every partition of theirs appears, even without ranges, and one
    /// beyond their number if anything is known of it. `source_cutoffs` says up to where each
    /// partition of the index topic was applied, exclusive.
    ///
    /// Neighbouring ranges that go on in one object without a hole become one.
    ///
    /// # Errors
    ///
    /// [`InvalidCapture`](DisklessError::InvalidCapture) for ranges that overlap, leave a gap above
    /// the delete floor, or together are 4 GiB or more, for a wrong name of a topic or a negative
    /// number of partitions, and for a negative cutoff or time.
    pub fn capture<S: BuildHasher>(
        &self,
        topics: &HashMap<Uuid, (String, i32), S>,
        source_cutoffs: Vec<i64>,
        captured_at_ms: TimestampMs,
    ) -> Result<DisklessWalCapture, DisklessError> {
        let mut order = BTreeMap::new();
        for (topic_id, (topic, count)) in topics {
            if *count < 0 {
                return Err(DisklessError::InvalidCapture(format!(
                    "topic {topic:?} has {count} partitions"
                )));
            }
            for index in 0..*count {
                order.insert((topic.as_str(), *topic_id, index), None);
            }
        }
        for ((topic_id, index), partition) in &self.partitions {
            if let Some((topic, _)) = topics.get(topic_id) {
                order.insert((topic.as_str(), *topic_id, *index), Some(partition));
            }
        }
        let partitions = order
            .into_iter()
            .map(|((topic, topic_id, index), partition)| {
                let ranges = match partition {
                    Some(partition) => merged(topic, partition)?,
                    None => Vec::new(),
                };
                let delete_floor = partition.map_or(0, WalPartition::delete_floor);
                let frontier = partition.and_then(WalPartition::frontier);
                Ok(DisklessPartitionCapture {
                    topic: topic.to_owned(),
                    topic_id,
                    partition: index,
                    delete_floor,
                    recovery_cutoff: frontier.unwrap_or(0).max(delete_floor),
                    ranges,
                })
            })
            .collect::<Result<_, DisklessError>>()?;
        DisklessWalCapture::new(Document::new(captured_at_ms, source_cutoffs, partitions))
    }

    /// A reference to an object; its key is shared with the others.
    fn name_object(&mut self, key: String) -> Arc<str> {
        if let Some((key, _)) = self.objects.get_key_value(key.as_str()) {
            let key = Arc::clone(key);
            *self.objects.entry(Arc::clone(&key)).or_default() += 1;
            return key;
        }
        let key: Arc<str> = key.into();
        self.objects.insert(Arc::clone(&key), 1);
        key
    }

    /// A range that named an object is gone.
    fn forget_object(&mut self, range: Option<WalRange>) {
        let Some(WalRange { object_key, .. }) = range else {
            return;
        };
        if let Some(count) = self.objects.get_mut(&object_key) {
            *count -= 1;
            if *count == 0 {
                self.objects.remove(&object_key);
            }
        }
    }

    /// Changes a partition, and forgets one of which nothing is left.
    fn update(
        &mut self,
        topic_id: Uuid,
        partition: i32,
        change: impl FnOnce(&mut WalPartition) -> Option<WalRange>,
    ) -> Option<WalRange> {
        let place = (topic_id, partition);
        let partition = self.partitions.get_mut(&place)?;
        let removed = change(partition);
        if partition.is_empty() {
            self.partitions.remove(&place);
        }
        removed
    }
}

/// A partition's ranges, neighbours that go on without a hole as one.
fn merged(topic: &str, partition: &WalPartition) -> Result<Vec<WalRange>, DisklessError> {
    let mut runs: Vec<WalRange> = Vec::new();
    for range in partition.ranges() {
        let joined = runs
            .last_mut()
            .filter(|previous| previous.is_continued_by(range));
        let Some(previous) = joined else {
            runs.push(range.clone());
            continue;
        };
        let (entry, next) = (&mut previous.entry, &range.entry);
        entry.byte_len = entry.byte_len.checked_add(next.byte_len).ok_or_else(|| {
            DisklessError::InvalidCapture(format!(
                "ranges of {topic}-{} from offset {} on are 4 GiB or more in one run",
                entry.partition, entry.first_offset
            ))
        })?;
        entry.last_offset = next.last_offset;
        entry.max_timestamp_ms = entry.max_timestamp_ms.max(next.max_timestamp_ms);
    }
    Ok(runs)
}
