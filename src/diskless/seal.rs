//! Seals a capture with the archive's keys, and proves a sealed one.
//!
//! The seal is a manifest of the archive in the member `authentication`: its objects are the WAL
//! objects that ranges name, by key, and one claim more that stands for the capture's own state.
//! Canonical bytes, head and signature are those of any manifest. Its identity is made from the
//! capture, so a verifier makes it, too, and compares.
//!
//! What a seal cannot show is that there is a newer capture: its head has to be pinned elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use super::capture::DisklessWalCapture;
use super::error::DisklessError;
use super::{CAPTURE_HEAD_NAME, CAPTURE_STATE_KEY, CAPTURE_STATE_SUFFIX};
use crate::archive::{
    ChainHead, ChainStamp, EpochId, MANIFEST_FORMAT_VERSION, ManifestBody, ObjectEntry, Printable,
    SegmentIdentity, Sha256Digest, TrustedManifestKeys, WormArchiver, is_signed_with,
    manifest_head,
};
use crate::error::WormError;

impl DisklessWalCapture {
    /// Seals the capture: signs its state together with the claims for its objects. Answers the
    /// sealed capture and its head, which is to be kept somewhere else, as
    /// [`CAPTURE_HEAD_NAME`](super::CAPTURE_HEAD_NAME).
    ///
    /// `objects` claims exactly the objects that ranges name, in any order: their keys, sizes and
    /// digests, as the store has them. A seal that is there is replaced.
    ///
    /// # Errors
    ///
    /// [`Claims`](DisklessError::Claims) when an object is missing, not named, or claimed twice;
    /// [`Seal`](DisklessError::Seal) when the archiver has no key, the key cannot sign, or its
    /// signature does not verify.
    pub async fn seal(
        self,
        mut objects: Vec<ObjectEntry>,
        archiver: &WormArchiver,
    ) -> Result<(Self, ChainHead), DisklessError> {
        objects.sort_by(|a, b| a.key.cmp(&b.key));
        covers(self.object_keys(), &objects).map_err(DisklessError::Claims)?;
        if archiver.signer().is_none() {
            return Err(DisklessError::Seal(WormError::SigningKey(
                "a capture is signed or not sealed at all: give the archiver a key".to_owned(),
            )));
        }
        objects.push(self.state_claim());
        let body = ManifestBody {
            format_version: MANIFEST_FORMAT_VERSION,
            segment: self.identity(&objects),
            objects,
            chain: place(),
        };
        let (manifest, head) = archiver.attest(body).await.map_err(DisklessError::Seal)?;
        Ok((self.sealed(manifest), head))
    }

    /// Proves that the capture is what was signed, by a trusted key, and the expected one. Answers
    /// the claims for its objects by key: what a restore may take for them.
    ///
    /// `expected_head` is the head that was written down when the capture was sealed (its text is
    /// read in either case). Keys with limits count where one is for the directory
    /// [`CAPTURE_HEAD_NAME`](super::CAPTURE_HEAD_NAME) and the nil epoch.
    ///
    /// # Errors
    ///
    /// [`NotAuthentic`](DisklessError::NotAuthentic), which says why: no signature, a manifest of
    /// another version, a key that is not trusted, a signature that does not verify, another head,
    /// a state that was changed, claims that are not exactly for the capture's objects.
    pub fn authenticate(
        &self,
        trusted: &TrustedManifestKeys,
        expected_head: ChainHead,
    ) -> Result<BTreeMap<&str, &ObjectEntry>, DisklessError> {
        let refused = |reason: String| Err(DisklessError::NotAuthentic(reason));
        let Some(manifest) = self.authentication() else {
            return refused("it is not sealed".to_owned());
        };
        let body = &manifest.body;
        if body.format_version != MANIFEST_FORMAT_VERSION {
            return refused(format!(
                "its manifest has format {}: this build verifies format {MANIFEST_FORMAT_VERSION}",
                body.format_version
            ));
        }
        let Some(signature) = &manifest.signature else {
            return refused("it carries no signature".to_owned());
        };
        let ChainStamp { epoch_id, seq, .. } = body.chain;
        let key_id = &signature.key_id;
        let Some(key) = trusted.get_at(key_id, CAPTURE_HEAD_NAME, epoch_id, seq) else {
            return refused(format!("key `{}` is not trusted for it", Printable(key_id)));
        };
        let head = manifest_head(body);
        if !is_signed_with(manifest, head, key) {
            return refused(format!(
                "its signature is not one by key `{}`",
                Printable(key_id)
            ));
        }
        // Only compared: the key that verifies is the caller's.
        if signature.public_key.0 != key.as_bytes() {
            return refused(format!(
                "it names another key than the trusted one of key id `{}`",
                Printable(key_id)
            ));
        }
        if head != expected_head {
            return refused(format!(
                "its head is {head}, and {expected_head} is expected"
            ));
        }
        let Some((state, claims)) = body.objects.split_last() else {
            return refused("its manifest claims nothing".to_owned());
        };
        if *state != self.state_claim() {
            return refused("its state is not what was signed".to_owned());
        }
        if body.segment != self.identity(&body.objects) || body.chain != place() {
            return refused("its manifest is not that of a capture".to_owned());
        }
        if let Err(reason) = covers(self.object_keys(), claims) {
            return refused(format!(
                "its claims are not those for its objects: {reason}"
            ));
        }
        Ok(claims
            .iter()
            .map(|claim| (claim.key.as_str(), claim))
            .collect())
    }

    /// The head of a sealed capture, as its manifest makes it. It proves nothing: what is expected
    /// has to come from elsewhere.
    pub fn head(&self) -> Option<ChainHead> {
        self.authentication()
            .map(|manifest| manifest_head(&manifest.body))
    }

    /// The claim for the capture itself.
    fn state_claim(&self) -> ObjectEntry {
        ObjectEntry {
            suffix: CAPTURE_STATE_SUFFIX.to_owned(),
            key: CAPTURE_STATE_KEY.to_owned(),
            size_bytes: self.state().len() as u64,
            sha256: Sha256Digest::of(self.state()),
            e_tag: None,
            version_id: None,
            create_precondition: false,
        }
    }

    /// What a capture's manifest says in the place of a segment. The claim for the state is the
    /// last of `objects`.
    fn identity(&self, objects: &[ObjectEntry]) -> SegmentIdentity {
        let digest = objects.last().map_or([0; 32], |state| state.sha256.0);
        let mut segment_id = [0; 16];
        segment_id.copy_from_slice(&digest[..16]);
        let size = objects
            .iter()
            .fold(0_u64, |sum, object| sum.saturating_add(object.size_bytes));
        SegmentIdentity {
            topic: CAPTURE_HEAD_NAME.to_owned(),
            topic_id: Uuid::nil(),
            partition: 0,
            segment_id: Uuid::from_bytes(segment_id),
            start_offset: 0,
            end_offset: 0,
            max_timestamp_ms: self.captured_at_ms(),
            broker_id: -1,
            event_timestamp_ms: self.captured_at_ms(),
            segment_size_bytes: i64::try_from(size).unwrap_or(i64::MAX),
            leader_epochs: BTreeMap::new(),
            txn_index_empty: true,
        }
    }
}

/// Captures are in no chain: each has the first place of a run of its own.
fn place() -> ChainStamp {
    ChainStamp::genesis(EpochId(Uuid::nil()))
}

/// Whether claims, in the order of their keys, are for exactly these objects.
fn covers(objects: &[Arc<str>], claims: &[ObjectEntry]) -> Result<(), String> {
    let mut objects = objects.iter().map(|key| &**key);
    let mut last = None;
    for claim in claims {
        let key = claim.key.as_str();
        match objects.next() {
            Some(object) if object == key => {}
            _ if last == Some(key) => return Err(format!("`{}` stands twice", Printable(key))),
            Some(object) if object < key => {
                return Err(format!(
                    "`{}` is missing or out of order",
                    Printable(object)
                ));
            }
            _ => {
                return Err(format!("`{}` is not named by any range", Printable(key)));
            }
        }
        last = Some(key);
    }
    match objects.next() {
        None => Ok(()),
        Some(object) => Err(format!("`{}` is missing", Printable(object))),
    }
}
