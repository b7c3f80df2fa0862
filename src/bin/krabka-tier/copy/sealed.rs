//! Copies into a write-once archive: one chain for each partition.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use krabka_remote_storage::archive::{ManifestPublicKey, recover_chain_stamp};
use krabka_remote_storage::model::{CopyReceipt, TopicIdPartition};
use krabka_remote_storage::{
    ChainStamp, EpochId, RemoteLogSegmentMetadata, RemoteStorageError, TrustedManifestKeys,
    WormArchiver, WormChainRecord, WormConfig,
};
use object_store::ObjectStore;

use super::holds::{Hold, Holds};
use super::plan::{Planned, is_complete};
use crate::failure::Failure;
use crate::tier::{Tier, TierSegment};

/// Sealing, on the command line.
#[derive(Args, Debug)]
pub(crate) struct SealArgs {
    /// Seals every segment in a write-once archive, with this signing key (`krabka-tier keygen`
    /// makes one).
    ///
    /// Objects are created and never replaced, and each segment's signed manifest continues the
    /// chain that the partition's manifests in the archive make; an archive that does not verify is
    /// not continued.
    ///
    /// Only one copy into a partition may run at a time: two would fork its chain, for good. In a
    /// local directory a second one is refused. In a bucket nothing prevents it: see to it that
    /// this is the only program that seals into a partition there.
    #[arg(long, value_name = "FILE", requires = "worm_key_id")]
    worm_key: Option<PathBuf>,

    /// The signing key's name, by which auditors find its public half.
    #[arg(long, value_name = "ID", requires = "worm_key")]
    worm_key_id: Option<String>,

    /// A public key that earlier manifests of the archive are signed with, where the signing key was
    /// changed. Can be given several times.
    #[arg(long, value_name = "ID=FILE", requires = "worm_key", value_parser = parse_trust)]
    worm_trust: Vec<(String, PathBuf)>,

    /// Seals in a store that cannot refuse deletion, too: a local directory.
    #[arg(long, requires = "worm_key")]
    allow_unprotected: bool,
}

fn parse_trust(text: &str) -> Result<(String, PathBuf), String> {
    let (id, path) = text.split_once('=').ok_or("it has the form ID=FILE")?;
    Ok((id.to_owned(), PathBuf::from(path)))
}

/// What an archive is sealed with.
#[derive(Clone, Debug)]
pub(crate) struct SealKeys {
    pub(crate) config: WormConfig,
    pub(crate) trusted: TrustedManifestKeys,
}

impl SealArgs {
    /// Loads the keys; `None` when nothing is to be sealed.
    pub(crate) fn keys(&self) -> Result<Option<SealKeys>, Failure> {
        let (Some(path), Some(id)) = (&self.worm_key, &self.worm_key_id) else {
            return Ok(None);
        };
        let earlier = self
            .worm_trust
            .iter()
            .map(|(id, path)| (id.as_str(), path.as_path()));
        SealKeys::load(path, id, earlier, self.allow_unprotected).map(Some)
    }
}

impl SealKeys {
    pub(crate) fn load<'a>(
        path: &Path,
        id: &str,
        earlier: impl IntoIterator<Item = (&'a str, &'a Path)>,
        allow_unprotected: bool,
    ) -> Result<Self, Failure> {
        let mut config = WormConfig::default();
        config.signing_key_path = Some(path.to_owned());
        config.signing_key_id = Some(id.to_owned());
        config.allow_unprotected = allow_unprotected;

        let archiver = WormArchiver::from_config(&config).map_err(RemoteStorageError::from)?;
        let own = archiver
            .signer()
            .map(|signer| (id.to_owned(), *signer.public_key()));
        let mut keys: Vec<(String, ManifestPublicKey)> = own.into_iter().collect();
        for (id, path) in earlier {
            if keys.iter().any(|(known, _)| known == id) {
                return Err(Failure::Usage(format!(
                    "--worm-trust names the key `{id}` a second time"
                )));
            }
            let key = ManifestPublicKey::load(path).map_err(RemoteStorageError::from)?;
            keys.push((id.to_owned(), key));
        }
        Ok(Self {
            config,
            trusted: TrustedManifestKeys::from_pairs(keys),
        })
    }
}

/// An opened archive's chains.
#[derive(Clone)]
pub(crate) struct Chains {
    pub(crate) reads: Arc<dyn ObjectStore>,
    pub(crate) trusted: TrustedManifestKeys,
    /// Keeps other processes out, where the archive is in a local directory.
    pub(crate) holds: Option<Holds>,
}

impl fmt::Debug for Chains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What a client shows of itself may hold credentials.
        f.debug_struct("Chains").finish_non_exhaustive()
    }
}

/// A partition of an archive into which only this process copies, as far as that can be seen to.
pub(super) struct Entered {
    hold: Option<Hold>,
    /// What was there when it was entered.
    in_tier: Vec<TierSegment>,
}

impl Entered {
    pub(super) fn has(&self, planned: &Planned) -> bool {
        is_complete(&planned.segment.log(), &self.in_tier, true)
    }

    /// Lets others in.
    pub(super) fn leave(self) {
        if let Some(hold) = self.hold {
            hold.release();
        }
    }
}

impl Chains {
    /// Keeps other copies out of a partition, and looks what they have sealed since the plan was made.
    pub(super) async fn enter(
        &self,
        tier: &Tier,
        partition: &TopicIdPartition,
    ) -> Result<Entered, RemoteStorageError> {
        let mut entered = Entered {
            hold: None,
            in_tier: Vec::new(),
        };
        if let Some(holds) = &self.holds {
            let directory = tier.directory(partition)?;
            entered.hold = Some(holds.take(directory.as_ref()).await?);
            match tier.list_segments(partition).await {
                Ok(in_tier) => entered.in_tier = in_tier,
                Err(error) => {
                    entered.leave();
                    return Err(error);
                }
            }
        }
        Ok(entered)
    }

    /// Where the partition's next manifest goes.
    pub(super) async fn next(
        &self,
        tier: &Tier,
        partition: &TopicIdPartition,
    ) -> Result<ChainStamp, RemoteStorageError> {
        let directory = tier.directory(partition)?;
        let fresh = EpochId::random();
        recover_chain_stamp(&self.reads, directory.as_ref(), &self.trusted, fresh).await
    }
}

/// The same segment, asked to be sealed at this place.
pub(super) fn at(
    metadata: RemoteLogSegmentMetadata,
    place: ChainStamp,
) -> RemoteLogSegmentMetadata {
    metadata.with_custom_metadata(WormChainRecord::request(place).to_custom_metadata())
}

/// What a copy answered of its seal; `None` for one that was not sealed.
pub(super) fn record(receipt: &CopyReceipt) -> Option<WormChainRecord> {
    WormChainRecord::from_custom_metadata(receipt.custom_metadata.as_ref()?).ok()
}

/// The place after the one that a copy has filled.
pub(super) fn after(receipt: &CopyReceipt) -> Option<ChainStamp> {
    record(receipt)?.next_stamp()
}

/// A plain copy would leave objects in an archive that no manifest names.
pub(super) fn needs_keys(partition: &TopicIdPartition) -> RemoteStorageError {
    RemoteStorageError::InvalidArgument(format!(
        "the place of {}-{} in the tier is a write-once archive: seal into it, with --worm-key and \
         --worm-key-id",
        partition.topic, partition.partition
    ))
}
