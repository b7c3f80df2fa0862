//! An archive in a directory, and an auditor with the public key.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use futures::TryStreamExt as _;
use object_store::ObjectStore as _;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::archive::{Archive, KEY_ID, Key, PREFIX};
use crate::support::program::{Run, command, finish};

/// Directory of a test's own: the archive, and the auditor's files beside it.
pub(crate) struct Auditor {
    scratch: TempDir,
}

impl Auditor {
    /// Writes the archive's objects into files.
    pub(crate) async fn of(archive: &Archive) -> Self {
        let auditor = Self {
            scratch: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(auditor.path("store")).unwrap();
        auditor.write(archive).await;
        let key = Key::usual().public();
        fs::write(auditor.path("key.hex"), format!("{key}\n")).unwrap();
        auditor
    }

    async fn write(&self, archive: &Archive) {
        let objects: Vec<_> = archive.memory.list(None).try_collect().await.unwrap();
        for object in objects {
            let file = self.object(object.location.as_ref());
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, archive.get(object.location.as_ref()).await).unwrap();
        }
    }

    /// A file of the auditor's.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// The file of an object.
    pub(crate) fn object(&self, key: &str) -> PathBuf {
        self.path("store").join(key)
    }

    /// The program, told which key to trust; the store is named in `arguments`.
    pub(crate) fn trusting(&self, arguments: &[&str]) -> Command {
        let mut command = program(&["verify", "--key-id", KEY_ID, "--public-key"]);
        command.arg(self.path("key.hex")).args(arguments);
        command
    }

    /// The program on the archive in the directory.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.trusting(&["--prefix", PREFIX, "--local-dir"]);
        command.arg(self.path("store")).args(arguments);
        command
    }

    pub(crate) fn verify(&self, arguments: &[&str]) -> Run {
        finish(&mut self.command(arguments))
    }

    /// The JSON of a deep verification that ends with this code, and with nothing else than reasons
    /// on standard error.
    pub(crate) fn json(&self, code: i32, arguments: &[&str]) -> Value {
        let run = self.verify(&[&["--deep", "--format", "json"], arguments].concat());
        let run = run.fails(code, &[]);
        let [json] = run.json().try_into().unwrap();
        assert_eq!(json["exit_code"], code);
        json
    }
}

/// `krabka-worm-verify` with these arguments.
pub(crate) fn program(arguments: &[&str]) -> Command {
    // The surroundings are those of the other program's tests.
    let other = command(&[]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_krabka-worm-verify"));
    for (name, value) in other.get_envs() {
        assert_eq!(value, None);
        command.env_remove(name);
    }
    command.env_remove("RUST_LOG");
    command.args(arguments).stdin(Stdio::null());
    command
}
