//! The one task of a manager: it decides what is assigned, reads the log, applies it.
//!
//! It never waits for one thing alone. Questions to the log and snapshots run beside the replay,
//! each with a bound of its own, and a stop ends all of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, OptionFuture};
use futures::{FutureExt as _, StreamExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, MissedTickBehavior, Sleep};

use super::log::{
    AssignmentHandle, MetadataEventPage, MetadataEventStream, MetadataStreamItem, PartitionStart,
};
use super::log_error::MetadataLogError;
use super::manager::Shared;
use super::partition::Caches;
use super::snapshot_store::{self, Parked};
use super::telemetry::{self, RestartReason, SnapshotOutcome};
use crate::error::RemoteStorageError;

/// How soon the log is asked again after a failure; doubled each time, up to the second value.
const FIRST_RETRY: Duration = Duration::from_millis(250);
const LAST_RETRY: Duration = Duration::from_secs(10);

pub(super) type Reply = oneshot::Sender<Result<(), RemoteStorageError>>;

#[derive(Debug)]
pub(super) enum Command {
    /// Assign exactly these partitions.
    Reconcile(BTreeSet<i32>, Reply),
    /// Write a snapshot now.
    Flush(Reply),
    /// Write a snapshot, and end.
    FlushAndStop(Reply),
}

/// What a round of questions to the log has found.
struct Answers {
    subscription: Option<(MetadataEventStream, Arc<dyn AssignmentHandle>)>,
    low: Vec<i64>,
    high: Vec<i64>,
}

/// A partition that is assigned here.
enum Reading {
    /// The log has to be asked for its marks, in this round or a later one, and the replay begins.
    Asking {
        round: u64,
        /// The offset that could not be read, when the partition was read before.
        lost: Option<i64>,
    },
    /// Pages come, with this number.
    Pages { generation: u64 },
}

pub(super) struct Actor {
    shared: Arc<Shared>,
    commands: mpsc::UnboundedReceiver<Command>,
    subscription: Option<(MetadataEventStream, Arc<dyn AssignmentHandle>)>,
    assigned: BTreeMap<i32, Reading>,
    assignments: u64,
    /// What the loaded snapshot says of partitions that were not assigned yet.
    parked: HashMap<i32, Parked>,
    round: u64,
    asking: Option<BoxFuture<'static, Result<Answers, MetadataLogError>>>,
    retry: Option<Pin<Box<Sleep>>>,
    retry_after: Duration,
    reconciling: Vec<(BTreeSet<i32>, Reply)>,
    writing: Option<JoinHandle<Result<(), RemoteStorageError>>>,
    flushing: Vec<Reply>,
}

impl Actor {
    pub(super) fn new(shared: Arc<Shared>, commands: mpsc::UnboundedReceiver<Command>) -> Self {
        Self {
            shared,
            commands,
            subscription: None,
            assigned: BTreeMap::new(),
            assignments: 0,
            parked: HashMap::new(),
            round: 0,
            asking: None,
            retry: None,
            retry_after: FIRST_RETRY,
            reconciling: Vec::new(),
            writing: None,
            flushing: Vec::new(),
        }
    }

    pub(super) async fn run(mut self) {
        let stop = self.shared.stop.clone();
        let last = tokio::select! {
            biased;
            () = stop.cancelled() => None,
            last = self.work() => last,
        };
        if let Some(reply) = last {
            // A disk that hangs must not keep the task: whoever waits gives up, and stops it.
            tokio::select! {
                () = stop.cancelled() => {}
                written = self.write_last_snapshot() => {
                    // Callers that asked for the same end meanwhile.
                    self.commands.close();
                    while let Ok(command) = self.commands.try_recv() {
                        if let Command::FlushAndStop(reply) = command {
                            let _ = reply.send(written.clone());
                        }
                    }
                    let _ = reply.send(written);
                }
            }
        }
        self.shared.stop.cancel();
        for partition in &self.shared.partitions {
            partition.fail_waiting();
        }
        self.shared.ready.notify_waiters();
    }

    /// Works until it is told to write the last snapshot.
    async fn work(&mut self) -> Option<Reply> {
        self.load_snapshot().await;
        let mut ticks = tokio::time::interval_at(
            Instant::now() + self.shared.config.snapshot_interval,
            self.shared.config.snapshot_interval,
        );
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    Some(Command::Reconcile(desired, reply)) => self.reconcile(desired, reply),
                    Some(Command::Flush(reply)) => self.flushing.push(reply),
                    Some(Command::FlushAndStop(reply)) => return Some(reply),
                    None => return None,
                },
                Some(answers) = OptionFuture::from(self.asking.as_mut()) => {
                    self.asking = None;
                    self.answered(answers).await;
                }
                Some(()) = OptionFuture::from(self.retry.as_mut()) => self.retry = None,
                Some(written) = OptionFuture::from(self.writing.as_mut()) => {
                    self.writing = None;
                    self.written(&flatten(written));
                }
                _ = ticks.tick() => {
                    if self.shared.partitions.iter().any(|partition| partition.is_dirty()) {
                        self.begin_writing();
                    }
                }
                item = next_item(&mut self.subscription) => match item {
                    Some(item) => {
                        self.read(item);
                        // A log that always has more must not keep the worker for itself.
                        tokio::task::yield_now().await;
                    }
                    None => self.subscription_ended(),
                },
            }
            if !self.flushing.is_empty() {
                self.begin_writing();
            }
            self.ask();
        }
    }

    // ----- assignments -----

    fn reconcile(&mut self, desired: BTreeSet<i32>, reply: Reply) {
        let gone: Vec<_> = self.assigned.keys().copied().collect();
        for partition in gone
            .into_iter()
            .filter(|partition| !desired.contains(partition))
        {
            self.assigned.remove(&partition);
            if let Some((_, handle)) = &self.subscription {
                handle.remove(partition);
            }
            self.shared.partition(partition).unassign();
            self.shared.lag[index(partition)].set(0);
        }
        for &partition in &desired {
            if !self.assigned.contains_key(&partition) {
                self.begin_asking(partition, None);
            }
        }
        self.reconciling.push((desired, reply));
        self.answer_reconciled();
        self.shared.ready.notify_waiters();
    }

    /// Closes the partition's gate until the log has said where its replay begins.
    fn begin_asking(&mut self, partition: i32, lost: Option<i64>) {
        self.assignments += 1;
        self.shared.partition(partition).assign(self.assignments);
        // Marks that were asked for before do not count: the log may have grown since.
        let round = self.round + 1;
        self.assigned
            .insert(partition, Reading::Asking { round, lost });
    }

    fn is_asking(&self, partition: i32) -> bool {
        matches!(self.assigned.get(&partition), Some(Reading::Asking { .. }))
    }

    /// Answers the callers whose partitions are all being read.
    fn answer_reconciled(&mut self) {
        for (desired, reply) in std::mem::take(&mut self.reconciling) {
            if desired.iter().any(|&partition| self.is_asking(partition)) {
                self.reconciling.push((desired, reply));
            } else {
                let _ = reply.send(Ok(()));
            }
        }
    }

    // ----- questions to the log -----

    /// Asks the log, if there is something to ask and nothing is on its way.
    fn ask(&mut self) {
        let is_needed = (self.subscription.is_none() && !self.assigned.is_empty())
            || self
                .assigned
                .values()
                .any(|reading| matches!(reading, Reading::Asking { .. }));
        if !is_needed || self.asking.is_some() || self.retry.is_some() {
            return;
        }
        self.round += 1;
        let log = Arc::clone(&self.shared.log);
        let limit = self.shared.config.log_timeout;
        let is_subscribed = self.subscription.is_some();
        let questions = async move {
            let subscription = if is_subscribed {
                None
            } else {
                Some(log.subscribe(Vec::new()).await?)
            };
            Ok(Answers {
                subscription,
                low: log.low_water_marks().await?,
                high: log.high_water_marks().await?,
            })
        };
        self.asking = Some(
            async move {
                let late = |_| {
                    Err(MetadataLogError::Unavailable {
                        reason: format!("the metadata log did not answer within {limit:?}"),
                        source: None,
                    })
                };
                tokio::time::timeout(limit, questions)
                    .await
                    .unwrap_or_else(late)
            }
            .boxed(),
        );
    }

    async fn answered(&mut self, answers: Result<Answers, MetadataLogError>) {
        let count = self.shared.partitions.len();
        let answers = answers.and_then(|answers| {
            if answers.low.len() == count && answers.high.len() == count {
                return Ok(answers);
            }
            Err(MetadataLogError::Rejected {
                reason: format!(
                    "the metadata log had {count} partitions at the start, and has {} now: events \
                     are in other partitions than before",
                    answers.high.len()
                ),
                source: None,
            })
        });
        match answers {
            Ok(answers) => {
                self.retry_after = FIRST_RETRY;
                self.begin_reading(answers).await;
            }
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    retry_after = ?self.retry_after,
                    "the metadata log cannot be read"
                );
                self.retry = Some(Box::pin(tokio::time::sleep(self.retry_after)));
                self.retry_after = (self.retry_after * 2).min(LAST_RETRY);
                for (desired, reply) in std::mem::take(&mut self.reconciling) {
                    let asking = desired
                        .into_iter()
                        .find(|&partition| self.is_asking(partition));
                    let _ = reply.send(asking.map_or(Ok(()), |partition| {
                        Err(RemoteStorageError::NotReady { partition })
                    }));
                }
            }
        }
    }

    async fn begin_reading(&mut self, answers: Answers) {
        if let Some(subscription) = answers.subscription {
            self.subscription = Some(subscription);
            // Those that were read by a subscription before go on where it ended.
            self.read_on();
        }
        let asked: Vec<_> = self
            .assigned
            .iter()
            .filter_map(|(&partition, reading)| match reading {
                Reading::Asking { round, lost } if *round <= self.round => Some((partition, *lost)),
                _ => None,
            })
            .collect();
        for (number, lost) in asked {
            let (low, high) = (answers.low[index(number)], answers.high[index(number)]);
            let (caches, position) = self.where_to_begin(number, lost, low, high).await;
            self.shared
                .partition(number)
                .begin_replay(caches, position, high);
            self.shared.lag[index(number)].set((high - position).max(0));
            self.begin_pages(number, position);
        }
        self.answer_reconciled();
        self.shared.ready.notify_waiters();
    }

    fn begin_pages(&mut self, partition: i32, position: i64) {
        if let Some((_, handle)) = &self.subscription {
            let start = PartitionStart {
                partition,
                start_offset: position,
            };
            let generation = handle.add(start);
            self.assigned
                .insert(partition, Reading::Pages { generation });
        }
    }

    fn read_on(&mut self) {
        let reading: Vec<_> = self
            .assigned
            .iter()
            .filter(|(_, reading)| matches!(reading, Reading::Pages { .. }))
            .map(|(&partition, _)| partition)
            .collect();
        for partition in reading {
            let position = self.shared.partition(partition).position();
            self.begin_pages(partition, position);
        }
    }

    /// The state and the offset that a replay begins with: those of the snapshot where the log can
    /// be read on from there, else nothing and the log's start.
    async fn where_to_begin(
        &mut self,
        number: i32,
        lost: Option<i64>,
        low: i64,
        high: i64,
    ) -> (Caches, i64) {
        let parked = self.parked.remove(&number);
        let position = match parked {
            Some(parked) if lost.is_none() && parked.fits(low, high) => {
                return (parked.caches, parked.position);
            }
            parked => lost.or(parked.map(|parked| parked.position)),
        };
        if let Some(position) = position {
            restarted(number, position, low, high);
            self.put_snapshot_aside(number, low, high).await;
            // The next snapshot says what is known then.
            self.shared.partition(number).set_dirty(true);
        }
        (Caches::new(), low)
    }

    // ----- the replay -----

    fn read(&mut self, item: MetadataStreamItem) {
        let is_current = |partition, of| {
            matches!(
                self.assigned.get(&partition),
                Some(Reading::Pages { generation }) if *generation == of
            )
        };
        match item {
            MetadataStreamItem::Page(page) if is_current(page.partition, page.generation) => {
                self.apply(&page);
            }
            MetadataStreamItem::OutOfRange {
                partition,
                generation,
                position,
            } if is_current(partition, generation) => {
                if let Some((_, handle)) = &self.subscription {
                    handle.remove(partition);
                }
                self.shared.partition(partition).unassign();
                self.begin_asking(partition, Some(position));
            }
            // Of an assignment that has ended.
            MetadataStreamItem::Page(_) | MetadataStreamItem::OutOfRange { .. } => {}
        }
    }

    fn apply(&self, page: &MetadataEventPage) {
        let partition = self.shared.partition(page.partition);
        let was_ready = partition.check_ready().is_ok();
        let has_become_ready = partition.apply(page);
        if !was_ready {
            let readiness = partition.readiness();
            let lag = readiness.and_then(|readiness| readiness.lag());
            self.shared.lag[index(page.partition)].set(lag.unwrap_or(0));
        }
        if has_become_ready {
            self.shared.ready.notify_waiters();
        }
    }

    fn subscription_ended(&mut self) {
        tracing::warn!("the subscription to the metadata log has ended; subscribing again");
        self.subscription = None;
        for &partition in self.assigned.keys() {
            self.shared.partition(partition).fail_waiting();
        }
        // A log that was closed ends each subscription at once.
        self.retry = Some(Box::pin(tokio::time::sleep(self.retry_after)));
        self.retry_after = (self.retry_after * 2).min(LAST_RETRY);
    }

    // ----- snapshots -----

    /// Before the partition's replay begins: a process that is killed must not find the snapshot.
    async fn put_snapshot_aside(&mut self, partition: i32, low: i64, high: i64) {
        // What is being written may have the same offsets.
        if let Some(writing) = self.writing.take() {
            let written = flatten(writing.await);
            self.written(&written);
        }
        let shared = Arc::clone(&self.shared);
        let done = tokio::task::spawn_blocking(move || {
            snapshot_store::put_stale_aside(&shared, partition, low, high);
        });
        if let Err(error) = done.await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the snapshot was not put aside"
            );
        }
    }

    async fn load_snapshot(&mut self) {
        let shared = Arc::clone(&self.shared);
        let loaded = tokio::task::spawn_blocking(move || snapshot_store::load(&shared)).await;
        match loaded {
            Ok(loaded) => self.parked = loaded,
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the snapshot was not loaded; the metadata log is replayed"
            ),
        }
        self.shared.loaded.send_replace(true);
    }

    fn begin_writing(&mut self) {
        if self.writing.is_none() {
            self.writing = Some(self.write_snapshot());
        }
    }

    fn write_snapshot(&self) -> JoinHandle<Result<(), RemoteStorageError>> {
        let shared = Arc::clone(&self.shared);
        let parked: Vec<_> = self
            .parked
            .iter()
            .map(|(&partition, parked)| (partition, parked.position, parked.caches.clone()))
            .collect();
        tokio::task::spawn_blocking(move || snapshot_store::write(&shared, &parked))
    }

    fn written(&mut self, written: &Result<(), RemoteStorageError>) {
        report(written);
        for reply in self.flushing.drain(..) {
            let _ = reply.send(written.clone());
        }
    }

    async fn write_last_snapshot(&mut self) -> Result<(), RemoteStorageError> {
        // Two at once would write the same file.
        if let Some(writing) = self.writing.take() {
            let _ = writing.await;
        }
        let written = flatten(self.write_snapshot().await);
        report(&written);
        written
    }
}

async fn next_item(
    subscription: &mut Option<(MetadataEventStream, Arc<dyn AssignmentHandle>)>,
) -> Option<MetadataStreamItem> {
    match subscription {
        Some((stream, _)) => stream.next().await,
        None => std::future::pending().await,
    }
}

/// A task that panicked has failed as well.
fn flatten(
    ended: Result<Result<(), RemoteStorageError>, JoinError>,
) -> Result<(), RemoteStorageError> {
    ended.unwrap_or_else(|error| Err(std::io::Error::other(error).into()))
}

fn report(written: &Result<(), RemoteStorageError>) {
    match written {
        Ok(()) => telemetry::snapshot(SnapshotOutcome::Written),
        Err(error) => {
            telemetry::snapshot(SnapshotOutcome::Failed);
            tracing::warn!(
                error = error as &dyn std::error::Error,
                "the snapshot was not written; the one before stays"
            );
        }
    }
}

fn restarted(partition: i32, position: i64, low: i64, high: i64) {
    let reason = if position < low {
        RestartReason::Trimmed
    } else if position > high {
        RestartReason::Shorter
    } else {
        RestartReason::Unreadable
    };
    telemetry::restarted(reason);
    tracing::warn!(
        partition,
        position,
        low,
        high,
        ?reason,
        "the metadata log cannot be read on: what was known of the partition is dropped, and the \
         log is replayed from its start"
    );
}

/// The place of a partition that is in range.
fn index(partition: i32) -> usize {
    usize::try_from(partition).expect("a metadata partition in range")
}
