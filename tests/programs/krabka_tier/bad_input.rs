//! Bad input: a clear error with the path or key in it, nothing written, an exit code.

use std::fs;
use std::path::Path;
use std::process::Stdio;
#[cfg(feature = "aws")]
use std::time::{Duration, Instant};

#[cfg(feature = "aws")]
use crate::support::program::finish;
use crate::support::program::{Scratch, command, run};

#[test]
fn a_standard_error_that_takes_nothing_changes_no_exit_code() {
    let scratch = Scratch::with_tier_of(&["orders-0"]);
    let url = scratch.url();
    let nowhere = scratch.path("nowhere");
    let nowhere = format!("file://{}", nowhere.display());
    let read = ["read", &url, "--topic", "orders", "--partition", "0"];
    let past_the_end = [&read[..], &["--offset", "5000"]].concat();
    for (code, arguments) in [
        (1, &["ls", &nowhere][..]),
        (1, &past_the_end),
        (2, &["ls", "--unknown"]),
    ] {
        // Whoever read it has gone.
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        let run = finish_with_stderr(arguments, closed);
        assert_eq!(run, Some(code), "{arguments:?}");
        #[cfg(target_os = "linux")]
        {
            let full = fs::File::options().write(true).open("/dev/full").unwrap();
            let run = finish_with_stderr(arguments, full);
            assert_eq!(run, Some(code), "{arguments:?}");
        }
    }
}

fn finish_with_stderr(arguments: &[&str], stderr: impl Into<Stdio>) -> Option<i32> {
    let mut command = command(arguments);
    command.stdout(Stdio::null()).stderr(stderr);
    command.status().unwrap().code()
}

#[test]
fn what_is_no_whole_partition_is_refused_and_nothing_is_written() {
    type Damage = fn(&Path);
    const LOG: &str = "00000000000000000564.log";
    let rows: [(&str, Damage); 11] = [
        ("has no `partition.metadata`", |dir| {
            fs::remove_file(dir.join("partition.metadata")).unwrap();
        }),
        (
            "partition.metadata: version \"1\" is not supported",
            |dir| {
                fs::write(dir.join("partition.metadata"), "version: 1\n").unwrap();
            },
        ),
        ("leader-epoch-checkpoint", |dir| {
            fs::remove_file(dir.join("leader-epoch-checkpoint")).unwrap();
        }),
        ("leader-epoch-checkpoint", |dir| {
            fs::write(dir.join("leader-epoch-checkpoint"), "0\n5\n0 0\n").unwrap();
        }),
        ("00000000000000000564.index is missing", |dir| {
            fs::remove_file(dir.join("00000000000000000564.index")).unwrap();
        }),
        ("00000000000000000564.timeindex is missing", |dir| {
            fs::remove_file(dir.join("00000000000000000564.timeindex")).unwrap();
        }),
        ("00000000000000000900.snapshot is missing", |dir| {
            fs::remove_file(dir.join("00000000000000000900.snapshot")).unwrap();
        }),
        (LOG, |dir| {
            let bytes = fs::read(dir.join(LOG)).unwrap();
            fs::write(dir.join(LOG), &bytes[..bytes.len() - 1]).unwrap();
        }),
        (LOG, |dir| fs::write(dir.join(LOG), "").unwrap()),
        (LOG, |dir| {
            fs::write(dir.join(LOG), "Z".repeat(20_000)).unwrap();
        }),
        (LOG, |dir| {
            fs::copy(dir.join("00000000000000000270.log"), dir.join(LOG)).unwrap();
        }),
    ];
    for (says, damage) in rows {
        let scratch = Scratch::new();
        let dir = scratch.partition("orders-0");
        damage(&dir);
        let run = scratch.copy(&dir);
        run.fails(1, &[says, dir.to_str().unwrap(), "nothing was copied"]);
        assert_eq!(scratch.tier_files().len(), 0, "{says}");
    }
}

#[test]
fn directories_without_a_partition_are_refused() {
    let scratch = Scratch::new();
    let empty = scratch.path("orders-0");
    fs::create_dir(&empty).unwrap();
    scratch
        .copy(&empty)
        .fails(1, &[empty.to_str().unwrap(), "has no `partition.metadata`"]);
    let other = scratch.path("empty");
    fs::create_dir(&other).unwrap();
    scratch
        .copy(&other)
        .fails(1, &[other.to_str().unwrap(), "holds none"]);
    let missing = scratch.path("missing");
    scratch
        .copy(&missing)
        .fails(1, &[missing.to_str().unwrap(), "No such file"]);
    assert_eq!(scratch.tier_files().len(), 0);
}

#[test]
fn a_topic_whose_name_is_too_long_for_a_local_tier_is_refused_and_nothing_is_written() {
    let scratch = Scratch::new();
    let dir = scratch.partition_as("orders-0", &format!("{}-0", "t".repeat(249)));
    scratch.copy(&dir).fails(1, &["too long for a local tier"]);
    assert_eq!(scratch.tier_files().len(), 0);
}

#[test]
fn a_tier_that_is_not_there_is_an_error_and_not_an_empty_one() {
    let scratch = Scratch::new();
    let url = scratch.url();
    let read = [
        "read",
        &url,
        "--topic",
        "t",
        "--partition",
        "0",
        "--offset",
        "0",
    ];
    let rows: [&[&str]; 3] = [&["ls", &url], &read, &["rm", &url, "--topic", "t"]];
    for arguments in rows {
        run(arguments).fails(1, &["there is no tier", scratch.tier().to_str().unwrap()]);
        assert!(!scratch.tier().exists());
    }
}

#[test]
fn a_tier_in_memory_is_refused_because_it_would_not_outlive_the_program() {
    let scratch = Scratch::new();
    let dir = scratch.partition("orders-0");
    let read = [
        "read",
        "memory:///",
        "--topic",
        "t",
        "--partition",
        "0",
        "--offset",
        "0",
    ];
    let copy = ["copy", dir.to_str().unwrap(), "--to", "memory:///"];
    let rows: [&[&str]; 4] = [
        &["ls", "memory:///"],
        &read,
        &["rm", "memory:///", "--topic", "t"],
        &copy,
    ];
    for arguments in rows {
        run(arguments).fails(1, &["ends with the process"]);
    }
}

#[cfg(feature = "aws")]
#[test]
fn a_tier_that_cannot_be_reached_is_given_up_in_time() {
    let scratch = Scratch::new();
    let dir = scratch.partition("orders-0");
    let url = "s3://bucket/prefix";
    let read = [
        "read",
        url,
        "--topic",
        "t",
        "--partition",
        "0",
        "--offset",
        "0",
    ];
    let copy = ["copy", dir.to_str().unwrap(), "--to", url];
    let rows: [&[&str]; 4] = [&["ls", url], &read, &["rm", url, "--topic", "t"], &copy];
    for arguments in rows {
        let began = Instant::now();
        let run = finish(
            command(arguments)
                .args(["--retry-timeout", "2"])
                // Nothing listens on port 1.
                .env("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
                .env("AWS_ALLOW_HTTP", "true")
                .env("AWS_REGION", "us-east-1")
                .env("AWS_ACCESS_KEY_ID", "marked-id")
                .env("AWS_SECRET_ACCESS_KEY", "marked-secret"),
        );
        let run = run.fails(1, &["caused by"]);
        // Far more than 2 s, far less than the library's 3 minutes.
        assert!(began.elapsed() < Duration::from_secs(30));
        assert!(!run.stderr.contains("marked-"), "{}", run.stderr);
    }
}

#[test]
fn secrets_in_a_url_are_refused_and_never_repeated() {
    let scratch = Scratch::new();
    let dir = scratch.partition("orders-0");
    let dir = dir.to_str().unwrap();
    for url in [
        "s3://marked-id:marked-secret@bucket/prefix",
        "s3://bucket/prefix?X-Amz-Signature=marked-secret",
        "az://container/prefix?sig=marked-secret",
        "file://marked-id:marked-secret@/dir",
        "marked://marked-secret@x",
    ] {
        let read = [
            "read",
            url,
            "--topic",
            "t",
            "--partition",
            "0",
            "--offset",
            "0",
        ];
        let rows: [(&[&str], i32); 7] = [
            (&["ls", url], 1),
            (&read, 1),
            (&["rm", url, "--topic", "t"], 1),
            (&["copy", dir, "--to", url], 1),
            // Wrong command lines.
            (&["ls", "file:///x", url], 2),
            (&[url], 2),
            (&["copy", "--parallel", url], 2),
        ];
        for (arguments, code) in rows {
            let run = run(arguments).fails(code, &["error"]);
            assert!(!run.stderr.contains("marked-"), "{}", run.stderr);
            assert_eq!(run.text(), "");
        }
    }
}

#[test]
fn a_wrong_command_line_has_an_exit_code_of_its_own() {
    let rows: [&[&str]; 7] = [
        &[],
        &["ls"],
        &["copy", "/tmp"],
        &["copy", "--to", "file:///x"],
        &[
            "read",
            "file:///x",
            "--topic",
            "t",
            "--partition",
            "0",
            "--offset",
            "-1",
        ],
        &["rm", "file:///x", "--topic", "t", "--segment", "short"],
        &["ls", "file:///x", "--retry-timeout", "0"],
    ];
    for arguments in rows {
        run(arguments).fails(2, &["--help"]);
    }
    let read = [
        "read",
        "file:///",
        "--topic",
        "t",
        "--partition",
        "0",
        "--offset",
        "0",
    ];
    let mut raw_values = read.to_vec();
    raw_values.extend(["--format", "raw", "--values", "hex"]);
    run(&raw_values).fails(2, &["--format json"]);
    let help = run(&["--help"]).ok().text();
    assert!(help.contains("Exit codes:"), "{help}");
    run(&["--version"]).ok();
}
