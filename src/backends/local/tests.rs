//! That the order of `fsync`, rename and `fsync` is kept cannot be seen from inside a process: no
//! test here would notice a missing one. The code has each at one place, in `staging`.

mod uploads;

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use bytes::Bytes;
use object_store::PutPayload;
use proptest::prelude::*;
use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::error::ErrorKind;
use crate::model::{
    LeaderEpoch, RemoteLogSegmentDetails, RemoteLogSegmentId, RemoteLogSegmentMetadata,
    RemoteLogSegmentState, TopicIdPartition,
};
use crate::ops::{ByteRange, Fetched, StoreTarget};

const KEY: &str = "orders-0-AAAAAAAAAAAAAAAAAAAAAQ/00000000000000000000-AAAAAAAAAAAAAAAAAAAACg.log";

/// What the names of unfinished files end with.
const UNFINISHED: &str = ".tmp";

struct Tier {
    directory: TempDir,
    client: Arc<LocalClient>,
}

impl Tier {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let client = Arc::new(LocalClient::new(directory.path().join("tier")));
        Self { directory, client }
    }

    /// Another process on the same directory.
    fn reopened(&self) -> Arc<LocalClient> {
        Arc::new(LocalClient::new(self.client.root()))
    }

    fn client(&self) -> Arc<LocalClient> {
        Arc::clone(&self.client)
    }

    fn file(&self, key: &str) -> PathBuf {
        self.client.root().join(key)
    }

    async fn put(&self, key: &str, content: &'static str) -> Result<Written, RemoteStorageError> {
        self.client().put(put(key, content)).await
    }

    async fn get(&self, key: &str, range: ByteRange) -> Result<Fetched, RemoteStorageError> {
        self.client().get(get(key, range)).await
    }

    /// Every object below the root: its path, its file's number, its content.
    fn objects(&self) -> Vec<(String, u64, Vec<u8>)> {
        let files = self.files().into_iter();
        let objects = files.filter(|name| !name.ends_with(UNFINISHED));
        objects
            .map(|name| {
                let path = self.file(&name);
                let inode = fs::metadata(&path).unwrap().ino();
                (name, inode, fs::read(path).unwrap())
            })
            .collect()
    }

    /// Waits until the threads that work for dropped calls have come to their end.
    fn wait_for_threads(&self) {
        for _ in 0..20_000 {
            if !self.files().iter().any(|name| name.ends_with(UNFINISHED)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("left behind: {:?}", self.files());
    }

    /// Every file below the root, relative to it.
    fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        let mut ahead = vec![self.client.root().to_owned()];
        while let Some(directory) = ahead.pop() {
            for entry in fs::read_dir(directory).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    ahead.push(path);
                } else {
                    let relative = path.strip_prefix(self.client.root()).unwrap();
                    files.push(relative.to_str().unwrap().to_owned());
                }
            }
        }
        files.sort();
        files
    }
}

fn target(key: &str) -> StoreTarget {
    StoreTarget::object(Path::parse(key).unwrap())
}

fn put(key: &str, content: impl Into<PutPayload>) -> Put {
    Put {
        target: target(key),
        payload: content.into(),
    }
}

fn get(key: &str, range: ByteRange) -> Get {
    Get {
        target: target(key),
        range,
    }
}

fn create(key: &str, content: &str) -> Create {
    use sha2::{Digest, Sha256};

    Create {
        target: target(key),
        payload: content.to_owned().into(),
        sha256: Sha256::digest(content).into(),
    }
}

fn segment(topic: &str) -> Arc<RemoteLogSegmentMetadata> {
    let tp = TopicIdPartition::new(Uuid::from_u128(1), topic, 0);
    let epochs = BTreeMap::from([(LeaderEpoch(0), 0)]);
    let details =
        RemoteLogSegmentDetails::new(1, RemoteLogSegmentState::CopySegmentStarted, epochs);
    let id = RemoteLogSegmentId::new(tp, Uuid::from_u128(10));
    Arc::new(RemoteLogSegmentMetadata::new(id, 0, 0, -1, 0, 0, details).unwrap())
}

fn status(error: &RemoteStorageError) -> Option<u16> {
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error}");
    error.status()
}

#[tokio::test]
async fn ranges_are_answered_exactly_and_clamped_at_the_end() {
    let tier = Tier::new();
    tier.put(KEY, "0123456789").await.unwrap();
    for (range, expected) in [
        (ByteRange::Whole, "0123456789"),
        (ByteRange::From(0), "0123456789"),
        (ByteRange::From(7), "789"),
        (ByteRange::Bounded(2..6), "2345"),
        (ByteRange::Bounded(8..100), "89"),
        (ByteRange::Bounded(3..4), "3"),
        (ByteRange::Bounded(0..u64::MAX), "0123456789"),
    ] {
        let fetched = tier.get(KEY, range.clone()).await.unwrap();
        assert_eq!(fetched.bytes, expected, "{range:?}");
        assert_eq!(fetched.object_size, Some(10));
    }
    for range in [
        ByteRange::From(10),
        ByteRange::From(u64::MAX),
        ByteRange::Bounded(10..11),
        ByteRange::Bounded(11..12),
    ] {
        let error = tier.get(KEY, range.clone()).await.unwrap_err();
        assert_eq!(status(&error), Some(416), "{range:?}");
        assert!(error.to_string().contains(KEY), "{error}");
    }
}

#[tokio::test]
async fn an_empty_object_is_read_whole_and_has_no_range() {
    let tier = Tier::new();
    tier.put("empty", "").await.unwrap();
    let fetched = tier.get("empty", ByteRange::Whole).await.unwrap();
    assert!(fetched.bytes.is_empty());
    for range in [ByteRange::From(0), ByteRange::Bounded(0..1)] {
        let error = tier.get("empty", range).await.unwrap_err();
        assert_eq!(status(&error), Some(416));
    }
}

#[tokio::test]
async fn a_body_longer_than_one_step_is_read_whole() {
    let tier = Tier::new();
    let content: Vec<u8> = (0..9_000_001_u32).map(|i| (i % 251) as u8).collect();
    let content = Bytes::from(content);
    let payload: PutPayload = [content.slice(..17), content.slice(17..)]
        .into_iter()
        .collect();
    tier.client().put(put(KEY, payload)).await.unwrap();
    let fetched = tier.get(KEY, ByteRange::Whole).await.unwrap();
    assert!(fetched.bytes == content);
    let fetched = tier.get(KEY, ByteRange::From(4_000_000)).await.unwrap();
    assert!(fetched.bytes == content.slice(4_000_000..));
}

#[tokio::test]
async fn a_missing_object_is_named_by_its_segment_where_that_is_known() {
    let tier = Tier::new();
    let error = tier.get(KEY, ByteRange::Whole).await.unwrap_err();
    assert_eq!(status(&error), Some(404));
    assert_eq!(error.to_string(), format!("not found: {KEY}"));

    let mut request = get(KEY, ByteRange::Whole);
    request.target = StoreTarget::of_segment(KEY.into(), segment("orders"));
    let error = tier.client().get(request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(tier.files().is_empty());
    assert!(!tier.client.root().exists(), "a read creates nothing");
}

#[tokio::test]
async fn a_directory_under_the_key_is_an_error_of_every_request() {
    let tier = Tier::new();
    fs::create_dir_all(tier.file(KEY)).unwrap();
    let client = || tier.client();
    let head = Head {
        target: target(KEY),
    };
    let delete = Delete {
        target: target(KEY),
    };
    let errors = [
        tier.get(KEY, ByteRange::Whole).await.unwrap_err(),
        client().head(head).await.unwrap_err(),
        client().put(put(KEY, "x")).await.unwrap_err(),
        client().create(create(KEY, "x")).await.unwrap_err(),
        client().delete(delete).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert!(error.to_string().contains(KEY), "{error}");
    }
    assert!(tier.file(KEY).is_dir());
    assert!(tier.files().is_empty(), "no unfinished file is left");
}

#[tokio::test]
async fn a_file_in_place_of_a_directory_is_an_error_that_names_it() {
    let tier = Tier::new();
    tier.put("a", "x").await.unwrap();
    let error = tier.put("a/b/c", "y").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().starts_with("cannot create directory "));
    let error = tier.get("a/b", ByteRange::Whole).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    let list = List {
        target: target("a"),
    };
    let error = tier.client().list(list).await.unwrap_err();
    assert!(error.to_string().starts_with("cannot list "), "{error}");
    assert_eq!(tier.files(), ["a"]);
}

#[tokio::test]
async fn a_name_too_long_for_the_disk_is_an_error_and_writes_nothing() {
    let tier = Tier::new();
    let key = format!("p/{}", "n".repeat(300));
    let error = tier.put(&key, "x").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains(&key), "{error}");
    assert!(tier.files().is_empty());
}

#[test]
fn a_topic_whose_directory_the_disk_cannot_name_is_an_invalid_argument() {
    let client = LocalClient::new("unused");
    client.check_segment(&segment(&"t".repeat(230))).unwrap();
    let error = client
        .check_segment(&segment(&"t".repeat(231)))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("256 bytes"), "{error}");
}

#[tokio::test]
async fn a_put_replaces_and_leaves_nothing_else() {
    let tier = Tier::new();
    tier.put(KEY, "old").await.unwrap();
    let written = tier.put(KEY, "new").await.unwrap();
    assert_eq!(written, Written::default());
    assert_eq!(fs::read(tier.file(KEY)).unwrap(), b"new");
    assert_eq!(tier.files(), [KEY]);
}

#[tokio::test]
async fn a_head_tells_size_and_absence() {
    let tier = Tier::new();
    let head = |key| Head {
        target: target(key),
    };
    assert_eq!(tier.client().head(head(KEY)).await.unwrap(), None);
    tier.put(KEY, "0123456789").await.unwrap();
    let meta = tier.client().head(head(KEY)).await.unwrap().unwrap();
    assert_eq!((meta.location.as_ref(), meta.size), (KEY, 10));
}

#[tokio::test]
async fn a_delete_is_idempotent_and_keeps_the_directory() {
    let tier = Tier::new();
    tier.put(KEY, "x").await.unwrap();
    for _ in 0..2 {
        let request = Delete {
            target: target(KEY),
        };
        tier.client().delete(request).await.unwrap();
    }
    assert!(!tier.file(KEY).exists());
    assert!(tier.file(KEY).parent().unwrap().is_dir());
}

#[tokio::test]
async fn a_create_knows_its_own_success_from_a_foreign_object() {
    let tier = Tier::new();
    for _ in 0..2 {
        let written = tier.client().create(create(KEY, "ours")).await.unwrap();
        assert!(written.create_precondition);
    }
    for foreign in ["them", "longer"] {
        let error = tier
            .client()
            .create(create(KEY, foreign))
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), format!("object already exists: {KEY}"));
    }
    assert_eq!(fs::read(tier.file(KEY)).unwrap(), b"ours");
    assert_eq!(tier.files(), [KEY]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_several_creators_of_one_key_exactly_one_wins() {
    let tier = Tier::new();
    for round in 0..20 {
        let key = format!("p/{round}");
        let rivals: Vec<_> = (0..8)
            .map(|rival| {
                // Some share a client, some are other processes.
                let client = if rival % 2 == 0 {
                    tier.client()
                } else {
                    tier.reopened()
                };
                tokio::spawn(client.create(create(&key, &format!("rival {rival}"))))
            })
            .collect();
        let mut winners = Vec::new();
        for (rival, outcome) in rivals.into_iter().enumerate() {
            match outcome.await.unwrap() {
                Ok(_) => winners.push(rival),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
            }
        }
        let [winner] = winners[..] else {
            panic!("winners: {winners:?}");
        };
        let content = fs::read_to_string(tier.file(&key)).unwrap();
        assert_eq!(content, format!("rival {winner}"));
    }
    assert_eq!(tier.files().len(), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn creators_of_the_same_bytes_all_succeed() {
    let tier = Tier::new();
    let rivals: Vec<_> = (0..8)
        .map(|_| tokio::spawn(tier.reopened().create(create(KEY, "the same"))))
        .collect();
    for outcome in rivals {
        outcome.await.unwrap().unwrap();
    }
    assert_eq!(tier.files(), [KEY]);
}

#[tokio::test]
async fn after_a_write_was_dropped_nothing_becomes_visible_and_nothing_is_left() {
    let tier = Tier::new();
    let (mut ended, mut dropped) = (0, 0);
    for round in 0..60_u8 {
        let content = vec![round; 2 * 1024 * 1024];
        let write: OpFuture<Put> = if round % 2 == 0 {
            tier.client()
                .put(put(KEY, PutPayload::from(content.clone())))
        } else {
            let request = Create {
                target: target(&format!("p/{round}")),
                payload: content.clone().into(),
                sha256: [0; 32],
            };
            tier.client().create(request)
        };
        // Some of them have all the time that they need.
        let wait = match round % 10 {
            9 => Duration::from_mins(1),
            _ => Duration::from_micros(u64::from(round) * 200),
        };
        match tokio::time::timeout(wait, write).await {
            Ok(written) => {
                written.unwrap();
                ended += 1;
            }
            Err(_) => dropped += 1,
        }
        let seen = tier.objects();
        tier.wait_for_threads();
        assert!(tier.objects() == seen, "appeared after the drop");
    }
    assert!(ended > 0 && dropped > 0, "{ended} ended, {dropped} dropped");
}

#[tokio::test]
async fn a_start_of_an_upload_that_was_dropped_leaves_no_file() {
    let tier = Tier::new();
    for round in 0..60 {
        let target = target(KEY);
        let start = tier.client().start_upload(StartUpload { target });
        let wait = Duration::from_micros(round * 5);
        if let Ok(upload) = tokio::time::timeout(wait, start).await {
            let (target, upload) = (self::target(KEY), upload.unwrap());
            let abort = AbortUpload { target, upload };
            tier.client().abort_upload(abort).await.unwrap();
        }
    }
    tier.wait_for_threads();
    assert!(tier.client.uploads.is_empty());
}

#[tokio::test]
async fn work_whose_caller_is_gone_does_not_become_visible() {
    let tier = Tier::new();
    let gone = Caller {
        dropped: Arc::new(Mutex::new(true)),
        activity: None,
    };
    let error = tier
        .client
        .create_file(&create(KEY, "x"), &gone)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(tier.files().is_empty());
}

#[tokio::test]
async fn one_level_is_listed_with_foreign_files_as_they_are() {
    let tier = Tier::new();
    for key in ["p/b.log", "p/a.index", "p/sub/deep", "q/x", "top"] {
        tier.put(key, "x").await.unwrap();
    }
    fs::write(tier.file("p/foreign file"), "yy").unwrap();
    fs::write(tier.file("p/line\nfeed"), "").unwrap();
    symlink("nowhere", tier.file("p/broken")).unwrap();
    symlink(tier.file("q"), tier.file("p/linked")).unwrap();
    let list = |prefix: &str| {
        let target = StoreTarget::object(Path::parse(prefix).unwrap());
        tier.client().list(List { target })
    };
    let names = |listing: &crate::ops::Listing| {
        let objects = listing
            .objects
            .iter()
            .map(|object| object.location.to_string());
        (
            objects.collect::<Vec<_>>(),
            listing
                .prefixes
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>(),
        )
    };
    let listing = list("p").await.unwrap();
    let (objects, prefixes) = names(&listing);
    assert_eq!(objects, ["p/a.index", "p/b.log", "p/foreign file"]);
    assert_eq!(prefixes, ["p/linked", "p/sub"]);
    assert_eq!(listing.objects[2].size, 2);
    let (objects, prefixes) = names(&list("").await.unwrap());
    assert_eq!(
        (objects, prefixes),
        (vec!["top".to_owned()], vec!["p".to_owned(), "q".to_owned()])
    );
    assert_eq!(
        list("missing/too").await.unwrap(),
        crate::ops::Listing::default()
    );
    // Through the link, and up again without end.
    symlink(tier.client.root(), tier.file("q/up")).unwrap();
    let request = ListUploads {
        target: StoreTarget::object(Path::default()),
    };
    assert_eq!(
        tier.client().list_uploads(request).await.unwrap(),
        Some(vec![])
    );
}

#[tokio::test]
async fn open_uploads_are_listed_beside_a_directory_that_only_root_may_read() {
    let tier = Tier::new();
    let started = StartUpload {
        target: StoreTarget::object("p/a".into()),
    };
    let upload = tier.client().start_upload(started).await.unwrap();
    let locked = tier.file("lost+found");
    fs::create_dir(&locked).unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).unwrap();
    let request = |key| ListUploads {
        target: StoreTarget::object(key),
    };
    let uploads = tier.client().list_uploads(request(Path::default())).await;
    let uploads = uploads.unwrap().unwrap();
    assert_eq!(uploads.len(), 1);
    assert_eq!(uploads[0].upload, upload);
    // Root reads everything.
    if fs::read_dir(&locked).is_err() {
        let named = tier
            .client()
            .list_uploads(request(Path::from("lost+found")))
            .await;
        let text = named.unwrap_err().to_string();
        assert!(
            text.contains("cannot list") && text.contains("lost+found"),
            "{text}"
        );
    }
    // So that the directory of the test can be removed.
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o700)).unwrap();
}

#[tokio::test]
async fn links_are_followed_for_reading_and_replaced_by_writing() {
    let tier = Tier::new();
    let outside = tier.directory.path().join("outside");
    fs::write(&outside, "linked").unwrap();
    fs::create_dir_all(tier.file("p")).unwrap();
    symlink(&outside, tier.file("p/link")).unwrap();
    assert_eq!(
        tier.get("p/link", ByteRange::Whole).await.unwrap().bytes,
        "linked"
    );
    tier.put("p/link", "new").await.unwrap();
    assert_eq!(fs::read(&outside).unwrap(), b"linked");
    assert_eq!(fs::read(tier.file("p/link")).unwrap(), b"new");
}

#[tokio::test]
async fn a_directory_that_vanished_is_made_again() {
    let tier = Tier::new();
    tier.put(KEY, "x").await.unwrap();
    fs::remove_dir_all(tier.client.root()).unwrap();
    tier.put(KEY, "y").await.unwrap();
    assert_eq!(fs::read(tier.file(KEY)).unwrap(), b"y");
}

#[tokio::test]
async fn a_key_that_names_no_object_is_refused() {
    let tier = Tier::new();
    let reserved = ".x.0123456789abcdef0123456789abcdef.tmp";
    for key in [Path::default(), Path::parse(reserved).unwrap()] {
        let target = StoreTarget::object(key);
        let payload = PutPayload::from("x");
        let error = tier
            .client()
            .put(Put { target, payload })
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    assert!(tier.files().is_empty());
}

#[tokio::test]
async fn a_runtime_that_shuts_down_fails_the_call() {
    let tier = Tier::new();
    let runtime = std::thread::spawn(|| tokio::runtime::Runtime::new().unwrap())
        .join()
        .unwrap();
    let handle = runtime.handle().clone();
    runtime.shutdown_background();
    let call = get(KEY, ByteRange::Whole);
    let client = tier.client();
    let error = std::thread::spawn(move || {
        let _inside = handle.enter();
        futures::executor::block_on(client.get(call)).unwrap_err()
    })
    .join()
    .unwrap();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
}

#[test]
fn a_full_disk_is_an_error_that_names_the_file() {
    let caller = Caller {
        dropped: Arc::default(),
        activity: None,
    };
    let mut staged = Staged::over(FilePath::new("/dev/full"));
    let error = staged.write(&PutPayload::from("x"), &caller).unwrap_err();
    assert_eq!(error.to_string(), "cannot write /dev/full");
    let RemoteStorageError::Io(error) = error else {
        panic!("{error:?}");
    };
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}

proptest! {
    #[test]
    fn no_key_leads_out_of_the_root(text in "[a./%\\\\~ \u{e9}-]{0,24}", raw in any::<String>()) {
        let client = LocalClient::new("/some/tier");
        for text in [text, raw] {
            for key in Path::parse(&text).into_iter().chain([Path::from(text.as_str())]) {
                let Ok(path) = client.file_path(&key) else { continue };
                let rest = path.strip_prefix("/some/tier").unwrap();
                prop_assert!(
                    rest.components().all(|c| matches!(c, std::path::Component::Normal(_))),
                    "{key:?} is {path:?}"
                );
                prop_assert_eq!(rest.to_str().unwrap(), key.as_ref());
            }
        }
    }
}
