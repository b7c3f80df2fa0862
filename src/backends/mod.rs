//! Stores: what a single request to each of them is.
//!
//! A [`StoreClient`] is one store; `StoreRequests` holds its requests with the attempt layers on.
//! Each store has a folder: its configuration, and what it does differently from
//! [`object`](ObjectStoreClient), the client over any `object_store`. What the stores over HTTP
//! share is in `http`, what all configurations share in `config`.

#[cfg(feature = "azure")]
mod azure;
mod backend;
mod client;
mod config;
#[cfg(feature = "gcp")]
mod gcs;
#[cfg(feature = "_http")]
pub(crate) mod http;
mod local;
mod memory;
mod object;
mod requests;
#[cfg(feature = "aws")]
pub(crate) mod s3;

#[cfg(feature = "azure")]
pub use azure::AzureConfig;
pub use backend::{Backend, StoreKind};
pub(crate) use client::Store;
pub use client::StoreClient;
pub use config::ObjectStoreConfig;
pub use config::limits::{
    DEFAULT_MULTIPART_CHUNK_SIZE, DEFAULT_MULTIPART_THRESHOLD, RequestLimits,
};
#[cfg(feature = "gcp")]
pub use gcs::GcsConfig;
#[cfg(feature = "_http")]
pub use http::HttpStoreConnector;
pub use local::LocalClient;
pub use object::{ObjectStoreClient, Reconnect, RetentionReader, StoreHandles, UploadLister};
pub use requests::StoreRequest;
pub(crate) use requests::StoreRequests;
#[cfg(feature = "aws")]
pub use s3::S3Config;
