//! Writes the planned files under a name that is not yet the directory's, and gives it its name last.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use indicatif::ProgressBar;
use krabka_remote_storage::FetchIndex;
use krabka_remote_storage::index::corrupt_log;
use krabka_remote_storage::layout::log_file_name;
use krabka_remote_storage::model::IndexType;
use krabka_remote_storage::ops::{ByteRange, Get, StoreTarget};
use krabka_remote_storage::rebuild::ListedObject;
use tokio::task::spawn_blocking;
use uuid::Uuid;

use super::chain::{Chain, Excluded, Link};
use super::files::{Plan, PlannedFile, Problem, ProblemKind, Source, name};
use super::verify::{Cut, Finding, Segment, Verifier};
use super::{Reporter, failed};
use crate::copy::bytes_bar;
use crate::ends::is_damage;
use crate::failure::Failure;
use crate::tier::{Tier, TierSegment};

/// How much of an object is fetched at once.
const STEP_BYTES: u64 = 8 << 20;

/// Files that are written at once: with [`STEP_BYTES`] this bounds the memory.
const CONCURRENT_FILES: usize = 4;

/// File systems take no longer names.
const MAX_NAME_BYTES: usize = 255;

/// The directory that is to be, which is not there or empty.
pub(super) struct Target {
    dir: PathBuf,
    parent: PathBuf,
    /// The name that the files are written under. A broker that finds such a directory, as a killed
    /// process leaves it, takes it for one that it was about to delete.
    staging: PathBuf,
}

/// What was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub(super) files: usize,
    pub(super) bytes: u64,
}

/// How an attempt ended.
pub(super) enum Filled {
    Whole(Written),
    /// These segments are of no use.
    Damaged(Vec<Excluded>),
}

impl Target {
    /// Looks at the directory, and writes nothing.
    pub(super) fn check(dir: &Path) -> Result<Self, Failure> {
        match fs::read_dir(dir) {
            Ok(mut entries) => {
                if entries.next().is_some() {
                    return Err(Failure::Refused(format!(
                        "{} is not empty: name a new or an empty directory for the partition",
                        dir.display()
                    )));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("read", dir, error)),
        }
        // The real name: `.` has none of its own.
        let absolute = dir
            .canonicalize()
            .or_else(|_| std::path::absolute(dir))
            .map_err(|error| failed("find", dir, error))?;
        let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
            return Err(Failure::Refused(format!(
                "{} cannot be a partition's directory",
                dir.display()
            )));
        };
        let suffix = format!(".{}-delete", Uuid::new_v4().simple());
        let name = name.to_string_lossy();
        let mut length = name.len().min(MAX_NAME_BYTES - suffix.len());
        while !name.is_char_boundary(length) {
            length -= 1;
        }
        Ok(Self {
            staging: parent.join(format!("{}{suffix}", &name[..length])),
            parent: parent.to_owned(),
            dir: absolute.clone(),
        })
    }

    /// Writes all files, checks them, makes them durable, and names the directory. Where logs turn out
    /// to be damaged there is no directory.
    pub(super) async fn fill(
        &self,
        tier: &Tier,
        chain: &Chain,
        plan: &Plan,
        reporter: &mut Reporter,
    ) -> Result<Filled, Failure> {
        fs::create_dir_all(&self.parent).map_err(|error| failed("create", &self.parent, error))?;
        let staged = Staged::create(&self.staging)?;
        let bar = bytes_bar(plan.files.iter().map(PlannedFile::size).sum());
        let written = stream::iter(&plan.files)
            .map(|file| write_file(tier, &self.staging, file, &bar))
            .buffer_unordered(CONCURRENT_FILES)
            .try_fold(0, |bytes, of_file| async move { Ok(bytes + of_file) })
            .await;
        bar.finish_and_clear();
        let mut written = Written {
            files: plan.files.len(),
            bytes: written?,
        };
        let checked = check(tier, &self.staging, chain).await?;
        if !checked.damaged.is_empty() {
            return Ok(Filled::Damaged(checked.damaged));
        }
        let mut problems = checked.gaps;
        problems.extend(checked.misfits.iter().map(|misfit| Problem {
            kind: ProblemKind::Missing,
            text: misfit.text.clone(),
        }));
        reporter.problems(&problems)?;
        for misfit in &checked.misfits {
            remove(&self.staging, &misfit.files, &mut written)?;
        }
        let sync = |path: &Path| {
            let synced = File::open(path).and_then(|dir| dir.sync_all());
            synced.map_err(|error| failed("sync", path, error))
        };
        sync(&self.staging)?;
        staged.publish(&self.dir)?;
        sync(&self.parent)?;
        Ok(Filled::Whole(written))
    }
}

/// A directory that is removed again, unless it gets its name.
struct Staged<'a> {
    path: &'a Path,
    is_published: bool,
}

impl<'a> Staged<'a> {
    fn create(path: &'a Path) -> Result<Self, Failure> {
        fs::create_dir(path).map_err(|error| failed("create", path, error))?;
        Ok(Self {
            path,
            is_published: false,
        })
    }

    /// An empty directory of this name is replaced; one that has been filled meanwhile is not.
    fn publish(mut self, dir: &Path) -> Result<(), Failure> {
        fs::rename(self.path, dir).map_err(|error| failed("create", dir, error))?;
        self.is_published = true;
        Ok(())
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        if !self.is_published {
            // There is no one to tell: the failure that led here is what counts.
            let _ = fs::remove_dir_all(self.path);
        }
    }
}

impl PlannedFile {
    fn size(&self) -> u64 {
        match &self.bytes {
            Source::Object { size, .. } => *size,
            Source::Text(text) => text.len() as u64,
        }
    }
}

/// Writes one file and makes it durable.
async fn write_file(
    tier: &Tier,
    dir: &Path,
    planned: &PlannedFile,
    bar: &ProgressBar,
) -> Result<u64, Failure> {
    let path = dir.join(&planned.name);
    // Here and not in a task: when this future is dropped nothing makes a file any more.
    let file = File::create_new(&path).map_err(|error| failed("create", &path, error))?;
    let file = Arc::new(file);
    match &planned.bytes {
        Source::Text(text) => write_at(&file, &path, text.clone().into_bytes(), 0).await?,
        Source::Object {
            segment,
            object,
            size,
        } => {
            let mut position = 0;
            while position < *size {
                let end = (position + STEP_BYTES).min(*size);
                let bytes = fetch(tier, segment, object, position..end)
                    .await
                    .map_err(|error| {
                        let suffix = &object.suffix;
                        Failure::during(
                            format!("cannot read the `{suffix}` of {}", name(segment)),
                            error,
                        )
                    })?;
                write_at(&file, &path, bytes, position).await?;
                bar.inc(end - position);
                position = end;
            }
        }
    }
    let synced = blocking(move || file.sync_all()).await;
    synced.map_err(|error| failed("sync", &path, error))?;
    Ok(planned.size())
}

/// A range of an object that is as long as the listing said.
async fn fetch(
    tier: &Tier,
    segment: &TierSegment,
    object: &ListedObject,
    range: std::ops::Range<u64>,
) -> Result<Bytes, krabka_remote_storage::RemoteStorageError> {
    let wanted = range.end - range.start;
    let request = Get::new(
        StoreTarget::of_segment(object.key.clone(), segment.handle.clone()),
        ByteRange::Bounded(range),
    );
    let fetched = tier.storage.send(request).await?;
    let has_changed = fetched.object_size.is_some_and(|size| size != object.size);
    if has_changed || fetched.bytes.len() as u64 != wanted {
        return Err(corrupt_log(format_args!(
            "{} has no longer the {} bytes that it was listed with",
            object.key, object.size
        )));
    }
    Ok(fetched.bytes)
}

async fn write_at(
    file: &Arc<File>,
    path: &Path,
    bytes: impl AsRef<[u8]> + Send + 'static,
    position: u64,
) -> Result<(), Failure> {
    let file = Arc::clone(file);
    let written = blocking(move || file.write_all_at(bytes.as_ref(), position)).await;
    written.map_err(|error| failed("write", path, error))
}

async fn blocking(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    spawn_blocking(work).await.map_err(io::Error::other)?
}

/// What is wrong with what was written.
struct Checked {
    damaged: Vec<Excluded>,
    gaps: Vec<Problem>,
    misfits: Vec<Misfit>,
}

/// A file beside a log that does not fit it.
struct Misfit {
    text: String,
    /// The files that a broker makes anew when they are not there.
    files: Vec<String>,
}

/// Checks every segment as it lies in the directory.
async fn check(tier: &Tier, dir: &Path, chain: &Chain) -> Result<Checked, Failure> {
    let mut verifier = Verifier::new(dir, chain.view.lineage.clone());
    let (mut damaged, mut gaps, mut misfits) = (Vec::new(), Vec::new(), Vec::new());
    for link in &chain.links {
        let segment = Segment {
            base_offset: link.base_offset(),
            last_offset: link.last_offset,
            cut: if link.is_cut {
                let offset_index = offset_index(tier, link).await?;
                Some(Cut { offset_index })
            } else {
                None
            },
        };
        let checked = spawn_blocking(move || {
            let findings = verifier.check(&segment);
            (verifier, findings)
        });
        let findings;
        (verifier, findings) = checked
            .await
            .map_err(|error| Failure::Refused(error.to_string()))?;
        for finding in findings? {
            match finding {
                Finding::Log { position, error } => {
                    let log = link.segment.listed.log();
                    damaged.push(Excluded {
                        id: link.segment.listed.id.clone(),
                        base_offset: link.base_offset(),
                        text: format!(
                            "{} is damaged at position {position} of {}",
                            name(&link.segment),
                            log.map(|log| log.key.to_string()).unwrap_or_default()
                        ),
                        error,
                    });
                }
                Finding::Gap(offsets) => gaps.push(Problem {
                    kind: ProblemKind::Gap,
                    text: format!(
                        "{} has not the offsets {} to {}: the log that is there begins behind them",
                        name(&link.segment),
                        offsets.start(),
                        offsets.end()
                    ),
                }),
                Finding::Beside { suffix, problem } => {
                    misfits.push(Misfit::new(link, suffix, &problem)?);
                }
            }
        }
    }
    Ok(Checked {
        damaged,
        gaps,
        misfits,
    })
}

/// The offset index of a segment, as far as it is of use.
async fn offset_index(tier: &Tier, link: &Link) -> Result<Option<Bytes>, Failure> {
    let fetch = FetchIndex::new(link.segment.handle.clone(), IndexType::Offset);
    match tier.storage.fetch_index(fetch).await {
        Ok(index) => Ok(Some(index)),
        Err(error) if is_damage(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl Misfit {
    fn new(link: &Link, suffix: &'static str, problem: &str) -> Result<Self, Failure> {
        let segment = &link.segment;
        let what = match segment.listed.object(suffix) {
            Some(object) => object.key.to_string(),
            None => format!("its `{suffix}`"),
        };
        let files = if suffix == IndexType::ProducerSnapshot.suffix() {
            vec![log_file_name(link.next_offset(), suffix)?]
        } else {
            // A broker makes all of them anew where there is no offset index.
            let indexes = [
                IndexType::Offset,
                IndexType::Timestamp,
                IndexType::Transaction,
            ];
            indexes
                .iter()
                .map(|index| log_file_name(link.base_offset(), index.suffix()))
                .collect::<Result<_, _>>()?
        };
        Ok(Self {
            text: format!("{} is damaged: {what} {problem}", name(segment)),
            files,
        })
    }
}

/// Removes files, as far as they are there, and counts them off.
fn remove(dir: &Path, files: &[String], written: &mut Written) -> Result<(), Failure> {
    for file in files {
        let path = dir.join(file);
        let size = match fs::metadata(&path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed("find", &path, error)),
        };
        fs::remove_file(&path).map_err(|error| failed("remove", &path, error))?;
        written.files -= 1;
        written.bytes -= size;
    }
    Ok(())
}
