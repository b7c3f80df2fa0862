//! The report as one JSON object, in ASCII, so that no text in it can touch a terminal.

use std::io::{self, Write};

use krabka_remote_storage::archive::{
    ArchiveVerifyReport, Finding, Grade, Verdict, VerifyBreak, VerifyDepth,
};
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

use crate::console::chain;
use crate::failure::Failure;

/// What there is to say about an archive.
pub(crate) struct Document<'a> {
    pub(crate) report: &'a ArchiveVerifyReport,
    pub(crate) grade: &'a Grade,
    pub(crate) depth: VerifyDepth,
    pub(crate) is_protected: bool,
    pub(crate) open_uploads: &'a [String],
}

#[derive(Serialize)]
struct Json<'a> {
    verdict: Verdict,
    exit_code: u8,
    depth: &'static str,
    protection: &'static str,
    findings: &'a [Finding],
    breaks: Vec<Break<'a>>,
    open_uploads: &'a [String],
    report: &'a ArchiveVerifyReport,
}

#[derive(Serialize)]
struct Break<'a> {
    partition_dir: &'a str,
    #[serde(flatten)]
    found: &'a VerifyBreak,
}

#[derive(Serialize)]
struct ErrorJson {
    verdict: Verdict,
    exit_code: u8,
    error: String,
}

/// Writes the report.
pub(crate) fn write(out: &mut dyn Write, document: &Document<'_>) -> io::Result<()> {
    let &Document {
        report,
        grade,
        depth,
        is_protected,
        open_uploads,
    } = document;
    let breaks = report.partitions.iter().filter_map(|partition| {
        Some(Break {
            partition_dir: &partition.partition_dir,
            found: partition.first_break.as_ref()?,
        })
    });
    let json = Json {
        verdict: grade.verdict,
        exit_code: grade.verdict.exit_code(),
        depth: match depth {
            VerifyDepth::Shallow => "shallow",
            VerifyDepth::Deep => "deep",
        },
        protection: if is_protected { "retention" } else { "none" },
        findings: &grade.findings,
        breaks: breaks.collect(),
        open_uploads,
        report,
    };
    write_line(out, &json)
}

/// Writes why there is no report.
pub(crate) fn write_error(out: &mut dyn Write, failure: &Failure) -> io::Result<()> {
    let json = ErrorJson {
        verdict: Verdict::Error,
        exit_code: failure.exit_code(),
        error: chain(failure),
    };
    write_line(out, &json)
}

fn write_line(out: &mut dyn Write, json: &impl Serialize) -> io::Result<()> {
    json.serialize(&mut Serializer::with_formatter(&mut *out, Ascii))?;
    out.write_all(b"\n")
}

/// Escapes what is not printable ASCII; the rest is the compact form.
struct Ascii;

impl Formatter for Ascii {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(|c: char| !matches!(c, ' '..='~')) {
            out.write_all(&rest.as_bytes()[..at])?;
            let mut chars = rest[at..].chars();
            if let Some(c) = chars.next() {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}")?;
                }
            }
            rest = chars.as_str();
        }
        out.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_ascii_and_reads_back_the_same() {
        let text = "a\"\\\n\u{1b}[2K\u{7f}\u{9b}é\u{202e}\u{1f600}z";
        let mut out = Vec::new();
        write_line(&mut out, &text).unwrap();
        let line = out.strip_suffix(b"\n").unwrap();
        assert!(
            line.iter().all(|byte| matches!(byte, b' '..=b'~')),
            "{line:?}"
        );
        assert_eq!(serde_json::from_slice::<String>(line).unwrap(), text);
    }
}
