//! For tests of what is built on this crate (feature `testing`): made segments and record batches,
//! and a store in memory that notes each request and fails those that a test names.
//!
//! ```
//! use krabka_remote_storage::backends::{ObjectStoreClient, StoreHandles};
//! use krabka_remote_storage::testing::segments::{files, metadata};
//! use krabka_remote_storage::testing::store::{Fate, Outcome, TestStore};
//! use krabka_remote_storage::{CopySegment, RemoteStorage};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = TestStore::new();
//! // The first log that is sent arrives, and the answer does not.
//! store.script(|request, before| match request.kind {
//!     "put" if before == 0 => Fate::of(Outcome::AnswerLost),
//!     _ => Fate::default(),
//! });
//! let client = ObjectStoreClient::new(StoreHandles::with_multipart(store.clone()));
//! let storage = RemoteStorage::builder(std::sync::Arc::new(client)).build()?;
//!
//! let dir = tempfile::tempdir()?;
//! let copy = CopySegment::new(metadata(1, 0, 3), files(dir.path(), b"log"));
//! storage.copy(copy).await?;
//! assert_eq!(store.count("put"), 7); // Six objects, and one of them twice.
//! # Ok(())
//! # }
//! ```
//!
//! All of it panics where it is asked for what cannot be.
#![allow(clippy::missing_panics_doc)]

pub mod batches;
pub mod segments;
pub mod store;
