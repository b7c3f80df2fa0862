//! Writers that go on whatever happens to the brokers, and what must be true of their events.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use krabka_remote_storage::testing::segments::{SegmentSpec, orders};
use krabka_remote_storage::topic::{
    EventOutcome, KafkaMetadataEventLog, KafkaMetadataLogConfig, MetadataEvent,
    MetadataEventLog as _, TopicBasedRemoteLogMetadataManager,
};
use krabka_remote_storage::{
    ErrorKind, RemoteLogMetadataStore as _, RemoteLogSegmentMetadata, RemoteStorageError,
    TopicIdPartition,
};
use uuid::Uuid;

use super::cluster::{Managed, a_moment, log, within};
use super::oracle::all_records;

const WRITERS: usize = 32;
/// Calls of all writers together, at least.
pub(crate) const CALLS: usize = 10_000;
/// A writer's rest between two calls: the brokers' troubles have to come in between.
const REST: Duration = Duration::from_millis(4);

/// How a call ended, of the three ways that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Applied,
    NotSent,
    Unknown,
}

/// Calls that are under way, and that have ended.
#[derive(Default)]
pub(crate) struct Progress {
    applied: AtomicUsize,
    failed: AtomicUsize,
    calls: AtomicUsize,
    /// The writers end with [`CALLS`], and not before this is set.
    pub(crate) may_end: AtomicBool,
}

impl Progress {
    pub(crate) async fn more_applied(&self, more: usize) {
        let before = self.applied.load(Ordering::SeqCst);
        within("applied calls", async {
            while self.applied.load(Ordering::SeqCst) < before + more {
                a_moment().await;
            }
        })
        .await;
    }

    pub(crate) async fn a_failure(&self) {
        within("a call that fails", async {
            while self.failed.load(Ordering::SeqCst) == 0 {
                a_moment().await;
            }
        })
        .await;
    }
}

/// The partition of a writer.
fn partition(writer: usize) -> TopicIdPartition {
    let number = i32::try_from(writer).unwrap();
    orders(0xca, number)
}

fn segment(writer: usize, number: i64) -> RemoteLogSegmentMetadata {
    let spec = SegmentSpec::new(Uuid::new_v4().as_u128(), number..=number);
    spec.of(&partition(writer)).at(0, 1).make()
}

async fn write(
    manager: Arc<TopicBasedRemoteLogMetadataManager>,
    writer: usize,
    progress: Arc<Progress>,
) -> Vec<(RemoteLogSegmentMetadata, End)> {
    let mut ended = Vec::new();
    for number in 0.. {
        let is_enough = progress.calls.fetch_add(1, Ordering::SeqCst) >= CALLS;
        if is_enough && progress.may_end.load(Ordering::SeqCst) {
            break;
        }
        let segment = segment(writer, number);
        let end = match manager.add_segment(segment.clone()).await {
            Ok(()) => End::Applied,
            Err(RemoteStorageError::EventNotSent { .. } | RemoteStorageError::NotReady { .. }) => {
                End::NotSent
            }
            Err(error) if error.kind() == ErrorKind::OutcomeUnknown => End::Unknown,
            Err(error) => panic!("writer {writer}, event {number}: {error:?}"),
        };
        let counter = match end {
            End::Applied => &progress.applied,
            End::NotSent | End::Unknown => &progress.failed,
        };
        counter.fetch_add(1, Ordering::SeqCst);
        ended.push((segment, end));
        tokio::time::sleep(REST).await;
    }
    ended
}

/// Has the writers write until [`CALLS`] and `troubles` have come to their end. Then every
/// acknowledged event is in the topic exactly once, no unknown one twice and no other one at all;
/// and the manager, which nobody has helped, works and knows what another one reads.
pub(crate) async fn writers_lose_nothing<T: Future<Output = ()>>(
    config: &KafkaMetadataLogConfig,
    log: &Arc<KafkaMetadataEventLog>,
    troubles: impl FnOnce(Arc<Progress>) -> T,
) {
    let managed = Managed::ready(log).await;
    let progress = Arc::new(Progress::default());
    let writers = (0..WRITERS).map(|writer| {
        let manager = Arc::clone(&managed.manager);
        tokio::spawn(write(manager, writer, Arc::clone(&progress)))
    });
    let writers = join_all(writers.collect::<Vec<_>>());
    let finish = async {
        troubles(Arc::clone(&progress)).await;
        progress.may_end.store(true, Ordering::SeqCst);
    };
    let (ended, ()) = within("the writers", async { tokio::join!(writers, finish) }).await;
    let ended: Vec<_> = ended.into_iter().flat_map(Result::unwrap).collect();
    assert!(ended.len() >= CALLS, "{}", ended.len());

    // Nobody has touched the manager.
    for writer in 0..WRITERS {
        let last = segment(writer, i64::from(u32::MAX));
        within("a write", managed.manager.add_segment(last))
            .await
            .unwrap_or_else(|error| panic!("writer {writer}: {error:?}"));
    }
    events_are_there_once(config, &managed, &ended).await;
    another_manager_reads_the_same(config, &managed).await;
    let high = log.high_water_marks().await.unwrap();
    for readiness in managed.manager.metadata_partition_readiness() {
        assert!(readiness.ready);
        let index = usize::try_from(readiness.partition).unwrap();
        assert_eq!(readiness.applied_offset, high[index] - 1);
    }
}

async fn events_are_there_once(
    config: &KafkaMetadataLogConfig,
    managed: &Managed,
    ended: &[(RemoteLogSegmentMetadata, End)],
) {
    let reader = KafkaMetadataEventLog::open_read_only(config.clone());
    let reader = within("a reader", reader).await.unwrap();
    let mut times: HashMap<Uuid, usize> = HashMap::new();
    for record in within("the records", all_records(&*reader)).await {
        let MetadataEvent::AddSegment(added) = MetadataEvent::decode(&record.payload).unwrap()
        else {
            panic!("nobody writes anything else: {record:?}")
        };
        *times.entry(added.remote_log_segment_id().id).or_default() += 1;
    }
    reader.shutdown().await;

    let (mut applied, mut unknown, mut not_sent) = (0, 0, 0);
    for (segment, end) in ended {
        let times = times
            .get(&segment.remote_log_segment_id().id)
            .copied()
            .unwrap_or(0);
        match end {
            End::Applied => {
                assert_eq!(times, 1, "{segment:?}");
                applied += 1;
            }
            End::NotSent => {
                assert_eq!(times, 0, "{segment:?}");
                not_sent += 1;
            }
            End::Unknown => {
                assert!(times <= 1, "{times} times: {segment:?}");
                let event = MetadataEvent::AddSegment(segment.clone());
                let outcome = managed.manager.outcome_of(&event);
                assert_eq!(
                    matches!(outcome, Some(EventOutcome::Applied { .. })),
                    times == 1,
                    "{outcome:?}: {segment:?}"
                );
                unknown += 1;
            }
        }
    }
    println!("{applied} calls were applied, {unknown} unknown, {not_sent} not sent");
    assert!(applied > CALLS / 2, "{applied}");
}

async fn another_manager_reads_the_same(config: &KafkaMetadataLogConfig, managed: &Managed) {
    let other = log(config).await;
    let replayed = Managed::ready(&other).await;
    for writer in 0..WRITERS {
        let tp = partition(writer);
        let known = managed.manager.list_segments(&tp).await.unwrap();
        let read = replayed.manager.list_segments(&tp).await.unwrap();
        assert!(known == read, "{tp}: {} and {}", known.len(), read.len());
        assert!(known.len() > CALLS / WRITERS / 4, "{}", known.len());
    }
    other.shutdown().await;
}
