//! Stores, and the four segment operations composed of single requests to them.
//!
//! A [`StoreClient`] is one store; [`StoreRequests`] holds its requests with the attempt layers on.
//! The operations above know nothing of which store is below.

mod client;
mod copier;
mod create;
mod deleter;
mod fetcher;
mod local;
mod object;
mod opaque_uploads;
mod requests;
mod source;
mod upload;

pub use client::{Store, StoreClient};
pub use copier::{Copier, CopyTuning};
pub use deleter::Deleter;
pub use fetcher::Fetcher;
pub use local::LocalClient;
pub use object::{ObjectStoreClient, Reconnect, StoreHandles, UploadLister};
pub use requests::{StoreRequest, StoreRequests};
