//! `restore`: a tier back into a directory that equals the one it was copied from.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use krabka_remote_storage::index::{Batches, LeaderEpochCheckpoint};
use krabka_remote_storage::layout::{LogDirState, parse_log_dir_name};
use serde_json::json;

use crate::support::program::{
    PARTITIONS, Run, Scratch, command, kafkas_tier, local_logs, run, special_offset, test_data,
};

pub(crate) fn restore(url: &str, topic: &str, partition: i32, to: &Path, more: &[&str]) -> Run {
    let partition = partition.to_string();
    let mut arguments = vec!["restore", url, "--topic", topic, "--partition", &partition];
    arguments.extend(["--to", to.to_str().unwrap()]);
    arguments.extend(more);
    run(&arguments)
}

/// The files of a directory, by name.
pub(crate) fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap())
        })
        .collect()
}

/// The closed segments of the broker's own directory, with what belongs to them.
fn of_closed_segments(topic: &str, partition: i32, last: i64) -> BTreeMap<String, Vec<u8>> {
    let mut files = files(&test_data("partitions").join(format!("{topic}-{partition}")));
    let first = special_offset(topic, partition, "earliest");
    let names: Vec<_> = files.keys().cloned().collect();
    for name in names {
        let Some(offset) = name.get(..20).and_then(|offset| offset.parse::<i64>().ok()) else {
            continue;
        };
        // The snapshot of the state after the last closed segment is named like the active one.
        let is_closed = if name.ends_with(".snapshot") {
            offset <= last + 1 && offset > first.min(last)
        } else {
            offset <= last
        };
        if !is_closed {
            files.remove(&name);
        }
    }
    files
}

#[test]
fn what_was_copied_comes_back_byte_for_byte() {
    let scratch = Scratch::new();
    scratch.copy(&test_data("partitions")).ok();
    for (topic, partition) in PARTITIONS {
        let last = special_offset(topic, partition, "latest_tiered");
        let to = scratch
            .path("restored")
            .join(format!("{topic}-{partition}"));
        let said = restore(&scratch.url(), topic, partition, &to, &[])
            .ok()
            .text();
        let mut restored = files(&to);
        let mut source = of_closed_segments(topic, partition, last);
        // The tier knows the leader epochs up to its end.
        let checkpoint = source.remove("leader-epoch-checkpoint").unwrap();
        let checkpoint = LeaderEpochCheckpoint::parse(&checkpoint)
            .unwrap()
            .up_to(last);
        assert_eq!(
            String::from_utf8(restored.remove("leader-epoch-checkpoint").unwrap()).unwrap(),
            checkpoint.to_string()
        );
        assert_eq!(
            restored.keys().collect::<Vec<_>>(),
            source.keys().collect::<Vec<_>>(),
            "{topic}-{partition}"
        );
        assert!(restored == source, "{topic}-{partition}");
        assert!(
            said.contains(&format!("restored {topic}-{partition} to ")),
            "{said}"
        );
        assert!(said.contains(&format!(" to {last}\n")), "{said}");
    }
    // Nothing else is left beside them.
    let beside = fs::read_dir(scratch.path("restored")).unwrap().count();
    assert_eq!(beside, PARTITIONS.len());
}

#[test]
fn kafkas_own_tier_is_restored_and_copied_again() {
    let scratch = Scratch::new();
    for (topic, partition) in PARTITIONS {
        let to = scratch.path(&format!("{topic}-{partition}"));
        let summary = restore(&kafkas_tier(), topic, partition, &to, &["--json"])
            .ok()
            .json();
        let log: usize = files(&to)
            .iter()
            .filter(|(name, _)| name.ends_with(".log"))
            .map(|(_, bytes)| bytes.len())
            .sum();
        let last = special_offset(topic, partition, "latest_tiered");
        let logs = local_logs(topic, partition);
        let closed: usize = logs
            .iter()
            .filter(|log| {
                let first = Batches::new(log).next();
                first.is_some_and(|batch| batch.unwrap().header().unwrap().base_offset() <= last)
            })
            .map(Vec::len)
            .sum();
        assert_eq!(log, closed, "{topic}-{partition}");
        assert_eq!(summary[0]["last_offset"], last);
        assert_eq!(summary[0]["files"], files(&to).len());
        let bytes: usize = files(&to).values().map(Vec::len).sum();
        assert_eq!(summary[0]["size_bytes"], bytes);
        // A copy checks everything that it finds.
        let copied = scratch.copy(&to).ok().json();
        let segments = summary[0]["segments"].as_u64().unwrap();
        assert_eq!(copied.last().unwrap()["segments_copied"], segments - 1);
    }
}

#[test]
fn a_directory_that_is_not_empty_is_refused_and_an_empty_one_is_taken() {
    let scratch = Scratch::with_tier_of(&["payments-1"]);
    let to = scratch.path("payments-1");
    fs::create_dir(&to).unwrap();
    restore(&scratch.url(), "payments", 1, &to, &[]).ok();
    let before = files(&to);
    assert!(before.len() > 10);
    restore(&scratch.url(), "payments", 1, &to, &[])
        .fails(1, &["is not empty", to.to_str().unwrap()]);
    assert!(files(&to) == before);
    let file = scratch.path("file");
    fs::write(&file, "").unwrap();
    restore(&scratch.url(), "payments", 1, &file, &[]).fails(1, &[file.to_str().unwrap()]);
}

#[test]
fn a_directory_that_a_broker_would_not_know_is_told() {
    let scratch = Scratch::with_tier_of(&["payments-1"]);
    let run = restore(
        &scratch.url(),
        "payments",
        1,
        &scratch.path("a/b/here"),
        &[],
    );
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(
        run.stderr,
        "note: a broker finds this partition in a directory named payments-1\n"
    );
    assert!(scratch.path("a/b/here/partition.metadata").exists());
    restore(&scratch.url(), "payments", 7, &scratch.path("x"), &[]).fails(1, &["is not in"]);
}

/// Everything in a directory, hidden names too.
pub(crate) fn names(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    names.sort();
    names
}

#[test]
fn a_partition_with_something_wrong_is_refused_by_segment_and_file_and_leaves_nothing() {
    type Damage = fn(&Scratch);
    let rows: [(&[&str], Damage); 8] = [
        (
            &["offsets 270 to 563 are in no segment", "--allow-gaps"],
            |tier| {
                fs::remove_file(tier.tier_file(270, ".log")).unwrap();
            },
        ),
        (
            &["at offset 564 has lost its `.index`", "--allow-missing"],
            |tier| {
                fs::remove_file(tier.tier_file(564, ".index")).unwrap();
            },
        ),
        (&["at offset 564 has lost its `.timeindex`"], |tier| {
            fs::remove_file(tier.tier_file(564, ".timeindex")).unwrap();
        }),
        (&["at offset 1422 has lost its `.snapshot`"], |tier| {
            fs::remove_file(tier.tier_file(1422, ".snapshot")).unwrap();
        }),
        (&["at offset 900 has lost its leader epochs"], |tier| {
            fs::remove_file(tier.tier_file(900, ".leader_epoch_checkpoint")).unwrap();
        }),
        (&["at offset 1422 is damaged", "--allow-gaps"], |tier| {
            let log = tier.tier_file(1422, ".log");
            let bytes = fs::read(&log).unwrap();
            fs::write(log, &bytes[..bytes.len() - 1]).unwrap();
        }),
        // Found in what was written.
        (
            &[
                "at offset 564 is damaged at position 0 of ",
                "/00000000000000000564-",
                "--allow-gaps",
            ],
            |tier| {
                let log = tier.tier_file(564, ".log");
                let mut bytes = fs::read(&log).unwrap();
                bytes[8..12].fill(0x7f);
                fs::write(log, bytes).unwrap();
            },
        ),
        (
            &[
                "at offset 564 is damaged: ",
                "/00000000000000000564-",
                ".timeindex has ",
                "no whole number of entries",
                "--allow-missing",
            ],
            |tier| {
                let index = tier.tier_file(564, ".timeindex");
                let mut bytes = fs::read(&index).unwrap();
                bytes.pop();
                fs::write(index, bytes).unwrap();
            },
        ),
    ];
    for (says, damage) in rows {
        let scratch = Scratch::with_tier_of(&["orders-0"]);
        damage(&scratch);
        let to = scratch.path("out/orders-0");
        fs::create_dir(scratch.path("out")).unwrap();
        restore(&scratch.url(), "orders", 0, &to, &[]).fails(1, says);
        assert_eq!(names(&scratch.path("out")), [] as [PathBuf; 0], "{says:?}");
    }
}

#[test]
fn gaps_and_missing_files_can_be_allowed() {
    let scratch = Scratch::with_tier_of(&["orders-0"]);
    let whole = scratch.path("whole/orders-0");
    restore(&scratch.url(), "orders", 0, &whole, &[]).ok();
    fs::remove_file(scratch.tier_file(270, ".log")).unwrap();
    fs::remove_file(scratch.tier_file(900, ".index")).unwrap();
    fs::remove_file(scratch.tier_file(1422, ".leader_epoch_checkpoint")).unwrap();
    let to = scratch.path("out/orders-0");
    let url = scratch.url();
    for one in ["--allow-gaps", "--allow-missing"] {
        restore(&url, "orders", 0, &to, &[one]).fails(1, &["nothing was restored"]);
    }
    let both = ["--allow-gaps", "--allow-missing"];
    let run = restore(&url, "orders", 0, &to, &both);
    assert_eq!(run.code, Some(0), "{run:?}");
    for says in [
        "note: offsets 270 to 563 are in no segment of the tier",
        "at offset 900 has lost its `.index`",
        "at offset 1422 has lost its leader epochs",
    ] {
        assert!(run.stderr.contains(says), "{says:?} in {}", run.stderr);
    }
    let mut expected = files(&whole);
    expected.retain(|name, _| {
        let is_of_270 = name.starts_with("00000000000000000270.") && !name.ends_with(".snapshot");
        let is_of_564 = name == "00000000000000000564.snapshot";
        !(is_of_270 || is_of_564 || name == "00000000000000000900.index")
    });
    // Made anew from the segments' own epochs, it is the same history.
    assert!(files(&to) == expected);
}

/// A time index with the entry that a segment gets when it is closed.
fn time_index(base_offset: i64, log: &[u8]) -> Vec<u8> {
    let mut largest = (-1, 0);
    for batch in Batches::new(log) {
        let header = *batch.unwrap().header().unwrap();
        if header.max_timestamp() > largest.0 {
            largest = (header.max_timestamp(), header.last_offset().unwrap());
        }
    }
    let relative = u32::try_from(largest.1 - base_offset).unwrap();
    [&largest.0.to_be_bytes()[..], &relative.to_be_bytes()].concat()
}

#[test]
fn of_copies_the_newer_one_is_restored() {
    let scratch = Scratch::with_tier_of(&["orders-0"]);
    let expected = scratch.path("expected/orders-0");
    restore(&scratch.url(), "orders", 0, &expected, &[]).ok();
    // Another leader rolled its log at other offsets: one segment where there are two.
    let dir = scratch.partition("orders-0");
    let name = |offset: i64, suffix: &str| dir.join(format!("{offset:020}{suffix}"));
    let mut joined = fs::read(name(564, ".log")).unwrap();
    joined.extend(fs::read(name(900, ".log")).unwrap());
    fs::write(name(564, ".log"), &joined).unwrap();
    let times = time_index(564, &joined);
    fs::write(name(564, ".timeindex"), &times).unwrap();
    for suffix in [".log", ".index", ".timeindex", ".snapshot"] {
        fs::remove_file(name(900, suffix)).unwrap();
    }
    scratch.copy(&dir).ok();
    let to = scratch.path("out/orders-0");
    restore(&scratch.url(), "orders", 0, &to, &[]).ok();
    let mut expected = files(&expected);
    expected.retain(|name, _| !name.starts_with("00000000000000000900."));
    expected.insert("00000000000000000564.log".to_owned(), joined);
    expected.insert("00000000000000000564.timeindex".to_owned(), times);
    assert!(files(&to) == expected);
}

#[test]
fn a_segment_that_begins_within_the_one_before_cuts_it() {
    let scratch = Scratch::with_tier_of(&["orders-0"]);
    // The leader of epoch 1 copied from 564 on, and rolled its log later: at 950.
    let dir = scratch.partition("orders-0");
    let name = |offset: i64, suffix: &str| dir.join(format!("{offset:020}{suffix}"));
    let log = fs::read(name(900, ".log")).unwrap();
    let mut border = None;
    for batch in Batches::new(&log) {
        let batch = batch.unwrap();
        let base = batch.header().unwrap().base_offset();
        if base > 950 && border.is_none() {
            border = Some((base, batch.position()));
        }
    }
    let (border, position) = border.unwrap();
    let tail = [&log[position..], &fs::read(name(1152, ".log")).unwrap()].concat();
    fs::write(name(border, ".log"), &tail).unwrap();
    fs::write(name(border, ".index"), "").unwrap();
    fs::write(name(border, ".timeindex"), time_index(border, &tail)).unwrap();
    for offset in [0, 270, 564, 900, 1152] {
        for suffix in [".log", ".index", ".timeindex"] {
            fs::remove_file(name(offset, suffix)).unwrap();
        }
    }
    // The segment that this one replaces is gone.
    for suffix in [
        ".log",
        ".index",
        ".timeindex",
        ".snapshot",
        ".leader_epoch_checkpoint",
    ] {
        fs::remove_file(scratch.tier_file(1152, suffix)).unwrap();
    }
    scratch.copy(&dir).ok();

    let to = scratch.path("out/orders-0");
    let run = restore(&scratch.url(), "orders", 0, &to, &[]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(
        run.stderr
            .contains(&format!("is cut before offset {border}")),
        "{}",
        run.stderr
    );
    let restored = files(&to);
    assert_eq!(restored["00000000000000000900.log"], log[..position]);
    assert_eq!(restored[&format!("{border:020}.log")], tail);
    assert!(!restored.contains_key("00000000000000000900.index"));
    // End to end it is the log.
    let logs = restored.iter().filter(|(name, _)| name.ends_with(".log"));
    let whole: Vec<u8> = logs.flat_map(|(_, bytes)| bytes.clone()).collect();
    let source: Vec<u8> = local_logs("orders", 0)[..6].concat();
    assert!(whole == source);
}

#[test]
fn the_topic_id_is_the_tiers() {
    let scratch = Scratch::with_tier_of(&["orders-0"]);
    let to = scratch.path("orders-0");
    let said = restore(&scratch.url(), "orders", 0, &to, &["--json"])
        .ok()
        .json();
    assert_eq!(said[0]["topic_id"], json!("XImkNkm7QGGLGHdMSQnTXg"));
    let source = test_data("partitions/orders-0/partition.metadata");
    assert_eq!(
        fs::read(to.join("partition.metadata")).unwrap(),
        fs::read(source).unwrap()
    );
}

/// Adds a segment to the tier of `payments-1` whose log is one batch of more than a gigabyte.
fn add_huge_segment(scratch: &Scratch) {
    let last = scratch.tier_file(176, ".log");
    let name = |suffix: &str| {
        let name = format!("{:020}-AAAAAAAAAAAAAAAAAAAA_g{suffix}", 183);
        last.with_file_name(name)
    };
    let mut header = fs::read(&last).unwrap()[..61].to_vec();
    let size = 1_500_000_000_u32;
    header[..8].copy_from_slice(&183_i64.to_be_bytes());
    header[8..12].copy_from_slice(&(size - 12).to_be_bytes());
    header[23..27].fill(0);
    fs::write(name(".log"), header).unwrap();
    // Sparse: it takes no room.
    let log = fs::File::options().write(true).open(name(".log")).unwrap();
    log.set_len(size.into()).unwrap();
    fs::write(name(".index"), "").unwrap();
    fs::write(name(".timeindex"), "").unwrap();
    for suffix in [".snapshot", ".leader_epoch_checkpoint"] {
        fs::copy(scratch.tier_file(176, suffix), name(suffix)).unwrap();
    }
}

#[test]
fn an_interrupted_restore_leaves_nothing() {
    let scratch = Scratch::with_tier_of(&["payments-1"]);
    add_huge_segment(&scratch);
    let out = scratch.path("out");
    fs::create_dir(&out).unwrap();
    let to = out.join("payments-1");
    let url = scratch.url();
    let arguments = [
        "restore",
        &url,
        "--topic",
        "payments",
        "--partition",
        "1",
        "--to",
    ];
    let mut child = command(&arguments)
        .arg(&to)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It is at work as soon as a file is there.
    let deadline = Instant::now() + Duration::from_mins(1);
    while names(&out)
        .first()
        .is_none_or(|staged| names(staged).is_empty())
    {
        assert!(Instant::now() < deadline, "nothing was written");
        assert_eq!(child.try_wait().unwrap(), None);
        thread::sleep(Duration::from_millis(1));
    }
    let staged = names(&out).remove(0);
    let staged = staged.file_name().unwrap().to_str().unwrap();
    // A broker removes what a killed process leaves under such a name.
    let parsed = parse_log_dir_name(staged).unwrap();
    assert_eq!(
        (parsed.topic, parsed.state),
        ("payments", LogDirState::Deleted)
    );
    let id = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &id])
            .status()
            .unwrap()
            .success()
    );
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert_eq!(output.stderr, b"error: interrupted\n");
    assert_eq!(names(&out), [] as [PathBuf; 0]);
}
