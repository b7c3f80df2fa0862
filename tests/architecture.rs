//! Holds the rule of the source tree: **a file uses lower levels and its own folder, nothing else**.
//!
//! Two folders of one level don't know each other, so what they share stands below both of them. A
//! file or folder that is not in the table, a path that leads to the crate root (whose re-exports
//! are for callers), and a file that grew too long fail too.

use std::fs;
use std::path::Path;

/// What stands directly below `src/`, and its level.
const LEVELS: [(&str, u8); 18] = [
    ("model", 0),
    ("error", 1),
    ("ops", 2),
    ("spi", 2),
    ("layout", 2),
    ("index", 2),
    ("archive", 3),
    ("metadata", 3),
    ("rebuild", 4),
    ("diskless", 4),
    ("layers", 4),
    ("backends", 4),
    ("stack", 5),
    ("reader", 6),
    ("sync_shim", 7),
    // The crate's root and its programs.
    ("lib", 8),
    ("main", 8),
    ("bin", 8),
];

/// A file that may use a folder above it: constructors of the model return the crate's one error,
/// which names identities of the model.
const EXCEPTIONS: [(&str, &str); 1] = [("model/segment.rs", "error")];

const MAX_LINES: usize = 650;

fn level(folder: &str) -> Option<u8> {
    let (_, level) = LEVELS.iter().find(|(name, _)| *name == folder)?;
    Some(*level)
}

/// What is wrong with the file at `path` (below `src/`, with `/`): one line for each fault.
fn faults(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let lines = text.lines().count();
    if lines > MAX_LINES {
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
    if own == "bin" {
        // A crate of its own: it sees what callers see.
        return faults;
    }
    let mut uses = Vec::new();
    for path in paths(&tokens(text), &module_of(path)) {
        uses.push(path.into_iter().next().unwrap_or_else(|| ROOT.to_owned()));
    }
    for used in uses {
        let excepted = EXCEPTIONS.contains(&(path, used.as_str()));
        let fault = match level(&used) {
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

fn module_of(path: &str) -> Vec<String> {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let mut module: Vec<String> = path.split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|last| last == "mod") || path == "lib" || path == "main" {
        module.pop();
    }
    module
}

/// A word or a sign of Rust. Comments, texts, characters and lifetimes are left out.
#[derive(Debug, PartialEq)]
enum Token<'a> {
    Word(&'a str),
    PathSeparator,
    Sign(char),
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if let Some(length) = raw_text(rest) {
            length
        } else if first == '"' {
            quoted(rest, '"')
        } else if first == '\'' {
            let is_character =
                rest[1..].starts_with('\\') || rest[1..].chars().nth(1) == Some('\'');
            if is_character {
                quoted(rest, '\'')
            } else {
                1 + rest[1..].find(|c| !is_word(c)).unwrap_or(rest.len() - 1)
            }
        } else if is_word(first) {
            let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            tokens.push(Token::Word(&rest[..length]));
            length
        } else if rest.starts_with("::") {
            tokens.push(Token::PathSeparator);
            2
        } else {
            if !first.is_whitespace() {
                tokens.push(Token::Sign(first));
            }
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    tokens
}

/// Length of the (nested) comment that the text begins with.
fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while let Some(found) = text[at..].find(['/', '*']) {
        at += found;
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// Length of the raw text (`r"…"`, `br#"…"#`) that the text begins with, if it does.
fn raw_text(text: &str) -> Option<usize> {
    let marked = ["r", "br", "cr"]
        .iter()
        .find_map(|mark| text.strip_prefix(mark))?;
    let hashes = marked.len() - marked.trim_start_matches('#').len();
    let content = marked[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = content
        .find(&end)
        .map_or(content.len(), |at| at + end.len());
    Some(text.len() - content.len() + length)
}

/// Length of the text or character between two quotes that the text begins with.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Every path that begins with `crate`, `super` or `self`, wherever it stands, from the crate's
/// root on. Each path in a group is one of its own.
fn paths(tokens: &[Token<'_>], module: &[String]) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let mut module = module.to_vec();
    // The depths of the blocks of the inline modules that this place is in.
    let mut blocks = Vec::new();
    let mut depth = 0;
    let mut rest = tokens;
    loop {
        rest = match rest {
            [] => return paths,
            [
                Token::Word("mod"),
                Token::Word(name),
                Token::Sign('{'),
                after @ ..,
            ] => {
                depth += 1;
                blocks.push(depth);
                module.push((*name).to_owned());
                after
            }
            [Token::Sign('{'), after @ ..] => {
                depth += 1;
                after
            }
            [Token::Sign('}'), after @ ..] => {
                if blocks.last() == Some(&depth) {
                    blocks.pop();
                    module.pop();
                }
                depth -= 1;
                after
            }
            [
                Token::Word("crate" | "super" | "self"),
                Token::PathSeparator,
                ..,
            ] => follow(rest, module.clone(), &mut paths),
            [_, after @ ..] => after,
        };
    }
}

/// Reads one path, which begins in module `from`, and answers what comes after it.
fn follow<'a, 't>(
    mut rest: &'a [Token<'t>],
    mut from: Vec<String>,
    paths: &mut Vec<Vec<String>>,
) -> &'a [Token<'t>] {
    while let [Token::Word(word), after @ ..] = rest {
        match *word {
            "crate" => from.clear(),
            "super" => {
                from.pop();
            }
            "self" => {}
            name => from.push(name.to_owned()),
        }
        rest = after;
        match rest {
            [Token::PathSeparator, Token::Sign('{'), after @ ..] => {
                rest = after;
                while !matches!(rest, [] | [Token::Sign('}'), ..]) {
                    rest = follow(rest, from.clone(), paths);
                    // ` as name`, and the comma.
                    while !matches!(rest, [] | [Token::Sign('}' | ','), ..]) {
                        rest = &rest[1..];
                    }
                    if let [Token::Sign(','), after @ ..] = rest {
                        rest = after;
                    }
                }
                return rest.get(1..).unwrap_or_default();
            }
            [Token::PathSeparator, after @ ..] => rest = after,
            _ => break,
        }
    }
    paths.push(from);
    rest
}

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

#[test]
fn every_file_uses_lower_levels_and_its_own_folder_only() {
    let mut files = 0;
    let mut found = Vec::new();
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    walk(&src, "", &mut |path, text| {
        files += 1;
        found.extend(faults(path, text));
    });
    assert!(files > 20, "only {files} files found below src/");
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
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
            "use crate::sync_shim::X;",
            "`sync_shim` (level 7)",
        ),
        // Another folder of the same level.
        (
            "layers/retry.rs",
            "use crate::backends::Store;",
            "`backends` (level 4)",
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
        ["bin/krabka-tier/main.rs: 651 lines, at most 650: split it"]
    );
}
