//! Random histories of writes, beside a model that knows every offset's bytes.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::Bytes;
use krabka_remote_storage::diskless::{
    DisklessWalCapture, RetentionRules, WalCaptureProjection, WalDeleteFloorRecord, WalFlushRecord,
    WalObjectBuilder, WalPartition, parse_wal_object, whole_batches,
};
use proptest::prelude::*;

use super::samples::{TOPIC_ID, orders};
use krabka_remote_storage::testing::batches::BatchSpec;

const PARTITIONS: i32 = 3;

#[derive(Clone, Debug)]
enum Step {
    /// Batches of a partition are acknowledged: records and size of each.
    Append(i32, Vec<(i32, usize)>),
    /// What was gathered becomes an object, and its ranges are published.
    Flush,
    /// An object is written, and the broker dies before it publishes.
    FlushAndCrash,
    /// `DeleteRecords`: up to this part of the log, in percent.
    Delete(i32, i64),
    /// Retention by size: this many ranges' worth of bytes stay.
    Expire(i32, u64),
    /// The newest range moves into an object of its own.
    Rewrite(i32),
}

fn step() -> impl Strategy<Value = Step> {
    let partition = 0..PARTITIONS;
    let batch = (1..5_i32, 70..300_usize);
    prop_oneof![
        6 => (partition.clone(), prop::collection::vec(batch, 1..4)).prop_map(|(p, b)| Step::Append(p, b)),
        3 => Just(Step::Flush),
        1 => Just(Step::FlushAndCrash),
        1 => (partition.clone(), 0..=100_i64).prop_map(|(p, percent)| Step::Delete(p, percent)),
        1 => (partition.clone(), 0..2000_u64).prop_map(|(p, bytes)| Step::Expire(p, bytes)),
        1 => partition.prop_map(Step::Rewrite),
    ]
}

/// What a partition is known to hold, apart from any code of the crate.
#[derive(Clone, Debug, Default)]
struct Model {
    /// The batch of every flushed offset.
    batch_of: BTreeMap<i64, Vec<u8>>,
    next_offset: i64,
    floor: i64,
    /// Batches that are not flushed: first and last offset, and the bytes.
    gathered: Vec<(i64, i64, Vec<u8>)>,
}

#[derive(Default)]
struct World {
    models: [Model; PARTITIONS as usize],
    objects: HashMap<String, Bytes>,
    /// Every record of the index topic, in order.
    topic: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    projection: WalCaptureProjection,
}

impl World {
    fn publish(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.projection.apply(Some(key), value).unwrap();
        self.topic.push((key.to_vec(), value.map(<[u8]>::to_vec)));
    }

    fn model(&mut self, partition: i32) -> &mut Model {
        &mut self.models[usize::try_from(partition).unwrap()]
    }

    fn ranges(&self, partition: i32) -> Option<&WalPartition> {
        self.projection.partition(TOPIC_ID, partition)
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Append(partition, batches) => {
                let model = self.model(partition);
                for (records, size) in batches {
                    let spec = BatchSpec::new(model.next_offset, records, size);
                    let (first, last) = (model.next_offset, spec.last_offset());
                    model.gathered.push((first, last, spec.make()));
                    model.next_offset = last + 1;
                }
            }
            Step::Flush => {
                let key = self.write_object();
                let object = self.objects[&key].clone();
                for run in parse_wal_object(&object).unwrap() {
                    let bytes = run.run_of(&object).unwrap();
                    let summary = run.check_run(bytes).unwrap();
                    let entry = run.to_index_entry(summary.max_timestamp_ms);
                    let (index_key, value) = WalFlushRecord::keyed_entry(&key, entry);
                    self.publish(&index_key, Some(&value));
                }
                for model in &mut self.models {
                    for (first, last, batch) in std::mem::take(&mut model.gathered) {
                        for offset in first..=last {
                            model.batch_of.insert(offset, batch.clone());
                        }
                    }
                }
            }
            Step::FlushAndCrash => drop(self.write_object()),
            Step::Delete(partition, percent) => {
                let Some(end) = self.ranges(partition).and_then(WalPartition::frontier) else {
                    return;
                };
                self.raise_floor(partition, end * percent / 100);
            }
            Step::Expire(partition, max_bytes) => {
                let rules = RetentionRules {
                    max_bytes: Some(max_bytes),
                    max_age: Some(Duration::from_secs(1)),
                };
                let Some(ranges) = self.ranges(partition) else {
                    return;
                };
                let expired: Vec<_> = ranges.expired(rules, 0).cloned().collect();
                let Some(last) = expired.last() else {
                    return;
                };
                // The floor first: a crash between the two leaves no gap.
                self.raise_floor(partition, last.entry.last_offset + 1);
                for range in expired {
                    self.publish(&range.key().to_bytes(), None);
                }
            }
            Step::Rewrite(partition) => {
                let newest = self
                    .ranges(partition)
                    .and_then(|ranges| ranges.ranges().next_back());
                let Some(newest) = newest.cloned() else {
                    return;
                };
                let entry = newest.entry;
                let object = &self.objects[&*newest.object_key];
                let start = position(entry.byte_start);
                let run = object.slice(start..start + entry.byte_len as usize);
                let moved = WalObjectBuilder::new()
                    .finish_with_run(
                        TOPIC_ID,
                        partition,
                        entry.first_offset,
                        entry.last_offset,
                        &run,
                    )
                    .unwrap();
                let [moved_run] = parse_wal_object(&moved).unwrap()[..] else {
                    panic!("one run");
                };
                let key = self.put(moved);
                let entry = moved_run.to_index_entry(entry.max_timestamp_ms);
                let (index_key, value) = WalFlushRecord::keyed_entry(&key, entry);
                self.publish(&index_key, Some(&value));
            }
        }
    }

    /// An object of all that is gathered: a run for each partition and each of its halves.
    fn write_object(&mut self) -> String {
        let mut builder = WalObjectBuilder::new();
        for (partition, model) in (0..).zip(&self.models) {
            for half in model.gathered.chunks(2) {
                let run: Vec<u8> = half
                    .iter()
                    .flat_map(|(_, _, batch)| batch.clone())
                    .collect();
                let (first, last) = (half[0].0, half[half.len() - 1].1);
                builder
                    .append_run(TOPIC_ID, partition, first, last, &run)
                    .unwrap();
            }
        }
        self.put(builder.finish())
    }

    fn put(&mut self, object: Bytes) -> String {
        let key = format!("diskless-wal/0/{}", self.objects.len());
        self.objects.insert(key.clone(), object);
        key
    }

    fn raise_floor(&mut self, partition: i32, floor: i64) {
        // A writer never publishes a lower one: compaction would keep it and drop the higher.
        let floor = floor.max(self.model(partition).floor);
        let record = WalDeleteFloorRecord {
            topic_id: TOPIC_ID,
            partition,
            floor,
        };
        self.publish(&record.key().to_bytes(), Some(&record.to_bytes()));
        let model = self.model(partition);
        model.floor = floor;
        model.batch_of.retain(|offset, _| *offset >= floor);
    }

    /// Asks for every offset, and compares the answer's bytes with the model's.
    fn check(&self, projection: &WalCaptureProjection, max_bytes: usize) {
        for (partition, model) in (0..).zip(&self.models) {
            let ranges = projection.partition(TOPIC_ID, partition);
            let read = |offset| ranges.and_then(|ranges| ranges.read(offset, max_bytes as u64));
            for offset in -1..model.next_offset + 2 {
                let Some(batch) = model.batch_of.get(&offset) else {
                    let next = model.batch_of.range(offset..).next();
                    // Below the floor and behind the end there is nothing.
                    assert!(offset < model.floor || next.is_none() || offset < 0);
                    if offset < model.floor || next.is_none() {
                        assert_eq!(read(offset), None, "{partition}: {offset}");
                    }
                    continue;
                };
                let read = read(offset).unwrap();
                assert!(read.first_offset <= offset && offset <= read.last_offset);
                let object = &self.objects[&*read.object_key];
                let (start, end) = (position(read.bytes.start), position(read.bytes.end));
                let answer = whole_batches(&object[start..end], offset, max_bytes).unwrap();
                assert!(answer.starts_with(batch), "{partition}: {offset}");
                assert!(answer.len() <= max_bytes.max(batch.len()));
            }
        }
    }

    /// The last record of each key alone, as compaction leaves it, and tombstones gone.
    fn compacted(&self) -> WalCaptureProjection {
        let last: BTreeMap<_, _> = self.topic.iter().map(|(key, value)| (key, value)).collect();
        let mut projection = WalCaptureProjection::new();
        for (key, value) in last {
            if let Some(value) = value {
                projection.apply(Some(key), Some(value)).unwrap();
            }
        }
        projection
    }
}

fn position(byte: u64) -> usize {
    usize::try_from(byte).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_history_captured_and_replayed_answers_each_offset_as_the_model(
        steps in prop::collection::vec(step(), 1..40),
        max_bytes in 0..1500_usize,
    ) {
        let mut world = World::default();
        for step in steps {
            world.take(step);
        }
        world.check(&world.projection, max_bytes);

        let topics = orders(PARTITIONS);
        let capture = world.projection.capture(&topics, vec![9], 1).unwrap();
        let compacted = world.compacted();
        world.check(&compacted, max_bytes);
        prop_assert_eq!(&compacted.capture(&topics, vec![9], 1).unwrap(), &capture);

        let bytes = capture.to_vec().unwrap();
        let read = DisklessWalCapture::from_slice(&bytes).unwrap();
        prop_assert_eq!(&read, &capture);
        let mut replayed = WalCaptureProjection::new();
        for (key, value) in read.index_records() {
            replayed.apply(Some(&key), Some(&value)).unwrap();
        }
        world.check(&replayed, max_bytes);
        prop_assert_eq!(replayed.capture(&topics, vec![9], 1).unwrap().to_vec().unwrap(), bytes);
        for (partition, model) in read.partitions().iter().zip(&world.models) {
            let end = model.batch_of.last_key_value().map_or(model.floor, |(last, _)| last + 1);
            prop_assert_eq!((partition.delete_floor, partition.recovery_cutoff), (model.floor, end.max(model.floor)));
        }
        // What no range names may go, and nothing else.
        for key in world.objects.keys() {
            let is_named = capture.objects().any(|object| object == key);
            prop_assert_eq!(world.projection.references(key) > 0, is_named);
        }
    }
}
