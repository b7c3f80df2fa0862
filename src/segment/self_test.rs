//! Finds out by what a store does whether it lets a key be written once.
//!
//! A store may take a condition and ignore it (Ceph RGW 16.2 does in buckets with versions), so what
//! a configuration says of it is not enough for an archive.

use tokio_util::task::TaskTracker;

use super::upload::Upload;
use crate::archive::{WORM_PROBE_BODY, WORM_PROBE_NAME};
use crate::backends::StoreRequests;
use crate::error::RemoteStorageError;
use crate::layout::KeyPrefix;
use crate::ops::{Create, StoreTarget, WriteMode};

/// No object is known by this digest. So a refused create is never taken for an own success whose
/// answer was lost: the probe of an earlier start has the same bytes.
const NO_DIGEST: [u8; 32] = [0; 32];

/// Whether the store refuses to create an object where one stands.
///
/// It is tried with one object, the probe, which stays: a verifier knows it by its name and bytes. A
/// store that does not refuse has written the same bytes over it.
pub(crate) async fn refuses_second_create(
    store: &StoreRequests,
    prefix: &KeyPrefix,
) -> Result<bool, RemoteStorageError> {
    // The first may meet the probe of an earlier start, which answers the question already.
    for _ in 0..2 {
        let create = Create {
            target: probe(prefix),
            payload: WORM_PROBE_BODY.into(),
            sha256: NO_DIGEST,
        };
        match store.send(create).await {
            Ok(_) => {}
            Err(error) if is_refusal(&error) => return Ok(true),
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Whether the store refuses to complete a multipart upload where an object stands, if it is told
/// to. The probe must be there; the upload is given up.
pub(crate) async fn refuses_second_completion(
    store: &StoreRequests,
    prefix: &KeyPrefix,
) -> Result<bool, RemoteStorageError> {
    let upload = Upload::start(store, &probe(prefix), &TaskTracker::new()).await?;
    let completed = async {
        let part = upload.put_part(1, 0, WORM_PROBE_BODY.into()).await?;
        let mode = WriteMode::Create {
            size_bytes: WORM_PROBE_BODY.len() as u64,
            sha256: NO_DIGEST,
        };
        upload.complete([part].into(), mode).await
    }
    .await;
    match completed {
        Ok(_) => {
            upload.ended();
            Ok(false)
        }
        Err(error) => {
            upload.abort().await;
            match error {
                error if is_refusal(&error) => Ok(true),
                error if is_unknown_to_the_store(&error) => Ok(false),
                error => Err(error),
            }
        }
    }
}

fn probe(prefix: &KeyPrefix) -> StoreTarget {
    StoreTarget::object(prefix.as_path().clone().join(WORM_PROBE_NAME))
}

/// Whether the store said that something stands there. Credentials that may not read cannot look at
/// what it is, which does not matter here.
fn is_refusal(error: &RemoteStorageError) -> bool {
    matches!(
        error,
        RemoteStorageError::ObjectExists { .. } | RemoteStorageError::OutcomeUnknown { .. }
    )
}

/// Whether the store does not know the condition at all.
fn is_unknown_to_the_store(error: &RemoteStorageError) -> bool {
    matches!(
        error,
        RemoteStorageError::Backend {
            status: None,
            transient: false,
            ..
        } | RemoteStorageError::Backend {
            status: Some(400 | 405 | 501),
            ..
        }
    )
}

#[cfg(all(test, feature = "aws"))]
mod tests {
    use tower::layer::util::Identity;

    use super::*;
    use crate::backends::s3::fake::{Completions, Conduct, FakeS3};
    use crate::error::ErrorKind;

    const PROBE: &str = "tier/.krabka-worm-probe";

    fn requests(server: &FakeS3) -> (StoreRequests, KeyPrefix) {
        let backend = server.open();
        let requests = StoreRequests::new(backend.client, &Identity::new());
        (requests, backend.prefix)
    }

    #[tokio::test]
    async fn a_store_that_refuses_a_second_create_is_tried_twice_at_first_and_once_later() {
        for readable in [true, false] {
            let server = FakeS3::start(Conduct {
                readable,
                ..Conduct::default()
            })
            .await;
            let (store, prefix) = requests(&server);
            for puts in [2, 3, 4] {
                assert!(refuses_second_create(&store, &prefix).await.unwrap());
                let seen = server.seen();
                assert_eq!(
                    seen.iter().filter(|seen| seen.method == "PUT").count(),
                    puts
                );
            }
            assert_eq!(server.writes(), 1);
            let objects = server.objects();
            assert_eq!(objects.len(), 1);
            assert_eq!(objects[PROBE], b"krabka-worm-probe v1\n");
        }
    }

    #[tokio::test]
    async fn a_store_that_writes_over_the_probe_is_found_out_and_the_bytes_stay_the_same() {
        let server = FakeS3::start(Conduct {
            honours_create: false,
            ..Conduct::default()
        })
        .await;
        let (store, prefix) = requests(&server);
        assert!(!refuses_second_create(&store, &prefix).await.unwrap());
        assert_eq!(server.writes(), 2);
        assert_eq!(server.objects()[PROBE], WORM_PROBE_BODY);
    }

    #[tokio::test]
    async fn completions_are_tried_on_the_probe_and_leave_no_upload() {
        for (completions, refuses) in [
            (Completions::Honoured, true),
            (Completions::Ignored, false),
            (Completions::Refused(400), false),
            (Completions::Refused(405), false),
            (Completions::Refused(501), false),
        ] {
            let server = FakeS3::start(Conduct {
                completions,
                ..Conduct::default()
            })
            .await;
            server.put(PROBE, WORM_PROBE_BODY);
            let (store, prefix) = requests(&server);
            let found = refuses_second_completion(&store, &prefix).await.unwrap();
            assert_eq!(found, refuses, "{completions:?}");
            assert_eq!(server.open_uploads(), 0);
            assert_eq!(server.objects().len(), 1);
            assert_eq!(server.objects()[PROBE], WORM_PROBE_BODY);
        }
    }

    #[tokio::test]
    async fn a_completion_that_fails_for_another_reason_says_nothing_of_the_store() {
        for (status, kind) in [(403, ErrorKind::Rejected), (503, ErrorKind::Unavailable)] {
            let server = FakeS3::start(Conduct {
                completions: Completions::Refused(status),
                ..Conduct::default()
            })
            .await;
            let (store, prefix) = requests(&server);
            let error = refuses_second_completion(&store, &prefix)
                .await
                .unwrap_err();
            assert_eq!((error.kind(), error.status()), (kind, Some(status)));
            assert_eq!(server.open_uploads(), 0);
        }
    }

    #[tokio::test]
    async fn a_store_that_cannot_be_reached_is_an_error_and_no_verdict() {
        let server = FakeS3::start(Conduct::default()).await;
        let (store, prefix) = requests(&server);
        drop(server);
        let error = refuses_second_create(&store, &prefix).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    }
}
