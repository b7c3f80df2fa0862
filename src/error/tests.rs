use std::error::Error as StdError;

use uuid::Uuid;

use super::*;

fn partition() -> TopicIdPartition {
    TopicIdPartition::new(Uuid::from_u128(1), "orders", 7)
}

fn segment() -> RemoteLogSegmentId {
    RemoteLogSegmentId::new(partition(), Uuid::from_u128(0xfe))
}

fn io_error(kind: io::ErrorKind) -> RemoteStorageError {
    RemoteStorageError::io("read", Path::new("/data/1.log"), io::Error::from(kind))
}

fn backend(transient: bool) -> RemoteStorageError {
    RemoteStorageError::Backend {
        key: "k".to_owned(),
        operation: OpKind::Put,
        status: transient.then_some(503),
        transient,
        reason: "put of `k` failed".to_owned(),
        source: Some(ErrorSource::new(io::Error::other("the cause"))),
    }
}

fn timed_out(operation: OpKind, phase: Option<CopyPhase>) -> RemoteStorageError {
    RemoteStorageError::TimedOut {
        operation,
        phase,
        key: "k".to_owned(),
        part: Some(3),
        after: Duration::from_secs(30),
    }
}

/// One row for each row of the table: error, reaction, worth a repetition, text.
#[allow(clippy::too_many_lines)] // It is a table.
fn table() -> Vec<(RemoteStorageError, ErrorKind, bool, &'static str)> {
    use RemoteStorageError as E;
    vec![
        (
            io_error(io::ErrorKind::NotFound),
            ErrorKind::Io,
            false,
            "cannot read /data/1.log",
        ),
        (
            io_error(io::ErrorKind::InvalidInput),
            ErrorKind::Invalid,
            false,
            "cannot read /data/1.log",
        ),
        (
            io_error(io::ErrorKind::InvalidData),
            ErrorKind::Corrupt,
            false,
            "cannot read /data/1.log",
        ),
        (
            E::SegmentNotFound(segment()),
            ErrorKind::NotFound,
            false,
            "segment not found: AAAAAAAAAAAAAAAAAAAA_g of orders-7",
        ),
        (
            E::InvalidAdd {
                id: segment(),
                reason: "it is known already".to_owned(),
            },
            ErrorKind::Invalid,
            false,
            "segment AAAAAAAAAAAAAAAAAAAA_g of orders-7 cannot be added: it is known already",
        ),
        (
            E::InvalidSegmentTransition {
                id: segment(),
                from: RemoteLogSegmentState::DeleteSegmentStarted,
                to: RemoteLogSegmentState::CopySegmentFinished,
            },
            ErrorKind::Invalid,
            false,
            "segment AAAAAAAAAAAAAAAAAAAA_g of orders-7 cannot go from DELETE_SEGMENT_STARTED \
             to COPY_SEGMENT_FINISHED",
        ),
        (
            E::InvalidPartitionDeleteTransition {
                tp: partition(),
                from: None,
                to: RemotePartitionDeleteState::DeletePartitionFinished,
            },
            ErrorKind::Invalid,
            false,
            "deletion of partition orders-7 (topic id AAAAAAAAAAAAAAAAAAAAAQ) cannot go from \
             no deletion to DELETE_PARTITION_FINISHED",
        ),
        (
            E::InvalidPartitionDeleteTransition {
                tp: partition(),
                from: Some(RemotePartitionDeleteState::DeletePartitionFinished),
                to: RemotePartitionDeleteState::DeletePartitionMarked,
            },
            ErrorKind::Invalid,
            false,
            "deletion of partition orders-7 (topic id AAAAAAAAAAAAAAAAAAAAAQ) cannot go from \
             DELETE_PARTITION_FINISHED to DELETE_PARTITION_MARKED",
        ),
        (
            E::InvalidArgument("the chunk size is 0: give one above 0".to_owned()),
            ErrorKind::Invalid,
            false,
            "the chunk size is 0: give one above 0",
        ),
        (
            E::ObjectExists {
                key: "k".to_owned(),
            },
            ErrorKind::Conflict,
            false,
            "object already exists: k",
        ),
        (
            E::PreconditionFailed {
                key: "k".to_owned(),
                reason: "another version".to_owned(),
            },
            ErrorKind::Conflict,
            false,
            "precondition failed for `k`: another version",
        ),
        (
            E::from(WormError::DeleteRefused {
                key: "k".to_owned(),
            }),
            ErrorKind::Refused,
            false,
            "write-once archive: delete refused for `k`: the archive keeps every object until \
             its retention ends",
        ),
        (
            E::from(WormError::ReadRefused),
            ErrorKind::Refused,
            false,
            "write-once archive: read refused: this archive is configured as write-only",
        ),
        (
            backend(true),
            ErrorKind::Unavailable,
            true,
            "put of `k` failed",
        ),
        (
            backend(false),
            ErrorKind::Rejected,
            false,
            "put of `k` failed",
        ),
        (
            E::exceeds_cap(OpKind::Get, "k", 12, 10),
            ErrorKind::Rejected,
            false,
            "object `k` is 12 bytes, exceeds cap of 10 bytes",
        ),
        (
            timed_out(OpKind::PutPart, None),
            ErrorKind::TimedOut,
            true,
            "put_part timed out after 30s, part 3 of `k`",
        ),
        (
            timed_out(OpKind::CopySegment, Some(CopyPhase::Uploading)),
            ErrorKind::TimedOut,
            false,
            "copy_segment timed out after 30s while uploading, part 3 of `k`",
        ),
        (
            E::OutcomeUnknown {
                operation: OpKind::CopySegment,
                key: "k".to_owned(),
            },
            ErrorKind::OutcomeUnknown,
            false,
            "outcome of copy_segment of `k` is unknown: repeat the call to learn it",
        ),
        (
            E::Corrupt {
                key: "k".to_owned(),
                reason: "5 of 8 bytes".to_owned(),
            },
            ErrorKind::Corrupt,
            false,
            "wrong bytes from the store for `k`: 5 of 8 bytes",
        ),
        (
            E::NotReady { partition: 3 },
            ErrorKind::NotReady,
            true,
            "metadata partition 3 has not caught up: try again later",
        ),
    ]
}

#[test]
fn each_error_has_the_reaction_and_the_text_of_the_table() {
    for (error, kind, retryable, text) in table() {
        assert_eq!(error.kind(), kind, "{error:?}");
        assert_eq!(error.is_retryable(), retryable, "{error:?}");
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn a_clone_is_the_same_error_with_the_same_cause() {
    for (error, ..) in table() {
        let clone = error.clone();
        assert_eq!(format!("{clone:?}"), format!("{error:?}"));
        assert_eq!(
            clone.source().map(ToString::to_string),
            error.source().map(ToString::to_string)
        );
    }
}

#[test]
fn no_operation_of_a_segment_is_repeated_after_its_time_ran_out() {
    for operation in OpKind::ALL {
        let error = timed_out(operation, None);
        assert_eq!(
            error.is_retryable(),
            !operation.as_str().ends_with("segment") && operation != OpKind::FetchIndex,
            "{operation}"
        );
    }
}

#[test]
fn a_timeout_names_what_is_known() {
    let error = RemoteStorageError::TimedOut {
        operation: OpKind::CopySegment,
        phase: Some(CopyPhase::Preparing),
        key: String::new(),
        part: None,
        after: Duration::from_millis(1500),
    };
    assert_eq!(
        error.to_string(),
        "copy_segment timed out after 1.5s while preparing"
    );
}

#[test]
fn the_cause_of_an_io_error_stays_its_source_with_kind_and_type() {
    let cause = io::Error::from_raw_os_error(28);
    let kind = cause.kind();
    let error = RemoteStorageError::io("write", Path::new("/data/1.log"), cause);
    let RemoteStorageError::Io(inner) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(inner.kind(), kind);
    let source = error.source().unwrap();
    let source: &io::Error = source.downcast_ref().unwrap();
    assert_eq!(source.raw_os_error(), Some(28));
    assert!(source.source().is_none());
}

#[test]
fn the_cause_of_a_store_error_can_be_downcast() {
    let error = backend(true);
    let source = error.source().unwrap();
    assert!(source.is::<io::Error>(), "{source:?}");
    assert_eq!(source.to_string(), "the cause");
    assert_eq!(error.status(), Some(503));
}

#[test]
fn the_cause_of_an_archives_error_is_the_archives_own() {
    let error = RemoteStorageError::from(WormError::ReadRefused);
    let source = error.source().unwrap();
    assert_eq!(source.downcast_ref(), Some(&WormError::ReadRefused));
}
#[test]
fn a_message_about_no_key_names_the_root_of_the_store() {
    use object_store::Error as StoreError;

    let listed = StoreError::Generic {
        store: "S3",
        source: "refused".into(),
    };
    let call = StoreCall {
        operation: OpKind::List,
        key: "",
        segment: None,
    };
    let (key, reason) = (String::new(), "why".to_owned());
    let errors = [
        RemoteStorageError::from_store(call, listed),
        RemoteStorageError::Corrupt {
            key: key.clone(),
            reason: reason.clone(),
        },
        RemoteStorageError::PreconditionFailed { key, reason },
    ];
    for error in errors {
        let text = error.to_string();
        assert!(text.contains("the store's root"), "{text}");
        assert!(!text.contains("``"), "{text}");
    }
    let unknown = RemoteStorageError::OutcomeUnknown {
        operation: OpKind::CopySegment,
        key: String::new(),
    };
    let operation = OpKind::CopySegment;
    assert_eq!(
        unknown.to_string(),
        format!("outcome of {operation} is unknown: repeat the call to learn it")
    );
}
