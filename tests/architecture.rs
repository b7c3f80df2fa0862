//! Holds the rules of the source tree: **a file uses lower levels and its own folder, nothing else**,
//! and **no file of a folder uses another that uses it**, be it through others.
//!
//! Two folders of one level don't know each other, so what they share stands below both of them. A
//! file or folder that is not in the table, a path that leads to the crate root (whose re-exports
//! are for callers), and a file that grew too long fail too.
//!
//! Tests in any file use `testing`.
//!
//! What is looked at are paths: methods of another file's types count where the type is named. In
//! circles, a file that only names a thing for others (`pub use`) does not use it, a file may use the
//! modules that it is a part of, and tests may use what uses them.

#[path = "architecture/sources.rs"]
mod sources;

use std::fs;
use std::path::Path;

use sources::{Source, Tree};

/// What stands directly below `src/`, and its level.
const LEVELS: [(&str, u8); 21] = [
    ("model", 0),
    ("error", 1),
    ("ops", 2),
    ("spi", 2),
    ("layout", 2),
    ("index", 2),
    ("archive", 3),
    ("metadata", 3),
    ("index_cache", 3),
    ("backends", 3),
    ("rebuild", 4),
    ("diskless", 4),
    ("layers", 4),
    ("segment", 4),
    ("stack", 5),
    ("reader", 6),
    ("sync_shim", 7),
    ("testing", 7),
    // The crate's root and its programs.
    ("lib", 8),
    ("main", 8),
    ("bin", 8),
];

/// A file that may use a folder above it: constructors of the model return the crate's one error,
/// which names identities of the model.
const EXCEPTIONS: [(&str, &str); 1] = [("model/segment.rs", "error")];

const MAX_LINES: usize = 600;

/// Files that are longer today. The list only becomes shorter.
const LONG_FILES_LEFT: [&str; 6] = [
    "backends/s3/mod.rs",
    "backends/local/tests.rs",
    "backends/object/mod.rs",
    "bin/krabka-tier/read/walk.rs",
    "error/classify.rs",
    "metadata/cache.rs",
];

/// Files that use each other today, directly or through others of their group. The list only
/// becomes shorter.
const CIRCLES_LEFT: [&[&str]; 7] = [
    &[
        "bin/krabka-tier/copy/bars.rs",
        "bin/krabka-tier/copy/holds.rs",
        "bin/krabka-tier/copy/plan.rs",
        "bin/krabka-tier/copy/report.rs",
        "bin/krabka-tier/copy/sealed.rs",
        "bin/krabka-tier/copy.rs",
        "bin/krabka-tier/tier.rs",
    ],
    &[
        "bin/krabka-worm-verify/args.rs",
        "bin/krabka-worm-verify/store.rs",
    ],
    &["diskless/entry.rs", "diskless/object.rs"],
    &["index/batch.rs", "index/header.rs", "index/record.rs"],
    &["metadata/assembly.rs", "metadata/dump.rs"],
    &[
        "metadata/topic/actor.rs",
        "metadata/topic/manager.rs",
        "metadata/topic/snapshot_store.rs",
    ],
    &[
        "metadata/topic/kafka/log.rs",
        "metadata/topic/kafka/provisioning.rs",
        "metadata/topic/kafka/publisher.rs",
        "metadata/topic/kafka/subscription.rs",
        "metadata/topic/kafka/watchdog.rs",
    ],
];

fn level(folder: &str) -> Option<u8> {
    let (_, level) = LEVELS.iter().find(|(name, _)| *name == folder)?;
    Some(*level)
}

/// What is wrong with the file at `path` (below `src/`, with `/`): one line for each fault.
fn faults(path: &str, text: &str) -> Vec<String> {
    faults_of(&Source::read(path, text))
}

fn faults_of(source: &Source) -> Vec<String> {
    let (path, lines) = (source.path.as_str(), source.lines);
    let mut faults = Vec::new();
    if lines > MAX_LINES && !LONG_FILES_LEFT.contains(&path) {
        faults.push(format!(
            "{path}: {lines} lines, at most {MAX_LINES}: split it"
        ));
    }
    let own = path.split('/').next().unwrap_or_default();
    let own = own.strip_suffix(".rs").unwrap_or(own);
    let Some(own_level) = level(own) else {
        faults.push(format!(
            "{path}: `{own}` has no level: give it one in the design"
        ));
        return faults;
    };
    for file in &source.elsewhere {
        if own != "bin" || !file.starts_with("bin/") {
            faults.push(format!("{path}: must not take in {file} by its path"));
        }
    }
    if own == "bin" {
        // A crate of its own: what it sees of the library is what callers see.
        return faults;
    }
    for used in source.uses.iter().filter(|used| used.module.is_none()) {
        let is_test = used.in_test || source.in_test;
        let used = used.path.first().map_or(ROOT, String::as_str);
        let excepted = EXCEPTIONS.contains(&(path, used)) || (used == "testing" && is_test);
        let fault = match level(used) {
            _ if used == own || excepted => continue,
            Some(below) if below < own_level => continue,
            Some(above) => format!("`{used}` (level {above})"),
            None if used == ROOT => "the crate root".to_owned(),
            None => format!("`{used}`, which has no level"),
        };
        faults.push(format!("{path}: level {own_level} must not use {fault}"));
    }
    faults
}

/// Stands for a path that names the crate's root itself, or all that is in it.
const ROOT: &str = "*";

fn walk(dir: &Path, below: &str, visit: &mut impl FnMut(&str, &str)) {
    let mut entries: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for entry in entries {
        let name = entry.file_name().unwrap().to_str().unwrap();
        let path = format!("{below}{name}");
        if entry.is_dir() {
            walk(&entry, &format!("{path}/"), visit);
        } else if Path::new(name)
            .extension()
            .is_some_and(|suffix| suffix == "rs")
        {
            visit(&path, &fs::read_to_string(&entry).unwrap());
        }
    }
}

fn tree() -> Tree {
    let mut sources = Vec::new();
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    walk(&src, "", &mut |path, text| {
        sources.push(Source::read(path, text));
    });
    assert!(sources.len() > 20, "only {} files", sources.len());
    Tree::new(sources)
}

#[test]
fn every_file_uses_lower_levels_and_its_own_folder_only() {
    let sources = tree().sources;
    let mut found: Vec<_> = sources.iter().flat_map(faults_of).collect();
    for path in LONG_FILES_LEFT {
        let mut long = sources.iter().filter(|source| source.lines > MAX_LINES);
        if !long.any(|source| source.path == path) {
            found.push(format!(
                "{path} is not too long: take it off LONG_FILES_LEFT"
            ));
        }
    }
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn no_files_use_each_other() {
    let tree = tree();
    let mut circles = tree.circles();
    let mut gone = CIRCLES_LEFT.to_vec();
    gone.retain(|left| circles.remove(*left).is_none());
    assert!(
        circles.is_empty() && gone.is_empty(),
        "new circles: {circles:#?}\nto be taken off CIRCLES_LEFT: {gone:#?}"
    );
}

/// The circles of these files.
fn circles(files: &[(&str, &str)]) -> Vec<String> {
    let sources = files.iter().map(|(path, text)| Source::read(path, text));
    let tree = Tree::new(sources.collect());
    let circles = tree.circles().into_keys();
    circles.map(|circle| circle.join(" ")).collect()
}

#[test]
fn files_that_use_each_other_are_found() {
    for (what, a, b) in [
        (
            "imports",
            "use super::b::B; struct A;",
            "use crate::x::a::A; struct B;",
        ),
        (
            "a path in a body",
            "fn f() { super::b::g() }",
            "fn g() { crate::x::a::f() }",
        ),
        (
            "a module's name",
            "use super::b; fn f() { b::g() }",
            "use super::a; fn g() { a::f() }",
        ),
        (
            "what the folder names for others",
            "use super::G; fn f() {}",
            "use crate::x::F; fn g() {}",
        ),
        (
            "what a macro is given",
            "fn f() { m!(super::b::g()) }",
            "fn g() { m!([crate::x::a::f()]) }",
        ),
        (
            "in a module of its own",
            "mod m { use super::super::b::g; }",
            "use crate::x::a::m; fn g() {}",
        ),
        (
            "a name for others that is used here",
            "pub use super::b::g; fn f() { g() }",
            "use super::a::f; fn g() {}",
        ),
        (
            "all of a file",
            "use super::b::*; fn f() {}",
            "use super::a::*; fn g() {}",
        ),
    ] {
        let root = "mod a; mod b; pub use a::f as F; pub use b::g as G;";
        let found = circles(&[("x/a.rs", a), ("x/b.rs", b), ("x/mod.rs", root)]);
        assert_eq!(found, ["x/a.rs x/b.rs"], "{what}");
    }
    let third = [
        ("x/a.rs", "use super::b::B;"),
        ("x/b.rs", "use super::c::C; struct B;"),
        ("x/c.rs", "use super::a; struct C;"),
    ];
    assert_eq!(circles(&third), ["x/a.rs x/b.rs x/c.rs"]);
    let program = [
        ("bin/p/a.rs", "use crate::b::B;"),
        ("bin/p/b.rs", "use crate::a; struct B;"),
        ("bin/p/main.rs", "mod a; mod b;"),
    ];
    assert_eq!(circles(&program), ["bin/p/a.rs bin/p/b.rs"]);
}

#[test]
fn files_that_do_not_use_each_other_make_no_circle() {
    for (what, a, b) in [
        ("one way", "use super::b::B; struct A;", "struct B;"),
        (
            "tests",
            "use super::b::B; struct A;",
            "struct B; #[cfg(test)] mod tests { use super::super::a::A; }",
        ),
        (
            "a name for others",
            "pub use super::b::B; struct A;",
            "use super::a::A; struct B;",
        ),
        (
            "what the folder itself has",
            "use super::{Own, b::B};",
            "use super::Own; struct B;",
        ),
        (
            "a variable",
            "use super::b::B;",
            "fn f(a: u8) { let b = a; }",
        ),
        (
            "docs",
            "use super::b::B;",
            "//! Of [`a`](super::a).\nstruct B;",
        ),
        (
            "a name of another crate",
            "use super::b::B;",
            "use a::x; struct B;",
        ),
    ] {
        let root = "mod a; mod b; pub use b::B as Named; struct Own; fn f() { a::f() }";
        let found = circles(&[("x/a.rs", a), ("x/b.rs", b), ("x/mod.rs", root)]);
        assert_eq!(found, [""; 0], "{what}");
    }
    let tests = [
        ("x.rs", "mod a; #[cfg(test)] mod tests;"),
        ("x/a.rs", "use super::tests::T; struct A;"),
        ("x/tests.rs", "use super::a::A; struct T;"),
    ];
    assert_eq!(circles(&tests), [""; 0]);
}

#[test]
fn files_of_the_library_do_not_get_into_a_program_by_their_path() {
    let taken = "#[path = \"../../model/ids.rs\"] mod ids;";
    assert_eq!(
        faults("bin/p/main.rs", taken),
        ["bin/p/main.rs: must not take in model/ids.rs by its path"]
    );
    let shared = "#[path = \"../console/mod.rs\"] mod console;";
    assert_eq!(faults("bin/p/main.rs", shared), [""; 0]);
    assert_eq!(faults("ops.rs", "#[path = \"bin/p/x.rs\"] mod x;").len(), 1);
}

#[test]
fn a_file_that_keeps_the_rule_has_no_fault() {
    for (path, text) in [
        (
            "lib.rs",
            "pub mod model; pub use sync_shim::X; pub use crate::stack::Y;",
        ),
        (
            "model/ids.rs",
            "use super::LeaderEpoch; use crate::model::state::X;",
        ),
        ("model/segment.rs", "use crate::error::RemoteStorageError;"),
        (
            "error/mod.rs",
            "use crate::model::{OpKind, CopyPhase}; mod worm; use self::worm::X;",
        ),
        (
            "ops.rs",
            "mod activity; pub use activity::A; pub(crate) fn f() {}",
        ),
        (
            "ops/activity.rs",
            "use super::StorageOp; use crate::ops::Get;",
        ),
        (
            "layers/retry.rs",
            "use crate::{error::E, ops::{self, Get}, model};",
        ),
        (
            "backends/object.rs",
            "impl X { fn f(&self) -> u8 { self.a + self::g() } }\n\
             #[cfg(test)] mod tests { use super::super::client::C; use super::*; }",
        ),
        (
            "sync_shim/mod.rs",
            "use crate::stack::RemoteStorage; use crate::reader::R;",
        ),
        (
            "bin/krabka-tier/main.rs",
            "use crate::args::Args; use krabka_remote_storage::X;",
        ),
        (
            "model/state.rs",
            "//! Comments may speak of `crate::stack::RemoteStorage`.\n\
             /// And so may [docs](crate::reader).\n\
             fn f() { g(\"\\\"use crate::stack::X;\", '\"', '\\'', r#\"\"crate::reader\"#); }\n\
             /* crate::stack /* */ crate::stack */ fn g<'a>(x: &'a u8) {}",
        ),
        (
            "model/state.rs",
            "#[cfg(test)] mod tests { use crate::testing::segments::orders; }",
        ),
        (
            "layout/tier.rs",
            "pub(in crate::layout) fn f<'a>(x: &'a str) {}",
        ),
    ] {
        assert_eq!(faults(path, text), [""; 0], "{path}");
    }
}

#[test]
#[allow(clippy::too_many_lines)] // It is a table.
fn a_file_that_breaks_the_rule_is_found() {
    for (path, text, used) in [
        // A level above, however the path is written.
        (
            "model/ids.rs",
            "use crate::error::RemoteStorageError;",
            "`error` (level 1)",
        ),
        (
            "error/mod.rs",
            "pub use crate::ops::StorageOp;",
            "`ops` (level 2)",
        ),
        (
            "error/mod.rs",
            "pub(crate) use crate::ops::StorageOp;",
            "`ops` (level 2)",
        ),
        ("ops.rs", "use crate::stack;", "`stack` (level 5)"),
        (
            "ops.rs",
            "use crate::{\n    error::E,\n    reader::{\n        A,\n    },\n};",
            "`reader` (level 6)",
        ),
        (
            "ops.rs",
            "use crate::{error::{self, X}, model, stack::S as T};",
            "`stack` (level 5)",
        ),
        (
            "ops.rs",
            "use crate\n    ::\n    layers::Retry;",
            "`layers` (level 4)",
        ),
        ("ops.rs", "use super::layers::Retry;", "`layers` (level 4)"),
        (
            "ops/activity.rs",
            "use super::super::layers::Retry;",
            "`layers` (level 4)",
        ),
        (
            "ops/activity.rs",
            "use super::{super::layers::Retry, Get};",
            "`layers` (level 4)",
        ),
        (
            "ops/activity.rs",
            "use self::super::super::layers::R;",
            "`layers` (level 4)",
        ),
        (
            "index/mod.rs",
            "use super::{archive::A, error::E};",
            "`archive` (level 3)",
        ),
        (
            "ops/activity.rs",
            "mod tests { use super::super::super::{layers::Retry}; }",
            "`layers` (level 4)",
        ),
        (
            "model/state.rs",
            "fn f() -> crate::error::RemoteStorageError { todo!() }",
            "`error` (level 1)",
        ),
        (
            "model/state.rs",
            "fn f() { x!(\"{}\", [crate::error::f()]); }",
            "`error` (level 1)",
        ),
        (
            "model/state.rs",
            "macro_rules! m { () => { $crate::error::f() } }",
            "`error` (level 1)",
        ),
        (
            "model/state.rs",
            "#[derive(X)] #[x(crate::error::f)] struct S;",
            "`error` (level 1)",
        ),
        (
            "layers/retry.rs",
            "use crate::testing::X;",
            "`testing` (level 7)",
        ),
        (
            "layers/retry.rs",
            "use crate::sync_shim::X;",
            "`sync_shim` (level 7)",
        ),
        // Another folder of the same level.
        (
            "layers/retry.rs",
            "use crate::segment::Copier;",
            "`segment` (level 4)",
        ),
        (
            "backends/client.rs",
            "use crate::{error::E, layers::Retry};",
            "`layers` (level 4)",
        ),
        (
            "spi/mod.rs",
            "use crate::layout::kafka_uuid;",
            "`layout` (level 2)",
        ),
        (
            "metadata/cache.rs",
            "use crate::archive::Manifest;",
            "`archive` (level 3)",
        ),
        // The exception is for one file and one folder.
        (
            "model/segment.rs",
            "use crate::ops::Get;",
            "`ops` (level 2)",
        ),
        (
            "model/segment_data.rs",
            "use crate::error::E;",
            "`error` (level 1)",
        ),
        // The root, whose re-exports hide where a name comes from.
        (
            "ops.rs",
            "use crate::RemoteStorageError;",
            "`RemoteStorageError`, which has no level",
        ),
        ("ops.rs", "use crate::*;", "the crate root"),
        ("ops.rs", "use crate::{*};", "the crate root"),
        ("ops.rs", "use crate::{self as root};", "the crate root"),
        ("ops.rs", "use super::*;", "the crate root"),
        (
            "reader/mod.rs",
            "use crate::utils::x;",
            "`utils`, which has no level",
        ),
    ] {
        let found = faults(path, text);
        assert_eq!(found.len(), 1, "{path}: {text}: {found:?}");
        assert!(
            found[0].ends_with(&format!("must not use {used}")),
            "{path}: {text}: {found:?}"
        );
    }
}

#[test]
fn every_use_of_a_line_is_looked_at() {
    let found = faults(
        "ops.rs",
        "use crate::{stack::A, model::B, reader::C}; use crate::layers::D; fn f(x: crate::spi::E) {}",
    );
    assert_eq!(found.len(), 4, "{found:?}");
}

#[test]
fn a_folder_without_a_level_is_found() {
    for path in ["utils/mod.rs", "helpers.rs", "topic/codec.rs"] {
        let found = faults(path, "fn f() {}");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("has no level"), "{found:?}");
    }
}

#[test]
fn a_file_that_grew_too_long_is_found() {
    let longest = "\n".repeat(MAX_LINES);
    assert_eq!(faults("ops.rs", &longest), [""; 0]);
    let found = faults("bin/krabka-tier/main.rs", &format!("{longest}\n"));
    assert_eq!(
        found,
        ["bin/krabka-tier/main.rs: 601 lines, at most 600: split it"]
    );
}
