//! The names of operations, as they stand in spans, metric labels and errors.

use std::fmt;

/// What is being done: a segment operation, or one request to a store below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum OpKind {
    /// Copies a closed segment and its indexes to the remote tier.
    CopySegment,
    /// Fetches a range of a segment's log bytes.
    FetchSegment,
    /// Fetches one index of a segment whole.
    FetchIndex,
    /// Deletes every object of a segment.
    DeleteSegment,
    /// One ranged or whole GET.
    Get,
    /// One HEAD.
    Head,
    /// One unconditional PUT.
    Put,
    /// One create of a key that must not exist yet, its outcome resolved.
    Create,
    /// The start of a multipart upload.
    StartUpload,
    /// One part of a multipart upload.
    PutPart,
    /// The request that makes a multipart upload visible.
    CompleteUpload,
    /// The request that gives a multipart upload up.
    AbortUpload,
    /// One DELETE.
    Delete,
    /// One listing.
    List,
    /// One reading of what a bucket promises to keep.
    ReadRetention,
}

impl OpKind {
    /// Every operation and request, segment operations first.
    pub const ALL: [Self; 15] = [
        Self::CopySegment,
        Self::FetchSegment,
        Self::FetchIndex,
        Self::DeleteSegment,
        Self::Get,
        Self::Head,
        Self::Put,
        Self::Create,
        Self::StartUpload,
        Self::PutPart,
        Self::CompleteUpload,
        Self::AbortUpload,
        Self::Delete,
        Self::List,
        Self::ReadRetention,
    ];

    /// The stable name, used as a metric label and as a span field.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CopySegment => "copy_segment",
            Self::FetchSegment => "fetch_segment",
            Self::FetchIndex => "fetch_index",
            Self::DeleteSegment => "delete_segment",
            Self::Get => "get",
            Self::Head => "head",
            Self::Put => "put",
            Self::Create => "create",
            Self::StartUpload => "start_upload",
            Self::PutPart => "put_part",
            Self::CompleteUpload => "complete_upload",
            Self::AbortUpload => "abort_upload",
            Self::Delete => "delete",
            Self::List => "list",
            Self::ReadRetention => "read_retention",
        }
    }

    /// Whether this is one request to a store, and not an operation on a segment.
    pub const fn is_store_request(self) -> bool {
        !matches!(
            self,
            Self::CopySegment | Self::FetchSegment | Self::FetchIndex | Self::DeleteSegment
        )
    }

    /// Whether this request changes the store. Reads and writes have permits of their own.
    pub const fn is_write(self) -> bool {
        !matches!(
            self,
            Self::FetchSegment
                | Self::FetchIndex
                | Self::Get
                | Self::Head
                | Self::List
                | Self::ReadRetention
        )
    }
}

impl fmt::Display for OpKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn operations_have_labels_of_their_own() {
        let labels: HashSet<_> = OpKind::ALL.into_iter().map(OpKind::as_str).collect();
        assert_eq!(labels.len(), OpKind::ALL.len());
        for label in labels {
            assert!(
                label
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
                "{label}"
            );
        }
    }

    #[test]
    fn what_only_looks_at_a_store_is_no_write() {
        let reads: Vec<_> = OpKind::ALL
            .into_iter()
            .filter(|operation| !operation.is_write())
            .collect();
        assert_eq!(
            reads,
            [
                OpKind::FetchSegment,
                OpKind::FetchIndex,
                OpKind::Get,
                OpKind::Head,
                OpKind::List,
                OpKind::ReadRetention
            ]
        );
    }
}
