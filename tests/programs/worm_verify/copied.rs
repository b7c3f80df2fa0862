//! Kafka's partitions, sealed by `krabka-tier copy --worm-key`, and what an auditor says of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::auditor::program;
use crate::support::program::{Run, Scratch, command, finish, run};

/// A scratch directory with the keys `one` and `two`.
pub(crate) struct Sealer {
    pub(crate) scratch: Scratch,
}

impl Sealer {
    pub(crate) fn new() -> Self {
        let scratch = Scratch::new();
        for name in ["one", "two"] {
            let key = scratch.path(&format!("{name}.pem"));
            run(&["keygen", "--out", key.to_str().unwrap()]).ok();
        }
        Self { scratch }
    }

    fn path(&self, name: &str) -> String {
        self.scratch.path(name).to_str().unwrap().to_owned()
    }

    /// A copy of a partition, sealed with this key.
    fn seal(&self, dir: &Path, key: &str, more: &[&str]) -> Run {
        finish(&mut self.command(dir, key, more))
    }

    fn command(&self, dir: &Path, key: &str, more: &[&str]) -> Command {
        let (url, file) = (self.scratch.url(), self.path(&format!("{key}.pem")));
        let dir = dir.to_str().unwrap();
        let mut arguments = vec!["copy", dir, "--to", &url, "--json"];
        arguments.extend(["--worm-key", &file, "--worm-key-id", key]);
        arguments.extend(more);
        command(&arguments)
    }

    /// The command of [`seal_here`](Self::seal_here), to be begun.
    pub(crate) fn command_here(&self, dir: &Path) -> Command {
        self.command(dir, "one", &["--allow-unprotected"])
    }

    pub(crate) fn seal_here(&self, dir: &Path) -> Run {
        self.seal(dir, "one", &["--allow-unprotected"])
    }

    /// The auditor, who trusts these keys.
    pub(crate) fn verify(&self, keys: &[&str], more: &[&str]) -> Run {
        let url = self.scratch.url();
        let files: Vec<_> = keys
            .iter()
            .map(|key| self.path(&format!("{key}.pub.pem")))
            .collect();
        let mut arguments = vec!["verify", "--url", &url, "--deep"];
        for (key, file) in keys.iter().zip(&files) {
            arguments.extend(["--key-id", key, "--public-key", file]);
        }
        arguments.extend(more);
        finish(&mut program(&arguments))
    }

    /// A partition as it was when it had fewer segments.
    pub(crate) fn earlier(&self, name: &str, below: u64) -> PathBuf {
        let dir = self.scratch.partition(name);
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_str().unwrap();
            if stem.parse::<u64>().is_ok_and(|offset| offset >= below) {
                fs::remove_file(path).unwrap();
            }
        }
        dir
    }
}

pub(crate) fn copied(run: &Run) -> Vec<Value> {
    let events = run.json();
    events
        .into_iter()
        .filter(|event| event["type"] == "copied")
        .collect()
}

#[test]
fn a_second_copy_goes_on_in_the_same_epoch_and_skips_what_is_sealed() {
    let sealer = Sealer::new();
    let dir = sealer.earlier("orders-0", 1422);
    let first = copied(&sealer.seal_here(&dir).ok());
    assert_eq!(first.len(), 4, "the last one is active");
    let seqs = |events: &[Value]| -> Vec<u64> {
        let places = events.iter().map(|event| &event["sealed"]);
        places.map(|place| place["seq"].as_u64().unwrap()).collect()
    };
    assert_eq!(seqs(&first), [0, 1, 2, 3]);

    let whole = sealer.scratch.partition("orders-0");
    let before = sealer.scratch.tier_files();
    let again = sealer.seal_here(&whole).ok();
    let second = copied(&again);
    assert_eq!(seqs(&second), [4, 5]);
    assert_eq!(
        second[0]["sealed"]["epoch_id"],
        first[0]["sealed"]["epoch_id"]
    );
    let summary = again.json().pop().unwrap();
    assert_eq!(summary["segments_skipped"], 4);
    let after = sealer.scratch.tier_files();
    assert!(
        before.iter().all(|file| after.contains(file)),
        "nothing was changed"
    );

    assert!(copied(&sealer.seal_here(&whole).ok()).is_empty());
    assert_eq!(sealer.scratch.tier_files(), after);

    let said = sealer.verify(&["one"], &[]).ok().text();
    assert!(said.contains("OK: 6 manifests over 1 partition"), "{said}");
    assert!(said.contains("protection: none"), "{said}");
    let head = second[1]["sealed"]["head"].as_str().unwrap();
    sealer.verify(&["one"], &["--expect-head", head]).ok();
}

#[test]
fn several_partitions_have_a_chain_each() {
    let sealer = Sealer::new();
    for name in ["orders-1", "payments-0", "payments-1"] {
        sealer.scratch.partition(name);
    }
    let all = copied(&sealer.seal_here(&sealer.scratch.path("log")).ok());
    let firsts = all.iter().filter(|event| event["sealed"]["seq"] == 0);
    assert_eq!(firsts.count(), 3);
    let said = sealer.verify(&["one"], &[]).ok().text();
    let manifests = format!("OK: {} manifests over 3 partition", all.len());
    assert!(said.contains(&manifests), "{said}");
}

#[test]
fn a_directory_is_sealed_only_when_it_is_said_that_it_cannot_refuse_deletion() {
    let sealer = Sealer::new();
    let dir = sealer.scratch.partition("orders-2");
    sealer
        .seal(&dir, "one", &[])
        .fails(1, &["cannot refuse deletion", "--allow-unprotected"]);
    assert!(sealer.scratch.tier_files().is_empty());
}

#[test]
fn key_and_id_come_together_and_a_key_that_cannot_be_read_stops_it() {
    let sealer = Sealer::new();
    let dir = sealer.scratch.partition("orders-2");
    let (dir, url) = (dir.to_str().unwrap(), sealer.scratch.url());
    let key = sealer.path("one.pem");
    let row = |more: &[&str]| {
        let mut arguments = vec!["copy", dir, "--to", &url];
        arguments.extend(more);
        run(&arguments)
    };
    row(&["--worm-key", &key]).fails(2, &["--worm-key-id"]);
    row(&["--worm-key-id", "one"]).fails(2, &["--worm-key"]);
    row(&["--allow-unprotected"]).fails(2, &["--worm-key"]);
    let public = sealer.path("one.pub.pem");
    let unreadable = [
        "--worm-key",
        &public,
        "--worm-key-id",
        "one",
        "--allow-unprotected",
    ];
    row(&unreadable).fails(1, &["signing key", "one.pub.pem"]);
    assert!(sealer.scratch.tier_files().is_empty());
}

#[test]
fn an_archive_is_neither_removed_from_nor_copied_to_without_a_key() {
    let sealer = Sealer::new();
    let dir = sealer.scratch.partition("orders-2");
    sealer.seal_here(&dir).ok();
    let before = sealer.scratch.tier_files();
    let url = sealer.scratch.url();
    run(&["rm", &url, "--topic", "orders", "--yes"]).fails(1, &["delete refused", ".manifest"]);
    // A partition that is not there yet, too: it would be nothing but orphans.
    for dir in [dir, sealer.scratch.partition("payments-0")] {
        run(&["copy", dir.to_str().unwrap(), "--to", &url]).fails(1, &["write-once", "--worm-key"]);
    }
    assert_eq!(sealer.scratch.tier_files(), before);
}

#[test]
fn an_archive_that_does_not_verify_is_not_continued() {
    type Tampering = (&'static str, fn(&Sealer), &'static str);
    let rows: [Tampering; 3] = [
        (
            "a manifest",
            |sealer| {
                let manifest = sealer.scratch.tier_file(15, ".manifest");
                let mut bytes = fs::read(&manifest).unwrap();
                let at = bytes.len() / 2;
                bytes[at] ^= 1;
                fs::write(manifest, bytes).unwrap();
            },
            ".manifest",
        ),
        (
            "the first manifest",
            |sealer| fs::remove_file(sealer.scratch.tier_file(0, ".manifest")).unwrap(),
            "does not verify",
        ),
        (
            "a log",
            |sealer| fs::write(sealer.scratch.tier_file(15, ".log"), b"short").unwrap(),
            "does not verify",
        ),
    ];
    for (what, tamper, says) in rows {
        let sealer = Sealer::new();
        let dir = sealer.earlier("orders-2", 75);
        sealer.seal_here(&dir).ok();
        tamper(&sealer);
        let before = sealer.scratch.tier_files();
        let whole = sealer.scratch.partition("orders-2");
        sealer.seal_here(&whole).fails(1, &[says]);
        assert_eq!(sealer.scratch.tier_files(), before, "{what}");
    }
}

#[test]
fn what_a_killed_copy_has_left_is_sealed_anew_at_the_same_place() {
    let sealer = Sealer::new();
    let dir = sealer.scratch.partition("orders-2");
    let first = copied(&sealer.seal_here(&dir).ok());
    // Killed before its last manifest.
    let last = first.last().unwrap();
    let offset = last["first_offset"].as_i64().unwrap();
    fs::remove_file(sealer.scratch.tier_file(offset, ".manifest")).unwrap();
    let second = copied(&sealer.seal_here(&dir).ok());
    assert_eq!(second.len(), 1);
    assert_eq!(second[0]["sealed"]["seq"], last["sealed"]["seq"]);
    assert_ne!(second[0]["segment_id"], last["segment_id"]);
    let report = sealer.verify(&["one"], &[]);
    assert_eq!(report.code, Some(0), "{report:?}");
}

#[test]
fn a_new_key_goes_on_where_the_earlier_one_is_named() {
    let sealer = Sealer::new();
    let dir = sealer.earlier("orders-2", 75);
    let first = copied(&sealer.seal_here(&dir).ok());
    let whole = sealer.scratch.partition("orders-2");
    sealer
        .seal(&whole, "two", &["--allow-unprotected"])
        .fails(1, &["`one`", "no trusted key"]);
    let earlier = format!("one={}", sealer.path("one.pub.pem"));
    let trusting = ["--allow-unprotected", "--worm-trust", &earlier];
    let second = copied(&sealer.seal(&whole, "two", &trusting).ok());
    assert_eq!(second[0]["sealed"]["seq"], first.len());
    sealer.verify(&["one", "two"], &[]).ok();
    assert_eq!(sealer.verify(&["two"], &[]).code, Some(5));
    let twice = format!("two={}", sealer.path("one.pub.pem"));
    let trusting = ["--allow-unprotected", "--worm-trust", &twice];
    sealer.seal(&whole, "two", &trusting).fails(2, &["`two`"]);
}
