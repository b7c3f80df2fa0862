//! The report as lines for people.

use std::io::{self, Write};

use krabka_remote_storage::archive::{
    ObjectProtectionReport, OrphanClass, PartitionVerifyReport, Printable, Verdict, VerifyDepth,
};

use crate::json::Document;

/// Writes the verdict, where all is well, and what was found partition by partition.
pub(crate) fn write(out: &mut dyn Write, document: &Document<'_>) -> io::Result<()> {
    let report = document.report;
    if document.grade.verdict == Verdict::Ok {
        let verdict = match document.depth {
            VerifyDepth::Shallow => "OK (bodies not read)",
            VerifyDepth::Deep => "OK",
        };
        let objects: u64 = report.partitions.iter().map(|p| p.objects_checked).sum();
        writeln!(
            out,
            "{verdict}: {} manifests over {} partition(s), {objects} objects checked",
            report.manifests(),
            report.partitions.len(),
        )?;
    }
    if !document.is_protected {
        writeln!(out, "protection: none: this store cannot refuse deletion")?;
    }
    for partition in &report.partitions {
        write_partition(out, partition, document.is_protected)?;
    }
    Ok(())
}

fn write_partition(
    out: &mut dyn Write,
    partition: &PartitionVerifyReport,
    is_protected: bool,
) -> io::Result<()> {
    writeln!(out, "partition {}", Printable(&partition.partition_dir))?;
    if let Some(found) = &partition.first_break {
        writeln!(out, "  broken: {found}")?;
    }
    match partition.head {
        Some(head) => writeln!(out, "  tip: {head}")?,
        None => writeln!(out, "  tip: GENESIS")?,
    }
    writeln!(
        out,
        "  manifests: {} ({} unsigned, {} untrusted); objects checked: {}",
        partition.manifests,
        partition.unsigned_manifests,
        partition.untrusted_manifests,
        partition.objects_checked
    )?;
    let spans = &partition.epochs;
    if let Some(first) = spans.iter().map(|span| span.start_offset).min()
        && let Some(last) = spans.iter().map(|span| span.end_offset).max()
    {
        writeln!(out, "  offsets: {first} to {last}")?;
    }
    for span in spans {
        writeln!(
            out,
            "  epoch {}: seq {} to {}, offsets {} to {}, head {}",
            span.epoch_id,
            span.first_seq,
            span.last_seq,
            span.start_offset,
            span.end_offset,
            span.head
        )?;
    }
    for gap in &partition.offset_gaps {
        writeln!(
            out,
            "  gap: no offsets between {} and {}",
            gap.after, gap.before
        )?;
    }
    for overlap in &partition.offset_overlaps {
        writeln!(
            out,
            "  overlap: offsets {} to {} again",
            overlap.first, overlap.last
        )?;
    }
    if !partition.orphan_objects.is_empty() {
        let count = |class| {
            let orphans = partition.orphan_objects.iter();
            orphans.filter(|orphan| orphan.class == class).count()
        };
        writeln!(
            out,
            "  orphans: {} superseded, {} uncommitted, {} foreign",
            count(OrphanClass::Superseded),
            count(OrphanClass::Uncommitted),
            count(OrphanClass::Foreign)
        )?;
    }
    if !partition.unreadable_objects.is_empty() {
        writeln!(out, "  unreadable: {}", partition.unreadable_objects.len())?;
    }
    write_protection(out, partition, is_protected)
}

fn write_protection(
    out: &mut dyn Write,
    partition: &PartitionVerifyReport,
    is_protected: bool,
) -> io::Result<()> {
    if !is_protected {
        return writeln!(out, "  protection: none");
    }
    let mut line = |how: &str, objects: &ObjectProtectionReport| {
        if objects.count == 0 {
            return Ok(());
        }
        writeln!(out, "  protection: {how}: {} object(s)", objects.count)
    };
    line(
        "created under a precondition",
        &partition.create_precondition_objects,
    )?;
    line(
        "written behind a reservation, under the bucket's retention",
        &partition.bucket_retention_objects,
    )?;
    line("not known", &partition.unknown_protection_objects)
}
