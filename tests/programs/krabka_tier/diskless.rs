//! `krabka-tier diskless inspect`.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use krabka_remote_storage::archive::FileSigner;
use krabka_remote_storage::diskless::{
    WalCaptureProjection, WalFlushRecord, WalIndexEntry, WalObjectBuilder,
};
use krabka_remote_storage::{ChainHead, ObjectEntry, Sha256Digest, WormArchiver};
use uuid::Uuid;

use crate::support::program::{Run, Scratch, run};
use krabka_remote_storage::testing::batches::BatchSpec;

const TOPIC_ID: Uuid = Uuid::from_u128(1);
const TOPIC_ID_TEXT: &str = "AAAAAAAAAAAAAAAAAAAAAQ";

fn inspect(path: &Path, more: &[&str]) -> Run {
    let path = path.to_str().unwrap();
    run(&[&["diskless", "inspect", path][..], more].concat())
}

fn batch(base_offset: i64, records: i32) -> Vec<u8> {
    BatchSpec::new(base_offset, records, 100)
        .timestamp(7)
        .make()
}

/// An object with these runs: partition, first and last offset, batches.
fn object(scratch: &Scratch, runs: &[(i32, i64, i64, Vec<u8>)]) -> PathBuf {
    let mut builder = WalObjectBuilder::new();
    for (partition, first, last, bytes) in runs {
        builder
            .append_run(TOPIC_ID, *partition, *first, *last, bytes)
            .unwrap();
    }
    let path = scratch.path("object.ckwl");
    fs::write(&path, builder.finish()).unwrap();
    path
}

fn good_object(scratch: &Scratch) -> PathBuf {
    let run = [batch(10, 3), batch(13, 1)].concat();
    object(scratch, &[(3, 10, 13, run), (4, 0, 0, batch(0, 1))])
}

#[test]
fn the_runs_of_an_object_are_printed_and_checked() {
    let scratch = Scratch::new();
    let path = good_object(&scratch);
    let text = inspect(&path, &[]).ok().text();
    for says in [
        "FIRST OFFSET",
        TOPIC_ID_TEXT,
        "2 runs: all batches are whole and right",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
    let [first, second, whole] = &inspect(&path, &["--json"]).ok().json()[..] else {
        panic!("three lines");
    };
    assert_eq!(
        first.to_string(),
        serde_json::json!({
            "type": "run", "topic_id": TOPIC_ID_TEXT, "partition": 3, "first_offset": 10,
            "last_offset": 13, "byte_start": 6, "byte_len": 200, "batches": 2, "max_timestamp_ms": 7
        })
        .to_string()
    );
    assert_eq!(
        (&second["byte_start"], &second["batches"]),
        (&206.into(), &1.into())
    );
    let size = fs::metadata(&path).unwrap().len();
    assert_eq!(
        whole.to_string(),
        serde_json::json!({"type": "wal_object", "size_bytes": size, "runs": 2, "problems": 0})
            .to_string()
    );
}

#[test]
fn an_object_is_read_from_a_store_too() {
    let scratch = Scratch::new();
    let path = good_object(&scratch);
    let from_file = inspect(&path, &["--json"]).ok();
    let url = format!("file://{}", path.display());
    let from_store = run(&["diskless", "inspect", &url, "--json"]).ok();
    assert_eq!(from_store.stdout, from_file.stdout);
    run(&["diskless", "inspect", &format!("{url}x")]).fails(1, &["cannot read", "object.ckwlx"]);
    run(&["diskless", "inspect", "memory:///object"]).fails(1, &["memory:///"]);
    for secret in [
        "s3://bucket/object?token=hunter2",
        "s3://user:hunter2@bucket/object",
    ] {
        let failed = run(&["diskless", "inspect", secret]).fails(1, &[]);
        assert!(!failed.stderr.contains("hunter2"), "{failed:?}");
    }
}

#[cfg(feature = "aws")]
mod in_a_bucket {
    use std::process::Command;

    use axum::Router;
    use axum::body::Body;
    use axum::extract::Request;
    use axum::http::{HeaderMap, Method, Response, StatusCode};

    use super::*;
    use crate::support::program::{command, finish};

    /// What a store with one object answers: HEAD, and GET of a range.
    fn answer(request: &Request, object: &[u8]) -> Response<Body> {
        let response = Response::builder().header("last-modified", "Mon, 30 Nov 2026 00:00:00 GMT");
        if request.uri().path() != "/bucket/wal/object.ckwl" {
            return response.status(404).body(Body::empty()).unwrap();
        }
        if request.method() == Method::HEAD {
            return response
                .header("content-length", object.len())
                .body(Body::empty())
                .unwrap();
        }
        let (start, end) = range(request.headers());
        let end = end.min(object.len() - 1);
        response
            .status(StatusCode::PARTIAL_CONTENT)
            .header(
                "content-range",
                format!("bytes {start}-{end}/{}", object.len()),
            )
            .body(Body::from(object[start..=end].to_vec()))
            .unwrap()
    }

    fn range(headers: &HeaderMap) -> (usize, usize) {
        let range = headers["range"].to_str().unwrap();
        let (start, end) = range
            .strip_prefix("bytes=")
            .unwrap()
            .split_once('-')
            .unwrap();
        (start.parse().unwrap(), end.parse().unwrap())
    }

    async fn serve(object: Vec<u8>) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let store = Router::new().fallback(async move |request: Request| answer(&request, &object));
        tokio::spawn(axum::serve(listener, store).into_future());
        endpoint
    }

    fn inspect_at(endpoint: &str, url: &str) -> Command {
        let mut command = command(&["diskless", "inspect", url, "--json"]);
        command
            .env("AWS_ENDPOINT_URL", endpoint)
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "id")
            .env("AWS_SECRET_ACCESS_KEY", "secret")
            .env("AWS_ALLOW_HTTP", "true");
        command
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_object_larger_than_one_step_is_read_whole() {
        let scratch = Scratch::new();
        let large = BatchSpec::new(0, 1, 9 << 20).make();
        let path = object(&scratch, &[(0, 0, 0, large), (1, 5, 5, batch(5, 1))]);
        let endpoint = serve(fs::read(&path).unwrap()).await;
        let url = "s3://bucket/wal/object.ckwl";
        let from_store = finish(&mut inspect_at(&endpoint, url)).ok();
        assert_eq!(from_store.stdout, inspect(&path, &["--json"]).ok().stdout);

        finish(&mut inspect_at(&endpoint, "s3://bucket/wal/other.ckwl")).fails(
            1,
            &["cannot read s3://bucket/wal/other.ckwl", "no such object"],
        );
        finish(&mut inspect_at(&endpoint, "s3://bucket")).fails(2, &["is no object"]);
    }
}

#[test]
fn what_is_wrong_with_an_object_is_said_and_its_other_runs_are_printed() {
    let scratch = Scratch::new();
    let mut flipped = batch(10, 3);
    *flipped.last_mut().unwrap() ^= 1;
    let path = object(
        &scratch,
        &[
            (3, 10, 12, flipped),
            (3, 12, 12, batch(12, 1)),
            (4, 0, 1, batch(0, 1)),
            (5, 0, 0, batch(0, 1)),
        ],
    );
    let failed = inspect(&path, &["--json"]).fails(
        1,
        &[
            "run 0: corrupt remote log bytes: batch",
            "has checksum",
            "partition 3 of topic AAAAAAAAAAAAAAAAAAAAAQ has offset 12 in two runs",
            "run 2: corrupt remote log bytes: the run's batches end before offset 1",
            "3 problems with",
        ],
    );
    let lines = failed.json();
    assert_eq!(lines.len(), 5);
    assert!(lines[0]["problem"].as_str().unwrap().contains("checksum"));
    assert!(lines[0]["batches"].is_null());
    assert!(lines[3].get("problem").is_none());
    assert_eq!(lines[4]["problems"], 3);
    let text = inspect(&path, &[]).fails(1, &[]).text();
    assert_eq!(text.matches("damaged").count(), 2, "{text}");
}

#[test]
fn bytes_in_no_run_are_a_problem() {
    let scratch = Scratch::new();
    let path = good_object(&scratch);
    let mut bytes = fs::read(&path).unwrap();
    // The second run goes, and its bytes stay.
    let footer = bytes.len() - 8 - 96;
    bytes.drain(footer + 48..footer + 96);
    let trailer = bytes.len() - 8;
    bytes[trailer] = 48;
    fs::write(&path, &bytes).unwrap();
    inspect(&path, &[]).fails(1, &["100 bytes from byte 206 on are in no run"]);
}

#[test]
fn what_is_neither_object_nor_capture_is_refused() {
    let scratch = Scratch::new();
    let path = scratch.path("other");
    for (bytes, says) in [
        (&b""[..], "is neither a WAL object"),
        (b"KCWL", "is neither a WAL object"),
        (b"[]", "is neither a WAL object"),
        (b"CKWL\x01\0", "WAL object is too short: 6 bytes"),
        (
            b"CKWL\x02\0\0\0\0\0CKWL",
            "unsupported WAL object version 2",
        ),
        (b"CKWL\x01\0\0\0\0\0CKWX", "does not end with the magic"),
        (b"CKWL\x01\0\x30\0\0\0CKWL", "reaches into the header"),
        (b"{}", "has no format_version"),
        (
            b" {\"format_version\":2}",
            "version 2: this build reads version 1",
        ),
        (b"{\"format_version\":1}", "malformed diskless WAL capture"),
    ] {
        fs::write(&path, bytes).unwrap();
        let failed = inspect(&path, &[]).fails(1, &[says, path.to_str().unwrap()]);
        assert_eq!(failed.text(), "");
    }
    inspect(&scratch.path("none"), &[]).fails(1, &["cannot read", "none"]);
    inspect(&scratch.path(""), &[]).fails(1, &["cannot read"]);
}

fn claim(key: &str) -> ObjectEntry {
    ObjectEntry {
        suffix: ".ckwl".to_owned(),
        key: key.to_owned(),
        size_bytes: 1000,
        sha256: Sha256Digest::of(key),
        e_tag: None,
        version_id: None,
        create_precondition: true,
    }
}

struct Sealed {
    scratch: Scratch,
    head: ChainHead,
}

impl Sealed {
    /// A capture and, sealed, the same, with the key of `krabka-tier keygen` beside them.
    fn new() -> Self {
        let scratch = Scratch::new();
        let key = scratch.path("key.pem");
        run(&["keygen", "--out", key.to_str().unwrap()]).ok();
        let mut projection = WalCaptureProjection::new();
        for (number, object_key) in (0..).zip(["wal/a", "wal/\n\u{1b}"]) {
            let entry = WalIndexEntry {
                topic_id: TOPIC_ID,
                partition: 0,
                first_offset: number * 10,
                last_offset: number * 10 + 9,
                byte_start: 6,
                byte_len: 64,
                max_timestamp_ms: 7,
            };
            let (key, value) = WalFlushRecord::keyed_entry(object_key, entry);
            projection.apply(Some(&key), Some(&value)).unwrap();
        }
        let topics = HashMap::from([(TOPIC_ID, ("orders".to_owned(), 2))]);
        let capture = projection.capture(&topics, vec![5], 77).unwrap();
        fs::write(scratch.path("capture.json"), capture.to_vec().unwrap()).unwrap();
        let signer = FileSigner::load("the key", &key).unwrap();
        let archiver = WormArchiver::new(Some(Arc::new(signer)));
        let claims = vec![claim("wal/a"), claim("wal/\n\u{1b}")];
        let (sealed, head) = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(capture.seal(claims, &archiver))
            .unwrap();
        fs::write(scratch.path("sealed.json"), sealed.to_vec().unwrap()).unwrap();
        Self { scratch, head }
    }

    fn inspect(&self, name: &str, more: &[&str]) -> Run {
        inspect(&self.scratch.path(name), more)
    }

    fn public_key(&self) -> String {
        self.scratch.path("key.pub.pem").display().to_string()
    }
}

#[test]
fn the_ranges_of_a_capture_are_printed() {
    let sealed = Sealed::new();
    let text = sealed.inspect("capture.json", &[]).ok().text();
    for says in [
        "orders-0  2 ranges, delete floor 0, ends before offset 20  (topic id AAAAAAAAAAAAAAAAAAAAAQ)",
        "orders-1  0 ranges",
        "wal/\\u{a}\\u{1b}",
        "capture of time 77: 2 partitions, 2 ranges in 2 objects",
        "not sealed",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
    let lines = sealed.inspect("capture.json", &["--json"]).ok().json();
    let types: Vec<_> = lines
        .iter()
        .map(|line| line["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        types,
        ["partition", "range", "range", "partition", "capture"]
    );
    assert_eq!(lines[0]["recovery_cutoff"], 20);
    assert_eq!(lines[1]["object_key"], "wal/a");
    assert_eq!(lines[4]["source_cutoffs"], serde_json::json!([5]));
    assert!(lines[4]["seal"].is_null());
    let state = fs::read(sealed.scratch.path("capture.json")).unwrap();
    assert_eq!(
        lines[4]["state_sha256"],
        Sha256Digest::of(&state).to_string()
    );
    assert_eq!(lines[4]["state_size_bytes"], state.len());
}

#[test]
fn a_sealed_capture_is_proved_with_its_public_key() {
    let sealed = Sealed::new();
    let (key, head) = (sealed.public_key(), sealed.head.to_string());
    let seal = |run: &Run| {
        let last = run.json().pop().unwrap();
        let seal = &last["seal"];
        assert_eq!(
            (&seal["key_id"], &seal["head"]),
            (&"the key".into(), &head.clone().into())
        );
        (seal["proved"] == true, seal["pinned"] == true)
    };
    let unchecked = sealed.inspect("sealed.json", &["--json"]);
    assert_eq!(unchecked.code, Some(0));
    assert!(
        unchecked.stderr.contains("give --public-key"),
        "{unchecked:?}"
    );
    assert_eq!(seal(&unchecked), (false, false));

    let proved = sealed.inspect("sealed.json", &["--json", "--public-key", &key]);
    assert_eq!(proved.code, Some(0));
    assert!(
        proved.stderr.contains("without --expect-head"),
        "{proved:?}"
    );
    assert_eq!(seal(&proved), (true, false));

    let upper = head.to_uppercase();
    for expected in [&head, &upper] {
        let arguments = [
            "--json",
            "--public-key",
            &key,
            "--key-id",
            "the key",
            "--expect-head",
            expected,
        ];
        assert_eq!(
            seal(&sealed.inspect("sealed.json", &arguments).ok()),
            (true, true)
        );
    }
    let text = sealed
        .inspect(
            "sealed.json",
            &["--public-key", &key, "--expect-head", &head],
        )
        .ok()
        .text();
    let says = format!("sealed with key `the key`, proved, and the expected one; head {head}");
    assert!(text.contains(&says), "{text}");
}

#[test]
fn what_is_not_proved_fails_and_says_why() {
    let sealed = Sealed::new();
    let key = sealed.public_key();
    let other = sealed.scratch.path("other.pem");
    run(&["keygen", "--out", other.to_str().unwrap()]).ok();
    let other = sealed.scratch.path("other.pub.pem").display().to_string();
    let zeros = "0".repeat(64);
    for (says, name, arguments) in [
        (
            "it is not sealed",
            "capture.json",
            vec!["--public-key", &key],
        ),
        (
            "is not one by key `the key`",
            "sealed.json",
            vec!["--public-key", &other],
        ),
        (
            "key `the key` is not trusted",
            "sealed.json",
            vec!["--public-key", &key, "--key-id", "another"],
        ),
        (
            "is expected",
            "sealed.json",
            vec!["--public-key", &key, "--expect-head", &zeros],
        ),
    ] {
        let failed = sealed
            .inspect(name, &arguments)
            .fails(1, &[says, "1 problem with"]);
        assert!(
            failed.text().contains("capture of time 77"),
            "its ranges are printed"
        );
    }
    let path = sealed.scratch.path("sealed.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(
        &path,
        text.replacen("\"byte_len\":64", "\"byte_len\":63", 1),
    )
    .unwrap();
    let failed = sealed
        .inspect("sealed.json", &["--json", "--public-key", &key])
        .fails(1, &["its state is not what was signed"]);
    assert_eq!(failed.json().pop().unwrap()["seal"]["proved"], false);
    // Without a signature.
    let mut document: serde_json::Value = serde_json::from_str(&text).unwrap();
    document["authentication"]["signature"] = serde_json::Value::Null;
    fs::write(&path, document.to_string()).unwrap();
    sealed
        .inspect("sealed.json", &["--public-key", &key])
        .fails(1, &["it carries no signature"]);
}

#[test]
fn arguments_that_do_not_fit_are_refused() {
    let sealed = Sealed::new();
    let key = sealed.public_key();
    let head = sealed.head.to_string();
    for arguments in [
        &["--key-id", "the key"][..],
        &["--expect-head", &head],
        &["--public-key", &key, "--expect-head", "abc"],
    ] {
        sealed.inspect("sealed.json", arguments).fails(2, &[]);
    }
    sealed
        .inspect("sealed.json", &["--public-key", "/nonexistent"])
        .fails(1, &["/nonexistent"]);
    let object = good_object(&sealed.scratch);
    inspect(&object, &["--public-key", &key]).fails(1, &["is a WAL object, which nobody signs"]);
    run(&["diskless"]).fails(2, &[]);
}
