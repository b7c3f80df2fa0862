//! Read-committed: where aborted transactions are looked for, what that costs, and where a tier
//! alone ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use krabka_remote_storage::index::{
    AbortedTxnIndexEntry, DEFAULT_MAX_DECOMPRESSED_BYTES, parse_txn_index,
};
use krabka_remote_storage::reader::{AbortedTransaction, CommittedRead, LocalLog};
use krabka_remote_storage::{
    LeaderEpoch, RemoteLogMetadataStore, RemoteLogReader, RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate, RemotePartitionDeleteMetadata, RemoteStorageError,
    TopicIdPartition,
};
use parking_lot::Mutex;

use super::{EPOCH, KIB, MIB};
use crate::support::tier::{MadeSegment, MadeTier, partition};
use krabka_remote_storage::testing::batches::{BatchSpec, SegmentFiles};

/// A batch of one record of a transaction.
fn data(offset: i64, producer_id: i64) -> BatchSpec {
    BatchSpec::new(offset, 1, 100).of_transaction(producer_id)
}

fn plain(offset: i64) -> BatchSpec {
    BatchSpec::new(offset, 1, 100)
}

async fn read_committed(
    reader: &RemoteLogReader,
    offset: i64,
    max_bytes: usize,
    local: Option<LocalLog<'_>>,
) -> CommittedRead {
    reader
        .read_committed(&partition(0), EPOCH, offset, max_bytes, local)
        .await
        .unwrap()
        .unwrap()
}

/// The offsets that a read-committed consumer is given.
fn delivered(read: &CommittedRead, from: i64) -> Vec<i64> {
    let batches = read
        .visible_batches(DEFAULT_MAX_DECOMPRESSED_BYTES)
        .unwrap();
    let mut offsets = Vec::new();
    for batch in batches {
        let records = batch.records(DEFAULT_MAX_DECOMPRESSED_BYTES).unwrap();
        offsets.extend(records.iter().map(|record| record.offset));
    }
    offsets.retain(|offset| *offset >= from);
    offsets
}

fn aborted(producer_id: i64, first_offset: i64) -> AbortedTransaction {
    AbortedTransaction {
        first_offset,
        producer_id,
    }
}

#[tokio::test]
async fn aborted_data_is_left_out_and_markers_are_too() {
    let tier = MadeTier::new();
    let mut files = SegmentFiles::new(0);
    files
        .append(&data(0, 7))
        .append(&data(1, 8))
        .append(&plain(2));
    files.append_marker(7, Some((0, Some(1))));
    files.append(&data(4, 7)).append_marker(8, None);
    files.append_marker(7, None);
    tier.add(&MadeSegment::new(1, &files.roll())).await;
    let read = read_committed(&tier.reader(), 0, MIB, None).await;
    assert_eq!(delivered(&read, 0), [1, 2, 4]);
    assert_eq!(read.aborted.transactions, [aborted(7, 0)]);
    assert_eq!(read.undecided_from, None);
}

#[tokio::test]
async fn a_transaction_that_ended_before_the_data_is_not_named() {
    // The client would drop the producer's next records for it.
    let tier = MadeTier::new();
    let mut files = SegmentFiles::new(0);
    files.append(&data(0, 7)).append_marker(7, Some((0, None)));
    files.append(&data(2, 7)).append_marker(7, None);
    tier.add(&MadeSegment::new(1, &files.roll())).await;
    for from in [1, 2] {
        let read = read_committed(&tier.reader(), from, MIB, None).await;
        assert_eq!(read.aborted.transactions, []);
        assert_eq!(delivered(&read, from), [2]);
    }
}

#[tokio::test]
async fn aborts_of_later_segments_and_epochs_are_found_and_empty_ones_are_not_asked() {
    let tier = MadeTier::new();
    let mut first = SegmentFiles::new(0);
    first.append(&data(0, 7)).append(&plain(1));
    let mut middle = SegmentFiles::new(2);
    middle.append(&plain(2));
    let mut last = SegmentFiles::new(3);
    last.append_marker(7, Some((0, None)));
    let mut made: Vec<_> = [first, middle, last]
        .into_iter()
        .zip(1..)
        .map(|(files, id)| MadeSegment::new(id, &files.roll()))
        .collect();
    // The abort was written by another leader.
    made[2].epochs = [(4, 3)].into();
    made[2].checkpoint = [(0, 0), (4, 3)].into();
    for segment in &made {
        tier.add(segment).await;
    }
    let read = read_committed(&tier.reader(), 0, 150, None).await;
    assert_eq!(read.aborted.transactions, [aborted(7, 0)]);
    assert!(read.aborted.is_complete);
    assert!(delivered(&read, 0).is_empty());
    assert_eq!(tier.gets_of(".txnindex"), 1);
}

#[tokio::test]
async fn the_search_ends_where_every_transaction_of_the_data_is_decided() {
    let tier = MadeTier::new();
    let mut first = SegmentFiles::new(0);
    first.append(&data(0, 7));
    first.append_marker(7, Some((0, None)));
    let mut second = SegmentFiles::new(2);
    second.append(&data(2, 7)).append_marker(7, Some((2, None)));
    for (id, files) in [(1, first), (2, second)] {
        tier.add(&MadeSegment::new(id, &files.roll())).await;
    }
    let read = read_committed(&tier.reader(), 0, MIB, None).await;
    assert!(read.aborted.is_complete);
    assert_eq!(read.aborted.transactions, [aborted(7, 0)]);
    assert_eq!(tier.gets_of(".txnindex"), 1);
}

#[tokio::test]
async fn a_missing_transaction_index_is_an_empty_one() {
    let tier = MadeTier::new();
    let mut files = SegmentFiles::new(0);
    files.append(&data(0, 7)).append_marker(7, None);
    let mut segment = MadeSegment::new(1, &files.roll());
    segment.txn_index_empty = false;
    segment.txn_index = None;
    tier.add(&segment).await;
    let read = read_committed(&tier.reader(), 0, MIB, None).await;
    assert_eq!(delivered(&read, 0), [0]);
}

#[tokio::test]
async fn a_tier_alone_ends_before_the_first_transaction_that_is_open_at_its_end() {
    let tier = MadeTier::new();
    let mut first = SegmentFiles::new(0);
    first
        .append(&plain(0))
        .append(&data(1, 7))
        .append(&plain(2));
    let mut first = MadeSegment::new(1, &first.roll());
    first.open_transactions = vec![(7, 1)];
    tier.add(&first).await;
    let mut second = SegmentFiles::new(3);
    second.append(&data(3, 8)).append(&plain(4));
    let mut second = MadeSegment::new(2, &second.roll());
    second.open_transactions = vec![(8, 3), (7, 1)];
    tier.add(&second).await;

    let reader = tier.reader();
    let read = read_committed(&reader, 0, MIB, None).await;
    assert_eq!(read.undecided_from, Some(1));
    assert!(!read.aborted.is_complete);
    assert_eq!(delivered(&read, 0), [0]);
    // Records of others behind it are not delivered either: it may yet be aborted or not.
    let read = read_committed(&reader, 2, MIB, None).await;
    assert!(delivered(&read, 2).is_empty());

    // When the tier has grown by the abort, all is decided but the other one.
    let mut third = SegmentFiles::new(5);
    third.append_marker(7, Some((1, Some(3))));
    let mut third = MadeSegment::new(3, &third.roll());
    third.open_transactions = vec![(8, 3)];
    tier.add(&third).await;
    let read = read_committed(&reader, 0, MIB, None).await;
    assert_eq!(read.undecided_from, Some(3));
    assert_eq!(delivered(&read, 0), [0, 2]);
    let read = read_committed(&reader, 3, MIB, None).await;
    assert!(delivered(&read, 3).is_empty());
}

#[tokio::test]
async fn what_the_callers_own_log_knows_completes_the_answer() {
    let tier = MadeTier::new();
    let mut files = SegmentFiles::new(0);
    files
        .append(&data(0, 7))
        .append(&data(1, 8))
        .append(&plain(2));
    let mut segment = MadeSegment::new(1, &files.roll());
    segment.open_transactions = vec![(7, 0), (8, 1)];
    tier.add(&segment).await;
    // In the local log: 7 aborts at offset 3, and 8 commits at 4; 7 aborts another one at 6.
    let mut local = SegmentFiles::new(3);
    local.append_marker(7, Some((0, Some(1))));
    local.append_marker(8, None);
    local.append(&data(5, 7)).append_marker(7, Some((5, None)));
    let entries = parse_txn_index(&local.txn_index).unwrap();
    let epochs = BTreeMap::from([(EPOCH, 0)]);
    let local = LocalLog {
        leader_epochs: &epochs,
        aborted: entries,
    };
    let read = read_committed(&tier.reader(), 0, MIB, Some(local)).await;
    assert_eq!(read.undecided_from, None);
    assert!(read.aborted.is_complete);
    assert_eq!(read.aborted.transactions, [aborted(7, 0)]);
    assert_eq!(delivered(&read, 0), [1, 2]);
    // The broker's own leader epochs are used: nothing is asked of the tier for them.
    let gets = tier.gets();
    assert_eq!(gets.len(), 1, "{gets:?}");
}

#[tokio::test]
async fn the_callers_leader_epochs_say_which_later_segments_count() {
    // Leader 1 wrote an abort that was never the partition's history; leader 2 a commit.
    let tier = MadeTier::new();
    let mut first = SegmentFiles::new(0);
    first.append(&data(0, 7));
    tier.add(&MadeSegment::new(1, &first.roll())).await;
    let mut stray = SegmentFiles::new(1);
    stray.append_marker(7, Some((0, None)));
    let mut stray = MadeSegment::new(2, &stray.roll());
    stray.epochs = [(1, 1)].into();
    stray.checkpoint = [(0, 0), (1, 1)].into();
    tier.add(&stray).await;
    let mut committed = SegmentFiles::new(1);
    committed.append_marker(7, None);
    let mut committed = MadeSegment::new(3, &committed.roll());
    committed.epochs = [(2, 1)].into();
    committed.checkpoint = [(0, 0), (2, 1)].into();
    tier.add(&committed).await;

    let epochs = BTreeMap::from([(EPOCH, 0), (LeaderEpoch(2), 1)]);
    let local = LocalLog {
        leader_epochs: &epochs,
        aborted: &[],
    };
    let reader = tier.reader();
    let read = read_committed(&reader, 0, MIB, Some(local)).await;
    assert_eq!(delivered(&read, 0), [0]);
    // The tier alone tells the same: its newest leader's checkpoint.
    let read = read_committed(&reader, 0, MIB, None).await;
    assert_eq!(delivered(&read, 0), [0]);
    assert_eq!(tier.gets_of(".txnindex"), 0);
}

/// Segments of transactions that were all committed: `count` of them with 100 offsets each.
async fn committed_segments(tier: &MadeTier, count: i64) {
    for id in 0..count {
        let base = id * 100;
        let mut files = SegmentFiles::new(base);
        for offset in base..base + 99 {
            files.append(&BatchSpec::new(offset, 1, 200).of_transaction(7));
        }
        files.append_marker(7, None);
        let segment = MadeSegment::new(u128::try_from(id).unwrap() + 1, &files.roll());
        tier.add(&segment).await;
    }
}

#[tokio::test]
async fn over_many_segments_without_aborts_read_committed_takes_two_more_gets_than_a_plain_read() {
    let tier = MadeTier::new();
    committed_segments(&tier, 500).await;
    let reader = tier.reader();
    let plain = super::read(&reader, 4_711, 8 * KIB).await;
    let of_plain = tier.gets().len();
    tier.store.forget_requests();

    let reader = tier.reader();
    let read = read_committed(&reader, 4_711, 8 * KIB, None).await;
    assert_eq!(read.batches.bytes, plain.bytes);
    assert_eq!(delivered(&read, 4_711).len(), 40);
    assert!(tier.gets().len() <= of_plain + 2, "{:?}", tier.gets());
    assert_eq!(tier.gets_of(".txnindex"), 0);
    tier.store.forget_requests();

    // From then on it takes none more.
    read_committed(&reader, 30_050, 8 * KIB, None).await;
    assert_eq!(tier.gets().len(), of_plain);
}

#[tokio::test]
async fn batches_without_transactions_need_no_transaction_index() {
    let tier = MadeTier::new();
    let mut files = SegmentFiles::new(0);
    files
        .append(&plain(0))
        .append(&plain(1))
        .append(&data(2, 7));
    files.append_marker(7, Some((2, None)));
    tier.add(&MadeSegment::new(1, &files.roll())).await;
    let epochs = BTreeMap::from([(EPOCH, 0)]);
    let local = LocalLog {
        leader_epochs: &epochs,
        aborted: &[],
    };
    let read = read_committed(&tier.reader(), 0, 250, Some(local)).await;
    assert_eq!(delivered(&read, 0), [0, 1]);
    assert!(read.aborted.is_complete);
    assert_eq!(tier.gets().len(), 1);
}

/// A metadata store that becomes another one after some calls.
struct Growing {
    before: Arc<dyn RemoteLogMetadataStore>,
    after: Arc<dyn RemoteLogMetadataStore>,
    calls_left: Mutex<usize>,
}

impl Growing {
    fn now(&self) -> &Arc<dyn RemoteLogMetadataStore> {
        let mut left = self.calls_left.lock();
        if *left == 0 {
            return &self.after;
        }
        *left -= 1;
        &self.before
    }
}

#[async_trait]
impl RemoteLogMetadataStore for Growing {
    async fn add_segment(&self, _: RemoteLogSegmentMetadata) -> Result<(), RemoteStorageError> {
        unreachable!("a reader changes nothing")
    }

    async fn update_segment(
        &self,
        _: RemoteLogSegmentMetadataUpdate,
    ) -> Result<(), RemoteStorageError> {
        unreachable!("a reader changes nothing")
    }

    async fn put_partition_delete(
        &self,
        _: RemotePartitionDeleteMetadata,
    ) -> Result<(), RemoteStorageError> {
        unreachable!("a reader changes nothing")
    }

    async fn find_segment(
        &self,
        tp: &TopicIdPartition,
        epoch: LeaderEpoch,
        offset: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
        self.now().find_segment(tp, epoch, offset).await
    }

    async fn find_segment_with_txn_index(
        &self,
        tp: &TopicIdPartition,
        epoch: LeaderEpoch,
        offset: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, RemoteStorageError> {
        self.now()
            .find_segment_with_txn_index(tp, epoch, offset)
            .await
    }

    async fn highest_offset(
        &self,
        tp: &TopicIdPartition,
        epoch: LeaderEpoch,
    ) -> Result<Option<i64>, RemoteStorageError> {
        self.now().highest_offset(tp, epoch).await
    }

    async fn list_segments(
        &self,
        tp: &TopicIdPartition,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, RemoteStorageError> {
        self.now().list_segments(tp).await
    }

    async fn list_segments_by_epoch(
        &self,
        tp: &TopicIdPartition,
        epoch: LeaderEpoch,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, RemoteStorageError> {
        self.now().list_segments_by_epoch(tp, epoch).await
    }

    async fn log_size(
        &self,
        tp: &TopicIdPartition,
        epoch: LeaderEpoch,
    ) -> Result<i64, RemoteStorageError> {
        self.now().log_size(tp, epoch).await
    }

    async fn check_ready(&self, tp: &TopicIdPartition) -> Result<(), RemoteStorageError> {
        self.now().check_ready(tp).await
    }
}

#[test]
fn aborted_data_is_not_delivered_however_the_tier_grows_during_the_read() {
    let tier = MadeTier::new();
    let mut first = SegmentFiles::new(0);
    first.append(&data(0, 7)).append(&plain(1));
    let mut first = MadeSegment::new(1, &first.roll());
    first.open_transactions = vec![(7, 0)];
    let mut second = SegmentFiles::new(2);
    second.append_marker(7, Some((0, None)));
    let second = MadeSegment::new(2, &second.roll());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        tier.add(&first).await;
        tier.put(&second).await;
        let after = MadeTier::new();
        after.finish(&first).await;
        after.finish(&second).await;
        for calls in 0..8 {
            let metadata = Growing {
                before: Arc::clone(&tier.metadata) as _,
                after: Arc::clone(&after.metadata) as _,
                calls_left: Mutex::new(calls),
            };
            let reader = RemoteLogReader::new(tier.storage(), Arc::new(metadata));
            let read = read_committed(&reader, 0, MIB, None).await;
            let seen = delivered(&read, 0);
            assert!(
                seen.is_empty() || seen == [1],
                "offsets {seen:?} after {calls} calls"
            );
        }
    });
}

#[tokio::test]
async fn entries_of_the_local_log_that_the_tier_has_too_are_named_once() {
    let tier = MadeTier::new();
    let mut files = SegmentFiles::new(0);
    files.append(&data(0, 8)).append(&data(1, 7));
    files.append_marker(7, Some((1, Some(0))));
    let files = files.roll();
    tier.add(&MadeSegment::new(1, &files)).await;
    let entries: &[AbortedTxnIndexEntry] = parse_txn_index(&files.txn_index).unwrap();
    let epochs = BTreeMap::from([(EPOCH, 0)]);
    let local = LocalLog {
        leader_epochs: &epochs,
        aborted: entries,
    };
    let read = read_committed(&tier.reader(), 0, MIB, Some(local)).await;
    assert_eq!(read.aborted.transactions, [aborted(7, 1)]);
    assert!(!read.aborted.is_complete, "8 is still open");
    assert_eq!(delivered(&read, 0), [0]);
}

#[tokio::test]
async fn an_old_message_set_is_visible_and_older_than_any_transaction() {
    // Magic 1, offset 5.
    let old = [
        &5_i64.to_be_bytes()[..],
        &23_i32.to_be_bytes(),
        &[0x8a, 0x65, 0xe9, 0x6d, 1, 0],
        &1_000_i64.to_be_bytes(),
        &(-1_i32).to_be_bytes(),
        &1_i32.to_be_bytes(),
        b"a",
    ]
    .concat();
    let tier = MadeTier::new();
    let mut files = SegmentFiles::new(5);
    files.append_bytes(&plain(5), &old);
    files.append(&data(6, 7)).append_marker(7, Some((6, None)));
    tier.add(&MadeSegment::new(1, &files.roll())).await;
    let read = read_committed(&tier.reader(), 5, MIB, None).await;
    let visible = read
        .visible_batches(DEFAULT_MAX_DECOMPRESSED_BYTES)
        .unwrap();
    assert_eq!(visible.len(), 1);
    assert_eq!(visible[0].bytes(), old);
    // What takes it for a record batch is told.
    let ask = tier.reader();
    let asked = ask.offset_for_timestamp(&partition(0), 0, 5, None).await;
    assert!(
        asked
            .unwrap_err()
            .to_string()
            .contains("corrupt remote log")
    );
}
