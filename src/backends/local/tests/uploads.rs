use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::ops::{Listing, OpenUpload, PartTag, UploadId, WriteMode};

/// Here the file itself tells an own success from a foreign object.
const CREATE: WriteMode = WriteMode::Create {
    size_bytes: 0,
    sha256: [0; 32],
};

fn part(key: &str, upload: &UploadId, number: u32, offset: u64, content: &'static str) -> PutPart {
    PutPart {
        target: target(key),
        upload: Arc::clone(upload),
        number,
        offset,
        payload: content.into(),
    }
}

async fn start(client: &Arc<LocalClient>, key: &str) -> UploadId {
    let request = StartUpload {
        target: target(key),
    };
    Arc::clone(client).start_upload(request).await.unwrap()
}

fn complete(key: &str, upload: &UploadId, parts: &[PartTag], mode: WriteMode) -> CompleteUpload {
    CompleteUpload {
        target: target(key),
        upload: Arc::clone(upload),
        parts: parts.into(),
        mode,
    }
}

#[tokio::test]
async fn an_upload_takes_parts_in_any_order_and_appears_when_completed() {
    let tier = Tier::new();
    let upload = start(&tier.client, KEY).await;
    let client = || tier.client();
    let (third, first, second) = tokio::try_join!(
        client().put_part(part(KEY, &upload, 3, 8, "89")),
        client().put_part(part(KEY, &upload, 1, 0, "0123")),
        client().put_part(part(KEY, &upload, 2, 4, "4567")),
    )
    .unwrap();
    // A repeated part replaces itself.
    let again = client().put_part(part(KEY, &upload, 2, 4, "4567")).await;
    assert_eq!(again.unwrap(), second);
    assert!(!tier.file(KEY).exists());

    let parts = [first, second, third];
    // The second is the repetition of one whose answer was lost.
    for _ in 0..2 {
        let request = complete(KEY, &upload, &parts, WriteMode::Overwrite);
        let written = client().complete_upload(request).await.unwrap();
        assert!(!written.create_precondition);
    }
    assert_eq!(fs::read(tier.file(KEY)).unwrap(), b"0123456789");
    assert_eq!(tier.files(), [KEY]);
}

#[tokio::test]
async fn an_upload_with_a_part_missing_is_not_completed() {
    let tier = Tier::new();
    let upload = start(&tier.client, KEY).await;
    let client = || tier.client();
    let first = client()
        .put_part(part(KEY, &upload, 1, 0, "0123"))
        .await
        .unwrap();
    let third = client()
        .put_part(part(KEY, &upload, 3, 8, "89"))
        .await
        .unwrap();
    for (parts, kind) in [
        (vec![first.clone(), third.clone()], ErrorKind::Invalid),
        (vec![third, first.clone()], ErrorKind::Invalid),
        (vec!["".into()], ErrorKind::Invalid),
        (vec!["4..0".into()], ErrorKind::Invalid),
        (vec![first.clone()], ErrorKind::Corrupt),
        (vec![], ErrorKind::Corrupt),
        (vec![first.clone(), "4..11".into()], ErrorKind::Corrupt),
    ] {
        let request = complete(KEY, &upload, &parts, WriteMode::Overwrite);
        let error = client().complete_upload(request).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{parts:?}: {error}");
        assert!(!tier.file(KEY).exists());
    }
    // It is still open, and can be completed.
    let rest = client()
        .put_part(part(KEY, &upload, 2, 4, "456789"))
        .await
        .unwrap();
    let request = complete(KEY, &upload, &[first, rest], WriteMode::Overwrite);
    client().complete_upload(request).await.unwrap();
    assert_eq!(fs::read(tier.file(KEY)).unwrap(), b"0123456789");
}

#[tokio::test]
async fn an_upload_that_must_create_meets_a_foreign_object() {
    let tier = Tier::new();
    let client = || tier.client();
    let upload = start(&tier.client, KEY).await;
    let tag = client()
        .put_part(part(KEY, &upload, 1, 0, "ours"))
        .await
        .unwrap();
    tier.put(KEY, "theirs").await.unwrap();
    let request = complete(KEY, &upload, &[tag], CREATE);
    let error = client().complete_upload(request.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(fs::read(tier.file(KEY)).unwrap(), b"theirs");

    fs::remove_file(tier.file(KEY)).unwrap();
    for _ in 0..2 {
        let written = client().complete_upload(request.clone()).await.unwrap();
        assert!(written.create_precondition);
    }
    assert_eq!(fs::read(tier.file(KEY)).unwrap(), b"ours");
    assert_eq!(tier.files(), [KEY]);
}

#[tokio::test]
async fn a_completion_cut_off_between_link_and_removal_is_finished_by_its_repetition() {
    let tier = Tier::new();
    let client = || tier.client();
    let upload = start(&tier.client, KEY).await;
    let tag = client()
        .put_part(part(KEY, &upload, 1, 0, "ours"))
        .await
        .unwrap();
    let staged = tier.file(&tier.files()[0]);
    fs::hard_link(staged, tier.file(KEY)).unwrap();
    let request = complete(KEY, &upload, &[tag], CREATE);
    client().complete_upload(request).await.unwrap();
    assert_eq!(tier.files(), [KEY]);
}

#[tokio::test]
async fn an_upload_that_is_not_there_is_unknown_and_its_abort_no_error() {
    let tier = Tier::new();
    let client = || tier.client();
    let upload = start(&tier.client, KEY).await;
    let abort = |upload: &UploadId| AbortUpload {
        target: target(KEY),
        upload: Arc::clone(upload),
    };
    let foreign: UploadId = "../../etc/passwd".into();
    for upload in [&upload, &upload, &foreign] {
        client().abort_upload(abort(upload)).await.unwrap();
    }
    for upload in [&upload, &foreign] {
        let error = client()
            .put_part(part(KEY, upload, 1, 0, "x"))
            .await
            .unwrap_err();
        assert_eq!(status(&error), Some(404));
        let request = complete(KEY, upload, &["0..1".into()], WriteMode::Overwrite);
        let error = client().complete_upload(request).await.unwrap_err();
        assert_eq!(status(&error), Some(404));
    }
    assert!(tier.files().is_empty());
}

#[tokio::test]
async fn an_upload_whose_file_was_taken_away_is_unknown_and_forgotten() {
    let tier = Tier::new();
    let upload = start(&tier.client, KEY).await;
    fs::remove_file(tier.file(&tier.files()[0])).unwrap();
    let error = tier
        .client()
        .put_part(part(KEY, &upload, 1, 0, "x"))
        .await
        .unwrap_err();
    assert_eq!(status(&error), Some(404));
    assert!(tier.client.uploads.is_empty());
}

#[tokio::test]
async fn what_a_crash_left_is_listed_and_can_be_aborted_but_is_no_object() {
    let tier = Tier::new();
    tier.put("p/done", "x").await.unwrap();
    // Forgotten, so that the file stays as after a crash; its lock lasts as long as this process.
    let crashed = tier.reopened();
    let upload = start(&crashed, KEY).await;
    let list = |prefix: &str| ListUploads {
        target: StoreTarget::object(Path::parse(prefix).unwrap()),
    };
    let listed = |prefix: &'static str| {
        let client = tier.client();
        async move { client.list_uploads(list(prefix)).await.unwrap().unwrap() }
    };
    let open = OpenUpload {
        key: Path::parse(KEY).unwrap(),
        upload: Arc::clone(&upload),
    };
    assert_eq!(listed("").await, std::slice::from_ref(&open));
    assert_eq!(listed("orders-0-AAAAAAAAAAAAAAAAAAAAAQ").await, [open]);
    assert_eq!(listed("p").await, []);
    assert_eq!(listed("nowhere").await, []);
    let request = List {
        target: target("orders-0-AAAAAAAAAAAAAAAAAAAAAQ"),
    };
    let listing = tier.client().list(request).await.unwrap();
    assert_eq!(listing, Listing::default());

    let request = AbortUpload {
        target: target(KEY),
        upload,
    };
    tier.client().abort_upload(request).await.unwrap();
    assert_eq!(listed("").await, []);
    assert_eq!(tier.files(), ["p/done"]);
}

#[tokio::test]
async fn the_first_write_into_a_directory_removes_what_crashed_processes_left_and_nothing_else() {
    let tier = Tier::new();
    let directory = tier.file("p");
    fs::create_dir_all(&directory).unwrap();
    let random = "0123456789abcdef0123456789abcdef";
    fs::write(directory.join(format!(".dead.{random}.tmp")), "half").unwrap();
    // Foreign files with names near to ours.
    let foreign = [".dead.tmp", ".dead.0123.tmp", "dead.tmp", ".hidden"];
    for name in foreign {
        fs::write(directory.join(name), "theirs").unwrap();
    }
    let other = tier.reopened();
    let alive = start(&other, "p/alive").await;
    assert_eq!(
        tier.files().len(),
        foreign.len() + 1,
        "the dead file is gone"
    );

    tier.put("p/new", "x").await.unwrap();
    let tag = other
        .clone()
        .put_part(part("p/alive", &alive, 1, 0, "y"))
        .await
        .unwrap();
    let request = complete("p/alive", &alive, &[tag], WriteMode::Overwrite);
    other.clone().complete_upload(request).await.unwrap();
    let mut expected: Vec<_> = foreign.iter().map(|name| format!("p/{name}")).collect();
    expected.extend(["p/alive".to_owned(), "p/new".to_owned()]);
    expected.sort();
    assert_eq!(tier.files(), expected);
}

#[tokio::test]
async fn a_client_that_is_dropped_removes_its_open_uploads() {
    let tier = Tier::new();
    let client = tier.reopened();
    start(&client, KEY).await;
    assert_eq!(tier.files().len(), 1);
    drop(client);
    assert!(tier.files().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_half_written_is_ever_seen_under_a_final_name() {
    let tier = Tier::new();
    let size = 3 * 1024 * 1024;
    let stop = Arc::new(AtomicBool::new(false));
    let observer = {
        let (stop, path) = (Arc::clone(&stop), tier.file(KEY));
        let client = tier.client();
        std::thread::spawn(move || {
            let mut seen = 0;
            while !stop.load(Ordering::Relaxed) {
                if let Ok(content) = fs::read(&path) {
                    assert_eq!(content.len(), size, "a partial object");
                    assert!(
                        content.iter().all(|byte| *byte == content[0]),
                        "a mixed object"
                    );
                    seen += 1;
                }
                let directory = path.parent().unwrap().file_name().unwrap();
                let prefix = Path::parse(directory.to_str().unwrap()).unwrap();
                for object in client.list_directory(&prefix).unwrap().objects {
                    assert_eq!(object.location.as_ref(), KEY);
                }
            }
            seen
        })
    };
    for round in 0..12_u8 {
        if round % 2 == 0 {
            let payload = PutPayload::from(vec![round; size]);
            tier.client().put(put(KEY, payload)).await.unwrap();
        } else {
            let upload = start(&tier.client, KEY).await;
            let half = size / 2;
            let part = |number: u32| PutPart {
                target: target(KEY),
                upload: Arc::clone(&upload),
                number,
                offset: (u64::from(number) - 1) * half as u64,
                payload: vec![round; half].into(),
            };
            let second = tier.client().put_part(part(2)).await.unwrap();
            let first = tier.client().put_part(part(1)).await.unwrap();
            let request = complete(KEY, &upload, &[first, second], WriteMode::Overwrite);
            tier.client().complete_upload(request).await.unwrap();
        }
    }
    stop.store(true, Ordering::Relaxed);
    assert!(observer.join().unwrap() > 0);
    assert_eq!(tier.files(), [KEY]);
}
