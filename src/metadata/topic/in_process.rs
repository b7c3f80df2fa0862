//! A metadata event log in the memory of this process.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use uuid::Uuid;

use super::log::{
    AssignmentHandle, KeyedEvent, MetadataEventLog, MetadataEventPage, MetadataEventRecord,
    MetadataEventStream, MetadataStreamItem, PartitionStart, RangeVisitor,
};
use super::log_error::MetadataLogError;

/// Records in one page at most.
const PAGE: usize = 2_048;

/// A [`MetadataEventLog`] that lives and dies with its process: for tests, and for a broker that
/// runs alone.
///
/// Managers that share one `Arc` of it behave as several brokers at one topic. Each partition is a
/// list of records that subscribers read by offset, so a slow subscriber loses nothing and a
/// partition that is assigned later has no special case. A start beyond the end waits until the
/// log has come that far.
#[derive(Debug)]
pub struct InProcessMetadataEventLog {
    topic_id: Uuid,
    shared: Arc<Shared>,
}

/// What the log and its subscriptions have in common.
#[derive(Debug)]
struct Shared {
    partitions: Vec<RwLock<Partition>>,
    subscribers: RwLock<Subscribers>,
}

#[derive(Debug, Default)]
struct Subscribers {
    list: Vec<Weak<Subscriber>>,
    closed: bool,
}

#[derive(Debug, Default)]
struct Partition {
    low: i64,
    records: VecDeque<Stored>,
}

#[derive(Debug)]
struct Stored {
    key: Option<Bytes>,
    value: Option<Bytes>,
}

impl Partition {
    fn high(&self) -> i64 {
        self.low + offset(self.records.len())
    }

    /// At most a page of records of this range, which begins in the log.
    fn page(&self, partition: i32, range: Range<i64>) -> Vec<MetadataEventRecord> {
        let from = index(range.start - self.low);
        let to = index(range.end.min(self.high()) - self.low).min(from + PAGE);
        let records = self.records.range(from.min(to)..to);
        let offsets = range.start..;
        records
            .zip(offsets)
            .map(|(stored, offset)| MetadataEventRecord {
                partition,
                offset,
                payload: stored.value.clone().unwrap_or_default(),
                key: stored.key.clone(),
                tombstone: stored.value.is_none(),
            })
            .collect()
    }
}

fn offset(records: usize) -> i64 {
    i64::try_from(records).expect("no memory holds that many records")
}

/// The place of an offset that is this far behind the first one; 0 for one before it.
fn index(distance: i64) -> usize {
    usize::try_from(distance.max(0)).unwrap_or(usize::MAX)
}

impl InProcessMetadataEventLog {
    /// An empty log with this many partitions.
    ///
    /// # Panics
    ///
    /// When `partition_count` is not above 0.
    pub fn new(partition_count: i32) -> Arc<Self> {
        assert!(partition_count > 0, "a partition count above 0");
        Arc::new(Self {
            topic_id: Uuid::new_v4(),
            shared: Arc::new(Shared {
                partitions: (0..partition_count).map(|_| RwLock::default()).collect(),
                subscribers: RwLock::default(),
            }),
        })
    }

    /// Removes the records below `low` from a partition, as retention or `DeleteRecords` does.
    ///
    /// A subscriber that has not read them learns it by
    /// [`OutOfRange`](MetadataStreamItem::OutOfRange).
    ///
    /// # Errors
    ///
    /// [`PartitionOutOfRange`](MetadataLogError::PartitionOutOfRange), and
    /// [`OffsetOutOfRange`](MetadataLogError::OffsetOutOfRange) for an offset beyond the end.
    pub fn delete_records(&self, partition: i32, low: i64) -> Result<(), MetadataLogError> {
        let mut log = self.shared.partition(partition)?.write();
        if low > log.high() {
            return Err(MetadataLogError::OffsetOutOfRange {
                partition,
                offset: low,
            });
        }
        let removed = index(low - log.low);
        log.records.drain(..removed);
        log.low += offset(removed);
        drop(log);
        self.shared.wake(partition);
        Ok(())
    }

    /// Ends every subscription. Later calls are refused with
    /// [`Closed`](MetadataLogError::Closed).
    pub fn close(&self) {
        let list = {
            let mut subscribers = self.shared.subscribers.write();
            subscribers.closed = true;
            std::mem::take(&mut subscribers.list)
        };
        for subscriber in list.iter().filter_map(Weak::upgrade) {
            subscriber.state.lock().closed = true;
            subscriber.wake_up.notify_one();
        }
    }
}

impl Shared {
    fn partition_count(&self) -> i32 {
        i32::try_from(self.partitions.len()).expect("made from an i32")
    }

    fn marks(&self, mark: impl Fn(&Partition) -> i64) -> Result<Vec<i64>, MetadataLogError> {
        self.check_open()?;
        Ok(self
            .partitions
            .iter()
            .map(|log| mark(&log.read()))
            .collect())
    }

    fn register(&self, subscriber: &Arc<Subscriber>) -> Result<(), MetadataLogError> {
        let mut subscribers = self.subscribers.write();
        if subscribers.closed {
            return Err(MetadataLogError::Closed);
        }
        subscribers.list.retain(|known| known.strong_count() > 0);
        subscribers.list.push(Arc::downgrade(subscriber));
        Ok(())
    }

    fn partition(&self, partition: i32) -> Result<&RwLock<Partition>, MetadataLogError> {
        let found = usize::try_from(partition).ok();
        found
            .and_then(|partition| self.partitions.get(partition))
            .ok_or(MetadataLogError::PartitionOutOfRange {
                partition,
                count: self.partition_count(),
            })
    }

    fn check_open(&self) -> Result<(), MetadataLogError> {
        if self.subscribers.read().closed {
            return Err(MetadataLogError::Closed);
        }
        Ok(())
    }

    fn append(&self, partition: i32, stored: Stored) -> Result<i64, MetadataLogError> {
        let log = self.partition(partition)?;
        self.check_open()?;
        let offset = {
            let mut log = log.write();
            let offset = log.high();
            log.records.push_back(stored);
            offset
        };
        self.wake(partition);
        Ok(offset)
    }

    fn wake(&self, partition: i32) {
        for subscriber in &self.subscribers.read().list {
            if let Some(subscriber) = subscriber.upgrade() {
                subscriber.has_more(partition);
            }
        }
    }

    /// The next thing that this subscriber has not seen; `None` when there is none now.
    fn next_item(&self, subscriber: &Subscriber) -> Option<MetadataStreamItem> {
        loop {
            let (partition, cursor) = subscriber.next_cursor()?;
            let Ok(log) = self.partition(partition) else {
                continue;
            };
            let log = log.read();
            let generation = cursor.generation;
            let position = cursor.next;
            if position < log.low {
                subscriber.move_on(partition, generation, None);
                return Some(MetadataStreamItem::OutOfRange {
                    partition,
                    generation,
                    position,
                });
            }
            if position >= log.high() {
                continue;
            }
            let records = log.page(partition, position..i64::MAX);
            let next_offset = position + offset(records.len());
            let at_end = next_offset == log.high();
            drop(log);
            subscriber.move_on(partition, generation, Some(next_offset));
            if !at_end {
                subscriber.has_more(partition);
            }
            return Some(MetadataStreamItem::Page(MetadataEventPage {
                partition,
                generation,
                records,
                next_offset,
            }));
        }
    }
}

/// One subscription: what it reads, and which of that has something new.
#[derive(Debug, Default)]
struct Subscriber {
    state: Mutex<SubscriberState>,
    wake_up: Notify,
}

#[derive(Debug, Default)]
struct SubscriberState {
    cursors: BTreeMap<i32, Cursor>,
    /// Partitions to look at, each once.
    fresh: VecDeque<i32>,
    generations: u64,
    closed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Cursor {
    generation: u64,
    next: i64,
    /// Whether the partition stands in `fresh`.
    is_fresh: bool,
    /// Whether the position fell out of the log.
    is_lost: bool,
}

impl Subscriber {
    fn has_more(&self, partition: i32) {
        let mut state = self.state.lock();
        let Some(cursor) = state.cursors.get_mut(&partition) else {
            return;
        };
        if !cursor.is_fresh && !cursor.is_lost {
            cursor.is_fresh = true;
            state.fresh.push_back(partition);
            drop(state);
            self.wake_up.notify_one();
        }
    }

    fn next_cursor(&self) -> Option<(i32, Cursor)> {
        let mut state = self.state.lock();
        loop {
            let partition = state.fresh.pop_front()?;
            if let Some(cursor) = state.cursors.get_mut(&partition) {
                cursor.is_fresh = false;
                return Some((partition, *cursor));
            }
        }
    }

    /// Moves the cursor to `next`, or marks it as lost, if it is still the same assignment.
    fn move_on(&self, partition: i32, generation: u64, next: Option<i64>) {
        let mut state = self.state.lock();
        if let Some(cursor) = state.cursors.get_mut(&partition)
            && cursor.generation == generation
        {
            cursor.is_lost = next.is_none();
            cursor.next = next.unwrap_or(cursor.next);
        }
    }
}

struct Assignment {
    subscriber: Arc<Subscriber>,
    partition_count: i32,
}

impl AssignmentHandle for Assignment {
    fn add(&self, start: PartitionStart) -> u64 {
        let mut state = self.subscriber.state.lock();
        if let Some(cursor) = state.cursors.get(&start.partition) {
            return cursor.generation;
        }
        state.generations += 1;
        let generation = state.generations;
        if (0..self.partition_count).contains(&start.partition) {
            let cursor = Cursor {
                generation,
                next: start.start_offset.max(0),
                is_fresh: true,
                is_lost: false,
            };
            state.cursors.insert(start.partition, cursor);
            // It may still stand there for an assignment that was removed.
            if !state.fresh.contains(&start.partition) {
                state.fresh.push_back(start.partition);
            }
            drop(state);
            self.subscriber.wake_up.notify_one();
        }
        generation
    }

    fn remove(&self, partition: i32) {
        self.subscriber.state.lock().cursors.remove(&partition);
    }

    fn assigned(&self) -> Vec<i32> {
        let state = self.subscriber.state.lock();
        state.cursors.keys().copied().collect()
    }
}

#[async_trait]
impl MetadataEventLog for InProcessMetadataEventLog {
    fn partition_count(&self) -> i32 {
        self.shared.partition_count()
    }

    fn topic_id(&self) -> Option<Uuid> {
        Some(self.topic_id)
    }

    async fn publish(&self, partition: i32, payload: Bytes) -> Result<i64, MetadataLogError> {
        let stored = Stored {
            key: None,
            value: Some(payload),
        };
        self.shared.append(partition, stored)
    }

    async fn publish_keyed(
        &self,
        partition: i32,
        record: KeyedEvent,
    ) -> Result<i64, MetadataLogError> {
        let stored = Stored {
            key: Some(record.key),
            value: record.event,
        };
        self.shared.append(partition, stored)
    }

    async fn subscribe(
        &self,
        starts: Vec<PartitionStart>,
    ) -> Result<(MetadataEventStream, Arc<dyn AssignmentHandle>), MetadataLogError> {
        let subscriber = Arc::new(Subscriber::default());
        let handle = Assignment {
            subscriber: Arc::clone(&subscriber),
            partition_count: self.partition_count(),
        };
        for start in starts {
            handle.add(start);
        }
        self.shared.register(&subscriber)?;
        let log = Arc::clone(&self.shared);
        let items = stream::unfold((log, subscriber), |(log, subscriber)| async {
            loop {
                if subscriber.state.lock().closed {
                    return None;
                }
                if let Some(item) = log.next_item(&subscriber) {
                    return Some((item, (log, subscriber)));
                }
                subscriber.wake_up.notified().await;
            }
        });
        Ok((Box::pin(items), Arc::new(handle)))
    }

    async fn low_water_marks(&self) -> Result<Vec<i64>, MetadataLogError> {
        self.shared.marks(|log| log.low)
    }

    async fn high_water_marks(&self) -> Result<Vec<i64>, MetadataLogError> {
        self.shared.marks(Partition::high)
    }

    async fn visit_range(
        &self,
        partition: i32,
        start: i64,
        end: i64,
        visitor: &mut RangeVisitor<'_>,
    ) -> Result<(), MetadataLogError> {
        let log = self.shared.partition(partition)?;
        let mut next = start.max(0);
        while next < end {
            let page = {
                let log = log.read();
                if next < log.low {
                    return Err(MetadataLogError::OffsetOutOfRange {
                        partition,
                        offset: next,
                    });
                }
                log.page(partition, next..end)
            };
            let Some(last) = page.last() else {
                return Ok(());
            };
            next = last.offset + 1;
            page.into_iter().try_for_each(&mut *visitor)?;
        }
        Ok(())
    }
}
