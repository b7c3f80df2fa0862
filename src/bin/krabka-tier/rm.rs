//! `krabka-tier rm`: removes segments from a tier.

use std::fmt;

use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use indicatif::HumanBytes;
use krabka_remote_storage::model::kafka_uuid;
use krabka_remote_storage::ops::{AbortUpload, StoreTarget};
use krabka_remote_storage::{
    DeleteSegment, ErrorKind, MANIFEST_SUFFIX, RemoteStorage, RemoteStorageError, WormError,
};
use serde::Serialize;
use uuid::Uuid;

use crate::failure::{Failure, chain, print_error, print_note};
use crate::output::{Audience, Output, count};
use crate::tier::{Selection, Tier, TierSegment, TierUpload, parse_id};

/// How many segments are removed at once; each is six requests.
const CONCURRENT_REMOVALS: usize = 4;

/// Removes segments from a tier: says what would go, and removes it only with `--yes`.
///
/// What copies that were cut off have left goes, too, uploads that nobody has ended included. Brokers
/// that use the tier are not told: remove only what no broker's metadata names. Nothing is removed
/// from partitions that are sealed in a write-once archive.
#[derive(Args, Debug)]
pub(crate) struct RmArgs {
    /// The tier.
    pub(crate) url: String,

    /// The topic.
    #[arg(long, value_name = "TOPIC", allow_hyphen_values = true)]
    topic: String,

    /// Only this partition of it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    partition: Option<i32>,

    /// The topic with this id, where there were several of the same name.
    #[arg(long, value_name = "ID", value_parser = parse_id, allow_hyphen_values = true)]
    topic_id: Option<Uuid>,

    /// Only this segment.
    #[arg(long, value_name = "ID", value_parser = parse_id, allow_hyphen_values = true)]
    segment: Option<Uuid>,

    /// Removes it. Nothing brings it back.
    #[arg(long)]
    yes: bool,

    /// Writes one JSON object a line; the README has their fields.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(tier: &Tier, args: RmArgs) -> Result<(), Failure> {
    let mut output = Output::new(Audience::of(args.json));
    let selection = Selection::new(args.topic, args.partition, args.topic_id);
    let doomed = find(tier, &selection, args.segment).await?;
    if doomed.is_empty() {
        let what = args.segment.map_or_else(
            || "nothing".to_owned(),
            |id| format!("no segment {}", kafka_uuid(id)),
        );
        return Err(Failure::Refused(format!(
            "{what} of {selection} is in {}",
            tier.location()
        )));
    }
    let (mut gone, mut failed) = (0, 0);
    let mut removals = stream::iter(&doomed)
        .map(|doomed| async move {
            let result = if args.yes {
                doomed.remove(&tier.storage).await
            } else {
                Ok(())
            };
            (doomed, result)
        })
        .buffered(CONCURRENT_REMOVALS);
    while let Some((doomed, result)) = removals.next().await {
        match result {
            Ok(()) => {
                gone += 1;
                // Nobody listens: the removal goes on all the same.
                match output.event(&doomed.event(args.yes)) {
                    Err(Failure::OutputClosed) => {}
                    other => other?,
                }
            }
            Err(error) => {
                failed += 1;
                print_error(&Failure::during(doomed.not_removed(), error));
            }
        }
    }
    if args.yes {
        output.note(format_args!("{} removed", count(gone, "item", "items")))?;
    } else {
        output.note(format_args!(
            "nothing was removed: --yes removes {}",
            count(gone, "item", "items")
        ))?;
    }
    output.flush()?;
    match failed {
        0 => Ok(()),
        _ => Err(Failure::Refused(format!(
            "{} of {} were not removed; the same command tries again",
            failed,
            count(doomed.len(), "item", "items")
        ))),
    }
}

/// What is to go.
enum Doomed {
    Segment(TierSegment),
    Upload(TierUpload),
}

async fn find(
    tier: &Tier,
    selection: &Selection,
    segment: Option<Uuid>,
) -> Result<Vec<Doomed>, Failure> {
    let is_wanted = |id: Uuid| segment.is_none_or(|wanted| wanted == id);
    let mut uploads = match tier.open_uploads().await {
        Ok(uploads) => uploads.unwrap_or_default(),
        // To list uploads takes a permission of its own.
        Err(Failure::Storage(error)) if error.kind() == ErrorKind::Rejected => {
            print_note(format_args!(
                "open uploads are left alone: {}",
                chain(&error)
            ));
            Vec::new()
        }
        Err(error) => return Err(error),
    };
    uploads.retain(|upload| selection.holds(&upload.partition) && is_wanted(upload.segment_id));
    // An upload may be all that there is of a partition.
    let mut partitions = tier.partitions().await?;
    for upload in &uploads {
        if !partitions.contains(&upload.partition) {
            partitions.push(upload.partition.clone());
        }
    }
    let partitions = selection.of_one_topic(partitions, tier.location())?;
    let segments: Vec<_> = tier.segments_of(partitions).try_collect().await?;
    let sealed = segments
        .iter()
        .flat_map(|(_, segments)| segments)
        .find_map(|segment| segment.listed.object(MANIFEST_SUFFIX));
    if let Some(manifest) = sealed {
        let key = manifest.key.to_string();
        return Err(RemoteStorageError::from(WormError::delete_refused(key)).into());
    }
    let segments = segments
        .into_iter()
        .flat_map(|(_, segments)| segments)
        .filter(|segment| is_wanted(segment.listed.id.id))
        .map(Doomed::Segment);
    Ok(segments
        .chain(uploads.into_iter().map(Doomed::Upload))
        .collect())
}

impl Doomed {
    async fn remove(&self, storage: &RemoteStorage) -> Result<(), RemoteStorageError> {
        match self {
            Self::Segment(segment) => {
                storage
                    .delete(DeleteSegment::new(segment.handle.clone()))
                    .await
            }
            Self::Upload(TierUpload { upload, .. }) => {
                let abort = AbortUpload::new(
                    StoreTarget::object(upload.key.clone()),
                    upload.upload.clone(),
                );
                storage.send(abort).await
            }
        }
    }

    fn not_removed(&self) -> String {
        let event = self.event(false);
        format!(
            "cannot remove segment {} of {}-{}",
            event.segment_id, event.topic, event.partition
        )
    }

    fn event(&self, removed: bool) -> Event {
        let (tp, first_offset, segment_id, what) = match self {
            Self::Segment(TierSegment { listed, .. }) => {
                let objects = listed.objects.len();
                let size_bytes = listed.size();
                let what = What::Segment {
                    objects,
                    size_bytes,
                };
                (
                    &listed.id.topic_id_partition,
                    listed.start_offset,
                    listed.id.id,
                    what,
                )
            }
            Self::Upload(upload) => {
                let upload_id = upload.upload.upload.to_string();
                let what = What::OpenUpload { upload_id };
                (
                    &upload.partition,
                    upload.base_offset,
                    upload.segment_id,
                    what,
                )
            }
        };
        Event {
            what,
            removed,
            topic: tp.topic.clone(),
            topic_id: kafka_uuid(tp.topic_id),
            partition: tp.partition,
            first_offset,
            segment_id: kafka_uuid(segment_id),
        }
    }
}

/// Something that is to go, or has gone. As JSON, `type` says what it is.
#[derive(Debug, Serialize)]
struct Event {
    #[serde(flatten)]
    what: What,
    removed: bool,
    topic: String,
    topic_id: String,
    partition: i32,
    first_offset: i64,
    segment_id: String,
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum What {
    Segment { objects: usize, size_bytes: u64 },
    OpenUpload { upload_id: String },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}-{} from offset {}, segment {}: ",
            if self.removed {
                "removed     "
            } else {
                "would remove"
            },
            self.topic,
            self.partition,
            self.first_offset,
            self.segment_id
        )?;
        match &self.what {
            What::Segment {
                objects,
                size_bytes,
            } => write!(
                f,
                "{} in {}",
                HumanBytes(*size_bytes),
                count(*objects, "object", "objects")
            ),
            What::OpenUpload { upload_id } => write!(f, "open upload {upload_id}"),
        }
    }
}
