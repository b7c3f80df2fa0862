//! Where a partition's chain stands, from its manifests alone.

use std::sync::Arc;

use object_store::ObjectStore;

use super::archive::verify_archive;
use super::report::PartitionVerifyReport;
use super::request::{VerifyDepth, VerifyRequest};
use crate::archive::format::{ChainStamp, EpochId, Printable};
use crate::archive::keys::TrustedManifestKeys;
use crate::error::{RemoteStorageError, WormError};

/// The place for a partition's next manifest, for writers without a metadata store: the one after
/// the last accepted manifest of the partition's directory, and the first of `new_epoch_id` where
/// there is no manifest yet.
///
/// `directory` is the partition's directory with the prefix of the archive. All its manifests are
/// read and authenticated, and the objects that they name must be there with their sizes; bodies
/// are not read. An archive that does not verify is not continued: it would go on over what an
/// auditor has yet to see.
///
/// What copies that failed have left without a manifest is passed over. A manifest that another
/// process is about to write is not seen: only one writer at a time may work like this, and after
/// one that was killed its last request must have had the time to arrive.
///
/// # Errors
///
/// [`PreconditionFailed`](RemoteStorageError::PreconditionFailed) with the first break's manifest,
/// or with one that no key in `trusted` has signed (without trusted keys the archive is taken to be
/// unsigned); [`Archive`](WormError::Archive) when the directory cannot be listed or a manifest
/// cannot be read.
pub async fn recover_chain_stamp(
    store: &Arc<dyn ObjectStore>,
    directory: &str,
    trusted: &TrustedManifestKeys,
    new_epoch_id: EpochId,
) -> Result<ChainStamp, RemoteStorageError> {
    let request = VerifyRequest {
        prefix: Some(directory.to_owned()),
        depth: VerifyDepth::Shallow,
        ..VerifyRequest::default()
    };
    let report = verify_archive(store, &request, trusted).await?;
    let partition = report
        .partitions
        .iter()
        .find(|partition| partition.partition_dir == directory);
    let Some(partition) = partition else {
        return Ok(ChainStamp::genesis(new_epoch_id));
    };
    check(partition, !trusted.is_empty())?;
    // As the leader of a metadata store would choose.
    let last = partition.epochs.iter().max_by_key(|run| run.end_offset);
    let Some(run) = last else {
        return Ok(ChainStamp::genesis(new_epoch_id));
    };
    let seq = run.last_seq.next().ok_or_else(|| {
        refused(
            directory,
            format!("epoch {} has no position left", run.epoch_id),
        )
    })?;
    Ok(ChainStamp {
        epoch_id: run.epoch_id,
        seq,
        prev_head: run.head,
    })
}

fn check(partition: &PartitionVerifyReport, signed: bool) -> Result<(), RemoteStorageError> {
    if let Some(found) = &partition.first_break {
        return Err(refused(
            &found.manifest_key,
            format!("the archive does not verify: {}", found.reason),
        ));
    }
    if let Some(unreadable) = partition.unreadable_objects.first() {
        return Err(WormError::Archive(format!(
            "{} cannot be read: {}",
            Printable(&unreadable.key),
            Printable(&unreadable.reason)
        ))
        .into());
    }
    if signed && let Some(unattested) = partition.unattested.first() {
        let by = match &unattested.key_id {
            Some(key_id) => format!("is signed with `{}`, which is", Printable(key_id)),
            None => "is not signed, which is".to_owned(),
        };
        return Err(refused(
            &unattested.manifest_key,
            format!("it {by} no trusted key: name the keys that the archive was sealed with"),
        ));
    }
    Ok(())
}

fn refused(key: &str, reason: String) -> RemoteStorageError {
    RemoteStorageError::PreconditionFailed {
        key: Printable(key).to_string(),
        reason,
    }
}
