//! A subscription: what it reads and how far it is, the stream that a subscriber polls, and the
//! task that keeps the consumer in step.
//!
//! The stream takes records from the consumer's queues itself, so a subscriber that does not poll
//! stops the fetching of each partition when its queue is full, and nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use super::super::log::{
    AssignmentHandle, MetadataEventPage, MetadataEventStream, MetadataStreamItem, PartitionStart,
};
use super::super::log_error::MetadataLogError;
use super::client::OffThread;
use super::config::KafkaMetadataLogConfig;
use super::connection::{Connection, Signals};
use super::faults;
use super::log::{Known, blocking};

type SharedConnection = Arc<OffThread<Connection>>;

pub(super) struct Subscription {
    config: Arc<KafkaMetadataLogConfig>,
    known: Arc<Known>,
    /// What the client's id ends with.
    suffix: &'static str,
    signals: Arc<Signals>,
    state: Mutex<State>,
    has_to_restart: AtomicBool,
}

#[derive(Default)]
struct State {
    cursors: BTreeMap<i32, Cursor>,
    generations: u64,
    connection: Option<SharedConnection>,
    closed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Cursor {
    generation: u64,
    next: i64,
    /// The topic that `next` is an offset of.
    topic_id: Option<Uuid>,
    reach: Reach,
}

/// Whether more of a partition comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    InRange,
    /// The subscriber has to be told that nothing more comes.
    OutOfRange,
    /// The subscriber was told.
    Lost,
}

impl Subscription {
    /// Makes the consumer, and starts the task that keeps it in step. It runs until stream and
    /// handle are dropped, or `log` is cancelled.
    pub(super) async fn start(
        config: &Arc<KafkaMetadataLogConfig>,
        known: &Arc<Known>,
        suffix: &'static str,
        starts: Vec<PartitionStart>,
        log: &CancellationToken,
    ) -> Result<(MetadataEventStream, Arc<Assignment>), MetadataLogError> {
        let subscription = Arc::new(Self {
            config: Arc::clone(config),
            known: Arc::clone(known),
            suffix,
            signals: Arc::default(),
            state: Mutex::default(),
            has_to_restart: AtomicBool::new(false),
        });
        let connection = subscription.connect(Vec::new()).await?;
        subscription.state.lock().connection = Some(connection);
        let stop = log.child_token();
        let guard = Arc::new(stop.clone().drop_guard());
        let handle = Arc::new(Assignment {
            subscription: Arc::clone(&subscription),
            _guard: Arc::clone(&guard),
        });
        for start in starts {
            handle.add(start);
        }
        tokio::spawn(Arc::clone(&subscription).drive(stop));
        Ok((subscription.stream(guard), handle))
    }

    fn stream(self: Arc<Self>, guard: Arc<DropGuard>) -> MetadataEventStream {
        let items = stream::unfold((self, guard), |(this, guard)| async {
            loop {
                if this.state.lock().closed {
                    return None;
                }
                if let Some(item) = this.next_item() {
                    return Some((item, (this, guard)));
                }
                this.signals.reader.notified().await;
            }
        });
        Box::pin(items.fuse())
    }

    /// The next thing that the subscriber has not seen; `None` when there is none now.
    fn next_item(&self) -> Option<MetadataStreamItem> {
        while let Some(partition) = self.signals.next() {
            let found = {
                let state = self.state.lock();
                let cursor = state.cursors.get(&partition).copied();
                cursor.zip(state.connection.clone())
            };
            if let Some((cursor, connection)) = found
                && let Some(item) = self.read(partition, cursor, &connection)
            {
                return Some(item);
            }
        }
        None
    }

    fn read(
        &self,
        partition: i32,
        cursor: Cursor,
        connection: &Connection,
    ) -> Option<MetadataStreamItem> {
        match cursor.reach {
            Reach::InRange => {}
            Reach::OutOfRange => return self.out_of_range(partition, cursor),
            Reach::Lost => return None,
        }
        let page = connection.read(partition, cursor.next);
        // After the records: what is reported by now includes whatever changed before they came.
        if !connection.serve() || page.is_broken {
            self.restart();
        }
        if is_other_topic(cursor.topic_id, connection.topic_id()) {
            return self.out_of_range(partition, cursor);
        }
        let has_moved = page.next > cursor.next;
        if page.is_out_of_range && !has_moved {
            return self.out_of_range(partition, cursor);
        }
        {
            let mut state = self.state.lock();
            let current = state.cursors.get_mut(&partition);
            let current = current.filter(|current| current.generation == cursor.generation)?;
            current.next = page.next;
            if page.is_out_of_range {
                current.reach = Reach::OutOfRange;
            }
        }
        if page.is_full || page.is_out_of_range {
            self.signals.has_more(partition);
        }
        has_moved.then(|| {
            MetadataStreamItem::Page(MetadataEventPage {
                partition,
                generation: cursor.generation,
                records: page.records,
                next_offset: page.next,
            })
        })
    }

    fn out_of_range(&self, partition: i32, cursor: Cursor) -> Option<MetadataStreamItem> {
        let generation = cursor.generation;
        {
            let mut state = self.state.lock();
            let current = state.cursors.get_mut(&partition);
            let current = current.filter(|current| current.generation == generation)?;
            current.reach = Reach::Lost;
        }
        self.signals.driver.notify_one();
        tracing::error!(
            topic = self.config.topic,
            partition,
            offset = cursor.next,
            "this offset of the metadata topic cannot be read: records were removed, or the topic \
             was made again"
        );
        Some(MetadataStreamItem::OutOfRange {
            partition,
            generation,
            position: cursor.next,
        })
    }

    // ----- the task -----

    async fn drive(self: Arc<Self>, stop: CancellationToken) {
        // What the consumer was told to fetch, and for which assignment.
        let mut fetched = BTreeMap::new();
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.keep_in_step(&mut fetched) => {}
        }
        let connection = {
            let mut state = self.state.lock();
            state.closed = true;
            state.connection.take()
        };
        drop(connection);
        self.signals.reader.notify_one();
    }

    async fn keep_in_step(&self, fetched: &mut BTreeMap<i32, u64>) {
        loop {
            match self.update(fetched).await {
                Ok(()) => self.signals.driver.notified().await,
                Err(error) => {
                    tracing::warn!(
                        topic = self.config.topic,
                        error = &error as &dyn std::error::Error,
                        "the consumer has to be made again"
                    );
                    self.has_to_restart.store(true, Ordering::Relaxed);
                    tokio::time::sleep(self.config.fetch_retry_backoff).await;
                }
            }
        }
    }

    /// Has the consumer fetch what is assigned.
    async fn update(&self, fetched: &mut BTreeMap<i32, u64>) -> Result<(), MetadataLogError> {
        let connection = self.state.lock().connection.clone();
        let goes_on = connection.as_ref().is_some_and(|one| one.serve());
        let Some(connection) = connection.filter(|_| goes_on) else {
            return self.reconnect(fetched).await;
        };
        if self.has_to_restart.load(Ordering::Relaxed) {
            return self.reconnect(fetched).await;
        }
        self.find_other_topic(connection.topic_id());
        let wanted = self.wanted();
        let gone: Vec<i32> = fetched
            .iter()
            .filter(|&(partition, generation)| {
                let wanted = wanted.get(partition);
                wanted.is_none_or(|(wanted, _)| wanted != generation)
            })
            .map(|(&partition, _)| partition)
            .collect();
        let new: Vec<(i32, i64)> = wanted
            .iter()
            .filter(|&(partition, (generation, _))| fetched.get(partition) != Some(generation))
            .map(|(&partition, &(_, offset))| (partition, offset))
            .collect();
        if gone.is_empty() && new.is_empty() {
            return Ok(());
        }
        blocking(move || {
            let assigned = connection.unassign(&gone);
            let assigned = assigned.and_then(|()| connection.assign(&new));
            assigned.map_err(|error| faults::read("the assignment failed".to_owned(), error))
        })
        .await?;
        self.now_fetched(fetched, &wanted);
        Ok(())
    }

    /// Begins again with another consumer, where this one had come to.
    async fn reconnect(&self, fetched: &mut BTreeMap<i32, u64>) -> Result<(), MetadataLogError> {
        self.has_to_restart.store(false, Ordering::Relaxed);
        let wanted = self.wanted();
        let starts = wanted.iter().map(|(&partition, &(_, at))| (partition, at));
        let connection = self.connect(starts.collect()).await?;
        let before = self.state.lock().connection.replace(connection);
        drop(before);
        self.now_fetched(fetched, &wanted);
        // For reports that came before the connection was known here.
        self.signals.driver.notify_one();
        Ok(())
    }

    fn now_fetched(&self, fetched: &mut BTreeMap<i32, u64>, wanted: &BTreeMap<i32, (u64, i64)>) {
        *fetched = wanted
            .iter()
            .map(|(&partition, &(generation, _))| (partition, generation))
            .collect();
        for &partition in wanted.keys() {
            self.signals.has_more(partition);
        }
    }

    async fn connect(&self, starts: Vec<(i32, i64)>) -> Result<SharedConnection, MetadataLogError> {
        let config = Arc::clone(&self.config);
        let signals = Arc::clone(&self.signals);
        let suffix = self.suffix;
        let runtime = Handle::current();
        blocking(move || {
            let connection = Connection::open(&config, suffix, &signals);
            let connection = OffThread::new(connection.map_err(faults::client)?, &runtime);
            let assigned = connection.assign(&starts);
            assigned.map_err(|error| faults::read("the assignment failed".to_owned(), error))?;
            Ok(Arc::new(connection))
        })
        .await
    }

    /// The partitions to fetch: for which assignment, and from where.
    fn wanted(&self) -> BTreeMap<i32, (u64, i64)> {
        let state = self.state.lock();
        state
            .cursors
            .iter()
            .filter(|(_, cursor)| cursor.reach == Reach::InRange)
            .map(|(&partition, cursor)| (partition, (cursor.generation, cursor.next)))
            .collect()
    }

    /// Has the reader look at partitions whose offsets are of another topic than the consumer's.
    fn find_other_topic(&self, found: Option<Uuid>) {
        let state = self.state.lock();
        for (&partition, cursor) in &state.cursors {
            if cursor.reach == Reach::InRange && is_other_topic(cursor.topic_id, found) {
                self.signals.has_more(partition);
            }
        }
    }

    // ----- what the watchdog looks at -----

    /// Where each partition is that waits for its brokers, and not for the subscriber.
    pub(super) fn waiting(&self) -> BTreeMap<i32, (u64, i64)> {
        let mut waiting = self.wanted();
        waiting.retain(|&partition, _| !self.signals.is_fresh(partition));
        waiting
    }

    /// Has another consumer take over.
    pub(super) fn restart(&self) {
        self.has_to_restart.store(true, Ordering::Relaxed);
        self.signals.driver.notify_one();
    }
}

fn is_other_topic(expected: Option<Uuid>, found: Option<Uuid>) -> bool {
    expected
        .zip(found)
        .is_some_and(|(expected, found)| expected != found)
}

/// Changes what a subscription reads.
pub(super) struct Assignment {
    subscription: Arc<Subscription>,
    _guard: Arc<DropGuard>,
}

impl Assignment {
    pub(super) fn subscription(&self) -> &Arc<Subscription> {
        &self.subscription
    }
}

impl AssignmentHandle for Assignment {
    fn add(&self, start: PartitionStart) -> u64 {
        let subscription = &self.subscription;
        let partition = start.partition;
        let mut state = subscription.state.lock();
        if let Some(cursor) = state.cursors.get(&partition) {
            return cursor.generation;
        }
        state.generations += 1;
        let generation = state.generations;
        if (0..subscription.known.partition_count).contains(&partition) {
            let cursor = Cursor {
                generation,
                next: start.start_offset.max(0),
                topic_id: subscription.known.topic_id(),
                reach: Reach::InRange,
            };
            state.cursors.insert(partition, cursor);
            drop(state);
            subscription.signals.driver.notify_one();
        }
        generation
    }

    fn remove(&self, partition: i32) {
        let removed = self.subscription.state.lock().cursors.remove(&partition);
        if removed.is_some() {
            self.subscription.signals.driver.notify_one();
        }
    }

    fn assigned(&self) -> Vec<i32> {
        let state = self.subscription.state.lock();
        state.cursors.keys().copied().collect()
    }
}

/// How long a stop of two looks has to last, for those who wait for progress.
pub(super) fn stall_limit(config: &KafkaMetadataLogConfig) -> Duration {
    config.stall_check_interval * 2
}
