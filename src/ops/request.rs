//! Single requests to a store, and their answers.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectMeta, PutPayload};

use super::StorageOp;
use crate::model::{OpKind, RemoteLogSegmentMetadata};

/// Every store request, and the name of its method. Hands the table to the macro `$use_of`, so
/// that whatever has one entry a request takes them from here.
macro_rules! every_store_request {
    ($use_of:ident) => {
        $use_of! {
            Get => get,
            Head => head,
            Put => put,
            Create => create,
            StartUpload => start_upload,
            PutPart => put_part,
            CompleteUpload => complete_upload,
            AbortUpload => abort_upload,
            Delete => delete,
            List => list,
            ListUploads => list_uploads,
            ReadRetention => read_retention,
        }
    };
}
pub(crate) use every_store_request;

/// The object that a store request is about. A clone is one reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreTarget {
    object: Arc<StoreObject>,
    /// Which attempt this is, counted from 1.
    pub attempt: u32,
}

/// Shared by a request and its copies alone: counting those in the segment's own `Arc` would be
/// work on memory that every request of the segment, on any thread, writes to.
#[derive(Debug, PartialEq, Eq)]
struct StoreObject {
    key: Path,
    segment: Option<Arc<RemoteLogSegmentMetadata>>,
}

impl StoreTarget {
    /// An object that belongs to no known segment.
    pub fn object(key: Path) -> Self {
        Self::new(key, None)
    }

    /// An object of this segment.
    pub fn of_segment(key: Path, segment: Arc<RemoteLogSegmentMetadata>) -> Self {
        Self::new(key, Some(segment))
    }

    fn new(key: Path, segment: Option<Arc<RemoteLogSegmentMetadata>>) -> Self {
        Self {
            object: Arc::new(StoreObject { key, segment }),
            attempt: 1,
        }
    }

    /// The object's whole key, or the prefix of a listing.
    pub fn key(&self) -> &Path {
        &self.object.key
    }

    /// The segment that the object belongs to, where it is known: errors and spans name it.
    pub fn segment(&self) -> Option<&Arc<RemoteLogSegmentMetadata>> {
        self.object.segment.as_ref()
    }
}

/// Which bytes of an object a [`Get`] asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ByteRange {
    /// All of them, in a request without a range.
    Whole,
    /// From this position to the end.
    From(u64),
    /// Half open: the end is exclusive. Never empty.
    Bounded(Range<u64>),
}

/// One GET. The answer is exactly the asked bytes, clamped at the object's end, or an error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Get {
    /// The object.
    pub target: StoreTarget,
    /// Its bytes.
    pub range: ByteRange,
}

/// The answer to a [`Get`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fetched {
    /// The bytes, as the store handed them over.
    pub bytes: Bytes,
    /// The object's whole length in bytes, as the store announced it; `None` where it did not.
    pub object_size: Option<u64>,
}

/// One HEAD. The answer is `None` when there is no such object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Head {
    /// The object.
    pub target: StoreTarget,
}

/// One PUT, which replaces what stands under the key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Put {
    /// The object.
    pub target: StoreTarget,
    /// Its bytes, in shared buffers.
    pub payload: PutPayload,
}

/// What a store said of a finished write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// The entity tag, quotes included.
    pub e_tag: Option<String>,
    /// The version id, in a bucket with versions.
    pub version_id: Option<String>,
    /// Whether the store guaranteed that nothing stood under the key before.
    pub create_precondition: bool,
}

/// One create: these bytes under this key, once.
///
/// The outcome is always known when this answers: either these very bytes now stand under the key
/// (written by this request, or by an earlier attempt whose answer was lost), or the error says
/// that other bytes do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Create {
    /// The object.
    pub target: StoreTarget,
    /// Its bytes, in shared buffers.
    pub payload: PutPayload,
    /// SHA-256 of the bytes: how a read-back tells the own success from a foreign object.
    pub sha256: [u8; 32],
}

/// The start of a multipart upload. The answer is the upload's id.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StartUpload {
    /// The object.
    pub target: StoreTarget,
}

/// The id that a store gave a multipart upload.
pub type UploadId = Arc<str>;

/// One part of a multipart upload. A repeated part replaces itself.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PutPart {
    /// The object.
    pub target: StoreTarget,
    /// The upload.
    pub upload: UploadId,
    /// The part's number, counted from 1.
    pub number: u32,
    /// Where the part begins in the object, in bytes.
    pub offset: u64,
    /// Its bytes, in shared buffers.
    pub payload: PutPayload,
}

/// What a store calls an uploaded part.
pub type PartTag = Arc<str>;

/// How a finished upload meets what stands under its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// Replaces it.
    Overwrite,
    /// Fails with [`ObjectExists`](crate::RemoteStorageError::ObjectExists), unless what stands there is
    /// this very object: an earlier attempt may have written it, and its answer was lost.
    Create {
        /// The whole object's length in bytes.
        size_bytes: u64,
        /// SHA-256 of the whole object.
        sha256: [u8; 32],
    },
}

/// The request that makes a multipart upload visible.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompleteUpload {
    /// The object.
    pub target: StoreTarget,
    /// The upload.
    pub upload: UploadId,
    /// Every part, in order.
    pub parts: Arc<[PartTag]>,
    /// Whether an object may be replaced.
    pub mode: WriteMode,
}

/// The request that gives a multipart upload up. One that is already gone is no error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AbortUpload {
    /// The object.
    pub target: StoreTarget,
    /// The upload.
    pub upload: UploadId,
}

/// One DELETE. An object that is not there is no error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delete {
    /// The object.
    pub target: StoreTarget,
}

/// One listing of what stands directly below a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct List {
    /// The prefix; the root path lists the whole store's first level.
    pub target: StoreTarget,
}

/// The answer to a [`List`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listing {
    /// The objects directly below the prefix, by key.
    pub objects: Vec<ObjectMeta>,
    /// The "directories" directly below the prefix.
    pub prefixes: Vec<Path>,
}

/// One listing of the multipart uploads below a prefix that were neither completed nor aborted.
///
/// The answer is `None` where the store cannot list them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListUploads {
    /// The prefix.
    pub target: StoreTarget,
}

/// A multipart upload that was neither completed nor aborted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenUpload {
    /// The key that it would have become.
    pub key: Path,
    /// Its id.
    pub upload: UploadId,
}

/// One reading of what a bucket promises to keep.
///
/// The answer is `None` where the store cannot promise it: a local directory, memory, a client of
/// unknown make.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadRetention {
    /// The bucket, named for errors and spans.
    pub target: StoreTarget,
}

/// What a bucket promises to keep, as it said when it was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetentionPolicy {
    /// What an archive needs and the bucket does not have, a phrase each. Empty where every new
    /// object can neither be altered nor destroyed for a time.
    pub unmet: Vec<String>,
    /// Whether the bucket keeps versions, and so names one for each object.
    pub versioned: bool,
}

/// Constructors of what has no more to it than its fields.
macro_rules! of_fields {
    ($($name:ident($($field:ident: $type:ty),*);)*) => {$(
        impl $name {
            /// Made of its fields, in their order.
            pub fn new($($field: $type),*) -> Self {
                Self { $($field),* }
            }
        }
    )*};
}

of_fields! {
    Get(target: StoreTarget, range: ByteRange);
    Fetched(bytes: Bytes, object_size: Option<u64>);
    Head(target: StoreTarget);
    Put(target: StoreTarget, payload: PutPayload);
    Create(target: StoreTarget, payload: PutPayload, sha256: [u8; 32]);
    StartUpload(target: StoreTarget);
    PutPart(target: StoreTarget, upload: UploadId, number: u32, offset: u64, payload: PutPayload);
    CompleteUpload(target: StoreTarget, upload: UploadId, parts: Arc<[PartTag]>, mode: WriteMode);
    AbortUpload(target: StoreTarget, upload: UploadId);
    Delete(target: StoreTarget);
    List(target: StoreTarget);
    Listing(objects: Vec<ObjectMeta>, prefixes: Vec<Path>);
    ListUploads(target: StoreTarget);
    OpenUpload(key: Path, upload: UploadId);
    ReadRetention(target: StoreTarget);
}

macro_rules! store_requests {
    ($($request:ident => $kind:ident, $output:ty
        $(, part: |$this:ident| $part:expr)?
        $(, carried: |$carrier:ident| $carried:expr)?
        $(, answered: |$answer:ident| $answered:expr)?;
    )*) => {$(
        impl StorageOp for $request {
            type Output = $output;
            const KIND: OpKind = OpKind::$kind;

            fn segment(&self) -> Option<&Arc<RemoteLogSegmentMetadata>> {
                self.target.segment()
            }

            fn key(&self) -> &str {
                self.target.key().as_ref()
            }

            $(fn part(&self) -> Option<u32> {
                let $this = self;
                Some($part)
            })?

            fn attempt(&self) -> u32 {
                self.target.attempt
            }

            fn next_attempt(&mut self) {
                self.target.attempt += 1;
            }

            $(fn bytes_carried(&self) -> u64 {
                let $carrier = self;
                $carried
            })?

            $(fn bytes_answered($answer: &$output) -> u64 {
                $answered
            })?
        }
    )*};
}

store_requests! {
    Get => Get, Fetched, answered: |answer| answer.bytes.len() as u64;
    Head => Head, Option<ObjectMeta>;
    Put => Put, Written, carried: |this| this.payload.content_length() as u64;
    Create => Create, Written, carried: |this| this.payload.content_length() as u64;
    StartUpload => StartUpload, UploadId;
    PutPart => PutPart, PartTag, part: |this| this.number, carried: |this| this.payload.content_length() as u64;
    CompleteUpload => CompleteUpload, Written;
    AbortUpload => AbortUpload, ();
    Delete => Delete, ();
    List => List, Listing;
    ListUploads => List, Option<Vec<OpenUpload>>;
    ReadRetention => ReadRetention, Option<RetentionPolicy>;
}
