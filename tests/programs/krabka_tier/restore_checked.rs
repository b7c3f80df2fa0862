//! `restore` checks what it wrote: a directory that is there is one that a broker can start from.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use krabka_remote_storage::index::Batches;

use super::committed::made_partition;
use super::restore::{files, names, restore};
use crate::support::program::{Scratch, test_data};
use krabka_remote_storage::testing::batches::{BatchSpec, SegmentFiles};

type Change = fn(&mut Vec<u8>);

fn change(file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(file).unwrap();
    change(&mut bytes);
    fs::write(file, bytes).unwrap();
}

#[test]
fn every_batch_that_is_restored_has_its_checksum_and_its_offsets() {
    let rows: [(&str, Change); 5] = [
        ("has leader epoch 3, and the checkpoint has 1", |log| {
            log[15] ^= 2;
        }),
        ("instead of", |log| *log.last_mut().unwrap() ^= 1),
        ("instead of", |log| log[9_000] ^= 1),
        // No checksum covers the offset, nor the length, nor the epoch.
        ("where 592 to 899 are left", |log| log[7] ^= 2),
        ("a batch begins, of which only", |log| log[9] ^= 1),
    ];
    for (says, damage) in rows {
        let scratch = Scratch::with_tier_of(&["orders-0"]);
        let whole = scratch.path("whole/orders-0");
        restore(&scratch.url(), "orders", 0, &whole, &[]).ok();
        change(&scratch.tier_file(564, ".log"), damage);
        let to = scratch.path("out/orders-0");
        let all = [
            "at offset 564 is damaged at position ",
            says,
            "--allow-gaps restores what there is",
        ];
        restore(&scratch.url(), "orders", 0, &to, &[]).fails(1, &all);
        assert_eq!(names(&scratch.path("out")), [] as [PathBuf; 0]);

        let run = restore(&scratch.url(), "orders", 0, &to, &["--allow-gaps"]);
        assert_eq!(run.code, Some(0), "{run:?}");
        assert_eq!(run.stderr.matches("is damaged at position").count(), 1);
        let mut expected = files(&whole);
        expected.retain(|name, _| {
            let is_of_564 = name.starts_with("00000000000000000564.");
            // The state before a segment is that after the one before.
            let is_before = name.ends_with(".snapshot");
            (!is_of_564 || is_before) && name != "00000000000000000900.snapshot"
        });
        assert!(files(&to) == expected, "{says}");
    }
}

#[test]
fn of_a_damaged_newer_copy_the_older_one_is_restored() {
    let scratch = Scratch::with_tier_of(&["orders-0"]);
    let whole = scratch.path("whole/orders-0");
    restore(&scratch.url(), "orders", 0, &whole, &[]).ok();
    let older = scratch.tier_file(564, ".log");
    let away = older.with_extension("away");
    fs::rename(&older, &away).unwrap();
    scratch.copy(&test_data("partitions/orders-0")).ok();
    let newer = scratch.tier_file(564, ".log");
    fs::rename(&away, &older).unwrap();
    let file = fs::File::options().write(true).open(&older).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_mins(1))
        .unwrap();
    change(&newer, |log| log[9_000] ^= 1);
    let to = scratch.path("out/orders-0");
    let run = restore(&scratch.url(), "orders", 0, &to, &[]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(
        run.stderr.contains("another copy is restored"),
        "{}",
        run.stderr
    );
    assert!(files(&to) == files(&whole));
}

#[test]
fn an_index_that_does_not_fit_its_log_is_refused_or_left_to_the_broker() {
    let rows: [(&str, &str, Change); 9] = [
        (".index", "entries, and the `.timeindex`", |index| {
            index.clear();
        }),
        (".index", "entries, and the `.timeindex`", |index| {
            index.truncate(index.len() / 16 * 8);
        }),
        (".index", "says that a batch begins at position", |index| {
            index[15] ^= 1;
        }),
        (".index", "has offset ", |index| index[11] -= 1),
        (".index", "is out of order behind entry", |index| {
            index[8..].reverse();
        }),
        (".timeindex", "ends before ", Vec::clear),
        (".timeindex", "ends before ", |index| {
            index.truncate(index.len() - 12);
        }),
        (".timeindex", "for the largest timestamp up to", |index| {
            index[19] ^= 1;
        }),
        (".timeindex", "no whole number of entries", |index| {
            index.push(0);
        }),
    ];
    for (suffix, says, damage) in rows {
        let scratch = Scratch::with_tier_of(&["orders-0"]);
        let whole = scratch.path("whole/orders-0");
        restore(&scratch.url(), "orders", 0, &whole, &[]).ok();
        change(&scratch.tier_file(564, suffix), damage);
        let to = scratch.path("out/orders-0");
        let object = format!("{suffix} ");
        let all = [
            "at offset 564 is damaged: ",
            &object,
            says,
            "--allow-missing",
        ];
        restore(&scratch.url(), "orders", 0, &to, &[]).fails(1, &all);
        assert_eq!(names(&scratch.path("out")), [] as [PathBuf; 0]);

        let more = ["--allow-missing", "--json"];
        let run = restore(&scratch.url(), "orders", 0, &to, &more);
        assert_eq!(run.code, Some(0), "{run:?}");
        assert!(run.stderr.contains(says), "{}", run.stderr);
        let mut expected = files(&whole);
        // A broker makes both anew where there is no offset index.
        expected.remove("00000000000000000564.index").unwrap();
        expected.remove("00000000000000000564.timeindex").unwrap();
        assert!(files(&to) == expected, "{suffix} {says}");
        assert_eq!(run.json()[0]["files"], expected.len());
        let bytes: usize = expected.values().map(Vec::len).sum();
        assert_eq!(run.json()[0]["size_bytes"], bytes);
    }
}

#[test]
fn the_zeros_of_a_preallocated_index_are_restored_with_it() {
    let scratch = Scratch::with_tier_of(&["orders-0"]);
    let (index, times) = (".index", ".timeindex");
    change(&scratch.tier_file(564, index), |index| {
        index.resize(8_192, 0);
    });
    change(&scratch.tier_file(564, times), |index| {
        index.resize(8_184, 0);
    });
    let to = scratch.path("orders-0");
    restore(&scratch.url(), "orders", 0, &to, &[]).ok();
    for suffix in [".log", index, times] {
        let tiered = fs::read(scratch.tier_file(564, suffix)).unwrap();
        let restored = fs::read(to.join(format!("{:020}{suffix}", 564))).unwrap();
        assert!(restored == tiered, "{suffix}");
    }
}

#[test]
fn a_transaction_index_that_does_not_fit_the_markers_of_its_log_is_refused() {
    let rows: [(&str, Option<Change>); 6] = [
        (
            "for the last stable offset behind",
            Some(|index| index[33] += 1),
        ),
        ("its `.txnindex` is not there, and a transaction", None),
        (
            "lacks the transaction that began at offset",
            Some(Vec::clear),
        ),
        (
            "lacks the transaction that began at offset",
            Some(|index| index.truncate(index.len() - 34)),
        ),
        ("began elsewhere", Some(|index| index[17] ^= 1)),
        (
            "where the log has no such marker",
            Some(|index| {
                // One more, aborted an offset later.
                index.extend_from_within(index.len() - 34..);
                let last = index.len() - 34;
                index[last + 25] += 1;
            }),
        ),
    ];
    for (says, damage) in rows {
        let scratch = Scratch::with_tier_of(&["payments-1"]);
        let index = scratch.tier_file(3, ".txnindex");
        match damage {
            None => fs::remove_file(index).unwrap(),
            Some(damage) => change(&index, damage),
        }
        let to = scratch.path("out/payments-1");
        let url = scratch.url();
        let all = ["at offset 3 is damaged: ", says, "--allow-missing"];
        restore(&url, "payments", 1, &to, &[]).fails(1, &all);
        assert_eq!(names(&scratch.path("out")), [] as [PathBuf; 0]);
        let run = restore(&url, "payments", 1, &to, &["--allow-missing"]);
        assert_eq!(run.code, Some(0), "{run:?}");
        for suffix in [".index", ".timeindex", ".txnindex"] {
            assert!(!to.join(format!("{:020}{suffix}", 3)).exists());
        }
        assert!(to.join(format!("{:020}.index", 176)).exists());
    }
}

#[test]
fn a_producer_snapshot_of_another_segment_is_refused_or_left_to_the_broker() {
    let scratch = Scratch::with_tier_of(&["payments-0"]);
    let other = fs::read(scratch.tier_file(10, ".snapshot")).unwrap();
    fs::write(scratch.tier_file(128, ".snapshot"), other).unwrap();
    let to = scratch.path("payments-0");
    let says = [
        "at offset 128 is damaged: ",
        ".snapshot has other producers",
    ];
    restore(&scratch.url(), "payments", 0, &to, &[]).fails(1, &says);
    let run = restore(&scratch.url(), "payments", 0, &to, &["--allow-missing"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(!to.join(format!("{:020}.snapshot", 232)).exists());
    assert!(to.join(format!("{:020}.snapshot", 242)).exists());
}

#[test]
fn a_batch_larger_than_what_is_read_at_once_is_checked_too() {
    let scratch = Scratch::new();
    let mut segment = SegmentFiles::new(0);
    for offset in 0..3 {
        segment.append(&BatchSpec::new(offset, 1, (3 << 20) + 7));
    }
    let dir = made_partition(&scratch, &segment.roll());
    scratch.copy(&dir).ok();
    let to = scratch.path("restored/orders-0");
    let url = scratch.url();
    restore(&url, "orders", 0, &to, &[]).ok();
    let log = format!("{:020}.log", 0);
    assert!(files(&to)[&log] == files(&dir)[&log]);
    change(&scratch.tier_file(0, ".log"), |log| log[5 << 20] ^= 1);
    let says = [
        "is damaged at position 3145735 of ",
        "batch at offset 1 has",
    ];
    restore(&url, "orders", 0, &scratch.path("x/orders-0"), &[]).fails(1, &says);
}

#[test]
fn another_log_under_a_segments_name_is_found_out() {
    let scratch = Scratch::with_tier_of(&["orders-0", "orders-1", "orders-2"]);
    let log = |partition: i32, first_offset: i64| {
        let dir = format!("orders-{partition}-");
        let files = scratch.tier_files().into_iter().map(|(path, _)| path);
        let mut files = files.filter(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            path.to_str().unwrap().starts_with(&dir)
                && name.starts_with(&format!("{first_offset:020}-"))
                && name.ends_with(".log")
        });
        scratch.tier().join(files.next().unwrap())
    };
    // Of a later segment; of an earlier one; of another partition, longer than its own, and shorter.
    for (of, from, says) in [
        ((2, 60), (2, 75), "has not the offsets 60 to 74"),
        ((0, 0), (0, 270), "the offsets 0 to 269 are not there"),
        ((0, 564), (1, 0), "ends at offset 245, before its segment"),
        ((1, 0), (0, 0), "at offset 0 is damaged"),
        ((0, 0), (1, 0), "offsets 246 to 269 are in no segment"),
    ] {
        let path = log(of.0, of.1);
        let own = fs::read(&path).unwrap();
        fs::copy(log(from.0, from.1), &path).unwrap();
        let to = scratch.path("out/x-0");
        restore(&scratch.url(), "orders", of.0, &to, &[]).fails(1, &[says]);
        assert!(!to.exists());
        fs::write(&path, own).unwrap();
    }
}

#[test]
fn an_index_that_does_not_fit_a_log_that_is_cut_is_told() {
    let scratch = Scratch::with_tier_of(&["orders-1"]);
    // Another partition's log, of batches that end where the next segment begins: the index is all
    // that tells.
    let log = scratch.tier_file(0, ".log");
    let own = fs::read(&log).unwrap();
    let other = fs::read(test_data("partitions/orders-0/00000000000000000000.log")).unwrap();
    let mut made = Vec::new();
    let mut next = 0;
    for batch in Batches::new(&other) {
        let batch = batch.unwrap();
        let last = batch.last_offset().unwrap();
        if last >= 246 {
            break;
        }
        made.extend_from_slice(batch.bytes());
        next = last + 1;
    }
    let fill = i32::try_from(246 - next).unwrap();
    made.extend(BatchSpec::new(next, fill, 500).make());
    made.extend(BatchSpec::new(246, 10, 500).make());
    assert_ne!(made, own);
    fs::write(&log, made).unwrap();
    let to = scratch.path("out/orders-1");
    let says = [
        "is cut before offset 246",
        "at offset 0 is damaged: ",
        ".index ",
    ];
    restore(&scratch.url(), "orders", 1, &to, &[]).fails(1, &says);
}
