use std::fs;
use std::process::Stdio;

use crate::support::program::{Scratch, command, run};

#[test]
fn a_quickstart_shows_that_every_byte_comes_back() {
    let text = run(&["quickstart"]).ok().text();
    for says in [
        "Apache Kafka 4.3.1",
        "14 segments, 74 objects",
        "1735 records decoded",
        "gzip lz4 none snappy zstd",
        "leader epochs 0 1 2 3",
        "19 aborted transactions",
        "in 74 objects compared: every byte is the one that Kafka wrote",
        "14 segments, and a signed manifest for each",
        "OK: 14 manifests in 2 chains, 74 objects hashed",
    ] {
        assert!(text.contains(says), "{says:?} in {text}");
    }
}

#[test]
fn a_quickstart_shows_where_one_changed_byte_is() {
    let text = run(&["quickstart"]).ok().text();
    let changed = text.lines().find(|line| line.contains("Changed: byte"));
    let (_, log) = changed.unwrap().rsplit_once(' ').unwrap();
    let manifest = log.replace(".log", ".manifest");
    let found = format!("TAMPER DETECTED at {manifest} (seq 0): ");
    let found = text.lines().find(|line| line.contains(&found));
    assert!(found.unwrap().contains(log), "{text}");
}

#[test]
fn a_quickstart_with_a_directory_leaves_a_tier_and_finds_it_again() {
    let scratch = Scratch::new();
    let dir = scratch.tier();
    let dir = dir.to_str().unwrap();
    let text = run(&["quickstart", "--dir", dir]).ok().text();
    assert!(
        text.contains(&format!("krabka-tier ls {}\n", scratch.url())),
        "{text}"
    );
    assert_eq!(scratch.tier_files().len(), 74);

    let text = run(&["quickstart", "--dir", dir]).ok().text();
    assert!(text.contains("14 were complete there"), "{text}");
    assert_eq!(scratch.tier_files().len(), 74);
    assert_eq!(run(&["ls", &scratch.url(), "--json"]).ok().json().len(), 2);
}

#[test]
fn a_quickstart_over_a_damaged_tier_says_what_differs() {
    let scratch = Scratch::new();
    let dir = scratch.tier();
    let dir = dir.to_str().unwrap();
    run(&["quickstart", "--dir", dir]).ok();
    let log = scratch.tier_file(564, ".log");
    let mut bytes = fs::read(&log).unwrap();
    bytes[1000] ^= 1;
    fs::write(&log, bytes).unwrap();
    fs::remove_file(scratch.tier_file(270, ".timeindex")).unwrap();

    let run = run(&["quickstart", "--dir", dir]).fails(1, &["2 objects", "differ"]);
    let text = run.text();
    assert!(
        text.contains(log.file_name().unwrap().to_str().unwrap()),
        "{text}"
    );
    assert!(text.contains(".timeindex is missing"), "{text}");
    assert!(!text.contains("every byte is"), "{text}");
}

#[test]
fn a_reader_that_stops_reading_is_no_failure() {
    let scratch = Scratch::with_tier_of(&["orders-1"]);
    let url = scratch.url();
    let rows: [&[&str]; 3] = [
        &["quickstart"],
        &["ls", &url],
        &[
            "read",
            &url,
            "--topic",
            "orders",
            "--partition",
            "1",
            "--offset",
            "0",
        ],
    ];
    for arguments in rows {
        let mut child = command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    }
}
