//! Runs the program and looks at what it says.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

pub(crate) fn test_data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(path)
}

/// The partitions of the test data.
pub(crate) const PARTITIONS: [(&str, i32); 7] = [
    ("clicks.log-append_time", 0),
    ("orders", 0),
    ("orders", 1),
    ("orders", 2),
    ("payments", 0),
    ("payments", 1),
    ("trimmed", 0),
];

pub(crate) fn kafkas_tier() -> String {
    format!(
        "file://{}",
        test_data("tier/kafka-tiered-storage").display()
    )
}

/// What Kafka's own clients say of a partition.
pub(crate) fn expected(topic: &str, partition: i32) -> Value {
    let file = test_data("expected").join(format!("{topic}-{partition}.json"));
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

pub(crate) fn special_offset(topic: &str, partition: i32, name: &str) -> i64 {
    let expected = expected(topic, partition);
    expected["offsets"][name]["offset"].as_i64().unwrap()
}

/// The logs of a local partition, by base offset.
pub(crate) fn local_logs(topic: &str, partition: i32) -> Vec<Vec<u8>> {
    let dir = test_data("partitions").join(format!("{topic}-{partition}"));
    let mut logs: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    logs.sort();
    logs.iter().map(|log| fs::read(log).unwrap()).collect()
}

/// What Kafka's consumer returns of these offsets, line by line.
pub(crate) fn consumed(topic: &str, partition: i32, from: i64, to: i64) -> String {
    let file = test_data("expected").join(format!("{topic}-{partition}.records.ndjson"));
    let mut text = String::new();
    for line in fs::read_to_string(file).unwrap().lines() {
        let offset = serde_json::from_str::<Value>(line).unwrap()["offset"]
            .as_i64()
            .unwrap();
        if (from..=to).contains(&offset) {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// What a run of the program left.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Run {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).unwrap()
    }

    /// The JSON objects of the output, one a line.
    pub(crate) fn json(&self) -> Vec<Value> {
        self.text()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Checks that all was well and nothing was said of it.
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        assert_eq!(self.stderr, "");
        self
    }

    /// Checks the exit code, and that the error says these.
    pub(crate) fn fails(self, code: i32, says: &[&str]) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        for text in says {
            assert!(self.stderr.contains(text), "{text:?} in {}", self.stderr);
        }
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        self
    }
}

/// The program with these arguments, and nothing of the surroundings' stores.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_krabka-tier"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["AWS_", "AZURE_", "GOOGLE_"]
            .iter()
            .any(|start| text.starts_with(start))
        {
            command.env_remove(&name);
        }
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

pub(crate) fn finish(command: &mut Command) -> Run {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    Run {
        code: status.code(),
        stdout,
        stderr: String::from_utf8(stderr).unwrap(),
    }
}

pub(crate) fn run(arguments: &[&str]) -> Run {
    finish(&mut command(arguments))
}

/// A directory of a test's own, with a tier in it.
pub(crate) struct Scratch {
    root: TempDir,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        Self { root }
    }

    /// A tier with copies of partitions of the test data.
    pub(crate) fn with_tier_of(partitions: &[&str]) -> Self {
        let scratch = Self::new();
        for partition in partitions {
            scratch.copy(&test_data("partitions").join(partition)).ok();
        }
        scratch
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(crate) fn tier(&self) -> PathBuf {
        self.path("tier")
    }

    pub(crate) fn url(&self) -> String {
        format!("file://{}", self.tier().display())
    }

    /// Copies into the tier, with JSON for an answer.
    pub(crate) fn copy(&self, dir: &Path) -> Run {
        let dir = dir.to_str().unwrap();
        run(&["copy", dir, "--to", &self.url(), "--json"])
    }

    /// A copy of a partition of the test data, to be changed.
    pub(crate) fn partition(&self, name: &str) -> PathBuf {
        self.partition_as(name, name)
    }

    pub(crate) fn partition_as(&self, name: &str, new_name: &str) -> PathBuf {
        let dir = self.path("log").join(new_name);
        fs::create_dir_all(&dir).unwrap();
        for entry in fs::read_dir(test_data("partitions").join(name)).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), dir.join(entry.file_name())).unwrap();
        }
        dir
    }

    /// Every file in the tier, with its bytes, by path below the tier.
    pub(crate) fn tier_files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files = Vec::new();
        let mut dirs = vec![self.tier()];
        while let Some(dir) = dirs.pop() {
            let Ok(entries) = fs::read_dir(&dir) else {
                continue;
            };
            for entry in entries {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    dirs.push(path);
                } else {
                    let name = path.strip_prefix(self.tier()).unwrap().to_owned();
                    files.push((name, fs::read(&path).unwrap()));
                }
            }
        }
        files.sort();
        files
    }

    /// The one file of the tier whose name begins and ends like this.
    pub(crate) fn tier_file(&self, first_offset: i64, suffix: &str) -> PathBuf {
        self.tier_file_of("", first_offset, suffix)
    }

    /// The same in directories whose names begin like this.
    pub(crate) fn tier_file_of(&self, dir: &str, first_offset: i64, suffix: &str) -> PathBuf {
        let start = format!("{first_offset:020}-");
        let mut found = self.tier_files().into_iter().filter(|(path, _)| {
            let name = path.file_name().unwrap().to_str().unwrap();
            path.to_str().unwrap().starts_with(dir)
                && name.starts_with(&start)
                && name.ends_with(suffix)
        });
        let (path, _) = found.next().unwrap();
        assert!(found.next().is_none());
        self.tier().join(path)
    }
}
