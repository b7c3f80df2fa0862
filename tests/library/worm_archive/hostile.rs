//! Archives made to exhaust, to mislead, or to draw reads to where they do not belong.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use krabka_remote_storage::archive::{Printable, VerifyBreakKind, verify_archive};
use krabka_remote_storage::{MAX_MANIFEST_BYTES, ManifestBody, ManifestSeq};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use proptest::prelude::*;

use super::store::ReadOnly;
use crate::support::archive::{Archive, Key, assert_break, deep, partition, shallow, trusted};
use crate::support::with;

type Change = Box<dyn Fn(&mut ManifestBody)>;

/// Serves one key as if it were of this size, in pieces, and says another size when it is asked.
struct Endless {
    memory: InMemory,
    key: String,
    listed_size: u64,
    stated_size: u64,
    sent_size: u64,
    served: Arc<AtomicU64>,
}

#[async_trait]
impl ObjectStore for Endless {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let mut result = self.memory.get_opts(location, options).await?;
        if location.as_ref() == self.key {
            const PIECE: u64 = 64 * 1024;
            result.meta.size = self.stated_size;
            result.range = 0..self.stated_size;
            let served = self.served.clone();
            let piece = Bytes::from(vec![b' '; usize::try_from(PIECE).unwrap()]);
            let pieces = futures::stream::iter(0..self.sent_size / PIECE).map(move |_| {
                served.fetch_add(PIECE, Ordering::SeqCst);
                Ok(piece.clone())
            });
            result.payload = GetResultPayload::Stream(pieces.boxed());
        }
        Ok(result)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (key, size) = (self.key.clone(), self.listed_size);
        self.memory
            .list(prefix)
            .map(move |object| {
                object.map(|mut object| {
                    if object.location.as_ref() == key {
                        object.size = size;
                    }
                    object
                })
            })
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

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.memory.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        unreachable!("a verifier never writes")
    }
}

impl fmt::Debug for Endless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Endless")
    }
}

impl fmt::Display for Endless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Endless")
    }
}

#[tokio::test]
async fn of_a_huge_manifest_no_more_is_read_than_a_manifest_can_have() {
    const HUGE: u64 = 1 << 30;
    let archive = Archive::one_run(2).await;
    let sealed = &archive.segments[1];
    for (listed_size, stated_size, most_served) in [
        // The listing tells, the answer tells, or neither does.
        (HUGE, HUGE, 0),
        (MAX_MANIFEST_BYTES + 1, HUGE, 0),
        (10, HUGE, 0),
        (10, 10, MAX_MANIFEST_BYTES + 2 * 64 * 1024),
        (0, 0, MAX_MANIFEST_BYTES + 2 * 64 * 1024),
    ] {
        let served = Arc::new(AtomicU64::new(0));
        let store: Arc<dyn ObjectStore> = Arc::new(Endless {
            memory: archive.memory.clone(),
            key: sealed.manifest_key.clone(),
            listed_size,
            stated_size,
            sent_size: HUGE,
            served: served.clone(),
        });
        for request in [shallow(), deep()] {
            let report = verify_archive(&store, &request, &trusted()).await.unwrap();
            assert_break(
                &report,
                sealed.directory(),
                VerifyBreakKind::Oversize,
                &sealed.manifest_key,
            );
        }
        assert!(served.load(Ordering::SeqCst) <= 2 * most_served);
    }
}

#[tokio::test]
async fn a_manifest_of_the_greatest_size_is_read_and_one_byte_more_is_not() {
    let archive = Archive::one_run(1).await;
    let sealed = &archive.segments[0];
    let limit = usize::try_from(MAX_MANIFEST_BYTES).unwrap();
    for (len, kind, gets) in [
        (limit, VerifyBreakKind::Decode, 1),
        (limit + 1, VerifyBreakKind::Oversize, 0),
    ] {
        archive.put(&sealed.manifest_key, vec![b' '; len]).await;
        let (reads, store) = ReadOnly::new(&archive.memory).shared();
        let report = verify_archive(&store, &deep(), &trusted()).await.unwrap();
        assert_break(&report, sealed.directory(), kind, &sealed.manifest_key);
        assert_eq!(reads.gets_of(&sealed.manifest_key), gets);
    }
}

#[tokio::test]
async fn numbers_at_the_edge_of_their_range_are_a_break_and_no_panic() {
    let archive = Archive::one_run(2).await;
    let sealed = archive.segments[1].clone();
    let changes: [(VerifyBreakKind, Change); 7] = [
        (
            VerifyBreakKind::Size,
            Box::new(|body| body.objects[0].size_bytes = 1 << 63),
        ),
        (
            VerifyBreakKind::Size,
            Box::new(|body| body.objects[0].size_bytes = u64::MAX),
        ),
        (
            VerifyBreakKind::Sequence,
            Box::new(|body| body.chain.seq = ManifestSeq(1 << 63)),
        ),
        (
            VerifyBreakKind::Sequence,
            Box::new(|body| body.chain.seq = ManifestSeq(u64::MAX)),
        ),
        (
            VerifyBreakKind::Misplaced,
            Box::new(|body| body.segment.start_offset = i64::MIN),
        ),
        (
            VerifyBreakKind::Misplaced,
            Box::new(|body| body.segment.partition = i32::MIN),
        ),
        (
            VerifyBreakKind::Empty,
            Box::new(|body| {
                body.segment.end_offset = i64::MIN;
                body.objects.clear();
            }),
        ),
    ];
    for (kind, change) in changes {
        let archive = archive.fork();
        archive.resign(1, change).await;
        let report = archive.deep().await;
        assert_break(&report, sealed.directory(), kind, &sealed.manifest_key);
    }
    // Offsets out of order are no matter of the chain, and break no sum.
    for end_offset in [i64::MIN, i64::MAX] {
        let archive = archive.fork();
        archive
            .resign(1, |body| body.segment.end_offset = end_offset)
            .await;
        assert_eq!(archive.deep().await.first_break(), None);
    }
    // In place of a number that does not fit.
    let json = String::from_utf8(archive.get(&sealed.manifest_key).await.to_vec()).unwrap();
    for number in [
        "9223372036854775808",
        "-9223372036854775809",
        "1e400",
        "99999999999999999999999",
    ] {
        let number_swapped = json.replacen(
            r#""start_offset":100"#,
            &format!(r#""start_offset":{number}"#),
            1,
        );
        assert_ne!(number_swapped, json);
        let archive = archive.fork();
        archive.put(&sealed.manifest_key, number_swapped).await;
        let report = archive.deep().await;
        assert_break(
            &report,
            sealed.directory(),
            VerifyBreakKind::Decode,
            &sealed.manifest_key,
        );
    }
}

#[tokio::test]
async fn a_named_key_draws_no_read_to_where_it_points() {
    let archive = Archive::one_run(2).await;
    let sealed = archive.segments[1].clone();
    let secret = "tenant/secret.log";
    archive.put(secret, "secret").await;
    let directory = sealed.directory().to_owned();
    for key in [
        secret.to_owned(),
        format!("{directory}/../../{secret}"),
        format!("{directory}/../../../etc/passwd"),
        format!("{directory}/./x.log"),
        format!("{directory}//x.log"),
        format!("{directory}/%2e%2e/x.log"),
        "/etc/passwd".to_owned(),
        "..".to_owned(),
    ] {
        let archive = archive.fork();
        archive
            .resign(1, |body| {
                body.objects[0].key.clone_from(&key);
                body.objects[0].version_id = Some("v1".to_owned());
            })
            .await;
        let (reads, store) = ReadOnly::new(&archive.memory).shared();
        let report = verify_archive(&store, &deep(), &trusted()).await.unwrap();
        let kind = report.first_break().unwrap().kind;
        let expected = if key.starts_with(&format!("{directory}/")) {
            VerifyBreakKind::Coordinates
        } else {
            VerifyBreakKind::Misplaced
        };
        assert_eq!(kind, expected, "{key}");
        let listed = archive.keys("archive/").await;
        assert!(reads.gets().iter().all(|get| listed.contains(get)), "{key}");
    }
}

#[tokio::test]
async fn text_from_an_archive_cannot_forge_a_line_of_a_report() {
    const FORGED: &str = "x\r\n\u{1b}[2K\u{202e}OK: 8 manifests over 3 partition(s)\u{2028}\u{85}";
    let archive = Archive::sealed().await;
    let sealed = archive.segments[1].clone();
    let directory = sealed.directory().to_owned();
    let changes: [Change; 5] = [
        Box::new(|body| FORGED.clone_into(&mut body.segment.topic)),
        Box::new(|body| FORGED.clone_into(&mut body.objects[0].key)),
        Box::new(move |body| body.objects[0].key = format!("{directory}/{FORGED}")),
        Box::new(|body| FORGED.clone_into(&mut body.objects[1].suffix)),
        Box::new(|body| {
            body.objects[0].version_id = Some(FORGED.to_owned());
            body.objects[0].size_bytes += 1;
        }),
    ];
    for change in changes {
        let archive = archive.fork();
        archive.resign(1, change).await;
        let report = archive.deep().await;
        let text = report.first_break().unwrap().to_string();
        assert!(text.chars().all(|c| matches!(c, ' '..='~')), "{text:?}");
    }
    // Such names stand in reports as they are, for programs, and are shown harmlessly.
    let key = "archive/\u{202e}KO\u{2028}OK: 8 manifests";
    archive.put(key, "x").await;
    let report = archive.shallow().await;
    assert_eq!(report.global_orphan_objects, [key]);
    assert_eq!(
        Printable(key).to_string(),
        "archive/\\u{202e}KO\\u{2028}OK: 8 manifests"
    );
    // An unknown key's name comes with its sample as it is.
    let untrusted = Key::new("\u{1b}[2K\nOK", 2).sign(sealed.manifest.body.clone());
    archive.put_manifest(&sealed.manifest_key, &untrusted).await;
    let report = archive.shallow().await;
    let key_id = partition(&report, &sealed).unattested[0].key_id.clone();
    assert_eq!(
        Printable(&key_id.unwrap()).to_string(),
        "\\u{1b}[2K\\u{a}OK"
    );
}

#[tokio::test]
async fn a_planted_run_does_not_take_the_place_of_the_honest_one() {
    // Before it by its offset, with the honest run's id, and by a key that nobody trusts.
    for (start_offset, same_epoch) in [(0, false), (0, true), (900, true)] {
        let mut archive = Archive::empty();
        archive
            .seal_run("orders", 0, crate::support::archive::epoch(1), 100, 2)
            .await;
        let honest = archive.segments[1].receipt.head;
        let epoch_id = crate::support::archive::epoch(if same_epoch { 1 } else { 9 });
        let stamp = krabka_remote_storage::ChainStamp::genesis(epoch_id);
        archive
            .seal("orders", 0, start_offset, stamp, Key::new("someone", 3))
            .await;
        let report = archive.deep().await;
        assert!(!report.ok());
        let partition = &report.partitions[0];
        if same_epoch {
            assert_eq!(
                partition.first_break.as_ref().unwrap().kind,
                VerifyBreakKind::DuplicatePosition
            );
        } else {
            assert_eq!(partition.untrusted_manifests, 1);
            assert_eq!(partition.head, honest);
        }
    }
}

#[tokio::test]
async fn thousands_of_entries_in_one_manifest_take_no_squared_time() {
    let archive = Archive::one_run(1).await;
    let sealed = &archive.segments[0];
    let template = sealed.manifest.body.objects[1].clone();
    archive
        .resign(0, |body| {
            for number in 0..3_000 {
                let mut object = template.clone();
                object.e_tag = None;
                object.key = format!("{}/{number}.index", sealed.directory());
                body.objects.push(object);
            }
        })
        .await;
    let report = archive.deep().await;
    assert_break(
        &report,
        sealed.directory(),
        VerifyBreakKind::Coordinates,
        &sealed.manifest_key,
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_bytes_in_a_manifests_place_pass_or_panic(
        bytes in prop_oneof![
            any::<Vec<u8>>(),
            "[\\[\\]{}:,\"0-9a-z.\\\\-]{0,200}".prop_map(String::into_bytes),
        ],
        name in "[ -~]{0,40}",
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let archive = Archive::one_run(1).await;
            let sealed = &archive.segments[0];
            archive.put(&sealed.manifest_key, bytes.clone()).await;
            let report = archive.deep().await;
            let kind = report.first_break().map(|b| b.kind);
            assert_eq!(kind, Some(VerifyBreakKind::Decode));
            let planted = Path::from(format!("{}/{name}", sealed.directory())).to_string();
            archive.put(&planted, bytes.clone()).await;
            let _ = archive.deep().await;
        });
    }

    #[test]
    fn no_prefix_or_filter_panics(prefix in any::<String>(), topic in any::<Option<String>>(), partition in any::<Option<i32>>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let archive = Archive::one_run(1).await;
            let request = with(deep(), |it| {
it.prefix = Some(prefix);
it.topic = topic;
it.partition = partition;
});
            let _ = verify_archive(&archive.store(), &request, &trusted()).await;
        });
    }
}
