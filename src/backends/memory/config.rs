//! A tier in memory, for tests and trials.

use std::sync::Arc;

use object_store::ObjectStore;
use object_store::memory::InMemory;

use super::MemoryUploads;
use crate::backends::backend::{Backend, StoreKind};
use crate::backends::config::limits::RequestLimits;
use crate::backends::{ObjectStoreClient, StoreHandles};
use crate::layout::KeyPrefix;

/// A new, empty store, which lives as long as the backend and its clones.
pub(in crate::backends) fn open() -> Backend {
    let store = Arc::new(InMemory::new());
    Backend {
        client: Arc::new(ObjectStoreClient::new(StoreHandles::with_uploads(
            Arc::clone(&store) as Arc<dyn ObjectStore>,
            Arc::new(MemoryUploads::of(Arc::clone(&store))),
        ))),
        prefix: KeyPrefix::default(),
        limits: RequestLimits::default(),
        object_store: Some(store),
        location: "memory:///".to_owned(),
        kind: StoreKind::Memory,
        with_checksums: None,
    }
}
