//! The layers of the two floors of requests, each written once for every request it can wrap.
//!
//! A layer says in its docs where it goes; the builder of `RemoteStorage` is the one place that
//! puts them in order:
//!
//! ```text
//! segment operations   trace ▸ metrics ▸ deadline ▸ [seal] ▸ copier
//!                      trace ▸ metrics ▸ fetcher, or RefuseReads
//!                      trace ▸ metrics ▸ index cache ▸ fetcher, or RefuseReads
//!                      trace ▸ metrics ▸ deleter, or RefuseDeletes
//! store requests       retry ▸ trace ▸ metrics ▸ timeout ▸ permits ▸ store
//! ```
//!
//! A dropped call is a cancelled call, through every layer: nothing is spawned here but the loads of
//! the index cache and the commit of a sealed copy, and a guard gives back whatever the call held.

mod deadline;
mod index_cache;
pub mod metrics;
mod outcome;
mod permits;
mod refuse;
mod retry;
mod seal;
mod timeout;
mod trace;

#[cfg(test)]
mod samples;

pub use deadline::{Deadline, DeadlineLayer};
pub use index_cache::{IndexCache, IndexCacheLayer};
pub(crate) use metrics::MetricsLayer;
pub use permits::{Permits, PermitsLayer};
pub use refuse::{Refusal, RefuseDeletes, RefuseReads};
pub use retry::{Retry, RetryLayer, RetryPolicy};
pub use seal::SealRules;
pub(crate) use seal::{SealLayer, Sealer};
pub use timeout::{Timeout, TimeoutLayer};
pub use trace::{Trace, TraceLayer};
