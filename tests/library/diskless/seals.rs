//! Sealed captures: what is signed, and what each change is found by.

use std::path::Path;
use std::sync::Arc;

use krabka_remote_storage::archive::{
    FileSigner, KeyLimit, ManifestPublicKey, ManifestSigner, generate_key,
};
use krabka_remote_storage::diskless::{
    CAPTURE_HEAD_NAME, CAPTURE_STATE_KEY, CAPTURE_STATE_SUFFIX, DisklessError, DisklessWalCapture,
    WalCaptureProjection,
};
use krabka_remote_storage::{
    ChainHead, EpochId, ManifestBody, ManifestSeq, ObjectEntry, Sha256Digest, TrustedManifestKeys,
    WormArchiver, WormError, canonical_manifest_bytes, manifest_head, verify_manifest_signature,
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::samples::{CAPTURE, orders, publish, range};

const KEY_ID: &str = "capture-key";

struct Keys {
    archiver: WormArchiver,
    public: ManifestPublicKey,
}

impl Keys {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self::in_dir(dir.path())
    }

    fn in_dir(dir: &Path) -> Self {
        let path = dir.join("key.pem");
        generate_key(&path).unwrap();
        let signer = FileSigner::load(KEY_ID, &path).unwrap();
        Self {
            public: *signer.public_key(),
            archiver: WormArchiver::new(Some(Arc::new(signer))),
        }
    }

    fn trusted(&self) -> TrustedManifestKeys {
        TrustedManifestKeys::single(KEY_ID, self.public)
    }
}

fn claim(key: &str) -> ObjectEntry {
    ObjectEntry {
        suffix: ".ckwl".to_owned(),
        key: key.to_owned(),
        size_bytes: 1000,
        sha256: Sha256Digest::of(key),
        e_tag: Some("\"e\"".to_owned()),
        version_id: None,
        create_precondition: true,
    }
}

fn golden() -> DisklessWalCapture {
    DisklessWalCapture::from_slice(CAPTURE.as_bytes()).unwrap()
}

/// A capture of three objects.
fn capture() -> DisklessWalCapture {
    let mut projection = WalCaptureProjection::new();
    for (number, object) in (0..).zip(["wal/c", "wal/a", "wal/b", "wal/a"]) {
        let start = 6 + u64::try_from(number).unwrap() * 1000;
        publish(
            &mut projection,
            object,
            range(number * 5, number * 5 + 4, start, start + 10),
        );
    }
    projection.capture(&orders(2), vec![1, 2], 7).unwrap()
}

async fn sealed(keys: &Keys) -> (DisklessWalCapture, ChainHead) {
    let claims = ["wal/c", "wal/a", "wal/b"].map(claim).to_vec();
    capture().seal(claims, &keys.archiver).await.unwrap()
}

fn reason(result: Result<impl std::fmt::Debug, DisklessError>) -> String {
    match result {
        Err(DisklessError::NotAuthentic(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_seal_is_a_manifest_with_the_published_identity() {
    let keys = Keys::new();
    let (sealed, head) = golden()
        .seal(vec![claim("wal/a")], &keys.archiver)
        .await
        .unwrap();
    let manifest = sealed.authentication().unwrap();
    let (body, segment) = (&manifest.body, &manifest.body.segment);
    assert_eq!(
        segment.segment_id.to_string(),
        "11a46c32-1376-f069-d12c-0f3e03d6d233"
    );
    assert_eq!(
        (segment.topic.as_str(), segment.topic_id),
        (CAPTURE_HEAD_NAME, Uuid::nil())
    );
    assert_eq!((segment.partition, segment.broker_id), (0, -1));
    assert_eq!((segment.start_offset, segment.end_offset), (0, 0));
    assert_eq!(segment.max_timestamp_ms, 1_700_000_000_000);
    assert_eq!(segment.event_timestamp_ms, 1_700_000_000_000);
    assert_eq!(segment.segment_size_bytes, 1000 + 414);
    assert!(segment.leader_epochs.is_empty() && segment.txn_index_empty);
    assert_eq!(body.chain.epoch_id, EpochId(Uuid::nil()));
    assert_eq!(
        (body.chain.seq, body.chain.prev_head),
        (ManifestSeq(0), ChainHead::GENESIS)
    );
    assert_eq!(body.objects.len(), 2);
    let state = &body.objects[1];
    assert_eq!(
        (state.suffix.as_str(), state.key.as_str()),
        (CAPTURE_STATE_SUFFIX, CAPTURE_STATE_KEY)
    );
    assert_eq!(
        (state.size_bytes, state.sha256),
        (414, Sha256Digest::of(CAPTURE))
    );
    assert_eq!(
        (
            state.e_tag.as_ref(),
            state.version_id.as_ref(),
            state.create_precondition
        ),
        (None, None, false)
    );
    // Head and signature are those of any manifest.
    assert_eq!(manifest_head(body), head);
    assert!(!canonical_manifest_bytes(body).is_empty());
    assert!(verify_manifest_signature(manifest, keys.public.as_bytes()));
    // The state is what it was, and the seal the last member.
    assert_eq!(sealed.state(), CAPTURE.as_bytes());
    let bytes = sealed.to_vec().unwrap();
    let text = std::str::from_utf8(&bytes).unwrap();
    let before = &CAPTURE[..CAPTURE.len() - 1];
    assert!(text.starts_with(&format!("{before},\"authentication\":{{\"body\":")));
    assert_eq!(DisklessWalCapture::from_slice(&bytes), Ok(sealed));
}

#[tokio::test]
async fn a_sealed_capture_is_proved_and_answers_its_claims() {
    let keys = Keys::new();
    let (sealed, head) = sealed(&keys).await;
    assert_eq!(sealed.head(), Some(head));
    let read = DisklessWalCapture::from_slice(&sealed.to_vec().unwrap()).unwrap();
    let claims = read.authenticate(&keys.trusted(), head).unwrap();
    let expected = ["wal/a", "wal/b", "wal/c"];
    assert_eq!(claims.keys().copied().collect::<Vec<_>>(), expected);
    for key in expected {
        assert_eq!(claims[key], &claim(key));
    }
    // The head is read in either case.
    let upper: ChainHead = head.to_string().to_uppercase().parse().unwrap();
    assert!(read.authenticate(&keys.trusted(), upper).is_ok());
    // In another spelling it says the same.
    let value: Value = serde_json::from_slice(&sealed.to_vec().unwrap()).unwrap();
    let pretty = serde_json::to_vec_pretty(&value).unwrap();
    let read = DisklessWalCapture::from_slice(&pretty).unwrap();
    assert!(read.authenticate(&keys.trusted(), head).is_ok());
}

#[tokio::test]
async fn a_capture_without_objects_can_be_sealed() {
    let keys = Keys::new();
    let empty = WalCaptureProjection::new()
        .capture(&orders(1), vec![], 0)
        .unwrap();
    let (sealed, head) = empty.seal(Vec::new(), &keys.archiver).await.unwrap();
    assert!(
        sealed
            .authenticate(&keys.trusted(), head)
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn claims_that_are_not_exactly_the_captures_objects_are_not_sealed() {
    let keys = Keys::new();
    for (says, claims) in [
        ("`wal/a` is missing", vec!["wal/b", "wal/c"]),
        ("`wal/b` is missing", vec!["wal/a", "wal/c"]),
        ("`wal/c` is missing", vec!["wal/a", "wal/b"]),
        ("`wal/a` is missing", vec![]),
        (
            "`wal/b` stands twice",
            vec!["wal/a", "wal/b", "wal/b", "wal/c"],
        ),
        (
            "`wal/c` stands twice",
            vec!["wal/a", "wal/b", "wal/c", "wal/c"],
        ),
        (
            "`wal/aa` is not named",
            vec!["wal/a", "wal/aa", "wal/b", "wal/c"],
        ),
        (
            "`wal/d` is not named",
            vec!["wal/a", "wal/b", "wal/c", "wal/d"],
        ),
        (
            "`wal/\\u{a}` is not named",
            vec!["wal/\n", "wal/a", "wal/b", "wal/c"],
        ),
        (
            "`__krabka_diskless_capture_state` is not named",
            vec!["wal/a", "wal/b", "wal/c", CAPTURE_STATE_KEY],
        ),
    ] {
        let claims = claims.into_iter().map(claim).collect();
        let error = capture().seal(claims, &keys.archiver).await.unwrap_err();
        assert!(matches!(error, DisklessError::Claims(_)));
        assert!(error.to_string().contains(says), "{says}: {error}");
    }
}

#[tokio::test]
async fn without_a_key_nothing_is_sealed() {
    let claims = ["wal/a", "wal/b", "wal/c"].map(claim).to_vec();
    let error = capture().seal(claims, &WormArchiver::new(None)).await;
    assert!(matches!(
        error,
        Err(DisklessError::Seal(WormError::SigningKey(text))) if text.contains("give the archiver a key")
    ));
}

#[tokio::test]
async fn only_a_trusted_key_and_the_expected_head_will_do() {
    let (keys, other) = (Keys::new(), Keys::new());
    let (sealed, head) = sealed(&keys).await;
    let unsealed = capture();
    assert!(reason(unsealed.authenticate(&keys.trusted(), head)).contains("not sealed"));
    let untrusted = TrustedManifestKeys::single("another", keys.public);
    assert!(
        reason(sealed.authenticate(&untrusted, head)).contains("key `capture-key` is not trusted")
    );
    assert!(
        reason(sealed.authenticate(&other.trusted(), head)).contains("its signature is not one by")
    );
    let pinned = ChainHead([7; 32]);
    let why = reason(sealed.authenticate(&keys.trusted(), pinned));
    assert!(
        why.contains(&head.to_string()) && why.contains(&pinned.to_string()),
        "{why}"
    );
    // A key with limits counts where one is for captures.
    let limited = |directory: &str| {
        keys.trusted().with_limit(
            KEY_ID,
            KeyLimit {
                directory: directory.to_owned(),
                epoch_id: EpochId(Uuid::nil()),
                greatest_seq: ManifestSeq(0),
            },
        )
    };
    assert!(sealed.authenticate(&limited("orders-0"), head).is_err());
    assert!(
        sealed
            .authenticate(&limited(CAPTURE_HEAD_NAME), head)
            .is_ok()
    );
}

/// The sealed document with a change, read again.
fn tampered(sealed: &DisklessWalCapture, change: impl FnOnce(&mut Value)) -> DisklessWalCapture {
    let mut document = serde_json::from_slice(&sealed.to_vec().unwrap()).unwrap();
    change(&mut document);
    DisklessWalCapture::from_slice(&serde_json::to_vec(&document).unwrap()).unwrap()
}

#[tokio::test]
async fn every_change_of_a_sealed_capture_is_found() {
    type Change = fn(&mut Value);
    let keys = Keys::new();
    let (sealed, head) = sealed(&keys).await;
    let changes: [(&str, Change); 16] = [
        ("its state", |doc| doc["captured_at_ms"] = json!(8)),
        ("its state", |doc| doc["source_cutoffs"][0] = json!(0)),
        ("its state", |doc| {
            doc["partitions"][0]["delete_floor"] = json!(1);
        }),
        ("its state", |doc| {
            doc["partitions"][0]["ranges"][0]["entry"]["byte_len"] = json!(9);
        }),
        ("its state", |doc| {
            doc["partitions"][0]["ranges"][0]["object_key"] = json!("wal/b");
        }),
        ("its state", |doc| {
            doc["rlmm_snapshot_sha256"] = json!(Sha256Digest([1; 32]));
        }),
        ("its state", |doc| {
            drop(doc["partitions"].as_array_mut().unwrap().pop());
        }),
        ("its signature", |doc| {
            doc["authentication"]["body"]["objects"][0]["size_bytes"] = json!(9);
        }),
        ("its signature", |doc| {
            drop(
                doc["authentication"]["body"]["objects"]
                    .as_array_mut()
                    .unwrap()
                    .remove(0),
            );
        }),
        ("its signature", |doc| {
            doc["authentication"]["body"]["segment"]["partition"] = json!(1);
        }),
        ("its signature", |doc| {
            doc["authentication"]["body"]["chain"]["seq"] = json!(1);
        }),
        ("its signature", |doc| {
            doc["authentication"]["signature"]["signature"] = json!("00");
        }),
        ("another key", |doc| {
            doc["authentication"]["signature"]["public_key"] = json!("");
        }),
        ("another key", |doc| {
            doc["authentication"]["signature"]["public_key"] = json!("1".repeat(64));
        }),
        ("format 1", |doc| {
            doc["authentication"]["body"]["format_version"] = json!(1);
        }),
        ("no signature", |doc| {
            doc["authentication"]["signature"] = json!(null);
        }),
    ];
    for (says, change) in changes {
        let read = tampered(&sealed, change);
        let why = reason(read.authenticate(&keys.trusted(), head));
        assert!(why.contains(says), "{says}: {why}");
    }
    assert!(
        tampered(&sealed, |_| ())
            .authenticate(&keys.trusted(), head)
            .is_ok()
    );
}

/// What a holder of the key can sign that is no capture.
#[tokio::test]
async fn a_rightly_signed_manifest_of_something_else_proves_nothing() {
    type Change = fn(&mut ManifestBody);
    let keys = Keys::new();
    let signer = keys.archiver.signer().unwrap();
    let (sealed, _) = sealed(&keys).await;
    let changes: [(&str, Change); 9] = [
        ("claims nothing", |body| body.objects.clear()),
        ("its state", |body| drop(body.objects.pop())),
        ("its state", |body| body.objects.swap(2, 3)),
        ("its state", |body| body.objects[3].size_bytes += 1),
        ("not that of a capture", |body| {
            body.segment.topic = "orders".to_owned();
        }),
        ("not that of a capture", |body| body.segment.end_offset = 9),
        ("not that of a capture", |body| {
            body.chain.prev_head = ChainHead([1; 32]);
        }),
        ("`wal/b` is missing", |body| {
            body.segment.segment_size_bytes -= 1000;
            body.objects.remove(1);
        }),
        ("`wal/a` is missing or out of order", |body| {
            body.objects[..3].reverse();
        }),
    ];
    for (says, change) in changes {
        let mut manifest = sealed.authentication().unwrap().clone();
        change(&mut manifest.body);
        let head = manifest_head(&manifest.body);
        let chain = manifest.body.chain;
        let message =
            krabka_remote_storage::manifest_signing_bytes(KEY_ID, chain.epoch_id, chain.seq, head);
        let signature = signer.sign(&message).await.unwrap();
        manifest.signature.as_mut().unwrap().signature.0 = signature.to_vec();
        let read = tampered(&sealed, |doc| {
            doc["authentication"] = serde_json::to_value(&manifest).unwrap();
        });
        let why = reason(read.authenticate(&keys.trusted(), head));
        assert!(why.contains(says), "{says}: {why}");
    }
}

#[tokio::test]
async fn a_new_seal_replaces_the_old_one_and_other_digests_break_it() {
    let (keys, other) = (Keys::new(), Keys::new());
    let (sealed, head) = sealed(&keys).await;
    let claims = ["wal/a", "wal/b", "wal/c"].map(claim).to_vec();
    let (again, same_head) = sealed.clone().seal(claims, &other.archiver).await.unwrap();
    assert_eq!(same_head, head);
    assert!(again.authenticate(&other.trusted(), head).is_ok());
    assert!(again.authenticate(&keys.trusted(), head).is_err());
    let changed = sealed.with_snapshots(None, None, None).unwrap();
    assert_eq!((changed.head(), changed), (None, capture()));
}
