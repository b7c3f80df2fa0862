//! Tiers from which something is missing or in which something is wrong: `read` finds another way to
//! the records where there is one, and says so.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use krabka_remote_storage::index::Batches;

use crate::support::program::{Run, Scratch, consumed, run, test_data};

fn read(scratch: &Scratch, offset: i64) -> Run {
    let offset = offset.to_string();
    run(&[
        "read",
        &scratch.url(),
        "--topic",
        "orders",
        "--partition",
        "0",
        "--offset",
        &offset,
    ])
}

/// Writes the tier's second copy of a segment: under an id of its own, and younger.
fn second_copy(scratch: &Scratch, first_offset: i64) -> PathBuf {
    let log = scratch.tier_file(first_offset, ".log");
    let away = log.with_extension("away");
    fs::rename(&log, &away).unwrap();
    scratch.copy(&test_data("partitions/orders-0")).ok();
    let second = scratch.tier_file(first_offset, ".log");
    fs::rename(&away, &log).unwrap();
    written(&log, SystemTime::now() - Duration::from_mins(1));
    second
}

fn written(file: &Path, when: SystemTime) {
    let file = fs::File::options().write(true).open(file).unwrap();
    file.set_modified(when).unwrap();
}

fn change(file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let modified = fs::metadata(file).unwrap().modified().unwrap();
    let mut bytes = fs::read(file).unwrap();
    change(&mut bytes);
    fs::write(file, bytes).unwrap();
    written(file, modified);
}

#[test]
fn a_segment_whose_offset_index_is_lost_is_read_from_its_start() {
    let scratch = Scratch::with_tier_of(&["orders-0"]);
    fs::remove_file(scratch.tier_file(564, ".index")).unwrap();
    for offset in [565, 700, 899] {
        let run = read(&scratch, offset);
        assert_eq!(run.code, Some(0), "{run:?}");
        assert!(run.text() == consumed("orders", 0, offset, 1734));
        assert!(
            run.stderr.starts_with("note: the log of segment ")
                && run.stderr.contains(" is read from its start, offset 564: "),
            "{}",
            run.stderr
        );
    }
    // What begins at or before the segment's start needs no index.
    for offset in [0, 564, 900] {
        assert!(read(&scratch, offset).ok().text() == consumed("orders", 0, offset, 1734));
    }
}

#[test]
fn an_offset_index_that_does_not_fit_its_log_does_not_hide_records() {
    let scratch = Scratch::with_tier_of(&["orders-0"]);
    for wrong in ["position", "length", "another segment's"] {
        change(&scratch.tier_file(564, ".index"), |index| match wrong {
            // The second entry's position is within a batch.
            "position" => index[15] ^= 1,
            "length" => index.truncate(5),
            _ => *index = fs::read(scratch.tier_file(900, ".index")).unwrap(),
        });
        for offset in [600, 880, 899] {
            let run = read(&scratch, offset);
            assert_eq!(run.code, Some(0), "{wrong}: {run:?}");
            assert!(run.text() == consumed("orders", 0, offset, 1734), "{wrong}");
        }
    }
}

#[test]
fn lost_leader_epochs_are_read_from_the_batches() {
    for first_offset in [0, 564, 1422] {
        let scratch = Scratch::with_tier_of(&["orders-0"]);
        let checkpoint = scratch.tier_file(first_offset, ".leader_epoch_checkpoint");
        for lost in [false, true] {
            if lost {
                fs::remove_file(&checkpoint).unwrap();
            } else {
                fs::write(&checkpoint, "0\n9\n0 0\n").unwrap();
            }
            for offset in [0, 700, 1500] {
                let run = read(&scratch, offset);
                assert_eq!(run.code, Some(0), "{run:?}");
                assert!(run.text() == consumed("orders", 0, offset, 1734));
                let says = format!("at offset {first_offset} were read from its batches");
                assert!(run.stderr.contains(&says), "{}", run.stderr);
            }
            let ls = run(&["ls", &scratch.url(), "--json"]);
            let ls = ls.fails(1, &["is damaged", "1 segment is damaged"]).json();
            let segments = ls[0]["segments"].as_array().unwrap();
            let damaged = segments.iter().filter(|s| s["damage"].is_string());
            let damaged: Vec<_> = damaged
                .map(|s| s["first_offset"].as_i64().unwrap())
                .collect();
            assert_eq!(damaged, [first_offset]);
            assert!(
                segments
                    .iter()
                    .all(|segment| segment["last_offset"].is_i64())
            );
        }
    }
}

#[test]
fn a_checkpoint_of_another_segment_hides_no_records() {
    let scratch = Scratch::with_tier_of(&["orders-0"]);
    let checkpoint = |first_offset| scratch.tier_file(first_offset, ".leader_epoch_checkpoint");
    let starts = [0, 270, 564, 900, 1152, 1422];
    for first_offset in starts {
        let own = fs::read(checkpoint(first_offset)).unwrap();
        for of in starts {
            let others = fs::read(checkpoint(of)).unwrap();
            fs::write(checkpoint(first_offset), others).unwrap();
            let run = read(&scratch, 0);
            assert_eq!(run.code, Some(0), "{run:?}");
            assert!(
                run.text() == consumed("orders", 0, 0, 1734),
                "{first_offset} has that of {of}"
            );
        }
        fs::write(checkpoint(first_offset), own).unwrap();
    }
}

#[test]
fn a_damaged_older_copy_stops_no_read() {
    for first_offset in [0, 564, 1422] {
        let scratch = Scratch::with_tier_of(&["orders-0"]);
        let first = scratch.tier_file(first_offset, ".log");
        second_copy(&scratch, first_offset);
        for damage in ["cut", "no batch", "lost checkpoint"] {
            match damage {
                "cut" => change(&first, |log| log.truncate(1000)),
                "no batch" => change(&first, |log| log.fill(b'Z')),
                _ => {
                    let name = first.to_str().unwrap().replace(".log", "");
                    fs::remove_file(format!("{name}.leader_epoch_checkpoint")).unwrap();
                }
            }
            for offset in [0, 600, 1734] {
                let text = read(&scratch, offset).ok().text();
                assert!(text == consumed("orders", 0, offset, 1734), "{damage}");
            }
        }
    }
}

#[test]
fn of_a_damaged_newer_copy_the_older_one_is_read() {
    let scratch = Scratch::with_tier_of(&["orders-0"]);
    let second = second_copy(&scratch, 564);
    for damage in ["a record", "cut"] {
        change(&second, |log| match damage {
            "a record" => log[9_000] ^= 1,
            _ => log.truncate(10_000),
        });
        for offset in [0, 600, 890] {
            let run = read(&scratch, offset);
            assert_eq!(run.code, Some(0), "{damage}: {run:?}");
            assert!(
                run.text() == consumed("orders", 0, offset, 1734),
                "{damage}"
            );
        }
        let run = read(&scratch, 564);
        assert!(run.stderr.contains("at offset 564 is damaged"), "{run:?}");
        assert!(
            run.stderr.contains("another copy is read from offset "),
            "{run:?}"
        );
    }
    // Without another copy it is an error, after what was read.
    let ids: Vec<_> = fs::read_dir(second.parent().unwrap()).unwrap().collect();
    for entry in ids {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with("00000000000000000564-")
            && path.with_extension("") != second.with_extension("")
        {
            fs::remove_file(path).unwrap();
        }
    }
    let run = read(&scratch, 500).fails(1, &["at offset 564 is damaged", "caused by"]);
    assert!(!run.text().is_empty());
    assert!(consumed("orders", 0, 500, 899).starts_with(&run.text()));
}

#[test]
fn what_may_hold_the_wanted_offsets_and_is_damaged_is_an_error_and_no_gap() {
    let scratch = Scratch::with_tier_of(&["orders-0"]);
    let log = scratch.tier_file(564, ".log");
    let bytes = fs::read(&log).unwrap();
    fs::write(&log, b"no batch").unwrap();
    let run = read(&scratch, 500).fails(1, &["at offset 564 is damaged"]);
    assert!(run.text() == consumed("orders", 0, 500, 563));
    assert!(read(&scratch, 900).ok().text() == consumed("orders", 0, 900, 1734));
    fs::write(&log, bytes).unwrap();

    let last = scratch.tier_file(1422, ".log");
    change(&last, |log| log.truncate(log.len() - 1));
    for offset in [1300, 1422, 1500, 3000] {
        read(&scratch, offset).fails(1, &["at offset 1422 is damaged"]);
    }
}

#[test]
fn records_that_a_later_leader_did_not_take_over_are_not_read() {
    let scratch = Scratch::new();
    // A leader of epoch 0 wrote on to offset 563 and copied that. (The epoch is in no checksum.)
    let dir = scratch.partition("orders-0");
    let file = |offset: i64, suffix: &str| dir.join(format!("{offset:020}{suffix}"));
    let log = fs::read(file(270, ".log")).unwrap();
    let mut lost = log.clone();
    let mut of_epoch_1 = 0;
    for batch in Batches::new(&log) {
        let batch = batch.unwrap();
        let at = batch.position();
        lost[at + 12..at + 16].fill(0);
        if batch.header().unwrap().base_offset() < 450 {
            of_epoch_1 = at + batch.size();
        }
    }
    fs::write(file(270, ".log"), lost).unwrap();
    let checkpoint = fs::read(dir.join("leader-epoch-checkpoint")).unwrap();
    fs::write(dir.join("leader-epoch-checkpoint"), "0\n1\n0 0\n").unwrap();
    for offset in [900, 1152, 1422, 1735] {
        for suffix in [".log", ".index", ".timeindex"] {
            fs::remove_file(file(offset, suffix)).unwrap();
        }
    }
    scratch.copy(&dir).ok();
    // The leader of epoch 1 had its records up to 449 only, and rolled its log there.
    fs::remove_dir_all(&dir).unwrap();
    scratch.partition("orders-0");
    for offset in [0, 270] {
        for suffix in [".log", ".index", ".timeindex"] {
            fs::remove_file(file(offset, suffix)).unwrap();
        }
    }
    fs::write(file(450, ".log"), &log[of_epoch_1..]).unwrap();
    fs::write(file(450, ".index"), "").unwrap();
    fs::write(file(450, ".timeindex"), "").unwrap();
    fs::write(dir.join("leader-epoch-checkpoint"), checkpoint).unwrap();
    scratch.copy(&dir).ok();

    for offset in [0, 300, 449, 450, 500] {
        let text = read(&scratch, offset).ok().text();
        assert!(text == consumed("orders", 0, offset, 1734), "from {offset}");
    }
}
