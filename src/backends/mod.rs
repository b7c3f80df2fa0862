//! Stores, and the four segment operations composed of single requests to them.
//!
//! A [`StoreClient`] is one store; [`StoreRequests`] holds its requests with the attempt layers on.
//! The operations above know nothing of which store is below.

mod client;
mod create;
mod object;
mod opaque_uploads;
mod requests;

pub use client::{Store, StoreClient};
pub use object::{ObjectStoreClient, Reconnect, StoreHandles, UploadLister};
pub use requests::{StoreRequest, StoreRequests};
