//! The segment operations, composed of store requests: copy, fetch of a range and of an index,
//! delete.
//!
//! Nothing here knows which store is below: `StoreRequests` of [`backends`](crate::backends) sends
//! what these ask for, with the attempt layers on.

mod copier;
mod deleter;
mod fetcher;
mod self_test;
mod source;
mod upload;
mod write_once;

pub(crate) use copier::{Copier, CopyTuning};
pub(crate) use deleter::Deleter;
pub(crate) use fetcher::Fetcher;
pub(crate) use self_test::{refuses_second_completion, refuses_second_create};
pub use write_once::MultipartCreate;
