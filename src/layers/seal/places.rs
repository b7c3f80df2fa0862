//! The place in each partition's chain that this process filled last.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use uuid::Uuid;

use crate::archive::{ChainStamp, WormChainRecord};
use crate::error::RemoteStorageError;
use crate::model::{CopyReceipt, CustomMetadata, TopicIdPartition};
use crate::ops::{Create, StorageOp as _};

/// How many segments are remembered for a partition; of older ones nothing is known, which is
/// always safe to say.
const REMEMBERED: usize = 1024;

/// The places of all partitions that this process seals. A partition costs some 2 KiB, for good.
#[derive(Default)]
pub(super) struct Places {
    partitions: Mutex<HashMap<TopicIdPartition, Arc<Partition>>>,
}

#[derive(Default)]
struct Partition {
    /// Held by the copy that is under way.
    last: Arc<tokio::sync::Mutex<Option<Sent>>>,
    /// Segments whose copy began here, and whether their manifest was sent. Known also of a copy
    /// that was dropped while it waited.
    begun: Mutex<VecDeque<(Uuid, bool)>>,
}

/// A manifest that was sent.
pub(super) struct Sent {
    pub(super) segment: Uuid,
    /// Its place and its head.
    pub(super) record: WormChainRecord,
    /// The request, as often as it takes.
    pub(super) create: Create,
    pub(super) receipt: CopyReceipt,
    pub(super) is_stored: bool,
}

/// What a copy finds at the place that it asks for.
pub(super) enum Standing {
    Free,
    /// Its own manifest.
    Done(CopyReceipt),
    Taken(RemoteStorageError),
}

impl Places {
    fn of(&self, partition: &TopicIdPartition) -> Arc<Partition> {
        let mut partitions = self.partitions.lock();
        Arc::clone(partitions.entry(partition.clone()).or_default())
    }

    /// The copy of a segment begins.
    pub(super) fn begin(&self, partition: &TopicIdPartition, segment: Uuid) {
        let partition = self.of(partition);
        let mut begun = partition.begun.lock();
        if begun.iter().any(|(id, _)| *id == segment) {
            return;
        }
        if begun.len() == REMEMBERED {
            begun.pop_front();
        }
        begun.push_back((segment, false));
    }

    /// Waits for the partition's copy that is under way.
    pub(super) async fn enter(&self, partition: &TopicIdPartition) -> Place {
        let state = self.of(partition);
        Place {
            last: Arc::clone(&state.last).lock_owned().await,
            name: partition.clone(),
            partition: state,
        }
    }
}

/// A partition's place, for one copy at a time.
pub(super) struct Place {
    name: TopicIdPartition,
    partition: Arc<Partition>,
    last: OwnedMutexGuard<Option<Sent>>,
}

impl Place {
    pub(super) fn partition(&self) -> &TopicIdPartition {
        &self.name
    }

    /// Whether it has to be found out what became of the last manifest before `stamp` is filled.
    /// A stamp that continues it was made by somebody who has found it.
    pub(super) fn is_open(&self, stamp: ChainStamp) -> bool {
        self.last.as_ref().is_some_and(|last| {
            !last.is_stored
                && last.record.epoch_id == stamp.epoch_id
                && last.record.next_stamp() != Some(stamp)
        })
    }

    pub(super) fn standing(&self, stamp: ChainStamp, segment: Uuid) -> Standing {
        let Some(last) = self.last.as_ref() else {
            return Standing::Free;
        };
        let place = last.record.stamp();
        if place.epoch_id != stamp.epoch_id || last.record.next_stamp() == Some(stamp) {
            return Standing::Free;
        }
        if place == stamp && last.segment == segment {
            return Standing::Done(last.receipt.clone());
        }
        let reason = if stamp.seq <= place.seq {
            format!(
                "position {} of epoch {} is asked for, and the manifest of segment {} stands at \
                 {}: list the segments, settle what is left over, and seed the chain again",
                stamp.seq, stamp.epoch_id, last.segment, place.seq
            )
        } else if place.seq.next() == Some(stamp.seq) {
            format!(
                "it stands at position {} of epoch {}, and its head is not the one that position \
                 {} is to continue: list the segments, and seed the chain again",
                place.seq, stamp.epoch_id, stamp.seq
            )
        } else {
            // Others have gone on.
            return Standing::Free;
        };
        Standing::Taken(RemoteStorageError::PreconditionFailed {
            key: self.manifest_key(),
            reason,
        })
    }

    /// Whether the manifest of this segment was sent; `None` when nothing is known of it.
    pub(super) fn sent(&self, segment: Uuid) -> Option<bool> {
        let begun = self.partition.begun.lock();
        let known = begun.iter().find(|(id, _)| *id == segment);
        known.map(|(_, sent)| *sent)
    }

    /// From here on nobody can say that the place is free.
    pub(super) fn send(&mut self, sent: Sent) {
        for (id, is_sent) in self.partition.begun.lock().iter_mut() {
            *is_sent |= *id == sent.segment;
        }
        *self.last = Some(sent);
    }

    /// The key of the last manifest; empty before the first.
    pub(super) fn manifest_key(&self) -> String {
        let last = self.last.as_ref();
        last.map(|last| last.create.key().to_owned())
            .unwrap_or_default()
    }

    pub(super) fn last(&self) -> Option<&Sent> {
        self.last.as_ref()
    }

    /// The last manifest stands. Answers with the receipt of its copy.
    pub(super) fn stored(&mut self, custom_metadata: CustomMetadata) -> Option<CopyReceipt> {
        let last = self.last.as_mut()?;
        last.is_stored = true;
        // The request is not made again, so its bytes can go.
        last.create.payload = object_store::PutPayload::new();
        last.receipt.custom_metadata = Some(custom_metadata);
        Some(last.receipt.clone())
    }
}
