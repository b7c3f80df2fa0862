//! Copies that end at every point there is, and the leader that goes on afterwards.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use krabka_remote_storage::archive::{
    GradeRules, LeftoverResolution, OrphanClass, TrustedManifestKeys, Verdict, VerifyBreakKind,
    leftovers, resolve_leftovers,
};
use krabka_remote_storage::backends::RequestLimits;
use krabka_remote_storage::segment::MultipartCreate;
use krabka_remote_storage::{
    ArchiveVerifyReport, ChainStamp, CopySegment, CustomMetadata, ErrorKind,
    RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState, RemoteStorage,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use uuid::Uuid;

use super::leader::{
    KEY_ID, RULES, archive, archiver, archiver_as, builder, copy_to, epoch, public, record,
    trusted, verify, verify_with,
};
use crate::support::with;
use krabka_remote_storage::testing::store::{Fate, Outcome, TestStore};

/// A leader of one partition: what its metadata store knows. It outlives processes.
struct Leader {
    dir: TempDir,
    segments: Vec<RemoteLogSegmentMetadata>,
    next_id: u128,
    next_epoch: u128,
}

impl Leader {
    fn new() -> Self {
        Self {
            dir: TempDir::new().unwrap(),
            segments: Vec::new(),
            next_id: 1,
            next_epoch: 1,
        }
    }

    /// Settles what is left over, and says where the next copy goes.
    async fn seed(&mut self, storage: &RemoteStorage, writer_is_gone: bool) -> ChainStamp {
        let left = leftovers(&self.segments);
        let evidence = storage.leftover_evidence(&left, writer_is_gone).await;
        let settled = resolve_leftovers(&self.segments, &evidence, &trusted());
        for (id, resolution) in settled.resolutions() {
            match resolution {
                LeftoverResolution::RollBack => {
                    self.update(*id, RemoteLogSegmentState::DeleteSegmentStarted, None);
                    self.update(*id, RemoteLogSegmentState::DeleteSegmentFinished, None);
                }
                LeftoverResolution::Adopt(receipt) => self.update(
                    *id,
                    RemoteLogSegmentState::CopySegmentFinished,
                    Some(receipt.to_custom_metadata()),
                ),
                LeftoverResolution::Leave => {}
            }
        }
        self.next_epoch += 1;
        settled
            .next_chain_stamp(&self.segments, epoch(self.next_epoch))
            .unwrap()
    }

    /// The next copy, which the metadata store knows of.
    fn start(&mut self, stamp: ChainStamp) -> CopySegment {
        let finished = self
            .segments
            .iter()
            .filter(|segment| segment.state() == RemoteLogSegmentState::CopySegmentFinished);
        let start_offset = finished.map(|s| s.end_offset() + 1).max().unwrap_or(0);
        let copy = copy_to(&self.dir, self.next_id, start_offset, stamp);
        self.next_id += 1;
        self.segments.push(copy.metadata.as_ref().clone());
        copy
    }

    fn finish(&mut self, copy: &CopySegment, receipt: CustomMetadata) {
        let asked = record(copy.metadata.custom_metadata()).stamp();
        assert_eq!(record(Some(&receipt)).stamp(), asked);
        let id = copy.metadata.remote_log_segment_id().id;
        self.update(
            id,
            RemoteLogSegmentState::CopySegmentFinished,
            Some(receipt),
        );
    }

    fn update(
        &mut self,
        id: Uuid,
        state: RemoteLogSegmentState,
        custom_metadata: Option<CustomMetadata>,
    ) {
        for segment in &mut self.segments {
            let segment_id = segment.remote_log_segment_id().clone();
            if segment_id.id == id {
                let update =
                    RemoteLogSegmentMetadataUpdate::new(segment_id, 9, custom_metadata, state, 7);
                *segment = segment.with_update(&update).unwrap();
                return;
            }
        }
    }

    /// One whole round: a segment more in the archive.
    async fn round(&mut self, storage: &RemoteStorage, writer_is_gone: bool) {
        let stamp = self.seed(storage, writer_is_gone).await;
        let copy = self.start(stamp);
        let receipt = storage.copy(copy.clone()).await.unwrap();
        self.finish(&copy, receipt.custom_metadata.unwrap());
    }

    fn finished(&self) -> u64 {
        let finished = self
            .segments
            .iter()
            .filter(|segment| segment.state() == RemoteLogSegmentState::CopySegmentFinished);
        finished.count() as u64
    }
}

/// A process of its own: it ends with everything in it.
fn process() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap()
}

/// No break, nothing replaced or removed, and no object that nothing explains.
async fn sound(store: &Arc<TestStore>, what: &str) -> ArchiveVerifyReport {
    let report = verify(store).await;
    assert_eq!(report.first_break(), None, "{what}");
    assert!(report.fully_attested(), "{what}");
    let partition = &report.partitions[0];
    assert!(
        partition
            .orphan_objects
            .iter()
            .all(|orphan| orphan.class == OrphanClass::Superseded),
        "{what}: {:#?}",
        partition.orphan_objects
    );
    assert!(partition.offset_gaps.is_empty(), "{what}");
    for kind in ["put", "delete", "complete"] {
        assert_eq!(store.count(kind), 0, "{what}");
    }
    report
}

/// Polls a future this often, and drops it then. Whether it has ended.
async fn polled<F: Future>(future: F, times: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut polls = 0;
    poll_fn(|cx| {
        polls += 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polls == times => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Drops a copy when `gives_up` says so, and goes on in the same process. Whether the copy had
/// ended, and whether its manifest came to stand.
fn dropped<F: Future<Output = ()>>(
    what: &str,
    gives_up: impl FnOnce(&TestStore) -> F,
    polls: usize,
) -> (bool, bool) {
    process().block_on(async {
        let store = TestStore::new();
        let storage = archive(&store);
        let mut leader = Leader::new();
        leader.round(&storage, false).await;
        let stamp = leader.seed(&storage, false).await;
        let copy = leader.start(stamp);
        let gives_up = gives_up(&store);
        let ended = tokio::select! {
            biased;
            ended = polled(storage.copy(copy), polls) => ended.is_some(),
            () = gives_up => false,
        };
        leader.round(&storage, false).await;
        leader.round(&storage, false).await;
        let report = sound(&store, what).await;
        assert!(!report.has_epoch_restarts(), "{what}");
        assert_eq!(report.manifests(), leader.finished(), "{what}");
        (ended, leader.finished() == 4)
    })
}

#[test]
fn a_copy_that_is_dropped_at_any_await_leaves_one_chain_that_goes_on() {
    // A copy that was never polled has not begun.
    for polls in 1.. {
        let what = format!("dropped after {polls} polls");
        let (ended, stands) = dropped(&what, |_| std::future::pending(), polls);
        assert!(stands || !ended, "{what}");
        if ended {
            break;
        }
    }
}

#[test]
fn a_copy_that_is_dropped_during_any_request_stands_if_that_was_its_manifest() {
    for number in 0..REQUESTS {
        let what = format!("dropped at request {number}");
        let until = |store: &TestStore| {
            let count = at_request(store, number, Outcome::Served);
            async move {
                while count.load(Ordering::SeqCst) <= number {
                    tokio::task::yield_now().await;
                }
            }
        };
        let (ended, stands) = dropped(&what, until, usize::MAX);
        assert!(!ended, "{what}");
        assert_eq!(stands, number == REQUESTS - 1, "{what}");
    }
}

/// The number of requests of a copy.
const REQUESTS: usize = 7;

/// Lets this many requests through, and treats the next like this.
fn at_request(store: &TestStore, number: usize, outcome: Outcome) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    store.script(move |_, _| Fate {
        outcome: if seen.fetch_add(1, Ordering::SeqCst) == number {
            outcome
        } else {
            Outcome::Served
        },
        ..Fate::default()
    });
    count
}

#[test]
fn an_answer_lost_at_any_request_is_found_out_within_the_copy() {
    for number in 0..REQUESTS {
        for outcome in [Outcome::AnswerLost, Outcome::Failed(503)] {
            let what = format!("{outcome:?} at {number}");
            process().block_on(async {
                let store = TestStore::new();
                let storage = archive(&store);
                let mut leader = Leader::new();
                leader.round(&storage, false).await;
                at_request(&store, number, outcome);
                leader.round(&storage, false).await;
                leader.round(&storage, false).await;
                let report = sound(&store, &what).await;
                assert!(report.ok() && !report.has_epoch_restarts(), "{what}");
                assert_eq!(report.manifests(), 3, "{what}");
                assert!(report.partitions[0].orphan_objects.is_empty(), "{what}");
            });
        }
    }
}

#[test]
fn a_store_that_is_lost_from_any_request_on_leaves_one_chain_that_goes_on() {
    for number in 0..REQUESTS {
        for outcome in [Outcome::AnswerLost, Outcome::Failed(503)] {
            let what = format!("{outcome:?} from {number} on");
            process().block_on(async {
                let store = TestStore::new();
                let storage = archive(&store);
                let mut leader = Leader::new();
                leader.round(&storage, false).await;
                let stamp = leader.seed(&storage, false).await;
                let copy = leader.start(stamp);
                let count = Arc::new(AtomicUsize::new(0));
                store.script(move |request, _| Fate {
                    outcome: if count.fetch_add(1, Ordering::SeqCst) < number {
                        Outcome::Served
                    } else if request.kind == "create" {
                        outcome
                    } else {
                        Outcome::Failed(503)
                    },
                    ..Fate::default()
                });
                let error = storage.copy(copy.clone()).await.unwrap_err();
                store.script(|_, _| Fate::default());
                let sent = number == REQUESTS - 1;
                assert_eq!(error.kind() == ErrorKind::OutcomeUnknown, sent, "{what}");
                if sent {
                    // The same request again finds out what became of it.
                    let receipt = storage.copy(copy.clone()).await.unwrap();
                    leader.finish(&copy, receipt.custom_metadata.unwrap());
                }
                leader.round(&storage, false).await;
                let report = sound(&store, &what).await;
                assert!(!report.has_epoch_restarts(), "{what}");
                assert_eq!(report.manifests(), leader.finished(), "{what}");
            });
        }
    }
}

/// What the next process can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The store can be read, and the dead process can send nothing any more.
    KnowsItIsGone,
    /// The store can be read, and the dead process may still send.
    FearsItIsNot,
    /// Nothing may be read.
    WriteOnly,
}

#[test]
fn a_process_that_dies_at_any_request_leaves_one_chain_or_a_visible_restart() {
    for number in 0..REQUESTS {
        for outcome in [Outcome::Hangs, Outcome::DoneAndHangs] {
            for next in [Next::KnowsItIsGone, Next::FearsItIsNot, Next::WriteOnly] {
                dies_at(number, outcome, next);
            }
        }
    }
}

fn dies_at(number: usize, outcome: Outcome, next: Next) {
    let what = format!("{outcome:?} at {number}, {next:?}");
    let store = TestStore::new();
    let mut leader = Leader::new();
    process().block_on(async {
        let storage = archive(&store);
        leader.round(&storage, false).await;
        let stamp = leader.seed(&storage, false).await;
        let copy = leader.start(stamp);
        let count = at_request(&store, number, outcome);
        let dead = async {
            while count.load(Ordering::SeqCst) <= number {
                tokio::task::yield_now().await;
            }
            // What is under way beside it goes on for a while, and its own work is done.
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            result = storage.copy(copy) => panic!("{what}: {result:?}"),
            () = dead => {}
        }
    });
    store.script(|_, _| Fate::default());
    let sent = store
        .requests()
        .iter()
        .filter(|request| request.key.ends_with(".manifest") && request.kind == "create")
        .count()
        == 2;
    let stored = sent && outcome == Outcome::DoneAndHangs;

    process().block_on(async {
        let mut builder = builder(&store).seal_on_unchecked_store(
            archiver(1),
            RULES,
            MultipartCreate::Conditional,
        );
        if next == Next::WriteOnly {
            builder = builder.write_only();
        }
        let storage = builder.build().unwrap();
        let gone = next == Next::KnowsItIsGone;
        leader.round(&storage, gone).await;
        leader.round(&storage, gone).await;
        let report = sound(&store, &what).await;
        // The table of the leftover rule.
        let restarts = match next {
            Next::KnowsItIsGone => false,
            Next::FearsItIsNot => !stored,
            Next::WriteOnly => true,
        };
        assert_eq!(report.has_epoch_restarts(), restarts, "{what}");
        assert_eq!(report.manifests(), 3 + u64::from(stored), "{what}");
        assert!(report.ok() || !stored, "{what}");
    });
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_lands_after_its_epoch_was_closed_is_one_more_and_no_fork() {
    let store = TestStore::new();
    let patient = with(RequestLimits::default(), |it| {
        it.request_timeout = Duration::from_hours(1);
        it.retry_timeout = Duration::from_hours(2);
        it.copy_deadline = Duration::from_hours(2);
    });
    let old = builder(&store)
        .limits(patient)
        .seal_on_unchecked_store(archiver(1), RULES, MultipartCreate::Conditional)
        .build()
        .unwrap();
    let mut leader = Leader::new();
    leader.round(&old, false).await;
    let stamp = leader.seed(&old, false).await;
    let copy = leader.start(stamp);
    store.script(|request, before| Fate {
        delay: if request.key.ends_with(".manifest") && request.kind == "create" && before == 13 {
            Duration::from_mins(10)
        } else {
            Duration::ZERO
        },
        ..Fate::default()
    });
    let zombie = tokio::spawn(async move { old.copy(copy).await });
    tokio::time::sleep(Duration::from_secs(1)).await;

    let new = archive(&store);
    leader.round(&new, false).await;
    leader.round(&new, false).await;
    assert_eq!(verify(&store).await.manifests(), 3);
    zombie.await.unwrap().unwrap();
    let report = sound(&store, "late").await;
    assert_eq!(report.manifests(), 4);
    assert!(report.has_epoch_restarts());
    assert_eq!(report.partitions[0].offset_overlaps.len(), 1);
    leader.round(&new, false).await;
    assert_eq!(sound(&store, "after it").await.manifests(), 5);
}

#[tokio::test]
async fn two_archivers_a_lost_metadata_store_another_key_and_a_reader_get_four_verdicts() {
    let grade = |report: &ArchiveVerifyReport| GradeRules::default().grade(report, Ok(&[])).verdict;

    // Two processes that both take themselves for the leader.
    let store = TestStore::new();
    let (one, other) = (archive(&store), archive(&store));
    let mut leader = Leader::new();
    leader.round(&one, false).await;
    let stamp = leader.seed(&one, false).await;
    let (first, second) = (leader.start(stamp), leader.start(stamp));
    one.copy(first).await.unwrap();
    other.copy(second).await.unwrap();
    let report = verify(&store).await;
    let fork = report.first_break().unwrap();
    assert_eq!(fork.kind, VerifyBreakKind::Fork);
    assert_eq!(grade(&report), Verdict::Tamper);

    // A metadata store that begins anew.
    let store = TestStore::new();
    Leader::new().round(&archive(&store), false).await;
    let mut forgetful = Leader::new();
    forgetful.next_id = 50;
    forgetful.next_epoch = 50;
    forgetful.round(&archive(&store), false).await;
    let report = verify(&store).await;
    assert!(report.ok() && report.has_epoch_restarts());
    let restart = GradeRules::default().grade(&report, Ok(&[]));
    assert_eq!(restart.verdict, Verdict::Attestation);
    assert!(
        restart
            .findings
            .iter()
            .any(|f| f.text.contains("restarted 1 time"))
    );

    // Another key from the middle on, which the auditor knows or not.
    let store = TestStore::new();
    let mut leader = Leader::new();
    leader.round(&archive(&store), false).await;
    let rotated = builder(&store)
        .seal_on_unchecked_store(
            archiver_as(2, "worm-key-2"),
            RULES,
            MultipartCreate::Conditional,
        )
        .build()
        .unwrap();
    leader.round(&rotated, false).await;
    leader.round(&rotated, false).await;
    let report = verify(&store).await;
    assert_eq!(report.partitions[0].untrusted_manifests, 2);
    let untrusted = GradeRules::default().grade(&report, Ok(&[]));
    assert_eq!(untrusted.verdict, Verdict::Attestation);
    assert!(
        untrusted
            .findings
            .iter()
            .any(|f| f.text.contains("2 untrusted"))
    );
    let both = TrustedManifestKeys::from_pairs([
        (KEY_ID.to_owned(), public(1)),
        ("worm-key-2".to_owned(), public(2)),
    ]);
    let report = verify_with(&store, &both).await;
    assert!(report.ok() && !report.has_epoch_restarts() && report.manifests() == 3);

    // Verified while it is written.
    let store = TestStore::new();
    let storage = archive(&store);
    let writer = tokio::spawn(async move {
        let mut leader = Leader::new();
        for _ in 0..20 {
            leader.round(&storage, false).await;
        }
    });
    let mut seen = 0;
    while !writer.is_finished() {
        let report = verify(&store).await;
        assert_eq!(report.first_break(), None, "{report:#?}");
        seen = seen.max(report.manifests());
        tokio::task::yield_now().await;
    }
    writer.await.unwrap();
    assert!(seen > 0);
    let report = verify(&store).await;
    assert_eq!(grade(&report), Verdict::Ok);
    assert_eq!(report.manifests(), 20);
}
