//! The storage handle and its builder: the one place that decides the order of layers.
//!
//! ```text
//!                 segment operations                             store requests
//!                ┌ copy         trace ▸ metrics ▸ deadline ▸ copier ┐
//! RemoteStorage ─┼ fetch        trace ▸ metrics ▸ fetcher           ├ retry ▸ trace ▸ metrics
//!                ├ fetch_index  trace ▸ metrics ▸ fetcher           │   ▸ timeout ▸ permits ▸ store
//!                └ delete       trace ▸ metrics ▸ deleter           ┘
//! ```
//!
//! [`index_cache`](RemoteStorageBuilder::index_cache) puts a cache directly above the fetcher of
//! indexes, and above the deleter, whose segments it forgets.
//!
//! [`write_only`](RemoteStorageBuilder::write_only) puts a refusal in the place of the fetcher,
//! [`refuse_deletes`](RemoteStorageBuilder::refuse_deletes) in that of the deleter.
//!
//! [`seal_on_unchecked_store`](RemoteStorageBuilder::seal_on_unchecked_store) makes the tier a write-once archive: `deadline ▸ seal ▸
//! copier`, a refusal in the place of the deleter, and no request that replaces or removes an
//! object. [`start_archive`](RemoteStorage::start_archive) looks at the store first.

mod leftovers;
mod lifecycle;
mod worm;

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tower::{Service, ServiceBuilder};

pub use lifecycle::{CloseReport, CutOff};

use crate::archive::WormArchiver;
use crate::backends::{
    Backend, ObjectStoreConfig, RequestLimits, StoreClient, StoreRequest, StoreRequests,
};
use crate::error::RemoteStorageError;
use crate::index_cache::{IndexHandle, RemoteIndexCache};
use crate::layers::{
    DeadlineLayer, IndexCacheLayer, MetricsLayer, PermitsLayer, RefuseDeletes, RefuseReads,
    RetryLayer, RetryPolicy, SealLayer, SealRules, Sealer, TimeoutLayer, TraceLayer,
};
use crate::layout::{KeyPrefix, segment_key};
use crate::model::{CopyReceipt, LOG_FILE_SUFFIX, RemoteLogSegmentMetadata};
use crate::ops::{
    CopySegment, DeleteSegment, FetchIndex, FetchSegment, OpFuture, OpStack, OpenIndex, StorageOp,
};
use crate::segment::{Copier, CopyTuning, Deleter, Fetcher, MultipartCreate};
use lifecycle::Lifecycle;

/// A remote tier: the four segment operations, each a finished stack.
///
/// A clone is one reference and shares everything, permits included. Calls need a Tokio runtime;
/// from synchronous code use [`sync_shim`](crate::sync_shim). The handle is also a tower
/// [`Service`] of each of the operations, always ready: put layers of your own around it.
///
/// # Cancellation
///
/// Dropping a call's future cancels it. A fetch leaves nothing behind. A copy gives up its
/// multipart upload, once; what else it wrote stays without a `.log`, is never read, and is listed
/// by `krabka-tier ls --incomplete`. The commit of a copy to an archive is not cancelled: once its
/// manifest is sent it goes on to its end.
#[derive(Clone)]
pub struct RemoteStorage {
    tier: Arc<Tier>,
}

struct Tier {
    copy: OpStack<CopySegment>,
    fetch: OpStack<FetchSegment>,
    fetch_index: OpStack<FetchIndex>,
    open_index: OpStack<OpenIndex>,
    delete: OpStack<DeleteSegment>,
    store: StoreRequests,
    prefix: KeyPrefix,
    sealer: Option<Sealer>,
    write_only: bool,
    lifecycle: Lifecycle,
}

impl Tier {
    async fn run<Op: StorageOp>(
        &self,
        stack: &OpStack<Op>,
        op: Op,
    ) -> Result<Op::Output, RemoteStorageError> {
        self.lifecycle.run(op, |op| stack.run(op)).await
    }
}

impl RemoteStorage {
    /// Opens the store that `config` describes, with the limits that it sets.
    ///
    /// A local root is created when it is missing; no other store is asked anything yet.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument) that names what to change in the
    /// configuration.
    pub fn open(config: &ObjectStoreConfig) -> Result<Self, RemoteStorageError> {
        Self::builder(config.open()?).build()
    }

    /// Begins a tier on a store: an opened [`Backend`], with its prefix and its limits, or any
    /// [`StoreClient`], with the default limits and no prefix.
    pub fn builder(store: impl Into<Backend>) -> RemoteStorageBuilder {
        let Backend {
            client,
            prefix,
            limits,
            ..
        } = store.into();
        RemoteStorageBuilder {
            client,
            prefix,
            limits,
            index_cache: RemoteIndexCache::disabled(),
            write_only: false,
            refuse_deletes: false,
            seal: None,
        }
    }

    /// Copies one closed segment and its indexes to the remote tier.
    ///
    /// When this returns `Ok`, every object of the segment is durable. Copying a segment again is
    /// harmless: its objects keep their keys.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable) and
    /// [`TimedOut`](crate::ErrorKind::TimedOut) leave the outcome unknown: keep the local files and
    /// copy again, with a new segment id. [`Io`](crate::ErrorKind::Io) names the local file.
    /// [`Invalid`](crate::ErrorKind::Invalid) and [`Rejected`](crate::ErrorKind::Rejected) will not
    /// change on their own.
    ///
    /// In an archive [`OutcomeUnknown`](RemoteStorageError::OutcomeUnknown) means that the manifest
    /// was sent: the same request again (the same segment id, the same place in the chain) finds
    /// out what became of it. After any other error, and after a copy that was dropped, the
    /// leftover rule ([`leftover_evidence`](Self::leftover_evidence)) decides on the place.
    pub async fn copy(&self, op: CopySegment) -> Result<CopyReceipt, RemoteStorageError> {
        self.tier.run(&self.tier.copy, op).await
    }

    /// Fetches a range of a segment's log: one GET of exactly the asked bytes.
    ///
    /// # Errors
    ///
    /// [`SegmentNotFound`](RemoteStorageError::SegmentNotFound) when there is no `.log`,
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument) for an inverted range or one that
    /// starts beyond the end.
    pub async fn fetch(&self, op: FetchSegment) -> Result<Bytes, RemoteStorageError> {
        self.tier.run(&self.tier.fetch, op).await
    }

    /// Fetches one index of a segment whole.
    ///
    /// # Errors
    ///
    /// [`SegmentNotFound`](RemoteStorageError::SegmentNotFound) when the segment or this index is
    /// not there; a segment without aborted transactions has no transaction index.
    pub async fn fetch_index(&self, op: FetchIndex) -> Result<Bytes, RemoteStorageError> {
        self.tier.run(&self.tier.fetch_index, op).await
    }

    /// Finds one index of a segment, to search it: in the cache, or else by fetching it.
    ///
    /// A transaction index that is not there is an empty one. Without an
    /// [`index_cache`](RemoteStorageBuilder::index_cache) each call fetches.
    ///
    /// # Errors
    ///
    /// [`SegmentNotFound`](RemoteStorageError::SegmentNotFound) when the segment or this index is
    /// not there, [`Corrupt`](RemoteStorageError::Corrupt) when it fails Kafka's sanity check.
    pub async fn open_index(&self, op: OpenIndex) -> Result<IndexHandle, RemoteStorageError> {
        self.tier.run(&self.tier.open_index, op).await
    }

    /// Deletes every object of a segment, the `.log` first. What is not there is no error.
    ///
    /// # Errors
    ///
    /// The first failure, after all six objects were tried; the call can be repeated.
    pub async fn delete(&self, op: DeleteSegment) -> Result<(), RemoteStorageError> {
        self.tier.run(&self.tier.delete, op).await
    }

    /// Closes this handle and all its clones.
    ///
    /// New calls are refused at once. Calls in flight, and the requests that give uploads up, have
    /// `grace` to end; the rest is cut off as if it had been dropped, answers
    /// [`TimedOut`](RemoteStorageError::TimedOut), and is named in the report. Closing twice is
    /// harmless.
    pub async fn close(&self, grace: Duration) -> CloseReport {
        self.tier.lifecycle.close(grace).await
    }

    /// Sends a single request to the store below, with the attempt layers on: for listings and
    /// other work that is no segment operation.
    ///
    /// In an archive, requests that replace or remove an object are refused. Closing the handle
    /// neither refuses nor awaits these.
    ///
    /// # Errors
    ///
    /// Those of the request, after its last attempt.
    pub async fn send<R: StoreRequest>(&self, request: R) -> Result<R::Output, RemoteStorageError> {
        self.tier.store.send(request).await
    }

    /// Whether the store can hold the segment at all: a file system limits the length of names.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument) when it cannot.
    pub fn check_segment(
        &self,
        segment: &RemoteLogSegmentMetadata,
    ) -> Result<(), RemoteStorageError> {
        self.tier.store.client().check_segment(segment)
    }

    pub(crate) fn store(&self) -> &StoreRequests {
        &self.tier.store
    }

    /// The front part of every key of this tier.
    pub fn prefix(&self) -> &KeyPrefix {
        &self.tier.prefix
    }
}

macro_rules! answer_segment_operations {
    ($($op:ident => $call:ident,)*) => {$(
        impl Service<$op> for RemoteStorage {
            type Response = <$op as StorageOp>::Output;
            type Error = RemoteStorageError;
            type Future = OpFuture<$op>;

            fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
                Poll::Ready(Ok(()))
            }

            fn call(&mut self, op: $op) -> Self::Future {
                let storage = self.clone();
                Box::pin(async move { storage.$call(op).await })
            }
        }
    )*};
}

answer_segment_operations! {
    CopySegment => copy,
    FetchSegment => fetch,
    FetchIndex => fetch_index,
    OpenIndex => open_index,
    DeleteSegment => delete,
}

impl fmt::Debug for RemoteStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteStorage")
            .field("store", &self.tier.store)
            .field("prefix", &self.tier.prefix)
            .finish_non_exhaustive()
    }
}

/// Builds a [`RemoteStorage`]. Options can be given in any order: the order of layers is fixed.
#[derive(Clone, Debug)]
pub struct RemoteStorageBuilder {
    client: Arc<dyn StoreClient>,
    prefix: KeyPrefix,
    limits: RequestLimits,
    index_cache: RemoteIndexCache,
    write_only: bool,
    refuse_deletes: bool,
    seal: Option<(WormArchiver, SealRules, MultipartCreate)>,
}

impl RemoteStorageBuilder {
    /// Puts every key of the tier below this prefix.
    #[must_use]
    pub fn prefix(mut self, prefix: KeyPrefix) -> Self {
        self.prefix = prefix;
        self
    }

    /// Sets how often, how long and how much at once.
    #[must_use]
    pub fn limits(mut self, limits: RequestLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Answers indexes from this cache. Keep a clone to size it and to look at it.
    ///
    /// An index that the cache loads is checked first, as Kafka does, and is
    /// [`Corrupt`](RemoteStorageError::Corrupt) if it fails.
    #[must_use]
    pub fn index_cache(mut self, cache: RemoteIndexCache) -> Self {
        self.index_cache = cache;
        self
    }

    /// Refuses every fetch before any request.
    #[must_use]
    pub fn write_only(mut self) -> Self {
        self.write_only = true;
        self
    }

    /// Refuses every delete: the stack then holds no path to the store.
    #[must_use]
    pub fn refuse_deletes(mut self) -> Self {
        self.refuse_deletes = true;
        self
    }

    /// Makes the tier a write-once archive: each copy is sealed by `archiver`, every object is
    /// created and none replaced, large ones as `large` says, and deletes are refused.
    ///
    /// A copy then needs a chain record in its segment's metadata
    /// ([`WormChainRecord::request`](crate::WormChainRecord::request)), and answers with the
    /// receipt in [`custom_metadata`](CopyReceipt::custom_metadata). Copies of one partition follow
    /// each other.
    ///
    /// Nothing here looks at the store: whether it keeps what it is given, and honours the
    /// conditions that `large` counts on, is to be found out before.
    /// [`start_archive`](RemoteStorage::start_archive) does.
    #[must_use]
    pub fn seal_on_unchecked_store(
        mut self,
        archiver: WormArchiver,
        rules: SealRules,
        large: MultipartCreate,
    ) -> Self {
        self.seal = Some((archiver, rules, large));
        self.refuse_deletes()
    }

    /// Builds the stacks.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument) that names a limit which could let
    /// nothing through, as [`RequestLimits::validate`] finds it.
    pub fn build(self) -> Result<RemoteStorage, RemoteStorageError> {
        self.limits.validate()?;
        Ok(self.assemble())
    }

    /// Builds the stacks with limits that nobody has checked.
    pub(crate) fn assemble(self) -> RemoteStorage {
        let Self {
            client,
            prefix,
            limits,
            index_cache,
            write_only,
            refuse_deletes,
            seal,
        } = self;
        let lifecycle = Lifecycle::default();

        // Store requests, outermost first. Permits are inside the retry, so a request that waits
        // out its backoff holds none, and inside the timeout, so that waiting for one is bounded.
        let attempts = ServiceBuilder::new()
            .layer(RetryLayer::new(RetryPolicy::new(
                limits.max_retries,
                limits.retry_timeout,
            )))
            // A span and a sample for each attempt.
            .layer(TraceLayer::default())
            .layer(MetricsLayer::new())
            .layer(TimeoutLayer::new(limits.request_timeout))
            // Reads and writes have their own, so uploads cannot starve consumers.
            .layer(PermitsLayer::new(limits.max_reads, limits.max_writes))
            .into_inner();
        let store = StoreRequests::new(client, &attempts);
        let store = if seal.is_some() {
            store.write_once()
        } else {
            store
        };

        // Segment operations, outermost first: a span that everything below reports to, then one
        // sample of what the caller waited for.
        let observed = ServiceBuilder::new()
            .layer(TraceLayer::default())
            .layer(MetricsLayer::new());
        let tuning = CopyTuning {
            multipart_threshold: limits.multipart_threshold,
            multipart_chunk_size: limits.multipart_chunk_size,
            max_parts_in_flight: limits.max_parts_in_flight,
        };
        let tasks = lifecycle.tasks().clone();
        let copier = Copier::new(store.clone(), prefix.clone(), tuning, tasks.clone());
        let bounded = observed
            .clone()
            // Above everything that can wait, so that a copy cannot hang.
            .layer(DeadlineLayer::new(limits.copy_deadline));
        let (copy, sealer) = match seal {
            Some((archiver, rules, large)) => {
                let sealer = Sealer::new(archiver, rules, prefix.clone(), store.clone(), tasks);
                let copy = bounded
                    // Directly above the copier, and above no retry: only single requests are
                    // repeated.
                    .layer(SealLayer::new(sealer.clone()))
                    .service(copier.write_once(large));
                (OpStack::new(copy), Some(sealer))
            }
            None => (OpStack::new(bounded.service(copier)), None),
        };

        // Inside a refusal, so that nothing is read, and directly above what it may stand in for.
        let cached = observed
            .clone()
            .layer(IndexCacheLayer::new(index_cache.clone()));
        let (fetch, fetch_index, open_index) = if write_only {
            let refused = observed.clone().service(RefuseReads::new());
            (
                OpStack::new(refused.clone()),
                OpStack::new(refused.clone()),
                OpStack::new(refused),
            )
        } else {
            let fetcher = Fetcher::new(store.clone(), prefix.clone());
            (
                OpStack::new(observed.clone().service(fetcher.clone())),
                if index_cache.is_enabled() {
                    OpStack::new(cached.clone().service(fetcher.clone()))
                } else {
                    OpStack::new(observed.clone().service(fetcher.clone()))
                },
                OpStack::new(cached.clone().service(fetcher)),
            )
        };
        let delete = if refuse_deletes {
            let prefix = prefix.clone();
            let log_key = move |metadata: &RemoteLogSegmentMetadata| {
                segment_key(&prefix, metadata, LOG_FILE_SUFFIX)
                    .map_or_else(|error| error.to_string(), |key| key.to_string())
            };
            OpStack::new(observed.service(RefuseDeletes::new(log_key)))
        } else {
            OpStack::new(cached.service(Deleter::new(store.clone(), prefix.clone())))
        };
        RemoteStorage {
            tier: Arc::new(Tier {
                copy,
                fetch,
                fetch_index,
                open_index,
                delete,
                store,
                prefix,
                sealer,
                write_only,
                lifecycle,
            }),
        }
    }
}
