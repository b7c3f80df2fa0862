//! `krabka-tier quickstart`: Kafka's own files to a tier and back, from the binary alone.

mod compare;
mod data;
mod sealed;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use indicatif::HumanBytes;
use krabka_remote_storage::RemoteStorageError;

use self::compare::Compared;
use self::data::{Embedded, PARTITIONS};
use crate::copy;
use crate::failure::Failure;
use crate::output::{Audience, Output, count};
use crate::tier::{Missing, Patience, Tier};
use crate::until_interrupted;

/// Copies partitions that a real Apache Kafka wrote into a local tier, reads them back, and compares
/// every byte. Then seals them in an archive, changes one byte, and shows how that is found.
///
/// Needs nothing but this program: the partitions are inside it.
#[derive(Args, Debug)]
pub(crate) struct QuickstartArgs {
    /// Where to make the tier, and to leave it. Without it the tier goes to a temporary directory
    /// and is removed at the end.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) async fn run(args: QuickstartArgs, patience: Patience) -> Result<(), Failure> {
    let scratch = tempfile::tempdir()
        .map_err(|error| RemoteStorageError::io("create", &env::temp_dir(), error))?;
    let kept = args.dir.is_some();
    let dir = match args.dir {
        Some(dir) => std::path::absolute(&dir)
            .map_err(|error| RemoteStorageError::io("create", &dir, error))?,
        None => scratch.path().join("tier"),
    };
    let url = file_url(&dir)?;
    let tier = Tier::open(&url, patience, Missing::Create)?;
    let next_steps = next_steps(kept.then_some(&url));
    until_interrupted(&tier, show(&tier, scratch.path(), patience, &next_steps)).await
}

async fn show(
    tier: &Tier,
    scratch: &Path,
    patience: Patience,
    next_steps: &str,
) -> Result<(), Failure> {
    let mut output = Output::new(Audience::People);
    output.line("Kafka's own files, to a tier and back\n")?;

    output.line("1  Unpacked: two partition directories, as Apache Kafka 4.3.1 wrote them")?;
    let log_dir = scratch.join("kafka-logs");
    for partition in PARTITIONS {
        unpack(&partition, &log_dir)?;
        let bytes = partition.files.iter().map(|(_, bytes)| bytes.len() as u64);
        output.line(format_args!(
            "     {:<11} {} files, {}",
            partition.name,
            partition.files.len(),
            HumanBytes(bytes.sum())
        ))?;
    }

    output.line(format_args!(
        "\n2  Copied: every closed segment with its indexes, to {}",
        tier.location()
    ))?;
    output.flush()?;
    let started = Instant::now();
    let copied = copy::quietly(tier, log_dir.clone()).await?;
    output.line(format_args!(
        "     {}, {} in {} ms{}",
        count(copied.segments_copied, "segment", "segments"),
        count(copied.objects_copied, "object", "objects"),
        started.elapsed().as_millis(),
        match copied.segments_skipped {
            0 => String::new(),
            skipped => format!("; {skipped} were complete there and were skipped"),
        }
    ))?;

    output
        .line("\n3  Read back through the tier, and compared with the files inside this program")?;
    output.flush()?;
    let mut all = Compared::default();
    for partition in PARTITIONS {
        let compared = compare_partition(tier, &partition).await?;
        output.line(format_args!("     {:<11} {compared}", partition.name))?;
        for difference in &compared.differences {
            output.line(format_args!("     DIFFERS     {difference}"))?;
        }
        all.add(compared);
    }
    if !all.differences.is_empty() {
        output.flush()?;
        return Err(Failure::Refused(format!(
            "{} in {} differ from what Kafka wrote",
            count(all.differences.len(), "object", "objects"),
            tier.location()
        )));
    }
    output.line(format_args!(
        "\n{} in {} compared: every byte is the one that Kafka wrote.",
        HumanBytes(all.bytes),
        count(all.objects, "object", "objects")
    ))?;
    output.line(
        "The active segment of each partition stayed local, as it does in Kafka: only closed \
         segments are tiered.",
    )?;
    sealed::show(scratch, log_dir, patience, &mut output).await?;
    output.line(next_steps)?;
    output.flush()
}

/// What to try next; `kept` is the tier, if it stays.
fn next_steps(kept: Option<&String>) -> String {
    // As it was called, so that the lines can be pasted.
    let program = env::args_os().next().map_or_else(
        || "krabka-tier".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    );
    let (keep, tier) = match kept {
        Some(url) => (String::new(), url.as_str()),
        None => (
            format!("\n  {program} quickstart --dir tier    # the same, and the tier is kept"),
            "file://$PWD/tier",
        ),
    };
    format!(
        "\nNext:{keep}
  {program} ls {tier}
  {program} read {tier} --topic orders --partition 0 --offset 1000 --values text
  {program} copy /var/lib/kafka/data --to s3://BUCKET/PREFIX
  {program} keygen --out worm.pem        # and then: copy … --worm-key worm.pem --worm-key-id ID"
    )
}

fn unpack(partition: &Embedded, log_dir: &Path) -> Result<(), RemoteStorageError> {
    let dir = log_dir.join(partition.name);
    fs::create_dir_all(&dir).map_err(|error| RemoteStorageError::io("create", &dir, error))?;
    for (name, bytes) in partition.files {
        let file = dir.join(name);
        fs::write(&file, bytes).map_err(|error| RemoteStorageError::io("write", &file, error))?;
    }
    Ok(())
}

/// Reads every closed segment of the partition from the tier.
async fn compare_partition(tier: &Tier, partition: &Embedded) -> Result<Compared, Failure> {
    let expected = compare::closed_segments(partition)?;
    let Some(first) = expected.first() else {
        return Ok(Compared::default());
    };
    let in_tier = &tier.segments(&first.partition).await?;
    let parts: Vec<Compared> = stream::iter(expected)
        .map(|segment| async move { segment.compare(&tier.storage, in_tier).await })
        .buffered(4)
        .try_collect()
        .await?;
    let mut all = Compared::default();
    for part in parts {
        all.add(part);
    }
    Ok(all)
}

fn file_url(dir: &Path) -> Result<String, Failure> {
    url::Url::from_file_path(dir)
        .map(String::from)
        .map_err(|()| Failure::Refused(format!("{} cannot hold a tier", dir.display())))
}
