//! Copies a segment: index objects beside the log's parts, the `.log` visible last.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::TryStreamExt;
use futures::stream::{self, FuturesUnordered};
use object_store::PutPayload;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio_util::task::TaskTracker;
use tower::Service;

use super::Deleter;
use super::source::{self, Artifact, Part, Parts, SharedHasher};
use super::upload::Upload;
use super::write_once::{MultipartCreate, Sent, read_back};
use crate::backends::StoreRequests;
use crate::error::RemoteStorageError;
use crate::layout::{KeyPrefix, segment_key};
use crate::model::{CopiedObject, CopyPhase, CopyProgress, CopyReceipt, LOG_FILE_SUFFIX, OpKind};
use crate::ops::{
    CopySegment, Create, Head, OpFuture, PartTag, Put, StoreTarget, WriteMode, Written,
};

/// The removal of what a failed copy wrote may take this long before the error is returned.
const CLEAN_UP_LIMIT: Duration = Duration::from_secs(10);

/// How a copy cuts objects into requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyTuning {
    /// Objects of this length in bytes or more are uploaded in parts.
    pub(crate) multipart_threshold: u64,
    /// The length of a part in bytes; the last may be shorter.
    pub(crate) multipart_chunk_size: usize,
    /// Parts of one object that are read or under way at once. Times the part size this bounds a
    /// copy's memory, beside one object below the threshold.
    pub(crate) max_parts_in_flight: usize,
}

/// Answers [`CopySegment`]. Always ready.
///
/// Objects of a segment are written at once, but the `.log` becomes visible only when all others
/// are durable: a segment is complete when its `.log` is there.
///
/// A copy that fails aborts its upload and removes this segment's objects, as far as it can, and
/// returns the first error. Dropping a call only aborts the upload: what else it wrote stays
/// without a `.log`, is never read, and `krabka-tier ls --incomplete` lists it.
///
/// A copier that [writes once](Self::write_once) takes the digest of the bytes that it sends,
/// replaces nothing, and removes nothing, whatever happens: the keys of a failed copy are burnt.
#[derive(Clone, Debug)]
pub(crate) struct Copier {
    store: StoreRequests,
    prefix: KeyPrefix,
    tuning: CopyTuning,
    /// How large objects are written in an archive; `None` outside one.
    once: Option<MultipartCreate>,
    tasks: TaskTracker,
}

impl Copier {
    /// A copier to keys that begin with `prefix`. Aborts that outlive their copy run in `tasks`.
    pub(crate) fn new(
        store: StoreRequests,
        prefix: KeyPrefix,
        tuning: CopyTuning,
        tasks: TaskTracker,
    ) -> Self {
        Self {
            store,
            prefix,
            tuning,
            once: None,
            tasks,
        }
    }

    /// Creates every object, and large ones like this.
    #[must_use]
    pub(crate) fn write_once(mut self, large: MultipartCreate) -> Self {
        self.once = Some(large);
        self
    }

    async fn copy(self, op: CopySegment) -> Result<CopyReceipt, RemoteStorageError> {
        let copy = Copy {
            copier: &self,
            op: &op,
            wrote: AtomicBool::new(false),
            under_way: Mutex::default(),
        };
        let result = copy.run().await;
        match &result {
            // An archive never deletes, and a copy to it is done when it is sealed.
            _ if self.once.is_some() => {}
            Ok(_) => op.progress.update(|state| {
                state.phase = CopyPhase::Done;
                state.part = None;
            }),
            Err(_) if !copy.wrote.load(Ordering::Relaxed) => {}
            Err(_) => self.clean_up(&op).await,
        }
        result
    }

    /// Removes what a failed copy wrote. The id is unique to the attempt, so nothing else has
    /// these keys.
    async fn clean_up(&self, op: &CopySegment) {
        op.progress
            .update(|state| state.phase = CopyPhase::CleaningUp);
        let deleter = Deleter::new(self.store.clone(), self.prefix.clone());
        let removal = tokio::time::timeout(CLEAN_UP_LIMIT, deleter.delete(&op.metadata)).await;
        if !matches!(removal, Ok(Ok(()))) {
            tracing::warn!(
                segment = %op.metadata.remote_log_segment_id(),
                "could not remove everything that a failed copy wrote; it is listed as incomplete"
            );
        }
    }
}

impl Service<CopySegment> for Copier {
    type Response = CopyReceipt;
    type Error = RemoteStorageError;
    type Future = OpFuture<CopySegment>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, op: CopySegment) -> Self::Future {
        Box::pin(self.clone().copy(op))
    }
}

/// One run of a copy.
struct Copy<'a> {
    copier: &'a Copier,
    op: &'a CopySegment,
    /// Whether anything was sent that may have to be removed.
    wrote: AtomicBool,
    /// What is being sent, in the order in which it was begun: keys, and parts.
    under_way: Mutex<Vec<(Arc<str>, Option<u32>)>>,
}

impl Copy<'_> {
    async fn run(&self) -> Result<CopyReceipt, RemoteStorageError> {
        if self.copier.tuning.multipart_chunk_size == 0 {
            return Err(std::io::Error::new(
                std::io::ErrorKind::InvalidInput,
                "the multipart chunk size is 0: configure at least one byte",
            )
            .into());
        }
        self.copier
            .store
            .client()
            .check_segment(&self.op.metadata)?;
        let mut artifacts = source::open(Arc::clone(&self.op.data)).await?;
        // Every key is rendered before the first request, so that a bad name writes nothing.
        let targets = artifacts
            .iter()
            .map(|artifact| self.target(artifact.suffix))
            .collect::<Result<Vec<_>, _>>()?;
        let total = artifacts.iter().map(|artifact| artifact.length).sum();
        self.progress().update(|state| {
            state.phase = CopyPhase::Uploading;
            state.bytes_total = total;
        });
        self.wrote.store(true, Ordering::Relaxed);

        let log = artifacts.remove(0);
        let (log_target, index_targets) = targets.split_first().expect("the log is always there");
        let indexes = artifacts
            .into_iter()
            .zip(index_targets)
            .map(|(artifact, target)| self.upload(artifact, target))
            .collect::<FuturesUnordered<_>>()
            .try_collect::<Vec<_>>();

        let (log, mut indexes) = if self.is_multipart(&log) {
            let parts = self.upload_parts(Arc::new(log), log_target);
            let (uploaded, indexes) = futures::future::try_join(parts, indexes).await?;
            (self.complete(uploaded).await?, indexes)
        } else {
            let indexes = indexes.await?;
            self.enter(CopyPhase::Completing, log_target);
            (self.upload_at_once(log, log_target).await?, indexes)
        };
        // They ended in any order; the receipt has Kafka's.
        indexes.sort_by_key(|object| {
            index_targets
                .iter()
                .position(|target| target.key().as_ref() == object.key)
        });
        indexes.insert(0, log);
        Ok(CopyReceipt {
            objects: indexes,
            custom_metadata: None,
        })
    }

    fn target(&self, suffix: &str) -> Result<StoreTarget, RemoteStorageError> {
        let metadata = &self.op.metadata;
        let key = segment_key(&self.copier.prefix, metadata, suffix)?;
        Ok(StoreTarget::of_segment(key, Arc::clone(metadata)))
    }

    fn progress(&self) -> &CopyProgress {
        &self.op.progress
    }

    /// Tells that an object or a part of it is sent.
    fn begins(&self, target: &StoreTarget, part: Option<u32>) {
        let mut under_way = self.under_way.lock();
        under_way.push((target.key().as_ref().into(), part));
        self.tell(&under_way);
    }

    /// Tells what is still sent, when this is done: a copy that hangs then names what it hangs at.
    fn ended(&self, target: &StoreTarget, part: Option<u32>) {
        let mut under_way = self.under_way.lock();
        under_way.retain(|(key, of)| (&**key, *of) != (target.key().as_ref(), part));
        self.tell(&under_way);
    }

    fn tell(&self, under_way: &[(Arc<str>, Option<u32>)]) {
        if let Some((key, part)) = under_way.last() {
            self.progress().update(|state| {
                state.key = Arc::clone(key);
                state.part = *part;
            });
        }
    }

    fn write_once(&self) -> bool {
        self.copier.once.is_some()
    }

    fn is_multipart(&self, artifact: &Artifact) -> bool {
        // An empty object has no part to upload.
        artifact.length >= self.copier.tuning.multipart_threshold
            && artifact.length > 0
            && self.copier.once != Some(MultipartCreate::OneRequest)
    }

    fn enter(&self, phase: CopyPhase, target: &StoreTarget) {
        self.progress().update(|state| {
            state.phase = phase;
            state.key = target.key().as_ref().into();
            state.part = None;
        });
    }

    /// Uploads an index object, whichever way its length asks for.
    async fn upload(
        &self,
        artifact: Artifact,
        target: &StoreTarget,
    ) -> Result<CopiedObject, RemoteStorageError> {
        if self.is_multipart(&artifact) {
            let uploaded = self.upload_parts(Arc::new(artifact), target).await?;
            self.complete(uploaded).await
        } else {
            self.upload_at_once(artifact, target).await
        }
    }

    async fn upload_at_once(
        &self,
        artifact: Artifact,
        target: &StoreTarget,
    ) -> Result<CopiedObject, RemoteStorageError> {
        let (suffix, size_bytes) = (artifact.suffix, artifact.length);
        let (bytes, sha256) = artifact.read_whole(self.write_once()).await?;
        self.begins(target, None);
        let payload = PutPayload::from(bytes);
        let key = target.key().to_string();
        let of = target.clone();
        let sent = if let Some(sha256) = sha256 {
            let create = Create {
                target: of,
                payload,
                sha256,
            };
            self.copier.store.send(create).await
        } else {
            let put = Put {
                target: of,
                payload,
            };
            self.copier.store.send(put).await
        };
        let written = sent.map_err(|error| self.located(error, None))?;
        self.ended(target, None);
        self.progress()
            .update(|state| state.bytes_done += size_bytes);
        Ok(copied(suffix, key, size_bytes, sha256, written))
    }

    /// Uploads an object in parts, up to the request that makes it visible.
    ///
    /// An upload that the store has forgotten is started anew, once.
    async fn upload_parts(
        &self,
        artifact: Arc<Artifact>,
        target: &StoreTarget,
    ) -> Result<Uploaded, RemoteStorageError> {
        let mut restarted = false;
        if self.copier.once == Some(MultipartCreate::Reserved) {
            self.reserve(target).await?;
        }
        loop {
            let hasher = self.write_once().then(SharedHasher::new);
            let part_size = self.copier.tuning.multipart_chunk_size as u64;
            // They are read while the upload starts.
            let parts = artifact.parts(part_size, hasher.clone());
            let upload = Upload::start(&self.copier.store, target, &self.copier.tasks)
                .await
                .map_err(|error| self.located(error, None))?;
            let sent = AtomicU64::new(0);
            let sending = async {
                let tags = self.send_parts(parts, &upload, target, &sent).await?;
                let sha256 = match hasher {
                    Some(hasher) => Some(hasher.digest().await?),
                    None => None,
                };
                Ok((tags, sha256))
            };
            match sending.await {
                Ok((tags, sha256)) => {
                    return Ok(Uploaded {
                        upload,
                        artifact,
                        target: target.clone(),
                        tags: tags.into(),
                        sha256,
                        restarted,
                    });
                }
                Err(error) if is_forgotten(&error) && !restarted => {
                    upload.ended();
                    let key = target.key().as_ref();
                    self.under_way.lock().retain(|(of, _)| **of != *key);
                    self.take_back(sent.into_inner());
                    restarted = true;
                }
                Err(error) => {
                    upload.abort().await;
                    return Err(error);
                }
            }
        }
    }

    /// Takes the key, with an empty object.
    async fn reserve(&self, target: &StoreTarget) -> Result<(), RemoteStorageError> {
        let create = Create {
            target: target.clone(),
            payload: PutPayload::new(),
            sha256: Sha256::digest([]).into(),
        };
        let reserved = self.copier.store.send(create).await;
        reserved
            .map(drop)
            .map_err(|error| self.located(error, None))
    }

    /// Sends an artifact's parts, a few at a time, and takes the next when a place is free: memory
    /// is bounded however slow the store is. `sent` counts the bytes of the parts that the store
    /// has taken, whatever becomes of the others.
    async fn send_parts(
        &self,
        parts: Parts,
        upload: &Upload,
        target: &StoreTarget,
        sent: &AtomicU64,
    ) -> Result<Vec<PartTag>, RemoteStorageError> {
        let tuning = &self.copier.tuning;
        let mut tags: Vec<(u32, PartTag)> = stream::try_unfold(parts, Parts::next)
            .map_ok(|part| self.send_part(part, upload, target, sent))
            .try_buffer_unordered(tuning.max_parts_in_flight.max(1))
            .try_collect()
            .await?;
        tags.sort_unstable_by_key(|(number, _)| *number);
        Ok(tags.into_iter().map(|(_, tag)| tag).collect())
    }

    async fn send_part(
        &self,
        part: Part,
        upload: &Upload,
        target: &StoreTarget,
        sent: &AtomicU64,
    ) -> Result<(u32, PartTag), RemoteStorageError> {
        self.begins(target, Some(part.number));
        let length = part.bytes.len() as u64;
        let tag = upload
            .put_part(part.number, part.offset, part.bytes)
            .await
            .map_err(|error| self.located(error, Some(part.number)))?;
        self.ended(target, Some(part.number));
        sent.fetch_add(length, Ordering::Relaxed);
        self.progress().update(|state| state.bytes_done += length);
        Ok((part.number, tag))
    }

    /// What a forgotten upload held has to be sent again, so it is not done.
    fn take_back(&self, bytes: u64) {
        self.progress().update(|state| state.bytes_done -= bytes);
    }

    /// Makes an uploaded object visible.
    async fn complete(&self, uploaded: Uploaded) -> Result<CopiedObject, RemoteStorageError> {
        let mut uploaded = uploaded;
        loop {
            // The indexes go their way beside the log's parts, which are what the phase speaks of.
            if uploaded.artifact.suffix == LOG_FILE_SUFFIX {
                self.enter(CopyPhase::Completing, &uploaded.target);
            }
            let tags = Arc::clone(&uploaded.tags);
            let written = match uploaded.upload.complete(tags, self.mode(&uploaded)).await {
                Ok(written) => Ok(written),
                Err(error) if is_forgotten(&error) => {
                    match self.completed_before(&uploaded).await {
                        Ok(Some(written)) => Ok(written),
                        Ok(None) if !uploaded.restarted => {
                            uploaded.upload.ended();
                            self.take_back(uploaded.artifact.length);
                            self.enter(CopyPhase::Uploading, &uploaded.target);
                            uploaded = self
                                .upload_parts(uploaded.artifact, &uploaded.target)
                                .await?;
                            uploaded.restarted = true;
                            continue;
                        }
                        Ok(None) => Err(error),
                        Err(error) => Err(error),
                    }
                }
                Err(error) => Err(error),
            };
            return match written {
                Ok(written) => {
                    uploaded.upload.ended();
                    let written = self
                        .read_back(
                            &uploaded.target,
                            uploaded.artifact.length,
                            uploaded.sha256,
                            written,
                        )
                        .await
                        .map_err(|error| self.located(error, None))?;
                    Ok(copied(
                        uploaded.artifact.suffix,
                        uploaded.target.key().to_string(),
                        uploaded.artifact.length,
                        uploaded.sha256,
                        written,
                    ))
                }
                Err(error) => {
                    uploaded.upload.abort().await;
                    Err(self.located(error, None))
                }
            };
        }
    }

    /// Whether the completion creates, or is to meet a reservation or nothing at all.
    fn mode(&self, uploaded: &Uploaded) -> WriteMode {
        match (self.copier.once, uploaded.sha256) {
            (Some(MultipartCreate::Conditional), Some(sha256)) => WriteMode::Create {
                size_bytes: uploaded.artifact.length,
                sha256,
            },
            _ => WriteMode::Overwrite,
        }
    }

    /// Makes sure of an upload that was completed, where the store guarantees too little.
    async fn read_back(
        &self,
        target: &StoreTarget,
        size_bytes: u64,
        sha256: Option<[u8; 32]>,
        written: Written,
    ) -> Result<Written, RemoteStorageError> {
        match (self.copier.once, sha256) {
            (Some(MultipartCreate::Reserved | MultipartCreate::ReadBack), Some(sha256)) => {
                let sent = Sent {
                    target,
                    size_bytes,
                    sha256,
                    version_id: written.version_id.as_deref(),
                };
                read_back(&self.copier.store, sent).await
            }
            _ => Ok(written),
        }
    }

    /// A completion whose answer was lost is told "no such upload" when it is repeated: then the
    /// whole object stands there. Its id is this copy's own, so nobody else's can. (A completion
    /// that creates has looked already.)
    async fn completed_before(
        &self,
        uploaded: &Uploaded,
    ) -> Result<Option<Written>, RemoteStorageError> {
        if self.copier.once == Some(MultipartCreate::Conditional) {
            return Ok(None);
        }
        let target = uploaded.target.clone();
        let meta = self.copier.store.send(Head { target }).await?;
        let whole = meta.filter(|meta| meta.size == uploaded.artifact.length);
        Ok(whole.map(|meta| Written {
            e_tag: meta.e_tag,
            version_id: meta.version,
            create_precondition: false,
        }))
    }

    /// Adds to an error where the copy was.
    fn located(&self, mut error: RemoteStorageError, at_part: Option<u32>) -> RemoteStorageError {
        let at_phase = self.progress().snapshot().phase;
        match &mut error {
            RemoteStorageError::Backend { reason, .. } => {
                *reason = match at_part {
                    Some(part) => format!("{reason} (while {at_phase}, part {part})"),
                    None => format!("{reason} (while {at_phase})"),
                };
            }
            RemoteStorageError::TimedOut { phase, .. } => *phase = Some(at_phase),
            _ => {}
        }
        error
    }
}

/// An object whose parts are all durable, and which is not visible yet.
struct Uploaded {
    upload: Upload,
    artifact: Arc<Artifact>,
    target: StoreTarget,
    tags: Arc<[PartTag]>,
    sha256: Option<[u8; 32]>,
    restarted: bool,
}

/// Whether a store no longer knows the upload that a part or a completion names.
fn is_forgotten(error: &RemoteStorageError) -> bool {
    matches!(
        error,
        RemoteStorageError::Backend {
            status: Some(404),
            operation: OpKind::PutPart | OpKind::CompleteUpload,
            ..
        }
    )
}

fn copied(
    suffix: &'static str,
    key: String,
    size_bytes: u64,
    sha256: Option<[u8; 32]>,
    written: Written,
) -> CopiedObject {
    CopiedObject {
        suffix,
        key,
        size_bytes,
        sha256,
        e_tag: written.e_tag,
        version_id: written.version_id,
        create_precondition: written.create_precondition,
    }
}
