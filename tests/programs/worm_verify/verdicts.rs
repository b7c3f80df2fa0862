//! Each verdict, with its line and its exit code.

use std::fs;

use krabka_remote_storage::{ChainStamp, WormArchiver};
use serde_json::json;

use super::auditor::{Auditor, program};
use crate::support::archive::{Archive, KEY_ID, Key, bodies, entry, epoch, key_of, metadata};
use crate::support::program::finish;

#[tokio::test]
async fn an_archive_in_order_is_ok_and_every_partition_is_shown() {
    let archive = Archive::sealed().await;
    let auditor = Auditor::of(&archive).await;
    let run = auditor.verify(&["--deep", "--allow-epoch-restarts"]);
    let text = run.text();
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(
        run.stderr,
        "note: INCOMPLETE ATTESTATION: chain restarted 1 time(s)\n"
    );
    assert!(
        text.starts_with("OK: 8 manifests over 3 partition(s), 40 objects checked\n"),
        "{text}"
    );
    for sealed in &archive.segments {
        assert!(text.contains(&format!("partition {}\n", sealed.directory())));
    }
    let tip = archive.segments.last().unwrap().receipt.head.unwrap();
    assert!(text.contains(&format!("  tip: {tip}\n")), "{text}");
    assert!(text.contains("seq 0 to 1, offsets 200 to 399"), "{text}");
    assert!(text.contains("  protection: none\n"), "{text}");

    let shallow = auditor.verify(&["--allow-epoch-restarts"]);
    assert!(
        shallow
            .text()
            .starts_with("OK (bodies not read): 8 manifests")
    );
}

#[tokio::test]
async fn a_changed_byte_is_tampering_with_bodies_read_and_passes_without() {
    let archive = Archive::one_run(3).await;
    let auditor = Auditor::of(&archive).await;
    let sealed = &archive.segments[1];
    let log = sealed.key(".log");
    let mut bytes = archive.get(&log).await.to_vec();
    bytes[3] ^= 1;
    fs::write(auditor.object(&log), bytes).unwrap();

    assert_eq!(auditor.verify(&[]).code, Some(0));
    let line = format!(
        "TAMPER DETECTED at {} (seq 1): digest: `{log}`",
        sealed.manifest_key
    );
    let run = auditor.verify(&["--deep"]).fails(1, &[&line]);
    assert!(!run.text().contains("OK"), "{}", run.text());
    let json = auditor.json(1, &[]);
    assert_eq!(json["verdict"], "tamper");
    assert_eq!(json["breaks"][0]["kind"], "digest");
    assert_eq!(json["breaks"][0]["partition_dir"], sealed.directory());
    assert_eq!(json["breaks"][0]["seq"], 1);
    assert_eq!(json["report"]["partitions"][0]["manifests"], 1);
}

#[tokio::test]
async fn what_is_missing_is_told_apart_and_tampering_elsewhere_goes_first() {
    let archive = Archive::sealed().await;
    let auditor = Auditor::of(&archive).await;
    let (gone, changed) = (&archive.segments[1], &archive.segments[7]);
    fs::remove_file(auditor.object(&gone.key(".index"))).unwrap();
    let missing = format!("MISSING at {} (seq 1): missing: ", gone.manifest_key);
    let run = auditor.verify(&["--deep"]).fails(8, &[&missing]);
    assert!(!run.stderr.contains("TAMPER"), "{}", run.stderr);

    fs::write(auditor.object(&changed.key(".log")), "other").unwrap();
    let tampered = format!(
        "TAMPER DETECTED at {} (seq 0): size: ",
        changed.manifest_key
    );
    auditor.verify(&[]).fails(1, &[&missing, &tampered]);
}

#[tokio::test]
async fn another_tip_is_a_mismatch_and_no_tampering() {
    let archive = Archive::one_run(2).await;
    let auditor = Auditor::of(&archive).await;
    let heads: Vec<_> = archive
        .segments
        .iter()
        .map(|s| s.receipt.head.unwrap())
        .collect();
    let directory = archive.segments[0].directory();
    let (tip, other) = (heads[1].to_string(), heads[0].to_string());
    let in_directory = |head: &str| format!("{directory}={head}");

    auditor.verify(&["--expect-head", &tip.to_uppercase()]).ok();
    auditor
        .verify(&[
            "--expect-head",
            &in_directory(&tip),
            "--expect-head",
            &other,
        ])
        .ok();
    let line = format!("HEAD MISMATCH: expected {other}, archive tip {tip}, in {directory}");
    let run = auditor
        .verify(&["--expect-head", &other])
        .fails(4, &[&line]);
    assert!(!run.stderr.contains("TAMPER"), "{}", run.stderr);
    auditor
        .verify(&["--expect-head", &in_directory(&other)])
        .fails(4, &[&line]);
    let nowhere = format!("archive/payments-0-AAAAAAAAAAAAAAAAAAAAcA={tip}");
    auditor
        .verify(&["--expect-head", &nowhere])
        .fails(4, &["the directory is not there"]);

    let nothing = auditor.verify(&["--expect-head", &tip, "--topic", "none", "--allow-empty"]);
    nothing.fails(4, &["no partition is there"]);
}

#[tokio::test]
async fn orphans_are_graded_by_what_left_them() {
    let archive = Archive::one_run(2).await;
    // A copy of the second segment that was retried.
    let again = metadata("orders", 0, 100, 0x77, ChainStamp::genesis(epoch(9)));
    archive.upload(&again).await;
    let auditor = Auditor::of(&archive).await;
    let superseded = "ORPHAN OBJECTS (superseded";
    let run = auditor.verify(&[]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(
        run.stderr.starts_with(&format!("note: {superseded}")),
        "{}",
        run.stderr
    );
    auditor
        .verify(&["--strict-orphans"])
        .fails(6, &[superseded]);

    // A copy that never got its manifest, and something else.
    let next = metadata("orders", 0, 700, 0x78, ChainStamp::genesis(epoch(9)));
    archive.upload(&next).await;
    archive.put("archive/notes.txt", "hello").await;
    let auditor = Auditor::of(&archive).await;
    let global = "ORPHAN OBJECTS (outside of every partition): 1: archive/notes.txt";
    auditor
        .verify(&[])
        .fails(6, &["ORPHAN OBJECTS (uncommitted", global]);
    assert_eq!(auditor.verify(&["--allow-orphans"]).code, Some(0));
    let json = auditor.json(6, &[]);
    let classes: Vec<_> = json["report"]["partitions"][0]["orphan_objects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|orphan| orphan["class"].as_str().unwrap())
        .collect();
    assert!(
        classes.contains(&"superseded") && classes.contains(&"uncommitted"),
        "{classes:?}"
    );
    assert_eq!(
        json["report"]["global_orphan_objects"],
        json!(["archive/notes.txt"])
    );
}

#[tokio::test]
async fn a_chain_that_was_begun_anew_and_a_key_that_is_not_trusted_are_incomplete_attestation() {
    let archive = Archive::sealed().await;
    let auditor = Auditor::of(&archive).await;
    auditor
        .verify(&[])
        .fails(5, &["INCOMPLETE ATTESTATION: chain restarted 1 time(s)\n"]);
    auditor.verify(&["--topic", "payments"]).ok();

    let mut archive = Archive::one_run(1).await;
    let stamp = archive.segments[0].receipt.next_stamp().unwrap();
    let other = archive
        .seal("orders", 0, 100, stamp, Key::new("other", 9))
        .await;
    let auditor = Auditor::of(&archive).await;
    let line = format!(
        "INCOMPLETE ATTESTATION: 0 unsigned, 1 untrusted; {} by `other`",
        other.manifest_key
    );
    auditor.verify(&[]).fails(5, &[&line]);
    let key = auditor.path("other.hex");
    fs::write(&key, Key::new("other", 9).public().to_string()).unwrap();
    auditor
        .verify(&["--key-id", "other", "--public-key", key.to_str().unwrap()])
        .ok();

    let mut nobody = program(&["verify", "--local-dir"]);
    nobody.arg(auditor.path("store"));
    finish(&mut nobody).fails(5, &["0 unsigned, 2 untrusted"]);
}

#[tokio::test]
async fn an_unsigned_manifest_is_incomplete_attestation() {
    let archive = Archive::one_run(1).await;
    let next = archive.segments[0].receipt.next_stamp().unwrap();
    let metadata = metadata("orders", 0, 100, 0x66, next);
    let mut objects = Vec::new();
    for (suffix, body) in bodies(&metadata) {
        let key = key_of(&metadata, suffix);
        objects.push(entry(key.clone(), suffix, &body));
        archive.put(&key, body).await;
    }
    let sealed = WormArchiver::new(None)
        .seal(&metadata, objects)
        .await
        .unwrap();
    archive
        .put(&key_of(&metadata, ".manifest"), sealed.bytes)
        .await;
    let auditor = Auditor::of(&archive).await;
    auditor
        .verify(&[])
        .fails(5, &["INCOMPLETE ATTESTATION: 1 unsigned, 0 untrusted"]);
}

#[tokio::test]
async fn an_archive_without_manifests_is_empty_and_not_ok() {
    let archive = Archive::empty();
    let auditor = Auditor::of(&archive).await;
    auditor.verify(&[]).fails(7, &["EMPTY ARCHIVE"]);
    auditor.json(7, &[]);
    assert_eq!(auditor.verify(&["--allow-empty"]).code, Some(0));
    let archive = Archive::one_run(1).await;
    let auditor = Auditor::of(&archive).await;
    auditor
        .verify(&["--topic", "other"])
        .fails(7, &["EMPTY ARCHIVE"]);
    auditor
        .verify(&["--partition", "5"])
        .fails(7, &["EMPTY ARCHIVE"]);
    auditor
        .verify(&["--topic", "orders", "--partition", "0"])
        .ok();
}

#[tokio::test]
async fn what_cannot_be_looked_at_is_an_error_and_says_nothing_about_the_archive() {
    let archive = Archive::one_run(1).await;
    let auditor = Auditor::of(&archive).await;
    let mut absent = auditor.trusting(&["--format", "json", "--local-dir"]);
    absent.arg(auditor.path("nowhere"));
    let run = finish(&mut absent).fails(3, &["is no directory"]);
    assert_eq!(run.json()[0]["verdict"], "error");
    assert!(!auditor.path("nowhere").exists());

    let key = auditor.path("key.hex");
    for bytes in [&b"no key"[..], &[0; 32], &{
        let mut small_order = [0; 32];
        small_order[0] = 1;
        small_order
    }] {
        fs::write(&key, bytes).unwrap();
        auditor
            .verify(&[])
            .fails(3, &["cannot load a public key", "key.hex"]);
    }
    fs::remove_file(&key).unwrap();
    auditor.verify(&[]).fails(3, &["key.hex"]);
}

#[tokio::test]
async fn a_wrong_command_line_has_an_exit_code_of_its_own() {
    let archive = Archive::one_run(1).await;
    let auditor = Auditor::of(&archive).await;
    let key = auditor.path("key.hex");
    let key = key.to_str().unwrap();
    let head = archive.segments[0].receipt.head.unwrap().to_string();
    let rows: [&[&str]; 9] = [
        &["--key-id", "other"],
        &["--public-key", key],
        &["--key-id", KEY_ID, "--public-key", key],
        &["--expect-head", "abc"],
        &["--expect-head", &head, "--expect-head", &head],
        &["--url", "file:///x"],
        &["--region", "here"],
        &["--strict-orphans", "--allow-orphans"],
        &["--format", "xml"],
    ];
    for arguments in rows {
        let run = auditor.verify(arguments).fails(2, &["error"]);
        assert_eq!(run.text(), "", "{arguments:?}");
    }
    let rows: [&[&str]; 3] = [
        &[],
        &["verify"],
        &["verify", "--url", "s3://id:marked@b", "--x"],
    ];
    for arguments in rows {
        let run = finish(&mut program(arguments)).fails(2, &[]);
        assert!(!run.stderr.contains("marked"), "{}", run.stderr);
    }
    let prefix = auditor
        .trusting(&["--url", "memory:///", "--prefix", "a//b"])
        .output()
        .unwrap();
    assert_eq!(prefix.status.code(), Some(2));
    for help in [&["--help"][..], &["verify", "--help"], &["help", "verify"]] {
        let help = finish(&mut program(help)).ok().text();
        for verdict in [
            "TAMPER",
            "MISSING",
            "HEAD MISMATCH",
            "ORPHAN",
            "EMPTY",
            "ATTESTATION",
        ] {
            assert!(help.contains(verdict), "{help}");
        }
    }
}
