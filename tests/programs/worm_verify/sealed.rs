//! What `krabka-tier` seals, this program proves.

use std::fs;

use super::auditor::program;
use crate::support::program::{Run, Scratch, finish, run, test_data};

const KEY_ID: &str = "key-2026";

/// The verification of a tier with the public half of its key.
fn verify(scratch: &Scratch, arguments: &[&str]) -> Run {
    let mut command = program(&[
        "verify",
        "--deep",
        "--url",
        &scratch.url(),
        "--key-id",
        KEY_ID,
    ]);
    command.arg("--public-key").arg(scratch.path("key.pub.pem"));
    finish(command.args(arguments))
}

fn seal(scratch: &Scratch, partition: &str) {
    let dir = test_data("partitions").join(partition);
    let key = scratch.path("key.pem");
    let arguments = [
        "copy",
        dir.to_str().unwrap(),
        "--to",
        &scratch.url(),
        "--worm-key",
        key.to_str().unwrap(),
        "--worm-key-id",
        KEY_ID,
        "--allow-unprotected",
    ];
    assert_eq!(run(&arguments).code, Some(0));
}

#[test]
fn partitions_that_kafka_wrote_are_sealed_verified_and_a_flipped_byte_is_found() {
    let scratch = Scratch::new();
    let key = scratch.path("key.pem");
    run(&["keygen", "--out", key.to_str().unwrap()]).ok();
    let pins = scratch.path("pins.json");
    let pins = pins.to_str().unwrap();
    seal(&scratch, "payments-1");
    let text = verify(&scratch, &["--write-pins", pins]).ok().text();
    assert!(
        text.starts_with("OK: 3 manifests over 1 partition(s)"),
        "{text}"
    );

    // More of it, and the same again: the chain goes on, and what was pinned is still there.
    seal(&scratch, "orders-0");
    seal(&scratch, "payments-1");
    let text = verify(&scratch, &["--pins", pins, "--write-pins", pins])
        .ok()
        .text();
    assert!(text.contains(" over 2 partition(s)"), "{text}");
    assert_eq!(text.matches("\n  epoch ").count(), 2, "{text}");

    let log = scratch
        .tier_files()
        .into_iter()
        .find(|(path, _)| path.extension().is_some_and(|e| e == "log"))
        .map(|(path, _)| scratch.tier().join(path))
        .unwrap();
    let mut bytes = fs::read(&log).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(&log, bytes).unwrap();
    let name = log.file_name().unwrap().to_str().unwrap();
    verify(&scratch, &["--pins", pins]).fails(1, &["TAMPER DETECTED at ", "): digest: ", name]);
}
