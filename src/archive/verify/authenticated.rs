//! What an archive proves: its objects and manifests, for those who go on with them.

use std::collections::BTreeMap;

use futures::stream::{self, Stream, StreamExt as _};
use object_store::ObjectStore;
use uuid::Uuid;

use super::listing::file_name;
use super::read::{ReadError, read_versioned};
use super::report::ArchiveVerifyReport;
use crate::archive::format::{
    ChainHead, MANIFEST_SUFFIX, MAX_MANIFEST_BYTES, ObjectEntry, SegmentManifest, excerpt,
    manifest_head,
};
use crate::error::WormError;

/// How many manifests, of up to 1 MiB each, are read ahead.
const READ_AHEAD: usize = 8;

/// An archive's objects and manifests, as far as they are proven.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuthenticatedArchive {
    pub(super) report: ArchiveVerifyReport,
    pub(super) objects: BTreeMap<String, ObjectEntry>,
    /// By directory, in the order of the chain.
    pub(super) manifests: BTreeMap<String, Vec<ProvenManifest>>,
}

/// A manifest that was proven: where it stands, and its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProvenManifest {
    pub(super) start_offset: i64,
    pub(super) segment_id: Uuid,
    pub(super) head: ChainHead,
}

/// A proven manifest, read again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuthenticatedManifest {
    /// Its key.
    pub manifest_key: String,
    /// What it says.
    pub manifest: SegmentManifest,
    /// Its head.
    pub head: ChainHead,
    /// The version of its object, where the store has versions.
    pub version_id: Option<String>,
}

impl AuthenticatedArchive {
    /// What the verification found. To be graded before the objects are used: a restore should
    /// ask for at least one partition, no break, [`ok`](ArchiveVerifyReport::ok), full
    /// attestation, no restarts, and pinned positions.
    pub fn report(&self) -> &ArchiveVerifyReport {
        &self.report
    }

    /// The objects of accepted manifests that carry a valid signature by a trusted key, by key;
    /// none of a partition with a break, and none that could not be read.
    ///
    /// A key's content may change after it was verified: whoever reads one of them hashes it
    /// again.
    pub fn objects(&self) -> &BTreeMap<String, ObjectEntry> {
        &self.objects
    }

    /// The accepted manifests that carry a valid signature by a trusted key, none of a partition
    /// with a break: directory by directory, each in the order of its chain.
    ///
    /// Each is read again from `store` and compared with what was verified, a few at a time: an
    /// archive keeps less than 100 bytes of a manifest.
    ///
    /// # Errors
    ///
    /// [`Archive`](WormError::Archive) for a manifest that cannot be read now, or is another now.
    pub fn manifests<'a>(
        &'a self,
        store: &'a dyn ObjectStore,
    ) -> impl Stream<Item = Result<AuthenticatedManifest, WormError>> + Send + 'a {
        let proven = self.manifests.iter().flat_map(|(directory, manifests)| {
            manifests.iter().map(move |manifest| (directory, manifest))
        });
        stream::iter(proven)
            .map(move |(directory, manifest)| manifest.read(store, directory))
            .buffered(READ_AHEAD)
    }
}

impl ProvenManifest {
    async fn read(
        &self,
        store: &dyn ObjectStore,
        directory: &str,
    ) -> Result<AuthenticatedManifest, WormError> {
        let name = file_name(self.start_offset, self.segment_id, MANIFEST_SUFFIX);
        let manifest_key = format!("{directory}/{name}");
        let cannot = |reason: &str| {
            WormError::Archive(format!(
                "manifest {} cannot be used: {reason}",
                excerpt(&manifest_key)
            ))
        };
        let changed = || cannot("it was changed since it was verified");
        let (bytes, version_id) = read_versioned(store, &manifest_key, MAX_MANIFEST_BYTES)
            .await
            .map_err(|error| match error {
                ReadError::Missing => cannot("it was removed since it was verified"),
                ReadError::Unreadable(reason) => cannot(&reason),
            })?
            .ok_or_else(changed)?;
        let manifest = SegmentManifest::decode(&bytes).map_err(|_| changed())?;
        let head = manifest_head(&manifest.body);
        if head != self.head {
            return Err(changed());
        }
        Ok(AuthenticatedManifest {
            manifest_key,
            manifest,
            head,
            version_id,
        })
    }
}
