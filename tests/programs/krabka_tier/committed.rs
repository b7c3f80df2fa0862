//! `read --read-committed` of tiers in which something is lost or wrong: never a record of a transaction
//! that was aborted, or of which nothing tells how it ended.

use std::fs;
use std::path::PathBuf;

use krabka_remote_storage::index::Batches;

use super::consumer::{committed, first_open, read};
use crate::support::program::{Run, Scratch, special_offset};
use krabka_remote_storage::testing::batches::{BatchSpec, SegmentFiles};

const PARTITIONS: [i32; 2] = [0, 1];

fn read_committed(scratch: &Scratch, partition: i32, offset: i64) -> Run {
    let offset = offset.to_string();
    let more = ["--offset", &offset, "--read-committed"];
    read(&scratch.url(), "payments", partition, &more)
}

fn tier_of(partition: i32) -> Scratch {
    Scratch::with_tier_of(&[&format!("payments-{partition}")])
}

/// What a consumer gets from an offset on.
fn of_consumer(partition: i32, from: i64) -> String {
    let last = special_offset("payments", partition, "latest_tiered");
    let open = first_open("payments", partition, last);
    committed(
        "payments",
        partition,
        from,
        open.map_or(last, |open| open - 1),
    )
}

/// The files of the tier with this ending, by base offset.
fn files(scratch: &Scratch, suffix: &str) -> Vec<(i64, PathBuf)> {
    let files = scratch.tier_files().into_iter().filter_map(|(path, _)| {
        let name = path.file_name()?.to_str()?.to_owned();
        let offset = name.get(..20)?.parse().ok()?;
        name.ends_with(suffix)
            .then(|| (offset, scratch.tier().join(path)))
    });
    let mut files: Vec<_> = files.collect();
    files.sort();
    files
}

/// Checks that what was read is what a consumer gets, or the start of it where the program failed.
fn check(run: &Run, partition: i32, from: i64, what: &str) {
    let whole = of_consumer(partition, from);
    assert!(!run.stderr.contains("panicked"), "{what}: {}", run.stderr);
    match run.code {
        Some(0) => assert!(run.text() == whole, "{what} from {from}: {}", run.stderr),
        Some(1) => assert!(
            whole.starts_with(&run.text()),
            "{what} from {from}: {}",
            run.stderr
        ),
        _ => panic!("{what} from {from}: {}", run.stderr),
    }
}

#[test]
fn a_damaged_log_lets_no_aborted_data_of_the_segments_before_it_through() {
    for partition in PARTITIONS {
        let scratch = tier_of(partition);
        let logs = files(&scratch, ".log");
        let first = logs[0].0;
        for (start, log) in &logs {
            let whole = fs::read(log).unwrap();
            let middle = whole.len() / 2;
            for damage in ["a checksum", "cut", "no batch", "an offset"] {
                let mut bytes = whole.clone();
                match damage {
                    "a checksum" => bytes[middle] ^= 1,
                    "cut" => bytes.truncate(middle),
                    "no batch" => bytes.fill(b'Z'),
                    // No checksum covers it.
                    _ => bytes[5] ^= 1,
                }
                fs::write(log, &bytes).unwrap();
                for from in [first, *start] {
                    if from != first && damage != "a checksum" {
                        continue;
                    }
                    let run = read_committed(&scratch, partition, from);
                    let what = format!("{partition}: {damage} at {start}");
                    assert_eq!(run.code, Some(1), "{what}: {}", run.stderr);
                    check(&run, partition, from, &what);
                }
            }
            fs::write(log, whole).unwrap();
        }
    }
}

#[test]
fn records_that_a_damaged_log_leaves_undecided_are_told() {
    let scratch = tier_of(0);
    let log = scratch.tier_file(349, ".log");
    let bytes = fs::read(&log).unwrap();
    fs::write(&log, &bytes[..bytes.len() / 2]).unwrap();
    // The first segment's last data of producer 2 is aborted at offset 391.
    let run = read_committed(&scratch, 0, 5);
    let run = run.fails(
        1,
        &[
            "note: the transaction that began at offset ",
            " cannot be followed to its end: records from there on are left out\n",
            "segment ",
            " at offset 349 is damaged",
        ],
    );
    check(&run, 0, 5, "cut");
}

#[test]
fn a_damaged_header_does_not_make_aborted_data_plain() {
    let scratch = tier_of(1);
    let log = scratch.tier_file(3, ".log");
    let whole = fs::read(&log).unwrap();
    // Offsets 12 to 14 are aborted.
    let aborted = Batches::new(&whole)
        .map(|batch| batch.unwrap())
        .find(|batch| batch.header().unwrap().base_offset() == 12)
        .unwrap()
        .position();
    for (at, bits, what) in [
        (22, 0x10, "not transactional"),
        (50, 1, "another producer"),
        (16, 3, "an old magic"),
    ] {
        let mut bytes = whole.clone();
        bytes[aborted + at] ^= bits;
        fs::write(&log, bytes).unwrap();
        let more = ["--offset", "3", "--read-committed", "--format", "raw"];
        let run = read(&scratch.url(), "payments", 1, &more).fails(1, &["is damaged"]);
        for batch in Batches::new(&run.stdout) {
            let last = batch.unwrap().last_offset().unwrap();
            assert!(last < 12, "{what}: {last}");
        }
    }
}

#[test]
fn what_a_transaction_index_says_changes_nothing() {
    for partition in PARTITIONS {
        for damage in ["lost", "empty", "cut", "of no aborts", "another's"] {
            let scratch = tier_of(partition);
            let indexes = files(&scratch, ".txnindex");
            let other = fs::read(&indexes[indexes.len() - 1].1).unwrap();
            for (_, index) in &indexes {
                let mut bytes = fs::read(index).unwrap();
                match damage {
                    "lost" => {
                        fs::remove_file(index).unwrap();
                        continue;
                    }
                    "empty" => bytes.clear(),
                    "cut" => bytes.truncate(bytes.len() - 1),
                    // Each transaction begins and ends at its marker.
                    "of no aborts" => {
                        for entry in bytes.chunks_mut(34) {
                            entry.copy_within(18..26, 10);
                        }
                    }
                    _ => bytes.clone_from(&other),
                }
                fs::write(index, bytes).unwrap();
            }
            let first = special_offset("payments", partition, "earliest");
            for from in [first, first + 100, first + 150] {
                let run = read_committed(&scratch, partition, from);
                assert_eq!(run.code, Some(0), "{damage}: {}", run.stderr);
                check(&run, partition, from, damage);
            }
        }
    }
}

#[test]
fn a_producer_snapshot_that_is_not_the_segments_hides_and_shows_nothing() {
    for partition in PARTITIONS {
        let scratch = tier_of(partition);
        let snapshots = files(&scratch, ".snapshot");
        let (newest, _) = snapshots[snapshots.len() - 1];
        let newest = scratch.tier_file(newest, ".snapshot");
        let last = special_offset("payments", partition, "latest_tiered");
        let first = special_offset("payments", partition, "earliest");
        for (of, other) in &snapshots {
            let other = fs::read(other).unwrap();
            fs::write(&newest, other).unwrap();
            for step in 0..=8 {
                let from = first + (last - first) * step / 8;
                if first_open("payments", partition, last).is_some_and(|open| from > open) {
                    continue;
                }
                let run = read_committed(&scratch, partition, from);
                assert_eq!(run.code, Some(0), "that of {of}: {}", run.stderr);
                check(&run, partition, from, &format!("that of {of}"));
            }
        }
    }
}

#[test]
fn behind_the_first_undecided_transaction_there_is_nothing() {
    let scratch = tier_of(0);
    let last = special_offset("payments", 0, "latest_tiered");
    let open = first_open("payments", 0, last).unwrap();
    for from in [open, open + 1, open + 20, last] {
        let run = read_committed(&scratch, 0, from);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        assert_eq!(run.text(), "");
        let note = format!("the transaction that began at offset {open} is open at the end");
        assert!(run.stderr.contains(&note), "{}", run.stderr);
    }
}

#[test]
fn without_a_producer_snapshot_the_log_alone_tells_what_is_open() {
    for damage in ["lost", "cut"] {
        let scratch = tier_of(0);
        let (_, newest) = files(&scratch, ".snapshot").pop().unwrap();
        let bytes = fs::read(&newest).unwrap();
        match damage {
            "lost" => fs::remove_file(&newest).unwrap(),
            _ => fs::write(&newest, &bytes[..bytes.len() - 1]).unwrap(),
        }
        for from in [0, 100, 300] {
            let run = read_committed(&scratch, 0, from);
            assert_eq!(run.code, Some(0), "{damage}: {}", run.stderr);
            check(&run, 0, from, damage);
            let note = format!(
                "note: nothing tells whether a transaction that began before offset {from} is open"
            );
            assert_eq!(run.stderr.contains(&note), from > 0, "{}", run.stderr);
        }
    }
}

#[test]
fn a_transaction_that_may_have_ended_in_a_missing_segment_is_not_decided() {
    for partition in PARTITIONS {
        let scratch = tier_of(partition);
        let logs = files(&scratch, ".log");
        let first = logs[0].0;
        for (start, log) in &logs[1..logs.len() - 1] {
            let away = log.with_extension("away");
            fs::rename(log, &away).unwrap();
            let run = read_committed(&scratch, partition, first);
            let whole = of_consumer(partition, first);
            assert_eq!(run.code, Some(1), "{start}: {}", run.stderr);
            assert!(whole.starts_with(&run.text()), "{start}: {}", run.stderr);
            let (_, behind) = run.stderr.split_once("--offset ").unwrap();
            let behind: i64 = behind.split_once(' ').unwrap().0.parse().unwrap();
            assert!(run.stderr.contains("cannot tell how the transaction"));
            let run = read_committed(&scratch, partition, behind);
            assert_eq!(run.code, Some(0), "{start}: {}", run.stderr);
            check(&run, partition, behind, "behind the gap");
            fs::rename(away, log).unwrap();
        }
    }
}

/// A partition whose first transaction ends behind more than is held in memory.
fn long_transaction(scratch: &Scratch, is_commit: bool) -> PathBuf {
    let mut files = SegmentFiles::new(0);
    files.append(&BatchSpec::new(0, 1, 500).of_transaction(1));
    for offset in 1..=70 {
        files.append(&BatchSpec::new(offset, 1, 1 << 20));
    }
    files.append_marker(1, (!is_commit).then_some((0, None)));
    files.append(&BatchSpec::new(72, 1, 500));
    made_partition(scratch, &files.roll())
}

/// The directory of `orders-0` with this closed segment, and no producers behind it.
pub(crate) fn made_partition(scratch: &Scratch, files: &SegmentFiles) -> PathBuf {
    let dir = scratch.partition("orders-0");
    for entry in fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap() != "partition.metadata" {
            fs::remove_file(path).unwrap();
        }
    }
    let write = |offset: i64, suffix: &str, bytes: &[u8]| {
        fs::write(dir.join(format!("{offset:020}{suffix}")), bytes).unwrap();
    };
    write(0, ".log", &files.log);
    write(0, ".index", &files.offset_index);
    write(0, ".timeindex", &files.time_index);
    if !files.txn_index.is_empty() {
        write(0, ".txnindex", &files.txn_index);
    }
    let next = files.last_offset + 1;
    write(next, ".log", &[]);
    let body = [0; 4];
    let snapshot = [&[0, 1], &crc32c::crc32c(&body).to_be_bytes()[..], &body].concat();
    write(next, ".snapshot", &snapshot);
    fs::write(dir.join("leader-epoch-checkpoint"), "0\n1\n0 0\n").unwrap();
    dir
}

#[test]
fn what_is_left_out_counts_in_the_budget_and_what_is_read_ahead_does_not() {
    let scratch = tier_of(1);
    let read_some = |offset: &str, max_bytes: &str| {
        let more = ["--offset", offset, "--read-committed", "--max-bytes"];
        read(
            &scratch.url(),
            "payments",
            1,
            &[&more[..], &[max_bytes]].concat(),
        )
        .ok()
    };
    // One batch each: of a committed transaction, whose marker comes later, and of an aborted one.
    assert!(read_some("4", "1").text() == committed("payments", 1, 4, 6));
    assert_eq!(read_some("12", "1").text(), "");
    let log = fs::read(scratch.tier_file(3, ".log")).unwrap();
    let up_to = |last: i64| {
        let batches = Batches::new(&log).map(|batch| batch.unwrap());
        let batches = batches.take_while(|batch| batch.last_offset().unwrap() <= last);
        batches.map(|batch| batch.size()).sum::<usize>()
    };
    for last in [11, 14, 15, 19] {
        let text = read_some("3", &up_to(last).to_string()).text();
        assert!(text == committed("payments", 1, 3, last), "up to {last}");
    }
}

#[test]
fn a_transaction_longer_than_what_is_held_is_decided_all_the_same() {
    for is_commit in [true, false] {
        let scratch = Scratch::new();
        scratch.copy(&long_transaction(&scratch, is_commit)).ok();
        let more = ["--offset", "0", "--read-committed", "--format", "raw"];
        let run = read(&scratch.url(), "orders", 0, &more).ok();
        let offsets: Vec<i64> = Batches::new(&run.stdout)
            .map(|batch| batch.unwrap().last_offset().unwrap())
            .collect();
        let expected = (i64::from(!is_commit)..=72).filter(|offset| *offset != 71);
        assert_eq!(offsets, expected.collect::<Vec<_>>());
    }
}
