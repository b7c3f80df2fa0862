//! What says which segments a partition has: the tier's listing, or the metadata of its cluster.

use krabka_remote_storage::metadata::SegmentView;
use krabka_remote_storage::model::{RemoteLogSegmentState, TopicIdPartition};
use krabka_remote_storage::rebuild::{ListedSegment, named_segments};
use krabka_remote_storage::topic::{PartitionSurvey, TopicSurvey};
use krabka_remote_storage::{PartitionDump, RemoteStorageError};

use crate::cluster::OptionalClusterArgs;
use crate::failure::Failure;
use crate::rebuilt::Rebuilt;
use crate::tier::{Patience, Selection, Tier, TierSegment};

/// What says which segments a partition has.
pub(crate) enum Inventory {
    Listing,
    Cluster {
        survey: TopicSurvey,
        /// Which metadata that is.
        name: String,
    },
}

impl Inventory {
    /// That of a cluster, if one is named: its metadata is read now.
    pub(crate) async fn open(
        cluster: OptionalClusterArgs,
        selection: &Selection,
        patience: Patience,
    ) -> Result<Self, Failure> {
        let Some(cluster) = cluster.given() else {
            return Ok(Self::Listing);
        };
        let cluster = cluster.open(patience.time()).await?;
        let selection = selection.clone();
        Ok(Self::Cluster {
            survey: cluster.survey(move |tp| selection.holds(tp)).await?,
            name: format!("the metadata in {cluster}"),
        })
    }

    /// The one partition that is meant.
    pub(crate) async fn partition(
        &self,
        tier: &Tier,
        selection: &Selection,
    ) -> Result<TopicIdPartition, Failure> {
        let (partitions, location) = match self {
            Self::Listing => (tier.partitions().await?, tier.location()),
            Self::Cluster { survey, name } => {
                let known = survey.partitions();
                let in_use = known.into_iter().filter(|known| has_finished(known));
                let partitions = in_use.map(|known| known.cache.topic_id_partition().clone());
                (partitions.collect(), name.as_str())
            }
        };
        Ok(selection.of_one_topic(partitions, location)?.remove(0))
    }

    /// The segments of a partition, by base offset and then by id: of a listing those that are
    /// complete, of a cluster those that are finished, with or without their objects.
    pub(crate) async fn segments(
        &self,
        tier: &Tier,
        partition: &TopicIdPartition,
    ) -> Result<Vec<TierSegment>, Failure> {
        let Some(known) = self.known(partition) else {
            let mut segments = tier.segments(partition).await?;
            segments.retain(|segment| segment.listed.is_complete());
            return Ok(segments);
        };
        let listing = tier.listing(partition).await?;
        let segments = named_segments(&known, &listing).into_iter();
        Ok(segments.map(TierSegment::new).collect::<Result<_, _>>()?)
    }

    /// The metadata of these segments, as if the partition had no others.
    pub(crate) async fn rebuilt(
        &self,
        tier: &Tier,
        partition: &TopicIdPartition,
        segments: Vec<ListedSegment>,
    ) -> Result<Rebuilt, RemoteStorageError> {
        match self.known(partition) {
            Some(known) => Rebuilt::of_cluster(&known, segments),
            None => Rebuilt::of(&tier.storage, partition, segments).await,
        }
    }

    /// What a cluster's metadata has of a partition; `None` where only the listing is asked.
    fn known(&self, partition: &TopicIdPartition) -> Option<PartitionDump> {
        match self {
            Self::Listing => None,
            Self::Cluster { survey, .. } => Some(match survey.partition(partition) {
                Some(known) => known.cache.export(),
                None => PartitionDump::new(partition.clone(), Vec::new(), None),
            }),
        }
    }
}

fn has_finished(known: &PartitionSurvey) -> bool {
    let segments = known.cache.list_segments();
    let mut states = segments.iter().map(SegmentView::state);
    states.any(|state| state == RemoteLogSegmentState::CopySegmentFinished)
}
