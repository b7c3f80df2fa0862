//! What can be learned of copies whose outcome was lost.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::RemoteStorage;
use crate::archive::{Leftover, LeftoverEvidence, MANIFEST_SUFFIX, MAX_MANIFEST_BYTES};
use crate::error::{ErrorKind, RemoteStorageError};
use crate::layout::segment_key;
use crate::ops::{ByteRange, Get, Head, StoreTarget};

impl RemoteStorage {
    /// Finds out what is known of each leftover's manifest, for
    /// [`resolve_leftovers`](crate::archive::resolve_leftovers).
    ///
    /// What this handle did itself it knows; for the rest it reads the manifest's key, unless it
    /// is [`write_only`](super::RemoteStorageBuilder::write_only). It waits for copies of the
    /// leftovers' partition that are under way. Nothing it cannot find out is an error: it is
    /// [`Unknown`](LeftoverEvidence::Unknown).
    ///
    /// `writer_is_gone` says of a manifest that is absent and was not this handle's own to send
    /// whether the process that made the copy is known to have been dead for longer than a client
    /// repeats a request (with the default limits two minutes): then it can no longer arrive.
    pub async fn leftover_evidence(
        &self,
        leftovers: &[Leftover<'_>],
        writer_is_gone: bool,
    ) -> BTreeMap<Uuid, LeftoverEvidence> {
        let mut evidence = BTreeMap::new();
        for leftover in leftovers {
            let id = leftover.segment.remote_log_segment_id().id;
            let sent = match &self.tier.sealer {
                Some(sealer) => sealer.sent(leftover.segment).await,
                None => None,
            };
            let found = match sent {
                Some(false) if self.tier.write_only => LeftoverEvidence::NeverSent,
                // Another process may have copied it before, against the rule that every attempt
                // has an id of its own.
                Some(false) => match self.look(leftover, false).await {
                    found @ LeftoverEvidence::Found { .. } => found,
                    _ => LeftoverEvidence::NeverSent,
                },
                _ if self.tier.write_only => LeftoverEvidence::Unknown,
                // Sent by this handle: it is not gone.
                Some(true) => self.look(leftover, false).await,
                None => self.look(leftover, writer_is_gone).await,
            };
            evidence.insert(id, found);
        }
        evidence
    }

    async fn look(&self, leftover: &Leftover<'_>, writer_is_gone: bool) -> LeftoverEvidence {
        match self.read_manifest(leftover).await {
            Ok(Some(found)) => found,
            Ok(None) => LeftoverEvidence::Absent { writer_is_gone },
            Err(error) => {
                let segment = leftover.segment.remote_log_segment_id();
                tracing::warn!(%segment, %error, "could not find out whether a segment is sealed");
                LeftoverEvidence::Unknown
            }
        }
    }

    async fn read_manifest(
        &self,
        leftover: &Leftover<'_>,
    ) -> Result<Option<LeftoverEvidence>, RemoteStorageError> {
        let key = segment_key(&self.tier.prefix, leftover.segment, MANIFEST_SUFFIX)?;
        let target = StoreTarget::object(key);
        let head = Head {
            target: target.clone(),
        };
        let Some(meta) = self.tier.store.send(head).await? else {
            return Ok(None);
        };
        // Whatever stands there is no manifest of ours if it is empty or larger than any.
        let range = ByteRange::Bounded(0..meta.size.clamp(1, MAX_MANIFEST_BYTES + 1));
        let bytes = if meta.size == 0 {
            bytes::Bytes::new()
        } else {
            match self.tier.store.send(Get { target, range }).await {
                Ok(fetched) => fetched.bytes,
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            }
        };
        Ok(Some(LeftoverEvidence::Found {
            bytes,
            version_id: meta.version,
        }))
    }
}
