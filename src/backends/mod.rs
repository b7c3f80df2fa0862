//! Stores, and the four segment operations composed of single requests to them.
//!
//! A [`StoreClient`] is one store; `StoreRequests` holds its requests with the attempt layers on.
//! The operations above know nothing of which store is below.

mod client;
#[cfg(feature = "aws")]
mod completion;
mod config;
mod copier;
mod create;
mod deleter;
#[cfg(all(test, feature = "aws"))]
pub(crate) mod fake_s3;
mod fetcher;
#[cfg(feature = "_http")]
mod http;
mod local;
mod memory;
mod object;
mod opaque_uploads;
#[cfg(any(feature = "aws", feature = "gcp"))]
mod open_uploads;
#[cfg(all(test, feature = "_http"))]
#[allow(dead_code)] // A test of one store uses less of it than those of all.
pub(crate) mod recorder;
mod requests;
#[cfg(any(feature = "aws", feature = "gcp"))]
mod retention;
mod self_test;
#[cfg(any(feature = "aws", feature = "gcp"))]
mod signed;
mod source;
mod upload;
mod write_once;

pub(crate) use client::Store;
pub use client::StoreClient;
#[cfg(feature = "azure")]
pub use config::AzureConfig;
#[cfg(feature = "gcp")]
pub use config::GcsConfig;
#[cfg(feature = "aws")]
pub use config::S3Config;
pub use config::{
    Backend, DEFAULT_MULTIPART_CHUNK_SIZE, DEFAULT_MULTIPART_THRESHOLD, ObjectStoreConfig,
    RequestLimits, StoreKind,
};
pub(crate) use copier::{Copier, CopyTuning};
pub(crate) use deleter::Deleter;
pub(crate) use fetcher::Fetcher;
#[cfg(feature = "_http")]
pub use http::HttpStoreConnector;
pub use local::LocalClient;
pub use object::{ObjectStoreClient, Reconnect, RetentionReader, StoreHandles, UploadLister};
pub use requests::StoreRequest;
pub(crate) use requests::StoreRequests;
pub(crate) use self_test::{refuses_second_completion, refuses_second_create};
pub use write_once::MultipartCreate;
