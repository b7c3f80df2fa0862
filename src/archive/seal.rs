//! Sealing: from a copied segment's metadata and objects to a signed manifest.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use super::config::WormConfig;
use super::format::{
    ChainHead, HexBytes, MANIFEST_FORMAT_VERSION, ManifestBody, ManifestSignature, ObjectEntry,
    SegmentIdentity, SegmentManifest, WormChainRecord, manifest_head, manifest_signing_bytes,
};
use super::keys::{FileSigner, ManifestPublicKey, ManifestSigner, VerifiedManifest, check_key_id};
use crate::error::WormError;
use crate::model::RemoteLogSegmentMetadata;

/// Builds and signs manifests. It does no I/O of its own.
///
/// It does not remember positions: each comes with the metadata. So one archiver serves all
/// partitions, and that copies of one partition follow each other is up to its caller.
#[derive(Clone)]
pub struct WormArchiver {
    signer: Option<Arc<dyn ManifestSigner>>,
    /// Whether the signer has shown that it can sign.
    key_works: Arc<AtomicBool>,
}

/// What is signed to try a key. It has the form of neither a manifest's message nor any other
/// that the archive's keys sign.
const KEY_CHECK: &[u8] = b"krabka-worm-key-check-v1\0";

impl WormArchiver {
    /// An archiver that signs with `signer`, or one whose manifests are chained and not signed.
    pub fn new(signer: Option<Arc<dyn ManifestSigner>>) -> Self {
        Self {
            signer,
            key_works: Arc::default(),
        }
    }

    /// An archiver with the key that the configuration names.
    ///
    /// # Errors
    ///
    /// [`SigningKey`](WormError::SigningKey) when path and id do not come together, and as
    /// [`FileSigner::load`] says.
    pub fn from_config(config: &WormConfig) -> Result<Self, WormError> {
        let Some((path, key_id)) = config.signing_key()? else {
            return Ok(Self::new(None));
        };
        let signer = FileSigner::load(key_id.clone(), path)?;
        Ok(Self::new(Some(Arc::new(signer))))
    }

    /// The signer; `None` when manifests are not signed.
    pub fn signer(&self) -> Option<&dyn ManifestSigner> {
        self.signer.as_deref()
    }

    /// Finds out whether the key can sign, with a message that is no manifest. Once it could, it
    /// is taken to until a signature fails.
    ///
    /// # Errors
    ///
    /// [`SigningKey`](WormError::SigningKey) for a signer whose name is empty, longer than 255
    /// bytes or not printable ASCII, that fails, or whose signature does not verify.
    pub async fn check_key(&self) -> Result<(), WormError> {
        let Some(signer) = &self.signer else {
            return Ok(());
        };
        if self.key_works.load(Ordering::Relaxed) {
            return Ok(());
        }
        check_key_id(signer.key_id()).map_err(WormError::SigningKey)?;
        signature(signer.as_ref(), KEY_CHECK).await?;
        self.key_works.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Makes the manifest of a segment that was copied as `objects`.
    ///
    /// The place in the chain is that of the metadata's chain record; a head that stands there is
    /// ignored. The signature is checked with the signer's public key before it is used.
    ///
    /// # Errors
    ///
    /// [`MissingChainStamp`](WormError::MissingChainStamp),
    /// [`MalformedChainRecord`](WormError::MalformedChainRecord) or
    /// [`UnsupportedChainRecordVersion`](WormError::UnsupportedChainRecordVersion) for metadata
    /// without a readable chain record, [`SigningKey`](WormError::SigningKey) when the signer
    /// fails or its signature does not verify, [`Codec`](WormError::Codec) for a manifest over
    /// [`MAX_MANIFEST_BYTES`](super::MAX_MANIFEST_BYTES).
    pub async fn seal(
        &self,
        metadata: &RemoteLogSegmentMetadata,
        objects: Vec<ObjectEntry>,
    ) -> Result<SealedManifest, WormError> {
        let record = metadata
            .custom_metadata()
            .ok_or(WormError::MissingChainStamp)?;
        let stamp = WormChainRecord::from_custom_metadata(record)?.stamp();
        let body = ManifestBody {
            format_version: MANIFEST_FORMAT_VERSION,
            segment: SegmentIdentity::from_metadata(metadata),
            objects,
            chain: stamp,
        };
        let (manifest, head) = self.attest(body).await?;
        Ok(SealedManifest {
            bytes: manifest.encode()?.into(),
            receipt: WormChainRecord::request(stamp).with_head(head),
            manifest,
        })
    }

    /// Signs a manifest's body, where there is a signer, and answers the manifest and its head.
    ///
    /// # Errors
    ///
    /// [`SigningKey`](WormError::SigningKey) when the signer fails or its signature does not
    /// verify.
    pub(crate) async fn attest(
        &self,
        body: ManifestBody,
    ) -> Result<(SegmentManifest, ChainHead), WormError> {
        let head = manifest_head(&body);
        let signature = match &self.signer {
            Some(signer) => {
                let signed = sign(signer.as_ref(), &body, head).await;
                if signed.is_err() {
                    self.key_works.store(false, Ordering::Relaxed);
                }
                Some(signed?)
            }
            None => None,
        };
        Ok((SegmentManifest { body, signature }, head))
    }
}

impl fmt::Debug for WormArchiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What a signer shows of itself is its own affair: its name is enough.
        f.debug_struct("WormArchiver")
            .field(
                "key_id",
                &self.signer.as_ref().map(|signer| signer.key_id()),
            )
            .finish_non_exhaustive()
    }
}

/// A manifest that is ready to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SealedManifest {
    /// The manifest.
    pub manifest: SegmentManifest,
    /// Its bytes: what is stored, and what a verifier reads.
    pub bytes: Bytes,
    /// The segment's place and head, to be kept with its metadata. The version of the manifest's
    /// object joins it once the store has named one.
    pub receipt: WormChainRecord,
}

impl SealedManifest {
    /// Checks the signature with `key`; `None` when the manifest is unsigned or signed with
    /// another key.
    pub fn verify(self, key: &ManifestPublicKey) -> Option<VerifiedManifest> {
        VerifiedManifest::check(self.manifest, key)
    }
}

async fn sign(
    signer: &dyn ManifestSigner,
    body: &ManifestBody,
    head: ChainHead,
) -> Result<ManifestSignature, WormError> {
    let chain = &body.chain;
    let message = manifest_signing_bytes(signer.key_id(), chain.epoch_id, chain.seq, head);
    let signature = signature(signer, &message).await?;
    Ok(ManifestSignature {
        key_id: signer.key_id().to_owned(),
        public_key: HexBytes::from(signer.public_key()),
        signature: HexBytes(signature.to_vec()),
    })
}

async fn signature(signer: &dyn ManifestSigner, message: &[u8]) -> Result<[u8; 64], WormError> {
    let signature = signer.sign(message).await?;
    // A fault in memory or in a key service would otherwise stand in the archive for ever.
    if !signer.public_key().verifies(message, &signature) {
        return Err(WormError::SigningKey(format!(
            "the signature by `{}` does not verify with its public key",
            super::Printable(signer.key_id())
        )));
    }
    Ok(signature)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use async_trait::async_trait;

    use super::super::vectors::{
        KEY_ID, V2_HEAD, V2_SIGNATURE, public_key, seed, signed, v2, v2_metadata,
    };
    use super::*;
    use crate::model::CustomMetadata;

    fn archiver() -> WormArchiver {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("seed");
        std::fs::write(&path, seed()).unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        WormArchiver::from_config(&WormConfig {
            signing_key_path: Some(path),
            signing_key_id: Some(KEY_ID.to_owned()),
            ..WormConfig::default()
        })
        .unwrap()
    }

    #[tokio::test]
    async fn sealing_makes_the_published_manifest() {
        let sealed = archiver().seal(&v2_metadata(), v2().objects).await.unwrap();
        assert_eq!(sealed.manifest, signed(v2(), KEY_ID));
        assert_eq!(sealed.bytes.len(), 1386);
        assert_eq!(
            SegmentManifest::decode(&sealed.bytes),
            Ok(signed(v2(), KEY_ID))
        );
        let receipt = WormChainRecord::request(v2().chain).with_head(V2_HEAD.parse().unwrap());
        assert_eq!(sealed.receipt, receipt);
        let signature = sealed.manifest.signature.as_ref().unwrap();
        assert_eq!(signature.signature.to_string(), V2_SIGNATURE);
        let verified = sealed.verify(&public_key()).unwrap();
        assert_eq!(verified.head().to_string(), V2_HEAD);
        assert_eq!(verified.manifest().body, v2());
    }

    #[tokio::test]
    async fn an_archiver_without_a_signer_chains_and_does_not_sign() {
        let archiver = WormArchiver::from_config(&WormConfig::default()).unwrap();
        assert!(archiver.signer().is_none());
        let sealed = archiver.seal(&v2_metadata(), v2().objects).await.unwrap();
        assert_eq!(sealed.manifest.signature, None);
        assert_eq!(sealed.receipt.head.unwrap().to_string(), V2_HEAD);
        assert_eq!(sealed.verify(&public_key()), None);
    }

    #[tokio::test]
    async fn a_head_in_the_metadata_is_no_part_of_the_place() {
        let with_head = WormChainRecord::request(v2().chain)
            .with_head(ChainHead([9; 32]))
            .with_manifest_version(Some("old".to_owned()));
        let metadata = v2_metadata().with_custom_metadata(with_head.to_custom_metadata());
        let sealed = archiver().seal(&metadata, v2().objects).await.unwrap();
        assert_eq!(sealed.receipt.head.unwrap().to_string(), V2_HEAD);
        assert_eq!(sealed.receipt.manifest_version_id, None);
    }

    #[tokio::test]
    async fn without_a_readable_place_nothing_is_sealed() {
        let archiver = archiver();
        let malformed = v2_metadata().with_custom_metadata(CustomMetadata(b"x".to_vec()));
        assert!(matches!(
            archiver.seal(&malformed, Vec::new()).await,
            Err(WormError::MalformedChainRecord(_))
        ));
        let newer = CustomMetadata(br#"{"version":1}"#.to_vec());
        assert!(matches!(
            archiver
                .seal(&v2_metadata().with_custom_metadata(newer), Vec::new())
                .await,
            Err(WormError::UnsupportedChainRecordVersion { found: Some(_) })
        ));
        let metadata = v2_metadata();
        let details = crate::model::RemoteLogSegmentDetails::new(
            1,
            metadata.state(),
            metadata.segment_leader_epochs().clone(),
        );
        let bare = RemoteLogSegmentMetadata::new(
            metadata.remote_log_segment_id().clone(),
            0,
            0,
            0,
            0,
            0,
            details,
        )
        .unwrap();
        assert_eq!(
            archiver.seal(&bare, Vec::new()).await,
            Err(WormError::MissingChainStamp)
        );
    }

    #[tokio::test]
    async fn a_manifest_that_no_verifier_would_read_is_refused() {
        let mut objects = v2().objects;
        objects[0].e_tag = Some("x".repeat(1_048_576));
        assert!(matches!(
            archiver().seal(&v2_metadata(), objects).await,
            Err(WormError::Codec(text)) if text.contains("exceeds the limit of 1048576")
        ));
    }

    #[derive(Debug)]
    struct Faulty(ManifestPublicKey);

    #[async_trait]
    impl ManifestSigner for Faulty {
        fn key_id(&self) -> &'static str {
            KEY_ID
        }

        fn public_key(&self) -> &ManifestPublicKey {
            &self.0
        }

        async fn sign(&self, _message: &[u8]) -> Result<[u8; 64], WormError> {
            Ok([0; 64])
        }
    }

    #[tokio::test]
    async fn a_signature_that_does_not_verify_is_not_used() {
        let archiver = WormArchiver::new(Some(Arc::new(Faulty(public_key()))));
        assert!(matches!(
            archiver.seal(&v2_metadata(), v2().objects).await,
            Err(WormError::SigningKey(text)) if text.contains(KEY_ID)
        ));
    }

    /// Signs with the seed of the vectors, counts how often, and fails while it is told to.
    #[derive(Debug)]
    struct Counted {
        signer: FileSigner,
        calls: AtomicUsize,
        fails: AtomicBool,
    }

    #[async_trait]
    impl ManifestSigner for Counted {
        fn key_id(&self) -> &str {
            self.signer.key_id()
        }

        fn public_key(&self) -> &ManifestPublicKey {
            self.signer.public_key()
        }

        async fn sign(&self, message: &[u8]) -> Result<[u8; 64], WormError> {
            self.calls.fetch_add(1, Ordering::Relaxed);
            if self.fails.load(Ordering::Relaxed) {
                return Err(WormError::SigningKey("away".to_owned()));
            }
            self.signer.sign(message).await
        }
    }

    #[tokio::test]
    async fn a_key_is_tried_once_and_again_after_it_has_failed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key.pem");
        crate::archive::generate_key(&path).unwrap();
        let signer = Arc::new(Counted {
            signer: FileSigner::load(KEY_ID, &path).unwrap(),
            calls: AtomicUsize::new(0),
            fails: AtomicBool::new(false),
        });
        let archiver = WormArchiver::new(Some(Arc::clone(&signer) as Arc<dyn ManifestSigner>));
        let calls = || signer.calls.load(Ordering::Relaxed);
        for _ in 0..3 {
            archiver.check_key().await.unwrap();
        }
        assert_eq!(calls(), 1);
        archiver.seal(&v2_metadata(), v2().objects).await.unwrap();
        archiver.check_key().await.unwrap();
        assert_eq!(calls(), 2);
        signer.fails.store(true, Ordering::Relaxed);
        let failed = archiver.seal(&v2_metadata(), v2().objects).await;
        assert!(matches!(failed, Err(WormError::SigningKey(_))));
        archiver.check_key().await.unwrap_err();
        signer.fails.store(false, Ordering::Relaxed);
        archiver.check_key().await.unwrap();
        assert_eq!(calls(), 5);
    }

    #[tokio::test]
    async fn a_signature_of_the_trial_fits_no_manifest() {
        let head = manifest_head(&v2());
        let chain = v2().chain;
        let message = manifest_signing_bytes(KEY_ID, chain.epoch_id, chain.seq, head);
        assert!(!message.starts_with(KEY_CHECK) && !KEY_CHECK.starts_with(&message[..24]));
    }

    #[test]
    fn debug_shows_the_name_of_the_key() {
        assert_eq!(
            format!("{:?}", archiver()),
            "WormArchiver { key_id: Some(\"worm-key-1\"), .. }"
        );
    }
}
