//! A blocking plugin as the services of the four segment operations.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio_util::task::AbortOnDropHandle;
use tower::Service;

use crate::error::{ErrorSource, RemoteStorageError};
use crate::model::CopyReceipt;
use crate::ops::{CopySegment, DeleteSegment, FetchIndex, FetchSegment, OpFuture, StorageOp};
use crate::spi::RemoteStorageManager;

/// Answers the four segment operations by a [`RemoteStorageManager`], so that a plugin written
/// against Kafka's blocking interface gets this crate's layers. Always ready.
///
/// Each call runs on a thread that may block (`spawn_blocking`), so it needs a tokio runtime. The
/// plugin chooses its own keys, so a copy's receipt holds its custom metadata and lists no objects.
///
/// # Errors
///
/// Those of the plugin. A plugin that panics is a
/// [`Backend`](RemoteStorageError::Backend) error that will not change by repeating the call, and
/// can be called again.
///
/// # Cancellation
///
/// A call that is dropped before a thread took it is never made. One that is under way **goes on to
/// its end**: nothing can stop a blocking plugin, and a deadline above it ends the wait and not the
/// work. What it was about to write may appear later.
#[derive(Clone)]
pub struct PluginService {
    plugin: Arc<dyn RemoteStorageManager>,
}

impl PluginService {
    /// Services over this plugin.
    pub fn new(plugin: Arc<dyn RemoteStorageManager>) -> Self {
        Self { plugin }
    }

    fn answer<Op: StorageOp>(
        &self,
        op: Op,
        call: fn(&dyn RemoteStorageManager, Op) -> Result<Op::Output, RemoteStorageError>,
    ) -> OpFuture<Op> {
        let plugin = Arc::clone(&self.plugin);
        Box::pin(async move {
            let segment = op.segment().cloned();
            let made = tokio::task::spawn_blocking(move || call(plugin.as_ref(), op));
            let error = match AbortOnDropHandle::new(made).await {
                Ok(answer) => return answer,
                Err(error) => error,
            };
            if !error.is_panic() {
                // Only a runtime that shuts down does not make the call.
                return Err(io::Error::other(error).into());
            }
            let segment = segment.map_or_else(String::new, |metadata| {
                metadata.remote_log_segment_id().to_string()
            });
            Err(RemoteStorageError::Backend {
                operation: Op::KIND,
                status: None,
                transient: false,
                reason: format!("the plugin panicked in {} of segment {segment}", Op::KIND),
                key: segment,
                source: Some(ErrorSource::new(error)),
            })
        })
    }
}

impl fmt::Debug for PluginService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginService").finish_non_exhaustive()
    }
}

macro_rules! answer_with {
    ($($op:ident => |$plugin:ident, $request:ident| $call:expr,)*) => {$(
        impl Service<$op> for PluginService {
            type Response = <$op as StorageOp>::Output;
            type Error = RemoteStorageError;
            type Future = OpFuture<$op>;

            fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
                Poll::Ready(Ok(()))
            }

            fn call(&mut self, op: $op) -> Self::Future {
                self.answer(op, |$plugin, $request| $call)
            }
        }
    )*};
}

answer_with! {
    CopySegment => |plugin, op| {
        let custom_metadata = plugin.copy_log_segment_data(&op.metadata, &op.data)?;
        Ok(CopyReceipt { objects: Vec::new(), custom_metadata })
    },
    FetchSegment => |plugin, op| {
        let (start, end) = (op.start_position, op.end_position);
        plugin.fetch_log_segment(&op.metadata, start, end).map(Bytes::from)
    },
    FetchIndex => |plugin, op| plugin.fetch_index(&op.metadata, op.index).map(Bytes::from),
    DeleteSegment => |plugin, op| plugin.delete_log_segment_data(&op.metadata),
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use parking_lot::{Condvar, Mutex};
    use tower::ServiceExt as _;

    use super::*;
    use crate::error::ErrorKind;
    use crate::model::{
        CustomMetadata, IndexType, LogSegmentData, OpKind, RemoteLogSegmentMetadata,
    };
    use crate::ops::OpService;
    use crate::testing::segments::SegmentSpec;

    /// Writes down what it was asked, and answers.
    #[derive(Default)]
    struct Plugin {
        calls: Mutex<Vec<String>>,
        gate: Option<Arc<Gate>>,
    }

    impl Plugin {
        fn called(&self, call: String) {
            if let Some(gate) = &self.gate {
                gate.pass();
            }
            self.calls.lock().push(call);
        }
    }

    /// Holds a call until it is opened.
    #[derive(Default)]
    struct Gate {
        open: Mutex<(bool, usize)>,
        changed: Condvar,
    }

    impl Gate {
        fn pass(&self) {
            let mut state = self.open.lock();
            state.1 += 1;
            self.changed.notify_all();
            self.changed.wait_while(&mut state, |(open, _)| !*open);
        }

        fn open(&self) {
            self.open.lock().0 = true;
            self.changed.notify_all();
        }

        fn waiting(&self) -> usize {
            self.open.lock().1
        }
    }

    impl RemoteStorageManager for Plugin {
        fn copy_log_segment_data(
            &self,
            metadata: &RemoteLogSegmentMetadata,
            data: &LogSegmentData,
        ) -> Result<Option<CustomMetadata>, RemoteStorageError> {
            let log = data.log_segment.display();
            self.called(format!("copy {} {log}", metadata.start_offset()));
            Ok(Some(CustomMetadata(vec![1, 2])))
        }

        fn fetch_log_segment(
            &self,
            _: &RemoteLogSegmentMetadata,
            start_position: u32,
            end_position: Option<u32>,
        ) -> Result<Vec<u8>, RemoteStorageError> {
            self.called(format!("fetch {start_position} {end_position:?}"));
            assert!(start_position != 13, "unlucky start");
            Ok(b"log".to_vec())
        }

        fn fetch_index(
            &self,
            metadata: &RemoteLogSegmentMetadata,
            index_type: IndexType,
        ) -> Result<Vec<u8>, RemoteStorageError> {
            self.called(format!("index {index_type:?}"));
            Err(RemoteStorageError::SegmentNotFound(
                metadata.remote_log_segment_id().clone(),
            ))
        }

        fn delete_log_segment_data(
            &self,
            _: &RemoteLogSegmentMetadata,
        ) -> Result<(), RemoteStorageError> {
            self.called("delete".to_owned());
            Ok(())
        }
    }

    fn segment() -> Arc<RemoteLogSegmentMetadata> {
        Arc::new(SegmentSpec::new(10, 5..=9).broker(0).make())
    }

    fn data() -> LogSegmentData {
        LogSegmentData {
            log_segment: PathBuf::from("some.log"),
            offset_index: PathBuf::from("some.index"),
            time_index: PathBuf::from("some.timeindex"),
            transaction_index: None,
            producer_snapshot_index: None,
            leader_epoch_index: Bytes::new(),
        }
    }

    #[tokio::test]
    async fn each_operation_is_one_call_of_the_plugin() {
        fn check<S>(service: S) -> S
        where
            S: OpService<CopySegment>
                + OpService<FetchSegment>
                + OpService<FetchIndex>
                + OpService<DeleteSegment>,
        {
            service
        }
        let plugin = Arc::new(Plugin::default());
        let service = check(PluginService::new(
            Arc::clone(&plugin) as Arc<dyn RemoteStorageManager>
        ));
        let (metadata, service) = (segment(), || service.clone());

        let copy = CopySegment::new(Arc::clone(&metadata), data());
        let receipt = service().oneshot(copy).await.unwrap();
        assert_eq!(receipt.custom_metadata, Some(CustomMetadata(vec![1, 2])));
        let fetch = FetchSegment::new(Arc::clone(&metadata), 2, Some(7));
        assert_eq!(service().oneshot(fetch).await.unwrap(), "log");
        let fetch = FetchIndex::new(Arc::clone(&metadata), IndexType::Transaction);
        let error = service().oneshot(fetch).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let delete = DeleteSegment::new(metadata);
        service().oneshot(delete).await.unwrap();
        assert_eq!(
            *plugin.calls.lock(),
            [
                "copy 5 some.log",
                "fetch 2 Some(7)",
                "index Transaction",
                "delete"
            ]
        );
    }

    #[tokio::test]
    async fn a_plugin_that_panics_is_an_error_and_can_be_called_again() {
        let service = PluginService::new(Arc::new(Plugin::default()));
        let fetch = |start| FetchSegment::new(segment(), start, None);
        let error = service.clone().oneshot(fetch(13)).await.unwrap_err();
        let RemoteStorageError::Backend {
            operation,
            transient: false,
            source: Some(source),
            ..
        } = &error
        else {
            panic!("{error:?}");
        };
        assert_eq!(*operation, OpKind::FetchSegment);
        assert!(source.to_string().contains("unlucky start"), "{source:?}");
        assert!(
            error.to_string().contains("panicked in fetch_segment"),
            "{error}"
        );
        assert_eq!(service.oneshot(fetch(0)).await.unwrap(), "log");
    }

    #[test]
    fn a_dropped_call_is_not_made_if_no_thread_took_it_and_ends_if_one_did() {
        let gate = Arc::new(Gate::default());
        let plugin = Arc::new(Plugin {
            gate: Some(Arc::clone(&gate)),
            ..Plugin::default()
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let service = PluginService::new(Arc::clone(&plugin) as Arc<dyn RemoteStorageManager>);
            let fetch = |start| {
                tokio::spawn(
                    service
                        .clone()
                        .oneshot(FetchSegment::new(segment(), start, None)),
                )
            };
            let under_way = fetch(1);
            while gate.waiting() == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let queued = fetch(2);
            tokio::task::yield_now().await;
            for call in [under_way, queued] {
                call.abort();
                assert!(call.await.unwrap_err().is_cancelled());
            }
            gate.open();
            assert_eq!(fetch(3).await.unwrap().unwrap(), "log");
        });
        assert_eq!(*plugin.calls.lock(), ["fetch 1 None", "fetch 3 None"]);
    }
}
