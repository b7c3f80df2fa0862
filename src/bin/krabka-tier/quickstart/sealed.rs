//! The archive's part of the quickstart: seal, verify, change one byte, and see it found.

use std::fs;
use std::path::{Path, PathBuf};

use krabka_remote_storage::archive::{Finding, GradeRules, Verdict, generate_key};
use krabka_remote_storage::{
    ArchiveVerifyReport, RemoteStorageError, VerifyDepth, VerifyRequest, verify_archive,
};

use super::file_url;
use crate::copy::{self, SealKeys};
use crate::failure::Failure;
use crate::output::{Output, count};
use crate::tier::{Patience, Tier};

const KEY_ID: &str = "quickstart";

/// Seals the segments of a log directory below `scratch`, and tampers with them.
pub(super) async fn show(
    scratch: &Path,
    log_dir: PathBuf,
    patience: Patience,
    output: &mut Output,
) -> Result<(), Failure> {
    output.line(
        "\n4  Sealed: the same segments in a write-once archive, signed with a key made for this",
    )?;
    let key = scratch.join("key.pem");
    generate_key(&key).map_err(RemoteStorageError::from)?;
    let keys = SealKeys::load(&key, KEY_ID, [], true)?;
    let root = scratch.join("archive");
    let tier = Tier::open_archive(&file_url(&root)?, patience, keys).await?;
    let copied = copy::quietly(&tier, log_dir).await?;
    output.line(format_args!(
        "     {}, and a signed manifest for each",
        count(copied.segments_copied, "segment", "segments")
    ))?;

    output.line("\n5  Verified: from the objects and the public key alone, as an auditor does")?;
    output.flush()?;
    let report = verify(&tier).await?;
    let grade = GradeRules::default().grade(&report, Ok(&[]));
    if grade.verdict != Verdict::Ok {
        return Err(refused(
            "an archive that was just sealed does not verify",
            &grade.findings,
        ));
    }
    let objects: u64 = report.partitions.iter().map(|p| p.objects_checked).sum();
    output.line(format_args!(
        "     OK: {} manifests in {}, {objects} objects hashed",
        report.manifests(),
        count(report.partitions.len(), "chain", "chains"),
    ))?;

    let log = first_log(&root, &report)?;
    let at = flip_a_byte(&log)?;
    output.line(format_args!(
        "\n6  Changed: byte {at} of {}",
        log.strip_prefix(&root).unwrap_or(&log).display()
    ))?;
    output.flush()?;
    let report = verify(&tier).await?;
    let grade = GradeRules::default().grade(&report, Ok(&[]));
    if grade.verdict != Verdict::Tamper {
        return Err(refused(
            "one byte of the archive was changed, and was not found",
            &[],
        ));
    }
    for finding in grade.findings.iter().filter(|finding| finding.fails) {
        output.line(format_args!("     {}", finding.text))?;
    }
    Ok(())
}

async fn verify(tier: &Tier) -> Result<ArchiveVerifyReport, Failure> {
    let Some(chains) = &tier.chains else {
        return Err(refused("the archive was not opened as one", &[]));
    };
    let mut request = VerifyRequest::default();
    request.depth = VerifyDepth::Deep;
    let report = verify_archive(&chains.reads, &request, &chains.trusted).await;
    Ok(report.map_err(RemoteStorageError::from)?)
}

/// The first log of the first partition.
fn first_log(root: &Path, report: &ArchiveVerifyReport) -> Result<PathBuf, Failure> {
    let dir = report
        .partitions
        .first()
        .map_or_else(|| root.to_owned(), |p| root.join(&p.partition_dir));
    let listed = fs::read_dir(&dir).map_err(|error| RemoteStorageError::io("list", &dir, error))?;
    let logs = listed
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    logs.min()
        .ok_or_else(|| refused("there is no log in the archive", &[]))
}

/// Changes the byte in the middle of a file, and says which.
fn flip_a_byte(file: &Path) -> Result<usize, RemoteStorageError> {
    let mut bytes = fs::read(file).map_err(|error| RemoteStorageError::io("read", file, error))?;
    let at = bytes.len() / 2;
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1;
    }
    fs::write(file, bytes).map_err(|error| RemoteStorageError::io("write", file, error))?;
    Ok(at)
}

fn refused(what: &str, findings: &[Finding]) -> Failure {
    let texts = findings
        .iter()
        .map(|finding| format!("\n  {}", finding.text));
    Failure::Refused(format!("{what}{}", texts.collect::<String>()))
}
