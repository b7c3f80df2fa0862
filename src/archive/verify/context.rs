//! What all parts of one verification share.

use object_store::ObjectStore;
use tokio::sync::Semaphore;

use super::local::LocalRoot;
use super::request::VerifyRequest;
use crate::archive::format::MANIFEST_SUFFIX;
use crate::archive::keys::TrustedManifestKeys;
use crate::layout::parse_segment_file_name;

/// A verification: where it reads, what it is asked, and whom it trusts.
pub(super) struct Context<'a> {
    pub(super) store: &'a dyn ObjectStore,
    pub(super) request: &'a VerifyRequest,
    pub(super) trusted: &'a TrustedManifestKeys,
    /// Bounds the manifests that are held.
    pub(super) reads: Semaphore,
    /// Bounds the bodies that are read.
    pub(super) bodies: Semaphore,
    /// Where a store of local files lies.
    pub(super) local: Option<LocalRoot>,
    /// Whether attested objects are collected.
    pub(super) collects: bool,
}

impl Context<'_> {
    /// Whether an object that no manifest names was proven by other means.
    pub(super) fn is_exempt(&self, key: &str, name: &str) -> bool {
        let authenticated = &self.request.externally_authenticated_objects;
        authenticated.contains(key) && !is_archive_name(name)
    }
}

/// Whether an object of this name is part of an archive or looks like it, wherever it stands.
pub(super) fn is_archive_name(name: &str) -> bool {
    name.ends_with(MANIFEST_SUFFIX) || parse_segment_file_name(name).is_some()
}
