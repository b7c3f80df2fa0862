//! Seals a copy: after the segment's objects its manifest is written, and the manifest's receipt
//! is what is to be kept with the segment's metadata.
//!
//! The manifest is the commit: until it stands, the segment is not in the archive. It is signed
//! over the digests that the copy took of the bytes it sent, and written by a create whose outcome
//! is always known.
//!
//! The layer goes inside the deadline and directly above the copier. Retries are of single store
//! requests, below it: a whole sealed copy is never repeated by a layer.
//!
//! # One place, one manifest
//!
//! Copies of one partition follow each other: the next waits until the one before has ended. For
//! each partition the layer remembers the place in the chain that it filled last, so that a copy
//! which asks for it again does not fork the chain:
//!
//! | The next copy asks for | and the last manifest | Then |
//! |---|---|---|
//! | the same place, for the same segment | is stored | it is answered with the receipt; nothing is sent |
//! | 〃 | was sent, and nobody knows what became of it | the very same manifest is sent again, which settles it |
//! | the same place or an earlier one, for another segment | is stored | it is refused, with [`PreconditionFailed`](RemoteStorageError::PreconditionFailed) |
//! | the next place | is stored | it must name the last head, or is refused likewise |
//! | a place in another epoch | | it is sealed there |
//!
//! What other processes did is not known here: for that there are the leftover rule
//! ([`resolve_leftovers`](crate::archive::resolve_leftovers)) and the evidence that
//! [`Sealer::sent`] adds to it.
//!
//! # Cancellation
//!
//! Before the manifest is sent a dropped copy is an ordinary one: what it wrote stays without a
//! manifest, and its place stays free. From then on the commit runs in a task of its own, and to
//! its end; a deadline that fires meanwhile answers
//! [`OutcomeUnknown`](RemoteStorageError::OutcomeUnknown).

mod places;

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use object_store::path::Path;
use tokio_util::task::TaskTracker;
use tower::{Layer, Service, ServiceExt as _};
use tracing::Instrument as _;

use self::places::{Place, Places, Sent, Standing};
use super::metrics::{manifest_seal_failures, manifests_sealed};
use crate::archive::{
    ChainHead, ChainStamp, MANIFEST_SUFFIX, ObjectEntry, Sha256Digest, WormArchiver,
    WormChainRecord,
};
use crate::error::{ErrorKind, RemoteStorageError, WormError};
use crate::layout::{KeyPrefix, segment_key};
use crate::model::{
    CopiedObject, CopyPhase, CopyReceipt, CustomMetadata, OpKind, RemoteLogSegmentMetadata,
};
use crate::ops::{
    CopySegment, Create, Head, OpFuture, OpService, OpStack, StorageOp as _, StoreTarget,
};

/// What an archive demands of its store and of its metadata store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SealRules {
    /// How many bytes of custom metadata the metadata store takes. A receipt that would exceed it
    /// goes without the version of its manifest's object, which only says where to find it.
    pub custom_metadata_limit: usize,
    /// Whether the store must name a version of each object: it is a bucket whose versioning was
    /// seen to be enabled.
    pub require_version_ids: bool,
}

impl SealRules {
    /// These demands.
    pub const fn new(custom_metadata_limit: usize, require_version_ids: bool) -> Self {
        Self {
            custom_metadata_limit,
            require_version_ids,
        }
    }
}

/// A [`Layer`] that wraps copiers in [`Seal`].
#[derive(Clone, Debug)]
pub(crate) struct SealLayer {
    sealer: Sealer,
}

impl SealLayer {
    /// Seals copies with this.
    pub(crate) fn new(sealer: Sealer) -> Self {
        Self { sealer }
    }
}

impl<S> Layer<S> for SealLayer {
    type Service = Seal<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Seal {
            inner,
            sealer: self.sealer.clone(),
        }
    }
}

/// A service that seals what `S` copies. Always ready.
#[derive(Clone, Debug)]
pub(crate) struct Seal<S> {
    inner: S,
    sealer: Sealer,
}

impl<S: OpService<CopySegment>> Service<CopySegment> for Seal<S> {
    type Response = CopyReceipt;
    type Error = RemoteStorageError;
    type Future = OpFuture<CopySegment>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, op: CopySegment) -> Self::Future {
        let Self { inner, sealer } = self.clone();
        Box::pin(async move { sealer.copy(op, inner).await })
    }
}

/// Seals the copies of one storage handle. A clone is one reference.
#[derive(Clone)]
pub(crate) struct Sealer {
    parts: Arc<Parts>,
}

struct Parts {
    archiver: WormArchiver,
    rules: SealRules,
    prefix: KeyPrefix,
    create: OpStack<Create>,
    head: OpStack<Head>,
    /// Where commits run.
    tasks: TaskTracker,
    places: Places,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer")
            .field("archiver", &self.parts.archiver)
            .field("rules", &self.parts.rules)
            .finish_non_exhaustive()
    }
}

impl Sealer {
    /// Seals with `archiver`, and writes manifests below `prefix` through `store`. Commits run in
    /// `tasks`, whether or not their callers wait.
    pub(crate) fn new(
        archiver: WormArchiver,
        rules: SealRules,
        prefix: KeyPrefix,
        store: impl OpService<Create> + OpService<Head>,
        tasks: TaskTracker,
    ) -> Self {
        Self {
            parts: Arc::new(Parts {
                archiver,
                rules,
                prefix,
                create: OpStack::new(store.clone()),
                head: OpStack::new(store),
                tasks,
                places: Places::default(),
            }),
        }
    }

    /// Whether this process sent the manifest of a segment: `Some(false)` means that it copied the
    /// segment and never came so far, so that the place is free; `None` that it knows nothing.
    ///
    /// Waits for a copy of the segment's partition that is under way.
    pub(crate) async fn sent(&self, segment: &RemoteLogSegmentMetadata) -> Option<bool> {
        let place = self.parts.places.enter(segment.topic_id_partition()).await;
        place.sent(segment.remote_log_segment_id().id)
    }

    async fn copy(
        &self,
        op: CopySegment,
        copier: impl OpService<CopySegment>,
    ) -> Result<CopyReceipt, RemoteStorageError> {
        let id = op.metadata.remote_log_segment_id();
        self.parts.places.begin(&id.topic_id_partition, id.id);
        let stamp = match self.check(&op.metadata).await {
            Ok(stamp) => stamp,
            Err(error) => return Err(failed(error)),
        };
        let key = segment_key(&self.parts.prefix, &op.metadata, MANIFEST_SUFFIX)?;
        let mut place = self.parts.places.enter(&id.topic_id_partition).await;
        if place.is_open(stamp) {
            if place.sent(id.id) == Some(true) {
                begin_commit(&op, &key);
            }
            let (again, result) = self.commit(place).await;
            place = again;
            // Its own outcome is what the caller asks for; another segment's decides on the place.
            result?;
        }
        match place.standing(stamp, id.id) {
            Standing::Free => {}
            Standing::Done(receipt) => {
                end(&op);
                return Ok(receipt);
            }
            Standing::Taken(error) => return Err(failed(error)),
        }
        let receipt = copier.oneshot(op.clone()).await?;
        let sent = match self.seal(&op, receipt, &key).await {
            Ok(sent) => sent,
            Err(error) => return Err(failed(error)),
        };
        place.send(sent);
        begin_commit(&op, &key);
        let (_, result) = self.commit(place).await;
        if result.is_ok() {
            end(&op);
        }
        result
    }

    /// All that can be known before the first object is sent.
    async fn check(
        &self,
        metadata: &RemoteLogSegmentMetadata,
    ) -> Result<ChainStamp, RemoteStorageError> {
        let record = metadata
            .custom_metadata()
            .ok_or(WormError::MissingChainStamp)?;
        let record = WormChainRecord::from_custom_metadata(record)?;
        let size = record
            .clone()
            .with_head(ChainHead::GENESIS)
            .with_manifest_version(None)
            .to_custom_metadata()
            .0
            .len();
        let limit = self.parts.rules.custom_metadata_limit;
        if size > limit {
            return Err(RemoteStorageError::InvalidArgument(format!(
                "custom_metadata_limit of {limit} bytes is too small: the receipt of this segment \
                 has {size}, so raise it, and in Apache Kafka \
                 remote.log.metadata.custom.metadata.max.bytes"
            )));
        }
        self.parts.archiver.check_key().await?;
        Ok(record.stamp())
    }

    /// The manifest of what was copied, ready to be sent.
    async fn seal(
        &self,
        op: &CopySegment,
        mut receipt: CopyReceipt,
        key: &Path,
    ) -> Result<Sent, RemoteStorageError> {
        for object in &mut receipt.objects {
            if self.parts.rules.require_version_ids && object.version_id.is_none() {
                let key = Path::parse(&object.key).map_err(|error| {
                    RemoteStorageError::InvalidArgument(format!("{}: {error}", object.key))
                })?;
                let target = StoreTarget::of_segment(key, Arc::clone(&op.metadata));
                object.version_id = self.version_of(target).await?;
                if object.version_id.is_none() {
                    let key = object.key.clone();
                    return Err(WormError::MissingVersionId { key }.into());
                }
            }
        }
        let entries = receipt
            .objects
            .iter()
            .map(entry)
            .collect::<Result<Vec<_>, _>>()?;
        let sealed = self.parts.archiver.seal(&op.metadata, entries).await?;
        Ok(Sent {
            segment: op.metadata.remote_log_segment_id().id,
            record: sealed.receipt,
            create: Create {
                target: StoreTarget::of_segment(key.clone(), Arc::clone(&op.metadata)),
                sha256: Sha256Digest::of(&sealed.bytes).0,
                payload: sealed.bytes.into(),
            },
            receipt,
            is_stored: false,
        })
    }

    async fn version_of(&self, target: StoreTarget) -> Result<Option<String>, RemoteStorageError> {
        let head = self.parts.head.clone().oneshot(Head { target }).await?;
        Ok(head.and_then(|meta| meta.version))
    }

    /// Writes the manifest that this place has sent (again). The task holds the place until the
    /// outcome is known, so the partition's next copy waits for it.
    async fn commit(&self, mut place: Place) -> (Place, Result<CopyReceipt, RemoteStorageError>) {
        let sealer = self.clone();
        let (partition, key) = (place.partition().clone(), place.manifest_key());
        let committing = async move {
            // Counted here: nobody may be waiting any more.
            let result = sealer.store(&mut place).await.map_err(failed);
            (place, result)
        };
        let committed = self.parts.tasks.spawn(committing.in_current_span());
        match committed.await {
            Ok(ended) => ended,
            // Its runtime was shut down.
            Err(_) => (
                self.parts.places.enter(&partition).await,
                Err(failed(unknown(key))),
            ),
        }
    }

    async fn store(&self, place: &mut Place) -> Result<CopyReceipt, RemoteStorageError> {
        let Some(Sent { record, create, .. }) = place.last() else {
            return Err(unknown(String::new()));
        };
        let (record, create) = (record.clone(), create.clone());
        let (target, key) = (create.target.clone(), create.key().to_owned());
        let span = tracing::info_span!(
            "seal_manifest",
            key,
            epoch = %record.epoch_id,
            seq = record.seq.0,
        );
        let create = self.parts.create.clone().oneshot(create);
        let mut version_id = match create.instrument(span.clone()).await {
            Ok(written) => written.version_id,
            Err(error) => return Err(commit_error(key, error)),
        };
        manifests_sealed().increment(1);
        let must_have_version = self.parts.rules.require_version_ids;
        if must_have_version && version_id.is_none() {
            // The manifest stands there: whatever a HEAD says, the place is taken.
            version_id = self
                .version_of(target)
                .instrument(span)
                .await
                .ok()
                .flatten();
        }
        let no_version = must_have_version && version_id.is_none();
        let receipt = place.stored(self.fit(record.with_manifest_version(version_id)));
        if no_version {
            return Err(WormError::MissingVersionId { key }.into());
        }
        receipt.ok_or_else(|| unknown(key))
    }

    /// The receipt as custom metadata that the metadata store takes.
    fn fit(&self, receipt: WormChainRecord) -> CustomMetadata {
        let whole = receipt.to_custom_metadata();
        if whole.0.len() <= self.parts.rules.custom_metadata_limit {
            whole
        } else {
            receipt.with_manifest_version(None).to_custom_metadata()
        }
    }
}

/// From here on the outcome of the copy is that of its commit.
fn begin_commit(op: &CopySegment, key: &Path) {
    op.progress.update(|state| {
        state.phase = CopyPhase::Sealing;
        state.key = key.as_ref().into();
        state.part = None;
    });
}

fn end(op: &CopySegment) {
    op.progress.update(|state| {
        state.phase = CopyPhase::Done;
        state.part = None;
    });
}

fn failed(error: impl Into<RemoteStorageError>) -> RemoteStorageError {
    manifest_seal_failures().increment(1);
    error.into()
}

fn unknown(key: String) -> RemoteStorageError {
    RemoteStorageError::OutcomeUnknown {
        operation: OpKind::CopySegment,
        key,
    }
}

/// What the caller is told when the manifest could not be written, as far as anyone knows.
fn commit_error(key: String, error: RemoteStorageError) -> RemoteStorageError {
    match error.kind() {
        // The store's answer is final: other bytes stand there, or the request was refused.
        ErrorKind::Conflict | ErrorKind::Rejected | ErrorKind::Invalid => error,
        _ => {
            tracing::warn!(%key, %error, "the outcome of writing a manifest is unknown");
            unknown(key)
        }
    }
}

fn entry(object: &CopiedObject) -> Result<ObjectEntry, WormError> {
    let Some(sha256) = object.sha256 else {
        let key = object.key.clone();
        return Err(WormError::MissingDigest { key });
    };
    Ok(ObjectEntry {
        suffix: object.suffix.to_owned(),
        key: object.key.clone(),
        size_bytes: object.size_bytes,
        sha256: Sha256Digest(sha256),
        e_tag: object.e_tag.clone(),
        version_id: object.version_id.clone(),
        create_precondition: object.create_precondition,
    })
}
