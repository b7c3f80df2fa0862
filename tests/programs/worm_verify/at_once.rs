//! Two copies into one partition of an archive in a directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, PipeReader, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use super::copied::{Sealer, copied};

/// A copy that has sealed its first segment and cannot go on, as nobody reads what it says of it.
struct Stuck {
    child: Child,
    output: PipeReader,
}

/// `O_NONBLOCK` of Linux.
const NONBLOCKING: i32 = 0o4000;

impl Stuck {
    fn copying(sealer: &Sealer, dir: &Path) -> Self {
        let (output, input) = io::pipe().unwrap();
        // A pipe that is full.
        let mut fill = OpenOptions::new()
            .write(true)
            .custom_flags(NONBLOCKING)
            .open(format!("/proc/self/fd/{}", input.as_raw_fd()))
            .unwrap();
        for piece in [&[b'\n'; 4096][..], b"\n"] {
            while fill.write(piece).is_ok() {}
        }
        let mut command = sealer.command_here(dir);
        let child = command.stdout(input).stderr(Stdio::piped());
        let child = child.spawn().unwrap();
        let mut stuck = Self { child, output };
        while !has_sealed_one(sealer) {
            assert_eq!(stuck.child.try_wait().unwrap(), None);
            std::thread::sleep(Duration::from_millis(5));
        }
        stuck
    }

    /// Reads what it says, and lets it come to its end.
    fn go_on(mut self) {
        // The command's own end of the pipe went with it.
        self.output.read_to_end(&mut Vec::new()).unwrap();
        let ended = self.child.wait_with_output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Whether a manifest stands there, and no file is on its way. Such a file can go while one looks.
fn has_sealed_one(sealer: &Sealer) -> bool {
    let directories = fs::read_dir(sealer.scratch.tier()).into_iter().flatten();
    let files = directories.flat_map(|directory| fs::read_dir(directory.unwrap().path()));
    let names: Vec<_> = files
        .flatten()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.iter().any(|name| name.ends_with(".manifest"))
        && !names.iter().any(|name| name.ends_with(".tmp"))
}

/// The directory of the archive's only partition.
fn partition_of(sealer: &Sealer) -> PathBuf {
    let entries = fs::read_dir(sealer.scratch.tier()).unwrap();
    let mut dirs = entries.map(|e| e.unwrap().path()).filter(|p| p.is_dir());
    let dir = dirs.next().unwrap();
    assert_eq!(dirs.next(), None);
    dir
}

#[test]
fn a_second_copy_into_a_partition_is_refused_before_it_writes_and_the_first_goes_on() {
    let sealer = Sealer::new();
    let dir = sealer.scratch.partition("orders-0");
    let first = Stuck::copying(&sealer, &dir);
    let before = sealer.scratch.tier_files();
    let partition = partition_of(&sealer);
    sealer.seal_here(&dir).fails(
        1,
        &[
            partition.to_str().unwrap(),
            "another copy",
            "wait until it has ended",
        ],
    );
    assert_eq!(sealer.scratch.tier_files(), before);

    // Another partition has nothing to do with it.
    let other = sealer.scratch.partition("payments-0");
    sealer.seal_here(&other).ok();

    first.go_on();
    assert!(copied(&sealer.seal_here(&dir).ok()).is_empty());
    let said = sealer.verify(&["one"], &[]).ok().text();
    assert!(said.contains("over 2 partition"), "{said}");
}

#[test]
fn a_copy_that_was_killed_keeps_nobody_out() {
    let sealer = Sealer::new();
    let dir = sealer.scratch.partition("orders-0");
    Stuck::copying(&sealer, &dir).kill();
    assert_eq!(copied(&sealer.seal_here(&dir).ok()).len(), 5);
    let said = sealer.verify(&["one"], &[]).ok().text();
    assert!(said.contains("OK: 6 manifests over 1 partition"), "{said}");
}

#[test]
fn of_copies_that_begin_together_each_segment_is_sealed_once() {
    let sealer = Sealer::new();
    let dir = sealer.scratch.partition("orders-0");
    for _ in 0..3 {
        // Whoever comes second is refused, or finds all of it done.
        let mut commands: Vec<_> = (0..3).map(|_| sealer.command_here(&dir)).collect();
        let children = commands.iter_mut().map(|command| {
            let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
            command.spawn().unwrap()
        });
        let children: Vec<_> = children.collect();
        let ended = children.into_iter().map(|c| c.wait_with_output().unwrap());
        let mut succeeded = 0;
        for run in ended {
            let said = String::from_utf8(run.stderr).unwrap();
            succeeded += usize::from(run.status.success());
            assert!(
                run.status.success() || said.contains("another copy"),
                "{said}"
            );
        }
        assert!(succeeded > 0);
        let said = sealer.verify(&["one"], &[]).ok().text();
        assert!(said.contains("OK: 6 manifests over 1 partition"), "{said}");
        fs::remove_dir_all(sealer.scratch.tier()).unwrap();
    }
}

#[test]
fn a_lock_of_another_program_is_told_like_a_copy() {
    let sealer = Sealer::new();
    let dir = sealer.earlier("orders-0", 1422);
    sealer.seal_here(&dir).ok();
    let lock = File::open(partition_of(&sealer)).unwrap();
    lock.try_lock().unwrap();
    let whole = sealer.scratch.partition("orders-0");
    let before = sealer.scratch.tier_files();
    sealer.seal_here(&whole).fails(1, &["cannot lock"]);
    assert_eq!(sealer.scratch.tier_files(), before);
    // A reader needs no lock.
    sealer.verify(&["one"], &[]).ok();
    drop(lock);
    assert_eq!(copied(&sealer.seal_here(&whole).ok()).len(), 2);
}
