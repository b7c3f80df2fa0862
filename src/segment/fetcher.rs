//! Fetches a range of a segment's log, or one of its indexes whole: one GET each.

use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::future::Either;
use tower::Service;

use crate::backends::StoreRequests;
use crate::error::RemoteStorageError;
use crate::layout::{KeyPrefix, segment_key};
use crate::model::{LOG_FILE_SUFFIX, RemoteLogSegmentMetadata};
use crate::ops::{ByteRange, FetchIndex, FetchSegment, Fetched, Get, Head, OpFuture, StoreTarget};

/// HTTP's "range not satisfiable": the range begins at or beyond the object's end.
const RANGE_NOT_SATISFIABLE: u16 = 416;

/// Answers [`FetchSegment`] and [`FetchIndex`] from a store. Always ready.
///
/// Dropping a call drops its request; nothing is left behind.
#[derive(Debug)]
pub(crate) struct Fetcher {
    /// Shared with the calls in flight.
    tier: Arc<Tier>,
    recent: RecentLogs,
}

#[derive(Clone, Debug)]
struct Tier {
    store: StoreRequests,
    prefix: KeyPrefix,
}

impl Clone for Fetcher {
    /// One that shares nothing of its own with this: clones are called by different threads.
    fn clone(&self) -> Self {
        Self {
            tier: Arc::new(Tier::clone(&self.tier)),
            recent: RecentLogs::default(),
        }
    }
}

/// The logs that were read last, each at a place that its segment's id tells.
///
/// Consumers read on in the same segments, and to make a key anew would take about as long as a
/// fetch from memory does.
#[derive(Debug, Default)]
struct RecentLogs {
    targets: [Option<StoreTarget>; 16],
}

impl RecentLogs {
    fn target(
        &mut self,
        prefix: &KeyPrefix,
        segment: Arc<RemoteLogSegmentMetadata>,
    ) -> Result<StoreTarget, RemoteStorageError> {
        // Kafka's ids are random in their last bits too.
        let id = segment.remote_log_segment_id().id;
        let place = usize::from(id.as_bytes()[15]) % self.targets.len();
        let recent = &mut self.targets[place];
        if let Some(target) = recent
            && target
                .segment()
                .is_some_and(|of| have_one_key(of, &segment))
        {
            return Ok(target.clone());
        }
        let key = segment_key(prefix, &segment, LOG_FILE_SUFFIX)?;
        Ok(recent.insert(StoreTarget::of_segment(key, segment)).clone())
    }
}

/// Whether a tier's key of both is the same: all that [`segment_key`] looks at.
fn have_one_key(
    one: &Arc<RemoteLogSegmentMetadata>,
    other: &Arc<RemoteLogSegmentMetadata>,
) -> bool {
    // Partitions are equal without a look at the topic's name.
    Arc::ptr_eq(one, other)
        || (one.remote_log_segment_id() == other.remote_log_segment_id()
            && one.topic_id_partition().topic == other.topic_id_partition().topic
            && one.start_offset() == other.start_offset())
}

impl Fetcher {
    /// A fetcher for the segments whose keys begin with `prefix`.
    pub(crate) fn new(store: StoreRequests, prefix: KeyPrefix) -> Self {
        Self {
            tier: Arc::new(Tier { store, prefix }),
            recent: RecentLogs::default(),
        }
    }

    /// The request for these bytes.
    fn get(&mut self, op: FetchSegment) -> Result<Get, RemoteStorageError> {
        let start = u64::from(op.start_position);
        let range = match op.end_position {
            Some(end) if end < op.start_position => {
                return Err(RemoteStorageError::InvalidArgument(format!(
                    "end position {end} is below start position {start}"
                )));
            }
            // The end is inclusive, and may be the largest u32.
            Some(end) => ByteRange::Bounded(start..u64::from(end) + 1),
            None if start == 0 => ByteRange::Whole,
            None => ByteRange::From(start),
        };
        let target = self.recent.target(&self.tier.prefix, op.metadata)?;
        Ok(Get { target, range })
    }
}

impl Tier {
    async fn fetch_index(self: Arc<Self>, op: FetchIndex) -> Result<Bytes, RemoteStorageError> {
        let key = segment_key(&self.prefix, &op.metadata, op.index.suffix())?;
        let get = Get {
            target: StoreTarget::of_segment(key, op.metadata),
            range: ByteRange::Whole,
        };
        self.store.send(get).await.map(|fetched| fetched.bytes)
    }
}

impl Service<FetchSegment> for Fetcher {
    type Response = Bytes;
    type Error = RemoteStorageError;
    type Future = Either<Ready<Result<Bytes, RemoteStorageError>>, Fetching>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, op: FetchSegment) -> Self::Future {
        let start = u64::from(op.start_position);
        let get = match self.get(op) {
            Ok(get) => get,
            Err(error) => return Either::Left(ready(Err(error))),
        };
        Either::Right(Fetching {
            target: get.target.clone(),
            start,
            answer: self.tier.store.begin(get),
            tier: Arc::clone(&self.tier),
            explanation: None,
        })
    }
}

/// The response future of a [`Fetcher`] that has sent its request.
pub(crate) struct Fetching {
    tier: Arc<Tier>,
    target: StoreTarget,
    start: u64,
    answer: OpFuture<Get>,
    /// What became of the request if its range was refused.
    explanation: Option<OpFuture<FetchSegment>>,
}

impl Future for Fetching {
    type Output = Result<Bytes, RemoteStorageError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.explanation.is_none() {
            match ready!(this.answer.as_mut().poll(cx)) {
                Ok(Fetched { bytes, .. }) => return Poll::Ready(Ok(bytes)),
                Err(error) if error.status() == Some(RANGE_NOT_SATISFIABLE) => {
                    let (tier, target) = (Arc::clone(&this.tier), this.target.clone());
                    let explanation = explain(tier, target, this.start, error);
                    this.explanation = Some(Box::pin(explanation));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        this.explanation
            .as_mut()
            .map_or(Poll::Pending, |explanation| explanation.as_mut().poll(cx))
    }
}

impl Service<FetchIndex> for Fetcher {
    type Response = Bytes;
    type Error = RemoteStorageError;
    type Future = OpFuture<FetchIndex>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, op: FetchIndex) -> Self::Future {
        Box::pin(Arc::clone(&self.tier).fetch_index(op))
    }
}

/// Stores disagree about a range that begins at the end: one HEAD tells what it was.
async fn explain(
    tier: Arc<Tier>,
    target: StoreTarget,
    start: u64,
    error: RemoteStorageError,
) -> Result<Bytes, RemoteStorageError> {
    let head = Head {
        target: target.clone(),
    };
    let Some(meta) = tier.store.send(head).await? else {
        return Err(match target.segment() {
            Some(segment) => {
                RemoteStorageError::SegmentNotFound(segment.remote_log_segment_id().clone())
            }
            None => error,
        });
    };
    match start.cmp(&meta.size) {
        std::cmp::Ordering::Equal => Ok(Bytes::new()),
        std::cmp::Ordering::Greater => Err(RemoteStorageError::InvalidArgument(format!(
            "start position {start} is beyond the {} bytes of `{}`",
            meta.size,
            target.key()
        ))),
        std::cmp::Ordering::Less => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use uuid::Uuid;

    use super::*;
    use crate::model::{
        LeaderEpoch, RemoteLogSegmentDetails, RemoteLogSegmentId, RemoteLogSegmentState,
        TopicIdPartition,
    };

    fn segment(
        topic: &str,
        partition: i32,
        topic_id: u128,
        offset: i64,
        id: u128,
    ) -> Arc<RemoteLogSegmentMetadata> {
        let tp = TopicIdPartition::new(Uuid::from_u128(topic_id), topic, partition);
        let id = RemoteLogSegmentId::new(tp, Uuid::from_u128(id));
        let details = RemoteLogSegmentDetails::new(
            1,
            RemoteLogSegmentState::CopySegmentFinished,
            BTreeMap::from([(LeaderEpoch(0), offset)]),
        );
        let segment = RemoteLogSegmentMetadata::new(id, offset, offset, -1, 1, 0, details);
        Arc::new(segment.expect("valid metadata"))
    }

    #[test]
    fn a_log_that_was_read_is_asked_for_under_its_own_key_whatever_was_read_before() {
        let prefix = KeyPrefix::new("tier").unwrap();
        let mut recent = RecentLogs::default();
        // All of one place; the last of them differ from the first in one thing each.
        let segments = [
            segment("orders", 0, 1, 5, 0x10),
            segment("orders", 0, 1, 5, 0x20),
            segment("renamed", 0, 1, 5, 0x10),
            segment("orders", 1, 1, 5, 0x10),
            segment("orders", 0, 2, 5, 0x10),
            segment("orders", 0, 1, 6, 0x10),
        ];
        for round in 0..2 {
            for one in &segments {
                for other in &segments {
                    for segment in [one, other, other] {
                        let target = recent.target(&prefix, Arc::clone(segment)).unwrap();
                        let key = segment_key(&prefix, segment, LOG_FILE_SUFFIX).unwrap();
                        assert_eq!(target.key(), &key, "round {round}");
                        assert_eq!(target.attempt, 1);
                    }
                }
            }
        }
    }

    #[test]
    fn another_description_of_the_same_segment_needs_no_new_key() {
        let mut recent = RecentLogs::default();
        let described = || segment("orders", 0, 1, 5, 0x10);
        let first = recent.target(&KeyPrefix::default(), described()).unwrap();
        let second = recent.target(&KeyPrefix::default(), described()).unwrap();
        assert!(std::ptr::eq(first.key(), second.key()));
    }
}
