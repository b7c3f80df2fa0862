//! How many requests a command sent to its store, and how many bytes came back.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use krabka_remote_storage::RemoteStorageError;
use krabka_remote_storage::backends::StoreClient;
use krabka_remote_storage::layout::parse_segment_file_name;
use krabka_remote_storage::model::{IndexType, LOG_FILE_SUFFIX, RemoteLogSegmentMetadata};
use krabka_remote_storage::ops::{
    AbortUpload, CompleteUpload, Create, Delete, Get, Head, List, ListUploads, OpFuture, Put,
    PutPart, StartUpload, StorageOp,
};
use parking_lot::Mutex;

/// Counts by kind of object. A clone counts for the same command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stats {
    counts: Arc<Mutex<BTreeMap<&'static str, Count>>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    requests: u64,
    bytes: u64,
}

impl Stats {
    /// A client that sends to this one and counts each request that reaches it, also one that fails
    /// and is repeated.
    pub(crate) fn of(&self, client: Arc<dyn StoreClient>) -> Arc<dyn StoreClient> {
        Arc::new(Counted {
            client,
            stats: self.clone(),
        })
    }

    fn count(&self, kind: &'static str, requests: u64, bytes: u64) {
        let mut counts = self.counts.lock();
        let count = counts.entry(kind).or_default();
        count.requests += requests;
        count.bytes += bytes;
    }
}

/// A line for each kind, and one for all together.
impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.counts.lock();
        let mut total = Count::default();
        for (kind, count) in counts.iter() {
            writeln!(f, "stats: {kind:<24} {count}")?;
            total.requests += count.requests;
            total.bytes += count.bytes;
        }
        writeln!(f, "stats: {:<24} {total}", "total")
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8} requests {:>15} bytes", self.requests, self.bytes)
    }
}

/// What a request is about, in words.
fn kind_of(key: &str) -> &'static str {
    let name = key.rsplit('/').next().and_then(parse_segment_file_name);
    let suffix = name.map(|name| name.suffix);
    if suffix == Some(LOG_FILE_SUFFIX) {
        return "logs";
    }
    let index = IndexType::ALL
        .into_iter()
        .find(|index| suffix == Some(index.suffix()));
    match index {
        Some(IndexType::Offset) => "offset indexes",
        Some(IndexType::Timestamp) => "time indexes",
        Some(IndexType::Transaction) => "transaction indexes",
        Some(IndexType::ProducerSnapshot) => "producer snapshots",
        Some(IndexType::LeaderEpoch) => "leader-epoch checkpoints",
        None => "other objects",
    }
}

#[derive(Debug)]
struct Counted {
    client: Arc<dyn StoreClient>,
    stats: Stats,
}

macro_rules! counted {
    ($($request:ident => $method:ident, $kind:expr;)*) => {$(
        fn $method(self: Arc<Self>, request: $request) -> OpFuture<$request> {
            Box::pin(async move {
                let kind_of: fn(&str) -> &'static str = $kind;
                let kind = kind_of(request.key());
                self.stats.count(kind, 1, 0);
                let carried = request.bytes_carried();
                let output = Arc::clone(&self.client).$method(request).await?;
                let answered = <$request as StorageOp>::bytes_answered(&output);
                self.stats.count(kind, 0, carried + answered);
                Ok(output)
            })
        }
    )*};
}

impl StoreClient for Counted {
    counted! {
        Get => get, kind_of;
        Head => head, kind_of;
        Put => put, kind_of;
        Create => create, kind_of;
        StartUpload => start_upload, kind_of;
        PutPart => put_part, kind_of;
        CompleteUpload => complete_upload, kind_of;
        AbortUpload => abort_upload, kind_of;
        Delete => delete, kind_of;
        List => list, |_| "listings";
        ListUploads => list_uploads, |_| "listings";
    }

    fn check_segment(&self, segment: &RemoteLogSegmentMetadata) -> Result<(), RemoteStorageError> {
        self.client.check_segment(segment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_what_they_are_about() {
        let segment =
            "p/orders-0-AAAAAAAAAAAAAAAAAAAAAQ/00000000000000000011-AAAAAAAAAAAAAAAAAAAAAg";
        for (suffix, kind) in [
            (".log", "logs"),
            (".index", "offset indexes"),
            (".timeindex", "time indexes"),
            (".txnindex", "transaction indexes"),
            (".snapshot", "producer snapshots"),
            (".leader_epoch_checkpoint", "leader-epoch checkpoints"),
            (".manifest", "other objects"),
        ] {
            assert_eq!(kind_of(&format!("{segment}{suffix}")), kind);
        }
        assert_eq!(kind_of("p/readme"), "other objects");

        let stats = Stats::default();
        stats.count("logs", 2, 0);
        stats.count("logs", 0, 1_000);
        stats.count("listings", 1, 0);
        assert_eq!(
            stats.to_string(),
            "stats: listings                        1 requests               0 bytes\n\
             stats: logs                            2 requests            1000 bytes\n\
             stats: total                           3 requests            1000 bytes\n"
        );
    }
}
