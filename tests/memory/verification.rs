//! What verifying a directory with very many manifests takes of memory, and how often it reads.
//!
//! The store makes its manifests when they are asked for, so it holds none of them.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use krabka_remote_storage::archive::{VerifyRequest, verify_archive};
use krabka_remote_storage::layout::{SEGMENT_FILE_SUFFIXES, SegmentFileName};
use krabka_remote_storage::{
    ChainHead, ChainStamp, EpochId, HexBytes, MANIFEST_SUFFIX, ManifestBody, ManifestSeq,
    ManifestSignature, ObjectEntry, SegmentIdentity, SegmentManifest, Sha256Digest,
    TrustedManifestKeys, manifest_head,
};
use krabka_test_allocator::Heap;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt as _, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result,
};
use uuid::Uuid;

use crate::support::alone::alone;

/// Without optimisation fewer, to take less time; what one of them takes is the same.
const MANIFESTS: usize = if cfg!(debug_assertions) {
    15_000
} else {
    100_000
};
const DIRECTORY: &str = "archive/orders-7-AAAAAAAAAAAAAAAAAAAAEQ";

fn file_name(number: u64, suffix: &str) -> String {
    SegmentFileName {
        base_offset: i64::try_from(number * 100).unwrap(),
        segment_id: id(number),
        suffix,
    }
    .to_string()
}

fn id(number: u64) -> Uuid {
    Uuid::from_u128(0x5000_0000_0000_0000 + u128::from(number))
}

fn body(number: u64, prev_head: ChainHead) -> ManifestBody {
    let start_offset = i64::try_from(number * 100).unwrap();
    ManifestBody {
        format_version: 2,
        segment: SegmentIdentity {
            topic: "orders".to_owned(),
            topic_id: Uuid::from_u128(0x11),
            partition: 7,
            segment_id: id(number),
            start_offset,
            end_offset: start_offset + 99,
            max_timestamp_ms: 1_713_000_000_000,
            broker_id: 7,
            event_timestamp_ms: 1_713_000_001_000,
            segment_size_bytes: 1 << 30,
            leader_epochs: BTreeMap::from([(0, start_offset)]),
            txn_index_empty: true,
        },
        objects: SEGMENT_FILE_SUFFIXES
            .iter()
            .map(|suffix| ObjectEntry {
                suffix: (*suffix).to_owned(),
                key: format!("{DIRECTORY}/{}", file_name(number, suffix)),
                size_bytes: 8,
                sha256: Sha256Digest([7; 32]),
                e_tag: Some("\"d41d8cd98f00b204e9800998ecf8427e\"".to_owned()),
                version_id: Some("3HL4kqtJlcpXroDTDmjVBH40Nrjfkd".to_owned()),
                create_precondition: true,
            })
            .collect(),
        chain: ChainStamp {
            epoch_id: EpochId(Uuid::from_u128(0x99)),
            seq: ManifestSeq(number),
            prev_head,
        },
    }
}

/// Makes a long chain as it is asked for, in the order of keys or in no order at all.
struct Made {
    heads: Vec<ChainHead>,
    in_order: bool,
    gets: AtomicUsize,
    peak: Arc<AtomicUsize>,
}

impl Made {
    fn new(in_order: bool) -> Self {
        let mut heads = vec![ChainHead::GENESIS];
        for number in 0..MANIFESTS as u64 {
            let head = manifest_head(&body(number, heads[heads.len() - 1]));
            heads.push(head);
        }
        Self {
            heads,
            in_order,
            gets: AtomicUsize::new(0),
            peak: Arc::default(),
        }
    }

    fn manifest(&self, number: u64) -> Bytes {
        let at = usize::try_from(number).unwrap();
        let manifest = SegmentManifest {
            body: body(number, self.heads[at]),
            // Under a name that is not trusted: what it says is not looked at, and takes no time.
            signature: Some(ManifestSignature {
                key_id: "someone".to_owned(),
                public_key: HexBytes(vec![1; 32]),
                signature: HexBytes(vec![2; 64]),
            }),
        };
        manifest.encode().unwrap().into()
    }
}

fn note_memory(peak: &AtomicUsize) {
    peak.fetch_max(Heap::live(), Ordering::Relaxed);
}

/// The listing's objects: one after the other, or far apart as a file system has them.
fn listed(in_order: bool, at: u64) -> (u64, &'static str, u64) {
    const KINDS: u64 = SEGMENT_FILE_SUFFIXES.len() as u64 + 1;
    // A step that has no factor in common with the count visits each once.
    let at = if in_order {
        at
    } else {
        (at * 7_368_787) % (MANIFESTS as u64 * KINDS)
    };
    let kind = usize::try_from(at % KINDS).unwrap();
    match SEGMENT_FILE_SUFFIXES.get(kind) {
        Some(suffix) => (at / KINDS, suffix, 8),
        None => (at / KINDS, MANIFEST_SUFFIX, 3_000),
    }
}

#[async_trait]
impl ObjectStore for Made {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let key = location.as_ref();
        let number = key
            .strip_prefix(DIRECTORY)
            .filter(|name| name.ends_with(MANIFEST_SUFFIX))
            .and_then(|name| name[1..21].parse::<u64>().ok())
            .map(|offset| offset / 100);
        let Some(number) = number else {
            return Err(Error::NotFound {
                path: key.to_owned(),
                source: "no such object".into(),
            });
        };
        self.gets.fetch_add(1, Ordering::Relaxed);
        note_memory(&self.peak);
        let scratch = InMemory::new();
        scratch.put(location, self.manifest(number).into()).await?;
        scratch.get_opts(location, options).await
    }

    fn list(&self, _: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let in_order = self.in_order;
        let peak = self.peak.clone();
        let count = MANIFESTS as u64 * (SEGMENT_FILE_SUFFIXES.len() as u64 + 1);
        futures::stream::iter((0..count).map(move |at| {
            if at % 256 == 0 {
                note_memory(&peak);
            }
            let (number, suffix, size) = listed(in_order, at);
            let mut key = format!("{DIRECTORY}/");
            let _ = write!(key, "{}", file_name(number, suffix));
            Ok(ObjectMeta {
                location: Path::parse(key).unwrap(),
                last_modified: std::time::UNIX_EPOCH.into(),
                size,
                e_tag: Some("\"d41d8cd98f00b204e9800998ecf8427e\"".to_owned()),
                version: None,
            })
        }))
        .boxed()
    }

    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        unreachable!("a verifier never writes")
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        unreachable!("a verifier never writes")
    }

    fn delete_stream(
        &self,
        _: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        unreachable!("a verifier never deletes")
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        unreachable!("a verifier lists everything")
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        unreachable!("a verifier never writes")
    }
}

impl fmt::Debug for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Made")
    }
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Made")
    }
}

#[test]
fn a_manifest_takes_200_bytes_at_most() {
    alone(|| tokio_test::block_on(measure()));
}

async fn measure() {
    const ALLOWED: usize = 200 * MANIFESTS;
    let mut made = Made::new(true);
    for in_order in [true, false] {
        made.in_order = in_order;
        let shared = Arc::new(made);
        let store: Arc<dyn ObjectStore> = shared.clone();
        shared.peak.store(0, Ordering::Relaxed);
        shared.gets.store(0, Ordering::Relaxed);
        let before = Heap::live();
        let report = verify_archive(
            &store,
            &VerifyRequest::default(),
            &TrustedManifestKeys::default(),
        )
        .await
        .unwrap();
        note_memory(&shared.peak);
        let peak = shared.peak.load(Ordering::Relaxed) - before;

        assert_eq!(report.first_break(), None);
        assert_eq!(report.manifests(), MANIFESTS as u64);
        assert_eq!(report.partitions[0].objects_checked, 6 * MANIFESTS as u64);
        assert_eq!(report.partitions[0].untrusted_manifests, MANIFESTS as u64);
        // Each once; ten again for the sample of those that no trusted key attests; one to learn
        // what kind of store it is.
        let gets = shared.gets.load(Ordering::Relaxed);
        assert!(gets <= MANIFESTS + 10 + 8, "{gets}");
        eprintln!("peak {peak} bytes, listed in order: {in_order}");
        // The allowance beside them is 64 MiB: for manifests in flight, up to 1 MiB each.
        assert!(peak <= ALLOWED + 8 * 1024 * 1024, "{peak}");
        drop(store);
        made = Arc::into_inner(shared).unwrap();
    }
}
