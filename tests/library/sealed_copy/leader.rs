//! What a partition's leader works with: keys, places in a chain, segments, an archive.

use std::io;
use std::sync::Arc;

use ed25519_dalek::SigningKey;
use krabka_remote_storage::archive::ManifestPublicKey;
use krabka_remote_storage::backends::{ObjectStoreClient, StoreHandles};
use krabka_remote_storage::layers::SealRules;
use krabka_remote_storage::segment::MultipartCreate;
use krabka_remote_storage::{
    ArchiveVerifyReport, ChainStamp, CopySegment, CustomMetadata, EpochId, RemoteStorage,
    RemoteStorageBuilder, TrustedManifestKeys, VerifyDepth, VerifyRequest, WormArchiver,
    WormChainRecord, WormConfig, verify_archive,
};
use object_store::ObjectStore;
use tempfile::TempDir;
use uuid::Uuid;

use crate::support::with;
use krabka_remote_storage::testing::segments::{files, metadata, pattern};
use krabka_remote_storage::testing::store::TestStore;

pub(crate) const KEY_ID: &str = "worm-key-1";

pub(crate) const RULES: SealRules = SealRules::new(1024, false);

/// An archiver that signs with the key of this seed.
pub(crate) fn archiver(seed: u8) -> WormArchiver {
    archiver_as(seed, KEY_ID)
}

/// An archiver that signs with the key of this seed under this name.
pub(crate) fn archiver_as(seed: u8, key_id: &str) -> WormArchiver {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("key");
    write_secret(&path, &[seed; 32]).unwrap();
    WormArchiver::from_config(&with(WormConfig::default(), |it| {
        it.signing_key_path = Some(path);
        it.signing_key_id = Some(key_id.to_owned());
    }))
    .unwrap()
}

fn write_secret(path: &std::path::Path, bytes: &[u8]) -> io::Result<()> {
    std::fs::write(path, bytes)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// The public half of the key of this seed.
pub(crate) fn public(seed: u8) -> ManifestPublicKey {
    let secret = SigningKey::from_bytes(&[seed; 32]);
    ManifestPublicKey::from_bytes(secret.verifying_key().as_bytes()).unwrap()
}

pub(crate) fn trusted() -> TrustedManifestKeys {
    TrustedManifestKeys::single(KEY_ID, public(1))
}

pub(crate) fn epoch(number: u128) -> EpochId {
    EpochId(Uuid::from_u128(0xe000 + number))
}

pub(crate) fn genesis() -> ChainStamp {
    ChainStamp::genesis(epoch(1))
}

/// A request to copy this segment to this place.
pub(crate) fn copy_to(
    dir: &TempDir,
    id: u128,
    start_offset: i64,
    stamp: ChainStamp,
) -> CopySegment {
    let log = pattern(40, u8::try_from(id % 200).unwrap());
    let metadata = metadata(id, start_offset, 40)
        .as_ref()
        .clone()
        .with_custom_metadata(WormChainRecord::request(stamp).to_custom_metadata());
    CopySegment::new(metadata, files(dir.path(), &log))
}

pub(crate) fn builder(store: &Arc<TestStore>) -> RemoteStorageBuilder {
    let handles = StoreHandles::with_multipart(Arc::clone(store));
    RemoteStorage::builder(Arc::new(ObjectStoreClient::new(handles)))
}

pub(crate) fn archive(store: &Arc<TestStore>) -> RemoteStorage {
    builder(store)
        .seal_on_unchecked_store(archiver(1), RULES, MultipartCreate::Conditional)
        .build()
        .unwrap()
}

pub(crate) async fn verify(store: &Arc<TestStore>) -> ArchiveVerifyReport {
    verify_with(store, &trusted()).await
}

pub(crate) async fn verify_with(
    store: &Arc<TestStore>,
    trusted: &TrustedManifestKeys,
) -> ArchiveVerifyReport {
    let request = with(VerifyRequest::default(), |it| it.depth = VerifyDepth::Deep);
    let inner: Arc<dyn ObjectStore> = store.inner.clone();
    verify_archive(&inner, &request, trusted).await.unwrap()
}

/// What an answer asks to be kept.
pub(crate) fn record(custom_metadata: Option<&CustomMetadata>) -> WormChainRecord {
    WormChainRecord::from_custom_metadata(custom_metadata.unwrap()).unwrap()
}
