//! What copies that were cut off have left, and what clears it.

use std::fmt;
use std::pin::pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::TryStreamExt as _;
use indicatif::{HumanBytes, HumanDuration};
use krabka_remote_storage::model::{TopicIdPartition, kafka_uuid};
use serde::Serialize;

use super::report::{ObjectReport, objects};
use crate::failure::Failure;
use crate::output::{Output, count};
use crate::tier::{Selection, Tier, TierSegment, TierUpload};

/// One thing that was left. As JSON, `type` says which.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Left {
    IncompleteSegment {
        #[serde(flatten)]
        of: Of,
        /// When its last object was written, in milliseconds since 1970-01-01 UTC.
        last_modified_ms: Option<i64>,
        size_bytes: u64,
        objects: Vec<ObjectReport>,
    },
    OpenUpload {
        #[serde(flatten)]
        of: Of,
        key: String,
        upload_id: String,
    },
    OpenUploadsNotListed {
        reason: &'static str,
    },
}

/// The segment that it would have become.
#[derive(Debug, Serialize)]
struct Of {
    topic: String,
    topic_id: String,
    partition: i32,
    first_offset: i64,
    segment_id: String,
}

impl Of {
    fn new(tp: &TopicIdPartition, first_offset: i64, segment_id: uuid::Uuid) -> Self {
        Self {
            topic: tp.topic.clone(),
            topic_id: kafka_uuid(tp.topic_id),
            partition: tp.partition,
            first_offset,
            segment_id: kafka_uuid(segment_id),
        }
    }
}

pub(super) async fn run(
    tier: &Tier,
    selection: &Selection,
    partitions: Vec<TopicIdPartition>,
    output: &mut Output,
) -> Result<(), Failure> {
    let mut incomplete = 0;
    let mut listed = pin!(tier.segments_of(partitions));
    while let Some((_, segments)) = listed.try_next().await? {
        for segment in segments {
            if !segment.listed.is_complete() {
                incomplete += 1;
                output.event(&Left::segment(&segment))?;
            }
        }
    }
    let uploads = tier.open_uploads().await?.map(|mut uploads| {
        uploads.retain(|upload| selection.holds(&upload.partition));
        uploads
    });
    match &uploads {
        Some(uploads) => {
            for upload in uploads {
                output.event(&Left::upload(upload))?;
            }
        }
        None => output.event(&Left::OpenUploadsNotListed {
            reason: "this store does not list them",
        })?,
    }

    let open = uploads.as_ref().map_or(0, Vec::len);
    output.note(format_args!(
        "{} and {} in {}",
        count(incomplete, "incomplete segment", "incomplete segments"),
        count(open, "open upload", "open uploads"),
        tier.location()
    ))?;
    if incomplete > 0 {
        output.note(
            "Incomplete segments are never read. No lifecycle rule can tell them from others: when \
             no copy is\nunder way, remove them with `krabka-tier rm URL --topic T --segment ID \
             --yes`.",
        )?;
    }
    if open > 0 || uploads.is_none() {
        output.note(lifecycle_rule(tier.location()))?;
    }
    output.flush()
}

/// What clears uploads that nobody has ended.
fn lifecycle_rule(location: &str) -> &'static str {
    match location.split_once("://") {
        Some(("s3", _)) => {
            "Open uploads go by themselves with this rule in the bucket's lifecycle configuration:\n  \
             {\"Rules\":[{\"ID\":\"open-uploads\",\"Status\":\"Enabled\",\"Filter\":{\"Prefix\":\"\"},\n    \
             \"AbortIncompleteMultipartUpload\":{\"DaysAfterInitiation\":2}}]}"
        }
        Some(("gs", _)) => {
            "Open uploads go by themselves with this rule in the bucket's lifecycle configuration:\n  \
             {\"rule\":[{\"action\":{\"type\":\"AbortIncompleteMultipartUpload\"},\"condition\":{\"age\":2}}]}"
        }
        Some(("az", _)) => {
            "Blocks of an upload that was not completed are removed by Azure after a week; no rule is \
             needed."
        }
        _ => {
            "Unfinished files of a local tier are hidden (`.NAME.tmp`); the next copy into the \
             directory removes\nthose of processes that have ended."
        }
    }
}

impl Left {
    fn segment(segment: &TierSegment) -> Self {
        let listed = &segment.listed;
        Self::IncompleteSegment {
            of: Of::new(
                &listed.id.topic_id_partition,
                listed.start_offset,
                listed.id.id,
            ),
            last_modified_ms: listed
                .objects
                .iter()
                .map(|object| object.last_modified_ms)
                .max(),
            size_bytes: listed.size(),
            objects: objects(listed),
        }
    }

    fn upload(upload: &TierUpload) -> Self {
        Self::OpenUpload {
            of: Of::new(&upload.partition, upload.base_offset, upload.segment_id),
            key: upload.upload.key.to_string(),
            upload_id: upload.upload.upload.to_string(),
        }
    }
}

impl fmt::Display for Of {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}-{} from offset {}, segment {}",
            self.topic, self.partition, self.first_offset, self.segment_id
        )
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IncompleteSegment {
                of,
                last_modified_ms,
                size_bytes,
                objects,
            } => {
                write!(
                    f,
                    "incomplete   {of}: {} in {}, no .log",
                    HumanBytes(*size_bytes),
                    count(objects.len(), "object", "objects")
                )?;
                match last_modified_ms.and_then(age) {
                    Some(age) => write!(f, ", written {} ago", HumanDuration(age)),
                    None => Ok(()),
                }
            }
            Self::OpenUpload { of, upload_id, .. } => {
                write!(f, "open upload  {of}: upload {upload_id}")
            }
            Self::OpenUploadsNotListed { reason } => {
                write!(f, "open uploads are not shown: {reason}")
            }
        }
    }
}

/// How long ago a store's time was; `None` for the future.
fn age(time_ms: i64) -> Option<Duration> {
    let time = UNIX_EPOCH + Duration::from_millis(time_ms.try_into().ok()?);
    SystemTime::now().duration_since(time).ok()
}
