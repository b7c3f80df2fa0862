//! Three managers on one log, and everything that can happen to them, by the roll of seeded dice.
//!
//! Each ready manager must answer as a model that replays the log, and no call may wait longer
//! than its deadline. Time is paused, so a wait that nothing ends shows at once.

use krabka_remote_storage::metadata::RemoteLogMetadataCache;
use krabka_remote_storage::topic::InProcessMetadataEventLog;
use krabka_remote_storage::{
    RemoteLogMetadataStore, RemotePartitionDeleteMetadata, RemotePartitionDeleteState,
    RemoteStorageError,
};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};

use super::*;

const SEEDS: u64 = 200;
/// The optimised build (`tests/run.sh release`) goes all the way.
const STEPS: usize = if cfg!(debug_assertions) { 250 } else { 10_000 };
const MANAGERS: usize = 3;
const TOPIC_PARTITIONS: i32 = 6;

struct Simulation {
    dice: StdRng,
    log: Arc<InProcessMetadataEventLog>,
    managers: Vec<(Arc<TopicBasedRemoteLogMetadataManager>, TempDir)>,
    model: Vec<RemoteLogMetadataCache>,
    modelled: Vec<i64>,
    segments: Vec<RemoteLogSegmentMetadata>,
    /// How many calls ended how; a simulation in which nothing succeeds shows nothing.
    applied: usize,
    refused: usize,
    compared: usize,
}

fn tp(partition: i32) -> TopicIdPartition {
    TopicIdPartition::new(Uuid::from_u128(0xca), "orders", partition)
}

fn number_of(tp: &TopicIdPartition) -> usize {
    usize::try_from(tp.partition).unwrap()
}

impl Simulation {
    async fn new(seed: u64) -> Self {
        let log = InProcessMetadataEventLog::new(PARTITIONS);
        let mut managers = Vec::new();
        for _ in 0..MANAGERS {
            let dir = TempDir::new().unwrap();
            managers.push((start(&log, &dir), dir));
        }
        let mut simulation = Self {
            dice: StdRng::seed_from_u64(seed),
            log,
            managers,
            model: (0..TOPIC_PARTITIONS)
                .map(tp)
                .map(RemoteLogMetadataCache::new)
                .collect(),
            modelled: vec![0; usize::try_from(PARTITIONS).unwrap()],
            segments: Vec::new(),
            applied: 0,
            refused: 0,
            compared: 0,
        };
        for manager in 0..MANAGERS {
            simulation.assign(manager).await;
        }
        simulation
    }

    fn new_segment(&mut self) -> RemoteLogSegmentMetadata {
        let tp = tp(self.dice.random_range(0..TOPIC_PARTITIONS));
        let start = self.dice.random_range(0..20) * 10;
        let first = self.dice.random_range(0..3);
        let mut epochs = vec![(first, start)];
        if self.dice.random_bool(0.3) {
            epochs.push((first + 1, start + 5));
        }
        let id = self.dice.random();
        let end = start + self.dice.random_range(5..30);
        let at = self.dice.random_range(0..1000);
        let spec = SegmentSpec::new(id, start..=end).of(&tp).size(1024);
        let segment = spec.epochs(&epochs).at(1, at).make();
        let segment = segment.with_txn_index_empty(self.dice.random_bool(0.5));
        self.segments.push(segment.clone());
        segment
    }

    async fn assign(&mut self, manager: usize) {
        let some: Vec<_> = (0..PARTITIONS)
            .filter(|_| self.dice.random_bool(0.8))
            .collect();
        within_its_deadline(self.managers[manager].0.reconcile_assignment(&some))
            .await
            .unwrap();
    }

    async fn change(&mut self, manager: usize) {
        let manager = Arc::clone(&self.managers[manager].0);
        let known = self.segments.choose(&mut self.dice).cloned();
        let answer = match (self.dice.random_range(0..100), known) {
            (0..35, _) | (_, None) => {
                let segment = self.new_segment();
                within_its_deadline(manager.add_segment(segment)).await
            }
            (35..97, Some(known)) => {
                let state = *RemoteLogSegmentState::ALL[1..]
                    .choose(&mut self.dice)
                    .unwrap();
                let mut event = update(&known, state);
                event.event_timestamp_ms = self.dice.random_range(0..3);
                within_its_deadline(manager.update_segment(event)).await
            }
            _ => {
                let tp = tp(self.dice.random_range(0..TOPIC_PARTITIONS));
                // Seldom the last step: a deleted partition stays so.
                let last = if self.dice.random_bool(0.1) { 3 } else { 2 };
                let state = *RemotePartitionDeleteState::ALL[..last]
                    .choose(&mut self.dice)
                    .unwrap();
                let event = RemotePartitionDeleteMetadata::new(tp, state, 1, 1);
                within_its_deadline(manager.put_partition_delete(event)).await
            }
        };
        self.tally(answer);
    }

    fn tally(&mut self, answer: Result<(), RemoteStorageError>) {
        match answer {
            Ok(()) => self.applied += 1,
            Err(
                RemoteStorageError::NotReady { .. }
                | RemoteStorageError::InvalidAdd { .. }
                | RemoteStorageError::InvalidArgument(_)
                | RemoteStorageError::InvalidSegmentTransition { .. }
                | RemoteStorageError::InvalidPartitionDeleteTransition { .. }
                | RemoteStorageError::SegmentNotFound(_),
            ) => self.refused += 1,
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Several callers of several managers at once.
    async fn change_at_once(&mut self) {
        let segment = self.new_segment();
        let calls: Vec<_> = (0..4)
            .map(|call| {
                let manager = Arc::clone(&self.managers[call % MANAGERS].0);
                let segment = segment.clone();
                async move {
                    match call {
                        0 | 1 => within_its_deadline(manager.add_segment(segment)).await,
                        _ => within_its_deadline(manager.update_segment(finished(&segment))).await,
                    }
                }
            })
            .collect();
        for answer in futures::future::join_all(calls).await {
            self.tally(answer);
        }
    }

    async fn restart(&mut self, manager: usize, is_clean: bool) {
        let old = Arc::clone(&self.managers[manager].0);
        if is_clean {
            within_its_deadline(old.shutdown_and_flush()).await.unwrap();
        }
        drop(old);
        let new = start(&self.log, &self.managers[manager].1);
        self.managers[manager].0 = new;
        self.assign(manager).await;
    }

    /// Brings the model to the end of the log, and every manager.
    async fn catch_up(&mut self) {
        let high = self.log.high_water_marks().await.unwrap();
        for (partition, &high) in (0..).zip(&high) {
            let from = &mut self.modelled[usize::try_from(partition).unwrap()];
            for record in self.log.read_range(partition, *from, high).await.unwrap() {
                let event = MetadataEvent::decode(&record.payload).unwrap();
                let cache = &mut self.model[number_of(event.topic_id_partition())];
                let _ = cache.replay(record.offset, &event);
            }
            *from = high;
        }
        for (manager, _) in &self.managers {
            within_its_deadline(manager.wait_until_ready())
                .await
                .unwrap();
            for _ in 0..100 {
                let readiness = manager.metadata_partition_readiness();
                let is_behind = |partition: i32, applied: i64| {
                    applied + 1 < high[usize::try_from(partition).unwrap()]
                };
                if !readiness
                    .iter()
                    .any(|one| is_behind(one.partition, one.applied_offset))
                {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
    }

    async fn compare(&mut self) {
        self.catch_up().await;
        for (manager, _) in &self.managers {
            let assigned = manager.assigned_metadata_partitions();
            for model in &self.model {
                let tp = model.topic_id_partition();
                if !assigned.contains(&metadata_partition_for(tp, PARTITIONS)) {
                    assert_eq!(manager.list_segments(tp).await.unwrap(), []);
                    continue;
                }
                let listed: Vec<_> = model
                    .list_segments()
                    .iter()
                    .map(krabka_remote_storage::metadata::SegmentView::to_metadata)
                    .collect();
                assert_eq!(manager.list_segments(tp).await.unwrap(), listed);
                for epoch in (0..4).map(LeaderEpoch) {
                    let highest = model.highest_offset(epoch);
                    assert_eq!(manager.highest_offset(tp, epoch).await.unwrap(), highest);
                    assert_eq!(
                        manager.log_size(tp, epoch).await.unwrap(),
                        model.log_size(epoch)
                    );
                    for offset in (0..230).step_by(5) {
                        let found = model.find_segment(epoch, offset).map(|s| s.to_metadata());
                        assert_eq!(
                            manager.find_segment(tp, epoch, offset).await.unwrap(),
                            found
                        );
                        self.compared += 1;
                    }
                }
            }
        }
    }

    async fn step(&mut self) {
        let manager = self.dice.random_range(0..MANAGERS);
        match self.dice.random_range(0..1000) {
            0..30 => self.assign(manager).await,
            30..34 => self.restart(manager, true).await,
            34..38 => self.restart(manager, false).await,
            38..40 => self.managers[manager].0.flush().await.unwrap(),
            40..43 => tokio::time::sleep(Duration::from_secs(self.dice.random_range(1..90))).await,
            43..100 => self.change_at_once().await,
            100..101 => self.compare().await,
            _ => self.change(manager).await,
        }
    }
}

/// Nothing here may wait: the log answers at once, and a deadline is 120 s.
async fn within_its_deadline<T>(call: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(121);
    tokio::time::timeout(limit, call)
        .await
        .expect("an answer within the deadline")
}

fn simulate(seed: u64) -> usize {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut simulation = Simulation::new(seed).await;
        for _ in 0..STEPS {
            simulation.step().await;
        }
        simulation.compare().await;
        assert!(
            simulation.applied > STEPS / 20,
            "{} applied",
            simulation.applied
        );
        assert!(
            simulation.refused > STEPS / 20,
            "{} refused",
            simulation.refused
        );
        simulation.compared
    })
}

#[test]
fn every_ready_manager_answers_as_a_model_that_replays_the_log() {
    let compared: usize = std::thread::scope(|scope| {
        let halves = [0, 1].map(|half| {
            scope.spawn(move || {
                let seeds = (0..SEEDS).filter(|seed| seed % 2 == half);
                seeds.map(simulate).sum::<usize>()
            })
        });
        halves
            .into_iter()
            .map(|half| half.join().expect("a simulation that holds"))
            .sum()
    });
    assert!(compared > 100_000, "{compared} answers compared");
}
