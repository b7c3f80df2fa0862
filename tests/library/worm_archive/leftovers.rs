//! A leader that crashes at each point of a copy, and what a verifier says after its retry.

use std::collections::BTreeMap;

use krabka_remote_storage::archive::{
    ArchiveVerifyReport, LeftoverEvidence, LeftoverResolution, OrphanClass, resolve_leftovers,
};
use krabka_remote_storage::{
    ChainStamp, CustomMetadata, EpochId, MANIFEST_SUFFIX, RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState, WormArchiver, WormChainRecord,
};
use object_store::ObjectStoreExt as _;
use object_store::path::Path;
use uuid::Uuid;

use crate::support::archive::{Archive, Key, epoch, key_of, metadata, trusted};

/// The leader of one partition: a store, and the metadata of what was copied to it.
struct Leader {
    archive: Archive,
    metadata: Vec<RemoteLogSegmentMetadata>,
    next_id: u128,
}

/// How far a copy comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Until {
    /// Objects are on their way.
    Uploading,
    /// The manifest was sent and did not arrive (yet).
    Sent,
    /// The manifest is stored; nobody knows.
    Stored,
    /// The metadata says so too.
    Finished,
}

impl Leader {
    /// With two segments in the archive.
    async fn new() -> Self {
        let mut leader = Self {
            archive: Archive::empty(),
            metadata: Vec::new(),
            next_id: 0x5000,
        };
        let mut stamp = ChainStamp::genesis(epoch(1));
        for start_offset in [0, 100] {
            let receipt = leader.copy(start_offset, stamp, Until::Finished).await.1;
            stamp = receipt.next_stamp().unwrap();
        }
        leader
    }

    /// Copies a segment so far, and answers with its id and what its receipt is (or would be).
    async fn copy(
        &mut self,
        start_offset: i64,
        stamp: ChainStamp,
        until: Until,
    ) -> (Uuid, WormChainRecord) {
        let started = metadata("orders", 0, start_offset, self.next_id, stamp);
        self.next_id += 1;
        let id = started.remote_log_segment_id().id;
        self.metadata.push(started.clone());
        let objects = self.archive.upload(&started).await;
        let archiver = WormArchiver::new(Some(std::sync::Arc::new(Key::usual())));
        let sealed = archiver.seal(&started, objects).await.unwrap();
        if until >= Until::Stored {
            let key = key_of(&started, MANIFEST_SUFFIX);
            self.archive.put(&key, sealed.bytes).await;
        }
        if until == Until::Finished {
            self.update(
                id,
                RemoteLogSegmentState::CopySegmentFinished,
                Some(sealed.receipt.to_custom_metadata()),
            );
        }
        (id, sealed.receipt)
    }

    /// The manifest that a dead process had sent arrives after all.
    async fn arrives_late(&self, id: Uuid) {
        let started = self.segment(id).clone();
        let objects = self.archive.upload(&started).await;
        let archiver = WormArchiver::new(Some(std::sync::Arc::new(Key::usual())));
        let sealed = archiver.seal(&started, objects).await.unwrap();
        let key = key_of(&started, MANIFEST_SUFFIX);
        self.archive.put(&key, sealed.bytes).await;
    }

    fn segment(&self, id: Uuid) -> &RemoteLogSegmentMetadata {
        let mut segments = self.metadata.iter();
        segments
            .find(|segment| segment.remote_log_segment_id().id == id)
            .unwrap()
    }

    fn update(
        &mut self,
        id: Uuid,
        state: RemoteLogSegmentState,
        custom_metadata: Option<CustomMetadata>,
    ) {
        for segment in &mut self.metadata {
            let segment_id = segment.remote_log_segment_id().clone();
            if segment_id.id == id {
                let update =
                    RemoteLogSegmentMetadataUpdate::new(segment_id, 9, custom_metadata, state, 7);
                *segment = segment.with_update(&update).unwrap();
                return;
            }
        }
    }

    /// What reading the manifest's key tells a process that may read.
    async fn look(&self, id: Uuid, writer_is_gone: bool) -> LeftoverEvidence {
        let key = key_of(self.segment(id), MANIFEST_SUFFIX);
        match self.archive.memory.get(&Path::parse(&key).unwrap()).await {
            Ok(result) => LeftoverEvidence::Found {
                version_id: result.meta.version.clone(),
                bytes: result.bytes().await.unwrap(),
            },
            Err(_) => LeftoverEvidence::Absent { writer_is_gone },
        }
    }

    /// Settles leftovers as the rule says, and answers with where the next copy goes.
    fn settle(
        &mut self,
        evidence: &BTreeMap<Uuid, LeftoverEvidence>,
        fresh: EpochId,
    ) -> ChainStamp {
        let settled = resolve_leftovers(&self.metadata, evidence, &trusted());
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
        settled.next_chain_stamp(&self.metadata, fresh).unwrap()
    }

    /// The first offset that no finished segment covers.
    fn next_offset(&self) -> i64 {
        let finished = self
            .metadata
            .iter()
            .filter(|segment| segment.state() == RemoteLogSegmentState::CopySegmentFinished);
        finished
            .map(|segment| segment.end_offset() + 1)
            .max()
            .unwrap_or(0)
    }

    /// Retries after a crash and goes on, with two more copies.
    async fn retry(&mut self, evidence: BTreeMap<Uuid, LeftoverEvidence>) -> ChainStamp {
        let first = self.settle(&evidence, epoch(2));
        let mut stamp = first;
        for _ in 0..2 {
            let start_offset = self.next_offset();
            let (_, receipt) = self.copy(start_offset, stamp, Until::Finished).await;
            stamp = receipt.next_stamp().unwrap();
        }
        first
    }

    /// What a verifier says: no break, and no object that nothing explains.
    async fn verify(&self) -> ArchiveVerifyReport {
        let report = self.archive.deep().await;
        assert_eq!(report.first_break(), None);
        assert!(
            report.partitions[0]
                .orphan_objects
                .iter()
                .all(|orphan| orphan.class == OrphanClass::Superseded),
            "{report:#?}"
        );
        assert!(report.partitions[0].offset_gaps.is_empty());
        report
    }
}

/// Where the third copy goes.
fn third(leader: &Leader) -> ChainStamp {
    krabka_remote_storage::next_chain_stamp(&leader.metadata, epoch(99)).unwrap()
}

#[tokio::test]
async fn before_the_manifest_in_the_same_process() {
    let mut leader = Leader::new().await;
    let stamp = third(&leader);
    let (id, _) = leader.copy(200, stamp, Until::Uploading).await;
    let first = leader
        .retry([(id, LeftoverEvidence::NeverSent)].into())
        .await;
    assert_eq!(first, stamp, "the same position");
    let report = leader.verify().await;
    assert!(!report.has_epoch_restarts());
    assert_eq!(report.manifests(), 4);
    assert_eq!(report.partitions[0].orphan_objects.len(), 6);
}

#[tokio::test]
async fn before_the_manifest_and_the_process_died() {
    let mut leader = Leader::new().await;
    let stamp = third(&leader);
    let (id, _) = leader.copy(200, stamp, Until::Uploading).await;
    let evidence = leader.look(id, true).await;
    let first = leader.retry([(id, evidence)].into()).await;
    assert_eq!(first, stamp);
    assert!(!leader.verify().await.has_epoch_restarts());
}

#[tokio::test]
async fn before_the_manifest_and_the_process_died_where_nothing_can_be_read() {
    let mut leader = Leader::new().await;
    let stamp = third(&leader);
    leader.copy(200, stamp, Until::Uploading).await;
    let first = leader.retry(BTreeMap::new()).await;
    assert_eq!(first, ChainStamp::genesis(epoch(2)));
    let report = leader.verify().await;
    assert!(report.has_epoch_restarts());
    assert_eq!(report.manifests(), 4);
}

#[tokio::test]
async fn the_manifest_was_sent_and_not_applied() {
    for (writer_is_gone, restarts) in [(true, false), (false, true)] {
        let mut leader = Leader::new().await;
        let stamp = third(&leader);
        let (id, _) = leader.copy(200, stamp, Until::Sent).await;
        let evidence = leader.look(id, writer_is_gone).await;
        let first = leader.retry([(id, evidence)].into()).await;
        assert_eq!(first == stamp, !restarts);
        assert_eq!(leader.verify().await.has_epoch_restarts(), restarts);
    }
}

#[tokio::test]
async fn the_manifest_was_applied_and_its_answer_lost() {
    let mut leader = Leader::new().await;
    let stamp = third(&leader);
    let (id, receipt) = leader.copy(200, stamp, Until::Stored).await;
    let evidence = leader.look(id, false).await;
    let first = leader.retry([(id, evidence)].into()).await;
    assert_eq!(Some(first), receipt.next_stamp(), "it was adopted");
    let report = leader.verify().await;
    assert!(report.ok() && !report.has_epoch_restarts());
    assert_eq!(report.manifests(), 5);
    // What was adopted is what the answer would have said.
    assert_eq!(
        leader.segment(id).custom_metadata(),
        Some(&receipt.to_custom_metadata())
    );
}

#[tokio::test]
async fn the_manifest_was_applied_and_its_answer_lost_where_nothing_can_be_read() {
    let mut leader = Leader::new().await;
    let stamp = third(&leader);
    let (id, _) = leader.copy(200, stamp, Until::Stored).await;
    let first = leader.retry([(id, LeftoverEvidence::Unknown)].into()).await;
    assert_eq!(first, ChainStamp::genesis(epoch(2)));
    let report = leader.verify().await;
    assert!(report.ok() && report.has_epoch_restarts());
    assert_eq!(report.partitions[0].offset_overlaps.len(), 1);
    // It is left as it is, and the next round decides the same.
    assert_eq!(
        leader.segment(id).state(),
        RemoteLogSegmentState::CopySegmentStarted
    );
    let next = leader.settle(&BTreeMap::new(), epoch(3));
    assert_eq!(next.epoch_id, epoch(2));
}

#[tokio::test]
async fn the_manifest_arrives_after_the_retry() {
    let mut leader = Leader::new().await;
    let stamp = third(&leader);
    let (id, _) = leader.copy(200, stamp, Until::Sent).await;
    let evidence = leader.look(id, false).await;
    leader.retry([(id, evidence)].into()).await;
    leader.arrives_late(id).await;
    let report = leader.verify().await;
    assert!(report.ok() && report.has_epoch_restarts());
    assert_eq!(report.manifests(), 5);
    // Once it is seen it is adopted, and no position is used twice.
    let evidence = leader.look(id, false).await;
    let next = leader.settle(&[(id, evidence)].into(), epoch(3));
    leader
        .copy(leader.next_offset(), next, Until::Finished)
        .await;
    assert_eq!(leader.verify().await.manifests(), 6);
}

#[tokio::test]
async fn the_metadata_was_committed_and_its_answer_lost() {
    let mut leader = Leader::new().await;
    let stamp = third(&leader);
    let (_, receipt) = leader.copy(200, stamp, Until::Finished).await;
    let first = leader.retry(BTreeMap::new()).await;
    assert_eq!(Some(first), receipt.next_stamp());
    let report = leader.verify().await;
    assert!(report.ok() && !report.has_epoch_restarts());
}

#[tokio::test]
async fn two_attempts_at_one_position() {
    // The first was given up in the process that made it, the second is stored and unanswered.
    let mut leader = Leader::new().await;
    let stamp = third(&leader);
    let (first, _) = leader.copy(200, stamp, Until::Uploading).await;
    let (second, receipt) = leader.copy(200, stamp, Until::Stored).await;
    let evidence = [
        (first, LeftoverEvidence::NeverSent),
        (second, leader.look(second, false).await),
    ];
    let next = leader.retry(evidence.into()).await;
    assert_eq!(Some(next), receipt.next_stamp());
    assert!(!leader.verify().await.has_epoch_restarts());
}

#[tokio::test]
async fn an_empty_metadata_store_begins_a_run() {
    let mut leader = Leader::new().await;
    leader.metadata.clear();
    let first = leader.retry(BTreeMap::new()).await;
    assert_eq!(first, ChainStamp::genesis(epoch(2)));
    let report = leader.archive.deep().await;
    assert!(report.ok() && report.has_epoch_restarts());
}
