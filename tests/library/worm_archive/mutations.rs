//! A sealed archive of several partitions and runs, changed in every place: all of it is found, as
//! what it is, where it is.

use std::sync::Arc;

use krabka_remote_storage::archive::{Verdict, VerifyBreakKind, VerifyRequest, verify_archive};
use krabka_remote_storage::{ManifestBody, SegmentManifest, WormChainRecord};
use object_store::ObjectStore;
use serde_json::Value;

use crate::support::archive::{
    Archive, KEY_ID, Key, Sealed, assert_break, assert_verdict, deep, epoch, partition, trusted,
};
use crate::support::with;

/// What a changed manifest must be found as.
#[derive(Debug, PartialEq, Eq)]
enum Expected {
    Break(VerifyBreakKind),
    /// No break: the name of the key is no longer a trusted one.
    Untrusted,
}

/// What the description of the format says about a changed byte, told from the two documents.
fn expected(directory: &str, original: &Value, changed: &[u8]) -> Expected {
    use VerifyBreakKind::{Decode, Encoding, Format, Misplaced, Signature};
    let Ok(changed) = serde_json::from_slice::<Value>(changed) else {
        return Expected::Break(Decode);
    };
    let mut differences = Vec::new();
    diff("", original, &changed, &mut differences);
    let [(path, value)] = differences.as_slice() else {
        // A member under another name: one is missing, one unknown.
        let epochs = "/body/segment/leader_epochs/";
        let renamed_epoch = differences.iter().all(|(path, _)| {
            path.strip_prefix(epochs)
                .is_some_and(|key| key.parse::<i32>().is_ok_and(|n| n.to_string() == key))
        });
        return Expected::Break(match differences.len() {
            0 => Encoding,
            _ if renamed_epoch => Signature,
            _ => Decode,
        });
    };
    let text = value.as_str().unwrap_or_default();
    let member = path.rsplit('/').next().unwrap();
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let spelled = |text: &str, kind| {
        if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            Encoding
        } else {
            kind
        }
    };
    Expected::Break(match member {
        "format_version" => Format,
        "topic" => Misplaced,
        "topic_id" | "segment_id" | "epoch_id" => {
            if text.parse::<uuid::Uuid>().is_err() {
                Decode
            } else if member == "epoch_id" {
                spelled(text, Signature)
            } else {
                spelled(text, Misplaced)
            }
        }
        "key_id" => return Expected::Untrusted,
        "key" if !text.starts_with(&format!("{directory}/")) => Misplaced,
        "key" | "suffix" | "e_tag" => Signature,
        "sha256" | "prev_head" | "public_key" | "signature" if is_hex(text) => {
            spelled(text, Signature)
        }
        "sha256" | "prev_head" | "public_key" | "signature" => Decode,
        "partition" | "start_offset" if value.is_i64() => Misplaced,
        _ if value.is_i64() || value.is_u64() => Signature,
        _ => Decode,
    })
}

fn diff(path: &str, a: &Value, b: &Value, out: &mut Vec<(String, Value)>) {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            for (name, value) in a {
                match b.get(name) {
                    Some(other) => diff(&format!("{path}/{name}"), value, other, out),
                    None => out.push((format!("{path}/{name}"), Value::Null)),
                }
            }
            let added = b.keys().filter(|name| !a.contains_key(*name));
            out.extend(added.map(|name| (format!("{path}/{name}"), Value::Null)));
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                diff(&format!("{path}/{at}"), a, b, out);
            }
        }
        _ if a == b => {}
        _ => out.push((path.to_owned(), b.clone())),
    }
}

/// A partition's directory, with what an earlier report saw of it.
fn pinned(directory: &str, pins: &VerifyRequest) -> VerifyRequest {
    with(deep(), |it| {
        it.prefix = Some(directory.to_owned());
        it.expect_positions = pins.expect_positions.clone().map(|mut positions| {
            positions.retain(|pinned, _| pinned == directory);
            positions
        });
    })
}

async fn with_pins(archive: &Archive) -> VerifyRequest {
    let positions = archive.deep().await.positions();
    with(deep(), |it| it.expect_positions = Some(positions))
}

/// Changes each byte of one manifest in turn.
async fn change_each_byte(archive: &Archive, pins: &VerifyRequest, sealed: &Sealed) -> usize {
    let request = pinned(sealed.directory(), pins);
    let bytes = archive.get(&sealed.manifest_key).await;
    let original: Value = serde_json::from_slice(&bytes).unwrap();
    let store: Arc<dyn ObjectStore> = Arc::new(archive.memory.clone());
    let mut changes = 0;
    for at in 0..bytes.len() {
        // To a neighbour or to the other case, and now and then to what is no text.
        for flip in [if at % 2 == 0 { 1 } else { 0x20 }, 0x80] {
            if flip == 0x80 && at % 64 != 0 {
                continue;
            }
            let mut flipped = bytes.to_vec();
            flipped[at] ^= flip;
            let expected = expected(sealed.directory(), &original, &flipped);
            archive.put(&sealed.manifest_key, flipped).await;
            let report = verify_archive(&store, &request, &trusted()).await.unwrap();
            let place = || {
                let context = &bytes[at.saturating_sub(20)..bytes.len().min(at + 5)];
                format!(
                    "byte {at} ^ {flip:#x} behind {}: {report:#?}",
                    String::from_utf8_lossy(context)
                )
            };
            assert!(!report.ok(), "{}", place());
            let partition = partition(&report, sealed);
            match expected {
                Expected::Break(kind) => {
                    let found = partition.first_break.as_ref();
                    assert_eq!(found.map(|b| b.kind), Some(kind), "{}", place());
                    assert_eq!(found.unwrap().manifest_key, sealed.manifest_key);
                    assert_verdict(&report, Verdict::Tamper);
                }
                Expected::Untrusted => {
                    assert_eq!(partition.first_break, None, "{}", place());
                    assert_eq!(partition.untrusted_manifests, 1);
                    assert_eq!(partition.unattested[0].manifest_key, sealed.manifest_key);
                    assert_verdict(&report, Verdict::Attestation);
                }
            }
            changes += 1;
        }
    }
    archive.put(&sealed.manifest_key, bytes).await;
    changes
}

/// Changes each byte of every second manifest, from this one on: half of them, to take half the
/// time.
async fn change_each_byte_of_half(first: usize) {
    let archive = Archive::sealed().await;
    let pins = with_pins(&archive).await;
    let mut changes = 0;
    for sealed in archive.segments.iter().skip(first).step_by(2) {
        changes += change_each_byte(&archive.fork(), &pins, sealed).await;
    }
    assert!(changes > 8_000, "{changes}");
}

#[tokio::test]
async fn every_byte_of_every_manifest() {
    change_each_byte_of_half(0).await;
}

#[tokio::test]
async fn every_byte_of_every_other_manifest() {
    change_each_byte_of_half(1).await;
}

#[tokio::test]
async fn every_object_flipped_cut_grown_emptied_exchanged_removed_or_copied() {
    use VerifyBreakKind::{Count, Digest, Missing, Size};
    let archive = Archive::sealed().await;
    let pins = with_pins(&archive).await;
    for sealed in &archive.segments {
        for object in &sealed.manifest.body.objects {
            let body = archive.get(&object.key).await;
            let mut flipped = body.to_vec();
            let at = flipped.len() / 2;
            flipped[at] ^= 0x40;
            let mut other = body.to_vec();
            other.reverse();
            for (bytes, kind) in [
                (Some(flipped), Digest),
                (Some(other), Digest),
                (Some(body[..body.len() - 1].to_vec()), Size),
                (Some([&body[..], b"x"].concat()), Size),
                (Some(Vec::new()), Size),
                (None, Missing),
            ] {
                let archive = archive.fork();
                match bytes {
                    Some(bytes) => archive.put(&object.key, bytes).await,
                    None => archive.delete(&object.key).await,
                }
                let report = archive.verify(&pins).await;
                assert_break(&report, sealed.directory(), kind, &sealed.manifest_key);
            }
            // The same bytes once more, under a name of the segment and under another one.
            let archive = archive.fork();
            archive
                .put(&format!("{}.copy", object.key), body.clone())
                .await;
            let report = archive.verify(&pins).await;
            assert_break(&report, sealed.directory(), Count, &sealed.manifest_key);
            let report = {
                let archive = archive.fork();
                archive.delete(&format!("{}.copy", object.key)).await;
                archive
                    .put(&format!("{}/copy", sealed.directory()), body)
                    .await;
                archive.verify(&pins).await
            };
            assert!(!report.ok() && report.first_break().is_none());
            assert_verdict(&report, Verdict::Orphans);
            assert_eq!(partition(&report, sealed).orphan_objects.len(), 1);
        }
        // Two objects of equal size exchange their names.
        let archive = archive.fork();
        let other = archive
            .segments
            .iter()
            .find(|other| {
                other.manifest_key != sealed.manifest_key
                    && other.manifest.body.objects[0].size_bytes
                        == sealed.manifest.body.objects[0].size_bytes
            })
            .map(|other| other.key(".log"));
        if let Some(other) = other {
            let bytes = archive.get(&other).await;
            archive.put(&sealed.key(".log"), bytes).await;
            let report = archive.verify(&pins).await;
            assert_break(&report, sealed.directory(), Digest, &sealed.manifest_key);
        }
    }
}

#[tokio::test]
async fn every_manifest_removed_emptied_exchanged_renamed_or_moved() {
    use VerifyBreakKind::{Decode, Misplaced};
    let archive = Archive::sealed().await;
    let pins = with_pins(&archive).await;
    for sealed in &archive.segments {
        let fork = archive.fork();
        fork.delete(&sealed.manifest_key).await;
        let report = fork.verify(&pins).await;
        let kind = partition(&report, sealed)
            .first_break
            .as_ref()
            .unwrap()
            .kind;
        let is_last = !archive.segments.iter().any(|other| {
            let (chain, other) = (&sealed.manifest.body.chain, &other.manifest.body.chain);
            other.epoch_id == chain.epoch_id && other.seq > chain.seq
        });
        let expected = if is_last {
            VerifyBreakKind::Tip
        } else {
            VerifyBreakKind::Sequence
        };
        assert_eq!(kind, expected);
        let verdict = if is_last {
            Verdict::HeadMismatch
        } else {
            Verdict::Tamper
        };
        assert_verdict(&report, verdict);

        for empty in ["", "null", "{}", "[]", "\n"] {
            let fork = archive.fork();
            fork.put(&sealed.manifest_key, empty).await;
            let report = fork.verify(&pins).await;
            assert_break(&report, sealed.directory(), Decode, &sealed.manifest_key);
        }
        for to in [
            sealed.manifest_key.replace(".manifest", "x.manifest"),
            sealed
                .manifest_key
                .replace("-AAAAAAAAAAAAAAAAAABQ", "-BAAAAAAAAAAAAAAAAABQ"),
            format!("{}/x.manifest", sealed.directory()),
        ] {
            let fork = archive.fork();
            fork.rename(&sealed.manifest_key, &to).await;
            let report = fork.verify(&pins).await;
            assert_break(&report, sealed.directory(), Misplaced, &to);
        }
        for other in &archive.segments {
            if other.manifest_key == sealed.manifest_key {
                continue;
            }
            let fork = archive.fork();
            let bytes = fork.get(&other.manifest_key).await;
            fork.put(&sealed.manifest_key, bytes).await;
            let report = fork.verify(&pins).await;
            assert_break(&report, sealed.directory(), Misplaced, &sealed.manifest_key);
        }
    }
}

#[tokio::test]
async fn every_manifest_forked_resigned_or_planted() {
    use VerifyBreakKind::{DuplicatePosition, Fork, Signature};
    let archive = Archive::sealed().await;
    let pins = with_pins(&archive).await;
    for sealed in &archive.segments {
        let tp = sealed.metadata.topic_id_partition();
        let stamp = sealed.manifest.body.chain;
        for (key, kind) in [
            (Key::usual(), Fork),
            (Key::new("someone", 7), DuplicatePosition),
            (Key::new(KEY_ID, 7), Signature),
        ] {
            let mut fork = archive.fork();
            let start_offset = sealed.metadata.start_offset() + 7;
            let planted = fork
                .seal(&tp.topic, tp.partition, start_offset, stamp, key)
                .await;
            let report = fork.verify(&pins).await;
            assert_break(&report, sealed.directory(), kind, &planted.manifest_key);
        }
        let resigned = Key::new(KEY_ID, 7).sign(sealed.manifest.body.clone());
        let fork = archive.fork();
        fork.put_manifest(&sealed.manifest_key, &resigned).await;
        let report = fork.verify(&pins).await;
        assert_break(&report, sealed.directory(), Signature, &sealed.manifest_key);
    }
}

/// Signs like the format before this one, whose domains began with another letter.
fn of_another_domain(body: &ManifestBody) -> SegmentManifest {
    use ed25519_dalek::{Signer as _, SigningKey};
    use krabka_remote_storage::{manifest_head, manifest_signing_bytes};

    let mut manifest = Key::usual().sign(body.clone());
    let chain = &body.chain;
    let head = manifest_head(body);
    let mut message = manifest_signing_bytes(KEY_ID, chain.epoch_id, chain.seq, head);
    message[0] = b'c';
    let signature = SigningKey::from_bytes(&[1; 32]).sign(&message);
    manifest.signature.as_mut().unwrap().signature.0 = signature.to_bytes().to_vec();
    manifest
}

#[tokio::test]
async fn every_signature_of_another_domain_place_or_key_id() {
    let archive = Archive::sealed().await;
    let pins = with_pins(&archive).await;
    for sealed in &archive.segments {
        let own = sealed.manifest.signature.clone().unwrap();
        let foreign = archive
            .segments
            .iter()
            .find(|other| other.manifest_key != sealed.manifest_key)
            .and_then(|other| other.manifest.signature.clone());
        let mut moved = sealed.manifest.clone();
        moved.signature = foreign;
        let mut longer = sealed.manifest.clone();
        longer.signature.as_mut().unwrap().signature.0.push(0);
        let mut empty = sealed.manifest.clone();
        empty.signature.as_mut().unwrap().signature.0.clear();
        let mut other_key = sealed.manifest.clone();
        other_key.signature.as_mut().unwrap().public_key.0.clear();
        let manifests = [
            moved,
            longer,
            empty,
            other_key,
            of_another_domain(&sealed.manifest.body),
        ];
        for manifest in manifests {
            assert_ne!(manifest.signature.as_ref(), Some(&own));
            let fork = archive.fork();
            fork.put_manifest(&sealed.manifest_key, &manifest).await;
            let report = fork.verify(&pins).await;
            assert_break(
                &report,
                sealed.directory(),
                VerifyBreakKind::Signature,
                &sealed.manifest_key,
            );
        }
    }
}

#[tokio::test]
async fn every_tail_run_and_partition_cut_off() {
    let archive = Archive::sealed().await;
    let pins = with_pins(&archive).await;
    let runs: Vec<Vec<usize>> = [epoch(1), epoch(2), epoch(3), epoch(4)]
        .into_iter()
        .map(|epoch_id| {
            (0..archive.segments.len())
                .filter(|at| archive.segments[*at].manifest.body.chain.epoch_id == epoch_id)
                .collect()
        })
        .collect();
    for run in &runs {
        for keep in 0..run.len() {
            let fork = archive.fork();
            for at in &run[keep..] {
                fork.remove_segment(*at).await;
            }
            let without_pins = fork.deep().await;
            assert!(without_pins.ok(), "nothing in the archive shows it");
            let report = fork.verify(&pins).await;
            let first_break = report.first_break().unwrap();
            assert_eq!(first_break.kind, VerifyBreakKind::Tip);
            assert_verdict(&report, Verdict::HeadMismatch);
            let directory = archive.segments[run[0]].directory();
            let broken: Vec<_> = report
                .partitions
                .iter()
                .filter(|partition| partition.first_break.is_some())
                .map(|partition| partition.partition_dir.as_str())
                .collect();
            assert_eq!(broken, [directory]);
        }
    }
}

#[tokio::test]
async fn a_run_that_was_sealed_anew_from_its_beginning_with_a_stolen_key() {
    let archive = Archive::one_run(3).await;
    let pins = with_pins(&archive).await;
    // Everything is signed again over other content: only what was written down shows it.
    let fork = archive.fork();
    let mut prev: Option<WormChainRecord> = None;
    for sealed in &archive.segments {
        let mut body = sealed.manifest.body.clone();
        body.segment.max_timestamp_ms += 1;
        if let Some(stamp) = prev.as_ref().and_then(WormChainRecord::next_stamp) {
            body.chain = stamp;
        }
        let head = krabka_remote_storage::manifest_head(&body);
        prev = Some(WormChainRecord::request(body.chain).with_head(head));
        fork.put_manifest(&sealed.manifest_key, &Key::usual().sign(body))
            .await;
    }
    assert!(fork.deep().await.ok());
    let report = fork.verify(&pins).await;
    let last = &archive.segments[2];
    assert_break(
        &report,
        last.directory(),
        VerifyBreakKind::Tip,
        &last.manifest_key,
    );
}
