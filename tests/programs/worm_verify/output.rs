//! Output that nobody can forge, break or hold up.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::process::Stdio;

use krabka_remote_storage::archive::WORM_PROBE_NAME;
use krabka_remote_storage::ops::{StartUpload, StoreTarget};
use krabka_remote_storage::{ObjectStoreConfig, RemoteStorage};

use super::auditor::Auditor;
use crate::support::archive::{Archive, PREFIX};
use crate::support::program::finish;

#[tokio::test]
async fn names_with_control_characters_forge_no_line() {
    let archive = Archive::one_run(1).await;
    let auditor = Auditor::of(&archive).await;
    let directory = auditor.object(archive.segments[0].directory());
    // A local store cannot list a name with a line break; other characters it can.
    let evil = "x\u{9b}2K\u{202e}\u{2028}OK: é";
    fs::write(directory.join(evil), "x").unwrap();
    for format in ["text", "json"] {
        let run = auditor
            .verify(&["--format", format])
            .fails(6, &["(foreign): 1: archive/orders-0-"]);
        for text in [run.text(), run.stderr.clone()] {
            assert!(
                text.chars().all(|c| matches!(c, ' '..='~' | '\n')),
                "{text:?}"
            );
        }
        assert!(
            run.stderr
                .contains("x\\u{9b}2K\\u{202e}\\u{2028}OK: \\u{e9}"),
            "{}",
            run.stderr
        );
    }
    let json = auditor.json(6, &[]);
    let key = json["report"]["partitions"][0]["orphan_objects"][0]["key"]
        .as_str()
        .unwrap();
    assert!(key.ends_with(evil), "JSON keeps the key");
}

#[tokio::test]
async fn a_report_of_a_hundred_thousand_lines_is_written_whole_and_can_be_cut_short() {
    let archive = Archive::one_run(1).await;
    let auditor = Auditor::of(&archive).await;
    let lines = 100_000;
    let absent: BTreeMap<String, Vec<u8>> = (0..lines)
        .map(|partition| (format!("archive/orders-{partition}-absent"), Vec::new()))
        .collect();
    let pins = auditor.path("pins.json");
    fs::write(&pins, serde_json::to_vec(&absent).unwrap()).unwrap();
    let pins = pins.to_str().unwrap();

    let run = auditor.verify(&["--pins", pins]).fails(4, &[]);
    assert_eq!(run.stderr.lines().count(), lines);
    assert!(
        run.stderr
            .lines()
            .all(|line| line.starts_with("HEAD MISMATCH at "))
    );
    let partitions = run
        .text()
        .lines()
        .filter(|line| line.starts_with("partition "))
        .count();
    assert_eq!(partitions, lines + 1);
    let run = auditor.verify(&["--pins", pins, "--format", "json"]);
    assert_eq!(run.json()[0]["breaks"].as_array().unwrap().len(), lines);

    // Whoever reads goes away after the first bytes.
    for format in ["text", "json"] {
        let mut child = auditor
            .command(&["--pins", pins, "--format", format])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut [0; 10]).unwrap();
        drop(stdout);
        assert_eq!(child.wait().unwrap().code(), Some(4));
    }
}

#[tokio::test]
async fn outputs_that_take_nothing_hide_no_verdict() {
    let archive = Archive::one_run(1).await;
    let auditor = Auditor::of(&archive).await;
    let closed = || std::io::pipe().unwrap().1;
    let code = |arguments: &[&str], stdout: Stdio, stderr: Stdio| {
        let mut command = auditor.command(arguments);
        command.stdout(stdout).stderr(stderr);
        command.status().unwrap().code()
    };
    for format in ["text", "json"] {
        let arguments = ["--format", format];
        assert_eq!(code(&arguments, closed().into(), closed().into()), Some(0));
        let empty = ["--format", format, "--topic", "none"];
        assert_eq!(code(&empty, closed().into(), closed().into()), Some(7));
        // A full disk loses the report: that is an error where it would be fine otherwise.
        let full = || {
            fs::OpenOptions::new()
                .write(true)
                .open("/dev/full")
                .unwrap()
        };
        assert_eq!(code(&arguments, full().into(), full().into()), Some(3));
        assert_eq!(code(&empty, full().into(), full().into()), Some(7));
    }
}

#[tokio::test]
async fn uploads_that_nobody_has_ended_are_told_and_counted_with_strict_orphans() {
    let archive = Archive::one_run(1).await;
    let auditor = Auditor::of(&archive).await;
    let config = ObjectStoreConfig::Local {
        root: auditor.path("store"),
    };
    let writer = RemoteStorage::open(&config).unwrap();
    let key = archive.segments[0].key(".log").replace(".log", ".txnindex");
    let target = StoreTarget::object(key.as_str().into());
    writer.send(StartUpload::new(target)).await.unwrap();

    // The unfinished file is an object that no manifest names, too.
    let run = auditor.verify(&["--allow-orphans"]).fails(0, &[]);
    let line = format!("note: INCOMPLETE MULTIPART UPLOADS: 1: {key}\n");
    assert!(run.stderr.contains(&line), "{}", run.stderr);
    let line = line.strip_prefix("note: ").unwrap();
    auditor.verify(&["--strict-orphans"]).fails(6, &[line]);
    let elsewhere = auditor.verify(&["--strict-orphans", "--partition", "1", "--allow-empty"]);
    assert!(
        !elsewhere.stderr.contains("UPLOADS"),
        "{}",
        elsewhere.stderr
    );
    assert_eq!(auditor.json(6, &[])["open_uploads"][0], key);
    writer.close(std::time::Duration::from_secs(1)).await;
}

#[tokio::test]
async fn logs_go_to_standard_error_as_rust_log_says() {
    let archive = Archive::one_run(1).await;
    archive
        .put(
            &format!("{PREFIX}/{WORM_PROBE_NAME}"),
            "krabka-worm-probe v1\n",
        )
        .await;
    let auditor = Auditor::of(&archive).await;
    let run = finish(auditor.command(&[]).env("RUST_LOG", "debug"));
    let run = run.fails(0, &["DEBUG", &archive.segments[0].manifest_key]);
    assert!(run.text().starts_with("OK"), "{}", run.text());
    finish(auditor.command(&[]).env("RUST_LOG", "off")).ok();
    finish(auditor.command(&[]).env("RUST_LOG", "a=b=c")).fails(0, &["RUST_LOG is no filter"]);
}
